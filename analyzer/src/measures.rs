//! The measures of one device over a window: span, busy, idle, unions by kind, hidden and exposed communication.

use gputrace_trace::measures::Measures;

use crate::intervals::{IntervalSet, Lengths};
use crate::kinds::Kind;
use crate::operations::Operation;
use crate::pauses::Pauses;

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

/// What the operations of one device come to in any window, in a time that depends neither on how many there are nor on how
/// they overlap: a device may have as many steps as operations.
pub(crate) struct Sums {
    busy: Lengths,
    compute: Lengths,
    communication: Lengths,
    hidden: Lengths,
    copy: Lengths,
    copy_hidden: Lengths,
    memset: Lengths,
    /// Pauses in which nothing ran.
    quiet: Lengths,
    /// Operations without length, sorted: they begin and end a span as others do.
    moments: Vec<i64>,
}

impl Sums {
    /// Of (sorted) operations.
    pub(crate) fn new(operations: &[Operation], pauses: &Pauses) -> Self {
        let of_kind = |kind| union_of_kind(operations, kind);
        let (compute, communication, copy) = (
            of_kind(Kind::Compute),
            of_kind(Kind::Communication),
            of_kind(Kind::Copy),
        );
        let busy = busy(operations);
        let moments = operations
            .iter()
            .filter(|operation| operation.start == operation.end);
        Self {
            hidden: Lengths::new(communication.intersection(&compute)),
            copy_hidden: Lengths::new(copy.intersection(&compute)),
            quiet: Lengths::new(pauses.without_operations(&busy)),
            moments: moments.map(|operation| operation.start).collect(),
            busy: Lengths::new(busy),
            compute: Lengths::new(compute),
            communication: Lengths::new(communication),
            copy: Lengths::new(copy),
            memset: Lengths::new(of_kind(Kind::Memset)),
        }
    }

    /// The measures of all of them.
    pub(crate) fn all(&self) -> Measures {
        self.within(i64::MIN, i64::MAX)
    }

    /// The measures of what has a part in `[from, to)`, cut to it.
    pub(crate) fn within(&self, from: i64, to: i64) -> Measures {
        if to <= from {
            return Measures::default();
        }
        let moments = &self.moments;
        let first = moments.partition_point(|moment| *moment < from);
        let after = moments.partition_point(|moment| *moment < to);
        let moments = moments[first..after].first().zip(moments[first..after].last());
        let moments = moments.map(|(first, last)| (*first, *last));
        let extents = [self.busy.extent_within(from, to), moments];
        let extent = extents
            .into_iter()
            .flatten()
            .reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
        let Some((start, end)) = extent else {
            return Measures::default();
        };
        let length = |lengths: &Lengths| lengths.within(start, end);
        let span_ns = end - start - length(&self.quiet);
        let (busy_ns, communication_ns, hidden_ns) = (
            length(&self.busy),
            length(&self.communication),
            length(&self.hidden),
        );
        Measures {
            span_ns,
            busy_ns,
            idle_ns: span_ns - busy_ns,
            idle_ratio: ratio(span_ns - busy_ns, span_ns),
            compute_ns: length(&self.compute),
            communication_ns,
            copy_ns: length(&self.copy),
            copy_exposed_ns: length(&self.copy) - length(&self.copy_hidden),
            memset_ns: length(&self.memset),
            communication_hidden_ns: hidden_ns,
            communication_exposed_ns: communication_ns - hidden_ns,
            overlap_ratio: ratio(hidden_ns, communication_ns),
        }
    }
}

#[cfg(test)]
mod tests {
    use gputrace_trace::NameId;
    use proptest::prelude::*;

    use super::*;
    use crate::kinds::KindFrom;
    use crate::operations::{NO_CALL, Name};

    /// The measures of operations that were cut, each set of time made anew.
    fn plainly(operations: &[Operation], pauses: &Pauses) -> Measures {
        let Some((start, end)) = window(operations) else {
            return Measures::default();
        };
        let length = |kind| union_of_kind(operations, kind).length_ns();
        let [compute, communication, copy] =
            [Kind::Compute, Kind::Communication, Kind::Copy].map(|kind| union_of_kind(operations, kind));
        let busy = busy(operations);
        let span_ns = end - start - pauses.without_operations_ns(&busy, start, end);
        let hidden_ns = communication.intersection(&compute).length_ns();
        Measures {
            span_ns,
            busy_ns: busy.length_ns(),
            idle_ns: span_ns - busy.length_ns(),
            idle_ratio: ratio(span_ns - busy.length_ns(), span_ns),
            compute_ns: length(Kind::Compute),
            communication_ns: length(Kind::Communication),
            copy_ns: length(Kind::Copy),
            copy_exposed_ns: length(Kind::Copy) - copy.intersection(&compute).length_ns(),
            memset_ns: length(Kind::Memset),
            communication_hidden_ns: hidden_ns,
            communication_exposed_ns: length(Kind::Communication) - hidden_ns,
            overlap_ratio: ratio(hidden_ns, length(Kind::Communication)),
        }
    }

    proptest! {
        #[test]
        fn a_window_s_sums_are_those_of_what_is_cut_to_it(
            all in proptest::collection::vec((0i64..40, 0i64..30, 0usize..4), 0..40),
            active in proptest::collection::vec((0i64..60, 0i64..60), 0..4),
            windows in proptest::collection::vec((0i64..400, 0i64..200), 1..20),
        ) {
            let mut now = 0;
            let operations: Vec<Operation> = (0u32..)
                .zip(&all)
                .map(|(row, (gap, length, kind))| {
                    now += gap;
                    Operation {
                        start: now,
                        end: now + length,
                        context: 1,
                        stream: 7,
                        correlation: row,
                        row,
                        call: NO_CALL,
                        name: Name::Kernel(NameId::default()),
                        kind: Kind::ALL[*kind],
                        kind_from: KindFrom::Record,
                    }
                })
                .collect();
            let mut now = 0;
            let active: Vec<(i64, i64)> = active
                .into_iter()
                .map(|(gap, length)| {
                    now += gap + length;
                    (now - length, now)
                })
                .collect();
            let pauses = Pauses::between(&active);
            let sums = Sums::new(&operations, &pauses);
            prop_assert_eq!(sums.all(), plainly(&operations, &pauses));
            for (start, length) in windows {
                let cut = clip(&operations, start, start + length);
                prop_assert_eq!(sums.within(start, start + length), plainly(&cut, &pauses));
            }
        }
    }
}
