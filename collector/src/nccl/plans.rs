//! Numbers of kernel launches, which CUPTI joins to the kernels.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::cupti::running;
use crate::host_events::{Lost, with_thread};

/// CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM2: 0 and 1 are PyTorch's.
const CORRELATION_KIND: u32 = 5;
/// Numbers of plans and groups: one series, since both go to CUPTI as external correlation ids.
static NEXT_PLAN: AtomicU64 = AtomicU64::new(1);

pub(super) fn next_plan() -> u64 {
    NEXT_PLAN.fetch_add(1, Ordering::Relaxed)
}

/// The plan of the kernel that NCCL is launching on this thread right now: what a CUDA graph node that is made meanwhile
/// belongs to.
pub(crate) fn launching_plan() -> Option<u64> {
    with_thread(Lost::Operations, |thread| thread.nccl.launching).filter(|&plan| plan != 0)
}

/// From here on this thread's launches carry the number.
pub(super) fn push_id(id: u64) {
    if let Some(cupti) = running::cupti() {
        cupti.push_id(CORRELATION_KIND, id);
    }
}

pub(super) fn pop_id() {
    if let Some(cupti) = running::cupti() {
        cupti.pop_id(CORRELATION_KIND);
    }
}
