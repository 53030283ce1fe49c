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

/// A file that is larger is not read to count its rows, bytes.
pub const MOST_COUNTED_BYTES: u64 = 1 << 30;

/// What was removed, and what could not be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// Rows of all tables.
    pub rows: u64,
    /// Files whose rows were not counted: too large ([`MOST_COUNTED_BYTES`]), or they could not be read.
    pub uncounted: u64,
    /// Parts.
    pub parts: u64,
    /// Parts that stay all the same, and why.
    pub kept: BTreeMap<String, String>,
}

impl Removed {
    /// Removes a part, and says whether that was possible.
    pub fn remove(&mut self, part: &Part) -> bool {
        let (rows, uncounted) = count_rows(&part.path);
        match remove_process_folder(&part.path) {
            Ok(()) => {
                self.count(rows, uncounted);
                true
            }
            Err(error) => {
                let name = part.path.file_name().unwrap_or_default().to_string_lossy();
                self.kept.insert(name.into_owned(), error.to_string());
                false
            }
        }
    }

    /// Empties the tables of a part that is still written. What can't be emptied stays.
    pub fn empty(&mut self, part: &Part) {
        let (mut rows, mut uncounted) = (0u64, 0);
        for table in tables(&part.path) {
            let counted = rows_of(&table);
            let emptied = fs::OpenOptions::new()
                .write(true)
                .open(&table)
                .and_then(|file| file.set_len(0));
            match emptied {
                Ok(()) => {
                    rows = rows.saturating_add(counted.unwrap_or(0));
                    uncounted += u64::from(counted.is_none());
                }
                Err(error) => {
                    self.kept.insert(table.display().to_string(), error.to_string());
                }
            }
        }
        self.count(rows, uncounted);
    }

    fn count(&mut self, rows: u64, uncounted: u64) {
        self.rows = self.rows.saturating_add(rows);
        self.uncounted += uncounted;
        self.parts += 1;
    }
}

/// The files of tables in a process's folder.
fn tables(folder: &Path) -> impl Iterator<Item = PathBuf> {
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    files
        .filter(|file| file.file_type().is_ok_and(|kind| kind.is_file()))
        .map(|file| file.path())
        .filter(|file| file.extension().is_some_and(|extension| extension == "arrows"))
}

/// Rows of a table's file, where they can be counted.
fn rows_of(table: &Path) -> Option<u64> {
    let is_read = fs::metadata(table).is_ok_and(|metadata| metadata.len() <= MOST_COUNTED_BYTES);
    is_read.then(|| RowCounter::default().read(table).ok()).flatten()
}

/// Rows of all tables in a process's folder, and how many of these could not be counted.
fn count_rows(folder: &Path) -> (u64, u64) {
    let (mut rows, mut uncounted) = (0u64, 0);
    for table in tables(folder) {
        match rows_of(&table) {
            Some(of) => rows = rows.saturating_add(of),
            None => uncounted += 1,
        }
    }
    (rows, uncounted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_too_large_is_not_read_and_said_to_be_uncounted() {
        let place = tempfile::tempdir().expect("a folder");
        fs::create_dir(place.path().join("p")).expect("made");
        let table = place.path().join("p/kernels.arrows");
        let file = fs::File::create(&table).expect("made");
        // A hole takes no room.
        file.set_len(MOST_COUNTED_BYTES + 1).expect("long");
        let parts = parts(place.path(), |_| true).expect("read");
        let mut removed = Removed::default();
        removed.empty(&parts[0]);
        assert_eq!((removed.rows, removed.uncounted, removed.parts), (0, 1, 1));
        assert_eq!(file.metadata().expect("there").len(), 0);
        assert!(removed.remove(&parts[0]));
        assert_eq!((removed.uncounted, removed.parts), (1, 2));
        assert!(!table.exists());
    }
}
