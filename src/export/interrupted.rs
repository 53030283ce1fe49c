//! What Ctrl-C leaves of what is being written: nothing.

use gputrace_trace::place;

const SIGNALS: [libc::c_int; 6] = [
    libc::SIGINT,
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGQUIT,
    libc::SIGUSR1,
    libc::SIGUSR2,
];

/// From now on the signals that end a program remove what it has half written, and end it then.
///
/// Threads that were started before may still take them, so this comes before any that go on.
pub fn leaves_nothing() {
    let signals = blocked();
    let waiting = move || {
        let mut signal = 0;
        // SAFETY: both are valid for the call's time.
        if unsafe { libc::sigwait(&raw const signals, &raw mut signal) } != 0 {
            return;
        }
        place::abandon_all();
        // SAFETY: ends the process at once; other threads are in the middle of what no longer matters.
        unsafe { libc::_exit(128 + signal) }
    };
    if std::thread::Builder::new().spawn(waiting).is_err() {
        // Without a thread that waits for them they must go on ending the program.
        unblocked(signals);
    }
}

fn blocked() -> libc::sigset_t {
    // SAFETY: an empty set is made before anything is added, and the mask of this thread is set from it.
    unsafe {
        let mut signals: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut signals);
        for signal in SIGNALS {
            libc::sigaddset(&raw mut signals, signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const signals, std::ptr::null_mut());
        signals
    }
}

fn unblocked(signals: libc::sigset_t) {
    // SAFETY: the set was made by `blocked`.
    unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const signals, std::ptr::null_mut()) };
}
