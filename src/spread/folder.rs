//! The folder that an analysis which is spread over workers goes to, and where it goes on after it was ended.

use std::fs::{self, DirBuilder, File, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use gputrace_trace::access;
use gputrace_trace::place::Target;
use serde::{Deserialize, Serialize};

use crate::export::cannot_be_written;
use crate::failure::Failure;

/// What says whose folder it is.
const MARK: &str = "gputrace-spread.json";
const FORMAT: &str = "gputrace.spread/1";
/// The result.
pub const ANALYSIS: &str = "analysis.json";

#[derive(PartialEq, Eq, Serialize, Deserialize)]
struct Mark {
    format: String,
    paths: Vec<PathBuf>,
}

/// The folder, held by us alone while this lives.
pub struct Folder {
    /// As it was named.
    pub path: PathBuf,
    /// Partials: they stay, so that the next analysis of the same files takes them.
    pub partials: PathBuf,
    /// What is of no use when all is done.
    pub work: PathBuf,
    _lock: File,
}

impl Folder {
    /// Makes it, or goes on in the one that is there: only if it is empty, or was made for the same paths.
    pub fn open(path: &Path, paths: &[PathBuf], parents: bool) -> Result<Self, Failure> {
        let cannot = |error: &io::Error| Failure::new(cannot_be_written(path, error));
        let make = |path: &Path, parents: bool| {
            let mode = access::folder_mode();
            DirBuilder::new().recursive(parents).mode(mode).create(path)
        };
        match make(path, parents) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(cannot(&error)),
            _ => {}
        }
        let mark = Mark {
            format: FORMAT.to_owned(),
            paths: paths.to_vec(),
        };
        let place = path.join(MARK);
        let known: Option<Mark> = fs::read(&place)
            .ok()
            .and_then(|text| serde_json::from_slice(&text).ok());
        match known {
            Some(known) if known == mark => {}
            Some(known) if known.format == FORMAT => {
                return Err(Failure::new(format!(
                    "{}: holds the analysis of {}: name another folder",
                    path.display(),
                    crate::analyze::source_of(&known.paths)
                )));
            }
            _ => {
                let mut entries = fs::read_dir(path).map_err(|error| cannot(&error))?;
                if entries.next().is_some() {
                    return Err(Failure::new(format!(
                        "{}: is there already, and is nothing that `gputrace analyze --on` made: name another folder",
                        path.display()
                    )));
                }
                let text = serde_json::to_vec(&mark).map_err(|error| cannot(&error.into()))?;
                let written = Target::new(&place).write_file(&|_| false, |mut file| file.write_all(&text));
                written.map_err(|error| cannot(&error))?;
            }
        }
        let lock = File::open(&place).map_err(|error| cannot(&error))?;
        if let Err(TryLockError::WouldBlock) = lock.try_lock() {
            return Err(Failure::new(format!(
                "{}: another `gputrace analyze --on` is at work in it",
                path.display()
            )));
        }
        // Workers have other places, but for paths that are given to them.
        let whole = fs::canonicalize(path).map_err(|error| cannot(&error))?;
        let folder = Self {
            path: path.to_owned(),
            partials: whole.join("partials"),
            work: whole.join("work"),
            _lock: lock,
        };
        for own in [&folder.partials, &folder.work] {
            make(own, true).map_err(|error| cannot(&error))?;
        }
        folder.sweep(&is_partial);
        Ok(folder)
    }

    /// Removes of what lies among the partials all that is not to stay: reasons why there is none, and files that a worker which was
    /// killed has half written.
    fn sweep(&self, stays: &dyn Fn(&str) -> bool) {
        let entries = fs::read_dir(&self.partials).into_iter().flatten().flatten();
        for entry in entries {
            if !entry.file_name().to_str().is_some_and(stays) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    /// After a failure: partials stay for the next time. Where there is none, nothing does.
    pub fn give_up(self) {
        self.sweep(&is_partial);
        let _ = fs::remove_dir_all(&self.work);
        if fs::remove_dir(&self.partials).is_ok() && !self.path.join(ANALYSIS).exists() {
            let _ = fs::remove_file(self.path.join(MARK));
            let _ = fs::remove_dir(&self.path);
        }
    }

    /// Leaves the partials of these names, and nothing else that is of use to workers alone.
    pub fn close(self, names: &[&str]) {
        self.sweep(&|name| names.iter().any(|own| name.strip_suffix(".partial") == Some(own)));
        let _ = fs::remove_dir_all(&self.work);
    }
}

fn is_partial(name: &str) -> bool {
    !name.starts_with('.') && name.ends_with(".partial")
}
