//! Steps of a program whose host never waits for the GPU, against what happened on it.

use crate::common;

use common::programs::{Case, compiled};
use common::{analysis, fresh_folder, truth_of_rank};

const STEPS: usize = 6;

/// Kernels of a step, as the program launches them.
fn kernels_of(step: usize) -> usize {
    2 + step % 2
}

#[test]
fn steps_are_what_the_host_launched_in_them_long_before() {
    common::schedule::alone();
    let program = compiled("ahead");
    let (_keep, folder) = fresh_folder("recording");
    let truth = folder.with_file_name("truth");
    std::fs::create_dir_all(&truth).expect("a folder for the truth log");
    let setting = format!("TRUTH={}", truth.display());
    // 4 million numbers are 34 MB to read and write: 7 ms at a thousandth of an H200's bandwidth.
    let ended = Case::new(program, &[STEPS.to_string().as_str(), "4194304"])
        .env("RANK", "0")
        .options(&["--sim", &setting])
        .recorded(&folder);
    assert_eq!(ended.status, 0, "{ended:?}");
    // By correlation, which counts calls: what begins, the steps' kernels, what is launched behind them.
    let kernels: Vec<(i64, i64)> = truth_of_rank(&truth, 0)
        .into_values()
        .filter(|operation| operation.kind == "kernel")
        .map(|operation| (operation.delivered_start_ns, operation.delivered_end_ns))
        .collect();
    let of_steps: usize = (0..STEPS).map(kernels_of).sum();
    assert_eq!(kernels.len(), 1 + of_steps + 1);
    let mut expected = Vec::new();
    let mut from = 1;
    for step in 0..STEPS {
        let own = &kernels[from..from + kernels_of(step)];
        from += own.len();
        let last = own[own.len() - 1].1;
        let end = if step + 1 < STEPS { kernels[from].0 } else { last };
        let computed: i64 = own.iter().map(|(start, end)| end - start).sum();
        expected.push((format!("step {step}"), own[0].0, end, computed));
    }
    let analysis = analysis(&folder);
    let steps = analysis["ranks"][0]["steps"].as_array().expect("steps");
    let number = |step: &serde_json::Value, member: &str| step[member].as_i64().expect("a time");
    let found: Vec<(String, i64, i64, i64)> = steps
        .iter()
        .map(|step| {
            (
                step["name"].as_str().expect("a name").to_owned(),
                number(step, "start_ns"),
                number(step, "end_ns"),
                number(step, "compute_ns"),
            )
        })
        .collect();
    assert_eq!(found, expected);
    // The host began the last step before the GPU did the second.
    let last = &steps[STEPS - 1];
    assert!(
        number(last, "host_start_ns") < expected[1].1,
        "{last} against {expected:?}"
    );
}
