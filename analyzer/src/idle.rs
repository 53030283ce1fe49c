//! The gaps of operations, and the idle time of single streams by Holistic Trace Analysis's classes.

use std::collections::BTreeMap;

use gputrace_trace::tables::ApiCalls;
use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::measures::{busy, ratio, window};
use crate::operations::Operation;

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
pub(crate) fn streams(operations: &[Operation], table: &ApiCalls) -> Vec<StreamAnalysis> {
    let mut by_stream: FxHashMap<u32, Vec<Operation>> = FxHashMap::default();
    for operation in operations {
        by_stream.entry(operation.stream).or_default().push(*operation);
    }
    let by_stream: BTreeMap<u32, Vec<Operation>> = by_stream.into_iter().collect();
    by_stream
        .into_iter()
        .map(|(stream, operations)| {
            let (start, end) = window(&operations).unwrap_or_default();
            let (span_ns, busy_ns) = (end - start, busy(&operations).length_ns());
            let [mut host, mut kernel, mut other] = [0; 3];
            for (from, to, operation) in gaps(&operations) {
                let launched_late = operation.call(table).is_some_and(|call| call.start > from);
                if launched_late {
                    host += to - from;
                } else if to - from < CONSECUTIVE_KERNEL_DELAY_NS {
                    kernel += to - from;
                } else {
                    other += to - from;
                }
            }
            StreamAnalysis {
                stream,
                ops: operations.len(),
                span_ns,
                busy_ns,
                idle_ns: span_ns - busy_ns,
                idle_ratio: ratio(span_ns - busy_ns, span_ns),
                idle_host_wait_ns: host,
                idle_kernel_wait_ns: kernel,
                idle_other_ns: other,
            }
        })
        .collect()
}
