//! Running the recorded command: starting it, passing signals on, and telling how it ended.

use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicI32, Ordering};

/// The last signal that asked us to end; 0 for none.
static ASKED_TO_END: AtomicI32 = AtomicI32::new(0);

extern "C" fn note_signal(signal: libc::c_int) {
    ASKED_TO_END.store(signal, Ordering::Relaxed);
}

/// From here on SIGINT, SIGTERM and SIGHUP are noted instead of ending us: the recording is closed first.
pub fn note_signals() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        let handler: extern "C" fn(libc::c_int) = note_signal;
        // SAFETY: the handler only stores to an atomic, which is allowed in a signal handler.
        unsafe { libc::signal(signal, handler as libc::sighandler_t) };
    }
}

/// Starts the command. `ends_with_us`: whether it is killed when we are (bundled workloads; a user's own runs on).
pub fn start(command: &mut Command, ends_with_us: bool) -> io::Result<Child> {
    if ends_with_us {
        let parent = std::process::id();
        let tie = move || {
            // SAFETY: prctl and getppid are async-signal-safe system calls with plain integer arguments.
            unsafe {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                // The parent may have died before the line above: then nobody would tell us.
                if libc::getppid().cast_unsigned() != parent {
                    libc::_exit(1);
                }
            }
            Ok(())
        };
        // SAFETY: the closure makes two system calls and touches no memory of the parent's.
        unsafe { command.pre_exec(tie) };
    }
    command.spawn()
}

/// Passes SIGTERM and SIGHUP on to the command. SIGINT comes from a terminal, which sends it to the command itself.
pub fn pass_signals(child: &Child) {
    let signal = ASKED_TO_END.swap(0, Ordering::Relaxed);
    if signal == libc::SIGTERM || signal == libc::SIGHUP {
        // SAFETY: sends a signal to a child that was not waited for yet, so its pid is still its own.
        unsafe { libc::kill(child.id().cast_signed(), signal) };
    }
}

/// The exit status as a shell gives it: 128 + signal when a signal ended the command.
pub fn shell_status(status: ExitStatus) -> i32 {
    status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}
