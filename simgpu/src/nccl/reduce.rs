//! NCCL's data types and reductions.

use half::{bf16, f16};

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
        _ => return None,
    })
}

/// The name of a reduction (ncclRedOp_t) in kernels.
pub(super) fn operation_name(operation: i32) -> Option<&'static str> {
    ["Sum", "Prod", "MinMax", "MinMax", "Avg"]
        .get(usize::try_from(operation).ok()?)
        .copied()
}

/// A number that can be reduced, computed in a wider one.
trait Number: Copy {
    const BYTES: usize;
    fn read(bytes: &[u8]) -> Self;
    fn write(self, bytes: &mut [u8]);
    fn combine(self, other: Self, operation: i32) -> Self;
    fn divide(self, by: u32) -> Self;
}

macro_rules! numbers {
    ($($type:ty, $add:expr, $multiply:expr, $divide:expr;)*) => {$(
        impl Number for $type {
            const BYTES: usize = size_of::<$type>();
            fn read(bytes: &[u8]) -> Self {
                let mut array = [0; size_of::<$type>()];
                array.copy_from_slice(bytes);
                <$type>::from_le_bytes(array)
            }
            fn write(self, bytes: &mut [u8]) {
                bytes.copy_from_slice(&self.to_le_bytes());
            }
            fn combine(self, other: Self, operation: i32) -> Self {
                match operation {
                    1 => $multiply(self, other),
                    2 => if other > self { other } else { self },
                    3 => if other < self { other } else { self },
                    _ => $add(self, other),
                }
            }
            fn divide(self, by: u32) -> Self {
                $divide(self, by)
            }
        }
    )*};
}

numbers! {
    i8, i8::wrapping_add, i8::wrapping_mul, |value: i8, by: u32| (i64::from(value) / i64::from(by)) as i8;
    u8, u8::wrapping_add, u8::wrapping_mul, |value: u8, by: u32| (u32::from(value) / by) as u8;
    i32, i32::wrapping_add, i32::wrapping_mul, |value: i32, by: u32| (i64::from(value) / i64::from(by)) as i32;
    u32, u32::wrapping_add, u32::wrapping_mul, |value: u32, by: u32| value / by;
    i64, i64::wrapping_add, i64::wrapping_mul, |value: i64, by: u32| value / i64::from(by);
    u64, u64::wrapping_add, u64::wrapping_mul, |value: u64, by: u32| value / u64::from(by);
    f32, |a: f32, b: f32| a + b, |a: f32, b: f32| a * b, |value: f32, by: u32| value / by as f32;
    f64, |a: f64, b: f64| a + b, |a: f64, b: f64| a * b, |value: f64, by: u32| value / f64::from(by);
    f16, |a: f16, b: f16| f16::from_f32(a.to_f32() + b.to_f32()), |a: f16, b: f16| f16::from_f32(a.to_f32() * b.to_f32()),
        |value: f16, by: u32| f16::from_f32(value.to_f32() / by as f32);
    bf16, |a: bf16, b: bf16| bf16::from_f32(a.to_f32() + b.to_f32()), |a: bf16, b: bf16| bf16::from_f32(a.to_f32() * b.to_f32()),
        |value: bf16, by: u32| bf16::from_f32(value.to_f32() / by as f32);
}

fn reduce<T: Number>(result: &mut [u8], parts: &[&[u8]], operation: i32) {
    for (index, place) in result.chunks_exact_mut(T::BYTES).enumerate() {
        let at = |part: &&[u8]| T::read(&part[index * T::BYTES..(index + 1) * T::BYTES]);
        let mut values = parts.iter().map(at);
        let Some(first) = values.next() else { return };
        let sum = values.fold(first, |sum, value| sum.combine(value, operation));
        let sum = if operation == 4 {
            sum.divide(parts.len() as u32)
        } else {
            sum
        };
        sum.write(place);
    }
}

/// Reduces all ranks' parts, in the order of the ranks, into `result`: the same bits on every rank.
pub(super) fn reduce_into(result: &mut [u8], parts: &[&[u8]], datatype: i32, operation: i32) {
    match datatype {
        0 => reduce::<i8>(result, parts, operation),
        1 => reduce::<u8>(result, parts, operation),
        2 => reduce::<i32>(result, parts, operation),
        3 => reduce::<u32>(result, parts, operation),
        4 => reduce::<i64>(result, parts, operation),
        5 => reduce::<u64>(result, parts, operation),
        6 => reduce::<f16>(result, parts, operation),
        7 => reduce::<f32>(result, parts, operation),
        8 => reduce::<f64>(result, parts, operation),
        _ => reduce::<bf16>(result, parts, operation),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reductions_are_the_ranks_values_combined() {
        let parts: Vec<Vec<u8>> = [[1.0f32, 5.0], [2.0, -3.0], [4.0, 1.0]]
            .iter()
            .map(|part| part.iter().flat_map(|v| v.to_le_bytes()).collect())
            .collect();
        let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
        let run = |operation| {
            let mut result = [0u8; 8];
            reduce_into(&mut result, &parts, 7, operation);
            [f32::read(&result[..4]), f32::read(&result[4..])]
        };
        assert_eq!(run(0), [7.0, 3.0]);
        assert_eq!(run(1), [8.0, -15.0]);
        assert_eq!(run(2), [4.0, 5.0]);
        assert_eq!(run(3), [1.0, -3.0]);
        assert_eq!(run(4), [7.0 / 3.0, 1.0]);
    }
}
