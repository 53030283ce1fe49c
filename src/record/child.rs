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

extern "C" fn pass_over(_signal: libc::c_int) {}

/// Installs a handler, unless the signal is ignored: `nohup` and shells that start something in the background have it so, for
/// the command too.
fn handle(signal: libc::c_int, handler: extern "C" fn(libc::c_int)) {
    // SAFETY: the handlers here do no more than store to an atomic, which is allowed in a signal handler. An ignored signal that
    // comes between the two calls sets what `pass_signals` then passes on to nobody: no command runs yet.
    unsafe {
        if libc::signal(signal, handler as libc::sighandler_t) == libc::SIG_IGN {
            libc::signal(signal, libc::SIG_IGN);
        }
    }
}

/// From here on a limit on file sizes is an error of the write, which says which file, instead of our end. A command that we start
/// has the default again, as handlers end where a program begins.
pub fn survive_limits() {
    handle(libc::SIGXFSZ, pass_over);
}

/// The same of a pipe without a reader.
pub fn survive_closed_pipes() {
    handle(libc::SIGPIPE, pass_over);
}

/// From here on SIGINT, SIGTERM and SIGHUP are noted instead of ending us: the recording is closed first.
pub fn note_signals() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        handle(signal, note_signal);
    }
}

/// From here on they end us again.
pub fn forget_signals() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: SIG_DFL is a valid disposition, and an ignored signal stays ignored as in `handle`.
        unsafe {
            if libc::signal(signal, libc::SIG_DFL) == libc::SIG_IGN {
                libc::signal(signal, libc::SIG_IGN);
            }
        }
    }
}

/// The signal that asked us to end, if one has.
pub fn asked_to_end() -> Option<i32> {
    Some(ASKED_TO_END.load(Ordering::Relaxed)).filter(|signal| *signal != 0)
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
    let child = command.spawn()?;
    // What came before there was a command did not reach it, not even by a terminal, and its handlers were ours until now.
    if let Some(signal) = asked_to_end() {
        // SAFETY: as in `pass_signals`.
        unsafe { libc::kill(child.id().cast_signed(), signal) };
    }
    Ok(child)
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
