//! Where the shared libraries are that gputrace injects or stands in with.

use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// The library that is injected into the recorded processes.
pub const COLLECTOR: &str = "libgputrace_collector.so";
/// The stand-in for NVIDIA's libraries.
pub const SIMGPU: &str = "libsimgpu.so";

/// The names under which programs load what the stand-in stands in for.
const STAND_IN_NAMES: &[&str] = &[
    "libcuda.so",
    "libcuda.so.1",
    "libcublas.so",
    "libcublas.so.12",
    "libcublas.so.13",
    "libcupti.so",
    "libcupti.so.12",
    "libcupti.so.13",
    "libnccl.so",
    "libnccl.so.2",
    "libnvidia-ml.so",
    "libnvidia-ml.so.1",
];

/// The path of one of our libraries: in GPUTRACE_LIB_DIR, else beside the executable, in its `deps/` (where cargo
/// leaves it) or in `../lib/gputrace/` (where a package puts it). Of the first two the newer counts: cargo renews
/// one or the other, depending on what was built.
pub fn find(name: &str) -> Result<PathBuf, Failure> {
    if let Some(folder) = std::env::var_os("GPUTRACE_LIB_DIR") {
        let path = Path::new(&folder).join(name);
        return if path.exists() {
            Ok(path)
        } else {
            Err(Failure::new(format!(
                "{}: not there: GPUTRACE_LIB_DIR must name the folder that holds {name}",
                path.display()
            )))
        };
    }
    let executable = std::env::current_exe()
        .and_then(|path| path.canonicalize())
        .map_err(|error| {
            Failure::new(format!(
                "cannot tell where gputrace itself is: {error}; set GPUTRACE_LIB_DIR"
            ))
        })?;
    let folder = executable.parent().unwrap_or(Path::new("/"));
    let modified = |path: &PathBuf| path.metadata().and_then(|metadata| metadata.modified()).ok();
    let built = [folder.join(name), folder.join("deps").join(name)];
    let installed = folder.join("../lib/gputrace").join(name);
    built
        .into_iter()
        .filter(|path| path.exists())
        .max_by_key(modified)
        .or_else(|| installed.exists().then_some(installed))
        .ok_or_else(|| {
            Failure::new(format!(
                "{name} was not found beside {}, in its deps/ or in ../lib/gputrace/: build with `cargo build --release`, \
                 or name its folder in GPUTRACE_LIB_DIR",
                executable.display()
            ))
        })
}

/// A folder where the stand-in goes by the names of NVIDIA's libraries, to be put first in LD_LIBRARY_PATH.
///
/// All names are links to one file, which so is loaded once however many of them a program opens. The folder is made
/// once a user and build, and used again.
pub fn stand_in_folder() -> Result<PathBuf, Failure> {
    use std::os::unix::fs::{DirBuilderExt, MetadataExt};

    let library = find(SIMGPU)?
        .canonicalize()
        .map_err(|error| Failure::new(format!("{SIMGPU}: {error}")))?;
    // SAFETY: getuid has no preconditions and cannot fail.
    let user = unsafe { libc::getuid() };
    let base = std::env::temp_dir().join(format!("gputrace-{user}"));
    let failed = |path: &Path, error: std::io::Error| {
        Failure::new(format!(
            "{}: cannot set up the simulated GPU there: {error}; set TMPDIR to a folder of yours",
            path.display()
        ))
    };
    match std::fs::DirBuilder::new().mode(0o700).create(&base) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => return Err(failed(&base, error)),
        _ => {}
    }
    // The folder's content is loaded into programs, so nobody else may have made it.
    let metadata = base.symlink_metadata().map_err(|error| failed(&base, error))?;
    if metadata.uid() != user || !metadata.is_dir() || metadata.mode() & 0o022 != 0 {
        return Err(Failure::new(format!(
            "{}: belongs to somebody else or is open to others: remove it, or set TMPDIR",
            base.display()
        )));
    }
    let folder = base.join(format!(
        "simgpu-{:016x}",
        fnv1a(library.as_os_str().as_encoded_bytes())
    ));
    match std::fs::create_dir(&folder) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            return Err(failed(&folder, error));
        }
        _ => {}
    }
    for name in STAND_IN_NAMES {
        let link = folder.join(name);
        if std::fs::read_link(&link).is_ok_and(|target| target == library) {
            continue;
        }
        if link.symlink_metadata().is_ok_and(|found| !found.is_symlink()) {
            let taken = std::io::Error::other("something else has its name");
            return Err(failed(&link, taken));
        }
        // Made aside and renamed: another gputrace may be loading through the old link at this moment.
        let aside = folder.join(format!("{name}.{}", std::process::id()));
        std::os::unix::fs::symlink(&library, &aside)
            .and_then(|()| std::fs::rename(&aside, &link))
            .map_err(|error| failed(&link, error))?;
    }
    Ok(folder)
}

/// FNV-1a, 64 bits: names a folder after a path.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// LD_LIBRARY_PATH with `folder` first.
pub fn library_path_with(folder: &Path) -> std::ffi::OsString {
    let mut path = folder.as_os_str().to_owned();
    if let Some(rest) = std::env::var_os("LD_LIBRARY_PATH").filter(|rest| !rest.is_empty()) {
        path.push(":");
        path.push(rest);
    }
    path
}
