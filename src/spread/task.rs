//! What a worker is given: a command of ours that writes one partial, by its number in a file of several.
//!
//! Only paths travel. What became of a task stands in the folder that all see: its partial, or why there is none.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use gputrace_trace::place::Target;
use gputrace_trace::seal::digest;
use serde::{Deserialize, Serialize};

/// A command that writes a partial.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Task {
    /// A hash of everything that the partial follows from: its file's name without the ending.
    pub name: String,
    /// `gputrace`'s arguments but for `-o`.
    pub arguments: Vec<String>,
    /// The ranks that it reads; none where they are not known before.
    pub ranks: Vec<u32>,
}

impl Task {
    /// The same as a task for each of its ranks.
    pub fn by_rank(self) -> Vec<Self> {
        let place = self.arguments.iter().position(|argument| argument == "--ranks");
        let (Some(place), true) = (place, self.ranks.len() > 1) else {
            return vec![self];
        };
        let alone = |rank: &u32| {
            let mut arguments = self.arguments.clone();
            if let Some(range) = arguments.get_mut(place + 1) {
                *range = format!("{rank}..{rank}");
            }
            Self {
                name: digest(format!("{} {rank}", self.name).as_bytes()),
                arguments,
                ranks: vec![*rank],
            }
        };
        self.ranks.iter().map(alone).collect()
    }
}

/// Some tasks, and the folder that their partials go to.
#[derive(Debug, Serialize, Deserialize)]
pub struct Batch {
    pub folder: PathBuf,
    pub tasks: Vec<Task>,
}

/// The partial of a task.
pub fn made(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.partial"))
}

/// Why a task's input can't be used, in a line.
pub fn refused(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.refused"))
}

impl Batch {
    /// Writes it as a file, which is whole when it has its name.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let text = serde_json::to_vec(self)?;
        Target::new(path).write_file(&|_| false, |mut file| file.write_all(&text))
    }

    /// Reads it.
    pub fn read(path: &Path) -> io::Result<Self> {
        Ok(serde_json::from_slice(&fs::read(path)?)?)
    }
}
