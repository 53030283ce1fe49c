//! What is known of each clock that stamped the recording.

use std::collections::BTreeMap;

use gputrace_trace::alignment::{Alignment, HostClock};
use gputrace_trace::{Recording, TimeNs};
use serde::Serialize;

/// Moments of a course that are listed.
const MOST_MOMENTS: i64 = 64;

/// A clock, against the one that stamps were moved to.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ClockAnalysis {
    /// The host; empty where the source does not name it. Several clocks may have one name.
    pub host: String,
    /// The ranks that it stamped.
    pub ranks: Vec<u32>,
    /// The place among the clocks of the one that it is compared with, which may be itself. Clocks of different references have
    /// nothing in common.
    pub reference: usize,
    /// The moment in the middle of what it was compared by, by itself, for which the next numbers are; null where it was not.
    pub at_ns: Option<TimeNs>,
    /// What it showed beyond the reference then; null where that is not known.
    pub offset_ns: Option<i64>,
    /// By how much that grows, of the time that passes: 1e-6 is a microsecond a second.
    pub drift: Option<f64>,
    /// With a probability of 99 % the offset is right within this; null where that is not known.
    pub half_width_ns: Option<i64>,
    /// The offset cannot be smaller: an operation would have ended before another had begun that it needed.
    pub hard_low_ns: Option<i64>,
    /// Nor greater.
    pub hard_high_ns: Option<i64>,
    /// How many collectives that rests on; of a reference, how many it shares with others.
    pub collectives: u64,
    /// Collectives that were left out because the others contradict them: wrong matches.
    pub contradicted: u64,
    /// How much longer collectives take when the last rank to arrive is one of its own than when it is one of the clock's that it was
    /// compared with: by how much it leaves late, or begins late. Null where too few say so: then nothing says whether it leaves
    /// collectives of all kinds late alike, and only the hard limits have room for that.
    pub longer_ns: Option<i64>,
    /// With a probability of 99 % that is right within this.
    pub longer_half_width_ns: Option<i64>,
    /// When it was set while the recording went on, as far as that was found by comparing.
    pub set: Vec<ClockSet>,
    /// The offset over time, at most 65 moments of it.
    pub course: Vec<ClockMoment>,
    /// What the numbers rest on, or why there are none.
    pub source: String,
}

/// A clock was set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ClockSet {
    /// About when, by itself.
    pub at_ns: TimeNs,
    /// Forward where positive.
    pub by_ns: i64,
}

/// A clock at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ClockMoment {
    /// By itself.
    pub at_ns: TimeNs,
    /// What it shows beyond the reference.
    pub offset_ns: i64,
    /// With a probability of 99 % that is right within this.
    pub half_width_ns: i64,
}

/// Every clock, by its lowest rank.
pub(crate) fn clocks(recording: &Recording, ranks: &[Option<u32>]) -> Vec<ClockAnalysis> {
    let Some(alignment) = &recording.clocks else {
        return by_host(recording, ranks);
    };
    let mut of_clock: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for (process, rank) in recording.processes.iter().zip(ranks) {
        if let (Some(clock), Some(rank)) = (process.header.clock, rank) {
            of_clock.entry(clock).or_default().push(*rank);
        }
    }
    let numbers = (0u32..).zip(&alignment.clocks);
    let ranks = numbers.map(|(number, _)| of_clock.remove(&number).unwrap_or_default());
    of_alignment(alignment, ranks.collect())
}

/// The same, with the ranks that each stamped.
pub(crate) fn of_alignment(alignment: &Alignment, ranks: Vec<Vec<u32>>) -> Vec<ClockAnalysis> {
    (0u32..)
        .zip(&alignment.clocks)
        .zip(ranks)
        .map(|((number, clock), ranks)| ClockAnalysis {
            ranks,
            ..of(number, clock, &alignment.source)
        })
        .collect()
}

fn of(number: u32, clock: &HostClock, source: &str) -> ClockAnalysis {
    let is_reference = clock.reference == number;
    let is_alone = is_reference && clock.collectives == 0 && source == "estimated";
    let middle = i64::midpoint(clock.from_ns, clock.to_ns);
    let found = clock.course.at(middle);
    let bounds = clock.course.bounds_at(middle);
    let length = clock.to_ns.saturating_sub(clock.from_ns);
    let knots = clock.course.knots.iter().map(|knot| knot.local_ns);
    let (from, to) = match length {
        0 => (knots.clone().min().unwrap_or(0), knots.max().unwrap_or(0)),
        _ => (clock.from_ns, clock.to_ns),
    };
    let passed = to.saturating_sub(from);
    let set: i64 = clock.steps.iter().map(|(_, by_ns)| *by_ns).sum();
    let grown = clock
        .course
        .at(to)
        .offset_ns
        .saturating_sub(clock.course.at(from).offset_ns)
        .saturating_sub(set);
    let moments = (0..=MOST_MOMENTS).map(|place| {
        clock
            .from_ns
            .saturating_add((i128::from(length) * i128::from(place) / i128::from(MOST_MOMENTS)) as i64)
    });
    let course = moments.map(|at_ns| {
        let knot = clock.course.at(at_ns);
        ClockMoment {
            at_ns: TimeNs(at_ns),
            offset_ns: knot.offset_ns,
            half_width_ns: knot.half_width_ns,
        }
    });
    ClockAnalysis {
        host: clock.host.clone(),
        reference: clock.reference as usize,
        at_ns: (!is_alone).then_some(TimeNs(middle)),
        offset_ns: (!is_alone).then_some(found.offset_ns),
        drift: (!is_alone).then(|| {
            if passed > 0 {
                grown as f64 / passed as f64
            } else {
                0.0
            }
        }),
        half_width_ns: (!is_alone).then_some(found.half_width_ns),
        hard_low_ns: bounds.filter(|_| !is_alone).map(|(low, _)| low),
        hard_high_ns: bounds.filter(|_| !is_alone).map(|(_, high)| high),
        collectives: clock.collectives,
        contradicted: clock.contradicted,
        longer_ns: clock.longer_ns.map(|(by, _)| by),
        longer_half_width_ns: clock.longer_ns.map(|(_, width)| width),
        set: clock
            .steps
            .iter()
            .map(|(at_ns, by_ns)| ClockSet {
                at_ns: TimeNs(*at_ns),
                by_ns: *by_ns,
            })
            .collect(),
        course: if is_reference || length == 0 {
            Vec::new()
        } else {
            course.collect()
        },
        source: if is_alone {
            "it shares no collective with other hosts".to_owned()
        } else {
            source.to_owned()
        },
        ..ClockAnalysis::default()
    }
}

/// Where nothing was compared.
fn by_host(recording: &Recording, ranks: &[Option<u32>]) -> Vec<ClockAnalysis> {
    let mut hosts: Vec<(&str, Vec<u32>)> = Vec::new();
    for (process, rank) in recording.processes.iter().zip(ranks) {
        let host = process.header.host.as_str();
        let place = hosts
            .iter()
            .position(|(known, _)| *known == host)
            .unwrap_or_else(|| {
                hosts.push((host, Vec::new()));
                hosts.len() - 1
            });
        hosts[place].1.extend(rank);
    }
    let is_one = hosts.len() == 1;
    let own = |(place, (host, ranks)): (usize, (&str, Vec<u32>))| {
        let is_exact = is_one && !host.is_empty();
        ClockAnalysis {
            host: host.to_owned(),
            ranks,
            reference: place,
            offset_ns: is_one.then_some(0),
            drift: is_one.then_some(0.0),
            half_width_ns: is_exact.then_some(0),
            hard_low_ns: is_exact.then_some(0),
            hard_high_ns: is_exact.then_some(0),
            source: match (is_one, host) {
                (true, "") => "no host is named: one clock is assumed",
                (true, _) => "one host",
                (false, _) => "not compared with others",
            }
            .to_owned(),
            ..ClockAnalysis::default()
        }
    };
    hosts.into_iter().enumerate().map(own).collect()
}
