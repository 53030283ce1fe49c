//! Operations by name: how many, how long.

use std::collections::BTreeMap;

use gputrace_trace::Interner;
use serde::Serialize;

use crate::operations::{Kind, KindFrom, Name, Operation};
use crate::{Options, Sort};

/// All operations of one name on one device. Times are sums and statistics over operations, not time passed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KernelAnalysis {
    /// The kernel's name, or the copy's kind.
    pub name: String,
    /// "compute", "communication", "copy" or "memset".
    pub kind: String,
    /// How the kind is known: "record", "nccl plugin" or "name".
    pub kind_from: String,
    /// How many.
    pub count: usize,
    /// Sum of their durations.
    pub total_ns: i64,
    /// Mean duration, rounded down.
    pub mean_ns: i64,
    /// Shortest.
    pub min_ns: i64,
    /// Longest.
    pub max_ns: i64,
    /// Median (nearest rank).
    pub p50_ns: i64,
    /// 99th percentile (nearest rank).
    pub p99_ns: i64,
}

/// The smallest of sorted values that at least `percent` of them do not exceed.
fn nearest_rank(sorted: &[i64], percent: usize) -> i64 {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or(0)
}

/// The operations by name, in the order that is asked for.
pub(crate) fn by_name(operations: &[Operation], names: &Interner, options: &Options) -> Vec<KernelAnalysis> {
    let mut groups: BTreeMap<(Name, Kind, KindFrom), Vec<i64>> = BTreeMap::new();
    for operation in operations {
        let group = groups
            .entry((operation.name, operation.kind, operation.kind_from))
            .or_default();
        group.push(operation.end - operation.start);
    }
    let mut kernels: Vec<KernelAnalysis> = groups
        .into_iter()
        .map(|((name, kind, kind_from), mut durations)| {
            durations.sort_unstable();
            let total_ns: i64 = durations.iter().sum();
            KernelAnalysis {
                name: name.text(names),
                kind: kind.name().to_owned(),
                kind_from: kind_from.name().to_owned(),
                count: durations.len(),
                total_ns,
                mean_ns: total_ns / i64::try_from(durations.len()).unwrap_or(i64::MAX),
                min_ns: durations.first().copied().unwrap_or(0),
                max_ns: durations.last().copied().unwrap_or(0),
                p50_ns: nearest_rank(&durations, 50),
                p99_ns: nearest_rank(&durations, 99),
            }
        })
        .collect();
    kernels.sort_by(|a, b| {
        let key = |kernel: &KernelAnalysis| match options.sort {
            Sort::Total => kernel.total_ns,
            Sort::Count => i64::try_from(kernel.count).unwrap_or(i64::MAX),
            Sort::Mean => kernel.mean_ns,
            Sort::Max => kernel.max_ns,
        };
        key(b).cmp(&key(a)).then_with(|| a.name.cmp(&b.name))
    });
    kernels.truncate(options.top.unwrap_or(usize::MAX));
    kernels
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_nearest_ranks() {
        let values: Vec<i64> = (1..=10).collect();
        assert_eq!(
            (
                nearest_rank(&values, 50),
                nearest_rank(&values, 99),
                nearest_rank(&[7], 50)
            ),
            (5, 10, 7)
        );
    }
}
