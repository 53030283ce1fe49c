//! What every engine needs to start our program somewhere.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use super::task::{Batch, Task};
use crate::failure::Failure;

/// How a worker is started.
#[derive(Clone, Debug)]
pub struct Launch {
    /// Our program, as the workers see it.
    pub program: PathBuf,
    /// Where they run: paths are given as they were to us.
    pub directory: PathBuf,
    /// Where partials go.
    pub partials: PathBuf,
    /// Where files go that are of no use when all is done.
    pub work: PathBuf,
    /// What is the same for every driver of one output folder, and no other.
    pub name: String,
}

impl Launch {
    /// Writes tasks where workers find them.
    pub fn write_tasks<'a>(&self, tasks: impl Iterator<Item = &'a Task>) -> Result<PathBuf, Failure> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let path = self.work.join(format!("{}.tasks", now.as_nanos()));
        let batch = Batch {
            folder: self.partials.clone(),
            tasks: tasks.cloned().collect(),
        };
        batch.write(&path).map_err(|error| self.cannot_write(&error))?;
        Ok(path)
    }

    /// What our program is started with to do one of them.
    pub fn arguments(tasks: &Path, place: usize) -> Vec<String> {
        vec!["shard".to_owned(), tasks.display().to_string(), place.to_string()]
    }

    pub fn cannot_write(&self, error: &io::Error) -> Failure {
        Failure::new(crate::export::cannot_be_written(&self.work, error))
    }
}

/// The last line that a worker wrote, in brackets; nothing where it wrote none.
pub fn last_line(log: &Path) -> String {
    let bytes = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let line = text.lines().map(str::trim).rfind(|line| !line.is_empty());
    line.map_or_else(String::new, |line| {
        format!(" ({})", crate::text::shorten(line, 200))
    })
}
