//! A clock that is set while a job runs: the recording reads as if it had not been.

use crate::common;

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use common::{expect_status, fresh_folder, gputrace};
use gputrace_trace::Recording;

/// Stands before the C library's `clock_gettime`: as soon as the first byte of a file is no longer 0, the wall clock is off by as
/// much as told.
const SHIM: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t clock, struct timespec *place) {
  static volatile char *is_set;
  static long by;
  if (!is_set) {
    by = atol(getenv("STEP_BY_NS"));
    int file = open(getenv("STEP_FILE"), O_RDONLY);
    is_set = mmap(0, 1, PROT_READ, MAP_SHARED, file, 0);
    close(file);
  }
  long result = syscall(SYS_clock_gettime, clock, place);
  if (clock == CLOCK_REALTIME && *is_set) {
    long moment = place->tv_sec * 1000000000L + place->tv_nsec + by;
    place->tv_sec = moment / 1000000000L;
    place->tv_nsec = moment % 1000000000L;
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
    common::schedule::computes();
    let (keep, folder) = fresh_folder("recording");
    let Some(shim) = shim(keep.path()) else { return };
    let step = keep.path().join("step");
    std::fs::write(&step, [0]).expect("written");
    let mut command = gputrace();
    command
        .args(["record", "--quiet", "--device", "sim", "-o"])
        .arg(&folder)
        .args(["--", "workload", "ddp", "--ranks", "2", "--steps", "300"])
        .env("LD_PRELOAD", &shim)
        .env("STEP_FILE", &step)
        .env("STEP_BY_NS", by_ns.to_string());
    let before = std::time::Instant::now();
    // Both ranks are at work when the clock is set, however long they took to begin.
    std::thread::scope(|scope| {
        let recorder = scope.spawn(|| expect_status(&mut command, 0));
        while kernels_of_the_ranks(&folder).is_none_or(|least| least < 50) && !recorder.is_finished() {
            std::thread::sleep(Duration::from_millis(20));
        }
        // In place: the ranks have the file mapped.
        let mut file = File::options().write(true).open(&step).expect("opens");
        file.write_all(&[1]).expect("written");
    });
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
        assert!(ended >= last.0 && ended - last.0 < by_ns.abs() / 2);
        // No rank leaves an all-reduce before the others have come, so ranks in lockstep have equal spans of their ends.
        let kernels = &process.tables.kernels;
        let ends: Vec<i64> = (0..kernels.start_ns.len())
            .filter(|row| recording.names.get(kernels.name[*row]).contains("AllReduce"))
            .map(|row| kernels.start_ns[row].0 + kernels.duration_ns[row].0)
            .collect();
        let (first, last) = (ends.iter().min(), ends.iter().max());
        let span_ns = *last.expect("kernels") - *first.expect("kernels");
        assert!(
            span_ns < i64::try_from(took.as_nanos()).expect("short"),
            "{span_ns}"
        );
        spans_ns.push(span_ns);
    }
    let [first, second] = spans_ns[..] else {
        panic!("{spans_ns:?}");
    };
    assert!((first - second).abs() < 250_000_000, "{spans_ns:?}");
}

/// How many kernels of each of two ranks are on the disk, at least.
fn kernels_of_the_ranks(folder: &Path) -> Option<usize> {
    let recording = Recording::open(folder).ok()?;
    let kernels = recording
        .processes
        .iter()
        .map(|process| process.tables.kernels.start_ns.len());
    (recording.processes.len() == 2).then(|| kernels.min().unwrap_or(0))
}
