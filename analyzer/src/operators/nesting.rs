//! How spans of a host thread nest: operators, Python functions, calls.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use gputrace_trace::{DurationNs, TimeNs, near_sort};

use crate::intervals::is_possible;

/// No place: outside of all spans.
pub(crate) const NONE: u32 = u32::MAX;

/// Spans of host threads as a forest. A *place* is a span's index in pre-order: by thread and start, parents before children.
///
/// Of two spans that begin together the longer holds the other, of equal ones the one with the smaller number, and then the first in
/// the table. One that outlives what
/// holds it is cut at its end. Spans with impossible times are left out.
pub(crate) struct Nesting<'a> {
    threads: &'a [u32],
    starts: &'a [TimeNs],
    /// By place: the row.
    rows: Vec<u32>,
    /// By place: the end, cut.
    ends: Vec<i64>,
    /// By place: what holds it, or [`NONE`].
    parents: Vec<u32>,
}

impl<'a> Nesting<'a> {
    /// Of a table's columns; `numbers` counts the spans as they begin, where the table knows that.
    pub(crate) fn new(
        threads: &'a [u32],
        starts: &'a [TimeNs],
        durations: &'a [DurationNs],
        numbers: &[Option<u32>],
    ) -> Self {
        let number = |row: u32| numbers.get(row as usize).copied().flatten();
        let end = |row: u32| starts[row as usize].0.saturating_add(durations[row as usize].0);
        // Each thread's spans come nearly in order, whatever is between them.
        let mut of_thread: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for row in 0..u32::try_from(starts.len()).unwrap_or(NONE) {
            if is_possible(starts[row as usize].0, end(row)) {
                of_thread.entry(threads[row as usize]).or_default().push(row);
            }
        }
        let mut rows: Vec<u32> = Vec::with_capacity(starts.len());
        for mut of_one in of_thread.into_values() {
            let start = |row: &u32| starts[*row as usize].0;
            near_sort::sort(&mut of_one, start, |row| {
                (start(row), Reverse(end(*row)), number(*row), *row)
            });
            rows.append(&mut of_one);
        }
        let thread_and_start = |row: &u32| (threads[*row as usize], starts[*row as usize].0);
        let mut all = Self {
            threads,
            starts,
            ends: Vec::with_capacity(rows.len()),
            parents: Vec::with_capacity(rows.len()),
            rows,
        };
        let mut open = Vec::new();
        for place in 0..all.rows.len() {
            let (row, place) = (all.rows[place], u32::try_from(place).unwrap_or(NONE));
            all.close(&mut open, thread_and_start(&row));
            let parent = open.last().copied().unwrap_or(NONE);
            let most = if parent == NONE {
                i64::MAX
            } else {
                all.ends[parent as usize]
            };
            all.parents.push(parent);
            all.ends.push(end(row).min(most));
            open.push(place);
        }
        all
    }

    /// Takes off what is over at a moment of a thread.
    fn close(&self, open: &mut Vec<u32>, (thread, time): (u32, i64)) {
        while let Some(last) = open.last()
            && (self.thread(*last) != thread || self.end(*last) <= time)
        {
            open.pop();
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// All places.
    pub(crate) fn places(&self) -> std::ops::Range<u32> {
        0..u32::try_from(self.rows.len()).unwrap_or(NONE)
    }

    /// Its row in the table.
    pub(crate) fn row(&self, place: u32) -> usize {
        self.rows[place as usize] as usize
    }

    pub(crate) fn thread(&self, place: u32) -> u32 {
        self.threads[self.row(place)]
    }

    pub(crate) fn start(&self, place: u32) -> i64 {
        self.starts[self.row(place)].0
    }

    pub(crate) fn end(&self, place: u32) -> i64 {
        self.ends[place as usize]
    }

    /// What holds it.
    pub(crate) fn parent(&self, place: u32) -> Option<u32> {
        Some(self.parents[place as usize]).filter(|parent| *parent != NONE)
    }

    /// The innermost span around each moment of a thread, `start <= moment < end`, or [`NONE`]. The moments come sorted.
    pub(crate) fn around(&self, moments: impl Iterator<Item = (u32, i64)>) -> Vec<u32> {
        let mut open: Vec<u32> = Vec::new();
        let mut next = self.places();
        let mut found = Vec::with_capacity(moments.size_hint().0);
        for moment in moments {
            while next.start < next.end && (self.thread(next.start), self.start(next.start)) <= moment {
                self.close(&mut open, (self.thread(next.start), self.start(next.start)));
                open.push(next.start);
                next.start += 1;
            }
            self.close(&mut open, moment);
            found.push(open.last().copied().unwrap_or(NONE));
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn times(spans: &[(u32, i64, i64)]) -> (Vec<u32>, Vec<TimeNs>, Vec<DurationNs>) {
        (
            spans.iter().map(|span| span.0).collect(),
            spans.iter().map(|span| TimeNs(span.1)).collect(),
            spans.iter().map(|span| DurationNs(span.2)).collect(),
        )
    }

    #[test]
    fn the_longer_holds_the_shorter_and_what_outlives_its_holder_is_cut() {
        // Thread 1: 0..100 holds 0..40, which holds 10..60 (cut at 40) and nothing of 40..50; 50..50 holds nothing.
        let (threads, starts, durations) = times(&[
            (1, 0, 40),
            (1, 0, 100),
            (1, 10, 50),
            (1, 40, 10),
            (1, 50, 0),
            (2, 5, 5),
        ]);
        let nesting = Nesting::new(&threads, &starts, &durations, &[]);
        let rows: Vec<usize> = nesting.places().map(|place| nesting.row(place)).collect();
        assert_eq!(rows, [1, 0, 2, 3, 4, 5]);
        let parents: Vec<Option<u32>> = nesting.places().map(|place| nesting.parent(place)).collect();
        assert_eq!(parents, [None, Some(0), Some(1), Some(0), Some(0), None]);
        assert_eq!(nesting.end(2), 40);
        let moments = [
            (1, -1),
            (1, 0),
            (1, 10),
            (1, 39),
            (1, 40),
            (1, 50),
            (1, 100),
            (2, 5),
            (2, 10),
            (3, 0),
        ];
        let found = nesting.around(moments.into_iter());
        assert_eq!(found, [NONE, 1, 2, 2, 3, 0, NONE, 5, NONE, NONE]);
    }

    proptest! {
        #[test]
        fn the_innermost_is_the_last_to_begin_of_those_around(
            spans in proptest::collection::vec((0u32..2, 0i64..40, 0i64..30), 0..30),
            mut moments in proptest::collection::vec((0u32..3, -2i64..80), 0..30),
        ) {
            moments.sort_unstable();
            let (threads, starts, durations) = times(&spans);
            let nesting = Nesting::new(&threads, &starts, &durations, &[]);
            let found = nesting.around(moments.iter().copied());
            for (&(thread, time), found) in moments.iter().zip(found) {
                let mut around = nesting.places().filter(|place| {
                    nesting.thread(*place) == thread && nesting.start(*place) <= time && time < nesting.end(*place)
                });
                prop_assert_eq!(around.next_back().unwrap_or(NONE), found);
            }
            for place in nesting.places() {
                if let Some(parent) = nesting.parent(place) {
                    prop_assert!(parent < place && nesting.thread(parent) == nesting.thread(place));
                    prop_assert!(nesting.start(parent) <= nesting.start(place) && nesting.end(place) <= nesting.end(parent));
                }
            }
        }
    }
}
