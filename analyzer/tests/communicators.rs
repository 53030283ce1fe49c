//! Several communicators on a rank, and what ranks send each other, computed by hand.

use crate::support;

use gputrace_analyzer::{Analysis, CommunicatorAnalysis, Options, analyze};
use support::Build;

const WORLD: u64 = 0x10;
/// Ranks 0 and 2.
const EVEN: u64 = 0x20;
/// Ranks 3 and 1, in this order.
const ODD: u64 = 0x30;

/// Four ranks in a communicator of all and one of two each; in `ODD` the job's rank 3 is rank 0.
fn mesh() -> Build {
    let mut build = Build::new(4);
    for rank in 0..4 {
        build.member(rank, WORLD, "world", rank as u32, 4);
    }
    build
        .member(0, EVEN, "data parallel", 0, 2)
        .member(2, EVEN, "data parallel", 1, 2)
        .member(3, ODD, "data parallel", 0, 2)
        .member(1, ODD, "data parallel", 1, 2);
    build
}

fn analysis(build: &Build) -> Analysis {
    analyze(&build.recording, &Options::default())
}

/// These recordings have no launch calls, which is said; of collectives nothing is missing.
#[track_caller]
fn all_is_matched(analysis: &Analysis) {
    let losses = analysis.losses.iter().map(|loss| loss.what.as_str());
    let others: Vec<&str> = losses.filter(|what| !what.contains("launch call")).collect();
    assert!(others.is_empty(), "{others:?}");
}

fn communicator(analysis: &Analysis, hash: u64) -> &CommunicatorAnalysis {
    let text = format!("{hash:#018x}");
    let found = analysis.communicators.iter().find(|one| one.communicator == text);
    found.unwrap_or_else(|| panic!("{text} among {:?}", analysis.communicators))
}

fn times(of: &std::collections::BTreeMap<String, i64>) -> Vec<(&str, i64)> {
    of.iter().map(|(rank, time)| (rank.as_str(), *time)).collect()
}

#[test]
fn collectives_of_communicators_match_among_their_members_alone() {
    let mut build = mesh();
    // All have number 0 and the same name; the two small ones run at other times than the large one.
    for (rank, start) in [(0, 100), (1, 110), (2, 120), (3, 140)] {
        build
            .carrier(rank, 1, start, 200)
            .carried(rank, 1, WORLD, "AllReduce", Err(0), 800);
    }
    for (rank, communicator, start, end) in [
        (0, EVEN, 300, 400),
        (2, EVEN, 330, 400),
        (3, ODD, 520, 600),
        (1, ODD, 500, 600),
    ] {
        build
            .carrier(rank, 2, start, end)
            .carried(rank, 2, communicator, "AllReduce", Err(0), 400);
    }
    let analysis = analysis(&build);
    all_is_matched(&analysis);
    assert_eq!(analysis.collectives.len(), 3);
    let of = |hash: u64| {
        let text = format!("{hash:#018x}");
        let mut found = analysis.collectives.iter().filter(|one| one.communicator == text);
        let one = found.next().expect("one on the communicator");
        assert!(found.next().is_none());
        one
    };
    let world = of(WORLD);
    assert_eq!((world.communicator_ranks, world.skew_ns), (Some(4), Some(40)));
    assert_eq!(times(&world.wait_ns), [("0", 40), ("1", 30), ("2", 20), ("3", 0)]);
    let even = of(EVEN);
    assert_eq!(even.ranks, [0, 2]);
    assert_eq!(times(&even.wait_ns), [("0", 30), ("2", 0)]);
    assert_eq!(times(&even.transfer_ns), [("0", 70), ("2", 70)]);
    // Ranks are the job's: the last to come was 3, which is 0 in the communicator.
    let odd = of(ODD);
    assert_eq!((odd.last_rank, odd.skew_ns), (Some(3), Some(20)));
    assert_eq!(times(&odd.wait_ns), [("1", 20), ("3", 0)]);
    assert_eq!(odd.algbw, Some(400.0 / 80.0));
}

#[test]
fn communicators_have_their_members_and_what_they_cost() {
    let mut build = mesh();
    for rank in 0..4 {
        build
            .carrier(rank, 1, 100, 200)
            .carried(rank, 1, WORLD, "AllReduce", Err(0), 800);
    }
    for (rank, start) in [(3, 300), (1, 340)] {
        // Two kernels that overlap by 10, and compute under the last 40.
        build
            .carrier(rank, 2, start, 400)
            .carried(rank, 2, ODD, "AllReduce", Err(0), 100)
            .carrier(rank, 3, 390, 450)
            .carried(rank, 3, ODD, "AllGather", Err(0), 10)
            .kernel(rank, "gemm", 7, 410, 500, 1);
    }
    let analysis = analysis(&build);
    let odd = communicator(&analysis, ODD);
    assert_eq!(odd.communicator_name.as_deref(), Some("data parallel"));
    assert_eq!((odd.communicator_ranks, odd.operations), (Some(2), 2));
    // In the order of their ranks in it.
    assert_eq!(odd.ranks, [3, 1]);
    // AllGather counts what all ranks gather: 20.
    assert_eq!(odd.bytes, Some(120));
    assert_eq!(times(&odd.time_ns), [("1", 110), ("3", 150)]);
    assert_eq!(times(&odd.exposed_ns), [("1", 70), ("3", 110)]);
    let world = communicator(&analysis, WORLD);
    assert_eq!((world.operations, world.bytes), (1, Some(800)));
    assert_eq!(
        times(&world.exposed_ns),
        ["0", "1", "2", "3"].map(|rank| (rank, 100))
    );
    // One that nothing ran on is there all the same.
    let even = communicator(&analysis, EVEN);
    assert_eq!(
        (even.operations, even.bytes, even.ranks.as_slice()),
        (0, None, &[0, 2][..])
    );
    assert!(even.time_ns.is_empty());
    // Most exposed first.
    assert_eq!(analysis.communicators[0], *odd);
    assert_eq!(odd.most_exposed(), Some(("3", 110)));
}

#[test]
fn gpus_of_one_process_are_told_apart_in_their_communicator() {
    let mut build = Build::new(1);
    build
        .member(0, WORLD, "world", 0, 2)
        .carrier(0, 1, 100, 200)
        .carried(0, 1, WORLD, "AllReduce", Err(0), 8)
        .member(0, WORLD, "world", 1, 2)
        .carrier(0, 2, 130, 200)
        .carried(0, 2, WORLD, "AllReduce", Err(0), 8);
    let tables = &mut build.recording.processes[0].tables;
    tables.collectives.rank = vec![0, 1];
    tables.kernels.device = vec![0, 1];
    let analysis = analysis(&build);
    assert_eq!(analysis.collectives[0].skew_ns, Some(30));
    let world = communicator(&analysis, WORLD);
    assert_eq!((world.ranks.as_slice(), world.operations), (&[0][..], 1));
    assert_eq!(times(&world.time_ns), [("0.0", 100), ("0.1", 70)]);
}

#[test]
fn the_nth_send_meets_the_nth_receive() {
    let mut build = mesh();
    // The job's rank 3 (0 there) sends twice to rank 1 (1 there), which sends once in between.
    build
        .carrier(3, 1, 100, 200)
        .carried(3, 1, ODD, "Send", Ok(1), 1000)
        .carrier(1, 1, 160, 200)
        .carried(1, 1, ODD, "Recv", Ok(0), 1000)
        .carrier(3, 2, 300, 420)
        .carried(3, 2, ODD, "Recv", Ok(1), 70)
        .carrier(1, 2, 350, 420)
        .carried(1, 2, ODD, "Send", Ok(0), 70)
        .carrier(3, 3, 530, 560)
        .carried(3, 3, ODD, "Send", Ok(1), 500)
        .carrier(1, 3, 500, 560)
        .carried(1, 3, ODD, "Recv", Ok(0), 500);
    let analysis = analysis(&build);
    let transfers: Vec<_> = analysis
        .collectives
        .iter()
        .map(|one| (one.name.as_str(), one.sender, one.receiver, one.bytes, one.algbw))
        .collect();
    assert_eq!(
        transfers,
        [
            ("SendRecv", Some(3), Some(1), Some(1000), Some(25.0)),
            ("SendRecv", Some(1), Some(3), Some(70), Some(1.0)),
            ("SendRecv", Some(3), Some(1), Some(500), Some(500.0 / 30.0)),
        ]
    );
    assert_eq!(times(&analysis.collectives[0].wait_ns), [("1", 0), ("3", 60)]);
    assert_eq!(
        times(&analysis.collectives[0].transfer_ns),
        [("1", 40), ("3", 40)]
    );
    assert!(
        analysis.arrivals.is_empty(),
        "who sends waits for one, not for all"
    );
    let pairs = &analysis.transfers;
    assert_eq!(pairs.len(), 2);
    let there = &pairs[0];
    assert_eq!((there.sender, there.receiver), (Some(3), Some(1)));
    assert_eq!((there.count, there.shared, there.timed), (2, 0, 2));
    assert_eq!((there.bytes, there.bandwidth), (Some(1500), Some(1500.0 / 70.0)));
    assert_eq!(
        (there.sender_wait_ns, there.receiver_wait_ns, there.transfer_ns),
        (60, 30, 70)
    );
    let back = &pairs[1];
    assert_eq!((back.sender, back.receiver), (Some(1), Some(3)));
    assert_eq!(
        (back.sender_wait_ns, back.receiver_wait_ns, back.transfer_ns),
        (0, 50, 70)
    );
}

#[test]
fn a_group_of_sends_and_receives_is_matched_by_pair() {
    // An all-to-all of ranks 0 and 2: each sends to both, itself too.
    let mut build = mesh();
    for (process, start) in [(0, 100), (2, 140)] {
        build.carrier(process, 1, start, 240);
        for peer in 0..2 {
            build.carried(process, 1, EVEN, "Send", Ok(peer), 60).carried(
                process,
                1,
                EVEN,
                "Recv",
                Ok(peer),
                60,
            );
        }
    }
    let analysis = analysis(&build);
    all_is_matched(&analysis);
    assert_eq!(analysis.collectives.len(), 4);
    for one in &analysis.collectives {
        assert_eq!(
            (one.name.as_str(), one.shared_kernel, one.algbw),
            ("SendRecv", 4, None)
        );
        let own = one.sender == one.receiver;
        assert_eq!(one.communicator_ranks, Some(if own { 1 } else { 2 }));
        assert_eq!(one.skew_ns, (!own).then_some(40));
        assert_eq!(one.wait_ns.values().sum::<i64>(), if own { 0 } else { 40 });
    }
    let pairs: Vec<_> = analysis
        .transfers
        .iter()
        .map(|pair| {
            (
                pair.sender,
                pair.receiver,
                pair.shared,
                pair.transfer_ns,
                pair.bandwidth,
            )
        })
        .collect();
    let pair = |sender, receiver, time| (Some(sender), Some(receiver), 1, time, Some(60.0 / time as f64));
    assert_eq!(
        pairs,
        [pair(0, 0, 140), pair(0, 2, 100), pair(2, 0, 100), pair(2, 2, 100)]
    );
    assert_eq!(
        (
            analysis.transfers[1].sender_wait_ns,
            analysis.transfers[2].receiver_wait_ns
        ),
        (40, 40)
    );
    assert!(
        analysis.collective_sizes.is_empty(),
        "no size of what shares a kernel"
    );
    let even = communicator(&analysis, EVEN);
    assert_eq!((even.operations, even.bytes), (4, Some(240)));
    assert_eq!(times(&even.time_ns), [("0", 140), ("2", 100)]);
}

#[test]
fn a_send_that_nobody_recorded_receiving_has_no_times() {
    let mut build = mesh();
    build
        .carrier(0, 1, 100, 200)
        .carried(0, 1, EVEN, "Send", Ok(1), 60);
    let analysis = analysis(&build);
    let one = &analysis.collectives[0];
    assert_eq!((one.sender, one.receiver, one.skew_ns), (Some(0), None, None));
    let pair = &analysis.transfers[0];
    assert_eq!(
        (pair.count, pair.timed, pair.bytes, pair.bandwidth),
        (1, 0, Some(60), None)
    );
}
