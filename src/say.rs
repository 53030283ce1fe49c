//! Saying something where nobody may listen any more: a terminal that was closed, a pipe whose reader has gone.
//!
//! The standard macros panic there, which ends most commands (see `main`). A recorder goes on: its command still runs, and the
//! recording must be closed.

use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

/// A line on stderr, as `anstream::eprintln`. Where it can't be written it is dropped.
macro_rules! say {
    ($($text:tt)*) => { $crate::say::line(format_args!($($text)*)) };
}
pub(crate) use say;

/// See [`say!`].
pub fn line(text: std::fmt::Arguments<'_>) {
    drop(writeln!(anstream::stderr(), "{text}"));
}

static GOES_ON: AtomicBool = AtomicBool::new(false);

/// Whether this process goes on where printing fails.
pub fn goes_on() -> bool {
    GOES_ON.load(Ordering::Relaxed)
}

/// Runs `print`, which prints as other commands do, up to where that fails: what follows it is not printed, and we go on.
/// `None` there.
pub fn as_far_as_possible<T>(print: impl FnOnce() -> T) -> Option<T> {
    GOES_ON.store(true, Ordering::Relaxed);
    let printed = catch_unwind(AssertUnwindSafe(print)).ok();
    GOES_ON.store(false, Ordering::Relaxed);
    printed
}
