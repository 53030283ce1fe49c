//! Matrix products by cuBLAS, row-major as everything here is.
//!
//! cuBLAS takes column-major matrices. A row-major matrix is, column-major, its own transpose, and
//! (a * b)' = b' * a': so operands change places, and nothing is copied.

use std::ffi::{c_int, c_longlong, c_void};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use cudarc::cublas::{result as cublas, sys};
use cudarc::driver::CudaStream;

use super::{DataType, Queue};
use crate::error::Error;

/// A row-major matrix operand in device memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Matrix {
    pub(crate) address: u64,
    /// Whether the operand is the transpose of what is stored.
    pub(crate) transposed: bool,
    /// Elements from one stored row to the next.
    pub(crate) leading: usize,
}

impl Matrix {
    /// A matrix as it is stored.
    pub(crate) fn new(address: u64, leading: usize) -> Self {
        Self {
            address,
            transposed: false,
            leading,
        }
    }

    /// The transpose of what is stored.
    pub(crate) fn transposed(address: u64, leading: usize) -> Self {
        Self {
            address,
            transposed: true,
            leading,
        }
    }

    fn operation(self) -> sys::cublasOperation_t {
        if self.transposed {
            sys::cublasOperation_t::CUBLAS_OP_T
        } else {
            sys::cublasOperation_t::CUBLAS_OP_N
        }
    }
}

/// One part of a million of a launch, in which [`Blas`] counts repetitions.
const UNIT: f64 = 1e6;

/// A cuBLAS handle, and the stream that it launches on.
struct Handle {
    handle: sys::cublasHandle_t,
    stream: cudarc::driver::sys::CUstream,
}

// SAFETY: cuBLAS lets several threads use one handle, if no two do it at a time: it is behind a mutex.
unsafe impl Send for Handle {}

/// cuBLAS on one GPU.
pub(super) struct Blas {
    handle: Mutex<Handle>,
    /// Products of a straggler: each is to be computed again so many times, in millionths.
    repetitions: u64,
    /// Sum of the repetitions that were due until now.
    due: AtomicU64,
}

impl Blas {
    /// For the context that is current; launches on `stream` first.
    pub(super) fn new(stream: &CudaStream) -> Result<Self, Error> {
        let handle = cublas::create_handle()?;
        let blas = Self {
            handle: Mutex::new(Handle {
                handle,
                stream: stream.cu_stream(),
            }),
            repetitions: 0,
            due: AtomicU64::new(0),
        };
        // SAFETY: the handle was just made, and the stream lives as long as the GPU that this is part of.
        unsafe { cublas::set_stream(handle, stream.cu_stream().cast())? };
        Ok(blas)
    }

    pub(super) fn slow_down(&mut self, factor: f64) {
        self.repetitions = ((factor.max(1.0) - 1.0) * UNIT).round() as u64;
    }

    /// How often the next product is to be computed.
    fn launches(&self) -> u64 {
        let before = self.due.fetch_add(self.repetitions, Ordering::Relaxed);
        let whole = |due: u64| due / UNIT as u64;
        1 + whole(before + self.repetitions) - whole(before)
    }

    /// Gives the handle to `launch`, with its stream set.
    fn on(
        &self,
        stream: &CudaStream,
        launch: impl FnOnce(sys::cublasHandle_t) -> Result<(), Error>,
    ) -> Result<(), Error> {
        stream.context().bind_to_thread()?;
        let mut guard = self.handle.lock().unwrap_or_else(PoisonError::into_inner);
        if guard.stream != stream.cu_stream() {
            // SAFETY: the handle lives, and so does the stream that the caller lends; a later call on another stream
            // sets that one before it launches.
            unsafe { cublas::set_stream(guard.handle, stream.cu_stream().cast())? };
            guard.stream = stream.cu_stream();
        }
        launch(guard.handle)
    }
}

impl Drop for Blas {
    fn drop(&mut self) {
        let guard = self.handle.get_mut().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: made by `new`, destroyed once. A failure at the end of a run changes nothing.
        let _ = unsafe { cublas::destroy_handle(guard.handle) };
    }
}

/// A matrix product as cuBLAS takes it: column-major, so `left` is the row-major product's right operand.
struct Product {
    size: [c_int; 3],
    left: (Matrix, c_int),
    right: (Matrix, c_int),
    result: (u64, c_int),
    alpha: f32,
    beta: f32,
}

/// How a strided batch goes on: elements between matrices, and their number.
struct Batch {
    left: c_longlong,
    right: c_longlong,
    result: c_longlong,
    count: c_int,
}

fn int(count: usize) -> Result<c_int, Error> {
    c_int::try_from(count).map_err(|_| {
        Error::new(format!(
            "a matrix with {count} rows or columns is too large for cuBLAS"
        ))
    })
}

impl Product {
    fn new(
        [rows, columns, inner]: [usize; 3],
        [a, b]: [Matrix; 2],
        [alpha, beta]: [f32; 2],
        (c, leading_c): (u64, usize),
    ) -> Result<Self, Error> {
        Ok(Self {
            size: [int(columns)?, int(rows)?, int(inner)?],
            left: (b, int(b.leading)?),
            right: (a, int(a.leading)?),
            result: (c, int(leading_c)?),
            alpha,
            beta,
        })
    }

    /// Launches the product, or a batch of them.
    ///
    /// # Safety
    /// The addresses are of device memory with room for the matrices.
    unsafe fn launch(
        &self,
        handle: sys::cublasHandle_t,
        ty: DataType,
        batch: Option<&Batch>,
    ) -> Result<(), Error> {
        let [m, n, k] = self.size;
        let (alpha, beta) = (&raw const self.alpha, &raw const self.beta);
        let (operation_a, operation_b) = (self.left.0.operation(), self.right.0.operation());
        let (a, b, c) = (
            self.left.0.address as *const c_void,
            self.right.0.address as *const c_void,
            self.result.0 as *mut c_void,
        );
        let (leading_a, leading_b, leading_c) = (self.left.1, self.right.1, self.result.1);
        let data_type = match ty {
            DataType::F32 => {
                // SAFETY: the caller's promise; the scalars are on the host and are read before the call returns.
                unsafe {
                    match batch {
                        None => cublas::sgemm(
                            handle,
                            operation_a,
                            operation_b,
                            m,
                            n,
                            k,
                            alpha,
                            a.cast(),
                            leading_a,
                            b.cast(),
                            leading_b,
                            beta,
                            c.cast(),
                            leading_c,
                        ),
                        Some(batch) => cublas::sgemm_strided_batched(
                            handle,
                            operation_a,
                            operation_b,
                            m,
                            n,
                            k,
                            alpha,
                            a.cast(),
                            leading_a,
                            batch.left,
                            b.cast(),
                            leading_b,
                            batch.right,
                            beta,
                            c.cast(),
                            leading_c,
                            batch.result,
                            batch.count,
                        ),
                    }?;
                }
                return Ok(());
            }
            DataType::Bf16 => sys::cudaDataType::CUDA_R_16BF,
            DataType::F16 => sys::cudaDataType::CUDA_R_16F,
        };
        let compute = sys::cublasComputeType_t::CUBLAS_COMPUTE_32F;
        let algorithm = sys::cublasGemmAlgo_t::CUBLAS_GEMM_DEFAULT;
        // SAFETY: as above.
        unsafe {
            match batch {
                None => cublas::gemm_ex(
                    handle,
                    operation_a,
                    operation_b,
                    m,
                    n,
                    k,
                    alpha.cast(),
                    a,
                    data_type,
                    leading_a,
                    b,
                    data_type,
                    leading_b,
                    beta.cast(),
                    c,
                    data_type,
                    leading_c,
                    compute,
                    algorithm,
                ),
                Some(batch) => cublas::gemm_strided_batched_ex(
                    handle,
                    operation_a,
                    operation_b,
                    m,
                    n,
                    k,
                    alpha.cast(),
                    a,
                    data_type,
                    leading_a,
                    batch.left,
                    b,
                    data_type,
                    leading_b,
                    batch.right,
                    beta.cast(),
                    c,
                    data_type,
                    leading_c,
                    batch.result,
                    batch.count,
                    compute,
                    algorithm,
                ),
            }?;
        }
        Ok(())
    }
}

impl Queue<'_> {
    /// `c = a * b + beta * c`, row-major: rows x inner times inner x columns.
    pub(crate) fn gemm(
        &self,
        ty: DataType,
        size: [usize; 3],
        a: Matrix,
        b: Matrix,
        beta: f32,
        c: u64,
        leading_c: usize,
    ) -> Result<(), Error> {
        let product = Product::new(size, [a, b], [1.0, beta], (c, leading_c))?;
        let blas = &self.gpu.blas;
        // What adds to its result can't be done twice.
        let launches = if beta == 0.0 { blas.launches() } else { 1 };
        blas.on(self.stream, |handle| {
            for _ in 0..launches {
                // SAFETY: callers pass addresses of device memory with room for matrices of these sizes.
                unsafe { product.launch(handle, ty, None)? };
            }
            Ok(())
        })
    }

    /// `c = alpha * a * b` for each of `batch` products; matrices of a batch are `stride` elements apart.
    pub(crate) fn gemm_batched(
        &self,
        ty: DataType,
        size: [usize; 3],
        alpha: f32,
        (a, stride_a): (Matrix, usize),
        (b, stride_b): (Matrix, usize),
        (c, leading_c, stride_c): (u64, usize, usize),
        batch: usize,
    ) -> Result<(), Error> {
        let product = Product::new(size, [a, b], [alpha, 0.0], (c, leading_c))?;
        let batch = Batch {
            left: stride_b as c_longlong,
            right: stride_a as c_longlong,
            result: stride_c as c_longlong,
            count: int(batch)?,
        };
        let blas = &self.gpu.blas;
        let launches = blas.launches();
        blas.on(self.stream, |handle| {
            for _ in 0..launches {
                // SAFETY: as in `gemm`, for each matrix of the batch.
                unsafe { product.launch(handle, ty, Some(&batch))? };
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_straggler_computes_its_factor_on_average() {
        for factor in [1.0, 1.25, 2.5, 3.0] {
            let mut blas = Blas {
                handle: Mutex::new(Handle {
                    handle: std::ptr::null_mut(),
                    stream: std::ptr::null_mut(),
                }),
                repetitions: 0,
                due: AtomicU64::new(0),
            };
            blas.slow_down(factor);
            let launches: u64 = (0..1000).map(|_| blas.launches()).sum();
            assert_eq!(launches as f64, 1000.0 * factor);
            // There is no handle to destroy.
            std::mem::forget(blas);
        }
    }
}
