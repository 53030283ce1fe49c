//! Operations that were launched and are not done: a forced flush gives them their records without an end.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use super::records::{self, Record};
use super::{is_enabled, lock};
use crate::device::CompletedOp;

/// By ticket. Ends are 0, and so are the starts of those that wait.
static OPERATIONS: Mutex<BTreeMap<u64, CompletedOp>> = Mutex::new(BTreeMap::new());

/// What became of an operation's record before the operation was done.
pub(super) enum Fate {
    /// It was launched while nobody asked for its kind.
    NotAsked,
    /// A forced flush has delivered it.
    Forced,
    Waits,
}

/// An operation is launched. Gives its ticket: 0 if it is not recorded.
pub(super) fn launched(op: CompletedOp) -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    if !is_enabled(records::kind_of(&op)) {
        return 0;
    }
    let ticket = NEXT.fetch_add(1, Ordering::Relaxed);
    lock(&OPERATIONS).insert(ticket, op);
    ticket
}

/// It starts on the device.
pub(super) fn started(ticket: u64, start_ns: i64) {
    if ticket != 0
        && let Some(op) = lock(&OPERATIONS).get_mut(&ticket)
    {
        op.start_ns = start_ns;
    }
}

/// It is done.
pub(super) fn done(ticket: u64) -> Fate {
    if ticket == 0 {
        return Fate::NotAsked;
    }
    match lock(&OPERATIONS).remove(&ticket) {
        Some(_) => Fate::Waits,
        None => Fate::Forced,
    }
}

/// Whether any operation runs or waits.
pub(super) fn any() -> bool {
    !lock(&OPERATIONS).is_empty()
}

/// The records of all that run or wait, which get no other.
pub(super) fn take_all() -> Vec<Record> {
    let operations = std::mem::take(&mut *lock(&OPERATIONS));
    operations.values().map(records::operation).collect()
}
