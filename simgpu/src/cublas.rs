//! cuBLAS's C interface (cublas_api.h), as far as dense f32 networks need it. Column-major, as cuBLAS is.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::panic::catch_unwind;
use std::sync::{Mutex, PoisonError};

use cudarc::cupti::sys::CUpti_driver_api_trace_cbid_enum as Callback;

use crate::device::{OpKind, Submission, model};
use crate::driver::{self, entry, error, next_handle, stream_from_handle};
use crate::kernels::{Floats, Matrix, gemm};

/// cublasStatus_t values.
const SUCCESS: c_int = 0;
const NOT_INITIALIZED: c_int = 1;
const INVALID_VALUE: c_int = 7;
const EXECUTION_FAILED: c_int = 13;
const INTERNAL_ERROR: c_int = 14;

/// The stream of each handle.
static HANDLES: Mutex<BTreeMap<u64, u64>> = Mutex::new(BTreeMap::new());

fn handles() -> std::sync::MutexGuard<'static, BTreeMap<u64, u64>> {
    HANDLES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs an entry point's body without letting a panic into C.
fn guarded(body: impl FnOnce() -> Result<(), c_int> + std::panic::UnwindSafe) -> c_int {
    match catch_unwind(body) {
        Ok(Ok(())) => SUCCESS,
        Ok(Err(status)) => status,
        Err(_) => INTERNAL_ERROR,
    }
}

/// cublasCreate_v2.
#[unsafe(no_mangle)]
pub extern "C" fn cublasCreate_v2(handle: *mut u64) -> c_int {
    guarded(|| {
        driver::current_context().map_err(|_| NOT_INITIALIZED)?;
        let new = next_handle();
        entry::put(handle, new).map_err(|_| INVALID_VALUE)?;
        handles().insert(new, 0);
        Ok(())
    })
}

/// cublasDestroy_v2.
#[unsafe(no_mangle)]
pub extern "C" fn cublasDestroy_v2(handle: u64) -> c_int {
    guarded(|| handles().remove(&handle).map(|_| ()).ok_or(NOT_INITIALIZED))
}

/// cublasSetStream_v2.
#[unsafe(no_mangle)]
pub extern "C" fn cublasSetStream_v2(handle: u64, stream: u64) -> c_int {
    guarded(|| {
        *handles().get_mut(&handle).ok_or(NOT_INITIALIZED)? = stream;
        Ok(())
    })
}

/// cublasGetVersion_v2.
#[unsafe(no_mangle)]
pub extern "C" fn cublasGetVersion_v2(_handle: u64, version: *mut c_int) -> c_int {
    guarded(|| entry::put(version, 130_400).map_err(|_| INVALID_VALUE))
}

/// cublasSetMathMode: everything is computed in f32.
#[unsafe(no_mangle)]
pub extern "C" fn cublasSetMathMode(handle: u64, _mode: c_uint) -> c_int {
    guarded(|| handles().get(&handle).map(|_| ()).ok_or(NOT_INITIALIZED))
}

/// cublasSetPointerMode_v2: only scalars on the host (0) are supported.
#[unsafe(no_mangle)]
pub extern "C" fn cublasSetPointerMode_v2(handle: u64, mode: c_uint) -> c_int {
    guarded(|| {
        handles().get(&handle).ok_or(NOT_INITIALIZED)?;
        if mode == 0 { Ok(()) } else { Err(INVALID_VALUE) }
    })
}

/// cublasSetWorkspace_v2: none is needed.
#[unsafe(no_mangle)]
pub extern "C" fn cublasSetWorkspace_v2(handle: u64, _workspace: *mut c_void, _bytes: usize) -> c_int {
    guarded(|| handles().get(&handle).map(|_| ()).ok_or(NOT_INITIALIZED))
}

/// cublasGetStatusName.
#[unsafe(no_mangle)]
pub extern "C" fn cublasGetStatusName(status: c_int) -> *const c_char {
    let name: &CStr = match status {
        SUCCESS => c"CUBLAS_STATUS_SUCCESS",
        NOT_INITIALIZED => c"CUBLAS_STATUS_NOT_INITIALIZED",
        INVALID_VALUE => c"CUBLAS_STATUS_INVALID_VALUE",
        EXECUTION_FAILED => c"CUBLAS_STATUS_EXECUTION_FAILED",
        INTERNAL_ERROR => c"CUBLAS_STATUS_INTERNAL_ERROR",
        _ => c"<unknown>",
    };
    name.as_ptr()
}

/// cublasGetStatusString.
#[unsafe(no_mangle)]
pub extern "C" fn cublasGetStatusString(status: c_int) -> *const c_char {
    cublasGetStatusName(status)
}

/// A column-major operand of `rows` x `columns` after the operation (0 none, 1 transposed).
fn operand(
    address: u64,
    rows: usize,
    columns: usize,
    leading: usize,
    operation: c_uint,
) -> Result<Matrix, c_int> {
    let (stored_rows, stored_columns) = if operation == 0 {
        (rows, columns)
    } else {
        (columns, rows)
    };
    if leading < stored_rows.max(1) || operation > 1 {
        return Err(INVALID_VALUE);
    }
    let count = if stored_columns == 0 {
        0
    } else {
        leading * (stored_columns - 1) + stored_rows
    };
    let values = Floats::new(address, count).map_err(|_| EXECUTION_FAILED)?;
    let leading = leading.cast_signed();
    let (row_stride, column_stride) = if operation == 0 {
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
    guarded(|| {
        let stream = *handles().get(&handle).ok_or(NOT_INITIALIZED)?;
        let size = |value: c_int| usize::try_from(value).map_err(|_| INVALID_VALUE);
        let (m, n, k) = (size(m)?, size(n)?, size(k)?);
        if alpha.is_null() || beta.is_null() {
            return Err(INVALID_VALUE);
        }
        // SAFETY: not null, and in host pointer mode the caller passes host addresses of one f32 each.
        let (alpha, beta) = unsafe { (alpha.read_unaligned(), beta.read_unaligned()) };
        let left = operand(a, m, k, size(leading_a)?, operation_a)?;
        let right = operand(b, k, n, size(leading_b)?, operation_b)?;
        let result = operand(c, m, n, size(leading_c)?, 0)?;
        if m == 0 || n == 0 {
            return Ok(());
        }
        let name = match (operation_a, operation_b) {
            (0, 0) => c"simulated_sgemm_128x128_nn",
            (0, _) => c"simulated_sgemm_128x128_nt",
            (_, 0) => c"simulated_sgemm_128x128_tn",
            _ => c"simulated_sgemm_128x128_tt",
        };
        let code = entry::enter(
            Callback::CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel as u32,
            c"cuLaunchKernel",
            |call| {
                let stream = stream_from_handle(stream)?;
                let kind = OpKind::Kernel {
                    name,
                    grid: [m.div_ceil(128) as u32, n.div_ceil(128) as u32, 1],
                    block: [256, 1, 1],
                    registers: 122,
                    dynamic_shared_bytes: 32 << 10,
                };
                let work = Box::new(move |start_ns: i64| {
                    gemm([m, n, k], alpha, left, right, beta, result);
                    start_ns + model::gemm_ns(m, n, k)
                });
                stream.submit(Submission {
                    correlation: call.correlation,
                    kind,
                    work,
                });
                Ok(())
            },
        );
        if code == error::SUCCESS {
            Ok(())
        } else {
            Err(EXECUTION_FAILED)
        }
    })
}
