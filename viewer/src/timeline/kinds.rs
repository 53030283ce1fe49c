//! What slices are, as numbers: the page draws a hue for each.

/// A kernel that computes.
pub const COMPUTE: u8 = 0;
/// A kernel that communicates.
pub const COMMUNICATION: u8 = 1;
/// A memory copy.
pub const COPY: u8 = 2;
/// A memory set.
pub const MEMSET: u8 = 3;
/// A call of CUDA's runtime.
pub const RUNTIME_CALL: u8 = 4;
/// A call of CUDA's driver.
pub const DRIVER_CALL: u8 = 5;
/// An NVTX range or mark.
pub const RANGE: u8 = 6;
/// The host, or a stream, waits.
pub const SYNCHRONIZATION: u8 = 7;
/// CUPTI's own work.
pub const OVERHEAD: u8 = 8;
/// A collective: its enqueueing on a thread, its transfer on a communicator's row.
pub const COLLECTIVE: u8 = 9;
/// A CUDA graph launched as a whole.
pub const GRAPH_LAUNCH: u8 = 10;
/// Anything else.
pub const OTHER: u8 = 11;
/// An operator of a framework.
pub const OPERATOR: u8 = 12;
/// The part of a collective that a rank waits for others.
pub const WAIT: u8 = 13;

/// What the kinds are called, by number.
pub const NAMES: [&str; 14] = [
    "compute",
    "communication",
    "copy",
    "memset",
    "runtime call",
    "driver call",
    "nvtx range",
    "synchronization",
    "overhead",
    "collective",
    "graph launch",
    "other",
    "operator",
    "waiting for ranks",
];
