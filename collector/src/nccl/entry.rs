//! What each function has in common that NCCL calls.

use std::ffi::{c_char, c_int};

use crate::host_events::Text;
use crate::{cost, forked};

/// ncclSuccess: whatever happens here, NCCL goes on.
const SUCCESS: c_int = 0;

/// NCCL's names are static, zero-terminated texts, or null.
pub(super) fn text(text: *const c_char) -> Text<'static> {
    // SAFETY: as above.
    unsafe { Text::from_c(text) }
}

pub(super) fn guarded(body: impl FnOnce()) -> c_int {
    let _measured = cost::enter(cost::Callback::Nccl);
    if !forked::is_child() {
        // What goes wrong here costs a row, never the program's collective.
        drop(std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)));
    }
    SUCCESS
}
