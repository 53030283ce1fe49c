//! Kernels on whole numbers.

use super::{Arguments, Prepared, time_ns};

/// `add_i32(unsigned* y, const unsigned* x, int n)`, modulo 2^32.
pub(super) fn add_i32(arguments: &Arguments) -> Result<Prepared, u32> {
    let count = arguments.count(2)?;
    let (y, x) = (
        arguments.array::<i32>(0, count)?,
        arguments.array::<i32>(1, count)?,
    );
    Ok(Box::new(move || {
        for (y, x) in y.get_mut().iter_mut().zip(x.get()) {
            *y = y.wrapping_add(*x);
        }
        time_ns(3 * count * size_of::<i32>(), count)
    }))
}
