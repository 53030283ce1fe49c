//! Gradients by central differences of the forward kernels.

use super::numbers::numbers;
use super::operation::{Input, Kind, Operation};
use super::report::{Report, worst_error};
use crate::data::Random;
use crate::error::Error;
use crate::gpu::{DataType, Gpu};

/// Arrays up to so many elements are tried element by element; larger ones along random directions.
const FEW: usize = 40;
/// Directions for those.
const DIRECTIONS: usize = 8;

/// How a function is tried.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trial {
    /// The step. The formula's own error is of the order of its fourth power, and f32's rounding counts divided by it.
    pub(super) step: f32,
    /// Whether the step is the length of the whole move, as functions need that bend much, or of each element's.
    pub(super) is_length: bool,
    /// The largest error, relative to the largest gradient.
    pub(super) limit: f64,
}

/// For one kernel.
const KERNEL: Trial = Trial {
    step: 1.0 / 16.0,
    is_length: false,
    limit: 1e-4,
};

/// What a backward pass is told: the inputs and the gradient by the first output; and gives: the gradients by the
/// inputs in `by`.
pub(super) type Backward<'a> = dyn Fn(&[Input], &[f32]) -> Result<Vec<Vec<f32>>, Error> + 'a;

/// Holds gradients against central differences of the sum of the first output's elements, each with a random weight.
/// `by` says which inputs have gradients.
pub(super) fn check_gradients(
    gpu: &Gpu,
    report: &mut Report,
    name: &str,
    forward: &Operation<'_>,
    inputs: &[Input],
    by: &[usize],
    backward: &Backward<'_>,
) -> Result<(), Error> {
    check_gradients_by(gpu, report, name, forward, inputs, by, backward, KERNEL)
}

/// The same by another trial.
pub(super) fn check_gradients_by(
    gpu: &Gpu,
    report: &mut Report,
    name: &str,
    forward: &Operation<'_>,
    inputs: &[Input],
    by: &[usize],
    backward: &Backward<'_>,
    trial: Trial,
) -> Result<(), Error> {
    let mut random = Random::new(7);
    let outputs = forward.run(gpu, DataType::F32, inputs)?;
    // One output is a loss, whose gradient by itself is 1.
    let weights = if outputs[0].len() == 1 {
        vec![1.0]
    } else {
        numbers(&mut random, outputs[0].len(), 1.0)
    };
    let value = |inputs: &[Input]| -> Result<f64, Error> {
        let outputs = forward.run(gpu, DataType::F32, inputs)?;
        let terms = outputs[0].iter().zip(&weights);
        Ok(terms.map(|(y, weight)| f64::from(*y) * f64::from(*weight)).sum())
    };
    let gradients = backward(inputs, &weights)?;
    for (&index, gradient) in by.iter().zip(&gradients) {
        let count = inputs[index].values.len();
        let directions: Vec<Vec<f32>> = if count <= FEW {
            (0..count)
                .map(|element| {
                    let mut direction = vec![0.0; count];
                    direction[element] = 1.0;
                    direction
                })
                .collect()
        } else {
            (0..DIRECTIONS)
                .map(|_| uphill(&numbers(&mut random, count, 1.0), gradient))
                .collect()
        };
        let (mut got, mut want) = (Vec::new(), Vec::new());
        for direction in &directions {
            let along = gradient.iter().zip(direction);
            got.push(along.map(|(g, d)| f64::from(*g) * f64::from(*d)).sum::<f64>() as f32);
            let length = direction.iter().map(|d| d * d).sum::<f32>().sqrt();
            let step = if trial.is_length {
                trial.step / length
            } else {
                trial.step
            };
            want.push(slope(inputs, index, direction, step, &value)?);
        }
        report.add(&format!("{name} gradient"), worst_error(&got, &want), trial.limit);
    }
    Ok(())
}

/// A direction of these lengths in which each element of the gradient adds to the slope: it is large then beside the
/// rounding of the values that it is a difference of. Where the gradient is 0 the direction is as it was.
fn uphill(lengths: &[f32], gradient: &[f32]) -> Vec<f32> {
    lengths
        .iter()
        .zip(gradient)
        .map(|(&length, &gradient)| {
            if gradient == 0.0 {
                length
            } else {
                length.abs().copysign(gradient)
            }
        })
        .collect()
}

/// The slope of `value` along a direction, from four points, which cancel the terms up to the fourth order:
/// (8 (f(h) - f(-h)) - (f(2h) - f(-2h))) / 12h.
fn slope(
    inputs: &[Input],
    index: usize,
    direction: &[f32],
    step: f32,
    value: &dyn Fn(&[Input]) -> Result<f64, Error>,
) -> Result<f64, Error> {
    debug_assert_ne!(inputs[index].kind, Kind::Int);
    let at = |steps: f32| {
        let mut moved = inputs.to_vec();
        for (element, direction) in moved[index].values.iter_mut().zip(direction) {
            *element += steps * step * direction;
        }
        value(&moved)
    };
    let near = at(1.0)? - at(-1.0)?;
    let far = at(2.0)? - at(-2.0)?;
    Ok((8.0 * near - far) / (12.0 * f64::from(step)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slope_of_a_polynomial_is_exact() {
        let inputs = [Input::typed(vec![0.5, -1.0])];
        let value = |inputs: &[Input]| {
            let [x, y] = inputs[0].values[..] else {
                return Ok(0.0);
            };
            let (x, y) = (f64::from(x), f64::from(y));
            Ok(x.powi(4) + 3.0 * y * x)
        };
        let by_x = slope(&inputs, 0, &[1.0, 0.0], 0.0625, &value).expect("a value");
        let by_y = slope(&inputs, 0, &[0.0, 1.0], 0.0625, &value).expect("a value");
        assert!((by_x - (4.0 * 0.125 - 3.0)).abs() < 1e-9, "{by_x}");
        assert!((by_y - 1.5).abs() < 1e-9, "{by_y}");
    }
}
