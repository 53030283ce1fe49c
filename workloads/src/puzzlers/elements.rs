//! Data whose every collective's result is known beforehand, for each element type.
//!
//! Values are small whole numbers, so that they and their sums are exact in every type for as many ranks as possible,
//! and in whichever order they are added. They repeat after a prime number of elements: parts that arrive in the wrong
//! place are found, whatever their size, and tables are small.

use clap::ValueEnum;

use crate::comm::{Element, Reduction};

/// After how many elements the values repeat.
const PERIOD: usize = 4093;

/// Element types, by their names in nccl-tests.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ElementName {
    #[value(alias = "i8")]
    Int8,
    #[value(alias = "u8")]
    Uint8,
    #[value(alias = "i32")]
    Int32,
    #[value(alias = "u32")]
    Uint32,
    #[value(alias = "i64")]
    Int64,
    #[value(alias = "u64")]
    Uint64,
    #[value(alias = "f16")]
    Half,
    #[value(alias = "f32")]
    Float,
    #[value(alias = "f64")]
    Double,
    #[value(alias = "bf16")]
    Bfloat16,
}

impl ElementName {
    /// NCCL's type.
    pub(super) fn element(self) -> Element {
        match self {
            Self::Int8 => Element::I8,
            Self::Uint8 => Element::U8,
            Self::Int32 => Element::I32,
            Self::Uint32 => Element::U32,
            Self::Int64 => Element::I64,
            Self::Uint64 => Element::U64,
            Self::Half => Element::F16,
            Self::Float => Element::F32,
            Self::Double => Element::F64,
            Self::Bfloat16 => Element::Bf16,
        }
    }

    /// As nccl-tests prints it.
    pub(super) fn name(self) -> String {
        self.to_possible_value()
            .map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// Reductions, by their names in nccl-tests.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReductionName {
    Sum,
    Prod,
    Min,
    Max,
    Avg,
}

impl ReductionName {
    /// NCCL's reduction.
    pub(super) fn reduction(self) -> Reduction {
        match self {
            Self::Sum => Reduction::Sum,
            Self::Prod => Reduction::Product,
            Self::Min => Reduction::Min,
            Self::Max => Reduction::Max,
            Self::Avg => Reduction::Average,
        }
    }

    /// As nccl-tests prints it.
    pub(super) fn name(self) -> String {
        self.to_possible_value()
            .map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// The largest n for which all whole numbers up to n are exact, as far as values need.
fn exact_limit(element: Element) -> u64 {
    match element {
        Element::I8 => 127,
        Element::U8 => 255,
        Element::Bf16 => 256,
        Element::F16 => 2048,
        _ => 1 << 24,
    }
}

/// The distance from 1 to the next number; 0 for whole numbers.
fn epsilon(element: Element) -> f64 {
    match element {
        Element::Bf16 => 1.0 / 128.0,
        Element::F16 => 1.0 / 1024.0,
        Element::F32 => f64::from(f32::EPSILON),
        Element::F64 => f64::EPSILON,
        _ => 0.0,
    }
}

/// A whole number in the element's type; its bytes.
fn encode(element: Element, value: u64) -> Vec<u8> {
    match element {
        Element::I8 | Element::U8 => vec![value as u8],
        Element::I32 | Element::U32 => (value as u32).to_le_bytes().to_vec(),
        Element::I64 | Element::U64 => value.to_le_bytes().to_vec(),
        Element::F32 => (value as f32).to_le_bytes().to_vec(),
        Element::F64 => (value as f64).to_le_bytes().to_vec(),
        Element::Bf16 => ((value as f32).to_bits() >> 16).to_le_bytes()[..2].to_vec(),
        Element::F16 => f16_bits(value).to_le_bytes().to_vec(),
    }
}

/// A whole number, exact up to 2048, as IEEE half precision.
fn f16_bits(value: u64) -> u16 {
    if value == 0 {
        return 0;
    }
    let exponent = value.ilog2().min(15);
    let fraction = ((value << 10) >> exponent) & 0x3ff;
    ((exponent as u16 + 15) << 10) | fraction as u16
}

/// The number that an element's bytes stand for.
pub(super) fn decode(element: Element, bytes: &[u8]) -> f64 {
    let mut wide = [0u8; 8];
    wide[..bytes.len()].copy_from_slice(bytes);
    let bits = u64::from_le_bytes(wide);
    match element {
        Element::I8 => f64::from(bits as i8),
        Element::I32 => f64::from(bits as i32),
        Element::I64 => bits.cast_signed() as f64,
        Element::U8 | Element::U32 | Element::U64 => bits as f64,
        Element::F32 => f64::from(f32::from_bits(bits as u32)),
        Element::F64 => f64::from_bits(bits),
        Element::Bf16 => f64::from(f32::from_bits((bits as u32) << 16)),
        Element::F16 => {
            let (exponent, fraction) = ((bits >> 10 & 0x1f) as i32, (bits & 0x3ff) as f64);
            let magnitude = match exponent {
                0 => fraction * 2f64.powi(-24),
                31 if fraction == 0.0 => f64::INFINITY,
                31 => f64::NAN,
                _ => (1.0 + fraction / 1024.0) * 2f64.powi(exponent - 15),
            };
            if bits & 0x8000 == 0 { magnitude } else { -magnitude }
        }
    }
}

/// What an element of a result must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    /// A rank's element.
    Copied { rank: usize, index: usize },
    /// The reduction of all ranks' elements.
    Reduced { index: usize },
}

/// All ranks' values and their reduction, as tables of one period.
pub(super) struct Values {
    element: Element,
    of_rank: Vec<Vec<u8>>,
    reduced: Vec<u8>,
    /// What a reduced element may be off by, relative to it.
    tolerance: f64,
}

/// A rank's value of an element.
fn value(element: Element, reduction: ReductionName, ranks: usize, rank: usize, index: usize) -> u64 {
    let index = index % PERIOD;
    if reduction == ReductionName::Prod {
        // Up to six ranks have a 2: products are powers of two that every type holds.
        return if (rank + index) % ranks < index % 7 { 2 } else { 1 };
    }
    let limit = match reduction {
        ReductionName::Sum | ReductionName::Avg => (exact_limit(element) / ranks as u64).clamp(1, 120),
        _ => 120,
    };
    // A mixer whose neighbours differ (splitmix64's).
    let mut bits = ((rank as u64) << 32 | index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (bits ^ (bits >> 31)) % (limit + 1)
}

impl Values {
    /// Values for so many ranks.
    pub(super) fn new(name: ElementName, reduction: ReductionName, ranks: usize) -> Self {
        let element = name.element();
        let of = |rank: usize, index: usize| value(element, reduction, ranks, rank, index);
        let of_rank = (0..ranks)
            .map(|rank| {
                (0..PERIOD)
                    .flat_map(|index| encode(element, of(rank, index)))
                    .collect()
            })
            .collect();
        let whole = epsilon(element) == 0.0;
        let reduced = (0..PERIOD)
            .flat_map(|index| {
                let all = (0..ranks).map(|rank| of(rank, index));
                let sum: u64 = all.clone().sum();
                match reduction {
                    ReductionName::Sum => encode(element, sum),
                    ReductionName::Prod => encode(element, all.product()),
                    ReductionName::Min => encode(element, all.min().unwrap_or(0)),
                    ReductionName::Max => encode(element, all.max().unwrap_or(0)),
                    ReductionName::Avg if whole => encode(element, sum / ranks as u64),
                    ReductionName::Avg => encode_fraction(element, sum as f64 / ranks as f64),
                }
            })
            .collect();
        // Averages are rounded, at each rank's addition at worst; sums only where they leave the exact numbers.
        let exact = match reduction {
            ReductionName::Avg => whole,
            ReductionName::Sum => ranks as u64 <= exact_limit(element),
            _ => true,
        };
        let tolerance = if exact {
            0.0
        } else {
            (ranks + 1) as f64 * epsilon(element)
        };
        Self {
            element,
            of_rank,
            reduced,
            tolerance,
        }
    }

    /// A rank's first `count` elements from `index` on, as bytes.
    pub(super) fn bytes_of(&self, rank: usize, index: usize, count: usize) -> Vec<u8> {
        let size = self.element.bytes();
        let begin = index % PERIOD * size;
        self.of_rank[rank]
            .iter()
            .cycle()
            .skip(begin)
            .take(count * size)
            .copied()
            .collect()
    }

    /// How many elements of a result are not what `wanted` says of their index.
    pub(super) fn count_wrong(&self, result: &[u8], wanted: impl Fn(usize) -> Wanted) -> usize {
        let size = self.element.bytes();
        result
            .chunks_exact(size)
            .enumerate()
            .filter(|(position, got)| {
                let (table, index, tolerance) = match wanted(*position) {
                    Wanted::Copied { rank, index } => (&self.of_rank[rank], index, 0.0),
                    Wanted::Reduced { index } => (&self.reduced, index, self.tolerance),
                };
                let begin = index % PERIOD * size;
                let right = &table[begin..begin + size];
                *got != right && !self.is_near(got, right, tolerance)
            })
            .count()
    }

    fn is_near(&self, got: &[u8], right: &[u8], tolerance: f64) -> bool {
        let (got, right) = (decode(self.element, got), decode(self.element, right));
        // Not a number is near nothing.
        tolerance > 0.0 && (got - right).abs() <= tolerance * right.abs()
    }
}

/// A fraction in one of the floating types, rounded to near: comparing allows more than this rounding.
fn encode_fraction(element: Element, value: f64) -> Vec<u8> {
    match element {
        Element::F64 => value.to_le_bytes().to_vec(),
        Element::Bf16 => (((value as f32).to_bits() + 0x8000) >> 16).to_le_bytes()[..2].to_vec(),
        Element::F16 => {
            // Scaled so that a whole number of 11 bits stands for it, and the exponent put right.
            let exponent = if value > 0.0 {
                10 - value.log2().floor() as i32
            } else {
                0
            };
            let bits = f16_bits((value * 2f64.powi(exponent)).round() as u64);
            let shifted = i32::from(bits) - (exponent << 10);
            (if bits == 0 { 0 } else { shifted as u16 })
                .to_le_bytes()
                .to_vec()
        }
        _ => (value as f32).to_le_bytes().to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_survive_their_encoding() {
        for name in ElementName::value_variants() {
            let element = name.element();
            for value in [0u64, 1, 2, 3, 64, 100, 127] {
                let bytes = encode(element, value);
                assert_eq!(bytes.len(), element.bytes());
                assert_eq!(decode(element, &bytes), value as f64, "{element:?} {value}");
            }
        }
        // 1.0, 2.0, 3.0 and 2048.0 as IEEE 754 has them.
        assert_eq!([1, 2, 3, 2048].map(f16_bits), [0x3c00, 0x4000, 0x4200, 0x6800]);
    }

    #[test]
    fn fractions_are_rounded_to_near() {
        for element in [Element::F16, Element::Bf16, Element::F32, Element::F64] {
            for value in [0.0, 1.0 / 3.0, 17.0 / 3.0, 0.75, 40.2] {
                let near = decode(element, &encode_fraction(element, value));
                assert!(
                    (near - value).abs() <= epsilon(element) * value,
                    "{element:?} {value} {near}"
                );
            }
        }
    }

    #[test]
    fn a_right_result_has_nothing_wrong_and_one_bit_is_found() {
        for name in ElementName::value_variants() {
            for reduction in ReductionName::value_variants() {
                for ranks in [1, 2, 3, 8] {
                    let values = Values::new(*name, *reduction, ranks);
                    let element = name.element();
                    let count = 2 * PERIOD + 5;
                    let wanted = |position| Wanted::Reduced { index: position + 3 };
                    let size = element.bytes();
                    let mut result: Vec<u8> = values
                        .reduced
                        .iter()
                        .cycle()
                        .skip(3 * size)
                        .take(count * size)
                        .copied()
                        .collect();
                    assert_eq!(values.count_wrong(&result, wanted), 0);
                    // The top byte, away from the sign: no tolerance reaches that far.
                    result[7 * size + size - 1] ^= 0x20;
                    assert_eq!(
                        values.count_wrong(&result, wanted),
                        1,
                        "{name:?} {reduction:?} {ranks}"
                    );
                }
            }
        }
    }

    #[test]
    fn sums_are_those_of_the_ranks() {
        let values = Values::new(ElementName::Int32, ReductionName::Sum, 3);
        for index in [0, 1, PERIOD - 1] {
            let sum: f64 = (0..3)
                .map(|rank| decode(Element::I32, &values.bytes_of(rank, index, 1)))
                .sum();
            assert_eq!(
                decode(Element::I32, &values.reduced[index * 4..index * 4 + 4]),
                sum
            );
        }
    }

    #[test]
    fn neighbours_differ_and_so_do_ranks() {
        let values = Values::new(ElementName::Float, ReductionName::Sum, 4);
        assert_ne!(values.bytes_of(0, 0, 8), values.bytes_of(1, 0, 8));
        assert_ne!(values.bytes_of(0, 0, 8), values.bytes_of(0, 1, 8));
        assert_eq!(
            values.bytes_of(0, PERIOD - 1, 2)[4..],
            values.bytes_of(0, 0, 1)[..]
        );
    }
}
