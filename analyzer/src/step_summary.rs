//! What the steps of a device, and those of the job, come to: means without warm-up, and which steps stand apart.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::statistics::{Distribution, nearest_rank};
use crate::steps::{StepAnalysis, step_number};

/// All steps of one device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepSummary {
    /// How many, warm-up among them.
    pub count: usize,
    /// Whether they were guessed from a pattern.
    pub detected: bool,
    /// Their durations; the mean is without warm-up, all else with it.
    #[serde(flatten)]
    pub durations: Distribution,
    /// Standard deviation of their durations without warm-up (of a sample: over count - 1); 0 of one step.
    pub standard_deviation_ns: f64,
    /// Steps whose duration is further from the median than three times 1.4826 times the median of such distances (what three
    /// standard deviations are where most steps are alike), and than 5 % of the median.
    pub outliers: Vec<String>,
    /// Those of the outliers that are first of all and longer than the median: at most three, and fewer than half of all steps.
    pub warm_up: Vec<String>,
}

impl StepSummary {
    /// The outliers in few words: "none", "step 7", "step 0 (warm-up) and 2 more".
    #[must_use]
    pub fn outliers_in_words(&self, shorten: impl Fn(&str) -> String) -> String {
        let named = |names: &[String]| match names {
            [] => "none".to_owned(),
            [only] => shorten(only),
            [first, .., last] => format!("{} to {}", shorten(first), shorten(last)),
        };
        let (some, rest) = match (self.warm_up.len(), self.outliers.as_slice()) {
            (0, [first, rest @ ..]) => (shorten(first), rest.len()),
            (0, []) => (named(&[]), 0),
            (warm_up, outliers) => {
                let rest = outliers.len().saturating_sub(warm_up);
                (format!("{} (warm-up)", named(&self.warm_up)), rest)
            }
        };
        match rest {
            0 => some,
            more => format!("{some} and {more} more"),
        }
    }
}

/// The step of the job: what tables, report and page call its time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobStep {
    /// Mean, over the steps without warm-up, of the longest that a step took on any rank's device.
    pub mean_ns: i64,
    /// How many steps there are, warm-up among them.
    pub count: usize,
    /// The names of those that are left out of the mean, by the rule of [`StepSummary`] for these longest durations.
    pub warm_up: Vec<String>,
}

/// How far durations usually are from their median.
struct Spread {
    median: i64,
    typical: f64,
}

impl Spread {
    fn of(durations: &[i64]) -> Self {
        let mut sorted = durations.to_vec();
        sorted.sort_unstable();
        let median = nearest_rank(&sorted, 50);
        let mut distances: Vec<i64> = sorted.iter().map(|duration| (duration - median).abs()).collect();
        distances.sort_unstable();
        Self {
            median,
            typical: nearest_rank(&distances, 50) as f64 * 1.4826,
        }
    }

    fn is_outlier(&self, duration: i64) -> bool {
        let distance = (duration - self.median).abs() as f64;
        distance > 3.0 * self.typical && distance > 0.05 * self.median as f64
    }

    /// How many of the durations, from the first on, are warm-up.
    fn warm_up(&self, durations: &[i64]) -> usize {
        const MOST: usize = 3;
        let most = MOST.min(durations.len().saturating_sub(1) / 2);
        durations
            .iter()
            .take(most)
            .take_while(|duration| **duration > self.median && self.is_outlier(**duration))
            .count()
    }
}

/// Mean, rounded down, and standard deviation of a sample; 0 of none.
fn mean_and_deviation(durations: &[i64]) -> (i64, f64) {
    let mean_ns = Distribution::of(&mut durations.to_vec()).mean_ns;
    let count = durations.len().max(1) as f64;
    let mean = durations.iter().map(|duration| *duration as f64).sum::<f64>() / count;
    let squares: f64 = durations
        .iter()
        .map(|duration| (*duration as f64 - mean).powi(2))
        .sum();
    let deviation = (squares / (count - 1.0).max(1.0)).sqrt();
    (mean_ns, deviation)
}

/// Marks the outliers and the warm-up among the steps, and sums them up; `None` without steps.
pub(crate) fn summary(steps: &mut [StepAnalysis]) -> Option<StepSummary> {
    if steps.is_empty() {
        return None;
    }
    let mut durations: Vec<i64> = steps.iter().map(|step| step.duration_ns).collect();
    let spread = Spread::of(&durations);
    let warm_up = spread.warm_up(&durations);
    for (place, step) in steps.iter_mut().enumerate() {
        step.outlier = spread.is_outlier(step.duration_ns);
        step.warm_up = place < warm_up;
    }
    let (mean_ns, standard_deviation_ns) = mean_and_deviation(&durations[warm_up..]);
    let names = |of: &dyn Fn(&StepAnalysis) -> bool| -> Vec<String> {
        let named = steps.iter().filter(|step| of(step));
        named.map(|step| step.name.clone()).collect()
    };
    Some(StepSummary {
        count: steps.len(),
        detected: steps.iter().any(|step| step.detected),
        durations: Distribution {
            mean_ns,
            ..Distribution::of(&mut durations)
        },
        standard_deviation_ns,
        outliers: names(&|step| step.outlier),
        warm_up: names(&|step| step.warm_up),
    })
}

/// What tells each of a device's steps from its others: how often its number was there before (where numbers begin anew with each
/// epoch), and the number.
pub(crate) fn numbered(steps: &[StepAnalysis]) -> impl Iterator<Item = ((u64, u64), &StepAnalysis)> {
    let mut met: FxHashMap<u64, u64> = FxHashMap::default();
    (0u64..).zip(steps).map(move |(place, step)| {
        let number = step_number(step.name.trim_end_matches(" (detected)")).unwrap_or(place);
        let before = met.entry(number).or_default();
        *before += 1;
        ((*before - 1, number), step)
    })
}

/// The longest that each step of the job took on any device, and its name, in order.
fn longest<'a>(devices: impl Iterator<Item = &'a [StepAnalysis]>) -> BTreeMap<(u64, u64), (i64, &'a str)> {
    let mut longest: BTreeMap<(u64, u64), (i64, &str)> = BTreeMap::new();
    for (number, step) in devices.flat_map(numbered) {
        let found = longest.entry(number).or_insert((step.duration_ns, &step.name));
        found.0 = found.0.max(step.duration_ns);
    }
    longest
}

/// A step of the job: what tells it from others, and its name.
type Named<'a> = ((u64, u64), &'a str);

/// The steps of the job with their names, in order, and how many of them are warm-up.
pub(crate) fn job_steps<'a>(devices: impl Iterator<Item = &'a [StepAnalysis]>) -> (Vec<Named<'a>>, usize) {
    let longest = longest(devices);
    let durations: Vec<i64> = longest.values().map(|(duration, _)| *duration).collect();
    let warm_up = match durations.is_empty() {
        true => 0,
        false => Spread::of(&durations).warm_up(&durations),
    };
    let steps = longest.into_iter().map(|(number, (_, name))| (number, name));
    (steps.collect(), warm_up)
}

/// The step of the job, of the steps of each of its devices; `None` where none has any.
pub(crate) fn job_step<'a>(devices: impl Iterator<Item = &'a [StepAnalysis]>) -> Option<JobStep> {
    let longest = longest(devices);
    let durations: Vec<i64> = longest.values().map(|(duration, _)| *duration).collect();
    if durations.is_empty() {
        return None;
    }
    let warm_up = Spread::of(&durations).warm_up(&durations);
    Some(JobStep {
        mean_ns: mean_and_deviation(&durations[warm_up..]).0,
        count: durations.len(),
        warm_up: longest
            .values()
            .take(warm_up)
            .map(|(_, name)| (*name).to_owned())
            .collect(),
    })
}

#[cfg(test)]
mod tests {
    use gputrace_trace::TimeNs;

    use super::*;

    fn steps(durations: &[i64]) -> Vec<StepAnalysis> {
        let step = |(index, &duration_ns): (i64, &i64)| StepAnalysis {
            name: format!("step {index}"),
            start_ns: TimeNs(index * 1000),
            end_ns: TimeNs(index * 1000 + duration_ns),
            duration_ns,
            ..StepAnalysis::default()
        };
        (0..).zip(durations).map(step).collect()
    }

    #[test]
    fn a_step_apart_from_the_others_is_an_outlier() {
        let mut steps = steps(&[100, 102, 98, 101, 99, 250]);
        let summary = summary(&mut steps).unwrap();
        assert_eq!(summary.outliers, ["step 5"]);
        assert!(summary.warm_up.is_empty(), "it is the last");
        assert_eq!(summary.outliers_in_words(str::to_uppercase), "STEP 5");
        assert_eq!(
            (summary.count, summary.durations.mean_ns, summary.durations.p50_ns),
            (6, 125, 100)
        );
        // Sample standard deviation of 100, 102, 98, 101, 99, 250: mean 125, squares 18760 over 5.
        assert!((summary.standard_deviation_ns - (18_760.0_f64 / 5.0).sqrt()).abs() < 1e-9);
    }

    #[test]
    fn slow_first_steps_are_left_out_of_the_mean() {
        let mut all = steps(&[900, 300, 100, 102, 98, 101, 99, 250]);
        let summary = summary(&mut all).unwrap();
        // The median of all eight is 101, that of the distances from it (0, 1, 1, 2, 3, 149, 199, 799) is 2: 8.9 is far.
        assert_eq!(summary.outliers, ["step 0", "step 1", "step 7"]);
        assert_eq!(summary.warm_up, ["step 0", "step 1"]);
        let words = |summary: &StepSummary| summary.outliers_in_words(str::to_owned);
        assert_eq!(words(&summary), "step 0 to step 1 (warm-up) and 1 more");
        let marked: Vec<bool> = all.iter().map(|step| step.warm_up).collect();
        assert_eq!(marked, [true, true, false, false, false, false, false, false]);
        // (100 + 102 + 98 + 101 + 99 + 250) / 6; the shortest, the longest and the median are of all.
        let durations = &summary.durations;
        assert_eq!(
            (
                durations.mean_ns,
                durations.min_ns,
                durations.max_ns,
                durations.p50_ns
            ),
            (125, 98, 900, 101)
        );
        assert!((summary.standard_deviation_ns - (18_760.0_f64 / 5.0).sqrt()).abs() < 1e-9);
    }

    #[test]
    fn warm_up_is_at_most_three_steps_and_fewer_than_half() {
        let warm_up = |durations: &[i64]| Spread::of(durations).warm_up(durations);
        assert_eq!(warm_up(&[900, 900, 900, 900, 100, 100, 100, 100, 100, 100]), 3);
        assert_eq!(warm_up(&[900, 100, 100]), 1);
        assert_eq!(warm_up(&[900, 800, 100, 100]), 1, "two would be half of four");
        assert_eq!(warm_up(&[900, 100]), 0);
        assert_eq!(warm_up(&[900]), 0);
        assert_eq!(warm_up(&[]), 0);
        assert_eq!(
            warm_up(&[10, 900, 100, 100, 100]),
            0,
            "one that is shorter is none, nor is what comes after it"
        );
    }

    #[test]
    fn a_step_of_the_job_is_as_long_as_on_its_slowest_rank() {
        let job = |devices: &[Vec<StepAnalysis>]| job_step(devices.iter().map(Vec::as_slice));
        assert_eq!(job(&[Vec::new()]), None);
        let found = job(&[steps(&[500, 100, 120, 100]), steps(&[400, 110, 90])]).unwrap();
        // 500, 110, 120, 100: the first is warm-up, and (110 + 120 + 100) / 3 = 110.
        assert_eq!(
            (found.mean_ns, found.count, found.warm_up),
            (110, 4, vec!["step 0".to_owned()])
        );
        // Numbers that begin anew are other steps.
        let epochs = [steps(&[100, 100]), steps(&[130, 130])].concat();
        assert_eq!(
            job(&[epochs]).map(|step| (step.mean_ns, step.count)),
            Some((115, 4))
        );
    }
}
