//! What ranks send when collectives are checked, and what they should get: whole numbers that every type has exactly.

use super::numbers::{from_bytes, rounding_error, to_bytes};
use crate::comm::{Element, Reduction};
use crate::gpu::DataType;

/// All element types of NCCL that the workloads know.
pub(super) const ELEMENTS: [Element; 10] = [
    Element::I8,
    Element::U8,
    Element::I32,
    Element::U32,
    Element::I64,
    Element::U64,
    Element::F16,
    Element::F32,
    Element::F64,
    Element::Bf16,
];
/// All reductions.
pub(super) const REDUCTIONS: [Reduction; 5] = [
    Reduction::Sum,
    Reduction::Product,
    Reduction::Max,
    Reduction::Min,
    Reduction::Average,
];

/// What rank `rank` sends at `index`: small whole numbers, so that all types have them and their sums exactly.
pub(super) fn sent(element: Element, rank: usize, ranks: usize, index: usize) -> f64 {
    let choices = (100 / ranks + 1).clamp(2, 11);
    let value = (index * 7 + rank * 3 + index / 5) % choices;
    match element {
        Element::U8 | Element::U32 | Element::U64 => value as f64,
        _ => value as f64 - (choices / 2) as f64,
    }
}

/// What it sends for a product: two ranks' numbers are above 1.
pub(super) fn factor(rank: usize, ranks: usize, index: usize) -> f64 {
    match (index + rank) % ranks {
        0 => 3.0,
        1 => 2.0,
        _ => 1.0,
    }
}

/// Whole numbers are divided as C does.
pub(super) fn is_whole(element: Element) -> bool {
    !matches!(
        element,
        Element::F16 | Element::Bf16 | Element::F32 | Element::F64
    )
}

/// What a reduction sends and should give.
pub(super) struct Reduced {
    pub(super) ranks: usize,
    pub(super) element: Element,
    pub(super) reduction: Reduction,
}

impl Reduced {
    pub(super) fn sent(&self, rank: usize, index: usize) -> f64 {
        if self.reduction == Reduction::Product {
            factor(rank, self.ranks, index)
        } else {
            sent(self.element, rank, self.ranks, index)
        }
    }

    pub(super) fn result(&self, index: usize) -> f64 {
        let values = (0..self.ranks).map(|rank| self.sent(rank, index));
        match self.reduction {
            Reduction::Sum => values.sum(),
            Reduction::Product => values.product(),
            Reduction::Max => values.fold(f64::NEG_INFINITY, f64::max),
            Reduction::Min => values.fold(f64::INFINITY, f64::min),
            Reduction::Average => {
                let mean = values.sum::<f64>() / self.ranks as f64;
                if is_whole(self.element) {
                    mean.trunc()
                } else {
                    mean
                }
            }
        }
    }

    /// Averages of floats are sums of numbers that were divided and rounded before; all else is exact.
    pub(super) fn limit(&self) -> f64 {
        let rounding = match self.element {
            Element::F16 => rounding_error(DataType::F16),
            Element::Bf16 => rounding_error(DataType::Bf16),
            Element::F32 => rounding_error(DataType::F32),
            Element::F64 => f64::EPSILON,
            _ => 0.0,
        };
        if self.reduction == Reduction::Average {
            2.0 * rounding * self.ranks as f64
        } else {
            0.0
        }
    }
}

/// Values as the bytes of an element type.
pub(super) fn encode(element: Element, values: &[f64]) -> Vec<u8> {
    let floats = |ty| {
        let values: Vec<f32> = values.iter().map(|&value| value as f32).collect();
        to_bytes(ty, &values)
    };
    let whole = |bytes: usize| {
        values
            .iter()
            .flat_map(|&value| (value as i64).to_le_bytes().into_iter().take(bytes))
            .collect()
    };
    match element {
        Element::F16 => floats(DataType::F16),
        Element::Bf16 => floats(DataType::Bf16),
        Element::F32 => floats(DataType::F32),
        Element::F64 => values.iter().flat_map(|value| value.to_le_bytes()).collect(),
        whole_type => whole(whole_type.bytes()),
    }
}

/// The values of the bytes of an element type.
pub(super) fn decode(element: Element, bytes: &[u8]) -> Vec<f64> {
    let floats = |ty| from_bytes(ty, bytes).into_iter().map(f64::from).collect();
    // Sign and all other bits beyond the type's are those that C would give a 64-bit integer.
    let whole = |signed: bool| {
        bytes
            .chunks_exact(element.bytes())
            .map(|bytes| {
                let is_negative = signed && bytes.last().is_some_and(|byte| byte >> 7 == 1);
                let mut wide = [if is_negative { 0xff } else { 0 }; 8];
                wide[..bytes.len()].copy_from_slice(bytes);
                if signed {
                    i64::from_le_bytes(wide) as f64
                } else {
                    u64::from_le_bytes(wide) as f64
                }
            })
            .collect()
    };
    match element {
        Element::F16 => floats(DataType::F16),
        Element::Bf16 => floats(DataType::Bf16),
        Element::F32 => floats(DataType::F32),
        Element::F64 => bytes
            .as_chunks()
            .0
            .iter()
            .map(|&bytes| f64::from_le_bytes(bytes))
            .collect(),
        Element::I8 | Element::I32 | Element::I64 => whole(true),
        Element::U8 | Element::U32 | Element::U64 => whole(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_keeps_what_is_sent_and_summed() {
        for element in ELEMENTS {
            for ranks in [1usize, 2, 3, 8, 64] {
                let reduced = |reduction| Reduced {
                    ranks,
                    element,
                    reduction,
                };
                for index in 0..200 {
                    let mut values: Vec<f64> =
                        (0..ranks).map(|rank| sent(element, rank, ranks, index)).collect();
                    for reduction in REDUCTIONS {
                        let result = reduced(reduction).result(index);
                        if reduction != Reduction::Average || is_whole(element) {
                            values.push(result);
                        }
                    }
                    assert_eq!(
                        decode(element, &encode(element, &values)),
                        values,
                        "{element:?} {ranks}"
                    );
                }
            }
        }
    }

    #[test]
    fn reductions_tell_ranks_and_each_other_apart() {
        let of = |reduction| {
            let reduced = Reduced {
                ranks: 3,
                element: Element::I32,
                reduction,
            };
            (0..50).map(|index| reduced.result(index)).collect::<Vec<_>>()
        };
        let results = REDUCTIONS.map(of);
        for (index, result) in results.iter().enumerate() {
            for other in &results[index + 1..] {
                assert_ne!(result, other);
            }
        }
        for rank in 1..3 {
            assert!(
                (0..50).any(|index| sent(Element::I32, rank, 3, index) != sent(Element::I32, 0, 3, index))
            );
        }
    }

    #[test]
    fn averages_of_whole_numbers_are_cut_towards_zero() {
        let reduced = Reduced {
            ranks: 2,
            element: Element::I32,
            reduction: Reduction::Average,
        };
        let results: Vec<f64> = (0..50).map(|index| reduced.result(index)).collect();
        assert!(results.iter().all(|result| result.fract() == 0.0));
        let sums = (0..50).map(|index| reduced.sent(0, index) + reduced.sent(1, index));
        assert!(
            sums.zip(&results)
                .any(|(sum, result)| sum < 0.0 && sum != 2.0 * result)
        );
    }
}
