//! Where something is written: a name in an open folder.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A name in an open folder.
pub(super) struct Spot {
    pub(super) place: Arc<OwnedFd>,
    pub(super) name: OsString,
    pub(super) path: PathBuf,
}

/// The folder that a path is in.
pub(super) fn folder_of(path: &Path) -> &Path {
    path.parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
}
