//! Copies by direction and by pair of devices: bytes, and how fast they went beside what the link can carry.

use std::collections::BTreeMap;

use gputrace_trace::copy_words::direction_name;
use gputrace_trace::tables::Copies;
use serde::{Deserialize, Serialize};

use crate::intervals::IntervalSet;
use crate::kinds::Kind;
use crate::links::nominal;
use crate::operations::Operation;
use crate::statistics::sum;

/// The copies of one device in one direction between one pair of places.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CopyAnalysis {
    /// "HtoD", "DtoH", "DtoD", "PtoP", ...
    pub direction: String,
    /// "host", "GPU n", "peer" (another GPU, not named) or "unknown".
    pub source: String,
    /// The same.
    pub destination: String,
    /// How many.
    pub count: usize,
    /// Bytes in all.
    pub bytes: u64,
    /// Sum of their durations.
    pub total_ns: i64,
    /// Time passed with at least one of them.
    pub time_ns: i64,
    /// Bytes over the sum of durations (so each copy weighs by its time), GB/s; null without bytes or time.
    pub bandwidth: Option<f64>,
    /// What the link carries in one direction by data sheet, GB/s; null where the GPU is not known.
    pub nominal_bandwidth: Option<f64>,
    /// The link: "PCIe 4.0 x16", "NVLink 4", ...
    pub link: Option<String>,
}

/// Where an end of a copy lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Host,
    Gpu(u32),
    /// Another GPU, which is not named.
    Peer,
    Unknown,
}

impl std::fmt::Display for Place {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Host => formatter.write_str("host"),
            Self::Gpu(device) => write!(formatter, "GPU {device}"),
            Self::Peer => formatter.write_str("peer"),
            Self::Unknown => formatter.write_str("unknown"),
        }
    }
}

/// Both ends of a copy of this direction (`CUpti_ActivityMemcpyKind`, cupti_activity.h) on a device. Arrays lie in its
/// memory.
fn ends(direction: u8, device: u32) -> (Place, Place) {
    let gpu = Place::Gpu(device);
    match direction {
        1 | 3 => (Place::Host, gpu),
        2 | 4 => (gpu, Place::Host),
        5..=8 => (gpu, gpu),
        9 => (Place::Host, Place::Host),
        10 => (gpu, Place::Peer),
        _ => (Place::Unknown, Place::Unknown),
    }
}

#[derive(Default)]
struct Group {
    intervals: Vec<(i64, i64)>,
    durations: Vec<i64>,
    bytes: u64,
}

/// The copies among a device's operations, by time.
pub(crate) fn copies(
    operations: &[Operation],
    table: &Copies,
    device: u32,
    device_name: Option<&str>,
) -> Vec<CopyAnalysis> {
    let mut groups: BTreeMap<(u8, Place, Place), Group> = BTreeMap::new();
    for operation in operations.iter().filter(|operation| operation.kind == Kind::Copy) {
        let row = operation.row as usize;
        let direction = table.copy_kind[row];
        let (source, destination) = ends(direction, device);
        let source = table.source_device[row].map_or(source, Place::Gpu);
        let destination = table.destination_device[row].map_or(destination, Place::Gpu);
        let group = groups.entry((direction, source, destination)).or_default();
        group.intervals.push((operation.start, operation.end));
        group.durations.push(operation.end - operation.start);
        group.bytes = group.bytes.saturating_add(table.bytes[row]);
    }
    let mut copies: Vec<CopyAnalysis> = groups
        .into_iter()
        .map(|((direction, source, destination), group)| {
            let total_ns = sum(&group.durations);
            let nominal = device_name.and_then(|name| nominal(name, direction, source != destination));
            CopyAnalysis {
                direction: direction_name(direction).to_owned(),
                source: source.to_string(),
                destination: destination.to_string(),
                count: group.durations.len(),
                bytes: group.bytes,
                total_ns,
                time_ns: IntervalSet::union_of(group.intervals).length_ns(),
                // Bytes a nanosecond are GB/s.
                bandwidth: (group.bytes > 0 && total_ns > 0).then(|| group.bytes as f64 / total_ns as f64),
                nominal_bandwidth: nominal.map(|nominal| nominal.gb_per_s),
                link: nominal.map(|nominal| nominal.link.to_owned()),
            }
        })
        .collect();
    copies.sort_by(|a, b| {
        b.total_ns.cmp(&a.total_ns).then_with(|| {
            (&a.direction, &a.source, &a.destination).cmp(&(&b.direction, &b.source, &b.destination))
        })
    });
    copies
}
