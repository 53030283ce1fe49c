//! Steps of a day, a sum for each minute.

use std::collections::{BTreeMap, VecDeque};

use super::step::Step;

/// Minutes that are kept.
const MOST_MINUTES: usize = 24 * 60;
/// Sums of single ranks that are kept, over all minutes: older minutes lose theirs first.
const MOST_RANK_SUMS: usize = 1 << 16;
/// A minute in nanoseconds.
const MINUTE_NS: i64 = 60_000_000_000;

/// Sums of one rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RankSum {
    /// Its steps.
    pub steps: u64,
    /// Their time.
    pub duration_ns: i64,
    /// Communication, where it is known.
    pub communication_ns: i64,
    /// How late it was, where that is known and above 0.
    pub late_ns: i64,
}

/// The steps that ended in one minute.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Minute {
    /// When it began, nanoseconds since 1970.
    pub start_ns: i64,
    /// How many.
    pub steps: u64,
    /// Their time, by the slowest rank of each.
    pub sum_ns: i64,
    /// The shortest.
    pub least_ns: i64,
    /// The longest.
    pub most_ns: i64,
    /// By rank; empty where there is no room for it any more.
    pub ranks: BTreeMap<u32, RankSum>,
}

/// A day of them.
#[derive(Clone, Debug, Default)]
pub struct Minutes {
    all: VecDeque<Minute>,
    rank_sums: usize,
}

impl Minutes {
    /// Counts a step.
    pub fn add(&mut self, step: &Step) {
        let start_ns = step.end_ns.div_euclid(MINUTE_NS).saturating_mul(MINUTE_NS);
        // A step that comes late, or by a clock that was set back, counts with the last.
        if self.all.back().is_none_or(|last| last.start_ns < start_ns) {
            if self.all.len() == MOST_MINUTES
                && let Some(oldest) = self.all.pop_front()
            {
                self.rank_sums -= oldest.ranks.len();
            }
            self.all.push_back(Minute {
                start_ns,
                least_ns: i64::MAX,
                ..Minute::default()
            });
        }
        let Some(minute) = self.all.back_mut() else { return };
        minute.steps += 1;
        minute.sum_ns = minute.sum_ns.saturating_add(step.step_ns);
        minute.least_ns = minute.least_ns.min(step.step_ns);
        minute.most_ns = minute.most_ns.max(step.step_ns);
        let before = minute.ranks.len();
        for rank in &step.ranks {
            let sum = minute.ranks.entry(rank.rank).or_default();
            sum.steps += 1;
            sum.duration_ns = sum.duration_ns.saturating_add(rank.report.duration_ns);
            let communication_ns = rank.report.communication_ns.unwrap_or(0);
            sum.communication_ns = sum.communication_ns.saturating_add(communication_ns);
            sum.late_ns = sum.late_ns.saturating_add(rank.late_ns.unwrap_or(0).max(0));
        }
        self.rank_sums += minute.ranks.len() - before;
        let mut oldest = self.all.iter_mut();
        while self.rank_sums > MOST_RANK_SUMS
            && let Some(minute) = oldest.next()
        {
            self.rank_sums -= minute.ranks.len();
            minute.ranks.clear();
        }
    }

    /// All of them, the oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Minute> {
        self.all.iter()
    }
}

#[cfg(test)]
mod tests {
    use gputrace_trace::daemon::StepReport;

    use super::*;

    #[test]
    fn a_day_stays_and_ranks_give_way() {
        let mut minutes = Minutes::default();
        let ranks = 100;
        for minute in 0..2000i64 {
            let reports = (0..ranks).map(|rank| {
                let report = StepReport {
                    start_ns: minute * MINUTE_NS,
                    duration_ns: 1000,
                    ..StepReport::default()
                };
                (rank, report)
            });
            minutes.add(&Step::of(0, reports.collect(), 0));
        }
        let all: Vec<&Minute> = minutes.iter().collect();
        assert_eq!(all.len(), MOST_MINUTES);
        assert!(
            all.iter()
                .all(|minute| minute.steps == 1 && minute.sum_ns == 1000)
        );
        let sums: usize = all.iter().map(|minute| minute.ranks.len()).sum();
        assert_eq!(sums, minutes.rank_sums);
        assert!(sums <= MOST_RANK_SUMS + ranks as usize);
        assert!(all[0].ranks.is_empty() && all[MOST_MINUTES - 1].ranks.len() == 100);
    }
}
