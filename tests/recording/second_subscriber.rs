//! Recording as one of several subscribers of CUPTI, with user-defined records: the same rows as the first way gives, and
//! a profiler in the program loses nothing and takes nothing.

use crate::common;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{expect_status, fresh_folder, gputrace, record_workload, stdout};
use gputrace_trace::{Process, Recording};

/// The setting under which CUPTI has several subscribers.
const SEVERAL: (&str, &str) = ("DRIVER", "610");

/// How often each row is in a table, without what differs from run to run: times, correlation ids, threads.
type Rows = BTreeMap<String, usize>;

fn rows_of(recording: &Recording, process: &Process) -> BTreeMap<&'static str, Rows> {
    let mut tables: BTreeMap<&'static str, Rows> = BTreeMap::new();
    let mut add = |table, row: String| {
        *tables.entry(table).or_default().entry(row).or_insert(0) += 1;
    };
    let name = |id| recording.names.get(id);
    let t = &process.tables;
    for row in 0..t.kernels.start_ns.len() {
        let k = &t.kernels;
        let place = (k.device[row], k.context[row], k.stream[row]);
        let grid = [k.grid_x[row], k.grid_y[row], k.grid_z[row]];
        let block = [k.block_x[row], k.block_y[row], k.block_z[row]];
        let memory = (
            k.registers[row],
            k.static_shared_bytes[row],
            k.dynamic_shared_bytes[row],
        );
        let graph = (k.graph[row], k.graph_node[row]);
        add(
            "kernels",
            format!(
                "{} {place:?} {grid:?} {block:?} {memory:?} {graph:?}",
                name(k.name[row])
            ),
        );
    }
    for row in 0..t.copies.start_ns.len() {
        let c = &t.copies;
        let place = (c.device[row], c.context[row], c.stream[row]);
        let kinds = (
            c.copy_kind[row],
            c.source_kind[row],
            c.destination_kind[row],
            c.flags[row],
        );
        let peers = (c.source_device[row], c.destination_device[row]);
        add(
            "copies",
            format!("{place:?} {kinds:?} {} {peers:?}", c.bytes[row]),
        );
    }
    for row in 0..t.memsets.start_ns.len() {
        let m = &t.memsets;
        let place = (m.device[row], m.context[row], m.stream[row]);
        let what = (m.bytes[row], m.value[row], m.memory_kind[row], m.flags[row]);
        add("memsets", format!("{place:?} {what:?}"));
    }
    for row in 0..t.api_calls.start_ns.len() {
        let a = &t.api_calls;
        add(
            "api_calls",
            format!(
                "{} {} {} {}",
                name(a.name[row]),
                a.kind[row],
                a.callback[row],
                a.result[row]
            ),
        );
    }
    for row in 0..t.synchronizations.start_ns.len() {
        let s = &t.synchronizations;
        add(
            "synchronizations",
            format!("{} {:?} {:?}", s.kind[row], s.context[row], s.stream[row]),
        );
    }
    for row in 0..t.event_records.correlation.len() {
        let e = &t.event_records;
        let place = (e.device[row], e.context[row], e.stream[row]);
        let has_number = e.event_synchronization[row].is_some();
        add(
            "event_records",
            format!("{} {place:?} {has_number}", e.event[row]),
        );
    }
    for row in 0..t.external_correlations.correlation.len() {
        let kind = t.external_correlations.kind[row];
        add("external_correlations", format!("{kind}"));
    }
    for row in 0..t.contexts.context.len() {
        let c = &t.contexts;
        add(
            "contexts",
            format!("{} {} {}", c.context[row], c.device[row], c.null_stream[row]),
        );
    }
    for row in 0..t.streams.stream.len() {
        let s = &t.streams;
        let row = (s.context[row], s.stream[row], s.flag[row], s.priority[row]);
        add("streams", format!("{row:?}"));
    }
    tables
}

/// Records a workload and gives its recording, which lost nothing.
fn recorded(settings: &[(&str, &str)], workload: &[&str]) -> (tempfile::TempDir, PathBuf) {
    let (keep, folder) = fresh_folder("recording");
    let truth = folder.with_file_name("truth");
    expect_status(&mut record_workload(&folder, &truth, settings, workload), 0);
    (keep, folder)
}

fn backends(recording: &Recording) -> Vec<&str> {
    let processes = recording.processes.iter();
    processes
        .map(|process| process.header.cupti_backend.as_deref().unwrap_or("none"))
        .collect()
}

#[test]
fn both_ways_give_the_same_rows() {
    common::schedule::waits();
    let workloads: &[&[&str]] = &[
        &["ddp", "--steps", "4"],
        &["3d", "--steps", "1"],
        &["p2p", "--iterations", "1"],
    ];
    for workload in workloads {
        let (_keep, first) = recorded(&[("SCALE", "4000")], workload);
        let (_keep, second) = recorded(&[("SCALE", "4000"), SEVERAL], workload);
        let (first, second) = (open(&first), open(&second));
        assert!(backends(&first).iter().all(|backend| *backend == "activity"));
        assert!(
            backends(&second)
                .iter()
                .all(|backend| *backend == "user-defined records")
        );
        assert_eq!(first.processes.len(), second.processes.len());
        for one in &first.processes {
            let rank = one.header.rank;
            let other = second.processes.iter().find(|other| other.header.rank == rank);
            let other = other.expect("the same ranks");
            let (expected, found) = (rows_of(&first, one), rows_of(&second, other));
            let kinds = |table| expected.get(table).map_or(0, Rows::len);
            assert!(kinds("kernels") + kinds("copies") > 1, "{workload:?}");
            // How often a thread waits for another is chance.
            for table in [
                "kernels",
                "copies",
                "memsets",
                "contexts",
                "streams",
                "external_correlations",
                "event_records",
            ] {
                assert_eq!(
                    expected.get(table),
                    found.get(table),
                    "{workload:?} rank {rank:?}: {table}"
                );
            }
            for table in ["api_calls", "synchronizations"] {
                let kinds = |rows: &BTreeMap<&str, Rows>| -> Vec<String> {
                    rows.get(table)
                        .map(|rows| rows.keys().cloned().collect())
                        .unwrap_or_default()
                };
                assert_eq!(
                    kinds(&expected),
                    kinds(&found),
                    "{workload:?} rank {rank:?}: {table}"
                );
            }
            let (mut expected, mut found) = (one.header.devices.clone(), other.header.devices.clone());
            expected.sort_by_key(|device| device.index);
            found.sort_by_key(|device| device.index);
            assert_eq!(expected, found, "{workload:?} rank {rank:?}");
        }
    }
}

#[track_caller]
fn open(folder: &Path) -> Recording {
    let recording = Recording::open(folder).expect("the recording opens");
    assert!(recording.losses.is_empty(), "{:?}", recording.losses);
    recording
}

#[test]
fn threads_have_the_system_s_ids_in_both() {
    common::schedule::waits();
    let (_keep, folder) = recorded(&[SEVERAL], &["single", "--steps", "2"]);
    let recording = open(&folder);
    let process = &recording.processes[0];
    let threads = &process.tables.api_calls.thread;
    assert!(!threads.is_empty() && threads.iter().all(|thread| *thread >= process.header.pid));
}

#[test]
fn why_the_first_way_was_taken_is_in_the_header() {
    common::schedule::waits();
    let why = |settings: &[(&str, &str)]| {
        let (_keep, folder) = recorded(settings, &["single", "--steps", "1"]);
        let header = open(&folder).processes[0].header.clone();
        (header.cupti_backend, header.cupti_backend_why)
    };
    let (backend, reason) = why(&[]);
    assert_eq!(backend.as_deref(), Some("activity"));
    assert!(reason.is_some_and(|reason| reason.contains("CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED")));
    // An older CUPTI has no such functions: nothing was tried.
    assert_eq!(
        why(&[SEVERAL, ("CUPTI", "13.2")]),
        (Some("activity".to_owned()), None)
    );
}

/// A program that profiles itself, recorded: what it says, and the recording's folder.
struct Profiled {
    said: String,
    recording: Recording,
    _keep: tempfile::TempDir,
}

const TIMES: usize = 40;

/// Builds the program and records it; `None` without a compiler, which CI has.
fn profiled(way: &str, is_linked: bool, settings: &[(&str, &str)]) -> Option<Profiled> {
    let (keep, folder) = fresh_folder("recording");
    let mut record = gputrace();
    record.args(["record", "--quiet", "--device", "sim"]);
    for (key, value) in settings {
        record.arg("--sim").arg(format!("{key}={value}"));
    }
    // Where the recorder puts the stand-in under NVIDIA's names.
    let mut ask = gputrace();
    ask.args(["record", "--quiet", "--device", "sim", "-o"])
        .arg(folder.with_file_name("asked"));
    ask.args(["--", "sh", "-c", "echo $LD_LIBRARY_PATH"]);
    let path = stdout(&expect_status(&mut ask, 0));
    let libraries = path.trim().split(':').next().unwrap_or_default().to_owned();
    let program = folder.with_file_name("second_client");
    let mut compiler = Command::new("gcc");
    compiler.args(["-std=gnu11", "-O1", "-w", "-o"]).arg(&program);
    compiler.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/second_client.c"));
    if is_linked {
        compiler.args(["-DLINKED", "-L", &libraries, "-l:libcupti.so.13"]);
        compiler.arg("-Wl,--allow-shlib-undefined");
    }
    compiler.arg("-ldl");
    match compiler.status() {
        Ok(status) => assert!(status.success(), "{compiler:?}"),
        Err(error) => {
            assert!(std::env::var_os("CI").is_none(), "needed in CI: gcc: {error}");
            eprintln!("SKIPPED: no C compiler: {error}");
            return None;
        }
    }
    record
        .arg("-o")
        .arg(&folder)
        .arg("--")
        .arg(&program)
        .args([way, &TIMES.to_string()]);
    let said = stdout(&expect_status(&mut record, 0));
    let recording = Recording::open(&folder).expect("the recording opens");
    assert_eq!(recording.processes.len(), 1, "{said}");
    Some(Profiled {
        said,
        recording,
        _keep: keep,
    })
}

fn memsets(profiled: &Profiled) -> usize {
    profiled.recording.processes[0].tables.memsets.start_ns.len()
}

#[test]
fn a_profiler_in_the_program_and_ours_each_get_everything() {
    common::schedule::waits();
    let Some(profiled) = profiled("newer", false, &[SEVERAL]) else {
        return;
    };
    assert_eq!(profiled.said.trim(), format!("records={TIMES} wrong=0"));
    assert_eq!(backends(&profiled.recording), ["user-defined records"]);
    assert!(
        profiled.recording.losses.is_empty(),
        "{:?}",
        profiled.recording.losses
    );
    assert_eq!(memsets(&profiled), 3 * TIMES);
}

#[test]
fn a_program_that_calls_the_older_functions_gets_what_it_wants() {
    common::schedule::waits();
    let Some(profiled) = profiled("older", true, &[SEVERAL]) else {
        return;
    };
    // It needs them, so we do not stand in its way, though CUPTI and the driver could do otherwise.
    assert_eq!(backends(&profiled.recording), ["activity"]);
    let records = profiled.said.trim().strip_prefix("records=").expect("only that");
    let (records, rest) = records.split_once(' ').expect("two numbers");
    assert_eq!(rest, "wrong=0");
    // Buffers that it took over may hold records from before, too.
    assert!(
        records.parse::<usize>().expect("a number") >= TIMES,
        "{}",
        profiled.said
    );
}

#[test]
fn with_one_subscriber_the_program_takes_our_buffers() {
    common::schedule::waits();
    let Some(profiled) = profiled("older", false, &[]) else {
        return;
    };
    assert_eq!(backends(&profiled.recording), ["activity"]);
    assert!(profiled.said.contains("wrong=0"), "{}", profiled.said);
    assert!(!profiled.said.contains("register="), "{}", profiled.said);
    assert!(memsets(&profiled) < 3 * TIMES, "this is why there is another way");
}
