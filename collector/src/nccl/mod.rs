//! NCCL: what it enqueues, and in which kernel launch, by its profiler plugin and by the NVTX ranges of its calls.
//!
//! NCCL calls on the program's threads, between the program's call and its return: nothing here blocks, calls CUDA or
//! grows without bound. Handles are numbers, so that a stop that comes late or twice means nothing.
//!
//! The join to kernels: while NCCL launches a kernel, the thread's launches carry a number of ours (the *plan*) in
//! CUPTI's external correlation; the operations that NCCL tells of right after belong to the same plan. Around that the
//! whole group of calls has a number too, for kernels that are launched without being told of.

mod abi;
mod asked;
mod calls;
mod context;
mod contexts;
mod entry;
mod events;
mod plans;
mod raw;
mod records;
mod state;
mod types;

use std::ffi::{c_char, c_int, c_void};

use abi::{Init, Init4, Logger, Plugin};

pub(crate) use asked::records_details;
pub(crate) use calls::{call_begins, call_ends, group_range, is_nccl, learn_domain};
pub(crate) use contexts::set_recording;
use entry::guarded;
pub(crate) use plans::launching_plan;
pub(crate) use records::{Api, Call, Communicator, Detail, DetailKind, Operation, Source};
pub(crate) use state::State;
pub(crate) use types::datatype_bytes;

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
