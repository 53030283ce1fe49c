//! Copies by direction and by pair of devices: bytes, and how fast they went beside what the link can carry.

use std::collections::BTreeMap;

use gputrace_trace::tables::Copies;
use serde::Serialize;

use crate::intervals::IntervalSet;
use crate::kinds::Kind;
use crate::links::nominal;
use crate::operations::{Operation, direction_name};
use crate::statistics::sum;

/// The copies of one device in one direction between one pair of places.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CopyAnalysis {
    /// "HtoD", "DtoH", "DtoD", "PtoP", ...
    pub direction: String,
    /// "host" or "GPU n".
    pub source: String,
    /// "host" or "GPU n".
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
    let mut groups: BTreeMap<(u8, Option<u32>, Option<u32>), Group> = BTreeMap::new();
    for operation in operations.iter().filter(|operation| operation.kind == Kind::Copy) {
        let row = operation.row as usize;
        let direction = table.copy_kind[row];
        let source = table.source_device[row].or((matches!(direction, 2 | 8 | 10)).then_some(device));
        let destination = table.destination_device[row].or((matches!(direction, 1 | 8)).then_some(device));
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
            let place = |device: Option<u32>, unknown: &str| {
                device.map_or_else(|| unknown.to_owned(), |device| format!("GPU {device}"))
            };
            let host_or_peer = if direction == 10 { "peer" } else { "host" };
            CopyAnalysis {
                direction: direction_name(direction).to_owned(),
                source: place(source, host_or_peer),
                destination: place(destination, host_or_peer),
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
