//! Statistics of a stretch of time.

use gputrace_trace::parallel;
use rustc_hash::FxHashMap;

use super::answers::{Area, AreaName, AreaRow};
use super::slices::Slices;
use super::{Timeline, names};

/// Names that are listed.
const MOST_NAMES: usize = 500;
/// Up to so many slices percentiles are exact; beyond them durations are counted in classes of a 128th of their size.
const MOST_EXACT: u64 = 16_000_000;
/// Bits of a duration that its class keeps.
const CLASS_BITS: u32 = 7;

/// The durations of one name.
#[derive(Clone, Debug, Default)]
struct Durations {
    count: u64,
    total: i64,
    min: i64,
    max: i64,
    exact: Vec<i64>,
    /// How many in each class.
    classes: FxHashMap<u32, u64>,
}

/// The class of a duration: its leading bits and how many follow.
fn class(duration: i64) -> u32 {
    let duration = u64::try_from(duration).unwrap_or(0);
    let shift = (64 - duration.leading_zeros()).saturating_sub(CLASS_BITS + 1);
    shift << (CLASS_BITS + 1) | u32::try_from(duration >> shift).unwrap_or(0)
}

/// The middle of a class.
fn middle(class: u32) -> i64 {
    let (shift, bits) = (class >> (CLASS_BITS + 1), class & ((1 << (CLASS_BITS + 1)) - 1));
    (i64::from(bits) << shift) + (1i64 << shift) / 2
}

impl Durations {
    fn add(&mut self, duration: i64, exactly: bool) {
        if self.count == 0 {
            (self.min, self.max) = (duration, duration);
        }
        self.count += 1;
        self.total = self.total.saturating_add(duration);
        self.min = self.min.min(duration);
        self.max = self.max.max(duration);
        if exactly {
            self.exact.push(duration);
        } else {
            *self.classes.entry(class(duration)).or_default() += 1;
        }
    }

    fn absorb(&mut self, other: Self) {
        if self.count == 0 {
            *self = other;
            return;
        }
        self.count += other.count;
        self.total = self.total.saturating_add(other.total);
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        self.exact.extend(other.exact);
        for (class, count) in other.classes {
            *self.classes.entry(class).or_default() += count;
        }
    }

    /// The nearest-rank percentile.
    fn percentile(&mut self, percent: u64) -> i64 {
        let rank = (self.count * percent).div_ceil(100).max(1) - 1;
        if let Some(last) = self.exact.len().checked_sub(1) {
            let rank = usize::try_from(rank).unwrap_or(last).min(last);
            return *self.exact.select_nth_unstable(rank).1;
        }
        let mut classes: Vec<(u32, u64)> = self
            .classes
            .iter()
            .map(|(class, count)| (*class, *count))
            .collect();
        classes.sort_unstable_by_key(|(class, _)| middle(*class));
        let mut before = 0;
        for (class, count) in classes {
            before += count;
            if before > rank {
                return middle(class).clamp(self.min, self.max);
            }
        }
        self.max
    }
}

/// What lies in `[from, to)` of a row: how many slices, their busy time there, and whole durations by name.
fn of_row(slices: &Slices, from: i64, to: i64, exactly: bool) -> (u64, i64, FxHashMap<u32, Durations>) {
    let within = slices.within(from, to);
    let mut by_name: FxHashMap<u32, usize> = FxHashMap::default();
    let mut found: Vec<(u32, Durations)> = Vec::new();
    let mut last: Option<(u32, usize)> = None;
    let count = within.len() as u64;
    for place in within {
        let name = slices.name(place);
        let index = match last {
            Some((known, index)) if known == name => index,
            _ => *by_name.entry(name).or_insert_with(|| {
                found.push((name, Durations::default()));
                found.len() - 1
            }),
        };
        last = Some((name, index));
        found[index].1.add(slices.duration(place), exactly);
    }
    (count, slices.busy(from, to), found.into_iter().collect())
}

impl Timeline {
    /// What lies in `[from, to)` of some rows; of all rows of slices where none are named. Percentiles are exact up to 16
    /// million slices, and to within half a percent beyond.
    #[must_use]
    pub fn area(&self, from: i64, to: i64, rows: Option<&[u32]>) -> Area {
        let all: Vec<u32>;
        let rows = match rows {
            Some(rows) => rows,
            None => {
                all = self.rows.rows.iter().map(|row| row.row).collect();
                &all
            }
        };
        let rows: Vec<(u32, &Slices)> = rows
            .iter()
            .filter_map(|row| Some((*row, &**self.rows.slices(*row)?)))
            .collect();
        let (from, to) = (self.absolute(from), self.absolute(to));
        let count: u64 = rows
            .iter()
            .map(|(_, slices)| slices.within(from, to).len() as u64)
            .sum();
        let exactly = count <= MOST_EXACT;
        let found = parallel::map(rows.len(), |row| of_row(rows[row].1, from, to, exactly));
        let mut area = Area {
            count,
            ..Area::default()
        };
        let mut by_name: FxHashMap<u32, Durations> = FxHashMap::default();
        for ((row, _), (count, busy, names)) in rows.iter().zip(found) {
            area.rows.push(AreaRow {
                row: *row,
                count,
                busy,
                idle: to.saturating_sub(from).max(0) - busy,
            });
            for (name, durations) in names {
                area.total = area.total.saturating_add(durations.total);
                by_name.entry(name).or_default().absorb(durations);
            }
        }
        let mut names: Vec<(u32, Durations)> = by_name.into_iter().collect();
        names.sort_by_key(|(name, durations)| (std::cmp::Reverse(durations.total), *name));
        area.more = names.len().saturating_sub(MOST_NAMES);
        names.truncate(MOST_NAMES);
        area.names = names
            .into_iter()
            .map(|(name, mut durations)| AreaName {
                id: name,
                name: self.label(name).map(|text| text.to_string()).unwrap_or_default(),
                kind: names::kind(name),
                count: durations.count,
                total: durations.total,
                mean: durations.total as f64 / durations.count as f64,
                min: durations.min,
                max: durations.max,
                p50: durations.percentile(50),
                p99: durations.percentile(99),
            })
            .collect();
        area
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn percentiles_are_nearest_ranks() {
        let mut durations = Durations::default();
        for duration in (1..=200).rev() {
            durations.add(duration, true);
        }
        assert_eq!((durations.percentile(50), durations.percentile(99)), (100, 198));
        let mut one = Durations::default();
        one.add(7, true);
        assert_eq!(
            (one.percentile(50), one.percentile(99), one.min, one.max),
            (7, 7, 7, 7)
        );
    }

    proptest! {
        #[test]
        fn classes_are_within_half_a_percent(duration in 0i64..1 << 50) {
            let error = (middle(class(duration)) - duration).abs() as f64;
            prop_assert!(error <= duration as f64 / 200.0 + 0.5, "{duration} is taken for {}", middle(class(duration)));
        }

        #[test]
        fn counted_in_classes_percentiles_are_close(all in proptest::collection::vec(0i64..10_000_000, 1..300), percent in 1u64..100) {
            let (mut exact, mut classes) = (Durations::default(), Durations::default());
            for duration in &all {
                exact.add(*duration, true);
                classes.add(*duration, false);
            }
            let (exact, close) = (exact.percentile(percent), classes.percentile(percent));
            prop_assert!((exact - close).abs() as f64 <= exact as f64 / 200.0 + 0.5);
        }
    }
}
