//! Access of one GPU to another's memory.

use cudarc::driver::{CudaContext, sys};

use crate::error::Error;

/// Lets kernels and copies of `from` reach `to`'s memory; whether that is possible here.
pub(crate) fn enable_peer_access(from: &CudaContext, to: &CudaContext) -> Result<bool, Error> {
    let mut can = 0;
    // SAFETY: devices that are open, and a place for the answer.
    unsafe { sys::cuDeviceCanAccessPeer(&raw mut can, from.cu_device(), to.cu_device()) }.result()?;
    if can == 0 {
        return Ok(false);
    }
    from.bind_to_thread()?;
    // SAFETY: the current context gets access to another that is open.
    let enabled = unsafe { sys::cuCtxEnablePeerAccess(to.cu_ctx(), 0) };
    match enabled {
        sys::CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED => Ok(true),
        // Possible, but no more peers at this time, say: then it is staged.
        sys::CUresult::CUDA_ERROR_PEER_ACCESS_UNSUPPORTED | sys::CUresult::CUDA_ERROR_TOO_MANY_PEERS => {
            Ok(false)
        }
        other => Ok(other.result().map(|()| true)?),
    }
}
