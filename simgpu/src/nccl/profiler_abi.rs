//! The NCCL profiler plugin's C interface, versions 4 to 7 (NCCL 2.27 to 2.32, `plugins/profiler`).

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
/// Since version 7.
pub(super) const KERNEL_PHASE: u64 = 1 << 15;

/// ncclProfilerGroupStartApiStop and ncclProfilerGroupEndApiStart.
pub(super) const GROUP_START_API_STOP: c_int = 23;
pub(super) const GROUP_END_API_START: c_int = 24;
/// States of a proxy's operation, of its steps (sending and receiving), and of kernels.
pub(super) const PROXY_OP_IN_PROGRESS: c_int = 19;
pub(super) const SEND_GPU_WAIT: c_int = 8;
pub(super) const SEND_PEER_WAIT: c_int = 20;
pub(super) const SEND_WAIT: c_int = 9;
pub(super) const RECEIVE_WAIT: c_int = 10;
pub(super) const RECEIVE_FLUSH_WAIT: c_int = 11;
pub(super) const RECEIVE_GPU_WAIT: c_int = 12;
pub(super) const KERNEL_CHANNEL_STOP: c_int = 22;
pub(super) const KERNEL_PHASE_STOP: c_int = 31;

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
pub(super) struct ProxyOp {
    pub(super) pid: libc::pid_t,
    pub(super) channel: u8,
    pub(super) peer: c_int,
    pub(super) steps: c_int,
    pub(super) chunk_bytes: c_int,
    pub(super) is_send: c_int,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct ProxyStep {
    pub(super) step: c_int,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct KernelChannel {
    pub(super) channel: u8,
    pub(super) timer: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct KernelPhase {
    pub(super) channel: u8,
    pub(super) phase: u8,
    pub(super) name: *const c_char,
    pub(super) timer: u64,
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
    pub(super) proxy_op: ProxyOp,
    pub(super) proxy_step: ProxyStep,
    pub(super) kernel_channel: KernelChannel,
    pub(super) kernel_phase: KernelPhase,
    pub(super) bytes: [u64; 14],
}

/// ncclProfilerEventDescr_v7_t. Those of versions 5 and 6 end earlier (112 bytes), and so does version 4's (104), of
/// whose kind only the first byte counts; what is there is the same.
#[repr(C)]
pub(super) struct Descriptor {
    pub(super) kind: u64,
    pub(super) parent: *mut c_void,
    pub(super) rank: c_int,
    pub(super) details: Details,
}

/// `init` of version 5 and later.
pub(super) type Init = unsafe extern "C" fn(
    *mut *mut c_void,
    u64,
    *mut c_int,
    *const c_char,
    c_int,
    c_int,
    c_int,
    Option<unsafe extern "C" fn()>,
) -> c_int;

/// `init` of version 4.
pub(super) type Init4 = unsafe extern "C" fn(
    *mut *mut c_void,
    *mut c_int,
    *const c_char,
    u64,
    c_int,
    c_int,
    c_int,
    Option<unsafe extern "C" fn()>,
) -> c_int;

/// The first function of a plugin's table.
#[derive(Clone, Copy)]
pub(super) union AnyInit {
    pub(super) since_5: Init,
    pub(super) of_4: Init4,
}

/// ncclProfiler_v4_t to _v7_t: the same functions, but for the order of the first one's arguments.
#[repr(C)]
pub(super) struct Plugin {
    pub(super) name: *const c_char,
    pub(super) init: AnyInit,
    pub(super) start: unsafe extern "C" fn(*mut c_void, *mut *mut c_void, *mut Descriptor) -> c_int,
    pub(super) stop: unsafe extern "C" fn(*mut c_void) -> c_int,
    pub(super) state: unsafe extern "C" fn(*mut c_void, c_int, *mut c_void) -> c_int,
    pub(super) finalize: unsafe extern "C" fn(*mut c_void) -> c_int,
}

const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<Descriptor>() == 136 && offset_of!(Descriptor, details) == 24);
    assert!(size_of::<Plugin>() == 48);
    assert!(size_of::<ProxyOp>() == 24 && size_of::<KernelChannel>() == 16 && size_of::<KernelPhase>() == 24);
    assert!(offset_of!(CollApi, user_tag) == 48 && size_of::<Coll>() == 112);
    assert!(offset_of!(Coll, parent_group) == 80 && offset_of!(Coll, kernel_variant) == 88);
    assert!(offset_of!(P2pApi, user_tag) == 40 && offset_of!(P2p, peer) == 32);
    assert!(offset_of!(P2p, channels) == 36 && offset_of!(P2p, parent_group) == 40);
    assert!(offset_of!(P2p, user_tag) == 48);
    assert!(offset_of!(Coll, is_symmetric) == 96 && offset_of!(Coll, user_tag) == 104);
};

// SAFETY: a plugin's table is constant data; its functions may be called from any thread by NCCL's contract.
unsafe impl Sync for Plugin {}
