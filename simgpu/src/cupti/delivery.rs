//! How records reach the client: its buffers, who fills them, and the worker that hands them back.
//!
//! Calls' records go into a buffer of the calling thread, operations' records into one of the device; without buffers of
//! threads (before 12.3, or by the attribute) all go into that one. Full buffers, and on a flush those that hold
//! anything, are handed to the client by a worker thread, as CUPTI's own does. What goes wrong on the way on purpose is
//! here, too.

use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::layouts::{MAY_REFUSE_SINCE, PER_THREAD_SINCE, version_number};
use super::records::{self, Record};
use super::worker::{Delivery, Worker};
use super::{attributes, in_flight, is_dead, is_forked, is_recording, kind, lock, user_defined};
use crate::clock::now_ns;
use crate::config::config;

/// CUpti_BuffersCallbackRequestFunc and CUpti_BuffersCallbackCompleteFunc.
pub(super) type RequestFunction = unsafe extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
pub(super) type CompleteFunction = unsafe extern "C" fn(*mut c_void, u32, *mut u8, usize, usize);

/// One buffer of the client's that is being filled.
struct Buffer {
    address: usize,
    capacity: usize,
    used: usize,
    /// The client takes no more than so many records in it; 0 for as many as fit.
    most: usize,
    records: usize,
}

/// A place where records are gathered: one a thread, and one for all devices.
#[derive(Default)]
struct Place {
    buffer: Option<Buffer>,
    /// Records that wait to be put in another order.
    shuffled: Vec<Record>,
}
type Slot = Arc<Mutex<Place>>;

#[derive(Clone, Copy)]
struct Client {
    request: RequestFunction,
    complete: CompleteFunction,
}

/// A buffer, and when it was handed over.
type Full = (Buffer, Instant);

/// The client of now. A new one takes over whatever was asked for by the one before; both live for ever.
static CLIENT: AtomicPtr<Client> = AtomicPtr::new(std::ptr::null_mut());
static DROPPED: AtomicU64 = AtomicU64::new(0);
static SLOTS: Mutex<Vec<Slot>> = Mutex::new(Vec::new());
/// CUPTI's own lock: held while the client is asked for a buffer, and taken by its other functions. A client that waits
/// in `bufferRequested` for something that it holds while it calls CUPTI waits for ever.
static OWN_LOCK: Mutex<()> = Mutex::new(());
static FLUSHING: AtomicBool = AtomicBool::new(false);

thread_local! {
    static THREAD_SLOT: RefCell<Option<Slot>> = const { RefCell::new(None) };
    /// Whether this thread is in a callback from which nothing may be flushed.
    static NO_FLUSHING: Cell<bool> = const { Cell::new(false) };
}

fn client() -> Option<Client> {
    // SAFETY: null, or a client that was leaked for this.
    unsafe { CLIENT.load(Ordering::Acquire).as_ref() }.copied()
}

/// Whether there are buffers to record into.
pub(super) fn has_client() -> bool {
    client().is_some()
}

/// Runs a callback of the client's in which flushing is forbidden.
pub(super) fn without_flushing<T>(body: impl FnOnce() -> T) -> T {
    let before = NO_FLUSHING.replace(true);
    let result = body();
    NO_FLUSHING.set(before);
    result
}

/// The slot for what this thread calls.
fn thread_slot() -> Slot {
    let own = attributes::per_thread_buffers() && config().cupti >= PER_THREAD_SINCE;
    let fresh = || {
        let slot = Slot::default();
        lock(&SLOTS).push(Arc::clone(&slot));
        slot
    };
    if !own {
        return device_slot();
    }
    // A thread that is being destroyed has none any more.
    THREAD_SLOT
        .try_with(|slot| Arc::clone(slot.borrow_mut().get_or_insert_with(fresh)))
        .unwrap_or_else(|_| device_slot())
}

/// Puts a record into the calling thread's buffer.
pub(super) fn emit_for_thread(record: &Record) {
    if !user_defined::take(record) {
        emit(&thread_slot(), record);
    }
}

/// Puts a record into the devices' buffer.
pub(super) fn emit_for_device(record: &Record) {
    if !user_defined::take(record) {
        emit(&device_slot(), record);
    }
}

fn device_slot() -> Slot {
    static DEVICE_SLOT: OnceLock<Slot> = OnceLock::new();
    Arc::clone(DEVICE_SLOT.get_or_init(|| {
        let slot = Slot::default();
        lock(&SLOTS).push(Arc::clone(&slot));
        slot
    }))
}

/// Delivers to a client from now on, whoever it was before.
pub(super) fn register(request: RequestFunction, complete: CompleteFunction) {
    let client = Box::leak(Box::new(Client { request, complete }));
    CLIENT.store(client, Ordering::Release);
    worker();
}

/// The worker, which starts with the first client.
fn worker() -> &'static Worker<Full> {
    static WORKER: OnceLock<Worker<Full>> = OnceLock::new();
    WORKER.get_or_init(|| Worker::start(|deliveries| work(&deliveries)))
}

fn work(deliveries: &Receiver<Delivery<Full>>) {
    let late = config().fault_value("late").map(Duration::from_millis);
    let mut threads = Vec::new();
    let mut count = 0u64;
    for delivery in deliveries {
        match delivery {
            Delivery::Buffer((buffer, handed_over)) => {
                if let Some(late) = late {
                    std::thread::sleep((handed_over + late).saturating_duration_since(Instant::now()));
                }
                count += 1;
                if config()
                    .fault_value("lost-buffers")
                    .is_some_and(|every| count.is_multiple_of(every))
                {
                    continue;
                }
                threads.extend(complete(buffer));
            }
            Delivery::Fence(reached) => {
                for thread in threads.drain(..) {
                    // It ends when the client is done with its buffer.
                    drop(thread.join());
                }
                let _ = reached.send(());
            }
        }
    }
}

/// Gives a buffer to the client, on this thread or by a fault on another.
fn complete(buffer: Buffer) -> Option<JoinHandle<()>> {
    /// Delivers when the thread's values are destroyed.
    struct AtTheEnd(Option<Buffer>);
    impl Drop for AtTheEnd {
        fn drop(&mut self) {
            if let Some(buffer) = self.0.take() {
                complete_here(&buffer);
            }
        }
    }
    thread_local! {
        static LAST: RefCell<AtTheEnd> = const { RefCell::new(AtTheEnd(None)) };
    }
    let spawn = |body: Box<dyn FnOnce() + Send>| {
        let spawned = std::thread::Builder::new()
            .name("simgpu-foreign".to_owned())
            .spawn(body);
        spawned.ok()
    };
    if config().has_fault("dying-threads") {
        return spawn(Box::new(move || {
            LAST.with_borrow_mut(|last| last.0 = Some(buffer));
            // The client's own values of this thread come after ours, so that they are gone before ours.
            if let Some(fresh) = client().and_then(|client| request_buffer(&client)) {
                complete_here(&fresh);
            }
        }));
    }
    if config().has_fault("foreign-threads") {
        return spawn(Box::new(move || complete_here(&buffer)));
    }
    complete_here(&buffer);
    None
}

fn complete_here(buffer: &Buffer) {
    let Some(client) = client().filter(|_| !is_dead()) else {
        return;
    };
    // SAFETY: a client gave this buffer, and the client of now gave this function for completed buffers.
    without_flushing(|| unsafe {
        (client.complete)(
            std::ptr::null_mut(),
            0,
            buffer.address as *mut u8,
            buffer.capacity,
            buffer.used,
        );
    });
}

/// Asks the client for a buffer; `None` when it gives none that a record fits into.
fn request_buffer(client: &Client) -> Option<Buffer> {
    let (mut address, mut capacity, mut most) = (std::ptr::null_mut(), 0usize, 0usize);
    {
        let _own = lock(&OWN_LOCK);
        // SAFETY: the client's function fills the three places; they are valid for the call.
        without_flushing(|| unsafe {
            (client.request)(&raw mut address, &raw mut capacity, &raw mut most);
        });
    }
    if address.is_null() && version_number(config().cupti) < MAY_REFUSE_SINCE {
        eprintln!("simgpu: a null buffer crashes CUPTI before 12.9");
        std::process::abort();
    }
    if address.is_null() || capacity < 512 {
        return None;
    }
    if !attributes::zeroed_by_client() {
        // SAFETY: the client gave `capacity` writable bytes. CUPTI zeroes buffers unless it is told that they are.
        unsafe { address.write_bytes(0, capacity) };
    }
    Some(Buffer {
        address: address as usize,
        capacity,
        used: 0,
        most,
        records: 0,
    })
}

/// Puts a record into a slot's buffer, through the faults that change what is recorded.
fn emit(slot: &Slot, record: &Record) {
    static EMITTED: AtomicU64 = AtomicU64::new(0);
    let Some(client) = client().filter(|_| is_recording()) else {
        return;
    };
    let config = config();
    if config.faults.is_empty() {
        append(&mut lock(slot), &client, record);
        return;
    }
    let count = EMITTED.fetch_add(1, Ordering::Relaxed) + 1;
    let is_turn = |fault| {
        config
            .fault_value(fault)
            .is_some_and(|every| count.is_multiple_of(every))
    };
    if is_turn("drop") {
        DROPPED.fetch_add(1, Ordering::Relaxed);
        return;
    }
    let mut place = lock(slot);
    if let Some(group) = config.fault_value("out-of-order") {
        place.shuffled.push(record.clone());
        if place.shuffled.len() as u64 >= group {
            append_shuffled(&mut place, &client);
        }
    } else {
        append(&mut place, &client, record);
    }
    if is_turn("unknown-kinds") {
        append(&mut place, &client, &records::unknown());
    }
}

/// The newest first.
fn append_shuffled(place: &mut Place, client: &Client) {
    for record in std::mem::take(&mut place.shuffled).iter().rev() {
        append(place, client, record);
    }
}

fn append(place: &mut Place, client: &Client, record: &Record) {
    let bytes = record.as_bytes();
    let is_full = |buffer: &mut Buffer| {
        buffer.used + bytes.len() > buffer.capacity || buffer.most > 0 && buffer.records >= buffer.most
    };
    if let Some(buffer) = place.buffer.take_if(is_full) {
        hand_over(buffer);
    }
    if place.buffer.is_none() {
        place.buffer = request_buffer(client);
    }
    let Some(buffer) = place.buffer.as_mut() else {
        DROPPED.fetch_add(1, Ordering::Relaxed);
        return;
    };
    // SAFETY: the buffer has `capacity` bytes of the client's, and the record was checked to fit behind `used`; a new
    // buffer has room for any.
    unsafe {
        ((buffer.address + buffer.used) as *mut u8).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
    }
    buffer.used += bytes.len();
    buffer.records += 1;
}

fn hand_over(buffer: Buffer) {
    worker().hand_over((buffer, Instant::now()));
}

/// cuptiActivityGetNumDroppedRecords: since the last call.
pub(super) fn take_dropped() -> u64 {
    let _own = lock(&OWN_LOCK);
    DROPPED.swap(0, Ordering::Relaxed)
}

/// What CUPTI would hang in, if that was asked for.
fn hang(why: &str) -> ControlFlow<()> {
    if config().has_fault("deadlocks") {
        eprintln!("simgpu: cuptiActivityFlushAll {why}: blocks for ever");
        loop {
            std::thread::park();
        }
    }
    ControlFlow::Continue(())
}

/// Hands all buffers that hold anything to the worker. `forced`: operations that run or wait get their records without
/// an end, and the client has everything when this returns.
pub(super) fn flush(forced: bool) {
    let Some(client) = client() else { return };
    if is_dead() {
        return;
    }
    if is_forked() {
        let _ = hang("in a forked child");
        return;
    }
    if NO_FLUSHING.get() {
        let _ = hang("in a callback that may not flush");
    }
    if FLUSHING.swap(true, Ordering::Acquire) {
        let _ = hang("while another thread is in it");
    }
    let start_ns = now_ns();
    drop(lock(&OWN_LOCK));
    if forced {
        for record in in_flight::take_all() {
            emit_for_device(&record);
        }
    }
    let slots: Vec<Slot> = {
        let mut slots = lock(&SLOTS);
        // Those of threads that are gone, once they are empty.
        slots.retain(|slot| Arc::strong_count(slot) > 1 || lock(slot).buffer.is_some());
        slots.clone()
    };
    let held_back = !forced && config().has_fault("held-back") && in_flight::any();
    let devices = device_slot();
    let mut any = false;
    for slot in slots {
        if held_back && Arc::ptr_eq(&slot, &devices) {
            continue;
        }
        let mut place = lock(&slot);
        append_shuffled(&mut place, &client);
        let buffer = place.buffer.take_if(|buffer| buffer.used > 0);
        drop(place);
        if let Some(buffer) = buffer {
            any = true;
            hand_over(buffer);
        }
    }
    if any && !forced && super::is_enabled(kind::OVERHEAD) {
        emit_for_thread(&records::overhead(
            records::BUFFER_FLUSH,
            super::thread_id(),
            0,
            start_ns,
            now_ns(),
        ));
    }
    FLUSHING.store(false, Ordering::Release);
    if forced && !config().has_fault("late") {
        worker().catch_up();
    }
}
