//! Keeping a recording below a size: the oldest parts that are complete are removed, and what was in them is counted.
//!
//! A collector writes its process's folder, then NAME.1, NAME.2 and so on, each no bigger than told. One with a follower is
//! complete. The last of each process stays, so that many processes may hold more than they should.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use gputrace_trace::manifest::LossEntry;
use gputrace_trace::recording::host_in_names;
use gputrace_trace::segments::{Removed, parts};

/// How often the size is looked at.
const PERIOD: Duration = Duration::from_millis(500);

/// Watches a recording's size.
pub struct Newest {
    folder: PathBuf,
    most_bytes: u64,
    /// Whose folders count, where several hosts write: each keeps its own share below the size.
    host: Option<String>,
    looked: Instant,
    removed: Removed,
}

impl Newest {
    /// Watches the recording in `folder`, or one host's part of it.
    pub fn new(folder: &Path, most_bytes: u64, host: Option<&str>) -> Self {
        Self {
            folder: folder.to_owned(),
            most_bytes,
            host: host.map(host_in_names),
            looked: Instant::now(),
            removed: Removed::default(),
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
        let is_ours = |name: &str| {
            self.host.as_ref().is_none_or(|host| {
                // HOST-PID-START, or host-HOST-PID-START.
                let of = name.rsplitn(3, '-').nth(2).unwrap_or_default();
                of == host || of.strip_prefix("host-") == Some(host)
            })
        };
        // A folder that can't be read now is looked at again.
        let Ok(mut parts) = parts(&self.folder, is_ours) else {
            return;
        };
        parts.sort_by_key(|part| part.written);
        let mut bytes: u64 = parts.iter().map(|part| part.bytes).sum();
        for part in parts.iter().filter(|part| part.complete) {
            if bytes <= self.most_bytes {
                break;
            }
            if self.removed.remove(part) {
                bytes -= part.bytes;
            }
        }
    }

    /// What should have been removed and was not, as a note.
    pub fn note(&self) -> Option<String> {
        let (name, why) = self.removed.kept.first_key_value()?;
        Some(format!(
            "{} parts stay beyond --max-size: {name}: {why}",
            self.removed.kept.len()
        ))
    }

    /// What was removed, as a loss.
    pub fn loss(&self) -> Option<LossEntry> {
        (self.removed.parts > 0).then(|| LossEntry {
            what: format!(
                "rows of the {} oldest parts removed to keep within --max-size{}",
                self.removed.parts,
                match self.removed.uncounted {
                    0 => String::new(),
                    files => format!(", without those of {files} files that were too large to count or unreadable"),
                }
            ),
            count: Some(self.removed.rows),
            affects: "everything before what is left".to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::SystemTime;

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
