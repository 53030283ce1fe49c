//! A device's communication by communicator and collective.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::collective_parts::Part;
use crate::intervals::IntervalSet;
use crate::kinds::Kind;
use crate::measures::{ratio, union_of_kind};
use crate::operations::Operation;
use crate::statistics::sum;

/// The communication of one kind on one communicator, on one device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CommunicationAnalysis {
    /// The communicator's hash, in hexadecimal; "unknown" where the source does not tell communicators apart.
    pub communicator: String,
    /// Its name, where it has one.
    pub communicator_name: Option<String>,
    /// "AllReduce", ...
    pub name: String,
    /// How many.
    pub count: usize,
    /// Bytes of all that say how many.
    pub bytes: u64,
    /// Sum of the kernels' durations.
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
    intervals: Vec<(i64, i64)>,
    bytes: u64,
}

/// The communication of a device, by exposed time. Kernels outside `[start, end)` are left out, others cut.
pub(crate) fn communication(
    parts: &[Part],
    device: u32,
    operations: &[Operation],
    (start, end): (i64, i64),
) -> Vec<CommunicationAnalysis> {
    let compute = union_of_kind(operations, Kind::Compute);
    let mut groups: BTreeMap<(Option<u64>, &str), Group> = BTreeMap::new();
    for part in parts {
        let Some((_, from, to)) = part.kernel.filter(|(on, ..)| *on == device) else {
            continue;
        };
        if to < start || from >= end {
            continue;
        }
        let group = groups
            .entry((part.communicator, part.function.as_str()))
            .or_default();
        group.intervals.push((from.max(start), to.min(end)));
        group.bytes = group.bytes.saturating_add(part.bytes.unwrap_or(0));
        if group.name.is_none() {
            group.name.clone_from(&part.communicator_name);
        }
    }
    let mut found: Vec<CommunicationAnalysis> = groups
        .into_iter()
        .map(|((communicator, name), group)| {
            let durations: Vec<i64> = group.intervals.iter().map(|(from, to)| to - from).collect();
            let union = IntervalSet::union_of(group.intervals);
            let time_ns = union.length_ns();
            let hidden_ns = union.intersection(&compute).length_ns();
            CommunicationAnalysis {
                communicator: communicator_text(communicator),
                communicator_name: group.name,
                name: name.to_owned(),
                count: durations.len(),
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
