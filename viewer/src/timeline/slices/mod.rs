//! The slices of one row: columns sorted by start, without overlaps, that only grow.
//!
//! Beside them lie sums of busy time at every sixteenth slice, and the longest slice of every 16, 256, 4096, ... With both a
//! stretch of any length is summed up by looking at a few dozen slices.
//!
//! Of a recording that grows a row is made of several such parts, which it shares with the rows before it.

mod making;
mod summary;

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use super::lanes::Item;
pub(crate) use summary::Summary;

/// Slices below one node of the forest, and between two sums.
const FAN_OUT: usize = 16;
/// Stands for a duration that is in `long`.
const LONG: u32 = u32::MAX;

/// A duration as the column has it.
#[inline]
fn narrow(duration: i64) -> u32 {
    u32::try_from(duration).unwrap_or(LONG)
}

/// Slices that do not overlap, by start.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Slices {
    starts: Vec<i64>,
    durations: Vec<u32>,
    /// Durations from 4.29 s on, by place.
    long: Vec<(u32, i64)>,
    names: Vec<u32>,
    sources: Vec<u32>,
    /// Places of those that had not ended.
    unfinished: Vec<u32>,
    /// At `k`: the durations of the first `16 k` slices.
    sums: Vec<i64>,
    /// At `[level][k]`: the place of the longest of slices `16^(level+1) k` to `16^(level+1) (k+1)`, the first of equal ones.
    longest: Vec<Vec<u32>>,
    /// The parts of a row that has no slices of its own: each behind the one before it, with the place of its first slice.
    parts: Vec<(usize, Arc<Slices>)>,
    /// Slices of all parts.
    joined: usize,
    /// What bins of it have, once it was asked for.
    summary: OnceLock<Option<Summary>>,
}

impl Slices {
    /// The slices of some parts, one behind the other.
    pub(crate) fn joined(parts: impl IntoIterator<Item = Arc<Self>>) -> Self {
        let mut slices = Self::default();
        for part in parts.into_iter().filter(|part| !part.is_empty()) {
            let count = part.len();
            slices.parts.push((slices.joined, part));
            slices.joined += count;
        }
        slices
    }

    /// The part that a place is in, and the place there.
    #[cold]
    fn part(&self, place: usize) -> (&Self, usize) {
        let after = self.parts.partition_point(|(first, _)| *first <= place);
        let (first, part) = &self.parts[after - 1];
        (part, place - first)
    }

    /// The parts that some places are in, with the places there and the place of each part's first slice.
    fn parts_of(&self, places: Range<usize>) -> impl Iterator<Item = (usize, &Self, Range<usize>)> {
        self.parts.iter().filter_map(move |(first, part)| {
            let from = places.start.max(*first) - first;
            let to = places.end.min(first + part.len()).checked_sub(*first)?;
            (from < to).then_some((*first, &**part, from..to))
        })
    }

    /// The rows without parts that some places are in, each with the place of its first slice and the places there: who goes
    /// through many looks for none of them.
    pub(crate) fn plain_parts(&self, places: Range<usize>) -> Vec<(usize, &Self, Range<usize>)> {
        if self.joined == 0 {
            return vec![(0, self, places)];
        }
        self.parts_of(places).collect()
    }

    /// How many.
    #[must_use]
    pub fn len(&self) -> usize {
        self.starts.len() + self.joined
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes in memory.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let forest: usize = self.longest.iter().map(Vec::capacity).sum();
        self.starts.capacity() * 8
            + (self.durations.capacity() + self.names.capacity() + self.sources.capacity() + forest) * 4
            + (self.long.capacity() * 2 + self.sums.capacity()) * 8
            + self.parts.iter().map(|(_, part)| part.bytes()).sum::<usize>()
            + self
                .summary
                .get()
                .into_iter()
                .flatten()
                .map(Summary::bytes)
                .sum::<usize>()
    }

    /// Start of the slice at a place.
    #[inline]
    #[must_use]
    pub fn start(&self, place: usize) -> i64 {
        match self.starts.get(place) {
            Some(start) => *start,
            None => {
                let (part, place) = self.part(place);
                part.start(place)
            }
        }
    }

    /// End minus start.
    #[inline]
    #[must_use]
    pub fn duration(&self, place: usize) -> i64 {
        match self.durations.get(place) {
            Some(&LONG) => self.long_duration(place),
            Some(narrow) => i64::from(*narrow),
            None => {
                let (part, place) = self.part(place);
                part.duration(place)
            }
        }
    }

    #[cold]
    fn long_duration(&self, place: usize) -> i64 {
        let found = self.long.binary_search_by_key(&place, |(at, _)| *at as usize);
        found.map_or(i64::from(LONG), |at| self.long[at].1)
    }

    /// End of the slice at a place.
    #[inline]
    #[must_use]
    pub fn end_of(&self, place: usize) -> i64 {
        self.start(place) + self.duration(place)
    }

    /// Its name's number.
    #[inline]
    #[must_use]
    pub fn name(&self, place: usize) -> u32 {
        match self.names.get(place) {
            Some(name) => *name,
            None => {
                let (part, place) = self.part(place);
                part.name(place)
            }
        }
    }

    /// The slice at a place as it was before it had a row.
    pub(crate) fn item(&self, place: usize) -> Item {
        Item {
            start: self.start(place),
            duration: self.duration(place),
            name: self.name(place),
            source: self.source(place),
        }
    }

    /// All names' numbers.
    pub(crate) fn names(&self) -> impl Iterator<Item = &u32> {
        let parts = self.parts.iter().flat_map(|(_, part)| &part.names);
        self.names.iter().chain(parts)
    }

    /// Its table and row.
    #[inline]
    #[must_use]
    pub(crate) fn source(&self, place: usize) -> u32 {
        match self.sources.get(place) {
            Some(source) => *source,
            None => {
                let (part, place) = self.part(place);
                part.source(place)
            }
        }
    }

    /// Whether it had not ended when the recording did.
    #[inline]
    #[must_use]
    pub fn is_unfinished(&self, place: usize) -> bool {
        // A row of parts has none: what had not ended is not known while a recording grows.
        !self.unfinished.is_empty() && self.unfinished.iter().any(|at| *at as usize == place)
    }

    /// Start of the first; 0 without any.
    #[must_use]
    pub fn begin(&self) -> i64 {
        if self.is_empty() { 0 } else { self.start(0) }
    }

    /// End of the last; 0 without any.
    #[must_use]
    pub fn end(&self) -> i64 {
        self.len().checked_sub(1).map_or(0, |last| self.end_of(last))
    }

    /// The place of the first slice that starts at `time` or later.
    #[inline]
    #[must_use]
    pub fn first_from(&self, time: i64) -> usize {
        if self.joined > 0 {
            let after = self.parts.partition_point(|(_, part)| part.begin() < time);
            let before = after.checked_sub(1).map(|last| &self.parts[last]);
            return before.map_or(0, |(first, part)| first + part.first_from(time));
        }
        self.starts.partition_point(|start| *start < time)
    }

    /// The same at `from` or later, where it is likely to be `guess` places on: cost is the logarithm of how wrong that is.
    #[inline]
    pub(crate) fn next_near(&self, from: usize, guess: usize, time: i64) -> usize {
        if self.joined > 0 {
            return self.first_from(time).max(from);
        }
        let near = (from + guess).min(self.starts.len());
        if near == from || self.starts[near - 1] < time {
            return self.next_from(near, time);
        }
        // It is before: `high` is at that time or later.
        let (mut high, mut step) = (near - 1, 1);
        while high - from >= step && self.starts[high - step] >= time {
            high -= step;
            step *= 2;
        }
        let low = high.saturating_sub(step).max(from);
        low + self.starts[low..high].partition_point(|start| *start < time)
    }

    /// The same at `from` or later, where it is likely to be near.
    #[inline]
    pub(crate) fn next_from(&self, from: usize, time: i64) -> usize {
        if self.joined > 0 {
            return self.first_from(time).max(from);
        }
        let mut step = 1;
        let mut low = from;
        // Galloping: cost is the logarithm of the distance, not of the row.
        while low + step <= self.starts.len() && self.starts[low + step - 1] < time {
            low += step;
            step *= 2;
        }
        let high = (low + step).min(self.starts.len());
        low + self.starts[low..high].partition_point(|start| *start < time)
    }

    /// The places of the slices with a part in `[from, to)`; those without a length count where they start.
    #[must_use]
    pub fn within(&self, from: i64, to: i64) -> Range<usize> {
        let first = self.first_from(from);
        let reaches_in = first > 0 && self.end_of(first - 1) > from;
        let after = self.first_from(to).max(first);
        if to <= from {
            return first..first;
        }
        first - usize::from(reaches_in)..after
    }

    /// Sum of the durations of the slices at `from..to`.
    #[inline]
    #[must_use]
    pub fn sum(&self, from: usize, to: usize) -> i64 {
        // Near ones directly: the sums are elsewhere in memory.
        if to - from <= FAN_OUT {
            return (from..to).map(|place| self.duration(place)).sum();
        }
        if self.joined > 0 {
            let parts = self.parts_of(from..to);
            return parts
                .map(|(_, part, places)| part.sum(places.start, places.end))
                .sum();
        }
        let (first, last) = (from.div_ceil(FAN_OUT), to / FAN_OUT);
        let between = self.sum_before(last) - self.sum_before(first);
        let head: i64 = (from..first * FAN_OUT).map(|place| self.duration(place)).sum();
        let tail: i64 = (last * FAN_OUT..to).map(|place| self.duration(place)).sum();
        head + between + tail
    }

    /// Sum of the durations of the first `16 block` slices.
    #[inline]
    fn sum_before(&self, block: usize) -> i64 {
        match self.sums.get(block) {
            Some(sum) => *sum,
            // The last block is only summed up when the next begins.
            None => {
                let known = self.sums.len().saturating_sub(1);
                let before = self.sums.last().copied().unwrap_or(0);
                before
                    + (known * FAN_OUT..block * FAN_OUT)
                        .map(|place| self.duration(place))
                        .sum::<i64>()
            }
        }
    }

    /// Nanoseconds of `[from, to)` that slices cover.
    #[must_use]
    pub fn busy(&self, from: i64, to: i64) -> i64 {
        let within = self.within(from, to);
        if within.is_empty() {
            return 0;
        }
        let (first, last) = (within.start, within.end - 1);
        let before = (from - self.start(first)).max(0);
        let after = (self.end_of(last) - to).max(0);
        self.sum(first, last + 1) - before - after
    }

    /// The place of the longest of the slices at `from..to`, the first of equal ones; `from < to`.
    #[must_use]
    pub fn longest(&self, from: usize, to: usize) -> usize {
        if self.joined > 0 {
            let of_parts = self.parts_of(from..to);
            let of_parts =
                of_parts.map(|(first, part, places)| first + part.longest(places.start, places.end));
            let longer = |best, next| {
                if self.duration(next) > self.duration(best) {
                    next
                } else {
                    best
                }
            };
            return of_parts.reduce(longer).unwrap_or(from);
        }
        let mut best = from;
        let mut best_duration = self.duration(from);
        let mut at = from + 1;
        let mut look = |place: usize| {
            let duration = self.duration(place);
            if duration > best_duration {
                (best, best_duration) = (place, duration);
            }
        };
        while at < to {
            // The largest node that begins here and ends in time.
            let mut size = 1;
            let mut node = None;
            for (level, nodes) in self.longest.iter().enumerate() {
                let larger = size * FAN_OUT;
                if !at.is_multiple_of(larger) || at + larger > to {
                    break;
                }
                let Some(place) = nodes.get(at / larger) else {
                    break;
                };
                (size, node) = (larger, Some((level, *place)));
            }
            look(node.map_or(at, |(_, place)| place as usize));
            at += size;
        }
        best
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    pub(crate) fn slices(of: &[(i64, i64, u32)]) -> Slices {
        let mut slices = Slices::default();
        for (place, (start, duration, name)) in of.iter().enumerate() {
            slices.push(*start, *duration, *name, place as u32);
        }
        slices
    }

    #[test]
    fn a_stretch_has_the_slices_that_reach_into_it() {
        let slices = slices(&[(10, 10, 0), (20, 0, 1), (20, 5, 2), (40, 10, 3)]);
        assert_eq!(slices.within(0, 10), 0..0);
        assert_eq!(slices.within(0, 11), 0..1);
        assert_eq!(slices.within(19, 20), 0..1);
        assert_eq!(slices.within(20, 21), 1..3);
        assert_eq!(slices.within(24, 40), 2..3);
        assert_eq!(slices.within(25, 41), 3..4);
        assert_eq!(slices.within(50, 60), 4..4);
        assert_eq!(slices.within(45, 45), 4..4);
        assert_eq!(slices.busy(15, 45), 5 + 5 + 5);
        assert_eq!(slices.busy(0, 100), 25);
        assert_eq!(slices.busy(42, 44), 2);
        assert_eq!(slices.busy(26, 39), 0);
        assert_eq!(slices.longest(0, 4), 0);
        assert_eq!(slices.longest(1, 4), 3);
        assert_eq!((slices.begin(), slices.end()), (10, 50));
    }

    #[test]
    fn slices_of_hours_keep_their_length() {
        let hour = 3_600_000_000_000;
        let slices = slices(&[
            (0, 5, 0),
            (10, hour, 1),
            (hour + 10, i64::from(u32::MAX), 2),
            (2 * hour, 7, 3),
        ]);
        assert_eq!(slices.duration(1), hour);
        assert_eq!(slices.duration(2), i64::from(u32::MAX));
        assert_eq!(slices.end(), 2 * hour + 7);
        assert_eq!(slices.sum(0, 4), 12 + hour + i64::from(u32::MAX));
        assert_eq!(slices.longest(0, 4), 1);
    }

    proptest! {
        #[test]
        fn sums_and_longest_are_those_of_looking_at_each(
            all in proptest::collection::vec((0i64..20, prop_oneof![40 => 0i64..50, 1 => (1i64 << 32) - 3..(1 << 32) + 3]), 1..1200),
            ends in (0usize..1200, 0usize..1200),
            guess in 0usize..1300,
        ) {
            let mut slices = Slices::default();
            let mut now = 0;
            for (gap, duration) in &all {
                slices.push(now + gap, *duration, 0, u32::try_from(slices.len()).unwrap());
                now += gap + duration;
            }
            let (a, b) = (ends.0 % all.len(), ends.1 % all.len());
            let (from, to) = (a.min(b), a.max(b) + 1);
            let durations = |range: Range<usize>| range.map(|place| all[place].1);
            prop_assert_eq!(slices.sum(from, to), durations(from..to).sum::<i64>());
            prop_assert_eq!(slices.sum(from, from), 0);
            let most = durations(from..to).max().unwrap();
            let first = (from..to).find(|place| all[*place].1 == most).unwrap();
            prop_assert_eq!(slices.longest(from, to), first);
            let mut items: Vec<Item> = (0u32..)
                .zip(0..slices.len())
                .map(|(source, place)| Item { start: slices.start(place), duration: slices.duration(place), name: 0, source })
                .collect();
            prop_assert_eq!(&Slices::of(&items), &slices);
            let unfinished = |source| source as usize == from || source as usize + 1 == items.len();
            let apart = Slices::of_apart(&items, unfinished);
            prop_assert_eq!(apart.as_ref().map(Slices::len), Some(items.len()));
            let apart = apart.unwrap();
            for (place, item) in items.iter().enumerate() {
                prop_assert_eq!(&apart.item(place), item);
                prop_assert_eq!(apart.is_unfinished(place), unfinished(item.source));
            }
            items[to - 1].duration += 1;
            let next = items.get(to).map(|next| next.start);
            let touches = next.is_some_and(|start| start < items[to - 1].start + items[to - 1].duration);
            prop_assert_eq!(Slices::of_apart(&items, |_| false).is_none(), touches);
            items[to - 1].duration -= 1;
            let time = slices.start(from) + 1;
            prop_assert_eq!(slices.next_from(0, time), slices.first_from(time));
            prop_assert_eq!(slices.next_from(from, time), slices.first_from(time));
            let later = slices.start(to - 1);
            prop_assert_eq!(slices.next_near(from, guess, later), slices.first_from(later).max(from));
            prop_assert_eq!(slices.next_near(from, guess, time), slices.first_from(time));
            // So does a row that is made of parts.
            let cut = guess % items.len();
            let half = cut / 2;
            let parts = [&items[..half], &items[half..half], &items[half..cut], &items[cut..]];
            let joined = Slices::joined(parts.map(|items| Arc::new(Slices::of(items))));
            prop_assert_eq!(joined.len(), slices.len());
            prop_assert_eq!((joined.begin(), joined.end()), (slices.begin(), slices.end()));
            prop_assert!((0..joined.len()).all(|place| joined.item(place) == slices.item(place)));
            prop_assert_eq!(joined.names().count(), slices.len());
            prop_assert_eq!(joined.sum(from, to), slices.sum(from, to));
            prop_assert_eq!(joined.longest(from, to), slices.longest(from, to));
            for time in [time - 1, time, later] {
                prop_assert_eq!(joined.first_from(time), slices.first_from(time));
                prop_assert_eq!(joined.next_from(from, time), slices.next_from(from, time));
                prop_assert_eq!(joined.next_near(from, guess, time), slices.next_near(from, guess, time));
                prop_assert_eq!(joined.within(time - 40, time + 9), slices.within(time - 40, time + 9));
                prop_assert_eq!(joined.busy(time - 40, time + 9), slices.busy(time - 40, time + 9));
            }
        }
    }
}
