//! A capture or a snapshot while it is made.

use std::collections::BTreeMap;
use std::time::Instant;

use gputrace_trace::daemon::Captured;

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Processes end the segment before it.
    Opening,
    /// Kernels are recorded.
    Recording,
    /// Processes end its last segment.
    Closing,
    /// It is put together.
    Keeping,
}

/// A process of it.
#[derive(Clone, Debug)]
pub struct Member {
    /// Its rank.
    pub rank: u32,
    /// The number of the cut that it is waited for, by its own count.
    pub cut: u64,
    /// The segment that it wrote when it was asked for that cut.
    pub asked: Option<u32>,
    /// The first segment of the window.
    pub first: Option<u32>,
    /// The last one.
    pub last: Option<u32>,
    /// The number of its last step when the recording began.
    pub step: Option<u64>,
    /// How its capture ended.
    pub captured: Option<Captured>,
    /// Why it has less than was asked.
    pub missing: Option<String>,
    /// Whether it has done what this phase waits for.
    pub is_done: bool,
}

/// A capture or a snapshot.
#[derive(Debug)]
pub struct Window {
    /// The job that it is of.
    pub job: String,
    /// What it will be called.
    pub name: String,
    /// "capture", "snapshot" or a rule's word.
    pub trigger: String,
    /// What was found, or who asked.
    pub title: String,
    /// Who waits for it.
    pub caller: Option<u64>,
    /// From when on rows are wanted, nanoseconds since 1970.
    pub since_ns: i64,
    /// Kernels of so many steps; for a snapshot none.
    pub steps: Option<u64>,
    /// For so long at most.
    pub most_ns: i64,
    /// Only these kinds.
    pub kinds: Option<Vec<String>>,
    /// Whether it records something, or only takes from the ring.
    pub is_capture: bool,
    /// Which processes, by their folders.
    pub members: BTreeMap<String, Member>,
    /// How far it is.
    pub phase: Phase,
    /// When the phase ends, whatever has not been done.
    pub until: Instant,
}
