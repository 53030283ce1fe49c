//! Subscribers of their own kinds, buffers and records (CUPTI 13.3 and later, with drivers of r610 and later): the
//! functions whose names end in `_v2`.
//!
//! Each subscriber gets its own copy of what it asked for, in records as the headers have them or in user-defined ones
//! of the fields that it chose. These functions and the older ones of the same names do not go together in one process.

mod delivery;
mod exports;
mod fields;
mod selection;

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

use super::exports::code;
use super::layouts::kind;
use super::lock;
use super::records::{self, Record};
use selection::{RecordLayout, Selection};

pub(in crate::cupti) use delivery::flush;
pub(in crate::cupti) use exports::plain_timestamp_works;

/// CUpti_BuffersCallbackRequestFunc_v2 and CUpti_BuffersCallbackCompleteFunc_v2.
type RequestFunction = unsafe extern "C" fn(*mut *mut u8, *mut usize, *mut usize, *const RequestInfo);
type CompleteFunction = unsafe extern "C" fn(*mut u8, usize, usize, *const CompleteInfo);

/// CUpti_BufferCallbackRequestInfo.
#[repr(C)]
struct RequestInfo {
    struct_bytes: usize,
}

/// CUpti_BufferCallbackCompleteInfo. The layouts are a table by kind, with null where a kind has none.
#[repr(C)]
struct CompleteInfo {
    struct_bytes: usize,
    thread: u64,
    layouts: *const *const RecordLayout,
    layout_count: usize,
}

/// Kinds are below this.
const KINDS: usize = 64;

/// One who subscribed by cuptiSubscribe_v2.
struct Subscriber {
    handle: usize,
    name: String,
    client: OnceLock<(RequestFunction, CompleteFunction)>,
    user_defined: AtomicBool,
    zeroed: AtomicBool,
    /// CUpti_ActivityThreadIdType.
    thread_id_type: AtomicU8,
    /// By kind; those that were disabled stay, since buffers may hold their records.
    selections: RwLock<[Option<Arc<Selection>>; KINDS]>,
    enabled: AtomicU64,
    dropped: AtomicU64,
    /// By thread, 0 for the devices.
    buffers: Mutex<HashMap<u32, delivery::Buffer>>,
}

static SUBSCRIBERS: RwLock<Vec<Arc<Subscriber>>> = RwLock::new(Vec::new());
/// The kinds that any subscriber has enabled, a bit each.
static ENABLED: AtomicU64 = AtomicU64::new(0);
/// CUPTI_ACTIVITY_ATTR_MULTIPLE_SUBSCRIBER_STATE: 0 or 1 by the first subscriber, 2 before.
static SEVERAL: AtomicU8 = AtomicU8::new(2);
/// Whether records were user-defined: there is no way back to others.
static COMMITTED: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Ids that subscribers pushed: handle, kind and id, innermost last.
    static EXTERNAL: RefCell<Vec<(usize, u32, u64)>> = const { RefCell::new(Vec::new()) };
}

fn subscribers() -> Vec<Arc<Subscriber>> {
    SUBSCRIBERS.read().unwrap_or_else(PoisonError::into_inner).clone()
}

fn find(handle: usize) -> Result<Arc<Subscriber>, u32> {
    subscribers()
        .into_iter()
        .find(|subscriber| subscriber.handle == handle)
        .ok_or(code::INVALID_PARAMETER)
}

/// Whether somebody has subscribed by the newer functions, or records were user-defined: the older functions fail.
pub(in crate::cupti) fn is_active() -> bool {
    COMMITTED.load(Ordering::Relaxed)
        || !SUBSCRIBERS
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .is_empty()
}

/// What an older function answers while the newer ones are in use.
pub(in crate::cupti) fn refuse_older() -> Result<(), u32> {
    if is_active() {
        Err(code::MULTIPLE_SUBSCRIBERS)
    } else {
        Ok(())
    }
}

/// The kinds that anybody has enabled, a bit each.
pub(in crate::cupti) fn enabled_kinds() -> u64 {
    ENABLED.load(Ordering::Relaxed)
}

fn add_up() {
    let all = subscribers().iter().fold(0, |all, subscriber| {
        all | subscriber.enabled.load(Ordering::Relaxed)
    });
    ENABLED.store(all, Ordering::Relaxed);
}

/// Takes in one who subscribes.
fn subscribe(handle: usize, name: String) {
    let subscriber = Subscriber {
        handle,
        name,
        client: OnceLock::new(),
        user_defined: AtomicBool::new(false),
        zeroed: AtomicBool::new(false),
        thread_id_type: AtomicU8::new(0),
        selections: RwLock::new(std::array::from_fn(|_| None)),
        enabled: AtomicU64::new(0),
        dropped: AtomicU64::new(0),
        buffers: Mutex::new(HashMap::new()),
    };
    SUBSCRIBERS
        .write()
        .unwrap_or_else(PoisonError::into_inner)
        .push(Arc::new(subscriber));
}

/// Ends a subscription, if it is one of these: what its buffers hold is not delivered any more.
pub(in crate::cupti) fn unsubscribe(handle: usize) {
    SUBSCRIBERS
        .write()
        .unwrap_or_else(PoisonError::into_inner)
        .retain(|subscriber| subscriber.handle != handle);
    add_up();
}

impl Subscriber {
    fn selection(&self, record_kind: u32) -> Option<Arc<Selection>> {
        let selections = self.selections.read().unwrap_or_else(PoisonError::into_inner);
        selections.get(record_kind as usize)?.clone()
    }

    fn enable(&self, record_kind: u32, selection: Selection) -> Result<(), u32> {
        if self.user_defined.load(Ordering::Relaxed) {
            COMMITTED.store(true, Ordering::Relaxed);
        }
        let bit = 1 << record_kind;
        let known = self.selection(record_kind);
        if let Some(known) = known.filter(|known| !known.is_like(&selection)) {
            // Only after the kind was disabled and a forced flush has emptied the buffers.
            let pending = lock(&self.buffers)
                .values()
                .any(|buffer| buffer.holds(record_kind));
            if self.enabled.load(Ordering::Relaxed) & bit != 0 || pending {
                drop(known);
                return Err(code::NOT_COMPATIBLE);
            }
        }
        let mut selections = self.selections.write().unwrap_or_else(PoisonError::into_inner);
        selections[record_kind as usize] = Some(Arc::new(selection));
        drop(selections);
        self.enabled.fetch_or(bit, Ordering::Relaxed);
        add_up();
        for record in super::known(record_kind) {
            self.emit(&record);
        }
        Ok(())
    }

    fn disable(&self, record_kind: u32) {
        self.enabled.fetch_and(!(1 << record_kind), Ordering::Relaxed);
        add_up();
    }

    fn emit(&self, record: &Record) {
        let record_kind = record.kind();
        if self.enabled.load(Ordering::Relaxed) & 1 << record_kind == 0 {
            return;
        }
        if let Some(selection) = self.selection(record_kind).filter(|one| one.includes(record)) {
            self.put(record, &selection);
        }
    }

    /// What stands for the calling thread in records: by default what pthread_self() gives.
    fn thread(&self) -> Option<u64> {
        if self.thread_id_type.load(Ordering::Relaxed) == 1 {
            return None;
        }
        // SAFETY: has no preconditions.
        Some(unsafe { libc::pthread_self() })
    }
}

/// Gives a record to all who asked for it. False where nobody has subscribed this way.
pub(in crate::cupti) fn take(record: &Record) -> bool {
    if !is_active() {
        return false;
    }
    for subscriber in subscribers() {
        subscriber.emit(record);
    }
    true
}

/// Gives a call's record of external ids to each subscriber that pushed any, before the call's own.
pub(in crate::cupti) fn emit_external(correlation: u32) {
    let pushed = EXTERNAL.try_with(|stack| stack.borrow().clone());
    let pushed = pushed.unwrap_or_default();
    if pushed.is_empty() {
        return;
    }
    for subscriber in subscribers() {
        // The innermost of each kind.
        let mut innermost = std::collections::BTreeMap::new();
        for (_, external, id) in pushed.iter().filter(|(handle, ..)| *handle == subscriber.handle) {
            innermost.insert(*external, *id);
        }
        for (external, id) in innermost {
            subscriber.emit(&records::external_correlation(external, id, correlation));
        }
    }
}

/// The kinds whose records belong to the thread that makes the call; all others are of devices.
fn is_of_thread(record_kind: u32) -> bool {
    matches!(
        record_kind,
        kind::DRIVER
            | kind::RUNTIME
            | kind::SYNCHRONIZATION
            | kind::CUDA_EVENT
            | kind::OVERHEAD
            | kind::EXTERNAL_CORRELATION
    )
}

/// Reads a C text.
///
/// # Safety
/// Null or zero-terminated.
unsafe fn text(place: *const std::ffi::c_char) -> String {
    if place.is_null() {
        return String::new();
    }
    // SAFETY: the caller's promise.
    unsafe { std::ffi::CStr::from_ptr(place) }
        .to_string_lossy()
        .into_owned()
}

const _: () = assert!(size_of::<*const c_void>() == 8, "layouts are those of 64 bits");
