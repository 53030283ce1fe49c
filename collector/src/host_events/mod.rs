//! Events of the host on their way to the writer: NVTX ranges and NCCL's operations.
//!
//! Each thread has a ring of its own and writes to it without locks and, but for a new text, without allocating. All
//! rings share a budget of memory; an event that finds no room is counted by its kind and dropped. A thread that ends
//! leaves its ring to the writer, which reads the rest and frees it.

mod details;
mod operations;
mod payloads;
mod ring;
mod rows;
#[cfg(test)]
pub(crate) mod testing;
mod texts;

use std::cell::Cell;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

pub(crate) use ring::Budget;
#[cfg(test)]
pub(crate) use ring::MOST_FIELDS;
use ring::{Consumer, Producer};
pub(crate) use rows::Rows;
pub(crate) use texts::{Registered, Text};

use crate::nvtx::Stack;
use crate::{nccl, session};

/// Memory of all rings until a recording begins that takes them.
const EARLY_BYTES: usize = 4 << 20;

/// The rings' part of the memory that the collector may use: one in so many bytes.
pub(crate) const SHARE_OF_MEMORY: u64 = 8;

/// All that the rings, the texts that programs registered and the stacks of open ranges may take.
pub(crate) static BUDGET: Budget = Budget::new(EARLY_BYTES);

/// From now on events are taken: they may use up to so many bytes until then.
pub(crate) fn begin(most_bytes: u64) {
    BUDGET.set(usize::try_from(most_bytes).unwrap_or(usize::MAX));
}

/// Kinds of events, for counting those that found no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lost {
    Ranges,
    Operations,
    /// Proxy steps and kernels by channel.
    Details,
    /// A text: the event that names it is there, without its name.
    Texts,
}

/// What is lost of each kind, and what that touches.
const LOSSES: [(Lost, &str, &str); 4] = [
    (Lost::Ranges, "NVTX ranges and marks", "steps and ranges"),
    (Lost::Operations, "NCCL operations", "collectives"),
    (
        Lost::Details,
        "NCCL proxy steps and channels",
        "proxy steps and channels",
    ),
    (Lost::Texts, "names of ranges and operations", "names"),
];

/// Kinds of records. The fields of each are where they are made.
pub(crate) mod record {
    /// A text: its hash, and the text as bytes.
    pub(crate) const TEXT: u8 = 1;
    /// A range or mark that is over (`nvtx::Range`).
    pub(crate) const RANGE: u8 = 2;
    /// The beginning of a range that may end on another thread: its number, then as [`RANGE`].
    pub(crate) const RANGE_START: u8 = 3;
    /// Its end: number and time.
    pub(crate) const RANGE_END: u8 = 4;
    /// An operation that NCCL has enqueued (`nccl::Operation`).
    pub(crate) const OPERATION: u8 = 5;
    /// A communicator that was set up (`nccl::Communicator`).
    pub(crate) const COMMUNICATOR: u8 = 6;
    /// A call of NCCL (`nccl::Api`).
    pub(crate) const NCCL_API: u8 = 7;
    /// A kernel that was launched into a CUDA graph: plan, communicator, rank, group.
    pub(crate) const NCCL_CAPTURED: u8 = 16;
    /// The end of a group of calls: its number, and whether its kernels were launched on the same thread.
    pub(crate) const NCCL_GROUP_END: u8 = 8;
    /// The beginning of something within an operation (`nccl::Detail`).
    pub(crate) const NCCL_DETAIL: u8 = 9;
    /// A change of its state: number, state, time, value.
    pub(crate) const NCCL_DETAIL_STATE: u8 = 10;
    /// Its end: number and time.
    pub(crate) const NCCL_DETAIL_END: u8 = 11;
    /// A name that the program gave to something (`nvtx::NameRecord`).
    pub(crate) const NAME: u8 = 12;
    /// A schema: domain, number, name; then its fields as bytes.
    pub(crate) const SCHEMA: u8 = 13;
    /// An enumeration: domain, number, bytes of a value; then values and names as bytes.
    pub(crate) const ENUM: u8 = 14;
    /// A payload with a schema (`nvtx::PayloadRecord`), and its bytes.
    pub(crate) const PAYLOAD: u8 = 15;
}

/// What the writer sees of a thread beside its ring.
pub(crate) struct ThreadInfo {
    /// `gettid`.
    pub(crate) id: u32,
    /// Push/pop ranges that are begun and not ended.
    open_ranges: AtomicU32,
    lost: [AtomicU64; LOSSES.len()],
}

/// Events that were lost on threads that have no ring: there was no memory for one, or the thread was ending.
static LOST_ELSEWHERE: [AtomicU64; LOSSES.len()] = [const { AtomicU64::new(0) }; LOSSES.len()];

/// A thread's own state.
pub(crate) struct Thread {
    info: Arc<ThreadInfo>,
    producer: Producer,
    sent: texts::Sent,
    /// Its open push/pop ranges.
    pub(crate) ranges: Stack,
    /// What it is doing in NCCL.
    pub(crate) nccl: nccl::State,
}

impl Thread {
    /// Passes a record on, or counts it.
    #[inline]
    pub(crate) fn push(&mut self, lost: Lost, kind: u8, fields: &[u64]) {
        if !self.producer.push(kind, fields, &[]) {
            self.lose(lost);
        }
    }

    /// Passes a record with bytes on, or counts it.
    pub(crate) fn push_bytes(&mut self, lost: Lost, kind: u8, fields: &[u64], bytes: &[u8]) {
        if !self.producer.push(kind, fields, bytes) {
            self.lose(lost);
        }
    }

    /// Counts something that is lost.
    #[cold]
    pub(crate) fn lose(&self, lost: Lost) {
        self.info.lost[lost as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// The number of a text for a record; the text itself is passed on the first time.
    #[inline]
    pub(crate) fn text(&mut self, text: Text<'_>) -> u64 {
        if text.hash != 0 && *self.sent.place(text.hash) != text.hash {
            self.send_text(text);
        }
        text.hash
    }

    #[cold]
    fn send_text(&mut self, text: Text<'_>) {
        if self.producer.push(record::TEXT, &[text.hash], text.bytes) {
            *self.sent.place(text.hash) = text.hash;
        } else {
            self.lose(Lost::Texts);
        }
    }

    /// Its number (`gettid`).
    #[inline]
    pub(crate) fn id(&self) -> u32 {
        self.info.id
    }

    /// Says how many push/pop ranges are open.
    #[inline]
    pub(crate) fn set_open_ranges(&self, count: usize) {
        self.info.open_ranges.store(count as u32, Ordering::Relaxed);
    }
}

/// A thread's ring on its way to the writer.
struct New {
    info: Arc<ThreadInfo>,
    consumer: Consumer,
    next: *mut New,
}

/// Rings that the writer has not seen yet. Threads put theirs in front; the writer takes all at once.
static NEW: AtomicPtr<New> = AtomicPtr::new(null_mut());

/// A thread's place for its state. Plain cells, so that using it needs no destructor and no check.
struct Place {
    thread: Cell<*mut Thread>,
    /// Set while a callback uses the state: what comes meanwhile on the same thread (a signal's handler, a hook of
    /// malloc) must not.
    busy: Cell<bool>,
    /// The thread ends: it gets no new state.
    ended: Cell<bool>,
}

/// Gives the state back when the thread ends.
struct Leaving;

impl Drop for Leaving {
    fn drop(&mut self) {
        _ = PLACE.try_with(|place| {
            place.ended.set(true);
            let thread = place.thread.replace(null_mut());
            if !thread.is_null() {
                BUDGET.give(size_of::<Thread>());
                // SAFETY: made by `create` as a box, and taken out of the only place that held it.
                drop(unsafe { Box::from_raw(thread) });
            }
        });
    }
}

thread_local! {
    static PLACE: Place = const {
        Place {
            thread: Cell::new(null_mut()),
            busy: Cell::new(false),
            ended: Cell::new(false),
        }
    };
    static LEAVING: Leaving = const { Leaving };
}

/// Runs `body` with the calling thread's state. `None`, and one more loss, when it has none or is using it already.
#[inline]
pub(crate) fn with_thread<T>(lost: Lost, body: impl FnOnce(&mut Thread) -> T) -> Option<T> {
    let result = PLACE.try_with(|place| {
        let mut thread = place.thread.get();
        if place.busy.get() {
            return None;
        }
        place.busy.set(true);
        let _free = Free(&place.busy);
        if thread.is_null() {
            thread = create(place);
        }
        // SAFETY: a box of this thread's that only this function lends out, once at a time.
        unsafe { thread.as_mut() }.map(body)
    });
    let result = result.ok().flatten();
    if result.is_none() {
        lose_elsewhere(lost);
    }
    result
}

/// Clears the mark, also when the body panics.
struct Free<'a>(&'a Cell<bool>);

impl Drop for Free<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

#[cold]
fn create(place: &Place) -> *mut Thread {
    if session::is_dead() || place.ended.get() || LEAVING.try_with(|_| ()).is_err() {
        return null_mut();
    }
    if !BUDGET.take(size_of::<Thread>()) {
        return null_mut();
    }
    let Some((producer, consumer)) = ring::ring(&BUDGET) else {
        BUDGET.give(size_of::<Thread>());
        return null_mut();
    };
    let info = Arc::new(ThreadInfo {
        id: thread_id(),
        open_ranges: AtomicU32::new(0),
        lost: [const { AtomicU64::new(0) }; LOSSES.len()],
    });
    let new = Box::into_raw(Box::new(New {
        info: Arc::clone(&info),
        consumer,
        next: null_mut(),
    }));
    let mut first = NEW.load(Ordering::Relaxed);
    loop {
        // SAFETY: nobody else knows it yet.
        unsafe { (*new).next = first };
        match NEW.compare_exchange_weak(first, new, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => break,
            Err(now_first) => first = now_first,
        }
    }
    let thread = Box::into_raw(Box::new(Thread {
        info,
        producer,
        sent: texts::Sent::new(),
        ranges: Stack::default(),
        nccl: nccl::State::default(),
    }));
    place.thread.set(thread);
    thread
}

/// The rings that came since the last call.
fn take_new() -> Vec<(Arc<ThreadInfo>, Consumer)> {
    let mut new = NEW.swap(null_mut(), Ordering::Acquire);
    let mut taken = Vec::new();
    while !new.is_null() {
        // SAFETY: made by `create` as a box, and taken out of the only list that held it.
        let one = unsafe { Box::from_raw(new) };
        new = one.next;
        taken.push((one.info, one.consumer));
    }
    taken
}

/// Counts something that is lost on no thread in particular.
pub(crate) fn lose_elsewhere(lost: Lost) {
    LOST_ELSEWHERE[lost as usize].fetch_add(1, Ordering::Relaxed);
}

/// The calling thread's id (`gettid`).
pub(crate) fn thread_id() -> u32 {
    // SAFETY: no preconditions.
    unsafe { libc::gettid() }.cast_unsigned()
}
