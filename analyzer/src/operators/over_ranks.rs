//! The same tables over all ranks: sums by name, shape, size, or place in a tree.

use std::cmp::Reverse;
use std::hash::Hash;

use rustc_hash::FxHashMap;

use super::allocations::UnattributedMemory;
use super::attribution::{Attribution, Unattributed};
use super::by_operator::{OperatorAnalysis, ShapeAnalysis};
use super::modules::{ModuleAnalysis, ModuleClassAnalysis, ModuleTimes};
use super::products::ProductAnalysis;
use super::stacks::StackAnalysis;
use crate::measures::ratio;

/// Rows of one key are added up; keys are in the order in which they come.
fn sum_by<T: Clone, K: Eq + Hash>(
    lists: impl Iterator<Item = T>,
    key: impl Fn(&T) -> K,
    add: impl Fn(&mut T, &T),
) -> Vec<T> {
    let mut places: FxHashMap<K, usize> = FxHashMap::default();
    let mut sums: Vec<T> = Vec::new();
    for item in lists {
        let place = *places.entry(key(&item)).or_insert(sums.len());
        match sums.get_mut(place) {
            Some(sum) => add(sum, &item),
            None => sums.push(item),
        }
    }
    sums
}

impl OperatorAnalysis {
    fn add(&mut self, other: &Self) {
        self.calls += other.calls;
        self.kernels += other.kernels;
        self.direct_ns = self.direct_ns.saturating_add(other.direct_ns);
        self.subtree_ns = self.subtree_ns.saturating_add(other.subtree_ns);
        self.host_self_ns = self.host_self_ns.saturating_add(other.host_self_ns);
        self.host_total_ns = self.host_total_ns.saturating_add(other.host_total_ns);
        self.host_calls_ns = self.host_calls_ns.saturating_add(other.host_calls_ns);
        self.memory.add(&other.memory);
    }
}

impl ModuleTimes {
    fn add(&mut self, other: &Self) {
        for (sum, more) in [
            (&mut self.forward_ns, other.forward_ns),
            (&mut self.forward_self_ns, other.forward_self_ns),
            (&mut self.recompute_ns, other.recompute_ns),
            (&mut self.recompute_self_ns, other.recompute_self_ns),
            (&mut self.backward_ns, other.backward_ns),
            (&mut self.backward_self_ns, other.backward_self_ns),
        ] {
            *sum = sum.saturating_add(more);
        }
    }
}

impl Unattributed {
    fn add(&mut self, other: &Self) {
        for (sum, more) in [
            (&mut self.operations_ns, other.operations_ns),
            (&mut self.no_operator_ns, other.no_operator_ns),
            (&mut self.graph_ns, other.graph_ns),
            (&mut self.launch_not_recorded_ns, other.launch_not_recorded_ns),
            (&mut self.no_module_ns, other.no_module_ns),
            (&mut self.no_stack_ns, other.no_stack_ns),
        ] {
            *sum = sum.saturating_add(more);
        }
    }
}

/// Trees laid over each other: by name and what they are in. Places in the sum come after what they are in.
fn sum_trees<T: Clone>(
    lists: impl Iterator<Item = Vec<T>>,
    name: impl Fn(&T) -> String,
    parent: impl Fn(&T) -> Option<usize>,
    in_parent: impl Fn(&T, Option<usize>) -> T,
    add: impl Fn(&mut T, &T),
) -> Vec<T> {
    let mut places: FxHashMap<(Option<usize>, String), usize> = FxHashMap::default();
    let mut sums: Vec<T> = Vec::new();
    for list in lists {
        let mut of_list: Vec<usize> = Vec::with_capacity(list.len());
        for item in list {
            let parent = parent(&item).map(|parent| of_list[parent]);
            let place = *places.entry((parent, name(&item))).or_insert(sums.len());
            match sums.get_mut(place) {
                Some(sum) => add(sum, &item),
                None => sums.push(in_parent(&item, parent)),
            }
            of_list.push(place);
        }
    }
    sums
}

/// The tables of several devices as one; `None` of one alone, and where nobody is known. Rates are sums over sums; what a device
/// can do at most is left out where they differ.
pub(crate) fn over_ranks(devices: &[&Attribution]) -> Option<Attribution> {
    if devices.len() < 2 || devices.iter().all(|one| one.unattributed.is_none()) {
        return None;
    }
    let all = || devices.iter().copied();
    let mut unattributed: Option<Unattributed> = None;
    for more in all().filter_map(|one| one.unattributed.as_ref()) {
        unattributed.get_or_insert_default().add(more);
    }
    let mut unattributed_memory: Option<UnattributedMemory> = None;
    for more in all().filter_map(|one| one.unattributed_memory.as_ref()) {
        unattributed_memory.get_or_insert_default().add(more);
    }
    let all_ns = unattributed.map_or(0, |sums| sums.operations_ns);
    let mut operators: Vec<OperatorAnalysis> = sum_by(
        all().flat_map(|one| one.operators.iter().cloned()),
        |one| one.name.clone(),
        OperatorAnalysis::add,
    );
    let mut shapes: Vec<ShapeAnalysis> = sum_by(
        all().flat_map(|one| one.shapes.iter().cloned()),
        |one| {
            (
                one.operator.name.clone(),
                one.input_dims.clone(),
                one.input_types.clone(),
            )
        },
        |sum, one| {
            sum.operator.add(&one.operator);
            sum.flops = sum
                .flops
                .zip(one.flops)
                .map(|(sum, more)| sum.saturating_add(more));
        },
    );
    for shape in &mut shapes {
        let time_ns = shape.operator.subtree_ns;
        shape.operator.share = ratio(shape.operator.direct_ns, all_ns);
        shape.flops_per_second = shape
            .flops
            .filter(|_| time_ns > 0)
            .map(|flops| flops as f64 / (time_ns as f64 / 1e9));
    }
    for operator in &mut operators {
        operator.share = ratio(operator.direct_ns, all_ns);
    }
    let mut products: Vec<ProductAnalysis> = sum_by(
        all().flat_map(|one| one.products.iter().cloned()),
        |one| {
            (
                one.name.clone(),
                [one.batch, one.m, one.n, one.k],
                one.input_dims.clone(),
                one.dtype.clone(),
            )
        },
        ProductAnalysis::add,
    );
    let mut module_classes: Vec<ModuleClassAnalysis> = sum_by(
        all().flat_map(|one| one.module_classes.iter().cloned()),
        |one| one.name.clone(),
        |sum, one| {
            sum.modules += one.modules;
            sum.calls += one.calls;
            sum.times.add(&one.times);
            sum.memory.add(&one.memory);
        },
    );
    operators.sort_by_key(|one| Reverse((one.direct_ns, one.subtree_ns, one.host_self_ns)));
    shapes.sort_by_key(|one| Reverse((one.operator.direct_ns, one.operator.subtree_ns)));
    products.sort_by_key(|one| Reverse(one.time_ns));
    module_classes.sort_by_key(|one| Reverse(one.times.total_ns()));
    let mut peaks = all().map(|one| one.peak.clone());
    let first = peaks.next().flatten();
    Some(Attribution {
        operators,
        shapes,
        modules: sum_trees(
            all().map(|one| one.modules.clone()),
            |one: &ModuleAnalysis| one.name.clone(),
            |one| one.parent,
            |one, parent| ModuleAnalysis {
                parent,
                ..one.clone()
            },
            |sum, one| {
                sum.calls += one.calls;
                sum.times.add(&one.times);
                sum.memory.add(&one.memory);
            },
        ),
        module_classes,
        stacks: sum_trees(
            all().map(|one| one.stacks.clone()),
            |one: &StackAnalysis| one.name.clone(),
            |one| one.parent,
            |one, parent| StackAnalysis {
                parent,
                ..one.clone()
            },
            |sum, one| {
                sum.kernels += one.kernels;
                sum.direct_ns = sum.direct_ns.saturating_add(one.direct_ns);
                sum.backward_ns = sum.backward_ns.saturating_add(one.backward_ns);
                sum.subtree_ns = sum.subtree_ns.saturating_add(one.subtree_ns);
            },
        ),
        modelled_share: ratio(
            products
                .iter()
                .fold(0, |sum, one| one.time_ns.saturating_add(sum)),
            all_ns,
        ),
        products,
        unattributed,
        unattributed_memory,
        peak: first.filter(|first| peaks.all(|peak| peak.as_ref() == Some(first))),
    })
}

#[cfg(test)]
mod tests {
    use super::super::allocations::AllocatedBytes;
    use super::*;

    fn operator(name: &str, direct_ns: i64) -> OperatorAnalysis {
        OperatorAnalysis {
            name: name.to_owned(),
            calls: 1,
            kernels: 1,
            direct_ns,
            subtree_ns: direct_ns,
            share: None,
            host_self_ns: 1,
            host_total_ns: 2,
            host_calls_ns: 1,
            memory: AllocatedBytes::default(),
        }
    }

    fn product(bytes: Option<u64>, time_ns: i64, peak: f64) -> ProductAnalysis {
        ProductAnalysis {
            name: "aten::mm".to_owned(),
            batch: Some(1),
            m: Some(2),
            n: Some(3),
            k: Some(4),
            input_dims: None,
            dtype: "float".to_owned(),
            calls: 1,
            flops: 48,
            bytes,
            time_ns,
            flops_per_second: None,
            bytes_per_second: None,
            peak_flops_per_second: Some(peak),
            peak_share: None,
            bound: Some("compute"),
        }
    }

    fn module(name: &str, parent: Option<usize>, calls: u64) -> ModuleAnalysis {
        ModuleAnalysis {
            name: name.to_owned(),
            parent,
            calls,
            times: ModuleTimes::default(),
            memory: AllocatedBytes::default(),
        }
    }

    fn device(
        operators: Vec<OperatorAnalysis>,
        product: ProductAnalysis,
        modules: Vec<ModuleAnalysis>,
    ) -> Attribution {
        Attribution {
            operators,
            products: vec![product],
            modules,
            unattributed: Some(Unattributed {
                operations_ns: 100,
                no_operator_ns: 10,
                ..Unattributed::default()
            }),
            ..Attribution::default()
        }
    }

    #[test]
    fn ranks_sum_by_name_by_place_in_a_tree_and_rates_are_sums_over_sums() {
        let one = device(
            vec![operator("aten::mm", 50)],
            product(Some(10), 1_000_000_000, 96.0),
            vec![module("a", None, 1), module("b", Some(0), 1)],
        );
        let other = device(
            vec![operator("aten::mm", 100), operator("aten::add", 50)],
            product(None, 3_000_000_000, 96.0),
            vec![
                module("x", None, 1),
                module("a", None, 5),
                module("b", Some(1), 7),
            ],
        );
        let both = over_ranks(&[&one, &other]).unwrap();
        let operators: Vec<_> = both
            .operators
            .iter()
            .map(|row| (row.name.as_str(), row.calls, row.direct_ns, row.share))
            .collect();
        assert_eq!(
            operators,
            [("aten::mm", 2, 150, Some(0.75)), ("aten::add", 1, 50, Some(0.25))]
        );
        assert_eq!(both.unattributed.unwrap().no_operator_ns, 20);
        // 96 in 4 s, of 96 a second at most.
        let [sum] = both.products.as_slice() else {
            panic!("{:?}", both.products);
        };
        assert_eq!(
            (sum.calls, sum.flops_per_second, sum.peak_share),
            (2, Some(24.0), Some(0.25))
        );
        assert_eq!(
            (sum.bytes, sum.bytes_per_second, sum.bound),
            (None, None, Some("compute"))
        );
        assert_eq!(
            both.modules,
            [
                module("a", None, 6),
                module("b", Some(0), 8),
                module("x", None, 1)
            ]
        );
        // Where the devices differ, nothing is said of what both can do.
        let slower = device(Vec::new(), product(Some(10), 1, 48.0), Vec::new());
        let sum = &over_ranks(&[&one, &slower]).unwrap().products[0];
        assert_eq!((sum.peak_share, sum.bound), (None, None));
        assert_eq!(over_ranks(&[&one]), None);
        assert_eq!(
            over_ranks(&[&Attribution::default(), &Attribution::default()]),
            None
        );
    }
}
