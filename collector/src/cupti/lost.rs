//! Whether CUPTI has ended itself: then none of its functions may be called any more.

use std::sync::atomic::{AtomicBool, Ordering};

static LOST: AtomicBool = AtomicBool::new(false);

/// Whether CUPTI has ended itself.
pub(crate) fn is_lost() -> bool {
    LOST.load(Ordering::Relaxed)
}

/// CUPTI says that it ends itself after an error.
pub(crate) fn lose() {
    LOST.store(true, Ordering::Relaxed);
}
