//! The edge between C and this library: what every exported function has around its body.

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

/// PTHREAD_CANCEL_DISABLE (pthread.h of glibc and musl).
const DISABLED: c_int = 1;

/// While it lives, this thread is not cancelled: pthread_cancel unwinds the stack, and must not do so through frames of
/// Rust. A cancellation that comes meanwhile takes place once the program waits by itself.
struct Uncancelled(c_int);

impl Uncancelled {
    fn begin() -> Self {
        let mut before = 0;
        // SAFETY: a valid state, and a place for the one before.
        unsafe { pthread_setcancelstate(DISABLED, &raw mut before) };
        Self(before)
    }
}

impl Drop for Uncancelled {
    fn drop(&mut self) {
        // SAFETY: the state that was there before; null: what is there now is not asked for.
        unsafe { pthread_setcancelstate(self.0, std::ptr::null_mut()) };
    }
}

/// Runs the body of a function that C calls; `None` when it panicked, which stays on this side.
pub(crate) fn guarded<T>(body: impl FnOnce() -> T) -> Option<T> {
    let _uncancelled = Uncancelled::begin();
    catch_unwind(AssertUnwindSafe(body)).ok()
}
