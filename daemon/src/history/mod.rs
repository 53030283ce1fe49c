//! A job's steps: matched over its ranks by their numbers, the last ones exactly, a day of them as sums.

pub mod level;
pub mod minutes;
pub mod step;

use std::collections::{BTreeMap, VecDeque};

use level::{Change, Levels};
use minutes::Minutes;
use step::{RankStep, Step, median};

/// Steps that are kept exactly, at the most.
const MOST_STEPS: usize = 512;
/// Steps of single ranks that are kept exactly.
const MOST_RANK_STEPS: usize = 1 << 14;
/// Steps that wait for some of the ranks.
const MOST_OPEN: usize = 1024;
/// Steps of single ranks that wait.
const MOST_OPEN_RANK_STEPS: usize = 1 << 15;
/// So long a step waits for ranks that say nothing, nanoseconds; or for two steps, where that is longer.
const PATIENCE_NS: i64 = 1_800_000_000;
/// But no longer than this.
const MOST_PATIENCE_NS: i64 = 60_000_000_000;
/// Ranks of a job that are told apart.
const MOST_RANKS: usize = 4096;

/// A step that waits: when it was first heard of, and what was said.
#[derive(Debug)]
struct Open {
    heard_ns: i64,
    ranks: BTreeMap<u32, RankStep>,
}

/// Which round of numbers a rank is in, and its last number.
#[derive(Clone, Copy, Debug, Default)]
struct Last {
    round: u64,
    number: u64,
}

/// A job's steps.
#[derive(Debug, Default)]
pub struct History {
    open: BTreeMap<(u64, u64), Open>,
    open_ranks: usize,
    /// The ranks that steps wait for; without a number those that have joined and told of no step yet.
    last: BTreeMap<u32, Option<Last>>,
    /// The round and number of the last complete step.
    done: Option<(u64, u64)>,
    late_reports: u64,
    missing: u64,
    recent: VecDeque<Step>,
    recent_ranks: usize,
    minutes: Minutes,
    levels: Levels,
    steps: u64,
}

impl History {
    /// One that goes on behind so many steps.
    #[must_use]
    pub fn after(steps: u64) -> Self {
        Self {
            steps,
            ..Self::default()
        }
    }

    /// A rank has joined: steps wait for it, until one has waited in vain.
    pub fn expect(&mut self, rank: u32) {
        if self.last.len() < MOST_RANKS {
            self.last.entry(rank).or_insert(None);
        }
    }

    /// Takes what a rank said of a step, here or on another node. Numbers that begin anew, as those of a second training in one process do, are a new round.
    pub fn add(&mut self, said: impl Into<RankStep>, now_ns: i64) {
        let said = said.into();
        let (rank, number) = (said.rank, said.report.number);
        if self.last.len() >= MOST_RANKS && !self.last.contains_key(&rank) {
            return;
        }
        let round = self.done.map_or(0, |(round, _)| round);
        let last = self.last.entry(rank).or_insert(None);
        let last = last.get_or_insert(Last { round, number });
        if number < last.number {
            last.round += 1;
        }
        // Where one rank began anew alone, the others go on in its round: what is before the last complete step never completes.
        last.round = last.round.max(round);
        last.number = number;
        let at = (last.round, number);
        if self.done.is_some_and(|done| at <= done) {
            self.late_reports += 1;
            return;
        }
        let open = self.open.entry(at).or_insert(Open {
            heard_ns: now_ns,
            ranks: BTreeMap::new(),
        });
        self.open_ranks += usize::from(open.ranks.insert(rank, said).is_none());
    }

    /// A rank is gone: steps don't wait for it.
    pub fn forget(&mut self, rank: u32) {
        self.last.remove(&rank);
    }

    /// The steps that all ranks have told of, or that have waited long enough, in their order. They are counted from here on.
    pub fn complete(&mut self, now_ns: i64) -> Vec<Step> {
        let mut complete = Vec::new();
        let patience_ns = self
            .recent
            .back()
            .map_or(0, |step| step.step_ns.saturating_mul(2))
            .clamp(PATIENCE_NS, MOST_PATIENCE_NS);
        loop {
            let is_full = self.is_full();
            let Some(first) = self.open.first_entry() else {
                break;
            };
            let at = *first.key();
            let told = first.get().ranks.len();
            // Those that are not there yet, and have not passed it: a rank that joined later begins behind it.
            let is_behind = |(rank, last): &(&u32, &Option<Last>)| {
                last.is_none_or(|last| (last.round, last.number) < at)
                    && !first.get().ranks.contains_key(rank)
            };
            let is_due = now_ns.saturating_sub(first.get().heard_ns) >= patience_ns;
            if !is_due && !is_full && self.last.iter().any(|of| is_behind(&of)) {
                break;
            }
            if is_due {
                self.last.retain(|_, last| last.is_some());
            }
            let open = first.remove();
            self.open_ranks -= told;
            let missing = u32::try_from(self.last.len().saturating_sub(told)).unwrap_or(u32::MAX);
            self.done = Some(at);
            let step = Step::of(at.1, open.ranks.into_values().collect(), missing);
            self.keep(&step);
            complete.push(step);
        }
        complete
    }

    fn is_full(&self) -> bool {
        self.open.len() > MOST_OPEN || self.open_ranks > MOST_OPEN_RANK_STEPS
    }

    fn keep(&mut self, step: &Step) {
        self.steps += 1;
        self.missing += u64::from(step.missing);
        self.minutes.add(step);
        self.levels.add(step);
        self.recent_ranks += step.ranks.len();
        self.recent.push_back(step.clone());
        while self.recent.len() > MOST_STEPS || self.recent_ranks > MOST_RANK_STEPS && self.recent.len() > 1 {
            let oldest = self.recent.pop_front();
            self.recent_ranks -= oldest.map_or(0, |step| step.ranks.len());
        }
    }

    /// Reports that came when their step was summed up already.
    #[must_use]
    pub fn late_reports(&self) -> u64 {
        self.late_reports
    }

    /// Reports that had not come when their step was summed up: a sum over steps of ranks.
    #[must_use]
    pub fn missing(&self) -> u64 {
        self.missing
    }

    /// How many there were.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// The last ones, the oldest first.
    pub fn recent(&self) -> impl DoubleEndedIterator<Item = &Step> + ExactSizeIterator {
        self.recent.iter()
    }

    /// A day of them, by minutes.
    #[must_use]
    pub fn minutes(&self) -> &Minutes {
        &self.minutes
    }

    /// What changed for good, the oldest first.
    pub fn changes(&self) -> impl DoubleEndedIterator<Item = &Change> {
        self.levels.changes()
    }

    /// The median of the last 16 steps.
    #[must_use]
    pub fn step_ns(&self) -> Option<i64> {
        let mut last: Vec<i64> = self
            .recent
            .iter()
            .rev()
            .take(16)
            .map(|step| step.step_ns)
            .collect();
        (!last.is_empty()).then(|| median(&mut last))
    }

    /// The median before the last change for good; null where nothing has changed.
    #[must_use]
    pub fn step_before_ns(&self) -> Option<i64> {
        self.levels.changes().next_back().map(|change| change.before_ns)
    }
}

#[cfg(test)]
mod tests {
    use gputrace_trace::daemon::StepReport;

    use super::*;

    fn report(number: u64) -> StepReport {
        StepReport {
            number,
            start_ns: number as i64 * 100,
            duration_ns: 100,
            ..StepReport::default()
        }
    }

    #[test]
    fn a_step_waits_for_all_its_ranks() {
        let mut history = History::default();
        for rank in 0..3 {
            history.expect(rank);
        }
        for rank in 0..3 {
            assert_eq!(history.complete(0), []);
            history.add((rank, report(5)), 0);
        }
        assert_eq!(history.complete(0).len(), 1);
        history.add((0, report(6)), 1);
        history.add((1, report(6)), 1);
        history.add((1, report(7)), 1);
        assert_eq!(history.complete(2), []);
        history.add((2, report(6)), 3);
        let complete = history.complete(3);
        assert_eq!(complete.len(), 1);
        assert_eq!(
            (complete[0].number, complete[0].ranks.len(), complete[0].missing),
            (6, 3, 0)
        );
        // Rank 1 is ahead; the others hang, and it is not waited for them for ever.
        assert_eq!(history.complete(PATIENCE_NS), []);
        let complete = history.complete(PATIENCE_NS + 1);
        assert_eq!((complete[0].number, complete[0].missing), (7, 2));
        assert_eq!(history.steps(), 3);
        // What comes when it is too late is no step of its own.
        history.add((0, report(7)), PATIENCE_NS + 2);
        assert_eq!(
            (history.complete(PATIENCE_NS + 2).len(), history.late_reports()),
            (0, 1)
        );
    }

    #[test]
    fn one_that_left_is_not_waited_for_and_numbers_may_begin_anew() {
        let mut history = History::default();
        for number in 0..4 {
            history.add((0, report(number)), 0);
            history.add((1, report(number)), 0);
        }
        assert_eq!(history.complete(0).len(), 4);
        history.forget(1);
        history.add((0, report(4)), 0);
        assert_eq!(history.complete(0).len(), 1);
        history.add((0, report(0)), 0);
        history.add((0, report(1)), 0);
        let numbers: Vec<u64> = history.complete(0).iter().map(|step| step.number).collect();
        assert_eq!(numbers, [0, 1]);
    }

    #[test]
    fn one_rank_that_numbers_anew_takes_the_others_along() {
        let mut history = History::default();
        for number in 0..=5 {
            history.add((0, report(number)), 0);
            history.add((1, report(number)), 0);
        }
        assert_eq!(history.complete(0).len(), 6);
        for number in 0..=2 {
            history.add((0, report(number)), 1);
        }
        assert_eq!(history.complete(1), []);
        assert_eq!(history.complete(1 + PATIENCE_NS).len(), 3);
        history.add((0, report(6)), 2 + PATIENCE_NS);
        history.add((1, report(6)), 2 + PATIENCE_NS);
        let complete = history.complete(2 + PATIENCE_NS);
        assert_eq!(complete.len(), 1);
        assert_eq!((complete[0].number, complete[0].ranks.len()), (6, 2));
        assert_eq!(history.late_reports(), 0);
    }

    #[test]
    fn memory_is_bounded_whatever_is_said() {
        let mut history = History::default();
        // A rank that never says anything again, and another that says much.
        history.add((7, report(0)), 0);
        for number in 0..20_000 {
            history.add((0, report(number)), 0);
            history.complete(0);
        }
        assert!(history.open.len() <= MOST_OPEN + 1);
        assert!(history.recent.len() <= MOST_STEPS);
        for rank in 0..10_000 {
            history.add((rank, report(30_000)), 0);
        }
        assert!(history.last.len() <= MOST_RANKS);
        let sum: usize = history.open.values().map(|open| open.ranks.len()).sum();
        assert_eq!(sum, history.open_ranks);
    }
}
