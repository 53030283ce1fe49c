//! What is exported and imported again is the recording that it was, to the row and the nanosecond.

use crate::support;

use std::path::Path;

use gputrace_interchange::export::chrome::{export_chrome, export_chrome_ranks};
use gputrace_interchange::export::files::write_folder;
use gputrace_interchange::import::{self, Progress};
use gputrace_trace::{Derived, Recording};
use support::everything::everything;
use support::same::assert_same;
use support::{two_hosts, two_ranks};

fn exported(recording: &Recording) -> Vec<u8> {
    let mut out = Vec::new();
    export_chrome(recording, &Derived::default(), &mut out).unwrap();
    out
}

fn imported(path: &Path) -> Recording {
    import::open(&[path.to_owned()], &Progress::default()).unwrap()
}

/// Exports, imports, compares, and exports again.
#[track_caller]
fn there_and_back(recording: &Recording) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("all.json");
    let text = exported(recording);
    std::fs::write(&file, &text).unwrap();
    let again = imported(&file);
    assert_same(recording, &again);
    assert!(exported(&again) == text, "the same bytes again");
    // The same from one file a rank.
    let ranks = folder.path().join("ranks");
    write_folder(&ranks, |files| {
        export_chrome_ranks(recording, &Derived::default(), true, files)
    })
    .unwrap();
    assert_same(recording, &imported(&ranks));
}

#[test]
fn two_small_ranks() {
    there_and_back(&two_ranks());
}

/// Times stay as they were moved, and beside them stands by how much.
#[test]
fn two_hosts_whose_clocks_were_compared() {
    there_and_back(&two_hosts());
}

#[test]
fn every_table_with_every_column() {
    there_and_back(&everything());
}

#[test]
fn cut_into_files_each_of_which_is_a_recording() {
    let recording = everything();
    let folder = tempfile::tempdir().unwrap();
    let ranks = folder.path().join("ranks");
    let summary = write_folder(&ranks, |files| {
        export_chrome_ranks(&recording, &Derived::default(), false, files)
    })
    .unwrap();
    assert_eq!(summary.events_in, summary.events_out);
    let first = std::fs::read_to_string(ranks.join("rank0.json")).unwrap();
    let second = std::fs::read_to_string(ranks.join("rank1.json")).unwrap();
    // All files count from one moment, so that they can be laid side by side.
    let base = |text: &str| -> i64 {
        let file: serde_json::Value = serde_json::from_str(text).unwrap();
        file["baseTimeNanoseconds"].as_i64().unwrap()
    };
    assert_eq!(base(&first), base(&second));
    // What was sampled of node 0 is with the rank on it.
    assert!(first.contains("samples") && !second.contains("samples"));
    let one = imported(&ranks.join("rank1.json"));
    assert_eq!(one.processes[0].header, recording.processes[1].header);
    assert_eq!((one.processes.len(), one.hosts.len()), (1, 0));
    let one = imported(&ranks.join("rank0.json"));
    assert_eq!((one.processes.len(), one.hosts.len()), (1, 1));
}

#[test]
fn a_template_of_a_hundred_kilobytes() {
    let mut recording = two_ranks();
    let name = format!("void kernel<{}>", "std::tuple<int, ".repeat(100_000 / 16));
    let name = recording.names.intern(&name);
    recording.processes[1].tables.kernels.name[0] = name;
    there_and_back(&recording);
}
