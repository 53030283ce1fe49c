//! Matrix products, by cuBLAS: all transpositions, types and batches against a sum of products in f64.

use super::numbers::{from_bytes, numbers, rounded, rounding_error, to_bytes};
use super::operation::{download, upload};
use super::report::Report;
use crate::data::Random;
use crate::error::Error;
use crate::gpu::{DataType, Gpu, Matrix};

/// Rows, columns, inner.
const SIZES: [[usize; 3]; 5] = [[1, 1, 1], [3, 5, 7], [17, 33, 65], [64, 48, 80], [1, 130, 129]];

pub(super) fn check(gpu: &Gpu, report: &mut Report) -> Result<(), Error> {
    let mut random = Random::new(4);
    for ty in DataType::ALL {
        for size in SIZES {
            for (transposed_a, transposed_b) in [(false, false), (false, true), (true, false), (true, true)] {
                for beta in [0.0, 1.0] {
                    let case = Case::new(&mut random, ty, size, [transposed_a, transposed_b], 1);
                    case.check(gpu, report, beta)?;
                }
                let case = Case::new(&mut random, ty, size, [transposed_a, transposed_b], 5);
                case.check_batch(gpu, report, 0.125)?;
            }
        }
    }
    Ok(())
}

/// A stored matrix, or a batch of them, with some room between rows and between matrices.
struct Stored {
    values: Vec<f32>,
    transposed: bool,
    leading: usize,
    stride: usize,
}

impl Stored {
    fn new(
        random: &mut Random,
        ty: DataType,
        [rows, columns]: [usize; 2],
        transposed: bool,
        batch: usize,
    ) -> Self {
        let [rows, columns] = if transposed {
            [columns, rows]
        } else {
            [rows, columns]
        };
        let (leading, stride) = (columns + 3, rows * (columns + 3) + 7);
        Self {
            values: rounded(ty, &numbers(random, batch * stride, 1.0)),
            transposed,
            leading,
            stride,
        }
    }

    fn at(&self, index: usize, row: usize, column: usize) -> f64 {
        let (row, column) = if self.transposed {
            (column, row)
        } else {
            (row, column)
        };
        f64::from(self.values[index * self.stride + row * self.leading + column])
    }

    fn matrix(&self, address: u64) -> Matrix {
        Matrix {
            address,
            transposed: self.transposed,
            leading: self.leading,
        }
    }
}

struct Case {
    ty: DataType,
    size: [usize; 3],
    a: Stored,
    b: Stored,
    c: Stored,
    batch: usize,
}

impl Case {
    fn new(
        random: &mut Random,
        ty: DataType,
        size: [usize; 3],
        [transposed_a, transposed_b]: [bool; 2],
        batch: usize,
    ) -> Self {
        let [rows, columns, inner] = size;
        Self {
            ty,
            size,
            a: Stored::new(random, ty, [rows, inner], transposed_a, batch),
            b: Stored::new(random, ty, [inner, columns], transposed_b, batch),
            c: Stored::new(random, ty, [rows, columns], false, batch),
            batch,
        }
    }

    fn name(&self, what: &str) -> String {
        let letter = |stored: &Stored| if stored.transposed { 't' } else { 'n' };
        let ty = match self.ty {
            DataType::F32 => "f32",
            DataType::Bf16 => "bf16",
            DataType::F16 => "f16",
        };
        format!("{what} {ty} {}{}", letter(&self.a), letter(&self.b))
    }

    /// The worst error of each result, relative to the sum of its products' magnitudes; what lies between rows and
    /// matrices must be as it was.
    fn worst(&self, got: &[f32], alpha: f64, beta: f64) -> f64 {
        let [rows, columns, inner] = self.size;
        let mut want: Vec<(f64, f64)> = self
            .c
            .values
            .iter()
            .map(|&value| (f64::from(value), 0.0))
            .collect();
        for index in 0..self.batch {
            for row in 0..rows {
                for column in 0..columns {
                    let old = beta * self.c.at(index, row, column);
                    let (mut sum, mut magnitude) = (old, old.abs());
                    for k in 0..inner {
                        let product = alpha * self.a.at(index, row, k) * self.b.at(index, k, column);
                        sum += product;
                        magnitude += product.abs();
                    }
                    want[index * self.c.stride + row * self.c.leading + column] = (sum, magnitude);
                }
            }
        }
        got.iter()
            .zip(want)
            .fold(0.0, |worst: f64, (&got, (want, magnitude))| {
                let difference = (f64::from(got) - want).abs();
                if difference == 0.0 {
                    worst
                } else if difference.is_finite() && magnitude > 0.0 {
                    worst.max(difference / magnitude)
                } else {
                    f64::INFINITY
                }
            })
    }

    fn limit(&self) -> f64 {
        // Beside the one rounding of 16-bit results, sums may be in any order.
        let rounding = if self.ty == DataType::F32 {
            0.0
        } else {
            rounding_error(self.ty)
        };
        rounding + 2e-6
    }

    fn check(&self, gpu: &Gpu, report: &mut Report, beta: f32) -> Result<(), Error> {
        let a = upload(gpu, &to_bytes(self.ty, &self.a.values))?;
        let b = upload(gpu, &to_bytes(self.ty, &self.b.values))?;
        let mut old = self.c.values.clone();
        if beta == 0.0 {
            // A result that is overwritten is not read.
            for row in old.chunks_mut(self.c.leading).take(self.size[0]) {
                row[..self.size[1]].fill(f32::NAN);
            }
        }
        let c = upload(gpu, &to_bytes(self.ty, &old))?;
        gpu.work().gemm(
            self.ty,
            self.size,
            self.a.matrix(a.address()),
            self.b.matrix(b.address()),
            beta,
            c.address(),
            self.c.leading,
        )?;
        let got = from_bytes(self.ty, &download(gpu, &c)?);
        let what = if beta == 0.0 { "gemm" } else { "gemm, added" };
        report.add(
            &self.name(what),
            self.worst(&got, 1.0, f64::from(beta)),
            self.limit(),
        );
        Ok(())
    }

    fn check_batch(&self, gpu: &Gpu, report: &mut Report, alpha: f32) -> Result<(), Error> {
        let a = upload(gpu, &to_bytes(self.ty, &self.a.values))?;
        let b = upload(gpu, &to_bytes(self.ty, &self.b.values))?;
        let c = upload(gpu, &to_bytes(self.ty, &self.c.values))?;
        gpu.work().gemm_batched(
            self.ty,
            self.size,
            alpha,
            (self.a.matrix(a.address()), self.a.stride),
            (self.b.matrix(b.address()), self.b.stride),
            (c.address(), self.c.leading, self.c.stride),
            self.batch,
        )?;
        let got = from_bytes(self.ty, &download(gpu, &c)?);
        let worst = self.worst(&got, f64::from(alpha), 0.0);
        report.add(&self.name("gemm batch"), worst, self.limit());
        Ok(())
    }
}
