//! When detected steps were launched.
//!
//! Calls come in other buffers than kernels, some of them a flush later: a step whose call is still to come waits for that flush. Its
//! kernel's start would be too late, since a host that runs ahead has launched most of the step by then.

use std::collections::VecDeque;

use gputrace_trace::TimeNs;

use super::detector::Seen;

/// Calls that are remembered.
const MOST_CALLS: usize = 1 << 16;

/// Calls, and the steps that wait for theirs.
#[derive(Default)]
pub(super) struct Launches {
    /// Correlation id and start.
    calls: VecDeque<(u32, i64)>,
    waiting: VecDeque<Seen>,
}

impl Launches {
    pub(super) fn add_call(&mut self, correlation: u32, start: i64) {
        self.calls.push_back((correlation, start));
    }

    /// When the steps began that these kernels and those before them begin, in their order, as far as their calls have come.
    /// Where one has not by the next time (it was dropped, or forgotten), or with `all`, it is when the kernel began.
    pub(super) fn place(&mut self, begins: Vec<Seen>, all: bool) -> Vec<TimeNs> {
        let excess = self.calls.len().saturating_sub(MOST_CALLS);
        self.calls.drain(..excess);
        let mut waited = self.waiting.len();
        self.waiting.extend(begins);
        if self.waiting.is_empty() {
            return Vec::new();
        }
        // A runtime call and the driver call inside it share the id: the outer one began first.
        self.calls.make_contiguous().sort_unstable();
        let mut placed = Vec::new();
        while let Some(kernel) = self.waiting.front() {
            let place = self
                .calls
                .partition_point(|(correlation, _)| *correlation < kernel.correlation);
            match self.calls.get(place) {
                Some((correlation, start)) if *correlation == kernel.correlation => {
                    placed.push(TimeNs(*start));
                }
                _ if all || waited > 0 => placed.push(kernel.start),
                _ => break,
            }
            waited = waited.saturating_sub(1);
            self.waiting.pop_front();
        }
        placed
    }

    /// Up to which correlation id it is known what steps calls belong to, where all kernels up to `horizon` have come.
    pub(super) fn known_until(&self, horizon: u32) -> u32 {
        let waiting = self.waiting.front().map(|kernel| kernel.correlation);
        waiting.map_or(horizon, |first| horizon.min(first.saturating_sub(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begins(correlation: u32, start: i64) -> Seen {
        Seen {
            stream: 7,
            name: 1,
            start: TimeNs(start),
            end: TimeNs(start + 10),
            correlation,
        }
    }

    #[test]
    fn a_step_waits_for_its_call() {
        let mut launches = Launches::default();
        launches.add_call(3, 90);
        assert_eq!(
            launches.place(vec![begins(3, 400), begins(7, 500), begins(9, 600)], false),
            [TimeNs(90)]
        );
        assert_eq!(launches.known_until(12), 6);
        // Those behind it keep their order.
        launches.add_call(9, 130);
        launches.add_call(7, 110);
        assert_eq!(launches.place(Vec::new(), false), [TimeNs(110), TimeNs(130)]);
        assert_eq!(launches.known_until(12), 12);
        // It waits once, and those behind it no longer than themselves.
        assert_eq!(launches.place(vec![begins(15, 700)], false), []);
        assert_eq!(launches.place(vec![begins(18, 800)], false), [TimeNs(700)]);
        assert_eq!(launches.known_until(20), 17);
        assert_eq!(launches.place(Vec::new(), false), [TimeNs(800)]);
        // One that never comes.
        assert_eq!(launches.place(vec![begins(20, 900)], true), [TimeNs(900)]);
    }
}
