//! Following a recording that still grows.
//!
//! [`Progress`] counts rows without decoding them and is cheap enough for a progress line; [`Follower`] hands over
//! the rows themselves.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use crate::manifest::{HOST_ROLE, PROCESS_FILE, ProcessHeader};
use crate::names::Interner;
use crate::recording::{process_folders, segment_of};
use crate::stream::{RowCounter, StreamEnd, StreamFile};
use crate::tables::{TABLE_NAMES, Tables};

/// The rows that one process's tables gained since the last look.
pub struct Growth {
    /// The process's folder name.
    pub folder: String,
    /// The new rows.
    pub tables: Tables,
    /// Tables that can't be followed further, with what is wrong.
    pub damaged: Vec<String>,
}

/// Reads what a growing recording gains.
pub struct Follower {
    path: PathBuf,
    tables: BTreeSet<&'static str>,
    files: BTreeMap<(String, &'static str), StreamFile>,
    /// The strings of all rows handed over so far.
    pub names: Interner,
}

impl Follower {
    /// A follower of the given tables (all of [`TABLE_NAMES`], say) of the recording in folder `path`.
    #[must_use]
    pub fn new(path: &Path, tables: &[&str]) -> Self {
        let tables = TABLE_NAMES
            .iter()
            .copied()
            .filter(|name| tables.contains(name))
            .collect();
        Self {
            path: path.to_owned(),
            tables,
            files: BTreeMap::new(),
            names: Interner::default(),
        }
    }

    /// What was appended since the last call, by process. Processes that gained nothing are left out.
    ///
    /// # Errors
    /// When the folder or one of its files can't be read.
    pub fn read(&mut self) -> io::Result<Vec<Growth>> {
        let mut grown = Vec::new();
        for folder in process_folders(&self.path)? {
            let name = folder
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            let mut growth = Growth {
                folder: name.clone(),
                tables: Tables::default(),
                damaged: Vec::new(),
            };
            let mut any = false;
            for &table in &self.tables {
                let path = folder.join(format!("{table}.arrows"));
                if !path.exists() {
                    continue;
                }
                let file = self
                    .files
                    .entry((name.clone(), table))
                    .or_insert_with(|| StreamFile::new(&path));
                for batch in file.read()? {
                    any = true;
                    if let Some(Err(wrong)) = growth.tables.append_batch(table, &batch, &mut self.names) {
                        growth.damaged.push(format!("{table}: {wrong}"));
                    }
                }
                if let StreamEnd::Damaged(wrong) = file.end() {
                    growth.damaged.push(format!("{table}: {wrong}"));
                }
            }
            if any || !growth.damaged.is_empty() {
                grown.push(growth);
            }
        }
        Ok(grown)
    }
}

/// How far a growing recording is, for a progress line.
pub struct Progress {
    path: PathBuf,
    counters: BTreeMap<PathBuf, RowCounter>,
    /// Whether a folder holds a host's samples, of those whose header could be read.
    hosts: BTreeMap<PathBuf, bool>,
    /// Rows of folders that are no longer there: a recording kept below a size loses its oldest.
    gone: Counts,
    seen: BTreeMap<PathBuf, Counts>,
}

/// Sums over a recording's processes at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Processes that the collector was injected into.
    pub processes: usize,
    /// Rows of events in all tables; the tables about the recording itself (clocks, losses) are left out.
    pub events: u64,
    /// Those of them that are operations which a GPU has finished: kernels, copies, memsets, whole graphs.
    pub operations: u64,
    /// Collectives and transfers that NCCL has enqueued.
    pub collectives: u64,
}

impl Progress {
    /// Progress of the recording in folder `path`.
    #[must_use]
    pub fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            counters: BTreeMap::new(),
            hosts: BTreeMap::new(),
            gone: Counts::default(),
            seen: BTreeMap::new(),
        }
    }

    /// Counts what was written until now, what was removed again included.
    ///
    /// # Errors
    /// When the folder or one of its files can't be read.
    pub fn read(&mut self) -> io::Result<Counts> {
        let folders = process_folders(&self.path)?;
        let seen = std::mem::take(&mut self.seen);
        for (folder, counts) in seen {
            if folders.contains(&folder) {
                self.seen.insert(folder, counts);
            } else {
                self.gone.add(counts);
            }
        }
        let mut processes = BTreeSet::new();
        for folder in folders {
            if self.is_host(&folder) {
                continue;
            }
            let name = folder.file_name().unwrap_or_default().to_string_lossy();
            processes.insert(segment_of(&name).0.to_owned());
            let counts = self.count(&folder)?;
            self.seen.insert(folder, counts);
        }
        let mut sum = self.gone;
        for counts in self.seen.values() {
            sum.add(*counts);
        }
        sum.processes = processes.len();
        Ok(sum)
    }

    fn is_host(&mut self, folder: &Path) -> bool {
        if let Some(known) = self.hosts.get(folder) {
            return *known;
        }
        let header = std::fs::read(folder.join(PROCESS_FILE))
            .ok()
            .and_then(|text| serde_json::from_slice::<ProcessHeader>(&text).ok());
        let Some(header) = header else { return false };
        let is_host = header.role == HOST_ROLE;
        self.hosts.insert(folder.to_owned(), is_host);
        is_host
    }

    fn count(&mut self, folder: &Path) -> io::Result<Counts> {
        let mut counts = Counts::default();
        for table in TABLE_NAMES
            .iter()
            .filter(|name| !matches!(**name, "clocks" | "losses" | "windows"))
        {
            let path = folder.join(format!("{table}.arrows"));
            if !path.exists() {
                continue;
            }
            let rows = self.counters.entry(path.clone()).or_default().read(&path)?;
            counts.events = counts.events.saturating_add(rows);
            match *table {
                "kernels" | "copies" | "memsets" | "graph_launches" => {
                    counts.operations = counts.operations.saturating_add(rows);
                }
                "collectives" => counts.collectives = counts.collectives.saturating_add(rows),
                _ => {}
            }
        }
        Ok(counts)
    }
}

impl Counts {
    /// Adds rows; processes are counted by their names.
    fn add(&mut self, other: Self) {
        self.events = self.events.saturating_add(other.events);
        self.operations = self.operations.saturating_add(other.operations);
        self.collectives = self.collectives.saturating_add(other.collectives);
    }
}
