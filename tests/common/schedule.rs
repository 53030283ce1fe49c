//! Which tests run at the same time.
//!
//! The harness starts as many at once as `.cargo/config.toml` says, far more than there are cores, since most wait: for
//! modelled time, a timeout, a browser. Here each takes what it needs, until its thread ends:
//!
//! - a part of a core: [`computes`], which everything that starts our program calls;
//! - nothing, where it hardly computes and says so: [`waits`], before that;
//! - the whole machine, where it measures time, or holds only if nothing else delays it: [`alone`], as its first line.
//!
//! A test may be held up where it takes its turn, so whatever looks at a clock takes it first.

#![allow(dead_code)] // Not all of it in each crate.

use std::cell::RefCell;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Tests that compute run so many to a core: they wait about half of their time, for processes that start and end.
const TESTS_A_CORE: usize = 2;
/// Of those that wait, which start processes all the same.
const WAITING_A_CORE: usize = 8;

#[derive(Clone, Copy, PartialEq)]
enum Need {
    Nothing,
    Part,
    Machine,
}

/// Tests that have what they need, whether one has the machine, and how many want less than that.
struct Taken {
    waiting: usize,
    computing: usize,
    machine: bool,
    wanted: usize,
}

static TAKEN: Mutex<Taken> = Mutex::new(Taken {
    waiting: 0,
    computing: 0,
    machine: false,
    wanted: 0,
});
static CHANGED: Condvar = Condvar::new();

thread_local! {
    static TURN: RefCell<Option<Turn>> = const { RefCell::new(None) };
}

/// What this thread's test has taken; given back when it ends, however it ends.
struct Turn(Need);

fn taken() -> MutexGuard<'static, Taken> {
    TAKEN.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Turn {
    fn take(need: Need) -> Self {
        let mut now = taken();
        if need != Need::Machine {
            now.wanted += 1;
        }
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let mut now = CHANGED
            .wait_while(now, |now| match need {
                Need::Nothing => now.machine || now.waiting >= WAITING_A_CORE * cores,
                Need::Part => now.machine || now.computing >= TESTS_A_CORE * cores,
                // Last of all: whoever lets the others go first stops them only once.
                Need::Machine => now.machine || now.waiting + now.computing + now.wanted > 0,
            })
            .unwrap_or_else(PoisonError::into_inner);
        match need {
            Need::Nothing => now.waiting += 1,
            Need::Part => now.computing += 1,
            Need::Machine => now.machine = true,
        }
        if need != Need::Machine {
            now.wanted -= 1;
        }
        Self(need)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut now = taken();
        match self.0 {
            Need::Nothing => now.waiting -= 1,
            Need::Part => now.computing -= 1,
            Need::Machine => now.machine = false,
        }
        CHANGED.notify_all();
    }
}

/// Takes what this thread's test needs, unless it has it, or has anything and `or_keep`.
fn take(need: Need, or_keep: bool) {
    // Threads that a test starts have no name and share what it took: one that waited for a core could do so for ever.
    if std::thread::current().name().is_none() {
        return;
    }
    TURN.with_borrow_mut(|turn| {
        if turn.as_ref().is_none_or(|turn| turn.0 != need && !or_keep) {
            // Given back first: nobody waits holding something.
            drop(turn.take());
            *turn = Some(Turn::take(need));
        }
    });
}

/// This test computes, unless it has said something else. What is made once for several tests calls it before it waits for
/// the one that makes it, which would otherwise want what these hold.
pub fn computes() {
    take(Need::Part, true);
}

/// This test hardly computes, unless it has said something else.
pub fn waits() {
    take(Need::Nothing, true);
}

/// No other test may run meanwhile.
pub fn alone() {
    take(Need::Machine, false);
}
