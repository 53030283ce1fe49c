//! Single steps at the same place of two runs. One step is no sample: it may be off by as much as the run's steps are from each
//! other.

use super::estimate::{Difference, Estimate, FEWEST_STEPS, deviation, difference};
use super::row::{Row, Verdict, verdict_of};
use crate::baseline::{Baseline, By};
use crate::statistics::median;

/// A single step is called slower or faster below this probability: of a run of fifty alike one is, about.
const RARE: f64 = 0.02;

/// How far single steps of two runs usually are from their others.
pub(crate) struct SingleSteps {
    /// Error and degrees of freedom by side; `None` of too few steps.
    sides: [(Option<f64>, f64); 2],
}

/// Of the steps of two runs.
pub(crate) fn single_steps(a: &[i64], b: &[i64]) -> SingleSteps {
    let of = |steps: &[i64]| {
        let enough = steps.len() >= FEWEST_STEPS;
        (
            enough.then(|| usual_distance(steps)),
            steps.len().saturating_sub(1) as f64,
        )
    };
    SingleSteps {
        sides: [of(a), of(b)],
    }
}

impl SingleSteps {
    pub(super) fn difference(&self, a: i64, b: i64) -> Difference {
        let estimate = |value: i64, (error, freedom)| Estimate {
            value: value as f64,
            error,
            freedom,
        };
        difference(&estimate(a, self.sides[0]), &estimate(b, self.sides[1]))
    }

    /// What became of one step, by itself.
    pub(crate) fn verdict(&self, a: i64, b: i64) -> Verdict {
        match a == b {
            true => Verdict::Same,
            false => verdict_of(b - a, self.difference(a, b).p.map(|p| p <= RARE)),
        }
    }
}

/// Rows of the job's steps, each with the probability that it is tested by.
pub(super) fn rows(a: &Baseline, b: &Baseline) -> Vec<(Row, Option<f64>)> {
    if a.whole_run.is_some() || b.whole_run.is_some() {
        return Vec::new();
    }
    let single = single_steps(&a.step_ns, &b.step_ns);
    let rows = (0..a.steps().max(b.steps())).map(|place| {
        let time = |run: &Baseline| run.step_ns.get(place).copied();
        let (a_ns, b_ns) = (time(a), time(b));
        let change_ns = b_ns.unwrap_or(0) - a_ns.unwrap_or(0);
        let found = a_ns.zip(b_ns).map(|(a, b)| single.difference(a, b));
        let half = found.and_then(|found| found.half_width);
        let name = [a, b].iter().find_map(|run| run.step_names.get(place));
        let row = Row {
            by: By::Step,
            name: name.cloned().unwrap_or_default(),
            what: "time".to_owned(),
            rank: None,
            device_index: None,
            a_ns,
            b_ns,
            change_ns,
            low_ns: half.map(|half| change_ns - half.ceil() as i64),
            high_ns: half.map(|half| change_ns + half.ceil() as i64),
            verdict: match (a_ns, b_ns) {
                (None, _) => Verdict::New,
                (_, None) => Verdict::Gone,
                _ if a.step_ns == b.step_ns => Verdict::Same,
                _ => Verdict::Unknown,
            },
            count_a: None,
            count_b: None,
        };
        (row, found.and_then(|found| found.p))
    });
    rows.collect()
}

/// How far a single step usually is from the others: the deviation of the sample, hiccups and all, and a thousandth of the median at
/// least.
fn usual_distance(steps: &[i64]) -> f64 {
    let values: Vec<f64> = steps.iter().map(|step| *step as f64).collect();
    let finest = median(&mut steps.to_vec()) * 0.001;
    deviation(&values).unwrap_or(0.0).max(finest).max(1.0)
}
