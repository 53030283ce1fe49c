//! Matrix products. Column-major, as cuBLAS is.

use std::ffi::{CStr, c_int, c_longlong, c_uint, c_void};
use std::sync::Arc;

use super::{EXECUTION_FAILED, INVALID_VALUE, NOT_INITIALIZED, NOT_SUPPORTED, guarded, handles};
use crate::device::{KernelResources, OpKind, model};
use crate::driver::graph::capture;
use crate::driver::{LaunchConfig, error, launch_of_library, stream_from_handle};
use crate::kernels::{Array, Matrix, Values, product};

/// An element type, by cudaDataType_t's numbers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DataType {
    F32,
    F16,
    Bf16,
}

impl DataType {
    fn from_code(code: c_uint) -> Result<Self, c_int> {
        match code {
            0 => Ok(Self::F32),
            2 => Ok(Self::F16),
            14 => Ok(Self::Bf16),
            _ => Err(NOT_SUPPORTED),
        }
    }

    fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
        }
    }

    fn values(self, address: u64, count: usize) -> Result<Values, c_int> {
        match self {
            Self::F32 => Array::new(address, count).map(Values::F32),
            Self::F16 => Array::new(address, count).map(Values::F16),
            Self::Bf16 => Array::new(address, count).map(Values::Bf16),
        }
        .map_err(|_| EXECUTION_FAILED)
    }
}

/// A matrix as the caller describes it, one for each product of a batch.
struct Described {
    address: u64,
    leading: c_int,
    stride: c_longlong,
    data_type: DataType,
    /// cublasOperation_t: 0 none, 1 transposed.
    operation: c_uint,
}

impl Described {
    /// The matrix of product `index`, of `rows` x `columns` after the operation.
    fn matrix(&self, rows: usize, columns: usize, index: usize) -> Result<Matrix, c_int> {
        let (stored_rows, stored_columns) = match self.operation {
            0 => (rows, columns),
            1 => (columns, rows),
            _ => return Err(INVALID_VALUE),
        };
        let leading = usize::try_from(self.leading).map_err(|_| INVALID_VALUE)?;
        if leading < stored_rows.max(1) {
            return Err(INVALID_VALUE);
        }
        let count = if stored_rows == 0 || stored_columns == 0 {
            0
        } else {
            leading * (stored_columns - 1) + stored_rows
        };
        let offset = self.stride * index as i64 * self.data_type.bytes() as i64;
        let values = self
            .data_type
            .values(self.address.wrapping_add_signed(offset), count)?;
        let (row_stride, column_stride) = if self.operation == 0 {
            (1, leading)
        } else {
            (leading, 1)
        };
        Ok(Matrix {
            values,
            row_stride,
            column_stride,
        })
    }
}

/// One call: `batch` products of m x k and k x n matrices.
struct Gemm {
    size: [c_int; 3],
    alpha: *const f32,
    a: Described,
    b: Described,
    beta: *const f32,
    c: Described,
    batch: c_int,
}

impl Gemm {
    /// What a profiler shows: the precision, then which operands are transposed.
    fn kernel_name(&self) -> &'static CStr {
        let names = match self.a.data_type {
            DataType::F32 => [
                c"simulated_sgemm_128x128_nn",
                c"simulated_sgemm_128x128_nt",
                c"simulated_sgemm_128x128_tn",
                c"simulated_sgemm_128x128_tt",
            ],
            DataType::F16 => [
                c"simulated_f16_gemm_128x128_nn",
                c"simulated_f16_gemm_128x128_nt",
                c"simulated_f16_gemm_128x128_tn",
                c"simulated_f16_gemm_128x128_tt",
            ],
            DataType::Bf16 => [
                c"simulated_bf16_gemm_128x128_nn",
                c"simulated_bf16_gemm_128x128_nt",
                c"simulated_bf16_gemm_128x128_tn",
                c"simulated_bf16_gemm_128x128_tt",
            ],
        };
        names[2 * usize::from(self.a.operation != 0) + usize::from(self.b.operation != 0)]
    }

    fn submit(&self, handle: u64) -> Result<(), c_int> {
        let stream = *handles().get(&handle).ok_or(NOT_INITIALIZED)?;
        let size = |value: c_int| usize::try_from(value).map_err(|_| INVALID_VALUE);
        let [m, n, k] = self.size;
        let (m, n, k, batch) = (size(m)?, size(n)?, size(k)?, size(self.batch)?);
        if self.alpha.is_null() || self.beta.is_null() {
            return Err(INVALID_VALUE);
        }
        // SAFETY: not null, and in host pointer mode the caller passes host addresses of one f32 each.
        let (alpha, beta) = unsafe { (self.alpha.read_unaligned(), self.beta.read_unaligned()) };
        let products = (0..batch)
            .map(|index| {
                Ok([
                    self.a.matrix(m, k, index)?,
                    self.b.matrix(k, n, index)?,
                    self.c.matrix(m, n, index)?,
                ])
            })
            .collect::<Result<Vec<_>, c_int>>()?;
        if m == 0 || n == 0 || batch == 0 {
            return Ok(());
        }
        let name = self.kernel_name();
        let element_bytes = self.a.data_type.bytes();
        let grid = [m.div_ceil(128) as u32, n.div_ceil(128) as u32, batch as u32];
        let code = launch_of_library(
            &LaunchConfig::new(grid, [256, 1, 1], 32 << 10, stream),
            name,
            |call| {
                let stream = stream_from_handle(stream)?;
                let kind = OpKind::Kernel {
                    name,
                    grid,
                    block: [256, 1, 1],
                    resources: KernelResources {
                        registers: 122,
                        dynamic_shared_bytes: 32 << 10,
                        ..KernelResources::default()
                    },
                };
                let products = Arc::new(products);
                capture::submit(&stream, call, kind, move || {
                    let products = Arc::clone(&products);
                    Box::new(move |start_ns: i64| {
                        for &[a, b, c] in products.iter() {
                            product([m, n, k], alpha, a, b, beta, c);
                        }
                        start_ns + model::named_ns(name, model::gemm_ns([m, n, k], batch, element_bytes))
                    })
                })
            },
        );
        if code == error::SUCCESS {
            Ok(())
        } else {
            Err(EXECUTION_FAILED)
        }
    }
}

/// Whether products of these types are computed in f32: CUBLAS_COMPUTE_32F (68) and its PEDANTIC (69), FAST_16F (74),
/// FAST_16BF (75) and FAST_TF32 (77) variants. The result has the operands' type, or is f32.
fn is_supported(a: DataType, b: DataType, c: DataType, compute_type: c_uint) -> bool {
    matches!(compute_type, 68 | 69 | 74 | 75 | 77) && a == b && (c == a || c == DataType::F32)
}

/// cublasSgemm_v2.
#[unsafe(no_mangle)]
pub extern "C" fn cublasSgemm_v2(
    handle: u64,
    operation_a: c_uint,
    operation_b: c_uint,
    m: c_int,
    n: c_int,
    k: c_int,
    alpha: *const f32,
    a: u64,
    leading_a: c_int,
    b: u64,
    leading_b: c_int,
    beta: *const f32,
    c: u64,
    leading_c: c_int,
) -> c_int {
    cublasSgemmStridedBatched(
        handle,
        operation_a,
        operation_b,
        m,
        n,
        k,
        alpha,
        a,
        leading_a,
        0,
        b,
        leading_b,
        0,
        beta,
        c,
        leading_c,
        0,
        1,
    )
}

/// cublasSgemmStridedBatched.
#[unsafe(no_mangle)]
pub extern "C" fn cublasSgemmStridedBatched(
    handle: u64,
    operation_a: c_uint,
    operation_b: c_uint,
    m: c_int,
    n: c_int,
    k: c_int,
    alpha: *const f32,
    a: u64,
    leading_a: c_int,
    stride_a: c_longlong,
    b: u64,
    leading_b: c_int,
    stride_b: c_longlong,
    beta: *const f32,
    c: u64,
    leading_c: c_int,
    stride_c: c_longlong,
    batch: c_int,
) -> c_int {
    // CUDA_R_32F, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT.
    cublasGemmStridedBatchedEx(
        handle,
        operation_a,
        operation_b,
        m,
        n,
        k,
        alpha.cast(),
        a,
        0,
        leading_a,
        stride_a,
        b,
        0,
        leading_b,
        stride_b,
        beta.cast(),
        c,
        0,
        leading_c,
        stride_c,
        batch,
        68,
        -1,
    )
}

/// cublasGemmEx.
#[unsafe(no_mangle)]
pub extern "C" fn cublasGemmEx(
    handle: u64,
    operation_a: c_uint,
    operation_b: c_uint,
    m: c_int,
    n: c_int,
    k: c_int,
    alpha: *const c_void,
    a: u64,
    type_a: c_uint,
    leading_a: c_int,
    b: u64,
    type_b: c_uint,
    leading_b: c_int,
    beta: *const c_void,
    c: u64,
    type_c: c_uint,
    leading_c: c_int,
    compute_type: c_uint,
    algorithm: c_int,
) -> c_int {
    cublasGemmStridedBatchedEx(
        handle,
        operation_a,
        operation_b,
        m,
        n,
        k,
        alpha,
        a,
        type_a,
        leading_a,
        0,
        b,
        type_b,
        leading_b,
        0,
        beta,
        c,
        type_c,
        leading_c,
        0,
        1,
        compute_type,
        algorithm,
    )
}

/// cublasGemmStridedBatchedEx; every algorithm computes the same.
#[unsafe(no_mangle)]
pub extern "C" fn cublasGemmStridedBatchedEx(
    handle: u64,
    operation_a: c_uint,
    operation_b: c_uint,
    m: c_int,
    n: c_int,
    k: c_int,
    alpha: *const c_void,
    a: u64,
    type_a: c_uint,
    leading_a: c_int,
    stride_a: c_longlong,
    b: u64,
    type_b: c_uint,
    leading_b: c_int,
    stride_b: c_longlong,
    beta: *const c_void,
    c: u64,
    type_c: c_uint,
    leading_c: c_int,
    stride_c: c_longlong,
    batch: c_int,
    compute_type: c_uint,
    _algorithm: c_int,
) -> c_int {
    let described = |address, leading, stride, data_type, operation| Described {
        address,
        leading,
        stride,
        data_type,
        operation,
    };
    guarded(|| {
        let (type_a, type_b) = (DataType::from_code(type_a)?, DataType::from_code(type_b)?);
        let type_c = DataType::from_code(type_c)?;
        if !is_supported(type_a, type_b, type_c, compute_type) {
            return Err(NOT_SUPPORTED);
        }
        let gemm = Gemm {
            size: [m, n, k],
            alpha: alpha.cast(),
            a: described(a, leading_a, stride_a, type_a, operation_a),
            b: described(b, leading_b, stride_b, type_b, operation_b),
            beta: beta.cast(),
            c: described(c, leading_c, stride_c, type_c, 0),
            batch,
        };
        gemm.submit(handle)
    })
}
