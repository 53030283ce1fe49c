//! Sorting what is nearly sorted.

/// One that must move further than this shows that its neighbours are not nearly sorted.
const FAR: usize = 64;
/// With more runs than this there is no order to make use of.
const MOST_RUNS: usize = 64;

/// Sorts by `order`, whose first part is `start`, what comes as tables one after another, each nearly sorted, as records are: by
/// their ends, about. Equal ones keep their order.
pub fn sort<T, Order: Ord>(items: &mut [T], start: impl Fn(&T) -> i64, order: impl Fn(&T) -> Order) {
    let (mut run, mut runs) = (0, 1);
    for at in 1..items.len() {
        if start(&items[at]) > start(&items[at - 1]) || order(&items[at]) >= order(&items[at - 1]) {
            continue;
        }
        let key = order(&items[at]);
        let near = at.saturating_sub(FAR).max(run);
        let place = near + items[near..at].partition_point(|earlier| order(earlier) <= key);
        if place == near && near > run {
            (run, runs) = (at, runs + 1);
            if runs > MOST_RUNS {
                break;
            }
        } else {
            items[place..=at].rotate_right(1);
        }
    }
    if runs > 1 {
        // A stable sort merges the runs.
        items.sort_by(|a, b| start(a).cmp(&start(b)).then_with(|| order(a).cmp(&order(b))));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn nearly_sorted_or_not_all_get_sorted(
            runs in prop::collection::vec((any::<bool>(), prop::collection::vec((0i64..2000, 0i64..90), 0..400)), 1..5),
        ) {
            let mut items = Vec::new();
            for (is_nearly_sorted, mut run) in runs {
                if is_nearly_sorted {
                    run.sort_by_key(|(start, length)| start + length);
                }
                items.extend(run);
            }
            // The order leaves some equal, which are told apart by where they were.
            let mut items: Vec<(i64, i64, usize)> =
                items.into_iter().zip(0..).map(|((start, length), place)| (start, length / 30, place)).collect();
            let order = |(start, length, _): &(i64, i64, usize)| (*start, *length);
            let mut expected = items.clone();
            expected.sort_by_key(order);
            sort(&mut items, |(start, ..)| *start, order);
            prop_assert_eq!(items, expected);
        }
    }
}
