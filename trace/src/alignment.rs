//! How the clocks of a recording's hosts stand to each other, and how exactly that is known.
//!
//! Stamps on disk stay as they came. On reading, those of hosts whose clocks were estimated are moved to the clock of one of
//! them, and what was done stands in [`Alignment`] with its error.

use serde::{Deserialize, Serialize};

/// A clock drifts by at most 100 ppm: two by twice that, nanoseconds a second.
const DRIFT_NS_PER_S: f64 = 2e5;
/// And wanders by at most 10 us in a second: two by 1.4 times that, of which this is 3.5 standard deviations (5 of one).
const WANDER_NS: f64 = 5e4;

/// How much the offset of two clocks may change in so long a time, nanoseconds, unless one is set.
#[must_use]
pub fn most_change_ns(time_ns: i64) -> i64 {
    let seconds = time_ns.saturating_abs() as f64 / 1e9;
    (DRIFT_NS_PER_S * seconds + WANDER_NS * seconds.sqrt()) as i64
}

/// How far a clock was ahead of the reference at one moment of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Knot {
    /// The moment, by this clock.
    pub local_ns: i64,
    /// What the clock shows beyond the reference.
    pub offset_ns: i64,
    /// With a probability of 99 % the offset is right within this.
    pub half_width_ns: i64,
    /// The clock was set somewhere between the knot before and this one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub jump: bool,
}

/// Limits of an offset at some moments, between which it changes by at most [`most_change_ns`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// From when on they hold: the clock was set before. By the reference, as all times here.
    pub from_ns: i64,
    /// Until when.
    pub to_ns: i64,
    /// A time, and what the offset is at least.
    pub lows: Vec<(i64, i64)>,
    /// A time, and what it is at most.
    pub highs: Vec<(i64, i64)>,
}

impl Limits {
    /// The least and the greatest that the offset can have been at a moment; the ends of `i64` where nothing says that.
    #[must_use]
    pub fn at(&self, time_ns: i64) -> (i64, i64) {
        let change = |time: i64| most_change_ns(time_ns.saturating_sub(time));
        let low = self
            .lows
            .iter()
            .map(|(time, low)| low.saturating_sub(change(*time)));
        let high = self
            .highs
            .iter()
            .map(|(time, high)| high.saturating_add(change(*time)));
        (low.max().unwrap_or(i64::MIN), high.min().unwrap_or(i64::MAX))
    }
}

/// What causality says of the offset of two clocks: nothing ends before what it needs has begun. By time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Bounds(pub Vec<Limits>);

impl Bounds {
    /// The least and the greatest that the offset can have been at a moment of the reference; the ends of `i64` where nothing
    /// says that.
    #[must_use]
    pub fn at(&self, time_ns: i64) -> (i64, i64) {
        let next = self.0.partition_point(|limits| limits.from_ns <= time_ns);
        let before = next.checked_sub(1).and_then(|place| self.0.get(place));
        match (before, self.0.get(next)) {
            // In between it was set.
            (Some(before), Some(after)) if time_ns > before.to_ns => {
                let (a, b) = (before.at(time_ns), after.at(time_ns));
                (a.0.min(b.0), a.1.max(b.1))
            }
            (Some(limits), _) | (None, Some(limits)) => limits.at(time_ns),
            (None, None) => (i64::MIN, i64::MAX),
        }
    }
}

/// A clock against the reference over time: linear between knots, and constant beyond the first and the last. What was estimated is
/// less and less exact there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Course {
    /// By `local_ns`. None of the reference itself.
    pub knots: Vec<Knot>,
    /// What the clock wanders in a second between two knots, with a probability of 99 %; as much more as the root of the time is
    /// longer.
    pub wander_ns: i64,
    /// What the offset surely is: the sum of these, one for each pair of clocks on the way to the reference. Empty where nothing
    /// says that.
    pub bounds: Vec<Bounds>,
}

/// The value at `part` of `length` from `from` to `to`.
fn between(from: i64, to: i64, part: i64, length: i64) -> i64 {
    if length <= 0 {
        return from;
    }
    let (from, to) = (i128::from(from), i128::from(to));
    let value = from + (to - from) * i128::from(part) / i128::from(length);
    i64::try_from(value).unwrap_or(i64::MAX)
}

impl Course {
    /// How the clock stood when it showed `local_ns`; the reference is exact.
    #[must_use]
    pub fn at(&self, local_ns: i64) -> Knot {
        let next = self.knots.partition_point(|knot| knot.local_ns <= local_ns);
        let before = next.checked_sub(1).map(|place| self.knots[place]);
        let moved = |knot: Knot| Knot {
            local_ns,
            jump: false,
            ..knot
        };
        match (before, self.knots.get(next).copied()) {
            (None, None) => moved(Knot::default()),
            (Some(knot), None) | (None, Some(knot)) => Knot {
                half_width_ns: knot
                    .half_width_ns
                    .saturating_add(self.changed(local_ns.saturating_sub(knot.local_ns))),
                ..moved(knot)
            },
            (Some(before), Some(after)) if after.jump => {
                // It was set somewhere in between: the nearer side, and an error that has room for the others.
                let middle = i64::midpoint(before.local_ns, after.local_ns);
                let near = if local_ns < middle { before } else { after };
                let sides = self.around_jump(next);
                let widest = sides.iter().map(|knot| knot.half_width_ns).max().unwrap_or(0);
                let off = sides
                    .iter()
                    .map(|knot| knot.offset_ns.saturating_sub(near.offset_ns).saturating_abs());
                let drifted = most_change_ns(after.local_ns.saturating_sub(before.local_ns));
                let room = off.max().unwrap_or(0).saturating_add(drifted);
                Knot {
                    half_width_ns: widest.saturating_add(room),
                    ..moved(near)
                }
            }
            (Some(before), Some(after)) => {
                let part = local_ns.saturating_sub(before.local_ns);
                let length = after.local_ns.saturating_sub(before.local_ns);
                let width = between(before.half_width_ns, after.half_width_ns, part, length);
                Knot {
                    local_ns,
                    offset_ns: between(before.offset_ns, after.offset_ns, part, length),
                    half_width_ns: self.wider(width, part, length),
                    jump: false,
                }
            }
        }
    }

    /// By how much the clock may have changed so long before its first knot or after its last; a clock that was given is known.
    fn changed(&self, away_ns: i64) -> i64 {
        if self.bounds.is_empty() {
            return 0;
        }
        most_change_ns(away_ns)
    }

    /// The half width at a moment between two knots: the clock was free to wander, and had to come back.
    fn wider(&self, width: i64, part: i64, length: i64) -> i64 {
        if self.wander_ns == 0 || part == 0 || length == 0 {
            return width;
        }
        let (part, length) = (part as f64 / 1e9, length as f64 / 1e9);
        let wandered = self.wander_ns as f64 * (part * (length - part) / length).max(0.0).sqrt();
        (width as f64).hypot(wandered).ceil() as i64
    }

    /// The knots before and after a jump to the knot at `place`, and those of jumps that follow each other around it.
    fn around_jump(&self, place: usize) -> &[Knot] {
        let from = (0..place)
            .rev()
            .find(|before| !self.knots[*before].jump)
            .unwrap_or(0);
        let after = (place + 1..self.knots.len()).find(|after| !self.knots[*after].jump);
        &self.knots[from..after.unwrap_or(self.knots.len())]
    }

    /// The moment by the reference when this clock showed `local_ns`.
    #[must_use]
    pub fn to_reference(&self, local_ns: i64) -> i64 {
        local_ns.saturating_sub(self.at(local_ns).offset_ns)
    }

    /// What this clock showed at a moment of the reference.
    #[must_use]
    pub fn local_at(&self, time_ns: i64) -> i64 {
        // Offsets change slowly, so that a few rounds find the moment. Where the clock was set they may end on either side of that.
        let mut local_ns = time_ns;
        for _ in 0..8 {
            let next = time_ns.saturating_add(self.at(local_ns).offset_ns);
            if next == local_ns {
                break;
            }
            local_ns = next;
        }
        local_ns
    }

    /// The least and the greatest that the offset can have been when the clock showed `local_ns`. `None` where nothing says
    /// that.
    #[must_use]
    pub fn bounds_at(&self, local_ns: i64) -> Option<(i64, i64)> {
        if self.knots.is_empty() {
            return Some((0, 0));
        }
        let next = self.knots.partition_point(|knot| knot.local_ns <= local_ns);
        let is_jump = next > 0 && self.knots.get(next).is_some_and(|knot| knot.jump);
        // Set somewhere in between: it was the one time or another.
        let own = [self.at(local_ns)];
        let sides = if is_jump { self.around_jump(next) } else { &own };
        let mut hull: Option<(i64, i64)> = None;
        for side in sides {
            let time_ns = local_ns.saturating_sub(side.offset_ns);
            let each = self.bounds.iter().map(|bounds| bounds.at(time_ns));
            let (low, high) = each.reduce(|a, b| (a.0.saturating_add(b.0), a.1.saturating_add(b.1)))?;
            hull = Some(hull.map_or((low, high), |hull| (hull.0.min(low), hull.1.max(high))));
        }
        hull.filter(|(low, high)| *low > i64::MIN && *high < i64::MAX)
    }
}

/// One clock of a recording: a host's, usually.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostClock {
    /// The host; several clocks may have one name.
    pub host: String,
    /// Its place among the clocks is that of the one that its course counts from, which may be itself. Those of one reference are
    /// an island; times of several islands have nothing in common.
    pub reference: u32,
    /// Against the reference.
    pub course: Course,
    /// Between which moments of its own it was compared with others; both 0 where it was not.
    pub from_ns: i64,
    /// The last of them.
    pub to_ns: i64,
    /// How many collectives the estimate rests on; of a reference those that it shares with others.
    pub collectives: u64,
    /// Collectives that were left out because the others contradict them.
    pub contradicted: u64,
    /// When it was set against the reference, by itself, and by how much.
    pub steps: Vec<(i64, i64)>,
    /// How much longer collectives take when the last rank to arrive is one of its own than when it is one of the clock's that it was
    /// compared with, and the 99 % half width of that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub longer_ns: Option<(i64, i64)>,
}

impl HostClock {
    /// The 99 % half width at a moment of the reference.
    #[must_use]
    pub fn half_width_at_reference(&self, time_ns: i64) -> i64 {
        self.course.at(self.course.local_at(time_ns)).half_width_ns
    }
}

/// The half width of what two errors make together that do not depend on each other.
#[must_use]
pub fn together(a: i64, b: i64) -> i64 {
    if a == 0 || b == 0 {
        return a.max(b);
    }
    let width = (a as f64).hypot(b as f64).ceil();
    if width < i64::MAX as f64 {
        width as i64
    } else {
        i64::MAX
    }
}

/// What was found of one clock, in short: as a manifest keeps it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClockEstimate {
    /// The host.
    pub host: String,
    /// The ranks that it stamped.
    pub ranks: Vec<u32>,
    /// The place in the list of the clock that it was compared with, which may be itself.
    pub reference: u32,
    /// By itself: when the next three were so. `None` where it shared nothing with others.
    pub at_ns: Option<i64>,
    /// What it showed beyond the reference.
    pub offset_ns: Option<i64>,
    /// By how much that grew, of the time that passed.
    pub drift: Option<f64>,
    /// With a probability of 99 % the offset is right within this.
    pub half_width_ns: Option<i64>,
    /// How many collectives that rests on.
    pub collectives: u64,
}

/// The clocks of a recording, whose stamps were moved to those of the references.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Alignment {
    /// Where it is from: "estimated", or the file that says it.
    pub source: String,
    /// The clocks. Processes have their places in [`ProcessHeader::clock`](crate::manifest::ProcessHeader::clock).
    pub clocks: Vec<HostClock>,
}

impl Alignment {
    /// The 99 % half width of the difference of stamps by two clocks at a moment of their reference: 0 of one clock, `None`
    /// where they have nothing in common.
    #[must_use]
    pub fn half_width(&self, a: u32, b: u32, time_ns: i64) -> Option<i64> {
        if a == b {
            return Some(0);
        }
        let (a, b) = (self.clocks.get(a as usize)?, self.clocks.get(b as usize)?);
        if a.reference != b.reference {
            return None;
        }
        let (a, b) = (
            a.half_width_at_reference(time_ns),
            b.half_width_at_reference(time_ns),
        );
        Some(together(a, b))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn knot(local_ns: i64, offset_ns: i64, half_width_ns: i64) -> Knot {
        Knot {
            local_ns,
            offset_ns,
            half_width_ns,
            jump: false,
        }
    }

    #[test]
    fn offsets_are_linear_between_knots_and_constant_beyond() {
        let course = Course {
            knots: vec![knot(1000, 100, 10), knot(2000, 200, 30)],
            ..Course::default()
        };
        assert_eq!(course.at(1500), knot(1500, 150, 20));
        assert_eq!(course.at(0), knot(0, 100, 10));
        assert_eq!(course.at(9000), knot(9000, 200, 30));
        assert_eq!(course.to_reference(1500), 1350);
        assert_eq!(course.to_reference(course.local_at(1350)), 1350);
        assert_eq!(course.bounds_at(1500), None);
        assert_eq!(Course::default().at(5), knot(5, 0, 0));
        assert_eq!(Course::default().bounds_at(5), Some((0, 0)));
    }

    #[test]
    fn beyond_its_last_knot_an_estimated_clock_is_less_and_less_known() {
        let course = Course {
            knots: vec![knot(0, 100, 10), knot(1000, 200, 30)],
            bounds: vec![Bounds::default()],
            ..Course::default()
        };
        let hour = 3_600_000_000_000;
        // An hour at 200 ppm, and 50 us times the root of its seconds.
        assert_eq!(course.at(1000 + hour), knot(1000 + hour, 200, 30 + 723_000_000));
        assert_eq!(course.at(-hour), knot(-hour, 100, 10 + 723_000_000));
        assert_eq!(course.at(1000), knot(1000, 200, 30));
    }

    #[test]
    fn between_two_knots_a_clock_is_free_to_wander() {
        let course = Course {
            knots: vec![knot(0, 0, 300), knot(1_000_000_000, 0, 300)],
            wander_ns: 800,
            bounds: Vec::new(),
        };
        // Half-way: half of what it wanders in a second.
        assert_eq!(course.at(500_000_000).half_width_ns, 500);
        assert_eq!(course.at(0).half_width_ns, 300);
        assert_eq!(course.at(1_000_000_000).half_width_ns, 300);
    }

    #[test]
    fn where_it_was_set_the_error_has_room_for_both_sides() {
        let course = Course {
            knots: vec![
                knot(1000, 100, 10),
                Knot {
                    jump: true,
                    ..knot(2000, 700, 20)
                },
            ],
            ..Course::default()
        };
        let drifted = most_change_ns(1000);
        assert_eq!(course.at(1200), knot(1200, 100, 620 + drifted));
        assert_eq!(course.at(1900), knot(1900, 700, 620 + drifted));
        assert_eq!(course.at(2000), knot(2000, 700, 20));
    }

    #[test]
    fn the_tightest_bounds_hold_and_loosen_with_time() {
        let limits = |from_ns, to_ns, low, high| Limits {
            from_ns,
            to_ns,
            lows: vec![(from_ns, low)],
            highs: vec![(to_ns, high)],
        };
        let bounds = Bounds(vec![
            limits(0, 1_000_000_000, -5_000, 7_000),
            limits(2_000_000_000, 3_000_000_000, 90_000, 95_000),
        ]);
        // 0.1 s before: 7 us, 20 us of drift, 50 us times the root of 0.1 of wandering.
        let (low, high) = bounds.at(900_000_000);
        assert_eq!(high, 7_000 + 35_811);
        assert_eq!(low, -5_000 - most_change_ns(900_000_000));
        // Set in between: what either side allows.
        let (low, high) = bounds.at(1_500_000_000);
        assert!(low < -5_000 && high > 95_000);
        assert_eq!(Bounds::default().at(0), (i64::MIN, i64::MAX));
    }
}
