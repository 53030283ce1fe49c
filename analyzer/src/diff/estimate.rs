//! How sure a difference between two runs is.
//!
//! Steps are the sample. What they typically take is their median (the mean, for what not even half of the steps have), since a
//! checkpoint or a hiccup must not move it. How far it may be off is found twice, and the greater counts:
//!
//! - by a bootstrap over stretches of steps (Künsch 1989, the block bootstrap): steps near each other are alike, and drawing
//!   them one by one would take them for more evidence than they are;
//! - by how far the medians of the run's fifths are from each other. One run says nothing of how runs differ, but a machine that
//!   drifts within a run differs at least as much between runs.
//!
//! With several runs of a side, the scatter of their medians takes the second's place, and says it truly. Two sides are compared
//! by Welch's t test.

use statrs::distribution::{ContinuousCDF, StudentsT};

use crate::statistics::{median, sum};

/// Resamples of the bootstrap.
const RESAMPLES: usize = 200;
/// More steps are not resampled: their fifths say it.
const MOST_RESAMPLED: usize = 512;
/// Stretches that a run is cut into.
const FIFTHS: usize = 5;
/// Nothing is known better than to this share: clocks of GPUs are not the same in two runs.
const FINEST: f64 = 0.001;
/// Fewer steps than this are no sample.
pub(super) const FEWEST_STEPS: usize = 4;

/// What steps typically take, and how sure that is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Estimate {
    /// Nanoseconds.
    pub(crate) value: f64,
    /// Standard error; `None` where there are too few steps to know.
    pub(crate) error: Option<f64>,
    /// Degrees of freedom that the error is known by.
    pub(crate) freedom: f64,
}

/// A difference of two estimates.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Difference {
    /// The second's value minus the first's.
    pub(crate) change: f64,
    /// Half the width of the 95 % confidence interval; `None` where that is not known.
    pub(crate) half_width: Option<f64>,
    /// How probable a difference of this size is if there is none.
    pub(crate) p: Option<f64>,
}

impl Estimate {
    /// Half the width of the value's 95 % confidence interval; `None` where that is not known.
    pub(crate) fn half_width(&self) -> Option<f64> {
        let distribution = StudentsT::new(0.0, 1.0, self.freedom.max(1.0)).ok()?;
        Some(distribution.inverse_cdf(0.975) * self.error?)
    }
}

/// What a step typically takes: the median, or the mean of what not even half of the steps have.
fn typical(values: &[i64], spare: &mut Vec<i64>) -> f64 {
    let there = values.iter().filter(|value| **value != 0).count();
    if there * 2 < values.len() {
        return sum(values) as f64 / values.len().max(1) as f64;
    }
    spare.clear();
    spare.extend_from_slice(values);
    median(spare)
}

/// Standard deviation of a sample; `None` of fewer than two.
pub(super) fn deviation(values: &[f64]) -> Option<f64> {
    let count = values.len() as f64;
    if values.len() < 2 {
        return None;
    }
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    Some((squares / (count - 1.0)).sqrt())
}

/// Of the runs of one side, each by step.
pub(crate) fn estimate(runs: &[&[i64]]) -> Estimate {
    let mut spare = Vec::new();
    let values: Vec<f64> = runs.iter().map(|run| typical(run, &mut spare)).collect();
    let value = values.iter().sum::<f64>() / values.len().max(1) as f64;
    let finest = (FINEST * value.abs()).max(1.0);
    let within: Option<Vec<(f64, f64)>> = runs.iter().map(|run| within_run(run)).collect();
    let (error, freedom) = match (deviation(&values), within) {
        (_, None) => (None, 0.0),
        (None, Some(within)) => {
            let (error, freedom) = within.first().copied().unwrap_or((0.0, 1.0));
            (Some(error.max(finest)), freedom)
        }
        (Some(between), Some(_)) => {
            let count = values.len() as f64;
            (
                Some((between / count.sqrt()).max(finest / count.sqrt())),
                count - 1.0,
            )
        }
    };
    Estimate {
        value,
        error,
        freedom,
    }
}

/// How far a run's typical step may be from that of another run like it, and by how many degrees of freedom that is known;
/// `None` of too few steps.
fn within_run(values: &[i64]) -> Option<(f64, f64)> {
    if values.len() < FEWEST_STEPS {
        return None;
    }
    let mut spare = Vec::new();
    let fifths = FIFTHS.min(values.len() / 2);
    let of_fifths: Vec<f64> = (0..fifths)
        .map(|place| {
            let bounds = [place, place + 1].map(|place| place * values.len() / fifths);
            typical(&values[bounds[0]..bounds[1]], &mut spare)
        })
        .collect();
    let drift = deviation(&of_fifths).unwrap_or(0.0);
    Some((drift.max(resampled(values)), fifths as f64 - 1.0))
}

/// Standard error of what a step typically takes, by the block bootstrap.
fn resampled(values: &[i64]) -> f64 {
    let count = values.len();
    if count > MOST_RESAMPLED || values.iter().all(|value| *value == values[0]) {
        return 0.0;
    }
    let block = ((count as f64).cbrt() * 1.5).ceil() as usize;
    // The same values have the same error each time.
    let mut random = fastrand::Rng::with_seed(count as u64);
    let (mut drawn, mut spare) = (Vec::with_capacity(count + block), Vec::with_capacity(count));
    let typicals: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            drawn.clear();
            while drawn.len() < count {
                let start = random.usize(..count);
                drawn.extend((start..start + block).map(|place| values[place % count]));
            }
            typical(&drawn[..count], &mut spare)
        })
        .collect();
    deviation(&typicals).unwrap_or(0.0)
}

/// Of the second side to the first.
pub(crate) fn difference(a: &Estimate, b: &Estimate) -> Difference {
    let change = b.value - a.value;
    let (Some(first), Some(second)) = (a.error, b.error) else {
        return Difference {
            change,
            half_width: None,
            p: None,
        };
    };
    let squares = [first * first, second * second];
    let error = (squares[0] + squares[1]).sqrt();
    // Welch and Satterthwaite's.
    let parts = squares[0].powi(2) / a.freedom.max(1.0) + squares[1].powi(2) / b.freedom.max(1.0);
    let freedom = ((squares[0] + squares[1]).powi(2) / parts).max(1.0);
    let Ok(distribution) = StudentsT::new(0.0, 1.0, freedom) else {
        return Difference {
            change,
            half_width: None,
            p: None,
        };
    };
    Difference {
        change,
        half_width: Some(distribution.inverse_cdf(0.975) * error),
        p: Some((2.0 * distribution.sf((change / error).abs())).min(1.0)),
    }
}

/// Which of the differences are real, so that at most `share` of those that are called real are not (Benjamini and Hochberg
/// 1995): those with a probability of at most what this gives.
pub(crate) fn false_discovery_limit(probabilities: &[f64], share: f64) -> f64 {
    let mut sorted = probabilities.to_vec();
    sorted.sort_by(f64::total_cmp);
    let count = sorted.len() as f64;
    let fits = (1..)
        .zip(&sorted)
        .filter(|(rank, p)| **p <= share * f64::from(*rank) / count);
    fits.last().map_or(0.0, |(_, p)| *p)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_few_steps_have_is_their_mean() {
        // One step of four has it: the mean.
        assert_eq!(typical(&[0, 0, 80, 0], &mut Vec::new()), 20.0);
        assert_eq!(
            typical(&[0, 70, 80, 0], &mut Vec::new()),
            35.0,
            "half have it: the median"
        );
    }

    #[test]
    fn steps_that_are_all_alike_are_known_to_a_thousandth() {
        let steps = [1_000_000; 20];
        let found = estimate(&[&steps]);
        assert_eq!(
            (found.value, found.error, found.freedom),
            (1e6, Some(1000.0), 4.0)
        );
        let slower = estimate(&[&[1_030_000; 20]]);
        let difference = difference(&found, &slower);
        assert_eq!(difference.change, 30_000.0);
        // sqrt(1000^2 + 1030^2) = 1435.6, and t(.975) of 8 degrees of freedom is 2.306.
        let half_width = difference.half_width.unwrap();
        assert!((half_width - 1435.6 * 2.306).abs() < 5.0, "{half_width}");
        assert!(difference.p.unwrap() < 1e-6);
    }

    #[test]
    fn a_run_that_drifts_is_not_told_from_one_that_has() {
        let drifts: Vec<i64> = (0..40).map(|step| 100_000 + step * 100).collect();
        let moved: Vec<i64> = drifts.iter().map(|step| step + 1000).collect();
        let difference = difference(&estimate(&[&drifts]), &estimate(&[&moved]));
        // The fifths' medians are 800 apart from each to the next: their deviation is 800 * sqrt(2.5) = 1265.
        assert!(difference.half_width.unwrap() > 1265.0 * 2.0_f64.sqrt() * 2.3);
        assert!(difference.p.unwrap() > 0.05);
    }

    #[test]
    fn too_few_steps_are_no_sample() {
        let few = estimate(&[&[10, 11, 12]]);
        assert_eq!((few.value, few.error), (11.0, None));
        assert_eq!(difference(&few, &few).half_width, None);
    }

    #[test]
    fn several_runs_say_how_runs_differ() {
        let runs: Vec<Vec<i64>> = [100_000, 104_000, 96_000].map(|step| vec![step; 10]).to_vec();
        let runs: Vec<&[i64]> = runs.iter().map(Vec::as_slice).collect();
        let found = estimate(&runs);
        // The deviation of 100, 104 and 96 is 4, over the root of three.
        assert_eq!((found.value, found.freedom), (100_000.0, 2.0));
        assert!((found.error.unwrap() - 4000.0 / 3.0_f64.sqrt()).abs() < 1e-6);
    }

    #[test]
    fn the_limit_is_benjamini_s_and_hochberg_s() {
        // 0.05 times 1/5, 2/5, ... is 0.01, 0.02, 0.03, 0.04, 0.05: the third is the last that fits.
        let p = [0.9, 0.001, 0.029, 0.015, 0.2];
        assert_eq!(false_discovery_limit(&p, 0.05), 0.029);
        assert_eq!(false_discovery_limit(&[0.5, 0.6], 0.05), 0.0);
        assert_eq!(false_discovery_limit(&[], 0.05), 0.0);
    }
}
