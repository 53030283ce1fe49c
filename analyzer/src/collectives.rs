//! Collectives matched over ranks: who arrived when, who waited, how fast the bytes went.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::Serialize;

use crate::collective_parts::Part;
use crate::communication::communicator_text;

/// One collective over the ranks that took part.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Collective {
    /// "AllReduce", ...
    pub name: String,
    /// The communicator's hash, in hexadecimal; "unknown" where the source does not tell communicators apart.
    pub communicator: String,
    /// The communicator's name, where it has one.
    pub communicator_name: Option<String>,
    /// Its number among those of its name on the communicator.
    pub sequence: Option<u64>,
    /// The ranks (in the job) that were recorded.
    pub ranks: Vec<u32>,
    /// Ranks in the communicator, recorded or not.
    pub communicator_ranks: u32,
    /// Start of its first kernel on any rank; null without one.
    pub start_ns: Option<i64>,
    /// Bytes as nccl-tests counts them: count x size, and ranks times that for AllGather and ReduceScatter; null where
    /// elements were counted and their size is not known.
    pub bytes: Option<u64>,
    /// The data type, as the source calls it.
    pub dtype: String,
    /// The longest of its kernels, waiting included; null without one.
    pub longest_kernel_ns: Option<i64>,
    /// Bytes over the transfer's time, GB/s; null where the time is not known.
    pub algbw: Option<f64>,
    /// algbw times nccl-tests' factor for the operation.
    pub busbw: Option<f64>,
    /// By rank: from its own arrival to the last rank's.
    pub wait_ns: BTreeMap<String, i64>,
    /// By rank: from the last rank's arrival to its own end.
    pub transfer_ns: BTreeMap<String, i64>,
    /// Last arrival minus first; null with a rank alone or where clocks can't be compared.
    pub skew_ns: Option<i64>,
    /// The rank that arrived last; null where all arrived at the same time or that is not known.
    pub last_rank: Option<u32>,
    /// Last arrival minus the last but one: what the last rank alone cost.
    pub last_rank_cost_ns: Option<i64>,
    /// "communicator and sequence", or "order" where there is no sequence number: the n-th of its kind on each rank.
    pub matched_by: String,
    /// The communicator's first operation, left out of means.
    pub warm_up: bool,
    /// Operations that ran in the same kernel; with more than one the times are those of all of them.
    pub shared_kernel: usize,
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

/// Whether no rank can end before the last has arrived.
fn is_synchronizing(name: &str) -> bool {
    matches!(
        name,
        "AllReduce" | "AllGather" | "ReduceScatter" | "AlltoAll" | "Barrier"
    )
}

/// All collectives, and what is to be said of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Matched {
    /// By start.
    pub(crate) collectives: Vec<Collective>,
    /// Kernels that were to be matched by order, on ranks that have different numbers of them.
    pub(crate) uneven: u64,
    /// Matched collectives whose kernels do not run at the same time on all ranks.
    pub(crate) apart: u64,
    /// Median, over collectives that no rank can leave early, of last end minus first end: how well the clocks agree.
    pub(crate) end_spread_ns: Option<i64>,
}

/// What belongs together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    communicator: Option<u64>,
    function: String,
    pair: Option<(u32, u32)>,
    /// The sequence number, or the place in order.
    number: u64,
    numbered: bool,
    /// Which of several with one number (coalesced operations have one).
    occurrence: u64,
}

/// Matches the parts of all processes. Arrivals are compared where `one_clock` says that stamps of ranks can be.
pub(crate) fn collectives(parts: &[Vec<Part>], one_clock: bool) -> Matched {
    let mut matched = Matched::default();
    let mut groups: BTreeMap<Key, Vec<&Part>> = BTreeMap::new();
    // How many unnumbered ones each process has, by communicator and name.
    let mut unnumbered: BTreeMap<(Option<u64>, &str), Vec<u64>> = BTreeMap::new();
    for (process, parts) in parts.iter().enumerate() {
        // How many with one communicator, name, pair and number this process had so far.
        let mut seen = HashMap::new();
        for part in parts {
            let function = part.function.as_str();
            let place = seen
                .entry((part.communicator, function, part.pair, part.sequence))
                .or_insert(0_u64);
            let (number, occurrence) = part.sequence.map_or((*place, 0), |sequence| (sequence, *place));
            *place += 1;
            if part.sequence.is_none() && part.pair.is_none() {
                let counts = unnumbered.entry((part.communicator, function)).or_default();
                counts.resize(process + 1, 0);
                counts[process] = *place;
            }
            groups
                .entry(Key {
                    communicator: part.communicator,
                    function: part.function.clone(),
                    pair: part.pair,
                    number,
                    numbered: part.sequence.is_some(),
                    occurrence,
                })
                .or_default()
                .push(part);
        }
    }
    let mut uneven: BTreeSet<(Option<u64>, &str)> = BTreeSet::new();
    for (group, counts) in &unnumbered {
        let mut counts = counts.iter().filter(|count| **count > 0);
        let first = counts.next();
        if counts.any(|count| Some(count) != first) {
            uneven.insert(*group);
        }
    }
    let mut found: Vec<(i64, Collective)> = Vec::new();
    let mut end_spreads: Vec<i64> = Vec::new();
    for (key, parts) in &groups {
        let by_order = !key.numbered && key.pair.is_none();
        if by_order && uneven.contains(&(key.communicator, key.function.as_str())) {
            // The n-th here need not be the n-th there: each stays alone.
            matched.uneven += parts.len() as u64;
            for part in parts {
                let alone = collective(key, &[*part], false, &mut matched.apart, &mut end_spreads);
                found.push((part.enqueued, alone));
            }
        } else {
            let enqueued = parts.iter().map(|part| part.enqueued).min().unwrap_or(0);
            let all = collective(key, parts, one_clock, &mut matched.apart, &mut end_spreads);
            found.push((enqueued, all));
        }
    }
    found.sort_by(|a, b| {
        let key = |collective: &Collective| {
            (
                collective.sequence,
                collective.name.clone(),
                collective.ranks.clone(),
            )
        };
        a.0.cmp(&b.0).then_with(|| key(&a.1).cmp(&key(&b.1)))
    });
    let beginnings: BTreeSet<u64> = parts
        .iter()
        .flatten()
        .filter(|part| part.from_the_beginning)
        .filter_map(|part| part.communicator)
        .collect();
    let beginnings: BTreeSet<String> = beginnings
        .into_iter()
        .map(|hash| communicator_text(Some(hash)))
        .collect();
    let mut seen = BTreeSet::new();
    matched.collectives = found
        .into_iter()
        .map(|(_, mut collective)| {
            collective.warm_up =
                seen.insert(collective.communicator.clone()) && beginnings.contains(&collective.communicator);
            collective
        })
        .collect();
    end_spreads.sort_unstable();
    matched.end_spread_ns = end_spreads.get(end_spreads.len() / 2).copied();
    matched
}

fn collective(
    key: &Key,
    parts: &[&Part],
    one_clock: bool,
    apart: &mut u64,
    end_spreads: &mut Vec<i64>,
) -> Collective {
    let timed: Vec<(u32, i64, i64)> = parts
        .iter()
        .filter_map(|part| part.kernel.map(|(_, start, end)| (part.rank, start, end)))
        .collect();
    let in_communicator = parts
        .iter()
        .map(|part| part.ranks_in_communicator)
        .max()
        .unwrap_or(0);
    let present = u32::try_from(parts.len()).unwrap_or(0);
    let ranks = if key.pair.is_some() {
        2
    } else {
        in_communicator.max(present)
    };
    let first_start = timed.iter().map(|(_, start, _)| *start).min();
    let mut arrivals: Vec<(i64, u32)> = timed.iter().map(|(rank, start, _)| (*start, *rank)).collect();
    arrivals.sort_unstable();
    // Arrivals can only be compared when all ranks are there and share a clock.
    let mut whole = one_clock && timed.len() == ranks as usize;
    let first_end = timed.iter().map(|(.., end)| *end).min().unwrap_or(0);
    let last_end = timed.iter().map(|(.., end)| *end).max().unwrap_or(0);
    if whole && ranks > 1 && is_synchronizing(&key.function) {
        if arrivals.last().is_some_and(|(last, _)| *last > first_end) {
            *apart += 1;
            whole = false;
        } else {
            end_spreads.push(last_end - first_end);
        }
    }
    let (mut wait_ns, mut transfer_ns) = (BTreeMap::new(), BTreeMap::new());
    let last = arrivals.last().copied();
    if let (true, Some((last_start, _))) = (whole, last) {
        for (rank, start, end) in &timed {
            wait_ns.insert(rank.to_string(), last_start - start);
            transfer_ns.insert(rank.to_string(), (end - last_start).max(0));
        }
    }
    let skew_ns = last
        .zip(first_start)
        .filter(|_| whole && ranks > 1)
        .map(|((last_start, _), first)| last_start - first);
    let last_rank = last
        .filter(|_| skew_ns.is_some_and(|skew| skew > 0))
        .map(|(_, rank)| rank);
    let before_last = arrivals.len().checked_sub(2).map(|index| arrivals[index].0);
    let per_rank = parts.iter().filter_map(|part| part.bytes).max();
    let bytes = if counts_all_ranks(&key.function) {
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
        communicator: communicator_text(key.communicator),
        communicator_name: parts.iter().find_map(|part| part.communicator_name.clone()),
        sequence: key.numbered.then_some(key.number),
        ranks: parts
            .iter()
            .map(|part| part.rank)
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect(),
        communicator_ranks: ranks,
        start_ns: first_start,
        longest_kernel_ns: timed.iter().map(|(_, start, end)| end - start).max(),
        bytes,
        dtype: parts.first().map(|part| part.dtype.clone()).unwrap_or_default(),
        algbw,
        busbw: algbw.map(|algbw| algbw * bus_factor(&key.function, f64::from(ranks))),
        wait_ns,
        transfer_ns,
        skew_ns,
        last_rank,
        last_rank_cost_ns: last_rank
            .and(last)
            .zip(before_last)
            .map(|((last_start, _), before)| last_start - before),
        matched_by: if key.numbered {
            "communicator and sequence"
        } else {
            "order"
        }
        .to_owned(),
        warm_up: false,
        shared_kernel,
        name: key.function.clone(),
    }
}
