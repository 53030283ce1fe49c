//! Signals are the program's: none that our work raises may reach it, and none of its own is handled on our thread.

use std::mem::MaybeUninit;

/// What writing can raise: a limit on file sizes (SIGXFSZ), a pipe that nobody reads (SIGPIPE).
const OF_WRITING: [libc::c_int; 2] = [libc::SIGXFSZ, libc::SIGPIPE];

fn change(how: libc::c_int, set: &libc::sigset_t) -> libc::sigset_t {
    let mut before = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: both are valid places. It fails for an unknown `how` alone, and then changes nothing; an empty set,
    // which zeroes are, is what `before` then holds.
    unsafe {
        libc::pthread_sigmask(how, set, before.as_mut_ptr());
        before.assume_init()
    }
}

fn empty() -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigemptyset fills the set in, and cannot fail on a valid place.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        set.assume_init()
    }
}

/// A signal mask that is put back, also where the body panics.
struct Masked {
    before: libc::sigset_t,
}

impl Drop for Masked {
    fn drop(&mut self) {
        change(libc::SIG_SETMASK, &self.before);
    }
}

/// Runs `body` with all signals blocked; threads that it starts inherit that.
pub(crate) fn all_blocked<T>(body: impl FnOnce() -> T) -> T {
    let mut all = empty();
    // SAFETY: a valid set.
    unsafe { libc::sigfillset(&raw mut all) };
    let _masked = Masked {
        before: change(libc::SIG_SETMASK, &all),
    };
    body()
}

unsafe extern "C" {
    /// pthread.h; the libc crate does not have it.
    fn pthread_setcancelstate(state: libc::c_int, before: *mut libc::c_int) -> libc::c_int;
}

/// PTHREAD_CANCEL_DISABLE.
const CANCEL_DISABLE: libc::c_int = 1;

/// The cancel state that a thread had, put back also where the body panics.
struct Uncancelled {
    before: libc::c_int,
}

impl Drop for Uncancelled {
    fn drop(&mut self) {
        let mut ours = 0;
        // SAFETY: the state that the thread had, and a valid place for ours.
        unsafe { pthread_setcancelstate(self.before, &raw mut ours) };
    }
}

/// Runs `body` on a thread of the program, which cannot be cancelled (`pthread_cancel`) meanwhile: cancelling unwinds the stack
/// from the next file that we open or write, and Rust ends the process when that comes through one of its frames. A request
/// waits until the thread is back in the program.
pub(crate) fn uncancelled<T>(body: impl FnOnce() -> T) -> T {
    let mut before = 0;
    // SAFETY: a valid state, and a valid place for the one before.
    let is_changed = unsafe { pthread_setcancelstate(CANCEL_DISABLE, &raw mut before) } == 0;
    let _uncancelled = is_changed.then_some(Uncancelled { before });
    body()
}

/// Signals of ours that are blocked. Those that came are taken before the mask is put back, also where the body panics.
struct Quiet {
    ours: libc::sigset_t,
    _masked: Masked,
}

impl Drop for Quiet {
    fn drop(&mut self) {
        let at_once = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: valid places; the signals are blocked, none of them was pending, and nothing is waited for.
        while unsafe { libc::sigtimedwait(&raw const self.ours, std::ptr::null_mut(), &raw const at_once) }
            > 0
        {}
    }
}

/// Runs `body`, which writes, on a thread of the program: what that raises is taken back.
pub(crate) fn quietly<T>(body: impl FnOnce() -> T) -> T {
    let mut ours = empty();
    let mut pending = empty();
    // SAFETY: valid sets and signal numbers.
    unsafe {
        libc::sigpending(&raw mut pending);
        for signal in OF_WRITING {
            if libc::sigismember(&raw const pending, signal) == 0 {
                libc::sigaddset(&raw mut ours, signal);
            }
        }
    }
    let _quiet = Quiet {
        ours,
        _masked: Masked {
            before: change(libc::SIG_BLOCK, &ours),
        },
    };
    body()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_our_writing_raises_is_taken_back() {
        // SAFETY: the signal goes to this thread. Its default action would end the process.
        let raised = quietly(|| unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGXFSZ) });
        assert_eq!(raised, 0);
        let mut pending = empty();
        // SAFETY: a valid place.
        unsafe { libc::sigpending(&raw mut pending) };
        // SAFETY: a valid set.
        assert_eq!(unsafe { libc::sigismember(&raw const pending, libc::SIGXFSZ) }, 0);
    }

    /// The calling thread's blocked signals, and its cancel state.
    fn state() -> (Vec<bool>, libc::c_int) {
        let blocked = change(libc::SIG_BLOCK, &empty());
        let mut cancel = 0;
        // SAFETY: a valid set and signal numbers; a valid state, put back at once, and valid places.
        unsafe {
            pthread_setcancelstate(CANCEL_DISABLE, &raw mut cancel);
            let mut ours = 0;
            pthread_setcancelstate(cancel, &raw mut ours);
            let is_blocked = |signal| libc::sigismember(&raw const blocked, signal) == 1;
            ((1..=64).map(is_blocked).collect(), cancel)
        }
    }

    #[test]
    fn a_panic_leaves_the_thread_as_it_was() {
        let before = state();
        let panics: [fn(); 3] = [
            || all_blocked(|| panic!("in the body")),
            || uncancelled(|| panic!("in the body")),
            || {
                quietly(|| {
                    // SAFETY: the signal goes to this thread, which has it blocked.
                    unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGPIPE) };
                    panic!("in the body")
                });
            },
        ];
        for panics in panics {
            assert!(std::panic::catch_unwind(panics).is_err());
            assert_eq!(state(), before);
        }
        let mut pending = empty();
        // SAFETY: a valid place.
        unsafe { libc::sigpending(&raw mut pending) };
        // SAFETY: a valid set.
        assert_eq!(unsafe { libc::sigismember(&raw const pending, libc::SIGPIPE) }, 0);
    }
}
