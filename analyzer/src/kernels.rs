//! Operations by name and by kind: how many, how long.

use std::collections::BTreeMap;

use gputrace_trace::Interner;
use gputrace_trace::manifest::Device;
use gputrace_trace::tables::Kernels;
use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::kernel_names::short_name;
use crate::kinds::{Kind, KindFrom, reason};
use crate::measures::union_of_kind;
use crate::occupancy::Occupancy;
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
    /// Theoretical occupancy, 0 to 1: the mean over its time; null where the launches or the device do not tell.
    pub occupancy: Option<f64>,
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

/// Occupancies are added up in units of this.
const OCCUPANCY_UNIT: f64 = 1e-9;

/// Operations of one name.
#[derive(Default)]
struct Group {
    durations: Vec<i64>,
    /// Weights of those whose occupancy is known, and the sum over them of weight times occupancy in [`OCCUPANCY_UNIT`]s:
    /// whole numbers, whose sum does not depend on their order.
    weights: i128,
    occupied: i128,
}

impl Group {
    fn add(&mut self, duration_ns: i64, occupancy: Option<f64>) {
        self.durations.push(duration_ns);
        if let Some(occupancy) = occupancy {
            // One that took no time counts little, and not nothing.
            let weight = i128::from(duration_ns.max(0)) * 1000 + 1;
            self.weights += weight;
            self.occupied += weight * (occupancy / OCCUPANCY_UNIT).round() as i128;
        }
    }

    fn extend(&mut self, other: Self) {
        self.durations.extend(other.durations);
        self.weights += other.weights;
        self.occupied += other.occupied;
    }
}

/// The operations by name, in the order that is asked for. `kernels` are those of the process, and `device` what is known of
/// theirs.
pub(crate) fn by_name(
    operations: &[Operation],
    names: &Interner,
    options: &Options,
    kernels: &Kernels,
    device: Option<&Device>,
) -> Vec<KernelAnalysis> {
    let mut occupancies = Occupancy::new(device);
    let mut groups: FxHashMap<(Name, Kind, KindFrom), Group> = FxHashMap::default();
    for operation in operations {
        let group = groups
            .entry((operation.name, operation.kind, operation.kind_from))
            .or_default();
        let occupancy = match operation.name {
            Name::Kernel(_) => occupancies.of(kernels, operation.row as usize),
            Name::Copy { .. } | Name::Memset { .. } | Name::Graph { .. } => None,
        };
        group.add(operation.end - operation.start, occupancy);
    }
    // By text: two names may be the same in short.
    let mut by_text: BTreeMap<(String, Kind, KindFrom), (String, Group)> = BTreeMap::new();
    for ((name, kind, kind_from), found) in groups {
        let text = name.text(names);
        let text = if options.short_names {
            short_name(&text)
        } else {
            text
        };
        let reason = || reason(name, kind, kind_from, names);
        let group = by_text
            .entry((text, kind, kind_from))
            .or_insert_with(|| (reason(), Group::default()));
        // Names that are one in short may have several reasons: the first in order, whichever name came first.
        group.0 = reason().min(std::mem::take(&mut group.0));
        group.1.extend(found);
    }
    let all: i64 = by_text
        .values()
        .fold(0, |all, (_, group)| all.saturating_add(sum(&group.durations)));
    let mut kernels: Vec<KernelAnalysis> = by_text
        .into_iter()
        .map(|((name, kind, kind_from), (kind_reason, mut group))| {
            let total_ns = sum(&group.durations);
            KernelAnalysis {
                name,
                kind: kind.name().to_owned(),
                kind_from: kind_from.name().to_owned(),
                kind_reason,
                count: group.durations.len(),
                total_ns,
                occupancy: (group.weights > 0)
                    .then(|| group.occupied as f64 / group.weights as f64 * OCCUPANCY_UNIT),
                share: if all > 0 {
                    total_ns as f64 / all as f64
                } else {
                    0.0
                },
                durations: Distribution::of(&mut group.durations),
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
