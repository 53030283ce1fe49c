//! Removing a recording, and nothing else.

use std::fs;
use std::io;
use std::path::Path;

use super::process_folder::remove_process_folder;
use crate::control::CONTROL_FILE;
use crate::manifest::is_manifest_name;

/// Removes a recording's folder with what gputrace writes into one: processes' folders and manifests. Anything else that is in it stays,
/// and the folder around it.
///
/// # Errors
/// What is in the way, or why the disk refuses; where there is no such folder, [`io::ErrorKind::NotFound`].
pub fn remove_recording(path: &Path) -> io::Result<()> {
    if !fs::symlink_metadata(path)?.is_dir() {
        return Err(io::Error::other("it is no folder"));
    }
    let mut in_the_way = None;
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let name = entry.file_name();
        let removed = match entry.file_type()? {
            kind if kind.is_dir() => remove_process_folder(&entry.path()),
            kind if kind.is_file() && is_own_name(&name.to_string_lossy()) => fs::remove_file(entry.path()),
            _ => Err(io::Error::other("gputrace did not write it")),
        };
        if let Err(error) = removed {
            in_the_way.get_or_insert(io::Error::other(format!("{}: {error}", name.to_string_lossy())));
        }
    }
    match in_the_way {
        Some(error) => Err(error),
        None => fs::remove_dir(path),
    }
}

/// Whether a file beside the processes is one of a recorder's.
fn is_own_name(name: &str) -> bool {
    let name = name.strip_suffix(".part").unwrap_or(name);
    let is_control = name
        .strip_prefix(CONTROL_FILE)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('-'));
    is_control || is_manifest_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_of_a_recording_stays() {
        let keep = tempfile::tempdir().unwrap();
        let run = keep.path().join("run");
        let make = || {
            fs::create_dir_all(run.join("host-1-2")).unwrap();
            for name in [
                "manifest.json",
                "manifest-1.json",
                "host-1-2/process.json",
                "host-1-2/kernels.arrows",
            ] {
                fs::write(run.join(name), "x").unwrap();
            }
        };
        make();
        remove_recording(&run).unwrap();
        assert!(!run.exists());
        make();
        fs::write(run.join("host-1-2/mine.txt"), "x").unwrap();
        fs::write(run.join("notes.txt"), "x").unwrap();
        assert!(remove_recording(&run).is_err());
        assert!(run.join("host-1-2/mine.txt").exists() && run.join("host-1-2/kernels.arrows").exists());
        assert!(run.join("notes.txt").exists());
        let link = keep.path().join("link");
        std::os::unix::fs::symlink(&run, &link).unwrap();
        assert!(remove_recording(&link).is_err() && run.join("notes.txt").exists());
    }
}
