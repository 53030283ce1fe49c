//! Every measure on recordings small enough to compute by hand.

use crate::support;

use gputrace_analyzer::{Facts, Options, Sort, analyze};
use gputrace_trace::tables::Memset;
use gputrace_trace::{DurationNs, Table, TimeNs};
use support::Build;

#[test]
fn overlap_is_the_part_of_communication_under_compute() {
    let mut build = Build::new(1);
    // Compute 100..200 and 250..300 (two streams, overlapping); communication 150..280; a copy 290..400.
    build
        .kernel(0, "gemm", 7, 100, 180, 1)
        .kernel(0, "gemm", 8, 170, 200, 2)
        .kernel(0, "relu", 7, 250, 300, 3);
    build
        .kernel(0, "ncclDevKernel_AllReduce_Sum_f32_RING_LL", 9, 150, 280, 4)
        .copy(10, 290, 400);
    let analysis = analyze(&build.recording, &Options::default());
    let rank = &analysis.ranks[0];
    let measures = &rank.measures;
    assert_eq!(
        (measures.span_ns, measures.busy_ns, measures.idle_ns),
        (300, 300, 0)
    );
    assert_eq!(
        (measures.compute_ns, measures.communication_ns, measures.copy_ns),
        (150, 130, 110)
    );
    // 150..200 and 250..280 are under compute.
    assert_eq!(
        (
            measures.communication_hidden_ns,
            measures.communication_exposed_ns
        ),
        (80, 50)
    );
    assert_eq!(measures.overlap_ratio, Some(80.0 / 130.0));
    // The communication's stream alone: hidden under what other streams compute.
    let stream = rank
        .streams
        .iter()
        .find(|stream| stream.stream == 9)
        .expect("its stream");
    assert_eq!(
        (
            stream.compute_ns,
            stream.communication_hidden_ns,
            stream.communication_exposed_ns
        ),
        (0, 80, 50)
    );
    // 290..300 is under compute.
    assert_eq!(measures.copy_exposed_ns, 100);
    assert_eq!(
        rank.kernels
            .iter()
            .find(|kernel| kernel.kind == "communication")
            .map(|kernel| kernel.kind_from),
        Some("name")
    );
    assert!(
        analysis
            .notes
            .iter()
            .any(|note| note.contains("told by their names"))
    );
}

#[test]
fn without_communication_the_overlap_ratio_is_null() {
    let mut build = Build::new(1);
    build.kernel(0, "gemm", 7, 0, 10, 1);
    let analysis = analyze(&build.recording, &Options::default());
    assert_eq!(analysis.ranks[0].measures.overlap_ratio, None);
    let json = serde_json::to_value(&analysis).expect("JSON");
    assert!(json["ranks"][0]["overlap_ratio"].is_null());
    assert_eq!(json["ranks"][0]["span_ns"], 10, "measures stand beside the rank");
}

#[test]
fn a_kernel_that_nccl_launched_is_communication_whatever_its_name() {
    let mut build = Build::new(2);
    build
        .collective(0, 0, 400, 100, 200)
        .collective(1, 0, 400, 130, 200);
    let analysis = analyze(&build.recording, &Options::default());
    assert_eq!(analysis.ranks[0].measures.communication_ns, 100);
    assert_eq!(analysis.ranks[0].kernels[0].kind_from, "nccl plugin");
    // Rank 1 comes 30 after rank 0: 30 of wait, 70 of transfer, 400 bytes in 70 ns.
    let collective = &analysis.collectives[0];
    assert_eq!(
        (collective.skew_ns, collective.last_rank, collective.warm_up),
        (Some(30), Some(1), true)
    );
    assert_eq!((collective.wait_ns["0"], collective.wait_ns["1"]), (30, 0));
    assert_eq!(
        (collective.transfer_ns["0"], collective.transfer_ns["1"]),
        (70, 70)
    );
    assert_eq!(collective.algbw, Some(400.0 / 70.0));
    assert_eq!(
        collective.busbw,
        Some(400.0 / 70.0),
        "the factor of two ranks is one"
    );
    assert_eq!(collective.matched_by, "communicator and sequence");
}

#[test]
fn on_two_hosts_arrivals_are_withheld() {
    let mut build = Build::new(2);
    build
        .collective(0, 0, 400, 100, 200)
        .collective(1, 0, 400, 130, 200);
    build.recording.processes[1].header.host = "other".to_owned();
    let collective = &analyze(&build.recording, &Options::default()).collectives[0];
    assert_eq!((collective.skew_ns, collective.algbw), (None, None));
    assert!(collective.wait_ns.is_empty() && collective.transfer_ns.is_empty());
}

#[test]
fn idle_time_is_split_at_the_launch_call_and_sums_up() {
    let mut build = Build::new(1);
    // Gap 100..200: the next kernel's call ran 150..160. Gap 300..350: called long before. Gap 400..450: no record.
    build
        .kernel(0, "k", 7, 0, 100, 1)
        .kernel(0, "k", 7, 200, 300, 2)
        .kernel(0, "k", 7, 350, 400, 3)
        .kernel(0, "k", 7, 450, 460, 4);
    build.call(0, 5, 1).call(150, 160, 2).call(210, 220, 3);
    let rank = &analyze(&build.recording, &Options::default()).ranks[0];
    assert_eq!(rank.measures.idle_ns, 200);
    let causes = &rank.idle_causes;
    assert_eq!(
        (
            causes["host_late"],
            causes["launch_latency"],
            causes["unknown"],
            causes.get("event_wait")
        ),
        (50, 100, 50, None)
    );
    assert_eq!(causes.values().sum::<i64>(), rank.measures.idle_ns);
    // HTA gives the whole first gap to the host, and short gaps that were launched in time to the kernel.
    let stream = &rank.streams[0];
    assert_eq!(
        (
            stream.idle_host_wait_ns,
            stream.idle_kernel_wait_ns,
            stream.idle_other_ns
        ),
        (100, 100, 0)
    );
    assert_eq!(stream.idle_ns, 200);
}

#[test]
fn idle_before_and_after_count_against_the_whole_run() {
    let mut build = Build::new(2);
    build
        .kernel(0, "k", 7, 100, 200, 1)
        .kernel(1, "k", 7, 150, 500, 1);
    let analysis = analyze(&build.recording, &Options::default());
    let edges: Vec<_> = analysis
        .ranks
        .iter()
        .map(|rank| (rank.idle_before_ns, rank.idle_after_ns))
        .collect();
    assert_eq!(edges, [(Some(0), Some(300)), (Some(50), Some(0))]);
}

#[test]
fn steps_last_until_the_next_one_begins() {
    let mut build = Build::new(1);
    build
        .kernel(0, "k", 7, 10, 60, 1)
        .kernel(0, "k", 7, 90, 140, 2)
        .kernel(0, "k", 7, 150, 170, 3);
    build.step(0, 0, 20).step(1, 100, 160);
    let analysis = analyze(&build.recording, &Options::default());
    let steps = &analysis.ranks[0].steps;
    assert_eq!(
        (steps[0].start_ns, steps[0].end_ns, steps[1].end_ns),
        (TimeNs(0), TimeNs(100), TimeNs(160))
    );
    // Step 0 holds 10..60 and 90..100; step 1 holds 100..140 and 150..160.
    assert_eq!((steps[0].measures.busy_ns, steps[0].measures.span_ns), (60, 90));
    assert_eq!((steps[1].measures.busy_ns, steps[1].measures.span_ns), (50, 60));
    let second = analyze(
        &build.recording,
        &Options {
            steps: Some((1, 1)),
            ..Options::default()
        },
    );
    assert_eq!(
        (second.ranks[0].steps.len(), second.ranks[0].measures.span_ns),
        (1, 60)
    );
}

#[test]
fn kernels_are_counted_and_ordered() {
    let mut build = Build::new(1);
    build
        .kernel(0, "long", 7, 0, 90, 1)
        .kernel(0, "short", 7, 100, 110, 2)
        .kernel(0, "short", 7, 120, 150, 3);
    let options = |sort| Options {
        sort,
        ..Options::default()
    };
    let analysis = analyze(&build.recording, &options(Sort::Total));
    let kernels = &analysis.ranks[0].kernels;
    assert_eq!((kernels[0].name.as_str(), kernels[0].total_ns), ("long", 90));
    let short = &kernels[1];
    assert_eq!(
        (
            short.count,
            short.total_ns,
            short.durations.mean_ns,
            short.durations.min_ns,
            short.durations.max_ns
        ),
        (2, 40, 20, 10, 30)
    );
    assert_eq!((short.durations.p50_ns, short.durations.p99_ns), (10, 30));
    let mut by_count = analyze(&build.recording, &options(Sort::Count));
    by_count.keep_top_kernels(1);
    assert_eq!(by_count.ranks[0].kernels.len(), 1);
    assert_eq!(by_count.ranks[0].kernels[0].name, "short");
}

#[test]
fn an_operation_that_ends_before_it_starts_is_left_out_and_counted() {
    let mut build = Build::new(1);
    build.kernel(0, "k", 7, 100, 50, 1).kernel(0, "k", 7, 200, 300, 2);
    let analysis = analyze(&build.recording, &Options::default());
    assert_eq!(analysis.ranks[0].measures.span_ns, 100);
    assert!(
        analysis
            .losses
            .iter()
            .any(|loss| loss.what.contains("end before they start") && loss.count == Some(1))
    );
}

#[test]
fn a_recording_without_operations_has_no_ranks() {
    let analysis = analyze(&Build::new(2).recording, &Options::default());
    assert!(analysis.ranks.is_empty() && analysis.collectives.is_empty() && analysis.findings.is_empty());
}

#[test]
fn findings_come_with_their_evidence() {
    let mut build = Build::new(1);
    build
        .kernel(0, "gemm", 7, 0, 100, 1)
        .kernel(0, "ncclDevKernel_AllReduce", 9, 100, 200, 2);
    let analysis = analyze(&build.recording, &Options::default());
    assert_eq!(analysis.findings[0].saves_ns, Some(100));
    assert_eq!(
        analysis.findings[0].facts,
        Facts::ExposedCommunication {
            exposed_ns: 100,
            communication_ns: 100,
            collective: Some("AllReduce".to_owned()),
            communicator: Some("unknown".to_owned()),
            collective_exposed_ns: Some(100),
        }
    );
    assert!(
        analysis.findings[0].evidence.contains("50.0 % of its span"),
        "{}",
        analysis.findings[0].evidence
    );
    // Programs read the code; the sentences are for people.
    let json = serde_json::to_value(&analysis.findings[0]).expect("JSON");
    assert_eq!(json["code"], "exposed_communication");
    assert_eq!(json["facts"]["exposed_ns"], 100);
    assert_eq!((&json["rank"], &json["device_index"]), (&0.into(), &0.into()));
}

#[test]
fn a_long_wait_after_the_launch_is_an_event_wait_only_where_one_was_asked_for() {
    let mut build = Build::new(1);
    // Each gap is 30 us; each call starts 1 us into its gap and lasts 2 us.
    build
        .kernel(0, "k", 7, 0, 1_000, 1)
        .kernel(0, "k", 7, 31_000, 32_000, 2)
        .kernel(0, "k", 7, 62_000, 63_000, 3)
        .kernel(0, "k", 7, 73_000, 74_000, 4);
    build
        .call(0, 500, 1)
        .call(2_000, 4_000, 2)
        .call(33_000, 35_000, 3)
        .call(64_000, 66_000, 4);
    // One before the second kernel's launch; it holds up that kernel, and not the third. The fourth waited 7 us only.
    build.wait_event(7, 1_500).wait_event(7, 63_500);
    let rank = &analyze(&build.recording, &Options::default()).ranks[0];
    let causes = &rank.idle_causes;
    assert_eq!(causes["host_late"], 1_000 + 1_000 + 1_000);
    assert_eq!(causes["event_wait"], 27_000);
    assert_eq!(causes["launch_latency"], 2_000 + 29_000 + 9_000);
    assert_eq!(causes.values().sum::<i64>(), rank.measures.idle_ns);
    // Another stream's wait changes nothing for this one.
    build.recording.processes[0].tables.synchronizations.stream[0] = Some(8);
    let causes = &analyze(&build.recording, &Options::default()).ranks[0].idle_causes;
    assert_eq!(
        (causes.get("event_wait"), causes["launch_latency"]),
        (None, 67_000)
    );
}

#[test]
fn a_call_without_correlation_launches_nothing() {
    let mut build = Build::new(1);
    build.kernel(0, "k", 7, 0, 10, 0).kernel(0, "k", 7, 40, 50, 0);
    build.call(20, 25, 0);
    let causes = &analyze(&build.recording, &Options::default()).ranks[0].idle_causes;
    assert_eq!((causes.len(), causes["unknown"]), (1, 30));
}

#[test]
fn long_gaps_that_were_launched_in_time_are_other() {
    let mut build = Build::new(1);
    build
        .kernel(0, "k", 7, 0, 10_000, 1)
        .kernel(0, "k", 7, 40_000, 41_000, 2)
        .kernel(0, "k", 7, 70_999, 71_000, 3);
    build.call(1_000, 2_000, 2).call(3_000, 4_000, 3);
    let stream = &analyze(&build.recording, &Options::default()).ranks[0].streams[0];
    assert_eq!((stream.ops, stream.span_ns, stream.busy_ns), (3, 71_000, 11_001));
    // 30 000 is not shorter than 30 us; 29 999 is.
    assert_eq!(
        (
            stream.idle_host_wait_ns,
            stream.idle_kernel_wait_ns,
            stream.idle_other_ns
        ),
        (0, 29_999, 30_000)
    );
    assert_eq!(stream.idle_ns, 59_999);
}

#[test]
fn an_operation_without_length_counts_and_adds_no_time() {
    let mut build = Build::new(1);
    build.kernel(0, "k", 7, 0, 10, 1).kernel(0, "k", 7, 20, 20, 2);
    build.recording.processes[0].tables.memsets.push(Memset {
        start_ns: TimeNs(5),
        duration_ns: DurationNs(10),
        stream: 8,
        ..Memset::default()
    });
    let rank = &analyze(&build.recording, &Options::default()).ranks[0];
    let measures = &rank.measures;
    assert_eq!(
        (
            measures.span_ns,
            measures.busy_ns,
            measures.idle_ns,
            measures.memset_ns
        ),
        (20, 15, 5, 10)
    );
    let k = rank.kernels.iter().find(|kernel| kernel.name == "k");
    assert_eq!(
        k.map(|k| (k.count, k.total_ns, k.durations.min_ns)),
        Some((2, 10, 0))
    );
    assert!(
        rank.kernels
            .iter()
            .any(|kernel| kernel.name == "Memset" && kernel.kind == "memset")
    );
}

#[test]
fn a_step_lasts_until_the_next_of_its_own_thread() {
    let mut build = Build::new(1);
    build.kernel(0, "k", 7, 0, 100, 1);
    build.step(0, 0, 10).step(0, 5, 15).step(1, 50, 60);
    build.recording.processes[0].tables.markers.thread[1] = 2;
    let steps = &analyze(&build.recording, &Options::default()).ranks[0].steps;
    let windows: Vec<_> = steps.iter().map(|step| (step.start_ns, step.end_ns)).collect();
    assert_eq!(
        windows,
        [(0, 50), (5, 15), (50, 60)].map(|(start, end)| (TimeNs(start), TimeNs(end)))
    );
    assert!(steps.iter().all(|step| !step.detected));
}

#[test]
fn a_process_without_the_chosen_steps_is_named() {
    let mut build = Build::new(1);
    build.kernel(0, "k", 7, 0, 100, 1).step(0, 0, 10);
    let options = Options {
        steps: Some((5, 6)),
        ..Options::default()
    };
    let analysis = analyze(&build.recording, &options);
    assert!(analysis.ranks.is_empty());
    assert!(
        analysis
            .notes
            .iter()
            .any(|note| note.contains("none of the chosen steps"))
    );
}

#[test]
fn gathered_bytes_are_those_of_all_ranks() {
    let mut build = Build::new(2);
    build
        .collective(0, 0, 400, 100, 200)
        .collective(1, 0, 400, 120, 200);
    let gather = build.recording.names.intern("AllGather");
    for process in &mut build.recording.processes {
        process.tables.collectives.function[0] = gather;
    }
    let collective = &analyze(&build.recording, &Options::default()).collectives[0];
    assert_eq!(collective.bytes, Some(800));
    // 800 bytes in the 80 ns of transfer; half of them crossed the bus of two ranks.
    assert_eq!((collective.algbw, collective.busbw), (Some(10.0), Some(5.0)));
    assert_eq!(collective.communicator, "0x0000000000000abc");
}

#[test]
fn operations_without_a_sequence_are_matched_by_order() {
    let mut build = Build::new(2);
    for rank in 0..2 {
        let late = rank as i64 * 10;
        build
            .collective(rank, 0, 400, 100 + late, 200)
            .collective(rank, 1, 400, 300, 400 + late);
        build.recording.processes[rank].tables.collectives.sequence = vec![None, None];
    }
    let collectives = analyze(&build.recording, &Options::default()).collectives;
    assert_eq!(collectives.len(), 2);
    assert!(
        collectives
            .iter()
            .all(|collective| collective.matched_by == "order" && collective.sequence.is_none())
    );
    assert_eq!(
        collectives.iter().map(|c| c.skew_ns).collect::<Vec<_>>(),
        [Some(10), Some(0)]
    );
    assert_eq!(
        collectives.iter().map(|c| c.warm_up).collect::<Vec<_>>(),
        [true, false]
    );
}

#[test]
fn a_collective_without_a_kernel_is_counted_and_has_no_times() {
    let mut build = Build::new(2);
    build
        .collective(0, 0, 400, 100, 200)
        .collective(1, 0, 400, 130, 200);
    build.recording.processes[1].tables.collectives.plan[0] = None;
    let analysis = analyze(&build.recording, &Options::default());
    let collective = &analysis.collectives[0];
    assert!(collective.wait_ns.is_empty() && collective.skew_ns.is_none() && collective.algbw.is_none());
    assert!(
        analysis
            .losses
            .iter()
            .any(|loss| loss.what.contains("without a recorded kernel") && loss.count == Some(1))
    );
}

#[test]
fn a_rank_that_is_mostly_last_is_a_finding_with_its_cost() {
    let mut build = Build::new(2);
    // The first is the warm-up; of the six others rank 1 is last in five, by 20 each.
    for sequence in 0..7 {
        let start = sequence as i64 * 100;
        let (first, second) = if sequence == 3 { (20, 0) } else { (0, 20) };
        build
            .collective(0, sequence, 400, start + first, start + 90)
            .collective(1, sequence, 400, start + second, start + 90);
    }
    let analysis = analyze(&build.recording, &Options::default());
    let straggler = analysis
        .findings
        .iter()
        .find(|finding| matches!(finding.facts, Facts::LateRank { .. }))
        .expect("a finding");
    assert_eq!((straggler.rank, straggler.saves_ns), (Some(1), Some(100)));
    assert!(
        matches!(
            straggler.facts,
            Facts::LateRank {
                last_count: 5,
                collectives: 6,
                ..
            }
        ),
        "{:?}",
        straggler.facts
    );
    let saves: Vec<Option<i64>> = analysis.findings.iter().map(|finding| finding.saves_ns).collect();
    assert!(saves.is_sorted_by(|a, b| a >= b));
}
