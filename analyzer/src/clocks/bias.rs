//! How far one host may end one kind of operation later than another host, always: no number of them averages that out.
//!
//! What can be seen is how the kinds differ. Their means scatter with a standard deviation tau about what they have in common,
//! which is off by as much over the root of how many they are. Of tau there are few samples, so that it is not estimated but
//! averaged over, by how likely each value makes what was seen and how likely it is before anything is.

use super::normal::{self, Part};

/// Up to this, greater values are likelier before anything is measured; beyond, less likely: single kernels of NCCL end 1 to 7 us apart on one host.
const USUAL_NS: f64 = 2_000.0;
/// No tau is greater.
const MOST_NS: f64 = 10_000.0;
/// Values below this count as none.
const LEAST_NS: f64 = 10.0;
/// It is one draw for a whole recording, in which either all moments are covered or none: with 99 %
/// one recording of a hundred would be wrong from beginning to end.
const SHARE: f64 = 0.995;
/// Values of tau that are tried, evenly by their logarithm.
const STEPS: usize = 64;

/// What one kind says.
#[derive(Clone, Copy, Debug)]
pub(super) struct KindMean {
    /// Mean of the residuals of its operations, nanoseconds.
    pub(super) mean: f64,
    /// Its standard error.
    pub(super) error: f64,
}

/// A value of tau and how likely it is, given what the kinds say; not normalized.
struct Likely {
    tau: f64,
    weight: f64,
}

/// What all kinds say together.
pub(super) struct Bias {
    likely: Vec<Likely>,
    kinds: Vec<KindMean>,
    /// What each kind counts in the mean of all, 0..1.
    shares: Vec<f64>,
    /// How much of each kind's distance from the mean of all is its own, and no chance: 0..1.
    own: Vec<f64>,
}

impl Bias {
    pub(super) fn of(kinds: Vec<KindMean>) -> Self {
        let taus = (0..STEPS).map(|step| {
            let part = step as f64 / (STEPS - 1) as f64;
            LEAST_NS * (MOST_NS / LEAST_NS).powf(part)
        });
        let logarithms: Vec<(f64, f64)> = taus.map(|tau| (tau, logarithm(&kinds, tau))).collect();
        let greatest = logarithms
            .iter()
            .map(|(_, value)| *value)
            .fold(f64::MIN, f64::max);
        let likely: Vec<Likely> = logarithms
            .into_iter()
            .map(|(tau, value)| Likely {
                tau,
                weight: (value - greatest).exp(),
            })
            .collect();
        let total: f64 = likely.iter().map(|one| one.weight).sum();
        let middle = likely.iter().map(|one| one.weight * one.tau.ln()).sum::<f64>() / total;
        let variance = middle.exp().powi(2);
        let weights = kinds
            .iter()
            .map(|kind| (variance + kind.error * kind.error).recip());
        let all: f64 = weights.clone().sum();
        Self {
            shares: weights.map(|weight| weight / all).collect(),
            own: kinds
                .iter()
                .map(|kind| variance / (variance + kind.error * kind.error))
                .collect(),
            likely,
            kinds,
        }
    }

    /// By how much each kind is off the mean of all, as far as that is no chance.
    pub(super) fn effects(&self) -> Vec<f64> {
        let common: f64 = self
            .kinds
            .iter()
            .zip(&self.shares)
            .map(|(kind, share)| kind.mean * share)
            .sum();
        let each = self.kinds.iter().zip(&self.own);
        each.map(|(kind, own)| (kind.mean - common) * own).collect()
    }

    /// What one host may always be late by against another on the mean of all kinds, nanoseconds: the half width of a 99.5 %
    /// interval.
    pub(super) fn half_width(&self) -> f64 {
        let squares: f64 = self.shares.iter().map(|share| share * share).sum();
        // The curve weighs kinds by their precision. Weighed as here, chance errors are larger: by this.
        let counted = self.kinds.iter().zip(&self.shares);
        let own: f64 = counted.map(|(kind, share)| (kind.error * share).powi(2)).sum();
        let precision: f64 = self.kinds.iter().map(|kind| kind.error.powi(-2)).sum();
        let more = (own - precision.recip()).max(0.0);
        let parts: Vec<Part> = self
            .likely
            .iter()
            .map(|one| Part {
                weight: one.weight,
                off: 0.0,
                deviation: (one.tau * one.tau * squares + more).sqrt(),
            })
            .collect();
        normal::half_width(&parts, SHARE)
    }
}

/// The logarithm of how likely a value of tau is.
fn logarithm(kinds: &[KindMean], tau: f64) -> f64 {
    // The means' common value is not known: it is averaged over too.
    let weights: Vec<f64> = kinds
        .iter()
        .map(|kind| (tau * tau + kind.error * kind.error).recip())
        .collect();
    let total: f64 = weights.iter().sum();
    let each = kinds.iter().zip(&weights);
    let common = each.clone().map(|(kind, weight)| kind.mean * weight).sum::<f64>() / total;
    // The density before anything is measured is 1/sqrt(tau), and falls off beyond what is usual.
    let mut logarithm = 0.5 * tau.ln() - (tau / USUAL_NS).powi(2).ln_1p();
    if !kinds.is_empty() {
        logarithm -= 0.5 * total.ln();
    }
    for (kind, weight) in each {
        logarithm += 0.5 * weight.ln() - 0.5 * weight * (kind.mean - common).powi(2);
    }
    logarithm
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bias(means: &[f64], error: f64) -> Bias {
        let kind = |mean: &f64| KindMean { mean: *mean, error };
        Bias::of(means.iter().map(kind).collect())
    }

    #[test]
    fn kinds_that_agree_make_it_small_and_one_alone_says_nothing() {
        let agree = bias(&[0.0, 10.0, -10.0, 5.0], 20.0).half_width();
        assert!(agree < 150.0, "{agree}");
        let differ = bias(&[3000.0, -3000.0, 1000.0, -1000.0], 20.0).half_width();
        assert!(differ > 5000.0 && differ < 15_000.0, "{differ}");
        // Of one kind it is what was assumed before.
        let alone = bias(&[0.0], 20.0).half_width();
        assert!((9_000.0..15_000.0).contains(&alone), "{alone}");
        assert!(bias(&[0.0, 0.0], 20.0).half_width() < alone);
    }

    #[test]
    fn what_is_chance_is_left_to_chance() {
        // Far more apart than by chance: all of it is the kinds' own, about their mean.
        let effects = bias(&[3000.0, -3000.0, 1000.0, 3000.0], 20.0).effects();
        for (effect, expected) in effects.iter().zip([2000.0, -4000.0, 0.0, 2000.0]) {
            assert!((effect - expected).abs() < 20.0, "{effects:?}");
        }
        let effects = bias(&[30.0, -30.0, 10.0, -10.0], 100.0).effects();
        assert!(effects.iter().all(|effect| effect.abs() < 15.0), "{effects:?}");
        assert!(bias(&[], 1.0).effects().is_empty());
    }
}
