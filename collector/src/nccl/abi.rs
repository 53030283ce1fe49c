//! The NCCL profiler plugin's C interface, versions 4 to 7 (NCCL 2.27 to 2.32, `plugins/profiler`).
//!
//! All versions' descriptors begin alike: the kind (one byte in version 4), the parent at byte 8, the rank at 16 and the
//! event at 24. Later versions append to events: what comes after a version's own is not read.

use std::ffi::{c_char, c_int, c_void};

pub(super) const GROUP: u64 = 1 << 0;
pub(super) const COLL: u64 = 1 << 1;
pub(super) const P2P: u64 = 1 << 2;
pub(super) const PROXY_OP: u64 = 1 << 3;
pub(super) const PROXY_STEP: u64 = 1 << 4;
pub(super) const KERNEL_CHANNEL: u64 = 1 << 6;
pub(super) const GROUP_API: u64 = 1 << 8;
pub(super) const COLL_API: u64 = 1 << 9;
pub(super) const P2P_API: u64 = 1 << 10;
pub(super) const KERNEL_LAUNCH: u64 = 1 << 11;
/// Since version 6.
pub(super) const CE_COLL: u64 = 1 << 12;
/// Since version 7.
pub(super) const KERNEL_PHASE: u64 = 1 << 15;

/// States that carry something: bytes of a proxy's step, and the device's time at a channel's or phase's end.
pub(super) const SEND_WAIT: c_int = 9;
pub(super) const RECEIVE_WAIT: c_int = 10;
pub(super) const RECEIVE_FLUSH_WAIT: c_int = 11;
pub(super) const KERNEL_CHANNEL_STOP: c_int = 22;
pub(super) const KERNEL_PHASE_STOP: c_int = 31;

#[repr(C)]
pub(super) struct CollApi {
    pub(super) function: *const c_char,
    pub(super) count: usize,
    pub(super) datatype: *const c_char,
    pub(super) root: c_int,
    pub(super) stream: *mut c_void,
    /// C's bools are bytes here: one that is neither 0 nor 1 must not become a Rust one.
    pub(super) graph_captured: u8,
    /// Since version 7.
    pub(super) user_tag: u64,
}

#[repr(C)]
pub(super) struct P2pApi {
    pub(super) function: *const c_char,
    pub(super) count: usize,
    pub(super) datatype: *const c_char,
    pub(super) stream: *mut c_void,
    pub(super) graph_captured: u8,
    /// Since version 7.
    pub(super) user_tag: u64,
}

#[repr(C)]
pub(super) struct KernelLaunch {
    pub(super) stream: *mut c_void,
}

#[repr(C)]
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
    /// Since version 5.
    pub(super) parent_group: *mut c_void,
    /// From here on since version 7.
    pub(super) kernel_variant: *const c_char,
    pub(super) is_symmetric: u8,
    pub(super) user_tag: u64,
}

#[repr(C)]
pub(super) struct P2p {
    pub(super) function: *const c_char,
    pub(super) buffer: *mut c_void,
    pub(super) datatype: *const c_char,
    pub(super) count: usize,
    pub(super) peer: c_int,
    pub(super) channels: u8,
    /// Since version 5.
    pub(super) parent_group: *mut c_void,
    /// Since version 7.
    pub(super) user_tag: u64,
}

#[repr(C)]
pub(super) struct ProxyOp {
    pub(super) pid: libc::pid_t,
    pub(super) channel: u8,
    pub(super) peer: c_int,
    pub(super) steps: c_int,
    pub(super) chunk_bytes: c_int,
    pub(super) is_send: c_int,
}

#[repr(C)]
pub(super) struct ProxyStep {
    pub(super) step: c_int,
}

#[repr(C)]
pub(super) struct KernelChannel {
    pub(super) channel: u8,
    pub(super) timer: u64,
}

/// Since version 6.
#[repr(C)]
pub(super) struct CeColl {
    pub(super) sequence: u64,
    pub(super) function: *const c_char,
    pub(super) send: *const c_void,
    pub(super) receive: *mut c_void,
    pub(super) count: usize,
    pub(super) root: c_int,
    pub(super) datatype: *const c_char,
    pub(super) sync_strategy: *const c_char,
    pub(super) intra_batch_sync: u8,
    pub(super) batch_size: u32,
    pub(super) batches: u32,
    pub(super) ce_sequence: u32,
    pub(super) stream: *mut c_void,
    /// Since version 7.
    pub(super) user_tag: u64,
}

/// Since version 7.
#[repr(C)]
pub(super) struct KernelPhase {
    pub(super) channel: u8,
    pub(super) phase: u8,
    pub(super) name: *const c_char,
    pub(super) timer: u64,
}

/// How ncclProfilerEventDescr_v4_t to _v7_t begin. The event follows.
#[repr(C)]
pub struct Descriptor {
    /// The first byte alone in version 4.
    pub(super) kind: u64,
    pub(super) parent: *mut c_void,
    pub(super) rank: c_int,
}

/// ncclDebugLogger_t; never called here.
pub(super) type Logger = Option<unsafe extern "C" fn()>;

/// `init` of version 5 and later: context, communicator's hash, mask, name, nodes, ranks, rank.
pub(super) type Init = unsafe extern "C" fn(
    *mut *mut c_void,
    u64,
    *mut c_int,
    *const c_char,
    c_int,
    c_int,
    c_int,
    Logger,
) -> c_int;
/// `init` of version 4: context, mask, name, communicator's hash, nodes, ranks, rank.
pub(super) type Init4 = unsafe extern "C" fn(
    *mut *mut c_void,
    *mut c_int,
    *const c_char,
    u64,
    c_int,
    c_int,
    c_int,
    Logger,
) -> c_int;

/// ncclProfiler_v4_t (with [`Init4`]), and ncclProfiler_v5_t to _v7_t.
#[repr(C)]
pub struct Plugin<I> {
    pub(super) name: *const c_char,
    pub(super) init: I,
    pub(super) start: unsafe extern "C" fn(*mut c_void, *mut *mut c_void, *mut Descriptor) -> c_int,
    pub(super) stop: unsafe extern "C" fn(*mut c_void) -> c_int,
    pub(super) state: unsafe extern "C" fn(*mut c_void, c_int, *mut c_void) -> c_int,
    pub(super) finalize: unsafe extern "C" fn(*mut c_void) -> c_int,
}

// SAFETY: constant data; the functions may be called from any thread.
unsafe impl<I> Sync for Plugin<I> {}

/// Where the event begins in a descriptor.
pub(super) const EVENT_OFFSET: usize = 24;

const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<Descriptor>() == EVENT_OFFSET && size_of::<Plugin<Init>>() == 48);
    assert!(offset_of!(Descriptor, parent) == 8 && offset_of!(Descriptor, rank) == 16);
    assert!(offset_of!(CollApi, user_tag) == 48 && offset_of!(P2pApi, user_tag) == 40);
    assert!(offset_of!(Coll, datatype) == 48 && offset_of!(Coll, channels) == 56);
    assert!(offset_of!(Coll, algorithm) == 64 && offset_of!(Coll, parent_group) == 80);
    assert!(offset_of!(Coll, kernel_variant) == 88 && offset_of!(Coll, is_symmetric) == 96);
    assert!(offset_of!(Coll, user_tag) == 104 && size_of::<Coll>() == 112);
    assert!(offset_of!(P2p, peer) == 32 && offset_of!(P2p, parent_group) == 40);
    assert!(offset_of!(P2p, user_tag) == 48 && size_of::<P2p>() == 56);
    assert!(size_of::<ProxyOp>() == 24 && size_of::<KernelChannel>() == 16);
    assert!(offset_of!(CeColl, sync_strategy) == 56 && offset_of!(CeColl, ce_sequence) == 76);
    assert!(offset_of!(CeColl, stream) == 80 && offset_of!(CeColl, user_tag) == 88);
    assert!(size_of::<KernelPhase>() == 24 && offset_of!(KernelPhase, timer) == 16);
};
