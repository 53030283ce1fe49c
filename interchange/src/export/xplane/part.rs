//! What of a process one file has.

use std::cell::OnceCell;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::export::layout::{Layout, Slice, Source};
use crate::export::tensorboard::host_steps::HostStep;
use crate::export::tensorboard::spans::Spans;

/// What of a process one file has.
pub(super) struct Part<'p> {
    pub(super) layout: &'p Layout<'p>,
    pub(super) spans: &'p Spans,
    pub(super) span: usize,
    pub(super) steps: Vec<HostStep>,
    pub(super) hosts: &'p [Layout<'p>],
    pub(super) base_ns: i64,
    /// Where the numbers of this process's steps and calls begin.
    pub(super) step_ids: u64,
    /// From the first to the last event, once it was looked for.
    pub(super) extent: OnceCell<(i64, i64)>,
}

impl Part<'_> {
    pub(super) fn has(&self, slice: &Slice) -> bool {
        self.spans.span_of(self.layout, slice) == self.span
    }

    /// From the first event to the last.
    pub(super) fn extent(&self) -> (i64, i64) {
        *self.extent.get_or_init(|| {
            let slices = self.layout.rows.iter().flat_map(|row| &row.slices);
            let slices = slices.filter(|slice| slice.source() != Source::Window && self.has(slice));
            let range = slices.fold(None, |range: Option<(i64, i64)>, slice| {
                let (start, end) = range.unwrap_or((slice.start_ns, slice.end_ns));
                Some((start.min(slice.start_ns), end.max(slice.end_ns)))
            });
            range.unwrap_or((self.base_ns, self.base_ns))
        })
    }

    pub(super) fn has_moment(&self, time_ns: i64) -> bool {
        self.spans.place(self.layout.number, time_ns) == self.span
    }

    /// The number that joins an operation to its call: the call's row, or a number of its own where the call is not known.
    pub(super) fn launch_id(&self, slice: &Slice) -> (u64, bool) {
        match self.layout.launch(self.layout.correlation(slice)) {
            Some(launch) => (self.call_id(launch.call), true),
            None => (self.own_id(slice), false),
        }
    }

    pub(super) fn call_id(&self, call: u32) -> u64 {
        self.step_ids + 1 + u64::from(call)
    }

    pub(super) fn own_id(&self, slice: &Slice) -> u64 {
        self.step_ids + ((slice.source() as u64 + 1) << 32) + 1 + u64::from(slice.index)
    }

    pub(super) fn step_id(&self, place: usize) -> u64 {
        self.step_ids + 1 + place as u64
    }
}

/// Indices of a row's slices by lane, as far as they are in the part.
pub(super) fn by_lane(part: &Part<'_>, row: usize) -> Vec<Vec<u32>> {
    let row = &part.layout.rows[row];
    let mut lanes = vec![Vec::new(); row.lanes];
    for (index, slice) in (0u32..).zip(&row.slices) {
        if part.has(slice) {
            lanes[slice.lane()].push(index);
        }
    }
    lanes
}

/// Numbers for the lines of a plane: the wanted ones as far as they are free.
#[derive(Default)]
pub(super) struct LineNumbers {
    taken: FxHashSet<u64>,
    /// By what was wanted: all up to there are taken.
    next: FxHashMap<u64, u64>,
}

impl LineNumbers {
    pub(super) fn take(&mut self, wanted: u64) -> u64 {
        const STEP: u64 = 10_000_000;
        /// Beyond are XProf's own lines, and 2^32 - 1 is a counter for it.
        const MOST: u64 = 2_000_000_000;
        let next = self.next.entry(wanted).or_insert(wanted % MOST);
        while !self.taken.insert(*next) {
            *next += STEP;
        }
        *next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_are_taken_are_followed_by_the_next_that_is_not() {
        let mut numbers = LineNumbers::default();
        let taken = [7, 7, 10_000_007, 7, 8, 2_000_000_007, 7].map(|wanted| numbers.take(wanted));
        let millions = [7, 10_000_007, 20_000_007, 30_000_007, 8, 40_000_007, 50_000_007];
        assert_eq!(taken, millions);
    }
}
