//! Data parallel training learns what one GPU learns: the same loss on the same global batch, step by step.

use crate::common;

use common::{expect_status, gputrace, stdout};

/// The losses that a workload prints, by step.
fn losses(arguments: &[&str]) -> Vec<f64> {
    let output = expect_status(
        gputrace()
            .arg("workload")
            .args(arguments)
            .args(["--print-losses", "--steps", "15"]),
        0,
    );
    let text = stdout(&output);
    let losses: Vec<f64> = text
        .lines()
        .filter_map(|line| line.strip_prefix("step ")?.split_once(" loss ")?.1.parse().ok())
        .collect();
    assert_eq!(losses.len(), 15, "{text}");
    losses
}

#[track_caller]
fn assert_same(single: &[f64], other: &[f64], what: &str) {
    for (step, (single, other)) in single.iter().zip(other).enumerate() {
        assert!(
            (single - other).abs() <= 1e-5 * single.abs().max(1e-3),
            "{what}, step {step}: {other} against {single}"
        );
    }
}

#[test]
fn ddp_learns_what_single_learns() {
    let sizes = [
        "--sizes",
        "24,40,16,8",
        "--batch",
        "32",
        "--samples",
        "256",
        "--learning-rate",
        "0.5",
        "--seed",
        "3",
    ];
    let single = losses(&[&["single"], &sizes[..]].concat());
    assert!(single[14] < single[0], "it learns: {single:?}");
    for ranks in ["2", "4"] {
        let ddp = losses(&[&["ddp", "--ranks", ranks], &sizes[..]].concat());
        assert_same(&single, &ddp, &format!("{ranks} ranks"));
    }
    let small_buckets = losses(&[&["ddp", "--bucket-mb", "0.001"], &sizes[..]].concat());
    assert_same(&single, &small_buckets, "a bucket a layer");
    let no_overlap = losses(&[&["ddp", "--no-overlap"], &sizes[..]].concat());
    assert_same(&single, &no_overlap, "no overlap");
}

#[test]
fn the_textbook_preset_trains() {
    let single = losses(&["single", "--preset", "listing"]);
    assert_same(&single, &losses(&["ddp", "--preset", "listing"]), "listing");
}

#[test]
fn graphs_compute_the_same() {
    let sizes = ["--sizes", "24,40,16,8", "--batch", "32", "--samples", "256"];
    let single = losses(&[&["single"], &sizes[..]].concat());
    for way in [&["single", "--graph"][..], &["ddp", "--ranks", "2", "--graph"]] {
        let graphs = losses(&[way, &sizes[..]].concat());
        assert_same(&single, &graphs, &way.join(" "));
    }
}
