//! A synthetic data set that can be learnt, and the sampler that deals it out to the ranks.

/// A small generator of random numbers (splitmix64): the same on every machine.
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

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }
}

/// Samples with their targets, row-major.
pub(crate) struct DataSet {
    pub(crate) features: usize,
    pub(crate) targets: usize,
    x: Vec<f32>,
    y: Vec<f32>,
}

impl DataSet {
    /// Uniform features; each target is a fixed mixture of three of them.
    pub(crate) fn new(samples: usize, features: usize, targets: usize, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let x: Vec<f32> = (0..samples * features).map(|_| random.symmetric(1.0)).collect();
        let mixture: Vec<[(usize, f32); 3]> = (0..targets)
            .map(|_| std::array::from_fn(|_| (random.below(features), random.symmetric(1.0))))
            .collect();
        let mut y = Vec::with_capacity(samples * targets);
        for sample in x.chunks_exact(features) {
            y.extend(mixture.iter().map(|parts| {
                parts
                    .iter()
                    .map(|(feature, weight)| sample[*feature] * weight)
                    .sum::<f32>()
            }));
        }
        Self {
            features,
            targets,
            x,
            y,
        }
    }

    /// Copies the samples of `indices` one after the other.
    pub(crate) fn gather(&self, indices: &[usize], x: &mut [f32], y: &mut [f32]) {
        for (row, &index) in indices.iter().enumerate() {
            let (features, targets) = (self.features, self.targets);
            x[row * features..(row + 1) * features]
                .copy_from_slice(&self.x[index * features..(index + 1) * features]);
            y[row * targets..(row + 1) * targets]
                .copy_from_slice(&self.y[index * targets..(index + 1) * targets]);
        }
    }
}

/// Deals out the samples of each step: all ranks shuffle alike, each takes its share of the global batch.
pub(crate) struct Sampler {
    order: Vec<usize>,
    random: Random,
    position: usize,
    global_batch: usize,
}

impl Sampler {
    /// A sampler of `samples` samples in global batches.
    pub(crate) fn new(samples: usize, global_batch: usize, seed: u64) -> Self {
        let mut sampler = Self {
            order: (0..samples).collect(),
            random: Random::new(seed ^ 0x5a5a),
            position: 0,
            global_batch,
        };
        sampler.shuffle();
        sampler
    }

    fn shuffle(&mut self) {
        for last in (1..self.order.len()).rev() {
            let other = self.random.below(last + 1);
            self.order.swap(last, other);
        }
    }

    /// The samples of the next step for `rank` of `ranks`. A rest that fills no batch is dropped.
    pub(crate) fn next(&mut self, rank: usize, ranks: usize) -> &[usize] {
        if self.position + self.global_batch > self.order.len() {
            self.position = 0;
            self.shuffle();
        }
        let share = self.global_batch / ranks;
        let start = self.position + rank * share;
        self.position += self.global_batch;
        &self.order[start..start + share]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_share_what_one_rank_takes() {
        let (mut one, mut first, mut second) = (
            Sampler::new(64, 16, 3),
            Sampler::new(64, 16, 3),
            Sampler::new(64, 16, 3),
        );
        for _ in 0..10 {
            let whole = one.next(0, 1).to_vec();
            assert_eq!(whole, [first.next(0, 2), second.next(1, 2)].concat());
        }
    }

    #[test]
    fn an_epoch_takes_every_sample_once() {
        let mut sampler = Sampler::new(48, 16, 9);
        let mut seen: Vec<usize> = (0..3).flat_map(|_| sampler.next(0, 1).to_vec()).collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..48).collect::<Vec<_>>());
    }
}
