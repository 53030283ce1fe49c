//! Steps: which ranges name them, and what is cut to those that are chosen.

use crate::support;

use gputrace_analyzer::diff::Verdict;
use gputrace_analyzer::{Options, analyze, by_step, compare};
use support::Build;

#[test]
fn time_is_cut_to_the_chosen_steps_and_operations_are_not() {
    let mut build = Build::new(1);
    build.step(0, 0, 100).step(1, 100, 200).step(2, 200, 300);
    // Launched at 40, run 50..150: half of it in step 1, which begins with what is launched in it and runs 100..101, and ends
    // where the first of step 2 begins, at 200.
    build.call(40, 45, 1).kernel(0, "gemm", 7, 50, 150, 1);
    build.call(100, 101, 2).kernel(0, "gemm", 9, 100, 101, 2);
    build.call(200, 201, 3).kernel(0, "gemm", 9, 200, 201, 3);
    // 800 bytes from 160 to 240.
    build.copy(8, 160, 240);
    build.recording.processes[0].tables.copies.bytes[0] = 800;
    let options = Options {
        steps: Some((1, 1)),
        ..Options::default()
    };
    let analysis = analyze(&build.recording, &options);
    let rank = &analysis.ranks[0];
    assert_eq!(
        (
            rank.measures.compute_ns,
            rank.measures.copy_ns,
            rank.measures.span_ns
        ),
        (50, 40, 100)
    );
    assert_eq!(rank.kernels[0].durations.max_ns, 100);
    assert_eq!(rank.launches[0].latency.max_ns, 10);
    assert_eq!(rank.copies[0].bandwidth, Some(10.0));
    let kind = rank.kinds.iter().find(|kind| kind.kind == "compute").unwrap();
    assert_eq!((kind.total_ns, kind.time_ns), (100 + 1, 50));
}

#[test]
fn collectives_are_those_of_the_chosen_steps() {
    let mut build = Build::new(2);
    build.step(0, 0, 200).step(1, 200, 400);
    for rank in 0..2 {
        let late = rank as i64 * 10;
        build
            .collective(rank, 0, 400, 20 + late, 100)
            .collective(rank, 1, 400, 220 + late, 300)
            .collective(rank, 2, 400, 320 + late, 390);
    }
    // Both ranks have the steps.
    let markers = build.recording.processes[0].tables.markers.clone();
    build.recording.processes[1].tables.markers = markers;
    let options = Options {
        steps: Some((1, 1)),
        ..Options::default()
    };
    let analysis = analyze(&build.recording, &options);
    assert_eq!(
        analysis
            .collectives
            .iter()
            .map(|one| one.sequence)
            .collect::<Vec<_>>(),
        [Some(1), Some(2)]
    );
    assert_eq!(
        (analysis.arrivals[0].collectives, analysis.arrivals[0].wait_ns),
        (2, 20)
    );
    assert_eq!(analysis.ranks[0].communication[0].count, 2);
}

#[test]
fn the_profilers_steps_count_around_the_programs_own() {
    let mut build = Build::new(1);
    for number in 0..3u64 {
        let start = number as i64 * 100;
        build
            .step(number, start + 10, start + 60)
            .kernel(0, "gemm", 7, start + 20, start + 70, 1);
        build.step(number, start, start + 95);
        let name = build.recording.names.intern(&format!("ProfilerStep#{number}"));
        *build.recording.processes[0]
            .tables
            .markers
            .name
            .last_mut()
            .unwrap() = name;
    }
    let analysis = analyze(&build.recording, &Options::default());
    let names: Vec<&str> = analysis.ranks[0]
        .steps
        .iter()
        .map(|step| step.name.as_str())
        .collect();
    assert_eq!(names, ["ProfilerStep#0", "ProfilerStep#1", "ProfilerStep#2"]);
    assert!(
        analysis.ranks[0]
            .steps
            .iter()
            .all(|step| step.measures.compute_ns == 50)
    );
}

#[test]
fn two_runs_are_compared_by_rank_step_and_name() {
    let mut first = Build::new(1);
    first
        .step(0, 0, 100)
        .step(1, 100, 200)
        .kernel(0, "gemm", 7, 0, 50, 1)
        .kernel(0, "gemm", 7, 100, 150, 2)
        .kernel(0, "relu", 7, 150, 160, 3);
    let mut second = Build::new(2);
    second
        .step(0, 0, 150)
        .kernel(0, "gemm", 7, 0, 130, 1)
        .kernel(0, "gelu", 7, 140, 150, 2)
        .kernel(1, "gelu", 7, 0, 10, 1);
    let of = |build: &Build| by_step(&build.recording, None);
    let ((a, baseline_a), (b, baseline_b)) = (of(&first), of(&second));
    let comparison = compare((&a, &baseline_a), (&b, &baseline_b));
    let ranks: Vec<(Option<u32>, Verdict)> = comparison
        .ranks
        .iter()
        .map(|rank| (rank.rank, rank.change))
        .collect();
    // One step of each is no sample; rank 1 is there only in the second.
    assert_eq!(ranks, [(Some(0), Verdict::Unknown), (Some(1), Verdict::New)]);
    let steps: Vec<_> = comparison
        .steps
        .iter()
        .map(|step| (step.place, step.duration_a_ns, step.duration_b_ns, step.change))
        .collect();
    assert_eq!(
        steps,
        [
            (0, Some(100), Some(150), Verdict::Unknown),
            (1, Some(100), None, Verdict::Gone)
        ]
    );
    let kernels: Vec<_> = comparison
        .kernels
        .iter()
        .map(|kernel| {
            (
                kernel.name.as_str(),
                kernel.count_a,
                kernel.count_b,
                kernel.difference_ns,
                kernel.change,
            )
        })
        .collect();
    assert_eq!(
        kernels,
        [
            ("gemm", 2, 1, 30, Verdict::Unknown),
            ("gelu", 0, 2, 20, Verdict::New),
            ("relu", 1, 0, -10, Verdict::Gone),
        ]
    );
}

#[test]
fn processes_without_ranks_are_compared_in_their_order() {
    let mut build = Build::new(2);
    build
        .kernel(0, "gemm", 7, 0, 50, 1)
        .kernel(1, "gemm", 7, 0, 70, 1);
    for process in &mut build.recording.processes {
        process.header.rank = None;
    }
    let (analysis, baseline) = by_step(&build.recording, None);
    let comparison = compare((&analysis, &baseline), (&analysis, &baseline));
    assert_eq!(comparison.ranks.len(), 2);
    assert!(comparison.ranks.iter().all(|rank| rank.change == Verdict::Same));
}
