//! How many operations wait on each stream: launched by the host and not begun by the device.

use std::collections::BTreeMap;

use gputrace_trace::TimeNs;
use gputrace_trace::tables::ApiCalls;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::operations::Operation;

/// A stream's queue holds about so many launches before the next launch call blocks (seen, not documented by CUDA).
pub(crate) const FULL_QUEUE: usize = 1024;
/// Points of a timeline.
const TIMELINE_POINTS: i64 = 100;

/// The queue of one stream over its time: from its first launch to its last operation's start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueueAnalysis {
    /// CUPTI's stream id.
    pub stream: u32,
    /// Most operations that waited at once.
    pub max_depth: usize,
    /// Mean over time, not over changes.
    pub mean_depth: f64,
    /// Time with at least 1,024 waiting operations.
    pub full_ns: i64,
    /// Time and greatest depth from then to the next point, at most 100 points.
    pub timeline: Vec<(TimeNs, usize)>,
}

/// When the operations of one stream were launched and when they began.
#[derive(Clone, Debug, Default)]
struct Queue {
    launched: Vec<i64>,
    begun: Vec<i64>,
}

/// The queues of a device's streams.
#[derive(Clone, Debug, Default)]
pub(crate) struct Queues {
    by_stream: BTreeMap<u32, Queue>,
}

impl Queues {
    /// From a device's operations; those whose call is not recorded are not seen.
    pub(crate) fn new(operations: &[Operation], table: &ApiCalls) -> Self {
        let mut by_stream: FxHashMap<u32, Queue> = FxHashMap::default();
        for operation in operations {
            if let Some(call) = operation.call(table) {
                let queue = by_stream.entry(operation.stream).or_default();
                // A clock that is off must not make an operation leave before it came.
                queue.launched.push(call.start.min(operation.start));
                queue.begun.push(operation.start);
            }
        }
        for queue in by_stream.values_mut() {
            queue.launched.sort_unstable();
            queue.begun.sort_unstable();
        }
        Self {
            by_stream: by_stream.into_iter().collect(),
        }
    }

    /// Whether any queue may have been full at any time.
    pub(crate) fn was_full(&self) -> bool {
        self.by_stream.values().any(|queue| {
            // So many are waiting when the one that came so many places later comes before this one begins.
            let late = queue.launched.get(FULL_QUEUE - 1..).unwrap_or_default();
            late.iter()
                .zip(&queue.begun)
                .any(|(launch, begin)| launch <= begin)
        })
    }

    /// Operations waiting on a stream at a moment.
    pub(crate) fn depth_at(&self, stream: u32, time: i64) -> usize {
        self.by_stream.get(&stream).map_or(0, |queue| {
            let came = queue.launched.partition_point(|launch| *launch <= time);
            came - queue.begun.partition_point(|begin| *begin <= time)
        })
    }

    /// Each queue over time.
    pub(crate) fn analyses(&self) -> Vec<QueueAnalysis> {
        self.by_stream
            .iter()
            .map(|(&stream, queue)| queue.analysis(stream))
            .collect()
    }
}

impl Queue {
    fn analysis(&self, stream: u32) -> QueueAnalysis {
        let first = self.launched.first().copied().unwrap_or(0);
        let last = self.begun.last().copied().unwrap_or(0);
        let width = ((last - first) / TIMELINE_POINTS + 1).max(1);
        let mut timeline: Vec<(i64, usize)> = Vec::new();
        let (mut depth, mut max_depth, mut full_ns, mut at) = (0usize, 0usize, 0i64, first);
        let mut area = 0i128;
        let (mut launched, mut begun) = (self.launched.iter().peekable(), self.begun.iter().peekable());
        loop {
            // Launches first: an operation that begins as it is launched has waited no time, and never less than none.
            let next_launch = launched.peek().copied().copied();
            let next_begin = begun.peek().copied().copied();
            let (time, comes) = match (next_launch, next_begin) {
                (Some(launch), Some(begin)) if launch <= begin => (launch, true),
                (_, Some(begin)) => (begin, false),
                (Some(launch), None) => (launch, true),
                (None, None) => break,
            };
            area += depth as i128 * i128::from(time - at);
            if depth >= FULL_QUEUE {
                full_ns += time - at;
            }
            at = time;
            let before = depth;
            if comes {
                launched.next();
                depth += 1;
            } else {
                begun.next();
                depth = depth.saturating_sub(1);
            }
            max_depth = max_depth.max(depth);
            let bucket = first + (time - first) / width * width;
            match timeline.last_mut() {
                Some((start, greatest)) if *start == bucket => *greatest = depth.max(*greatest),
                // Until the change the stretch has the depth that it began with.
                _ if time > bucket => timeline.push((bucket, depth.max(before))),
                _ => timeline.push((bucket, depth)),
            }
        }
        QueueAnalysis {
            stream,
            max_depth,
            mean_depth: if last > first {
                area as f64 / (last - first) as f64
            } else {
                0.0
            },
            full_ns,
            timeline: timeline
                .into_iter()
                .map(|(time, depth)| (TimeNs(time), depth))
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_counts_from_launch_to_start() {
        // Launched at 0, 10, 20; begun at 5, 30, 40: depth 1, 0, 1, 2, 1, 0.
        let queue = Queue {
            launched: vec![0, 10, 20],
            begun: vec![5, 30, 40],
        };
        let analysis = queue.analysis(7);
        assert_eq!((analysis.max_depth, analysis.full_ns), (2, 0));
        // 5 x 1 + 10 x 1 + 10 x 2 + 10 x 1 over 40 ns.
        assert!((analysis.mean_depth - 45.0 / 40.0).abs() < 1e-12);
        let queues = Queues {
            by_stream: BTreeMap::from([(7, queue)]),
        };
        assert_eq!(
            [0, 5, 15, 20, 30, 40].map(|time| queues.depth_at(7, time)),
            [1, 0, 1, 2, 1, 0]
        );
    }

    #[test]
    fn a_full_queue_is_timed() {
        let queue = Queue {
            launched: (0..2000).collect(),
            begun: (0..2000).map(|index| 10_000 + index).collect(),
        };
        // 1,024 are waiting from 1,023 on, until 2000 - 1023 have begun.
        assert_eq!(queue.analysis(0).full_ns, 10_000 + 976 - 1023);
    }
}
