//! Whether a sandbox (a seccomp filter, as containers have) refuses system calls that the collector makes.
//!
//! Each call is tried in a child, since a filter may end who makes it, and with arguments that do nothing: the kernel's answer
//! is then another error than a filter's.

use std::ffi::c_long;

use super::Finding;

/// A system call of the collector's.
struct Call {
    name: &'static str,
    number: c_long,
    arguments: [usize; 4],
    /// What happens without it.
    without: &'static str,
    /// Whether nothing is recorded without it.
    is_needed: bool,
}

const fn needed(name: &'static str, number: c_long, arguments: [usize; 4], without: &'static str) -> Call {
    Call {
        name,
        number,
        arguments,
        without,
        is_needed: true,
    }
}

const fn helpful(name: &'static str, number: c_long, arguments: [usize; 4], without: &'static str) -> Call {
    Call {
        is_needed: false,
        ..needed(name, number, arguments, without)
    }
}

/// No descriptor.
const NONE: usize = usize::MAX;
const NOT_NAMED: &str = "processes are recorded without their headers, which say who they are";
const NOT_RECORDED: &str = "processes are not recorded";
const NOT_FOUND: &str =
    "libcupti is found only where it is loaded already, named by GPUTRACE_CUPTI or known to the loader";

/// The calls whose names differ among processors: as the C library makes them.
#[cfg(target_arch = "x86_64")]
const OF_PATHS: [Call; 3] = [
    needed("mkdir", libc::SYS_mkdir, [0; 4], NOT_RECORDED),
    helpful("rename", libc::SYS_rename, [0; 4], NOT_NAMED),
    helpful("readlink", libc::SYS_readlink, [0; 4], NOT_FOUND),
];
#[cfg(not(target_arch = "x86_64"))]
const OF_PATHS: [Call; 3] = [
    needed("mkdirat", libc::SYS_mkdirat, [0; 4], NOT_RECORDED),
    helpful("renameat", libc::SYS_renameat, [0; 4], NOT_NAMED),
    helpful("readlinkat", libc::SYS_readlinkat, [0; 4], NOT_FOUND),
];

/// The others. `docs/recording.md` has all of them.
const OTHERS: [Call; 12] = [
    needed("openat", libc::SYS_openat, [NONE, 0, 0, 0], NOT_RECORDED),
    needed("newfstatat", libc::SYS_newfstatat, [NONE, 0, 0, 0], NOT_RECORDED),
    needed("write", libc::SYS_write, [NONE, 0, 0, 0], NOT_RECORDED),
    // CLONE_THREAD alone, which the kernel refuses.
    needed("clone", libc::SYS_clone, [0x1_0000, 0, 0, 0], NOT_RECORDED),
    needed("futex", libc::SYS_futex, [0, 1, 0, 0], NOT_RECORDED),
    helpful(
        "pread64",
        libc::SYS_pread64,
        [NONE, 0, 0, 0],
        "--delay, --duration and SIGUSR1 are not heard",
    ),
    helpful(
        "fcntl",
        libc::SYS_fcntl,
        [NONE, 0, 0, 0],
        "the recording's files keep low descriptors, which programs that close all may close",
    ),
    helpful("getdents64", libc::SYS_getdents64, [NONE, 0, 0, 0], NOT_FOUND),
    helpful(
        "madvise",
        libc::SYS_madvise,
        [0, 0, 18, 0],
        "children that are not made by fork() take themselves for their parent",
    ),
    helpful(
        "rt_sigprocmask",
        libc::SYS_rt_sigprocmask,
        [0, 0, 0, 8],
        "the program's signals may be handled on the collector's thread",
    ),
    helpful(
        "rt_sigtimedwait",
        libc::SYS_rt_sigtimedwait,
        [0, 0, 0, 8],
        "a limit on file sizes below a few KiB may end the program when recording begins",
    ),
    helpful(
        "clock_gettime",
        libc::SYS_clock_gettime,
        [3, 0, 0, 0],
        "what recording costs in CPU time is not told",
    ),
];

/// What became of a call.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Answer {
    Allowed,
    /// As a kernel answers that does not have it (ENOSYS).
    Unknown,
    Refused,
}

/// Tries a call; `None` where there can be no child.
fn answer(number: c_long, arguments: [usize; 4]) -> Option<Answer> {
    let [a, b, c, d] = arguments;
    // SAFETY: the child makes one system call, with arguments that have no effect, and ends; both are allowed after a fork of a
    // process with threads.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: as above.
        unsafe {
            *libc::__errno_location() = 0;
            libc::syscall(number, a, b, c, d, 0usize, 0usize);
            libc::_exit(match *libc::__errno_location() {
                libc::EPERM | libc::EACCES => 1,
                libc::ENOSYS => 2,
                _ => 0,
            });
        }
    }
    let mut status = 0;
    // SAFETY: our own child, and a valid place.
    let is_known = child > 0 && unsafe { libc::waitpid(child, &raw mut status, 0) } == child;
    is_known.then(|| match libc::WEXITSTATUS(status) {
        // A filter may end who makes the call.
        _ if !libc::WIFEXITED(status) => Answer::Refused,
        0 => Answer::Allowed,
        2 => Answer::Unknown,
        _ => Answer::Refused,
    })
}

/// Whether this process has a filter.
fn has_filter() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status.lines().any(|line| {
        line.strip_prefix("Seccomp:")
            .is_some_and(|mode| mode.trim() != "0")
    })
}

/// The finding.
pub(super) fn finding() -> Finding {
    const WHAT: &str = "sandbox";
    if !has_filter() {
        return Finding::present(WHAT, "none: no seccomp filter here");
    }
    let mut refused: Vec<(&str, &str, bool)> = OF_PATHS
        .iter()
        .chain(&OTHERS)
        .filter(|call| answer(call.number, call.arguments).is_some_and(|answer| answer != Answer::Allowed))
        .map(|call| (call.name, call.without, call.is_needed))
        .collect();
    // The C library goes on with clone where clone3 is unknown, but not where it is refused.
    if answer(libc::SYS_clone3, [0; 4]) == Some(Answer::Refused) {
        refused.push(("clone3 (other than by ENOSYS)", NOT_RECORDED, true));
    }
    if refused.is_empty() {
        return Finding::present(WHAT, "a seccomp filter, which allows what recording needs");
    }
    let names: Vec<&str> = refused.iter().map(|(name, ..)| *name).collect();
    let mut without: Vec<String> = refused
        .iter()
        .map(|(name, without, _)| format!("without {name} {without}"))
        .collect();
    without.push("have the container's seccomp profile allow them".to_owned());
    let found = format!("a seccomp filter, which refuses {}", names.join(", "));
    if refused.iter().any(|(.., is_needed)| *is_needed) {
        Finding::absent(WHAT, found, without.join("; "))
    } else {
        Finding {
            what: WHAT,
            present: None,
            found,
            advice: Some(without.join("; ")),
        }
    }
}
