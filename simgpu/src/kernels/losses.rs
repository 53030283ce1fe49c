//! Losses with their gradients.

use super::element::{CHUNK, exp};
use super::{Arguments, Element, Prepared, time_ns};

/// `mse_loss(float* loss, T* dpred, const T* pred, const float* target, int n, float scale, float gradient_scale)`.
pub(super) fn mse_loss<T: Element>(arguments: &Arguments) -> Result<Prepared, u32> {
    let (count, scale, gradient_scale) = (arguments.count(4)?, arguments.float(5)?, arguments.float(6)?);
    let loss = arguments.array::<f32>(0, 1)?;
    let gradient = arguments.array::<T>(1, count)?;
    let prediction = arguments.array::<T>(2, count)?;
    let target = arguments.array::<f32>(3, count)?;
    Ok(Box::new(move || {
        let mut sum = 0.0f64;
        let (mut of_gradient, mut of_prediction) = (Vec::new(), Vec::new());
        let slices = gradient
            .get_mut()
            .chunks_mut(CHUNK)
            .zip(prediction.get().chunks(CHUNK))
            .zip(target.get().chunks(CHUNK));
        for ((gradient, prediction), target) in slices {
            let prediction = T::read(prediction, &mut of_prediction);
            T::write(gradient, &mut of_gradient, |gradient| {
                for ((gradient, prediction), target) in gradient.iter_mut().zip(prediction).zip(target) {
                    let difference = prediction - target;
                    sum += f64::from(difference) * f64::from(difference);
                    *gradient = 2.0 * scale * gradient_scale * difference;
                }
            });
        }
        loss.get_mut()[0] += (sum * f64::from(scale)) as f32;
        time_ns(count * (2 * size_of::<T>() + 4), 4 * count)
    }))
}

/// Sum of f32 in eight partial sums: an order that vector instructions can keep.
pub(super) fn sum(values: impl ExactSizeIterator<Item = f32>) -> f32 {
    let mut sums = [0.0f32; 8];
    for (index, value) in values.enumerate() {
        sums[index % 8] += value;
    }
    sums.iter().sum()
}

/// Replaces each value by e^(scale * value - the largest such) and gives that largest and the sum.
pub(super) fn exponentials(values: &mut [f32], scale: f32) -> (f32, f32) {
    let mut largest = f32::NEG_INFINITY;
    for value in values.iter_mut() {
        *value *= scale;
        largest = if *value > largest { *value } else { largest };
    }
    for value in values.iter_mut() {
        *value = exp(*value - largest);
    }
    (largest, sum(values.iter().copied()))
}

/// `cross_entropy(float* loss, T* dlogits, const T* logits, const int* targets, int rows, int classes, float scale,
/// float gradient_scale)`; dlogits may be logits.
pub(super) fn cross_entropy<T: Element>(arguments: &Arguments) -> Result<Prepared, u32> {
    let (rows, classes) = (arguments.count(4)?, arguments.count(5)?);
    let (scale, gradient_scale) = (arguments.float(6)?, arguments.float(7)?);
    let loss = arguments.array::<f32>(0, 1)?;
    let gradient = arguments.array::<T>(1, rows * classes)?;
    let logits = arguments.array::<T>(2, rows * classes)?;
    let targets = arguments.array::<i32>(3, rows)?;
    Ok(Box::new(move || {
        let (mut of_row, mut of_gradient, mut values) = (Vec::new(), Vec::new(), Vec::new());
        let mut total = 0.0f64;
        for (row, &target) in targets.get().iter().enumerate() {
            let elements = row * classes..(row + 1) * classes;
            values.clear();
            values.extend_from_slice(T::read(&logits.get()[elements.clone()], &mut of_row));
            let target = usize::try_from(target).ok().filter(|&target| target < classes);
            let of_target = target.map_or(0.0, |target| values[target]);
            let (largest, sum) = exponentials(&mut values, 1.0);
            // A row whose target is no class counts for nothing.
            let factor = if target.is_some() {
                scale * gradient_scale
            } else {
                0.0
            };
            T::write(&mut gradient.get_mut()[elements], &mut of_gradient, |gradient| {
                let each = factor / sum;
                for (gradient, value) in gradient.iter_mut().zip(&values) {
                    *gradient = value * each;
                }
                if let Some(target) = target {
                    gradient[target] -= factor;
                    total += f64::from(sum.ln() + largest - of_target);
                }
            });
        }
        loss.get_mut()[0] += (total * f64::from(scale)) as f32;
        time_ns(2 * rows * classes * size_of::<T>(), 12 * rows * classes)
    }))
}
