//! Stacks: what each function, of Python or native, called from where, had launched.

use gputrace_trace::tables::PythonFrames;
use gputrace_trace::{Interner, NameId};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use super::branches::Branches;
use super::launched::Launched;
use super::launched_by::Pass;
use super::native::{Below, Native};
use super::nesting::{NONE, Nesting};

/// A function as it was called from another: of Python, and below it native ones. Times are sums over operations, not time passed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StackAnalysis {
    /// Of Python: file, line and function, or the module. Of native code: the function, and the program or library that it is in.
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

/// Python's function or a native one, by its name.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Name {
    Python(NameId),
    Native(u32),
}

/// A tree that is being made.
#[derive(Default)]
struct Tree {
    stacks: Vec<StackAnalysis>,
    /// By place of the caller, or [`NONE`], and name.
    known: FxHashMap<(u32, Name), u32>,
}

impl Tree {
    fn place(&mut self, parent: u32, name: Name, text: impl FnOnce() -> String) -> u32 {
        *self.known.entry((parent, name)).or_insert_with(|| {
            self.stacks.push(StackAnalysis {
                name: text(),
                parent: (parent != NONE).then_some(parent as usize),
                kernels: 0,
                direct_ns: 0,
                backward_ns: 0,
                subtree_ns: 0,
            });
            u32::try_from(self.stacks.len() - 1).unwrap_or(NONE)
        })
    }
}

/// Stacks under which something ran on a device, each after its caller.
pub(super) fn stacks(
    nesting: &Nesting<'_>,
    native: &Native,
    launched: &[Launched],
    frames: &PythonFrames,
    names: &Interner,
) -> Vec<StackAnalysis> {
    let branches: Branches<1> = Branches::new(nesting, launched.iter().map(|one| (one.frame, 0, one.sum)));
    let mut tree = Tree::default();
    // By number of a branch: its stack.
    let mut of_branch: Vec<u32> = Vec::with_capacity(branches.places.len());
    for (number, place) in branches.places.iter().enumerate() {
        let name = frames.name[nesting.row(*place)];
        let parent = branches.parent(number).map_or(NONE, |parent| of_branch[parent]);
        of_branch.push(tree.place(parent, Name::Python(name), || names.get(name).to_owned()));
    }
    let mut below = Below::new(native);
    for one in launched {
        let branch = branches.places.binary_search(&one.frame);
        let python = branch.map_or(NONE, |number| of_branch[number]);
        let stack = below.find(python, one.native, |parent, name| {
            tree.place(parent, Name::Native(name), || native.text(name).to_owned())
        });
        let Some(stack) = tree.stacks.get_mut(stack as usize) else {
            continue;
        };
        // Sums of a damaged trace may be as great as numbers go.
        let add = |to: &mut i64| *to = to.saturating_add(one.sum.time_ns);
        stack.kernels += one.sum.operations;
        add(&mut stack.direct_ns);
        add(&mut stack.subtree_ns);
        if one.pass == Pass::Backward {
            add(&mut stack.backward_ns);
        }
    }
    let mut stacks = tree.stacks;
    for number in (0..stacks.len()).rev() {
        let (subtree_ns, parent) = (stacks[number].subtree_ns, stacks[number].parent);
        if let Some(parent) = parent {
            let sum = &mut stacks[parent].subtree_ns;
            *sum = sum.saturating_add(subtree_ns);
        }
    }
    stacks
}
