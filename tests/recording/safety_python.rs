//! Python programs and their workers, with ctypes on the stand-in's driver: same output, same status, own recordings.

use crate::common;

use common::programs::{Case, Recorded, kernels};

const KERNELS: usize = 100;
const WORKER: usize = 20;

#[track_caller]
fn python(how: &str, status: i32) -> Recorded {
    Case::python("ends.py", &[how]).check(status)
}

#[track_caller]
fn assert_kernels(recorded: &Recorded, expected: &[usize]) {
    let mut counts: Vec<usize> = recorded.recording.processes.iter().map(kernels).collect();
    counts.sort_unstable();
    assert_eq!(counts, expected, "{}", recorded.told());
}

/// Every process closed its recording and nothing was lost.
#[track_caller]
fn assert_whole(recorded: &Recorded, expected: &[usize]) {
    assert_kernels(recorded, expected);
    assert!(recorded.recording.losses.is_empty(), "{}", recorded.told());
}

/// The process had no time to close it: that is told, and what is there is a part.
#[track_caller]
fn assert_told(recorded: &Recorded) {
    assert!(recorded.process().header.ended_ns.is_none());
    assert!(recorded.kernels() <= KERNELS);
    assert!(!recorded.recording.losses.is_empty());
}

#[test]
fn ways_to_leave_python_that_run_exit_handlers() {
    for (how, status) in [
        ("return", 0),
        ("exit", 3),
        ("exit-in-a-thread", 0),
        ("exception", 1),
        ("interrupt-caught", 0),
        ("terminate-handled", 12),
    ] {
        assert_whole(&python(how, status), &[KERNELS]);
    }
}

#[test]
fn ways_to_leave_python_at_once() {
    for (how, status) in [
        ("os._exit", 4),
        ("worker", 11),
        ("interrupt", 130),
        ("terminate", 143),
        ("abort", 134),
    ] {
        assert_told(&python(how, status));
    }
}

#[test]
fn a_daemon_thread_that_launches_at_exit() {
    let recorded = python("daemon-thread", 0);
    assert!(
        recorded.process().header.ended_ns.is_some(),
        "{}",
        recorded.told()
    );
    assert!(recorded.kernels() > KERNELS);
}

#[test]
fn data_loaders_forked_from_a_process_with_a_gpu() {
    assert_whole(&python("loaders", 0), &[2 * KERNELS]);
    assert_whole(&python("os.fork", 0), &[KERNELS]);
}

#[test]
fn pools_of_workers_are_recorded_each() {
    // Workers of a pool end by os._exit or are terminated: their end is lost, and told.
    for how in ["pool-fork", "pool-spawn", "pool-forkserver", "executor"] {
        let recorded = python(how, 0);
        let processes = &recorded.recording.processes;
        assert!((2..=3).contains(&processes.len()), "{how}: {}", recorded.told());
        let main = processes
            .iter()
            .filter(|process| process.header.ended_ns.is_some())
            .map(kernels)
            .max();
        assert_eq!(main, Some(KERNELS), "{how}: {}", recorded.told());
        for process in processes
            .iter()
            .filter(|process| process.header.ended_ns.is_none())
        {
            assert!(kernels(process) <= 2 * WORKER, "{how}");
            assert!(
                recorded.tells(&process.folder) || !recorded.recording.losses.is_empty(),
                "{how}: {}",
                recorded.told()
            );
        }
    }
}

#[test]
fn programs_started_from_python() {
    assert_whole(&python("subprocess", 0), &[KERNELS, KERNELS]);
}
