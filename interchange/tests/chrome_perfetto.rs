//! Chrome JSON in front of Perfetto's own engine: what it counts is what was written, and it complains of nothing.
//!
//! Skipped, loudly, where the engine can't be fetched; never under CI=true.

use crate::consumers::trace_processor;
use crate::support;

use std::collections::BTreeMap;

use gputrace_interchange::export::chrome::export_chrome;
use gputrace_interchange::export::words;
use gputrace_trace::{Derived, Recording};
use serde_json::Value;
use support::everything::everything;
use support::two_ranks;
use trace_processor::TROUBLE;

/// Start in nanoseconds from the file's base, duration, and name of every kernel.
type Kernels = Vec<(i64, i64, String)>;

fn kernels(recording: &Recording, base_ns: i64) -> Kernels {
    let mut all = Vec::new();
    for process in &recording.processes {
        let row = &process.tables.kernels;
        for index in 0..row.start_ns.len() {
            let name = words::kernel_name(recording.names.get(row.name[index]));
            all.push((
                row.start_ns[index].0 - base_ns,
                row.duration_ns[index].0.max(0),
                name,
            ));
        }
    }
    all.sort();
    all
}

fn number(value: &Value) -> i64 {
    value.as_i64().unwrap_or_else(|| panic!("{value} is no integer"))
}

#[track_caller]
fn check(recording: &Recording) {
    let Some(engines) = trace_processor::both() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.json");
    let mut text = Vec::new();
    let summary = export_chrome(recording, &Derived::default(), &mut text).unwrap();
    std::fs::write(&path, &text).unwrap();
    let file: Value = serde_json::from_slice(&text).unwrap();
    let mut written: BTreeMap<String, i64> = BTreeMap::new();
    let mut samples = 0;
    for event in file["traceEvents"].as_array().unwrap() {
        match event["ph"].as_str().unwrap() {
            "X" | "i" => {
                *written
                    .entry(event["cat"].as_str().unwrap().to_owned())
                    .or_default() += 1;
            }
            "C" => samples += 1,
            _ => {}
        }
    }
    let base_ns = file["baseTimeNanoseconds"].as_i64().unwrap();
    for engine in &engines {
        let answers = engine.ask(
            &path,
            &[
                TROUBLE,
                "select category, count(*) from slice group by category",
                "select count(*) from counter",
                "select count(*) from flow",
                // Every arrow leads from a call to an operation.
                "select count(*) from flow join slice a on a.id = flow.slice_out join slice b on b.id = flow.slice_in \
                 where a.category glob 'cuda_*' \
                 and b.category in ('kernel', 'gpu_memcpy', 'gpu_memset', 'graph_launch')",
                "select ts, dur, name from slice where category = 'kernel'",
                // Nothing on a GPU lies within anything else; of two without length at one moment it says so, and loses none.
                "select count(*) from slice where depth > 0 and dur > 0 \
                 and category in ('kernel', 'gpu_memcpy', 'gpu_memset')",
            ],
        );
        let version = engine.version;
        assert_eq!(answers[0], Vec::<Vec<Value>>::new(), "{version}");
        let counted: BTreeMap<String, i64> = answers[1]
            .iter()
            .map(|row| (row[0].as_str().unwrap().to_owned(), number(&row[1])))
            .collect();
        assert_eq!(counted, written, "{version}");
        assert_eq!(number(&answers[2][0][0]), samples, "{version}");
        assert_eq!(number(&answers[3][0][0]) as u64, summary.flows, "{version}");
        assert_eq!(number(&answers[4][0][0]) as u64, summary.flows, "{version}");
        let mut told: Kernels = answers[5]
            .iter()
            .map(|row| {
                (
                    number(&row[0]),
                    number(&row[1]),
                    row[2].as_str().unwrap().to_owned(),
                )
            })
            .collect();
        told.sort();
        assert_eq!(told, kernels(recording, base_ns), "{version}: to the nanosecond");
        assert_eq!(number(&answers[6][0][0]), 0, "{version}");
    }
}

#[test]
fn two_small_ranks() {
    check(&two_ranks());
}

#[test]
fn every_table_with_every_column() {
    check(&everything());
}
