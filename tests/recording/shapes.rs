//! Each way to train shows on its timeline what it is known for, as the analysis measures it.

use crate::common;

use std::path::{Path, PathBuf};

use common::{analysis, expect_status, fresh_folder, record_workload};
use serde_json::Value;

/// Records a workload on slow simulated GPUs, so that the CPU keeps up with their arithmetic, and analyses it.
fn shape(workload: &[&str]) -> Value {
    common::schedule::alone();
    let (_keep, folder) = fresh_folder("recording");
    let truth: PathBuf = folder.with_file_name("truth");
    let settings = [("SCALE", "4000")];
    expect_status(&mut record_workload(&folder, &truth, &settings, workload), 0);
    assert_nothing_was_lost(&folder)
}

fn assert_nothing_was_lost(folder: &Path) -> Value {
    let analysis = analysis(folder);
    assert_eq!(analysis["losses"], Value::Array(Vec::new()));
    analysis
}

/// A measure of each rank and device.
fn each(analysis: &Value, measure: &str) -> Vec<f64> {
    let ranks = analysis["ranks"].as_array().expect("ranks");
    let of = |rank: &Value| {
        rank[measure]
            .as_f64()
            .unwrap_or_else(|| panic!("{measure} of {rank}"))
    };
    ranks.iter().map(of).collect()
}

fn least(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::INFINITY, f64::min)
}

fn most(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::NEG_INFINITY, f64::max)
}

const PERCEPTRON: &[&str] = &[
    "--steps",
    "6",
    "--sizes",
    "256,256,256,256,256,256,256",
    "--batch",
    "128",
];

fn with(way: &[&str]) -> Vec<String> {
    [way, PERCEPTRON]
        .concat()
        .into_iter()
        .map(str::to_owned)
        .collect()
}

fn shape_of(way: &[&str]) -> Value {
    let words = with(way);
    shape(&words.iter().map(String::as_str).collect::<Vec<_>>())
}

#[test]
fn ddp_hides_communication_unless_told_not_to() {
    let buckets = ["--bucket-mb", "0.25"];
    let hidden = shape_of(&[&["ddp"][..], &buckets].concat());
    let exposed = shape_of(&[&["ddp", "--no-overlap"][..], &buckets].concat());
    assert!(
        least(&each(&hidden, "overlap_ratio")) > 0.4,
        "{:?}",
        each(&hidden, "overlap_ratio")
    );
    assert!(
        most(&each(&exposed, "overlap_ratio")) < 0.1,
        "{:?}",
        each(&exposed, "overlap_ratio")
    );
    // One bucket for all gradients is complete at the end of the backward pass only.
    let whole = shape_of(&["ddp", "--bucket-mb", "100"]);
    assert!(
        most(&each(&whole, "overlap_ratio")) < 0.2,
        "{:?}",
        each(&whole, "overlap_ratio")
    );
}

#[test]
fn half_the_bytes_take_less_time_on_the_wire() {
    let full = shape_of(&["ddp", "--no-overlap"]);
    let half = shape_of(&["ddp", "--no-overlap", "--compress", "bf16"]);
    let (full, half) = (
        least(&each(&full, "communication_ns")),
        most(&each(&half, "communication_ns")),
    );
    assert!(half < full * 0.75, "{half} against {full}");
}

#[test]
fn prefetch_hides_gathering() {
    let without = shape_of(&["fsdp", "--prefetch", "0"]);
    let with = shape_of(&["fsdp", "--prefetch", "2"]);
    let (without, with) = (each(&without, "overlap_ratio"), each(&with, "overlap_ratio"));
    assert!(
        least(&with) > most(&without) + 0.25,
        "{with:?} against {without:?}"
    );
}

#[test]
fn naive_model_parallel_leaves_half_the_gpus_idle() {
    let analysis = shape_of(&["mp"]);
    for (idle, compute) in each(&analysis, "idle_ratio")
        .into_iter()
        .zip(each(&analysis, "compute_ns"))
    {
        assert!((0.3..0.75).contains(&idle), "{idle}");
        assert!(compute > 0.0);
    }
    // They take turns: what both compute fits into one span.
    let span = most(&each(&analysis, "span_ns"));
    assert!(each(&analysis, "compute_ns").iter().sum::<f64>() < span);
}

#[test]
fn data_parallel_in_one_process_copies_and_waits() {
    let analysis = shape_of(&["dp", "--ranks", "4"]);
    let (idle, copy) = (each(&analysis, "idle_ratio"), each(&analysis, "copy_ns"));
    assert_eq!(idle.len(), 4);
    assert!(least(&idle[1..]) > 0.4, "the other GPUs wait: {idle:?}");
    assert!(
        copy[0] > 2.0 * most(&copy[1..]),
        "the first GPU copies for all: {copy:?}"
    );
}

#[test]
fn tensor_parallel_exposes_communication_in_every_layer() {
    let analysis = shape_of(&["tp"]);
    let (communication, exposed) = (
        each(&analysis, "communication_ns"),
        each(&analysis, "communication_exposed_ns"),
    );
    for (communication, exposed) in communication.into_iter().zip(exposed) {
        assert!(exposed > 0.9 * communication, "{exposed} of {communication}");
    }
    // Three pairs of layers: a sum forward in each, and backward in all but the first, whose input needs no gradient.
    let count = |analysis: &Value, name: &str| {
        let all = analysis["collectives"].as_array().expect("collectives");
        all.iter().filter(|collective| collective["name"] == name).count()
    };
    let steps = 6;
    assert_eq!(
        count(&analysis, "AllReduce"),
        5 * steps + 2,
        "and the loss of the first and last step"
    );
    let sequence = shape_of(&["tp", "--sequence-parallel"]);
    assert_eq!(count(&sequence, "ReduceScatter"), 5 * steps);
    assert!(count(&sequence, "AllGather") >= 5 * steps);
}

#[test]
fn a_mesh_has_a_communicator_along_each_axis() {
    let analysis = shape_of(&["3d", "--dp", "2", "--tp", "2", "--pp", "2"]);
    let mut sizes = std::collections::BTreeMap::new();
    for collective in analysis["collectives"].as_array().expect("collectives") {
        let communicator = collective["communicator"]
            .as_str()
            .expect("a communicator")
            .to_owned();
        let ranks = collective["ranks"].as_array().map_or(0, Vec::len);
        sizes.insert(communicator, ranks);
    }
    // The world, and four groups of two along each of three axes.
    assert!(sizes.len() >= 9, "{sizes:?}");
    assert_eq!(
        sizes.values().filter(|&&ranks| ranks == 8).count(),
        1,
        "{sizes:?}"
    );
}

#[test]
fn a_straggler_is_named() {
    let analysis = shape_of(&["ddp", "--straggler", "1:3"]);
    let findings = analysis["findings"].as_array().expect("findings");
    let of_lateness = ["slow_rank", "late_rank", "uneven_compute"];
    let named =
        |finding: &Value| finding["rank"] == 1 && of_lateness.iter().any(|code| finding["code"] == *code);
    assert!(findings.iter().any(named), "{findings:?}");
}

#[test]
fn a_slow_loader_leaves_the_gpus_waiting_for_the_host() {
    let quick = shape_of(&["single"]);
    let slow = shape_of(&["single", "--loader-delay", "150", "--loader-workers", "0"]);
    let (quick, slow) = (each(&quick, "idle_ratio")[0], each(&slow, "idle_ratio")[0]);
    assert!(slow > quick + 0.3, "{slow} against {quick}");
}
