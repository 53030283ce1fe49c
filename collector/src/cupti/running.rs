//! The CUPTI that records in this process.

use std::sync::OnceLock;

use super::Cupti;

static CUPTI: OnceLock<Cupti> = OnceLock::new();

/// The running CUPTI, if it could be started.
pub(crate) fn cupti() -> Option<&'static Cupti> {
    CUPTI.get()
}

/// Makes this the running one, unless there is one.
pub(crate) fn set(cupti: Cupti) -> &'static Cupti {
    CUPTI.get_or_init(|| cupti)
}
