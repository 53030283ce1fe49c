//! Tiles: what of a row is seen at one zoom, in at most two records a bin.
//!
//! A tile has 1024 bins of `2^level` ns. Where at most 1024 slices have a part in it, each is a record of its own. Else a bin
//! whose slices are several is one record with the exact share of its time that they take; only a slice that crosses the bin's
//! end, of which there is at most one, is always a record of its own. So nothing is lost and nothing counts twice: a bin's
//! busy time is its density's share and its parts of the single slices.

use std::ops::Range;

use gputrace_trace::parallel;

use super::slices::Slices;
use super::{MOST_LEVEL, TILE_BINS, names};

const MAGIC: u32 = 0x454C_4954;
const VERSION: u32 = 1;
/// Up to so many slices are sent as they are.
const MOST_SINGLE: usize = 1024;
/// From so many slices in a tile on its rows are worth more than one core.
const WORTH_THREADS: usize = 200_000;
/// A bin that is summed up takes about as long as so many slices that are not.
const SLICES_A_SUMMED_BIN: usize = 4;
/// A record stands for several slices.
const DENSITY: u32 = 1 << 16;
/// A slice had not ended.
const UNFINISHED: u32 = 2 << 16;

/// The records of one row.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Records {
    pub(crate) x0: Vec<f32>,
    pub(crate) x1: Vec<f32>,
    pub(crate) name: Vec<u32>,
    pub(crate) meta: Vec<u32>,
    pub(crate) id: Vec<u32>,
}

/// Start of a tile; `None` where there is none.
pub(crate) fn tile_start(level: u32, index: u64) -> Option<i64> {
    let shift = level + TILE_BINS.trailing_zeros();
    let index = i64::try_from(index).ok()?;
    (level <= MOST_LEVEL && index <= i64::MAX >> 1 >> shift).then(|| index << shift)
}

/// Eight bits of a name, for its lightness.
pub(crate) trait Shades: Sync {
    fn shade(&self, name: u32) -> u8;
}

impl Records {
    fn with_capacity(records: usize) -> Self {
        Self {
            x0: Vec::with_capacity(records),
            x1: Vec::with_capacity(records),
            name: Vec::with_capacity(records),
            meta: Vec::with_capacity(records),
            id: Vec::with_capacity(records),
        }
    }

    #[inline]
    fn push(&mut self, x0: f32, x1: f32, name: u32, meta: u32, id: u32, shades: &impl Shades) {
        self.x0.push(x0);
        self.x1.push(x1);
        self.name.push(name);
        self.meta
            .push(meta | u32::from(names::kind(name)) | u32::from(shades.shade(name)) << 24);
        self.id.push(id);
    }

    #[inline]
    fn single(&mut self, slices: &Slices, place: usize, start: i64, level: u32, shades: &impl Shades) {
        // Exact: bins are a power of two wide.
        let bins_a_ns = f64::from_bits((1023 - u64::from(level)) << 52);
        let bins = |time: i64| ((time - start) as f64 * bins_a_ns) as f32;
        let flags = if slices.is_unfinished(place) {
            UNFINISHED
        } else {
            0
        };
        self.push(
            bins(slices.start(place)),
            bins(slices.end_of(place)),
            slices.name(place),
            255 << 8 | flags,
            u32::try_from(place).unwrap_or(u32::MAX),
            shades,
        );
    }

    /// The records of a bin, by the slices that start in it. `inner` tells of those before one the sum of their durations, from
    /// the duration of that one if it crosses the bin's end, and the name of the longest.
    #[inline]
    fn bin(
        &mut self,
        slices: &Slices,
        places: Range<usize>,
        bin: i64,
        start: i64,
        level: u32,
        shades: &impl Shades,
        inner: impl FnOnce(usize, i64) -> (i64, u32),
    ) {
        let width = 1i64 << level;
        let bin_end = start.saturating_add((bin + 1) * width);
        let last = places.end - 1;
        let crossing = (slices.end_of(last) > bin_end).then_some(last);
        let after = crossing.unwrap_or(places.end);
        match after - places.start {
            0 => {}
            1 => self.single(slices, places.start, start, level, shades),
            count => {
                let (busy, longest) = inner(after, crossing.map_or(0, |place| slices.duration(place)));
                // What is there is seen, however short.
                let fill = (busy as f64 / width as f64 * 255.0).round().clamp(1.0, 255.0);
                self.push(
                    bin as f32,
                    (bin + 1) as f32,
                    longest,
                    DENSITY | (fill as u32) << 8,
                    u32::try_from(count).unwrap_or(u32::MAX),
                    shades,
                );
            }
        }
        if let Some(place) = crossing {
            self.single(slices, place, start, level, shades);
        }
    }

    /// The bins from the one on that begins with the slice at `at`, as far as they are summed up; the first slice behind them.
    fn take_summed(
        &mut self,
        slices: &Slices,
        mut at: usize,
        start: i64,
        level: u32,
        shades: &impl Shades,
    ) -> usize {
        let Some((offset, summary, is_last)) = slices.summary_at(at) else {
            return at;
        };
        let Some(bins) = summary.bins(start, level) else {
            return at;
        };
        for bin in (slices.start(at) - start) >> level..TILE_BINS {
            let Some(found) = bins(bin) else { continue };
            // The slices of the next part may begin in it too.
            if found.is_last && !is_last {
                break;
            }
            let places = offset + found.first..offset + found.next;
            debug_assert_eq!(places.start, at);
            at = places.end;
            self.bin(slices, places, bin, start, level, shades, |_, crossing| {
                (found.busy - crossing, found.longest)
            });
        }
        at
    }

    /// What of a row lies in the tile that begins at `start`.
    pub(crate) fn of(slices: &Slices, start: i64, level: u32, shades: &impl Shades) -> Self {
        let width = 1i64 << level;
        let within = slices.within(start, start.saturating_add(TILE_BINS * width));
        if within.len() <= MOST_SINGLE {
            let mut records = Self::with_capacity(within.len());
            for place in within {
                records.single(slices, place, start, level, shades);
            }
            return records;
        }
        let mut records = Self::with_capacity(MOST_SINGLE);
        let mut at = within.start;
        if slices.start(at) < start {
            records.single(slices, at, start, level, shades);
            at += 1;
        }
        let mut usual = 1;
        while at < within.end {
            at = records.take_summed(slices, at, start, level, shades);
            if at >= within.end {
                break;
            }
            let bin = (slices.start(at) - start) >> level;
            let bin_end = start.saturating_add((bin + 1) * width);
            let next = slices.next_near(at + 1, usual - 1, bin_end).min(within.end);
            usual = next - at;
            records.bin(slices, at..next, bin, start, level, shades, |after, _| {
                (slices.sum(at, after), slices.name(slices.longest(at, after)))
            });
            at = next;
        }
        records
    }
}

/// How many slices of a row, or bins of it, have to be looked at for a tile from `start` to `end`.
fn work(slices: &Slices, start: i64, end: i64, level: u32) -> usize {
    let within = slices.within(start, end);
    let is_summed = !within.is_empty()
        && (slices.summary_at(within.start))
            .is_some_and(|(_, summary, _)| summary.bins(start, level).is_some());
    if is_summed {
        let bins = (slices.end().min(end) - slices.begin().max(start)) >> level;
        within.len().min((bins as usize + 1) * SLICES_A_SUMMED_BIN)
    } else {
        within.len()
    }
}

/// A tile of some rows, as it goes over the wire; empty rows where there is no such tile.
pub(crate) fn encode(
    level: u32,
    index: u64,
    origin: i64,
    rows: &[(u32, &Slices)],
    shades: &impl Shades,
) -> Vec<u8> {
    let found: Vec<Records> = match tile_start(level, index).and_then(|start| start.checked_add(origin)) {
        Some(start) => {
            let end = start.saturating_add(TILE_BINS << level);
            let work: usize = rows
                .iter()
                .map(|(_, slices)| work(slices, start, end, level))
                .sum();
            if work >= WORTH_THREADS && rows.len() > 1 {
                parallel::map(rows.len(), |row| Records::of(rows[row].1, start, level, shades))
            } else {
                rows.iter()
                    .map(|(_, slices)| Records::of(slices, start, level, shades))
                    .collect()
            }
        }
        None => vec![Records::default(); rows.len()],
    };
    let records: usize = found.iter().map(|records| records.id.len()).sum();
    let mut bytes = Vec::with_capacity(16 + rows.len() * 8 + records * 20);
    header(&mut bytes, MAGIC, VERSION, level, rows.len());
    words(&mut bytes, rows.iter().map(|(row, _)| *row));
    words(&mut bytes, found.iter().map(|records| length(&records.id)));
    for records in &found {
        floats(&mut bytes, &records.x0);
        floats(&mut bytes, &records.x1);
        words(&mut bytes, records.name.iter().copied());
        words(&mut bytes, records.meta.iter().copied());
        words(&mut bytes, records.id.iter().copied());
    }
    bytes
}

pub(crate) fn length<T>(records: &[T]) -> u32 {
    u32::try_from(records.len()).unwrap_or(u32::MAX)
}

/// The first 16 bytes of a picture's data.
pub(crate) fn header(bytes: &mut Vec<u8>, magic: u32, version: u32, third: u32, fourth: usize) {
    words(
        bytes,
        [magic, version, third, u32::try_from(fourth).unwrap_or(u32::MAX)],
    );
}

pub(crate) fn words(bytes: &mut Vec<u8>, words: impl IntoIterator<Item = u32>) {
    for word in words {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
}

pub(crate) fn floats(bytes: &mut Vec<u8>, floats: &[f32]) {
    for float in floats {
        bytes.extend_from_slice(&float.to_le_bytes());
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::super::lanes::Item;
    use super::*;

    pub(crate) struct NoShades;
    impl Shades for NoShades {
        fn shade(&self, _: u32) -> u8 {
            0
        }
    }

    /// The records as (x0, x1, name, kind, fill, flags, id).
    pub(crate) fn plain(records: &Records) -> Vec<(f32, f32, u32, u32, u32, u32, u32)> {
        (0..records.id.len())
            .map(|at| {
                let meta = records.meta[at];
                (
                    records.x0[at],
                    records.x1[at],
                    records.name[at],
                    meta & 255,
                    meta >> 8 & 255,
                    meta >> 16 & 255,
                    records.id[at],
                )
            })
            .collect()
    }

    #[test]
    fn few_slices_are_sent_as_they_are() {
        let mut slices = Slices::default();
        slices.push(0, 1030, 1, 0);
        slices.push(1030, 10, 2, 1);
        slices.push(2047, 3, 3, 2);
        slices.mark_unfinished(2);
        slices.push(2050, 3, 4, 3);
        // The second tile of level 0: from 1024 to 2048.
        let found = Records::of(&slices, 1024, 0, &NoShades);
        assert_eq!(
            plain(&found),
            [
                (-1024.0, 6.0, 1, 0, 255, 0, 0),
                (6.0, 16.0, 2, 0, 255, 0, 1),
                (1023.0, 1026.0, 3, 0, 255, 2, 2)
            ]
        );
    }

    #[test]
    fn many_slices_are_shares_of_bins_but_for_those_that_cross_one_s_end() {
        let mut slices = Slices::default();
        // Bins of 4096 ns: 1000 slices of 3 ns, 4 ns apart, in bin 0 (12 to 4012); one of 90 ns that crosses its end.
        slices.push(-100, 107, 7, 0);
        for place in 0..1000 {
            slices.push(12 + 4 * place, if place == 500 { 4 } else { 3 }, place as u32, 0);
        }
        slices.push(4050, 90, 5000, 0);
        slices.push(4140, 0, 5001, 0);
        // Bin 2 has one, bin 3 none, bin 4 a hundred that touch, of 10 ns.
        slices.push(8192, 50, 5002, 0);
        for place in 0..100 {
            slices.push(4 * 4096 + 10 * place, 10, 6000, 0);
        }
        let found = Records::of(&slices, 0, 12, &NoShades);
        let bins = |time: i64| (time as f64 / 4096.0) as f32;
        assert_eq!(
            plain(&found),
            [
                (bins(-100), bins(7), 7, 0, 255, 0, 0),
                // (999 * 3 + 4) / 4096 of 255 is 186.8.
                (0.0, 1.0, 500, 0, 187, 1, 1000),
                (bins(4050), bins(4140), 5000, 0, 255, 0, 1001),
                (bins(4140), bins(4140), 5001, 0, 255, 0, 1002),
                (2.0, bins(8242), 5002, 0, 255, 0, 1003),
                // 1000 / 4096 of 255 is 62.3.
                (4.0, 5.0, 6000, 0, 62, 1, 100),
            ]
        );
    }

    #[test]
    fn there_are_no_tiles_beyond_what_times_can_hold() {
        assert_eq!(tile_start(0, 3), Some(3072));
        assert_eq!(tile_start(MOST_LEVEL, 0), Some(0));
        assert_eq!(tile_start(MOST_LEVEL + 1, 0), None);
        assert_eq!(tile_start(40, u64::MAX), None);
        assert_eq!(tile_start(40, 1 << 20), None);
        let slices = Slices::default();
        let bytes = encode(63, u64::MAX, 0, &[(5, &slices)], &NoShades);
        assert_eq!(bytes.len(), 24);
        assert_eq!(bytes[..4], *b"TILE");
        assert_eq!(bytes[16..], [5, 0, 0, 0, 0, 0, 0, 0]);
    }

    /// Any row of slices, dense and sparse, with times relative to 0.
    pub(crate) fn some_slices() -> impl Strategy<Value = Vec<(i64, i64)>> {
        let part = (0usize..700, 0i64..3000, 0i64..3000, any::<u64>());
        proptest::collection::vec(part, 1..6).prop_map(|parts| {
            let mut now = 0;
            let mut slices = Vec::new();
            for (count, gap, length, mut seed) in parts {
                for _ in 0..count {
                    seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let start = now + (seed >> 33) as i64 % (gap + 1);
                    let duration = (seed >> 13) as i64 % (length + 1);
                    slices.push((start, duration));
                    now = start + duration;
                }
            }
            slices
        })
    }

    proptest! {
        /// Every nanosecond of every bin, and every slice, is in the records, and no other.
        #[test]
        fn tiles_are_exact_at_every_level(all in some_slices(), level in 0u32..14, index in 0u64..4) {
            let mut slices = Slices::default();
            for (place, (start, duration)) in all.iter().enumerate() {
                slices.push(*start, *duration, place as u32, 0);
            }
            let start = tile_start(level, index).unwrap();
            let width = 1i64 << level;
            let records = Records::of(&slices, start, level, &NoShades);
            prop_assert!(records.id.len() <= 2 * 1024 + 1);
            prop_assert!(records.x0.is_sorted());
            let mut seen = vec![false; all.len()];
            let mut density_count = vec![0u32; 1024];
            let mut density_busy = vec![None; 1024];
            for (x0, x1, name, _, fill, flags, id) in plain(&records) {
                if flags & 1 == 1 {
                    let bin = x0 as usize;
                    prop_assert_eq!((x0, x1), (bin as f32, bin as f32 + 1.0));
                    density_count[bin] += id;
                    prop_assert!(density_busy[bin].replace(fill).is_none());
                    let of_bin = |place: &usize| (all[*place].0 - start).div_euclid(width) == bin as i64;
                    let longest = (0..all.len()).filter(of_bin).filter(|place| all[*place].0 + all[*place].1 <= start + (bin as i64 + 1) * width).map(|place| all[place].1).max();
                    prop_assert_eq!(Some(all[name as usize].1), longest);
                } else {
                    let (from, length) = all[id as usize];
                    prop_assert_eq!(x0, ((from - start) as f64 / width as f64) as f32);
                    prop_assert_eq!(x1, ((from + length - start) as f64 / width as f64) as f32);
                    prop_assert_eq!(name, id);
                    prop_assert!(!std::mem::replace(&mut seen[id as usize], true));
                }
            }
            // Naively: each slice goes to the bin where it starts.
            let mut counts = vec![0u32; 1024];
            let mut busy = vec![0i64; 1024];
            for (place, (from, length)) in all.iter().enumerate() {
                let reaches_in = *from < start && from + length > start;
                if reaches_in {
                    prop_assert!(seen[place]);
                }
                let bin = (from - start).div_euclid(width);
                if (0..1024).contains(&bin) && !seen[place] {
                    counts[bin as usize] += 1;
                    busy[bin as usize] += length;
                    prop_assert!(from + length <= start + (bin + 1) * width, "a share must not leave its bin");
                } else if !(0..1024).contains(&bin) {
                    prop_assert!(!seen[place] || reaches_in);
                }
            }
            prop_assert_eq!(&counts, &density_count);
            for (bin, fill) in density_busy.iter().enumerate() {
                match fill {
                    Some(fill) => {
                        let share = busy[bin] as f64 / width as f64 * 255.0;
                        prop_assert!((f64::from(*fill) - share).abs() <= 0.5 || *fill == 1 && share < 1.0);
                    }
                    None => prop_assert_eq!(counts[bin], 0),
                }
            }
        }

        /// A row that is summed up, whole or in parts, has the same tiles at all levels.
        #[test]
        fn summed_rows_have_the_same_tiles(
            all in some_slices(),
            grain in prop_oneof![Just(0), Just(6), Just(10)],
            scale in prop_oneof![Just(0), Just(21)],
            origin in -5000i64..1,
            cuts in proptest::collection::vec(0usize..3500, 0..4),
            index in 0u64..3,
        ) {
            // Coarse, many end where a bin does; scaled, some are longer than the column of durations can say.
            let time = |time: i64| time >> grain << grain << scale;
            let items: Vec<Item> = (0u32..)
                .zip(&all)
                .map(|(place, (start, duration))| Item {
                    start: time(*start),
                    duration: time(start + duration) - time(*start),
                    name: place,
                    source: place,
                })
                .collect();
            let plain = Slices::of(&items);
            let summed = Slices::of(&items);
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(items.len())).collect();
            cuts.extend([0, items.len()]);
            cuts.sort_unstable();
            let parts = cuts.windows(2).map(|cut| Arc::new(Slices::of(&items[cut[0]..cut[1]])));
            let joined = Slices::joined(parts);
            let (origin, wrong) = (time(origin), time(origin) - 1);
            summed.summarize(origin);
            joined.summarize(origin);
            let summed_for_others = Slices::of(&items);
            summed_for_others.summarize(wrong);
            prop_assert!(items.len() < 100 || summed.bytes() > plain.bytes());
            for level in 0..45 {
                let start = tile_start(level, index).unwrap() + origin;
                let expected = Records::of(&plain, start, level, &NoShades);
                for row in [&summed, &joined, &summed_for_others] {
                    prop_assert_eq!(&Records::of(row, start, level, &NoShades), &expected, "level {}", level);
                }
            }
        }
    }
}
