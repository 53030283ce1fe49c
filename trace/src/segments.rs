//! The parts of a recording's processes on the disk, and removing those that are too old or too much.
//!
//! A collector writes its process's folder, then NAME.1, NAME.2 and so on. One with a follower is complete: nothing is written into
//! it any more. What is removed is counted, by rows.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::place::remove_process_folder;
use crate::recording::segment_of;
use crate::stream::RowCounter;

/// A process's folder, or a part of it.
#[derive(Clone, Debug)]
pub struct Part {
    /// Where it is.
    pub path: PathBuf,
    /// Its process's folder: the name without a number.
    pub process: String,
    /// Which part.
    pub number: u64,
    /// Bytes of its files.
    pub bytes: u64,
    /// When something was last written into it.
    pub written: SystemTime,
    /// Whether there is a later one of its process.
    pub complete: bool,
}

/// The parts in a recording's folder whose process's name `wanted` says yes to, in no order. Links are none, nor is what begins with
/// a dot.
///
/// # Errors
/// When the folder can't be read.
pub fn parts(folder: &Path, wanted: impl Fn(&str) -> bool) -> io::Result<Vec<Part>> {
    let mut parts = Vec::new();
    let mut last: BTreeMap<String, u64> = BTreeMap::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with('.') || !wanted(&name) || !entry.file_type()?.is_dir() {
            continue;
        }
        let (process, number) = segment_of(&name);
        let newest = last.entry(process.to_owned()).or_default();
        *newest = (*newest).max(number);
        let mut part = Part {
            path: entry.path(),
            process: process.to_owned(),
            number,
            bytes: 0,
            written: SystemTime::UNIX_EPOCH,
            complete: false,
        };
        for file in fs::read_dir(&part.path)?.filter_map(Result::ok) {
            if let Ok(metadata) = file.metadata() {
                part.bytes += metadata.len();
                part.written = part.written.max(metadata.modified().unwrap_or(part.written));
            }
        }
        parts.push(part);
    }
    for part in &mut parts {
        part.complete = last.get(&part.process).is_some_and(|last| part.number < *last);
    }
    Ok(parts)
}

/// What was removed, and what could not be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// Rows of all tables.
    pub rows: u64,
    /// Parts.
    pub parts: u64,
    /// Parts that stay all the same, and why.
    pub kept: BTreeMap<String, String>,
}

impl Removed {
    /// Removes a part, and says whether that was possible.
    pub fn remove(&mut self, part: &Part) -> bool {
        let rows = count_rows(&part.path);
        match remove_process_folder(&part.path) {
            Ok(()) => {
                self.rows += rows;
                self.parts += 1;
                true
            }
            Err(error) => {
                let name = part.path.file_name().unwrap_or_default().to_string_lossy();
                self.kept.insert(name.into_owned(), error.to_string());
                false
            }
        }
    }
}

/// Rows of all tables in a process's folder.
fn count_rows(folder: &Path) -> u64 {
    let Ok(files) = fs::read_dir(folder) else { return 0 };
    files
        .filter_map(|file| Some(file.ok()?.path()))
        .filter(|file| file.extension().is_some_and(|extension| extension == "arrows"))
        .filter_map(|file| RowCounter::default().read(&file).ok())
        .sum()
}
