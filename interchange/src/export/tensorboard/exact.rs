//! Durations whose sum with the start is the end, for a reader that adds the two as floating-point numbers.
//!
//! torch-tb-profiler computes ends so, and compares them with other starts and ends: where the sum comes out a bit too
//! large, a range that touches another overlaps it, and is dropped from the tree of operators.

/// Microseconds as the reader has them. Exact nanoseconds divided by 1000 are what it gets from their decimal text: both are
/// the number nearest to the true one, below 2^53 ns.
fn microseconds(ns: i64) -> f64 {
    ns as f64 / 1000.0
}

/// The duration to write for a slice from `start_ns` to `end_ns`, relative to the file's base, where the plain decimal text
/// would not do. Where the true sum always lies in the middle between two numbers it is rounded to every other one only, and
/// none gives the end: the sum is then the last one before it, and still overlaps nothing.
pub(in crate::export) fn exact_duration(start_ns: i64, end_ns: i64) -> Option<f64> {
    let (start, end) = (microseconds(start_ns), microseconds(end_ns));
    if start + microseconds(end_ns - start_ns) == end {
        return None;
    }
    let difference = end - start;
    let near = [difference, difference.next_down(), difference.next_up()];
    let sum = |duration: &f64| start + duration;
    near.into_iter()
        .find(|duration| sum(duration) == end)
        .or_else(|| {
            near.into_iter()
                .filter(|duration| sum(duration) < end)
                .max_by(f64::total_cmp)
        })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn some_sums_of_decimals_are_off() {
        // 0.1 + 0.2 is not 0.3.
        let duration = exact_duration(100, 300).unwrap();
        assert_eq!(0.1 + duration, 0.3);
        assert_eq!((duration * 1000.0).round(), 200.0);
        assert_eq!(exact_duration(0, 300), None);
    }

    #[test]
    fn what_no_sum_can_be_is_not_passed() {
        // 3105532.3 is the odd multiple of half a unit in the last place of the end, which is odd itself: sums of it with whole
        // units are rounded to even ones.
        let (start, end) = (3_105_532_300, 11_834_905_019);
        let duration = exact_duration(start, end).unwrap();
        assert_eq!(microseconds(start) + duration, microseconds(end).next_down());
        assert!(microseconds(start) + microseconds(end - start) > microseconds(end));
    }

    proptest! {
        #[test]
        fn sums_are_ends(start in 0i64..9_000_000_000_000, length in 0i64..9_000_000_000) {
            let end = start + length;
            let text = match exact_duration(start, end) {
                Some(duration) => format!("{duration}"),
                None => format!("{}.{:03}", length / 1000, length % 1000),
            };
            let parsed: f64 = text.parse().unwrap();
            let start_text = format!("{}.{:03}", start / 1000, start % 1000);
            let sum = start_text.parse::<f64>().unwrap() + parsed;
            let end_text = format!("{}.{:03}", end / 1000, end % 1000);
            let end = end_text.parse::<f64>().unwrap();
            if sum != end {
                prop_assert_eq!(sum, end.next_down());
                prop_assert!(start_text.parse::<f64>().unwrap() + parsed.next_up() > end);
            }
            prop_assert_eq!((parsed * 1000.0).round() as i64, length);
        }
    }
}
