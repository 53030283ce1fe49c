//! All clocks against a few: those that met directly or by others form an island, which has one reference.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use gputrace_trace::alignment::{Bounds, Course, Knot, Limits};
use gputrace_trace::parallel;

use super::observed::Meeting;
use super::pair::{Fit, PairKnot, fit};
use super::sample::Sample;

/// One clock against the reference of its island.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Estimated {
    /// The reference, which may be the clock itself.
    pub reference: u32,
    /// How far it was ahead of the reference.
    pub course: Course,
    /// The clock that it was compared with, on the way to the reference.
    pub by_way_of: Option<u32>,
    /// How many collectives it rests on: those that it shares with that one; of a reference those that it took part in.
    pub collectives: usize,
    /// When it was set, by itself, and by how much.
    pub steps: Vec<(i64, i64)>,
    /// Collectives that contradict the others: an operation would have ended before another had begun that it needed.
    pub contradicted: usize,
}

/// What one clock says of one meeting.
#[derive(Clone, Copy, Debug)]
struct Part {
    meeting: u32,
    /// The median of its members' ends.
    end_ns: i64,
    first_end_ns: i64,
    last_start_ns: i64,
}

/// Estimates every clock below `clocks`, from collectives in any order.
#[must_use]
pub fn estimate(clocks: usize, meetings: &[Meeting]) -> Vec<Estimated> {
    let parts = parts(clocks, meetings);
    let shared = shared(clocks, meetings, &parts);
    let ways = ways(clocks, &shared);
    let fits: Vec<Fit> = parallel::map(clocks, |clock| {
        let Some(parent) = ways[clock].1 else {
            return Fit::default();
        };
        let samples = samples(meetings, &parts[parent], &parts[clock]);
        fit(&samples, (quantum(&parts[parent]), quantum(&parts[clock])))
    });
    let mut estimated: Vec<Estimated> = vec![Estimated::default(); clocks];
    // Nearest to the reference first.
    let mut order: Vec<usize> = (0..clocks).collect();
    order.sort_by_key(|clock| ways[*clock].2);
    for clock in order {
        let number = u32::try_from(clock).unwrap_or(u32::MAX);
        let (reference, parent, _) = ways[clock];
        estimated[clock] = match parent {
            None => Estimated {
                reference: number,
                collectives: parts[clock].len(),
                ..Estimated::default()
            },
            Some(parent) => {
                let fit = &fits[clock];
                let before = &estimated[parent];
                let course = behind(&before.course, fit);
                let own = |time_ns: i64| {
                    let at = fit.knots.partition_point(|knot| knot.time_ns <= time_ns);
                    let offset = fit
                        .knots
                        .get(at.saturating_sub(1))
                        .map_or(0, |knot| knot.offset_ns);
                    time_ns.saturating_add(offset)
                };
                Estimated {
                    reference: u32::try_from(reference).unwrap_or(u32::MAX),
                    by_way_of: u32::try_from(parent).ok(),
                    collectives: shared.get(&pair(parent, clock)).copied().unwrap_or(0) as usize,
                    steps: fit.steps.iter().map(|(time, by)| (own(*time), *by)).collect(),
                    contradicted: fit.contradicted,
                    course,
                }
            }
        };
    }
    estimated
}

fn pair(a: usize, b: usize) -> (u32, u32) {
    let number = |clock: usize| u32::try_from(clock).unwrap_or(u32::MAX);
    (number(a.min(b)), number(a.max(b)))
}

/// What each clock says of its meetings, in their order.
fn parts(clocks: usize, meetings: &[Meeting]) -> Vec<Vec<Part>> {
    let mut parts: Vec<Vec<Part>> = vec![Vec::new(); clocks];
    let mut members: Vec<(u32, i64, i64)> = Vec::new();
    for (meeting, place) in meetings.iter().zip(0u32..) {
        members.clear();
        let of_known = meeting
            .members
            .iter()
            .filter(|member| (member.clock as usize) < clocks);
        members.extend(of_known.map(|member| (member.clock, member.end_ns, member.start_ns)));
        members.sort_unstable();
        for of_clock in members.chunk_by(|a, b| a.0 == b.0) {
            let (clock, first_end_ns, _) = of_clock[0];
            let middle = of_clock.len() / 2;
            let end_ns = if of_clock.len() % 2 == 1 {
                of_clock[middle].1
            } else {
                i64::midpoint(of_clock[middle - 1].1, of_clock[middle].1)
            };
            let last_start_ns = of_clock
                .iter()
                .map(|(.., start)| *start)
                .max()
                .unwrap_or(first_end_ns);
            // By one clock one ended before another had begun: a wrong match.
            if last_start_ns <= first_end_ns {
                parts[clock as usize].push(Part {
                    meeting: place,
                    end_ns,
                    first_end_ns,
                    last_start_ns,
                });
            }
        }
    }
    parts
}

/// In how many meetings each pair of clocks met.
fn shared(clocks: usize, meetings: &[Meeting], parts: &[Vec<Part>]) -> BTreeMap<(u32, u32), u32> {
    let mut here: Vec<Vec<u32>> = vec![Vec::new(); meetings.len()];
    for (clock, parts) in (0u32..).zip(parts.iter().take(clocks)) {
        for part in parts {
            here[part.meeting as usize].push(clock);
        }
    }
    // Few communicators, many collectives on each.
    let mut sets: rustc_hash::FxHashMap<&[u32], u32> = rustc_hash::FxHashMap::default();
    for set in here.iter().filter(|set| set.len() > 1) {
        *sets.entry(set).or_default() += 1;
    }
    let mut shared: rustc_hash::FxHashMap<(u32, u32), u32> = rustc_hash::FxHashMap::default();
    for (set, count) in sets {
        for (place, a) in set.iter().enumerate() {
            for b in &set[place + 1..] {
                *shared.entry((*a, *b)).or_default() += count;
            }
        }
    }
    shared.into_iter().collect()
}

/// By clock: the reference, the clock before it on the way there, and how many those are. The way is the one whose variance is
/// least, which falls with the number of collectives.
fn ways(clocks: usize, shared: &BTreeMap<(u32, u32), u32>) -> Vec<(usize, Option<usize>, usize)> {
    const WHOLE: u64 = 1 << 40;
    let mut neighbours: Vec<Vec<(usize, u64)>> = vec![Vec::new(); clocks];
    for ((a, b), count) in shared {
        let cost = WHOLE / u64::from((*count).max(1));
        neighbours[*a as usize].push((*b as usize, cost));
        neighbours[*b as usize].push((*a as usize, cost));
    }
    let mut ways: Vec<Option<(usize, Option<usize>, usize)>> = vec![None; clocks];
    for reference in 0..clocks {
        if ways[reference].is_some() {
            continue;
        }
        let mut next = BinaryHeap::from([Reverse((0u64, 0usize, reference, None))]);
        while let Some(Reverse((cost, hops, clock, from))) = next.pop() {
            if ways[clock].is_some() {
                continue;
            }
            ways[clock] = Some((reference, from, hops));
            for (other, more) in &neighbours[clock] {
                if ways[*other].is_none() {
                    next.push(Reverse((
                        cost.saturating_add(*more),
                        hops + 1,
                        *other,
                        Some(clock),
                    )));
                }
            }
        }
    }
    ways.into_iter().map(|way| way.unwrap_or((0, None, 0))).collect()
}

/// What the meetings of both say, by the first clock's time.
fn samples(meetings: &[Meeting], first: &[Part], second: &[Part]) -> Vec<Sample> {
    let mut samples = Vec::with_capacity(first.len().min(second.len()));
    let mut others = second.iter().peekable();
    for part in first {
        while others.next_if(|other| other.meeting < part.meeting).is_some() {}
        let Some(other) = others.next_if(|other| other.meeting == part.meeting) else {
            continue;
        };
        let meeting = &meetings[part.meeting as usize];
        samples.push(Sample {
            time_ns: part.end_ns,
            offset_ns: other.end_ns.saturating_sub(part.end_ns),
            low_ns: other.last_start_ns.saturating_sub(part.first_end_ns),
            high_ns: other.first_end_ns.saturating_sub(part.last_start_ns),
            class: meeting.class,
            kind: meeting.kind,
        });
    }
    samples.sort_by_key(|sample| sample.time_ns);
    samples
}

/// What a clock's stamps are multiples of, up to 10 us; 0 where that is no more than a nanosecond.
fn quantum(parts: &[Part]) -> i64 {
    const MOST_NS: u64 = 10_000;
    let Some(first) = parts.first() else { return 0 };
    let mut divisor = 0u64;
    for part in parts {
        let (mut a, mut b) = (part.first_end_ns.abs_diff(first.first_end_ns), divisor);
        while b != 0 {
            (a, b) = (b, a % b);
        }
        divisor = a;
        if divisor == 1 {
            return 0;
        }
    }
    i64::try_from(divisor.min(MOST_NS)).unwrap_or(0)
}

/// A clock's course, by that of the one it was compared with.
fn behind(parent: &Course, fit: &Fit) -> Course {
    // Where either bends.
    let mut bends: Vec<(i64, bool)> = fit.knots.iter().map(|knot| (knot.time_ns, knot.jump)).collect();
    bends.extend(parent.knots.iter().map(|knot| (knot.local_ns, knot.jump)));
    bends.sort_unstable();
    bends.dedup_by_key(|(time, _)| *time);
    let pair = as_course(&fit.knots);
    let mut knots: Vec<Knot> = Vec::with_capacity(bends.len());
    for (time_ns, jump) in bends {
        let (own, before) = (pair.at(time_ns), parent.at(time_ns));
        let width = (own.half_width_ns as f64).hypot(before.half_width_ns as f64);
        let knot = Knot {
            local_ns: time_ns.saturating_add(own.offset_ns),
            offset_ns: own.offset_ns.saturating_add(before.offset_ns),
            half_width_ns: if width < 9e18 {
                width.ceil() as i64
            } else {
                i64::MAX
            },
            jump,
        };
        knots.push(knot);
    }
    let mut bounds = parent.bounds.clone();
    let moved = |limits: &Limits| {
        let each = |values: &[(i64, i64)]| {
            values
                .iter()
                .map(|(time, value)| (parent.to_reference(*time), *value))
                .collect()
        };
        Limits {
            from_ns: parent.to_reference(limits.from_ns),
            to_ns: parent.to_reference(limits.to_ns),
            lows: each(&limits.lows),
            highs: each(&limits.highs),
        }
    };
    bounds.push(Bounds(fit.limits.iter().map(moved).collect()));
    let wander_ns = (fit.wander_ns as f64).hypot(parent.wander_ns as f64).ceil() as i64;
    Course {
        knots: thinned(&without_overlaps(&knots), wander_ns),
        wander_ns,
        bounds,
    }
}

/// A clock that was set back shows some moments twice, of which nothing says which is which: there it may have been set already
/// or not.
fn without_overlaps(knots: &[Knot]) -> Vec<Knot> {
    let mut kept: Vec<Knot> = Vec::with_capacity(knots.len());
    let mut from = 0;
    let mut pieces: Vec<&[Knot]> = Vec::new();
    for place in 1..=knots.len() {
        if place == knots.len() || knots[place].jump {
            pieces.push(&knots[from..place]);
            from = place;
        }
    }
    let ends_of = |piece: &[Knot]| (piece[0], piece[piece.len() - 1]);
    let reference = |knot: Knot| knot.local_ns.saturating_sub(knot.offset_ns);
    // It was set somewhere between two operations: until the second it may still have gone on as before, and from the first on
    // have been set.
    let until = |place: usize| {
        let (own, next) = (ends_of(pieces[place]).1, ends_of(pieces[place + 1]).0);
        reference(next).saturating_add(own.offset_ns)
    };
    let since = |place: usize| {
        let (before, own) = (ends_of(pieces[place - 1]).1, ends_of(pieces[place]).0);
        reference(before).saturating_add(own.offset_ns)
    };
    for (place, piece) in pieces.iter().enumerate() {
        let line = Course {
            knots: piece.to_vec(),
            ..Course::default()
        };
        let at = |local_ns: i64, jump: bool| Knot {
            jump,
            ..line.at(local_ns)
        };
        let begins = piece[0].local_ns;
        let ended = (0..place).map(until).max();
        let next = (place + 1..pieces.len()).map(since).min();
        let ends = piece[piece.len() - 1].local_ns;
        let first = ended.map_or(begins, |ended| ended.max(begins));
        let last = next.map_or(ends, |next| next.min(ends));
        let jump = place > 0;
        if first > last {
            // Shown twice altogether.
            kept.push(at(i64::midpoint(first, last), jump));
            continue;
        }
        kept.push(at(first, jump));
        kept.extend(
            piece
                .iter()
                .filter(|knot| knot.local_ns > first && knot.local_ns < last),
        );
        kept.push(at(last, false));
    }
    let mut latest = i64::MIN;
    for knot in &mut kept {
        knot.local_ns = knot.local_ns.max(latest);
        latest = knot.local_ns;
    }
    kept
}

fn as_course(knots: &[PairKnot]) -> Course {
    let knots = knots.iter().map(|knot| Knot {
        local_ns: knot.time_ns,
        offset_ns: knot.offset_ns,
        half_width_ns: knot.half_width_ns,
        jump: knot.jump,
    });
    Course {
        knots: knots.collect(),
        ..Course::default()
    }
}

/// Leaves out the knots that lie on a line between those that stay.
fn thinned(knots: &[Knot], wander_ns: i64) -> Vec<Knot> {
    const OFF_NS: i64 = 20;
    /// Knots that one line may replace: looking at them takes time.
    const MOST: usize = 64;
    let mut kept: Vec<Knot> = Vec::new();
    let mut from = 0;
    while from < knots.len() {
        kept.push(knots[from]);
        let mut to = from + 1;
        while to + 1 < knots.len() && to + 1 - from < MOST && !knots[to].jump && !knots[to + 1].jump {
            let line = Course {
                knots: vec![knots[from], knots[to + 1]],
                wander_ns,
                bounds: Vec::new(),
            };
            let fits = knots[from + 1..=to].iter().all(|knot| {
                let on_line = line.at(knot.local_ns);
                let wider = on_line.half_width_ns.saturating_sub(knot.half_width_ns);
                on_line.offset_ns.abs_diff(knot.offset_ns) <= OFF_NS.unsigned_abs()
                    && (-OFF_NS..=OFF_NS + knot.half_width_ns / 20).contains(&wider)
            });
            if !fits {
                break;
            }
            to += 1;
        }
        from = to;
    }
    kept
}
