//! The perceptron's data: each target is a mixture of features.

use super::{DataSet, Random, copy_rows};

/// Samples of f32 features with f32 targets, row-major.
pub(crate) struct Perceptron {
    samples: usize,
    input_bytes: usize,
    target_bytes: usize,
    /// As the GPU takes them: f32 in the machine's byte order.
    inputs: Vec<u8>,
    targets: Vec<u8>,
}

impl Perceptron {
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
            samples,
            input_bytes: features * size_of::<f32>(),
            target_bytes: targets * size_of::<f32>(),
            inputs: bytes(&x),
            targets: bytes(&y),
        }
    }
}

fn bytes(values: &[f32]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(size_of_val(values));
    for value in values {
        bytes.extend_from_slice(&value.to_ne_bytes());
    }
    bytes
}

impl DataSet for Perceptron {
    fn samples(&self) -> usize {
        self.samples
    }

    fn input_bytes(&self) -> usize {
        self.input_bytes
    }

    fn target_bytes(&self) -> usize {
        self.target_bytes
    }

    fn gather(&self, indices: &[usize], inputs: &mut [u8], targets: &mut [u8]) {
        copy_rows(&self.inputs, self.input_bytes, indices, inputs);
        copy_rows(&self.targets, self.target_bytes, indices, targets);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn floats(bytes: &[u8]) -> Vec<f32> {
        bytes
            .chunks_exact(4)
            .map(|four| f32::from_ne_bytes(four.try_into().expect("four bytes")))
            .collect()
    }

    #[test]
    fn samples_are_gathered_in_the_order_asked_for() {
        let data = Perceptron::new(8, 5, 2, 4);
        let one = |index: usize| {
            let (mut x, mut y) = (vec![0; data.input_bytes()], vec![0; data.target_bytes()]);
            data.gather(&[index], &mut x, &mut y);
            (floats(&x), floats(&y))
        };
        let (mut x, mut y) = (vec![0; 3 * data.input_bytes()], vec![0; 3 * data.target_bytes()]);
        data.gather(&[7, 0, 3], &mut x, &mut y);
        assert_eq!(floats(&x), [one(7).0, one(0).0, one(3).0].concat());
        assert_eq!(floats(&y), [one(7).1, one(0).1, one(3).1].concat());
        assert!(one(7).0 != one(0).0);
    }

    #[test]
    fn a_side_that_is_not_wanted_is_left_out() {
        let data = Perceptron::new(4, 3, 2, 4);
        let mut y = vec![0; 2 * data.target_bytes()];
        data.gather(&[1, 2], &mut [], &mut y);
        assert!(y.iter().any(|&byte| byte != 0));
    }

    #[test]
    fn targets_are_a_linear_function_of_the_features() {
        // With one feature each target is a fixed multiple of it.
        let data = Perceptron::new(16, 1, 1, 11);
        let (mut x, mut y) = (vec![0; 64], vec![0; 64]);
        data.gather(&(0..16).collect::<Vec<_>>(), &mut x, &mut y);
        let factors: Vec<f32> = floats(&x).iter().zip(floats(&y)).map(|(x, y)| y / x).collect();
        assert!(
            factors
                .iter()
                .all(|f| (f - factors[0]).abs() < 1e-4 * factors[0].abs()),
            "{factors:?}"
        );
    }
}
