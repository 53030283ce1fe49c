//! Which libcupti a recorded program would get here.

use std::ffi::CString;
use std::path::{Path, PathBuf};

use gputrace_collector::discovery::{self, Candidate, Surroundings};

use super::{Finding, load, version_of};

/// What is looked for: by this shell's environment, and in the Python that it would start.
fn surroundings() -> Surroundings<'static> {
    let path = || std::env::var_os("PATH");
    Surroundings {
        programs: ["python3", "python"]
            .into_iter()
            .filter_map(|name| discovery::resolve(Path::new(name), path()))
            .flat_map(|program| [Some(program.clone()), program.canonicalize().ok()])
            .flatten()
            .collect(),
        ..Surroundings::of_this_process()
    }
}

/// Looks for it. `driver_version` is cuDriverGetVersion's number.
pub(super) fn finding(driver_version: Option<i32>) -> Finding {
    let driver = driver_version.and_then(discovery::generation_of_driver);
    let found = discovery::find(&surroundings(), driver);
    let mut broken: Option<PathBuf> = None;
    for candidate in &found.usable {
        let handle = CString::new(candidate.path.as_os_str().as_encoded_bytes())
            .ok()
            .and_then(|path| super::open(&path));
        if let Some(handle) = handle {
            return present(candidate, version_of(handle, c"cuptiGetVersion"));
        }
        broken.get_or_insert_with(|| candidate.path.clone());
    }
    let suitable: Vec<&'static str> = discovery::NAMES
        .into_iter()
        .filter(|name| discovery::suits(Path::new(name), driver))
        .collect();
    if let Some((name, handle)) = load(&suitable) {
        let candidate = Candidate {
            path: super::loaded_from(handle).unwrap_or_default().join(name),
            how: "by the loader",
            generation: None,
        };
        return present(&candidate, version_of(handle, c"cuptiGetVersion"));
    }
    let why = match (found.too_new.first(), broken) {
        (_, Some(path)) => format!("{} cannot be loaded", path.display()),
        (Some(candidate), None) => format!(
            "{} is for a newer driver than this one (CUDA {}.{})",
            candidate.path.display(),
            driver_version.unwrap_or(0) / 1000,
            driver_version.unwrap_or(0) % 1000 / 10
        ),
        (None, None) => "not found".to_owned(),
    };
    Finding::absent(
        "CUPTI",
        why,
        format!(
            "{}. A program that brings its own (PyTorch does) needs nothing",
            discovery::how_to_get(driver_version)
        ),
    )
}

fn present(candidate: &Candidate, version: Option<i32>) -> Finding {
    let version = version.map_or_else(
        || ", which does not tell its version".to_owned(),
        |version| format!(", version {version}"),
    );
    Finding::present(
        "CUPTI",
        format!(
            "{}{version}, found {}; one that the program itself has loaded comes before it",
            candidate.path.display(),
            candidate.how
        ),
    )
}
