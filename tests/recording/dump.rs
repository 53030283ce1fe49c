//! What a run leaves with GPUTRACE_DUMP: its buffers, decoded again in another process, give the recording's rows, and NCCL's
//! events are all there.

use crate::common;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use common::{expect_status, fresh_folder, gputrace};
use gputrace_collector::decode::Decoder;
use gputrace_collector::dump::Dumped;
use gputrace_trace::Recording;
use gputrace_trace::writer::ProcessWriter;

/// Decodes dumped buffers into a recording of one process.
fn decode(dumps: &[PathBuf], folder: &Path) -> Recording {
    std::fs::create_dir(folder).expect("a folder");
    let mut writer = ProcessWriter::create(&folder.join("again")).expect("a process");
    let mut decoder: Option<Decoder> = None;
    let mut calls: BTreeMap<String, String> = BTreeMap::new();
    // Addresses in the rows' names lead into these.
    let opened: Vec<Dumped> = dumps
        .iter()
        .map(|path| Dumped::open(path).expect("a dump"))
        .collect();
    for dumped in &opened {
        calls.extend(dumped.head.calls.clone());
    }
    for dumped in &opened {
        let decoder = decoder.get_or_insert_with(|| {
            let calls = calls.clone();
            let name = move |kind, callback| calls.get(&format!("{kind}:{callback}")).cloned();
            Decoder::new(dumped.sizes(), Box::new(name))
        });
        // SAFETY: `Dumped` put names of its own where the records look for them.
        let decoded = unsafe { decoder.decode(&dumped.bytes, &mut writer) };
        assert_eq!(decoded.unread_bytes, 0, "every record's size is known");
    }
    writer.close().expect("closed");
    Recording::open(folder).expect("a recording")
}

/// How often each kernel ran and for how long in all; calls by name; copies; by device.
fn summary(recording: &Recording) -> BTreeMap<String, (u64, i64)> {
    let mut sums: BTreeMap<String, (u64, i64)> = BTreeMap::new();
    let mut add = |key: String, duration_ns: i64| {
        let sum = sums.entry(key).or_default();
        *sum = (sum.0 + 1, sum.1 + duration_ns);
    };
    for process in &recording.processes {
        let tables = &process.tables;
        for row in 0..tables.kernels.name.len() {
            let name = recording.names.get(tables.kernels.name[row]);
            let device = tables.kernels.device[row];
            add(
                format!("kernel {name} on {device}"),
                tables.kernels.duration_ns[row].0,
            );
        }
        for row in 0..tables.api_calls.name.len() {
            let name = recording.names.get(tables.api_calls.name[row]);
            add(format!("call {name}"), tables.api_calls.duration_ns[row].0);
        }
        for row in 0..tables.copies.bytes.len() {
            add("copies".to_owned(), tables.copies.duration_ns[row].0);
        }
        for row in 0..tables.memsets.bytes.len() {
            add("memsets".to_owned(), tables.memsets.duration_ns[row].0);
        }
    }
    sums
}

#[test]
fn dumped_buffers_give_the_recordings_rows_again() {
    let (_keep, folder) = fresh_folder("recording");
    let (_keep_dump, dump) = fresh_folder("dump");
    std::fs::create_dir(&dump).expect("a folder");
    let mut command = gputrace();
    command.env("GPUTRACE_DUMP", &dump);
    command
        .args(["record", "--quiet", "--device", "sim", "-o"])
        .arg(&folder);
    command.args(["--", "workload", "ddp", "--ranks", "2", "--steps", "3"]);
    expect_status(&mut command, 0);
    let mut dumps: Vec<PathBuf> = std::fs::read_dir(&dump)
        .expect("a folder")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    dumps.sort();
    let is_buffer = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "dump");
    let buffers: Vec<PathBuf> = dumps.iter().filter(|path| is_buffer(path)).cloned().collect();
    assert!(!buffers.is_empty());
    let (_keep_again, again) = fresh_folder("again");
    let recorded = summary(&Recording::open(&folder).expect("a recording"));
    assert_eq!(summary(&decode(&buffers, &again)), recorded);
    assert!(recorded.keys().any(|key| key.starts_with("kernel ncclDevKernel")));

    // NCCL's events: as many collectives began as rows tell, and their names can be read.
    let mut functions = Vec::new();
    for path in dumps
        .iter()
        .filter(|path| path.extension().is_some_and(|extension| extension == "jsonl"))
    {
        let text = std::fs::read_to_string(path).expect("a file");
        for line in text.lines() {
            let event: serde_json::Value = serde_json::from_str(line).expect("JSON");
            let descriptor = event["descriptor"].as_str().unwrap_or_default();
            // The type comes first, little-endian: 2 is a collective, whose function's name is the event's second member.
            if event["call"] == "start" && descriptor.starts_with("02") {
                functions.push(event["texts"]["32"].as_str().expect("a name").to_owned());
            }
        }
    }
    let recording = Recording::open(&folder).expect("a recording");
    // Of a broadcast this version of NCCL tells no more than that it was called.
    let rows = recording
        .processes
        .iter()
        .flat_map(|process| &process.tables.collectives.source);
    assert_eq!(functions.len(), rows.filter(|source| **source == 0).count());
    assert!(functions.iter().any(|function| function == "AllReduce"));
}
