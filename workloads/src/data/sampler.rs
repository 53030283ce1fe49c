//! Which samples each step takes.

use super::Random;

/// Deals out the samples of each step: all ranks shuffle alike, and each takes its share of the global batch.
#[derive(Clone, Debug)]
pub(crate) struct Sampler {
    order: Vec<usize>,
    random: Random,
    position: usize,
    global_batch: usize,
}

impl Sampler {
    /// A sampler of `samples` samples in global batches of at most as many.
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

    /// How many samples it deals out.
    pub(crate) fn samples(&self) -> usize {
        self.order.len()
    }

    /// Samples of a step over all ranks.
    pub(crate) fn global_batch(&self) -> usize {
        self.global_batch
    }

    fn shuffle(&mut self) {
        for last in (1..self.order.len()).rev() {
            let other = self.random.below(last + 1);
            self.order.swap(last, other);
        }
    }

    /// The samples of the next step over all ranks. At the end of an epoch a rest that fills no batch is dropped, and
    /// everything is shuffled anew.
    pub(crate) fn next(&mut self) -> &[usize] {
        if self.position + self.global_batch > self.order.len() {
            self.position = 0;
            self.shuffle();
        }
        let start = self.position;
        self.position += self.global_batch;
        &self.order[start..self.position]
    }

    /// Goes on as if so many steps had been taken.
    pub(crate) fn skip(&mut self, steps: u64) {
        for _ in 0..steps {
            self.next();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_that_shuffle_alike_share_what_one_rank_takes() {
        let (mut one, mut first, mut second) = (
            Sampler::new(64, 16, 3),
            Sampler::new(64, 16, 3),
            Sampler::new(64, 16, 3),
        );
        for _ in 0..10 {
            let whole = one.next().to_vec();
            assert_eq!(whole, [&first.next()[..8], &second.next()[8..]].concat());
        }
    }

    #[test]
    fn an_epoch_takes_every_sample_once() {
        let mut sampler = Sampler::new(48, 16, 9);
        let mut epoch = || (0..3).flat_map(|_| sampler.next().to_vec()).collect::<Vec<_>>();
        let (first, second) = (epoch(), epoch());
        assert!(first != second, "epochs are shuffled differently");
        for mut seen in [first, second] {
            seen.sort_unstable();
            assert_eq!(seen, (0..48).collect::<Vec<_>>());
        }
    }

    #[test]
    fn skipped_steps_are_as_if_taken() {
        for steps in 0..12 {
            let (mut taken, mut skipped) = (Sampler::new(50, 16, 7), Sampler::new(50, 16, 7));
            (0..steps).for_each(|_| drop(taken.next().to_vec()));
            skipped.skip(steps);
            assert_eq!(taken.next(), skipped.next(), "after {steps} steps");
        }
    }

    #[test]
    fn seeds_differ() {
        assert!(Sampler::new(64, 16, 1).next() != Sampler::new(64, 16, 2).next());
    }
}
