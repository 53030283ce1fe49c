//! Collectives over ranks: what is matched with what, what is withheld, and what counts once.

use crate::support;

use gputrace_analyzer::{Analysis, Options, analyze};
use support::Build;

const ALL_REDUCE: &str = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)";

fn analysis(build: &Build) -> Analysis {
    analyze(&build.recording, &Options::default())
}

#[track_caller]
fn loses(analysis: &Analysis, what: &str, count: u64) {
    let found = analysis.losses.iter().find(|loss| loss.what.contains(what));
    assert_eq!(
        found.and_then(|loss| loss.count),
        Some(count),
        "{:?}",
        analysis.losses
    );
}

#[test]
fn one_rank_of_eight_has_no_waits() {
    let mut build = Build::new(1);
    build.kernel(0, ALL_REDUCE, 7, 100, 900, 1);
    build.recording.processes[0].header.world_size = Some(8);
    let analysis = analysis(&build);
    let collective = &analysis.collectives[0];
    assert!(collective.wait_ns.is_empty() && collective.transfer_ns.is_empty());
    assert_eq!(
        (collective.communicator_ranks, collective.longest_kernel_ns),
        (None, Some(800))
    );
    loses(&analysis, "unknown size", 1);
}

#[test]
fn all_ranks_of_an_unknown_communicator_are_enough() {
    let mut build = Build::new(2);
    build
        .kernel(0, ALL_REDUCE, 7, 100, 200, 1)
        .kernel(1, ALL_REDUCE, 7, 130, 200, 1);
    build.recording.processes[0].header.world_size = Some(2);
    let analysis = analysis(&build);
    let collective = &analysis.collectives[0];
    assert_eq!(
        (collective.communicator_ranks, collective.skew_ns),
        (Some(2), Some(30))
    );
    assert_eq!(collective.matched_by, "order");
    assert!(
        analysis
            .losses
            .iter()
            .all(|loss| !loss.what.contains("unknown size"))
    );
}

#[test]
fn a_process_without_a_rank_is_not_taken_for_another() {
    let mut build = Build::new(2);
    build
        .kernel(0, ALL_REDUCE, 7, 100, 200, 1)
        .kernel(1, ALL_REDUCE, 7, 120, 200, 1);
    build.recording.processes[0].header.rank = Some(1);
    build.recording.processes[1].header.rank = None;
    let analysis = analysis(&build);
    assert_eq!(analysis.collectives.len(), 1);
    assert_eq!(analysis.collectives[0].ranks, [1]);
    assert!(analysis.arrivals.is_empty());
    loses(&analysis, "say no rank", 1);
}

#[test]
fn each_gpu_of_a_process_takes_part() {
    let mut build = Build::new(2);
    for (rank, device, start) in [(0, 0, 100), (0, 1, 130), (1, 0, 110), (1, 1, 120)] {
        build.kernel(rank, ALL_REDUCE, 7, start, 200, 1 + device);
        let kernels = &mut build.recording.processes[rank].tables.kernels;
        *kernels.device.last_mut().unwrap() = device;
    }
    let analysis = analysis(&build);
    assert_eq!(analysis.collectives.len(), 1);
    let collective = &analysis.collectives[0];
    assert_eq!(
        (collective.communicator_ranks, collective.skew_ns),
        (Some(4), Some(30))
    );
    assert_eq!(collective.ranks, [0, 1]);
    let waits: Vec<(&str, i64)> = collective
        .wait_ns
        .iter()
        .map(|(who, wait)| (who.as_str(), *wait))
        .collect();
    assert_eq!(waits, [("0.0", 30), ("0.1", 0), ("1.0", 20), ("1.1", 10)]);
    let last: Vec<(u32, u32, usize)> = analysis
        .arrivals
        .iter()
        .map(|arrival| (arrival.rank, arrival.device_index, arrival.last_count))
        .collect();
    assert_eq!(last, [(0, 0, 0), (0, 1, 1), (1, 0, 0), (1, 1, 0)]);
}

#[test]
fn operations_in_one_kernel_count_its_time_once() {
    let mut build = Build::new(2);
    for rank in 0..2 {
        let late = rank as i64 * 10;
        for sequence in 0..4 {
            build.collective(rank, sequence, 400, 100 + late, 200);
        }
        // The warm-up alone, and three in one kernel.
        let tables = &mut build.recording.processes[rank].tables;
        tables.collectives.plan = vec![Some(1), Some(2), Some(2), Some(2)];
        tables.kernels = Default::default();
        build.kernel(rank, "a_kernel_of_any_name", 9, 100 + late, 200, 1000);
        build.kernel(rank, "a_kernel_of_any_name", 9, 300 + late, 400, 1001);
        for enqueued in 1..4 {
            build.recording.processes[rank].tables.collectives.start_ns[enqueued].0 = 300 + enqueued as i64;
        }
    }
    let analysis = analysis(&build);
    assert_eq!(analysis.collectives.len(), 4);
    assert_eq!(
        analysis
            .collectives
            .iter()
            .map(|one| one.warm_up)
            .collect::<Vec<_>>(),
        [true, false, false, false]
    );
    let first = &analysis.arrivals[0];
    assert_eq!((first.collectives, first.wait_ns), (1, 10));
    let communication = &analysis.ranks[0].communication[0];
    assert_eq!(
        (communication.count, communication.total_ns, communication.time_ns),
        (4, 200, 200)
    );
}

#[test]
fn all_of_a_first_kernel_is_warm_up() {
    let mut build = Build::new(2);
    for rank in 0..2 {
        build
            .collective(rank, 0, 400, 100, 200)
            .collective(rank, 1, 400, 100, 200);
        build.recording.processes[rank].tables.collectives.plan = vec![Some(1), Some(1)];
    }
    assert!(
        analysis(&build)
            .collectives
            .iter()
            .all(|collective| collective.warm_up)
    );
}

#[test]
fn kernels_beside_those_that_nccl_told_of_are_shown_and_counted() {
    let mut build = Build::new(2);
    for rank in 0..2 {
        build.collective(rank, 0, 400, 100, 200);
        build.kernel(rank, ALL_REDUCE, 9, 300, 350, 77);
        build.kernel(
            rank,
            "void deep_ep::intranode::dispatch<2, 768, 8192>(int)",
            9,
            400,
            440,
            78,
        );
    }
    let analysis = analysis(&build);
    loses(&analysis, "tied to", 2);
    let communication = &analysis.ranks[0].communication;
    let total: i64 = communication.iter().map(|one| one.total_ns).sum();
    assert_eq!(total, 190, "{communication:?}");
    // NCCL's own kernel is matched with nothing; the other library's is.
    assert_eq!(analysis.collectives.len(), 2);
    assert_eq!(analysis.collectives[1].matched_by, "order");
}

#[test]
fn a_root_that_leaves_early_waits_no_longer_than_its_kernel() {
    let mut build = Build::new(2);
    for (sequence, start) in [(0, 1000), (1, 0)] {
        build
            .collective(0, sequence, 400, start + 10, start + 20)
            .collective(1, sequence, 400, start + 60, start + 70);
    }
    let broadcast = build.recording.names.intern("Broadcast");
    for process in &mut build.recording.processes {
        process.tables.collectives.function = vec![broadcast; 2];
    }
    let analysis = analysis(&build);
    for collective in &analysis.collectives {
        assert_eq!((collective.wait_ns["0"], collective.transfer_ns["0"]), (10, 0));
        assert_eq!((collective.wait_ns["1"], collective.transfer_ns["1"]), (0, 10));
    }
    assert!(analysis.arrivals.is_empty(), "a root waits for nobody");
}

#[test]
fn bytes_that_nobody_says_are_null() {
    let mut build = Build::new(2);
    build.collective(0, 0, 0, 100, 200).collective(1, 0, 0, 130, 200);
    let analysis = analysis(&build);
    let collective = &analysis.collectives[0];
    assert_eq!(
        (collective.bytes, collective.algbw, collective.busbw),
        (None, None, None)
    );
    assert_eq!(analysis.ranks[0].communication[0].bytes, None);
}

#[test]
fn gather_and_scatter_count_as_nccl_tests_count_them() {
    for name in ["Gather", "Scatter"] {
        let mut build = Build::new(2);
        build
            .collective(0, 0, 400, 100, 200)
            .collective(1, 0, 400, 120, 200);
        let function = build.recording.names.intern(name);
        for process in &mut build.recording.processes {
            process.tables.collectives.function[0] = function;
        }
        let collective = &analysis(&build).collectives[0];
        // 800 bytes in 80 ns; half of them crossed the bus.
        assert_eq!(
            (collective.bytes, collective.algbw, collective.busbw),
            (Some(800), Some(10.0), Some(5.0))
        );
    }
}

#[test]
fn ranks_on_two_hosts_have_no_idle_time_before_and_after() {
    let mut build = Build::new(2);
    build
        .kernel(0, "gemm", 7, 0, 50, 1)
        .kernel(1, "gemm", 7, 10, 60, 1);
    build.recording.processes[1].header.host = "other".to_owned();
    let analysis = analysis(&build);
    assert!(analysis.clock.contains("not aligned"), "{}", analysis.clock);
    for rank in &analysis.ranks {
        assert_eq!((rank.idle_before_ns, rank.idle_after_ns), (None, None));
    }
}
