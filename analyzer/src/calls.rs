//! The calls that launched operations, found by correlation id.

use std::cmp::Reverse;

use gputrace_trace::tables::ApiCalls;

use crate::intervals::is_possible;

/// A call's time on the host.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    pub(crate) start: i64,
    pub(crate) end: i64,
    pub(crate) thread: u32,
    /// Row in the table of calls.
    pub(crate) row: u32,
}

impl Call {
    /// The call of a row.
    #[inline]
    pub(crate) fn of(row: u32, calls: &ApiCalls) -> Self {
        let index = row as usize;
        let start = calls.start_ns[index].0;
        Self {
            start,
            end: start.saturating_add(calls.duration_ns[index].0),
            thread: calls.thread[index],
            row,
        }
    }
}

/// The calls of a process by correlation id. Of several with one id it is the outermost: a runtime call encloses the driver
/// calls that it makes.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    /// Ids and rows, sorted by id; one entry each.
    by_correlation: Vec<(u32, u32)>,
    /// Where the last one was found: operations run nearly in the order in which they were launched.
    last: usize,
}

impl Calls {
    pub(crate) fn new(calls: &ApiCalls) -> Self {
        // CUPTI counts from 1: 0 joins nothing.
        let mut by_correlation: Vec<(u32, u32)> = (0u32..)
            .zip(&calls.correlation)
            .filter(|(_, correlation)| **correlation != 0)
            .filter(|(row, _)| {
                let call = Call::of(*row, calls);
                is_possible(call.start, call.end)
            })
            .map(|(row, correlation)| (*correlation, row))
            .collect();
        // Calls come nearly in the order of their ids, and the stable sort likes runs.
        let key = |row: u32| {
            let row = row as usize;
            // Of two that begin together the longer is the outer one, and else the runtime's (5) and not the driver's (4).
            (
                calls.start_ns[row],
                Reverse(calls.duration_ns[row]),
                Reverse(calls.kind[row]),
                calls.thread[row],
            )
        };
        by_correlation.sort_by(|a, b| a.0.cmp(&b.0).then_with(|| key(a.1).cmp(&key(b.1))));
        by_correlation.dedup_by_key(|(correlation, _)| *correlation);
        Self {
            by_correlation,
            last: 0,
        }
    }

    /// The row of the call that launched the operations of this id.
    #[inline]
    pub(crate) fn row(&mut self, correlation: u32) -> Option<u32> {
        if correlation == 0 {
            return None;
        }
        let near = self
            .by_correlation
            .get(self.last..self.by_correlation.len().min(self.last + 8));
        let found = near
            .unwrap_or_default()
            .iter()
            .position(|(id, _)| *id == correlation);
        let found = match found {
            Some(steps) => self.last + steps,
            None => self
                .by_correlation
                .binary_search_by_key(&correlation, |(id, _)| *id)
                .ok()?,
        };
        self.last = found;
        Some(self.by_correlation[found].1)
    }
}
