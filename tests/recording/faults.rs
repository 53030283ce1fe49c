//! What the collector can't have: the program runs on, and the recording says what is missing and why.

use crate::common;

use common::{analysis, expect_status, fresh_folder, gputrace};
use serde_json::Value;

/// Records a short run with a fault of the stand-in; the run itself must succeed.
#[track_caller]
fn recorded_with(fault: &str) -> Value {
    let (_keep, folder) = fresh_folder("recording");
    let mut record = gputrace();
    record
        .args([
            "record",
            "--quiet",
            "--device",
            "sim",
            "--sim",
            &format!("FAULTS={fault}"),
            "-o",
        ])
        .arg(&folder);
    expect_status(
        record.args(["--", "workload", "ddp", "--steps", "5", "--preset", "listing"]),
        0,
    );
    analysis(&folder)
}

fn texts(analysis: &Value, list: &str, member: Option<&str>) -> String {
    let entries = analysis[list].as_array().expect("a list");
    let text = |entry: &Value| {
        member
            .map_or(entry, |member| &entry[member])
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    entries.iter().map(text).collect::<Vec<_>>().join("\n")
}

#[test]
fn without_cupti_the_collectives_are_still_there() {
    let analysis = recorded_with("no-cupti");
    assert!(texts(&analysis, "notes", None).contains("no GPU activity is recorded"));
    assert_eq!(analysis["ranks"].as_array().map(Vec::len), Some(0));
    assert!(
        analysis["collectives"]
            .as_array()
            .is_some_and(|collectives| collectives.len() >= 5)
    );
    assert!(texts(&analysis, "losses", Some("what")).contains("without a recorded kernel"));
}

#[test]
fn another_tool_that_holds_cupti_is_named_as_the_reason() {
    let analysis = recorded_with("subscriber-taken");
    assert!(texts(&analysis, "notes", None).contains("another tool"));
}

#[test]
fn dropped_records_are_counted() {
    let analysis = recorded_with("drop");
    let losses = analysis["losses"].as_array().expect("losses");
    let dropped: u64 = losses
        .iter()
        .filter(|loss| loss["what"].as_str().is_some_and(|what| what.contains("dropped")))
        .filter_map(|loss| loss["count"].as_u64())
        .sum();
    assert!(dropped > 10, "{losses:?}");
}

#[test]
fn operations_without_time_stamps_are_counted_and_no_part_of_any_time() {
    let analysis = recorded_with("zero-timestamps");
    assert!(texts(&analysis, "losses", Some("what")).contains("without time stamps"));
    assert_eq!(
        analysis["ranks"].as_array().map(Vec::len),
        Some(0),
        "no operation has a time"
    );
}

#[test]
fn older_profiler_plugins_carry_the_same_collectives() {
    for version in ["2.28", "2.29", "2.31"] {
        let (_keep, folder) = fresh_folder("recording");
        let mut record = gputrace();
        record
            .env("SIMGPU_NCCL", version)
            .args(["record", "--quiet", "--device", "sim", "-o"])
            .arg(&folder);
        expect_status(
            record.args(["--", "workload", "ddp", "--steps", "5", "--preset", "listing"]),
            0,
        );
        let analysis = analysis(&folder);
        let collectives = analysis["collectives"].as_array().expect("collectives");
        let all_reduces: Vec<&Value> = collectives
            .iter()
            .filter(|collective| collective["name"] == "AllReduce")
            .collect();
        // One bucket a step, and the loss after the first and the last.
        assert_eq!(all_reduces.len(), 7, "version {version}");
        for collective in all_reduces {
            assert_eq!(
                collective["ranks"],
                serde_json::json!([0, 1]),
                "version {version}"
            );
            assert!(
                collective["skew_ns"].is_i64(),
                "joined to its kernels: {collective}"
            );
        }
        let kernels = analysis["ranks"][0]["kernels"].as_array().expect("kernels");
        let nccl = kernels.iter().filter(|kernel| kernel["kind"] == "communication");
        assert!(nccl.clone().count() > 0 && nccl.clone().all(|kernel| kernel["kind_from"] == "nccl plugin"));
    }
}
