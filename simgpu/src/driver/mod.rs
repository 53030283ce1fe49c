//! The CUDA driver's C interface (cuda.h 13.4), as far as programs on it need.
//!
//! Handles are numbers in books of ours, never addresses, so that a wrong one is an error and not a crash.

mod context;
pub(crate) mod entry;
pub(crate) mod graph;
mod launch;
mod memory;
mod module;
mod peers;
mod pools;
mod profiler;
mod queries;
mod stream;

pub(crate) use context::{Context, context_from_handle, current_context, has_context, with_device};
pub(crate) use launch::{LaunchConfig, launch_of_library, launched_symbol};
pub(crate) use stream::{order_with_default, stream_from_handle};

/// CUresult values (cuda.h).
pub(crate) mod error {
    pub(crate) const SUCCESS: u32 = 0;
    pub(crate) const INVALID_VALUE: u32 = 1;
    pub(crate) const OUT_OF_MEMORY: u32 = 2;
    pub(crate) const NOT_INITIALIZED: u32 = 3;
    pub(crate) const INVALID_DEVICE: u32 = 101;
    pub(crate) const INVALID_IMAGE: u32 = 200;
    pub(crate) const INVALID_CONTEXT: u32 = 201;
    pub(crate) const PEER_ACCESS_UNSUPPORTED: u32 = 217;
    pub(crate) const INVALID_HANDLE: u32 = 400;
    pub(crate) const ILLEGAL_STATE: u32 = 401;
    pub(crate) const NOT_FOUND: u32 = 500;
    pub(crate) const NOT_READY: u32 = 600;
    pub(crate) const ILLEGAL_ADDRESS: u32 = 700;
    pub(crate) const PEER_ACCESS_ALREADY_ENABLED: u32 = 704;
    pub(crate) const PEER_ACCESS_NOT_ENABLED: u32 = 705;
    pub(crate) const NOT_SUPPORTED: u32 = 801;
    pub(crate) const STREAM_CAPTURE_UNSUPPORTED: u32 = 900;
    pub(crate) const STREAM_CAPTURE_INVALIDATED: u32 = 901;
    pub(crate) const STREAM_CAPTURE_MERGE: u32 = 902;
    pub(crate) const STREAM_CAPTURE_UNMATCHED: u32 = 903;
    pub(crate) const STREAM_CAPTURE_UNJOINED: u32 = 904;
    pub(crate) const STREAM_CAPTURE_ISOLATION: u32 = 905;
    pub(crate) const CAPTURED_EVENT: u32 = 907;
    pub(crate) const UNKNOWN: u32 = 999;
}

/// Numbers for handles: never 0, never small, never twice.
pub(crate) fn next_handle() -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(0x5151_0000);
    NEXT.fetch_add(16, Ordering::Relaxed)
}
