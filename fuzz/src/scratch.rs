//! A folder in memory for the bytes of an input: the readers take paths.
//!
//! Each process has one folder and uses the same names in it again and again. A fuzzed process ends by being killed or by
//! aborting, so that it can't clean up: the next one to start does.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

const NAME: &str = "gputrace-fuzz-";

/// Removes the folders of processes that are gone.
fn sweep(parent: &Path) {
    for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix(NAME));
        if pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            // Another process may be removing it too.
            drop(std::fs::remove_dir_all(entry.path()));
        }
    }
}

/// This process's folder.
///
/// # Panics
/// When it can't be made: nothing can be fuzzed then.
pub fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let memory = Path::new("/dev/shm");
        let parent = if memory.is_dir() {
            memory.to_owned()
        } else {
            std::env::temp_dir()
        };
        sweep(&parent);
        let folder = parent.join(format!("{NAME}{}", std::process::id()));
        drop(std::fs::remove_dir_all(&folder));
        std::fs::create_dir(&folder).expect("a folder for the inputs");
        folder
    })
}

/// Writes `bytes` to the file `name` in this process's folder.
///
/// # Panics
/// When the disk refuses: nothing can be fuzzed then.
pub fn write(name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder().join(name);
    std::fs::write(&path, bytes).expect("a file for the input");
    path
}
