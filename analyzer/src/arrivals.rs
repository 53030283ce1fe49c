//! What the matched collectives say together: which rank comes last, and how fast each size goes.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::collectives::{BandwidthRange, Collective, Timing};
use crate::graph::blame::Blame;
use crate::statistics::{Distribution, sum};

/// How one rank's device came to its collectives. Warm-ups are left out, and so is what has a root or is between two ranks,
/// where no rank waits for all; operations that share a kernel count once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ArrivalAnalysis {
    /// The rank.
    pub rank: u32,
    /// Device index within its process.
    pub device_index: u32,
    /// Collectives whose arrivals could be compared.
    pub collectives: usize,
    /// Those in which it came last.
    pub last_count: usize,
    /// Over those: its arrival minus that of the last but one, which is what it alone cost.
    pub cost_ns: i64,
    /// Over all: how long it waited for the last to arrive.
    pub wait_ns: i64,
    /// Those in which it was last by the stamps, but clocks are not exact enough to decide it: not in `last_count`.
    pub undecided_count: usize,
    /// How far off `wait_ns` may be because of the clocks (99 %): the sum over all, since they are off alike for long.
    pub clock_error_ns: i64,
    /// Over those in which it came last: how long the first rank waited for it.
    pub skew_ns: i64,
    /// Whose fault it was that it came last, by what that cost, greatest first; of the steps that were replayed. Empty without.
    pub caused_by: Vec<LateBecause>,
}

/// The rank that made another late, or itself: the one that took longest beyond its peers along what the late one waited for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LateBecause {
    /// The rank at fault.
    pub rank: u32,
    /// In how many collectives.
    pub count: usize,
    /// What the late rank alone cost in these.
    pub cost_ns: i64,
}

/// The collectives of one kind on so many ranks, in one range of sizes (warm-ups, shared kernels and what has no kernel left
/// out).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CollectiveSize {
    /// "AllReduce", ...
    pub name: String,
    /// Ranks in the communicator; null where that is not known.
    pub ranks: Option<u32>,
    /// The range: at least so many bytes, a power of two.
    pub bytes_from: u64,
    /// And fewer than so many.
    pub bytes_below: u64,
    /// How many.
    pub count: usize,
    /// Those whose transfer is known apart from the waiting.
    pub timed: usize,
    /// Bytes of those over the time of their transfers, GB/s; null without any.
    pub algbw: Option<f64>,
    /// The same times nccl-tests' factor.
    pub busbw: Option<f64>,
    /// What `algbw` lies between, where clocks differ by as much as they may.
    pub algbw_range: Option<BandwidthRange>,
    /// Greatest busbw of one.
    pub best_busbw: Option<f64>,
    /// The longest kernel of each, with the waiting.
    pub kernel: Distribution,
    /// Bytes of all over the time of those kernels, GB/s: as low as the waiting makes it. Null without kernels.
    pub algbw_with_waiting: Option<f64>,
}

/// By rank; empty where no arrivals could be compared.
pub(crate) fn arrivals(collectives: &[Collective], blame: Option<&Blame>) -> Vec<ArrivalAnalysis> {
    let mut ranks: BTreeMap<(u32, u32), ArrivalAnalysis> = BTreeMap::new();
    for collective in collectives.iter().filter(|collective| counts(collective)) {
        let Some(skew) = collective.skew_ns else {
            continue;
        };
        for participant in &collective.timing.participants {
            let (rank, device_index) = (participant.rank, participant.device);
            let entry = ranks
                .entry((rank, device_index))
                .or_insert_with(|| ArrivalAnalysis {
                    rank,
                    device_index,
                    ..ArrivalAnalysis::default()
                });
            entry.collectives += 1;
            entry.wait_ns = entry.wait_ns.saturating_add(participant.wait_ns);
            let error_ns = collective.timing.clock_error_ns;
            entry.clock_error_ns = entry.clock_error_ns.saturating_add(error_ns);
            let undecided = collective.last_undecided;
            entry.undecided_count += usize::from(undecided.is_some_and(|undecided| undecided.rank == rank));
            if collective.timing.last == Some((rank, device_index)) {
                entry.last_count += 1;
                entry.cost_ns = entry
                    .cost_ns
                    .saturating_add(collective.last_rank_cost_ns.unwrap_or(0));
                entry.skew_ns = entry.skew_ns.saturating_add(skew);
            }
        }
    }
    for (late, causes) in blame.into_iter().flatten() {
        let Some((_, entry)) = ranks.range_mut((*late, 0)..=(*late, u32::MAX)).next() else {
            continue;
        };
        let of_rank = causes.iter().map(|(rank, (count, cost_ns))| LateBecause {
            rank: *rank,
            count: *count,
            cost_ns: *cost_ns,
        });
        entry.caused_by = of_rank.collect();
        entry
            .caused_by
            .sort_by_key(|cause| (std::cmp::Reverse(cause.cost_ns), cause.rank));
    }
    ranks.into_values().collect()
}

/// Whether a collective counts in [`arrivals`].
pub(crate) fn counts(collective: &Collective) -> bool {
    let Timing {
        repeats_kernel,
        all_meet,
        ..
    } = collective.timing;
    collective.skew_ns.is_some() && all_meet && !repeats_kernel && !collective.warm_up
}

/// Sums over the collectives of one size.
#[derive(Default)]
struct Size {
    count: usize,
    timed: usize,
    timed_bytes: f64,
    timed_ns: f64,
    error_ns: f64,
    factor: f64,
    best_busbw: f64,
    kernels: Vec<i64>,
    kernel_bytes: f64,
}

/// By name, ranks and size.
pub(crate) fn sizes(collectives: &[Collective]) -> Vec<CollectiveSize> {
    let mut groups: BTreeMap<(&str, Option<u32>, u64), Size> = BTreeMap::new();
    for collective in collectives {
        let Some(bytes) = collective.bytes.filter(|bytes| *bytes > 0) else {
            continue;
        };
        // What never ran has no speed.
        if collective.warm_up || collective.shared_kernel > 1 || collective.longest_kernel_ns.is_none() {
            continue;
        }
        let size = groups
            .entry((
                &collective.name,
                collective.communicator_ranks,
                bytes.ilog2().into(),
            ))
            .or_default();
        size.count += 1;
        if let Some(kernel) = collective.longest_kernel_ns {
            size.kernels.push(kernel);
            size.kernel_bytes += bytes as f64;
        }
        if let (Some(algbw), Some(busbw)) = (collective.algbw, collective.busbw) {
            size.timed += 1;
            size.timed_bytes += bytes as f64;
            size.timed_ns += bytes as f64 / algbw;
            size.error_ns += collective.timing.clock_error_ns as f64;
            size.factor = busbw / algbw;
            size.best_busbw = size.best_busbw.max(busbw);
        }
    }
    groups
        .into_iter()
        .map(|((name, ranks, power), mut size)| {
            let algbw = (size.timed > 0).then(|| size.timed_bytes / size.timed_ns);
            let kernel_ns = sum(&size.kernels);
            CollectiveSize {
                name: name.to_owned(),
                ranks,
                bytes_from: 1 << power,
                bytes_below: 1u64
                    .checked_shl(u32::try_from(power + 1).unwrap_or(64))
                    .unwrap_or(u64::MAX),
                count: size.count,
                timed: size.timed,
                algbw,
                busbw: algbw.map(|algbw| algbw * size.factor),
                algbw_range: algbw.map(|_| {
                    BandwidthRange::of(
                        size.timed_bytes as u64,
                        size.timed_ns as i64,
                        size.error_ns as i64,
                    )
                }),
                best_busbw: algbw.map(|_| size.best_busbw),
                kernel: Distribution::of(&mut size.kernels),
                algbw_with_waiting: (kernel_ns > 0).then(|| size.kernel_bytes / kernel_ns as f64),
            }
        })
        .collect()
}
