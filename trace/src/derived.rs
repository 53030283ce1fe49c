//! What an analysis adds to a recording's events, for those who write them down in other formats.
//!
//! The analyzer fills it; exporters take it as an argument, so that none of them computes anything of its own. An empty
//! one is as good as any: what is not known is left out.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::measures::Measures;
use crate::names::NameId;

/// What is known of a recording beyond its events.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Derived {
    /// In the order of the recording's processes.
    pub processes: Vec<DerivedProcess>,
    /// Collectives over all ranks, by arrival.
    pub collectives: Vec<DerivedCollective>,
    /// What the time of the steps was spent on, by time: whatever the next piece was waiting for, over all ranks.
    pub critical_path: Vec<DerivedPiece>,
}

/// A piece of the critical path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DerivedPiece {
    /// Its process's place in [`Derived::processes`].
    pub process: u32,
    /// Its rank, where that is known.
    pub rank: Option<u32>,
    /// Start.
    pub start_ns: i64,
    /// End: mostly the start of the next piece.
    pub end_ns: i64,
    /// "kernel", "host", ..., in the analysis' words.
    pub what: &'static str,
    /// Of a kernel its short name, of the host what it was doing; empty where it has none.
    pub name: Arc<str>,
}

/// What is known of one process.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DerivedProcess {
    /// Its training steps, by device and start.
    pub steps: Vec<DerivedStep>,
    /// By row of its kernels: whether the kernel communicates.
    pub communicates: Vec<bool>,
    /// By row of its kernels, who launched it; empty where the recording has neither operators nor Python functions.
    pub launched_by: LaunchedBy,
    /// What it did of collectives: by row of their kernels, those without a kernel last.
    pub parts: Vec<DerivedPart>,
    /// When its devices executed nothing, by device and start.
    pub gaps: Vec<DerivedGap>,
}

/// Who launched kernels, in columns: names, by row of the kernels.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LaunchedBy {
    /// The innermost operator around the call.
    pub operator: Vec<Option<NameId>>,
    /// The sizes of that operator's inputs.
    pub input_dims: Vec<Option<NameId>>,
    /// The frame of the module that it was launched for, forward or backward.
    pub module: Vec<Option<NameId>>,
}

impl LaunchedBy {
    /// The columns with their names.
    #[must_use]
    pub fn columns(&self) -> [(&'static str, &Vec<Option<NameId>>); 3] {
        [
            ("operator", &self.operator),
            ("input_dims", &self.input_dims),
            ("module", &self.module),
        ]
    }

    /// The same columns of some of the rows, in their order.
    #[must_use]
    pub fn picked(&self, keep: impl Fn(usize) -> bool) -> Self {
        let pick = |column: &[Option<NameId>]| {
            let kept = column.iter().enumerate().filter(|(row, _)| keep(*row));
            kept.map(|(_, name)| *name).collect()
        };
        Self {
            operator: pick(&self.operator),
            input_dims: pick(&self.input_dims),
            module: pick(&self.module),
        }
    }
}

/// A training step on one device.
#[derive(Clone, Debug, PartialEq)]
pub struct DerivedStep {
    /// Device index within the process.
    pub device: u32,
    /// Its number, where its name has one.
    pub number: Option<u64>,
    /// The range's text.
    pub name: String,
    /// Start of the first operation that was launched in it.
    pub start_ns: i64,
    /// Start of the first operation of the next one, or the last end of what was launched in this where none follows.
    pub end_ns: i64,
    /// The same step on the host, where a range names it: from its start to that of the next one, or its end.
    pub host_ns: Option<(i64, i64)>,
    /// Whether it was guessed from a pattern.
    pub detected: bool,
    /// Whether it took much longer or shorter than the others.
    pub outlier: bool,
    /// The device's measures within it.
    pub measures: Measures,
}

/// A collective over the ranks that took part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DerivedCollective {
    /// The same for this collective in every export of the recording, and of no other in it; never 0.
    pub id: u64,
    /// "AllReduce", ...
    pub name: String,
    /// The communicator's hash in hexadecimal, or "unknown".
    pub communicator: String,
    /// The communicator's name, where it has one.
    pub communicator_name: Option<String>,
    /// Its number on the communicator.
    pub sequence: Option<u64>,
    /// The ranks that were recorded.
    pub ranks: Vec<u32>,
    /// Ranks in the communicator, recorded or not.
    pub communicator_ranks: Option<u32>,
    /// Bytes as nccl-tests counts them.
    pub bytes: Option<u64>,
    /// The data type, as the source calls it.
    pub dtype: String,
    /// Bytes over the transfer's time, GB/s.
    pub algbw: Option<f64>,
    /// algbw times nccl-tests' factor for the operation, GB/s.
    pub busbw: Option<f64>,
    /// Last arrival minus first.
    pub skew_ns: Option<i64>,
    /// The rank that arrived last.
    pub last_rank: Option<u32>,
    /// The communicator's first operation, left out of means.
    pub warm_up: bool,
}

/// One GPU's part in a collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DerivedPart {
    /// Which, in [`Derived::collectives`].
    pub collective: u32,
    /// Row of the process's kernels.
    pub kernel: Option<u32>,
    /// Row of the process's collectives; of one that a CUDA graph repeats, the same for each.
    pub row: Option<u32>,
    /// Device index within the process, where there is a kernel.
    pub device: Option<u32>,
    /// From its arrival to the last rank's, where arrivals can be compared.
    pub wait_ns: Option<i64>,
    /// The rest of its kernel.
    pub transfer_ns: Option<i64>,
    /// How long its kernel ran beside no compute.
    pub exposed_ns: Option<i64>,
}

/// A stretch in which a device executed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct DerivedGap {
    /// Device index within the process.
    pub device: u32,
    /// End of the operation before.
    pub start_ns: i64,
    /// Start of the operation after.
    pub end_ns: i64,
    /// The cause of its longest part, in the analysis' words.
    pub cause: &'static str,
}

impl DerivedProcess {
    /// The parts in collectives that the kernel in this row carries out: several, where operations of a group share it.
    #[must_use]
    pub fn parts_of_kernel(&self, row: u32) -> &[DerivedPart] {
        let key = |part: &DerivedPart| part.kernel.unwrap_or(u32::MAX);
        let first = self.parts.partition_point(|part| key(part) < row);
        let count = self.parts[first..].partition_point(|part| part.kernel == Some(row));
        &self.parts[first..first + count]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_found_by_their_kernels() {
        let part = |collective, kernel| DerivedPart {
            collective,
            kernel,
            row: None,
            device: None,
            wait_ns: None,
            transfer_ns: None,
            exposed_ns: None,
        };
        let process = DerivedProcess {
            parts: vec![
                part(0, Some(2)),
                part(1, Some(5)),
                part(2, Some(5)),
                part(3, Some(9)),
                part(4, None),
            ],
            ..DerivedProcess::default()
        };
        let of = |row| -> Vec<u32> {
            let parts = process.parts_of_kernel(row);
            parts.iter().map(|part| part.collective).collect()
        };
        assert_eq!((of(2), of(5), of(9)), (vec![0], vec![1, 2], vec![3]));
        assert_eq!((of(0), of(6), of(10)), (vec![], vec![], vec![]));
    }
}
