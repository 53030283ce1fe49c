//! The dispositions of signals that programs usually begin with, whatever the tests themselves were started with.

use std::os::unix::process::CommandExt;
use std::process::Command;

/// Starts a program as from a terminal: no signal is ignored and none blocked. A script in the background, nohup or a
/// runner leaves some ignored, and what is ignored stays so in all children.
pub fn usual_dispositions(command: &mut Command) -> &mut Command {
    // SAFETY: between fork and exec nothing but async-signal-safe calls are made.
    unsafe {
        command.pre_exec(|| {
            for signal in 1..32 {
                // SIGKILL and SIGSTOP are always as usual: an error that means nothing.
                libc::signal(signal, libc::SIG_DFL);
            }
            let mut none: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut none);
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
            Ok(())
        })
    }
}
