//! A curve through scattered values over time: an offset that drifts and wanders.
//!
//! The state is an offset, which wanders as a random walk, and a drift, which is nearly constant (a Kalman filter with the
//! smoother of Rauch, Tung and Striebel, 1965). How much it wanders is not known: every value that is not unlikely gives a curve;
//! the scale of the scatter is that of the innovations.

/// What drifts of two clocks differ by, nanoseconds a second: 150 ppm. Before anything is measured.
const DRIFT_NS_PER_S: f64 = 1.5e5;
/// How much a drift changes, (nanoseconds a second)² a second: 0.01 ppm in a second.
const DRIFT_CHANGE: f64 = 100.0;
/// Wandering that is tried, nanoseconds in a second: none, and from 10 ns to 1 ms in steps of a quarter of a decade.
const WANDERS: i32 = 21;
/// The variance a second of the least of them but none.
const LEAST_WANDER: f64 = 1e2;
/// And of one that hardly any clock has: 30 us in a second.
const MOST_WANDER: f64 = 1e9;

/// A value at a time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Point {
    /// Seconds.
    pub(super) x: f64,
    /// Nanoseconds.
    pub(super) y: f64,
    /// Its variance; infinite for one that does not count.
    pub(super) variance: f64,
    /// Over how many seconds it is a mean.
    pub(super) width: f64,
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    offset: f64,
    drift: f64,
    /// Variances and covariance.
    oo: f64,
    od: f64,
    dd: f64,
}

impl State {
    /// After `dt` seconds more.
    fn later(self, dt: f64, wander: f64) -> Self {
        Self {
            offset: self.offset + self.drift * dt,
            drift: self.drift,
            oo: self.oo
                + 2.0 * dt * self.od
                + dt * dt * self.dd
                + wander * dt
                + DRIFT_CHANGE * dt * dt * dt / 3.0,
            od: self.od + dt * self.dd + DRIFT_CHANGE * dt * dt / 2.0,
            dd: self.dd + DRIFT_CHANGE * dt,
        }
    }

    /// With a value taken in: also how far off that was, and the variance of that.
    /// `middle`: by how much, of what it wanders over a mean's width, the mean differs from the middle.
    fn with(self, point: &Point, wander: f64, middle: f64) -> (Self, f64, f64) {
        let own = point.variance + middle * wander * point.width;
        let expected = self.oo + own;
        let off = point.y - self.offset;
        if !expected.is_finite() {
            return (self, 0.0, 0.0);
        }
        let (gain_offset, gain_drift) = (self.oo / expected, self.od / expected);
        let state = Self {
            offset: self.offset + gain_offset * off,
            drift: self.drift + gain_drift * off,
            oo: self.oo * own / expected,
            od: self.od * own / expected,
            dd: self.dd - gain_drift * self.od,
        };
        (state, off, expected)
    }
}

/// A point of the curve.
#[derive(Clone, Copy, Debug)]
pub(super) struct Smoothed {
    pub(super) x: f64,
    pub(super) offset: f64,
    /// Its standard error.
    pub(super) error: f64,
    state: State,
}

/// A curve.
#[derive(Clone, Debug)]
pub(super) struct Curve {
    pub(super) points: Vec<Smoothed>,
    /// How much it wanders: variance a second.
    wander: f64,
    /// The scatter over what the points' variances said.
    pub(super) scale: f64,
    /// Points that told something, less what was fitted.
    pub(super) freedom: f64,
}

/// What one pass over the points gives.
struct Pass {
    likelihood: f64,
    scale_squared: f64,
    count: f64,
}

fn start(points: &[Point]) -> Option<(usize, State)> {
    let first = points.iter().position(|point| point.variance.is_finite())?;
    let state = State {
        offset: points[first].y,
        drift: 0.0,
        oo: points[first].variance,
        od: 0.0,
        dd: DRIFT_NS_PER_S * DRIFT_NS_PER_S,
    };
    Some((first, state))
}

/// Twice the logarithm of the likelihood, and the scale that makes it greatest.
fn pass(points: &[Point], wander: f64) -> Pass {
    let (mut logarithms, mut squares, mut count) = (0.0, 0.0, 0.0);
    if let Some((first, mut state)) = start(points) {
        for pair in points[first..].windows(2) {
            state = state.later(pair[1].x - pair[0].x, wander);
            let (next, off, expected) = state.with(&pair[1], wander, 0.0);
            state = next;
            if expected > 0.0 {
                logarithms += expected.ln();
                squares += off * off / expected;
                count += 1.0;
            }
        }
    }
    // Less one for the drift.
    let scale_squared = if count > 1.0 {
        (squares / (count - 1.0)).max(1e-6)
    } else {
        1.0
    };
    Pass {
        likelihood: -count * scale_squared.ln() - logarithms,
        scale_squared,
        count,
    }
}

/// A pass for each wandering that is tried. `None` where no point counts.
fn passes(points: &[Point]) -> Option<Vec<(f64, Pass)>> {
    start(points)?;
    let wanders = (-1..WANDERS).map(|step| match step {
        -1 => 0.0,
        step => 10f64.powf(2.0 + f64::from(step) / 2.0),
    });
    Some(wanders.map(|wander| (wander, pass(points, wander))).collect())
}

/// From mean to mean a random walk goes less far than from middle to middle: by how much its variance is greater.
fn between_means(points: &[Point]) -> f64 {
    let (width, apart) = points.windows(2).fold((0.0, 0.0), |(width, apart), pair| {
        (width + pair[1].width, apart + pair[1].x - pair[0].x)
    });
    if apart > 0.0 {
        (1.0 - width / (3.0 * apart)).max(0.5).recip()
    } else {
        1.0
    }
}

impl Curve {
    /// The likeliest curve. `None` where no point counts.
    pub(super) fn likeliest(points: &[Point]) -> Option<Self> {
        let passes = passes(points)?;
        let (wander, best) = passes
            .iter()
            .max_by(|a, b| a.1.likelihood.total_cmp(&b.1.likelihood))?;
        Self::with(points, wander * between_means(points), best)
    }

    /// The curves of all wandering that is not unlikely, with what each is worth: what looks like wandering may be scatter, and
    /// the other way round. Before anything is measured every order of magnitude is as likely as the next. `None` where no point
    /// counts.
    pub(super) fn likely(points: &[Point]) -> Option<Vec<(f64, Self)>> {
        const UNLIKELY: f64 = 1e-3;
        let passes = passes(points)?;
        // Before anything is measured the deviation in a second (the root of wander) has a density of its power -3/4, less beyond what
        // is usual.
        let likelihood = |wander: f64, pass: &Pass| {
            pass.likelihood + 0.25 * wander.max(LEAST_WANDER).ln() - 2.0 * (wander / MOST_WANDER).ln_1p()
        };
        let greatest = passes
            .iter()
            .map(|(wander, pass)| likelihood(*wander, pass))
            .fold(f64::MIN, f64::max);
        let farther = between_means(points);
        let curves = passes.iter().filter_map(|(wander, pass)| {
            let weight = (0.5 * (likelihood(*wander, pass) - greatest)).exp();
            let curve = (weight > UNLIKELY).then(|| Self::with(points, wander * farther, pass))?;
            Some((weight, curve?))
        });
        Some(curves.collect())
    }

    fn with(points: &[Point], wander: f64, pass: &Pass) -> Option<Self> {
        let (first, begin) = start(points)?;
        let points = &points[first..];
        let (mut predicted, mut filtered) = (vec![begin], vec![begin]);
        let mut state = begin;
        for pair in points.windows(2) {
            let expected = state.later(pair[1].x - pair[0].x, wander);
            state = expected.with(&pair[1], wander, 1.0 / 12.0).0;
            predicted.push(expected);
            filtered.push(state);
        }
        let mut smoothed = filtered.clone();
        for place in (0..points.len() - 1).rev() {
            let dt = points[place + 1].x - points[place].x;
            let (now, then, later) = (filtered[place], predicted[place + 1], smoothed[place + 1]);
            // The gain: covariance of now and then over the variance of then.
            let (a, b) = (now.oo + dt * now.od, now.od);
            let (c, d) = (now.od + dt * now.dd, now.dd);
            let determinant = then.oo * then.dd - then.od * then.od;
            if determinant <= 0.0 || !determinant.is_finite() {
                continue;
            }
            let gain = [
                (a * then.dd - b * then.od) / determinant,
                (b * then.oo - a * then.od) / determinant,
                (c * then.dd - d * then.od) / determinant,
                (d * then.oo - c * then.od) / determinant,
            ];
            let (off, off_drift) = (later.offset - then.offset, later.drift - then.drift);
            let (oo, od, dd) = (later.oo - then.oo, later.od - then.od, later.dd - then.dd);
            smoothed[place] = State {
                offset: now.offset + gain[0] * off + gain[1] * off_drift,
                drift: now.drift + gain[2] * off + gain[3] * off_drift,
                oo: (now.oo
                    + gain[0] * (gain[0] * oo + gain[1] * od)
                    + gain[1] * (gain[0] * od + gain[1] * dd))
                    .max(0.0),
                od: now.od
                    + gain[2] * (gain[0] * oo + gain[1] * od)
                    + gain[3] * (gain[0] * od + gain[1] * dd),
                dd: (now.dd
                    + gain[2] * (gain[2] * oo + gain[3] * od)
                    + gain[3] * (gain[2] * od + gain[3] * dd))
                    .max(0.0),
            };
        }
        let scale = pass.scale_squared.sqrt();
        let points = points
            .iter()
            .zip(smoothed)
            .map(|(point, state)| Smoothed {
                x: point.x,
                offset: state.offset,
                error: state.oo.sqrt() * scale,
                state,
            })
            .collect();
        Some(Self {
            points,
            wander,
            scale,
            freedom: (pass.count - 1.0).max(1.0),
        })
    }

    /// What it wanders in a second, by its standard deviation.
    pub(super) fn wander(&self) -> f64 {
        self.wander.sqrt() * self.scale
    }

    /// The curve at a time: its value and standard error.
    pub(super) fn at(&self, x: f64) -> (f64, f64) {
        let next = self.points.partition_point(|point| point.x <= x);
        let beyond = |point: &Smoothed, dt: f64| {
            // Backwards in time it is the same with the drift turned round.
            let turned = State {
                drift: point.state.drift * dt.signum(),
                od: point.state.od * dt.signum(),
                ..point.state
            };
            let state = turned.later(dt.abs(), self.wander);
            (state.offset, state.oo.max(0.0).sqrt() * self.scale)
        };
        match (next.checked_sub(1), self.points.get(next)) {
            (Some(before), Some(after)) => {
                let before = &self.points[before];
                let (done, left) = (x - before.x, after.x - x);
                let share = done / (done + left);
                let mean = before.offset + (after.offset - before.offset) * share;
                let ends = before.error + (after.error - before.error) * share;
                // Between two moments a random walk is free.
                let bridge = self.wander * self.scale * self.scale * done * left / (done + left);
                (mean, (ends * ends + bridge).sqrt())
            }
            (Some(before), None) => beyond(&self.points[before], x - self.points[before].x),
            (None, Some(after)) => beyond(after, x - after.x),
            (None, None) => (0.0, f64::INFINITY),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(x: f64, y: f64, error: f64) -> Point {
        Point {
            x,
            y,
            variance: error * error,
            width: 0.0,
        }
    }

    #[test]
    fn a_line_is_found_with_the_error_of_least_squares() {
        // y = 500 + 2000 x, with a scatter of +-100 that a line cannot follow.
        let points: Vec<Point> = (0..101)
            .map(|place| {
                let x = f64::from(place) / 100.0;
                let off = if place % 2 == 0 { 100.0 } else { -100.0 };
                point(x, 500.0 + 2000.0 * x + off, 100.0)
            })
            .collect();
        let curve = Curve::likeliest(&points).expect("points");
        let (middle, error) = curve.at(0.5);
        assert!((middle - 1500.0).abs() < 5.0, "{middle}");
        // Least squares: s / sqrt(n) in the middle.
        assert!((error - 100.0 / 101f64.sqrt()).abs() < 1.5, "{error}");
        // At an end: s sqrt(1 / n + 3 / n).
        let (_, error) = curve.at(1.0);
        assert!((error - 100.0 * 2.0 / 101f64.sqrt()).abs() < 3.0, "{error}");
    }

    #[test]
    fn what_does_not_count_does_not_count() {
        let mut points: Vec<Point> = (0..20).map(|place| point(f64::from(place), 7.0, 1.0)).collect();
        points[5].y = 1e6;
        points[5].variance = f64::INFINITY;
        points[0].variance = f64::INFINITY;
        let curve = Curve::likeliest(&points).expect("points");
        assert!((curve.at(5.0).0 - 7.0).abs() < 1e-6, "{:?}", curve.at(5.0));
        assert!(Curve::likeliest(&points[..1]).is_none());
    }

    #[test]
    fn between_and_beyond_the_points_the_error_grows() {
        let mut walk = 0.0;
        let mut state = 1u64;
        let points: Vec<Point> = (0..200)
            .map(|place| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                walk += if state >> 63 == 0 { 1000.0 } else { -1000.0 };
                point(f64::from(place), walk, 10.0)
            })
            .collect();
        let curve = Curve::likeliest(&points).expect("points");
        let error = |x: f64| curve.at(x).1;
        // Half-way between two moments of a walk of 1000 ns in a second: 500.
        assert!((400.0..650.0).contains(&error(100.5)), "{}", error(100.5));
        assert!(error(100.0) < 50.0);
        assert!(error(203.0) > error(201.0) && error(201.0) > error(199.0));
        assert!((error(201.0) / error(-2.0) - 1.0).abs() < 0.6);
    }
}
