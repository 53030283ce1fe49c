//! The element types of arrays, and arithmetic on them in f32.
//!
//! Kernels compute on slices of f32: an array of f32 is one itself, and 16-bit elements are converted on the way in and
//! out, some thousand at a time, in loops that compilers turn into vector instructions.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

/// What may lie in device memory: every bit pattern is one.
pub(crate) trait Plain: Copy + Send + Sync + 'static {}

impl Plain for i32 {}
impl Plain for f32 {}
impl Plain for bf16 {}
impl Plain for f16 {}

/// A floating-point element.
pub(crate) trait Element: Plain {
    /// The values as f32; `scratch` holds them where they have to be converted.
    fn read<'a>(values: &'a [Self], scratch: &'a mut Vec<f32>) -> &'a [f32];

    /// Lets `compute` set all values; what it finds there is of no meaning.
    fn write(values: &mut [Self], scratch: &mut Vec<f32>, compute: impl FnOnce(&mut [f32]));

    /// Lets `compute` change the values.
    fn modify(values: &mut [Self], scratch: &mut Vec<f32>, compute: impl FnOnce(&mut [f32]));
}

impl Element for f32 {
    fn read<'a>(values: &'a [Self], _scratch: &'a mut Vec<f32>) -> &'a [f32] {
        values
    }

    fn write(values: &mut [Self], _scratch: &mut Vec<f32>, compute: impl FnOnce(&mut [f32])) {
        compute(values);
    }

    fn modify(values: &mut [Self], _scratch: &mut Vec<f32>, compute: impl FnOnce(&mut [f32])) {
        compute(values);
    }
}

/// What a 16-bit type has for conversions of slices of equal lengths.
trait Half: Plain {
    fn widen(values: &[Self], results: &mut [f32]);
    fn round(values: &[f32], results: &mut [Self]);
}

impl Half for bf16 {
    fn widen(values: &[Self], results: &mut [f32]) {
        for (result, value) in results.iter_mut().zip(values) {
            *result = f32::from_bits(u32::from(value.to_bits()) << 16);
        }
    }

    /// To the nearest, ties to even; NaN becomes the one that `cvt.rn.bf16.f32` makes. Without branches.
    fn round(values: &[f32], results: &mut [Self]) {
        for (result, value) in results.iter_mut().zip(values) {
            let bits = value.to_bits();
            let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16;
            let is_nan = (bits & 0x7fff_ffff) > 0x7f80_0000;
            *result = Self::from_bits(if is_nan { 0x7fff } else { rounded as u16 });
        }
    }
}

impl Half for f16 {
    fn widen(values: &[Self], results: &mut [f32]) {
        values.convert_to_f32_slice(results);
    }

    fn round(values: &[f32], results: &mut [Self]) {
        results.convert_from_f32_slice(values);
    }
}

impl<T: Half> Element for T {
    fn read<'a>(values: &'a [Self], scratch: &'a mut Vec<f32>) -> &'a [f32] {
        scratch.resize(values.len(), 0.0);
        T::widen(values, scratch);
        scratch
    }

    fn write(values: &mut [Self], scratch: &mut Vec<f32>, compute: impl FnOnce(&mut [f32])) {
        scratch.resize(values.len(), 0.0);
        compute(scratch);
        T::round(scratch, values);
    }

    fn modify(values: &mut [Self], scratch: &mut Vec<f32>, compute: impl FnOnce(&mut [f32])) {
        Self::read(values, scratch);
        compute(scratch);
        T::round(scratch, values);
    }
}

/// Elements that are converted at a time: their f32 stay in the innermost cache.
pub(super) const CHUNK: usize = 2048;

/// `compute(y, x)` on slices of both.
pub(super) fn modify_with<T: Element, U: Element>(
    y: &mut [T],
    x: &[U],
    mut compute: impl FnMut(&mut [f32], &[f32]),
) {
    let (mut of_y, mut of_x) = (Vec::new(), Vec::new());
    for (y, x) in y.chunks_mut(CHUNK).zip(x.chunks(CHUNK)) {
        let x = U::read(x, &mut of_x);
        T::modify(y, &mut of_y, |y| compute(y, x));
    }
}

/// `compute(y, x)`, which sets `y`, on slices of both.
pub(super) fn write_from<T: Element, U: Element>(
    y: &mut [T],
    x: &[U],
    mut compute: impl FnMut(&mut [f32], &[f32]),
) {
    let (mut of_y, mut of_x) = (Vec::new(), Vec::new());
    for (y, x) in y.chunks_mut(CHUNK).zip(x.chunks(CHUNK)) {
        let x = U::read(x, &mut of_x);
        T::write(y, &mut of_y, |y| compute(y, x));
    }
}

/// e^x within 2 units in the last place, without branches or calls, so that loops of it are vectorised. 0 below -87.3,
/// infinite above 88.7; NaN stays NaN.
#[inline(always)]
pub(super) fn exp(x: f32) -> f32 {
    // 2^n * e^r with n whole and |r| <= ln(2) / 2. Adding and taking away 1.5 * 2^23 rounds to whole numbers.
    const ROUND: f32 = 12_582_912.0;
    // ln(2) in two parts, the first with few bits, so that n times it is exact.
    const LN_2_HIGH: f32 = 0.693_359_4;
    const LN_2_LOW: f32 = -2.121_944_4e-4;
    let clamped = x.clamp(-88.0, 89.0);
    let n = (clamped * std::f32::consts::LOG2_E + ROUND) - ROUND;
    let r = clamped - n * LN_2_HIGH - n * LN_2_LOW;
    // Taylor's series: its seventh term is below half a unit in the last place here.
    let mut sum = 1.0 / 5040.0;
    for coefficient in [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0] {
        sum = sum * r + coefficient;
    }
    // 2^n in two factors, each a normal number.
    let half = (n * 0.5) as i32;
    let power = |exponent: i32| f32::from_bits(((exponent + 127) as u32) << 23);
    let result = sum * power(half) * power(n as i32 - half);
    if x < -87.3 { 0.0 } else { result }
}

/// The hyperbolic tangent within 2e-7, by [`exp`].
#[inline(always)]
pub(super) fn tanh(x: f32) -> f32 {
    1.0 - 2.0 / (exp(2.0 * x) + 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponentials_are_right() {
        for step in -900..900 {
            let x = step as f32 * 0.0973;
            let (ours, exact) = (f64::from(exp(x)), f64::from(x).exp());
            if exact > f64::from(f32::MAX) {
                assert_eq!(ours, f64::INFINITY, "{x}");
            } else if x > -87.0 {
                assert!((ours / exact - 1.0).abs() < 2.5e-7, "{x}: {ours} {exact}");
            } else {
                assert!(ours < 1e-37, "{x}: {ours}");
            }
            assert!((f64::from(tanh(x)) - f64::from(x).tanh()).abs() < 2.5e-7, "{x}");
        }
        assert_eq!(
            (exp(0.0), exp(f32::NEG_INFINITY), exp(f32::INFINITY)),
            (1.0, 0.0, f32::INFINITY)
        );
        assert!(exp(f32::NAN).is_nan());
    }

    #[test]
    fn bf16_is_rounded_to_the_nearest_and_ties_to_even() {
        let rounded = |value: f32| {
            let mut result = [bf16::ZERO];
            <bf16 as Half>::round(&[value], &mut result);
            result[0].to_bits()
        };
        for bits in (0..u32::MAX).step_by(9_973) {
            let value = f32::from_bits(bits);
            if value.is_nan() {
                assert_eq!(rounded(value), 0x7fff);
            } else {
                assert_eq!(rounded(value), bf16::from_f32(value).to_bits(), "{bits:08x}");
            }
        }
        // Halfway between two neighbours: the even one.
        assert_eq!(rounded(f32::from_bits(0x3f80_8000)), 0x3f80);
        assert_eq!(rounded(f32::from_bits(0x3f81_8000)), 0x3f82);
    }
}
