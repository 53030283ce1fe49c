//! One clock against another, from the collectives that both took part in.

use std::collections::BTreeMap;

use gputrace_trace::alignment::{Limits, most_change_ns};

use super::bias::{self, KindMean};
use super::smooth::{Curve, Point};
use super::steps::{median, steps};

/// Points of a curve: with more operations each is a mean of several.
const MOST_POINTS: usize = 512;
/// Stretches of time of which the tightest bounds are kept.
const MOST_LIMITS: usize = 256;
/// How often the curve is drawn again with weights by the one before.
const ROUNDS: usize = 5;
/// Further off than so many times the scatter nothing counts.
const FARTHEST: f64 = 6.0;
/// The least scatter that is assumed, nanoseconds.
const LEAST_SCATTER_NS: f64 = 20.0;
/// Fewer operations than this say nothing of scatter and drift.
const LEAST: usize = 4;
/// How far beyond the first and the last operation a clock is followed: 10 ms, and twice that, so many times.
const BEYOND: i32 = 19;

/// What one operation says of two clocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    /// When it ended by the first clock.
    pub(super) time_ns: i64,
    /// What the second clock said beyond the first.
    pub(super) offset_ns: i64,
    /// What that is at least, and at most.
    pub(super) low_ns: i64,
    pub(super) high_ns: i64,
    pub(super) class: u32,
    pub(super) kind: u32,
}

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
}

/// Quantiles of Student's distribution, 99.5 %, for 1 to 10 degrees of freedom.
const STUDENT: [f64; 10] = [
    63.657, 9.925, 5.841, 4.604, 4.032, 3.707, 3.499, 3.355, 3.250, 3.169,
];

fn student(freedom: f64) -> f64 {
    const NORMAL: f64 = 2.575_829;
    if let Some(quantile) = STUDENT.get((freedom.max(1.0) as usize) - 1) {
        return *quantile;
    }
    // Cornish and Fisher's expansion.
    let z = NORMAL;
    z + (z.powi(3) + z) / (4.0 * freedom)
        + (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / (96.0 * freedom * freedom)
}

/// The same with some more for few: which of them count was decided by them.
fn quantile(freedom: f64) -> f64 {
    student(freedom) * (1.05 + 3.0 / freedom)
}

/// The operations between two settings of the clock.
struct Stretch {
    xs: Vec<f64>,
    ys: Vec<f64>,
    /// Their places among all.
    first: usize,
    residuals: Vec<f64>,
    /// Standard errors of the curve there.
    errors: Vec<f64>,
    /// The likeliest curve, and those that wander least and most.
    curves: Option<[Curve; 3]>,
}

impl Stretch {
    fn new(xs: &[f64], ys: &[f64], first: usize) -> Self {
        Self {
            residuals: first_residuals(xs, ys),
            errors: vec![0.0; xs.len()],
            xs: xs.to_vec(),
            ys: ys.to_vec(),
            first,
            curves: None,
        }
    }

    /// Draws the curve, with what each operation counts.
    fn draw(&mut self, precision: &[f64]) {
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
            for (place, own) in (from..to).zip(&precision[from..to]) {
                weight += own;
                x += own * self.xs[place];
                y += own * (self.ys[place] - drift * (self.xs[place] - self.xs[from]));
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
        self.curves = Curve::through(&points);
        if let Some([curve, ..]) = &self.curves {
            for (place, x) in self.xs.iter().enumerate() {
                let (offset, error) = curve.at(*x);
                self.residuals[place] = self.ys[place] - offset;
                self.errors[place] = error;
            }
        }
    }

    /// The offset and the 99 % half width of its chance error.
    fn at(&self, x: f64) -> (f64, f64) {
        match &self.curves {
            Some(curves) => {
                let width = |curve: &Curve| curve.at(x).1 * quantile(curve.freedom);
                (curves[0].at(x).0, curves.iter().map(width).fold(0.0, f64::max))
            }
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

/// How far the ends of each class scatter: 1.4826 times the median distance from the curve, and what the curve may be off itself,
/// since it comes nearer to what it is drawn through. Few go by all, and none is much sharper than all.
fn scatter(samples: &[Sample], stretches: &[Stretch]) -> BTreeMap<u32, f64> {
    const FEW: usize = 8;
    const SHARPEST: f64 = 0.25;
    let mut classes: BTreeMap<u32, (Vec<f64>, Vec<f64>)> = BTreeMap::new();
    let mut all = (Vec::new(), Vec::new());
    for stretch in stretches {
        let places = stretch.residuals.iter().zip(&stretch.errors);
        for (sample, (residual, error)) in samples[stretch.first..].iter().zip(places) {
            let class = classes.entry(sample.class).or_default();
            for values in [class, &mut all] {
                values.0.push(residual.abs());
                values.1.push(*error);
            }
        }
    }
    let of = |values: &mut (Vec<f64>, Vec<f64>)| {
        let off = 1.1 * 1.4826 * median(&mut values.0);
        off.hypot(median(&mut values.1)).max(LEAST_SCATTER_NS)
    };
    let together = of(&mut all);
    classes
        .into_iter()
        .map(|(class, mut values)| {
            let few = values.0.len() < FEW;
            let own = if few { together } else { of(&mut values) };
            (class, own.max(SHARPEST * together))
        })
        .collect()
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

/// Fits the second clock against the first. `samples` are in the order of their time; `quantum_ns`: what stamps are multiples
/// of.
pub(super) fn fit(samples: &[Sample], quantum_ns: i64) -> Fit {
    let Some(origin) = samples.first().copied() else {
        return Fit::default();
    };
    let seconds = |time_ns: i64| time_ns.saturating_sub(origin.time_ns) as f64 / 1e9;
    let xs: Vec<f64> = samples.iter().map(|sample| seconds(sample.time_ns)).collect();
    let ys: Vec<f64> = samples
        .iter()
        .map(|sample| sample.offset_ns.saturating_sub(origin.offset_ns) as f64)
        .collect();
    let set = steps(&xs, &ys);
    let bounds: Vec<usize> = [0].into_iter().chain(set).chain([samples.len()]).collect();
    let mut stretches: Vec<Stretch> = bounds
        .windows(2)
        .map(|pair| Stretch::new(&xs[pair[0]..pair[1]], &ys[pair[0]..pair[1]], pair[0]))
        .collect();
    let gather = |stretches: &[Stretch]| -> Vec<f64> {
        stretches
            .iter()
            .flat_map(|stretch| stretch.residuals.iter().copied())
            .collect()
    };
    let mut precision = vec![0.0; samples.len()];
    // The median distance of few is often too small by chance.
    let few = 1.0 + 5.0 / samples.len() as f64;
    for _ in 0..ROUNDS {
        let scattered = scatter(samples, &stretches);
        for stretch in &mut stretches {
            let range = stretch.first..stretch.first + stretch.xs.len();
            for (place, residual) in range.clone().zip(&stretch.residuals) {
                let usual = scattered[&samples[place].class] * few;
                precision[place] = weight(residual / usual) / (usual * usual);
            }
            stretch.draw(&precision[range]);
        }
    }
    let residuals = gather(&stretches);
    let kinds = kind_means(samples, &residuals, &precision);
    let always = bias::half_width(&kinds, 0.0);
    let exact = quantum_ns as f64 / 2.0;
    // What is surely so, less what the others contradict.
    let mut fit = Fit::default();
    for stretch in &stretches {
        let inside = &samples[stretch.first..stretch.first + stretch.xs.len()];
        let mut kept: Vec<&Sample> = Vec::with_capacity(inside.len());
        for (sample, x) in inside.iter().zip(&stretch.xs) {
            let (offset, chance) = stretch.at(*x);
            let room = chance + always + exact;
            let low = sample.low_ns.saturating_sub(origin.offset_ns) as f64;
            let high = sample.high_ns.saturating_sub(origin.offset_ns) as f64;
            if low > high || low > offset + room || high < offset - room {
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
        for knot in knots(stretch, &limits, origin, ends, always, exact) {
            let jump = knot.jump && !fit.knots.is_empty();
            if let Some(before) = fit.knots.last().filter(|_| jump) {
                let by_ns = knot.offset_ns.saturating_sub(before.offset_ns);
                fit.steps
                    .push((i64::midpoint(before.time_ns, knot.time_ns), by_ns));
            }
            fit.knots.push(PairKnot { jump, ..knot });
        }
        fit.limits.push(limits);
        let curves = stretch.curves.iter().flatten();
        let wandered = curves.map(|curve| curve.wander() * quantile(curve.freedom));
        fit.wander_ns = fit.wander_ns.max(wandered.fold(0.0, f64::max).ceil() as i64);
    }
    beyond(&mut fit, &stretches, origin, always, exact);
    fit
}

fn kind_means(samples: &[Sample], residuals: &[f64], precision: &[f64]) -> Vec<KindMean> {
    // One kind in several sizes: each size is taken for a kind.
    let single = samples.windows(2).all(|pair| pair[0].kind == pair[1].kind);
    let mut kinds: BTreeMap<u32, (f64, f64)> = BTreeMap::new();
    for ((sample, residual), precision) in samples.iter().zip(residuals).zip(precision) {
        let kind = if single { sample.class } else { sample.kind };
        let sums = kinds.entry(kind).or_default();
        sums.0 += precision;
        sums.1 += precision * residual;
    }
    let total: f64 = kinds.values().map(|(weight, _)| weight).sum();
    kinds
        .into_values()
        .filter(|(weight, _)| *weight > 0.0)
        .map(|(weight, sum)| KindMean {
            mean: sum / weight,
            error: weight.sqrt().recip(),
            share: weight / total,
        })
        .collect()
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
    always: f64,
    exact: f64,
    loose: i64,
) -> PairKnot {
    let time_ns = origin.time_ns.saturating_add((x * 1e9).round() as i64);
    let (offset, chance) = stretch.at(x);
    let offset_ns = origin.offset_ns.saturating_add(offset.round() as i64);
    let width = chance.hypot(always) + exact;
    let half_width_ns = if width < 9e18 {
        width.ceil() as i64
    } else {
        i64::MAX
    };
    // Where both disagree the bounds hold.
    let one = bounds_at(limits, time_ns);
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

fn bounds_at(limits: &Limits, time_ns: i64) -> (i64, i64) {
    gputrace_trace::alignment::Bounds(vec![limits.clone()]).at(time_ns)
}

/// The moments of one stretch; the first is marked as a jump.
fn knots(
    stretch: &Stretch,
    limits: &Limits,
    origin: Sample,
    (first, last): (f64, f64),
    always: f64,
    exact: f64,
) -> Vec<PairKnot> {
    let mut times = vec![first];
    if let Some([curve, ..]) = &stretch.curves {
        times.extend(curve.points.iter().map(|point| point.x));
    }
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
            let knot = knot(stretch, limits, origin, times[place], always, exact, loose);
            PairKnot {
                jump: place == 0,
                ..knot
            }
        })
        .collect()
}

/// Adds moments before the first and after the last operation.
fn beyond(fit: &mut Fit, stretches: &[Stretch], origin: Sample, always: f64, exact: f64) {
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
            knot(first, &before, origin, x, always, exact, loose(step))
        })
        .collect();
    let late = (0..BEYOND).map(|step| {
        let x = last.xs.last().copied().unwrap_or(0.0) + apart(step);
        knot(last, &after, origin, x, always, exact, loose(step))
    });
    early.append(&mut fit.knots);
    early.extend(late);
    fit.knots = early;
}
