//! The bubble of a pipeline, against its formula: (p-1)/(m+p-1) for p equal stages and m microbatches, step by step.

use crate::common;

use common::{TrueOperation, expect_status, fresh_folder, record_workload, stderr, stdout, truth_of_rank};

/// What a step's measured bubble may be off by, as a share of the formula's.
const TOLERANCE: f64 = 0.05;

/// A step of a stage.
#[derive(Default)]
struct Step {
    /// Kernels of forward and backward passes, from and to.
    passes: Vec<(i64, i64)>,
    /// Whether the CPU could not keep up with something in it.
    stretched: bool,
}

/// A stage's steps, each of which ends with the update of its parameters.
fn steps(operations: &[TrueOperation]) -> Vec<Step> {
    let mut steps = vec![Step::default()];
    for operation in operations.iter().filter(|operation| operation.kind == "kernel") {
        if operation.name == "sgd_step" {
            steps.push(Step::default());
            continue;
        }
        let last = steps.len() - 1;
        steps[last].stretched |= operation.stretched;
        if !operation.name.starts_with("nccl") {
            steps[last].passes.push((operation.start_ns, operation.end_ns));
        }
    }
    steps.retain(|step| !step.passes.is_empty());
    steps
}

/// The length of the union of intervals.
fn union_ns(intervals: &[(i64, i64)]) -> i64 {
    let mut sorted = intervals.to_vec();
    sorted.sort_unstable();
    let mut reached = i64::MIN;
    sorted
        .into_iter()
        .map(|(start, end)| {
            let new = (end - start.max(reached)).max(0);
            reached = reached.max(end);
            new
        })
        .sum()
}

/// Runs a pipeline of equal stages, two layers each, and compares each step on each stage with the formula.
fn bubble_is_as_the_formula_says(schedule: &str, stages: usize, microbatches: usize) {
    let (_keep, folder) = fresh_folder("recording");
    let truth = folder.with_file_name("truth");
    let sizes = vec!["512"; 2 * stages + 1].join(",");
    let (ranks, count, batch) = (
        stages.to_string(),
        microbatches.to_string(),
        microbatches.to_string(),
    );
    let workload = [
        "pp",
        "--ranks",
        &ranks,
        "--sizes",
        &sizes,
        "--batch",
        &batch,
        "--microbatches",
        &count,
        "--pipeline",
        schedule,
        "--steps",
        "4",
    ];
    let output = expect_status(
        &mut record_workload(&folder, &truth, &[("SCALE", "16000")], workload),
        0,
    );
    let said = stdout(&output) + &stderr(&output);

    let mut logs = Vec::new();
    for rank in 0..stages {
        let mut operations: Vec<TrueOperation> = truth_of_rank(&truth, rank as u32).into_values().collect();
        operations.sort_by_key(|operation| operation.start_ns);
        logs.push(operations);
    }
    let what = format!("{schedule}, {stages} stages, {microbatches} microbatches");
    let expected = (stages - 1) as f64 / (microbatches + stages - 1) as f64;
    let by_stage: Vec<Vec<Step>> = logs.iter().map(|log| steps(log)).collect();
    for stage in &by_stage {
        assert_eq!(stage.len(), 4, "{what}: an update ends each step");
    }

    // The formula is for messages that are short beside the passes, a hundredth at the most: 7 us and a row of 512 numbers
    // over NVLink's 370.8 GB/s, of which 85 % are reached.
    let a_pass = union_ns(&by_stage[0][1].passes) / microbatches as i64;
    let a_send = 7_000.0 + 512.0 * 4.0 * 16_000.0 / (0.85 * 370.8);
    assert!(a_pass as f64 > 100.0 * a_send, "{what}: passes of {a_pass} ns");

    // The first step makes connections and is left out.
    let mut compared = 0;
    for step in 1..4 {
        if by_stage.iter().any(|stage| stage[step].stretched) {
            eprintln!("{what}: step {step} is left out, the CPU could not keep up");
            continue;
        }
        let first = &by_stage[0][step].passes;
        let begin = first.iter().map(|(start, _)| *start).min().expect("passes");
        let end = first.iter().map(|(_, end)| *end).max().expect("passes");
        for (stage, steps) in by_stage.iter().enumerate() {
            let bubble = 1.0 - union_ns(&steps[step].passes) as f64 / (end - begin) as f64;
            assert!(
                (bubble / expected - 1.0).abs() < TOLERANCE,
                "{what}: bubble {bubble:.4} on stage {stage} in step {step}, {expected:.4} by the formula\n{said}"
            );
        }
        compared += 1;
    }
    assert!(compared > 0, "{what}: the CPU could not keep up with any step");
    // What the workload says of itself is the same.
    let mut said_by_stages = 0;
    for line in said
        .lines()
        .filter(|line| line.trim_start().starts_with("stage "))
    {
        let (_, percent) = line.rsplit_once("bubble ").expect("a bubble");
        let percent: f64 = percent
            .trim_end_matches(['%', ' '])
            .parse()
            .expect("a percentage");
        assert!(
            compared < 3 || (percent / 100.0 / expected - 1.0).abs() < 2.0 * TOLERANCE,
            "{what}: {line}"
        );
        said_by_stages += 1;
    }
    assert_eq!(said_by_stages, stages, "{said}");
}

#[test]
fn all_forward_then_all_backward() {
    common::schedule::alone();
    bubble_is_as_the_formula_says("gpipe", 2, 1);
    bubble_is_as_the_formula_says("gpipe", 4, 8);
    bubble_is_as_the_formula_says("gpipe", 3, 6);
}

#[test]
fn one_forward_one_backward() {
    common::schedule::alone();
    bubble_is_as_the_formula_says("1f1b", 2, 2);
    bubble_is_as_the_formula_says("1f1b", 4, 4);
    bubble_is_as_the_formula_says("1f1b", 4, 12);
}
