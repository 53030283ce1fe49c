//! Children of a recorded program: those that use CUDA are recorded in folders of their own, the others leave nothing
//! and are not held up.

use crate::common;

use std::time::{Duration, Instant};

use common::programs::{Case, Recorded, compiled, kernels};

/// Kernels of `forks.c`'s parent, of its children before cuInit, and of the program that children execute.
const PARENT: usize = 150;
const CHILD: usize = 20;
const WORKER: usize = 30;

fn forks(how: &str, status: i32) -> Recorded {
    Case::new(compiled("forks"), &[how]).check(status)
}

/// The kernels of each process, and that each is whole.
#[track_caller]
fn assert_whole(recorded: &Recorded, expected: &[usize]) {
    let processes = &recorded.recording.processes;
    let mut counts: Vec<usize> = processes.iter().map(kernels).collect();
    counts.sort_unstable();
    assert_eq!(counts, expected, "{}", recorded.told());
    for process in processes {
        assert!(
            process.header.ended_ns.is_some(),
            "{}: {}",
            process.folder,
            recorded.told()
        );
    }
    assert!(recorded.recording.losses.is_empty(), "{}", recorded.told());
}

#[test]
fn children_before_the_first_use_record_themselves() {
    assert_whole(&forks("before", 0), &[CHILD, CHILD, PARENT]);
    assert_whole(&forks("grandchildren", 0), &[10, CHILD, PARENT]);
}

#[test]
fn children_after_it_leave_nothing_and_end_at_once() {
    common::schedule::alone();
    for how in ["exit", "_exit", "abort", "raw"] {
        let started = Instant::now();
        assert_whole(&forks(how, 0), &[PARENT]);
        // Both ways: with a collector that waits for a thread that a child does not have, it would be ten seconds.
        assert!(
            started.elapsed() < Duration::from_secs(8),
            "{how}: {:?}",
            started.elapsed()
        );
    }
}

#[test]
fn a_child_that_goes_on_calling_what_it_inherited() {
    assert_whole(&forks("goes-on", 0), &[PARENT]);
}

#[test]
fn children_forked_while_the_collector_works() {
    assert_whole(&forks("many", 0), &[PARENT + 50 * 20]);
}

#[test]
fn programs_that_children_execute_record_themselves() {
    for how in ["execute", "vfork", "spawn", "system"] {
        assert_whole(&forks(how, 0), &[WORKER, PARENT]);
    }
}

#[test]
fn a_process_that_becomes_another_program_is_two_recordings() {
    let recorded = forks("becomes", 8);
    let processes = &recorded.recording.processes;
    assert_eq!(processes.len(), 2, "{}", recorded.told());
    assert_eq!(processes[0].header.pid, processes[1].header.pid);
    let ended: Vec<bool> = processes
        .iter()
        .map(|process| process.header.ended_ns.is_some())
        .collect();
    assert_eq!(
        ended.iter().filter(|&&ended| ended).count(),
        1,
        "{}",
        recorded.told()
    );
    assert!(!recorded.recording.losses.is_empty(), "{}", recorded.told());
}
