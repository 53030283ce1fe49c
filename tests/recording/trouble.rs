//! Trouble on purpose is where it was asked for, by the truth log: what the workloads do, and what the stand-in slows.

use crate::common;

use std::collections::BTreeMap;

use common::{TrueOperation, expect_status, fresh_folder, record_workload, truth_of_rank};
use gputrace_trace::Recording;

/// What really happened on each rank.
fn truths(settings: &[(&str, &str)], workload: &str, ranks: u32) -> Vec<BTreeMap<u64, TrueOperation>> {
    common::schedule::alone();
    let (_keep, folder) = fresh_folder("recording");
    let truth = folder.with_file_name("truth");
    expect_status(
        &mut record_workload(&folder, &truth, settings, workload.split(' ')),
        0,
    );
    (0..ranks).map(|rank| truth_of_rank(&truth, rank)).collect()
}

const SMALL: &str = "--sizes 64,64 --batch 64 --steps 12";

/// How often nothing happened on the device for so long.
fn pauses(operations: &BTreeMap<u64, TrueOperation>, at_least_ms: i64) -> usize {
    let mut spans: Vec<(i64, i64)> = operations
        .values()
        .map(|one| (one.start_ns, one.end_ns))
        .collect();
    spans.sort_unstable();
    let mut end = i64::MAX;
    let mut count = 0;
    for (start, its_end) in spans {
        count += usize::from(start.saturating_sub(end) >= at_least_ms * 1_000_000);
        end = if end == i64::MAX {
            its_end
        } else {
            end.max(its_end)
        };
    }
    count
}

#[test]
fn delays_are_where_they_were_asked_for() {
    for (delay, expected) in [
        ("step:0:100:4", 3),
        ("step:all:100", 12),
        ("start:0:200", 1),
        ("step:0:100:4 --delay start:all:200", 4),
    ] {
        let truth = truths(&[], &format!("single {SMALL} --delay {delay}"), 1);
        assert_eq!(pauses(&truth[0], 90), expected, "{delay}");
    }
    let truth = truths(
        &[],
        &format!("single {SMALL} --loader-workers 0 --delay loader:0:100:3"),
        1,
    );
    assert_eq!(pauses(&truth[0], 90), 4);
}

#[test]
fn only_the_kernels_that_are_named_are_slow_and_only_there() {
    let slow = [("SLOW", "kernel:*gemm*@1=3,kernel:mse_loss=2")];
    let workload = format!("ddp {SMALL}");
    let (clean, slow) = (truths(&[], &workload, 2), truths(&slow, &workload, 2));
    // Median times: one that is stretched says nothing.
    let median = |operations: &BTreeMap<u64, TrueOperation>, name: &str| {
        let named = operations.values().filter(|one| one.name.contains(name));
        let mut times: Vec<i64> = named.map(|one| one.end_ns - one.start_ns).collect();
        times.sort_unstable();
        times[times.len() / 2] as f64
    };
    for (rank, name, factor) in [
        (0, "gemm", 1.0),
        (1, "gemm", 3.0),
        (0, "mse_loss", 2.0),
        (1, "mse_loss", 2.0),
        (1, "sgd_step", 1.0),
    ] {
        let found = median(&slow[rank], name) / median(&clean[rank], name);
        assert!(
            (found / factor - 1.0).abs() < 0.05,
            "{name} of rank {rank} takes {found} times as long"
        );
    }
}

#[test]
fn a_slow_network_slows_what_passes_it() {
    let all_reduce = |slow: &[(&str, &str)]| {
        let settings = [&[("TOPOLOGY", "two-nodes"), ("SCALE", "4000")], slow].concat();
        let truth = truths(&settings, &format!("ddp {SMALL} --ranks 4 --no-overlap"), 4);
        // From the last rank's arrival on: before that it is the hosts that are waited for.
        let of_rank = |rank: &BTreeMap<u64, TrueOperation>| {
            let named = rank.values().filter(|one| one.name.contains("AllReduce"));
            let mut times: Vec<(i64, i64)> = named.map(|one| (one.start_ns, one.end_ns)).collect();
            times.sort_unstable();
            times
        };
        let ranks: Vec<Vec<(i64, i64)>> = truth.iter().map(of_rank).collect();
        assert!(ranks.iter().all(|rank| rank.len() == ranks[0].len()));
        let mut times: Vec<i64> = (0..ranks[0].len())
            .map(|place| {
                let arrivals = ranks.iter().map(|rank| rank[place].0);
                ranks[0][place].1 - arrivals.max().unwrap_or(0)
            })
            .collect();
        times.sort_unstable();
        times[times.len() / 2] as f64
    };
    let clean = all_reduce(&[]);
    for slow in ["nic:1=4", "link:1-2=4"] {
        let found = all_reduce(&[("SLOW", slow)]) / clean;
        assert!((2.0..4.5).contains(&found), "{slow}: {found}");
    }
    // Within the first node.
    let found = all_reduce(&[("SLOW", "link:0-2=1,nic:2=4")]) / clean;
    assert!((0.8..1.25).contains(&found), "{found}");
}

#[test]
fn synchronizing_waits_for_the_gpu_after_each_layer() {
    let waits = |more: &str| {
        let (_keep, folder) = fresh_folder("recording");
        let truth = folder.with_file_name("truth");
        let workload = format!("single --sizes 64,64,64,64 --batch 64 --steps 12 {more}");
        expect_status(
            &mut record_workload(&folder, &truth, &[], workload.split_whitespace()),
            0,
        );
        let recording = Recording::open(&folder).expect("opens");
        let calls = recording
            .processes
            .iter()
            .flat_map(|process| &process.tables.api_calls.name);
        calls
            .filter(|name| recording.names.get(**name).starts_with("cuCtxSynchronize"))
            .count()
    };
    // Three layers, forward and backward, in twelve steps.
    assert_eq!(waits("--synchronize") - waits(""), 72);
}
