//! What each function has in common that programs call.

use crate::{cost, forked};

/// Runs a callback's body; a panic stays here, and a forked child does nothing.
#[inline]
pub(super) fn guarded<T>(otherwise: T, body: impl FnOnce() -> T) -> T {
    let _measured = cost::enter(cost::Callback::Nvtx);
    if forked::is_child() {
        return otherwise;
    }
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).unwrap_or(otherwise)
}
