//! CUPTI: what the rest of the stand-in tells it, and how that reaches a client.
//!
//! `callbacks` calls subscribers, `records` writes activity records in the layouts of `layouts`, `delivery` brings them
//! to the client's buffers, `in_flight` keeps what was launched and is not done. The C interface is in `exports` and
//! `callback_exports`.

mod attributes;
mod callback_exports;
mod callbacks;
mod delivery;
mod exports;
mod graphs;
mod in_flight;
mod layouts;
pub(crate) mod memory;
mod records;
mod symbols;
mod user_defined;
mod worker;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ffi::CString;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, Once, OnceLock, PoisonError};

use callbacks::wait;
use layouts::kind;
use records::{DriverCall, Record};

pub(crate) use callbacks::{Entering, GraphData, ModuleData, event, resource};
pub(crate) use graphs::{graph_event, graph_launched};
pub(crate) use symbols::hide_newer;

use crate::clock::now_ns;
use crate::config::config;
use crate::device::{self, CompletedOp};
use crate::driver;

/// Enabled kinds, a bit each.
static ENABLED: AtomicU64 = AtomicU64::new(0);
/// Enabled driver calls, a bit each: all with their kind, or one by one.
static DRIVER_CALLS: [AtomicU64; 16] = [const { AtomicU64::new(0) }; 16];
static NEXT_CORRELATION: AtomicU32 = AtomicU32::new(1);
/// Finalized after a fatal error: every function fails.
static DEAD: AtomicBool = AtomicBool::new(false);
/// A child of the process that set everything up: nothing is recorded.
static FORKED: AtomicBool = AtomicBool::new(false);
/// Devices, contexts and streams known so far: kinds enabled later still get their records.
static KNOWN: Mutex<Vec<Record>> = Mutex::new(Vec::new());

thread_local! {
    static THREAD: Cell<u32> = const { Cell::new(0) };
    /// Ids pushed by the client: kind and id, innermost last.
    static EXTERNAL: RefCell<Vec<(u32, u64)>> = const { RefCell::new(Vec::new()) };
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn is_dead() -> bool {
    DEAD.load(Ordering::Relaxed)
}

fn is_forked() -> bool {
    FORKED.load(Ordering::Relaxed)
}

fn is_recording() -> bool {
    !is_dead() && !is_forked()
}

/// This process is the one that is recorded, and its children are not.
fn set_process() {
    extern "C" fn in_child() {
        FORKED.store(true, Ordering::Relaxed);
    }
    static ONCE: Once = Once::new();
    // SAFETY: the function lives as long as this library, which is never unloaded, and only stores a flag.
    ONCE.call_once(|| unsafe {
        libc::pthread_atfork(None, None, Some(in_child));
    });
}

fn is_enabled(record_kind: u32) -> bool {
    let bits = ENABLED.load(Ordering::Relaxed) | user_defined::enabled_kinds();
    // KERNEL and CONCURRENT_KERNEL differ in how kernels are traced, not in the record.
    let kernel = |kind| matches!(kind, kind::KERNEL | kind::CONCURRENT_KERNEL);
    let wanted = if kernel(record_kind) {
        1 << kind::KERNEL | 1 << kind::CONCURRENT_KERNEL
    } else {
        1 << record_kind
    };
    bits & wanted != 0 && is_recording()
}

/// Whether a kind itself is switched on.
fn is_kind_enabled(record_kind: u32) -> bool {
    ENABLED.load(Ordering::Relaxed) & 1 << record_kind != 0
}

/// Switches a kind on or off.
fn enable(record_kind: u32, enable: bool) {
    if enable {
        ENABLED.fetch_or(1 << record_kind, Ordering::Relaxed);
    } else {
        ENABLED.fetch_and(!(1 << record_kind), Ordering::Relaxed);
    }
    if record_kind == kind::GRAPH_TRACE && enable {
        graphs::trace_whole();
    }
    if record_kind == kind::DRIVER {
        for word in &DRIVER_CALLS {
            word.store(if enable { u64::MAX } else { 0 }, Ordering::Relaxed);
        }
    }
    if enable {
        for record in lock(&KNOWN).iter().filter(|record| record.kind() == record_kind) {
            delivery::emit_for_device(record);
        }
    }
}

/// The records of what is known of a kind.
fn known(record_kind: u32) -> Vec<Record> {
    let known = lock(&KNOWN);
    known
        .iter()
        .filter(|record| record.kind() == record_kind)
        .cloned()
        .collect()
}

/// Switches the records of one driver call on or off, whatever is said of the kind before.
fn enable_driver_call(callback: u32, enable: bool) -> Option<()> {
    let word = DRIVER_CALLS.get(callback as usize / 64)?;
    let bit = 1 << (callback % 64);
    if enable {
        word.fetch_or(bit, Ordering::Relaxed);
    } else {
        word.fetch_and(!bit, Ordering::Relaxed);
    }
    Some(())
}

fn is_driver_call_enabled(callback: u32) -> bool {
    (DRIVER_CALLS
        .get(callback as usize / 64)
        .is_some_and(|word| word.load(Ordering::Relaxed) & 1 << (callback % 64) != 0)
        || user_defined::enabled_kinds() & 1 << kind::DRIVER != 0)
        && is_recording()
}

fn thread_id() -> u32 {
    THREAD.with(|cached| {
        if cached.get() == 0 {
            // SAFETY: gettid has no preconditions. glibc has it as a function from 2.30 on.
            cached.set(unsafe { libc::syscall(libc::SYS_gettid) as u32 });
        }
        cached.get()
    })
}

/// A driver call between its enter and its exit.
pub(crate) struct ApiCall {
    callback: u32,
    correlation: u32,
    start_ns: i64,
    told: Option<callbacks::Told>,
}

/// Begins a driver call: gives it a correlation id, and tells who wants to know.
pub(crate) fn enter_driver(call: &Entering) -> ApiCall {
    let correlation = NEXT_CORRELATION.fetch_add(1, Ordering::Relaxed);
    fail_when_due(correlation);
    let told = callbacks::enter(call, correlation);
    if is_enabled(kind::EXTERNAL_CORRELATION) {
        user_defined::emit_external(correlation);
        // The innermost id of each kind; the records precede the call's own.
        let ids = EXTERNAL.try_with(|stack| stack.borrow().iter().copied().collect::<BTreeMap<u32, u64>>());
        for (external_kind, id) in ids.unwrap_or_default() {
            delivery::emit_for_thread(&records::external_correlation(external_kind, id, correlation));
        }
    }
    ApiCall {
        callback: call.callback,
        correlation,
        start_ns: now_ns(),
        told,
    }
}

/// With the fault `fatal-error`: says so, and is finalized.
fn fail_when_due(correlation: u32) {
    let due = config().fault_value("fatal-error");
    if due.is_some_and(|calls| u64::from(correlation) == calls) {
        callbacks::fatal_error();
        DEAD.store(true, Ordering::Relaxed);
    }
}

impl ApiCall {
    /// The id that joins the call to what it launches.
    pub(crate) fn correlation(&self) -> u32 {
        self.correlation
    }

    /// Ends the call and gives its result back.
    pub(crate) fn finish(self, result: u32) -> u32 {
        if is_driver_call_enabled(self.callback) {
            let call = DriverCall {
                callback: self.callback,
                start_ns: self.start_ns,
                end_ns: now_ns(),
                thread: thread_id(),
                correlation: self.correlation,
                result,
            };
            delivery::emit_for_thread(&records::driver_call(&call));
        }
        if let Some(told) = self.told {
            told.exit(result, self.correlation);
        }
        result
    }
}

/// An operation is launched, with what is known of it; gives its ticket.
pub(crate) fn operation_launched(op: CompletedOp) -> u64 {
    if op.graph.is_some() && graphs::are_traced_whole() {
        return 0;
    }
    in_flight::launched(op)
}

/// It starts on the device.
pub(crate) fn operation_started(ticket: u64, start_ns: i64) {
    in_flight::started(ticket, start_ns);
}

/// A finished operation.
pub(crate) fn operation_done(ticket: u64, op: &CompletedOp) {
    if in_flight::done(ticket) {
        delivery::emit_for_device(&records::operation(op));
    }
    graphs::operation_done(op);
}

/// What was waited for, as `CUpti_ActivitySynchronization` has it; `u32::MAX` where there is none.
pub(crate) struct Wait {
    /// CUpti_ActivitySynchronizationType: event 1, stream for event 2, stream 3, context 4.
    pub(crate) what: u32,
    pub(crate) context: u32,
    pub(crate) stream: u32,
    pub(crate) event: u32,
    /// Which recording of the event; 0 for none.
    pub(crate) recording: u64,
    pub(crate) correlation: u32,
    pub(crate) start_ns: i64,
}

/// The host waited, or made a stream wait, from the start until now.
pub(crate) fn synchronized(wait: &Wait) {
    if is_enabled(kind::SYNCHRONIZATION) {
        delivery::emit_for_thread(&records::synchronization(wait, now_ns()));
    }
}

/// An event was recorded on a stream of a context and device. CUPTI tells of it only where waits are told of, too; before 12.9
/// with them, and unasked.
pub(crate) fn event_recorded(event: u32, recording: u64, stream: &device::Stream, correlation: u32) {
    let is_asked = || config().cupti < layouts::EVENTS_APART_SINCE || is_enabled(kind::CUDA_EVENT);
    if is_enabled(kind::SYNCHRONIZATION) && is_asked() {
        delivery::emit_for_thread(&records::event_recorded(
            event,
            recording,
            (stream.context, stream.device, stream.id),
            correlation,
        ));
    }
}

/// Tells subscribers that a stream was waited for.
pub(crate) fn stream_synchronized(context: u64, stream: u64) {
    callbacks::synchronized(wait::STREAM_SYNCHRONIZED, context, stream);
}

/// Tells subscribers that a context was waited for.
pub(crate) fn context_synchronized(context: u64) {
    callbacks::synchronized(wait::CONTEXT_SYNCHRONIZED, context, 0);
}

fn make_known(record: Record) {
    if is_enabled(record.kind()) {
        delivery::emit_for_device(&record);
    }
    lock(&KNOWN).push(record);
}

/// A device exists.
pub(crate) fn device_known(index: u32) {
    static NAME: OnceLock<CString> = OnceLock::new();
    let name = NAME.get_or_init(|| CString::new(device::name()).unwrap_or_default());
    make_known(records::device(index, name));
}

/// A context was made; its default stream is told of by `stream_created`.
pub(crate) fn context_created(context: &driver::Context, null_stream: u32) {
    make_known(records::context(context.id, context.device, null_stream));
    resource::<()>(event::CONTEXT_CREATED, context.handle, 0, None);
}

/// A context is about to go.
pub(crate) fn context_ending(context: &driver::Context) {
    resource::<()>(event::CONTEXT_DESTROY_STARTING, context.handle, 0, None);
}

/// A stream was made (flag: `CUpti_ActivityStreamFlag`).
pub(crate) fn stream_created(context: &driver::Context, handle: u64, id: u32, priority: i32, flag: u32) {
    make_known(records::stream(context.id, id, priority, flag));
    resource::<()>(event::STREAM_CREATED, context.handle, handle, None);
}

/// A stream is about to go.
pub(crate) fn stream_ending(context: u64, handle: u64) {
    resource::<()>(event::STREAM_DESTROY_STARTING, context, handle, None);
}

/// cuInit is done.
pub(crate) fn initialised() {
    resource::<()>(event::CU_INIT_FINISHED, 0, 0, None);
}

/// A new stream id, as CUPTI numbers streams over all contexts.
pub(crate) fn next_stream_id() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(7);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// A new event id.
pub(crate) fn next_event_id() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
