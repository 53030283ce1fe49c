//! The members of the JSON object, which other programs read by name.

use std::collections::BTreeSet;

use gputrace_analyzer::{CATALOGUE, Options, analyze, step_number, used_cuda};
use gputrace_trace::manifest::ProcessHeader;
use gputrace_trace::tables::{Collective, Kernel, Marker};
use gputrace_trace::{DurationNs, Process, Recording, Table, TimeNs};
use serde_json::Value;

/// Measures whose names are promised; the catalogue may have more.
const PROMISED: &[&str] = &[
    "span_ns",
    "busy_ns",
    "idle_ns",
    "idle_ratio",
    "compute_ns",
    "communication_ns",
    "copy_ns",
    "copy_exposed_ns",
    "memset_ns",
    "communication_hidden_ns",
    "communication_exposed_ns",
    "overlap_ratio",
];

fn check(value: &Value, expected: &[&[&str]]) {
    let found: BTreeSet<&str> = value
        .as_object()
        .expect("an object")
        .keys()
        .map(String::as_str)
        .collect();
    let expected: BTreeSet<&str> = expected.iter().copied().flatten().copied().collect();
    assert_eq!(found, expected);
}

/// One rank of unknown number whose communication is exposed, with a step and a collective of a single rank.
fn recording() -> Recording {
    let mut recording = Recording::default();
    recording.manifest.device = "imported".to_owned();
    let mut names = |text: &str| recording.names.intern(text);
    let (kernel, step, function) = (
        names("ncclDevKernel_AllReduce"),
        names("step 1"),
        names("AllReduce"),
    );
    let mut process = Process {
        header: ProcessHeader::new(),
        ..Process::default()
    };
    process.tables.kernels.push(Kernel {
        start_ns: TimeNs(10),
        duration_ns: DurationNs(20),
        name: kernel,
        ..Kernel::default()
    });
    process.tables.markers.push(Marker {
        start_ns: TimeNs(0),
        duration_ns: Some(DurationNs(100)),
        name: step,
        ..Marker::default()
    });
    process.tables.collectives.push(Collective {
        start_ns: TimeNs(5),
        function,
        count: 3,
        ..Collective::default()
    });
    recording.processes.push(process);
    recording
}

#[test]
fn every_member_has_the_name_that_is_promised() {
    let recording = recording();
    assert!(used_cuda(&recording));
    let json = serde_json::to_value(analyze(&recording, &Options::default())).expect("JSON");
    check(
        &json,
        &[&[
            "schema",
            "source",
            "device",
            "exit_status",
            "job_ranks",
            "step",
            "ranks",
            "over_ranks",
            "collectives",
            "communicators",
            "transfers",
            "collective_sizes",
            "arrivals",
            "measures",
            "clock",
            "clocks",
            "clock_end_spread_ns",
            "hangs",
            "critical_path",
            "unfinished",
            "recording_cost",
            "recording_overhead",
            "device_state",
            "host_state",
            "findings",
            "losses",
            "notes",
        ]],
    );
    assert_eq!(json["schema"], "gputrace.analysis/1");
    assert_eq!(json["device"], "imported");
    let rank = &json["ranks"][0];
    let of_rank = [
        "rank",
        "device_index",
        "device_name",
        "host",
        "idle_before_ns",
        "idle_after_ns",
        "parts",
        "idle_causes",
        "host_late_by",
        "longest_gaps",
        "streams",
        "kinds",
        "kernels",
        "communication",
        "copies",
        "launches",
        "queues",
        "memory",
        "operators",
        "shapes",
        "products",
        "modules",
        "module_classes",
        "stacks",
        "unattributed",
        "unattributed_memory",
        "modelled_share",
        "peak",
        "steps",
        "step_summary",
    ];
    let measures: Vec<&str> = CATALOGUE.iter().map(|measure| measure.name).collect();
    for name in PROMISED {
        assert!(
            rank.get(name).is_some() && rank["steps"][0].get(name).is_some(),
            "{name}"
        );
    }
    check(rank, &[&of_rank, &measures]);
    assert!(rank["rank"].is_null() && rank["device_name"].is_null());
    let of_stream = [
        "stream",
        "ops",
        "span_ns",
        "busy_ns",
        "idle_ns",
        "idle_ratio",
        "idle_host_wait_ns",
        "idle_kernel_wait_ns",
        "idle_other_ns",
        "compute_ns",
        "communication_ns",
        "communication_hidden_ns",
        "communication_exposed_ns",
        "overlap_ratio",
        "copy_ns",
        "memset_ns",
    ];
    check(&rank["streams"][0], &[&of_stream]);
    let of_kernel = [
        "name",
        "kind",
        "kind_from",
        "kind_reason",
        "count",
        "total_ns",
        "share",
        "occupancy",
        "mean_ns",
        "min_ns",
        "max_ns",
        "p50_ns",
        "p99_ns",
    ];
    check(&rank["kernels"][0], &[&of_kernel]);
    check(
        &rank["steps"][0],
        &[
            &[
                "name",
                "start_ns",
                "end_ns",
                "detected",
                "duration_ns",
                "host_start_ns",
                "host_duration_ns",
                "outlier",
                "warm_up",
                "flops",
                "mfu",
                "hfu",
                "parts",
            ],
            &measures,
        ],
    );
    check(&json["step"], &[&["mean_ns", "count", "warm_up"]]);
    check(
        &rank["step_summary"],
        &[&[
            "count",
            "detected",
            "mean_ns",
            "min_ns",
            "max_ns",
            "p50_ns",
            "p99_ns",
            "standard_deviation_ns",
            "outliers",
            "warm_up",
        ]],
    );
    let of_collective = [
        "name",
        "communicator",
        "communicator_name",
        "communicator_ranks",
        "sender",
        "receiver",
        "sequence",
        "ranks",
        "start_ns",
        "longest_kernel_ns",
        "bytes",
        "dtype",
        "algbw",
        "busbw",
        "wait_ns",
        "transfer_ns",
        "skew_ns",
        "last_rank",
        "last_rank_cost_ns",
        "last_undecided",
        "clock_error_ns",
        "algbw_range",
        "matched_by",
        "warm_up",
        "shared_kernel",
    ];
    let collective = &json["collectives"][0];
    check(collective, &[&of_collective]);
    assert!(
        collective["bytes"].is_null(),
        "three elements of a size that is not known"
    );
    let of_clock = [
        "host",
        "ranks",
        "reference",
        "at_ns",
        "offset_ns",
        "drift",
        "half_width_ns",
        "hard_low_ns",
        "hard_high_ns",
        "collectives",
        "contradicted",
        "longer_ns",
        "longer_half_width_ns",
        "set",
        "course",
        "source",
    ];
    check(&json["clocks"][0], &[&of_clock]);
    let of_communicator = [
        "communicator",
        "communicator_name",
        "communicator_ranks",
        "ranks",
        "operations",
        "bytes",
        "time_ns",
        "exposed_ns",
    ];
    check(&json["communicators"][0], &[&of_communicator]);
    check(
        &json["findings"][0],
        &[&[
            "code",
            "facts",
            "text",
            "evidence",
            "rank",
            "device_index",
            "ranks",
            "saves_ns",
            "saves_per_step_ns",
            "saves_low_ns",
            "saves_high_ns",
            "cause",
        ]],
    );
    check(&json["losses"][0], &[&["what", "count", "affects"]]);
}

#[test]
fn an_empty_recording_never_used_cuda() {
    let recording = Recording::default();
    assert!(!used_cuda(&recording));
    let analysis = analyze(&recording, &Options::default());
    assert!(analysis.ranks.is_empty() && analysis.losses.is_empty());
}

#[test]
fn step_numbers_are_read_from_names() {
    for (name, number) in [
        ("step 12", 12),
        ("Step 12", 12),
        ("ProfilerStep#12", 12),
        ("iteration 3", 3),
    ] {
        assert_eq!(step_number(name), Some(number), "{name}");
    }
    assert_eq!(step_number("step 99999999999999999999999"), None);
}
