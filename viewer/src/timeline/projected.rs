//! NVTX ranges on devices: from the start of the first operation that was launched in a range to the end of the last.

use std::sync::Arc;

use gputrace_trace::{Process, TimeNs, parallel};
use rustc_hash::FxHashMap;

use super::correlations::FirstRows;
use super::gather::{Group, Place};
use super::lanes::{Item, lay_out};
use super::names::{Class, named};
use super::source::{MOST_ROWS, Table, source};

/// Ranges that one launch may lie in; outer ones beyond them are taken to have ended.
const MOST_OPEN: usize = 64;

/// An operation, by the call that launched it.
struct Launched {
    called: i64,
    device: u32,
    start: i64,
    end: i64,
}

/// The operations of a process by the thread that launched them, in the order of the calls; of those threads that `wanted` says.
fn by_thread(process: &Process, wanted: impl Fn(u32) -> bool) -> FxHashMap<u32, Vec<Launched>> {
    let tables = &process.tables;
    let calls = &tables.api_calls;
    let by_correlation = FirstRows::new(&calls.correlation);
    let mut threads: FxHashMap<u32, Vec<Launched>> = FxHashMap::default();
    let (kernels, copies) = (&tables.kernels, &tables.copies);
    let (memsets, graphs) = (&tables.memsets, &tables.graph_launches);
    for (starts, durations, devices, correlations) in [
        (
            &kernels.start_ns,
            &kernels.duration_ns,
            &kernels.device,
            &kernels.correlation,
        ),
        (
            &copies.start_ns,
            &copies.duration_ns,
            &copies.device,
            &copies.correlation,
        ),
        (
            &memsets.start_ns,
            &memsets.duration_ns,
            &memsets.device,
            &memsets.correlation,
        ),
        (
            &graphs.start_ns,
            &graphs.duration_ns,
            &graphs.device,
            &graphs.correlation,
        ),
    ] {
        for row in 0..starts.len().min(MOST_ROWS) {
            let (start, end) = (starts[row].0, starts[row].0.saturating_add(durations[row].0));
            if end < start || !gputrace_analyzer::is_possible(start, end) {
                continue;
            }
            let call = by_correlation.get(correlations[row]);
            if let Some(call) = call.filter(|call| wanted(calls.thread[*call])) {
                threads.entry(calls.thread[call]).or_default().push(Launched {
                    called: calls.start_ns[call].0,
                    device: devices[row],
                    start,
                    end,
                });
            }
        }
    }
    for launched in threads.values_mut() {
        launched.sort_by_key(|operation| operation.called);
    }
    threads
}

/// The ranges of a process on each of its devices, by device and thread.
fn of_process(process: &Process) -> Vec<((u32, u32), Vec<Item>)> {
    let markers = &process.tables.markers;
    let mut ranges: FxHashMap<u32, Vec<(TimeNs, TimeNs, u32)>> = FxHashMap::default();
    for (row, number) in (0..markers.start_ns.len().min(MOST_ROWS)).zip(0u32..) {
        if let Some(duration) = markers.duration_ns[row].filter(|duration| duration.0 > 0) {
            let start = markers.start_ns[row];
            let of_thread = ranges.entry(markers.thread[row]).or_default();
            of_thread.push((start, start + duration, number));
        }
    }
    if ranges.is_empty() {
        return Vec::new();
    }
    let mut found: FxHashMap<(u32, u32), Vec<Item>> = FxHashMap::default();
    let launched = by_thread(process, |thread| ranges.contains_key(&thread));
    for (thread, launched) in launched {
        let Some(ranges) = ranges.get_mut(&thread) else {
            continue;
        };
        ranges.sort_by_key(|(start, end, row)| (*start, std::cmp::Reverse(*end), *row));
        let mut coming = ranges.iter().peekable();
        let mut open: Vec<(TimeNs, u32)> = Vec::new();
        let mut spans: FxHashMap<(u32, u32), (i64, i64)> = FxHashMap::default();
        for operation in &launched {
            open.retain(|(end, _)| end.0 > operation.called);
            while let Some((_, end, row)) = coming.next_if(|(start, ..)| start.0 <= operation.called) {
                if end.0 > operation.called {
                    if open.len() == MOST_OPEN {
                        open.remove(0);
                    }
                    open.push((*end, *row));
                }
            }
            for (_, row) in &open {
                let span = spans
                    .entry((operation.device, *row))
                    .or_insert((operation.start, operation.end));
                *span = (span.0.min(operation.start), span.1.max(operation.end));
            }
        }
        for ((device, row), (start, end)) in spans {
            found.entry((device, thread)).or_default().push(Item {
                start,
                duration: end - start,
                name: named(Class::Range, markers.name[row as usize]),
                source: source(Table::Projected, row),
            });
        }
    }
    found.into_iter().collect()
}

/// The rows of all processes' ranges on their devices.
pub(crate) fn groups(processes: &[Process]) -> Vec<Group> {
    let found = parallel::map(processes.len(), |place| {
        let mut groups = Vec::new();
        for ((device, thread), mut items) in of_process(&processes[place]) {
            // Of two that are alike the outer one comes first, which began first.
            items.sort_by_key(|item| (item.start, std::cmp::Reverse(item.duration), item.source));
            let (lanes, left_out) = lay_out(&mut items, |_| false);
            groups.push(Group {
                process: u32::try_from(place).unwrap_or(u32::MAX),
                place: Place::Projected(device, thread),
                lanes: lanes.into_iter().map(Arc::new).collect(),
                left_out,
            });
        }
        groups.sort_by_key(|group| group.place);
        groups
    });
    found.into_iter().flatten().collect()
}
