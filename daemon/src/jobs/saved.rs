//! What survives a daemon: of each job and capture a small file, outside of the recordings.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use gputrace_trace::daemon::{JobKey, Mode};
use gputrace_trace::writer::{Files, OwnFiles};
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
    /// When it was started, in ticks since the machine was; none: not known.
    pub started: Option<u64>,
    /// Its rank.
    pub rank: Option<u32>,
    /// Ranks of the job.
    pub world_size: Option<u32>,
    /// Steps that it told of.
    pub told_steps: u64,
    /// Steps that it has told of by its own count, and that it could not tell of.
    pub all_steps: u64,
    /// Whether it has gone.
    pub gone: bool,
    /// Whether it did so without a word.
    pub died: bool,
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

    /// The file of one.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(format!("{name}.json"))
    }

    /// The names of all that are there, whether they can be read or not.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).into_iter().flatten().flatten();
        let name = |entry: fs::DirEntry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            let name = name.strip_suffix(".json")?.to_owned();
            is_recording_name(&name).then_some(name)
        };
        entries.filter_map(name).collect()
    }

    /// All that are there and can be read, with their names, and what could not be read.
    pub fn all<T: DeserializeOwned>(&self) -> (Vec<(String, T)>, Vec<String>) {
        let (mut found, mut wrong) = (Vec::new(), Vec::new());
        for name in self.names() {
            let path = self.path(&name);
            match read(&path) {
                Ok(value) => found.push((name, value)),
                Err(error) => wrong.push(format!("{}: {error}", path.display())),
            }
        }
        found.sort_by(|a, b| a.0.cmp(&b.0));
        (found, wrong)
    }
}

/// What the file of one has in it.
///
/// # Errors
/// When it can't be told as JSON.
pub fn text(value: &impl Serialize) -> io::Result<Vec<u8>> {
    Ok(serde_json::to_vec_pretty(value)?)
}

/// Writes such a file, whole or not at all.
///
/// # Errors
/// When the disk refuses; what was there before is left.
pub fn write(path: &Path, text: &[u8]) -> io::Result<()> {
    OwnFiles.replace(path, text)
}

fn read<T: DeserializeOwned>(path: &Path) -> io::Result<T> {
    Ok(serde_json::from_slice(&fs::read(path)?)?)
}
