//! What XProf, TensorBoard's own profiler plugin, says of an exported recording, against the recording's tables.

use crate::common;
use crate::common::consumers::tensorboard;

use std::collections::{BTreeMap, HashMap};

use common::{expect_status, fresh_folder, gputrace, record_workload};
use gputrace_trace::{Process, Recording};
use serde_json::Value;

/// Nanoseconds from a start to an end.
type Range = (i64, i64);

fn union(mut ranges: Vec<Range>) -> Vec<Range> {
    ranges.sort_unstable();
    let mut union: Vec<Range> = Vec::new();
    for (start, end) in ranges {
        match union.last_mut() {
            Some(last) if start <= last.1 => last.1 = last.1.max(end),
            _ => union.push((start, end)),
        }
    }
    union
}

fn length(ranges: &[Range]) -> i64 {
    ranges.iter().map(|(start, end)| end - start).sum()
}

/// What was launched in a step.
#[derive(Default)]
struct Launched {
    compute: Vec<Range>,
    communication: Vec<Range>,
    copies: Vec<Range>,
}

impl Launched {
    fn all(&self) -> Vec<Range> {
        [&self.compute[..], &self.communication, &self.copies].concat()
    }
}

struct Rank {
    steps: Vec<Launched>,
    /// By name: how many, and nanoseconds.
    kernels: BTreeMap<String, (u64, i64)>,
    operations: usize,
    samples: usize,
}

fn rank(recording: &Recording, process: &Process) -> Rank {
    let tables = &process.tables;
    let name = |id| recording.names.get(id);
    let markers = &tables.markers;
    let mut starts: Vec<i64> = (0..markers.start_ns.len())
        .filter(|row| name(markers.name[*row]).starts_with("step ") && markers.duration_ns[*row].is_some())
        .map(|row| markers.start_ns[row].0)
        .collect();
    starts.sort_unstable();
    let last_end = (0..markers.start_ns.len())
        .filter(|row| Some(&markers.start_ns[*row].0) == starts.last() && markers.duration_ns[*row].is_some())
        .map(|row| markers.start_ns[row].0 + markers.duration_ns[row].unwrap().0)
        .max()
        .unwrap();
    let mut steps: Vec<Launched> = starts.iter().map(|_| Launched::default()).collect();
    let calls = &tables.api_calls;
    let launches: HashMap<u32, i64> = calls
        .correlation
        .iter()
        .copied()
        .zip(calls.start_ns.iter().map(|time| time.0))
        .collect();
    let mut put = |correlation: u32, at: Range, of: fn(&mut Launched) -> &mut Vec<Range>| {
        let launched = launches[&correlation];
        let after = starts.partition_point(|start| *start <= launched);
        if after > 0 && launched < last_end {
            of(&mut steps[after - 1]).push(at);
        }
    };
    let at = |start: i64, duration: i64| (start, start + duration);
    let mut by_name: BTreeMap<String, (u64, i64)> = BTreeMap::new();
    let kernels = &tables.kernels;
    for row in 0..kernels.start_ns.len() {
        let range = at(kernels.start_ns[row].0, kernels.duration_ns[row].0);
        let text = name(kernels.name[row]);
        let times = by_name.entry(text.to_owned()).or_default();
        *times = (times.0 + 1, times.1 + range.1 - range.0);
        match text.contains("ncclDevKernel") {
            true => put(kernels.correlation[row], range, |step| &mut step.communication),
            false => put(kernels.correlation[row], range, |step| &mut step.compute),
        }
    }
    let memsets = &tables.memsets;
    for row in 0..memsets.start_ns.len() {
        let range = at(memsets.start_ns[row].0, memsets.duration_ns[row].0);
        put(memsets.correlation[row], range, |step| &mut step.compute);
    }
    let copies = &tables.copies;
    for row in 0..copies.start_ns.len() {
        let range = at(copies.start_ns[row].0, copies.duration_ns[row].0);
        put(copies.correlation[row], range, |step| &mut step.copies);
    }
    Rank {
        steps,
        kernels: by_name,
        operations: kernels.start_ns.len() + memsets.start_ns.len() + copies.start_ns.len(),
        samples: recording
            .hosts
            .iter()
            .map(|host| host.tables.counters.time_ns.len())
            .sum(),
    }
}

fn cells(row: &Value) -> Vec<Value> {
    let cells = row["c"].as_array().unwrap().iter();
    cells.map(|cell| cell["v"].clone()).collect()
}

#[test]
fn xprof_has_the_recordings_numbers() {
    let Some(python) = tensorboard::python() else {
        return;
    };
    let (_keep, folder) = fresh_folder("recording");
    let truth = folder.with_file_name("truth");
    let workload = ["ddp", "--steps", "6", "--ranks", "2"];
    expect_status(&mut record_workload(&folder, &truth, &[], workload), 0);
    // Each rank in a log folder of its own: of several hosts in a session XProf shows one.
    let logs = folder.with_file_name("logs");
    for rank in ["0", "1"] {
        let mut export = gputrace();
        export
            .arg("export")
            .arg(&folder)
            .args(["--format", "xplane", "--parents", "--ranks", rank, "-o"]);
        expect_status(export.arg(logs.join(format!("rank{rank}"))), 0);
    }
    let answers = tensorboard::ask(&python, &logs, "xprof");
    let recording = Recording::open(&folder).unwrap();
    assert_eq!(answers["runs"].as_object().unwrap().len(), 2, "{answers}");
    for (number, process) in recording.processes.iter().enumerate() {
        let rank = rank(&recording, process);
        let runs = answers["runs"].as_object().unwrap();
        let (_, run) = runs
            .iter()
            .find(|(name, _)| name.starts_with(&format!("rank{number}")))
            .unwrap();
        let host = format!("{}_{number}", process.header.host);
        let answer = |tool: &str| {
            let answers = run["answers"].as_object().unwrap();
            let of_host = answers.get(&format!("{tool} {host}"));
            let found = of_host.or_else(|| {
                answers
                    .iter()
                    .find(|(key, _)| key.starts_with(tool))
                    .map(|(_, found)| found)
            });
            found.unwrap_or_else(|| panic!("no {tool} of {host}: {run}"))
        };
        compare_steps(&rank, answer("overview_page"));
        compare_kernels(&rank, answer("kernel_stats"));
        compare_trace(&rank, answer("trace_viewer@"));
    }
}

fn compare_steps(rank: &Rank, overview: &Value) {
    let steps = &overview[1];
    let columns: Vec<&str> = steps["cols"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|column| column["id"].as_str())
        .collect();
    let rows = steps["rows"].as_array().unwrap();
    // XProf leaves out steps at the begin and the end, as not whole.
    assert!(
        rows.len() + 2 >= rank.steps.len() && !rows.is_empty(),
        "{} rows",
        rows.len()
    );
    for row in rows {
        let cells = cells(row);
        let said = |column: &str| {
            let place = columns.iter().position(|found| *found == column).unwrap();
            cells[place].as_f64().unwrap()
        };
        let number: usize = cells[0].as_str().unwrap().parse().unwrap();
        let step = &rank.steps[number];
        let all = union(step.all());
        let compute = length(&union(step.compute.clone()));
        let both = length(&union([&step.compute[..], &step.communication].concat()));
        for (column, expected) in [
            ("deviceComputeTimeMs", compute),
            ("deviceCollectivesTimeMs", both - compute),
            ("stepTimeMs", all.last().unwrap().1 - all[0].0),
        ] {
            let (said, expected) = (said(column), expected as f64 / 1e6);
            assert!(
                (said - expected).abs() < 2e-6,
                "{column} of step {number}: {said}, not {expected}"
            );
        }
    }
    assert!(
        overview[2]["p"]["device_type"]
            .as_str()
            .unwrap()
            .contains("Nvidia GPU (Hopper)")
    );
}

fn compare_kernels(rank: &Rank, statistics: &Value) {
    let mut said: BTreeMap<String, (u64, i64)> = BTreeMap::new();
    for row in statistics["rows"].as_array().unwrap() {
        let cells = cells(row);
        let times = said.entry(cells[1].as_str().unwrap().to_owned()).or_default();
        assert!(
            (1.0..=100.0).contains(&cells[6].as_f64().unwrap()),
            "occupancy: {row}"
        );
        let ns = (cells[11].as_f64().unwrap() * 1000.0).round() as i64;
        *times = (times.0 + cells[10].as_f64().unwrap() as u64, times.1 + ns);
    }
    let counts = |kernels: &BTreeMap<String, (u64, i64)>| {
        let mut counts: Vec<(u64, i64)> = kernels.values().copied().collect();
        counts.sort_unstable();
        counts
    };
    // Names are demangled there.
    assert_eq!(counts(&said), counts(&rank.kernels));
}

fn compare_trace(rank: &Rank, trace: &Value) {
    let events = trace["traceEvents"]
        .as_array()
        .unwrap_or_else(|| panic!("{trace}"));
    let device = events
        .iter()
        .find(|event| {
            event["name"] == "process_name"
                && event["args"]["name"].as_str().unwrap().contains("/device:GPU:")
        })
        .unwrap();
    let is_operation = |event: &&Value| {
        // Of XProf's own lines there are numbers from 0xdeadbeef on.
        event["ph"] == "X" && event["pid"] == device["pid"] && event["tid"].as_u64().unwrap() < 3_000_000_000
    };
    let operations: Vec<&Value> = events.iter().filter(is_operation).collect();
    assert_eq!(operations.len(), rank.operations);
    let calls: Vec<&Value> = events
        .iter()
        .filter(|event| event["ph"] == "X" && event["flow_out"] == true && event["cat"] == "gpu_launch")
        .collect();
    for operation in &operations {
        let id = &operation["bind_id"];
        assert!(id.is_u64(), "{operation}");
        let from = calls.iter().filter(|call| call["bind_id"] == *id).count();
        assert_eq!(from, 1, "{operation}");
    }
    let steps = events.iter().filter(|event| {
        event["ph"] == "X"
            && event["name"].as_str().unwrap().starts_with("step ")
            && event["pid"] == device["pid"]
    });
    assert_eq!(steps.count(), rank.steps.len());
    let samples: usize = events
        .iter()
        .filter(|event| event["ph"] == "C")
        .filter_map(|event| event["entries"].as_array())
        .map(Vec::len)
        .sum();
    // The first rank of a host has what was sampled of it, and each is alone in its file.
    assert_eq!(samples > 0, rank.samples > 0);
}
