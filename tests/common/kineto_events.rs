//! Events of a Kineto trace, made by hand, and the analysis of such traces.

#![allow(dead_code)] // Each test file uses a part of this.

use std::path::Path;

use serde_json::{Value, json};

use super::{expect_status, gputrace, stdout};

/// A kernel, copy or memset; times in microseconds.
pub fn operation(category: &str, name: &str, stream: i64, correlation: i64, ts: f64, dur: f64) -> Value {
    json!({"ph": "X", "cat": category, "name": name, "pid": 0, "tid": stream, "ts": ts, "dur": dur,
           "args": {"device": 0, "stream": stream, "correlation": correlation}})
}

pub fn kernel(name: &str, stream: i64, correlation: i64, ts: f64, dur: f64) -> Value {
    operation("kernel", name, stream, correlation, ts, dur)
}

/// A call on thread 1 of process 100.
pub fn call(name: &str, correlation: i64, ts: f64, dur: f64) -> Value {
    json!({"ph": "X", "cat": "cuda_runtime", "name": name, "pid": 100, "tid": 1, "ts": ts, "dur": dur,
           "args": {"correlation": correlation, "cbid": 211}})
}

pub fn launch(correlation: i64, ts: f64) -> Value {
    call("cudaLaunchKernel", correlation, ts, 1.0)
}

pub fn host(category: &str, name: &str, ts: f64, dur: f64) -> Value {
    json!({"ph": "X", "cat": category, "name": name, "pid": 100, "tid": 1, "ts": ts, "dur": dur, "args": {}})
}

fn write(path: &Path, rank: Option<u32>, events: &[Value]) {
    let mut trace = json!({"schemaVersion": 1, "traceEvents": events});
    if let Some(rank) = rank {
        trace["distributedInfo"] = json!({"rank": rank, "world_size": 2});
    }
    std::fs::write(path, serde_json::to_vec(&trace).expect("JSON")).expect("a file");
}

pub fn analyze_ranks(ranks: &[&[Value]]) -> Value {
    let folder = tempfile::tempdir().expect("a folder");
    for (rank, events) in (0u32..).zip(ranks) {
        write(
            &folder.path().join(format!("rank{rank}.json")),
            Some(rank),
            events,
        );
    }
    let mut command = gputrace();
    command.args(["analyze", "--json"]).arg(folder.path());
    serde_json::from_str(&stdout(&expect_status(&mut command, 0))).expect("JSON")
}

pub fn analyze(events: &[Value]) -> Value {
    analyze_ranks(&[events])
}
