//! Time that intervals cover.

/// The time within `from` to `to` that the intervals cover together; they are put in order.
pub(super) fn covered(intervals: &mut [(i64, i64)], from: i64, to: i64) -> i64 {
    intervals.sort_unstable();
    let (mut sum, mut until) = (0, from);
    for &mut (start, end) in intervals {
        let (start, end) = (start.max(until), end.min(to));
        if end > start {
            sum += end - start;
            until = end;
        }
    }
    sum
}

/// The time within `from` to `to` that the first cover and the second do not; both are put in order.
pub(super) fn only_first(first: &mut [(i64, i64)], second: &mut [(i64, i64)], from: i64, to: i64) -> i64 {
    let mut both: Vec<(i64, i64)> = first.iter().chain(second.iter()).copied().collect();
    covered(&mut both, from, to) - covered(second, from, to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn covered_by_hand() {
        let mut intervals = [(50, 60), (0, 10), (5, 20), (58, 200)];
        assert_eq!(covered(&mut intervals, 0, 100), 20 + 50);
        assert_eq!(covered(&mut intervals, 8, 55), 12 + 5);
        assert_eq!(covered(&mut [], 0, 100), 0);
        assert_eq!(
            only_first(&mut [(0, 30), (40, 50)], &mut [(10, 45)], 0, 100),
            10 + 5
        );
    }
}
