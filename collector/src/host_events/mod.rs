//! Events of the host on their way to the writer: NVTX ranges and NCCL's operations.
//!
//! Each thread has a ring of its own and writes to it without locks and, but for a new text, without allocating. All
//! rings share a budget of memory; an event that finds no room is counted by its kind and dropped. A thread that ends
//! leaves its ring to the writer, which reads the rest and frees it.

mod budget;
mod details;
mod losses;
mod operations;
mod payloads;
pub(crate) mod record;
mod ring;
mod rows;
#[cfg(test)]
pub(crate) mod testing;
mod texts;

use std::cell::Cell;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

pub(crate) use budget::{BUDGET, SHARE_OF_MEMORY, begin};
use losses::LOSSES;
pub(crate) use losses::{Lost, lose_elsewhere};
#[cfg(test)]
pub(crate) use ring::MOST_FIELDS;
use ring::{Consumer, Producer};
pub(crate) use rows::{Launch, Rows};
pub(crate) use texts::{Registered, Text};

use crate::forked;
use crate::nccl::State;
use crate::nvtx::Stack;

/// Whether ranges are passed on: not as long as a daemon is only looked for.
static RANGES_WANTED: AtomicBool = AtomicBool::new(true);

/// Whether anybody wants ranges.
#[inline]
pub(crate) fn are_ranges_wanted() -> bool {
    RANGES_WANTED.load(Ordering::Relaxed)
}

/// From now on ranges are passed on, or not.
pub(crate) fn want_ranges(wanted: bool) {
    RANGES_WANTED.store(wanted, Ordering::Relaxed);
}

/// What the writer sees of a thread beside its ring.
pub(crate) struct ThreadInfo {
    /// `gettid`.
    pub(crate) id: u32,
    /// Push/pop ranges that are begun and not ended.
    open_ranges: AtomicU32,
    lost: [AtomicU64; LOSSES.len()],
}

/// A thread's own state.
pub(crate) struct Thread {
    info: Arc<ThreadInfo>,
    producer: Producer,
    sent: texts::Sent,
    /// Its open push/pop ranges.
    pub(crate) ranges: Stack,
    /// What it is doing in NCCL.
    pub(crate) nccl: State,
}

impl Thread {
    /// Passes a record on, or counts it.
    #[inline]
    pub(crate) fn push(&mut self, lost: Lost, kind: u8, fields: &[u64]) {
        if !self.producer.push(kind, fields, &[]) {
            self.lose(lost);
        }
    }

    /// Passes a range on, or counts it, where anybody wants ranges.
    #[inline]
    pub(crate) fn push_range(&mut self, kind: u8, fields: &[u64]) {
        if are_ranges_wanted() {
            self.push(Lost::Ranges, kind, fields);
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
    if forked::is_child() || place.ended.get() || LEAVING.try_with(|_| ()).is_err() {
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
        nccl: State::default(),
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

/// The calling thread's id (`gettid`, which glibc has as a function from 2.30 on).
pub(crate) fn thread_id() -> u32 {
    // SAFETY: no preconditions.
    unsafe { libc::syscall(libc::SYS_gettid) as u32 }
}
