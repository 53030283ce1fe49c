//! What PyTorch's profiler calls things.

/// Its frames of modules begin so (torch/csrc/autograd/profiler_python.cpp).
const MODULE: &str = "nn.Module: ";
/// Autograd's operator around each node of the backward pass (torch/csrc/autograd/engine.cpp).
const EVALUATE: &str = "autograd::engine::evaluate_function";
/// What the names of its nodes contain: "MmBackward0", and the "MyFunctionBackward" of a function that a program defines.
const BACKWARD: &str = "Backward";
/// Nodes that are called otherwise: "torch::autograd::AccumulateGrad", "torch::autograd::CopySlices".
const NODES: &str = "torch::autograd::";

/// The module of a Python function: "Linear_3" of "nn.Module: Linear_3"; `None` of a function that is none.
#[must_use]
pub fn module_name(function: &str) -> Option<&str> {
    function.strip_prefix(MODULE)
}

/// Whether what an operator of this name launches is of the backward pass.
#[must_use]
pub fn begins_backward(operator: &str) -> bool {
    operator.starts_with(EVALUATE)
}

/// Whether an operator of the backward pass is a node of it, which has its forward operator's sequence number: "MmBackward0".
#[must_use]
pub fn is_backward_node(operator: &str, forward_thread: Option<u32>) -> bool {
    !begins_backward(operator) && forward_thread.is_some() && operator.contains(BACKWARD)
}

/// Whether an operator is of the backward pass by its name alone, so that its sequence number is that of a forward operator.
pub(super) fn is_of_backward(operator: &str) -> bool {
    begins_backward(operator) || operator.contains(BACKWARD) || operator.contains(NODES)
}
