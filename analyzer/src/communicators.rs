//! Communicators: who is in each, what ran on it, and what it cost every rank.

use std::collections::{BTreeMap, BTreeSet};

use gputrace_trace::{Interner, Process};
use rustc_hash::{FxHashMap, FxHashSet};
use serde::{Deserialize, Serialize};

use crate::collective_parts::Part;
use crate::collectives::Collective;
use crate::communication::communicator_text;
use crate::intervals::IntervalSet;
use crate::kinds::Kind;
use crate::measures::{lies_within, union_of_kind};
use crate::operations::ProcessOperations;

/// One communicator over all ranks.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CommunicatorAnalysis {
    /// Its hash, in hexadecimal; "unknown" where the source does not tell communicators apart.
    pub communicator: String,
    /// Its name, where it has one.
    pub communicator_name: Option<String>,
    /// Ranks in it, recorded or not; null where that is not known.
    pub communicator_ranks: Option<u32>,
    /// The job's ranks that were recorded in it, each once: by their rank in the communicator where the source says that.
    pub ranks: Vec<u32>,
    /// Collectives and transfers between two ranks, each once for all who took part.
    pub operations: usize,
    /// Bytes of those, as each counts; null where none says how many.
    pub bytes: Option<u64>,
    /// By rank: time passed with at least one of its operations. Where several GPUs of a process take part the key is
    /// "rank.device".
    pub time_ns: BTreeMap<String, i64>,
    /// By rank: the part of that in which no compute runs.
    pub exposed_ns: BTreeMap<String, i64>,
    /// The same as a list, for tables.
    #[serde(skip)]
    pub(crate) times: Vec<DeviceTime>,
}

impl CommunicatorAnalysis {
    /// The rank with most exposed time, and that time; of equal ones the first.
    #[must_use]
    pub fn most_exposed(&self) -> Option<(&str, i64)> {
        let mut most: Option<(&str, i64)> = None;
        for (rank, &time) in &self.exposed_ns {
            if most.is_none_or(|(_, longest)| time > longest) {
                most = Some((rank, time));
            }
        }
        most
    }
}

/// What one device spent on a communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeviceTime {
    pub(crate) rank: u32,
    pub(crate) device: u32,
    pub(crate) time_ns: i64,
    pub(crate) exposed_ns: i64,
}

/// What a process says of a communicator that it is in.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Described {
    communicator: u64,
    name: Option<String>,
    /// How many ranks are in it.
    ranks: u32,
    /// The process's rank there.
    rank: u32,
}

/// What one process alone tells of communicators.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Side {
    described: Vec<Described>,
    times: Vec<TimeIn>,
}

impl Side {
    /// Of a process with its parts in collectives.
    pub(crate) fn of(
        process: &Process,
        names: &Interner,
        parts: &[Part],
        operations: &ProcessOperations,
    ) -> Self {
        Self {
            described: described(process, names),
            times: times_in(parts, operations),
        }
    }
}

impl Side {
    /// What the process says of its communicators: hash, name, ranks, and its own rank in each.
    pub(crate) fn described(&self) -> impl Iterator<Item = (String, Option<&str>, u32, u32)> {
        self.described.iter().map(|one| {
            let text = communicator_text(Some(one.communicator));
            (text, one.name.as_deref(), one.ranks, one.rank)
        })
    }
}

/// What a process says of its communicators.
fn described(process: &Process, names: &Interner) -> Vec<Described> {
    let table = &process.tables.communicators;
    let rows = 0..table.communicator.len();
    rows.map(|row| Described {
        communicator: table.communicator[row],
        name: table.name[row].map(|name| names.get(name).to_owned()),
        ranks: table.ranks[row],
        rank: table.rank[row],
    })
    .collect()
}

/// A device's time in a communicator's kernels.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct TimeIn {
    communicator: Option<u64>,
    device: u32,
    time_ns: i64,
    exposed_ns: i64,
}

/// A communicator, and the device that it is used on.
type Use = (Option<u64>, u32);

/// The time of a process's devices in the kernels of each communicator.
fn times_in(parts: &[Part], operations: &ProcessOperations) -> Vec<TimeIn> {
    let mut kernels: BTreeMap<Use, Vec<(i64, i64)>> = BTreeMap::new();
    for part in parts {
        let Some(kernel) = part.kernel else { continue };
        let chosen = operations
            .devices
            .get(&kernel.device)
            .and_then(|device| device.chosen);
        let (start, end) = chosen.unwrap_or((kernel.start, kernel.end));
        if chosen.is_some() && !lies_within(kernel.start, kernel.end, start, end) {
            continue;
        }
        let cut = (kernel.start.max(start), kernel.end.min(end));
        let of_device = kernels.entry((part.communicator, kernel.device));
        of_device.or_default().push(cut);
    }
    let mut compute: BTreeMap<u32, IntervalSet> = BTreeMap::new();
    let times = kernels.into_iter().map(|((communicator, device), kernels)| {
        let compute = compute.entry(device).or_insert_with(|| {
            operations
                .devices
                .get(&device)
                .map(|operations| union_of_kind(&operations.cut, Kind::Compute))
                .unwrap_or_default()
        });
        let union = IntervalSet::union_of(kernels);
        let time_ns = union.length_ns();
        TimeIn {
            communicator,
            device,
            time_ns,
            exposed_ns: time_ns - union.intersection(compute).length_ns(),
        }
    });
    times.collect()
}

/// All communicators that processes describe, take part in or have operations on; those first that a rank waits longest on
/// without computing, then by number. `sides`: by process, with its rank.
pub(crate) fn communicators(
    sides: &[(Option<u32>, &Side)],
    collectives: &[Collective],
) -> Vec<CommunicatorAnalysis> {
    let mut members: BTreeMap<Option<u64>, BTreeSet<(u32, u32)>> = BTreeMap::new();
    let mut sizes: BTreeMap<Option<u64>, u32> = BTreeMap::new();
    let mut named: BTreeMap<Option<u64>, &str> = BTreeMap::new();
    for (rank, side) in sides {
        for described in &side.described {
            let communicator = Some(described.communicator);
            let size = sizes.entry(communicator).or_insert(0);
            *size = (*size).max(described.ranks);
            if let Some(name) = &described.name {
                named.entry(communicator).or_insert(name);
            }
            let in_it = members.entry(communicator).or_default();
            in_it.extend(rank.map(|rank| (described.rank, rank)));
        }
    }
    // The ranks among the members.
    let mut ranks: FxHashSet<(Option<u64>, u32)> = members
        .iter()
        .flat_map(|(communicator, in_it)| in_it.iter().map(|(_, rank)| (*communicator, *rank)))
        .collect();
    let mut times: BTreeMap<Option<u64>, Vec<DeviceTime>> = BTreeMap::new();
    for (rank, side) in sides {
        let Some(rank) = *rank else { continue };
        for time in &side.times {
            // Who takes part without being told of (a kernel that is known by its name) is told of here.
            if ranks.insert((time.communicator, rank)) {
                members.entry(time.communicator).or_default().insert((rank, rank));
            }
            times.entry(time.communicator).or_default().push(DeviceTime {
                rank,
                device: time.device,
                time_ns: time.time_ns,
                exposed_ns: time.exposed_ns,
            });
        }
    }
    let mut found: BTreeMap<String, CommunicatorAnalysis> = BTreeMap::new();
    for (communicator, in_it) in members {
        let mut entry = CommunicatorAnalysis {
            communicator: communicator_text(communicator),
            communicator_name: named.remove(&communicator).map(str::to_owned),
            communicator_ranks: sizes.get(&communicator).copied().filter(|size| *size > 0),
            ..CommunicatorAnalysis::default()
        };
        let mut seen = FxHashSet::default();
        let each_once = in_it.into_iter().filter(|(_, rank)| seen.insert(*rank));
        entry.ranks = each_once.map(|(_, rank)| rank).collect();
        let times = times.remove(&communicator).unwrap_or_default();
        let mut devices: FxHashMap<u32, usize> = FxHashMap::default();
        for time in &times {
            *devices.entry(time.rank).or_default() += 1;
        }
        for time in &times {
            let label = if devices[&time.rank] == 1 {
                time.rank.to_string()
            } else {
                format!("{}.{}", time.rank, time.device)
            };
            // Several processes may say that they are one rank: their times are the rank's.
            *entry.time_ns.entry(label.clone()).or_insert(0) += time.time_ns;
            *entry.exposed_ns.entry(label).or_insert(0) += time.exposed_ns;
        }
        entry.times = times;
        found.insert(entry.communicator.clone(), entry);
    }
    for collective in collectives {
        let entry = found
            .entry(collective.communicator.clone())
            .or_insert_with(|| CommunicatorAnalysis {
                communicator: collective.communicator.clone(),
                ranks: collective.ranks.clone(),
                ..CommunicatorAnalysis::default()
            });
        entry.operations += 1;
        if let Some(bytes) = collective.bytes {
            entry.bytes = Some(entry.bytes.unwrap_or(0).saturating_add(bytes));
        }
    }
    let mut found: Vec<CommunicatorAnalysis> = found.into_values().collect();
    found.sort_by_key(|entry| std::cmp::Reverse(entry.most_exposed().map_or(0, |(_, time)| time)));
    found
}
