//! What bins of a row's time have in them, for tiles that are so coarse that looking it up among the slices would miss the
//! cache at every step.
//!
//! A bin has the slices that start in it. Of the finest bins, which have a few dozen slices on average, there is the first
//! slice and the sum of all durations before it, so that bins of any width are two places of these columns. The longest slice
//! is kept for every width by itself: which one it is depends on where a bin ends.

use super::{LONG, Slices};

/// Rows of fewer slices are looked at as they are.
const LEAST_SLICES: usize = if cfg!(test) { 48 } else { 1 << 12 };
/// Slices of one of the finest bins, on average.
const SLICES_A_BIN: usize = if cfg!(test) { 4 } else { 32 };

impl Slices {
    /// Sums up bins of the row's time, for coarse tiles whose bins are counted from `origin`.
    pub(crate) fn summarize(&self, origin: i64) {
        if self.joined == 0 {
            self.summary.get_or_init(|| Summary::new(self, origin));
        }
        for (_, part) in &self.parts {
            part.summarize(origin);
        }
    }

    /// The bins of the part that a place is in, with the place of its first slice and whether it is the last part.
    pub(crate) fn summary_at(&self, place: usize) -> Option<(usize, &Summary, bool)> {
        if self.joined == 0 {
            return Some((0, self.summary.get()?.as_ref()?, true));
        }
        let after = self.parts.partition_point(|(first, _)| *first <= place);
        let (first, part) = &self.parts[after - 1];
        Some((*first, part.summary.get()?.as_ref()?, after == self.parts.len()))
    }
}

/// The bins of a row, of all widths from the finest on until a few have everything.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Summary {
    /// Where the bins of all widths begin.
    origin: i64,
    /// The finest bins are `2^level` ns wide.
    level: u32,
    /// The number of the first of them.
    begin: i64,
    /// By fine bin, and once more behind the last: the first slice that starts in it or later.
    firsts: Vec<u32>,
    /// The same: durations of all slices before it.
    sums: Vec<i64>,
    /// At `[k][bin]`, for bins of `2^(level+k)` ns: the name of the longest of the slices that start and end in it, the first
    /// of equal ones; anything where there is none.
    names: Vec<Vec<u32>>,
}

/// What a bin has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bin {
    /// The first slice that starts in it.
    pub(crate) first: usize,
    /// The first one that starts later.
    pub(crate) next: usize,
    /// Sum of the durations of all that start in it.
    pub(crate) busy: i64,
    /// The name of the longest one that ends in it too.
    pub(crate) longest: u32,
    /// Whether it has the last slice of all.
    pub(crate) is_last: bool,
}

/// The longest of some slices.
#[derive(Clone, Copy)]
struct Longest {
    duration: i64,
    name: u32,
}

impl Longest {
    const NONE: Self = Self {
        duration: -1,
        name: 0,
    };

    /// The longer one of both, this one if they are equal.
    fn or(self, later: Self) -> Self {
        if later.duration > self.duration {
            later
        } else {
            self
        }
    }
}

impl Summary {
    /// The bins of a row that has no parts, counted from `origin`; nothing where it is too short to need them.
    pub(super) fn new(slices: &Slices, origin: i64) -> Option<Self> {
        let starts = &slices.starts;
        let (first, last) = (*starts.first()?, *starts.last()?);
        let most = (starts.len() / SLICES_A_BIN) as i64;
        let (from, to) = (first.checked_sub(origin)?, last.checked_sub(origin)?);
        if starts.len() < LEAST_SLICES || from < 0 {
            return None;
        }
        let level = (0..i64::BITS - 1).find(|level| (to >> level) - (from >> level) < most)?;
        let begin = from >> level;
        let bins = usize::try_from((to >> level) - begin + 1).ok()?;
        let mut summary = Self {
            origin,
            level,
            begin,
            firsts: Vec::with_capacity(bins + 1),
            sums: Vec::with_capacity(bins + 1),
            names: Vec::new(),
        };
        let mut longest = Vec::with_capacity(bins);
        let (mut at, mut sum) = (0, 0);
        for bin in 0..bins {
            summary.push(at, sum);
            let end = summary.end_of(bin, 0);
            let count = starts[at..].iter().take_while(|start| **start < end).count();
            let (busy, best) = of_all(slices, at, at + count, end);
            longest.push(best);
            (at, sum) = (at + count, sum + busy);
        }
        summary.push(at, sum);
        summary.join(slices, longest);
        Some(summary)
    }

    fn push(&mut self, first: usize, sum: i64) {
        self.firsts.push(u32::try_from(first).unwrap_or(u32::MAX));
        self.sums.push(sum);
    }

    /// End of a bin whose width is `2^up` fine ones, by its place among those.
    fn end_of(&self, place: usize, up: usize) -> i64 {
        let number = (self.begin >> up) + place as i64 + 1;
        self.origin
            .saturating_add(number.saturating_mul(1 << (self.level as usize + up)))
    }

    /// Keeps the names of the longest slices, and of those of ever wider bins.
    fn join(&mut self, slices: &Slices, mut longest: Vec<Longest>) {
        const FEW: usize = 4;
        loop {
            self.names.push(longest.iter().map(|best| best.name).collect());
            let up = self.names.len();
            let wide = (self.level as usize + up) < i64::BITS as usize - 1;
            if longest.len() <= FEW || !wide {
                return;
            }
            let fine = longest.len();
            // The first may be the right half of a wider bin.
            let odd = usize::from((self.begin >> (up - 1)) & 1 == 1);
            let wider = (fine + odd).div_ceil(2);
            longest = (0..wider)
                .map(|place| {
                    let right = 2 * place + 1 - odd;
                    let left = right.checked_sub(1);
                    let right = (right < fine).then_some(right);
                    let of_left = left.map_or(Longest::NONE, |left| {
                        // What crosses the left half's end may end in the right one.
                        let (from, after) = (self.first(left, up - 1), self.first(left + 1, up - 1));
                        let last = after.checked_sub(1).filter(|last| *last >= from);
                        let last = last.filter(|last| slices.end_of(*last) <= self.end_of(place, up));
                        longest[left].or(last.map_or(Longest::NONE, |last| Longest {
                            duration: slices.duration(last),
                            name: slices.name(last),
                        }))
                    });
                    right.map_or(of_left, |right| of_left.or(longest[right]))
                })
                .collect();
        }
    }

    /// The first slice of the bin at a place or later.
    fn first(&self, place: usize, up: usize) -> usize {
        let number = ((self.begin >> up) + place as i64) << up;
        self.firsts[self.fine(number)] as usize
    }

    /// The place of a fine bin, or of the nearest there is.
    fn fine(&self, number: i64) -> usize {
        (number - self.begin).clamp(0, self.firsts.len() as i64 - 1) as usize
    }

    /// Bytes in memory.
    pub(super) fn bytes(&self) -> usize {
        let names: usize = self.names.iter().map(Vec::capacity).sum();
        (self.firsts.capacity() + names) * 4 + self.sums.capacity() * 8
    }

    /// A function from the numbers of bins that begin at `start` and are `2^level` ns wide to what they have; nothing where
    /// these are no bins that are kept.
    pub(crate) fn bins(&self, start: i64, level: u32) -> Option<impl Fn(i64) -> Option<Bin>> {
        let up = level.checked_sub(self.level)?;
        let names = self.names.get(up as usize)?;
        let from = start.checked_sub(self.origin)?;
        let offset = from >> level;
        if offset << level != from {
            return None;
        }
        Some(move |bin: i64| {
            let number = offset.saturating_add(bin);
            let name = number - (self.begin >> up);
            let longest = *names.get(usize::try_from(name).ok()?)?;
            let (from, to) = (self.fine(number << up), self.fine((number + 1) << up));
            let (first, next) = (self.firsts[from] as usize, self.firsts[to] as usize);
            (first < next).then(|| Bin {
                first,
                next,
                busy: self.sums[to] - self.sums[from],
                longest,
                is_last: to + 1 == self.firsts.len(),
            })
        })
    }
}

/// The sum of all durations, and the longest slice of those that end until `end`: all but the last one, or all.
fn of_all(slices: &Slices, from: usize, after: usize, end: i64) -> (i64, Longest) {
    let Some(last) = after.checked_sub(1).filter(|last| *last >= from) else {
        return (0, Longest::NONE);
    };
    let inner = if slices.end_of(last) > end { last } else { after };
    let durations = &slices.durations[from..inner];
    let most = durations.iter().copied().max().unwrap_or(0);
    let (sum, place) = if most == LONG {
        let sum = (from..inner).map(|place| slices.duration(place)).sum();
        (sum, slices.first_longest(from..inner))
    } else {
        let sum: u64 = durations.iter().map(|duration| u64::from(*duration)).sum();
        let place = durations.iter().position(|duration| *duration == most);
        (sum.cast_signed(), from + place.unwrap_or(0))
    };
    let crossing = if inner == last { slices.duration(last) } else { 0 };
    let longest = if durations.is_empty() {
        Longest::NONE
    } else {
        Longest {
            duration: slices.duration(place),
            name: slices.names[place],
        }
    };
    (sum + crossing, longest)
}

#[cfg(test)]
mod tests {
    use super::super::tests::slices;
    use super::*;

    #[test]
    fn what_ends_with_a_wide_bin_is_the_longest_of_it_but_not_of_the_bin_where_it_starts() {
        // Every 256 ns eleven slices of 1 ns, and one that takes the rest.
        let each = |period: i64, place: i64| {
            let duration = if place == 11 { 256 - 22 } else { 1 };
            (
                1000 + period * 256 + 2 * place,
                duration,
                (period * 12 + place) as u32,
            )
        };
        let all: Vec<(i64, i64, u32)> = (0..8)
            .flat_map(|period| (0..12).map(move |place| each(period, place)))
            .collect();
        let summary = Summary::new(&slices(&all), 1000).expect("enough slices");
        let seen = |level: u32, bin: i64| {
            let found = summary.bins(1000, level).expect("kept")(bin)?;
            Some((found.first, found.next, found.busy, found.longest, found.is_last))
        };
        assert_eq!(seen(7, 0), Some((0, 12, 11 + 234, 0, false)));
        assert_eq!(seen(7, 1), None);
        assert_eq!(seen(7, 14), Some((84, 96, 11 + 234, 84, true)));
        assert_eq!(seen(8, 1), Some((12, 24, 11 + 234, 23, false)));
        assert_eq!(seen(9, 3), Some((72, 96, 2 * (11 + 234), 83, true)));
        for (level, bin) in [(7, -1), (7, 15), (8, 8), (9, i64::MAX >> 9)] {
            assert_eq!(seen(level, bin), None);
        }
        // Neither finer ones, nor others.
        assert!(summary.bins(1000, 6).is_none() && summary.bins(1064, 7).is_none());
        assert!(summary.bins(1128, 7).is_some() && summary.bins(1128, 8).is_none());
        assert!(summary.bins(1000, 10).is_none(), "these are few enough");
        assert_eq!(Summary::new(&slices(&all[..40]), 1000), None);
        assert_eq!(Summary::new(&slices(&all), 1001), None);
    }
}
