//! Every way to train is the same training: losses, and parameters at the end, equal those of one GPU.

use crate::common;

use std::path::Path;
use std::process::Command;

use common::{expect_status, gputrace, stdout};

/// What a run came to: the loss of each step, and the parameters at the end.
struct Outcome {
    losses: Vec<f64>,
    parameters: Vec<f32>,
}

/// A workload on the stand-in. Modelled time is made short: here arithmetic counts.
fn workload(words: &str) -> Command {
    let mut command = gputrace();
    command
        .arg("workload")
        .args(words.split_whitespace())
        .env("SIMGPU_SCALE", "1")
        .env("SIMGPU_DEVICES", "16");
    command
}

fn run(way: &str, common: &str) -> Outcome {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("end");
    let mut command = workload(way);
    command
        .args(common.split_whitespace())
        .args(["--print-losses", "--save"])
        .arg(&path);
    let text = stdout(&expect_status(&mut command, 0));
    let losses = text
        .lines()
        .filter_map(|line| line.strip_prefix("step ")?.split_once(" loss ")?.1.parse().ok())
        .collect();
    Outcome {
        losses,
        parameters: saved_parameters(&path),
    }
}

/// The parameters of a checkpoint: a line of JSON, then little-endian f32.
fn saved_parameters(path: &Path) -> Vec<f32> {
    let bytes = std::fs::read(path).expect("a checkpoint");
    let end = bytes.iter().position(|&byte| byte == b'\n').expect("a header");
    let header: serde_json::Value = serde_json::from_slice(&bytes[..end]).expect("JSON");
    let count = header["parameters"].as_u64().expect("how many parameters") as usize;
    bytes[end + 1..end + 1 + count * 4]
        .chunks_exact(4)
        .map(|bytes| f32::from_le_bytes(bytes.try_into().expect("four bytes")))
        .collect()
}

/// Losses to `tolerance` relative, and parameters to `tolerance` of their norm.
#[track_caller]
fn assert_same_training(way: &str, one: &Outcome, other: &Outcome, tolerance: f64) {
    assert_eq!(one.losses.len(), other.losses.len(), "{way:?}: steps");
    for (step, (expected, found)) in one.losses.iter().zip(&other.losses).enumerate() {
        assert!(
            (expected - found).abs() <= tolerance * expected.abs(),
            "{way:?}: loss of step {step}: {found}, on one GPU {expected}"
        );
    }
    assert_eq!(
        one.parameters.len(),
        other.parameters.len(),
        "{way:?}: parameters"
    );
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|value| value * value).sum::<f64>().sqrt();
    let difference = norm(
        &mut one
            .parameters
            .iter()
            .zip(&other.parameters)
            .map(|(a, b)| f64::from(a - b)),
    );
    let length = norm(&mut one.parameters.iter().map(|value| f64::from(*value)));
    assert!(
        difference <= tolerance * length,
        "{way:?}: parameters differ by {difference}, their norm is {length}"
    );
}

/// All ways to train, with options of each.
const WAYS: &[&str] = &[
    "dp --ranks 2",
    "dp --ranks 4 --accumulate 2 --checkpoint",
    "ddp --ranks 2",
    "ddp --ranks 4 --no-overlap --bucket-mb 0.01",
    "ddp --ranks 2 --static-graph --no-bucket-view --grad-monitor",
    "ddp --ranks 4 --imbalance 2 --straggler 1:1.5",
    "ddp --ranks 2 --accumulate 3 --checkpoint",
    "ddp --ranks 2 --synchronize --delay step:1:5:2",
    "fsdp --ranks 2 --prefetch 0",
    "fsdp --ranks 4 --prefetch 2 --accumulate 2",
    "fsdp --ranks 3 --checkpoint",
    "mp --ranks 2",
    "mp --ranks 3 --accumulate 2",
    "pp --ranks 2 --microbatches 4",
    "pp --ranks 4 --microbatches 6 --pipeline gpipe",
    "pp --ranks 3 --microbatches 2 --accumulate 2 --balance time",
    "pp --ranks 2 --microbatches 3 --balance memory --checkpoint",
    "pp --ranks 3 --microbatches 4 --synchronize --pipeline gpipe",
    "pp --ranks 3 --microbatches 4 --synchronize --delay loader:2:3",
    "tp --ranks 2",
    "tp --ranks 4 --sequence-parallel",
    "tp --ranks 2 --sequence-parallel --accumulate 2 --checkpoint",
    "3d --dp 2 --tp 2 --pp 2 --microbatches 2",
    "3d --dp 2 --tp 2 --pp 2 --microbatches 3 --pipeline gpipe --sequence-parallel",
];

const PERCEPTRON: &str = "--sizes 48,64,40,64,24 --batch 48 --samples 480 --steps 20 --seed 7";
const TRANSFORMER: &str = "--model transformer --layers 2 --hidden 32 --heads 4 --context 16 --vocabulary 24 \
                           --batch 24 --samples 480 --steps 20 --seed 3";

fn assert_all_ways_equal(common: &str, tolerance: f64) {
    let one = run("single", common);
    assert_eq!(one.losses.len(), 20);
    assert!(one.losses[19] < one.losses[0], "it learns: {:?}", one.losses);
    for way in WAYS {
        assert_same_training(way, &one, &run(way, common), tolerance);
    }
}

#[test]
fn perceptrons_by_sgd() {
    assert_all_ways_equal(PERCEPTRON, 1e-5);
}

#[test]
fn perceptrons_by_adam() {
    assert_all_ways_equal(&format!("{PERCEPTRON} --optimizer adam"), 1e-4);
}

#[test]
fn transformers_by_sgd() {
    assert_all_ways_equal(TRANSFORMER, 1e-5);
}

#[test]
fn transformers_by_adam() {
    assert_all_ways_equal(&format!("{TRANSFORMER} --optimizer adam"), 1e-4);
}

#[test]
fn sixteen_bits_stay_near_thirty_two() {
    for common in [PERCEPTRON, TRANSFORMER] {
        let one = run("single", common);
        for data_type in ["bf16", "f16"] {
            let common = format!("{common} --dtype {data_type}");
            for way in [
                "single", WAYS[1], WAYS[2], WAYS[8], WAYS[11], WAYS[13], WAYS[17], WAYS[19],
            ] {
                assert_same_training(way, &one, &run(way, &common), 2e-2);
            }
        }
    }
}

#[test]
fn gradients_compressed_on_the_wire_stay_near() {
    let one = run("single", PERCEPTRON);
    let way = "ddp --ranks 4 --compress bf16";
    assert_same_training(way, &one, &run(way, PERCEPTRON), 2e-2);
}

#[test]
fn a_transformer_comes_near_what_can_be_learnt() {
    let words = "ddp --ranks 2 --model transformer --hidden 32 --heads 2 --layers 1 --context 16 --vocabulary 8 --batch 64 \
                 --optimizer adam --learning-rate 0.01 --steps 200";
    let text = stdout(&expect_status(&mut workload(words), 0));
    let number_after = |mark: &str| -> f64 {
        let (_, rest) = text
            .split_once(mark)
            .unwrap_or_else(|| panic!("no {mark:?} in {text}"));
        let word = rest.split_whitespace().next().expect("a number");
        word.parse().unwrap_or_else(|_| panic!("{word} is no number"))
    };
    let (floor, last) = (number_after("entropy floor "), number_after(" -> "));
    assert!(
        last > floor * 0.9,
        "no loss is below the floor but by chance: {last}, {floor}"
    );
    assert!(
        last < floor * 1.15,
        "the loss {last} stays above the floor {floor}"
    );
}
