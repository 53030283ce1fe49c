//! What the analysis makes of recordings whose hosts' clocks differ.

use crate::support;

use gputrace_analyzer::{Analysis, ClockChoice, GivenClocks, Options, align, analyze};
use gputrace_trace::tables::{Clock, Communicator, Communicators};
use gputrace_trace::{Table, TimeNs};
use support::Build;

const ALL_REDUCE: &str = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)";
const ALL_GATHER: &str = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)";

/// Two ranks on each of two hosts, 40 collectives 1 ms apart. Rank 3 arrives last, 60 us after the others; the second host's
/// clock is `ahead` of the first's, and drifts.
fn two_hosts(ahead: i64, drift_ppm: i64) -> Build {
    let mut build = Build::new(4);
    for rank in 0..4 {
        let header = &mut build.recording.processes[rank].header;
        header.world_size = Some(4);
        header.host = if rank < 2 { "node-a" } else { "node-b" }.to_owned();
    }
    for number in 0..40i64 {
        for rank in 0..4usize {
            let stamp = |time: i64| {
                let time = 50_000_000 + number * 1_000_000 + time;
                if rank < 2 {
                    time
                } else {
                    time + ahead + time * drift_ppm / 1_000_000
                }
            };
            let late = [0, 7_000, 3_000, 60_000][rank];
            // Ends scatter by some hundred nanoseconds.
            let end = 200_000 + (number * 7 + rank as i64 * 13) % 10 * 40;
            let name = if number % 2 == 0 { ALL_REDUCE } else { ALL_GATHER };
            build.kernel(rank, name, 7, stamp(late), stamp(end), number as u32 + 1);
            build.kernel(
                rank,
                "gemm",
                7,
                stamp(400_000),
                stamp(900_000),
                number as u32 + 1001,
            );
        }
    }
    build
}

fn aligned(build: &Build, choice: &ClockChoice) -> Analysis {
    let mut recording = build.recording.clone();
    align(&mut recording, choice).expect("aligns");
    analyze(&recording, &Options::default())
}

#[test]
fn clocks_that_are_wrong_give_what_clocks_that_are_right_give() {
    let mut right = two_hosts(0, 0);
    for process in &mut right.recording.processes {
        process.header.host = "node".to_owned();
    }
    let right = analyze(&right.recording, &Options::default());
    for (ahead, drift) in [(0, 0), (3_500_000, 50), (-900_000_000, -100)] {
        let wrong = two_hosts(ahead, drift);
        let withheld = analyze(&wrong.recording, &Options::default());
        assert!(withheld.arrivals.is_empty() && withheld.clocks[1].offset_ns.is_none());
        let found = aligned(&wrong, &ClockChoice::Estimate);
        let clock = &found.clocks[1];
        assert_eq!(
            (found.clocks.len(), clock.reference, clock.host.as_str()),
            (2, 0, "node-b")
        );
        assert_eq!((clock.ranks.as_slice(), clock.collectives), (&[2, 3][..], 40));
        let at = clock.at_ns.expect("a moment").0;
        let truth = ahead + (at - ahead) * drift / 1_000_000;
        let off = (clock.offset_ns.expect("an offset") - truth).abs();
        let width = clock.half_width_ns.expect("a width");
        assert!(off <= width && width < 7_000, "{off} {width}");
        assert!(clock.hard_low_ns.unwrap() <= truth && truth <= clock.hard_high_ns.unwrap());
        assert!(
            (clock.drift.unwrap() * 1e6 - drift as f64).abs() < 20.0,
            "{clock:?}"
        );
        assert_eq!(found.collectives.len(), right.collectives.len());
        for (found, right) in found.collectives.iter().zip(&right.collectives) {
            let error = found.clock_error_ns.expect("compared");
            assert!(error > 0 && error < 10_000);
            assert_eq!(found.last_rank, right.last_rank);
            for (rank, wait) in &right.wait_ns {
                assert!(
                    (found.wait_ns[rank] - wait).abs() <= error,
                    "{rank}: {wait} {} {error}",
                    found.wait_ns[rank]
                );
                assert!((found.transfer_ns[rank] - right.transfer_ns[rank]).abs() <= error);
            }
            assert!((found.skew_ns.unwrap() - right.skew_ns.unwrap()).abs() <= error);
        }
        assert_eq!(found.arrivals[3].last_count, right.arrivals[3].last_count);
        let (a, b) = (&found.arrivals[0], &right.arrivals[0]);
        assert!((a.wait_ns - b.wait_ns).abs() <= a.clock_error_ns);
        assert!(found.clock.contains("2 clocks compared"), "{}", found.clock);
    }
}

#[test]
fn who_was_last_is_not_said_where_clocks_cannot_decide_it() {
    let build = two_hosts(1_000_000, 0);
    let given = r#"{"node-a": {"offset_ns": 0}, "node-b": {"offset_ns": 1000000, "half_width_ns": 80000}}"#;
    let given = ClockChoice::Given(GivenClocks::parse(given, "clocks.json").expect("clocks"));
    let found = aligned(&build, &given);
    let one = &found.collectives[4];
    assert_eq!(
        (one.last_rank, one.last_rank_cost_ns, one.clock_error_ns),
        (None, None, Some(80_000))
    );
    let undecided = one.last_undecided.expect("undecided");
    assert_eq!(
        (undecided.rank, undecided.margin_ns, undecided.clock_error_ns),
        (3, 53_000, 80_000)
    );
    assert_eq!(
        (found.arrivals[3].last_count, found.arrivals[3].undecided_count),
        (0, 40)
    );
    // Right within less than the margin it is decided, and the numbers are the true ones.
    let given = r#"{"node-a": {"offset_ns": 0}, "node-b": {"offset_ns": 1000000, "half_width_ns": 50000}}"#;
    let given = ClockChoice::Given(GivenClocks::parse(given, "clocks.json").expect("clocks"));
    let found = aligned(&build, &given);
    let one = &found.collectives[4];
    assert_eq!(
        (one.last_rank, one.last_rank_cost_ns, one.skew_ns),
        (Some(3), Some(53_000), Some(60_000))
    );
    assert_eq!(one.wait_ns["0"], 60_000);
}

#[test]
fn clocks_are_given_for_hosts_that_are_there() {
    let given = GivenClocks::parse(r#"{"node-x": {"offset_ns": 0}}"#, "clocks.json").expect("clocks");
    let mut recording = two_hosts(0, 0).recording;
    let error = align(&mut recording, &ClockChoice::Given(given)).expect_err("no such host");
    assert!(
        error.contains("clocks.json") && error.contains("node-x") && error.contains("node-a, node-b"),
        "{error}"
    );
    let found = aligned(&two_hosts(0, 0), &ClockChoice::None);
    assert!(
        found.arrivals.is_empty() && found.clock.contains("not aligned"),
        "{}",
        found.clock
    );
}

#[test]
fn where_no_host_is_named_ends_say_that_clocks_differ() {
    let mut build = two_hosts(700_000, 0);
    build.recording.manifest.device = "imported".to_owned();
    for process in &mut build.recording.processes {
        process.header.host = String::new();
    }
    let found = aligned(&build, &ClockChoice::Estimate);
    let ranks: Vec<&[u32]> = found.clocks.iter().map(|clock| clock.ranks.as_slice()).collect();
    assert_eq!(ranks, [&[0, 1][..], &[2, 3]]);
    assert_eq!(found.arrivals[3].last_count, 40);
    // And that they do not.
    let mut build = two_hosts(0, 0);
    build.recording.manifest.device = "imported".to_owned();
    for process in &mut build.recording.processes {
        process.header.host = String::new();
    }
    let found = aligned(&build, &ClockChoice::Estimate);
    assert_eq!((found.clocks.len(), found.clocks[0].half_width_ns), (1, None));
    assert_eq!(found.collectives[4].clock_error_ns, Some(0));
    assert!(found.clock.contains("one clock is assumed"), "{}", found.clock);
}

#[test]
fn hosts_of_one_name_are_told_apart_in_several_recordings() {
    for is_merged in [true, false] {
        let mut build = two_hosts(40_000_000, 0);
        if is_merged {
            build.recording.manifest.merged = vec!["1".to_owned()];
        }
        for (rank, process) in build.recording.processes.iter_mut().enumerate() {
            process.header.host = "localhost".to_owned();
            if !is_merged {
                process.header.recording = (rank / 2).to_string();
            }
        }
        let found = aligned(&build, &ClockChoice::Estimate);
        let hosts: Vec<(&str, usize)> = found
            .clocks
            .iter()
            .map(|clock| (clock.host.as_str(), clock.reference))
            .collect();
        assert_eq!(hosts, [("localhost", 0), ("localhost", 0)], "{is_merged}");
    }
}

/// Parts of a job from before and after a reboot, which have nothing in common.
#[test]
fn before_and_after_a_reboot_nothing_is_compared() {
    let mut build = Build::new(2);
    for rank in 0..2usize {
        for number in 0..10i64 {
            let start = 1_000_000 * number;
            build.kernel(rank, "gemm", 7, start, start + 500_000, number as u32);
        }
        let process = &mut build.recording.processes[rank];
        process.header.host = "node".to_owned();
        process.tables.clocks.push(Clock {
            realtime_ns: TimeNs(1_700_000_000_000_000_000),
            boottime_ns: [90_000_000_000_000, 400_000_000_000][rank],
            ..Clock::default()
        });
    }
    build.recording.manifest.merged = vec!["1".to_owned()];
    let found = aligned(&build, &ClockChoice::Estimate);
    assert_eq!(found.clocks.len(), 2, "{}", found.clock);
    assert!(found.clock.contains("share no collective"), "{}", found.clock);
    // Of one boot it is one clock.
    build.recording.processes[1].tables.clocks.boottime_ns[0] = 90_000_000_000_000;
    assert_eq!(aligned(&build, &ClockChoice::Estimate).clocks.len(), 1);
}

#[test]
fn islands_are_said_and_compared_within() {
    // Ranks 0 and 1, and 2 and 3, on four hosts: each pair has a communicator of its own.
    let mut build = Build::new(4);
    for number in 0..30u64 {
        for rank in 0..4usize {
            let ahead = [0, 3_000_000, 70_000_000, 1_000_000][rank];
            let at = 1_000_000 * number as i64 + ahead;
            let end = at + 100_000 + (number as i64 * 7 + rank as i64) % 5 * 60;
            build.collective(rank, number, 1024 << (number % 3), at + 9_000 * rank as i64, end);
        }
    }
    for (rank, process) in build.recording.processes.iter_mut().enumerate() {
        process.header.host = format!("node-{rank}");
        process.header.world_size = Some(4);
        let own = 100 + rank as u64 / 2;
        process.tables.collectives.communicator.fill(own);
        process.tables.collectives.rank.fill(rank as u32 % 2);
        process.tables.communicators.communicator.fill(own);
    }
    let found = aligned(&build, &ClockChoice::Estimate);
    let references: Vec<usize> = found.clocks.iter().map(|clock| clock.reference).collect();
    assert_eq!(references, [0, 0, 2, 2]);
    let said = "nothing is compared between (node-0, node-1) and (node-2, node-3)";
    assert!(found.clock.contains(said), "{}", found.clock);
    assert_eq!(found.collectives.len(), 60);
    for collective in &found.collectives {
        assert!(
            (collective.skew_ns.expect("compared") - 9_000).abs()
                <= collective.clock_error_ns.expect("compared")
        );
    }
    assert!(found.ranks.iter().all(|rank| rank.idle_before_ns.is_none()));
    // Without any in common nothing is.
    for (rank, process) in build.recording.processes.iter_mut().enumerate() {
        process.tables.collectives.communicator.fill(rank as u64);
        process.tables.communicators.communicator.fill(rank as u64);
    }
    let found = aligned(&build, &ClockChoice::Estimate);
    assert!(found.clock.contains("share no collective"), "{}", found.clock);
    assert!(
        found
            .clocks
            .iter()
            .all(|clock| clock.offset_ns.is_none() && clock.source.contains("no collective"))
    );
}

/// Three hosts of which the first and the last never meet: ranks 0 and 1 take even turns, ranks 1 and 2 odd ones.
#[test]
fn a_chain_of_hosts_is_compared_link_by_link() {
    let mut build = Build::new(3);
    let ahead = [0, 3_000_000, -70_000_000];
    for number in 0..80u64 {
        let ranks = if number % 2 == 0 { [0, 1] } else { [1, 2] };
        for rank in ranks {
            let at = 1_000_000 * number as i64 + ahead[rank];
            let end = at + 100_000 + (number as i64 * 7 + rank as i64) % 5 * 60;
            let arrives = at + 9_000 * (rank as i64 - ranks[0] as i64);
            build.collective(rank, number, 1024 << (number / 2 % 3), arrives, end);
        }
    }
    for (rank, process) in build.recording.processes.iter_mut().enumerate() {
        process.header.host = format!("node-{rank}");
        process.header.world_size = Some(3);
        let tables = &mut process.tables;
        tables.communicators = Communicators::default();
        for (communicator, first) in [(0xa, 0), (0xb, 1)] {
            if let Some(own) = rank.checked_sub(first).filter(|own| *own < 2) {
                tables.communicators.push(Communicator {
                    communicator,
                    rank: own as u32,
                    ranks: 2,
                    ..Communicator::default()
                });
            }
        }
        let rows = &mut tables.collectives;
        for row in 0..rows.start_ns.len() {
            let first = if rank == 1 { row % 2 } else { rank / 2 };
            rows.communicator[row] = 0xa + first as u64;
            rows.rank[row] = (rank - first) as u32;
            rows.sequence[row] = rows.sequence[row].map(|number| number / 2);
        }
    }
    let found = aligned(&build, &ClockChoice::Estimate);
    let references: Vec<usize> = found.clocks.iter().map(|clock| clock.reference).collect();
    assert_eq!(references, [0, 0, 0], "{}", found.clock);
    for (clock, truth) in found.clocks.iter().zip(ahead) {
        let (offset, width) = (
            clock.offset_ns.expect("an offset"),
            clock.half_width_ns.expect("a width"),
        );
        assert!((offset - truth).abs() <= width, "{clock:?}");
    }
    let widths: Vec<Option<i64>> = found.clocks.iter().map(|clock| clock.half_width_ns).collect();
    assert!(widths.is_sorted() && widths[0] == Some(0), "{widths:?}");
    assert_eq!(found.collectives.len(), 80);
    for collective in &found.collectives {
        let error = collective.clock_error_ns.expect("compared");
        assert!(
            (collective.skew_ns.expect("compared") - 9_000).abs() <= error,
            "{collective:?}"
        );
    }
}

/// Half of the last rank's collectives are not there. NCCL counts them, so that the others are found all the same.
#[test]
fn a_rank_that_lacks_half_of_its_collectives_misleads_nobody() {
    let mut build = Build::new(4);
    let ahead = 3_500_000;
    for number in 0..40u64 {
        for rank in 0..4usize {
            let at = 1_000_000 * number as i64 + if rank < 2 { 0 } else { ahead };
            let end = at + 100_000 + (number as i64 * 7 + rank as i64) % 5 * 60;
            if rank < 3 || number % 4 < 2 {
                let arrives = at + [0, 2_000, 1_000, 9_000][rank];
                build.collective(rank, number, 1024 << (number % 3), arrives, end);
            }
        }
    }
    for (rank, process) in build.recording.processes.iter_mut().enumerate() {
        process.header.host = format!("node-{}", rank / 2);
        process.header.world_size = Some(4);
        process.tables.communicators.ranks.fill(4);
        process.tables.collectives.rank.fill(rank as u32);
    }
    let found = aligned(&build, &ClockChoice::Estimate);
    let clock = &found.clocks[1];
    let off = (clock.offset_ns.expect("an offset") - ahead).abs();
    assert!(off <= clock.half_width_ns.expect("a width"), "{off} {clock:?}");
    assert!(clock.collectives >= 20 && clock.contradicted == 0, "{clock:?}");
    for collective in &found.collectives {
        let Some(skew) = collective.skew_ns else { continue };
        let error = collective.clock_error_ns.expect("compared");
        assert!((skew - 9_000).abs() <= error, "{collective:?}");
    }
    assert!(
        found
            .collectives
            .iter()
            .any(|collective| collective.skew_ns.is_some())
    );
}

#[test]
fn stamps_are_moved_and_durations_stretched() {
    let mut recording = two_hosts(5_000_000, 0).recording;
    let before = recording.processes[2].tables.kernels.clone();
    let given = r#"{"node-a": {"offset_ns": 0}, "node-b": {"offset_ns": 5000000, "drift": 1e-3}}"#;
    let given = ClockChoice::Given(GivenClocks::parse(given, "clocks.json").expect("clocks"));
    align(&mut recording, &given).expect("aligns");
    let after = &recording.processes[2].tables.kernels;
    // At its first stamp the offset is what was given; 1 ms later it is 1 us more, and 500 us last 499.5.
    assert_eq!(after.start_ns[0], TimeNs(before.start_ns[0].0 - 5_000_000));
    let later = before.start_ns[2].0 - before.start_ns[0].0;
    assert_eq!(
        after.start_ns[2].0,
        before.start_ns[2].0 - 5_000_000 - later / 1000
    );
    assert_eq!(
        (before.duration_ns[1].0, after.duration_ns[1].0),
        (500_000, 499_500)
    );
    assert_eq!(
        recording.processes[0].tables.kernels,
        two_hosts(5_000_000, 0).recording.processes[0].tables.kernels
    );
    // Once.
    let moved = recording.clone();
    align(&mut recording, &given).expect("aligns");
    assert_eq!(recording.processes, moved.processes);
}
