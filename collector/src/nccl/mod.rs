//! NCCL: what it enqueues, and in which kernel launch, by its profiler plugin and by the NVTX ranges of its calls.
//!
//! NCCL calls on the program's threads, between the program's call and its return: nothing here blocks, calls CUDA or
//! grows without bound. Handles are numbers, so that a stop that comes late or twice means nothing.
//!
//! The join to kernels: while NCCL launches a kernel, the thread's launches carry a number of ours (the *plan*) in
//! CUPTI's external correlation; the operations that NCCL tells of right after belong to the same plan. Around that the
//! whole group of calls has a number too, for kernels that are launched without being told of.

mod abi;
mod calls;
mod contexts;
mod events;
mod raw;
mod records;

use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering};

use abi::{Init, Init4, Logger, Plugin};
use gputrace_trace::options::Kind;

pub(crate) use calls::{PayloadData, call_begins, call_ends, group_range, is_nccl, learn_domain};
pub(crate) use contexts::set_recording;
pub(crate) use records::{Api, Call, Communicator, Detail, DetailKind, Operation, Source};

use crate::host_events::{Lost, Text, with_thread};
use crate::{config, cost, session};

/// CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM2: 0 and 1 are PyTorch's.
const CORRELATION_KIND: u32 = 5;
/// ncclSuccess: whatever happens here, NCCL goes on.
const SUCCESS: c_int = 0;

/// Numbers of plans and groups: one series, since both go to CUPTI as external correlation ids.
static NEXT_PLAN: AtomicU64 = AtomicU64::new(1);

fn next_plan() -> u64 {
    NEXT_PLAN.fetch_add(1, Ordering::Relaxed)
}

/// What a thread is doing in NCCL.
#[derive(Default)]
pub(crate) struct State {
    /// The plan of the kernel that is being launched; 0 outside.
    launching: u64,
    /// The plan of the last kernel launch, until its operations have been told.
    plan: u64,
    /// The stream of that launch.
    stream: u64,
    /// Whether a kernel was launched on this thread since the group began.
    launched: bool,
    /// The group of calls that is open, whose number CUPTI has; 0 outside.
    group: u64,
    /// Whether calls of that group are captured into a CUDA graph.
    captured: bool,
    /// What the user calls, by NVTX.
    calls: calls::State,
}

/// Whether what happens within operations is recorded.
pub(crate) fn records_details() -> bool {
    let options = &config::get().options;
    options.records(Kind::Proxy) || options.records(Kind::Channels)
}

/// The events that are asked of NCCL.
fn mask(version: u32) -> u64 {
    // Who is in which communicator, and so the rank, is told in any case.
    if !config::is_wanted() {
        return 0;
    }
    let options = &config::get().options;
    let mut mask = 0;
    if options.records(Kind::Collectives) {
        mask |= abi::COLL | abi::P2P | abi::KERNEL_LAUNCH;
        if version >= 6 {
            mask |= abi::CE_COLL;
        }
    }
    if options.records(Kind::Proxy) {
        mask |= abi::PROXY_OP | abi::PROXY_STEP;
    }
    if options.records(Kind::Channels) {
        mask |= abi::KERNEL_CHANNEL;
        if version >= 7 {
            mask |= abi::KERNEL_PHASE;
        }
    }
    if version < 5 {
        // Version 4 knows kinds up to bit 7.
        mask &= 0xff;
    }
    mask
}

/// The plan of the kernel that NCCL is launching on this thread right now: what a CUDA graph node that is made meanwhile
/// belongs to.
pub(crate) fn launching_plan() -> Option<u64> {
    with_thread(Lost::Operations, |thread| thread.nccl.launching).filter(|&plan| plan != 0)
}

/// From here on this thread's launches carry the number.
fn push_id(id: u64) {
    if let Some(cupti) = session::cupti() {
        cupti.push_id(CORRELATION_KIND, id);
    }
}

fn pop_id() {
    if let Some(cupti) = session::cupti() {
        cupti.pop_id(CORRELATION_KIND);
    }
}

/// Bytes of one element of a data type by NCCL's name for it; 0 for one that is not known.
pub(crate) fn datatype_bytes(name: &str) -> u64 {
    match name {
        "ncclInt8" | "ncclUint8" | "ncclFloat8e4m3" | "ncclFloat8e5m2" => 1,
        "ncclFloat16" | "ncclBfloat16" => 2,
        "ncclInt32" | "ncclUint32" | "ncclFloat32" => 4,
        "ncclInt64" | "ncclUint64" | "ncclFloat64" => 8,
        _ => 0,
    }
}

/// NCCL's names are static, zero-terminated texts, or null.
fn text(text: *const c_char) -> Text<'static> {
    // SAFETY: as above.
    unsafe { Text::from_c(text) }
}

fn guarded(body: impl FnOnce()) -> c_int {
    let _measured = cost::enter(cost::Callback::Nccl);
    if !session::is_dead() {
        // What goes wrong here costs a row, never the program's collective.
        drop(std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)));
    }
    SUCCESS
}

macro_rules! init {
    ($name:ident, $version:literal) => {
        unsafe extern "C" fn $name(
            context: *mut *mut c_void,
            id: u64,
            mask: *mut c_int,
            name: *const c_char,
            nodes: c_int,
            ranks: c_int,
            rank: c_int,
            _: Logger,
        ) -> c_int {
            guarded(|| contexts::begin(context, id, mask, name, [nodes, ranks, rank], $version))
        }
    };
}
init!(init_5, 5);
init!(init_6, 6);
init!(init_7, 7);

unsafe extern "C" fn init_4(
    context: *mut *mut c_void,
    mask: *mut c_int,
    name: *const c_char,
    id: u64,
    nodes: c_int,
    ranks: c_int,
    rank: c_int,
    _: Logger,
) -> c_int {
    guarded(|| contexts::begin(context, id, mask, name, [nodes, ranks, rank], 4))
}

const NAME: *const c_char = c"gputrace".as_ptr();

const fn plugin<I>(init: I) -> Plugin<I> {
    Plugin {
        name: NAME,
        init,
        start: events::start,
        stop: events::stop,
        state: events::state,
        finalize: events::finalize,
    }
}

/// Version 4: NCCL 2.27.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)] // NCCL's name.
pub static ncclProfiler_v4: Plugin<Init4> = plugin(init_4 as Init4);

/// Version 5: NCCL 2.28.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static ncclProfiler_v5: Plugin<Init> = plugin(init_5 as Init);

/// Version 6: NCCL 2.29 and 2.30.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static ncclProfiler_v6: Plugin<Init> = plugin(init_6 as Init);

/// Version 7: from NCCL 2.31.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static ncclProfiler_v7: Plugin<Init> = plugin(init_7 as Init);

#[cfg(test)]
mod tests;
