//! How far one host may end one kind of operation later than another host, always: no number of them averages that out.
//!
//! What can be seen is how the kinds differ. Their means scatter with a standard deviation tau about what they have in common,
//! which is off by as much over the root of how many they are. Of tau there are few samples, so that it is not estimated but
//! averaged over: with a half-Cauchy distribution before (as in Gelman 2006 for the variance between groups).

/// Scale of tau before anything is measured: single kernels of NCCL end 1 to 7 us apart on one host.
const USUAL_NS: f64 = 2_000.0;
/// No tau is greater.
const MOST_NS: f64 = 10_000.0;
/// Values of tau that are tried.
const STEPS: usize = 64;

/// What one kind says.
#[derive(Clone, Copy, Debug)]
pub(super) struct KindMean {
    /// Mean of the residuals of its operations, nanoseconds.
    pub(super) mean: f64,
    /// Its standard error.
    pub(super) error: f64,
    /// Its share of the estimate, 0..1.
    pub(super) share: f64,
}

/// The values of tau: 0, and from 10 ns to the greatest, evenly by their logarithm.
fn values() -> impl Iterator<Item = f64> {
    let least = 10f64;
    (0..=STEPS).map(move |step| match step {
        0 => 0.0,
        step => least * (MOST_NS / least).powf((step - 1) as f64 / (STEPS - 1) as f64),
    })
}

/// The probability that a normal variable is within so many of its standard deviations.
fn within(z: f64) -> f64 {
    // Abramowitz and Stegun 7.1.26: right within 1.5e-7.
    let x = z / std::f64::consts::SQRT_2;
    let t = 1.0 / (1.0 + 0.327_591_1 * x);
    let series = t
        * (0.254_829_592
            + t * (-0.284_496_736 + t * (1.421_413_741 + t * (-1.453_152_027 + t * 1.061_405_429))));
    1.0 - series * (-x * x).exp()
}

/// The 99 % half width, nanoseconds, of an estimate whose standard error without any of this is `error`.
pub(super) fn half_width(kinds: &[KindMean], error: f64) -> f64 {
    let shares: f64 = kinds.iter().map(|kind| kind.share * kind.share).sum();
    let mut weighed: Vec<(f64, f64)> = Vec::with_capacity(STEPS + 1);
    let mut before = 0.0;
    for tau in values() {
        // Before: half-Cauchy, times the width of the step.
        let prior = (tau - before).max(5.0) / (1.0 + (tau / USUAL_NS).powi(2));
        before = tau;
        // The means' common value is not known: it is averaged over too.
        let weights: Vec<f64> = kinds
            .iter()
            .map(|kind| 1.0 / (tau * tau + kind.error * kind.error).max(1.0))
            .collect();
        let total: f64 = weights.iter().sum();
        let common = kinds
            .iter()
            .zip(&weights)
            .map(|(kind, weight)| kind.mean * weight)
            .sum::<f64>()
            / total.max(f64::MIN_POSITIVE);
        let mut logarithm = if kinds.is_empty() { 0.0 } else { -0.5 * total.ln() };
        for (kind, weight) in kinds.iter().zip(&weights) {
            logarithm += 0.5 * weight.ln() - 0.5 * weight * (kind.mean - common).powi(2);
        }
        weighed.push((
            logarithm + prior.ln(),
            (error * error + tau * tau * shares).sqrt(),
        ));
    }
    let greatest = weighed.iter().map(|(weight, _)| *weight).fold(f64::MIN, f64::max);
    for (weight, _) in &mut weighed {
        *weight = (*weight - greatest).exp();
    }
    let total: f64 = weighed.iter().map(|(weight, _)| weight).sum();
    let covered = |width: f64| {
        let of = |(weight, deviation): &(f64, f64)| weight * within(width / deviation.max(1e-9));
        weighed.iter().map(of).sum::<f64>() / total
    };
    let (mut low, mut high) = (0.0, 5.0 * (error + MOST_NS));
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if covered(middle) < 0.99 {
            low = middle;
        } else {
            high = middle;
        }
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(means: &[f64], error: f64) -> Vec<KindMean> {
        let share = 1.0 / means.len() as f64;
        means
            .iter()
            .map(|mean| KindMean {
                mean: *mean,
                error,
                share,
            })
            .collect()
    }

    #[test]
    fn the_normal_distribution() {
        assert!((within(2.575_829) - 0.99).abs() < 1e-5);
        assert!((within(1.0) - 0.682_689).abs() < 1e-5);
        assert!(within(0.0).abs() < 1e-6);
    }

    #[test]
    fn kinds_that_agree_make_it_small_and_one_alone_says_nothing() {
        let agree = half_width(&kinds(&[0.0, 10.0, -10.0, 5.0], 20.0), 10.0);
        assert!(agree < 250.0, "{agree}");
        let differ = half_width(&kinds(&[3000.0, -3000.0, 1000.0, -1000.0], 20.0), 10.0);
        assert!(differ > 4000.0 && differ < 15_000.0, "{differ}");
        // Of one kind it is what was assumed before: 99 % of a normal of a half-Cauchy that is cut off.
        let alone = half_width(&kinds(&[0.0], 20.0), 10.0);
        assert!((10_000.0..22_000.0).contains(&alone), "{alone}");
        assert!(half_width(&kinds(&[0.0, 0.0], 20.0), 10.0) < alone);
    }
}
