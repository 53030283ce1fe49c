//! Events of the host on their way to the writer: NVTX ranges and NCCL's operations.
//!
//! A bounded queue: whoever finds it full counts a loss and goes on.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use gputrace_trace::TimeNs;

/// What the queue holds at most, until the writer has taken it (it comes by at least each 50 ms).
const CAPACITY: usize = 1 << 17;

/// A range or mark that has ended.
pub(crate) struct Range {
    pub(crate) start: TimeNs,
    /// `None` for a mark.
    pub(crate) end: Option<TimeNs>,
    pub(crate) name: String,
    pub(crate) domain: u32,
    pub(crate) thread: u32,
    pub(crate) kind: u8,
    pub(crate) depth: u16,
    pub(crate) category: Option<u32>,
    pub(crate) color: Option<u32>,
    pub(crate) payload: Option<f64>,
}

/// An operation that NCCL has enqueued.
pub(crate) struct Operation {
    pub(crate) start: TimeNs,
    pub(crate) end: TimeNs,
    pub(crate) communicator: u64,
    pub(crate) rank: u32,
    pub(crate) sequence: Option<u64>,
    pub(crate) function: String,
    pub(crate) datatype: String,
    pub(crate) count: u64,
    pub(crate) root: Option<i32>,
    pub(crate) peer: Option<i32>,
    pub(crate) algorithm: Option<String>,
    pub(crate) protocol: Option<String>,
    pub(crate) channels: u8,
    pub(crate) warps: u8,
    pub(crate) plan: Option<u64>,
    pub(crate) thread: u32,
    pub(crate) graph_captured: bool,
}

/// A communicator that was set up.
pub(crate) struct Communicator {
    pub(crate) created: TimeNs,
    pub(crate) communicator: u64,
    pub(crate) name: Option<String>,
    pub(crate) rank: u32,
    pub(crate) ranks: u32,
    pub(crate) nodes: u32,
    /// The plugin interface's version by which NCCL told.
    pub(crate) profiler_version: u32,
}

pub(crate) enum HostEvent {
    Range(Range),
    Operation(Operation),
    Communicator(Communicator),
}

static QUEUE: Mutex<Vec<HostEvent>> = Mutex::new(Vec::new());
/// Events that found the queue full.
static LOST: AtomicU64 = AtomicU64::new(0);

/// Hands an event to the writer.
pub(crate) fn push(event: HostEvent) {
    if crate::session::is_dead() {
        return;
    }
    let mut queue = QUEUE.lock().unwrap_or_else(PoisonError::into_inner);
    if queue.len() < CAPACITY {
        queue.push(event);
    } else {
        LOST.fetch_add(1, Ordering::Relaxed);
    }
}

/// Takes all events, and the number of those lost since the last call.
pub(crate) fn take() -> (Vec<HostEvent>, u64) {
    let events = std::mem::take(&mut *QUEUE.lock().unwrap_or_else(PoisonError::into_inner));
    (events, LOST.swap(0, Ordering::Relaxed))
}

/// The calling thread's id (`gettid`).
pub(crate) fn thread_id() -> u32 {
    thread_local! {
        static THREAD: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
    }
    THREAD
        .try_with(|cached| {
            if cached.get() == 0 {
                // SAFETY: no preconditions.
                cached.set(unsafe { libc::gettid() }.cast_unsigned());
            }
            cached.get()
        })
        .unwrap_or(0)
}
