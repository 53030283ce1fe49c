//! The NCCL profiler plugin's C interface, versions 5 to 7 (NCCL 2.28 to 2.32, `plugins/profiler`).

use std::ffi::{c_char, c_int, c_void};

pub(super) const GROUP: u64 = 1 << 0;
pub(super) const COLL: u64 = 1 << 1;
pub(super) const P2P: u64 = 1 << 2;
pub(super) const GROUP_API: u64 = 1 << 8;
pub(super) const COLL_API: u64 = 1 << 9;
pub(super) const P2P_API: u64 = 1 << 10;
pub(super) const KERNEL_LAUNCH: u64 = 1 << 11;

/// ncclProfilerGroupStartApiStop and ncclProfilerGroupEndApiStart.
pub(super) const GROUP_START_API_STOP: c_int = 23;
pub(super) const GROUP_END_API_START: c_int = 24;

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct GroupApi {
    pub(super) graph_captured: bool,
    pub(super) group_depth: c_int,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct CollApi {
    pub(super) function: *const c_char,
    pub(super) count: usize,
    pub(super) datatype: *const c_char,
    pub(super) root: c_int,
    pub(super) stream: *mut c_void,
    pub(super) graph_captured: bool,
    /// Since version 7.
    pub(super) user_tag: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct P2pApi {
    pub(super) function: *const c_char,
    pub(super) count: usize,
    pub(super) datatype: *const c_char,
    pub(super) stream: *mut c_void,
    pub(super) graph_captured: bool,
    /// Since version 7.
    pub(super) user_tag: u64,
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
    /// Since version 7.
    pub(super) user_tag: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct KernelLaunch {
    pub(super) stream: *mut c_void,
}

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
    /// From here on since version 7.
    pub(super) kernel_variant: *const c_char,
    pub(super) is_symmetric: bool,
    pub(super) user_tag: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) union Details {
    pub(super) group_api: GroupApi,
    pub(super) coll_api: CollApi,
    pub(super) kernel_launch: KernelLaunch,
    pub(super) coll: Coll,
    pub(super) p2p_api: P2pApi,
    pub(super) p2p: P2p,
    pub(super) bytes: [u64; 14],
}

/// ncclProfilerEventDescr_v7_t. Those of versions 5 and 6 end earlier (112 bytes) and are otherwise the same.
#[repr(C)]
pub(super) struct Descriptor {
    pub(super) kind: u64,
    pub(super) parent: *mut c_void,
    pub(super) rank: c_int,
    pub(super) details: Details,
}

type Init = unsafe extern "C" fn(
    *mut *mut c_void,
    u64,
    *mut c_int,
    *const c_char,
    c_int,
    c_int,
    c_int,
    Option<unsafe extern "C" fn()>,
) -> c_int;

/// ncclProfiler_v5_t to _v7_t: the same functions.
#[repr(C)]
pub(super) struct Plugin {
    pub(super) name: *const c_char,
    pub(super) init: Init,
    pub(super) start: unsafe extern "C" fn(*mut c_void, *mut *mut c_void, *mut Descriptor) -> c_int,
    pub(super) stop: unsafe extern "C" fn(*mut c_void) -> c_int,
    pub(super) state: unsafe extern "C" fn(*mut c_void, c_int, *mut c_void) -> c_int,
    pub(super) finalize: unsafe extern "C" fn(*mut c_void) -> c_int,
}

const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<Descriptor>() == 136 && offset_of!(Descriptor, details) == 24);
    assert!(size_of::<Plugin>() == 48);
    assert!(offset_of!(CollApi, user_tag) == 48 && size_of::<Coll>() == 112);
    assert!(offset_of!(Coll, parent_group) == 80 && offset_of!(Coll, kernel_variant) == 88);
    assert!(offset_of!(P2pApi, user_tag) == 40 && offset_of!(P2p, peer) == 32);
    assert!(offset_of!(P2p, channels) == 36 && offset_of!(P2p, parent_group) == 40);
    assert!(offset_of!(P2p, user_tag) == 48);
    assert!(offset_of!(Coll, is_symmetric) == 96 && offset_of!(Coll, user_tag) == 104);
};

// SAFETY: a plugin's table is constant data; its functions may be called from any thread by NCCL's contract.
unsafe impl Sync for Plugin {}
