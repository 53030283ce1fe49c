//! What TensorBoard's torch-tb-profiler says of an exported recording, against its own formulas computed from the
//! recording's tables.

use crate::common;
use crate::common::consumers::tensorboard;

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use common::{expect_status, fresh_folder, gputrace, stderr};
use gputrace_trace::{Process, Recording};
use serde_json::Value;

/// Nanoseconds from a start to an end.
type Range = (i64, i64);

/// Sorted and without overlap.
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

fn intersection(a: &[Range], b: &[Range]) -> Vec<Range> {
    let pairs = a
        .iter()
        .flat_map(|a| b.iter().map(move |b| (a.0.max(b.0), a.1.min(b.1))));
    pairs.filter(|(start, end)| start < end).collect()
}

fn difference(a: &[Range], b: &[Range]) -> Vec<Range> {
    let mut left: Vec<Range> = a.to_vec();
    for (start, end) in b {
        left = left
            .into_iter()
            .flat_map(|range| [(range.0, range.1.min(*start)), (range.0.max(*end), range.1)])
            .filter(|(start, end)| start < end)
            .collect();
    }
    left
}

fn length(ranges: &[Range]) -> i64 {
    ranges.iter().map(|(start, end)| end - start).sum()
}

/// What a kernel of NCCL's does, by its name, in the plugin's words; nothing for what it has no word for.
fn collective(name: &str) -> Option<&'static str> {
    let words = [
        ("AllReduce", "nccl:all_reduce"),
        ("AllGather", "nccl:all_gather"),
        ("ReduceScatter", "nccl:reduce_scatter"),
        ("Broadcast", "nccl:broadcast"),
    ];
    let is_nccl = name.contains("ncclDevKernel_");
    let found = words.into_iter().find(|(word, _)| is_nccl && name.contains(word));
    found.map(|(_, name)| name)
}

struct Collective {
    name: &'static str,
    range: Range,
    launched_ns: i64,
}

/// One rank's tables as the plugin's formulas need them.
#[derive(Default)]
struct Rank {
    steps: Vec<Range>,
    shown: usize,
    kernels: Vec<Range>,
    all_kernels: Vec<Range>,
    copies: Vec<Range>,
    memsets: Vec<Range>,
    communication: Vec<Range>,
    calls: Vec<Range>,
    ranges: Vec<Range>,
    collectives: Vec<Collective>,
    host_steps: Vec<Range>,
    kernel_times: BTreeMap<String, (u64, i64)>,
    bytes: i64,
}

fn range(start: i64, duration: i64) -> Range {
    (start, start + duration.max(0))
}

impl Rank {
    fn new(recording: &Recording, process: &Process) -> Self {
        let tables = &process.tables;
        let name = |id| recording.names.get(id);
        let mut rank = Self::default();
        let calls = &tables.api_calls;
        let mut launches: HashMap<u32, usize> = HashMap::new();
        for row in 0..calls.start_ns.len() {
            rank.calls
                .push(range(calls.start_ns[row].0, calls.duration_ns[row].0));
            if calls.correlation[row] != 0 {
                launches.entry(calls.correlation[row]).or_insert(row);
            }
        }
        // By launching call: the operations' ranges.
        let mut launched: Vec<(Option<usize>, Range)> = Vec::new();
        for row in 0..tables.kernels.start_ns.len() {
            let at = range(tables.kernels.start_ns[row].0, tables.kernels.duration_ns[row].0);
            let launch = launches.get(&tables.kernels.correlation[row]).copied();
            launched.push((launch, at));
            let text = name(tables.kernels.name[row]);
            let times = rank.kernel_times.entry(text.to_owned()).or_default();
            *times = (times.0 + 1, times.1 + at.1 - at.0);
            rank.all_kernels.push(at);
            match collective(text) {
                Some(name) => {
                    rank.communication.push(at);
                    rank.collectives.push(Collective {
                        name,
                        range: at,
                        launched_ns: calls.start_ns[launch.expect("a launch")].0,
                    });
                }
                None => rank.kernels.push(at),
            }
        }
        let copies = &tables.copies;
        for row in 0..copies.start_ns.len() {
            let at = range(copies.start_ns[row].0, copies.duration_ns[row].0);
            launched.push((launches.get(&copies.correlation[row]).copied(), at));
            rank.copies.push(at);
        }
        let memsets = &tables.memsets;
        for row in 0..memsets.start_ns.len() {
            let at = range(memsets.start_ns[row].0, memsets.duration_ns[row].0);
            launched.push((launches.get(&memsets.correlation[row]).copied(), at));
            rank.memsets.push(at);
        }
        let markers = &tables.markers;
        for row in 0..markers.start_ns.len() {
            let Some(duration) = markers.duration_ns[row] else {
                continue;
            };
            let at = range(markers.start_ns[row].0, duration.0);
            match name(markers.name[row]).starts_with("step ") {
                true => rank.host_steps.push(at),
                false if markers.kind[row] == 0 => rank.ranges.push(at),
                false => {}
            }
        }
        rank.host_steps.sort_unstable();
        for place in 1..rank.host_steps.len() {
            rank.host_steps[place - 1].1 = rank.host_steps[place].0;
        }
        let steps = rank.host_steps.clone();
        // Whatever lies around a step is no operator.
        rank.ranges
            .retain(|range| !steps.iter().any(|step| range.0 <= step.0 && step.1 <= range.1));
        rank.collectives.sort_by_key(|collective| collective.launched_ns);
        let collectives = &tables.collectives;
        for row in 0..collectives.start_ns.len() {
            let ranks = match name(collectives.function[row]) {
                "ReduceScatter" => i64::from(process.header.world_size.unwrap()),
                _ => 1,
            };
            rank.bytes += collectives.bytes[row] as i64 * ranks;
        }
        rank.find_steps(
            &launched,
            &tables
                .api_calls
                .start_ns
                .iter()
                .map(|time| time.0)
                .collect::<Vec<_>>(),
        );
        rank
    }

    /// Steps last until what they launched has ended.
    fn find_steps(&mut self, launched: &[(Option<usize>, Range)], starts: &[i64]) {
        let ends: Vec<i64> = self.calls.iter().map(|call| call.1).collect();
        let of_step = |step: &Range| -> Vec<Range> {
            let inside = |call: usize| step.0 <= starts[call] && ends[call] <= step.1;
            let mine = launched.iter().filter(|(call, _)| call.is_some_and(inside));
            mine.map(|(_, at)| *at).collect()
        };
        let found: Vec<Vec<Range>> = self.host_steps.iter().map(of_step).collect();
        let first = found[0]
            .iter()
            .map(|at| at.0)
            .min()
            .expect("operations in the first step");
        let outside = launched.iter().filter(|(call, _)| {
            call.is_none_or(|call| {
                !self
                    .host_steps
                    .iter()
                    .any(|s| s.0 <= starts[call] && ends[call] <= s.1)
            })
        });
        let before = outside.map(|(_, at)| at.1).filter(|end| *end < first);
        let mut last = before.fold(self.host_steps[0].0, i64::max);
        for (step, operations) in self.host_steps.iter().zip(&found) {
            let start = last.max(step.0);
            last = operations.iter().map(|at| at.1).fold(step.1, i64::max);
            self.steps.push((start, last));
        }
        let counts: Vec<usize> = found.iter().map(Vec::len).collect();
        self.shown = counts.len();
        if let [.., before, last] = counts[..]
            && (last as f64) < 0.8 * before as f64
        {
            self.shown -= 1;
        }
    }

    /// The step that each collective counts for: its own by the launch, where the plugin's time of that has begun before
    /// the kernel starts, and else the one before. None counts for an earlier step than one before it.
    fn counted_in(&self) -> Vec<Option<usize>> {
        let mut times: Vec<i64> = self
            .collectives
            .iter()
            .map(|collective| {
                let launched = collective.launched_ns;
                let own = self
                    .host_steps
                    .iter()
                    .position(|step| (step.0..step.1).contains(&launched));
                let in_step = own.map_or(launched, |own| {
                    let (start, end) = self.steps[own];
                    launched.max(start + 1).min(end)
                });
                in_step.min(collective.range.0 - 1)
            })
            .collect();
        for place in (1..times.len()).rev() {
            times[place - 1] = times[place - 1].min(times[place]);
        }
        let shown = &self.steps[..self.shown];
        times
            .iter()
            .map(|time| shown.iter().position(|step| step.0 < *time && *time <= step.1))
            .collect()
    }

    /// Of each step the plugin's parts, in the order of its columns.
    fn parts(&self) -> Vec<[i64; 7]> {
        let mut left = union(self.steps[..self.shown].to_vec());
        let mut costs = Vec::new();
        let roles = [
            &self.kernels,
            &self.copies,
            &self.memsets,
            &self.communication,
            &self.calls,
            &self.ranges,
        ];
        for role in roles {
            let cost = intersection(&left, &union(role.clone()));
            left = difference(&left, &cost);
            costs.push(cost);
        }
        costs.push(left);
        let of_step = |step: &Range| -> [i64; 7] {
            std::array::from_fn(|role| length(&intersection(&[*step], &costs[role])))
        };
        self.steps[..self.shown].iter().map(of_step).collect()
    }

    /// Computation, overlap, communication and the rest of a step.
    fn overlap(&self, step: Range) -> [i64; 4] {
        let (kernels, communication) = (union(self.kernels.clone()), union(self.communication.clone()));
        let within = |ranges: &[Range]| length(&intersection(&[step], ranges));
        let both = within(&intersection(&kernels, &communication));
        let (compute, communicate) = (within(&kernels), within(&communication));
        let rest = step.1 - step.0 + both - compute - communicate;
        [compute - both, both, communicate - both, rest]
    }
}

fn us(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

#[track_caller]
fn assert_us(what: &str, said: f64, expected_ns: i64) {
    let expected = expected_ns as f64 / 1000.0;
    assert!(
        (said - expected).abs() < 0.002,
        "{what}: {said} us, not {expected}"
    );
}

/// Records, exports, and gives the recording and what the plugin says of its one run.
fn exported(python: &Path, workload: &[&str]) -> (Recording, Value, String) {
    let (_keep, folder) = fresh_folder("recording");
    let mut record = gputrace();
    record
        .args(["record", "--device", "sim", "--kinds", "+memory", "-o"])
        .arg(&folder);
    expect_status(record.args(["--", "workload"]).args(workload), 0);
    let run = folder.with_file_name("logs").join("run");
    std::fs::create_dir(run.parent().unwrap()).unwrap();
    let mut export = gputrace();
    export
        .arg("export")
        .arg(&folder)
        .args(["--format", "tensorboard", "-o"])
        .arg(&run);
    let said = stderr(&expect_status(&mut export, 0));
    let answers = tensorboard::ask(python, run.parent().unwrap(), "torch");
    let recording = Recording::open(&folder).unwrap();
    (recording, answers, said)
}

/// Every number of every view that follows from the tables.
fn compare(recording: &Recording, answers: &Value, with_distributed: bool) {
    let log: Vec<&str> = answers["log"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(Value::as_str)
        .collect();
    let odd =
        |line: &&&str| line.contains("external id") || line.contains("Error") || line.contains("intersect");
    assert_eq!(log.iter().filter(odd).collect::<Vec<_>>(), Vec::<&&str>::new());
    let run = &answers["runs"]["run"];
    let views: Vec<&str> = run["views"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(Value::as_str)
        .collect();
    for view in ["Overview", "Operator", "Kernel", "Trace", "Memory"] {
        assert!(views.contains(&view), "{view} is not among {views:?}");
    }
    assert_eq!(views.contains(&"Distributed"), with_distributed, "{views:?}");
    let ranks: Vec<Rank> = recording
        .processes
        .iter()
        .map(|process| Rank::new(recording, process))
        .collect();
    let mut workers = Vec::new();
    for (rank, process) in ranks.iter().zip(&recording.processes) {
        let worker = format!("{}_{}", process.header.host, process.header.rank.unwrap());
        let profile = &run["profiles"][format!("{worker} 1")];
        compare_overview(rank, &profile["overview"]);
        compare_kernels(rank, profile);
        let trace = profile["trace"]["traceEvents"].as_array().expect("valid JSON");
        let slices = trace
            .iter()
            .filter(|event| event["ph"] == "X" && event["cat"] == "kernel");
        assert_eq!(slices.count(), rank.all_kernels.len());
        compare_memory(process, &profile["memory_curve"]);
        workers.push(worker);
    }
    if with_distributed {
        compare_distributed(&ranks, &workers, &run["distributed"]["1"]);
    }
}

fn compare_overview(rank: &Rank, overview: &Value) {
    let rows = overview["steps"]["rows"].as_array().unwrap();
    let parts = rank.parts();
    assert_eq!(rows.len(), parts.len(), "{rows:?}");
    for (row, parts) in rows.iter().zip(&parts) {
        let said: Vec<f64> = row.as_array().unwrap()[1..]
            .iter()
            .filter_map(Value::as_f64)
            .collect();
        // Nobody loads data by PyTorch's loader here.
        assert_eq!(said.len(), 8, "{row}");
        assert_eq!(said[5], 0.0, "{row}");
        let columns = [
            "Kernel",
            "Memcpy",
            "Memset",
            "Communication",
            "Runtime",
            "CPU Exec",
            "Other",
        ];
        let said = [said[0], said[1], said[2], said[3], said[4], said[6], said[7]];
        for ((column, said), part) in columns.iter().zip(said).zip(parts) {
            assert_us(&format!("{column} of step {}", row[0]), said, *part);
        }
    }
    let all = (rank.steps[0].0, rank.steps[rank.shown - 1].1);
    let busy = length(&intersection(&[all], &union(rank.all_kernels.clone())));
    let summary = overview["gpu_metrics"]["data"].as_array().unwrap();
    let value = |title: &str| {
        let found = summary.iter().find(|entry| entry["title"] == title);
        found.unwrap_or_else(|| panic!("no {title} in {summary:?}"))["value"]
            .as_str()
            .unwrap()
    };
    let said: f64 = value("GPU Utilization").trim_end_matches(" %").parse().unwrap();
    assert!(
        (said - 100.0 * busy as f64 / (all.1 - all.0) as f64).abs() < 0.006,
        "{said}"
    );
    assert!(value("Name").starts_with("Simulated"));
    let occupancy: f64 = value("Est. Achieved Occupancy")
        .trim_end_matches(" %")
        .parse()
        .unwrap();
    assert!((1.0..=100.0).contains(&occupancy), "{occupancy}");
}

/// The most that was in use on the device, as the plugin prints it.
fn compare_memory(process: &Process, curve: &Value) {
    let memory = &process.tables.memory;
    let mut order: Vec<usize> = (0..memory.time_ns.len())
        .filter(|row| memory.memory_kind[*row] == 3)
        .collect();
    order.sort_by_key(|row| memory.time_ns[*row]);
    let (mut in_use, mut most) = (0i64, 0i64);
    for row in order {
        let bytes = memory.bytes[row] as i64;
        in_use += if memory.operation[row] == 2 { -bytes } else { bytes };
        most = most.max(in_use);
    }
    assert!(most > 0, "allocations are recorded");
    let device = format!("GPU{}", process.tables.kernels.device[0]);
    let said = curve["metadata"]["peaks"][&device]
        .as_str()
        .unwrap_or_else(|| panic!("{curve}"));
    assert_eq!(
        said,
        format!("Peak Memory Usage: {:.1}MB", most as f64 / f64::from(1 << 20))
    );
}

fn compare_kernels(rank: &Rank, profile: &Value) {
    let rows = profile["kernel/table"]["data"]["rows"].as_array().unwrap();
    let calls: u64 = rows.iter().map(|row| row[2].as_u64().unwrap()).sum();
    assert_eq!(calls, rank.all_kernels.len() as u64);
    // Names are demangled there and not here: the counts with the times tell.
    let mut said: Vec<(u64, i64)> = rows
        .iter()
        .map(|row| (row[2].as_u64().unwrap(), us(&row[3]).round() as i64))
        .collect();
    let mut expected: Vec<(u64, i64)> = rank
        .kernel_times
        .values()
        .map(|(count, ns)| (*count, (*ns as f64 / 1000.0).round() as i64))
        .collect();
    said.sort_unstable();
    expected.sort_unstable();
    assert_eq!(said.len(), expected.len());
    for (said, expected) in said.iter().zip(&expected) {
        assert!(
            said.0 == expected.0 && (said.1 - expected.1).abs() <= 1,
            "{said:?} {expected:?}"
        );
    }
    // Every kernel belongs to an operator or a collective.
    let by_operator = profile["kernel/table by operator"]["data"]["rows"]
        .as_array()
        .unwrap();
    let of = |row: &Value| row[1].as_str().unwrap().to_owned();
    let calls: u64 = by_operator.iter().map(|row| row[8].as_u64().unwrap()).sum();
    assert_eq!(calls, rank.all_kernels.len() as u64);
    for row in by_operator {
        assert!(
            !matches!(of(row).as_str(), "CallTreeRoot" | "N/A" | "dummy"),
            "{row}"
        );
        assert_eq!(
            row[0].as_str().unwrap().contains("nccl"),
            of(row).starts_with("nccl:"),
            "{row}"
        );
    }
    // And all time of devices to operators, but for collectives.
    let operators = profile["operation/table"]["data"].as_array().unwrap();
    let time: i64 = operators
        .iter()
        .map(|row| row["device_self_duration"].as_i64().unwrap())
        .sum();
    let expected = [&rank.kernels, &rank.copies, &rank.memsets];
    let expected: i64 = expected
        .into_iter()
        .flatten()
        .map(|(start, end)| end - start)
        .sum();
    assert!(
        (time - expected / 1000).abs() <= operators.len() as i64,
        "{time} {expected}"
    );
}

fn compare_distributed(ranks: &[Rank], workers: &[String], answers: &Value) {
    let count = ranks[0].collectives.len();
    assert!(ranks.iter().all(|rank| rank.collectives.len() == count));
    // The last part of each, as long as the shortest of all ranks.
    let least: Vec<i64> = (0..count)
        .map(|place| {
            let lengths = ranks.iter().map(|rank| rank.collectives[place].range);
            lengths.map(|(start, end)| end - start).min().unwrap()
        })
        .collect();
    for (rank, worker) in ranks.iter().zip(workers) {
        let real = |place: usize| {
            let end = rank.collectives[place].range.1;
            (end - least[place], end)
        };
        for (number, step) in rank.steps[..rank.shown].iter().enumerate() {
            let said = answers["overlap"]["data"][number.to_string()][worker]
                .as_array()
                .unwrap();
            for (said, expected) in said.iter().zip(rank.overlap(*step)) {
                assert_us("overlap", us(said), expected);
            }
            let counted = rank.counted_in();
            let mine: Vec<usize> = (0..count)
                .filter(|place| counted[*place] == Some(number))
                .collect();
            let ranges = mine.iter().map(|place| rank.collectives[*place].range).collect();
            let whole = length(&union(ranges));
            let transfer = length(&union(mine.iter().map(|place| real(*place)).collect()));
            let said = &answers["waittime"]["data"][number.to_string()][worker];
            assert_us("transfer", us(&said[0]), transfer);
            assert_us("wait", us(&said[1]), whole - transfer);
        }
        let rows = answers["commops"]["data"][worker]["rows"].as_array().unwrap();
        let mut bytes = 0;
        for row in rows {
            let mine: Vec<usize> = (0..count)
                .filter(|place| row[0] == rank.collectives[*place].name)
                .collect();
            assert_eq!(row[1].as_u64().unwrap(), mine.len() as u64);
            bytes += row[2].as_i64().unwrap();
            let ranges = mine.iter().map(|place| rank.collectives[*place].range).collect();
            assert_us("latency", us(&row[4]), length(&union(ranges)));
            let real = mine.iter().map(|place| real(*place)).collect();
            assert_us("transfer", us(&row[6]), length(&union(real)));
        }
        assert_eq!(bytes, rank.bytes);
        let calls: u64 = rows.iter().map(|row| row[1].as_u64().unwrap()).sum();
        assert_eq!(calls, count as u64);
    }
}

#[test]
fn data_parallel_training_has_the_plugins_numbers() {
    let Some(python) = tensorboard::python() else {
        return;
    };
    let (recording, answers, said) = exported(
        &python,
        &["ddp", "--steps", "5", "--ranks", "3", "--batch", "192"],
    );
    assert!(!said.contains("note:"), "{said}");
    compare(&recording, &answers, true);
}

#[test]
fn sharded_training_has_the_plugins_numbers() {
    let Some(python) = tensorboard::python() else {
        return;
    };
    let (recording, answers, _) = exported(&python, &["fsdp", "--steps", "4", "--ranks", "2"]);
    compare(&recording, &answers, true);
}
