//! CUPTI: what the rest of the stand-in tells it, and how records reach the client's buffers.
//!
//! Calls' records go into a buffer of the calling thread, operations' records into one of the device. Full buffers,
//! and on a flush those that hold anything, are handed to the client by a worker thread, as CUPTI's own does.

mod exports;
mod records;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_void};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use records::{DriverCall, Record, kind};

use crate::clock::now_ns;
use crate::config::config;
use crate::device::{self, CompletedOp};

/// CUpti_BuffersCallbackRequestFunc and CUpti_BuffersCallbackCompleteFunc.
type RequestFunction = unsafe extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
type CompleteFunction = unsafe extern "C" fn(*mut c_void, u32, *mut u8, usize, usize);

/// One buffer of the client's that is being filled.
struct Buffer {
    address: usize,
    capacity: usize,
    used: usize,
}

/// A place where records are gathered: one a thread, and one for all devices.
type Slot = Arc<Mutex<Option<Buffer>>>;

struct Client {
    request: RequestFunction,
    full: Mutex<Sender<Delivery>>,
}

enum Delivery {
    Buffer(Buffer),
    /// Asks the worker to say that it has come this far.
    Fence(Sender<()>),
}

static ENABLED: AtomicU64 = AtomicU64::new(0);
static SUBSCRIBED: AtomicBool = AtomicBool::new(false);
static DROPPED: AtomicU64 = AtomicU64::new(0);
static NEXT_CORRELATION: AtomicU32 = AtomicU32::new(1);
static CLIENT: OnceLock<Client> = OnceLock::new();
static SLOTS: Mutex<Vec<Slot>> = Mutex::new(Vec::new());
/// The process that set everything up: in a forked child nothing is recorded.
static PROCESS: AtomicU32 = AtomicU32::new(0);
/// Devices, contexts and streams known so far: kinds enabled later still get their records.
static KNOWN: Mutex<Vec<Record>> = Mutex::new(Vec::new());
/// The names of the callback ids that were seen.
static CALLBACK_NAMES: Mutex<BTreeMap<u32, &'static CStr>> = Mutex::new(BTreeMap::new());

thread_local! {
    static THREAD: Cell<u32> = const { Cell::new(0) };
    static THREAD_SLOT: RefCell<Option<Slot>> = const { RefCell::new(None) };
    /// Ids pushed by the client: kind and id, innermost last.
    static EXTERNAL: RefCell<Vec<(u32, u64)>> = const { RefCell::new(Vec::new()) };
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn is_enabled(record_kind: u32) -> bool {
    let bits = ENABLED.load(Ordering::Relaxed);
    // KERNEL and CONCURRENT_KERNEL differ in how kernels are traced, not in the record.
    let kernel = |kind| matches!(kind, kind::KERNEL | kind::CONCURRENT_KERNEL);
    let wanted = if kernel(record_kind) {
        1 << kind::KERNEL | 1 << kind::CONCURRENT_KERNEL
    } else {
        1 << record_kind
    };
    bits & wanted != 0 && PROCESS.load(Ordering::Relaxed) == std::process::id()
}

fn thread_id() -> u32 {
    THREAD.with(|cached| {
        if cached.get() == 0 {
            // SAFETY: gettid has no preconditions.
            cached.set(unsafe { libc::gettid() }.cast_unsigned());
        }
        cached.get()
    })
}

fn thread_slot() -> Slot {
    let fresh = || {
        let slot = Slot::default();
        lock(&SLOTS).push(Arc::clone(&slot));
        slot
    };
    THREAD_SLOT
        .try_with(|slot| Arc::clone(slot.borrow_mut().get_or_insert_with(fresh)))
        .unwrap_or_else(|_| device_slot())
}

fn device_slot() -> Slot {
    static DEVICE_SLOT: OnceLock<Slot> = OnceLock::new();
    Arc::clone(DEVICE_SLOT.get_or_init(|| {
        let slot = Slot::default();
        lock(&SLOTS).push(Arc::clone(&slot));
        slot
    }))
}

/// Starts delivering to a client. The second registration of a process changes nothing.
fn register(request: RequestFunction, complete: CompleteFunction) {
    PROCESS.store(std::process::id(), Ordering::Relaxed);
    CLIENT.get_or_init(|| {
        let (full, deliveries) = channel();
        let deliver = move || {
            for delivery in deliveries {
                match delivery {
                    Delivery::Buffer(buffer) => {
                        // SAFETY: the client gave this buffer and this function for this purpose.
                        unsafe {
                            complete(
                                std::ptr::null_mut(),
                                0,
                                buffer.address as *mut u8,
                                buffer.capacity,
                                buffer.used,
                            );
                        }
                    }
                    Delivery::Fence(reached) => drop(reached.send(())),
                }
            }
        };
        if let Err(error) = std::thread::Builder::new()
            .name("simgpu-cupti".to_owned())
            .spawn(deliver)
        {
            eprintln!("simgpu: no thread for CUPTI: {error}");
        }
        Client {
            request,
            full: Mutex::new(full),
        }
    });
}

/// Asks the client for a buffer; `None` when it gives none that a record fits into.
fn request_buffer(client: &Client) -> Option<Buffer> {
    let (mut address, mut capacity, mut most) = (std::ptr::null_mut(), 0usize, 0usize);
    // SAFETY: the client's function fills the three places; they are valid for the call.
    unsafe { (client.request)(&raw mut address, &raw mut capacity, &raw mut most) };
    if address.is_null() || capacity < 512 {
        return None;
    }
    // SAFETY: the client gave `capacity` writable bytes. CUPTI zeroes buffers before it writes.
    unsafe { address.write_bytes(0, capacity) };
    Some(Buffer {
        address: address as usize,
        capacity,
        used: 0,
    })
}

fn emit(slot: &Slot, record: &Record) {
    let Some(client) = CLIENT.get() else { return };
    let bytes = record.as_bytes();
    static EMITTED: AtomicU64 = AtomicU64::new(0);
    if config().has_fault("drop") && EMITTED.fetch_add(1, Ordering::Relaxed) % 10 == 9 {
        DROPPED.fetch_add(1, Ordering::Relaxed);
        return;
    }
    let mut slot = lock(slot);
    if slot
        .as_ref()
        .is_some_and(|buffer| buffer.used + bytes.len() > buffer.capacity)
        && let Some(buffer) = slot.take()
    {
        // The worker lives as long as the process; if it could not start, the records are lost.
        drop(lock(&client.full).send(Delivery::Buffer(buffer)));
    }
    if slot.is_none() {
        *slot = request_buffer(client);
    }
    let Some(buffer) = slot.as_mut() else {
        DROPPED.fetch_add(1, Ordering::Relaxed);
        return;
    };
    // SAFETY: the buffer has `capacity` bytes of the client's, and the record was checked to fit behind `used`.
    unsafe {
        ((buffer.address + buffer.used) as *mut u8).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
    }
    buffer.used += bytes.len();
}

/// Hands all buffers that hold anything to the worker. `fence`: waits until the client has them.
fn flush(fence: bool) {
    let Some(client) = CLIENT.get() else { return };
    if PROCESS.load(Ordering::Relaxed) != std::process::id() {
        return;
    }
    let start_ns = now_ns();
    let slots: Vec<Slot> = lock(&SLOTS).clone();
    let mut any = false;
    for slot in slots {
        let buffer = lock(&slot).take_if(|buffer| buffer.used > 0);
        if let Some(buffer) = buffer {
            any = true;
            drop(lock(&client.full).send(Delivery::Buffer(buffer)));
        }
    }
    if any && !fence && is_enabled(kind::OVERHEAD) {
        emit(
            &thread_slot(),
            &records::overhead(thread_id(), start_ns, now_ns()),
        );
    }
    if fence {
        let (reached, wait) = channel();
        if lock(&client.full).send(Delivery::Fence(reached)).is_ok() {
            // A client that takes longer than this is left to its own.
            let _ = wait.recv_timeout(std::time::Duration::from_secs(5));
        }
    }
}

/// A driver call between its enter and its exit.
pub(crate) struct ApiCall {
    callback: u32,
    correlation: u32,
    start_ns: i64,
}

/// Begins a driver call: gives it a correlation id.
pub(crate) fn enter_driver(callback: u32, name: &'static CStr) -> ApiCall {
    let correlation = NEXT_CORRELATION.fetch_add(1, Ordering::Relaxed);
    if is_enabled(kind::DRIVER) {
        lock(&CALLBACK_NAMES).entry(callback).or_insert(name);
    }
    if is_enabled(kind::EXTERNAL_CORRELATION) {
        // The innermost id of each kind; the records precede the call's own.
        let ids = EXTERNAL.with_borrow(|stack| stack.iter().copied().collect::<BTreeMap<u32, u64>>());
        for (external_kind, id) in ids {
            emit(
                &thread_slot(),
                &records::external_correlation(external_kind, id, correlation),
            );
        }
    }
    ApiCall {
        callback,
        correlation,
        start_ns: now_ns(),
    }
}

impl ApiCall {
    /// The id that joins the call to what it launches.
    pub(crate) fn correlation(&self) -> u32 {
        self.correlation
    }

    /// Ends the call and gives its result back.
    pub(crate) fn finish(self, result: u32) -> u32 {
        if is_enabled(kind::DRIVER) {
            let call = DriverCall {
                callback: self.callback,
                start_ns: self.start_ns,
                end_ns: now_ns(),
                thread: thread_id(),
                correlation: self.correlation,
                result,
            };
            emit(&thread_slot(), &records::driver_call(&call));
        }
        result
    }
}

/// A finished operation.
pub(crate) fn operation_done(op: &CompletedOp) {
    let record = records::operation(op);
    if is_enabled(record.kind()) {
        emit(&device_slot(), &record);
    }
}

/// The host waited, or made a stream wait (`CUpti_ActivitySynchronizationType`), from `start_ns` until now.
pub(crate) fn synchronized(
    wait: u32,
    context: u32,
    stream: u32,
    event: u32,
    correlation: u32,
    start_ns: i64,
) {
    if is_enabled(kind::SYNCHRONIZATION) {
        let ids = [correlation, context, stream, event];
        emit(
            &thread_slot(),
            &records::synchronization(wait, ids, start_ns, now_ns()),
        );
    }
}

fn make_known(record: Record) {
    if is_enabled(record.kind()) {
        emit(&device_slot(), &record);
    }
    lock(&KNOWN).push(record);
}

/// A device exists.
pub(crate) fn device_known(index: u32) {
    static NAME: OnceLock<CString> = OnceLock::new();
    let name = NAME.get_or_init(|| CString::new(device::name()).unwrap_or_default());
    make_known(records::device(index, name));
}

/// A context was made.
pub(crate) fn context_created(context: u32, device: u32, null_stream: u32) {
    make_known(records::context(context, device, null_stream));
}

/// A stream was made (flag: `CUpti_ActivityStreamFlag`).
pub(crate) fn stream_created(context: u32, stream: u32, priority: i32, flag: u32) {
    make_known(records::stream(context, stream, priority, flag));
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
