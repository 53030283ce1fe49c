//! Arrows from calls to what they launched: which numbers each has.

use gputrace_trace::Process;

use crate::export::ExportSummary;
use crate::export::layout::{Flow, Layout, Slice, Source};

/// Bits of a flow's number that are its own; above them stands the process.
const OWN_BITS: u32 = 40;

/// The arrows of one process. An operation has at most one; a call has as many as it launched operations.
pub(super) struct Flows {
    /// By row of `api_calls`: the first of its arrows. One more at the end.
    first: Vec<u32>,
    /// By launched table and row: its arrow from 1, and 0 where there is none.
    operations: [Vec<u32>; 4],
    /// Above all numbers of the processes before.
    base: u64,
}

/// The place of a launched table.
fn table(source: Source) -> Option<usize> {
    match source {
        Source::Kernel => Some(0),
        Source::Copy => Some(1),
        Source::Memset => Some(2),
        Source::GraphLaunch => Some(3),
        _ => None,
    }
}

fn rows(process: &Process) -> [usize; 4] {
    let tables = &process.tables;
    [
        tables.kernels.start_ns.len(),
        tables.copies.start_ns.len(),
        tables.memsets.start_ns.len(),
        tables.graph_launches.start_ns.len(),
    ]
}

impl Flows {
    /// Finds the arrows of a process, and counts them and what has none.
    pub(super) fn new(layout: &Layout<'_>, summary: &mut ExportSummary) -> Self {
        let calls = layout.process.tables.api_calls.start_ns.len();
        let mut first = vec![0u32; calls + 1];
        // First the call of each, from 1.
        let mut operations = rows(layout.process).map(|rows| vec![0u32; rows]);
        let launched = layout
            .rows
            .iter()
            .flat_map(|row| &row.slices)
            .filter_map(|slice| Some((table(slice.source())?, slice)));
        for (table, slice) in launched {
            match layout.flow(slice) {
                Flow::None => {}
                Flow::Unknown => summary.launches_unknown += 1,
                Flow::Later(_) => summary.launches_later += 1,
                Flow::From(launch) => {
                    summary.flows += 1;
                    first[launch.call as usize + 1] += 1;
                    operations[table][slice.index as usize] = launch.call + 1;
                }
            }
        }
        for call in 0..calls {
            first[call + 1] += first[call];
        }
        // Then the number of each: those of one call follow one another.
        let mut next = first.clone();
        for place in operations.iter_mut().flatten().filter(|place| **place != 0) {
            let call = *place as usize - 1;
            next[call] += 1;
            *place = next[call];
        }
        Self {
            first,
            operations,
            base: (layout.number as u64) << OWN_BITS,
        }
    }

    /// The arrows that begin at a call.
    #[inline]
    pub(super) fn of_call(&self, call: u32) -> impl Iterator<Item = u64> + use<> {
        let call = call as usize;
        let base = self.base + 1;
        (self.first[call]..self.first[call + 1]).map(move |place| base + u64::from(place))
    }

    /// The arrow that ends at an operation.
    #[inline]
    pub(super) fn of_operation(&self, slice: &Slice) -> Option<u64> {
        let place = self.operations[table(slice.source())?][slice.index as usize];
        (place != 0).then(|| self.base + u64::from(place))
    }

    /// A number for every operation, of those without an arrow too, which is unlike all others of the file.
    pub(super) fn event_id(&self, slice: &Slice) -> u64 {
        self.of_operation(slice).unwrap_or_else(|| {
            let table = table(slice.source()).unwrap_or(0) as u64 + 1;
            // Arrows are fewer than 2^32, so these are above them.
            self.base + (table << 36) + u64::from(slice.index)
        })
    }
}
