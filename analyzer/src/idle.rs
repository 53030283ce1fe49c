//! The gaps of operations; single streams: their measures, and their idle time by Holistic Trace Analysis's classes.

use std::collections::BTreeMap;

use gputrace_trace::tables::ApiCalls;
use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::kinds::Kind;
use crate::measures::{busy, ratio, union_of_kind, window};
use crate::operations::Operation;
use crate::pauses::Pauses;

/// A gap that was launched in time and is shorter than this is HTA's kernel wait (its `consecutive_kernel_delay` of 30,
/// documented as nanoseconds and used as microseconds).
const CONSECUTIVE_KERNEL_DELAY_NS: i64 = 30_000;

/// One stream's operations.
#[derive(Clone, Debug, PartialEq, Serialize)]
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

/// The streams of a device's (sorted) operations.
pub(crate) fn streams(operations: &[Operation], table: &ApiCalls, pauses: &Pauses) -> Vec<StreamAnalysis> {
    let mut by_stream: FxHashMap<u32, Vec<Operation>> = FxHashMap::default();
    for operation in operations {
        by_stream.entry(operation.stream).or_default().push(*operation);
    }
    let by_stream: BTreeMap<u32, Vec<Operation>> = by_stream.into_iter().collect();
    let computing = union_of_kind(operations, Kind::Compute);
    by_stream
        .into_iter()
        .map(|(stream, operations)| {
            let (start, end) = window(&operations).unwrap_or_default();
            let busy = busy(&operations);
            let span_ns = end - start - pauses.without_operations_ns(&busy, start, end);
            let busy_ns = busy.length_ns();
            let [mut host, mut kernel, mut other] = [0; 3];
            for (from, to, operation) in gaps(&operations) {
                for (from, part_end) in pauses.recorded(from, to) {
                    let launched_late =
                        part_end == to && operation.call(table).is_some_and(|call| call.start > from);
                    if launched_late {
                        host += part_end - from;
                    } else if part_end == to && to - from < CONSECUTIVE_KERNEL_DELAY_NS {
                        kernel += to - from;
                    } else {
                        other += part_end - from;
                    }
                }
            }
            let communication = union_of_kind(&operations, Kind::Communication);
            let communication_ns = communication.length_ns();
            let hidden_ns = communication.intersection(&computing).length_ns();
            StreamAnalysis {
                stream,
                ops: operations.len(),
                span_ns,
                busy_ns,
                idle_ns: span_ns - busy_ns,
                idle_ratio: ratio(span_ns - busy_ns, span_ns),
                compute_ns: union_of_kind(&operations, Kind::Compute).length_ns(),
                communication_ns,
                communication_hidden_ns: hidden_ns,
                communication_exposed_ns: communication_ns - hidden_ns,
                overlap_ratio: ratio(hidden_ns, communication_ns),
                copy_ns: union_of_kind(&operations, Kind::Copy).length_ns(),
                memset_ns: union_of_kind(&operations, Kind::Memset).length_ns(),
                idle_host_wait_ns: host,
                idle_kernel_wait_ns: kernel,
                idle_other_ns: other,
            }
        })
        .collect()
}
