//! Sums of a job's steps for metrics.

use std::collections::BTreeMap;

use crate::history::step::Step;

/// Upper bounds of the histogram, seconds.
pub const BOUNDS_S: [f64; 14] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0,
];
/// Ranks that are told apart.
const MOST_RANKS: usize = 256;

/// Sums of one rank, nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct OfRank {
    /// Computing, where kernels are recorded.
    pub compute_ns: i64,
    /// Exposed communication, likewise.
    pub exposed_ns: i64,
    /// Hidden communication, likewise.
    pub hidden_ns: i64,
    /// Nothing on the device, likewise.
    pub idle_ns: i64,
    /// Communication by NCCL.
    pub communication_ns: i64,
    /// The others waited for it.
    pub late_ns: i64,
}

/// Sums of a job.
#[derive(Clone, Debug, Default)]
pub struct Times {
    /// Steps up to each bound.
    pub buckets: [u64; BOUNDS_S.len()],
    /// All steps.
    pub count: u64,
    /// Their time, nanoseconds.
    pub sum_ns: i64,
    /// By rank.
    pub ranks: BTreeMap<u32, OfRank>,
}

impl Times {
    /// Counts a step.
    pub fn add(&mut self, step: &Step) {
        self.count += 1;
        self.sum_ns = self.sum_ns.saturating_add(step.step_ns);
        for (bucket, bound) in self.buckets.iter_mut().zip(BOUNDS_S) {
            *bucket += u64::from(step.step_ns as f64 / 1e9 <= bound);
        }
        // The other nodes' daemons tell of theirs.
        for rank in step.ranks.iter().filter(|rank| !rank.elsewhere) {
            if self.ranks.len() >= MOST_RANKS && !self.ranks.contains_key(&rank.rank) {
                continue;
            }
            let sums = self.ranks.entry(rank.rank).or_default();
            let add =
                |sum: &mut i64, value: Option<i64>| *sum = sum.saturating_add(value.unwrap_or(0).max(0));
            let report = &rank.report;
            let hidden_ns = report.communication_ns.zip(report.exposed_ns);
            add(&mut sums.compute_ns, report.compute_ns);
            add(&mut sums.exposed_ns, report.exposed_ns);
            add(
                &mut sums.hidden_ns,
                hidden_ns.map(|(all, exposed)| all.saturating_sub(exposed)),
            );
            add(&mut sums.idle_ns, report.idle_ns);
            add(&mut sums.communication_ns, report.communication_ns);
            add(&mut sums.late_ns, rank.late_ns);
        }
    }
}
