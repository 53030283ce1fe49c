//! Folders to try things in, and what must stay as it is around them.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Every path below a folder with what it is: of a file its bytes.
pub type Snapshot = BTreeMap<PathBuf, Vec<u8>>;

/// What is in a folder. Links are not followed; `without` and what is in it is left out.
pub fn snapshot(folder: &Path, without: Option<&Path>) -> Snapshot {
    let mut all = Snapshot::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if without == Some(&path) {
                continue;
            }
            let Ok(metadata) = path.symlink_metadata() else {
                continue;
            };
            let what = if metadata.is_dir() {
                folders.push(path.clone());
                format!("folder, mode {:o}", metadata.mode()).into_bytes()
            } else if metadata.is_symlink() {
                format!("link to {:?}", std::fs::read_link(&path)).into_bytes()
            } else if metadata.is_file() {
                std::fs::read(&path).unwrap_or_default()
            } else {
                format!("mode {:o}", metadata.mode()).into_bytes()
            };
            all.insert(path, what);
        }
    }
    all
}

/// The first path that is not as it was, in words.
pub fn difference(before: &Snapshot, after: &Snapshot) -> Option<String> {
    for (path, what) in before {
        match after.get(path) {
            None => return Some(format!("{} is gone", path.display())),
            Some(now) if now != what => return Some(format!("{} has changed", path.display())),
            Some(_) => {}
        }
    }
    let left = after.keys().find(|path| !before.contains_key(*path))?;
    Some(format!("{} was left", left.display()))
}

/// A copy of a folder with all that is in it.
pub fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a folder");
    for entry in std::fs::read_dir(from).expect("a folder") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        if entry.file_type().expect("its type").is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).expect("a copy");
        }
    }
}

/// All files below a folder, by path.
pub fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder").flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => folders.push(entry.path()),
                _ => found.push(entry.path()),
            }
        }
    }
    found.sort();
    found
}
