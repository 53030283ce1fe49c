//! Steps of a day, a sum for each minute.

use std::collections::VecDeque;

use super::step::Step;

/// Minutes that are kept.
const MOST_MINUTES: usize = 24 * 60;
/// A minute in nanoseconds.
const MINUTE_NS: i64 = 60_000_000_000;

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
    /// Exposed communication of the median rank, where it is known of all: in so many of the steps, and in all of these.
    pub exposed: (u64, i64),
    /// How late the latest rank was, where that is known: in so many of the steps, and in all of these.
    pub late: (u64, i64),
    /// The rank that was the latest in most of them, if there is one, and by how many it is ahead of the others.
    pub latest: Option<(u32, u64)>,
}

impl Minute {
    /// Counts the latest rank of a step: whoever is it in more than half of them is the one that is left.
    fn was_latest(&mut self, rank: u32) {
        self.latest = match self.latest {
            Some((of, ahead)) if of == rank => Some((of, ahead + 1)),
            Some((of, ahead)) if ahead > 1 => Some((of, ahead - 1)),
            Some(_) => None,
            None => Some((rank, 1)),
        };
    }
}

/// A day of them.
#[derive(Clone, Debug, Default)]
pub struct Minutes {
    all: VecDeque<Minute>,
}

impl Minutes {
    /// Counts a step.
    pub fn add(&mut self, step: &Step) {
        let start_ns = step.end_ns.div_euclid(MINUTE_NS).saturating_mul(MINUTE_NS);
        // A step that comes late, or by a clock that was set back, counts with the last.
        if self.all.back().is_none_or(|last| last.start_ns < start_ns) {
            if self.all.len() == MOST_MINUTES {
                self.all.pop_front();
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
        let add = |sum: &mut (u64, i64), ns: i64| *sum = (sum.0 + 1, sum.1.saturating_add(ns));
        if let Some(exposed_ns) = step.exposed_ns() {
            add(&mut minute.exposed, exposed_ns);
        }
        if let Some((rank, late_ns)) = step.latest() {
            add(&mut minute.late, late_ns);
            minute.was_latest(rank);
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
    fn a_minute_has_its_exposed_communication_and_its_latest_rank() {
        let mut minutes = Minutes::default();
        for number in 0..5 {
            // Rank 1 waits the least but for one step, whose exposed communication is not known.
            let latest = if number == 2 { 0 } else { 1 };
            let report = |rank| StepReport {
                duration_ns: 100,
                communication_ns: Some(if rank == latest { 10 } else { 40 }),
                exposed_ns: (number != 2).then_some(20),
                ..StepReport::default()
            };
            minutes.add(&Step::of(number, vec![(0, report(0)), (1, report(1))], 0));
        }
        let minute = minutes.iter().next().expect("a minute");
        assert_eq!((minute.exposed, minute.late), ((4, 80), (5, 150)));
        assert_eq!(minute.latest.map(|(rank, _)| rank), Some(1));
    }

    #[test]
    fn a_day_stays() {
        let mut minutes = Minutes::default();
        for minute in 0..2000i64 {
            let report = StepReport {
                start_ns: minute * MINUTE_NS,
                duration_ns: 1000,
                ..StepReport::default()
            };
            minutes.add(&Step::of(0, vec![(0, report)], 0));
        }
        let all: Vec<&Minute> = minutes.iter().collect();
        assert_eq!(all.len(), MOST_MINUTES);
        assert!(
            all.iter()
                .all(|minute| minute.steps == 1 && minute.sum_ns == 1000)
        );
        assert_eq!(all[0].start_ns, (2000 - MOST_MINUTES as i64) * MINUTE_NS);
    }
}
