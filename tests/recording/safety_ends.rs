//! However a program ends: it ends as it would without us, and its recording opens, with what was lost told.

use crate::common;

use common::programs::{Case, Recorded, compiled};

/// What `ends.c` launches before it ends.
const KERNELS: usize = 100;

fn ends(how: &str, status: i32) -> Recorded {
    Case::new(compiled("ends"), &[how]).check(status)
}

/// Ends by which the collector can close its recording.
#[track_caller]
fn assert_closed(recorded: &Recorded) {
    let process = recorded.process();
    assert!(process.header.ended_ns.is_some(), "{}", recorded.told());
    assert_eq!(recorded.kernels(), KERNELS);
    assert!(recorded.recording.losses.is_empty(), "{}", recorded.told());
}

/// Ends that leave no time for it: what was not written yet is lost, and told.
#[track_caller]
fn assert_told(recorded: &Recorded) {
    let process = recorded.process();
    assert!(process.header.ended_ns.is_none());
    assert!(recorded.kernels() <= KERNELS);
    assert!(!recorded.recording.losses.is_empty(), "{}", recorded.told());
}

#[test]
fn a_program_that_returns_or_exits_is_recorded_whole() {
    assert_closed(&ends("return", 0));
    assert_closed(&ends("exit", 3));
}

#[test]
fn a_program_that_skips_its_exit_handlers_loses_the_end_alone() {
    assert_told(&ends("_exit", 4));
    assert_told(&ends("quick_exit", 6));
}

#[test]
fn signals_end_a_program_as_they_would() {
    for (how, signal) in [
        ("abort", libc::SIGABRT),
        ("term", libc::SIGTERM),
        ("kill", libc::SIGKILL),
        ("segv", libc::SIGSEGV),
        ("interrupt", libc::SIGINT),
        ("pipe", libc::SIGPIPE),
    ] {
        assert_told(&ends(how, 128 + signal));
    }
}

#[test]
fn a_programs_own_handlers_run_on_its_own_threads() {
    for how in ["segv-handled", "segv-handled-before", "term-handled"] {
        let recorded = ends(how, 7);
        assert!(
            recorded.ended.stdout.ends_with("handled\n"),
            "{:?}",
            recorded.ended
        );
        assert_told(&recorded);
    }
    assert_closed(&ends("term-noted", 0));
    assert_closed(&ends("term-blocked-before", 0));
}

#[test]
fn exit_while_other_threads_launch() {
    for (how, status) in [("thread-exits", 5), ("returns-while-threads-launch", 0)] {
        let recorded = ends(how, status);
        let process = recorded.process();
        assert!(process.header.ended_ns.is_some(), "{how}: {}", recorded.told());
        assert!(recorded.kernels() > KERNELS, "{how}: {}", recorded.kernels());
    }
}

#[test]
fn a_process_lives_on_after_its_main_thread() {
    let recorded = ends("main-thread-ends", 0);
    assert!(
        recorded.process().header.ended_ns.is_some(),
        "{}",
        recorded.told()
    );
    assert_eq!(recorded.kernels(), KERNELS + 50);
    assert!(recorded.recording.losses.is_empty(), "{}", recorded.told());
}

#[test]
fn calls_in_handlers_of_the_end_work() {
    for how in ["atexit", "atexit-before"] {
        let recorded = ends(how, 0);
        assert!(
            recorded.ended.stdout.contains("at the end: "),
            "{how}: {:?}",
            recorded.ended
        );
        assert_eq!(recorded.ended.stderr, "", "{how}");
    }
    let recorded = ends("thread-destructor", 0);
    assert!(
        recorded.ended.stdout.contains("with the thread: "),
        "{:?}",
        recorded.ended
    );
    assert_eq!(recorded.ended.stderr, "");
    assert!(recorded.process().header.ended_ns.is_some());
}

#[test]
fn threads_are_cancelled_in_their_calls() {
    let recorded = ends("cancelled", 0);
    assert!(
        recorded.ended.stdout.ends_with("cancelled\n"),
        "{:?}",
        recorded.ended
    );
    assert!(
        recorded.process().header.ended_ns.is_some(),
        "{}",
        recorded.told()
    );
    assert!(recorded.kernels() >= KERNELS + 40 * 20, "{}", recorded.kernels());
}
