//! Collectives matched over ranks: who arrived when, who waited, how fast the bytes went.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use gputrace_trace::Recording;
use serde::Serialize;

use crate::operations::{Kind, Operation, ProcessOperations};

/// One collective over the ranks that took part.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Collective {
    /// "AllReduce", ...
    pub name: String,
    /// The communicator's hash, in hexadecimal.
    pub communicator: String,
    /// Its number among those of its name on the communicator.
    pub sequence: Option<u64>,
    /// The ranks (in the job) that were recorded.
    pub ranks: Vec<u32>,
    /// Bytes as nccl-tests counts them: count x size, and ranks times that for AllGather and ReduceScatter; null where
    /// elements were counted and their size is not known.
    pub bytes: Option<u64>,
    /// NCCL's name of the data type.
    pub dtype: String,
    /// Bytes over the transfer's time, GB/s; null where the time is not known.
    pub algbw: Option<f64>,
    /// algbw times nccl-tests' factor for the operation.
    pub busbw: Option<f64>,
    /// By rank: from its own arrival to the last rank's.
    pub wait_ns: BTreeMap<String, i64>,
    /// By rank: from the last rank's arrival to its own end.
    pub transfer_ns: BTreeMap<String, i64>,
    /// Last arrival minus first; null with a rank alone or on several hosts.
    pub skew_ns: Option<i64>,
    /// The rank that arrived last; null where all arrived at the same time or that is not known.
    pub last_rank: Option<u32>,
    /// "communicator and sequence", or "order" where NCCL gives no sequence.
    pub matched_by: String,
    /// The communicator's first operation, left out of means.
    pub warm_up: bool,
    /// Operations that ran in the same kernel; with more than one the times are those of all of them.
    pub shared_kernel: usize,
}

/// One rank's part in a collective.
struct Part {
    rank: u32,
    ranks_in_communicator: u32,
    bytes: Option<u64>,
    dtype: String,
    kernel: Option<(i64, i64)>,
    shared: usize,
    enqueued: i64,
}

/// nccl-tests' factor from algbw to busbw (its PERFORMANCE.md).
fn bus_factor(name: &str, ranks: f64) -> f64 {
    match name {
        "AllReduce" => 2.0 * (ranks - 1.0) / ranks,
        "AllGather" | "ReduceScatter" | "AlltoAll" => (ranks - 1.0) / ranks,
        _ => 1.0,
    }
}

/// Whether each rank holds only a share of the bytes that are counted.
fn counts_all_ranks(name: &str) -> bool {
    matches!(name, "AllGather" | "ReduceScatter" | "AlltoAll")
}

/// All collectives by start, and how many operations no kernel was found for.
pub(crate) fn collectives(recording: &Recording, operations: &[ProcessOperations]) -> (Vec<Collective>, u64) {
    // By communicator, name, matching number and whether that number is NCCL's own.
    let mut groups: BTreeMap<(u64, String, u64, bool), Vec<Part>> = BTreeMap::new();
    let mut without_kernel = 0;
    let mut hosts = BTreeSet::new();
    for (index, (process, operations)) in recording.processes.iter().zip(operations).enumerate() {
        let rows = &process.tables.collectives;
        if rows.start_ns.is_empty() {
            continue;
        }
        hosts.insert(process.header.host.as_str());
        let sizes: HashMap<u64, u32> = process
            .tables
            .communicators
            .communicator
            .iter()
            .copied()
            .zip(process.tables.communicators.ranks.iter().copied())
            .collect();
        let mut sharing: HashMap<u64, usize> = HashMap::new();
        for plan in rows.plan.iter().flatten() {
            *sharing.entry(*plan).or_default() += 1;
        }
        let kernels: HashMap<u32, &Operation> = operations
            .devices
            .values()
            .flatten()
            .filter(|operation| operation.kind == Kind::Communication)
            .map(|operation| (operation.correlation, operation))
            .collect();
        let mut order: HashMap<(u64, String), u64> = HashMap::new();
        for row in 0..rows.start_ns.len() {
            let name = recording.names.get(rows.function[row]).to_owned();
            let communicator = rows.communicator[row];
            let number = rows.sequence[row].unwrap_or_else(|| {
                let next = order.entry((communicator, name.clone())).or_default();
                *next += 1;
                *next - 1
            });
            let kernel = rows.plan[row]
                .and_then(|plan| operations.plans.get(&plan))
                .and_then(|correlation| kernels.get(correlation))
                .map(|kernel| (kernel.start, kernel.end));
            without_kernel += u64::from(kernel.is_none());
            groups
                .entry((communicator, name, number, rows.sequence[row].is_some()))
                .or_default()
                .push(Part {
                    rank: process
                        .header
                        .rank
                        .unwrap_or(u32::try_from(index).unwrap_or(u32::MAX)),
                    ranks_in_communicator: sizes.get(&communicator).copied().unwrap_or(0),
                    bytes: Some(rows.bytes[row]).filter(|&bytes| bytes > 0 || rows.count[row] == 0),
                    dtype: recording.names.get(rows.datatype[row]).to_owned(),
                    kernel,
                    shared: rows.plan[row]
                        .and_then(|plan| sharing.get(&plan).copied())
                        .unwrap_or(1),
                    enqueued: rows.start_ns[row].0,
                });
        }
    }
    let one_host = hosts.len() <= 1;
    let mut found: Vec<(i64, Collective)> = groups
        .into_iter()
        .map(|((communicator, name, number, numbered), parts)| {
            let enqueued = parts.iter().map(|part| part.enqueued).min().unwrap_or(0);
            (
                enqueued,
                matched(communicator, name, number, numbered, &parts, one_host),
            )
        })
        .collect();
    found.sort_by(|a, b| a.0.cmp(&b.0).then_with(|| a.1.sequence.cmp(&b.1.sequence)));
    let mut seen = BTreeSet::new();
    let found = found.into_iter().map(|(_, mut collective)| {
        collective.warm_up = seen.insert(collective.communicator.clone());
        collective
    });
    (found.collect(), without_kernel)
}

fn matched(
    communicator: u64,
    name: String,
    number: u64,
    numbered: bool,
    parts: &[Part],
    one_host: bool,
) -> Collective {
    let timed: Vec<(u32, i64, i64)> = parts
        .iter()
        .filter_map(|part| part.kernel.map(|(start, end)| (part.rank, start, end)))
        .collect();
    let ranks_in_communicator = parts
        .iter()
        .map(|part| part.ranks_in_communicator)
        .max()
        .unwrap_or(0);
    let ranks = ranks_in_communicator.max(u32::try_from(parts.len()).unwrap_or(0));
    // Arrivals can only be compared when all ranks are there and share a clock.
    let whole = one_host && timed.len() == ranks as usize;
    let last = timed
        .iter()
        .max_by_key(|(rank, start, _)| (*start, *rank))
        .copied();
    let first_start = timed.iter().map(|(_, start, _)| *start).min();
    let (mut wait_ns, mut transfer_ns) = (BTreeMap::new(), BTreeMap::new());
    if let (true, Some((_, last_start, _))) = (whole, last) {
        for (rank, start, end) in &timed {
            wait_ns.insert(rank.to_string(), last_start - start);
            transfer_ns.insert(rank.to_string(), (end - last_start).max(0));
        }
    }
    let skew_ns = last
        .zip(first_start)
        .filter(|_| whole && ranks > 1)
        .map(|((_, last_start, _), first)| last_start - first);
    let per_rank = parts.iter().filter_map(|part| part.bytes).max();
    let bytes = if counts_all_ranks(&name) {
        per_rank.map(|bytes| bytes.saturating_mul(u64::from(ranks)))
    } else {
        per_rank
    };
    let shared_kernel = parts.iter().map(|part| part.shared).max().unwrap_or(1);
    let slowest = transfer_ns
        .values()
        .copied()
        .max()
        .filter(|&time| time > 0 && shared_kernel == 1);
    // Bytes a nanosecond are GB/s.
    let algbw = slowest.zip(bytes).map(|(time, bytes)| bytes as f64 / time as f64);
    Collective {
        communicator: format!("{communicator:#018x}"),
        sequence: numbered.then_some(number),
        ranks: parts
            .iter()
            .map(|part| part.rank)
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect(),
        bytes,
        dtype: parts.first().map(|part| part.dtype.clone()).unwrap_or_default(),
        algbw,
        busbw: algbw.map(|algbw| algbw * bus_factor(&name, f64::from(ranks))),
        wait_ns,
        transfer_ns,
        skew_ns,
        last_rank: last
            .filter(|_| skew_ns.is_some_and(|skew| skew > 0))
            .map(|(rank, ..)| rank),
        matched_by: if numbered {
            "communicator and sequence"
        } else {
            "order"
        }
        .to_owned(),
        warm_up: false,
        shared_kernel,
        name,
    }
}
