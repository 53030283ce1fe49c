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
                "cannot tell where gputrace itself is (/proc/self/exe: {error}): mount /proc, or set GPUTRACE_LIB_DIR"
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

/// The collector, if it is of this program's version: what the two tell each other changes between versions.
pub fn collector() -> Result<PathBuf, Failure> {
    let path = find(COLLECTOR)?;
    let bytes = std::fs::read(&path)
        .map_err(|error| Failure::new(format!("{}: cannot be read: {error}", path.display())))?;
    let ours = env!("CARGO_PKG_VERSION");
    match version_in(&bytes) {
        Some(version) if version == ours => Ok(path),
        found => Err(Failure::new(format!(
            "{}: is {}, and this is gputrace {ours}: install both from one package, or name the folder of its own in \
             GPUTRACE_LIB_DIR",
            path.display(),
            found.map_or_else(
                || "no collector of gputrace, or one from before 0.1.0".to_owned(),
                |version| format!("the collector of gputrace {version}")
            )
        ))),
    }
}

/// The version that stands in the collector's file.
fn version_in(file: &[u8]) -> Option<String> {
    let mark = gputrace_collector::VERSION_MARK.as_bytes();
    let start = memchr::memmem::find(file, mark)? + mark.len();
    let version = file[start..].split(|byte| *byte == 0).next()?;
    Some(String::from_utf8_lossy(version).into_owned())
}

/// A folder for what is made once and used again: gputrace-UID among the temporary files, this user's alone.
pub fn own_folder() -> Result<PathBuf, Failure> {
    use std::os::unix::fs::{DirBuilderExt, MetadataExt};

    // SAFETY: getuid has no preconditions and cannot fail.
    let user = unsafe { libc::getuid() };
    let base = std::env::temp_dir().join(format!("gputrace-{user}"));
    let failed = |path: &Path, error: std::io::Error| {
        Failure::new(format!(
            "{}: cannot be made: {error}; set TMPDIR to a folder of yours",
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
    Ok(base)
}

/// A folder where the stand-in goes by the names of NVIDIA's libraries, to be put first in LD_LIBRARY_PATH.
///
/// All names are links to one file, which so is loaded once however many of them a program opens. The folder is made
/// once a user and build, and used again.
pub fn stand_in_folder() -> Result<PathBuf, Failure> {
    let library = find(SIMGPU)?
        .canonicalize()
        .map_err(|error| Failure::new(format!("{SIMGPU}: {error}")))?;
    let base = own_folder()?;
    let failed = |path: &Path, error: std::io::Error| {
        Failure::new(format!(
            "{}: cannot set up the simulated GPU there: {error}; set TMPDIR to a folder of yours",
            path.display()
        ))
    };
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

/// FNV-1a, 64 bits: names a folder after a path or a content.
pub fn fnv1a(bytes: &[u8]) -> u64 {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_in_a_file_is_what_stands_behind_the_mark() {
        let mark = gputrace_collector::VERSION_MARK;
        let file = format!("\x7fELF{mark}1.2.3\0more\0");
        assert_eq!(version_in(file.as_bytes()).as_deref(), Some("1.2.3"));
        assert_eq!(version_in(b"\x7fELF gputrace collector"), None);
        assert_eq!(version_in(mark.as_bytes()).as_deref(), Some(""));
    }
}
