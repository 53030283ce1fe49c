//! `gputrace workload check`: every kernel and every collective, on the simulated GPU.

use crate::common;

use common::{expect_status, gputrace};
use serde_json::Value;

fn check(arguments: &[&str]) -> Value {
    let mut command = gputrace();
    command
        .args(["workload", "check", "--json"])
        .args(arguments)
        // Whether results are right doesn't depend on the model's speed.
        .env("SIMGPU_SCALE", "1");
    let output = expect_status(&mut command, 0);
    serde_json::from_slice(&output.stdout).expect("one JSON object")
}

#[test]
fn all_kernels_and_collectives_are_right() {
    let report = check(&["--ranks", "3"]);
    assert_eq!(report["failed"], 0, "{report}");
    assert_eq!(report["ranks"], 3);
    let checks = report["checks"].as_array().expect("checks");
    for check in checks {
        assert_eq!(check["ok"], true, "{check}");
        assert!(check["worst"].as_f64() <= check["limit"].as_f64(), "{check}");
    }
    let names: Vec<&str> = checks.iter().filter_map(|check| check["name"].as_str()).collect();
    for name in [
        "add_bias gradient",
        "layer_norm gradient",
        "gelu gradient",
        "cross_entropy gradient",
        "embedding gradient",
        "causal_softmax in place gradient",
        "layer_norm_backward bf16",
        "scale_accumulate f16, overflows missed",
        "cast f32 to bf16, wrong elements",
        "adam_step",
        "gemm bf16 tn",
        "gemm batch f16 nt",
        "all_reduce sum",
        "all_reduce average in place F16",
        "reduce product",
        "reduce_scatter max in place",
        "broadcast",
        "all_gather in place",
        "all_to_all",
        "gather",
        "scatter",
        "send and receive",
        "all_reduce of a split",
    ] {
        assert!(names.contains(&name), "{name} is not among {names:?}");
    }
}

#[test]
fn one_rank_is_enough() {
    assert_eq!(check(&["--ranks", "1"])["failed"], 0);
}
