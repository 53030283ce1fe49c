//! What is known of some processes of a job, to be put together with what is known of the others.
//!
//! A [`Part`] is what is known of one process alone. A [`Partial`] holds any number of them, of one recording or of several that are
//! one run, and what is said of these as wholes. Two of them become one without anything being computed, so it does not matter in
//! which order and grouping that is done; [`Partial::analysis`] sorts what it has, and gives what [`crate::analyze`] does of the same
//! recording.

mod file;
mod merge;

use std::collections::{BTreeMap, BTreeSet};

use gputrace_trace::manifest::{Manifest, ProcessHeader};
use gputrace_trace::recording::segment_of;
use gputrace_trace::tables::Tables;
use gputrace_trace::{Interner, Loss, Process, Recording};

use crate::alone::{Alone, ForGraph};
use crate::analysis::Analysis;
use crate::graph::rows::{Kept, Rows};
use crate::options::Options;
use crate::align::{self, ComparedClocks};
use crate::operations::ProcessOperations;
use crate::{collective_parts, hangs, prepared, reduce};

pub use file::{FORMAT, VERSION, Wrong};
pub use merge::merge;

/// What is said of a recording as a whole.
#[derive(Clone, Debug, Default)]
pub struct Base {
    /// The recording without its processes: path, manifest, hosts' samples, losses and notes of the whole, clocks.
    pub recording: Recording,
    /// The folders of all its processes, whether they are in the partial or not, with their ranks.
    pub processes: BTreeMap<String, Option<u32>>,
    /// What its files were when they were read, in a few digits.
    pub fingerprint: String,
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
}

impl Part {
    /// Of the one process of a recording, which is let go; of one without a process nothing but its losses and notes is kept.
    /// `manifest` is that of the whole.
    #[must_use]
    pub fn of(piece: Recording, manifest: &Manifest, options: &Options) -> Self {
        let used_cuda = used_cuda(&piece, manifest);
        let Recording {
            mut processes,
            names,
            losses,
            notes,
            ..
        } = piece;
        let process = processes.pop().unwrap_or_default();
        let mut part = Self::with_names(&process, &names, manifest, options);
        part.used_cuda = used_cuda;
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
            ForGraph::Rows(rows) => rows,
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
            used_cuda: true,
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

fn used_cuda(piece: &Recording, manifest: &Manifest) -> bool {
    piece.processes.iter().any(|process| {
        let tables = &process.tables;
        manifest.device != "imported"
            || !tables.kernels.start_ns.is_empty()
            || !tables.copies.start_ns.is_empty()
            || !tables.memsets.start_ns.is_empty()
            || !tables.api_calls.start_ns.is_empty()
    })
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
    /// Of a recording in memory, whose processes are let go one after another.
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
            recording: Recording {
                names: names.clone(),
                ..recording
            },
        };
        let parts = processes.into_iter().map(|process| {
            let piece = Recording {
                processes: vec![process],
                ..Recording::default()
            };
            let used_cuda = used_cuda(&piece, &manifest);
            let mut part = Part::with_names(&piece.processes[0], &names, &manifest, options);
            if part.has_rows() {
                part.names = names.clone();
            }
            part.used_cuda = used_cuda;
            part
        });
        Self {
            parts: vec![parts.collect()],
            bases: vec![base],
        }
    }

    /// Ranks that are here, and how many processes the recordings have.
    #[must_use]
    pub fn here(&self) -> (usize, usize) {
        let here = self.parts.iter().map(Vec::len).sum();
        (here, self.bases.iter().map(|base| base.processes.len()).sum())
    }

    /// The processes of the recordings that are not here, by name.
    #[must_use]
    pub fn missing(&self) -> Vec<String> {
        let missing = self.bases.iter().zip(&self.parts).flat_map(|(base, parts)| {
            let here: BTreeSet<&str> = parts.iter().map(|part| part.folder.as_str()).collect();
            let away = base.processes.iter();
            away.filter(move |(folder, _)| !here.contains(folder.as_str()))
                .map(|(folder, rank)| rank.map_or_else(|| folder.clone(), |rank| format!("rank {rank}")))
        });
        missing.collect()
    }

    /// How the clocks stand that stamped it, by what the ranks did together: where there are several, and they were not set when it was
    /// made. What is here can't be moved to one of them any more.
    #[must_use]
    pub fn clocks(&self) -> Option<ComparedClocks> {
        if self.bases.iter().any(|base| base.recording.clocks.is_some()) {
            return None;
        }
        let mut sides: Vec<ClockSide> = self
            .parts
            .iter()
            .flatten()
            .map(|part| ClockSide {
                process: head(part),
                parts: part.alone.parts.clone(),
                is_used: !part.alone.used.is_empty(),
            })
            .collect();
        let bases: Vec<&Recording> = self.bases.iter().map(|base| &base.recording).collect();
        compare_clocks(&bases, &mut sides).map(|(_, clocks)| clocks)
    }

    /// Everything that is known of the job. `source` is where it is from, where that is not the recordings' paths.
    #[must_use]
    pub fn analysis(self, options: &Options) -> (Analysis, bool) {
        let missing = self.missing();
        let (here, all) = self.here();
        let mut bases = self.bases.into_iter();
        let mut whole = bases.next().unwrap_or_default().recording;
        let clocks = whole.clocks.take();
        let mut paths = vec![whole.path.display().to_string()];
        for other in bases {
            paths.push(other.recording.path.display().to_string());
            let mut other = other.recording;
            other.clocks = None;
            whole.absorb(other);
        }
        whole.path = paths.join(" ").into();
        if let Some(alignment) = &clocks {
            // Its processes were aligned when they were read; what was sampled of hosts was not.
            whole.align(alignment.clone());
        }
        let mut parts: Vec<Part> = Vec::new();
        for mut of_base in self.parts {
            of_base.sort_by(|a, b| segment_of(&a.folder).cmp(&segment_of(&b.folder)));
            parts.extend(of_base);
        }
        for part in &mut parts {
            whole.losses.append(&mut part.losses);
            whole.notes.append(&mut part.notes);
        }
        parts.sort_by(|a, b| place(a).cmp(&place(b)));
        let mut of = Vec::with_capacity(parts.len());
        for part in parts {
            let Part {
                folder,
                header,
                alone,
                mut rows,
                kept,
                mut hang,
                names,
                ..
            } = part;
            if let Some(numbers) = whole.names.take_in(names) {
                rows.renumber(&numbers);
                hang.renumber(&numbers);
            }
            whole.processes.push(Process {
                folder: folder.clone(),
                header,
                tables: hang,
            });
            let process = Process {
                folder,
                tables: rows,
                ..Process::default()
            };
            of.push((alone, ForGraph::Rows(Rows { process, kept })));
        }
        if let Some(alignment) = &clocks {
            align::tell(&mut whole, alignment);
        }
        if !missing.is_empty() {
            whole.losses.push(Loss {
                what: format!("{here} of {all} processes are here: {} not put together", listed(&missing)),
                count: Some(missing.len() as u64),
                affects: "everything of those processes, and whatever compares or sums ranks".to_owned(),
            });
        }
        let is_simulated = whole.is_simulated();
        (reduce::reduce(&whole, of, options, false).0, is_simulated)
    }
}

/// Some names, and how many more.
fn listed(names: &[String]) -> String {
    const MOST: usize = 8;
    let first = names.iter().take(MOST).cloned().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(MOST) {
        0 => format!("{first} {}", if names.len() == 1 { "was" } else { "were" }),
        more => format!("{first} and {more} more were"),
    }
}

fn place(part: &Part) -> (u32, &str) {
    (part.header.rank.unwrap_or(u32::MAX), &part.folder)
}

fn head(part: &Part) -> Process {
    Process {
        folder: part.folder.clone(),
        header: part.header.clone(),
        ..Process::default()
    }
}

/// Tables that clocks are compared by.
pub const CLOCK_TABLES: &[&str] = &[
    "kernels",
    "copies",
    "memsets",
    "graph_nodes",
    "graph_launches",
    "collectives",
    "communicators",
    "external_correlations",
    "clocks",
];

/// What is needed of a process to compare its clock with those of others.
#[derive(Clone, Debug)]
pub struct ClockSide {
    /// Without its tables.
    process: Process,
    parts: Vec<collective_parts::Part>,
    is_used: bool,
}

impl ClockSide {
    /// Of the one process of a recording, at least its [`CLOCK_TABLES`]; `None` of one without a process.
    #[must_use]
    pub fn of(piece: &Recording) -> Option<Self> {
        let process = piece.processes.first()?;
        let operations = ProcessOperations::new(process, &piece.names);
        let parts = collective_parts::parts(process, 0, None, &operations, &piece.names);
        Some(Self {
            process: Process {
                folder: process.folder.clone(),
                header: process.header.clone(),
                ..Process::default()
            },
            parts: parts.all,
            is_used: !operations.devices.is_empty(),
        })
    }
}

/// Whether several clocks may have stamped the processes with these headers; `bases` are their recordings without processes.
#[must_use]
pub fn clocks_may_differ(bases: &[&Recording], headers: &[&ProcessHeader]) -> bool {
    let processes = headers.iter().map(|header| Process {
        header: ProcessHeader {
            host: header.host.clone(),
            ..ProcessHeader::default()
        },
        ..Process::default()
    });
    align::may_differ(&skeleton(bases, processes.collect()))
}

fn skeleton(bases: &[&Recording], processes: Vec<Process>) -> Recording {
    let manifest = bases.first().map(|base| base.manifest.clone());
    Recording {
        manifest: manifest.unwrap_or_default(),
        unaligned: bases.iter().find_map(|base| base.unaligned.clone()),
        processes,
        ..Recording::default()
    }
}

/// Compares the clocks of processes by what they did together; `None` where one clock stamped them all. Gives with the clocks, by
/// process, which stamped it; `sides` are put in the order of their ranks.
pub fn compare_clocks(
    bases: &[&Recording],
    sides: &mut [ClockSide],
) -> Option<(BTreeMap<(Option<u32>, String), u32>, ComparedClocks)> {
    sides.sort_by(|a, b| {
        let key = |side: &ClockSide| side.process.header.rank.unwrap_or(u32::MAX);
        (key(a), &a.process.folder).cmp(&(key(b), &b.process.folder))
    });
    let skeleton = skeleton(bases, sides.iter().map(|side| side.process.clone()).collect());
    if !align::may_differ(&skeleton) {
        return None;
    }
    let ranks = prepared::ranks(&skeleton);
    for ((side, place), rank) in sides.iter_mut().zip(0u32..).zip(&ranks) {
        for part in &mut side.parts {
            (part.participant.process, part.rank) = (place, *rank);
        }
    }
    let used = sides.iter().filter(|side| side.is_used).count();
    let parts = sides.iter().flat_map(|side| &side.parts);
    let (groups, alignment) = align::by_parts(&skeleton, &ranks, parts, used)?;
    let (mut clock_of, mut clock_of_rank) = (BTreeMap::new(), BTreeMap::new());
    for (group, number) in groups.iter().zip(0u32..) {
        for place in &group.processes {
            let process = &skeleton.processes[*place];
            clock_of.insert((process.header.rank, process.folder.clone()), number);
            if let Some(rank) = process.header.rank {
                clock_of_rank.insert(rank, number);
            }
        }
    }
    let clocks = ComparedClocks {
        format: ComparedClocks::FORMAT.to_owned(),
        alignment,
        clock_of_rank,
    };
    Some((clock_of, clocks))
}
