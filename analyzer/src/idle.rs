//! Where a device's idle time comes from, and the idle time of single streams.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;

use crate::measures::{busy, ratio, window};
use crate::operations::{Call, Operation, ProcessOperations};

/// A gap that was launched in time and is shorter than this is HTA's kernel wait (its `consecutive_kernel_delay` of 30,
/// documented as nanoseconds and used as microseconds).
const CONSECUTIVE_KERNEL_DELAY_NS: i64 = 30_000;

/// What of a gap lies after the launch call is not told apart from launching up to this length.
const LONG_LAUNCH_NS: i64 = 20_000;

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
fn gaps(operations: &[Operation]) -> impl Iterator<Item = (i64, i64, &Operation)> {
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
pub(crate) fn streams(operations: &[Operation], calls: &HashMap<u32, Call>) -> Vec<StreamAnalysis> {
    let mut by_stream: BTreeMap<u32, Vec<Operation>> = BTreeMap::new();
    for operation in operations {
        by_stream.entry(operation.stream).or_default().push(*operation);
    }
    by_stream
        .into_iter()
        .map(|(stream, operations)| {
            let (start, end) = window(&operations).unwrap_or_default();
            let (span_ns, busy_ns) = (end - start, busy(&operations).length_ns());
            let [mut host, mut kernel, mut other] = [0; 3];
            for (from, to, operation) in gaps(&operations) {
                let launched_late = calls
                    .get(&operation.correlation)
                    .is_some_and(|call| call.start > from);
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

/// The device's idle time by cause; the parts sum to it.
///
/// Each gap is split at the start of the call that launched the operation which ends it: before it the host was late,
/// after it the launch took its time. What lies after the call's end is waiting for an event when it is long and the
/// stream was told to wait for one since the operation before. Without a record of the call the cause is unknown.
pub(crate) fn causes(operations: &[Operation], process: &ProcessOperations) -> BTreeMap<String, i64> {
    let mut causes: BTreeMap<String, i64> = BTreeMap::new();
    let mut add = |cause: &str, length: i64| {
        if length > 0 {
            *causes.entry(cause.to_owned()).or_default() += length;
        }
    };
    let mut reached: Option<i64> = None;
    // When the latest operation of each stream was launched: an event wait before that held that one up.
    let mut launched: HashMap<(u32, u32), i64> = HashMap::new();
    for operation in operations {
        let stream = (operation.context, operation.stream);
        let call = process.calls.get(&operation.correlation);
        if let Some(from) = reached.filter(|reached| operation.start > *reached) {
            let to = operation.start;
            match call {
                None => add("unknown", to - from),
                Some(call) => {
                    let (begun, ended) = (call.start.clamp(from, to), call.end.clamp(from, to));
                    add("host_late", begun - from);
                    let since = launched.get(&stream).copied().unwrap_or(i64::MIN);
                    if to - ended > LONG_LAUNCH_NS && process.waited_for_event(operation, since, call.start) {
                        add("launch_latency", ended - begun);
                        add("event_wait", to - ended);
                    } else {
                        add("launch_latency", to - begun);
                    }
                }
            }
        }
        reached = Some(reached.map_or(operation.end, |reached| reached.max(operation.end)));
        if let Some(call) = call {
            launched.insert(stream, call.start);
        }
    }
    causes
}
