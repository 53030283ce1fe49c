//! What a kernel or an enqueueing says of the NCCL operations it is about, in Kineto's words.

use gputrace_trace::{Interner, Process, Recording};
use rustc_hash::{FxHashMap, FxHashSet};

use super::event::{EventWriter, json_string};
use crate::export::layout::CommunicatorNames;
use crate::export::words;

/// Who is in the communicators of a recording.
pub struct Members {
    /// By communicator: ranks in it and in the job.
    ranks: FxHashMap<u64, Vec<(u32, u32)>>,
}

impl Members {
    /// Of those that `process` is in.
    pub fn of(recording: &Recording, process: &Process) -> Self {
        let own = process.tables.communicators.communicator.iter();
        let mut ranks: FxHashMap<u64, Vec<(u32, u32)>> = own.map(|hash| (*hash, Vec::new())).collect();
        let mut seen = FxHashSet::default();
        for process in &recording.processes {
            let Some(rank) = process.header.rank else { continue };
            let table = &process.tables.communicators;
            seen.clear();
            for (hash, place) in table.communicator.iter().zip(&table.rank) {
                // The first row of each counts.
                if let Some(ranks) = ranks.get_mut(hash).filter(|_| seen.insert(*hash)) {
                    ranks.push((*place, rank));
                }
            }
        }
        Self { ranks }
    }

    /// The ranks of the job that are in a communicator, as PyTorch writes them: `[0, 1]`. `None` unless all of them are in the
    /// recording.
    pub fn text(&self, communicator: u64, size: u32) -> Option<String> {
        let mut members = self.ranks.get(&communicator)?.clone();
        members.sort_unstable();
        members.dedup();
        let ranks: Vec<u32> = members.iter().map(|(_, rank)| *rank).collect();
        (size > 0 && ranks.len() == size as usize).then(|| format!("{ranks:?}"))
    }
}

/// A communicator, as JSON.
struct Group {
    name: Box<[u8]>,
    description: Box<[u8]>,
    size: Option<u32>,
    ranks: Option<Box<[u8]>>,
}

/// The communicators of a process.
pub struct Groups<'r> {
    process: &'r Process,
    names: &'r Interner,
    known: FxHashMap<u64, Group>,
}

impl<'r> Groups<'r> {
    pub fn new(
        recording: &'r Recording,
        process: &'r Process,
        communicators: &CommunicatorNames<'_>,
    ) -> Self {
        let table = &process.tables.communicators;
        let mut sizes = FxHashMap::default();
        for (communicator, ranks) in table.communicator.iter().zip(&table.ranks) {
            sizes.entry(*communicator).or_insert(*ranks);
        }
        let members = Members::of(recording, process);
        let mut known = FxHashMap::default();
        for &communicator in &process.tables.collectives.communicator {
            known.entry(communicator).or_insert_with(|| {
                let size = sizes.get(&communicator).copied();
                let ranks = size.and_then(|size| members.text(communicator, size));
                Group {
                    name: json_string(&communicators.of(communicator)),
                    description: json_string(&format!("communicator {communicator:#x}")),
                    size,
                    ranks: ranks.map(|ranks| json_string(&ranks)),
                }
            });
        }
        Self {
            process,
            names: &recording.names,
            known,
        }
    }

    /// Writes what these rows of `collectives` say.
    ///
    /// Operations of one group share a kernel: their elements are summed where all are of one kind, and the number of them
    /// is given.
    pub fn write(&self, rows: &[u32], writer: &mut EventWriter<'_>) {
        let table = &self.process.tables.collectives;
        let Some(first) = rows.first().map(|&row| row as usize) else {
            return;
        };
        let same = |differs: &dyn Fn(usize) -> bool| !rows.iter().any(|&row| differs(row as usize));
        let one_function = same(&|row| table.function[row] != table.function[first]);
        let one_datatype = same(&|row| table.datatype[row] != table.datatype[first]);
        let one_communicator = same(&|row| table.communicator[row] != table.communicator[first]);
        let function = self.names.get(table.function[first]);
        let group = self.known.get(&table.communicator[first]);
        if one_function && one_datatype {
            let count = rows
                .iter()
                .fold(0u64, |sum, &row| sum.saturating_add(table.count[row as usize]));
            let size = group.and_then(|group| group.size).filter(|&size| size > 0);
            // NCCL counts what one rank gives (AllGather) or gets (ReduceScatter), or each gives each other one; the other
            // side is as many times as much.
            let times = |count: u64| size.map(|ranks| count.saturating_mul(ranks.into()));
            let (elements_in, elements_out) = match function {
                "AllGather" | "Gather" => (Some(count), times(count)),
                "ReduceScatter" | "Scatter" => (times(count), Some(count)),
                "AlltoAll" => (times(count), times(count)),
                _ => (Some(count), Some(count)),
            };
            writer.text("Collective name", &words::kineto_collective_name(function));
            if let (Some(elements_in), Some(elements_out), Some(size)) = (elements_in, elements_out, size) {
                writer.unsigned("In msg nelems", elements_in);
                writer.unsigned("Out msg nelems", elements_out);
                writer.unsigned("Group size", size);
            }
            let datatype = self.names.get(table.datatype[first]);
            writer.text("dtype", words::datatype_name(datatype));
        }
        if let Some(group) = group.filter(|_| one_communicator) {
            writer.raw("Process Group Name", &group.name);
            writer.raw("Process Group Description", &group.description);
            if let Some(ranks) = &group.ranks {
                writer.raw("Process Group Ranks", ranks);
            }
            writer.unsigned("Rank", table.rank[first]);
        }
        let bytes = rows
            .iter()
            .fold(0u64, |sum, &row| sum.saturating_add(table.bytes[row as usize]));
        writer.unsigned("bytes", bytes);
        if let [row] = rows {
            let row = *row as usize;
            writer.maybe("Seq", table.sequence[row]);
            let peer = match function {
                "Send" => Some("Dst Rank"),
                "Recv" => Some("Src Rank"),
                _ => None,
            };
            if let (Some(key), Some(peer)) = (peer, table.peer[row]) {
                writer.signed(key, peer);
            }
            if let Some(root) = table.root[row] {
                writer.signed("Root Rank", root);
            }
            for (key, name) in [
                ("algorithm", table.algorithm[row]),
                ("protocol", table.protocol[row]),
            ] {
                if let Some(name) = name {
                    writer.text(key, self.names.get(name));
                }
            }
            writer.unsigned("channels", table.channels[row]);
        } else {
            writer.unsigned("operations in kernel", rows.len() as u64);
        }
    }
}
