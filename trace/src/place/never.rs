//! What stays where it is, whatever mark it carries.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::disk::Seen;
use super::refused::Refused;
use crate::manifest::{FORMAT, PROCESS_FILE};
use crate::recording::{manifest_files, process_folders};

/// How much of a manifest has its format in it.
const HEAD: u64 = 4096;

/// Why `path`, which is there, is never replaced; `sources` are what is read for what is to be written.
pub(super) fn reason(path: &Path, seen: &Seen, sources: &[PathBuf]) -> Option<String> {
    if seen.is_mount {
        return Some("something is mounted there".to_owned());
    }
    let is_it = |other: &Path| is_same(other, seen);
    // A folder is never replaced with what is in it either.
    let is_around = |other: &Path| {
        fs::canonicalize(other).is_ok_and(|other| seen.is_folder() && other.ancestors().skip(1).any(is_it))
    };
    for source in sources {
        if is_it(source) {
            return Some("it is what is read for this".to_owned());
        }
        if is_around(source) {
            return Some(format!("it holds {}, which is read for this", source.display()));
        }
    }
    if let Some(home) = std::env::home_dir().filter(|home| !home.as_os_str().is_empty())
        && (is_it(&home) || is_around(&home))
    {
        return Some(format!("it is or holds your home folder {}", home.display()));
    }
    if is_it(Path::new(".")) || is_around(Path::new(".")) {
        return Some("it is or holds the current folder".to_owned());
    }
    if is_it(Path::new("/")) {
        return Some("it is the root of the file system".to_owned());
    }
    if seen.is_folder() && is_recording(path) {
        return Some("it is a recording".to_owned());
    }
    let parent = parent_of(path).ok()?;
    let ids = |path: &Path| path.metadata().map(|found| (found.dev(), found.ino())).ok();
    sources
        .iter()
        .find(|source| source.is_dir() && parent.ancestors().any(|above| ids(above) == ids(source)))
        .map(|source| format!("it is inside {}, which is read for this", source.display()))
}

fn is_same(path: &Path, seen: &Seen) -> bool {
    path.metadata()
        .is_ok_and(|found| (found.dev(), found.ino()) == (seen.device, seen.inode))
}

fn parent_of(path: &Path) -> std::io::Result<PathBuf> {
    fs::canonicalize(super::spot::folder_of(path))
}

/// Refuses a place inside a recording, whether there is something or not, and whether the folders around it are there yet.
///
/// # Errors
/// Which recording it is in.
pub fn refuse_inside(path: &Path) -> Result<(), Refused> {
    match recording_around(path) {
        None => Ok(()),
        Some(around) => Err(Refused(format!(
            "{}: is inside the recording {}: name a place elsewhere",
            path.display(),
            around.display()
        ))),
    }
}

fn recording_around(path: &Path) -> Option<PathBuf> {
    let exists = super::spot::folder_of(path)
        .ancestors()
        .find(|folder| folder.exists());
    let place = match exists {
        Some(folder) if !folder.as_os_str().is_empty() => fs::canonicalize(folder),
        _ => std::env::current_dir(),
    };
    let place = place.ok()?;
    place
        .ancestors()
        .find(|folder| says_it_is_ours(folder) || holds_process(folder))
        .map(Path::to_owned)
}

/// Whether a folder lacks a manifest and is a recording all the same: one of its folders is a process's.
fn holds_process(folder: &Path) -> bool {
    let mut entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.any(|entry| says_so(&entry.path().join(PROCESS_FILE)))
}

/// Whether a folder has a manifest, or a part of one, or is a process's.
fn says_it_is_ours(folder: &Path) -> bool {
    says_so(&folder.join(PROCESS_FILE))
        || manifest_files(folder).is_ok_and(|files| files.iter().any(|file| says_so(file)))
}

/// Whether a folder is a recording, or a process's folder of one, or was made to be one.
fn is_recording(folder: &Path) -> bool {
    says_it_is_ours(folder) || process_folders(folder).is_ok_and(|folders| !folders.is_empty())
}

/// Whether a file has the format of recordings in its first lines.
fn says_so(file: &Path) -> bool {
    let mut head = Vec::new();
    // Opening a pipe would wait.
    file.is_file()
        && File::open(file).is_ok_and(|file| file.take(HEAD).read_to_end(&mut head).is_ok())
        && head.windows(FORMAT.len()).any(|part| part == FORMAT.as_bytes())
}
