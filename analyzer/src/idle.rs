//! The gaps of operations; single streams: their measures, and their idle time by Holistic Trace Analysis's classes.

use std::collections::BTreeMap;

use gputrace_trace::tables::ApiCalls;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::intervals::IntervalSet;
use crate::kinds::Kind;
use crate::measures::{ratio, union_of_kind};
use crate::operations::Operation;
use crate::pauses::Pauses;

/// A gap that was launched in time and is shorter than this is HTA's kernel wait (its `consecutive_kernel_delay` of 30,
/// documented as nanoseconds and used as microseconds).
const CONSECUTIVE_KERNEL_DELAY_NS: i64 = 30_000;

/// One stream's operations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StreamAnalysis {
    /// CUPTI's stream id.
    pub stream: u32,
    /// How many operations.
    pub ops: usize,
    /// First start to last end.
    pub span_ns: i64,
    /// Union of its operations.
    pub busy_ns: i64,
    /// Span minus busy.
    pub idle_ns: i64,
    /// Idle over span; null without a span.
    pub idle_ratio: Option<f64>,
    /// Time with a compute kernel of the stream.
    pub compute_ns: i64,
    /// Time with a communication kernel of the stream.
    pub communication_ns: i64,
    /// The part of that in which the device computes too, on any stream.
    pub communication_hidden_ns: i64,
    /// The rest of it.
    pub communication_exposed_ns: i64,
    /// Hidden over communication; null without communication.
    pub overlap_ratio: Option<f64>,
    /// Time with a copy of the stream.
    pub copy_ns: i64,
    /// Time with a memset of the stream.
    pub memset_ns: i64,
    /// HTA's host wait: gaps that end with an operation launched after the one before it had ended.
    pub idle_host_wait_ns: i64,
    /// HTA's kernel wait: gaps shorter than 30 us that were launched in time.
    pub idle_kernel_wait_ns: i64,
    /// HTA's other: the rest.
    pub idle_other_ns: i64,
}

/// The gaps of sorted operations: the gap's start and end, and the operation that ends it.
pub(crate) fn gaps(operations: &[Operation]) -> impl Iterator<Item = (i64, i64, &Operation)> {
    let mut reached: Option<i64> = None;
    operations.iter().filter_map(move |operation| {
        let gap = reached
            .filter(|reached| operation.start > *reached)
            .map(|reached| (reached, operation.start, operation));
        reached = Some(reached.map_or(operation.end, |reached| reached.max(operation.end)));
        gap
    })
}

/// The length of a union of intervals that come sorted by start.
#[derive(Default)]
struct Covered {
    length: i64,
    reached: Option<i64>,
}

impl Covered {
    fn add(&mut self, start: i64, end: i64) {
        let from = self.reached.map_or(start, |reached| reached.max(start));
        if end > from {
            self.length += end - from;
            self.reached = Some(end);
        }
    }
}

/// A stream, as far as its operations have been gone through.
#[derive(Default)]
struct Stream {
    ops: usize,
    start: i64,
    end: i64,
    busy: Covered,
    /// In the order of [`Kind::ALL`].
    kinds: [Covered; Kind::ALL.len()],
    communication: Vec<(i64, i64)>,
    /// Of the gaps, what was not recorded.
    paused: i64,
    host: i64,
    kernel: i64,
    other: i64,
}

impl Stream {
    /// Adds an operation, which does not start before the last one.
    fn add(&mut self, operation: &Operation, table: &ApiCalls, pauses: &Pauses) {
        let (start, end) = (operation.start, operation.end);
        if self.ops == 0 {
            (self.start, self.end) = (start, end);
        } else if start > self.end {
            self.add_gap(self.end, operation, table, pauses);
        }
        self.ops += 1;
        self.end = self.end.max(end);
        self.busy.add(start, end);
        self.kinds[operation.kind as usize].add(start, end);
        if operation.kind == Kind::Communication {
            self.communication.push((start, end));
        }
    }

    /// Adds the time from `from` until an operation that ended it.
    fn add_gap(&mut self, from: i64, operation: &Operation, table: &ApiCalls, pauses: &Pauses) {
        let to = operation.start;
        self.paused += to - from;
        for (from, part_end) in pauses.recorded(from, to) {
            self.paused -= part_end - from;
            let launched_late = part_end == to && operation.call(table).is_some_and(|call| call.start > from);
            if launched_late {
                self.host += part_end - from;
            } else if part_end == to && to - from < CONSECUTIVE_KERNEL_DELAY_NS {
                self.kernel += to - from;
            } else {
                self.other += part_end - from;
            }
        }
    }

    fn analysis(self, stream: u32, computing: &IntervalSet) -> StreamAnalysis {
        let span_ns = self.end - self.start - self.paused;
        let busy_ns = self.busy.length;
        let of_kind = |kind: Kind| self.kinds[kind as usize].length;
        let communication_ns = of_kind(Kind::Communication);
        let communication = IntervalSet::union_of_sorted(self.communication.iter().copied());
        let hidden_ns = communication.intersection(computing).length_ns();
        StreamAnalysis {
            stream,
            ops: self.ops,
            span_ns,
            busy_ns,
            idle_ns: span_ns - busy_ns,
            idle_ratio: ratio(span_ns - busy_ns, span_ns),
            compute_ns: of_kind(Kind::Compute),
            communication_ns,
            communication_hidden_ns: hidden_ns,
            communication_exposed_ns: communication_ns - hidden_ns,
            overlap_ratio: ratio(hidden_ns, communication_ns),
            copy_ns: of_kind(Kind::Copy),
            memset_ns: of_kind(Kind::Memset),
            idle_host_wait_ns: self.host,
            idle_kernel_wait_ns: self.kernel,
            idle_other_ns: self.other,
        }
    }
}

/// The streams of a device's (sorted) operations: gone through once, since millions of them are far from each other in memory.
pub(crate) fn streams(operations: &[Operation], table: &ApiCalls, pauses: &Pauses) -> Vec<StreamAnalysis> {
    let mut by_stream: FxHashMap<u32, Stream> = FxHashMap::default();
    for operation in operations {
        let stream = by_stream.entry(operation.stream).or_default();
        stream.add(operation, table, pauses);
    }
    let computing = union_of_kind(operations, Kind::Compute);
    let by_stream: BTreeMap<u32, Stream> = by_stream.into_iter().collect();
    let streams = by_stream.into_iter();
    streams
        .map(|(number, stream)| stream.analysis(number, &computing))
        .collect()
}

#[cfg(test)]
mod tests {
    use gputrace_trace::NameId;
    use proptest::prelude::*;

    use super::*;
    use crate::kinds::KindFrom;
    use crate::measures::{busy, window};
    use crate::operations::{NO_CALL, Name};

    proptest! {
        /// Each stream's times are those of the unions and gaps of its operations alone.
        #[test]
        fn streams_are_what_each_is_alone(
            all in proptest::collection::vec((0i64..40, 0i64..30, 0u32..3, 0usize..4), 0..60),
            active in proptest::collection::vec((0i64..60, 0i64..60), 0..4),
        ) {
            let mut now = 0;
            let operations: Vec<Operation> = (0u32..)
                .zip(&all)
                .map(|(row, (gap, length, stream, kind))| {
                    now += gap;
                    Operation {
                        start: now,
                        end: now + length,
                        context: 1,
                        stream: *stream,
                        correlation: row,
                        row,
                        call: NO_CALL,
                        name: Name::Kernel(NameId::default()),
                        kind: Kind::ALL[*kind],
                        kind_from: KindFrom::Record,
                    }
                })
                .collect();
            let mut windows = Vec::new();
            let mut now = 0;
            for (gap, length) in active {
                windows.push((now + gap, now + gap + length));
                now += gap + length;
            }
            let pauses = Pauses::between(&windows);
            let computing = union_of_kind(&operations, Kind::Compute);
            let found = streams(&operations, &ApiCalls::default(), &pauses);
            prop_assert!(found.is_sorted_by_key(|stream| stream.stream));
            prop_assert_eq!(found.iter().map(|stream| stream.ops).sum::<usize>(), operations.len());
            for stream in found {
                let own: Vec<Operation> =
                    operations.iter().filter(|operation| operation.stream == stream.stream).copied().collect();
                let (start, end) = window(&own).unwrap();
                let busy = busy(&own);
                prop_assert_eq!(stream.ops, own.len());
                prop_assert_eq!(stream.busy_ns, busy.length_ns());
                prop_assert_eq!(stream.span_ns, end - start - pauses.without_operations_ns(&busy, start, end));
                let of_kind = |kind| union_of_kind(&own, kind).length_ns();
                prop_assert_eq!(
                    [stream.compute_ns, stream.communication_ns, stream.copy_ns, stream.memset_ns],
                    Kind::ALL.map(of_kind)
                );
                let communication = union_of_kind(&own, Kind::Communication);
                prop_assert_eq!(stream.communication_hidden_ns, communication.intersection(&computing).length_ns());
                let waits = stream.idle_host_wait_ns + stream.idle_kernel_wait_ns + stream.idle_other_ns;
                prop_assert_eq!(waits, stream.idle_ns);
                let gaps = gaps(&own).flat_map(|(from, to, _)| pauses.recorded(from, to));
                prop_assert_eq!(waits, gaps.map(|(from, to)| to - from).sum::<i64>());
            }
        }
    }
}
