//! A clock that is set while a job runs: the recording reads as if it had not been.

use crate::common;

use std::path::{Path, PathBuf};
use std::process::Command;

use common::{expect_status, fresh_folder, gputrace};
use gputrace_trace::{Recording, clock_reading};

/// Stands before the C library's `clock_gettime`: from a moment of CLOCK_MONOTONIC on, the wall clock is off by as much as
/// told.
const SHIM: &str = r#"
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t clock, struct timespec *place) {
  static long at, by;
  if (!at) {
    at = atol(getenv("STEP_AT_NS"));
    by = atol(getenv("STEP_BY_NS"));
  }
  long result = syscall(SYS_clock_gettime, clock, place);
  if (clock == CLOCK_REALTIME) {
    struct timespec steady;
    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &steady);
    if (steady.tv_sec * 1000000000L + steady.tv_nsec >= at) {
      long moment = place->tv_sec * 1000000000L + place->tv_nsec + by;
      place->tv_sec = moment / 1000000000L;
      place->tv_nsec = moment % 1000000000L;
    }
  }
  return result;
}
"#;

/// The shim as a library; `None` where there is no C compiler, which is said.
fn shim(folder: &Path) -> Option<PathBuf> {
    let (source, library) = (folder.join("shim.c"), folder.join("shim.so"));
    std::fs::write(&source, SHIM).expect("written");
    let compiled = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .args([&library, &source])
        .status();
    match compiled {
        Ok(status) if status.success() => Some(library),
        other => {
            let line = format!("SKIPPED: a clock that is set was not tested: cc: {other:?}\n");
            drop(std::fs::write("/dev/stderr", &line));
            None
        }
    }
}

#[test]
fn a_clock_that_is_set_forward_costs_nothing() {
    set_while_a_job_runs(20_000_000_000, "the clock was set forward by 20.0");
}

#[test]
fn a_clock_that_is_set_back_costs_nothing() {
    set_while_a_job_runs(-20_000_000_000, "the clock was set back by 20.0");
}

/// Two ranks in lockstep, of which the clock is set meanwhile.
fn set_while_a_job_runs(by_ns: i64, note: &str) {
    // Before the moment is chosen: the turn may come later.
    common::schedule::computes();
    let (keep, folder) = fresh_folder("recording");
    let Some(shim) = shim(keep.path()) else { return };
    // Long enough after the start that all is running, and long before the end.
    let at_ns = clock_reading::clock_snapshot().monotonic_ns + 4_000_000_000;
    let mut command = gputrace();
    command
        .args(["record", "--quiet", "--device", "sim", "-o"])
        .arg(&folder)
        .args(["--", "workload", "ddp", "--ranks", "2", "--steps", "200"])
        .env("LD_PRELOAD", &shim)
        .env("STEP_AT_NS", at_ns.to_string())
        .env("STEP_BY_NS", by_ns.to_string());
    let before = std::time::Instant::now();
    expect_status(&mut command, 0);
    let took = before.elapsed();
    let recording = Recording::open(&folder).expect("opens");
    let told = recording.notes.iter().filter(|told| told.contains(note)).count();
    // Both ranks', and the recorder's samples.
    assert_eq!(told, 3, "{:?}", recording.notes);
    let mut spans_ns = Vec::new();
    for process in &recording.processes {
        let calls = &process.tables.api_calls;
        let first = calls.start_ns.iter().min().expect("calls");
        let last = calls.start_ns.iter().max().expect("calls");
        let span_ns = (*last - *first).0;
        assert!(
            span_ns < i64::try_from(took.as_nanos()).expect("short"),
            "calls of {span_ns} ns in a run of {took:?}"
        );
        // No call lasted as long as the clock was set by, and each thread's still follow each other.
        assert!(
            calls
                .duration_ns
                .iter()
                .all(|length| (0..by_ns.abs() / 2).contains(&length.0))
        );
        let ended = process.header.ended_ns.expect("closed");
        assert!(ended >= last.0 && ended - last.0 < 5_000_000_000);
        let kernels = &process.tables.kernels;
        let (first, last) = (kernels.start_ns.iter().min(), kernels.start_ns.iter().max());
        let span_ns = (*last.expect("kernels") - *first.expect("kernels")).0;
        assert!(
            span_ns < i64::try_from(took.as_nanos()).expect("short"),
            "{span_ns}"
        );
        spans_ns.push(span_ns);
    }
    // Ranks in lockstep begin and end together.
    let [first, second] = spans_ns[..] else {
        panic!("{spans_ns:?}");
    };
    assert!((first - second).abs() < 250_000_000, "{spans_ns:?}");
}
