//! When the time of a step changed for good.

use std::collections::VecDeque;

use super::step::{Step, median};

/// Steps that a level is known by.
const LEVEL_STEPS: usize = 64;
/// Steps that have to agree on a new one.
const NEW_STEPS: usize = 8;
/// It differs by this share at least.
const LEAST_SHARE: f64 = 0.05;
/// And by so many times the usual deviation.
const DEVIATIONS: f64 = 3.0;
/// Changes that are remembered.
const MOST_CHANGES: usize = 64;
/// First steps, which warm up.
const WARM_UP: u64 = 3;

/// A change for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// The first step that was different.
    pub step: u64,
    /// When it began, nanoseconds since 1970.
    pub time_ns: i64,
    /// The median before.
    pub before_ns: i64,
    /// The median of the first ones behind it.
    pub after_ns: i64,
}

/// Follows the level that steps are on.
#[derive(Clone, Debug, Default)]
pub struct Levels {
    /// Steps of the level.
    steps: VecDeque<i64>,
    /// The last ones: number, beginning, time.
    last: VecDeque<(u64, i64, i64)>,
    seen: u64,
    changes: VecDeque<Change>,
}

impl Levels {
    /// Takes a step.
    pub fn add(&mut self, step: &Step) {
        self.seen += 1;
        if self.seen <= WARM_UP {
            return;
        }
        self.last.push_back((step.number, step.start_ns, step.step_ns));
        if self.last.len() <= NEW_STEPS {
            return;
        }
        if let Some((.., oldest)) = self.last.pop_front() {
            if self.steps.len() == LEVEL_STEPS {
                self.steps.pop_front();
            }
            self.steps.push_back(oldest);
        }
        if self.steps.len() < NEW_STEPS {
            return;
        }
        let (level, deviation) = centre(&self.steps);
        let least = (level as f64 * LEAST_SHARE).max(deviation as f64 * 1.4826 * DEVIATIONS);
        let is_off = |ns: i64, above: bool| {
            let by = (ns - level) as f64;
            if above { by > least } else { -by > least }
        };
        for above in [true, false] {
            if !self.last.iter().all(|(.., ns)| is_off(*ns, above)) {
                continue;
            }
            let mut new: Vec<i64> = self.last.iter().map(|(.., ns)| *ns).collect();
            let (number, time_ns, _) = self.last[0];
            if self.changes.len() == MOST_CHANGES {
                self.changes.pop_front();
            }
            self.changes.push_back(Change {
                step: number,
                time_ns,
                before_ns: level,
                after_ns: median(&mut new),
            });
            self.steps = new.into();
            self.last.clear();
            return;
        }
    }

    /// The changes, the oldest first.
    pub fn changes(&self) -> impl DoubleEndedIterator<Item = &Change> {
        self.changes.iter()
    }
}

/// The median, and the median distance from it.
#[must_use]
pub fn centre(values: &VecDeque<i64>) -> (i64, i64) {
    let mut all: Vec<i64> = values.iter().copied().collect();
    let middle = median(&mut all);
    for value in &mut all {
        *value = value.saturating_sub(middle).saturating_abs();
    }
    (middle, median(&mut all))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn levels(times: impl Iterator<Item = i64>) -> Vec<Change> {
        let mut levels = Levels::default();
        for (number, step_ns) in times.enumerate() {
            levels.add(&Step {
                number: number as u64,
                start_ns: number as i64,
                step_ns,
                ..Step::default()
            });
        }
        levels.changes.into()
    }

    /// Noise of plus and minus 3 %, always the same.
    fn noise(step: i64) -> i64 {
        (step * 7919 % 61) - 30
    }

    #[test]
    fn a_change_is_found_where_it_was_and_noise_is_none() {
        let found = levels((0..300).map(|step| if step < 100 { 1000 } else { 1200 } + noise(step)));
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].step, 100);
        assert!((found[0].before_ns - 1000).abs() < 30 && (found[0].after_ns - 1200).abs() < 30);
        assert_eq!(levels((0..5000).map(|step| 1000 + noise(step))), []);
        // Single slow steps are no change.
        assert_eq!(
            levels((0..5000).map(|step| if step % 500 == 0 { 9000 } else { 1000 + noise(step) })),
            []
        );
    }

    #[test]
    fn it_may_become_faster_again() {
        let found =
            levels((0..300).map(|step| if (100..200).contains(&step) { 1500 } else { 1000 } + noise(step)));
        let steps: Vec<u64> = found.iter().map(|change| change.step).collect();
        assert_eq!(steps, [100, 200]);
    }
}
