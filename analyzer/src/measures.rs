//! The measures of one device over a window: span, busy, idle, unions by kind, hidden and exposed communication.

use serde::Serialize;

use crate::intervals::IntervalSet;
use crate::kinds::Kind;
use crate::operations::Operation;
use crate::pauses::Pauses;

/// Durations of one device over a window, in nanoseconds. All but the ratios are lengths of unions, never sums.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Measures {
    /// First operation's start to last operation's end.
    pub span_ns: i64,
    /// Time with at least one operation.
    pub busy_ns: i64,
    /// Span minus busy.
    pub idle_ns: i64,
    /// Idle over span; null without a span.
    pub idle_ratio: Option<f64>,
    /// Time with a compute kernel.
    pub compute_ns: i64,
    /// Time with a communication kernel.
    pub communication_ns: i64,
    /// Time with a copy.
    pub copy_ns: i64,
    /// Time with a copy during which no compute kernel runs.
    pub copy_exposed_ns: i64,
    /// Time with a memset.
    pub memset_ns: i64,
    /// Communication during which compute runs too.
    pub communication_hidden_ns: i64,
    /// The rest of communication.
    pub communication_exposed_ns: i64,
    /// Hidden over communication; null without communication.
    pub overlap_ratio: Option<f64>,
}

/// `part` over `whole`; `None` when there is no whole.
pub(crate) fn ratio(part: i64, whole: i64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// The time in which operations (sorted by start) of a kind run.
pub(crate) fn union_of_kind(operations: &[Operation], kind: Kind) -> IntervalSet {
    let of_kind = operations.iter().filter(|operation| operation.kind == kind);
    IntervalSet::union_of_sorted(of_kind.map(|operation| (operation.start, operation.end)))
}

/// The time in which any operation (sorted by start) runs.
pub(crate) fn busy(operations: &[Operation]) -> IntervalSet {
    IntervalSet::union_of_sorted(
        operations
            .iter()
            .map(|operation| (operation.start, operation.end)),
    )
}

/// First start and last end.
pub(crate) fn window(operations: &[Operation]) -> Option<(i64, i64)> {
    let start = operations.iter().map(|operation| operation.start).min()?;
    let end = operations.iter().map(|operation| operation.end).max()?;
    Some((start, end))
}

/// Whether something from `from` to `to` has a part in `[start, end)`; without length it has if it lies inside.
pub(crate) fn lies_within(from: i64, to: i64, start: i64, end: i64) -> bool {
    from < end && (to > start || from == to && from >= start)
}

/// The operations with a part in `[start, end)`, whole.
pub(crate) fn within(operations: &[Operation], start: i64, end: i64) -> Vec<Operation> {
    let inside = |operation: &&Operation| lies_within(operation.start, operation.end, start, end);
    operations.iter().filter(inside).copied().collect()
}

/// The parts of operations inside `[start, end)`.
pub(crate) fn clip(operations: &[Operation], start: i64, end: i64) -> Vec<Operation> {
    let inside = |operation: &&Operation| lies_within(operation.start, operation.end, start, end);
    let cut = |operation: &Operation| Operation {
        start: operation.start.max(start),
        end: operation.end.min(end),
        ..*operation
    };
    operations.iter().filter(inside).map(cut).collect()
}

impl Measures {
    /// The measures of some operations of one device.
    pub(crate) fn of(operations: &[Operation], pauses: &Pauses) -> Self {
        let Some((start, end)) = window(operations) else {
            return Self::default();
        };
        let compute = union_of_kind(operations, Kind::Compute);
        let communication = union_of_kind(operations, Kind::Communication);
        let hidden_ns = communication.intersection(&compute).length_ns();
        let busy = busy(operations);
        let span_ns = end - start - pauses.without_operations_ns(&busy, start, end);
        let busy_ns = busy.length_ns();
        let communication_ns = communication.length_ns();
        let copy = union_of_kind(operations, Kind::Copy);
        Self {
            span_ns,
            busy_ns,
            idle_ns: span_ns - busy_ns,
            idle_ratio: ratio(span_ns - busy_ns, span_ns),
            compute_ns: compute.length_ns(),
            communication_ns,
            copy_ns: copy.length_ns(),
            copy_exposed_ns: copy.length_ns() - copy.intersection(&compute).length_ns(),
            memset_ns: union_of_kind(operations, Kind::Memset).length_ns(),
            communication_hidden_ns: hidden_ns,
            communication_exposed_ns: communication_ns - hidden_ns,
            overlap_ratio: ratio(hidden_ns, communication_ns),
        }
    }
}
