//! NCCL's data types and reductions.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

use super::operation::SCALED_SUM;

/// A data type by its number in ncclDataType_t (nccl.h): size in bytes, NCCL's name, the name in kernels.
pub(super) fn datatype(number: i32) -> Option<(usize, &'static std::ffi::CStr, &'static str)> {
    Some(match number {
        0 => (1, c"ncclInt8", "i8"),
        1 => (1, c"ncclUint8", "u8"),
        2 => (4, c"ncclInt32", "i32"),
        3 => (4, c"ncclUint32", "u32"),
        4 => (8, c"ncclInt64", "i64"),
        5 => (8, c"ncclUint64", "u64"),
        6 => (2, c"ncclFloat16", "f16"),
        7 => (4, c"ncclFloat32", "f32"),
        8 => (8, c"ncclFloat64", "f64"),
        9 => (2, c"ncclBfloat16", "bf16"),
        10 => (1, c"ncclFloat8e4m3", "f8e4m3"),
        11 => (1, c"ncclFloat8e5m2", "f8e5m2"),
        _ => return None,
    })
}

/// Whether a data type can be reduced: all but 8-bit floats, which are only moved here.
pub(super) fn can_reduce(datatype: i32) -> bool {
    (0..=9).contains(&datatype)
}

/// The name of a reduction (ncclRedOp_t) in kernels.
pub(super) fn operation_name(operation: i32) -> Option<&'static str> {
    ["Sum", "Prod", "MinMax", "MinMax", "Avg", "PreMulSum"]
        .get(usize::try_from(operation).ok()?)
        .copied()
}

/// ncclProd, ncclMax, ncclMin, ncclAvg.
const PRODUCT: i32 = 1;
const MAXIMUM: i32 = 2;
const MINIMUM: i32 = 3;
const AVERAGE: i32 = 4;

/// An element type, computed in a type that is as wide or wider: 16-bit floats are rounded once, at the end.
trait Element: Copy {
    type Wide: Copy + PartialOrd + Default + Send;
    const BYTES: usize;
    fn load(bytes: &[u8], into: &mut [Self::Wide]);
    fn store(values: &[Self::Wide], into: &mut [u8]);
    fn add(a: Self::Wide, b: Self::Wide) -> Self::Wide;
    fn multiply(a: Self::Wide, b: Self::Wide) -> Self::Wide;
    fn divide(value: Self::Wide, by: u32) -> Self::Wide;
}

macro_rules! plain_elements {
    ($($type:ident: $add:expr, $multiply:expr, $divide:expr;)*) => {$(
        impl Element for $type {
            type Wide = $type;
            const BYTES: usize = size_of::<$type>();
            fn load(bytes: &[u8], into: &mut [$type]) {
                for (value, bytes) in into.iter_mut().zip(bytes.as_chunks().0) {
                    *value = $type::from_le_bytes(*bytes);
                }
            }
            fn store(values: &[$type], into: &mut [u8]) {
                for (value, place) in values.iter().zip(into.as_chunks_mut().0) {
                    *place = value.to_le_bytes();
                }
            }
            fn add(a: $type, b: $type) -> $type {
                $add(a, b)
            }
            fn multiply(a: $type, b: $type) -> $type {
                $multiply(a, b)
            }
            fn divide(value: $type, by: u32) -> $type {
                $divide(value, by)
            }
        }
    )*};
}

// Integers are divided in 64 bits: NCCL's average truncates.
plain_elements! {
    i8: i8::wrapping_add, i8::wrapping_mul, |value: i8, by: u32| (i64::from(value) / i64::from(by)) as i8;
    u8: u8::wrapping_add, u8::wrapping_mul, |value: u8, by: u32| (u32::from(value) / by) as u8;
    i32: i32::wrapping_add, i32::wrapping_mul, |value: i32, by: u32| (i64::from(value) / i64::from(by)) as i32;
    u32: u32::wrapping_add, u32::wrapping_mul, |value: u32, by: u32| value / by;
    i64: i64::wrapping_add, i64::wrapping_mul, |value: i64, by: u32| value / i64::from(by);
    u64: u64::wrapping_add, u64::wrapping_mul, |value: u64, by: u32| value / u64::from(by);
    f32: |a: f32, b: f32| a + b, |a: f32, b: f32| a * b, |value: f32, by: u32| value / by as f32;
    f64: |a: f64, b: f64| a + b, |a: f64, b: f64| a * b, |value: f64, by: u32| value / f64::from(by);
}

macro_rules! half_elements {
    ($($type:ident),*) => {$(
        impl Element for $type {
            type Wide = f32;
            const BYTES: usize = 2;
            fn load(bytes: &[u8], into: &mut [f32]) {
                let mut halves = [$type::ZERO; BLOCK];
                let halves = &mut halves[..into.len()];
                for (value, bytes) in halves.iter_mut().zip(bytes.as_chunks().0) {
                    *value = $type::from_le_bytes(*bytes);
                }
                halves.convert_to_f32_slice(into);
            }
            fn store(values: &[f32], into: &mut [u8]) {
                let mut halves = [$type::ZERO; BLOCK];
                let halves = &mut halves[..values.len()];
                halves.convert_from_f32_slice(values);
                for (value, place) in halves.iter().zip(into.as_chunks_mut().0) {
                    *place = value.to_le_bytes();
                }
            }
            fn add(a: f32, b: f32) -> f32 {
                a + b
            }
            fn multiply(a: f32, b: f32) -> f32 {
                a * b
            }
            fn divide(value: f32, by: u32) -> f32 {
                value / by as f32
            }
        }
    )*};
}

half_elements!(f16, bf16);

/// Elements that are taken at a time.
const BLOCK: usize = 1024;

/// A reduction of elements under way.
trait Reduce {
    fn add(&mut self, part: &[u8], factor: Option<[u8; 8]>);
    fn finish(&mut self, into: &mut [u8], ranks: u32);
}

struct Values<T: Element> {
    operation: i32,
    /// Empty before the first part.
    values: Vec<T::Wide>,
}

fn combine<T: Element>(
    values: &mut [T::Wide],
    parts: &[T::Wide],
    with: impl Fn(T::Wide, T::Wide) -> T::Wide,
) {
    for (value, part) in values.iter_mut().zip(parts) {
        *value = with(*value, *part);
    }
}

impl<T: Element> Reduce for Values<T> {
    fn add(&mut self, part: &[u8], factor: Option<[u8; 8]>) {
        let first = self.values.is_empty();
        if first {
            self.values.resize(part.len() / T::BYTES, T::Wide::default());
        }
        let factor = factor.map(|bytes| {
            let mut factor = [T::Wide::default()];
            T::load(&bytes[..T::BYTES], &mut factor);
            factor[0]
        });
        let mut block = [T::Wide::default(); BLOCK];
        for (values, part) in self.values.chunks_mut(BLOCK).zip(part.chunks(BLOCK * T::BYTES)) {
            let block = &mut block[..values.len()];
            T::load(part, block);
            if let Some(factor) = factor {
                block
                    .iter_mut()
                    .for_each(|value| *value = T::multiply(*value, factor));
            }
            match self.operation {
                _ if first => values.copy_from_slice(block),
                PRODUCT => combine::<T>(values, block, T::multiply),
                MAXIMUM => combine::<T>(values, block, |a, b| if b > a { b } else { a }),
                MINIMUM => combine::<T>(values, block, |a, b| if b < a { b } else { a }),
                _ => combine::<T>(values, block, T::add),
            }
        }
    }

    fn finish(&mut self, into: &mut [u8], ranks: u32) {
        if self.operation == AVERAGE {
            self.values
                .iter_mut()
                .for_each(|value| *value = T::divide(*value, ranks));
        }
        for (values, into) in self.values.chunks(BLOCK).zip(into.chunks_mut(BLOCK * T::BYTES)) {
            T::store(values, into);
        }
        self.values.clear();
    }
}

/// Reduces ranks' parts in the order in which they are added.
pub(super) struct Accumulator(Box<dyn Reduce>);

impl Accumulator {
    /// For a data type and a reduction by their numbers; SCALED_SUM is a sum of parts with factors.
    pub(super) fn new(datatype: i32, operation: i32) -> Self {
        fn values<T: Element + 'static>(operation: i32) -> Box<dyn Reduce> {
            Box::new(Values::<T> {
                operation,
                values: Vec::new(),
            })
        }
        let operation = operation.min(SCALED_SUM);
        Self(match datatype {
            0 => values::<i8>(operation),
            1 => values::<u8>(operation),
            2 => values::<i32>(operation),
            3 => values::<u32>(operation),
            4 => values::<i64>(operation),
            5 => values::<u64>(operation),
            6 => values::<f16>(operation),
            7 => values::<f32>(operation),
            8 => values::<f64>(operation),
            _ => values::<bf16>(operation),
        })
    }

    /// Adds a rank's part, all elements times a factor if there is one. All parts are of one length.
    pub(super) fn add(&mut self, part: &[u8], factor: Option<[u8; 8]>) {
        self.0.add(part, factor);
    }

    /// Writes the result of `ranks` parts, and begins anew.
    pub(super) fn finish(&mut self, into: &mut [u8], ranks: u32) {
        self.0.finish(into, ranks);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes<const N: usize>(values: impl IntoIterator<Item = [u8; N]>) -> Vec<u8> {
        values.into_iter().flatten().collect()
    }

    fn run(datatype: i32, operation: i32, parts: &[Vec<u8>], factors: &[Option<[u8; 8]>]) -> Vec<u8> {
        let mut sum = Accumulator::new(datatype, operation);
        for (index, part) in parts.iter().enumerate() {
            sum.add(part, factors.get(index).copied().flatten());
        }
        let mut result = vec![0; parts[0].len()];
        sum.finish(&mut result, parts.len() as u32);
        result
    }

    #[test]
    fn reductions_are_the_ranks_values_combined() {
        let parts: Vec<Vec<u8>> = [[1.0f32, 5.0], [2.0, -3.0], [4.0, 1.0]]
            .iter()
            .map(|part| bytes(part.iter().map(|v| v.to_le_bytes())))
            .collect();
        let expected = [
            [7.0, 3.0],
            [8.0, -15.0],
            [4.0, 5.0],
            [1.0, -3.0],
            [7.0 / 3.0, 1.0f32],
        ];
        for (operation, expected) in (0..).zip(expected) {
            let expected = bytes(expected.iter().map(|v| v.to_le_bytes()));
            assert_eq!(run(7, operation, &parts, &[]), expected, "{operation}");
        }
        // 10 * 1 + 100 * 2 + 1 * 4; 10 * 5 - 100 * 3 + 1.
        let factor = |value: f32| {
            let mut bytes = [0; 8];
            bytes[..4].copy_from_slice(&value.to_le_bytes());
            Some(bytes)
        };
        let scaled = run(7, SCALED_SUM, &parts, &[factor(10.0), factor(100.0), factor(1.0)]);
        assert_eq!(scaled, bytes([214.0f32, -249.0].map(f32::to_le_bytes)));
    }

    #[test]
    fn sums_of_halves_are_rounded_once() {
        // 2048 + 1 is 2048 in f16: twice rounded, 2048 + 1 + 1 would stay there.
        let parts: Vec<Vec<u8>> = [2048.0, 1.0, 1.0]
            .iter()
            .map(|value| f16::from_f32(*value).to_le_bytes().to_vec())
            .collect();
        assert_eq!(run(6, 0, &parts, &[]), f16::from_f32(2050.0).to_le_bytes());
        let parts: Vec<Vec<u8>> = [256.0, 1.0, 1.0]
            .iter()
            .map(|value| bf16::from_f32(*value).to_le_bytes().to_vec())
            .collect();
        assert_eq!(run(9, 0, &parts, &[]), bf16::from_f32(258.0).to_le_bytes());
    }

    #[test]
    fn integers_wrap_and_averages_truncate() {
        let parts = vec![vec![200u8], vec![100]];
        assert_eq!(run(1, 0, &parts, &[]), [44]);
        assert_eq!(run(1, AVERAGE, &parts, &[]), [22]);
        let parts = vec![bytes([(-7i32).to_le_bytes()]), bytes([0i32.to_le_bytes()])];
        assert_eq!(run(2, AVERAGE, &parts, &[]), (-3i32).to_le_bytes());
    }

    #[test]
    fn all_blocks_are_reduced() {
        let count = 3 * BLOCK + 17;
        let part = |rank: usize| bytes((0..count).map(|index| (index as f32 * rank as f32).to_le_bytes()));
        let result = run(7, 0, &[part(1), part(2)], &[]);
        assert_eq!(result, part(3));
    }
}
