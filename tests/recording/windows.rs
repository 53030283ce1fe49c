//! Only what was asked for is recorded: kinds, ranks, and the windows that steps, ranges, calls and the switch make.

use crate::common;

use std::path::{Path, PathBuf};
use std::process::Command;

use common::programs::collector;
use common::{expect_status, fresh_folder, gputrace, simulated_workload};
use gputrace_trace::options::{CollectorOptions, Kind, Schedule};
use gputrace_trace::{Process, Recording};

/// A workload with the collector injected as a recorder does it, but with options of ours.
fn injected(folder: &Path, options: &CollectorOptions) -> Command {
    std::fs::create_dir_all(folder).expect("a folder for the recording");
    let mut command = simulated_workload();
    command
        .env("CUDA_INJECTION64_PATH", collector())
        .env("NVTX_INJECTION64_PATH", collector())
        .env("NCCL_PROFILER_PLUGIN", collector())
        .env("GPUTRACE_DIR", folder)
        .env("GPUTRACE_OPTIONS", options.to_text());
    command
}

/// Records `ddp` on two ranks, 12 steps.
#[track_caller]
fn recorded(options: &CollectorOptions, change: impl FnOnce(&mut Command)) -> Recording {
    let (_keep, folder) = fresh_folder("recording");
    let mut command = injected(&folder, options);
    change(command.args(["ddp", "--steps", "12"]));
    expect_status(&mut command, 0);
    Recording::open(&folder).expect("a recording")
}

/// Start, end, and what, of the windows of a process.
fn windows(recording: &Recording, process: &Process) -> Vec<(i64, i64, String, Option<u64>)> {
    let windows = &process.tables.windows;
    (0..windows.start_ns.len())
        .map(|row| {
            let start = windows.start_ns[row].0;
            let what = recording.names.get(windows.what[row]).to_owned();
            (
                start,
                start + windows.duration_ns[row].0,
                what,
                windows.first_step[row],
            )
        })
        .collect()
}

/// The numbers of the steps whose ranges were recorded.
fn steps(recording: &Recording, process: &Process) -> Vec<u64> {
    let names = process.tables.markers.name.iter();
    let mut steps: Vec<u64> = names
        .filter_map(|name| recording.names.get(*name).strip_prefix("step ")?.parse().ok())
        .collect();
    steps.sort_unstable();
    steps
}

/// Kernels by step, as all of a run without windows are spread: each step has the same.
fn kernels_a_step() -> usize {
    let everything = recorded(&CollectorOptions::default(), |_| {});
    let process = &everything.processes[0];
    assert_eq!(steps(&everything, process), (0..12).collect::<Vec<u64>>());
    let starts = |name: &str| {
        let row = (0..process.tables.markers.name.len())
            .find(|&row| everything.names.get(process.tables.markers.name[row]) == name);
        process.tables.markers.start_ns[row.expect("the step's range")].0
    };
    let (from, to) = (starts("step 4"), starts("step 5"));
    let calls = &process.tables.api_calls;
    let launched: std::collections::HashSet<u32> = (0..calls.start_ns.len())
        .filter(|&row| (from..to).contains(&calls.start_ns[row].0))
        .map(|row| calls.correlation[row])
        .collect();
    let kernels = &process.tables.kernels.correlation;
    kernels
        .iter()
        .filter(|correlation| launched.contains(correlation))
        .count()
}

#[test]
fn a_schedule_records_its_active_steps_and_nothing_else() {
    let options = CollectorOptions {
        schedule: Some(Schedule {
            wait: 1,
            warmup: 1,
            active: 3,
            repeat: 2,
        }),
        ..CollectorOptions::default()
    };
    let recording = recorded(&options, |_| {});
    let a_step = kernels_a_step();
    assert_eq!(recording.processes.len(), 2);
    for process in &recording.processes {
        assert_eq!(steps(&recording, process), [2, 3, 4, 7, 8, 9]);
        let windows = windows(&recording, process);
        let active: Vec<Option<u64>> = windows
            .iter()
            .filter(|window| window.2 == "active")
            .map(|window| window.3)
            .collect();
        assert_eq!(active, [Some(2), Some(7)]);
        assert_eq!(process.header.windows, 2);
        let calls = &process.tables.api_calls;
        for start in &calls.start_ns {
            let is_in = windows
                .iter()
                .any(|(from, to, what, _)| what == "active" && (*from..*to).contains(&start.0));
            assert!(is_in, "{start:?} in {windows:?}");
        }
        // What was launched in a window is recorded wherever it ran; an operation of the step before may run in it.
        let kernels = process.tables.kernels.start_ns.len();
        assert!(
            (6 * a_step..=8 * a_step).contains(&kernels),
            "{kernels} kernels, {a_step} a step"
        );
        let launched: std::collections::HashSet<u32> = calls.correlation.iter().copied().collect();
        let from_before = process
            .tables
            .kernels
            .correlation
            .iter()
            .filter(|correlation| !launched.contains(correlation))
            .count();
        assert_eq!(kernels - from_before, 6 * a_step);
        assert!(process.header.left_out["kernels"] as usize >= 4 * a_step);
        assert!(process.header.left_out["markers"] > 0);
    }
    // What was not recorded is neither idle time nor part of a step.
    let analysis = gputrace_analyzer::analyze(&recording, &gputrace_analyzer::Options::default());
    for (rank, process) in analysis.ranks.iter().zip(&recording.processes) {
        let windows: Vec<(i64, i64)> = windows(&recording, process)
            .iter()
            .filter(|window| window.2 == "active")
            .map(|window| (window.0, window.1))
            .collect();
        let measures = &rank.measures;
        assert_eq!(measures.busy_ns + measures.idle_ns, measures.span_ns);
        let recorded: i64 = windows.iter().map(|(start, end)| end - start).sum();
        assert!(measures.idle_ns < recorded, "{measures:?} in {windows:?}");
        assert_eq!(rank.idle_causes.values().sum::<i64>(), measures.idle_ns);
        let names: Vec<&str> = rank.steps.iter().map(|step| step.name.as_str()).collect();
        assert_eq!(
            names,
            ["step 2", "step 3", "step 4", "step 7", "step 8", "step 9"]
        );
        assert!(
            rank.steps[2].end_ns.0 <= windows[0].1,
            "{:?} in {windows:?}",
            rank.steps[2]
        );
    }
    let losses: Vec<&str> = recording.losses.iter().map(|loss| loss.what.as_str()).collect();
    assert!(
        losses.iter().all(|what| what.contains("manifest.json")),
        "{losses:?}"
    );
}

#[test]
fn steps_that_nobody_names_are_detected() {
    let options = CollectorOptions {
        steps: Some((5, 7)),
        ..CollectorOptions::default()
    };
    let recording = recorded(&options, |command| {
        // Without ranges there is nothing but the pattern of kernels.
        command.env("NVTX_INJECTION64_PATH", "/nowhere");
    });
    let a_step = kernels_a_step();
    for process in &recording.processes {
        assert_eq!(process.tables.markers.name.len(), 0);
        let windows = windows(&recording, process);
        assert_eq!(windows.len(), 1, "{windows:?}");
        assert_eq!(windows[0].3, Some(5));
        let kernels = process.tables.kernels.start_ns.len();
        assert!(
            (2 * a_step..=4 * a_step).contains(&kernels),
            "{kernels} kernels, {a_step} a step"
        );
    }
}

#[test]
fn a_range_bounds_what_is_recorded() {
    let options = CollectorOptions {
        range: Some("step 3".to_owned()),
        ..CollectorOptions::default()
    };
    let recording = recorded(&options, |_| {});
    for process in &recording.processes {
        assert_eq!(steps(&recording, process), [3]);
        assert_eq!(windows(&recording, process).len(), 1);
        assert!(!process.tables.kernels.start_ns.is_empty());
    }
}

#[test]
fn kinds_that_were_not_asked_for_are_not_recorded() {
    let options = CollectorOptions {
        kinds: Some(vec!["kernels".to_owned(), "collectives".to_owned()]),
        ..CollectorOptions::default()
    };
    let recording = recorded(&options, |_| {});
    for process in &recording.processes {
        let rows = process.tables.row_counts();
        let filled: Vec<&str> = rows
            .into_iter()
            .filter(|(table, rows)| {
                *rows > 0 && !matches!(*table, "clocks" | "contexts" | "streams" | "losses")
            })
            .map(|(table, _)| table)
            .collect();
        assert_eq!(
            filled,
            ["kernels", "collectives", "communicators", "external_correlations"]
        );
        // The ids that join collectives to kernels come with calls, which are on for that alone.
        let joined = &process.tables.external_correlations;
        let kernels: std::collections::HashSet<u32> =
            process.tables.kernels.correlation.iter().copied().collect();
        assert!(
            joined
                .correlation
                .iter()
                .any(|correlation| kernels.contains(correlation))
        );
    }
    assert!(CollectorOptions::default().records(Kind::Calls));
}

#[test]
fn ranks_that_were_not_asked_for_leave_nothing() {
    let options = CollectorOptions {
        ranks: Some(vec![1]),
        ..CollectorOptions::default()
    };
    let recording = recorded(&options, |_| {});
    let ranks: Vec<Option<u32>> = recording
        .processes
        .iter()
        .map(|process| process.header.rank)
        .collect();
    assert_eq!(ranks, [Some(1)]);
}

#[test]
fn a_rank_that_only_nccl_tells_is_taken_away_once() {
    let (_keep, folder) = fresh_folder("recording");
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/nccl_graphs.py");
    // It lives on for a while after its communicators are known.
    let script = "import runpy, sys, time; runpy.run_path(sys.argv[1]); time.sleep(0.5)";
    let mut record = gputrace();
    record
        .args(["record", "--quiet", "--device", "sim", "--ranks", "7", "-o"])
        .arg(&folder)
        .args(["--", "python3", "-c", script])
        .arg(&program)
        .env("GPUTRACE_VERBOSE", "1");
    let output = expect_status(&mut record, 0);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(!told.contains("No such file"), "{told}");
    let recording = Recording::open(&folder).expect("a recording");
    assert!(recording.processes.is_empty());
}

#[test]
fn alternate_blocks_of_steps_are_left_alone_but_for_their_steps() {
    let options = CollectorOptions {
        measure_overhead_steps: Some(3),
        ..CollectorOptions::default()
    };
    let recording = recorded(&options, |_| {});
    for process in &recording.processes {
        assert_eq!(steps(&recording, process), (0..12).collect::<Vec<u64>>());
        let first: Vec<Option<u64>> = windows(&recording, process)
            .iter()
            .map(|window| window.3)
            .collect();
        assert_eq!(first, [None, Some(6)]);
    }
}

#[test]
fn a_measure_without_a_difference_to_measure_says_so() {
    // Where graphs are, CUPTI stays on.
    for (option, is_off) in [("--graph", false), ("--no-overlap", true)] {
        let options = CollectorOptions {
            measure_overhead_steps: Some(6),
            ..CollectorOptions::default()
        };
        let recording = recorded(&options, |command| {
            // Steps that are long beside the writer's rounds.
            command.args(["--batch", "256", option]);
        });
        for process in &recording.processes {
            let says_so = |note: &String| note.contains("CUPTI stayed on");
            let notes = &process.header.notes;
            assert_eq!(notes.iter().any(says_so), !is_off, "{option}: {notes:?}");
        }
    }
}

#[test]
fn a_recording_in_segments_is_one_and_each_stands_alone() {
    let options = CollectorOptions {
        segment_bytes: Some(40_000),
        ..CollectorOptions::default()
    };
    let (_keep, folder) = fresh_folder("recording");
    // Rows are written once a second at the least.
    let mut command = injected(&folder, &options);
    command.args(["ddp", "--steps", "200"]);
    expect_status(&mut command, 0);
    let whole = Recording::open(&folder).expect("a recording");
    assert_eq!(whole.processes.len(), 2);
    let mut folders: Vec<PathBuf> = std::fs::read_dir(&folder)
        .expect("the folder")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    folders.sort();
    assert!(folders.len() >= 6, "{folders:?}");
    let losses: Vec<&str> = whole.losses.iter().map(|loss| loss.what.as_str()).collect();
    assert!(
        losses.iter().all(|what| what.contains("manifest.json")),
        "{losses:?}"
    );
    for process in &whole.processes {
        assert_eq!(steps(&whole, process), (0..200).collect::<Vec<u64>>());
        assert_eq!(
            process.tables.communicators.rank.len(),
            1,
            "what is repeated is there once"
        );
        let contexts = &process.tables.contexts.context;
        let known: std::collections::HashSet<u32> = contexts.iter().copied().collect();
        assert_eq!(known.len(), contexts.len());
        let written: u64 = process.header.rows["kernels"];
        assert_eq!(process.tables.kernels.start_ns.len() as u64, written);
    }

    // The oldest go; what is left says so, and is whole in itself.
    let first = folders
        .iter()
        .find(|path| path.extension().is_none())
        .expect("a first segment");
    std::fs::remove_dir_all(first).expect("removed");
    let rest = Recording::open(&folder).expect("a recording");
    assert_eq!(rest.processes.len(), 2);
    for process in &rest.processes {
        assert_eq!(process.tables.communicators.rank.len(), 1);
        assert!(!process.tables.streams.stream.is_empty() && !process.tables.kernels.start_ns.is_empty());
    }
}
