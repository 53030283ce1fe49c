//! What PyTorch calls things, and what it says of them in NVTX ranges.

mod names;
mod ranges;

pub use names::{begins_backward, is_backward_node, module_name};
pub use ranges::{OperatorRange, Range, range};
