//! What a device does at each moment: computes, communicates, copies, several of these, or nothing and why.
//!
//! The unions of its operations by kind, cut where any of them begins or ends, with sums at every 64th cut: shares of any
//! stretch of time cost a search and a few steps.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use gputrace_analyzer::{Cause, CausedGap};

use super::kinds;
use super::slices::Slices;

const COMPUTES: u8 = 1;
const COMMUNICATES: u8 = 2;
const COPIES: u8 = 4;
/// Above these bits of an idle state lies its cause: its number and 1, or 0 where it is not known.
const CAUSE_SHIFT: u32 = 4;
/// Cuts between two sums.
const BLOCK: usize = 64;

/// How time is shared out: compute alone, communication hidden by it, communication alone, copies alone.
pub(crate) const SHARES: usize = 4;

fn share(state: u8) -> Option<usize> {
    match state & (COMPUTES | COMMUNICATES | COPIES) {
        state if state & COMPUTES != 0 => Some(usize::from(state & COMMUNICATES != 0)),
        state if state & COMMUNICATES != 0 => Some(2),
        COPIES => Some(3),
        _ => None,
    }
}

#[derive(Clone, Debug)]
struct Block {
    /// Time of its first cut.
    time: i64,
    /// Its first cut's place.
    first: u32,
    /// Time by share before it.
    sums: [i64; SHARES],
}

/// The states of a device, from its first operation to its last.
#[derive(Clone, Debug, Default)]
pub(crate) struct Profile {
    blocks: Vec<Block>,
    /// Times of cuts since their block's.
    deltas: Vec<u32>,
    /// The state from each cut on; of the last one idle.
    states: Vec<u8>,
}

/// A stretch in which the device does nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Idle {
    pub(crate) from: i64,
    pub(crate) to: i64,
    pub(crate) cause: Option<Cause>,
}

/// Which of the three a kind counts as; `None` for what the analysis does not count.
fn class(kind: u8) -> Option<usize> {
    match kind {
        kinds::COMPUTE => Some(0),
        kinds::COMMUNICATION => Some(1),
        kinds::COPY | kinds::MEMSET => Some(2),
        _ => None,
    }
}

/// Calls `cut` with each moment at which what a device does changes, and with what it does from then on. `counts` tells of a
/// slice's source whether the analysis counts it. Of what ends before `from` nothing is told.
fn sweep<'a>(
    lanes: impl Iterator<Item = &'a Slices>,
    from: i64,
    counts: impl Fn(u32) -> bool,
    kind_of: impl Fn(u32) -> u8,
    mut cut: impl FnMut(i64, u8),
) {
    let first = |slices: &'a Slices| (slices, slices.within(from, i64::MAX).start);
    let lanes = lanes.map(first).filter(|(slices, first)| *first < slices.len());
    let (lanes, mut places): (Vec<&Slices>, Vec<usize>) = lanes.unzip();
    let mut next: BinaryHeap<Reverse<(i64, usize)>> = (lanes.iter().zip(&places).enumerate())
        .map(|(lane, (slices, first))| Reverse((slices.start(*first), lane)))
        .collect();
    let mut device = Device::default();
    while let Some(Reverse((_, lane))) = next.pop() {
        let slices = lanes[lane];
        let until = next.peek().map_or(i64::MAX, |Reverse((start, _))| *start);
        let mut place = places[lane];
        // The row goes on while it is ahead of the others.
        loop {
            if let Some(class) = class(kind_of(slices.name(place)))
                && counts(slices.source(place))
            {
                device.runs(class, slices.start(place), slices.end_of(place), &mut cut);
            }
            place += 1;
            if place == slices.len() {
                break;
            }
            if slices.start(place) > until {
                next.push(Reverse((slices.start(place), lane)));
                break;
            }
        }
        places[lane] = place;
    }
    device.settle(i64::MAX, &mut cut);
}

/// What a device does, while its operations are gone through by start.
struct Device {
    /// Until when each class goes on.
    ends: [i64; 3],
    /// When operations began last; whatever began then is not told yet.
    began: Option<i64>,
    state: Option<u8>,
}

impl Default for Device {
    fn default() -> Self {
        Self {
            ends: [i64::MIN; 3],
            began: None,
            state: None,
        }
    }
}

impl Device {
    #[inline]
    fn runs(&mut self, class: usize, start: i64, end: i64, cut: &mut impl FnMut(i64, u8)) {
        if end <= start {
            return;
        }
        if self.began != Some(start) {
            self.settle(start, cut);
            self.began = Some(start);
        }
        self.ends[class] = self.ends[class].max(end);
    }

    /// Tells of all changes before `until`.
    #[inline]
    fn settle(&mut self, until: i64, cut: &mut impl FnMut(i64, u8)) {
        let Some(mut time) = self.began else { return };
        loop {
            let mut state = 0;
            let mut next = i64::MAX;
            for (class, end) in self.ends.iter().enumerate() {
                if *end > time {
                    state |= 1 << class;
                    next = next.min(*end);
                }
            }
            if self.state != Some(state) {
                cut(time, state);
                self.state = Some(state);
            }
            if next >= until {
                return;
            }
            time = next;
        }
    }
}

/// The same as [`Profile::shares`] without a profile, which takes longer to make than to go through the slices once. Nothing
/// where bins are narrower than a nanosecond. What is known until some time is not gone through.
pub(crate) fn shares_of<'a>(
    lanes: impl Iterator<Item = &'a Slices>,
    known: Option<(&Profile, i64)>,
    counts: impl Fn(u32) -> bool,
    kind_of: impl Fn(u32) -> u8,
    (from, to): (i64, i64),
    bins: u32,
) -> Option<[Vec<f32>; SHARES]> {
    if to.checked_sub(from)? < i64::from(bins) || bins == 0 {
        return None;
    }
    // Time by share before each edge.
    let mut before: Vec<[i64; SHARES]> = Vec::with_capacity(bins as usize + 1);
    let mut sums = [0; SHARES];
    let since = known.map_or(i64::MIN, |(_, until)| until);
    if let Some((profile, until)) = known {
        let edges = (0..=bins).map(|bin| edge(from, to, bins, bin));
        before.extend(
            edges
                .take_while(|edge| *edge <= until)
                .map(|edge| profile.sums_at(edge)),
        );
        sums = profile.sums_at(until);
    }
    let mut last: Option<(i64, Option<usize>)> = None;
    let mut reach = |time: i64, state: u8| {
        if time < since {
            last = Some((since, share(state)));
            return;
        }
        while before.len() <= bins as usize {
            let at = edge(from, to, bins, before.len() as u32);
            if at > time {
                break;
            }
            let mut then = sums;
            if let Some((since, Some(share))) = last {
                then[share] += at - since;
            }
            before.push(then);
        }
        if let Some((since, Some(share))) = last {
            sums[share] += time - since;
        }
        last = Some((time, share(state)));
    };
    sweep(lanes, since, counts, kind_of, &mut reach);
    reach(i64::MAX, 0);
    let mut shares: [Vec<f32>; SHARES] = [(); SHARES].map(|()| Vec::with_capacity(bins as usize));
    for (bin, pair) in (0..bins).zip(before.windows(2)) {
        let length = edge(from, to, bins, bin + 1) - edge(from, to, bins, bin);
        for (share, (before, after)) in shares.iter_mut().zip(pair[0].iter().zip(pair[1])) {
            share.push(((after - before) as f64 / length as f64) as f32);
        }
    }
    Some(shares)
}

/// Where a bin begins.
fn edge(from: i64, to: i64, bins: u32, bin: u32) -> i64 {
    let length = i128::from(to.max(from)) - i128::from(from);
    let edge = i128::from(from) + length * i128::from(bin) / i128::from(bins.max(1));
    i64::try_from(edge).unwrap_or(i64::MAX)
}

impl Profile {
    /// Of the rows of a device's streams; `counts` tells of a slice's source whether the analysis counts it.
    pub(crate) fn new<'a>(
        lanes: impl Iterator<Item = &'a Slices>,
        counts: impl Fn(u32) -> bool,
        kind_of: impl Fn(u32) -> u8,
    ) -> Self {
        let mut profile = Self::default();
        let all = i64::MIN;
        sweep(lanes, all, counts, kind_of, |time, state| {
            profile.cut(time, state);
        });
        profile
    }

    fn cut(&mut self, time: i64, state: u8) {
        let place = self.deltas.len();
        let fits = self.blocks.last().and_then(|block| {
            let near = place - block.first as usize != BLOCK;
            u32::try_from(time - block.time).ok().filter(|_| near)
        });
        let delta = fits.unwrap_or_else(|| {
            let sums = self.sums_at(time);
            self.blocks.push(Block {
                time,
                first: u32::try_from(place).unwrap_or(u32::MAX),
                sums,
            });
            0
        });
        self.deltas.push(delta);
        self.states.push(state);
    }

    pub(crate) fn bytes(&self) -> usize {
        self.blocks.capacity() * size_of::<Block>() + self.deltas.capacity() * 4 + self.states.capacity()
    }

    /// Time of a cut of a block.
    fn time(&self, block: usize, cut: usize) -> i64 {
        self.blocks[block].time + i64::from(self.deltas[cut])
    }

    /// The cuts of a block.
    fn cuts(&self, block: usize) -> std::ops::Range<usize> {
        let after = self
            .blocks
            .get(block + 1)
            .map_or(self.deltas.len(), |next| next.first as usize);
        self.blocks[block].first as usize..after
    }

    /// Time by share from the beginning to `time`.
    pub(crate) fn sums_at(&self, time: i64) -> [i64; SHARES] {
        let Some(block) = self
            .blocks
            .partition_point(|block| block.time <= time)
            .checked_sub(1)
        else {
            return [0; SHARES];
        };
        let mut sums = self.blocks[block].sums;
        let cuts = self.cuts(block);
        for cut in cuts.clone() {
            let from = self.time(block, cut);
            if from >= time {
                break;
            }
            if let Some(share) = share(self.states[cut]) {
                let to = if cut + 1 < cuts.end {
                    self.time(block, cut + 1)
                } else {
                    time
                };
                sums[share] += to.min(time) - from;
            }
        }
        sums
    }

    /// Shares of each of so many equal bins from `from` to `to`.
    pub(crate) fn shares(&self, from: i64, to: i64, bins: u32) -> [Vec<f32>; SHARES] {
        let mut shares: [Vec<f32>; SHARES] = [(); SHARES].map(|()| Vec::with_capacity(bins as usize));
        let edge = |bin: u32| edge(from, to, bins, bin);
        let mut reached: Option<(i64, [i64; SHARES])> = None;
        for bin in 0..bins {
            let start = edge(bin);
            // Bins narrower than a nanosecond show the one that they lie in.
            let end = edge(bin + 1).max(start.saturating_add(1));
            let before = match reached {
                Some((time, sums)) if time == start => sums,
                _ => self.sums_at(start),
            };
            let after = self.sums_at(end);
            let length = end.saturating_sub(start) as f64;
            for (share, (before, after)) in shares.iter_mut().zip(before.iter().zip(after)) {
                share.push(((after - before) as f64 / length) as f32);
            }
            reached = Some((end, after));
        }
        shares
    }

    /// The idle stretch that ends at `time`.
    pub(crate) fn idle_before(&self, time: i64) -> Option<Idle> {
        let block = self
            .blocks
            .partition_point(|block| block.time <= time)
            .checked_sub(1)?;
        let cuts = self.cuts(block);
        let delta = u32::try_from(time - self.blocks[block].time).ok()?;
        let cut = cuts.start + self.deltas[cuts.clone()].binary_search(&delta).ok()?;
        let before = cut.checked_sub(1)?;
        let block_before = if before < cuts.start {
            block.checked_sub(1)?
        } else {
            block
        };
        self.idle(block_before, before).map(|(from, cause)| Idle {
            from,
            to: time,
            cause,
        })
    }

    /// Start and cause of the state from a cut on, where it is idle.
    fn idle(&self, block: usize, cut: usize) -> Option<(i64, Option<Cause>)> {
        let state = self.states[cut];
        let cause = (state >> CAUSE_SHIFT).checked_sub(1);
        share(state).is_none().then(|| {
            (
                self.time(block, cut),
                cause.and_then(|cause| Cause::ALL.get(usize::from(cause)).copied()),
            )
        })
    }

    /// Notes the causes of idle stretches. Where an operation without length cuts one, it has the cause of its longest part.
    pub(crate) fn set_causes(&mut self, gaps: &[CausedGap]) {
        let mut gaps = gaps.iter().peekable();
        for block in 0..self.blocks.len() {
            for cut in self.cuts(block) {
                let from = self.time(block, cut);
                let to = if cut + 1 == self.deltas.len() {
                    break;
                } else if cut + 1 < self.cuts(block).end {
                    self.time(block, cut + 1)
                } else {
                    self.blocks[block + 1].time
                };
                if share(self.states[cut]).is_some() {
                    continue;
                }
                let mut longest: Option<(i64, Cause)> = None;
                while let Some(gap) = gaps.next_if(|gap| gap.start_ns < to) {
                    let length = gap.end_ns.min(to) - gap.start_ns.max(from);
                    if length > longest.map_or(0, |(length, _)| length) {
                        longest = Some((length, gap.cause));
                    }
                }
                if let Some((_, cause)) = longest {
                    self.states[cut] = (cause as u8 + 1) << CAUSE_SHIFT;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Rows of (start, duration, kind).
    fn profile(rows: &[Vec<(i64, i64, u8)>]) -> Profile {
        Profile::new(slices(rows).iter(), |_| true, |name| name as u8)
    }

    fn slices(rows: &[Vec<(i64, i64, u8)>]) -> Vec<Slices> {
        rows.iter()
            .map(|row| {
                let mut slices = Slices::default();
                for (start, duration, kind) in row {
                    slices.push(*start, *duration, u32::from(*kind), 0);
                }
                slices
            })
            .collect()
    }

    #[test]
    fn time_is_shared_out_by_what_runs() {
        let (compute, communication, copy, memset) =
            (kinds::COMPUTE, kinds::COMMUNICATION, kinds::COPY, kinds::MEMSET);
        let mut profile = profile(&[
            vec![
                (0, 10, compute),
                (20, 10, compute),
                (50, 10, copy),
                (60, 5, memset),
            ],
            vec![
                (5, 20, communication),
                (58, 1, compute),
                (70, 0, compute),
                (80, 20, kinds::GRAPH_LAUNCH),
            ],
        ]);
        // 0 compute 5 both 10 communication 20 both 25 compute 30 idle 50 copy 58 compute 59 copy 65.
        assert_eq!(profile.sums_at(-5), [0; 4]);
        assert_eq!(profile.sums_at(7), [5, 2, 0, 0]);
        assert_eq!(profile.sums_at(40), [10, 10, 10, 0]);
        assert_eq!(profile.sums_at(1000), [11, 10, 10, 14]);
        let idle = |cause| Idle {
            from: 30,
            to: 50,
            cause,
        };
        assert_eq!(profile.idle_before(50), Some(idle(None)));
        assert_eq!(profile.idle_before(0), None);
        assert_eq!(profile.idle_before(25), None);
        assert_eq!(profile.idle_before(51), None);
        let gap = |start_ns, end_ns, cause| CausedGap {
            start_ns,
            end_ns,
            cause,
        };
        profile.set_causes(&[
            gap(30, 35, Cause::HostLate),
            gap(35, 50, Cause::EventWait),
            gap(65, 70, Cause::Unknown),
        ]);
        assert_eq!(profile.idle_before(50), Some(idle(Some(Cause::EventWait))));
        assert_eq!(profile.sums_at(1000), [11, 10, 10, 14]);
    }

    #[test]
    fn idle_stretches_of_minutes_and_many_cuts_are_kept() {
        let minute = 60_000_000_000;
        let row: Vec<(i64, i64, u8)> = (0..200)
            .map(|place| (place * minute, 7, kinds::COMPUTE))
            .collect();
        let mut profile = profile(&[row]);
        assert_eq!(profile.sums_at(200 * minute), [1400, 0, 0, 0]);
        let gaps: Vec<CausedGap> = (0..199)
            .map(|place| CausedGap {
                start_ns: place * minute + 7,
                end_ns: (place + 1) * minute,
                cause: Cause::ALL[place as usize % 7],
            })
            .collect();
        profile.set_causes(&gaps);
        for place in 0..199 {
            let idle = profile.idle_before((place + 1) * minute).unwrap();
            assert_eq!(
                (idle.from, idle.cause),
                (place * minute + 7, Some(Cause::ALL[place as usize % 7]))
            );
        }
    }

    proptest! {
        #[test]
        fn sums_are_those_of_looking_at_every_nanosecond(
            rows in proptest::collection::vec(proptest::collection::vec((0i64..15, 0i64..15, 0u8..5), 0..60), 1..5),
            at in 0i64..1500,
        ) {
            let rows: Vec<Vec<(i64, i64, u8)>> = rows.iter().map(|row| {
                let mut now = 0;
                row.iter().map(|(gap, duration, kind)| {
                    let start = now + gap;
                    now = start + duration;
                    (start, *duration, *kind)
                }).collect()
            }).collect();
            let mut expected = [0; SHARES];
            for time in 0..at {
                let runs = |of: &[u8]| rows.iter().flatten().any(|(start, duration, kind)| {
                    of.contains(kind) && *start <= time && time < start + duration
                });
                let (compute, communication) = (runs(&[kinds::COMPUTE]), runs(&[kinds::COMMUNICATION]));
                match (compute, communication) {
                    (true, both) => expected[usize::from(both)] += 1,
                    (_, true) => expected[2] += 1,
                    _ => expected[3] += i64::from(runs(&[kinds::COPY, kinds::MEMSET])),
                }
            }
            let whole = profile(&rows);
            prop_assert_eq!(whole.sums_at(at), expected);
            let slices = slices(&rows);
            let window = (at - 300, at + 200);
            fn shares(slices: &[Slices], known: Option<(&Profile, i64)>, window: (i64, i64)) -> Option<[Vec<f32>; SHARES]> {
                shares_of(slices.iter(), known, |_| true, |name| name as u8, window, 7)
            }
            prop_assert_eq!(shares(&slices, None, window), Some(whole.shares(window.0, window.1, 7)));
            // What is known of the beginning says the same.
            for until in [at - 350, at - 100, at, at + 300] {
                let began: Vec<Vec<(i64, i64, u8)>> = rows.iter()
                    .map(|row| row.iter().copied().filter(|(start, ..)| *start < until).collect())
                    .collect();
                let known = profile(&began);
                prop_assert_eq!(shares(&slices, Some((&known, until)), window), Some(whole.shares(window.0, window.1, 7)));
            }
            for pair in whole.states.windows(2) {
                prop_assert_ne!(pair[0], pair[1], "a cut where nothing changes");
            }
        }
    }
}
