//! Collectives matched over ranks: who arrived when, who waited, how fast the bytes went.

use gputrace_trace::TimeNs;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::collective_parts::{Part, Participant};
use crate::communication::communicator_text;
use crate::comparable::Comparison;
use crate::details::CollectivePart;
use crate::statistics::nearest_rank;

/// One collective over the ranks that took part.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Collective {
    /// "AllReduce", ...
    pub name: String,
    /// The communicator's hash, in hexadecimal; "unknown" where the source does not tell communicators apart.
    pub communicator: String,
    /// The communicator's name, where it has one.
    pub communicator_name: Option<String>,
    /// Its number on the communicator: NCCL counts those of each name, PyTorch all.
    pub sequence: Option<u64>,
    /// The ranks (in the job; where no process says its rank, their order) that were recorded.
    pub ranks: Vec<u32>,
    /// Ranks in the communicator, recorded or not; null where that is not known. Of a transfer between two ranks it is 2.
    pub communicator_ranks: Option<u32>,
    /// Of a transfer between two ranks: the job's rank that sends; null of all else, and where that end was not recorded.
    pub sender: Option<u32>,
    /// The rank that receives, likewise.
    pub receiver: Option<u32>,
    /// Start of its first kernel on any rank; null without one.
    pub start_ns: Option<TimeNs>,
    /// Bytes as nccl-tests counts them: count x size, and ranks times that for AllGather, ReduceScatter, AlltoAll, Gather and
    /// Scatter; null where the source does not say.
    pub bytes: Option<u64>,
    /// The data type, as the source calls it.
    pub dtype: String,
    /// The longest of its kernels, waiting included; null without one.
    pub longest_kernel_ns: Option<i64>,
    /// Bytes over the transfer's time, GB/s; null where the time is not known.
    pub algbw: Option<f64>,
    /// algbw times nccl-tests' factor for the operation.
    pub busbw: Option<f64>,
    /// What algbw is between, where clocks differ by as much as they may; null where algbw is.
    pub algbw_range: Option<BandwidthRange>,
    /// Of several hosts: with a probability of 99 % each wait, transfer and skew is right within this. 0 by one clock; null where
    /// arrivals are not compared.
    pub clock_error_ns: Option<i64>,
    /// By rank: from its own arrival to the last rank's, or to its own end where that comes first. Where several GPUs of a
    /// process take part the key is "rank.device".
    pub wait_ns: BTreeMap<String, i64>,
    /// By rank: the rest of its kernel.
    pub transfer_ns: BTreeMap<String, i64>,
    /// Last arrival minus first; null with a rank alone or where clocks can't be compared.
    pub skew_ns: Option<i64>,
    /// The rank that arrived last; null where all arrived at the same time or that is not known.
    pub last_rank: Option<u32>,
    /// Why it is not known, where clocks are not exact enough: which it seems to be, and by how much; else null.
    pub last_undecided: Option<Undecided>,
    /// Last arrival minus the last but one: what the last rank alone cost.
    pub last_rank_cost_ns: Option<i64>,
    /// "communicator and sequence", or "order" where there is no sequence number: the n-th of its kind on each rank.
    pub matched_by: String,
    /// The communicator's first operation, left out of means.
    pub warm_up: bool,
    /// Operations that ran in the same kernel; with more than one the times are those of all of them.
    pub shared_kernel: usize,
    /// What each GPU did of it, by arrival, those without a kernel last: until the details take it.
    #[serde(skip)]
    pub(crate) parts: Vec<CollectivePart>,
    /// What sums over collectives need and the JSON has in other words.
    #[serde(skip)]
    pub(crate) timing: Timing,
}

/// Who was last cannot be decided: clocks may be off by more than what lies between.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Undecided {
    /// The rank that was last by the stamps.
    pub rank: u32,
    /// By how much, before the one that may have been last as well.
    pub margin_ns: i64,
    /// By how much their clocks may be off (99 %).
    pub clock_error_ns: i64,
}

/// What a bandwidth lies between.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct BandwidthRange {
    /// At least, GB/s.
    pub low: f64,
    /// At most; null where the time may have been nothing.
    pub high: Option<f64>,
}

impl BandwidthRange {
    /// Of so many bytes in `time_ns`, which may be off by `error_ns`.
    pub(crate) fn of(bytes: u64, time_ns: i64, error_ns: i64) -> Self {
        // Bytes a nanosecond are GB/s.
        let in_time = |time_ns: i64| bytes as f64 / time_ns as f64;
        Self {
            low: in_time(time_ns.saturating_add(error_ns)),
            high: Some(time_ns.saturating_sub(error_ns))
                .filter(|time| *time > 0)
                .map(in_time),
        }
    }
}

/// One GPU's part in a collective, apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ParticipantTime {
    pub(crate) rank: u32,
    pub(crate) device: u32,
    pub(crate) wait_ns: i64,
    pub(crate) transfer_ns: i64,
    /// Of a transfer between two ranks: whether it is the sender.
    pub(crate) sends: bool,
}

/// How the participants of a collective came to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Timing {
    /// Those whose times are known.
    pub(crate) participants: Vec<ParticipantTime>,
    /// Rank and device of the last.
    pub(crate) last: Option<(u32, u32)>,
    /// An earlier operation ran in the same kernels: sums over kernels have counted them.
    pub(crate) repeats_kernel: bool,
    /// Whether each rank needs every other one. Of a kernel of unknown transfers (PyTorch's all-to-all is a group of sends
    /// and receives) that is assumed.
    pub(crate) all_meet: bool,
    /// Whether stamps of all parts can be compared, whoever is missing...
    pub(crate) common_clock: bool,
    /// ... and how well.
    pub(crate) clock_error_ns: i64,
}

/// nccl-tests' factor from algbw to busbw (its PERFORMANCE.md, and gather.cu and scatter.cu for the last two).
pub(crate) fn bus_factor(name: &str, ranks: f64) -> f64 {
    match name {
        "AllReduce" => 2.0 * (ranks - 1.0) / ranks,
        _ if counts_all_ranks(name) => (ranks - 1.0) / ranks,
        _ => 1.0,
    }
}

/// Whether each rank holds only a share of the bytes that are counted.
fn counts_all_ranks(name: &str) -> bool {
    matches!(
        name,
        "AllGather" | "ReduceScatter" | "AlltoAll" | "Gather" | "Scatter"
    )
}

/// Whether no rank can end before the last has arrived.
pub(crate) fn is_synchronizing(name: &str) -> bool {
    matches!(
        name,
        "AllReduce" | "AllGather" | "ReduceScatter" | "AlltoAll" | "Barrier"
    )
}

/// Whether all data comes from one rank or goes to one, so that others need not wait for each other.
fn has_root(name: &str) -> bool {
    matches!(name, "Broadcast" | "Reduce" | "Gather" | "Scatter")
}

/// All collectives, and what is to be said of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Matched {
    /// By when they were enqueued.
    pub(crate) collectives: Vec<Collective>,
    /// Kernels that were to be matched by order, on ranks that have different numbers of them.
    pub(crate) uneven: u64,
    /// Matched collectives whose kernels do not run at the same time on all ranks.
    pub(crate) apart: u64,
    /// Those on communicators of unknown size with fewer participants than the job has ranks.
    pub(crate) unknown_size: u64,
    /// Parts of processes that say no rank, beside others that do.
    pub(crate) unranked: u64,
    /// Median, over collectives that no rank can leave early, of last end minus first end: how well the clocks agree.
    pub(crate) end_spread_ns: Option<i64>,
    end_spreads: Vec<i64>,
    /// Whether each collective keeps what each GPU did of it.
    keep_parts: bool,
}

/// What matching needs to know of the job.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    /// Ranks in the job, as far as that is known.
    pub(crate) ranks: u32,
}

/// What belongs together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key<'a> {
    communicator: Option<u64>,
    function: &'a str,
    pair: Option<(u32, u32)>,
    /// The sequence number, or the place in order.
    number: u64,
    numbered: bool,
    /// Which of several with one number (coalesced operations have one).
    occurrence: u64,
}

/// Those that have one communicator and name, and no numbers.
type Unnumbered<'a> = (Option<u64>, &'a str);

/// Matches the parts of all processes, which come process by process; `comparison` says which of their stamps can be compared, and how well.
pub(crate) fn collectives<'a>(
    parts: impl Iterator<Item = &'a Part>,
    job: Job,
    comparison: &Comparison<'_>,
    keep_parts: bool,
) -> Matched {
    let mut matched = Matched {
        keep_parts,
        ..Matched::default()
    };
    let mut groups: BTreeMap<Key<'a>, Vec<&'a Part>> = BTreeMap::new();
    // How many unnumbered ones each participant has.
    let mut unnumbered: BTreeMap<Unnumbered<'_>, BTreeMap<Participant, u64>> = BTreeMap::new();
    // How many with one communicator, name, pair and number each participant had so far.
    let mut seen = HashMap::new();
    let mut process = None;
    for part in parts.filter(|part| part.matchable) {
        // Parts come process by process.
        if process.replace(part.participant.process) != Some(part.participant.process) {
            seen.clear();
        }
        if part.rank.is_none() {
            matched.unranked += 1;
            continue;
        }
        let function = part.common.function.as_str();
        let who = (part.participant.process, part.participant.place);
        let place = seen
            .entry((
                who,
                part.communicator,
                function,
                part.pair,
                part.sends,
                part.sequence,
            ))
            .or_insert(0_u64);
        let (number, occurrence) = part.sequence.map_or((*place, 0), |sequence| (sequence, *place));
        *place += 1;
        if part.sequence.is_none() && part.pair.is_none() {
            let counts = unnumbered.entry((part.communicator, function)).or_default();
            counts.insert(part.participant, *place);
        }
        // What a rank sends to itself has both ends in one kernel, and is one part.
        if !part.sends && part.pair.is_some_and(|(sender, receiver)| sender == receiver) {
            continue;
        }
        groups
            .entry(Key {
                communicator: part.communicator,
                function,
                pair: part.pair,
                number,
                numbered: part.sequence.is_some(),
                occurrence,
            })
            .or_default()
            .push(part);
    }
    let mut uneven: BTreeSet<Unnumbered<'_>> = BTreeSet::new();
    for (group, counts) in &unnumbered {
        let mut counts = counts.values();
        let first = counts.next();
        if counts.any(|count| Some(count) != first) {
            uneven.insert(*group);
        }
    }
    let mut found: Vec<(i64, Vec<&Part>, Collective)> = Vec::new();
    for (key, parts) in groups {
        let by_order = !key.numbered && key.pair.is_none();
        if by_order && uneven.contains(&(key.communicator, key.function)) {
            // The n-th here need not be the n-th there: each stays alone.
            matched.uneven += parts.len() as u64;
            for part in parts {
                let alone = matched.collective(&key, &[part], None, comparison);
                found.push((part.enqueued, vec![part], alone));
            }
        } else {
            let enqueued = parts.iter().map(|part| part.enqueued).min().unwrap_or(0);
            let all = matched.collective(&key, &parts, Some(job), comparison);
            found.push((enqueued, parts, all));
        }
    }
    found.sort_by(|(a_enqueued, _, a), (b_enqueued, _, b)| {
        a_enqueued
            .cmp(b_enqueued)
            .then_with(|| a.sequence.cmp(&b.sequence))
            .then_with(|| a.name.cmp(&b.name))
            .then_with(|| a.ranks.cmp(&b.ranks))
            .then_with(|| (a.start_ns, a.longest_kernel_ns).cmp(&(b.start_ns, b.longest_kernel_ns)))
    });
    mark_kernels(&mut found);
    matched.collectives = found.into_iter().map(|(.., collective)| collective).collect();
    matched.end_spreads.sort_unstable();
    matched.end_spread_ns =
        Some(nearest_rank(&matched.end_spreads, 50)).filter(|_| !matched.end_spreads.is_empty());
    matched
}

/// Marks warm-ups, and operations that run in kernels of earlier ones.
fn mark_kernels(found: &mut [(i64, Vec<&Part>, Collective)]) {
    let mut communicators = BTreeSet::new();
    // Whether the first operation of each kernel was a warm-up.
    let mut kernels: HashMap<(u32, u32), bool> = HashMap::new();
    for (_, parts, collective) in found {
        let first = parts.iter().any(|part| part.from_the_beginning)
            && communicators.insert(collective.communicator.clone());
        let ids = parts
            .iter()
            .filter_map(|part| part.kernel.map(|kernel| (part.participant.process, kernel.row)));
        let ids: Vec<(u32, u32)> = ids.collect();
        collective.warm_up = first || ids.iter().any(|id| kernels.get(id) == Some(&true));
        collective.timing.repeats_kernel = !ids.is_empty() && ids.iter().all(|id| kernels.contains_key(id));
        for id in ids {
            kernels.entry(id).or_insert(collective.warm_up);
        }
    }
}

/// A participant's kernel.
#[derive(Clone, Copy)]
struct Arrival {
    process: u32,
    rank: u32,
    device: u32,
    start: i64,
    end: i64,
    sends: bool,
}

/// How well the stamps of a collective's participants can be compared: 99 % half widths.
#[derive(Clone, Debug, Default)]
struct Errors {
    /// Of any two.
    widest: i64,
    /// Of each and the last, in the order of arrivals.
    to_last: Vec<i64>,
}

impl Errors {
    /// `None` where some cannot be compared.
    fn of(arrivals: &[Arrival], comparison: &Comparison<'_>) -> Option<Self> {
        let Some(last) = arrivals.last() else {
            return Some(Self::default());
        };
        let widest = comparison.widest(arrivals.iter().map(|arrival| arrival.process), last.start)?;
        let to_last = |arrival: &Arrival| match widest {
            0 => Some(0),
            _ => comparison.half_width(arrival.process, last.process, last.start),
        };
        let to_last = arrivals.iter().map(to_last).collect::<Option<_>>()?;
        Some(Self { widest, to_last })
    }

    /// Whether somebody else may have been last.
    fn undecided(&self, arrivals: &[Arrival], late: Arrival) -> Option<Undecided> {
        let margins = arrivals.iter().zip(&self.to_last);
        margins
            .filter(|(arrival, _)| {
                (arrival.rank, arrival.device, arrival.process) != (late.rank, late.device, late.process)
            })
            .map(|(arrival, error)| Undecided {
                rank: late.rank,
                margin_ns: late.start - arrival.start,
                clock_error_ns: *error,
            })
            .rfind(|found| found.clock_error_ns > 0 && found.margin_ns <= found.clock_error_ns)
    }
}

/// When a participant's kernel began, how long it waited from then for the last, and how long it took after that. What need
/// not wait for the last (a broadcast's root) may have ended before.
fn wait_and_transfer(start: i64, end: i64, last_start: i64) -> (i64, i64) {
    let wait = last_start.min(end) - start;
    (wait, end - start - wait)
}

/// What each participant did; `last_start`: when the last kernel began, where arrivals can be compared.
fn each_part(parts: &[&Part], last_start: Option<i64>) -> Vec<CollectivePart> {
    let mut each: Vec<CollectivePart> = parts
        .iter()
        .map(|part| {
            let times = part
                .kernel
                .zip(last_start)
                .map(|(kernel, last_start)| wait_and_transfer(kernel.start, kernel.end, last_start));
            CollectivePart {
                process: part.participant.process,
                rank: part.rank,
                row: part.row,
                kernel: part.kernel.map(|kernel| (kernel.device, kernel.row)),
                start_ns: part.kernel.map(|kernel| kernel.start),
                end_ns: part.kernel.map(|kernel| kernel.end),
                wait_ns: times.map(|(wait, _)| wait),
                transfer_ns: times.map(|(_, transfer)| transfer),
            }
        })
        .collect();
    each.sort_by_key(|part| (part.start_ns.is_none(), part.start_ns, part.rank, part.kernel));
    each
}

impl Matched {
    /// One collective; without a job its arrivals are not compared.
    fn collective(
        &mut self,
        key: &Key<'_>,
        parts: &[&Part],
        job: Option<Job>,
        comparison: &Comparison<'_>,
    ) -> Collective {
        let mut arrivals: Vec<Arrival> = parts
            .iter()
            .filter_map(|part| {
                let kernel = part.kernel?;
                Some(Arrival {
                    process: part.participant.process,
                    rank: part.rank?,
                    device: kernel.device,
                    start: kernel.start,
                    end: kernel.end,
                    sends: part.sends,
                })
            })
            .collect();
        arrivals.sort_by_key(|arrival| (arrival.start, arrival.rank, arrival.device));
        let said = parts.iter().filter_map(|part| part.ranks_in_communicator).max();
        let present = u32::try_from(parts.len()).unwrap_or(u32::MAX);
        let ranks = if let Some((sender, receiver)) = key.pair {
            Some(if sender == receiver { 1 } else { 2 })
        } else {
            said.map(|said| said.max(present)).or_else(|| {
                // Of a process with several GPUs each takes part: the job is whole when all its ranks are here.
                let here: BTreeSet<Option<u32>> = parts.iter().map(|part| part.rank).collect();
                let all = job.is_some_and(|job| here.len() >= job.ranks as usize);
                self.unknown_size += u64::from(job.is_some() && !all);
                all.then_some(present)
            })
        };
        // Arrivals can only be compared when all ranks are there and share a clock.
        let complete = ranks.is_some_and(|ranks| arrivals.len() == ranks as usize);
        let errors = Errors::of(&arrivals, comparison);
        let whole = complete
            && job.is_some()
            && errors
                .as_ref()
                .is_some_and(|errors| self.is_plausible(key.function, &arrivals, errors.widest));
        let (errors_known, widest) = errors.as_ref().map_or((false, 0), |errors| (true, errors.widest));
        let errors = errors.filter(|_| whole).unwrap_or_default();
        let last = arrivals.last().copied().filter(|_| whole);
        let first_start = arrivals.first().map(|arrival| arrival.start);
        let (mut wait_ns, mut transfer_ns) = (BTreeMap::new(), BTreeMap::new());
        let mut participants = Vec::new();
        if let Some(last) = last {
            let mut of_rank: FxHashMap<u32, usize> = FxHashMap::default();
            for arrival in &arrivals {
                *of_rank.entry(arrival.rank).or_default() += 1;
            }
            let mut alike: FxHashMap<(u32, u32), usize> = FxHashMap::default();
            for arrival in &arrivals {
                let (wait, transfer) = wait_and_transfer(arrival.start, arrival.end, last.start);
                let label = if of_rank[&arrival.rank] == 1 {
                    arrival.rank.to_string()
                } else {
                    format!("{}.{}", arrival.rank, arrival.device)
                };
                // Of several processes that say they are one rank each must be there.
                let before = alike.entry((arrival.rank, arrival.device)).or_default();
                let label = match *before {
                    0..8 => label + &"+".repeat(*before),
                    more => format!("{label}+{more}"),
                };
                *before += 1;
                wait_ns.insert(label.clone(), wait);
                transfer_ns.insert(label, transfer);
                participants.push(ParticipantTime {
                    rank: arrival.rank,
                    device: arrival.device,
                    wait_ns: wait,
                    transfer_ns: transfer,
                    sends: arrival.sends,
                });
            }
        }
        let skew_ns = last
            .zip(first_start)
            .filter(|_| ranks.is_some_and(|ranks| ranks > 1))
            .map(|(last, first)| last.start - first);
        let late = last.filter(|_| skew_ns.is_some_and(|skew| skew > 0));
        let before_last = arrivals.len().checked_sub(2).map(|index| arrivals[index].start);
        let last_undecided = late.and_then(|late| errors.undecided(&arrivals, late));
        let late = late.filter(|_| last_undecided.is_none());
        let per_rank = parts.iter().filter_map(|part| part.bytes).max();
        let bytes = if counts_all_ranks(key.function) {
            per_rank
                .zip(ranks)
                .map(|(bytes, ranks)| bytes.saturating_mul(u64::from(ranks)))
        } else {
            per_rank
        };
        let shared_kernel = parts.iter().map(|part| part.shared as usize).max().unwrap_or(1);
        let each = match self.keep_parts {
            true => each_part(parts, last.map(|last| last.start)),
            false => Vec::new(),
        };
        let slowest = transfer_ns
            .values()
            .copied()
            .max()
            .filter(|&time| time > 0 && shared_kernel == 1);
        // Bytes a nanosecond are GB/s.
        let algbw = slowest.zip(bytes).map(|(time, bytes)| bytes as f64 / time as f64);
        let end = |sends: bool| {
            let (sender, receiver) = key.pair?;
            let there = |part: &&&Part| part.sends == sends || sender == receiver;
            parts.iter().find(there)?.rank
        };
        let in_job: BTreeSet<u32> = parts.iter().filter_map(|part| part.rank).collect();
        Collective {
            communicator: communicator_text(key.communicator),
            communicator_name: parts.iter().find_map(|part| part.communicator_name.clone()),
            sequence: key.numbered.then_some(key.number),
            ranks: in_job.into_iter().collect(),
            communicator_ranks: ranks,
            sender: end(true),
            receiver: end(false),
            start_ns: first_start.map(TimeNs),
            longest_kernel_ns: arrivals.iter().map(|arrival| arrival.end - arrival.start).max(),
            bytes,
            dtype: parts.first().map(|part| part.dtype.clone()).unwrap_or_default(),
            algbw,
            algbw_range: slowest
                .zip(bytes)
                .map(|(time, bytes)| BandwidthRange::of(bytes, time, errors.widest)),
            clock_error_ns: whole.then_some(errors.widest),
            last_undecided,
            busbw: algbw
                .zip(ranks)
                .map(|(algbw, ranks)| algbw * bus_factor(key.function, f64::from(ranks))),
            wait_ns,
            transfer_ns,
            skew_ns,
            last_rank: late.map(|late| late.rank),
            last_rank_cost_ns: late.zip(before_last).map(|(late, before)| late.start - before),
            matched_by: if key.numbered {
                "communicator and sequence"
            } else {
                "order"
            }
            .to_owned(),
            warm_up: false,
            shared_kernel,
            parts: each,
            timing: Timing {
                participants,
                last: late.map(|late| (late.rank, late.device)),
                repeats_kernel: false,
                all_meet: key.pair.is_none() && !has_root(key.function),
                common_clock: errors_known,
                clock_error_ns: widest,
            },
            name: key.function.to_owned(),
        }
    }

    /// Whether the kernels can be one operation: of one that no rank can leave before the last has arrived all run at one
    /// time. Notes how far apart they ended.
    fn is_plausible(&mut self, function: &str, arrivals: &[Arrival], error_ns: i64) -> bool {
        if arrivals.len() < 2 || !is_synchronizing(function) {
            return true;
        }
        let first_end = arrivals.iter().map(|arrival| arrival.end).min().unwrap_or(0);
        let last_end = arrivals.iter().map(|arrival| arrival.end).max().unwrap_or(0);
        let plausible = arrivals
            .last()
            .is_some_and(|last| last.start <= first_end.saturating_add(error_ns));
        if plausible {
            self.end_spreads.push(last_end - first_end);
        } else {
            self.apart += 1;
        }
        plausible
    }
}
