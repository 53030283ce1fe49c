//! Operations by name and by kind: how many, how long.

use std::collections::BTreeMap;

use gputrace_trace::Interner;
use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::kernel_names::short_name;
use crate::kinds::{Kind, KindFrom, reason};
use crate::measures::union_of_kind;
use crate::operations::{Name, Operation};
use crate::statistics::{Distribution, sum};
use crate::{Options, Sort};

/// All operations of one name on one device. Times are sums and statistics over operations, not time passed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KernelAnalysis {
    /// The kernel's name, or the copy's kind.
    pub name: String,
    /// "compute", "communication", "copy" or "memset".
    pub kind: String,
    /// How the kind is known: "record", "nccl plugin", "trace metadata" or "name".
    pub kind_from: String,
    /// The same in words.
    pub kind_reason: String,
    /// How many.
    pub count: usize,
    /// Sum of their durations.
    pub total_ns: i64,
    /// Total over the total of all operations of the device.
    pub share: f64,
    /// Mean, extremes and percentiles.
    #[serde(flatten)]
    pub durations: Distribution,
}

/// All operations of one kind on one device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KindAnalysis {
    /// "compute", "communication", "copy" or "memset".
    pub kind: String,
    /// How many.
    pub count: usize,
    /// Sum of their durations.
    pub total_ns: i64,
    /// Time passed with at least one of them.
    pub time_ns: i64,
}

/// The operations by name, in the order that is asked for.
pub(crate) fn by_name(operations: &[Operation], names: &Interner, options: &Options) -> Vec<KernelAnalysis> {
    let mut groups: FxHashMap<(Name, Kind, KindFrom), Vec<i64>> = FxHashMap::default();
    for operation in operations {
        let group = groups
            .entry((operation.name, operation.kind, operation.kind_from))
            .or_default();
        group.push(operation.end - operation.start);
    }
    // By text: two names may be the same in short.
    let mut by_text: BTreeMap<(String, Kind, KindFrom), (String, Vec<i64>)> = BTreeMap::new();
    for ((name, kind, kind_from), durations) in groups {
        let text = name.text(names);
        let text = if options.short_names {
            short_name(&text)
        } else {
            text
        };
        let reason = || reason(name, kind, kind_from, names);
        let group = by_text
            .entry((text, kind, kind_from))
            .or_insert_with(|| (reason(), Vec::new()));
        // Names that are one in short may have several reasons: the first in order, whichever name came first.
        group.0 = reason().min(std::mem::take(&mut group.0));
        group.1.extend(durations);
    }
    let all: i64 = by_text
        .values()
        .fold(0, |all, (_, durations)| all.saturating_add(sum(durations)));
    let mut kernels: Vec<KernelAnalysis> = by_text
        .into_iter()
        .map(|((name, kind, kind_from), (kind_reason, mut durations))| {
            let total_ns = sum(&durations);
            KernelAnalysis {
                name,
                kind: kind.name().to_owned(),
                kind_from: kind_from.name().to_owned(),
                kind_reason,
                count: durations.len(),
                total_ns,
                share: if all > 0 {
                    total_ns as f64 / all as f64
                } else {
                    0.0
                },
                durations: Distribution::of(&mut durations),
            }
        })
        .collect();
    kernels.sort_by(|a, b| {
        let key = |kernel: &KernelAnalysis| match options.sort {
            Sort::Total => kernel.total_ns,
            Sort::Count => i64::try_from(kernel.count).unwrap_or(i64::MAX),
            Sort::Mean => kernel.durations.mean_ns,
            Sort::Max => kernel.durations.max_ns,
        };
        key(b).cmp(&key(a)).then_with(|| a.name.cmp(&b.name))
    });
    kernels
}

/// The operations by kind; kinds that do not occur are left out. Times are of `operations`, sums of `whole` ones.
pub(crate) fn by_kind(operations: &[Operation], whole: &[Operation]) -> Vec<KindAnalysis> {
    Kind::ALL
        .into_iter()
        .filter_map(|kind| {
            let durations: Vec<i64> = whole
                .iter()
                .filter(|operation| operation.kind == kind)
                .map(|operation| operation.end - operation.start)
                .collect();
            (!durations.is_empty()).then(|| KindAnalysis {
                kind: kind.name().to_owned(),
                count: durations.len(),
                total_ns: sum(&durations),
                time_ns: union_of_kind(operations, kind).length_ns(),
            })
        })
        .collect()
}
