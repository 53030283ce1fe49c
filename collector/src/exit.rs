//! The end of the process: the writer is asked to finish, and waited for, but not for ever.

use std::time::Duration;

use crate::{forked, signals, sink};

/// How long the end of the program may be held up.
const PATIENCE: Duration = Duration::from_secs(10);

extern "C" fn at_exit() {
    // A panic must not reach libc. In a forked child there is nothing to finish.
    drop(std::panic::catch_unwind(|| {
        if !forked::is_child() {
            signals::uncancelled(|| sink::finish(PATIENCE));
        }
    }));
}

/// Has the recording closed when the process ends by `exit` or by returning from `main`.
pub(crate) fn register() {
    // SAFETY: libc ties the function to the library that registers it, which is ours: it is called at the program's end, or
    // before the library is unloaded.
    unsafe { libc::atexit(at_exit) };
}
