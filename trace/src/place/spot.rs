//! Where something is written: a name in an open folder.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A name in an open folder.
pub(super) struct Spot {
    pub(super) place: Arc<OwnedFd>,
    pub(super) name: OsString,
    pub(super) path: PathBuf,
    /// Removed again when nothing has come into them.
    pub(super) _parents: Parents,
}

/// The folders around it that were made for it, the innermost first: those in which nothing is after all are removed again.
#[derive(Default)]
pub(super) struct Parents(Vec<PathBuf>);

impl Parents {
    /// Makes a folder and those that it is in, where they are missing.
    pub(super) fn make(folder: &Path) -> io::Result<Self> {
        let missing = folder
            .ancestors()
            .take_while(|folder| !folder.as_os_str().is_empty() && !folder.exists());
        let parents = Self(missing.map(Path::to_owned).collect());
        std::fs::create_dir_all(folder)?;
        Ok(parents)
    }
}

impl Drop for Parents {
    fn drop(&mut self) {
        for folder in &self.0 {
            // It is not, where something is in it.
            drop(std::fs::remove_dir(folder));
        }
    }
}

/// The folder that a path is in.
pub(super) fn folder_of(path: &Path) -> &Path {
    path.parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
}
