//! Which lane of its row a slice goes to, so that no two slices of a lane overlap.
//!
//! Perfetto drops or displaces a slice that overlaps another on the same row by a single nanosecond. Host rows may nest
//! (a call within a range); operations of a stream may not, since nesting would say that one ran inside the other.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Lanes in which slices nest. What overlaps so many others gets a lane without nesting: those are found at once.
const NESTING_LANES: usize = 32;

/// A row's lanes while slices are placed in order of their starts (of equal starts the longer first).
pub(crate) struct Lanes {
    nested: bool,
    /// By nesting lane, the ends of the slices that are open, the innermost last.
    open: Vec<Vec<i64>>,
    /// Flat lanes with a slice in them, by its end.
    busy: BinaryHeap<Reverse<(i64, usize)>>,
    /// Flat lanes without one.
    free: BinaryHeap<Reverse<usize>>,
    count: usize,
}

impl Lanes {
    pub(crate) fn new(nested: bool) -> Self {
        Self {
            nested,
            open: Vec::new(),
            busy: BinaryHeap::new(),
            free: BinaryHeap::new(),
            count: 0,
        }
    }

    /// How many lanes there are.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// The lane for the next slice: the first in which it is disjoint from the others or, where that is allowed, inside one.
    pub(crate) fn place(&mut self, start_ns: i64, end_ns: i64) -> usize {
        if self.nested {
            for (lane, open) in self.open.iter_mut().enumerate() {
                while open.last().is_some_and(|&end| end <= start_ns) {
                    open.pop();
                }
                if open.last().is_none_or(|&end| end_ns <= end) {
                    open.push(end_ns);
                    return lane;
                }
            }
            if self.open.len() < NESTING_LANES {
                self.open.push(vec![end_ns]);
                self.count = self.open.len();
                return self.count - 1;
            }
        }
        while let Some(&Reverse((end, lane))) = self.busy.peek() {
            if end > start_ns {
                break;
            }
            self.busy.pop();
            self.free.push(Reverse(lane));
        }
        let lane = self.free.pop().map_or(self.count, |Reverse(lane)| lane);
        self.count = self.count.max(lane + 1);
        self.busy.push(Reverse((end_ns, lane)));
        lane
    }
}

#[cfg(test)]
mod tests {
    use super::Lanes;

    fn lanes(nested: bool, slices: &[(i64, i64)]) -> Vec<usize> {
        let mut lanes = Lanes::new(nested);
        slices
            .iter()
            .map(|&(start, end)| lanes.place(start, end))
            .collect()
    }

    #[test]
    fn touching_slices_share_a_lane_and_overlapping_ones_do_not() {
        assert_eq!(
            lanes(false, &[(0, 10), (10, 20), (19, 30), (20, 25)]),
            [0, 0, 1, 0]
        );
        // Inside another: on a stream that is an overlap like any other.
        assert_eq!(lanes(false, &[(0, 10), (2, 3), (4, 5), (4, 12)]), [0, 1, 1, 2]);
    }

    #[test]
    fn many_at_once_are_placed_quickly_and_apart() {
        for nested in [false, true] {
            let all: Vec<(i64, i64)> = (0..100_000).map(|place| (place, place + 50_000)).collect();
            let placed = lanes(nested, &all);
            // The one that begins as another ends takes its lane.
            assert_eq!(placed.iter().max(), Some(&49_999));
            assert!((50_000..100_000).all(|place| placed[place] == placed[place - 50_000]));
        }
    }

    #[test]
    fn host_slices_nest() {
        assert_eq!(
            lanes(true, &[(0, 10), (2, 6), (2, 3), (6, 10), (7, 11)]),
            [0, 0, 0, 0, 1]
        );
        // Of equal length: one inside the other. Of no length: inside what is open.
        assert_eq!(lanes(true, &[(0, 10), (0, 10), (5, 5), (10, 10)]), [0, 0, 0, 0]);
    }
}
