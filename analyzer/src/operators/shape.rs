//! What operators are told apart by: name, and sizes and types of inputs.

use gputrace_trace::NameId;
use gputrace_trace::tables::Operators;

/// Name, sizes and types of inputs.
pub(super) type Shape = (NameId, Option<NameId>, Option<NameId>);

/// The shape of an operator.
pub(super) fn shape(operators: &Operators, row: usize) -> Shape {
    (
        operators.name[row],
        operators.input_dims[row],
        operators.input_types[row],
    )
}
