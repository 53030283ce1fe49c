//! Kernels that compute each element from the same one of other arrays.

use std::sync::{Mutex, PoisonError};

use half::{bf16, f16};

use super::element::{modify_with, tanh, write_from};
use super::{Arguments, Element, Prepared, time_ns};

/// `add_bias(T* y, const T* bias, int rows, int cols)`, with ReLU or without.
fn add_bias_then<T: Element>(arguments: &Arguments, relu: bool) -> Result<Prepared, u32> {
    let (rows, columns) = (arguments.count(2)?, arguments.count(3)?);
    let y = arguments.array::<T>(0, rows * columns)?;
    let bias = arguments.array::<T>(1, columns)?;
    Ok(Box::new(move || {
        let (mut of_y, mut of_bias) = (Vec::new(), Vec::new());
        let bias = T::read(bias.get(), &mut of_bias);
        for row in y.get_mut().chunks_exact_mut(columns.max(1)) {
            T::modify(row, &mut of_y, |row| {
                for (y, bias) in row.iter_mut().zip(bias) {
                    *y += bias;
                }
                if relu {
                    for y in row {
                        *y = y.max(0.0);
                    }
                }
            });
        }
        time_ns(2 * rows * columns * size_of::<T>(), 2 * rows * columns)
    }))
}

/// `add_bias(T* y, const T* bias, int rows, int cols)`.
pub(super) fn add_bias<T: Element>(arguments: &Arguments) -> Result<Prepared, u32> {
    add_bias_then::<T>(arguments, false)
}

/// `add_bias_relu(T* y, const T* bias, int rows, int cols)`.
pub(super) fn add_bias_relu<T: Element>(arguments: &Arguments) -> Result<Prepared, u32> {
    add_bias_then::<T>(arguments, true)
}

/// A kernel `(T* y, const T* x, int n)` that changes `y`.
fn modifies<T: Element>(
    arguments: &Arguments,
    flops_each: usize,
    compute: fn(&mut [f32], &[f32]),
) -> Result<Prepared, u32> {
    let count = arguments.count(2)?;
    let (y, x) = (arguments.array::<T>(0, count)?, arguments.array::<T>(1, count)?);
    Ok(Box::new(move || {
        modify_with(y.get_mut(), x.get(), compute);
        time_ns(3 * count * size_of::<T>(), flops_each * count)
    }))
}

/// A kernel `(T* y, const U* x, int n)` that sets `y`.
fn writes<T: Element, U: Element>(
    arguments: &Arguments,
    flops_each: usize,
    compute: fn(&mut [f32], &[f32]),
) -> Result<Prepared, u32> {
    let count = arguments.count(2)?;
    let (y, x) = (arguments.array::<T>(0, count)?, arguments.array::<U>(1, count)?);
    Ok(Box::new(move || {
        write_from(y.get_mut(), x.get(), compute);
        time_ns(count * (size_of::<T>() + size_of::<U>()), flops_each * count)
    }))
}

/// `relu_backward(T* dx, const T* y, int n)`.
pub(super) fn relu_backward<T: Element>(arguments: &Arguments) -> Result<Prepared, u32> {
    modifies::<T>(arguments, 1, |dx, y| {
        for (dx, y) in dx.iter_mut().zip(y) {
            *dx = if *y <= 0.0 { 0.0 } else { *dx };
        }
    })
}

/// `add(T* y, const T* x, int n)`.
pub(super) fn add<T: Element>(arguments: &Arguments) -> Result<Prepared, u32> {
    modifies::<T>(arguments, 1, |y, x| {
        for (y, x) in y.iter_mut().zip(x) {
            *y += x;
        }
    })
}

/// sqrt(2 / pi), of GELU's tanh form.
const GELU_SCALE: f32 = 0.797_884_6;
const GELU_CUBE: f32 = 0.044_715;

/// `gelu(T* y, const T* x, int n)`.
pub(super) fn gelu<T: Element>(arguments: &Arguments) -> Result<Prepared, u32> {
    writes::<T, T>(arguments, 15, |y, x| {
        for (y, &x) in y.iter_mut().zip(x) {
            *y = 0.5 * x * (1.0 + tanh(GELU_SCALE * (x + GELU_CUBE * x * x * x)));
        }
    })
}

/// `gelu_backward(T* dx, const T* x, int n)`.
pub(super) fn gelu_backward<T: Element>(arguments: &Arguments) -> Result<Prepared, u32> {
    modifies::<T>(arguments, 25, |dx, x| {
        for (dx, &x) in dx.iter_mut().zip(x) {
            let t = tanh(GELU_SCALE * (x + GELU_CUBE * x * x * x));
            let inner_slope = GELU_SCALE * (1.0 + 3.0 * GELU_CUBE * x * x);
            *dx *= 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * inner_slope;
        }
    })
}

/// `scale_accumulate(float* accumulator, const T* gradient, float scale, int n, int* overflow)`.
pub(super) fn scale_accumulate<T: Element>(arguments: &Arguments) -> Result<Prepared, u32> {
    let (scale, count) = (arguments.float(2)?, arguments.count(3)?);
    let accumulator = arguments.array::<f32>(0, count)?;
    let gradient = arguments.array::<T>(1, count)?;
    let overflow = arguments.array::<i32>(4, 1)?;
    Ok(Box::new(move || {
        // The kernel adds by atomics, so that streams may add to one accumulator: here they take turns.
        static ADDING: Mutex<()> = Mutex::new(());
        let _adding = ADDING.lock().unwrap_or_else(PoisonError::into_inner);
        let mut overflowed = false;
        modify_with(accumulator.get_mut(), gradient.get(), |accumulator, gradient| {
            let mut all_finite = true;
            for (accumulator, gradient) in accumulator.iter_mut().zip(gradient) {
                let value = scale * gradient;
                all_finite &= value.is_finite();
                *accumulator += if value.is_finite() { value } else { 0.0 };
            }
            overflowed |= !all_finite;
        });
        if overflowed {
            overflow.get_mut()[0] = 1;
        }
        time_ns(count * (size_of::<T>() + 8), 2 * count)
    }))
}

/// `scale(float* x, float factor, int n)`.
pub(super) fn scale(arguments: &Arguments) -> Result<Prepared, u32> {
    let (factor, count) = (arguments.float(1)?, arguments.count(2)?);
    let x = arguments.array::<f32>(0, count)?;
    Ok(Box::new(move || {
        for x in x.get_mut() {
            *x *= factor;
        }
        time_ns(8 * count, count)
    }))
}

/// `axpy(float* y, const float* x, float a, int n)`.
pub(super) fn axpy(arguments: &Arguments) -> Result<Prepared, u32> {
    let (a, count) = (arguments.float(2)?, arguments.count(3)?);
    let (y, x) = (
        arguments.array::<f32>(0, count)?,
        arguments.array::<f32>(1, count)?,
    );
    Ok(Box::new(move || {
        for (y, x) in y.get_mut().iter_mut().zip(x.get()) {
            *y += a * x;
        }
        time_ns(12 * count, 2 * count)
    }))
}

/// `copy_f32(float* dst, const float* src, int n)`.
pub(super) fn copy_f32(arguments: &Arguments) -> Result<Prepared, u32> {
    writes::<f32, f32>(arguments, 0, <[f32]>::copy_from_slice)
}

/// `cast_f32_to_bf16(bf16* out, const float* in, int n)`.
pub(super) fn cast_f32_to_bf16(arguments: &Arguments) -> Result<Prepared, u32> {
    writes::<bf16, f32>(arguments, 0, <[f32]>::copy_from_slice)
}

/// `cast_bf16_to_f32(float* out, const bf16* in, int n)`.
pub(super) fn cast_bf16_to_f32(arguments: &Arguments) -> Result<Prepared, u32> {
    writes::<f32, bf16>(arguments, 0, <[f32]>::copy_from_slice)
}

/// `cast_f32_to_f16(f16* out, const float* in, int n)`.
pub(super) fn cast_f32_to_f16(arguments: &Arguments) -> Result<Prepared, u32> {
    writes::<f16, f32>(arguments, 0, <[f32]>::copy_from_slice)
}

/// `cast_f16_to_f32(float* out, const f16* in, int n)`.
pub(super) fn cast_f16_to_f32(arguments: &Arguments) -> Result<Prepared, u32> {
    writes::<f32, f16>(arguments, 0, <[f32]>::copy_from_slice)
}
