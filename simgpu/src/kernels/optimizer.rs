//! Optimizer steps on flat f32 vectors.

use super::{Arguments, Prepared, time_ns};

/// `sgd_step(float* p, const float* g, float rate, int n)`.
pub(super) fn sgd_step(arguments: &Arguments) -> Result<Prepared, u32> {
    let (rate, count) = (arguments.float(2)?, arguments.count(3)?);
    let (parameters, gradients) = (
        arguments.array::<f32>(0, count)?,
        arguments.array::<f32>(1, count)?,
    );
    Ok(Box::new(move || {
        for (parameter, gradient) in parameters.get_mut().iter_mut().zip(gradients.get()) {
            *parameter -= rate * gradient;
        }
        time_ns(12 * count, 2 * count)
    }))
}

/// `adam_step(float* p, const float* g, float* m, float* v, float rate, float beta1, float beta2, float eps,
/// float correction1, float correction2, int n)`.
pub(super) fn adam_step(arguments: &Arguments) -> Result<Prepared, u32> {
    let count = arguments.count(10)?;
    let parameters = arguments.array::<f32>(0, count)?;
    let gradients = arguments.array::<f32>(1, count)?;
    let moments = [
        arguments.array::<f32>(2, count)?,
        arguments.array::<f32>(3, count)?,
    ];
    let (rate, beta1, beta2) = (arguments.float(4)?, arguments.float(5)?, arguments.float(6)?);
    let (epsilon, correction1, correction2) = (arguments.float(7)?, arguments.float(8)?, arguments.float(9)?);
    Ok(Box::new(move || {
        let elements = parameters
            .get_mut()
            .iter_mut()
            .zip(gradients.get())
            .zip(moments[0].get_mut())
            .zip(moments[1].get_mut());
        for (((parameter, gradient), first), second) in elements {
            *first = beta1 * *first + (1.0 - beta1) * gradient;
            *second = beta2 * *second + (1.0 - beta2) * gradient * gradient;
            *parameter -= rate * (*first / correction1) / ((*second / correction2).sqrt() + epsilon);
        }
        time_ns(28 * count, 14 * count)
    }))
}

/// `sum_of_squares(float* result, const float* x, int n)`.
pub(super) fn sum_of_squares(arguments: &Arguments) -> Result<Prepared, u32> {
    let count = arguments.count(2)?;
    let result = arguments.array::<f32>(0, 1)?;
    let x = arguments.array::<f32>(1, count)?;
    Ok(Box::new(move || {
        let mut sums = [0.0f64; 4];
        for values in x.get().chunks(4) {
            for (sum, &value) in sums.iter_mut().zip(values) {
                *sum += f64::from(value) * f64::from(value);
            }
        }
        result.get_mut()[0] += sums.iter().sum::<f64>() as f32;
        time_ns(4 * count, 2 * count)
    }))
}
