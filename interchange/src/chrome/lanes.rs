//! Which lane of its row a slice goes to, so that no two slices of a lane overlap.
//!
//! Perfetto drops or displaces a slice that overlaps another on the same row by a single nanosecond. Host rows may nest
//! (a call within a range); operations of a stream may not, since nesting would say that one ran inside the other.

/// The rows' lanes while slices are placed in order of their starts (of equal starts the longer first).
pub struct Lanes {
    nested: bool,
    /// By lane, the ends of the slices that are open, the innermost last.
    open: Vec<Vec<i64>>,
}

impl Lanes {
    pub fn new(nested: bool) -> Self {
        Self {
            nested,
            open: Vec::new(),
        }
    }

    /// The lane for the next slice: the first in which it is disjoint from the others or, where that is allowed, inside one.
    pub fn place(&mut self, start_ns: i64, end_ns: i64) -> usize {
        for (lane, open) in self.open.iter_mut().enumerate() {
            while open.last().is_some_and(|&end| end <= start_ns) {
                open.pop();
            }
            let fits = match open.last() {
                None => true,
                Some(&end) => self.nested && end_ns <= end,
            };
            if fits {
                open.push(end_ns);
                return lane;
            }
        }
        self.open.push(vec![end_ns]);
        self.open.len() - 1
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
    fn host_slices_nest() {
        assert_eq!(
            lanes(true, &[(0, 10), (2, 6), (2, 3), (6, 10), (7, 11)]),
            [0, 0, 0, 0, 1]
        );
        // Of equal length: one inside the other. Of no length: inside what is open.
        assert_eq!(lanes(true, &[(0, 10), (0, 10), (5, 5), (10, 10)]), [0, 0, 0, 0]);
    }
}
