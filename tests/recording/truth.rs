//! The recording against the truth log of the stand-in: every operation there, none twice, stamps as delivered.

use crate::common;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use common::{
    TrueOperation, analysis, expect_status, fresh_folder, gputrace, record_workload, stdout, truth_of_rank,
};
use gputrace_trace::{Process, Recording};

/// The operations of a recorded process by correlation id, in the truth log's terms.
fn recorded_operations(
    recording: &Recording,
    process: &Process,
) -> BTreeMap<u64, (String, u64, u64, i64, i64, String)> {
    let mut operations = BTreeMap::new();
    let mut add = |correlation: u32, operation| {
        assert!(
            operations.insert(u64::from(correlation), operation).is_none(),
            "correlation {correlation} recorded twice"
        );
    };
    let tables = &process.tables;
    for index in 0..tables.kernels.start_ns.len() {
        let k = &tables.kernels;
        let (start, length) = (k.start_ns[index].0, k.duration_ns[index].0);
        let name = recording.names.get(k.name[index]).to_owned();
        add(
            k.correlation[index],
            (
                "kernel".to_owned(),
                k.device[index].into(),
                k.stream[index].into(),
                start,
                start + length,
                name,
            ),
        );
    }
    for index in 0..tables.copies.start_ns.len() {
        let c = &tables.copies;
        let (start, length) = (c.start_ns[index].0, c.duration_ns[index].0);
        add(
            c.correlation[index],
            (
                "memcpy".to_owned(),
                c.device[index].into(),
                c.stream[index].into(),
                start,
                start + length,
                String::new(),
            ),
        );
    }
    for index in 0..tables.memsets.start_ns.len() {
        let m = &tables.memsets;
        let (start, length) = (m.start_ns[index].0, m.duration_ns[index].0);
        add(
            m.correlation[index],
            (
                "memset".to_owned(),
                m.device[index].into(),
                m.stream[index].into(),
                start,
                start + length,
                String::new(),
            ),
        );
    }
    operations
}

#[track_caller]
fn assert_recorded_as_delivered(folder: &Path, truth_folder: &Path, ranks: u32) {
    let recording = Recording::open(folder).expect("the recording opens");
    assert!(
        recording.losses.is_empty(),
        "nothing was lost: {:?}",
        recording.losses
    );
    assert!(recording.is_simulated(), "a simulated recording says so");
    assert_eq!(recording.processes.len(), ranks as usize);
    for rank in 0..ranks {
        let process = recording
            .processes
            .iter()
            .find(|process| process.header.rank == Some(rank))
            .expect("a process of that rank");
        let truth = truth_of_rank(truth_folder, rank);
        assert!(
            truth.len() > 20,
            "rank {rank}: only {} operations in the truth log",
            truth.len()
        );
        let recorded = recorded_operations(&recording, process);
        assert_eq!(
            recorded.len(),
            truth.len(),
            "rank {rank}: operations recorded against operations that happened"
        );
        for (
            correlation,
            TrueOperation {
                kind,
                name,
                device,
                stream,
                delivered_start_ns,
                delivered_end_ns,
                ..
            },
        ) in truth
        {
            let found = recorded
                .get(&correlation)
                .unwrap_or_else(|| panic!("rank {rank}: {kind} {correlation} is missing"));
            let name = if kind == "kernel" { name } else { String::new() };
            assert_eq!(
                *found,
                (kind, device, stream, delivered_start_ns, delivered_end_ns, name),
                "correlation {correlation}"
            );
        }
    }
}

/// The measures of each rank as a script computes them that shares nothing with the analyzer.
fn independent_measures(truth: &Path) -> Option<serde_json::Value> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/independent_measures.py");
    match Command::new("python3").arg(script).arg(truth).output() {
        Ok(output) => {
            assert!(
                output.status.success(),
                "{}",
                String::from_utf8_lossy(&output.stderr)
            );
            Some(serde_json::from_slice(&output.stdout).expect("the script writes JSON"))
        }
        Err(error) if std::env::var_os("CI").is_some() => panic!("python3 is needed: {error}"),
        Err(error) => {
            eprintln!("SKIPPED: the independent script needs python3: {error}");
            None
        }
    }
}

#[track_caller]
fn assert_measures_equal_the_scripts(folder: &Path, truth: &Path) {
    let Some(expected) = independent_measures(truth) else {
        return;
    };
    let analysis = analysis(folder);
    let ranks = analysis["ranks"].as_array().expect("ranks");
    let expected = expected.as_array().expect("one entry a rank and device");
    assert_eq!(ranks.len(), expected.len());
    for expected in expected {
        let found = ranks
            .iter()
            .find(|rank| rank["rank"] == expected["rank"] && rank["device_index"] == expected["device_index"])
            .unwrap_or_else(|| panic!("rank {} device {}", expected["rank"], expected["device_index"]));
        for (key, value) in expected.as_object().expect("an object") {
            if key == "overlap_ratio" {
                let (found, value) = (found[key].as_f64(), value.as_f64());
                assert!(
                    found.zip(value).is_none_or(|(a, b)| (a - b).abs() < 1e-12),
                    "{key}: {found:?} against {value:?}"
                );
                assert_eq!(found.is_some(), value.is_some());
            } else {
                assert_eq!(&found[key], value, "rank {}: {key}", expected["rank"]);
            }
        }
    }
}

#[test]
fn twenty_runs_are_recorded_as_they_were() {
    let options: &[&[&str]] = &[
        &["ddp", "--steps", "6"],
        &["ddp", "--steps", "5", "--no-overlap"],
        &["ddp", "--steps", "4", "--ranks", "4"],
        &["single", "--steps", "8"],
        &["ddp", "--steps", "12", "--preset", "listing"],
    ];
    let layouts = ["12.0", "12.8", "13.0", "13.4"];
    for run in 0..20 {
        let workload = options[run % options.len()];
        let layout = layouts[run / options.len()];
        let (_keep, folder) = fresh_folder("recording");
        let truth = folder.with_file_name("truth");
        let seed = run.to_string();
        expect_status(
            &mut record_workload(&folder, &truth, &[("SEED", &seed), ("CUPTI", layout)], workload),
            0,
        );
        let ranks = if workload[0] == "single" {
            1
        } else if workload.contains(&"4") && workload.contains(&"--ranks") {
            4
        } else {
            2
        };
        eprintln!("run {run}: {workload:?}, record layouts of CUPTI {layout}");
        assert_recorded_as_delivered(&folder, &truth, ranks);
        assert_measures_equal_the_scripts(&folder, &truth);
    }
}

/// Every bundled workload, with options for a short run, and how many processes it is.
const WORKLOADS: &[(&str, &str, u32)] = &[
    ("single", "--steps 4", 1),
    ("dp", "--steps 3 --ranks 3 --batch 96", 1),
    (
        "ddp",
        "--steps 3 --ranks 3 --batch 96 --compress bf16 --grad-monitor",
        3,
    ),
    ("fsdp", "--steps 3 --prefetch 1", 2),
    ("mp", "--steps 3", 1),
    ("pp", "--steps 3 --pipeline gpipe", 2),
    ("tp", "--steps 3", 2),
    ("tp", "--steps 3 --sequence-parallel", 2),
    ("3d", "--steps 2", 8),
    ("p2p", "--iterations 2 --tensors 64K,256K", 1),
    ("collectives", "--ranks 3 --max-bytes 4096 --iterations 2", 3),
    ("ring", "--ranks 3 --max-bytes 4096 --iterations 2", 3),
    ("async", "--iterations 2", 2),
];

#[test]
fn every_workload_is_recorded_as_it_was() {
    for &(name, options, processes) in WORKLOADS {
        eprintln!("{name} {options}");
        let (_keep, folder) = fresh_folder("recording");
        let truth = folder.with_file_name("truth");
        let settings = [
            ("SCALE", "1000"),
            ("TOPOLOGY", if name == "p2p" { "pcie" } else { "hgx" }),
        ];
        let workload = std::iter::once(name).chain(options.split(' '));
        expect_status(&mut record_workload(&folder, &truth, &settings, workload), 0);
        assert_recorded_as_delivered(&folder, &truth, processes);
        assert_measures_equal_the_scripts(&folder, &truth);
    }
}

#[test]
fn user_defined_records_are_recorded_as_they_were() {
    for (version, workload) in [
        ("13.3", &["ddp", "--steps", "4"][..]),
        ("13.5", &["3d", "--steps", "1"]),
    ] {
        let (_keep, folder) = fresh_folder("recording");
        let truth = folder.with_file_name("truth");
        let settings = [("CUPTI", version), ("DRIVER", "610")];
        expect_status(&mut record_workload(&folder, &truth, &settings, workload), 0);
        let recording = Recording::open(&folder).expect("the recording opens");
        let backend = recording.processes[0].header.cupti_backend.as_deref();
        assert_eq!(backend, Some("user-defined records"));
        assert_recorded_as_delivered(&folder, &truth, if workload[0] == "ddp" { 2 } else { 8 });
        assert_measures_equal_the_scripts(&folder, &truth);
    }
}

#[test]
fn no_workload_is_left_out() {
    let list = stdout(&expect_status(gputrace().args(["workload", "--list"]), 0));
    let listed: Vec<&str> = list.lines().filter_map(|line| line.split(' ').next()).collect();
    assert!(listed.len() > 10, "{list}");
    for name in listed {
        // This one compares numbers and is no training to look at.
        let told = name == "check" || WORKLOADS.iter().any(|(tried, ..)| *tried == name);
        assert!(told, "{name} is in no run of this test");
    }
}

#[test]
fn a_skewed_clock_is_recorded_as_delivered() {
    let (_keep, folder) = fresh_folder("recording");
    let truth = folder.with_file_name("truth");
    // 40 microseconds off and drifting by 20 microseconds a second.
    expect_status(
        &mut record_workload(&folder, &truth, &[("SKEW", "40000,20")], ["ddp", "--steps", "6"]),
        0,
    );
    assert_recorded_as_delivered(&folder, &truth, 2);
    // Within the bound: offset plus drift over the run.
    for rank in 0..2 {
        let truth = truth_of_rank(&truth, rank);
        let first = truth
            .values()
            .map(|operation| operation.start_ns)
            .min()
            .expect("operations");
        for operation in truth.values() {
            let error = operation.delivered_start_ns - operation.start_ns;
            let bound = 40_000 + (operation.start_ns - first) / 50_000 + 100_000;
            assert!(
                error != 0 && error.abs() <= bound,
                "{error} ns against {bound} ns"
            );
        }
    }
}
