//! Counters: a value that holds until the next sample, with the least and greatest of every 16, 256, 4096, ... samples.

use super::TILE_BINS;
use super::tile::{floats, header, length, tile_start, words};

const FAN_OUT: usize = 16;
const MAGIC: u32 = 0x5254_4E43;
const VERSION: u32 = 1;
/// Up to so many samples are sent as they are.
const MOST_SINGLE: usize = 1024;

/// Samples by time.
#[derive(Clone, Debug, Default)]
pub struct Series {
    times: Vec<i64>,
    values: Vec<f32>,
    /// Until when the last one holds.
    end: i64,
    /// Least and greatest at `[level][k]`.
    extremes: Vec<Vec<(f32, f32)>>,
}

fn wider(a: (f32, f32), b: (f32, f32)) -> (f32, f32) {
    (a.0.min(b.0), a.1.max(b.1))
}

/// The records of one counter.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Records {
    pub(crate) x0: Vec<f32>,
    pub(crate) x1: Vec<f32>,
    pub(crate) min: Vec<f32>,
    pub(crate) max: Vec<f32>,
    pub(crate) last: Vec<f32>,
}

impl Series {
    /// Of samples in any order. Those that are no finite number are left out; of several at one time the last one given
    /// holds.
    #[must_use]
    pub fn new(samples: impl IntoIterator<Item = (i64, f64)>) -> Self {
        let mut sorted: Vec<(i64, f32)> = samples
            .into_iter()
            .filter(|(_, value)| value.is_finite())
            .map(|(time, value)| (time, value as f32))
            .collect();
        sorted.sort_by_key(|(time, _)| *time);
        let mut series = Self::default();
        for (time, value) in sorted {
            series.times.push(time);
            series.values.push(value);
        }
        // The last one holds as long as is usual.
        let count = series.times.len();
        if let (Some(first), Some(last)) = (series.times.first(), series.times.last()) {
            let mean = (last - first) / i64::try_from(count.max(2) - 1).unwrap_or(1);
            series.end = last + mean.max(1);
        }
        let leaves: Vec<(f32, f32)> = series.values.iter().map(|value| (*value, *value)).collect();
        let mut level = leaves;
        while level.len() >= FAN_OUT {
            let folded: Vec<(f32, f32)> = level
                .chunks_exact(FAN_OUT)
                .map(|chunk| chunk.iter().copied().reduce(wider).unwrap_or_default())
                .collect();
            series.extremes.push(folded.clone());
            level = folded;
        }
        series
    }

    /// Samples.
    #[must_use]
    pub fn len(&self) -> usize {
        self.times.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.times.is_empty()
    }

    /// Time of the first sample.
    #[must_use]
    pub fn begin(&self) -> i64 {
        self.times.first().copied().unwrap_or(0)
    }

    /// Until when the last one holds.
    #[must_use]
    pub fn end(&self) -> i64 {
        self.end
    }

    /// Bytes in memory.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let forest: usize = self.extremes.iter().map(Vec::capacity).sum();
        self.times.capacity() * 8 + self.values.capacity() * 4 + forest * 8
    }

    /// Least and greatest of all; `None` without samples.
    #[must_use]
    pub fn extremes(&self) -> Option<(f32, f32)> {
        (!self.is_empty()).then(|| self.extremes_of(0, self.len()))
    }

    /// Least and greatest of the samples at `from..to`; `from < to`.
    fn extremes_of(&self, from: usize, to: usize) -> (f32, f32) {
        let mut found = (self.values[from], self.values[from]);
        let mut at = from;
        while at < to {
            let mut size = 1;
            let mut node = (self.values[at], self.values[at]);
            for nodes in &self.extremes {
                let larger = size * FAN_OUT;
                if !at.is_multiple_of(larger) || at + larger > to {
                    break;
                }
                let Some(extremes) = nodes.get(at / larger) else {
                    break;
                };
                (size, node) = (larger, *extremes);
            }
            found = wider(found, node);
            at += size;
        }
        found
    }

    /// Until when the sample at a place holds.
    fn end_of(&self, place: usize) -> i64 {
        self.times.get(place + 1).copied().unwrap_or(self.end)
    }

    /// What of the counter lies in the tile that begins at `start`: samples, or for bins with several of them the least and
    /// greatest value that it has in them.
    pub(crate) fn tile(&self, start: i64, level: u32) -> Records {
        let width = 1i64 << level;
        let end = start.saturating_add(TILE_BINS * width);
        let bins = |time: i64| ((time - start) as f64 / width as f64) as f32;
        let mut records = Records::default();
        let mut push = |x0: f32, x1: f32, (min, max): (f32, f32), last: f32| {
            records.x0.push(x0);
            records.x1.push(x1);
            records.min.push(min);
            records.max.push(max);
            records.last.push(last);
        };
        let first = self.times.partition_point(|time| *time < start);
        let after = self.times.partition_point(|time| *time < end).max(first);
        // The value that holds at the start.
        let from = first - usize::from(first > 0 && self.end_of(first - 1) > start);
        if after - from <= MOST_SINGLE {
            for place in from..after {
                let value = self.values[place];
                push(
                    bins(self.times[place]),
                    bins(self.end_of(place)),
                    (value, value),
                    value,
                );
            }
            return records;
        }
        let mut at = first;
        let mut held = (from < first).then(|| self.values[from]);
        let mut reached = start;
        while at < after {
            let bin = (self.times[at] - start) >> level;
            let (bin_start, bin_end) = (start + bin * width, start + (bin + 1) * width);
            // Between the last bin with samples and this one nothing changed.
            if let Some(value) = held.filter(|_| reached < bin_start) {
                push(bins(reached), bin as f32, (value, value), value);
            }
            let next = at + self.times[at..after].partition_point(|time| *time < bin_end);
            let mut extremes = self.extremes_of(at, next);
            if let Some(value) = held.filter(|_| self.times[at] > bin_start) {
                extremes = wider(extremes, (value, value));
            }
            let last = self.values[next - 1];
            push(bin as f32, (bin + 1) as f32, extremes, last);
            (held, reached, at) = (Some(last), bin_end, next);
        }
        if let Some(value) = held
            && reached < end
            && self.end_of(after - 1) > reached
        {
            push(bins(reached), bins(self.end_of(after - 1)), (value, value), value);
        }
        records
    }
}

/// A tile of some counters, as it goes over the wire.
pub(crate) fn encode(level: u32, index: u64, origin: i64, rows: &[(u32, &Series)]) -> Vec<u8> {
    let start = tile_start(level, index).and_then(|start| start.checked_add(origin));
    let found: Vec<Records> = rows
        .iter()
        .map(|(_, series)| start.map(|start| series.tile(start, level)).unwrap_or_default())
        .collect();
    let mut bytes = Vec::new();
    header(&mut bytes, MAGIC, VERSION, level, rows.len());
    words(&mut bytes, rows.iter().map(|(row, _)| *row));
    words(&mut bytes, found.iter().map(|records| length(&records.x0)));
    for records in &found {
        for column in [
            &records.x0,
            &records.x1,
            &records.min,
            &records.max,
            &records.last,
        ] {
            floats(&mut bytes, column);
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn plain(records: &Records) -> Vec<(f32, f32, f32, f32, f32)> {
        (0..records.x0.len())
            .map(|at| {
                (
                    records.x0[at],
                    records.x1[at],
                    records.min[at],
                    records.max[at],
                    records.last[at],
                )
            })
            .collect()
    }

    #[test]
    fn a_sample_holds_until_the_next() {
        let series = Series::new([(30, 5.0), (10, 1.0), (20, 3.0), (25, f64::NAN)]);
        assert_eq!((series.begin(), series.end(), series.len()), (10, 40, 3));
        assert_eq!(series.extremes(), Some((1.0, 5.0)));
        assert_eq!(
            plain(&series.tile(0, 0)),
            [
                (10.0, 20.0, 1.0, 1.0, 1.0),
                (20.0, 30.0, 3.0, 3.0, 3.0),
                (30.0, 40.0, 5.0, 5.0, 5.0)
            ]
        );
        assert_eq!(Series::default().extremes(), None);
        assert_eq!(Series::new([(7, 2.0)]).end(), 8);
    }

    proptest! {
        /// At every nanosecond the value lies between the record's least and greatest, and both are taken.
        #[test]
        fn tiles_have_the_least_and_greatest_of_every_bin(
            gaps in proptest::collection::vec((0i64..40, -5i32..5), 1..3000),
            level in 0u32..9,
            index in 0u64..3,
        ) {
            let mut now = 0;
            let samples: Vec<(i64, f64)> = gaps.iter().map(|(gap, value)| {
                now += gap;
                (now, f64::from(*value))
            }).collect();
            let series = Series::new(samples.iter().copied());
            let start = tile_start(level, index).unwrap();
            let width = 1i64 << level;
            let records = plain(&series.tile(start, level));
            prop_assert!(records.len() <= 2 * 1024 + 1);
            let value_at = |time: i64| {
                let after = samples.partition_point(|(at, _)| *at <= time);
                (after > 0 && time < series.end()).then(|| samples[after - 1].1 as f32)
            };
            for (x0, x1, min, max, last) in &records {
                let from = start + (f64::from(*x0) * width as f64).round() as i64;
                let to = start + (f64::from(*x1) * width as f64).round() as i64;
                let values: Vec<f32> = (from.max(start)..to.min(start + 1024 * width)).filter_map(value_at).collect();
                for value in &values {
                    prop_assert!(min <= value && value <= max);
                }
                // Samples at one time hide each other, so only bounds hold in general.
                prop_assert!(min <= last && last <= max);
                if let Some(value) = values.last() {
                    prop_assert_eq!(value, last);
                }
            }
            // Nothing between records.
            for time in (start..start + 1024 * width).step_by((width as usize).max(1)) {
                if value_at(time).is_some() {
                    let bin = ((time - start) / width) as f32;
                    prop_assert!(records.iter().any(|(x0, x1, ..)| *x0 <= bin && *x1 > bin));
                }
            }
        }
    }
}
