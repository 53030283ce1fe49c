//! How far one host may end one kind of operation later than another host, always: no number of them averages that out.
//!
//! Two things can be seen. One is how the kinds differ: their means scatter with a standard deviation tau about what they have in
//! common, which is off by as much over the root of how many they are. The other needs no clocks to be compared: how much longer a
//! kind takes when the last rank to arrive is one of the late host. That shows all of its lateness, but also how late it begins,
//! which scatters over the kinds with alpha. Where both agree the lateness is known, and where they don't neither counts for much.
//! What all kinds take longer alike may be lateness or beginning late. Of tau and alpha there are few samples, so that they are not
//! estimated but averaged over, by how likely each value makes what was seen and how likely it is before anything is.

use super::lasting::Longer;
use super::normal::{self, Part};

/// Before anything is measured every order of magnitude up to this is as likely as the next, and more is less and less likely: single
/// kernels of NCCL end 1 to 7 us apart on one host.
const USUAL_NS: f64 = 2_000.0;
/// No tau is greater.
const MOST_NS: f64 = 10_000.0;
/// Nor any alpha.
const MOST_APART_NS: f64 = 100_000.0;
/// Values below this count as none.
const LEAST_NS: f64 = 10.0;
/// It is one draw for a whole recording, in which either all moments are covered or none: with 99 %
/// one recording of a hundred would be wrong from beginning to end.
const SHARE: f64 = 0.995;
/// Values of tau that are tried, evenly by their logarithm.
const TAUS: usize = 32;
/// Values of alpha.
const ALPHAS: usize = 20;
/// How probable it is that hosts differ by something in all kinds alike, before anything is measured.
const COMMON: f64 = 0.02;
/// By how much then, as standard deviations.
const IN_COMMON_NS: [f64; 5] = [200.0, 700.0, 2_000.0, 7_000.0, 20_000.0];

/// What one kind says.
#[derive(Clone, Copy, Debug)]
pub(super) struct KindMean {
    /// Mean of the residuals of its operations, nanoseconds.
    pub(super) mean: f64,
    /// Its standard error.
    pub(super) error: f64,
    /// How much longer it takes when the last to arrive is one of the second host.
    pub(super) longer: Option<Longer>,
}

/// A tau, an alpha and what all kinds have in common: how likely they are, given what the kinds say, and what follows from them.
struct Likely {
    weight: f64,
    /// How far the curve is off.
    off: f64,
    /// The variance of that.
    variance: f64,
    /// What all kinds take longer alike.
    common: f64,
}

/// What all kinds say together.
pub(super) struct Bias {
    likely: Vec<Likely>,
    effects: Vec<f64>,
    /// The variance of the curve's own chance error.
    chance: f64,
    longer: Option<Longer>,
}

/// What a tau and an alpha make of one kind.
#[derive(Clone, Copy)]
struct Expected {
    /// How much of what it takes longer is lateness.
    share: f64,
    /// How late it is by that.
    late: f64,
    /// The variance of that.
    own: f64,
    /// 1 over the variance of how far it is off the curve.
    precision: f64,
    /// 1 over the variance of what it takes longer.
    longer: f64,
}

impl Expected {
    fn of(kind: &KindMean, tau: f64, alpha: f64) -> Self {
        let all = |longer: &Longer| tau * tau + alpha * alpha + longer.error * longer.error;
        let longer = kind.longer.as_ref().map_or(0.0, |longer| all(longer).recip());
        let share = tau * tau * longer;
        let own = tau * tau * (1.0 - share);
        Self {
            share,
            late: share * kind.longer.map_or(0.0, |longer| longer.by),
            own,
            precision: (own + kind.error * kind.error).recip(),
            longer,
        }
    }
}

/// Sums over kinds.
#[derive(Clone, Copy, Default)]
struct Sums {
    /// Of precisions, and of these times what is off the curve but for lateness, and times the square of that.
    precision: f64,
    off: f64,
    squares: f64,
    /// Of precisions times shares, times their squares, and times both.
    shares: f64,
    square_shares: f64,
    off_shares: f64,
    /// The same of what kinds take longer.
    longer: f64,
    by: f64,
    by_squares: f64,
    /// Of the logarithms of both.
    logarithms: f64,
}

impl Sums {
    fn of(kinds: &[KindMean], tau: f64, alpha: f64) -> Self {
        let mut sums = Self::default();
        for kind in kinds {
            let expected = Expected::of(kind, tau, alpha);
            let (precision, off) = (expected.precision, kind.mean - expected.late);
            sums.precision += precision;
            sums.off += precision * off;
            sums.squares += precision * off * off;
            sums.shares += precision * expected.share;
            sums.square_shares += precision * expected.share * expected.share;
            sums.off_shares += precision * expected.share * off;
            sums.logarithms += precision.ln();
            if let Some(longer) = kind.longer {
                sums.longer += expected.longer;
                sums.by += expected.longer * longer.by;
                sums.by_squares += expected.longer * longer.by * longer.by;
                sums.logarithms += expected.longer.ln();
            }
        }
        sums
    }

    /// The logarithm of how likely it is that all kinds have nothing in common.
    fn likelihood(&self) -> f64 {
        // How far the curve is off is not known: it is averaged over.
        let curve = if self.precision > 0.0 {
            self.off * self.off / self.precision - self.precision.ln()
        } else {
            0.0
        };
        0.5 * (self.logarithms - self.squares - self.by_squares + curve)
    }

    /// What all kinds take longer alike, its precision, and by how much that is likelier than nothing, as a logarithm.
    fn in_common(&self, deviation: f64) -> (f64, f64, f64) {
        let all = self.precision.max(f64::MIN_POSITIVE);
        let before = deviation.powi(-2);
        let precision = self.longer + before + self.square_shares - self.shares * self.shares / all;
        let sum = self.by - self.off_shares + self.off * self.shares / all;
        (
            sum / precision,
            precision,
            0.5 * (sum * sum / precision - (precision / before).ln()),
        )
    }
}

fn evenly(count: usize, most: f64) -> impl Iterator<Item = f64> {
    (0..count).map(move |step| LEAST_NS * (most / LEAST_NS).powf(step as f64 / (count - 1).max(1) as f64))
}

impl Bias {
    pub(super) fn of(kinds: &[KindMean]) -> Self {
        // Where nothing is known of how long they take alpha is nothing to be asked for, and what they have in common unknown.
        let is_timed = kinds.iter().any(|kind| kind.longer.is_some());
        let alphas: Vec<f64> = evenly(if is_timed { ALPHAS } else { 1 }, MOST_APART_NS).collect();
        let in_common = if is_timed { &IN_COMMON_NS[..] } else { &[] };
        let mut likely = Vec::with_capacity(TAUS * alphas.len() * (1 + 2 * in_common.len()));
        let mut sums = Vec::with_capacity(TAUS * alphas.len());
        for tau in evenly(TAUS, MOST_NS) {
            // Before anything is measured every order of magnitude is as likely as the next, but tau hardly beyond what is usual.
            let before = -(tau / USUAL_NS).powi(2).ln_1p();
            for alpha in &alphas {
                let one = Sums::of(kinds, tau, *alpha);
                let all = one.precision.max(f64::MIN_POSITIVE);
                let likelihood = before + one.likelihood();
                let variance = if kinds.is_empty() { tau * tau } else { all.recip() };
                likely.push(Likely {
                    weight: likelihood,
                    off: one.off / all,
                    variance,
                    common: 0.0,
                });
                for deviation in in_common {
                    let (common, precision, likelier) = one.in_common(*deviation);
                    let each = 0.5 * COMMON / in_common.len() as f64;
                    let share = one.shares / all;
                    // Either they leave all kinds late, or they begin them late.
                    for of_late in [share - 1.0, share] {
                        likely.push(Likely {
                            weight: likelihood + likelier + each.ln(),
                            off: one.off / all + of_late * common,
                            variance: variance + of_late * of_late / precision,
                            common,
                        });
                    }
                }
                sums.push((tau, *alpha, one));
            }
        }
        let greatest = likely.iter().map(|one| one.weight).fold(f64::MIN, f64::max);
        for one in &mut likely {
            one.weight = (one.weight - greatest).exp();
        }
        let total: f64 = likely.iter().map(|one| one.weight).sum();
        let mut effects = vec![0.0; kinds.len()];
        let many = 1 + 2 * in_common.len();
        for ((tau, alpha, sums), likely) in sums.iter().zip(likely.chunks(many)) {
            let weight: f64 = likely.iter().map(|one| one.weight).sum::<f64>() / total;
            if weight < 1e-9 {
                continue;
            }
            // What they have in common, in the mean, and as much of it as is lateness.
            let (mut longer, mut late) = (0.0, 0.0);
            for pair in likely[1..].chunks(2) {
                let common = pair[0].common / total;
                late += pair[0].weight * common;
                longer += (pair[0].weight + pair[1].weight) * common;
            }
            let (off, share) = (sums.off / sums.precision, sums.shares / sums.precision);
            for (effect, kind) in effects.iter_mut().zip(kinds) {
                let expected = Expected::of(kind, *tau, *alpha);
                let own = expected.own * expected.precision;
                *effect += weight * (expected.late + own * (kind.mean - expected.late - off));
                *effect += late + longer * (own * (expected.share - share) - expected.share);
            }
        }
        let precision: f64 = kinds.iter().map(|kind| kind.error.powi(-2)).sum();
        Self {
            likely,
            effects,
            chance: if precision > 0.0 { precision.recip() } else { 0.0 },
            longer: Longer::mean(kinds.iter().filter_map(|kind| kind.longer)),
        }
    }

    /// How much longer operations take when the last rank to arrive is one of the second host, in the mean over the kinds. `None`
    /// where nothing says that: lateness in all kinds alike is not seen then.
    pub(super) fn longer(&self) -> Option<Longer> {
        self.longer
    }

    /// By how much the second host leaves each kind later.
    pub(super) fn effects(&self) -> &[f64] {
        &self.effects
    }

    /// What one host may always be late by against another on the mean of all kinds, nanoseconds: the half width of a 99.5 %
    /// interval.
    pub(super) fn half_width(&self) -> f64 {
        let part = |one: &Likely| Part {
            weight: one.weight,
            off: one.off,
            // The curve's own chance error counts by itself.
            deviation: (one.variance - self.chance).max(0.0).sqrt(),
        };
        let greatest = self.likely.iter().map(|one| one.weight).fold(0.0, f64::max);
        let counted = self.likely.iter().filter(|one| one.weight > 1e-5 * greatest);
        normal::half_width(&counted.map(part).collect::<Vec<_>>(), SHARE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bias(means: &[f64], error: f64) -> Bias {
        let kind = |mean: &f64| KindMean {
            mean: *mean,
            error,
            longer: None,
        };
        Bias::of(&means.iter().map(kind).collect::<Vec<_>>())
    }

    #[test]
    fn kinds_that_agree_make_it_small_and_one_alone_says_nothing() {
        let agree = bias(&[0.0, 10.0, -10.0, 5.0], 20.0).half_width();
        assert!(agree < 150.0, "{agree}");
        let differ = bias(&[3000.0, -3000.0, 1000.0, -1000.0], 20.0).half_width();
        assert!(differ > 5000.0 && differ < 15_000.0, "{differ}");
        // Of one kind it is what was assumed before.
        let alone = bias(&[0.0], 20.0).half_width();
        assert!((5_000.0..9_000.0).contains(&alone), "{alone}");
        assert!(bias(&[0.0, 0.0], 20.0).half_width() < alone);
    }

    #[test]
    fn what_is_chance_is_left_to_chance() {
        // Far more apart than by chance: all of it is the kinds' own, about their mean.
        let effects = bias(&[3000.0, -3000.0, 1000.0, 3000.0], 20.0).effects;
        for (effect, expected) in effects.iter().zip([2000.0, -4000.0, 0.0, 2000.0]) {
            assert!((effect - expected).abs() < 20.0, "{effects:?}");
        }
        let effects = bias(&[30.0, -30.0, 10.0, -10.0], 100.0).effects;
        assert!(effects.iter().all(|effect| effect.abs() < 15.0), "{effects:?}");
        assert!(bias(&[], 1.0).effects.is_empty());
    }

    /// Of each kind: how late it is by its ends, and how much longer it takes when the last is one of the late host.
    fn timed(kinds: &[(f64, f64)]) -> Bias {
        let kind = |(mean, by): &(f64, f64)| KindMean {
            mean: *mean,
            error: 100.0,
            longer: Some(Longer {
                by: *by,
                error: 100.0,
            }),
        };
        Bias::of(&kinds.iter().map(kind).collect::<Vec<_>>())
    }

    #[test]
    fn how_long_kinds_take_shows_how_late_they_are() {
        // The curve goes through the mean of all, which is 1.5 us late: without the times that would not be seen.
        let both = timed(&[
            (-1500.0, 0.0),
            (-500.0, 1000.0),
            (500.0, 2000.0),
            (1500.0, 3000.0),
        ]);
        for (effect, truth) in both.effects.iter().zip([0.0, 1000.0, 2000.0, 3000.0]) {
            assert!((effect - truth).abs() < 150.0, "{:?}", both.effects);
        }
        let alone = bias(&[-1500.0, -500.0, 500.0, 1500.0], 100.0).half_width();
        // The curve is to be moved by 1.5 us yet.
        assert!(
            both.half_width() - 1500.0 < 0.4 * alone,
            "{} {alone}",
            both.half_width()
        );
        // Times that have nothing to do with how late they are.
        let neither = timed(&[
            (-1500.0, 4000.0),
            (-500.0, -9000.0),
            (500.0, 9000.0),
            (1500.0, -4000.0),
        ]);
        assert!(
            neither.effects.iter().sum::<f64>().abs() < 1000.0,
            "{:?}",
            neither.effects
        );
        assert!(neither.half_width() > 0.6 * alone, "{}", neither.half_width());
    }

    #[test]
    fn what_all_kinds_take_longer_alike_may_be_lateness_or_not() {
        let common = timed(&[(0.0, 4000.0); 4]);
        // Late by nothing or by all of it: the curve is off by that, or right.
        assert!(common.half_width() > 3_700.0, "{}", common.half_width());
        let longer = common.longer().expect("measured");
        assert!(
            (longer.by - 4000.0).abs() < 1.0 && (longer.error - 50.0).abs() < 1.0,
            "{longer:?}"
        );
        let none = timed(&[(0.0, 0.0); 4]);
        assert!(none.half_width() < bias(&[0.0; 4], 100.0).half_width());
        assert!(bias(&[0.0; 4], 100.0).longer().is_none());
    }
}
