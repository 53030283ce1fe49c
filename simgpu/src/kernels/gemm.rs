//! Matrix products: f32 directly, 16-bit operands converted once and the result rounded once, as tensor cores do.

use half::{bf16, f16};

use super::{Array, Element};

/// An array of one of the types that matrix products take.
#[derive(Clone, Copy)]
pub(crate) enum Values {
    F32(Array<f32>),
    Bf16(Array<bf16>),
    F16(Array<f16>),
}

impl Values {
    fn read(self, scratch: &mut Vec<f32>) -> &[f32] {
        match self {
            Self::F32(values) => f32::read(values.get(), scratch),
            Self::Bf16(values) => bf16::read(values.get(), scratch),
            Self::F16(values) => f16::read(values.get(), scratch),
        }
    }
}

/// Where a matrix is and how it is laid out: element (i, j) at `i * row_stride + j * column_stride`.
#[derive(Clone, Copy)]
pub(crate) struct Matrix {
    pub(crate) values: Values,
    pub(crate) row_stride: usize,
    pub(crate) column_stride: usize,
}

/// `c = alpha * a * b + beta * c` for m x k, k x n and m x n matrices inside their (checked) arrays; c is column-major.
/// A `c` that is multiplied by 0 is not read.
pub(crate) fn product(size: [usize; 3], alpha: f32, a: Matrix, b: Matrix, beta: f32, c: Matrix) {
    let (mut of_a, mut of_b) = (Vec::new(), Vec::new());
    let left = a.values.read(&mut of_a);
    let right = b.values.read(&mut of_b);
    let left = (left, [a.row_stride, a.column_stride]);
    let right = (right, [b.row_stride, b.column_stride]);
    match c.values {
        Values::F32(values) => {
            let strides = [c.row_stride, c.column_stride];
            sgemm(size, alpha, left, right, beta, (values.get_mut(), strides));
        }
        Values::Bf16(values) => rounded(
            size,
            alpha,
            left,
            right,
            beta,
            (values.get_mut(), c.column_stride),
        ),
        Values::F16(values) => rounded(
            size,
            alpha,
            left,
            right,
            beta,
            (values.get_mut(), c.column_stride),
        ),
    }
}

/// Through an f32 result of its own: what lies between the columns of `c` is somebody else's.
fn rounded<T: Element>(
    size: [usize; 3],
    alpha: f32,
    a: (&[f32], [usize; 2]),
    b: (&[f32], [usize; 2]),
    beta: f32,
    (c, leading): (&mut [T], usize),
) {
    let [m, n, _] = size;
    let mut result = vec![0.0; m * n];
    sgemm(size, alpha, a, b, 0.0, (&mut result, [1, m]));
    let mut scratch = Vec::new();
    for (column, result) in c.chunks_mut(leading).zip(result.chunks_exact(m)) {
        let column = &mut column[..m];
        if beta == 0.0 {
            T::write(column, &mut scratch, |column| column.copy_from_slice(result));
        } else {
            T::modify(column, &mut scratch, |column| {
                for (c, result) in column.iter_mut().zip(result) {
                    *c = beta * *c + result;
                }
            });
        }
    }
}

fn sgemm(
    [m, n, k]: [usize; 3],
    alpha: f32,
    (a, stride_a): (&[f32], [usize; 2]),
    (b, stride_b): (&[f32], [usize; 2]),
    beta: f32,
    (c, stride_c): (&mut [f32], [usize; 2]),
) {
    let needed = |rows: usize, columns: usize, stride: [usize; 2]| {
        if rows == 0 || columns == 0 {
            0
        } else {
            (rows - 1) * stride[0] + (columns - 1) * stride[1] + 1
        }
    };
    assert!(a.len() >= needed(m, k, stride_a), "the left operand is too short");
    assert!(
        b.len() >= needed(k, n, stride_b),
        "the right operand is too short"
    );
    assert!(c.len() >= needed(m, n, stride_c), "the result is too short");
    // SAFETY: each slice holds its matrix with its strides, as just checked; no two of the result's elements are one.
    unsafe {
        matrixmultiply::sgemm(
            m,
            k,
            n,
            alpha,
            a.as_ptr(),
            stride_a[0].cast_signed(),
            stride_a[1].cast_signed(),
            b.as_ptr(),
            stride_b[0].cast_signed(),
            stride_b[1].cast_signed(),
            beta,
            c.as_mut_ptr(),
            stride_c[0].cast_signed(),
            stride_c[1].cast_signed(),
        );
    }
}
