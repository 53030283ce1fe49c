//! A profiler inside the program, as PyTorch's: it gets what it asked for, and the recording goes on after it and says so.

use crate::common;

use std::path::Path;

use common::{expect_status, fresh_folder, gputrace, stdout};
use gputrace_trace::Recording;

#[test]
fn a_profiler_in_the_program_is_left_alone_and_followed() {
    common::schedule::waits();
    left_alone_and_followed(&[]);
}

#[test]
fn a_profiler_is_noticed_where_no_calls_are_recorded() {
    common::schedule::waits();
    left_alone_and_followed(&["--kinds", "kernels,memsets"]);
}

/// Records the program with these options.
fn left_alone_and_followed(options: &[&str]) {
    let (_keep, folder) = fresh_folder("recording");
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/rival.py");
    let mut record = gputrace();
    record
        .args(["record", "--quiet", "--device", "sim", "-o"])
        .arg(&folder)
        .args(options);
    record.args(["--", "python3"]).arg(&program);
    let told = stdout(&expect_status(&mut record, 0));
    let numbers: Vec<usize> = told
        .split(|c: char| !c.is_ascii_digit())
        .filter_map(|word| word.parse().ok())
        .collect();
    let [before, during, after, seen] = numbers[..] else {
        panic!("{told}");
    };

    let recording = Recording::open(&folder).expect("a recording");
    let process = &recording.processes[0];
    let has_calls = !process.tables.api_calls.start_ns.is_empty();
    assert_eq!(has_calls, options.is_empty());
    let windows = &process.tables.windows;
    assert_eq!(windows.start_ns.len(), 1, "one gap");
    assert_eq!(recording.names.get(windows.what[0]), "taken by another profiler");
    let (start, end) = (
        windows.start_ns[0].0,
        windows.start_ns[0].0 + windows.duration_ns[0].0,
    );
    assert!(
        (4_000_000_000..9_000_000_000).contains(&(end - start)),
        "{}",
        end - start
    );
    let losses: Vec<&str> = recording.losses.iter().map(|loss| loss.what.as_str()).collect();
    assert!(
        losses.iter().any(|what| what.contains("another profiler")),
        "{losses:?}"
    );

    // The program's own profiler saw its memsets, but for those in buffers that were ours when it came; the recording has
    // the others but for those that went to it.
    assert!(seen <= during && during - seen < before, "{told}");
    let starts = &process.tables.memsets.start_ns;
    let recorded_before = starts.iter().filter(|at| at.0 < start).count();
    let recorded_after = starts.iter().filter(|at| at.0 >= end).count();
    assert!(
        recorded_before <= before && recorded_before > before / 4,
        "{recorded_before}, {told}"
    );
    assert_eq!(recorded_after, after, "{told}");
    assert_eq!(starts.len(), recorded_before + recorded_after);
}
