//! The 16-bit types by their definitions, and numbers to compute with.

use crate::data::Random;
use crate::gpu::DataType;

/// Significant bits and least normal exponent of a 16-bit type (IEEE 754's half, and the upper half of a single).
struct Format {
    fraction_bits: u32,
    exponent_bits: u32,
}

const BF16: Format = Format {
    fraction_bits: 7,
    exponent_bits: 8,
};
const F16: Format = Format {
    fraction_bits: 10,
    exponent_bits: 5,
};

impl Format {
    fn bias(&self) -> i32 {
        (1 << (self.exponent_bits - 1)) - 1
    }

    /// The bits of the nearest value, ties to even.
    fn encode(&self, value: f32) -> u16 {
        let sign = u16::from(value.is_sign_negative()) << 15;
        let infinity = ((1u16 << self.exponent_bits) - 1) << self.fraction_bits;
        if value.is_nan() {
            return sign | infinity | 1;
        }
        let magnitude = f64::from(value.abs());
        // The exponent of the value's leading bit, that of subnormals being the least normal one's.
        let exponent = magnitude.log2().floor().max(f64::from(1 - self.bias())) as i32;
        // In units of the last place; exact in f64, since powers of two are.
        let units = magnitude * 2f64.powi(self.fraction_bits as i32 - exponent);
        if !units.is_finite() {
            return sign | infinity;
        }
        let whole = units.round_ties_even() as u64;
        // A carry out of the fraction goes into the exponent, up to infinity.
        let one = 1u64 << self.fraction_bits;
        let bits = if whole < one {
            whole
        } else {
            (((exponent + self.bias()) as u64) << self.fraction_bits) + (whole - one)
        };
        sign | bits.min(u64::from(infinity)) as u16
    }

    fn decode(&self, bits: u16) -> f32 {
        let sign = if bits >> 15 == 0 { 1.0 } else { -1.0 };
        let fraction = f64::from(bits & ((1 << self.fraction_bits) - 1));
        let exponent = i32::from((bits & 0x7fff) >> self.fraction_bits);
        let last = (1 << self.exponent_bits) - 1;
        let unit = 2f64.powi(-(self.fraction_bits as i32));
        let magnitude = if exponent == last {
            if fraction == 0.0 { f64::INFINITY } else { f64::NAN }
        } else if exponent == 0 {
            fraction * unit * 2f64.powi(1 - self.bias())
        } else {
            (1.0 + fraction * unit) * 2f64.powi(exponent - self.bias())
        };
        (sign * magnitude) as f32
    }
}

fn format(ty: DataType) -> Option<&'static Format> {
    match ty {
        DataType::F32 => None,
        DataType::Bf16 => Some(&BF16),
        DataType::F16 => Some(&F16),
    }
}

/// The bytes of values as elements of a type.
pub(super) fn to_bytes(ty: DataType, values: &[f32]) -> Vec<u8> {
    match format(ty) {
        None => values.iter().flat_map(|value| value.to_le_bytes()).collect(),
        Some(format) => values
            .iter()
            .flat_map(|&value| format.encode(value).to_le_bytes())
            .collect(),
    }
}

/// Values from the bytes of elements of a type.
pub(super) fn from_bytes(ty: DataType, bytes: &[u8]) -> Vec<f32> {
    match format(ty) {
        None => bytes
            .as_chunks()
            .0
            .iter()
            .map(|&bytes| f32::from_le_bytes(bytes))
            .collect(),
        Some(format) => bytes
            .as_chunks()
            .0
            .iter()
            .map(|&bytes| format.decode(u16::from_le_bytes(bytes)))
            .collect(),
    }
}

/// Values as a type has them.
pub(super) fn rounded(ty: DataType, values: &[f32]) -> Vec<f32> {
    from_bytes(ty, &to_bytes(ty, values))
}

/// The largest relative error of rounding to a type: half a unit of the last of its significant bits.
pub(super) fn rounding_error(ty: DataType) -> f64 {
    let fraction_bits = format(ty).map_or(23, |format| format.fraction_bits as i32);
    2f64.powi(-fraction_bits - 1)
}

/// So many numbers between -limit and limit.
pub(super) fn numbers(random: &mut Random, count: usize, limit: f32) -> Vec<f32> {
    (0..count).map(|_| random.symmetric(limit)).collect()
}

/// So many whole numbers from 0 to below a bound.
pub(super) fn whole_numbers(random: &mut Random, count: usize, below: usize) -> Vec<f32> {
    (0..count)
        .map(|_| {
            let share = (random.symmetric(0.5) + 0.5) * below as f32;
            share.floor().clamp(0.0, below.saturating_sub(1) as f32)
        })
        .collect()
}

/// Values in f64, for definitions.
pub(super) fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().map(|&value| f64::from(value)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values_are_right() {
        for (value, bf16, f16) in [
            (0.0, 0, 0),
            (-0.0, 0x8000, 0x8000),
            (1.0, 0x3f80, 0x3c00),
            (-2.0, 0xc000, 0xc000),
            // Halfway between two neighbours: the even one.
            (1.0 + 0.003_906_25, 0x3f80, 0x3c04),
            (1.0 + 0.011_718_75, 0x3f82, 0x3c0c),
            (65504.0, 0x4780, 0x7bff),
            (65520.0, 0x4780, 0x7c00),
            (f32::INFINITY, 0x7f80, 0x7c00),
            (f32::MAX, 0x7f80, 0x7c00),
            // The least subnormal of f16, and half of it, which is a tie with zero.
            (5.960_464_5e-8, 0x3380, 1),
            (2.980_232_2e-8, 0x3300, 0),
            // The least subnormal f32.
            (1e-45, 0, 0),
        ] {
            let bits = |ty| {
                let bytes = to_bytes(ty, &[value]);
                u16::from_le_bytes([bytes[0], bytes[1]])
            };
            assert_eq!(bits(DataType::Bf16), bf16, "{value} in bf16");
            assert_eq!(bits(DataType::F16), f16, "{value} in f16");
        }
    }

    #[test]
    fn every_16_bit_value_survives_a_round_trip() {
        for ty in [DataType::Bf16, DataType::F16] {
            for bits in 0..=u16::MAX {
                let value = from_bytes(ty, &bits.to_le_bytes())[0];
                if !value.is_nan() {
                    assert_eq!(to_bytes(ty, &[value]), bits.to_le_bytes(), "{bits:04x} in {ty:?}");
                }
            }
        }
    }
}
