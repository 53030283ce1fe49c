//! Kernels that reduce over rows or columns: bias gradients and layer norm.

use super::losses::sum;
use super::{Arguments, Element, Prepared, time_ns};

/// `bias_gradient(T* db, const T* dy, int rows, int cols)`.
pub(super) fn bias_gradient<T: Element>(arguments: &Arguments) -> Result<Prepared, u32> {
    let (rows, columns) = (arguments.count(2)?, arguments.count(3)?);
    let db = arguments.array::<T>(0, columns)?;
    let dy = arguments.array::<T>(1, rows * columns)?;
    Ok(Box::new(move || {
        let (mut of_row, mut of_result) = (Vec::new(), Vec::new());
        let mut sums = vec![0.0; columns];
        for row in dy.get().chunks_exact(columns.max(1)) {
            for (sum, dy) in sums.iter_mut().zip(T::read(row, &mut of_row)) {
                *sum += dy;
            }
        }
        T::write(db.get_mut(), &mut of_result, |db| db.copy_from_slice(&sums));
        time_ns(rows * columns * size_of::<T>(), rows * columns)
    }))
}

/// `layer_norm(T* y, float* mean, float* rstd, const T* x, const T* gamma, const T* beta, int rows, int cols)`.
pub(super) fn layer_norm<T: Element>(arguments: &Arguments) -> Result<Prepared, u32> {
    let (rows, columns) = (arguments.count(6)?, arguments.count(7)?);
    let y = arguments.array::<T>(0, rows * columns)?;
    let (mean, rstd) = (arguments.array::<f32>(1, rows)?, arguments.array::<f32>(2, rows)?);
    let x = arguments.array::<T>(3, rows * columns)?;
    let (gamma, beta) = (
        arguments.array::<T>(4, columns)?,
        arguments.array::<T>(5, columns)?,
    );
    Ok(Box::new(move || {
        let mut scratch: [Vec<f32>; 4] = Default::default();
        let [of_x, of_y, of_gamma, of_beta] = &mut scratch;
        let gamma = T::read(gamma.get(), of_gamma);
        let beta = T::read(beta.get(), of_beta);
        for row in 0..rows {
            let elements = row * columns..(row + 1) * columns;
            let x = T::read(&x.get()[elements.clone()], of_x);
            let middle = sum(x.iter().copied()) / columns as f32;
            let variance = sum(x.iter().map(|x| (x - middle) * (x - middle))) / columns as f32;
            let inverse = 1.0 / (variance + 1e-5).sqrt();
            T::write(&mut y.get_mut()[elements], of_y, |y| {
                for (((y, x), gamma), beta) in y.iter_mut().zip(x).zip(gamma).zip(beta) {
                    *y = (x - middle) * inverse * gamma + beta;
                }
            });
            (mean.get_mut()[row], rstd.get_mut()[row]) = (middle, inverse);
        }
        time_ns(2 * rows * columns * size_of::<T>(), 9 * rows * columns)
    }))
}

/// `layer_norm_backward(T* dx, const T* dy, const T* x, const float* mean, const float* rstd, const T* gamma,
/// int rows, int cols)`; dx may be dy.
pub(super) fn layer_norm_backward<T: Element>(arguments: &Arguments) -> Result<Prepared, u32> {
    let (rows, columns) = (arguments.count(6)?, arguments.count(7)?);
    let dx = arguments.array::<T>(0, rows * columns)?;
    let dy = arguments.array::<T>(1, rows * columns)?;
    let x = arguments.array::<T>(2, rows * columns)?;
    let (mean, rstd) = (arguments.array::<f32>(3, rows)?, arguments.array::<f32>(4, rows)?);
    let gamma = arguments.array::<T>(5, columns)?;
    Ok(Box::new(move || {
        let mut scratch: [Vec<f32>; 4] = Default::default();
        let [of_dx, of_dy, of_x, of_gamma] = &mut scratch;
        let gamma = T::read(gamma.get(), of_gamma);
        let (mut normal, mut g) = (vec![0.0f32; columns], vec![0.0f32; columns]);
        for row in 0..rows {
            let elements = row * columns..(row + 1) * columns;
            let (middle, inverse) = (mean.get()[row], rstd.get()[row]);
            let x = T::read(&x.get()[elements.clone()], of_x);
            let dy = T::read(&dy.get()[elements.clone()], of_dy);
            for (normal, x) in normal.iter_mut().zip(x) {
                *normal = (x - middle) * inverse;
            }
            for ((g, dy), gamma) in g.iter_mut().zip(dy).zip(gamma) {
                *g = dy * gamma;
            }
            let mean_g = sum(g.iter().copied()) / columns as f32;
            let mean_product = sum(g.iter().zip(&normal).map(|(g, normal)| g * normal)) / columns as f32;
            T::write(&mut dx.get_mut()[elements], of_dx, |dx| {
                for ((dx, g), normal) in dx.iter_mut().zip(&g).zip(&normal) {
                    *dx = inverse * (g - mean_g - normal * mean_product);
                }
            });
        }
        time_ns(3 * rows * columns * size_of::<T>(), 13 * rows * columns)
    }))
}

/// `layer_norm_gradients(T* dgamma, T* dbeta, const T* dy, const T* x, const float* mean, const float* rstd, int rows,
/// int cols)`.
pub(super) fn layer_norm_gradients<T: Element>(arguments: &Arguments) -> Result<Prepared, u32> {
    let (rows, columns) = (arguments.count(6)?, arguments.count(7)?);
    let (dgamma, dbeta) = (
        arguments.array::<T>(0, columns)?,
        arguments.array::<T>(1, columns)?,
    );
    let dy = arguments.array::<T>(2, rows * columns)?;
    let x = arguments.array::<T>(3, rows * columns)?;
    let (mean, rstd) = (arguments.array::<f32>(4, rows)?, arguments.array::<f32>(5, rows)?);
    Ok(Box::new(move || {
        let (mut of_dy, mut of_x) = (Vec::new(), Vec::new());
        let (mut of_gamma, mut of_beta) = (vec![0.0f32; columns], vec![0.0f32; columns]);
        for row in 0..rows {
            let elements = row * columns..(row + 1) * columns;
            let (middle, inverse) = (mean.get()[row], rstd.get()[row]);
            let x = T::read(&x.get()[elements.clone()], &mut of_x);
            let dy = T::read(&dy.get()[elements], &mut of_dy);
            for (((gamma, beta), dy), x) in of_gamma.iter_mut().zip(&mut of_beta).zip(dy).zip(x) {
                *gamma += dy * (x - middle) * inverse;
                *beta += dy;
            }
        }
        T::write(dgamma.get_mut(), &mut of_x, |result| {
            result.copy_from_slice(&of_gamma);
        });
        T::write(dbeta.get_mut(), &mut of_x, |result| {
            result.copy_from_slice(&of_beta);
        });
        time_ns(2 * rows * columns * size_of::<T>(), 5 * rows * columns)
    }))
}
