//! Events that found no room, by kind.

use std::sync::atomic::{AtomicU64, Ordering};

/// Kinds of events, for counting those that found no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lost {
    Ranges,
    Operations,
    /// Proxy steps and kernels by channel.
    Details,
    /// A text: the event that names it is there, without its name.
    Texts,
    /// Stacks of launches.
    Stacks,
    /// The same, because there are too many different ones.
    TooManyStacks,
}

/// What is lost of each kind, and what that touches.
pub(super) const LOSSES: [(Lost, &str, &str); 6] = [
    (Lost::Ranges, "NVTX ranges and marks", "steps and ranges"),
    (Lost::Operations, "NCCL operations", "collectives"),
    (
        Lost::Details,
        "NCCL proxy steps and channels",
        "proxy steps and channels",
    ),
    (Lost::Texts, "names of ranges and operations", "names"),
    (Lost::Stacks, "stacks of launches", "stacks"),
    (
        Lost::TooManyStacks,
        "launches from stacks beyond those that there is room for",
        "stacks",
    ),
];

/// Events that were lost on threads that have no ring: there was no memory for one, or the thread was ending.
pub(super) static LOST_ELSEWHERE: [AtomicU64; LOSSES.len()] = [const { AtomicU64::new(0) }; LOSSES.len()];

/// Counts something that is lost on no thread in particular.
pub(crate) fn lose_elsewhere(lost: Lost) {
    LOST_ELSEWHERE[lost as usize].fetch_add(1, Ordering::Relaxed);
}
