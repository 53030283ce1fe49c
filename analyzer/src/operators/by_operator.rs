//! Operators by name, and by name and shapes: what they launched, and what they took on the host.

use std::cmp::Reverse;
use std::hash::Hash;

use gputrace_trace::tables::Operators;
use gputrace_trace::{Interner, NameId};
use rustc_hash::FxHashMap;
use serde::Serialize;

use super::branches::{Branches, Sum, outermost};
use super::launched_by::LaunchedBy;
use super::nesting::Nesting;
use super::products::{Done, Worked};
use super::shape::{Shape, shape};
use crate::measures::ratio;

/// All operators of one name. Times are sums over operations or operators, not time passed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OperatorAnalysis {
    /// Its name: "aten::mm".
    pub name: String,
    /// How often it ran.
    pub calls: u64,
    /// Operations of the device (kernels, copies, memsets) that it launched itself.
    pub kernels: u64,
    /// Sum of their durations.
    pub direct_ns: i64,
    /// The same with what operators inside it launched; each operation once, whatever is inside what. These do not add up over
    /// operators.
    pub subtree_ns: i64,
    /// `direct_ns` over the sum of durations of all operations of the device; null where that is 0.
    pub share: Option<f64>,
    /// Its time on the host without operators inside it.
    pub host_self_ns: i64,
    /// Its time on the host, of those that are in no other of the name.
    pub host_total_ns: i64,
    /// The part of `host_self_ns` in calls of CUDA.
    pub host_calls_ns: i64,
}

/// All operators of one name with inputs of the same shapes and types.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ShapeAnalysis {
    /// The same as of all of the name.
    #[serde(flatten)]
    pub operator: OperatorAnalysis,
    /// The sizes of its inputs as a list in JSON: "[[8944, 1024], [1024, 2816]]"; null where they are not recorded.
    pub input_dims: Option<String>,
    /// Their types likewise.
    pub input_types: Option<String>,
    /// What it had to do, where there is a model of it: floating-point operations.
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
    let keys: Vec<K> = nesting.places().map(|place| key(nesting.row(place))).collect();
    let parent = |number: usize| {
        let place = u32::try_from(number).unwrap_or(u32::MAX);
        nesting.parent(place).map(|parent| parent as usize)
    };
    let outermost = outermost(&keys, parent);
    let mut all: FxHashMap<K, OnHost> = FxHashMap::default();
    for (place, number) in nesting.places().zip(0..) {
        let start = nesting.start(place);
        if chosen.is_some_and(|(first, end)| !(first..end).contains(&start)) {
            continue;
        }
        let of_key = all.entry(keys[number]).or_default();
        of_key.calls += 1;
        of_key.self_ns = of_key.self_ns.saturating_add(self_ns[number]);
        of_key.calls_ns = of_key.calls_ns.saturating_add(by.calls_ns[number]);
        if outermost[number] {
            of_key.total_ns = of_key.total_ns.saturating_add(nesting.end(place) - start);
        }
    }
    all
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
    pub(super) fn operators(
        &self,
        branches: &Branches<2>,
        nesting: &Nesting<'_>,
        operators: &Operators,
        names: &Interner,
        all_ns: i64,
        with_idle: bool,
    ) -> Vec<OperatorAnalysis> {
        let mut on_device = on_device(branches, |place| operators.name[nesting.row(place)]);
        if with_idle {
            for name in self.by_name.keys() {
                on_device.entry(*name).or_default();
            }
        }
        let analyses = on_device.into_iter().map(|(name, on_device)| {
            let on_host = self.by_name.get(&name).copied().unwrap_or_default();
            analysis(names.get(name), on_host, on_device, all_ns)
        });
        let mut analyses: Vec<OperatorAnalysis> = analyses.collect();
        analyses.sort_by(|a, b| order(a).cmp(&order(b)));
        analyses
    }

    /// By name and shapes; with those that launched nothing, where `with_idle`.
    pub(super) fn shapes(
        &self,
        branches: &Branches<2>,
        nesting: &Nesting<'_>,
        operators: &Operators,
        names: &Interner,
        all_ns: i64,
        worked: &Worked,
        with_idle: bool,
    ) -> Vec<ShapeAnalysis> {
        let mut on_device = on_device(branches, |place| shape(operators, nesting.row(place)));
        if with_idle {
            for shape in self.by_shape.keys() {
                on_device.entry(*shape).or_default();
            }
        }
        let analyses = on_device.into_iter().map(|(shape, on_device)| {
            let on_host = self.by_shape.get(&shape).copied().unwrap_or_default();
            let (name, dims, types) = shape;
            let work = worked.by_shape.get(&shape);
            ShapeAnalysis {
                operator: analysis(names.get(name), on_host, on_device, all_ns),
                input_dims: dims.map(|dims| names.get(dims).to_owned()),
                input_types: types.map(|types| names.get(types).to_owned()),
                flops: work.map(|work| work.flops),
                flops_per_second: work.and_then(Done::flops_per_second),
            }
        });
        let mut analyses: Vec<ShapeAnalysis> = analyses.collect();
        analyses.sort_by(|a, b| {
            let key = |shape: &ShapeAnalysis| (shape.input_dims.clone(), shape.input_types.clone());
            order(&a.operator)
                .cmp(&order(&b.operator))
                .then_with(|| key(a).cmp(&key(b)))
        });
        analyses
    }
}

/// What operators of one key launched themselves, and with those inside them.
#[derive(Clone, Copy, Default)]
struct OnDevice {
    direct: Sum,
    subtree: Sum,
}

fn on_device<K: Copy + Eq + Hash>(branches: &Branches<2>, key: impl Fn(u32) -> K) -> FxHashMap<K, OnDevice> {
    let outermost = branches.outermost(&key);
    let mut all: FxHashMap<K, OnDevice> = FxHashMap::default();
    for (number, place) in branches.places.iter().enumerate() {
        let of_key = all.entry(key(*place)).or_default();
        for kind in branches.direct[number] {
            of_key.direct.add(kind);
        }
        if outermost[number] {
            for kind in branches.subtree[number] {
                of_key.subtree.add(kind);
            }
        }
    }
    all
}

fn analysis(name: &str, on_host: OnHost, on_device: OnDevice, all_ns: i64) -> OperatorAnalysis {
    OperatorAnalysis {
        name: name.to_owned(),
        calls: on_host.calls,
        kernels: on_device.direct.operations,
        direct_ns: on_device.direct.time_ns,
        subtree_ns: on_device.subtree.time_ns,
        share: ratio(on_device.direct.time_ns, all_ns),
        host_self_ns: on_host.self_ns,
        host_total_ns: on_host.total_ns,
        host_calls_ns: on_host.calls_ns,
    }
}

fn order(operator: &OperatorAnalysis) -> (Reverse<i64>, Reverse<i64>, Reverse<i64>, &str) {
    (
        Reverse(operator.direct_ns),
        Reverse(operator.subtree_ns),
        Reverse(operator.host_self_ns),
        &operator.name,
    )
}
