//! Values whose sums are known, and how two results compare.

use clap::ValueEnum;

use crate::comm::Element;

/// What `ring` can add.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Type {
    #[value(alias = "i32")]
    Int32,
    #[value(alias = "f32")]
    Float,
}

impl Type {
    /// NCCL's type.
    pub(super) fn element(self) -> Element {
        match self {
            Self::Int32 => Element::I32,
            Self::Float => Element::F32,
        }
    }

    /// As nccl-tests prints it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Int32 => "int32",
            Self::Float => "float",
        }
    }
}

/// Bytes of an element of either type.
pub(super) const ELEMENT_BYTES: usize = 4;

/// A rank's value of an element, as its bits: any whole number, or a float from 1/2 to 3/2.
pub(super) fn value(ty: Type, seed: u64, rank: usize, index: usize) -> u32 {
    let mut bits = seed
        .wrapping_mul(0xd134_2543_de82_ef95)
        .wrapping_add((rank as u64) << 40)
        .wrapping_add(index as u64)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    let bits = (bits >> 32) as u32;
    match ty {
        Type::Int32 => bits,
        Type::Float => (0.5 + (bits >> 8) as f32 / (1u32 << 24) as f32).to_bits(),
    }
}

/// How two results compare.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Difference {
    /// Elements whose bits differ.
    pub(super) elements: usize,
    /// The largest difference relative to the second's element.
    pub(super) relative: f64,
}

/// Holds a result against another.
pub(super) fn compare(ty: Type, one: &[u8], other: &[u8]) -> Difference {
    let mut difference = Difference {
        elements: 0,
        relative: 0.0,
    };
    for (one, other) in one.as_chunks::<4>().0.iter().zip(other.as_chunks::<4>().0) {
        if one == other {
            continue;
        }
        difference.elements += 1;
        let number = |bytes: [u8; 4]| match ty {
            Type::Int32 => f64::from(i32::from_le_bytes(bytes)),
            Type::Float => f64::from(f32::from_le_bytes(bytes)),
        };
        let (one, other) = (number(*one), number(*other));
        let relative = (one - other).abs() / other.abs().max(f64::from(f32::MIN_POSITIVE));
        // Not a number is as far off as can be.
        difference.relative = difference.relative.max(if relative.is_nan() {
            f64::INFINITY
        } else {
            relative
        });
    }
    difference
}

/// What a difference may be, relative: nothing on whole numbers, and on two ranks, where there is only one order.
pub(super) fn limit(ty: Type, ranks: usize) -> f64 {
    if ty == Type::Int32 || ranks <= 2 {
        0.0
    } else {
        1e-6
    }
}

/// The sum by its definition, in f64 or modulo 2^32.
pub(super) fn by_definition(ty: Type, seed: u64, ranks: usize, count: usize) -> Vec<u8> {
    let of = |rank, index| value(ty, seed, rank, index);
    (0..count)
        .flat_map(|index| match ty {
            Type::Int32 => (0..ranks)
                .fold(0u32, |sum, rank| sum.wrapping_add(of(rank, index)))
                .to_le_bytes(),
            Type::Float => {
                let sum: f64 = (0..ranks)
                    .map(|rank| f64::from(f32::from_bits(of(rank, index))))
                    .sum();
                (sum as f32).to_le_bytes()
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_wrong_bit_is_a_difference() {
        let right = by_definition(Type::Int32, 1, 3, 10);
        let mut wrong = right.clone();
        assert_eq!(compare(Type::Int32, &wrong, &right).elements, 0);
        wrong[17] ^= 1;
        assert_eq!(compare(Type::Int32, &wrong, &right).elements, 1);
        let nan: Vec<u8> = f32::NAN.to_le_bytes().to_vec();
        let one: Vec<u8> = 1f32.to_le_bytes().to_vec();
        assert!(compare(Type::Float, &nan, &one).relative > 1.0);
        assert!((compare(Type::Float, &1.5f32.to_le_bytes(), &one).relative - 0.5).abs() < 1e-12);
    }

    #[test]
    fn only_rounding_is_allowed_and_only_where_the_order_differs() {
        assert_eq!([limit(Type::Int32, 8), limit(Type::Float, 2)], [0.0, 0.0]);
        assert!((limit(Type::Float, 3) - 1e-6).abs() < f64::EPSILON);
    }
}
