//! The memory that the rings, and what else threads keep, may take.

use super::ring::Budget;

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
