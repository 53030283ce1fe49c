//! What of an analysis is printed, and how.

use gputrace_analyzer::Sort;

/// What to print.
#[derive(Clone, Copy, Debug)]
pub struct View {
    /// The GPUs were simulated.
    pub simulated: bool,
    /// Why each name has its kind, too.
    pub explain: bool,
    /// How many kernels, in which order.
    pub top: usize,
    pub sort: Sort,
    /// Kernels by their whole names.
    pub full_names: bool,
}
