//! Switching CUPTI's recording, and NCCL's telling, off and on again, for times in which nothing is wanted for long.
//!
//! While it is off, CUPTI costs nothing. Switching takes CUPTI some time and its locks, so it is only done when nothing will
//! be wanted soon; and never once the process has a CUDA graph: CUPTI loses sight of the nodes of graphs that were made
//! before calls were switched off and on.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use crate::cupti::running;
use crate::nccl;

const ON: u8 = 0;
const OFF: u8 = 1;

static STATE: AtomicU8 = AtomicU8::new(ON);
static SWITCHING: Mutex<()> = Mutex::new(());
static GRAPHS: AtomicBool = AtomicBool::new(false);
/// Another profiler records: kinds are switched for the whole process, and so are not ours to switch.
static HELD: AtomicBool = AtomicBool::new(false);
/// Times that began in the middle of a switch.
static BEGAN_LATE: AtomicU64 = AtomicU64::new(0);
/// NCCL is not switched here.
static NCCL_STAYS: AtomicBool = AtomicBool::new(false);

/// Whether everything is switched off: callbacks may return at once, nothing of theirs will be recorded.
#[inline]
pub(crate) fn is_off() -> bool {
    STATE.load(Ordering::Relaxed) == OFF
}

/// The process captures or makes a CUDA graph: from here on CUPTI stays on.
pub(crate) fn graph_seen() {
    GRAPHS.store(true, Ordering::Relaxed);
}

/// Why CUPTI could not be switched off here, if it cannot.
pub(crate) fn why_on() -> Option<&'static str> {
    if GRAPHS.load(Ordering::Relaxed) {
        Some("the process has CUDA graphs")
    } else if HELD.load(Ordering::Relaxed) {
        Some("another profiler in the process records")
    } else {
        None
    }
}

/// Leaves everything as it is until told otherwise.
pub(crate) fn hold(held: bool) {
    HELD.store(held, Ordering::Relaxed);
}

/// Switches off, unless that is not possible here. Gives whether it is off now.
pub(crate) fn off() -> bool {
    let _switching = SWITCHING.lock().unwrap_or_else(PoisonError::into_inner);
    if why_on().is_some() {
        return false;
    }
    if STATE.swap(OFF, Ordering::Relaxed) == ON {
        if let Some(cupti) = running::cupti() {
            cupti.switch(false);
        }
        tell_nccl(false);
    }
    true
}

/// Switches CUPTI alone from now on: NCCL goes on telling.
pub(crate) fn leave_nccl() {
    NCCL_STAYS.store(true, Ordering::Relaxed);
}

fn tell_nccl(on: bool) {
    if !NCCL_STAYS.load(Ordering::Relaxed) {
        nccl::set_recording(on);
    }
}

/// Switches on again: the writer, ahead of time, and a thread of the program that says, outside of CUPTI, that now it matters.
/// Where the writer is just switching off, it waits until it can switch on again.
#[inline]
pub(crate) fn on() {
    if is_off() {
        on_again(SWITCHING.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// The same in a callback of CUPTI, whose locks the writer may be waiting for in the middle of a switch. So it never waits: the
/// writer, which is told too, then comes by within its tick, and what is missing until then is counted.
pub(crate) fn on_without_waiting() {
    if is_off() {
        match SWITCHING.try_lock() {
            Ok(switching) => on_again(switching),
            Err(TryLockError::Poisoned(poisoned)) => on_again(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => {
                BEGAN_LATE.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// Times since the last call that began in the middle of a switch.
pub(crate) fn take_began_late() -> u64 {
    BEGAN_LATE.swap(0, Ordering::Relaxed)
}

#[cold]
fn on_again(_switching: MutexGuard<'_, ()>) {
    if STATE.load(Ordering::Relaxed) == OFF {
        if let Some(cupti) = running::cupti() {
            cupti.switch(true);
        }
        tell_nccl(true);
        STATE.store(ON, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As in a callback of CUPTI while the writer, which has begun to switch, waits for CUPTI.
    #[test]
    fn a_thread_of_the_program_does_not_wait_for_a_switch() {
        let switching = SWITCHING.lock().unwrap_or_else(PoisonError::into_inner);
        STATE.store(OFF, Ordering::Relaxed);
        on_without_waiting();
        assert!(is_off());
        assert_eq!((take_began_late(), take_began_late()), (1, 0));
        drop(switching);
        on_without_waiting();
        assert!(!is_off());
        assert_eq!(take_began_late(), 0);
    }
}
