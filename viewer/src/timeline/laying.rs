//! Rows of slices that do not overlap, of what comes nearly in order: without having all of it in memory first.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::sync::Arc;

use super::lanes::{self, Item, MOST_LANES};
use super::slices::Slices;

/// So many wait for others that begin before them: records come by their ends.
const WAITING: usize = 48;

/// Puts slices into the first row that is free, as [`lanes::lay_out`] does.
#[derive(Debug, Default)]
pub(crate) struct Laying {
    lanes: Vec<Slices>,
    ends: Vec<i64>,
    left_out: u64,
    /// In order.
    waiting: VecDeque<Item>,
    /// The last one that has a row.
    last: Option<(i64, Reverse<i64>, u32)>,
    /// In order: known from the beginning, and put between the others.
    few: std::vec::IntoIter<Item>,
    /// Those that came when later ones had their rows.
    late: Vec<Item>,
}

impl Laying {
    /// With some slices that are known from the beginning.
    pub(crate) fn new(mut few: Vec<Item>) -> Self {
        lanes::sort(&mut few);
        Self {
            few: few.into_iter(),
            ..Self::default()
        }
    }

    /// Adds a slice.
    #[inline]
    pub(crate) fn add(&mut self, item: Item) {
        let key = lanes::order(&item);
        let is_next = self.waiting.back().is_none_or(|last| lanes::order(last) <= key);
        if is_next && self.last.is_none_or(|last| last <= key) {
            self.waiting.push_back(item);
        } else {
            self.insert(item);
        }
        if self.waiting.len() > WAITING
            && let Some(first) = self.waiting.pop_front()
        {
            self.emit(first);
        }
    }

    fn insert(&mut self, item: Item) {
        let key = lanes::order(&item);
        if self.last.is_some_and(|last| key < last) {
            self.late.push(item);
            return;
        }
        let place = self.waiting.partition_point(|other| lanes::order(other) <= key);
        self.waiting.insert(place, item);
    }

    #[inline]
    fn emit(&mut self, item: Item) {
        let key = lanes::order(&item);
        while let Some(few) = self.few.as_slice().first().filter(|few| lanes::order(few) <= key) {
            let few = *few;
            self.few.next();
            self.lay(few);
        }
        self.lay(item);
        self.last = Some(key);
    }

    #[inline]
    fn lay(&mut self, item: Item) {
        let lane = match self.ends.iter().position(|end| *end <= item.start) {
            Some(lane) => lane,
            None if self.lanes.len() < MOST_LANES => {
                self.lanes.push(Slices::default());
                self.ends.push(i64::MIN);
                self.lanes.len() - 1
            }
            None => {
                self.left_out += 1;
                return;
            }
        };
        self.lanes[lane].push(item.start, item.duration, item.name, item.source);
        self.ends[lane] = item.start + item.duration;
    }

    /// The rows, and how many slices had none; nothing where that depends on the order of slices that are gone.
    pub(crate) fn finish(mut self) -> Option<(Vec<Arc<Slices>>, u64)> {
        while let Some(item) = self.waiting.pop_front() {
            self.emit(item);
        }
        while let Some(item) = self.few.next() {
            self.lay(item);
        }
        if self.left_out > 0 && !self.late.is_empty() {
            return None;
        }
        if !self.late.is_empty() {
            let mut items = std::mem::take(&mut self.late);
            for lane in &self.lanes {
                items.extend((0..lane.len()).map(|place| lane.item(place)));
            }
            self.lanes = Vec::new();
            let (lanes, left_out) = lanes::lay_out(&mut items, |_| false);
            return Some((lanes.into_iter().map(Arc::new).collect(), left_out));
        }
        for lane in &mut self.lanes {
            lane.shrink();
        }
        Some((self.lanes.into_iter().map(Arc::new).collect(), self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn rows_are_those_of_laying_out_all_at_once(
            mut all in proptest::collection::vec((0i64..3000, 0i64..90, 0u32..5), 1..400),
            few in proptest::collection::vec((0i64..3000, 0i64..90), 0..20),
            order in 0..3u8,
        ) {
            match order {
                0 => {}
                1 => all.sort_by_key(|(start, duration, _)| start + duration),
                _ => all.sort(),
            }
            let item = |source: usize, start, duration, name| Item { start, duration, name, source: source as u32 };
            let many = all.iter().enumerate().map(|(place, (start, duration, name))| item(place, *start, *duration, *name));
            let few: Vec<Item> = (few.iter().enumerate())
                .map(|(place, (start, duration))| item(1000 + place, *start, *duration, 7))
                .collect();
            let mut laying = Laying::new(few.clone());
            many.clone().for_each(|item| laying.add(item));
            let (lanes, left_out) = laying.finish().expect("none was left out");
            let mut together: Vec<Item> = many.chain(few).collect();
            let (expected, none) = lanes::lay_out(&mut together, |_| false);
            prop_assert_eq!((left_out, none), (0, 0));
            prop_assert_eq!(lanes.len(), expected.len());
            for (lane, expected) in lanes.iter().zip(&expected) {
                prop_assert_eq!(&**lane, expected);
            }
        }
    }
}
