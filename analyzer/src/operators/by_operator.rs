//! Operators by name, and by name and shapes: what they launched, and what they took on the host.

use std::cmp::Reverse;
use std::hash::Hash;

use gputrace_trace::tables::Operators;
use gputrace_trace::{Interner, NameId};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use super::allocations::{Allocated, AllocatedBytes, of_key};
use super::branches::{Branches, Keyed, Keys, Sum, outermost};
use super::launched_by::LaunchedBy;
use super::nesting::Nesting;
use super::products::{Done, Worked};
use super::shape::{Shape, shape};
use crate::measures::ratio;

/// All operators of one name. Times are sums over operations or operators, not time passed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OperatorAnalysis {
    /// Its name: "aten::mm".
    pub name: String,
    /// How often it ran.
    pub calls: u64,
    /// Operations of the device (kernels, copies, memsets) that it launched itself.
    pub kernels: u64,
    /// Sum of their durations.
    pub direct_ns: i64,
    /// The same including nested operators, each operation counted once. These overlap, so they do not add up over operators.
    pub subtree_ns: i64,
    /// `direct_ns` over the sum of durations of all operations of the device; null where that is 0.
    pub share: Option<f64>,
    /// Time on the host, without nested operators.
    pub host_self_ns: i64,
    /// Time on the host with nested operators; calls nested in a call of the same name are not counted twice.
    pub host_total_ns: i64,
    /// The part of `host_self_ns` spent in CUDA calls.
    pub host_calls_ns: i64,
    /// The device's memory that it asked for.
    #[serde(flatten)]
    pub memory: AllocatedBytes,
}

/// All operators of one name with inputs of the same shapes and types.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ShapeAnalysis {
    /// As for the name as a whole.
    #[serde(flatten)]
    pub operator: OperatorAnalysis,
    /// The sizes of its inputs as a list in JSON: "[[8944, 1024], [1024, 2816]]"; null where they are not recorded.
    pub input_dims: Option<String>,
    /// Their types likewise.
    pub input_types: Option<String>,
    /// Floating-point operations; null for operators without a FLOP model.
    pub flops: Option<u64>,
    /// That over `subtree_ns`.
    pub flops_per_second: Option<f64>,
}

/// What operators of one key took on the host.
#[derive(Clone, Copy, Default)]
struct OnHost {
    calls: u64,
    self_ns: i64,
    total_ns: i64,
    calls_ns: i64,
}

/// What operators took on the host, by name and by shape.
pub(crate) struct HostTimes {
    by_name: FxHashMap<NameId, OnHost>,
    by_shape: FxHashMap<Shape, OnHost>,
}

/// What operators took on the host by key; of those that begin in the chosen time, where one is chosen.
fn on_host<K: Copy + Eq + Hash>(
    by: &LaunchedBy<'_>,
    self_ns: &[i64],
    chosen: Option<(i64, i64)>,
    key: impl Fn(usize) -> K,
) -> FxHashMap<K, OnHost> {
    let nesting = &by.operators;
    let keys = Keys::new(nesting.places().map(|place| key(nesting.row(place))));
    let parent = |number: usize| {
        let place = u32::try_from(number).unwrap_or(u32::MAX);
        nesting.parent(place).map(|parent| parent as usize)
    };
    let outermost = outermost(&keys, parent);
    let mut all = vec![OnHost::default(); keys.distinct.len()];
    for (place, number) in nesting.places().zip(0..) {
        let start = nesting.start(place);
        if chosen.is_some_and(|(first, end)| !(first..end).contains(&start)) {
            continue;
        }
        let of_key = &mut all[keys.of[number] as usize];
        of_key.calls += 1;
        of_key.self_ns = of_key.self_ns.saturating_add(self_ns[number]);
        of_key.calls_ns = of_key.calls_ns.saturating_add(by.calls_ns[number]);
        if outermost[number] {
            of_key.total_ns = of_key.total_ns.saturating_add(nesting.end(place) - start);
        }
    }
    let called = keys.distinct.into_iter().zip(all);
    called.filter(|(_, on_host)| on_host.calls > 0).collect()
}

impl HostTimes {
    pub(super) fn new(by: &LaunchedBy<'_>, operators: &Operators, chosen: Option<(i64, i64)>) -> Self {
        let nesting = &by.operators;
        let mut self_ns: Vec<i64> = Vec::with_capacity(operators.start_ns.len());
        for place in nesting.places() {
            let length = nesting.end(place) - nesting.start(place);
            self_ns.push(length);
            if let Some(parent) = nesting.parent(place) {
                self_ns[parent as usize] -= length;
            }
        }
        Self {
            by_name: on_host(by, &self_ns, chosen, |row| operators.name[row]),
            by_shape: on_host(by, &self_ns, chosen, |row| shape(operators, row)),
        }
    }

    /// By name; with those that launched nothing, where `with_idle`.
    pub(super) fn operators(&self, of: &OfDevice<'_>, with_idle: bool) -> Vec<OperatorAnalysis> {
        let by_name = of.with_host(&self.by_name, |row| of.operators.name[row], with_idle);
        let mut analyses: Vec<OperatorAnalysis> = by_name
            .map(|(name, of_name)| of.analysis(name, of_name))
            .collect();
        analyses.sort_by(|a, b| order(a).cmp(&order(b)));
        analyses
    }

    /// By name and shapes; with those that launched nothing, where `with_idle`.
    pub(super) fn shapes(&self, of: &OfDevice<'_>, worked: &Worked, with_idle: bool) -> Vec<ShapeAnalysis> {
        let by_shape = of.with_host(&self.by_shape, |row| shape(of.operators, row), with_idle);
        let text = |name: Option<NameId>| name.map(|name| of.names.get(name).to_owned());
        let mut analyses: Vec<ShapeAnalysis> = by_shape
            .map(|(shape, of_shape)| {
                let (name, dims, types) = shape;
                let work = worked.by_shape.get(&shape);
                ShapeAnalysis {
                    operator: of.analysis(name, of_shape),
                    input_dims: text(dims),
                    input_types: text(types),
                    flops: work.map(|work| work.flops),
                    flops_per_second: work.and_then(Done::flops_per_second),
                }
            })
            .collect();
        analyses.sort_by(|a, b| {
            let shapes = (&a.input_dims, &a.input_types).cmp(&(&b.input_dims, &b.input_types));
            order(&a.operator).cmp(&order(&b.operator)).then(shapes)
        });
        analyses
    }
}

/// What is known of a device's operations.
pub(super) struct OfDevice<'a> {
    pub(super) branches: &'a Branches<2>,
    pub(super) nesting: &'a Nesting<'a>,
    pub(super) operators: &'a Operators,
    pub(super) names: &'a Interner,
    /// Sum of the durations of all of them.
    pub(super) all_ns: i64,
    /// Its memory, where that is recorded.
    pub(super) allocated: Option<&'a Allocated>,
}

/// What is known of operators of one key.
type OfKey = (OnHost, OnDevice, AllocatedBytes);

impl OfDevice<'_> {
    /// By key: what operators took on the host, what they launched and allocated; also those that did neither, where `with_idle`.
    fn with_host<K: Copy + Eq + Hash>(
        &self,
        on_host: &FxHashMap<K, OnHost>,
        key: impl Fn(usize) -> K,
        with_idle: bool,
    ) -> impl Iterator<Item = (K, OfKey)> {
        let key = |place: u32| key(self.nesting.row(place));
        let mut on_device = on_device(self.branches, key);
        let allocated = self.allocated.map(|allocated| allocated.of_operators(key));
        let idle = on_host.keys().filter(|_| with_idle);
        for key in idle.chain(allocated.iter().flat_map(|allocated| allocated.keys())) {
            on_device.entry(*key).or_default();
        }
        on_device.into_iter().map(move |(key, on_device)| {
            let on_host = on_host.get(&key).copied().unwrap_or_default();
            (key, (on_host, on_device, of_key(allocated.as_ref(), &key)))
        })
    }

    fn analysis(&self, name: NameId, (on_host, on_device, memory): OfKey) -> OperatorAnalysis {
        OperatorAnalysis {
            name: self.names.get(name).to_owned(),
            calls: on_host.calls,
            kernels: on_device.direct.operations,
            direct_ns: on_device.direct.time_ns,
            subtree_ns: on_device.subtree.time_ns,
            share: ratio(on_device.direct.time_ns, self.all_ns),
            host_self_ns: on_host.self_ns,
            host_total_ns: on_host.total_ns,
            host_calls_ns: on_host.calls_ns,
            memory,
        }
    }
}

/// What operators of one key launched themselves, and with those inside them.
#[derive(Clone, Copy, Default)]
struct OnDevice {
    direct: Sum,
    subtree: Sum,
}

fn on_device<K: Copy + Eq + Hash>(branches: &Branches<2>, key: impl Fn(u32) -> K) -> FxHashMap<K, OnDevice> {
    let whole = |kinds: [Sum; 2]| {
        kinds.into_iter().fold(Sum::default(), |mut sum, kind| {
            sum.add(kind);
            sum
        })
    };
    let sums = branches.by_key(key).into_iter();
    sums.map(|(key, Keyed { direct, subtree })| {
        let of_key = OnDevice {
            direct: whole(direct),
            subtree: whole(subtree),
        };
        (key, of_key)
    })
    .collect()
}

fn order(operator: &OperatorAnalysis) -> (Reverse<i64>, Reverse<i64>, Reverse<i64>, &str) {
    (
        Reverse(operator.direct_ns),
        Reverse(operator.subtree_ns),
        Reverse(operator.host_self_ns),
        &operator.name,
    )
}
