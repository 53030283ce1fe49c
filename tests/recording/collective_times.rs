//! Collectives as they are recorded: each waits for the ranks that it needs, and then takes as long as NCCL's model
//! says. What the model says is taken from the table that NCCL's own tuning prints for four GPUs behind NVSwitch.

use crate::common;

use common::{TrueOperation, expect_status, fresh_folder, record_workload, truth_of_rank};

const RANKS: usize = 4;
/// What a recorded time may be off by.
const TOLERANCE: f64 = 0.01;

/// Latency in microseconds and GB/s by protocol and algorithm.
const ALL_REDUCE: &[(f64, f64)] = &[
    (10.2, 94.0),
    (25.4, 221.0),
    (28.8, 240.0),
    (10.4, 44.0),
    (25.0, 160.0),
];
const GATHER: &[(f64, f64)] = &[(8.4, 188.0), (19.7, 442.0), (18.6, 480.0)];
const ONE_WAY: &[(f64, f64)] = &[(7.2, 141.0), (15.9, 331.0), (11.8, 360.0)];

/// When the last of the ranks that `rank` has to wait for began.
type Waits = fn(starts: &[i64], rank: usize) -> Option<i64>;

fn for_all(starts: &[i64], _: usize) -> Option<i64> {
    starts.iter().max().copied()
}

/// Along the ring that begins at rank 0.
fn for_those_before(starts: &[i64], rank: usize) -> Option<i64> {
    starts[..=rank].iter().max().copied()
}

/// Along the ring that ends at rank 0.
fn for_those_before_the_root(starts: &[i64], rank: usize) -> Option<i64> {
    match rank {
        0 => starts.iter().max().copied(),
        _ => starts[1..=rank].iter().max().copied(),
    }
}

/// Records one operation with one size, and compares every one of them.
fn recorded_as_modelled(operation: &str, kernel: &str, rows: &[(f64, f64)], waits: Waits) {
    for (bytes, scale) in [(4096, 1000), (262_144, 200), (65_536, 20_000)] {
        let (_keep, folder) = fresh_folder("recording");
        let truth = folder.with_file_name("truth");
        let (ranks, size, factor) = (RANKS.to_string(), bytes.to_string(), scale.to_string());
        let workload = [
            "collectives",
            "--ranks",
            &ranks,
            "--operation",
            operation,
            "--min-bytes",
            &size,
            "--max-bytes",
            &size,
            "--iterations",
            "5",
            "--no-check",
        ];
        expect_status(
            &mut record_workload(&folder, &truth, &[("SCALE", &factor)], workload),
            0,
        );
        let slowed = f64::from(bytes) * f64::from(scale) / 1e3;
        let expected_us = rows
            .iter()
            .map(|(latency, bandwidth)| latency + slowed / bandwidth)
            .fold(f64::INFINITY, f64::min);
        let of_rank = |rank: usize| -> Vec<TrueOperation> {
            let mut kernels: Vec<TrueOperation> = truth_of_rank(&truth, rank as u32)
                .into_values()
                .filter(|one| one.name.starts_with(kernel))
                .collect();
            kernels.sort_by_key(|one| one.start_ns);
            kernels
        };
        let ranks: Vec<Vec<TrueOperation>> = (0..RANKS).map(of_rank).collect();
        // Barriers are all-reduces of a single number.
        let barrier_us = 10.24 + 0.1 * f64::from(scale) / 1e3;
        let (mut compared, mut barriers) = (0, 0);
        for nth in 0..ranks[0].len() {
            let same: Vec<&TrueOperation> = ranks.iter().map(|rank| &rank[nth]).collect();
            if same.iter().any(|one| one.stretched) {
                continue;
            }
            let starts: Vec<i64> = same.iter().map(|one| one.start_ns).collect();
            for (rank, one) in same.iter().enumerate() {
                let arrived = waits(&starts, rank).expect("somebody began");
                let us = (one.end_ns - arrived) as f64 / 1e3;
                if (us / expected_us - 1.0).abs() <= TOLERANCE {
                    compared += 1;
                } else {
                    assert!(
                        operation == "all_reduce" && us <= barrier_us,
                        "{operation} of {bytes} bytes, 1/{scale} speed, rank {rank}: {us} us, expected {expected_us}"
                    );
                    barriers += 1;
                }
            }
        }
        assert!(
            compared > 5 * barriers && compared >= 5 * RANKS,
            "{operation}: {compared} compared, {barriers} barriers"
        );
    }
}

#[test]
fn all_reduce() {
    common::schedule::alone();
    recorded_as_modelled("all_reduce", "ncclDevKernel_AllReduce", ALL_REDUCE, for_all);
}

#[test]
fn all_gather_and_reduce_scatter() {
    common::schedule::alone();
    recorded_as_modelled("all_gather", "ncclDevKernel_AllGather", GATHER, for_all);
    recorded_as_modelled("reduce_scatter", "ncclDevKernel_ReduceScatter", GATHER, for_all);
}

#[test]
fn broadcast_and_reduce() {
    common::schedule::alone();
    recorded_as_modelled("broadcast", "ncclDevKernel_Broadcast", ONE_WAY, for_those_before);
    recorded_as_modelled(
        "reduce",
        "ncclDevKernel_Reduce_",
        ONE_WAY,
        for_those_before_the_root,
    );
}
