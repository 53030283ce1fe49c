//! Keeping a recording below a size: the oldest parts that are complete are removed, and what was in them is counted.
//!
//! A collector writes its process's folder, then NAME.1, NAME.2 and so on, each no bigger than told. One with a follower is
//! complete. The last of each process stays, so that many processes may hold more than they should.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use gputrace_trace::manifest::LossEntry;
use gputrace_trace::place::remove_process_folder;
use gputrace_trace::recording::segment_of;
use gputrace_trace::stream::RowCounter;

/// How often the size is looked at.
const PERIOD: Duration = Duration::from_millis(500);

/// Watches a recording's size.
pub struct Newest {
    folder: PathBuf,
    most_bytes: u64,
    /// Whose folders count, where several hosts write: each keeps its own share below the size.
    host: Option<String>,
    looked: Instant,
    removed_rows: u64,
    removed_parts: u64,
    /// Parts that could not be removed, and why.
    kept: BTreeMap<String, String>,
}

/// A process's folder, or a part of it.
struct Part {
    path: PathBuf,
    bytes: u64,
    /// When something was last written into it.
    written: SystemTime,
    complete: bool,
}

impl Newest {
    /// Watches the recording in `folder`, or one host's part of it.
    pub fn new(folder: &Path, most_bytes: u64, host: Option<&str>) -> Self {
        let clean = |c: char| {
            if c.is_ascii_alphanumeric() || c == '-' {
                c
            } else {
                '_'
            }
        };
        Self {
            folder: folder.to_owned(),
            most_bytes,
            host: host.map(|host| host.chars().map(clean).collect()),
            looked: Instant::now(),
            removed_rows: 0,
            removed_parts: 0,
            kept: BTreeMap::new(),
        }
    }

    /// Removes what is too much, if it is time to look.
    pub fn tick(&mut self) {
        if self.looked.elapsed() >= PERIOD {
            self.looked = Instant::now();
            self.look();
        }
    }

    /// Removes what is too much.
    pub fn look(&mut self) {
        // A folder that can't be read now is looked at again.
        let Ok(mut parts) = self.parts() else { return };
        parts.sort_by_key(|part| part.written);
        let mut bytes: u64 = parts.iter().map(|part| part.bytes).sum();
        for part in parts.into_iter().filter(|part| part.complete) {
            if bytes <= self.most_bytes {
                break;
            }
            let rows = count_rows(&part.path);
            match remove_process_folder(&part.path) {
                Ok(()) => {
                    bytes -= part.bytes;
                    self.removed_rows += rows;
                    self.removed_parts += 1;
                }
                Err(error) => {
                    let name = part.path.file_name().unwrap_or_default().to_string_lossy();
                    self.kept.insert(name.into_owned(), error.to_string());
                }
            }
        }
    }

    fn parts(&self) -> std::io::Result<Vec<Part>> {
        let mut parts = Vec::new();
        let mut last: BTreeMap<String, u64> = BTreeMap::new();
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            let path = entry.path();
            let name = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            let elsewhere = self.host.as_ref().is_some_and(|host| {
                // HOST-PID-START, or host-HOST-PID-START.
                let of = name.rsplitn(3, '-').nth(2).unwrap_or_default();
                of != host && of.strip_prefix("host-") != Some(host)
            });
            if !entry.file_type()?.is_dir() || name.starts_with('.') || elsewhere {
                continue;
            }
            let (process, number) = segment_of(&name);
            let newest = last.entry(process.to_owned()).or_default();
            *newest = (*newest).max(number);
            let mut part = Part {
                path,
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
            let name = part.path.file_name().unwrap_or_default().to_string_lossy();
            let (process, number) = segment_of(&name);
            part.complete = last.get(process).is_some_and(|last| number < *last);
        }
        Ok(parts)
    }

    /// What should have been removed and was not, as a note.
    pub fn note(&self) -> Option<String> {
        let (name, why) = self.kept.first_key_value()?;
        Some(format!(
            "{} parts stay beyond --max-size: {name}: {why}",
            self.kept.len()
        ))
    }

    /// What was removed, as a loss.
    pub fn loss(&self) -> Option<LossEntry> {
        (self.removed_parts > 0).then(|| LossEntry {
            what: format!(
                "rows of the {} oldest parts removed to keep within --max-size",
                self.removed_parts
            ),
            count: Some(self.removed_rows),
            affects: "everything before what is left".to_owned(),
        })
    }
}

/// Rows of all tables in a folder.
fn count_rows(folder: &Path) -> u64 {
    let Ok(files) = fs::read_dir(folder) else { return 0 };
    files
        .filter_map(|file| Some(file.ok()?.path()))
        .filter(|file| file.extension().is_some_and(|extension| extension == "arrows"))
        .filter_map(|file| RowCounter::default().read(&file).ok())
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_complete_parts_go_first() {
        let folder = tempfile::tempdir().expect("a folder");
        for (age, name) in ["p-1-5", "q-2-6", "p-1-5.1", "q-2-6.1", "p-1-5.2"]
            .iter()
            .enumerate()
        {
            let part = folder.path().join(name);
            fs::create_dir(&part).expect("made");
            let file = part.join("kernels.arrows");
            fs::write(&file, vec![0; 1000]).expect("written");
            let written = SystemTime::UNIX_EPOCH + Duration::from_secs(1000 + age as u64);
            let file = fs::File::options().write(true).open(&file).expect("opened");
            file.set_modified(written).expect("dated");
        }
        let left = || {
            let mut names: Vec<String> = fs::read_dir(folder.path())
                .expect("read")
                .map(|entry| {
                    entry
                        .expect("an entry")
                        .file_name()
                        .to_string_lossy()
                        .into_owned()
                })
                .collect();
            names.sort();
            names
        };
        let mut newest = Newest::new(folder.path(), 3500, None);
        newest.look();
        assert_eq!(left(), ["p-1-5.1", "p-1-5.2", "q-2-6.1"]);
        assert!(newest.loss().expect("a loss").what.contains("the 2 oldest parts"));
        // The last of each stays, whatever it holds.
        Newest::new(folder.path(), 1, None).look();
        assert_eq!(left(), ["p-1-5.2", "q-2-6.1"]);
        assert_eq!(newest.note(), None);
        // What somebody put into one, and links, stay.
        fs::create_dir(folder.path().join("p-1-5.1")).expect("made");
        fs::write(folder.path().join("p-1-5.1/mine.txt"), [0; 5000]).expect("written");
        std::os::unix::fs::symlink("p-1-5.2", folder.path().join("p-1-5")).expect("a link");
        newest.look();
        assert_eq!(left(), ["p-1-5", "p-1-5.1", "p-1-5.2", "q-2-6.1"]);
        assert!(
            newest
                .note()
                .expect("a note")
                .contains("p-1-5.1: it holds mine.txt")
        );
    }
}
