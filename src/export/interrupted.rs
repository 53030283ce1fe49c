//! What Ctrl-C leaves of an export: nothing.

use std::path::Path;

use gputrace_interchange::export::files;

const SIGNALS: [libc::c_int; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

/// From now on the signals that end a program remove what was half written for `output`, and end it then.
///
/// Threads that were started before may still take them, so this comes before any that go on.
pub fn leaves_nothing(output: &Path) {
    let Ok(part) = files::unfinished_path(output) else {
        return;
    };
    let signals = blocked();
    let waiting = move || {
        let mut signal = 0;
        // SAFETY: both are valid for the call's time.
        if unsafe { libc::sigwait(&raw const signals, &raw mut signal) } != 0 {
            return;
        }
        let is_folder = std::fs::symlink_metadata(&part).is_ok_and(|found| found.is_dir());
        // There may be nothing yet.
        drop(match is_folder {
            true => std::fs::remove_dir_all(&part),
            false => std::fs::remove_file(&part),
        });
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
