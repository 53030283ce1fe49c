//! The rows of one stream or thread as slices come, a look at a time.
//!
//! Records come nearly in order, but those of different tables up to a second apart, and what encloses others after them. So
//! the slices of the last moments are laid out anew at each look; what is older has its rows, in parts that all timelines
//! share. A slice that begins before those takes back what lies behind its beginning.

use std::cmp::Reverse;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::timeline::lanes::{self, Item, MOST_LANES};
use crate::timeline::slices::Slices;

/// A part that is so many times as long as the one behind it is left alone; shorter ones are joined.
const LONGER: usize = 4;

/// One row, without the slices of the last moments.
#[derive(Debug, Default)]
struct Lane {
    parts: Vec<Arc<Slices>>,
    /// End of the last slice.
    end: Option<i64>,
}

impl Lane {
    fn append(&mut self, items: &[Item]) {
        let Some(last) = items.last() else { return };
        self.end = Some(last.start + last.duration);
        self.parts.push(Arc::new(Slices::of(items)));
        while let [.., before, last] = self.parts.as_slice()
            && before.len() < LONGER * last.len()
        {
            let both = [before, last];
            let items = both
                .iter()
                .flat_map(|part| (0..part.len()).map(|place| part.item(place)));
            let joined = Slices::of(&items.collect::<Vec<Item>>());
            self.parts.truncate(self.parts.len() - 2);
            self.parts.push(Arc::new(joined));
        }
    }

    /// Takes back all slices from one on in the order of slices.
    fn take_back(&mut self, from: Key, back: &mut Vec<Item>) {
        while let Some(last) = self.parts.last() {
            let count = last.len();
            let mut kept = last.first_from(from.0);
            while kept < count && lanes::order(&last.item(kept)) < from {
                kept += 1;
            }
            back.extend((kept..count).map(|place| last.item(place)));
            if kept == count {
                break;
            }
            let items: Vec<Item> = (0..kept).map(|place| last.item(place)).collect();
            self.parts.pop();
            if kept > 0 {
                self.parts.push(Arc::new(Slices::of(&items)));
                break;
            }
        }
        self.end = self.parts.last().map(|last| last.end());
    }

    /// Gives the slice with this key another name; whether it is here.
    fn rename(&mut self, key: Key, name: u32) -> bool {
        let after = self.parts.partition_point(|part| part.begin() <= key.0);
        for part in self.parts[..after].iter_mut().rev() {
            let from = part.first_from(key.0);
            let mut places = (from..part.len()).take_while(|place| part.start(*place) == key.0);
            if let Some(place) = places.find(|place| lanes::order(&part.item(*place)) == key) {
                Arc::make_mut(part).rename(place, name);
                return true;
            }
            // Those that take no time may begin together on both sides.
            if part.begin() < key.0 {
                break;
            }
        }
        false
    }

    fn last(&self) -> Option<Item> {
        let last = self.parts.last()?;
        Some(last.item(last.len() - 1))
    }
}

/// Where a slice comes in the order of slices.
pub(super) type Key = (i64, Reverse<i64>, u32);

/// Slices on the first rows that are free, as [`lanes::lay_out`] puts them.
fn lay(items: &[Item], ends: &mut Vec<Option<i64>>, mut left_out: impl FnMut(Item)) -> Vec<Vec<Item>> {
    let mut rows: Vec<Vec<Item>> = vec![Vec::new(); ends.len()];
    for item in items {
        let free = ends
            .iter()
            .position(|end| end.is_none_or(|end| end <= item.start));
        let lane = match free {
            Some(lane) => lane,
            None if ends.len() < MOST_LANES => {
                ends.push(None);
                rows.push(Vec::new());
                ends.len() - 1
            }
            None => {
                left_out(*item);
                continue;
            }
        };
        rows[lane].push(*item);
        ends[lane] = Some(item.start + item.duration);
    }
    rows
}

/// The slices of one place.
#[derive(Debug, Default)]
pub(super) struct Growing {
    lanes: Vec<Lane>,
    /// The last one that has its row for good.
    last: Option<Key>,
    /// Those behind it, in any order.
    recent: Vec<Item>,
    /// Those that there was no row for.
    left_out: Vec<Item>,
}

impl Growing {
    /// Adds slices.
    pub(super) fn add(&mut self, items: impl IntoIterator<Item = Item>) {
        let before = self.recent.len();
        self.recent.extend(items);
        let first = self.recent[before..].iter().map(lanes::order).min();
        if let Some(first) = first
            && self.last.is_some_and(|last| first < last)
        {
            self.take_back(first);
        }
    }

    fn take_back(&mut self, from: Key) {
        for lane in &mut self.lanes {
            lane.take_back(from, &mut self.recent);
        }
        while self.lanes.last().is_some_and(|lane| lane.parts.is_empty()) {
            self.lanes.pop();
        }
        let (back, left_out) = std::mem::take(&mut self.left_out)
            .into_iter()
            .partition(|item| lanes::order(item) >= from);
        self.left_out = left_out;
        self.recent.extend::<Vec<Item>>(back);
        let last = self.lanes.iter().filter_map(Lane::last);
        let last = last.chain(self.left_out.last().copied());
        self.last = last.map(|item| lanes::order(&item)).max();
    }

    /// Gives slices other names, by where they come in the order of slices: nothing of that order changes. Parts that timelines
    /// share stay as they are; what is made of them from now on has the new names.
    pub(super) fn rename(&mut self, renamed: &[(Key, u32)]) {
        let by_key: FxHashMap<Key, u32> = renamed.iter().copied().collect();
        for item in self.recent.iter_mut().chain(&mut self.left_out) {
            if let Some(name) = by_key.get(&lanes::order(item)) {
                item.name = *name;
            }
        }
        let settled = renamed
            .iter()
            .filter(|(key, _)| self.last.is_some_and(|last| *key <= last));
        for (key, name) in settled {
            let _ = self.lanes.iter_mut().any(|lane| lane.rename(*key, *name));
        }
    }

    /// The rows so far, with some more slices that may still change their place, and how many had none. What begins before
    /// `settled` gets its row for good.
    pub(super) fn rows(&mut self, settled: i64, more: &[Item]) -> (Vec<Arc<Slices>>, u64) {
        lanes::sort(&mut self.recent);
        let count = self.recent.partition_point(|item| item.start < settled);
        let for_good: Vec<Item> = self.recent.drain(..count).collect();
        if let Some(last) = for_good.last() {
            self.last = Some(lanes::order(last));
            let mut ends: Vec<Option<i64>> = self.lanes.iter().map(|lane| lane.end).collect();
            let rows = lay(&for_good, &mut ends, |item| self.left_out.push(item));
            self.lanes.resize_with(rows.len(), Lane::default);
            for (lane, items) in self.lanes.iter_mut().zip(rows) {
                lane.append(&items);
            }
        }
        let mut ends: Vec<Option<i64>> = self.lanes.iter().map(|lane| lane.end).collect();
        let mut left_out = self.left_out.len() as u64;
        let recent = if more.is_empty() {
            lay(&self.recent, &mut ends, |_| left_out += 1)
        } else {
            let mut all = [&self.recent, more].concat();
            lanes::sort(&mut all);
            lay(&all, &mut ends, |_| left_out += 1)
        };
        let none = Lane::default();
        let lanes = self.lanes.iter().chain(std::iter::repeat(&none));
        let rows = recent.into_iter().zip(lanes).map(|(items, lane)| {
            let last = Arc::new(Slices::of(&items));
            Arc::new(Slices::joined(lane.parts.iter().cloned().chain([last])))
        });
        (rows.collect(), left_out)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn rows_at_each_look_are_those_of_laying_out_all_that_came(
            mut all in proptest::collection::vec((0i64..3000, prop_oneof![9 => 0i64..90, 1 => 0i64..1500], 0u32..5), 1..400),
            by_end in any::<bool>(),
            looks in proptest::collection::vec((1usize..80, 0i64..600), 1..20),
        ) {
            if by_end {
                all.sort_by_key(|(start, duration, _)| start + duration);
            }
            let items: Vec<Item> = all.iter().enumerate()
                .map(|(place, (start, duration, name))| Item { start: *start, duration: *duration, name: *name, source: place as u32 })
                .collect();
            let mut growing = Growing::default();
            let mut came = 0;
            for (count, horizon) in looks {
                let now = (came + count).min(items.len());
                growing.add(items[came..now].iter().copied());
                came = now;
                let newest = items[..came].iter().map(|item| item.start + item.duration).max().unwrap();
                let (rows, left_out) = growing.rows(newest - horizon, &[]);
                let (expected, none) = lanes::lay_out(&mut items[..came].to_vec(), |_| false);
                // Beyond the most rows the two may differ in nothing else either.
                prop_assert_eq!(left_out, none);
                prop_assert_eq!(rows.len(), expected.len());
                for (row, expected) in rows.iter().zip(&expected) {
                    let items = |slices: &Slices| -> Vec<Item> { (0..slices.len()).map(|place| slices.item(place)).collect() };
                    prop_assert_eq!(items(row), items(expected));
                }
            }
        }
    }
}
