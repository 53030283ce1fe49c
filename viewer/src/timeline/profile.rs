//! What a device does at each moment: computes, communicates, copies, several of these, or nothing and why.
//!
//! The unions of its operations by kind, cut where any of them begins or ends, with sums at every 64th cut: shares of any
//! stretch of time cost a search and a few steps.

use gputrace_analyzer::intervals::{Interval, IntervalSet};
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

impl Profile {
    /// Of the rows of a device's streams; `counts` tells of a slice's source whether the analysis counts it.
    pub(crate) fn new<'a>(
        lanes: impl Iterator<Item = &'a Slices>,
        counts: impl Fn(u32) -> bool,
        kind_of: impl Fn(u32) -> u8,
    ) -> Self {
        let mut by_class: [Vec<(i64, i64)>; 3] = Default::default();
        for slices in lanes {
            for place in 0..slices.len() {
                if let Some(class) = class(kind_of(slices.name(place)))
                    && counts(slices.source(place))
                {
                    by_class[class].push((slices.start(place), slices.end_of(place)));
                }
            }
        }
        let sets = by_class.map(|mut intervals| {
            // Each row is a run: a stable sort merges them.
            intervals.sort_by_key(|(start, _)| *start);
            IntervalSet::union_of_sorted(intervals)
        });
        let mut profile = Self::default();
        let mut coming = sets.each_ref().map(|set| set.as_slice().iter().peekable());
        let mut open: [Option<Interval>; 3] = [None; 3];
        let mut last_state = None;
        loop {
            // The next moment at which anything begins or ends.
            let mut next = i64::MAX;
            for (open, coming) in open.iter().zip(&mut coming) {
                let change = open.map_or_else(|| coming.peek().map(|next| next.start), |open| Some(open.end));
                next = next.min(change.unwrap_or(i64::MAX));
            }
            if next == i64::MAX {
                break;
            }
            let mut state = 0;
            for (class, (open, coming)) in open.iter_mut().zip(&mut coming).enumerate() {
                if open.is_some_and(|open| open.end <= next) {
                    *open = None;
                }
                if open.is_none() {
                    *open = coming.next_if(|interval| interval.start <= next).copied();
                }
                state |= u8::from(open.is_some()) << class;
            }
            if last_state != Some(state) {
                profile.cut(next, state);
                last_state = Some(state);
            }
        }
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
        let length = i128::from(to.max(from)) - i128::from(from);
        let edge = |bin: u32| {
            let edge = i128::from(from) + length * i128::from(bin) / i128::from(bins.max(1));
            i64::try_from(edge).unwrap_or(i64::MAX)
        };
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
            for (share, (before, after)) in shares.iter_mut().zip(before.iter().zip(after)) {
                share.push(((after - before) as f64 / (end - start) as f64) as f32);
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
        let rows: Vec<Slices> = rows
            .iter()
            .map(|row| {
                let mut slices = Slices::default();
                for (start, duration, kind) in row {
                    slices.push(*start, *duration, u32::from(*kind), 0);
                }
                slices
            })
            .collect();
        Profile::new(rows.iter(), |_| true, |name| name as u8)
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
            prop_assert_eq!(profile(&rows).sums_at(at), expected);
        }
    }
}
