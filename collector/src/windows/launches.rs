//! When detected steps were launched.
//!
//! Calls come in other buffers than kernels, some of them later: a flush asks for all, but CUPTI's own thread brings them, which on a
//! busy machine may be held up between two of them for longer than from one flush to the next. So a step waits for its call for some
//! seconds. Its kernel's start would be too late, since a host that runs ahead has launched most of the step by then, and the steps
//! behind it can't begin before it.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use gputrace_trace::TimeNs;

use super::detector::Seen;

/// Calls that are remembered.
const MOST_CALLS: usize = 1 << 16;

/// A call that has not come for so long was dropped.
const PATIENCE: Duration = Duration::from_secs(5);

/// Calls, and the steps that wait for theirs.
#[derive(Default)]
pub(super) struct Launches {
    /// Correlation id and start.
    calls: VecDeque<(u32, i64)>,
    /// What begins a step, and since when it waits.
    waiting: VecDeque<(Seen, Instant)>,
}

impl Launches {
    pub(super) fn add_call(&mut self, correlation: u32, start: i64) {
        self.calls.push_back((correlation, start));
    }

    /// When the steps began that these kernels and those before them begin, in their order, as far as their calls have come.
    /// Where one has not for [`PATIENCE`] (it was dropped, or forgotten), or with `all`, it is when the kernel began.
    pub(super) fn place(&mut self, begins: Vec<Seen>, all: bool, at: Instant) -> Vec<TimeNs> {
        let excess = self.calls.len().saturating_sub(MOST_CALLS);
        self.calls.drain(..excess);
        self.waiting.extend(begins.into_iter().map(|kernel| (kernel, at)));
        if self.waiting.is_empty() {
            return Vec::new();
        }
        // A runtime call and the driver call inside it share the id: the outer one began first.
        self.calls.make_contiguous().sort_unstable();
        let mut placed = Vec::new();
        while let Some((kernel, since)) = self.waiting.front() {
            let place = self
                .calls
                .partition_point(|(correlation, _)| *correlation < kernel.correlation);
            match self.calls.get(place) {
                Some((correlation, start)) if *correlation == kernel.correlation => {
                    placed.push(TimeNs(*start));
                }
                _ if all || at.duration_since(*since) >= PATIENCE => placed.push(kernel.start),
                _ => break,
            }
            self.waiting.pop_front();
        }
        placed
    }

    /// Up to which correlation id it is known what steps calls belong to, where all kernels up to `horizon` have come; and up to which
    /// moment: when the last of these calls began.
    pub(super) fn known_until(&self, horizon: u32) -> (u32, i64) {
        let waiting = self.waiting.front().map(|(kernel, _)| kernel.correlation);
        let until = waiting.map_or(horizon, |first| horizon.min(first.saturating_sub(1)));
        let known = self.calls.iter().filter(|(correlation, _)| *correlation <= until);
        (until, known.map(|(_, start)| *start).max().unwrap_or(i64::MIN))
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
        let begun = Instant::now();
        let later = begun + PATIENCE / 2;
        launches.add_call(3, 90);
        assert_eq!(
            launches.place(vec![begins(3, 400), begins(7, 500), begins(9, 600)], false, begun),
            [TimeNs(90)]
        );
        assert_eq!(launches.known_until(12), (6, 90));
        // However many flushes pass.
        assert_eq!(launches.place(Vec::new(), false, begun), []);
        // Those behind it keep their order.
        launches.add_call(9, 130);
        launches.add_call(7, 110);
        assert_eq!(
            launches.place(Vec::new(), false, later),
            [TimeNs(110), TimeNs(130)]
        );
        assert_eq!(launches.known_until(12), (12, 130));
        // It waits for so long, and those behind it no longer than themselves.
        assert_eq!(launches.place(vec![begins(15, 700)], false, begun), []);
        assert_eq!(launches.place(vec![begins(18, 800)], false, later), []);
        assert_eq!(launches.place(Vec::new(), false, begun + PATIENCE), [TimeNs(700)]);
        assert_eq!(launches.known_until(20), (17, 130));
        assert_eq!(launches.place(Vec::new(), false, later + PATIENCE), [TimeNs(800)]);
        // One that never comes.
        assert_eq!(launches.place(vec![begins(20, 900)], true, later), [TimeNs(900)]);
    }
}
