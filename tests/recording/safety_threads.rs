//! Threads that come and go, many at once, several devices, and processes that use little of CUDA or none.

use crate::common;

use common::programs::{Case, Recorded, compiled, kernels};

fn threads(arguments: &[&str]) -> Case {
    Case::new(compiled("threads"), arguments)
}

#[track_caller]
fn assert_whole(recorded: &Recorded) {
    assert!(
        recorded.process().header.ended_ns.is_some(),
        "{}",
        recorded.told()
    );
    assert!(recorded.recording.losses.is_empty(), "{}", recorded.told());
}

#[test]
fn ten_thousand_short_threads() {
    common::schedule::computes();
    let recorded = threads(&["churn", "10000"]).check(0);
    let process = recorded.process();
    assert!(process.header.ended_ns.is_some(), "{}", recorded.told());
    // A buffer of CUPTI's for each of them is more than the memory that we may have: then CUPTI counts what it drops.
    let whole = recorded.kernels() == 10_000 + 10;
    assert!(
        whole || recorded.tells("dropped"),
        "{} {}",
        recorded.kernels(),
        recorded.told()
    );
    let markers = &process.tables.markers;
    assert_eq!(markers.start_ns.len(), 10_000);
    let mut ids = markers.thread.clone();
    ids.sort_unstable();
    ids.dedup();
    assert!(ids.len() > 100, "{} threads", ids.len());
}

#[test]
fn ranges_that_nobody_closes_are_told() {
    let recorded = threads(&["open-ranges"]).check(0);
    assert_eq!(recorded.process().tables.markers.start_ns.len(), 100);
    assert!(recorded.tells("open"), "{}", recorded.told());
}

#[test]
fn several_devices_in_one_process() {
    let recorded = threads(&["contexts"]).check(0);
    assert_whole(&recorded);
    assert_eq!(recorded.kernels(), 10 + 11 + 12 + 13 + 10);
    let mut devices = recorded.process().tables.kernels.device.clone();
    devices.sort_unstable();
    devices.dedup();
    assert_eq!(devices, [0, 1, 2, 3]);
}

#[test]
fn ranges_before_the_first_use_of_a_gpu() {
    let recorded = threads(&["nvtx-first"]).check(0);
    let process = recorded.process();
    assert_eq!(kernels(process), 10);
    // Two that ended; those that began before the recording did may be counted as lost instead.
    let there = process.tables.markers.start_ns.len();
    assert!(
        there == 2 || !recorded.recording.losses.is_empty(),
        "{there} {}",
        recorded.told()
    );
}

#[test]
fn a_process_that_uses_no_gpu_leaves_nothing() {
    for (how, status) in [("only-nvtx", 0), ("only-opens", 0)] {
        let recorded = threads(&[how]).check(status);
        assert!(recorded.recording.processes.is_empty(), "{how}");
        let folders = std::fs::read_dir(&recorded.folder).expect("the recording");
        let folders = folders.filter(|entry| entry.as_ref().is_ok_and(|entry| entry.path().is_dir()));
        let theirs = folders.filter(|entry| {
            entry
                .as_ref()
                .is_ok_and(|entry| !entry.file_name().to_string_lossy().starts_with("host-"))
        });
        assert_eq!(theirs.count(), 0, "{how}");
    }
}

#[test]
fn a_driver_that_cannot_start() {
    let recorded = threads(&["init-fails"]).check(5);
    assert!(recorded.recording.processes.is_empty());
    assert!(recorded.tells("no process"), "{}", recorded.told());
}

/// Kernels launched, and resident KiB at half time and at the end, of `threads launch`.
fn launch(threads_and_seconds: [&str; 2], recorded: bool) -> [i64; 3] {
    use std::process::Command;

    let [count, seconds] = threads_and_seconds;
    let (_keep, folder) = common::fresh_folder("recording");
    let program = compiled("threads");
    let mut command = if recorded {
        let mut command = common::gputrace();
        command
            .args(["record", "--quiet", "--device", "sim", "-o"])
            .arg(&folder)
            .arg("--")
            .arg(program);
        command
    } else {
        let mut command = Command::new(program);
        command.env("LD_LIBRARY_PATH", common::programs::library_path());
        command
    };
    let output = command
        .args(["launch", count, seconds])
        .output()
        .expect("it starts");
    let text = common::stderr(&output);
    assert!(output.status.success(), "{text}");
    let numbers: Vec<i64> = text
        .lines()
        .find(|line| line.contains("resident_kib"))
        .unwrap_or_else(|| panic!("{text}"))
        .split_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect();
    if recorded {
        let recording = gputrace_trace::Recording::open(&folder).expect("a recording");
        let rows: usize = recording.processes.iter().map(kernels).sum();
        let lost: u64 = recording.losses.iter().filter_map(|loss| loss.count).sum();
        let complete = i64::try_from(rows).is_ok_and(|rows| rows == numbers[0] + 10);
        assert!(complete || lost > 0, "{rows} of {} and nothing told", numbers[0]);
    }
    [numbers[0], numbers[1], numbers[2]]
}

/// GPUTRACE_TEST_LONG=1: for a minute.
#[test]
fn memory_is_flat_while_32_threads_launch() {
    common::schedule::computes();
    let long = std::env::var_os("GPUTRACE_TEST_LONG").is_some();
    let seconds = if long { "60" } else { "5" };
    let [bare_launched, _, bare_kib] = launch(["32", if long { "10" } else { "1" }], false);
    let [launched, half_kib, end_kib] = launch(["32", seconds], true);
    println!(
        "{launched} launched in {seconds} s (unrecorded {bare_launched}): {bare_kib} KiB unrecorded, {half_kib} at half time, {end_kib} at the end"
    );
    assert!(launched > 10_000, "{launched} launches are no stress");
    // 256 MiB by default: for CUPTI's buffers, rows that wait, and all else of ours.
    assert!(
        end_kib - bare_kib < 256 << 10,
        "{end_kib} KiB, and {bare_kib} unrecorded"
    );
    // In the second half nothing grows but what one buffer or one batch more can be.
    assert!(end_kib - half_kib < 32 << 10, "from {half_kib} to {end_kib} KiB");
}
