//! On the program's threads: a call that puts work on a device begins, and ends.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};

use gputrace_trace::now;

use super::known::{self, Refused};
use super::unwind;
use crate::host_events::{Lost, record, with_thread};

static WANTED: AtomicBool = AtomicBool::new(false);

/// Whether stacks are wanted.
pub(crate) fn are_wanted() -> bool {
    WANTED.load(Ordering::Relaxed)
}

/// From now on stacks are wanted, or not. Gives whether they were. Not to be called in a callback.
pub(crate) fn want(wanted: bool) -> bool {
    if wanted {
        unwind::find();
    }
    WANTED.swap(wanted, Ordering::Relaxed)
}

/// A call of the runtime that this thread is in: what it calls of the driver has the same stack.
#[derive(Clone, Copy)]
struct Around {
    correlation: u32,
    /// The stack's number, if it has one.
    stack: Option<u32>,
}

thread_local! {
    static AROUND: Cell<Option<Around>> = const { Cell::new(None) };
}

/// A call begins that puts work on a device.
#[inline]
pub(crate) fn begins(is_runtime: bool, correlation: u32) {
    let around = AROUND.try_with(Cell::get).ok().flatten();
    let stack = match around {
        // The runtime's calls of the driver mostly have its own number.
        Some(around) if around.correlation == correlation => return,
        Some(around) => around.stack,
        None => number(),
    };
    if is_runtime {
        _ = AROUND.try_with(|place| place.set(Some(Around { correlation, stack })));
    }
    if let Some(stack) = stack {
        let fields = [
            now().0.cast_unsigned(),
            u64::from(correlation) | u64::from(stack) << 32,
        ];
        with_thread(Lost::Stacks, |thread| {
            thread.push(Lost::Stacks, record::LAUNCH, &fields);
        });
    }
}

/// A call ends that put work on a device.
#[inline]
pub(crate) fn ends(is_runtime: bool, correlation: u32) {
    if is_runtime {
        _ = AROUND.try_with(|place| {
            if place
                .get()
                .is_some_and(|around| around.correlation == correlation)
            {
                place.set(None);
            }
        });
    }
}

/// The number of the calling thread's stack; counted where it has none.
fn number() -> Option<u32> {
    let lost = match unwind::stack().map(|stack| known::number(&stack)) {
        Some(Ok(number)) => return Some(number),
        Some(Err(Refused::Full)) => Lost::TooManyStacks,
        Some(Err(Refused::Busy)) | None => Lost::Stacks,
    };
    with_thread(lost, |thread| thread.lose(lost));
    None
}
