//! Sets of time as sorted, disjoint, half-open intervals `[start, end)` in nanoseconds.

/// Whether times can be compared with others: beyond 73 years (146 for an end) they are damage, and differences would not fit.
#[must_use]
pub fn is_possible(start: i64, end: i64) -> bool {
    const LARGEST: i64 = 1 << 61;
    start >= -LARGEST && end <= 2 * LARGEST
}

/// A half-open interval; `end > start`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    /// First nanosecond in it.
    pub start: i64,
    /// First nanosecond after it.
    pub end: i64,
}

/// What of sorted, disjoint intervals ends after `time`. The steps get longer, so that a short set beside a long one costs
/// little: a device has as many sets to intersect as streams and communicators.
fn ending_after(intervals: &[Interval], time: i64) -> &[Interval] {
    let mut step = 1;
    while intervals.get(step).is_some_and(|interval| interval.end <= time) {
        step *= 2;
    }
    let near = &intervals[step / 2..intervals.len().min(step + 1)];
    &intervals[step / 2 + near.partition_point(|interval| interval.end <= time)..]
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
        let (mut a, mut b) = (self.intervals.as_slice(), other.intervals.as_slice());
        let mut both = Vec::new();
        while let (Some(x), Some(y)) = (a.first(), b.first()) {
            if x.end <= y.start {
                a = ending_after(a, y.start);
                continue;
            }
            if y.end <= x.start {
                b = ending_after(b, x.start);
                continue;
            }
            both.push(Interval {
                start: x.start.max(y.start),
                end: x.end.min(y.end),
            });
            if x.end <= y.end {
                a = &a[1..];
            } else {
                b = &b[1..];
            }
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

/// A set that says how much of it lies in a window, however many intervals it has.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lengths {
    set: IntervalSet,
    /// By interval: nanoseconds before it.
    before: Vec<i64>,
}

impl Lengths {
    pub(crate) fn new(set: IntervalSet) -> Self {
        let before = set.intervals.iter().scan(0, |sum, interval| {
            let before = *sum;
            *sum += interval.end - interval.start;
            Some(before)
        });
        Self {
            before: before.collect(),
            set,
        }
    }

    /// Nanoseconds of the set before `time`.
    fn until(&self, time: i64) -> i64 {
        let after = self
            .set
            .intervals
            .partition_point(|interval| interval.start < time);
        after.checked_sub(1).map_or(0, |last| {
            let interval = self.set.intervals[last];
            self.before[last] + interval.end.min(time) - interval.start
        })
    }

    /// Nanoseconds of `[start, end)` that are in the set.
    pub(crate) fn within(&self, start: i64, end: i64) -> i64 {
        if end <= start {
            return 0;
        }
        self.until(end) - self.until(start)
    }

    /// From the first to the last nanosecond of the set in `[start, end)`.
    pub(crate) fn extent_within(&self, start: i64, end: i64) -> Option<(i64, i64)> {
        let intervals = &self.set.intervals;
        let first = intervals.partition_point(|interval| interval.end <= start);
        let after = intervals.partition_point(|interval| interval.start < end);
        let inside = intervals.get(first..after).filter(|inside| !inside.is_empty())?;
        Some((inside[0].start.max(start), inside[inside.len() - 1].end.min(end)))
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
            let inside = set.intersection(&window);
            prop_assert_eq!(set.length_within_ns(start, end), inside.length_ns());
            let lengths = Lengths::new(set);
            prop_assert_eq!(lengths.within(start, end), inside.length_ns());
            let ends = inside.as_slice().first().zip(inside.as_slice().last()).map(|(first, last)| (first.start, last.end));
            prop_assert_eq!(lengths.extent_within(start, end).filter(|_| start < end), ends);
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
    fn a_short_set_far_into_a_long_one_is_found() {
        let long = IntervalSet::union_of((0..1000).map(|at| (at * 10, at * 10 + 5)));
        for (start, end) in [(0, 3), (5003, 5012), (9990, 20_000), (9996, 9999), (-50, 2)] {
            let short = IntervalSet::union_of([(start, end)]);
            let expected = long.length_within_ns(start, end);
            assert_eq!(long.intersection(&short).length_ns(), expected);
            assert_eq!(short.intersection(&long).length_ns(), expected);
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
