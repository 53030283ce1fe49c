//! Python stacks: what each function, called from where, had launched.

use gputrace_trace::tables::PythonFrames;
use gputrace_trace::{Interner, NameId};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use super::branches::Branches;
use super::launched::Launched;
use super::launched_by::Pass;
use super::nesting::Nesting;

/// A Python function as it was called from another. Times are sums over operations, not time passed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StackAnalysis {
    /// File, line and function, or the module.
    pub name: String,
    /// Its caller, by its place in the list; null for the outermost.
    pub parent: Option<usize>,
    /// Operations launched by it and by no function that it called.
    pub kernels: u64,
    /// Sum of their durations.
    pub direct_ns: i64,
    /// The part of that which its backward pass launched.
    pub backward_ns: i64,
    /// `direct_ns` including the functions that it called.
    pub subtree_ns: i64,
}

/// Stacks under which something ran on a device, each after its caller.
pub(super) fn stacks(
    nesting: &Nesting<'_>,
    launched: &[Launched],
    frames: &PythonFrames,
    names: &Interner,
) -> Vec<StackAnalysis> {
    let branches: Branches<2> = Branches::new(
        nesting,
        launched
            .iter()
            .map(|one| (one.frame, usize::from(one.pass == Pass::Backward), one.sum)),
    );
    let mut stacks: Vec<StackAnalysis> = Vec::new();
    let mut known: FxHashMap<(Option<usize>, NameId), usize> = FxHashMap::default();
    // By number of a branch: its stack.
    let mut of_branch: Vec<usize> = Vec::with_capacity(branches.places.len());
    for (number, place) in branches.places.iter().enumerate() {
        let name = frames.name[nesting.row(*place)];
        let parent = branches.parent(number).map(|parent| of_branch[parent]);
        let stack = *known.entry((parent, name)).or_insert_with(|| {
            stacks.push(StackAnalysis {
                name: names.get(name).to_owned(),
                parent,
                kernels: 0,
                direct_ns: 0,
                backward_ns: 0,
                subtree_ns: 0,
            });
            stacks.len() - 1
        });
        of_branch.push(stack);
        let stack = &mut stacks[stack];
        let add = |to: &mut i64, more: i64| *to = to.saturating_add(more);
        let [other, backward] = branches.direct[number];
        stack.kernels += other.operations + backward.operations;
        add(&mut stack.direct_ns, other.time_ns);
        add(&mut stack.direct_ns, backward.time_ns);
        add(&mut stack.backward_ns, backward.time_ns);
        for sum in branches.subtree[number] {
            add(&mut stack.subtree_ns, sum.time_ns);
        }
    }
    stacks
}
