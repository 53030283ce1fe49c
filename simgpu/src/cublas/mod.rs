//! cuBLAS's C interface (cublas_api.h), as far as dense networks need it: handles here, products in `gemm`.

mod gemm;

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::{Mutex, PoisonError};

use crate::driver::{self, entry, next_handle};
use crate::edge;

/// cublasStatus_t values.
const SUCCESS: c_int = 0;
const NOT_INITIALIZED: c_int = 1;
const INVALID_VALUE: c_int = 7;
const EXECUTION_FAILED: c_int = 13;
const INTERNAL_ERROR: c_int = 14;
const NOT_SUPPORTED: c_int = 15;

/// The stream of each handle.
static HANDLES: Mutex<BTreeMap<u64, u64>> = Mutex::new(BTreeMap::new());

fn handles() -> std::sync::MutexGuard<'static, BTreeMap<u64, u64>> {
    HANDLES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs an entry point's body without letting a panic into C.
fn guarded(body: impl FnOnce() -> Result<(), c_int>) -> c_int {
    match edge::guarded(body) {
        Some(Ok(())) => SUCCESS,
        Some(Err(status)) => status,
        None => INTERNAL_ERROR,
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
        NOT_SUPPORTED => c"CUBLAS_STATUS_NOT_SUPPORTED",
        _ => c"<unknown>",
    };
    name.as_ptr()
}

/// cublasGetStatusString.
#[unsafe(no_mangle)]
pub extern "C" fn cublasGetStatusString(status: c_int) -> *const c_char {
    cublasGetStatusName(status)
}
