//! Following a recording that still grows.
//!
//! [`Progress`] counts rows without decoding them and is cheap enough for a progress line; [`Follower`] hands over
//! the rows themselves.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use crate::beneath;
use crate::json_file::{Json, read_json};
use crate::manifest::{PROCESS_FILE, ProcessHeader};
use crate::names::Interner;
use crate::recording::header::{Known, files_in, last_written_ns};
use crate::recording::stamps::Life;
use crate::recording::{process_folders, segment_of};
use crate::stream::{Checks, RowCounter, StreamEnd, StreamFile};
use crate::table::{Holds, Table};
use crate::tables::{Clocks, TABLE_NAMES, TABLES, Tables};

/// The rows that one process's tables gained since the last look.
pub struct Growth {
    /// The process's folder name.
    pub folder: String,
    /// The new rows.
    pub tables: Tables,
    /// What is damaged in which tables; behind it nothing may follow.
    pub damaged: Vec<String>,
    /// Rows left out by table, since they lie hours before or after the process: only where it wrote without checksums.
    pub left_out: Vec<(&'static str, u64)>,
}

/// What a process's header says of its files, from when it can be read.
struct Writer {
    header: ProcessHeader,
    checks: Checks,
    /// The clocks' readings of a process that wrote without checksums, for its rows' stamps to be held against.
    clocks: Option<(StreamFile, Clocks)>,
}

/// Reads what a growing recording gains.
pub struct Follower {
    path: PathBuf,
    tables: BTreeSet<&'static str>,
    writers: BTreeMap<String, Writer>,
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
            writers: BTreeMap::new(),
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
                left_out: Vec::new(),
            };
            let checks = self.checks(&folder, &name)?;
            let mut any = false;
            for &table in &self.tables {
                let path = folder.join(format!("{table}.arrows"));
                if !beneath::is_file(&path) {
                    continue;
                }
                let file = self
                    .files
                    .entry((name.clone(), table))
                    .or_insert_with(|| StreamFile::with_checks(&path, checks));
                for batch in file.read()? {
                    any = true;
                    if let Some(Err(wrong)) = growth.tables.append_batch(table, &batch, &mut self.names) {
                        growth.damaged.push(format!("{table}: {wrong}"));
                    }
                }
                for damage in file.take_damage() {
                    growth.damaged.push(format!("{table}: {}", damage.what));
                }
                if let StreamEnd::Damaged(wrong) = file.end() {
                    growth.damaged.push(format!("{table}: {wrong}"));
                }
            }
            if any && let Some(life) = self.life(&folder, &name)? {
                growth.left_out = life.leave_out_impossible(&mut growth.tables);
            }
            if any || !growth.damaged.is_empty() {
                grown.push(growth);
            }
        }
        Ok(grown)
    }

    /// How the files of the process in `folder` are checked, as opening it would.
    fn checks(&mut self, folder: &Path, name: &str) -> io::Result<Checks> {
        if let Some(writer) = self.writers.get(name) {
            return Ok(writer.checks);
        }
        let known = Known::read(folder, name).map_err(io::Error::other)?;
        // One that is not there yet may come.
        if known.is_trusted {
            let path = folder.join(format!("{}.arrows", Clocks::NAME));
            let is_checked = known.header.version.has_checksums();
            let writer = Writer {
                header: known.header,
                checks: known.checks,
                clocks: (!is_checked).then(|| (StreamFile::new(&path), Clocks::default())),
            };
            self.writers.insert(name.to_owned(), writer);
        }
        Ok(known.checks)
    }

    /// Where the rows of a process may lie that wrote without checksums.
    fn life(&mut self, folder: &Path, name: &str) -> io::Result<Option<Life>> {
        let Some(writer) = self.writers.get_mut(name) else {
            return Ok(None);
        };
        let Some((file, clocks)) = &mut writer.clocks else {
            return Ok(None);
        };
        let files = files_in(folder).map_err(io::Error::other)?;
        if beneath::is_file(file.path()) {
            for batch in file.read()? {
                // Where it is damaged it tells no more: whoever reads the table is told of it.
                drop(clocks.append_batch(&batch, &mut Interner::default()));
            }
        }
        Ok(Some(Life::of(&writer.header, last_written_ns(&files), clocks)))
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
        let header = read_json::<ProcessHeader>(&folder.join(PROCESS_FILE));
        let Some(header) = header.ok().and_then(Json::ok) else {
            return false;
        };
        let is_host = header.is_host();
        self.hosts.insert(folder.to_owned(), is_host);
        is_host
    }

    fn count(&mut self, folder: &Path) -> io::Result<Counts> {
        let mut counts = Counts::default();
        for table in TABLES.iter().filter(|table| table.holds != Holds::Recording) {
            let path = folder.join(format!("{}.arrows", table.name));
            if !beneath::is_file(&path) {
                continue;
            }
            let rows = self.counters.entry(path.clone()).or_default().read(&path)?;
            counts.events = counts.events.saturating_add(rows);
            match table.holds {
                Holds::Operations => {
                    counts.operations = counts.operations.saturating_add(rows);
                }
                Holds::Collectives => counts.collectives = counts.collectives.saturating_add(rows),
                Holds::Events | Holds::Details | Holds::Standing | Holds::Recording => {}
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
