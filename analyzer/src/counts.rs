//! What is counted of a process beside its measures.

use serde::{Deserialize, Serialize};

/// What was left out of one process, and what must be known to read its numbers right.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Counts {
    /// Operations that end before they start.
    pub(crate) backwards: u64,
    /// Operations with impossible times.
    pub(crate) impossible: u64,
    /// Operations that begin before the call that launched them.
    pub(crate) before_call: u64,
    /// Operations whose launch call is not recorded.
    pub(crate) without_call: u64,
    /// Collectives without a recorded kernel.
    pub(crate) without_kernel: u64,
    /// NCCL's kernels that none of the operations which NCCL told of is tied to.
    pub(crate) untold: u64,
    /// CUDA graphs that were recorded as wholes.
    pub(crate) graph_launches: u64,
    /// Whether a kernel is known to communicate by its name alone.
    pub(crate) told_by_name: bool,
    /// 1 where the process has none of the chosen steps.
    pub(crate) without_steps: u64,
    /// Devices that have the host's steps, since no launch on them is recorded.
    pub(crate) by_host: u64,
}

/// What was too much of something.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct TooMuch {
    /// Devices whose steps were left out.
    pub(crate) steps: u64,
    /// Devices whose idle time was not looked into.
    pub(crate) causes: u64,
}

impl TooMuch {
    pub(crate) fn add(&mut self, other: Self) {
        self.steps += other.steps;
        self.causes += other.causes;
    }
}
