//! Random numbers that are the same on every machine.

/// A small generator of random numbers (splitmix64): integer arithmetic and exact conversions only, so that a seed
/// means the same everywhere.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// A generator with a seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// Uniform in -limit..limit.
    pub(crate) fn symmetric(&mut self, limit: f32) -> f32 {
        ((self.next() >> 40) as f32 / (1u64 << 23) as f32 - 1.0) * limit
    }

    /// Normally distributed about 0 with standard deviation 1, and never beyond 6.
    ///
    /// The sum of twelve uniform numbers, which has variance 1: unlike a logarithm and a cosine it doesn't depend on
    /// the machine's mathematical library.
    pub(crate) fn normal(&mut self) -> f32 {
        let mut sum = 0;
        for _ in 0..3 {
            let bits = self.next();
            // Four numbers of 16 bits each.
            sum += (0..4).map(|part| (bits >> (16 * part)) & 0xffff).sum::<u64>();
        }
        // The mean of a number is 32767.5, and the variance of twelve 2^32 - 1.
        (sum as f32 - 12.0 * 32767.5) / 65536.0
    }

    /// Uniform in 0..bound; 0 where `bound` is 0.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normal_numbers_have_the_moments_of_a_normal_distribution() {
        let mut random = Random::new(5);
        let values: Vec<f64> = (0..200_000).map(|_| f64::from(random.normal())).collect();
        let moment = |power: i32| values.iter().map(|v| v.powi(power)).sum::<f64>() / values.len() as f64;
        assert!(moment(1).abs() < 0.01, "mean {}", moment(1));
        assert!((moment(2) - 1.0).abs() < 0.01, "variance {}", moment(2));
        assert!(moment(3).abs() < 0.03, "third moment {}", moment(3));
        // 3 for a normal distribution; 0.1 less for a sum of twelve.
        assert!((moment(4) - 2.9).abs() < 0.06, "fourth moment {}", moment(4));
    }

    #[test]
    fn a_seed_means_the_same_numbers_everywhere() {
        // The first output for seed 0 in the published test vectors of splitmix64.
        assert_eq!(Random::new(0).next(), 0xe220_a839_7b1d_cdaf);
        let (mut a, mut b) = (Random::new(9), Random::new(9));
        assert!((0..100).all(|_| a.normal().to_bits() == b.normal().to_bits()));
    }

    #[test]
    fn uniform_numbers_stay_within_their_limits() {
        let mut random = Random::new(1);
        assert!((0..1000).all(|_| random.symmetric(0.5).abs() <= 0.5));
        let mut seen = [false; 7];
        (0..1000).for_each(|_| seen[random.below(7)] = true);
        assert_eq!(seen, [true; 7]);
        assert_eq!(random.below(0), 0);
    }
}
