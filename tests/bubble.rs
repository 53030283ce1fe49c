//! The bubble of a pipeline, against its formula: (p-1)/(m+p-1) for p equal stages and m microbatches, step by step.

mod common;

use common::{TrueOperation, expect_status, fresh_folder, record_workload, stderr, stdout, truth_of_rank};

/// What a step's measured bubble may be off by, as a share of the formula's.
const TOLERANCE: f64 = 0.05;

/// A stage's kernels of forward and backward passes, by step: a step ends with the reduction of the loss.
fn passes(operations: &[TrueOperation]) -> Vec<Vec<(i64, i64)>> {
    let mut steps = vec![Vec::new()];
    for operation in operations.iter().filter(|operation| operation.kind == "kernel") {
        if operation.name.starts_with("ncclDevKernel_AllReduce") {
            steps.push(Vec::new());
        } else if !operation.name.starts_with("nccl") && operation.name != "sgd_step" {
            let last = steps.len() - 1;
            steps[last].push((operation.start_ns, operation.end_ns));
        }
    }
    steps.retain(|step| !step.is_empty());
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
    let sizes = vec!["1024"; 2 * stages + 1].join(",");
    let (ranks, count, batch) = (
        stages.to_string(),
        microbatches.to_string(),
        (2 * microbatches).to_string(),
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
        &mut record_workload(&folder, &truth, &[("SCALE", "4000")], workload),
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
    let by_stage: Vec<Vec<Vec<(i64, i64)>>> = logs.iter().map(|log| passes(log)).collect();
    let steps = by_stage[0].len();
    assert_eq!(steps, 4, "{what}: a reduction of the loss ends each step");

    // The formula is for messages that are short beside the passes: they are, a hundredth at the most.
    let a_pass = union_ns(&by_stage[0][1]) / microbatches as i64;
    let shortest = |log: &Vec<TrueOperation>| {
        let sends = log.iter().filter(|one| one.name == "ncclDevKernel_SendRecv");
        sends.map(|one| one.end_ns - one.start_ns).min()
    };
    let a_send = logs
        .iter()
        .filter_map(shortest)
        .min()
        .expect("messages between stages");
    assert!(
        a_pass > 100 * a_send,
        "{what}: {a_pass} ns of passes beside {a_send} ns"
    );

    // The first step makes connections and is left out.
    for step in 1..steps {
        let starts = by_stage[0][step].iter().map(|(start, _)| *start);
        let ends = by_stage[0][step].iter().map(|(_, end)| *end);
        let window = (ends.max().expect("passes") - starts.min().expect("passes")) as f64;
        for (stage, passes) in by_stage.iter().enumerate() {
            let bubble = 1.0 - union_ns(&passes[step]) as f64 / window;
            assert!(
                (bubble / expected - 1.0).abs() < TOLERANCE,
                "{what}: bubble {bubble:.4} on stage {stage} in step {step}, {expected:.4} by the formula\n{said}"
            );
        }
    }
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
            (percent / 100.0 / expected - 1.0).abs() < 2.0 * TOLERANCE,
            "{what}: {line}"
        );
        said_by_stages += 1;
    }
    assert_eq!(said_by_stages, stages, "{said}");
}

#[test]
fn all_forward_then_all_backward() {
    bubble_is_as_the_formula_says("gpipe", 2, 1);
    bubble_is_as_the_formula_says("gpipe", 4, 8);
    bubble_is_as_the_formula_says("gpipe", 3, 6);
}

#[test]
fn one_forward_one_backward() {
    bubble_is_as_the_formula_says("1f1b", 2, 2);
    bubble_is_as_the_formula_says("1f1b", 4, 4);
    bubble_is_as_the_formula_says("1f1b", 4, 12);
}
