//! The tables of who launched what on a device.

use serde::{Deserialize, Serialize};

use super::allocations::UnattributedMemory;
use super::by_operator::{OperatorAnalysis, ShapeAnalysis};
use super::modules::{ModuleAnalysis, ModuleClassAnalysis};
use super::products::{Peak, ProductAnalysis};
use super::stacks::StackAnalysis;

/// What each operator, module and function of the host launched on a device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Attribution {
    /// By operator name, longest `direct_ns` first. Operators that launched nothing are listed under the process's first device.
    pub operators: Vec<OperatorAnalysis>,
    /// The same by operator name and the shapes and types of its inputs.
    pub shapes: Vec<ShapeAnalysis>,
    /// Matrix products, attention and convolutions by size, longest first.
    pub products: Vec<ProductAnalysis>,
    /// The network's modules as a tree: a parent comes before its children.
    pub modules: Vec<ModuleAnalysis>,
    /// Modules by class, longest first.
    pub module_classes: Vec<ModuleClassAnalysis>,
    /// Stacks of the host as a tree, of Python's functions and native ones: a caller comes before the functions that it calls.
    pub stacks: Vec<StackAnalysis>,
    /// GPU time that can't be attributed; null where neither operators nor functions of the host are recorded.
    pub unattributed: Option<Unattributed>,
    /// The device's memory, and how much of it nobody is known for; null where neither operators nor Python functions, or no
    /// allocations are recorded.
    pub unattributed_memory: Option<UnattributedMemory>,
    /// Share of GPU time in operators that have a FLOP model; null without operators.
    pub modelled_share: Option<f64>,
    /// The device's peak rate for the data type with the most FLOP; null where the device is unknown or no FLOP are counted.
    pub peak: Option<Peak>,
}

/// GPU time (sums of durations) that can't be attributed. Operators' `direct_ns`, `no_operator_ns` and `launch_not_recorded_ns`
/// sum to `operations_ns`; so do stacks' `direct_ns`, `no_stack_ns` and `launch_not_recorded_ns`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unattributed {
    /// All operations of the device.
    pub operations_ns: i64,
    /// Launched by a call outside of all operators.
    pub no_operator_ns: i64,
    /// The part of that which replays of CUDA graphs launched.
    pub graph_ns: i64,
    /// No call is recorded for it.
    pub launch_not_recorded_ns: i64,
    /// Launched by a call outside of all modules, and not in the backward pass of one.
    pub no_module_ns: i64,
    /// Launched by a call whose stack is not known: outside of all Python functions, and not in the backward pass of what one did, and
    /// without native functions.
    pub no_stack_ns: i64,
}
