//! The calls that launched operations, found by correlation id.

use gputrace_trace::tables::ApiCalls;

/// A call's time on the host.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    pub(crate) start: i64,
    pub(crate) end: i64,
    pub(crate) thread: u32,
    /// Row in the table of calls.
    pub(crate) row: u32,
}

/// The calls of a process by correlation id. Of several with one id it is the outermost: a runtime call encloses the driver
/// calls that it makes.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    /// Sorted by id; one entry each.
    by_correlation: Vec<(u32, u32)>,
}

impl Calls {
    pub(crate) fn new(calls: &ApiCalls) -> Self {
        // CUPTI counts from 1: 0 joins nothing.
        let mut by_correlation: Vec<(u32, u32)> = (0u32..)
            .zip(&calls.correlation)
            .filter(|(_, correlation)| **correlation != 0)
            .map(|(row, correlation)| (*correlation, row))
            .collect();
        let start = |row: u32| calls.start_ns[row as usize];
        let order = |a: &(u32, u32), b: &(u32, u32)| {
            a.0.cmp(&b.0)
                .then_with(|| (start(a.1), a.1).cmp(&(start(b.1), b.1)))
        };
        // Calls come nearly in the order of their ids: one pass tells, and the stable sort likes runs.
        by_correlation.sort_by(order);
        by_correlation.dedup_by_key(|(correlation, _)| *correlation);
        by_correlation.shrink_to_fit();
        Self { by_correlation }
    }

    /// The call that launched the operations of this id.
    pub(crate) fn get(&self, correlation: u32, calls: &ApiCalls) -> Option<Call> {
        if correlation == 0 {
            return None;
        }
        let found = self
            .by_correlation
            .binary_search_by_key(&correlation, |(id, _)| *id)
            .ok()?;
        let row = self.by_correlation[found].1;
        let start = calls.start_ns[row as usize].0;
        Some(Call {
            start,
            end: start.saturating_add(calls.duration_ns[row as usize].0),
            thread: calls.thread[row as usize],
            row,
        })
    }
}
