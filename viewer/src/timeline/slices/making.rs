//! Making a row: from sorted items at once, or slice by slice.

use std::ops::Range;

use super::super::lanes::Item;
use super::{FAN_OUT, LONG, Slices, narrow};

/// Slices that are made at a time: whole blocks, and their items stay near.
const CHUNK: usize = 64 * FAN_OUT;

impl Slices {
    /// The slices of items that are sorted and do not overlap.
    pub(crate) fn of(items: &[Item]) -> Self {
        let mut slices = Self::with_room(items.len());
        for chunk in items.chunks(CHUNK) {
            slices.append(chunk);
        }
        slices
    }

    /// The slices of items that are sorted, if none overlaps another. `is_unfinished` tells of a source whether its slice had
    /// not ended.
    pub(crate) fn of_apart(items: &[Item], is_unfinished: impl Fn(u32) -> bool) -> Option<Self> {
        let mut slices = Self::default();
        let mut end = i64::MIN;
        // All that is done with an item is done while it is near: reading them from memory is what takes time.
        for chunk in items.chunks(CHUNK) {
            for item in chunk {
                if item.start < end {
                    return None;
                }
                end = item.start + item.duration;
            }
            let place = slices.starts.len();
            if place == 0 {
                slices = Self::with_room(items.len());
            }
            slices.append(chunk);
            if chunk.iter().any(|item| is_unfinished(item.source)) {
                let places = (place..)
                    .zip(chunk)
                    .filter(|(_, item)| is_unfinished(item.source));
                places.for_each(|(place, _)| slices.mark_unfinished(place));
            }
        }
        Some(slices)
    }

    fn with_room(count: usize) -> Self {
        Self {
            starts: Vec::with_capacity(count),
            durations: Vec::with_capacity(count),
            names: Vec::with_capacity(count),
            sources: Vec::with_capacity(count),
            sums: Vec::with_capacity(count / FAN_OUT + 1),
            ..Self::default()
        }
    }

    /// Appends items, as pushing them would, behind as many as whole blocks have.
    fn append(&mut self, items: &[Item]) {
        let from = self.starts.len();
        debug_assert!(from.is_multiple_of(FAN_OUT));
        self.starts.extend(items.iter().map(|item| item.start));
        self.durations
            .extend(items.iter().map(|item| narrow(item.duration)));
        self.names.extend(items.iter().map(|item| item.name));
        self.sources.extend(items.iter().map(|item| item.source));
        if self.durations[from..].contains(&LONG) {
            let long = (from..)
                .zip(items)
                .filter(|(_, item)| narrow(item.duration) == LONG);
            let place = |place| u32::try_from(place).unwrap_or(u32::MAX);
            self.long
                .extend(long.map(|(at, item)| (place(at), item.duration)));
        }
        // A block is summed up when the next begins.
        for block in (from..self.starts.len()).step_by(FAN_OUT) {
            self.close_block(block);
        }
    }

    /// Appends a slice, which must not start before the last one ends.
    #[inline]
    pub(crate) fn push(&mut self, start: i64, duration: i64, name: u32, source: u32) {
        debug_assert!(duration >= 0 && self.end() <= start || self.is_empty());
        let place = self.starts.len();
        if place.is_multiple_of(FAN_OUT) {
            self.close_block(place);
        }
        self.starts.push(start);
        self.durations.push(narrow(duration));
        if narrow(duration) == LONG {
            let place = u32::try_from(place).unwrap_or(u32::MAX);
            self.long.push((place, duration));
        }
        self.names.push(name);
        self.sources.push(source);
    }

    /// Says that the slice at a place had not ended.
    pub(crate) fn mark_unfinished(&mut self, place: usize) {
        self.unfinished.push(u32::try_from(place).unwrap_or(u32::MAX));
    }

    /// Sums up the first `len` slices, a multiple of 16 of which all but the last 16 have been.
    #[inline]
    fn close_block(&mut self, len: usize) {
        let from = len.saturating_sub(FAN_OUT);
        let before = self.sums.last().copied().unwrap_or(0);
        let block = &self.durations[from..len];
        // Those that are too long for the column are the rare case.
        let mut sum: u64 = 0;
        let mut most = 0;
        for duration in block {
            sum += u64::from(*duration);
            most = most.max(*duration);
        }
        if len == 0 {
            self.sums.push(0);
            return;
        }
        let best = if most == LONG {
            self.sums
                .push(before + (from..len).map(|place| self.duration(place)).sum::<i64>());
            self.first_longest(from..len)
        } else {
            self.sums.push(before + sum.cast_signed());
            from + block.iter().position(|duration| *duration == most).unwrap_or(0)
        };
        let mut best = u32::try_from(best).unwrap_or(u32::MAX);
        for level in 0.. {
            if self.longest.len() <= level {
                self.longest.push(Vec::new());
            }
            self.longest[level].push(best);
            let nodes = self.longest[level].len();
            if !nodes.is_multiple_of(FAN_OUT) {
                break;
            }
            let children = &self.longest[level][nodes - FAN_OUT..];
            best = children[0];
            for &child in &children[1..] {
                if self.duration(child as usize) > self.duration(best as usize) {
                    best = child;
                }
            }
        }
    }

    /// The place of the longest of a few slices, the first of equal ones.
    pub(super) fn first_longest(&self, places: Range<usize>) -> usize {
        let mut best = places.start;
        for place in places {
            if self.duration(place) > self.duration(best) {
                best = place;
            }
        }
        best
    }

    /// Gives the slice at a place another name.
    pub(crate) fn rename(&mut self, place: usize, name: u32) {
        self.names[place] = name;
    }

    /// Gives all slices other names.
    pub(crate) fn rename_all(&mut self, new_name: impl Fn(u32) -> u32) {
        for name in &mut self.names {
            *name = new_name(*name);
        }
    }

    /// Gives back memory that no slice uses.
    pub(crate) fn shrink(&mut self) {
        self.starts.shrink_to_fit();
        self.durations.shrink_to_fit();
        self.names.shrink_to_fit();
        self.sources.shrink_to_fit();
        self.sums.shrink_to_fit();
        for level in &mut self.longest {
            level.shrink_to_fit();
        }
    }
}
