//! Sets of time as sorted, disjoint, half-open intervals `[start, end)` in nanoseconds.

/// A half-open interval; `end > start`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    /// First nanosecond in it.
    pub start: i64,
    /// First nanosecond after it.
    pub end: i64,
}

/// A set of points in time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IntervalSet {
    intervals: Vec<Interval>,
}

impl IntervalSet {
    /// The union of any intervals, in any order. Intervals that touch are joined; empty ones add nothing.
    #[must_use]
    pub fn union_of(intervals: impl IntoIterator<Item = (i64, i64)>) -> Self {
        let mut sorted: Vec<(i64, i64)> = intervals.into_iter().collect();
        sorted.sort_unstable_by_key(|(start, _)| *start);
        Self::union_of_sorted(sorted)
    }

    /// The union of intervals that come sorted by start: the same as [`Self::union_of`] without sorting.
    #[must_use]
    pub fn union_of_sorted(intervals: impl IntoIterator<Item = (i64, i64)>) -> Self {
        let mut joined: Vec<Interval> = Vec::new();
        for (start, end) in intervals {
            if end <= start {
                continue;
            }
            match joined.last_mut() {
                Some(last) if start <= last.end => last.end = last.end.max(end),
                _ => joined.push(Interval { start, end }),
            }
        }
        Self { intervals: joined }
    }

    /// The intervals, in order.
    #[must_use]
    pub fn as_slice(&self) -> &[Interval] {
        &self.intervals
    }

    /// Nanoseconds in the set.
    #[must_use]
    pub fn length_ns(&self) -> i64 {
        self.intervals
            .iter()
            .map(|interval| interval.end - interval.start)
            .sum()
    }

    /// What lies in both sets.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let (mut a, mut b) = (
            self.intervals.iter().peekable(),
            other.intervals.iter().peekable(),
        );
        let mut both = Vec::new();
        while let (Some(x), Some(y)) = (a.peek(), b.peek()) {
            let (start, end) = (x.start.max(y.start), x.end.min(y.end));
            if end > start {
                both.push(Interval { start, end });
            }
            if x.end <= y.end {
                a.next()
            } else {
                b.next()
            };
        }
        Self { intervals: both }
    }

    /// Nanoseconds of `[start, end)` that are in the set.
    #[must_use]
    pub fn length_within_ns(&self, start: i64, end: i64) -> i64 {
        if end <= start {
            return 0;
        }
        let first = self.intervals.partition_point(|interval| interval.end <= start);
        self.intervals[first..]
            .iter()
            .take_while(|interval| interval.start < end)
            .map(|interval| interval.end.min(end) - interval.start.max(start))
            .sum()
    }

    /// What of `[start, end)` is not in the set.
    #[must_use]
    pub fn gaps_within(&self, start: i64, end: i64) -> Self {
        let mut gaps = Vec::new();
        let mut at = start;
        let first = self.intervals.partition_point(|interval| interval.end <= start);
        for interval in &self.intervals[first..] {
            if interval.start >= end {
                break;
            }
            if interval.start > at {
                gaps.push(Interval {
                    start: at,
                    end: interval.start,
                });
            }
            at = at.max(interval.end);
        }
        if at < end {
            gaps.push(Interval { start: at, end });
        }
        Self { intervals: gaps }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Each nanosecond of 0..100 on its own.
    fn bits(intervals: &[(i64, i64)]) -> Vec<bool> {
        (0..100)
            .map(|at| intervals.iter().any(|(start, end)| (*start..*end).contains(&at)))
            .collect()
    }

    fn set_bits(set: &IntervalSet) -> Vec<bool> {
        bits(
            &set.as_slice()
                .iter()
                .map(|interval| (interval.start, interval.end))
                .collect::<Vec<_>>(),
        )
    }

    fn some_intervals() -> impl Strategy<Value = Vec<(i64, i64)>> {
        proptest::collection::vec(
            (0i64..100, 0i64..30).prop_map(|(start, length)| (start, (start + length).min(100))),
            0..12,
        )
    }

    proptest! {
        #[test]
        fn a_union_is_every_point_of_either(intervals in some_intervals()) {
            let set = IntervalSet::union_of(intervals.clone());
            prop_assert_eq!(set_bits(&set), bits(&intervals));
            prop_assert_eq!(set.length_ns() as usize, bits(&intervals).iter().filter(|bit| **bit).count());
            for pair in set.as_slice().windows(2) {
                prop_assert!(pair[0].end < pair[1].start, "disjoint and not touching");
            }
        }

        #[test]
        fn an_intersection_is_every_point_of_both(a in some_intervals(), b in some_intervals()) {
            let both = IntervalSet::union_of(a.clone()).intersection(&IntervalSet::union_of(b.clone()));
            let expected: Vec<bool> = bits(&a).iter().zip(bits(&b)).map(|(x, y)| *x && y).collect();
            prop_assert_eq!(set_bits(&both), expected);
        }

        #[test]
        fn a_length_within_is_that_of_the_intersection(a in some_intervals(), start in 0i64..100, end in 0i64..100) {
            let (set, window) = (IntervalSet::union_of(a), IntervalSet::union_of([(start, end)]));
            prop_assert_eq!(set.length_within_ns(start, end), set.intersection(&window).length_ns());
        }

        #[test]
        fn gaps_are_every_other_point_of_the_window(intervals in some_intervals(), start in 0i64..100, end in 0i64..100) {
            let gaps = IntervalSet::union_of(intervals.clone()).gaps_within(start, end);
            let covered = bits(&intervals);
            let expected: Vec<bool> = (0..100i64).map(|at| (start..end).contains(&at) && !covered[at as usize]).collect();
            prop_assert_eq!(set_bits(&gaps), expected);
        }
    }

    #[test]
    fn touching_intervals_join_and_empty_ones_vanish() {
        let set = IntervalSet::union_of([(10, 20), (20, 30), (5, 5), (40, 41)]);
        assert_eq!(
            set.as_slice(),
            [Interval { start: 10, end: 30 }, Interval { start: 40, end: 41 }]
        );
    }
}
