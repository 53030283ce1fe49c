//! The clocks of processes that are read apart.

use std::collections::BTreeMap;

use gputrace_trace::manifest::ProcessHeader;
use gputrace_trace::tables::Clock;
use gputrace_trace::{Process, Recording, Table, TimeNs};

use super::parts::Partial;
use crate::align::{self, ComparedClocks};
use crate::alone::first_reading;
use crate::operations::ProcessOperations;
use crate::{collective_parts, prepared};

impl Partial {
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
            .enumerate()
            .map(|(place, part)| ClockSide {
                place: (0, place),
                process: head(&part.folder, &part.header, part.alone.first_reading),
                parts: part.alone.parts.clone(),
                is_used: !part.alone.used.is_empty(),
            })
            .collect();
        let bases: Vec<&Recording> = self.bases.iter().map(|base| &base.recording).collect();
        compare_clocks(&bases, &mut sides).map(|(_, clocks)| clocks)
    }
}

/// A process without its tables but for the first reading of its clocks: realtime, monotonic and boottime.
fn head(folder: &str, header: &ProcessHeader, first_reading: Option<(i64, i64, i64)>) -> Process {
    let mut process = Process {
        folder: folder.to_owned(),
        header: header.clone(),
        ..Process::default()
    };
    if let Some((realtime, monotonic_ns, boottime_ns)) = first_reading {
        process.tables.clocks.push(Clock {
            realtime_ns: TimeNs(realtime),
            monotonic_ns,
            boottime_ns,
            tsc: None,
        });
    }
    process
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
    place: Place,
    /// Without its tables but for the first reading of its clocks.
    process: Process,
    parts: Vec<collective_parts::Part>,
    is_used: bool,
}

impl ClockSide {
    /// Of the one process of a recording, at least its [`CLOCK_TABLES`], which lies at `place`; `None` of one without a process.
    #[must_use]
    pub fn of(piece: &Recording, place: Place) -> Option<Self> {
        let process = piece.processes.first()?;
        let operations = ProcessOperations::new(process, &piece.names);
        let parts = collective_parts::parts(process, 0, None, &operations, &piece.names);
        Some(Self {
            place,
            process: head(&process.folder, &process.header, first_reading(process)),
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
            recording: header.recording.clone(),
            boot_id: header.boot_id.clone(),
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
        unaligned: unaligned(bases),
        processes,
        ..Recording::default()
    }
}

/// Why stamps of these recordings have no time zero in common, as [`Recording::unaligned`].
pub(super) fn unaligned(bases: &[&Recording]) -> Option<String> {
    let without_zero =
        |base: &&Recording| base.manifest.device == "imported" && base.manifest.started_ns == 0;
    let said = bases.iter().find_map(|base| base.unaligned.clone());
    said.or_else(|| {
        (bases.len() > 1 && bases.iter().any(without_zero))
            .then(|| "a file does not say when its time begins".to_owned())
    })
}

/// Where a process lies: the number of its recording, and its place there.
pub type Place = (usize, usize);
/// By process: which clock stamped it.
pub type ClockOf = BTreeMap<Place, u32>;

/// Compares the clocks of processes by what they did together; `None` where one clock stamped them all. Gives with the clocks, by
/// process, which stamped it; `sides` are put in the order of their ranks.
pub fn compare_clocks(bases: &[&Recording], sides: &mut [ClockSide]) -> Option<(ClockOf, ComparedClocks)> {
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
            clock_of.insert(sides[*place].place, number);
            if let Some(rank) = skeleton.processes[*place].header.rank {
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
