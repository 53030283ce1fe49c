//! The NCCL profiler plugin: what NCCL enqueues, and in which kernel launch.
//!
//! NCCL calls on the program's threads, between the program's call and its return: nothing here blocks, calls CUDA or
//! grows without bound. Handles are numbers, so that a stop that comes late or twice means nothing.
//!
//! The join to kernels: while NCCL launches a kernel, the thread's launches carry a number of ours (the *plan*) in
//! CUPTI's external correlation; the operations that NCCL tells of right after belong to the same plan.

mod abi;
mod records;

use std::cell::Cell;
use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering};

use abi::{COLL, Descriptor, KERNEL_LAUNCH, Logger, P2P, Plugin};
use gputrace_trace::now;
use gputrace_trace::options::Kind;

pub(crate) use records::{Communicator, Operation};

use crate::host_events::{Lost, Text, record, with_thread};
use crate::{config, session};

/// CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM2: 0 and 1 are PyTorch's.
const CORRELATION_KIND: u32 = 5;
/// ncclSuccess: whatever happens here, NCCL goes on.
const SUCCESS: c_int = 0;
/// The handle of a kernel launch; that of everything else is 1.
const LAUNCH_HANDLE: usize = 2;

static NEXT_PLAN: AtomicU64 = AtomicU64::new(1);

thread_local! {
    /// The plan of the thread's last kernel launch; 0 before the first.
    static PLAN: Cell<u64> = const { Cell::new(0) };
}

/// One communicator; NCCL gets its address as the context. Never freed: NCCL may use it late, and there are few.
struct Context {
    communicator: u64,
    rank: u32,
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
    let _measured = crate::cost::enter(crate::cost::Callback::Nccl);
    if !session::is_dead() {
        // What goes wrong here costs a row, never the program's collective.
        drop(std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)));
    }
    SUCCESS
}

fn begin(
    context: *mut *mut c_void,
    id: u64,
    mask: *mut c_int,
    name: *const c_char,
    counts: [c_int; 3],
    version: u32,
) -> c_int {
    guarded(|| {
        let [nodes, ranks, rank] = counts.map(c_int::cast_unsigned);
        // SAFETY: NCCL passes valid places; the mask's stays valid, but is set just this once.
        unsafe {
            *context = std::ptr::from_mut(Box::leak(Box::new(Context {
                communicator: id,
                rank,
            })))
            .cast();
            // Who is in which communicator, and so the rank, is told in any case.
            *mask = if config::is_wanted() && config::get().options.records(Kind::Collectives) {
                (COLL | P2P | KERNEL_LAUNCH) as c_int
            } else {
                0
            };
        }
        let created_ns = now().0;
        with_thread(Lost::Operations, |thread| {
            let communicator = Communicator {
                created_ns,
                communicator: id,
                name: (!name.is_null()).then(|| thread.text(text(name))),
                rank,
                ranks,
                nodes,
                profiler_version: version,
            };
            thread.push(Lost::Operations, record::COMMUNICATOR, &communicator.fields());
        });
    })
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
            begin(context, id, mask, name, [nodes, ranks, rank], $version)
        }
    };
}
init!(init_5, 5);
init!(init_6, 6);
init!(init_7, 7);

/// Whether an operation has a root: for the others NCCL's field means nothing.
fn is_rooted(function: &[u8]) -> bool {
    matches!(function, b"Broadcast" | b"Reduce" | b"Gather" | b"Scatter")
}

unsafe extern "C" fn start(
    context: *mut c_void,
    handle: *mut *mut c_void,
    descriptor: *mut Descriptor,
) -> c_int {
    guarded(|| {
        // SAFETY: NCCL passes a valid place for the handle, the context that `begin` made, and a descriptor.
        let (context, descriptor) = unsafe {
            *handle = std::ptr::without_provenance_mut(1);
            match (context.cast::<Context>().as_ref(), descriptor.as_ref()) {
                (Some(context), Some(descriptor)) => (context, descriptor),
                _ => return,
            }
        };
        match descriptor.kind {
            KERNEL_LAUNCH => {
                // SAFETY: as above.
                unsafe { *handle = std::ptr::without_provenance_mut(LAUNCH_HANDLE) };
                let plan = NEXT_PLAN.fetch_add(1, Ordering::Relaxed);
                PLAN.set(plan);
                if let Some(cupti) = session::cupti() {
                    cupti.push_id(CORRELATION_KIND, plan);
                }
            }
            // SAFETY: the kind says which member of the union it is.
            COLL => unsafe { collective(context, &descriptor.details.coll) },
            // SAFETY: as above.
            P2P => unsafe { point_to_point(context, &descriptor.details.p2p) },
            _ => {}
        }
    })
}

/// # Safety
/// The texts in `coll` are NCCL's.
unsafe fn collective(context: &Context, coll: &abi::Coll) {
    let start_ns = now().0;
    let function = text(coll.function);
    with_thread(Lost::Operations, |thread| {
        let mut operation = Operation {
            start_ns,
            duration_ns: 0,
            communicator: context.communicator,
            rank: context.rank,
            sequence: Some(coll.sequence),
            root: is_rooted(function.bytes).then_some(coll.root),
            function: thread.text(function),
            datatype: thread.text(text(coll.datatype)),
            count: coll.count as u64,
            peer: None,
            algorithm: (!coll.algorithm.is_null()).then(|| thread.text(text(coll.algorithm))),
            protocol: (!coll.protocol.is_null()).then(|| thread.text(text(coll.protocol))),
            channels: coll.channels,
            warps: coll.warps,
            plan: current_plan(),
        };
        operation.duration_ns = now().0 - start_ns;
        thread.push(Lost::Operations, record::OPERATION, &operation.fields());
    });
}

/// # Safety
/// The texts in `p2p` are NCCL's.
unsafe fn point_to_point(context: &Context, p2p: &abi::P2p) {
    let start_ns = now().0;
    with_thread(Lost::Operations, |thread| {
        let mut operation = Operation {
            start_ns,
            duration_ns: 0,
            communicator: context.communicator,
            rank: context.rank,
            sequence: None,
            function: thread.text(text(p2p.function)),
            datatype: thread.text(text(p2p.datatype)),
            count: p2p.count as u64,
            root: None,
            peer: Some(p2p.peer),
            algorithm: None,
            protocol: None,
            channels: p2p.channels,
            warps: 0,
            plan: current_plan(),
        };
        operation.duration_ns = now().0 - start_ns;
        thread.push(Lost::Operations, record::OPERATION, &operation.fields());
    });
}

fn current_plan() -> Option<u64> {
    Some(PLAN.get()).filter(|&plan| plan != 0)
}

unsafe extern "C" fn stop(handle: *mut c_void) -> c_int {
    guarded(|| {
        if handle as usize == LAUNCH_HANDLE
            && let Some(cupti) = session::cupti()
        {
            cupti.pop_id(CORRELATION_KIND);
        }
    })
}

unsafe extern "C" fn state(_handle: *mut c_void, _state: c_int, _arguments: *mut c_void) -> c_int {
    SUCCESS
}

unsafe extern "C" fn finalize(_context: *mut c_void) -> c_int {
    SUCCESS
}

const NAME: *const c_char = c"gputrace".as_ptr();

/// Version 5: NCCL 2.28.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)] // NCCL's name.
pub static ncclProfiler_v5: Plugin = Plugin {
    name: NAME,
    init: init_5,
    start,
    stop,
    state,
    finalize,
};

/// Version 6: NCCL 2.29 and 2.30.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static ncclProfiler_v6: Plugin = Plugin {
    name: NAME,
    init: init_6,
    start,
    stop,
    state,
    finalize,
};

/// Version 7: from NCCL 2.31.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static ncclProfiler_v7: Plugin = Plugin {
    name: NAME,
    init: init_7,
    start,
    stop,
    state,
    finalize,
};
