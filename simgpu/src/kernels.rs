//! CPU functions for kernels, by name, each with the time that the modelled device takes for it.
//!
//! A kernel is prepared at its launch (arguments read, memory checked) and computed when its turn comes.

use crate::device::memory::device_range;
use crate::device::model::kernel_ns;
use crate::driver::error;

/// Registers a thread that kernels claim.
pub(crate) const REGISTERS: u16 = 32;
/// The share of peak FLOP/s that elementwise kernels reach.
const ELEMENTWISE: f64 = 0.3;

/// The bytes of a launch's arguments, in order.
#[derive(Default)]
pub(crate) struct Arguments {
    bytes: Vec<Vec<u8>>,
}

impl Arguments {
    /// Appends one argument.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.bytes.push(bytes.to_vec());
    }

    fn number<const N: usize>(&self, index: usize) -> Result<[u8; N], u32> {
        self.bytes
            .get(index)
            .and_then(|bytes| bytes.as_slice().try_into().ok())
            .ok_or(error::INVALID_VALUE)
    }

    fn float(&self, index: usize) -> Result<f32, u32> {
        self.number(index).map(f32::from_le_bytes)
    }

    fn count(&self, index: usize) -> Result<usize, u32> {
        usize::try_from(i32::from_le_bytes(self.number(index)?)).map_err(|_| error::INVALID_VALUE)
    }

    fn floats(&self, index: usize, count: usize) -> Result<Floats, u32> {
        Floats::new(u64::from_le_bytes(self.number(index)?), count)
    }
}

/// An array of f32 in device memory, its bounds checked at the launch.
#[derive(Clone, Copy)]
pub(crate) struct Floats {
    address: usize,
    count: usize,
}

impl Floats {
    /// Checks that the array lies in device memory.
    pub(crate) fn new(address: u64, count: usize) -> Result<Self, u32> {
        device_range(address, count * 4)?;
        Ok(Self {
            address: address as usize,
            count,
        })
    }

    fn get(self) -> &'static [f32] {
        // SAFETY: the range was inside a device allocation at the launch, CUDA forbids freeing it before the kernel
        // ends, and every bit pattern is an f32. Kernels that race on memory are as undefined here as on a GPU.
        unsafe { std::slice::from_raw_parts(self.address as *const f32, self.count) }
    }

    #[allow(clippy::mut_from_ref)] // Device memory is shared by nature; see `get`.
    fn get_mut(self) -> &'static mut [f32] {
        // SAFETY: as in `get`; the stream's order keeps other operations away, or the program has a race.
        unsafe { std::slice::from_raw_parts_mut(self.address as *mut f32, self.count) }
    }
}

/// Computes the kernel and gives its modelled time in nanoseconds.
pub(crate) type Prepared = Box<dyn FnOnce() -> i64 + Send>;

/// One kernel that can be computed.
pub(crate) struct CpuKernel {
    name: &'static str,
    /// Reads and checks the arguments.
    pub(crate) prepare: fn(&Arguments) -> Result<Prepared, u32>,
}

/// The CPU function of a kernel's name.
pub(crate) fn find(name: &str) -> Option<&'static CpuKernel> {
    KERNELS.iter().find(|kernel| kernel.name == name)
}

const KERNELS: &[CpuKernel] = &[
    CpuKernel {
        name: "add_bias",
        prepare: |arguments| add_bias(arguments, false),
    },
    CpuKernel {
        name: "add_bias_relu",
        prepare: |arguments| add_bias(arguments, true),
    },
    CpuKernel {
        name: "relu_backward",
        prepare: relu_backward,
    },
    CpuKernel {
        name: "mse_loss",
        prepare: mse_loss,
    },
    CpuKernel {
        name: "bias_gradient",
        prepare: bias_gradient,
    },
    CpuKernel {
        name: "sgd_step",
        prepare: sgd_step,
    },
    CpuKernel {
        name: "scale",
        prepare: scale,
    },
    CpuKernel {
        name: "axpy",
        prepare: axpy,
    },
    CpuKernel {
        name: "copy_f32",
        prepare: copy,
    },
];

/// Time of a kernel that reads and writes so many arrays of `count` f32.
fn elementwise_ns(count: usize, arrays: f64, flops_each: f64) -> i64 {
    let count = count as f64;
    kernel_ns(count * flops_each, count * 4.0 * arrays, ELEMENTWISE)
}

/// `add_bias(float* y, const float* bias, int rows, int cols)`, with ReLU or without.
fn add_bias(arguments: &Arguments, relu: bool) -> Result<Prepared, u32> {
    let (rows, columns) = (arguments.count(2)?, arguments.count(3)?);
    let (y, bias) = (
        arguments.floats(0, rows * columns)?,
        arguments.floats(1, columns)?,
    );
    Ok(Box::new(move || {
        for row in y.get_mut().chunks_exact_mut(columns.max(1)) {
            for (y, bias) in row.iter_mut().zip(bias.get()) {
                *y += bias;
                if relu {
                    *y = y.max(0.0);
                }
            }
        }
        elementwise_ns(rows * columns, 2.0, 2.0)
    }))
}

/// `relu_backward(float* dx, const float* y, int n)`.
fn relu_backward(arguments: &Arguments) -> Result<Prepared, u32> {
    let count = arguments.count(2)?;
    let (dx, y) = (arguments.floats(0, count)?, arguments.floats(1, count)?);
    Ok(Box::new(move || {
        for (dx, y) in dx.get_mut().iter_mut().zip(y.get()) {
            if *y <= 0.0 {
                *dx = 0.0;
            }
        }
        elementwise_ns(count, 3.0, 1.0)
    }))
}

/// `mse_loss(float* loss, float* dpred, const float* pred, const float* target, int n, float scale)`.
fn mse_loss(arguments: &Arguments) -> Result<Prepared, u32> {
    let (count, scale) = (arguments.count(4)?, arguments.float(5)?);
    let (loss, gradient) = (arguments.floats(0, 1)?, arguments.floats(1, count)?);
    let (prediction, target) = (arguments.floats(2, count)?, arguments.floats(3, count)?);
    Ok(Box::new(move || {
        let mut sum = 0.0f64;
        for ((gradient, prediction), target) in gradient
            .get_mut()
            .iter_mut()
            .zip(prediction.get())
            .zip(target.get())
        {
            let difference = prediction - target;
            sum += f64::from(difference) * f64::from(difference);
            *gradient = 2.0 * difference * scale;
        }
        loss.get_mut()[0] += (sum * f64::from(scale)) as f32;
        elementwise_ns(count, 3.0, 4.0)
    }))
}

/// `bias_gradient(float* db, const float* dy, int rows, int cols)`.
fn bias_gradient(arguments: &Arguments) -> Result<Prepared, u32> {
    let (rows, columns) = (arguments.count(2)?, arguments.count(3)?);
    let (db, dy) = (
        arguments.floats(0, columns)?,
        arguments.floats(1, rows * columns)?,
    );
    Ok(Box::new(move || {
        db.get_mut().fill(0.0);
        for row in dy.get().chunks_exact(columns.max(1)) {
            for (db, dy) in db.get_mut().iter_mut().zip(row) {
                *db += dy;
            }
        }
        elementwise_ns(rows * columns, 1.0, 1.0)
    }))
}

/// `sgd_step(float* p, const float* g, float learning_rate, int n)`.
fn sgd_step(arguments: &Arguments) -> Result<Prepared, u32> {
    let (rate, count) = (arguments.float(2)?, arguments.count(3)?);
    let (parameters, gradients) = (arguments.floats(0, count)?, arguments.floats(1, count)?);
    Ok(Box::new(move || {
        for (parameter, gradient) in parameters.get_mut().iter_mut().zip(gradients.get()) {
            *parameter -= rate * gradient;
        }
        elementwise_ns(count, 3.0, 2.0)
    }))
}

/// `scale(float* x, float factor, int n)`.
fn scale(arguments: &Arguments) -> Result<Prepared, u32> {
    let (factor, count) = (arguments.float(1)?, arguments.count(2)?);
    let x = arguments.floats(0, count)?;
    Ok(Box::new(move || {
        for x in x.get_mut() {
            *x *= factor;
        }
        elementwise_ns(count, 2.0, 1.0)
    }))
}

/// `axpy(float* y, const float* x, float a, int n)`.
fn axpy(arguments: &Arguments) -> Result<Prepared, u32> {
    let (a, count) = (arguments.float(2)?, arguments.count(3)?);
    let (y, x) = (arguments.floats(0, count)?, arguments.floats(1, count)?);
    Ok(Box::new(move || {
        for (y, x) in y.get_mut().iter_mut().zip(x.get()) {
            *y += a * x;
        }
        elementwise_ns(count, 3.0, 2.0)
    }))
}

/// `copy_f32(float* dst, const float* src, int n)`.
fn copy(arguments: &Arguments) -> Result<Prepared, u32> {
    let count = arguments.count(2)?;
    let (destination, source) = (arguments.floats(0, count)?, arguments.floats(1, count)?);
    Ok(Box::new(move || {
        destination.get_mut().copy_from_slice(source.get());
        elementwise_ns(count, 2.0, 0.0)
    }))
}

/// Where a matrix is and how it is laid out: element (i, j) at `i * row_stride + j * column_stride`.
#[derive(Clone, Copy)]
pub(crate) struct Matrix {
    pub(crate) values: Floats,
    pub(crate) row_stride: isize,
    pub(crate) column_stride: isize,
}

/// `c = alpha * a * b + beta * c` for m x k, k x n and m x n matrices inside their (checked) arrays.
pub(crate) fn gemm(size: [usize; 3], alpha: f32, a: Matrix, b: Matrix, beta: f32, c: Matrix) {
    let [m, n, k] = size;
    // SAFETY: the caller sized each `Floats` to hold its matrix with these strides, and their ranges were checked.
    unsafe {
        matrixmultiply::sgemm(
            m,
            k,
            n,
            alpha,
            a.values.get().as_ptr(),
            a.row_stride,
            a.column_stride,
            b.values.get().as_ptr(),
            b.row_stride,
            b.column_stride,
            beta,
            c.values.get_mut().as_mut_ptr(),
            c.row_stride,
            c.column_stride,
        );
    }
}
