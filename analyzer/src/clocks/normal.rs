//! Normal distributions, alone and several of which one is the true one.

/// The 99.5 % quantile: 99 % are within so many standard deviations.
pub(super) const WITHIN_99: f64 = 2.575_829;

/// A deviation over the median distance from the middle.
pub(super) const OF_MEDIAN: f64 = 1.4826;
/// The root of half pi: a deviation over the mean distance from the mean, and a median's standard error over a mean's.
pub(super) const ROOT_HALF_PI: f64 = 1.2533;

/// The probability that a normal variable is between this many of its standard deviations below and above its mean; negative
/// for a negative number of them.
pub(super) fn within(z: f64) -> f64 {
    statrs::function::erf::erf(z / std::f64::consts::SQRT_2)
}

/// One of several normal distributions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    /// How probable it is that this is the true one, or a multiple of that.
    pub(super) weight: f64,
    /// Where its mean is.
    pub(super) off: f64,
    pub(super) deviation: f64,
}

/// How far on either side of 0 this share of all lies.
pub(super) fn half_width(parts: &[Part], share: f64) -> f64 {
    let total: f64 = parts.iter().map(|part| part.weight).sum();
    let covered = |width: f64| {
        let of = |part: &Part| {
            let deviation = part.deviation.max(1e-9);
            part.weight * (within((width - part.off) / deviation) + within((width + part.off) / deviation))
        };
        0.5 * parts.iter().map(of).sum::<f64>() / total
    };
    // No share that is asked for is beyond 5 standard deviations.
    let farthest = parts.iter().map(|part| part.off.abs() + 5.0 * part.deviation);
    let (mut low, mut high) = (0.0, farthest.fold(0.0, f64::max));
    if !high.is_finite() || total.is_nan() || total <= 0.0 {
        return f64::INFINITY;
    }
    while high - low > 1e-3 * high {
        let middle = f64::midpoint(low, high);
        if covered(middle) >= share {
            high = middle;
        } else {
            low = middle;
        }
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_normal_distribution() {
        assert!((within(WITHIN_99) - 0.99).abs() < 1e-5);
        assert!((within(1.0) - 0.682_689).abs() < 1e-5);
        assert!((within(-1.0) + 0.682_689).abs() < 1e-5);
        assert!(within(0.0).abs() < 1e-6);
    }

    #[test]
    fn half_widths_of_several() {
        let part = |weight, off, deviation| Part {
            weight,
            off,
            deviation,
        };
        let one = half_width(&[part(3.0, 0.0, 100.0)], 0.99);
        assert!((one - 257.6).abs() < 0.5, "{one}");
        // All of its tail is on one side: 300 + 2.326 x 10.
        let aside = half_width(&[part(1.0, -300.0, 10.0)], 0.99);
        assert!((aside - 323.3).abs() < 0.5, "{aside}");
        // 1 % beyond is 10 % of the wider tenth: 1.645 x 1000.
        let mixed = half_width(&[part(0.9, 0.0, 1.0), part(0.1, 0.0, 1000.0)], 0.99);
        assert!((mixed - 1645.0).abs() < 3.0, "{mixed}");
        assert_eq!(half_width(&[part(1.0, 0.0, f64::INFINITY)], 0.99), f64::INFINITY);
    }
}
