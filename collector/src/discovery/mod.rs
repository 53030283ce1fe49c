//! Where libcupti is on this machine.
//!
//! The driver does not bring it: it comes with the CUDA toolkit, with a package of Python's or conda's, or with the
//! program itself. One that is loaded already is always taken, since a second would be a second CUPTI that collides
//! with it; then the one that GPUTRACE_CUPTI names. After these the driver decides: libcupti of a newer CUDA generation
//! than the driver's does not start on it, one of the same generation is preferred, and an older one works (the driver
//! is compatible with what was built for earlier ones). Among equals the program's own comes before the machine's.

mod folders;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// The names of CUPTI's library, newest first.
pub const NAMES: [&str; 3] = ["libcupti.so.13", "libcupti.so.12", "libcupti.so"];

/// What is asked where libcupti might be; made up in tests.
pub struct Surroundings<'a> {
    /// An environment variable.
    pub variable: &'a dyn Fn(&str) -> Option<OsString>,
    /// Files that are mapped into the process.
    pub mapped: Vec<PathBuf>,
    /// The program that runs, by the names under which it was started and lies on the disk: a Python's packages lie
    /// beside the name by which it was called, which may be a link in a virtual environment.
    pub programs: Vec<PathBuf>,
    /// What absolute folders begin with: `/`.
    pub root: PathBuf,
}

/// A libcupti that lies somewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The file.
    pub path: PathBuf,
    /// How it was found, as words that follow "found".
    pub how: &'static str,
    /// Its CUDA generation (12, 13), where its names tell.
    pub generation: Option<u32>,
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// To be tried in this order.
    pub usable: Vec<Candidate>,
    /// For a newer driver than the one that runs.
    pub too_new: Vec<Candidate>,
}

impl Surroundings<'static> {
    /// Those of this process.
    #[must_use]
    pub fn of_this_process() -> Self {
        Self {
            variable: &|name| std::env::var_os(name),
            mapped: mapped_files(&std::fs::read_to_string("/proc/self/maps").unwrap_or_default()),
            programs: this_program(),
            root: PathBuf::from("/"),
        }
    }
}

/// The CUDA generation of a driver, from cuDriverGetVersion's number (13020 is 13).
#[must_use]
pub fn generation_of_driver(version: i32) -> Option<u32> {
    u32::try_from(version / 1000)
        .ok()
        .filter(|&generation| generation > 0)
}

/// The files of `/proc/self/maps`, each once.
fn mapped_files(maps: &str) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = Vec::new();
    for line in maps.lines() {
        // Address, permissions, offset, device, inode, then the path, which may hold blanks.
        let Some(path) = line.find('/').map(|start| &line[start..]) else {
            continue;
        };
        // The segments of a file follow each other.
        if files.last().is_none_or(|last| last != Path::new(path)) {
            files.push(PathBuf::from(path));
        }
    }
    files.sort_unstable();
    files.dedup();
    files
}

/// How this process's program was called, found along PATH, and where it lies.
fn this_program() -> Vec<PathBuf> {
    use std::os::unix::ffi::OsStrExt;

    let mut programs = Vec::new();
    let command = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    let called = command.split(|&byte| byte == 0).next().unwrap_or_default();
    programs.extend(resolve(
        Path::new(OsStr::from_bytes(called)),
        std::env::var_os("PATH"),
    ));
    programs.extend(std::fs::read_link("/proc/self/exe"));
    programs.dedup();
    programs
}

/// A program by the name under which it is called: a path as it is, a bare name along `path`.
#[must_use]
pub fn resolve(called: &Path, path: Option<OsString>) -> Option<PathBuf> {
    if called.as_os_str().is_empty() {
        return None;
    }
    if called.components().count() > 1 {
        return std::path::absolute(called).ok();
    }
    std::env::split_paths(&path?)
        .map(|folder| folder.join(called))
        .find(|file| file.is_file())
}

/// Whether a file's name is one of libcupti's: `libcupti.so.13`, `libcupti.so.2025.3.1`, and `libcupti-1a2b3c4d.so.12`
/// as wheels rename it.
fn is_cupti(path: &Path) -> bool {
    let name = path.file_name().map(OsStr::to_string_lossy).unwrap_or_default();
    name.strip_prefix("libcupti")
        .is_some_and(|rest| rest.starts_with(".so") || rest.starts_with('-') && rest.contains(".so"))
}

/// The CUDA generation that a file's name tells: `.so.13` says 13, `.so.2025.3.1` nothing, `.so` what it links to.
fn generation_of(path: &Path) -> Option<u32> {
    let by_name = |path: &Path| {
        let name = path.file_name()?.to_string_lossy().into_owned();
        let number = name.split_once(".so.")?.1.split('.').next()?.parse().ok()?;
        // Releases are numbered by year in the file's own name.
        (9..100).contains(&number).then_some(number)
    };
    by_name(path).or_else(|| by_name(&std::fs::read_link(path).ok()?))
}

/// Whether a libcupti of this name is of no newer CUDA generation than the driver, as far as the two are known.
#[must_use]
pub fn suits(path: &Path, driver: Option<u32>) -> bool {
    generation_of(path)
        .zip(driver)
        .is_none_or(|(generation, driver)| generation <= driver)
}

/// Finds every libcupti, in the order in which they are to be tried. `driver`: the running driver's CUDA generation.
#[must_use]
pub fn find(surroundings: &Surroundings<'_>, driver: Option<u32>) -> Found {
    let mut found = Found::default();
    let mut seen: Vec<PathBuf> = Vec::new();
    let mut add = |path: PathBuf, how, wanted: bool| {
        let file = path.canonicalize().unwrap_or_else(|_| path.clone());
        if seen.contains(&file) {
            return;
        }
        seen.push(file);
        // What is loaded or named by the user is taken whatever it is: its own error says what is wrong.
        let usable = wanted || suits(&path, driver);
        let candidate = Candidate {
            generation: generation_of(&path),
            path,
            how,
        };
        if usable {
            found.usable.push(candidate);
        } else {
            found.too_new.push(candidate);
        }
    };
    for path in surroundings.mapped.iter().filter(|path| is_cupti(path)) {
        add(path.clone(), "loaded by the program already", true);
    }
    if let Some(named) = (surroundings.variable)("GPUTRACE_CUPTI").filter(|named| !named.is_empty()) {
        add(PathBuf::from(named), "named by GPUTRACE_CUPTI", true);
    }
    for (folder, how) in folders::all(surroundings) {
        for path in folders::libraries_in(&folder) {
            add(path, how, false);
        }
    }
    let wanted = found
        .usable
        .iter()
        .position(|candidate| !candidate.how.contains("already") && !candidate.how.contains("GPUTRACE_CUPTI"))
        .unwrap_or(found.usable.len());
    // Stable: among equals the order of places holds.
    found.usable[wanted..].sort_by_key(|candidate| match (candidate.generation, driver) {
        (Some(generation), Some(driver)) => (0, driver.saturating_sub(generation)),
        (Some(_), None) => (0, 0),
        (None, _) => (1, 0),
    });
    found
}

/// How to get a libcupti that runs on a driver of this version (cuDriverGetVersion's number), as a sentence's rest.
#[must_use]
pub fn how_to_get(driver_version: Option<i32>) -> String {
    let version = driver_version.filter(|&version| version >= 12_000);
    let (package, toolkit) = match version {
        Some(version) if version < 13_000 => {
            ("nvidia-cuda-cupti-cu12", format!("12-{}", version % 1000 / 10))
        }
        Some(version) => (
            "nvidia-cuda-cupti",
            format!("{}-{}", version / 1000, version % 1000 / 10),
        ),
        None => ("nvidia-cuda-cupti", "13-0".to_owned()),
    };
    format!(
        "`pip install {package}` into the program's Python, or `apt install cuda-cupti-{toolkit}`, or `conda install \
         -c nvidia cuda-cupti`; or name a libcupti in GPUTRACE_CUPTI"
    )
}

#[cfg(test)]
mod tests;
