//! The tables of who launched what on a device.

use serde::Serialize;

use super::by_operator::{OperatorAnalysis, ShapeAnalysis};
use super::modules::{ModuleAnalysis, ModuleClassAnalysis};
use super::products::{Peak, ProductAnalysis};
use super::stacks::StackAnalysis;

/// The operations of a device by who launched them.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Attribution {
    /// By operator, those first that launched most time themselves. What launched nothing on any device is with the process's first.
    pub operators: Vec<OperatorAnalysis>,
    /// By operator and the shapes and types of its inputs, likewise.
    pub shapes: Vec<ShapeAnalysis>,
    /// Matrix products, attention and convolutions by size, those first that take longest.
    pub products: Vec<ProductAnalysis>,
    /// The modules of a network as a tree, each after the one that it is in.
    pub modules: Vec<ModuleAnalysis>,
    /// Modules by their class, those first that take longest.
    pub module_classes: Vec<ModuleClassAnalysis>,
    /// Python stacks as a tree, each function after its caller.
    pub stacks: Vec<StackAnalysis>,
    /// What can't be told of whom it is; null without operators and Python functions.
    pub unattributed: Option<Unattributed>,
    /// The part of all operations' durations that operators launched whose work is known; null where there are no operators.
    pub modelled_share: Option<f64>,
    /// What the device can do at most with the type that most of the work is in; null where its data sheet is not known, or no work.
    pub peak: Option<Peak>,
}

/// Sums of durations of operations that nobody is known for. Operators' `direct_ns`, `no_operator_ns` and `launch_not_recorded_ns`
/// sum to `operations_ns`; so do stacks' `direct_ns`, `no_stack_ns` and `launch_not_recorded_ns`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
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
    /// Launched by a call outside of all Python functions, and not in the backward pass of what one did.
    pub no_stack_ns: i64,
}
