//! From whatever happened on a stream or a thread to rows of slices that do not overlap.

use std::cmp::Reverse;

use gputrace_trace::near_sort;

use super::slices::Slices;

/// Rows that one thing may have; what runs beside so many others is left out, and counted.
pub(crate) const MOST_LANES: usize = 512;
/// A slice that has no row yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Item {
    pub(crate) start: i64,
    pub(crate) duration: i64,
    pub(crate) name: u32,
    pub(crate) source: u32,
}

/// An outer slice comes before those that it encloses; of equal ones the order is that of their tables.
#[inline]
pub(crate) fn order(item: &Item) -> (i64, Reverse<i64>, u32) {
    (item.start, Reverse(item.duration), item.source)
}

/// Sorts by [`order`] what comes as tables one after another, each nearly sorted.
pub(crate) fn sort(items: &mut [Item]) {
    near_sort::sort(items, |item| item.start, order);
}

/// Puts each item into the first row that is free; the rows, and how many items had none. `is_unfinished` tells of a source
/// whether its slice had not ended.
pub(crate) fn lay_out(items: &mut [Item], is_unfinished: impl Fn(u32) -> bool) -> (Vec<Slices>, u64) {
    sort(items);
    if let Some(slices) = Slices::of_apart(items, &is_unfinished) {
        return (vec![slices], 0);
    }
    let mut lanes: Vec<Slices> = Vec::new();
    let mut ends: Vec<i64> = Vec::new();
    let mut left_out = 0;
    for item in items.iter() {
        let lane = match ends.iter().position(|end| *end <= item.start) {
            Some(lane) => lane,
            None if lanes.len() < MOST_LANES => {
                lanes.push(Slices::default());
                ends.push(i64::MIN);
                lanes.len() - 1
            }
            None => {
                left_out += 1;
                continue;
            }
        };
        lanes[lane].push(item.start, item.duration, item.name, item.source);
        ends[lane] = item.start + item.duration;
        if is_unfinished(item.source) {
            let last = lanes[lane].len() - 1;
            lanes[lane].mark_unfinished(last);
        }
    }
    for lane in &mut lanes {
        lane.shrink();
    }
    (lanes, left_out)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn items(of: &[(i64, i64)]) -> Vec<Item> {
        of.iter()
            .zip(0..)
            .map(|((start, duration), source)| Item {
                start: *start,
                duration: *duration,
                name: source,
                source,
            })
            .collect()
    }

    fn laid(of: &[(i64, i64)]) -> Vec<Vec<u32>> {
        let (lanes, left_out) = lay_out(&mut items(of), |_| false);
        assert_eq!(left_out, 0);
        let sources = |lane: &Slices| (0..lane.len()).map(|place| lane.source(place)).collect();
        lanes.iter().map(sources).collect()
    }

    #[test]
    fn what_is_nested_lies_below_what_encloses_it() {
        // A range of 0 to 100, in it 10 to 50 with 10 to 20 and 20 to 50 in that, 60 to 70; another range from 100 on.
        let all = [(10, 10), (20, 30), (10, 40), (60, 10), (0, 100), (100, 10)];
        assert_eq!(laid(&all), [vec![4, 5], vec![2, 3], vec![0, 1]]);
    }

    #[test]
    fn what_overlaps_lies_beside_each_other() {
        assert_eq!(
            laid(&[(0, 10), (5, 10), (10, 10), (15, 1)]),
            [vec![0, 2], vec![1, 3]]
        );
        // Without a length nothing is in the way, but in the middle of something.
        assert_eq!(
            laid(&[(0, 10), (10, 0), (10, 0), (10, 5), (12, 0)]),
            [vec![0, 3], vec![1, 2, 4]]
        );
    }

    #[test]
    fn more_than_can_be_drawn_is_counted() {
        let mut all = items(&vec![(0, 10); MOST_LANES + 3]);
        let (lanes, left_out) = lay_out(&mut all, |source| source == 1);
        assert_eq!((lanes.len(), left_out), (MOST_LANES, 3));
        assert!(lanes[1].is_unfinished(0) && !lanes[0].is_unfinished(0));
    }

    proptest! {
        #[test]
        fn every_item_is_in_one_row_and_none_overlaps(
            runs in proptest::collection::vec((any::<bool>(), proptest::collection::vec((0i64..2000, 0i64..90), 0..200)), 1..5),
        ) {
            let mut all = Vec::new();
            for (nearly_sorted, mut run) in runs {
                if nearly_sorted {
                    run.sort_by_key(|(start, duration)| start + duration);
                }
                all.extend(run);
            }
            let given = items(&all);
            let mut sorted = given.clone();
            sorted.sort_by_key(order);
            let mut ours = given.clone();
            sort(&mut ours);
            prop_assert_eq!(&ours, &sorted);
            let (lanes, left_out) = lay_out(&mut given.clone(), |_| false);
            prop_assert_eq!(left_out, 0);
            let mut seen = vec![false; all.len()];
            for lane in &lanes {
                for place in 0..lane.len() {
                    let source = lane.source(place) as usize;
                    prop_assert_eq!((lane.start(place), lane.duration(place)), all[source]);
                    prop_assert!(!std::mem::replace(&mut seen[source], true));
                    prop_assert!(place == 0 || lane.end_of(place - 1) <= lane.start(place));
                }
            }
            prop_assert!(seen.iter().all(|seen| *seen));
        }
    }
}
