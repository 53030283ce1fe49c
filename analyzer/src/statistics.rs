//! Statistics of durations: exact, by sorting.

use serde::{Deserialize, Serialize};

/// The smallest of sorted values that at least `percent` of them do not exceed (nearest rank); 0 of none.
pub(crate) fn nearest_rank(sorted: &[i64], percent: usize) -> i64 {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or(0)
}

/// The sum; the greatest number there is where it does not fit.
pub(crate) fn sum(values: &[i64]) -> i64 {
    values.iter().fold(0i64, |sum, value| sum.saturating_add(*value))
}

/// The two values in the middle, of an odd number the same twice; the values are reordered. None of none.
fn middle(values: &mut [i64]) -> Option<(i64, i64)> {
    let count = values.len();
    if count == 0 {
        return None;
    }
    let (below, upper, _) = values.select_nth_unstable(count / 2);
    let lower = count
        .is_multiple_of(2)
        .then(|| below.iter().max().copied())
        .flatten();
    Some((lower.unwrap_or(*upper), *upper))
}

/// The median of values in any order (the mean of the middle two), which are reordered; 0 of none.
pub(crate) fn median(values: &mut [i64]) -> f64 {
    middle(values).map_or(0.0, |(lower, upper)| f64::midpoint(lower as f64, upper as f64))
}

/// [`median`] in whole nanoseconds: moments since 1970 don't fit a float.
pub(crate) fn median_ns(values: &mut [i64]) -> i64 {
    middle(values).map_or(0, |(lower, upper)| i64::midpoint(lower, upper))
}

/// What is said of many durations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Distribution {
    /// Mean, rounded down.
    pub mean_ns: i64,
    /// Shortest.
    pub min_ns: i64,
    /// Longest.
    pub max_ns: i64,
    /// Median (nearest rank).
    pub p50_ns: i64,
    /// 99th percentile (nearest rank).
    pub p99_ns: i64,
}

impl Distribution {
    /// Of durations in any order, which are reordered.
    pub(crate) fn of(durations: &mut [i64]) -> Self {
        let count = durations.len().max(1) as i128;
        let total: i128 = durations.iter().map(|duration| i128::from(*duration)).sum();
        Self {
            // A mean lies between its values.
            mean_ns: total.div_euclid(count) as i64,
            min_ns: durations.iter().copied().min().unwrap_or(0),
            max_ns: durations.iter().copied().max().unwrap_or(0),
            p50_ns: select_rank(durations, 50),
            p99_ns: select_rank(durations, 99),
        }
    }
}

/// [`nearest_rank`] of values in any order, which are reordered.
fn select_rank(values: &mut [i64], percent: usize) -> i64 {
    let rank = (values.len() * percent).div_ceil(100).max(1);
    if rank > values.len() {
        return 0;
    }
    *values.select_nth_unstable(rank - 1).1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_by_hand() {
        assert_eq!(median(&mut [5, 1, 3]), 3.0);
        assert_eq!(median(&mut [4, 1, 3, 2]), 2.5);
        assert_eq!(median(&mut []), 0.0);
        let moment = 1_700_000_000_000_000_001;
        assert_eq!(median_ns(&mut [moment + 4, moment, moment + 2]), moment + 2);
        assert_eq!(median_ns(&mut [moment, moment + 2]), moment + 1);
        assert_eq!(median_ns(&mut []), 0);
    }

    #[test]
    fn percentiles_are_nearest_ranks() {
        let values: Vec<i64> = (1..=10).collect();
        assert_eq!(
            (
                nearest_rank(&values, 50),
                nearest_rank(&values, 99),
                nearest_rank(&[7], 50),
                nearest_rank(&[], 50)
            ),
            (5, 10, 7, 0)
        );
    }

    proptest::proptest! {
        #[test]
        fn selecting_is_sorting_and_looking(values in proptest::collection::vec(-50i64..50, 1..80), percent in 1usize..100) {
            let mut sorted = values.clone();
            sorted.sort_unstable();
            let mut values = values;
            proptest::prop_assert_eq!(select_rank(&mut values, percent), nearest_rank(&sorted, percent));
        }
    }

    #[test]
    fn a_distribution_is_of_all_values() {
        let distribution = Distribution::of(&mut [30, 10, 21]);
        assert_eq!(
            distribution,
            Distribution {
                mean_ns: 20,
                min_ns: 10,
                max_ns: 30,
                p50_ns: 21,
                p99_ns: 30
            }
        );
    }
}
