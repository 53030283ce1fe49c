//! All clocks against a few: those that met directly or by others form an island, which has one reference.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use gputrace_trace::alignment::{Bounds, Course, Knot, Limits};
use gputrace_trace::parallel;
use rustc_hash::FxHashMap;

use super::normal::{ROOT_HALF_PI, WITHIN_99};
use super::observed::{Meeting, Member};
use super::pair::{Fit, fit};
use super::sample::{Last, Sample};

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
    /// How much longer collectives take when the last rank to arrive is one of its own than when it is one of the clock's that it was
    /// compared with, and the 99 % half width of that. `None` where too few say so.
    pub longer_ns: Option<(i64, i64)>,
}

/// What one clock says of one meeting.
#[derive(Clone, Copy, Debug)]
struct Part {
    meeting: u32,
    /// The median of its members' ends.
    end_ns: i64,
    first_end_ns: i64,
    last_start_ns: i64,
    /// The standard error of `end_ns`, by how the ends scatter; 0 of one.
    spread_ns: f64,
    /// Whether the last rank of all arrived here.
    is_last: bool,
}

/// Whether a clock may show this: any two such times differ by what fits.
fn is_a_time(member: &Member) -> bool {
    const FARTHEST_NS: u64 = 1 << 62;
    member.start_ns.unsigned_abs() < FARTHEST_NS && member.end_ns.unsigned_abs() < FARTHEST_NS
}

/// The standard error of the median of ends, by their mean distance from it; 0 of one.
fn spread_ns(ends: &[(u32, i64, i64)], middle_ns: i64) -> f64 {
    let count = ends.len() as f64;
    if ends.len() < 2 {
        return 0.0;
    }
    let off = ends.iter().map(|(_, end, _)| end.abs_diff(middle_ns) as f64);
    let deviation = ROOT_HALF_PI * off.sum::<f64>() / (count * (count - 1.0)).sqrt();
    // The median of two is their mean.
    let of_median = if ends.len() == 2 { 1.0 } else { ROOT_HALF_PI };
    of_median * deviation / count.sqrt()
}

/// Whose rank arrived last has waited least, by its own clock: by so much less than any other host's.
const CLEARLY_NS: i64 = 2_000;

/// Estimates every clock below `clocks`, from collectives in any order.
#[must_use]
pub fn estimate(clocks: usize, meetings: &[Meeting]) -> Vec<Estimated> {
    let parts = parts(clocks, meetings);
    let ways = ways(&Shared::of(clocks, meetings.len(), &parts));
    let fits: Vec<Fit> = parallel::map(clocks, |clock| {
        let Some((parent, _)) = ways[clock].before else {
            return Fit::default();
        };
        let samples = samples(meetings, &parts[parent], &parts[clock]);
        fit(&samples, (quantum(&parts[parent]), quantum(&parts[clock])))
    });
    let mut estimated: Vec<Estimated> = vec![Estimated::default(); clocks];
    // Nearest to the reference first.
    let mut order: Vec<usize> = (0..clocks).collect();
    order.sort_by_key(|clock| ways[*clock].hops);
    for clock in order {
        let number = u32::try_from(clock).unwrap_or(u32::MAX);
        let reference = ways[clock].reference;
        estimated[clock] = match ways[clock].before {
            None => Estimated {
                reference: number,
                collectives: parts[clock].len(),
                ..Estimated::default()
            },
            Some((parent, collectives)) => {
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
                    collectives,
                    steps: fit.steps.iter().map(|(time, by)| (own(*time), *by)).collect(),
                    contradicted: fit.contradicted,
                    longer_ns: fit.longer.map(|longer| {
                        let half_width = WITHIN_99 * longer.error;
                        (longer.by.round() as i64, half_width.ceil() as i64)
                    }),
                    course,
                }
            }
        };
    }
    estimated
}

/// What each clock says of its meetings, in their order.
fn parts(clocks: usize, meetings: &[Meeting]) -> Vec<Vec<Part>> {
    let mut parts: Vec<Vec<Part>> = vec![Vec::new(); clocks];
    let mut members: Vec<(u32, i64, i64)> = Vec::new();
    let mut here: Vec<(u32, Part)> = Vec::new();
    for (meeting, place) in meetings.iter().zip(0u32..) {
        members.clear();
        let of_known = meeting
            .members
            .iter()
            .filter(|member| (member.clock as usize) < clocks && is_a_time(member));
        members.extend(of_known.map(|member| (member.clock, member.end_ns, member.start_ns)));
        members.sort_unstable();
        here.clear();
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
                let part = Part {
                    meeting: place,
                    end_ns,
                    first_end_ns,
                    last_start_ns,
                    spread_ns: spread_ns(of_clock, end_ns),
                    is_last: false,
                };
                here.push((clock, part));
            }
        }
        let took = |part: &Part| part.end_ns.saturating_sub(part.last_start_ns);
        let least = here.iter().map(|(_, part)| took(part)).min().unwrap_or(0);
        let near = |part: &Part| took(part) < least.saturating_add(CLEARLY_NS);
        if here.iter().filter(|(_, part)| near(part)).count() == 1 {
            for (_, part) in &mut here {
                part.is_last = near(part);
            }
        }
        for (clock, part) in &here {
            parts[*clock as usize].push(*part);
        }
    }
    parts
}

/// Which clocks met, and how often.
struct Shared {
    /// Clocks that met, in order, and how often just these did: there are few communicators with many collectives on each.
    sets: Vec<(Vec<u32>, u32)>,
    /// By clock: the sets that it is in.
    of_clock: Vec<Vec<usize>>,
}

impl Shared {
    fn of(clocks: usize, meetings: usize, parts: &[Vec<Part>]) -> Self {
        let mut here: Vec<Vec<u32>> = vec![Vec::new(); meetings];
        for (clock, parts) in (0u32..).zip(parts.iter().take(clocks)) {
            for part in parts {
                here[part.meeting as usize].push(clock);
            }
        }
        let mut counts: FxHashMap<Vec<u32>, u32> = FxHashMap::default();
        for set in here.into_iter().filter(|set| set.len() > 1) {
            *counts.entry(set).or_default() += 1;
        }
        let sets: Vec<(Vec<u32>, u32)> = counts.into_iter().collect();
        let mut of_clock: Vec<Vec<usize>> = vec![Vec::new(); clocks];
        for (place, (set, _)) in sets.iter().enumerate() {
            for clock in set {
                of_clock[*clock as usize].push(place);
            }
        }
        Self { sets, of_clock }
    }

    /// In how many meetings a clock met each of the others.
    fn with(&self, clock: usize) -> impl Iterator<Item = (usize, usize)> {
        let mut counts = vec![0usize; self.of_clock.len()];
        for place in &self.of_clock[clock] {
            let (set, count) = &self.sets[*place];
            for other in set {
                counts[*other as usize] += *count as usize;
            }
        }
        counts[clock] = 0;
        counts.into_iter().enumerate().filter(|(_, count)| *count > 0)
    }

    /// In how many meetings a clock took part at all.
    fn all(&self, clock: usize) -> usize {
        self.of_clock[clock]
            .iter()
            .map(|place| self.sets[*place].1 as usize)
            .sum()
    }
}

/// How a clock is compared with its reference.
#[derive(Clone, Copy, Debug, Default)]
struct Way {
    reference: usize,
    /// The clock before it on the way, and in how many meetings they met; `None` of the reference itself.
    before: Option<(usize, usize)>,
    /// How many there are on the way.
    hops: usize,
}

/// By clock: the way to the reference whose variance is least, which falls with the number of collectives.
fn ways(shared: &Shared) -> Vec<Way> {
    const WHOLE: u64 = 1 << 40;
    let cost_of = |count: usize| WHOLE / (count as u64).max(1);
    let clocks = shared.of_clock.len();
    let mut ways: Vec<Option<Way>> = vec![None; clocks];
    let mut least = vec![u64::MAX; clocks];
    for reference in 0..clocks {
        if ways[reference].is_some() {
            continue;
        }
        let mut next = BinaryHeap::from([Reverse((0u64, 0usize, reference, None))]);
        while let Some(Reverse((cost, hops, clock, before))) = next.pop() {
            if ways[clock].is_some() {
                continue;
            }
            ways[clock] = Some(Way {
                reference,
                before,
                hops,
            });
            // Nobody comes nearer by way of a clock than this.
            let nearest = cost.saturating_add(cost_of(shared.all(clock)));
            let is_of_use = (0..clocks).any(|other| ways[other].is_none() && least[other] > nearest);
            if !is_of_use {
                continue;
            }
            for (other, count) in shared.with(clock) {
                let cost = cost.saturating_add(cost_of(count));
                if ways[other].is_none() && cost < least[other] {
                    least[other] = cost;
                    next.push(Reverse((cost, hops + 1, other, Some((clock, count)))));
                }
            }
        }
    }
    ways.into_iter().map(Option::unwrap_or_default).collect()
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
            work: meeting.work,
            spread_ns: part.spread_ns.hypot(other.spread_ns),
            last: (part.is_last || other.is_last).then(|| {
                let own = if other.is_last { other } else { part };
                Last {
                    is_second: other.is_last,
                    took_ns: own.end_ns.saturating_sub(own.last_start_ns),
                }
            }),
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
    let pair = as_course(fit);
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

fn as_course(fit: &Fit) -> Course {
    let knots = fit.knots.iter().map(|knot| Knot {
        local_ns: knot.time_ns,
        offset_ns: knot.offset_ns,
        half_width_ns: knot.half_width_ns,
        jump: knot.jump,
    });
    Course {
        knots: knots.collect(),
        bounds: vec![Bounds(fit.limits.clone())],
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
