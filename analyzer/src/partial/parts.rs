//! What a partial is made of.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use gputrace_trace::manifest::{Manifest, ProcessHeader};
use gputrace_trace::tables::Tables;
use gputrace_trace::{Interner, Loss, Process, Recording};

use crate::align::{ClockChoice, align};
use crate::alone::{Alone, ForGraph};
use crate::graph::rows::{Kept, Rows};
use crate::hangs;
use crate::options::Options;
use crate::process_used_cuda;

/// Why files can't be used. One line: what is wrong, and what to do.
#[derive(Debug)]
pub struct Wrong(pub(super) String);

impl fmt::Display for Wrong {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for Wrong {}

/// What is said of a recording as a whole.
#[derive(Clone, Debug, Default)]
pub struct Base {
    /// The recording without its processes: path, manifest, hosts' samples, losses and notes of the whole, clocks.
    pub recording: Recording,
    /// The folders of all its processes, whether they are in the partial or not, with their ranks.
    pub processes: BTreeMap<String, Option<u32>>,
    /// What its files were when they were read, in a few digits.
    pub fingerprint: String,
    /// How many folders its processes have, those of recorders among them.
    pub folders: usize,
    /// How many of its recorders' folders have no checksums.
    pub unchecked: usize,
    /// Whether it was aligned before it was read: then its hosts' samples are moved, and its notes say by how much.
    pub was_aligned: bool,
}

/// What is known of one process alone.
#[derive(Clone, Debug)]
pub struct Part {
    pub(crate) folder: String,
    pub(crate) header: ProcessHeader,
    pub(crate) alone: Alone,
    /// Rows for the graph of the job; of no table where it has none.
    pub(crate) rows: Tables,
    pub(crate) kept: Option<Kept>,
    /// Rows that are looked at for hangs.
    pub(crate) hang: Tables,
    /// The strings of both.
    pub(crate) names: Interner,
    pub(crate) losses: Vec<Loss>,
    pub(crate) notes: Vec<String>,
    /// Whether its device is a stand-in, or it has events of GPUs.
    pub(crate) used_cuda: bool,
    /// How many of its folders have no checksums.
    pub(crate) unchecked: usize,
}

impl Part {
    /// Of the one process of a recording, which is let go; of one without a process nothing but its losses and notes is kept.
    /// `manifest` is that of the whole; `unchecked`: how many of the process's folders have no checksums.
    #[must_use]
    pub fn of(piece: Recording, unchecked: usize, manifest: &Manifest, options: &Options) -> Self {
        let Recording {
            mut processes,
            names,
            losses,
            notes,
            ..
        } = piece;
        let used_cuda = !processes.is_empty();
        let process = processes.pop().unwrap_or_default();
        let mut part = Self::with_names(&process, &names, manifest, options);
        (part.used_cuda, part.unchecked) = (used_cuda && part.used_cuda, unchecked);
        (part.losses, part.notes) = (losses, notes);
        part.header = process.header;
        if part.has_rows() {
            part.names = names;
        }
        part
    }

    /// Of one of a recording's processes, which share names: it has none of its own.
    fn with_names(process: &Process, names: &Interner, manifest: &Manifest, options: &Options) -> Self {
        let (alone, for_graph) = Alone::of(process, names, options, false);
        let rows = match for_graph {
            ForGraph::Whole(_) => Rows::all(process),
            ForGraph::Rows(rows) => *rows,
        };
        Self {
            folder: process.folder.clone(),
            header: process.header.clone(),
            alone,
            rows: rows.process.tables,
            kept: rows.kept,
            hang: hangs::rows(process, names, manifest),
            names: Interner::default(),
            losses: Vec::new(),
            notes: Vec::new(),
            used_cuda: process_used_cuda(process, manifest),
            unchecked: 0,
        }
    }

    fn has_rows(&self) -> bool {
        let any = |tables: &Tables| tables.row_counts().iter().any(|(_, rows)| *rows > 0);
        any(&self.rows) || any(&self.hang)
    }

    /// Its rank, as it says.
    #[must_use]
    pub fn rank(&self) -> Option<u32> {
        self.header.rank
    }

    /// The name of its folder.
    #[must_use]
    pub fn folder(&self) -> &str {
        &self.folder
    }

    /// Whether any of it used CUDA: see [`crate::used_cuda`].
    #[must_use]
    pub fn used_cuda(&self) -> bool {
        self.used_cuda
    }
}

/// What is known of some processes, of one run.
#[derive(Clone, Debug, Default)]
pub struct Partial {
    /// The recordings that they are of.
    pub bases: Vec<Base>,
    /// The processes of each.
    pub parts: Vec<Vec<Part>>,
}

impl Partial {
    /// Of a recording in memory, whose clocks are compared as `clocks` says and whose processes are let go one after another.
    ///
    /// # Errors
    /// As [`crate::align`].
    pub fn aligned(
        mut recording: Recording,
        clocks: &ClockChoice,
        options: &Options,
    ) -> Result<Self, String> {
        if recording.clocks.is_some() {
            return Ok(Self::of(recording, options));
        }
        let (notes, unaligned) = (recording.notes.clone(), recording.unaligned.clone());
        let hosts = recording.hosts.clone();
        align(&mut recording, clocks)?;
        // These belong to the whole: `analysis` moves the hosts and says by how much, once for all that is put together.
        (recording.notes, recording.unaligned, recording.hosts) = (notes, unaligned, hosts);
        let mut partial = Self::of(recording, options);
        for base in &mut partial.bases {
            base.was_aligned = false;
        }
        Ok(partial)
    }

    /// Of a recording in memory as it is.
    #[must_use]
    pub fn of(mut recording: Recording, options: &Options) -> Self {
        let processes = std::mem::take(&mut recording.processes);
        let manifest = recording.manifest.clone();
        let names = std::mem::take(&mut recording.names);
        let known = processes
            .iter()
            .map(|process| (process.folder.clone(), process.header.rank));
        let base = Base {
            processes: known.collect(),
            fingerprint: String::new(),
            folders: 0,
            unchecked: 0,
            was_aligned: recording.clocks.is_some(),
            recording: Recording {
                names: names.clone(),
                ..recording
            },
        };
        let parts = processes.into_iter().map(|process| {
            let mut part = Part::with_names(&process, &names, &manifest, options);
            if part.has_rows() {
                part.names = names.clone();
            }
            part
        });
        Self {
            parts: vec![parts.collect()],
            bases: vec![base],
        }
    }

    /// Puts the recordings in the order of their ranks, as one would name those of several hosts.
    pub(super) fn sort(&mut self) {
        let bases = std::mem::take(&mut self.bases).into_iter();
        let mut all: Vec<(Base, Vec<Part>)> = bases.zip(std::mem::take(&mut self.parts)).collect();
        all.sort_by_cached_key(|(base, _)| {
            let lowest = base.processes.values().map(|rank| rank.unwrap_or(u32::MAX)).min();
            (lowest, base.recording.path.clone())
        });
        (self.bases, self.parts) = all.into_iter().unzip();
    }

    /// Whether any of it used CUDA: see [`crate::used_cuda`].
    #[must_use]
    pub fn used_cuda(&self) -> bool {
        self.parts.iter().flatten().any(|part| part.used_cuda)
    }

    /// The numbers of the first and the last step that any process has, chosen or not.
    #[must_use]
    pub fn step_numbers(&self) -> Option<(u64, u64)> {
        let parts = self.parts.iter().flatten();
        let numbers = parts.flat_map(|part| part.alone.step_numbers());
        numbers.fold(None, |known, number| {
            let (first, last) = known.unwrap_or((number, number));
            Some((number.min(first), number.max(last)))
        })
    }

    /// Ranks that are here, and how many processes the recordings have.
    #[must_use]
    pub fn here(&self) -> (usize, usize) {
        let here = self.parts.iter().map(Vec::len).sum();
        (here, self.bases.iter().map(|base| base.processes.len()).sum())
    }

    /// The processes of the recordings that are not here, with their ranks, in the order of these.
    #[must_use]
    pub fn missing(&self) -> Vec<(String, Option<u32>)> {
        let missing = self.bases.iter().zip(&self.parts).flat_map(|(base, parts)| {
            let here: BTreeSet<&str> = parts.iter().map(|part| part.folder.as_str()).collect();
            let away = base.processes.iter();
            away.filter(move |(folder, _)| !here.contains(folder.as_str()))
        });
        let mut missing: Vec<(String, Option<u32>)> =
            missing.map(|(folder, rank)| (folder.clone(), *rank)).collect();
        missing.sort_by(|(a, a_rank), (b, b_rank)| {
            let key = |rank: &Option<u32>| rank.unwrap_or(u32::MAX);
            (key(a_rank), a).cmp(&(key(b_rank), b))
        });
        missing
    }
}
