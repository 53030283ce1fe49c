//! One clock against another, from the collectives that both took part in.

use gputrace_trace::alignment::{Limits, most_change_ns};

use super::bias::Bias;
use super::blend::Blend;
use super::contradictions::contradictions;
use super::kinds::Kinds;
use super::lasting::{LEAST_SCATTER_NS, Longer};
use super::sample::Sample;
use super::smooth::{Curve, Point};
use super::steps::{median, split, steps};

/// Points of a curve: with more operations each is a mean of several.
const MOST_POINTS: usize = 512;
/// Stretches of time of which the tightest bounds are kept.
const MOST_LIMITS: usize = 256;
/// How often the curve is drawn again with weights by the one before.
const ROUNDS: usize = 5;
/// Further off than so many times the scatter nothing counts.
const FARTHEST: f64 = 6.0;
/// What rounding both clocks' stamps leaves, of the coarser one's step: it is followed by its scatter, but for far ends, which count
/// less. Whether stamps are rounded down or to the nearest nobody says.
const ROUNDING_LEFT: f64 = 0.05;
/// Fewer operations than this say nothing of scatter and drift.
const LEAST: usize = 4;
/// How far beyond the first and the last operation a clock is followed: 10 ms, and twice that, so many times.
const BEYOND: i32 = 19;

/// The second clock against the first at a moment of the first.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct PairKnot {
    pub(super) time_ns: i64,
    pub(super) offset_ns: i64,
    pub(super) half_width_ns: i64,
    pub(super) jump: bool,
}

/// The second clock against the first.
#[derive(Clone, Debug, Default)]
pub(super) struct Fit {
    pub(super) knots: Vec<PairKnot>,
    /// As in a [`Course`](gputrace_trace::alignment::Course).
    pub(super) wander_ns: i64,
    /// By the first clock.
    pub(super) limits: Vec<Limits>,
    /// When the second was set against the first, and by how much.
    pub(super) steps: Vec<(i64, i64)>,
    /// Operations whose bounds the others contradict.
    pub(super) contradicted: usize,
    /// How much longer operations take when the last rank to arrive is one of the second clock's.
    pub(super) longer: Option<Longer>,
}

/// The operations between two settings of the clock.
struct Stretch {
    xs: Vec<f64>,
    ys: Vec<f64>,
    /// Their places among all.
    first: usize,
    /// How far they are off the curve.
    residuals: Vec<f64>,
    /// Standard errors of the curve there.
    errors: Vec<f64>,
    /// What the last curve was drawn through.
    points: Vec<Point>,
    blend: Option<Blend>,
}

impl Stretch {
    fn new(xs: &[f64], ys: &[f64], first: usize) -> Self {
        Self {
            residuals: first_residuals(xs, ys),
            errors: vec![0.0; xs.len()],
            xs: xs.to_vec(),
            ys: ys.to_vec(),
            first,
            points: Vec::new(),
            blend: None,
        }
    }

    fn range(&self) -> std::ops::Range<usize> {
        self.first..self.first + self.xs.len()
    }

    /// Draws the likeliest curve, with what each operation counts and how much later its kind always ends.
    fn draw(&mut self, precision: &[f64], effects: &[f64]) {
        let count = self.xs.len();
        if count < LEAST {
            return;
        }
        let a_point = count.div_ceil(MOST_POINTS);
        let span = self.xs[count - 1] - self.xs[0];
        // Means are over stretches in which the clock hardly drifts: less the slope of the curve before.
        let drift = robust_slope(&self.xs, &self.ys);
        let mut points: Vec<Point> = Vec::with_capacity(MOST_POINTS + 64);
        let mut from = 0;
        while from < count {
            let mut to = (from + a_point).min(count);
            if a_point > 1 {
                let gap = |place: &usize| self.xs[*place] - self.xs[*place - 1] > span / 128.0;
                to = (from + 1..to).find(gap).unwrap_or(to);
            }
            let (mut weight, mut x, mut y) = (0.0, 0.0, 0.0);
            for place in from..to {
                let own = precision[place];
                weight += own;
                x += own * self.xs[place];
                y += own * (self.ys[place] - effects[place] - drift * (self.xs[place] - self.xs[from]));
            }
            if weight > 0.0 {
                let x = x / weight;
                points.push(Point {
                    x,
                    y: y / weight + drift * (x - self.xs[from]),
                    variance: 1.0 / weight,
                    width: self.xs[to - 1] - self.xs[from],
                });
            }
            from = to;
        }
        if let Some(curve) = Curve::likeliest(&points) {
            for (place, x) in self.xs.iter().enumerate() {
                let (offset, error) = curve.at(*x);
                self.residuals[place] = self.ys[place] - offset;
                self.errors[place] = error;
            }
        }
        self.points = points;
    }

    /// The offset and the 99 % half width of its chance error.
    fn at(&self, x: f64) -> (f64, f64) {
        match &self.blend {
            Some(blend) => blend.at(x),
            None => (median(&mut self.ys.clone()), f64::INFINITY),
        }
    }
}

/// A slope that a quarter of wild values does not change.
fn robust_slope(xs: &[f64], ys: &[f64]) -> f64 {
    let half = xs.len() / 2;
    let mut slopes: Vec<f64> = (half..xs.len())
        .filter(|place| xs[*place] > xs[place - half])
        .map(|place| (ys[place] - ys[place - half]) / (xs[place] - xs[place - half]))
        .collect();
    median(&mut slopes)
}

/// How far each is off, before there is a curve: off its neighbours' median, or of few off a line.
fn first_residuals(xs: &[f64], ys: &[f64]) -> Vec<f64> {
    const NEIGHBOURS: usize = 4;
    let drift = robust_slope(xs, ys);
    let flat: Vec<f64> = xs.iter().zip(ys).map(|(x, y)| y - drift * (x - xs[0])).collect();
    let count = flat.len();
    let few = count < 4 * NEIGHBOURS;
    let all = median(&mut flat.clone());
    let around = |place: usize| {
        if few {
            return all;
        }
        let from = place.saturating_sub(NEIGHBOURS).min(count - 2 * NEIGHBOURS - 1);
        median(&mut flat[from..=from + 2 * NEIGHBOURS].to_vec())
    };
    (0..count).map(|place| flat[place] - around(place)).collect()
}

/// Tukey's weight.
fn weight(off: f64) -> f64 {
    let part = off / FARTHEST;
    if part.abs() >= 1.0 {
        0.0
    } else {
        (1.0 - part * part).powi(2)
    }
}

/// What no number of operations averages out, nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Systematic {
    /// How much later than the other one host may always end what they do.
    bias: f64,
    /// By how much stamps that are rounded may be off.
    rounding: f64,
}

/// Draws the curves of all stretches, each time with what every operation counts by the curve before, and says what hosts may always
/// be late by.
fn draw(samples: &[Sample], stretches: &mut [Stretch], quanta_ns: (i64, i64)) -> Bias {
    let by_kind = Kinds::of(samples);
    // The median distance of few is often too small by chance.
    let few = 1.0 + 5.0 / samples.len() as f64;
    // Rounding alone scatters by this, even where most differences are the same multiple.
    let rounded = (quanta_ns.0 as f64).hypot(quanta_ns.1 as f64) / 12f64.sqrt();
    let least = rounded.max(LEAST_SCATTER_NS);
    let mut means: Option<Vec<f64>> = None;
    let mut bias = Bias::of(&[]);
    for _ in 0..ROUNDS {
        let gathered =
            |of: fn(&Stretch) -> &[f64]| -> Vec<f64> { stretches.iter().flat_map(of).copied().collect() };
        let residuals = gathered(|stretch| &stretch.residuals);
        let errors = gathered(|stretch| &stretch.errors);
        let usual = means.unwrap_or_else(|| by_kind.medians(&residuals));
        let places = residuals.iter().zip(&by_kind.kinds);
        let off: Vec<f64> = places.map(|(residual, kind)| residual - usual[*kind]).collect();
        let scattered = by_kind.scatter(&off, &errors, least);
        let places = off.iter().zip(&errors).zip(&by_kind.classes);
        let precision: Vec<f64> = places
            .map(|((off, error), class)| {
                let usual = scattered[*class] * few;
                // Where the curve is not sure it is no reason to leave out what is off it.
                weight(off / usual.hypot(*error)) / (usual * usual)
            })
            .collect();
        let found = by_kind.means(&residuals, &precision);
        bias = Bias::of(&found.iter().flatten().copied().collect::<Vec<_>>());
        let mut effects = bias.effects().iter().copied();
        let by_number: Vec<f64> = found
            .iter()
            .map(|found| found.and_then(|_| effects.next()).unwrap_or(0.0))
            .collect();
        let effects: Vec<f64> = by_kind.kinds.iter().map(|kind| by_number[*kind]).collect();
        for stretch in &mut *stretches {
            let range = stretch.range();
            stretch.draw(&precision[range.clone()], &effects[range]);
        }
        let means_now = usual.iter().zip(&found);
        means = Some(
            means_now
                .map(|(before, found)| found.map_or(*before, |found| found.mean))
                .collect(),
        );
    }
    for stretch in stretches {
        stretch.blend = Blend::through(&stretch.points);
    }
    bias
}

/// Places where the clock was set, by what ends show and by what is sure. The latter is seen at the place or some operations later:
/// nearby ones are the same, and else ends show the place.
fn together(xs: &[f64], ys: &[f64], sure: &[usize], likely: &[usize]) -> Vec<usize> {
    const NEAR: usize = 8;
    let mut all = likely.to_vec();
    for (number, place) in sure.iter().enumerate() {
        if likely.iter().any(|other| other.abs_diff(*place) <= NEAR) {
            continue;
        }
        let before = number.checked_sub(1).map_or(0, |other| sure[other]);
        let after = sure.get(number + 1).copied().unwrap_or(ys.len());
        let (from, to) = (before.max(place.saturating_sub(NEAR)), after.min(place + NEAR));
        all.push(split(&xs[from..to], &ys[from..to]).map_or(*place, |split| from + split));
    }
    all.sort_unstable();
    all.dedup();
    all
}

/// Fits the second clock against the first. `samples` are in the order of their time; `quanta_ns`: what each clock's
/// stamps are multiples of.
pub(super) fn fit(samples: &[Sample], quanta_ns: (i64, i64)) -> Fit {
    let Some(origin) = samples.first().copied() else {
        return Fit::default();
    };
    let seconds = |time_ns: i64| time_ns.saturating_sub(origin.time_ns) as f64 / 1e9;
    let xs: Vec<f64> = samples.iter().map(|sample| seconds(sample.time_ns)).collect();
    let ys: Vec<f64> = samples
        .iter()
        .map(|sample| sample.offset_ns.saturating_sub(origin.offset_ns) as f64)
        .collect();
    let set = together(&xs, &ys, &contradictions(samples), &steps(&xs, &ys));
    let bounds: Vec<usize> = [0].into_iter().chain(set).chain([samples.len()]).collect();
    let mut stretches: Vec<Stretch> = bounds
        .windows(2)
        .map(|pair| Stretch::new(&xs[pair[0]..pair[1]], &ys[pair[0]..pair[1]], pair[0]))
        .collect();
    let bias = draw(samples, &mut stretches, quanta_ns);
    let (coarser, finer) = (
        quanta_ns.0.max(quanta_ns.1) as f64,
        quanta_ns.0.min(quanta_ns.1) as f64,
    );
    let systematic = Systematic {
        bias: bias.half_width(),
        rounding: (coarser - finer) / 2.0 + ROUNDING_LEFT * coarser,
    };
    // What is surely so, less what the others contradict.
    let mut fit = Fit {
        longer: bias.longer(),
        ..Fit::default()
    };
    for stretch in &stretches {
        let inside = &samples[stretch.range()];
        let mut kept: Vec<&Sample> = Vec::with_capacity(inside.len());
        for (place, sample) in inside.iter().enumerate() {
            let low = sample.low_ns.saturating_sub(origin.offset_ns) as f64;
            let high = sample.high_ns.saturating_sub(origin.offset_ns) as f64;
            let offset = stretch.ys[place] - stretch.residuals[place];
            let is_outside = || {
                let (offset, chance) = stretch.at(stretch.xs[place]);
                let room = chance + systematic.bias + systematic.rounding;
                low > offset + room || high < offset - room
            };
            if low > high || !(low..=high).contains(&offset) && is_outside() {
                fit.contradicted += 1;
            } else {
                kept.push(sample);
            }
        }
        // What contradicts at either end may have been stamped before the clock was set, or after.
        let (Some(first), Some(last)) = (kept.first(), kept.last()) else {
            continue;
        };
        let limits = tightest(first.time_ns, last.time_ns, &kept);
        let ends = (seconds(first.time_ns), seconds(last.time_ns));
        for knot in knots(stretch, &limits, origin, ends, systematic) {
            let jump = knot.jump && !fit.knots.is_empty();
            if let Some(before) = fit.knots.last().filter(|_| jump) {
                let by_ns = knot.offset_ns.saturating_sub(before.offset_ns);
                fit.steps
                    .push((i64::midpoint(before.time_ns, knot.time_ns), by_ns));
            }
            fit.knots.push(PairKnot { jump, ..knot });
        }
        fit.limits.push(limits);
        let wandered = stretch.blend.as_ref().map_or(0.0, Blend::wander);
        fit.wander_ns = fit.wander_ns.max(wandered.ceil() as i64);
    }
    beyond(&mut fit, &stretches, origin, systematic);
    fit
}

/// The tightest bounds of each stretch of time.
fn tightest(from_ns: i64, to_ns: i64, samples: &[&Sample]) -> Limits {
    let mut limits = Limits {
        from_ns,
        to_ns,
        ..Limits::default()
    };
    for part in samples.chunks(samples.len().div_ceil(MOST_LIMITS).max(1)) {
        if let Some(low) = part.iter().max_by_key(|sample| sample.low_ns) {
            limits.lows.push((low.time_ns, low.low_ns));
        }
        if let Some(high) = part.iter().min_by_key(|sample| sample.high_ns) {
            limits.highs.push((high.time_ns, high.high_ns));
        }
    }
    limits
}

/// A moment of the curve, where `loose` is what bounds may loosen by until the next one.
fn knot(
    stretch: &Stretch,
    limits: &Limits,
    origin: Sample,
    x: f64,
    systematic: Systematic,
    loose: i64,
) -> PairKnot {
    let time_ns = origin.time_ns.saturating_add((x * 1e9).round() as i64);
    let (offset, chance) = stretch.at(x);
    let offset_ns = origin.offset_ns.saturating_add(offset.round() as i64);
    let width = chance.hypot(systematic.bias) + systematic.rounding;
    let half_width_ns = if width < 9e18 {
        width.ceil() as i64
    } else {
        i64::MAX
    };
    // Where both disagree the bounds hold.
    let one = limits.at(time_ns);
    let (low, high) = (one.0.min(one.1), one.0.max(one.1));
    let inside = offset_ns.clamp(low, high);
    let farthest = inside
        .saturating_sub(low)
        .max(high.saturating_sub(inside))
        .saturating_add(loose);
    PairKnot {
        time_ns,
        offset_ns: inside,
        half_width_ns: half_width_ns
            .saturating_add(inside.saturating_sub(offset_ns).saturating_abs())
            .min(farthest),
        jump: false,
    }
}

/// The moments of one stretch; the first is marked as a jump.
fn knots(
    stretch: &Stretch,
    limits: &Limits,
    origin: Sample,
    (first, last): (f64, f64),
    systematic: Systematic,
) -> Vec<PairKnot> {
    let mut times = vec![first];
    times.extend(stretch.blend.iter().flat_map(Blend::times));
    times.push(last);
    times.retain(|time| (first..=last).contains(time));
    times.sort_by(f64::total_cmp);
    times.dedup_by(|a, b| *a - *b < 1e-9);
    let gap = |place: usize| {
        let before = place
            .checked_sub(1)
            .map_or(0.0, |other| times[place] - times[other]);
        let after = times.get(place + 1).map_or(0.0, |other| other - times[place]);
        (before.max(after) * 1e9) as i64
    };
    (0..times.len())
        .map(|place| {
            let loose = most_change_ns(gap(place) / 2);
            let knot = knot(stretch, limits, origin, times[place], systematic, loose);
            PairKnot {
                jump: place == 0,
                ..knot
            }
        })
        .collect()
}

/// Adds moments before the first and after the last operation.
fn beyond(fit: &mut Fit, stretches: &[Stretch], origin: Sample, systematic: Systematic) {
    let (Some(first), Some(last)) = (stretches.first(), stretches.last()) else {
        return;
    };
    let (Some(before), Some(after)) = (fit.limits.first().cloned(), fit.limits.last().cloned()) else {
        return;
    };
    let apart = |step: i32| 0.01 * 2f64.powi(step);
    let loose = |step: i32| most_change_ns((apart(step) * 5e8) as i64);
    let mut early: Vec<PairKnot> = (0..BEYOND)
        .rev()
        .map(|step| {
            let x = first.xs.first().copied().unwrap_or(0.0) - apart(step);
            knot(first, &before, origin, x, systematic, loose(step))
        })
        .collect();
    let late = (0..BEYOND).map(|step| {
        let x = last.xs.last().copied().unwrap_or(0.0) + apart(step);
        knot(last, &after, origin, x, systematic, loose(step))
    });
    early.append(&mut fit.knots);
    early.extend(late);
    fit.knots = early;
}
