//! Perfetto's format in front of Perfetto's own engine: what it counts is what the recording has, and it complains of nothing.
//!
//! Skipped, loudly, where the engine can't be fetched; never under CI=true.

mod given;
use crate::consumers;
use crate::consumers::trace_processor;
use crate::support;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

use given::{derived, odd};
use gputrace_interchange::export::ExportSummary;
use gputrace_interchange::export::perfetto::{PerfettoOptions, export_perfetto};
use gputrace_interchange::export::words;
use gputrace_trace::derived::Derived;
use gputrace_trace::tables::*;
use gputrace_trace::{DurationNs, Recording, Table, TimeNs};
use serde_json::Value;
use support::{EPOCH_NS, EVENTS_A_RANK, two_hosts, two_ranks};
use trace_processor::{TROUBLE, TraceProcessor};

const STAGES: PerfettoOptions = PerfettoOptions {
    arguments: true,
    gpu_stages: true,
};

fn engines() -> Option<[TraceProcessor; 2]> {
    trace_processor::both()
}

/// A file with the trace, in a folder that lives as long as the first value.
fn exported(
    recording: &Recording,
    derived: &Derived,
    options: PerfettoOptions,
) -> (tempfile::TempDir, PathBuf, ExportSummary) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.pftrace");
    let mut bytes = Vec::new();
    let summary = export_perfetto(recording, derived, options, &mut bytes).unwrap();
    let mut again = Vec::new();
    export_perfetto(recording, derived, options, &mut again).unwrap();
    assert!(bytes == again, "two exports differ");
    std::fs::write(&path, bytes).unwrap();
    (folder, path, summary)
}

/// Name, start and duration of every kernel, as the tables have them.
fn kernels(recording: &Recording) -> Vec<(i64, i64, String)> {
    let mut all = Vec::new();
    for process in &recording.processes {
        let row = &process.tables.kernels;
        for index in 0..row.start_ns.len() {
            let name = words::kernel_name(recording.names.get(row.name[index])).replace('\0', "\u{2400}");
            all.push((row.start_ns[index].0, row.duration_ns[index].0.max(0), name));
        }
    }
    all.sort();
    all
}

fn kernels_of(rows: &[Vec<Value>]) -> Vec<(i64, i64, String)> {
    let mut all: Vec<_> = rows
        .iter()
        .map(|row| {
            let number = |place: usize| row[place].as_i64().unwrap();
            (
                number(0),
                number(1),
                row[2].as_str().unwrap_or_default().to_owned(),
            )
        })
        .collect();
    all.sort();
    all
}

/// How many slices of each category there are to be, and how many samples.
fn counts(recording: &Recording) -> (BTreeMap<String, u64>, u64) {
    let mut of: BTreeMap<String, u64> = BTreeMap::new();
    let mut samples = 0;
    for process in recording.processes.iter().chain(&recording.hosts) {
        let tables = &process.tables;
        let mut add =
            |category: &str, count: usize| *of.entry(category.to_owned()).or_default() += count as u64;
        add("kernel", tables.kernels.start_ns.len());
        add("gpu_memcpy", tables.copies.start_ns.len());
        add("gpu_memset", tables.memsets.start_ns.len());
        add("graph_launch", tables.graph_launches.start_ns.len());
        add(
            "cuda_driver",
            tables.api_calls.kind.iter().filter(|kind| **kind == 4).count(),
        );
        add(
            "cuda_runtime",
            tables.api_calls.kind.iter().filter(|kind| **kind != 4).count(),
        );
        add("cpu_op", tables.operators.start_ns.len());
        add("cuda_sync", tables.synchronizations.start_ns.len());
        add("overhead", tables.overheads.start_ns.len());
        add("compilation", tables.compilations.start_ns.len());
        add("nccl_proxy", tables.nccl_proxy.start_ns.len());
        add("nccl_channel", tables.nccl_channels.start_ns.len());
        add("recording", tables.windows.start_ns.len());
        add("memory", tables.memory.time_ns.len());
        add("memory_pool", tables.memory_pools.time_ns.len());
        add("unfinished", tables.untimed_operations.start_ns.len());
        let marks = tables.markers.duration_ns.iter().filter(|d| d.is_none()).count();
        let enqueued = tables
            .collectives
            .kernel
            .iter()
            .filter(|kernel| kernel.is_none())
            .count();
        add("cpu_instant_event", marks);
        add(
            "user_annotation",
            tables.markers.start_ns.len() - marks + enqueued,
        );
        let on_device = tables
            .memory
            .memory_kind
            .iter()
            .filter(|kind| **kind >= 3)
            .count();
        samples += (tables.counters.time_ns.len() + on_device) as u64;
    }
    of.retain(|_, count| *count > 0);
    (of, samples)
}

/// Categories of what the analysis and the recording as a whole add.
const ADDED: [&str; 6] = [
    "collective",
    "collective_phase",
    "step",
    "idle",
    "critical_path",
    "about",
];

/// Exports and lets both versions of the engine count.
#[track_caller]
fn check(recording: &Recording, derived: &Derived) -> Option<(ExportSummary, tempfile::TempDir, PathBuf)> {
    let (folder, path, summary) = exported(recording, derived, PerfettoOptions::default());
    assert_eq!(summary.events_in, summary.events_out);
    let (categories, samples) = counts(recording);
    for engine in &engines()? {
        let answers = engine.ask(
            &path,
            &[
                TROUBLE,
                "select category, count(*) from slice group by category",
                "select ts, dur, name from slice where category = 'kernel'",
                "select count(*) from flow",
                "select count(*) from counter",
                "select count(*) from slice where name is null or dur < 0 or category is null",
                // Arrows lead from a call to what it launched: both say the same number, in one process.
                "select count(*) from flow f
                 join slice a on a.id = f.slice_out join slice b on b.id = f.slice_in
                 where extract_arg(a.arg_set_id, 'debug.correlation') is not
                       extract_arg(b.arg_set_id, 'debug.correlation')
                    or a.category not in ('cuda_runtime', 'cuda_driver')
                    or b.category not in ('kernel', 'gpu_memcpy', 'gpu_memset', 'graph_launch')
                    or a.ts > b.ts",
            ],
        );
        let version = engine.version;
        assert_eq!(answers[0], Vec::<Vec<Value>>::new(), "{version}");
        let found: BTreeMap<String, u64> = answers[1]
            .iter()
            .map(|row| {
                (
                    row[0].as_str().unwrap_or("none").to_owned(),
                    row[1].as_u64().unwrap(),
                )
            })
            .filter(|(category, _)| !ADDED.contains(&category.as_str()))
            .collect();
        assert_eq!(found, categories, "{version}");
        assert_eq!(
            found.values().sum::<u64>() + recording_samples(recording),
            summary.events_out
        );
        assert_eq!(kernels_of(&answers[2]), kernels(recording), "{version}");
        assert_eq!(answers[3], [[summary.flows]], "{version}");
        assert_eq!(answers[4], [[samples]], "{version}");
        assert_eq!(answers[5], [[0]], "{version}");
        assert_eq!(answers[6], [[0]], "{version}");
    }
    Some((summary, folder, path))
}

fn recording_samples(recording: &Recording) -> u64 {
    let processes = recording.processes.iter().chain(&recording.hosts);
    processes
        .map(|process| process.tables.counters.time_ns.len() as u64)
        .sum()
}

#[test]
fn the_engine_counts_what_is_there() {
    let recording = two_ranks();
    let Some((summary, _folder, path)) = check(&recording, &derived()) else {
        return;
    };
    assert_eq!(summary.events_in, 2 * EVENTS_A_RANK);
    // A rank: the copy, the memset and two kernels. The third has no call, that of the collective comes later.
    assert_eq!(
        (summary.flows, summary.launches_unknown, summary.launches_later),
        (8, 2, 2)
    );
    assert_eq!((summary.lanes_added, summary.durations_clamped), (2, 2));
    for engine in &engines().unwrap() {
        let answers = engine.ask(
            &path,
            &[
                "select name, pid, machine_id is null or machine_id = 0 from process where name is not null order by name",
                "select p.name, g.name, s.name, extract_arg(s.source_arg_set_id, 'sibling_order_rank') as place
                 from track s join track g on g.id = s.parent_id
                 join process_track t on t.id = s.id join process p using (upid)
                 where s.name like 'stream %' order by p.name, place, s.id",
                "select distinct extract_arg(arg_set_id, 'correlation_id'), category from slice
                 where extract_arg(arg_set_id, 'correlation_id') is not null order by 2",
                "select extract_arg(arg_set_id, 'debug.wait_ns'), extract_arg(arg_set_id, 'debug.exposed_ns'),
                        extract_arg(arg_set_id, 'debug.busbw_gb_per_s'), extract_arg(arg_set_id, 'debug.bytes'),
                        extract_arg(arg_set_id, 'debug.grid'), extract_arg(arg_set_id, 'debug.ranks')
                 from slice where category = 'kernel' and name like 'nccl%' order by 1",
                "select s.name, s.dur, s.depth from slice s
                 join process_track t on t.id = s.track_id join process p using (upid)
                 where category in ('collective', 'collective_phase') order by s.ts, p.name, s.depth",
                "select s.name, count(*), sum(dur) from slice s where category in ('step', 'idle') group by 1 order by 1",
                "select name, extract_arg(arg_set_id, 'debug.count'), extract_arg(arg_set_id, 'debug.affects')
                 from slice where category = 'about' order by depth, name",
                "select t.name, t.unit, c.value from counter c join counter_track t on t.id = c.track_id order by c.id",
                "select count(*) from flow f join slice a on a.id = slice_out join slice b on b.id = slice_in
                 join thread_track t on t.id = a.track_id join thread using (utid)
                 join process_track q on q.id = b.track_id
                 where thread.upid != q.upid",
                "select s.name, dur, depth, extract_arg(arg_set_id, 'debug.rank') from slice s join track t on t.id = s.track_id
                 where category = 'critical_path' and t.name = 'critical path' order by ts",
            ],
        );
        let version = engine.version;
        assert_eq!(
            serde_json::json!(answers[9]),
            serde_json::json!([
                ["kernel gemm", 60_000, 0, 1],
                ["latency", 500, 0, 1],
                ["transfer AllReduce", 139_500, 0, 0],
                ["unexplained", 10_000, 0, 0]
            ]),
            "{version}"
        );
        // Equal process ids on two hosts.
        assert_eq!(
            Value::from_iter(answers[0].iter().cloned().map(Value::from)),
            serde_json::json!([["rank 0", 4242, 1], ["rank 1", 4242, 0]]),
            "{version}"
        );
        let streams: Vec<&str> = answers[1]
            .iter()
            .take(4)
            .map(|row| row[2].as_str().unwrap())
            .collect();
        assert_eq!(
            streams,
            ["stream 7", "stream 7 (lane 2)", "stream 20", "stream 21"],
            "{version}"
        );
        assert_eq!(answers[1].len(), 8);
        assert_eq!(answers[1][0][1], "GPU 0 Simulated H200");
        // One number on both ranks, on the call, the kernel, and the communicator's track.
        assert_eq!(answers[2].len(), 4, "{version}: {:?}", answers[2]);
        assert!(answers[2].iter().all(|row| row[0] == answers[2][0][0]));
        assert_eq!(
            serde_json::json!(answers[3]),
            serde_json::json!([
                [0, 80_000, "NaN", 4000, "[264,1,1]", "0,1"],
                [20_000, 100_000, "NaN", 4000, "[264,1,1]", "0,1"]
            ]),
            "{version}"
        );
        assert_eq!(
            serde_json::json!(answers[4]),
            serde_json::json!([
                ["AllReduce", 140_000, 0],
                ["wait", 20_000, 1],
                ["AllReduce", 120_000, 0],
                ["transfer", 120_000, 1],
                ["transfer", 120_000, 1]
            ]),
            "{version}"
        );
        assert_eq!(
            serde_json::json!(answers[5]),
            serde_json::json!([
                ["launch", 2, 60_002],
                ["step 0", 2, 400_000],
                ["step 1", 2, 400_000]
            ]),
            "{version}"
        );
        assert_eq!(
            serde_json::json!(answers[6]),
            serde_json::json!([
                ["simulated GPUs: device times are a model's", null, null],
                ["lost: CUPTI records", 3, "kernels"]
            ]),
            "{version}"
        );
        assert_eq!(
            answers[7][0][..2],
            [Value::from("memory allocated"), Value::from("bytes")],
            "{version}"
        );
        assert!(
            answers[7]
                .iter()
                .any(|row| row[0] == "power" && row[1] == "W" && row[2] == 412.5)
        );
        assert_eq!(
            serde_json::json!(answers[8]),
            serde_json::json!([[0]]),
            "{version}"
        );
    }
}

#[test]
fn without_an_analysis_too() {
    drop(check(&two_ranks(), &Derived::default()));
    drop(check(&Recording::default(), &Derived::default()));
}

/// The same with every time later, so that none is before the epoch: what the engine is to say.
fn shifted(recording: &Recording, by_ns: i64) -> Vec<(i64, i64, String)> {
    let later = |(start, duration, name): (i64, i64, String)| (start + by_ns, duration, name);
    kernels(recording).into_iter().map(later).collect()
}

#[test]
fn whatever_is_odd_is_whole() {
    let mut recording = odd();
    let (_folder, path, summary) = exported(&recording, &Derived::default(), PerfettoOptions::default());
    assert_eq!(summary.events_in, summary.events_out);
    let Some(engines) = engines() else { return };
    let (categories, samples) = counts(&recording);
    for engine in &engines {
        let answers = engine.ask(
            &path,
            &[
                TROUBLE,
                "select category, count(*) from slice where category != 'about' group by category",
                "select ts, dur, name from slice where category = 'kernel'",
                "select count(*) from flow",
                "select count(*) from counter",
                "select name, count(*) from process where name is not null group by name order by name",
                "select count(*) from (select ts, dur, lead(ts) over (partition by track_id order by ts, dur) as next
                 from slice where category = 'kernel') where ts + dur > next",
            ],
        );
        let version = engine.version;
        assert_eq!(answers[0], Vec::<Vec<Value>>::new(), "{version}");
        let found: BTreeMap<String, u64> = answers[1]
            .iter()
            .map(|row| {
                (
                    row[0].as_str().unwrap_or("none").to_owned(),
                    row[1].as_u64().unwrap(),
                )
            })
            .collect();
        assert_eq!(found, categories, "{version}");
        let (found, expected) = (kernels_of(&answers[2]), shifted(&recording, 5000));
        assert_eq!(found.len(), expected.len(), "{version}");
        for (found, expected) in found.iter().zip(&expected) {
            // Not all of a name that is a hundred kilobytes long.
            let short = |name: &str| name.chars().take(40).collect::<String>();
            assert_eq!(
                (found.0, found.1, short(&found.2)),
                (expected.0, expected.1, short(&expected.2)),
                "{version}"
            );
            assert!(
                found.2 == expected.2,
                "{version}: a name of {} bytes",
                expected.2.len()
            );
        }
        assert_eq!(answers[3], [[summary.flows]], "{version}");
        assert_eq!(answers[4], [[samples]], "{version}");
        assert_eq!(
            serde_json::json!(answers[5]),
            serde_json::json!([
                ["a folder with a \"name\"\n", 1],
                ["host node1", 1],
                ["rank 0", 1],
                ["rank 1", 1]
            ]),
            "{version}"
        );
        assert_eq!(answers[6], [[0]], "{version}: slices of a stream's lane overlap");
    }
    // Without what is before the epoch nothing is moved.
    let tables = &mut recording.processes[0].tables;
    tables.kernels = Kernels::default();
    tables.counters = Counters::default();
    drop(check(&recording, &Derived::default()));
}

#[test]
fn clocks_of_hosts_are_aligned_and_their_own_times_stand_beside() {
    let recording = two_hosts();
    let (_folder, path, _) = exported(&recording, &Derived::default(), PerfettoOptions::default());
    let Some(engines) = engines() else { return };
    for engine in engines {
        let answers = engine.ask(
            &path,
            &[
                TROUBLE,
                "select k.ts, k.dur, k.name from slice k where category = 'kernel'",
                // Snapshots are numbered for each machine apart.
                "select a.clock_value, b.clock_value from clock_snapshot a join clock_snapshot b using (snapshot_id)
                 where a.machine_id is b.machine_id and a.clock_id = 1 and b.clock_id = 129 order by 1",
                "select max(iif(key = 'debug.clock', int_value, null)) clock,
                   max(iif(key = 'debug.clock_offset_ns', int_value, null)),
                   max(iif(key = 'debug.clock_half_width_ns', int_value, null)),
                   max(iif(key = 'debug.host', string_value, null))
                 from slice join args using (arg_set_id) where name = 'clock' group by slice.id order by 1",
            ],
        );
        let version = &engine.version;
        assert_eq!(answers[0], Vec::<Vec<Value>>::new(), "{version}");
        assert_eq!(kernels_of(&answers[1]), kernels(&recording), "{version}");
        let course = &recording.clocks.as_ref().unwrap().clocks[1].course;
        assert_eq!(answers[2].len(), 2, "{version}");
        for row in &answers[2] {
            let (file, own) = (row[0].as_i64().unwrap(), row[1].as_i64().unwrap());
            assert_eq!(course.to_reference(own), file, "{version}");
            assert!((own - file - 5_000_000).abs() < 50_000, "{version}: {row:?}");
        }
        // Half-way between two knots 2 s off either way: 900, and 70 of wandering.
        let told = serde_json::json!([[0, 0, 0, "node-0"], [1, 5_020_000, 903, "node-1"]]);
        assert_eq!(serde_json::json!(answers[3]), told, "{version}");
    }
}

#[test]
fn render_stages_fill_perfettos_own_tables() {
    let recording = two_ranks();
    let (_folder, path, summary) = exported(&recording, &derived(), STAGES);
    assert_eq!(summary.events_in, summary.events_out);
    // The older version does not know them.
    let Some([engine, _]) = engines() else { return };
    let answers = engine.ask(
        &path,
        &[
            TROUBLE,
            "select ts, dur, s.name from gpu_slice s where render_stage_category = 2",
            "select count(*), count(distinct upid), count(distinct track_id) from gpu_slice",
            "select count(*) from flow f join slice a on a.id = f.slice_out join gpu_slice b on b.id = f.slice_in
             join thread_track t on t.id = a.track_id join thread using (utid)
             where thread.upid = b.upid and a.ts <= b.ts",
            "select count(*) from flow",
            "select name, gpu, count(*) from gpu group by 1, 2",
            "select distinct key from args join gpu_slice using (arg_set_id) where key like 'launch%' or key like '%kernel%'
             order by 1",
        ],
    );
    assert_eq!(answers[0], Vec::<Vec<Value>>::new());
    assert_eq!(kernels_of(&answers[1]), kernels(&recording));
    // Four kernels, a copy and a memset a rank; three streams a rank, of which one has two lanes.
    assert_eq!(serde_json::json!(answers[2]), serde_json::json!([[12, 2, 8]]));
    assert_eq!(answers[3], [[summary.flows]]);
    assert_eq!(answers[4], [[summary.flows]]);
    // The device of each rank's host has no UUID, so none is taken for another's.
    assert_eq!(
        serde_json::json!(answers[5]),
        serde_json::json!([["Simulated H200", 0, 2]])
    );
    let keys: Vec<&str> = answers[6].iter().filter_map(|row| row[0].as_str()).collect();
    assert_eq!(
        keys,
        [
            "kernel_demangled_name",
            "kernel_name",
            "launch.grid_size.x",
            "launch.grid_size.y",
            "launch.grid_size.z",
            "launch.workgroup_size.x",
            "launch.workgroup_size.y",
            "launch.workgroup_size.z"
        ]
    );
}

#[test]
fn every_field_is_one_of_the_published_messages() {
    let Some(python) = consumers::python("perfetto-messages") else {
        return;
    };
    for options in [PerfettoOptions::default(), STAGES] {
        for recording in [two_ranks(), odd()] {
            let (_folder, path, _) = exported(&recording, &derived(), options);
            let output = Command::new(&python)
                .arg(consumers::script("perfetto_schema.py"))
                .arg(&path)
                .output()
                .unwrap();
            let text = String::from_utf8_lossy(&output.stdout);
            let error = String::from_utf8_lossy(&output.stderr);
            assert!(text.starts_with("DONE "), "{text}{error}");
        }
    }
}

#[test]
fn without_arguments_a_slice_is_small() {
    let recording = two_ranks();
    let lean = PerfettoOptions {
        arguments: false,
        gpu_stages: false,
    };
    let (_folder, path, summary) = exported(&recording, &derived(), lean);
    assert_eq!(summary.events_in, summary.events_out);
    // What 20 000 more take: calls and their kernels, on two streams.
    let mut longer = recording.clone();
    let tables = &mut longer.processes[0].tables;
    let (call, kernel) = (tables.api_calls.name[0], tables.kernels.name[0]);
    for number in 0..10_000u32 {
        let start_ns = EPOCH_NS + 1_000_000 + i64::from(number) * 5000;
        tables.api_calls.push(ApiCall {
            start_ns: TimeNs(start_ns),
            duration_ns: DurationNs(3000),
            name: call,
            kind: 5,
            thread: 4242,
            correlation: 1000 + number,
            ..ApiCall::default()
        });
        tables.kernels.push(Kernel {
            start_ns: TimeNs(start_ns + 7000),
            duration_ns: DurationNs(4900),
            name: kernel,
            context: 1,
            stream: 7 + number % 2 * 13,
            correlation: 1000 + number,
            ..Kernel::default()
        });
    }
    let (_longer_folder, longer_path, more) = exported(&longer, &derived(), lean);
    assert_eq!(more.flows, summary.flows + 10_000);
    let bytes = longer_path.metadata().unwrap().len() - path.metadata().unwrap().len();
    assert!(bytes <= 62 * 20_000, "{} bytes a slice", bytes as f64 / 20_000.0);
    let Some(engines) = engines() else { return };
    for engine in &engines {
        let answers = engine.ask(
            &path,
            &[
                TROUBLE,
                "select ts, dur, name from slice where category = 'kernel'",
                "select count(*) from flow",
                "select count(*) from args where key like 'debug.%'",
            ],
        );
        assert_eq!(answers[0], Vec::<Vec<Value>>::new());
        assert_eq!(kernels_of(&answers[1]), kernels(&recording));
        assert_eq!(answers[2], [[summary.flows]]);
        assert_eq!(answers[3], [[0]]);
    }
}
