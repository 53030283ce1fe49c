//! The modules of a network: what was launched for each, forward, recomputed and backward.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use gputrace_trace::Interner;
use gputrace_trace::pytorch::module_name;
use gputrace_trace::tables::PythonFrames;
use rustc_hash::{FxHashMap, FxHashSet};
use serde::{Deserialize, Serialize};

use super::allocations::{Allocated, AllocatedBytes, of_key};
use super::branches::{Branches, Keyed, Sum};
use super::launched::Launched;
use super::launched_by::LaunchedBy;
use super::nesting::NONE;

/// Sums of durations of operations launched for a module, by pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModuleTimes {
    /// Launched in its forward pass, modules inside it included.
    pub forward_ns: i64,
    /// The same without modules inside it.
    pub forward_self_ns: i64,
    /// Launched when its forward pass was done once more in the backward pass.
    pub recompute_ns: i64,
    /// The same without modules inside it.
    pub recompute_self_ns: i64,
    /// Launched in the backward pass of what it did.
    pub backward_ns: i64,
    /// The same without modules inside it.
    pub backward_self_ns: i64,
}

impl ModuleTimes {
    /// All of it, modules inside it included.
    #[must_use]
    pub fn total_ns(&self) -> i64 {
        [self.forward_ns, self.recompute_ns, self.backward_ns]
            .into_iter()
            .fold(0, i64::saturating_add)
    }
}

/// A module. Times are sums over operations, not time passed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModuleAnalysis {
    /// Its class and number: "Linear_3".
    pub name: String,
    /// The one that it is in most often, by its place in the list; null where it is in none.
    pub parent: Option<usize>,
    /// How often it ran.
    pub calls: u64,
    /// What was launched for it.
    #[serde(flatten)]
    pub times: ModuleTimes,
    /// The device's memory that was asked for in it, in any pass.
    #[serde(flatten)]
    pub memory: AllocatedBytes,
}

/// All modules of a class.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModuleClassAnalysis {
    /// The class: "Linear".
    pub name: String,
    /// How many modules.
    pub modules: u64,
    /// How often they ran.
    pub calls: u64,
    /// What was launched for them; each operation once, also where one is in another.
    #[serde(flatten)]
    pub times: ModuleTimes,
    /// The device's memory that was asked for in them, in any pass.
    #[serde(flatten)]
    pub memory: AllocatedBytes,
}

/// The class of "Linear_3".
pub(super) fn class(module: &str) -> &str {
    match module.rsplit_once('_') {
        Some((class, number)) if !class.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()) => {
            class
        }
        _ => module,
    }
}

/// Modules that are called the same.
#[derive(Default)]
struct Known<'a> {
    /// By name, in the order in which they first ran.
    names: Vec<&'a str>,
    calls: Vec<u64>,
    /// By module: how often it was in which.
    around: Vec<BTreeMap<usize, u64>>,
}

impl<'a> Known<'a> {
    /// The modules of a process; those first that ran first.
    fn of(
        by: &LaunchedBy<'_>,
        frames: &PythonFrames,
        names: &'a Interner,
        chosen: Option<(i64, i64)>,
    ) -> (Self, FxHashMap<u32, usize>) {
        let mut places: Vec<u32> = by.frames.places().filter(|place| by.is_module(*place)).collect();
        places.sort_by_key(|place| (by.frames.start(*place), *place));
        let mut known = Self::default();
        let mut numbers: FxHashMap<&str, usize> = FxHashMap::default();
        let mut of_place = FxHashMap::default();
        for place in places {
            let name = module_name(names.get(frames.name[by.frames.row(place)])).unwrap_or_default();
            let number = *numbers.entry(name).or_insert(known.names.len());
            if number == known.names.len() {
                known.names.push(name);
                known.calls.push(0);
                known.around.push(BTreeMap::new());
            }
            let start = by.frames.start(place);
            known.calls[number] += u64::from(chosen.is_none_or(|(first, end)| (first..end).contains(&start)));
            of_place.insert(place, number);
        }
        for (place, number) in &of_place {
            if let Some(around) = by.module_around(*place).map(|around| of_place[&around])
                && around != *number
            {
                *known.around[*number].entry(around).or_default() += 1;
            }
        }
        (known, of_place)
    }

    /// The module that each is in most often; none where they would be in each other.
    fn parents(&self) -> Vec<Option<usize>> {
        let mut parents: Vec<Option<usize>> = self
            .around
            .iter()
            .map(|around| {
                let most = around
                    .iter()
                    .max_by_key(|(number, times)| (**times, Reverse(**number)));
                most.map(|(number, _)| *number)
            })
            .collect();
        // What is reached from a module upwards was looked at with it.
        let mut looked_at = vec![false; parents.len()];
        for first in 0..parents.len() {
            let mut way = FxHashSet::default();
            let mut at = first;
            while !looked_at[at] && way.insert(at) {
                match parents[at] {
                    Some(parent) if way.contains(&parent) => parents[at] = None,
                    Some(parent) => at = parent,
                    None => break,
                }
            }
            for module in way {
                looked_at[module] = true;
            }
        }
        parents
    }
}

/// The modules of a process as a tree, and by class.
pub(super) struct Modules<'a> {
    known: Known<'a>,
    /// By place of a module's frame.
    of_place: FxHashMap<u32, usize>,
    /// By module.
    parents: Vec<Option<usize>>,
    /// In the order of the tree.
    order: Vec<usize>,
    /// Sorted.
    classes: Vec<&'a str>,
    /// By module.
    class_of: Vec<usize>,
}

impl<'a> Modules<'a> {
    /// Of a process; of their calls those count that begin in the chosen time on the host, where one is chosen.
    pub(super) fn new(
        by: &LaunchedBy<'_>,
        frames: &PythonFrames,
        names: &'a Interner,
        chosen: Option<(i64, i64)>,
    ) -> Self {
        let (known, of_place) = Known::of(by, frames, names, chosen);
        let (parents, order) = in_order(&known);
        let mut classes: Vec<&str> = known.names.iter().map(|name| class(name)).collect();
        classes.sort_unstable();
        classes.dedup();
        let class_of = |name: &&str| classes.partition_point(|other| *other < class(name));
        Self {
            class_of: known.names.iter().map(class_of).collect(),
            known,
            of_place,
            parents,
            order,
            classes,
        }
    }

    /// With what was launched for them on a device; those for which nothing was only where `with_idle`.
    pub(super) fn on_device(
        &self,
        by: &LaunchedBy<'_>,
        launched: &[Launched],
        allocated: Option<&Allocated>,
        with_idle: bool,
    ) -> (Vec<ModuleAnalysis>, Vec<ModuleClassAnalysis>) {
        let branches: Branches<3> = Branches::new(
            &by.frames,
            launched
                .iter()
                .filter(|one| one.module != NONE)
                .map(|one| (one.module, one.pass as usize, one.sum)),
        );
        let module = |place: u32| self.of_place.get(&place).copied();
        let times = sums(&branches, module);
        let memory = allocated.map(|allocated| allocated.of_modules(module));
        let class = |place: u32| module(place).map(|module| self.class_of[module]);
        let of_class = sums(&branches, class);
        let class_memory = allocated.map(|allocated| allocated.of_modules(class));
        let shown = |module: &usize| {
            let allocates = || {
                memory
                    .as_ref()
                    .is_some_and(|memory| memory.contains_key(&Some(*module)))
            };
            with_idle || times.contains_key(module) || allocates()
        };
        let mut place_of: FxHashMap<usize, usize> = FxHashMap::default();
        let mut modules = Vec::new();
        for module in self.order.iter().copied().filter(shown) {
            place_of.insert(module, modules.len());
            modules.push(ModuleAnalysis {
                name: self.known.names[module].to_owned(),
                parent: self.parents[module].and_then(|parent| place_of.get(&parent).copied()),
                calls: self.known.calls[module],
                times: times.get(&module).copied().unwrap_or_default(),
                memory: of_key(memory.as_ref(), &Some(module)),
            });
        }
        let mut classes: Vec<ModuleClassAnalysis> = self
            .classes
            .iter()
            .enumerate()
            .map(|(place, name)| ModuleClassAnalysis {
                name: (*name).to_owned(),
                modules: 0,
                calls: 0,
                times: of_class.get(&place).copied().unwrap_or_default(),
                memory: of_key(class_memory.as_ref(), &Some(place)),
            })
            .collect();
        for module in (0..self.class_of.len()).filter(shown) {
            let class = &mut classes[self.class_of[module]];
            class.modules += 1;
            class.calls += self.known.calls[module];
        }
        classes.retain(|class| class.modules > 0);
        classes.sort_by(|a, b| {
            b.times
                .total_ns()
                .cmp(&a.times.total_ns())
                .then_with(|| a.name.cmp(&b.name))
        });
        (modules, classes)
    }
}

/// Parents by number, and the numbers in the order of the tree: each after its parent, those of one parent as they first ran.
fn in_order(known: &Known<'_>) -> (Vec<Option<usize>>, Vec<usize>) {
    let parents = known.parents();
    let mut inside: Vec<Vec<usize>> = vec![Vec::new(); parents.len()];
    let mut open: Vec<usize> = Vec::new();
    for (number, parent) in parents.iter().enumerate() {
        match parent {
            Some(parent) => inside[*parent].push(number),
            None => open.push(number),
        }
    }
    open.reverse();
    let mut order = Vec::with_capacity(parents.len());
    while let Some(number) = open.pop() {
        order.push(number);
        open.extend(inside[number].iter().rev());
    }
    (parents, order)
}

/// Times by key; frames without one are no modules.
fn sums(branches: &Branches<3>, key: impl Fn(u32) -> Option<usize>) -> FxHashMap<usize, ModuleTimes> {
    let sums = branches.by_key(key).into_iter();
    sums.filter_map(|(key, Keyed { direct, subtree })| {
        let time_ns = |sum: Sum| sum.time_ns;
        let [forward_self_ns, recompute_self_ns, backward_self_ns] = direct.map(time_ns);
        let [forward_ns, recompute_ns, backward_ns] = subtree.map(time_ns);
        let times = ModuleTimes {
            forward_ns,
            forward_self_ns,
            recompute_ns,
            recompute_self_ns,
            backward_ns,
            backward_self_ns,
        };
        Some((key?, times))
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_is_a_name_without_its_number() {
        assert_eq!(class("Linear_3"), "Linear");
        assert_eq!(class("My_Block_12"), "My_Block");
        assert_eq!(class("Linear"), "Linear");
        assert_eq!(class("_3"), "_3");
    }

    #[test]
    fn modules_in_each_other_have_an_outer_one_all_the_same() {
        let known = Known {
            names: vec!["A_0", "B_0", "C_0"],
            calls: vec![1, 1, 1],
            around: vec![
                BTreeMap::from([(1, 1)]),
                BTreeMap::from([(0, 1)]),
                BTreeMap::from([(1, 2), (0, 1)]),
            ],
        };
        let (parents, order) = in_order(&known);
        assert_eq!(order.len(), 3);
        assert!(parents[0].is_none() || parents[1].is_none());
        assert_eq!(parents[2], Some(1));
    }
}
