//! Operations that were launched and are not done: a forced flush gives them their records without an end.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::records::{self, Record};
use super::{is_enabled, lock};
use crate::device::{CompletedOp, GraphRun};

/// What gets a record when it is done.
enum InFlight {
    /// Its end is 0, and so is its start while it waits.
    Operation(CompletedOp),
    Graph(Arc<GraphRun>),
}

/// By ticket.
static ALL: Mutex<BTreeMap<u64, InFlight>> = Mutex::new(BTreeMap::new());

fn next_ticket() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// An operation is launched. Gives its ticket: 0 if it is not recorded.
pub(super) fn launched(op: CompletedOp) -> u64 {
    if !is_enabled(records::kind_of(&op)) {
        return 0;
    }
    let ticket = next_ticket();
    lock(&ALL).insert(ticket, InFlight::Operation(op));
    ticket
}

/// A graph is launched that is recorded as a whole.
pub(super) fn graph_launched(run: &Arc<GraphRun>) {
    let ticket = next_ticket();
    run.ticket.store(ticket, Ordering::Relaxed);
    lock(&ALL).insert(ticket, InFlight::Graph(Arc::clone(run)));
}

/// It starts on the device.
pub(super) fn started(ticket: u64, start_ns: i64) {
    if ticket != 0
        && let Some(InFlight::Operation(op)) = lock(&ALL).get_mut(&ticket)
    {
        op.start_ns = start_ns;
    }
}

/// It is done. Gives whether its record is still to be written: not if it is not recorded, and not if a forced flush has
/// delivered it.
pub(super) fn done(ticket: u64) -> bool {
    ticket != 0 && lock(&ALL).remove(&ticket).is_some()
}

/// Whether any operation runs or waits.
pub(super) fn any() -> bool {
    !lock(&ALL).is_empty()
}

/// The records of all that run or wait, which get no other.
pub(super) fn take_all() -> Vec<Record> {
    let all = std::mem::take(&mut *lock(&ALL));
    let record = |one: &InFlight| match one {
        InFlight::Operation(op) => records::operation(op),
        InFlight::Graph(run) => records::graph(run),
    };
    all.values().map(record).collect()
}
