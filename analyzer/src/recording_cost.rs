//! What recording cost, as each process's collector measured it itself.

use gputrace_trace::Process;
use serde::Serialize;

/// The cost in one process.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RecordingCost {
    /// The rank in the job, where it is known.
    pub rank: Option<u32>,
    /// Host of the process.
    pub host: String,
    /// Process id.
    pub pid: u32,
    /// How long it was recorded.
    pub wall_ns: u64,
    /// CPU time of the collector's own threads.
    pub own_cpu_ns: u64,
    /// The same over `wall_ns`: what share of one processor core.
    pub own_cpu_share: f64,
    /// Time of the program's threads inside the collector, by samples.
    pub callback_ns: u64,
    /// The same over `wall_ns`.
    pub callback_share: f64,
    /// Records that CUPTI delivered.
    pub records: u64,
    /// Driver calls among them that were folded into the runtime calls that made them.
    pub folded_calls: u64,
    /// Rows written.
    pub rows: u64,
    /// CPU time of the collector's own threads over rows; null without rows.
    pub own_cpu_ns_per_row: Option<f64>,
    /// Bytes on the disk over rows; null without rows.
    pub bytes_per_row: Option<f64>,
    /// Bytes on the disk.
    pub bytes_written: u64,
    /// The most memory that buffers, queues and waiting rows took at a time.
    pub peak_memory_bytes: u64,
    /// Buffers that CUPTI asked for in vain.
    pub buffers_refused: u64,
    /// The longest that asking CUPTI for its buffers took, on a thread of the collector.
    pub longest_flush_ns: u64,
}

fn over(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// What recording cost each process that says so.
pub(crate) fn costs(processes: &[Process]) -> Vec<RecordingCost> {
    let cost = |process: &Process| {
        let header = &process.header;
        let cost = header.collector.as_ref()?;
        Some(RecordingCost {
            rank: header.rank,
            host: header.host.clone(),
            pid: header.pid,
            wall_ns: cost.wall_ns,
            own_cpu_ns: cost.own_cpu_ns,
            own_cpu_share: over(cost.own_cpu_ns, cost.wall_ns).unwrap_or(0.0),
            callback_ns: cost.callback_ns(),
            callback_share: over(cost.callback_ns(), cost.wall_ns).unwrap_or(0.0),
            records: cost.records,
            folded_calls: cost.folded_calls,
            rows: cost.rows,
            own_cpu_ns_per_row: over(cost.own_cpu_ns, cost.rows),
            bytes_per_row: over(cost.bytes_written, cost.rows),
            bytes_written: cost.bytes_written,
            peak_memory_bytes: cost.peak_memory_bytes,
            buffers_refused: cost.buffers_refused,
            longest_flush_ns: cost.longest_flush_ns,
        })
    };
    processes.iter().filter_map(cost).collect()
}

#[cfg(test)]
mod tests {
    use gputrace_trace::manifest::{CallbackCost, CollectorCost, ProcessHeader};

    use super::*;

    #[test]
    fn shares_are_of_the_time_that_was_recorded() {
        let callback = |time_ns| CallbackCost {
            time_ns,
            ..CallbackCost::default()
        };
        let header = ProcessHeader {
            rank: Some(3),
            collector: Some(CollectorCost {
                wall_ns: 1_000_000,
                own_cpu_ns: 20_000,
                callbacks: [
                    ("nccl".to_owned(), callback(1_000)),
                    ("nvtx".to_owned(), callback(4_000)),
                ]
                .into(),
                rows: 100,
                bytes_written: 1_050,
                ..CollectorCost::default()
            }),
            ..ProcessHeader::default()
        };
        let silent = Process::default();
        let recorded = Process {
            header,
            ..Process::default()
        };
        let costs = costs(&[silent, recorded]);
        assert_eq!(costs.len(), 1);
        let cost = &costs[0];
        assert_eq!((cost.rank, cost.callback_ns), (Some(3), 5_000));
        assert_eq!((cost.own_cpu_share, cost.callback_share), (0.02, 0.005));
        assert_eq!(
            (cost.own_cpu_ns_per_row, cost.bytes_per_row),
            (Some(200.0), Some(10.5))
        );
    }
}
