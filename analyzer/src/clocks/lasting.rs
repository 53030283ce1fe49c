//! How much longer operations take when the last rank to arrive is one of the second host: no clock is compared for that.
//!
//! From the last arrival to its end an operation takes as long as its work does, and as much longer as the host of that rank begins
//! late or leaves late. Both are read from one clock.

use std::collections::BTreeMap;

use super::normal::{OF_MEDIAN, ROOT_HALF_PI};
use super::sample::Sample;
use super::steps::median;

/// Operations of each side below which nothing is said.
const LEAST: usize = 3;
/// The least scatter that is assumed, nanoseconds.
pub(super) const LEAST_SCATTER_NS: f64 = 20.0;

/// How much longer one kind takes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Longer {
    /// Nanoseconds; negative where it takes longer when the last is one of the first host.
    pub(super) by: f64,
    /// Its standard error.
    pub(super) error: f64,
}

impl Longer {
    /// The mean, weighed by how exact each is; `None` of none.
    pub(super) fn mean(all: impl Iterator<Item = Self>) -> Option<Self> {
        let (weight, sum) = all.fold((0.0, 0.0), |(weight, sum), one| {
            let own = (one.error * one.error).recip();
            (weight + own, sum + own * one.by)
        });
        (weight > 0.0).then(|| Self {
            by: sum / weight,
            error: weight.sqrt().recip(),
        })
    }
}

/// By kind; `kinds` are those of the samples. `None` where there are too few.
pub(super) fn longer(samples: &[Sample], kinds: &[usize], count: usize) -> Vec<Option<Longer>> {
    // By kind and work: how long they took when the last was of the first host, and of the second.
    let mut took: BTreeMap<(usize, u32), [Vec<f64>; 2]> = BTreeMap::new();
    for (sample, kind) in samples.iter().zip(kinds) {
        if let Some(last) = sample.last {
            let sides = took.entry((*kind, sample.work)).or_default();
            sides[usize::from(last.is_second)].push(last.took_ns as f64);
        }
    }
    let mut by_kind: Vec<Vec<Longer>> = vec![Vec::new(); count];
    for ((kind, _), [mut first, mut second]) in took {
        if first.len() < LEAST || second.len() < LEAST {
            continue;
        }
        let ((first, first_error), (second, second_error)) = (middle(&mut first), middle(&mut second));
        by_kind[kind].push(Longer {
            by: second - first,
            error: first_error.hypot(second_error),
        });
    }
    by_kind
        .into_iter()
        .map(|all| Longer::mean(all.into_iter()))
        .collect()
}

/// A median and its standard error, by the median distance from it; of few that is often too small by chance.
fn middle(values: &mut [f64]) -> (f64, f64) {
    let middle = median(values);
    let mut off: Vec<f64> = values.iter().map(|value| (value - middle).abs()).collect();
    let count = values.len() as f64;
    let scatter = (OF_MEDIAN * median(&mut off)).max(LEAST_SCATTER_NS);
    let error = ROOT_HALF_PI * scatter * (1.0 + 5.0 / count) / count.sqrt();
    (middle, error)
}

#[cfg(test)]
mod tests {
    use super::super::sample::Last;
    use super::*;

    fn sample(is_second: bool, took_ns: i64, work: u32) -> Sample {
        Sample {
            time_ns: 0,
            offset_ns: 0,
            low_ns: 0,
            high_ns: 0,
            class: 0,
            kind: 0,
            work,
            spread_ns: 0.0,
            last: Some(Last { is_second, took_ns }),
        }
    }

    #[test]
    fn like_work_is_compared_and_what_scatters_counts_less() {
        // 100 us and 5 ms of work, both 2 us longer on the second host; the longer work scatters by 400 us.
        let mut samples = Vec::new();
        for number in 0..40i64 {
            let is_second = number % 2 == 1;
            let late = if is_second { 2_000 } else { 0 };
            samples.push(sample(is_second, 100_000 + late + number % 5 * 100, 0));
            samples.push(sample(is_second, 5_000_000 + late + number % 7 * 200_000, 1));
        }
        let kinds = vec![0; samples.len()];
        let found = longer(&samples, &kinds, 2);
        let one = found[0].expect("enough");
        assert!((one.by - 2_000.0).abs() < 200.0 && one.error < 150.0, "{one:?}");
        assert!(found[1].is_none());
        assert!(longer(&samples[..8], &kinds[..8], 1)[0].is_none());
    }
}
