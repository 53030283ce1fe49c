//! What survives a daemon: of each job and capture a small file, outside of the recordings.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use gputrace_trace::daemon::{JobKey, Mode};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::names::is_recording_name;

/// A job, as it is found again.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SavedJob {
    /// Its name.
    pub job: String,
    /// Whose it is.
    pub uid: u32,
    /// What its processes have in common.
    pub key: JobKey,
    /// How much of it is recorded.
    pub mode: Mode,
    /// Its lowest process number.
    pub pid: u32,
    /// When its first process joined.
    pub started_ns: i64,
    /// Its recording's number.
    pub recording: String,
    /// Steps so far.
    pub steps: u64,
    /// When its last process went.
    pub ended_ns: Option<i64>,
    /// Its processes.
    pub processes: Vec<SavedProcess>,
    /// Segments that left its ring, and their rows.
    pub removed: (u64, u64),
    /// Files of those whose rows were not counted.
    pub uncounted: u64,
}

/// A process of it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SavedProcess {
    /// Its folder.
    pub folder: String,
    /// Its number.
    pub pid: u32,
    /// Its rank.
    pub rank: Option<u32>,
    /// Ranks of the job.
    pub world_size: Option<u32>,
    /// Whether it has gone.
    pub gone: bool,
}

/// A folder of such files.
#[derive(Clone, Debug)]
pub struct Shelf(PathBuf);

impl Shelf {
    /// In a folder, which is made.
    ///
    /// # Errors
    /// When it can't be made.
    pub fn in_folder(folder: PathBuf) -> io::Result<Self> {
        fs::create_dir_all(&folder)?;
        Ok(Self(folder))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(format!("{name}.json"))
    }

    /// Writes one, whole or not at all.
    ///
    /// # Errors
    /// When the disk refuses; what was there before is left.
    pub fn put(&self, name: &str, value: &impl Serialize) -> io::Result<()> {
        let aside = self.0.join(format!(".{name}.part"));
        let written = (|| {
            drop(fs::remove_file(&aside));
            let mut file = OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&aside)?;
            file.write_all(&serde_json::to_vec_pretty(value)?)?;
            fs::rename(&aside, self.path(name))
        })();
        if written.is_err() {
            drop(fs::remove_file(&aside));
        }
        written
    }

    /// All that are there and can be read, with their names, and what could not be read.
    pub fn all<T: DeserializeOwned>(&self) -> (Vec<(String, T)>, Vec<String>) {
        let (mut found, mut wrong) = (Vec::new(), Vec::new());
        for entry in fs::read_dir(&self.0).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let Some(name) = name.strip_suffix(".json").filter(|name| is_recording_name(name)) else {
                continue;
            };
            match read(&entry.path()) {
                Ok(value) => found.push((name.to_owned(), value)),
                Err(error) => wrong.push(format!("{}: {error}", entry.path().display())),
            }
        }
        found.sort_by(|a, b| a.0.cmp(&b.0));
        (found, wrong)
    }

    /// Takes one away.
    pub fn remove(&self, name: &str) {
        drop(fs::remove_file(self.path(name)));
    }
}

fn read<T: DeserializeOwned>(path: &Path) -> io::Result<T> {
    Ok(serde_json::from_slice(&fs::read(path)?)?)
}
