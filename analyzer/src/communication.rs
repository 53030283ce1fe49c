//! A device's communication by communicator and collective.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::collective_parts::{Part, PartKernel};
use crate::intervals::IntervalSet;
use crate::kinds::Kind;
use crate::measures::{lies_within, ratio, union_of_kind};
use crate::operations::Operation;
use crate::statistics::sum;

/// The communication of one kind on one communicator, on one device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CommunicationAnalysis {
    /// The communicator's hash, in hexadecimal; "unknown" where the source does not tell communicators apart.
    pub communicator: String,
    /// Its name, where it has one.
    pub communicator_name: Option<String>,
    /// "AllReduce", ...
    pub name: String,
    /// How many operations.
    pub count: usize,
    /// Bytes of all that say how many; null where none does.
    pub bytes: Option<u64>,
    /// Sum of the kernels' durations; one that several operations share counts once.
    pub total_ns: i64,
    /// Time passed with at least one of them.
    pub time_ns: i64,
    /// The part of that in which compute runs too.
    pub hidden_ns: i64,
    /// The rest of it.
    pub exposed_ns: i64,
    /// Hidden over time.
    pub overlap_ratio: Option<f64>,
}

/// The text for a communicator.
pub(crate) fn communicator_text(communicator: Option<u64>) -> String {
    communicator.map_or_else(|| "unknown".to_owned(), |hash| format!("{hash:#018x}"))
}

#[derive(Default)]
struct Group {
    name: Option<String>,
    count: usize,
    /// By row: its part in the chosen time, and how long all of it took.
    kernels: BTreeMap<u32, (i64, i64, i64)>,
    bytes: Option<u64>,
}

/// The parts of a process by the device of their kernels.
pub(crate) fn by_device(parts: &[Part]) -> FxHashMap<u32, Vec<(&Part, PartKernel)>> {
    let mut devices: FxHashMap<u32, Vec<(&Part, PartKernel)>> = FxHashMap::default();
    for part in parts {
        if let Some(kernel) = part.kernel {
            devices.entry(kernel.device).or_default().push((part, kernel));
        }
    }
    devices
}

/// The communication of a device whose parts these are, by exposed time. Kernels outside the chosen time are left out, others
/// cut.
pub(crate) fn communication(
    parts: &[(&Part, PartKernel)],
    operations: &[Operation],
    chosen: Option<(i64, i64)>,
) -> Vec<CommunicationAnalysis> {
    let compute = union_of_kind(operations, Kind::Compute);
    let mut groups: BTreeMap<(Option<u64>, &str), Group> = BTreeMap::new();
    for (part, kernel) in parts {
        let (start, end) = chosen.unwrap_or((kernel.start, kernel.end));
        // As operations are chosen for steps.
        if chosen.is_some() && !lies_within(kernel.start, kernel.end, start, end) {
            continue;
        }
        let group = groups
            .entry((part.communicator, part.function.as_str()))
            .or_default();
        group.count += 1;
        group.kernels.insert(
            kernel.row,
            (
                kernel.start.max(start),
                kernel.end.min(end),
                kernel.end - kernel.start,
            ),
        );
        if let Some(bytes) = part.bytes {
            group.bytes = Some(group.bytes.unwrap_or(0).saturating_add(bytes));
        }
        if group.name.is_none() {
            group.name.clone_from(&part.communicator_name);
        }
    }
    let mut found: Vec<CommunicationAnalysis> = groups
        .into_iter()
        .map(|((communicator, name), group)| {
            let durations: Vec<i64> = group.kernels.values().map(|(.., duration)| *duration).collect();
            let union = IntervalSet::union_of(group.kernels.into_values().map(|(from, to, _)| (from, to)));
            let time_ns = union.length_ns();
            let hidden_ns = union.intersection(&compute).length_ns();
            CommunicationAnalysis {
                communicator: communicator_text(communicator),
                communicator_name: group.name,
                name: name.to_owned(),
                count: group.count,
                bytes: group.bytes,
                total_ns: sum(&durations),
                time_ns,
                hidden_ns,
                exposed_ns: time_ns - hidden_ns,
                overlap_ratio: ratio(hidden_ns, time_ns),
            }
        })
        .collect();
    found.sort_by(|a, b| {
        b.exposed_ns
            .cmp(&a.exposed_ns)
            .then_with(|| (&a.communicator, &a.name).cmp(&(&b.communicator, &b.name)))
    });
    found
}
