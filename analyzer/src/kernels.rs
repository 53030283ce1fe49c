//! Operations by name and by kind: how many, how long.

use std::borrow::Cow;

use gputrace_trace::Interner;
use gputrace_trace::manifest::Device;
use gputrace_trace::tables::Kernels;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::kernel_names::short_name;
use crate::kinds::{Kind, KindFrom, reason};
use crate::measures::union_of_kind;
use crate::occupancy::Occupancy;
use crate::operations::{Name, Operation};
use crate::options::{Options, Sort};
use crate::statistics::{Distribution, sum};
use crate::word::Word;

/// All operations of one name on one device. Times are sums and statistics over operations, not time passed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KernelAnalysis {
    /// The kernel's name, or the copy's kind.
    pub name: String,
    /// "compute", "communication", "copy" or "memset".
    #[serde(deserialize_with = "crate::word::known")]
    pub kind: Word,
    /// How the kind is known: "record", "nccl plugin", "trace metadata" or "name".
    #[serde(deserialize_with = "crate::word::known")]
    pub kind_from: Word,
    /// The same in words.
    pub kind_reason: Cow<'static, str>,
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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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

/// What is known of operations of one name beside their durations. There can be as many names as operations.
struct Group {
    name: Name,
    kind: Kind,
    kind_from: KindFrom,
    count: u32,
}

/// Weights of operations whose occupancy is known, and the sum over them of weight times occupancy in [`OCCUPANCY_UNIT`]s:
/// whole numbers, whose sum does not depend on their order.
#[derive(Clone, Copy, Default)]
struct Occupied {
    weights: i128,
    sum: i128,
}

impl Occupied {
    fn add(&mut self, duration_ns: i64, occupancy: f64) {
        // One that took no time counts little, and not nothing.
        let weight = i128::from(duration_ns.max(0)) * 1000 + 1;
        self.weights += weight;
        self.sum += weight * (occupancy / OCCUPANCY_UNIT).round() as i128;
    }
}

/// Operations by name: each one's group, and their durations side by side.
struct Groups {
    all: Vec<Group>,
    /// By group; shorter, where no occupancy of the later ones is known.
    occupied: Vec<Occupied>,
    /// Of the first group, of the second, ...
    durations: Vec<i64>,
    /// Where those of each group begin, and where the last ones end.
    begins: Vec<usize>,
}

impl Groups {
    fn new(operations: &[Operation], kernels: &Kernels, device: Option<&Device>) -> Self {
        let mut occupancies = Occupancy::new(device);
        let mut numbers: FxHashMap<(Name, Kind, KindFrom), u32> = FxHashMap::default();
        let mut all: Vec<Group> = Vec::new();
        let mut occupied: Vec<Occupied> = Vec::new();
        let group_of = |operation: &Operation| {
            let (name, kind, kind_from) = (operation.name, operation.kind, operation.kind_from);
            let number = *numbers.entry((name, kind, kind_from)).or_insert_with(|| {
                all.push(Group {
                    name,
                    kind,
                    kind_from,
                    count: 0,
                });
                u32::try_from(all.len() - 1).unwrap_or(u32::MAX)
            });
            all[number as usize].count += 1;
            if let Name::Kernel(_) = name
                && let Some(occupancy) = occupancies.of(kernels, operation.row as usize)
            {
                if occupied.len() <= number as usize {
                    occupied.resize(number as usize + 1, Occupied::default());
                }
                occupied[number as usize].add(operation.end - operation.start, occupancy);
            }
            number
        };
        let groups: Vec<u32> = operations.iter().map(group_of).collect();
        let mut begins = vec![0; all.len() + 1];
        for (place, group) in all.iter().enumerate() {
            begins[place + 1] = begins[place] + group.count as usize;
        }
        let mut next = begins.clone();
        let mut durations = vec![0; operations.len()];
        for (operation, group) in operations.iter().zip(groups) {
            let place = &mut next[group as usize];
            durations[*place] = operation.end - operation.start;
            *place += 1;
        }
        Self {
            all,
            occupied,
            durations,
            begins,
        }
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
    let Groups {
        all,
        occupied,
        mut durations,
        begins,
    } = Groups::new(operations, kernels, device);
    let text = |name: Name| match options.short_names {
        true => Cow::Owned(short_name(&name.text(names))),
        false => name.text(names),
    };
    // By text: two names may be the same in short.
    let mut by_text: Vec<(Cow<'_, str>, Kind, KindFrom, usize)> = all
        .iter()
        .enumerate()
        .map(|(place, group)| (text(group.name), group.kind, group.kind_from, place))
        .collect();
    by_text.sort_unstable();
    let total = sum(&durations);
    let mut kernels: Vec<KernelAnalysis> = by_text
        .chunk_by(|a, b| (&a.0, a.1, a.2) == (&b.0, b.1, b.2))
        .map(|alike| {
            let (name, kind, kind_from, first) = &alike[0];
            let range = |place: usize| begins[place]..begins[place + 1];
            let mut several: Vec<i64>;
            let durations = if alike.len() == 1 {
                &mut durations[range(*first)]
            } else {
                let of_each = alike.iter().flat_map(|(.., place)| &durations[range(*place)]);
                several = of_each.copied().collect();
                &mut several
            };
            let mut known = Occupied::default();
            for one in alike.iter().filter_map(|(.., place)| occupied.get(*place)) {
                known.weights += one.weights;
                known.sum += one.sum;
            }
            // Names that are one in short may have several reasons: the first in order, whichever name came first.
            let reasons = alike
                .iter()
                .map(|(.., place)| reason(all[*place].name, *kind, *kind_from, names));
            let total_ns = sum(durations);
            KernelAnalysis {
                name: name.clone().into_owned(),
                kind: kind.name(),
                kind_from: kind_from.name(),
                kind_reason: reasons.min().unwrap_or_default(),
                count: durations.len(),
                total_ns,
                occupancy: (known.weights > 0)
                    .then(|| known.sum as f64 / known.weights as f64 * OCCUPANCY_UNIT),
                share: if total > 0 {
                    total_ns as f64 / total as f64
                } else {
                    0.0
                },
                durations: Distribution::of(durations),
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
