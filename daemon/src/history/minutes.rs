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
