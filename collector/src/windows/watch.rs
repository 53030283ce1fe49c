//! The application's threads' side of windows: what they do that may begin or end one is noted with its moment.
//!
//! A few events a step; everything else costs one load, and, where ranges are looked at, one comparison.

use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError, TryLockError};

use gputrace_trace::step_names::step_word;
use gputrace_trace::{TimeNs, now};

use super::Event;
use crate::config::{self, Taker};
use crate::host_events::Text;
use crate::{forked, power};

/// Events that wait at most; the writer comes by each 20 ms.
const CAPACITY: usize = 1 << 14;
/// Bits of [`INTEREST`].
const STEPS: u8 = 1;
const RANGE: u8 = 2;

static INTEREST: AtomicU8 = AtomicU8::new(0);
/// Since when; 0 before.
static BEGAN: AtomicI64 = AtomicI64::new(0);
/// The hash of the asked range's name.
static RANGE_HASH: AtomicU64 = AtomicU64::new(0);
/// Ranges of that name that may end on any thread, by number: open ones, and how many.
static STARTED: Mutex<Vec<u64>> = Mutex::new(Vec::new());
static STARTED_COUNT: AtomicUsize = AtomicUsize::new(0);
/// Events that found no room.
static LOST: AtomicU64 = AtomicU64::new(0);
static QUEUE: Mutex<Vec<(TimeNs, Event)>> = Mutex::new(Vec::new());

/// From now on steps and ranges are looked for, as the options want them.
pub(crate) fn begin() {
    _ = BEGAN.compare_exchange(0, now().0, Ordering::Relaxed, Ordering::Relaxed);
    let options = config::options();
    // A daemon is told of steps while the program runs.
    let needs_steps = options.needs_steps() || config::taker() == Taker::Daemon;
    let interest = if needs_steps { STEPS } else { 0 } | if options.range.is_some() { RANGE } else { 0 };
    let name = options.range.as_deref().unwrap_or_default();
    RANGE_HASH.store(Text::new(name.as_bytes()).hash, Ordering::Relaxed);
    INTEREST.store(interest, Ordering::Relaxed);
}

/// Since when there may be events: the writer's thread may get its first turn later.
pub(crate) fn began() -> TimeNs {
    match BEGAN.load(Ordering::Relaxed) {
        0 => now(),
        at => TimeNs(at),
    }
}

/// A range begins, at the moment that its row will have. Gives whether it is one of the asked name.
#[inline]
pub(crate) fn range_begins(name: Text<'_>, at: TimeNs, thread: u32) -> bool {
    let interest = INTEREST.load(Ordering::Relaxed);
    if interest == 0 {
        return false;
    }
    if interest & STEPS != 0
        && let Some((word, number)) = step_word(name.bytes)
    {
        note(at, Event::Step { word, number, thread });
    }
    let is_asked = interest & RANGE != 0 && name.hash == RANGE_HASH.load(Ordering::Relaxed);
    if is_asked {
        power::on();
        note(at, Event::RangeBegins);
    }
    is_asked
}

/// A range ends whose name has this hash.
#[inline]
pub(crate) fn range_ends(hash: u64, at: TimeNs) {
    if INTEREST.load(Ordering::Relaxed) & RANGE != 0 && hash == RANGE_HASH.load(Ordering::Relaxed) {
        note(at, Event::RangeEnds);
    }
}

/// A range begins that may end on any thread.
pub(crate) fn range_starts(id: u64, name: Text<'_>, at: TimeNs, thread: u32) {
    if range_begins(name, at, thread) {
        let mut started = STARTED.lock().unwrap_or_else(PoisonError::into_inner);
        if started.len() < CAPACITY {
            started.push(id);
            STARTED_COUNT.store(started.len(), Ordering::Relaxed);
        }
    }
}

/// ... ends. `may_wait`: whether this cannot be a signal's handler that interrupted this very function on its thread.
#[inline]
pub(crate) fn range_stops(id: u64, at: TimeNs, may_wait: bool) {
    if STARTED_COUNT.load(Ordering::Relaxed) == 0 {
        return;
    }
    let mut started = match STARTED.try_lock() {
        Ok(started) => started,
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        Err(TryLockError::WouldBlock) if may_wait => STARTED.lock().unwrap_or_else(PoisonError::into_inner),
        Err(TryLockError::WouldBlock) => {
            LOST.fetch_add(1, Ordering::Relaxed);
            return;
        }
    };
    if let Some(place) = started.iter().position(|open| *open == id) {
        started.swap_remove(place);
        STARTED_COUNT.store(started.len(), Ordering::Relaxed);
        drop(started);
        note_as(at, Event::RangeEnds, may_wait);
    }
}

/// Notes an event for the writer.
pub(crate) fn note(at: TimeNs, event: Event) {
    note_as(at, event, true);
}

/// The same; who may not wait (a signal handler that has interrupted this very function, say) loses the event, which is counted.
fn note_as(at: TimeNs, event: Event, may_wait: bool) {
    if forked::is_child() {
        return;
    }
    let mut queue = match QUEUE.try_lock() {
        Ok(queue) => queue,
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        Err(TryLockError::WouldBlock) if may_wait => QUEUE.lock().unwrap_or_else(PoisonError::into_inner),
        Err(TryLockError::WouldBlock) => {
            LOST.fetch_add(1, Ordering::Relaxed);
            return;
        }
    };
    // A program that has so many steps in 20 ms has none that anybody can follow.
    if queue.len() < CAPACITY {
        queue.push((at, event));
    } else {
        LOST.fetch_add(1, Ordering::Relaxed);
    }
}

/// Events since the last call that found no room.
pub(crate) fn take_lost() -> u64 {
    LOST.swap(0, Ordering::Relaxed)
}

/// Takes the events since the last call, in the order of time.
pub(crate) fn take() -> Vec<(TimeNs, Event)> {
    let mut events = std::mem::take(&mut *QUEUE.lock().unwrap_or_else(PoisonError::into_inner));
    events.sort_by_key(|(at, _)| *at);
    events
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_beyond_those_that_may_wait_are_counted() {
        for at in 0..CAPACITY as i64 + 3 {
            note(TimeNs(at), Event::RangeEnds);
        }
        assert_eq!((take_lost(), take_lost(), take().len()), (3, 0, CAPACITY));
    }
}
