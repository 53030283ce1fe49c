//! What others ask of the thread, and wait for: that it flushes, and that it finishes.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::buffers;

pub(super) static STOP: AtomicBool = AtomicBool::new(false);
static FINISHED: Mutex<bool> = Mutex::new(false);
static FINISHED_CHANGED: Condvar = Condvar::new();

/// Asks the thread to finish and waits for it.
pub(crate) fn finish(patience: Duration) {
    STOP.store(true, Ordering::Release);
    buffers::wake();
    let finished = FINISHED.lock().unwrap_or_else(PoisonError::into_inner);
    let waited = FINISHED_CHANGED.wait_timeout_while(finished, patience, |finished| !*finished);
    drop(waited);
}

/// How many flushes were asked for, and how many of those were answered.
pub(super) static ASKED: AtomicU64 = AtomicU64::new(0);
static ANSWERED: Mutex<u64> = Mutex::new(0);
static ANSWERED_CHANGED: Condvar = Condvar::new();

/// Asks the thread to flush CUPTI at once, because a context is about to go, and waits for it.
pub(crate) fn flush_before_end(patience: Duration) {
    let ticket = ASKED.fetch_add(1, Ordering::AcqRel) + 1;
    buffers::wake();
    let answered = ANSWERED.lock().unwrap_or_else(PoisonError::into_inner);
    let waited = ANSWERED_CHANGED.wait_timeout_while(answered, patience, |answered| *answered < ticket);
    drop(waited);
}

/// Says that so many flushes were answered.
pub(super) fn answer(tickets: u64) {
    *ANSWERED.lock().unwrap_or_else(PoisonError::into_inner) = tickets;
    ANSWERED_CHANGED.notify_all();
}

/// Says that the thread has ended.
pub(super) fn finished() {
    *FINISHED.lock().unwrap_or_else(PoisonError::into_inner) = true;
    FINISHED_CHANGED.notify_all();
}
