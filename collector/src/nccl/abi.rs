//! The NCCL profiler plugin's C interface, versions 5 to 7 (NCCL 2.28 to 2.32, `plugins/profiler`).
//!
//! The events that are read here begin alike in all three versions; version 7 appends to them.

use std::ffi::{c_char, c_int, c_void};

pub(super) const COLL: u64 = 1 << 1;
pub(super) const P2P: u64 = 1 << 2;
pub(super) const KERNEL_LAUNCH: u64 = 1 << 11;

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Coll {
    pub(super) sequence: u64,
    pub(super) function: *const c_char,
    pub(super) send: *const c_void,
    pub(super) receive: *mut c_void,
    pub(super) count: usize,
    pub(super) root: c_int,
    pub(super) datatype: *const c_char,
    pub(super) channels: u8,
    pub(super) warps: u8,
    pub(super) algorithm: *const c_char,
    pub(super) protocol: *const c_char,
    pub(super) parent_group: *mut c_void,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct P2p {
    pub(super) function: *const c_char,
    pub(super) buffer: *mut c_void,
    pub(super) datatype: *const c_char,
    pub(super) count: usize,
    pub(super) peer: c_int,
    pub(super) channels: u8,
    pub(super) parent_group: *mut c_void,
}

#[repr(C)]
pub(super) union Details {
    pub(super) coll: Coll,
    pub(super) p2p: P2p,
}

/// ncclProfilerEventDescr_v5_t and later.
#[repr(C)]
pub struct Descriptor {
    pub(super) kind: u64,
    pub(super) parent: *mut c_void,
    pub(super) rank: c_int,
    pub(super) details: Details,
}

/// ncclDebugLogger_t; never called here.
pub(super) type Logger = Option<unsafe extern "C" fn()>;

/// ncclProfiler_v5_t, _v6_t and _v7_t.
#[repr(C)]
pub struct Plugin {
    pub(super) name: *const c_char,
    pub(super) init: unsafe extern "C" fn(
        *mut *mut c_void,
        u64,
        *mut c_int,
        *const c_char,
        c_int,
        c_int,
        c_int,
        Logger,
    ) -> c_int,
    pub(super) start: unsafe extern "C" fn(*mut c_void, *mut *mut c_void, *mut Descriptor) -> c_int,
    pub(super) stop: unsafe extern "C" fn(*mut c_void) -> c_int,
    pub(super) state: unsafe extern "C" fn(*mut c_void, c_int, *mut c_void) -> c_int,
    pub(super) finalize: unsafe extern "C" fn(*mut c_void) -> c_int,
}

// SAFETY: constant data; the functions may be called from any thread.
unsafe impl Sync for Plugin {}

const _: () = {
    use std::mem::offset_of;
    assert!(
        size_of::<Descriptor>() == 112 && offset_of!(Descriptor, details) == 24 && size_of::<Plugin>() == 48
    );
    assert!(
        offset_of!(Coll, datatype) == 48
            && offset_of!(Coll, channels) == 56
            && offset_of!(Coll, algorithm) == 64
    );
    assert!(
        offset_of!(Coll, parent_group) == 80
            && offset_of!(P2p, peer) == 32
            && offset_of!(P2p, parent_group) == 40
    );
};
