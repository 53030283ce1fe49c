//! A payload with a schema, as NVTX's callers hand it over.

use std::ffi::c_void;

/// nvtxPayloadData_t.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct PayloadData {
    pub(crate) schema: u64,
    pub(crate) bytes: usize,
    pub(crate) payload: *const c_void,
}
