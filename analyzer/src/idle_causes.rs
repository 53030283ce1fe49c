//! Why a device was idle: every gap explained completely, its parts summing to it.

use std::collections::{BTreeMap, HashMap};

use gputrace_trace::{Interner, Process};
use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::details::CausedGap;
use crate::host_activity::{Activity, activities, silent};
use crate::idle::gaps;
use crate::operations::{Operation, ProcessOperations};
use crate::pauses::Pauses;
use crate::queues::{FULL_QUEUE, Queues};

/// What of a gap lies after the launch call is not told apart from launching up to this length.
const LONG_LAUNCH_NS: i64 = 20_000;
/// A launch call of at least this length may have waited for room in its stream's queue.
const LONG_CALL_NS: i64 = 20_000;
/// A stretch in which no thread does anything that is recorded is nothing submitted from this length on; shorter ones
/// are the host's own code between two calls.
const LONG_SILENCE_NS: i64 = 1_000_000;
/// How many of the longest gaps are kept.
const LONGEST_GAPS: usize = 20;

/// One gap.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Gap {
    /// End of the operation before it.
    pub start_ns: i64,
    /// Start of the operation that ends it.
    pub end_ns: i64,
    /// The cause of its longest part.
    pub cause: String,
    /// The operation that ends it.
    pub next_operation: String,
}

/// A device's idle time, explained.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct IdleCauses {
    /// By cause; the parts sum to the idle time.
    pub(crate) causes: BTreeMap<String, i64>,
    /// `host_late` by what the launching thread was doing; the parts sum to it.
    pub(crate) host_late_by: BTreeMap<String, i64>,
    /// The longest gaps, longest first.
    pub(crate) longest: Vec<Gap>,
    /// All gaps by time, where they were asked for.
    pub(crate) all: Vec<CausedGap>,
}

/// Why a device was idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Cause {
    /// The launching thread did something else.
    HostLate,
    /// From the launch call to the operation's start.
    LaunchLatency,
    /// The stream waited for an event of another.
    EventWait,
    /// The launching thread waited for other ranks.
    PeerWait,
    /// The launching thread waited for room in a stream's queue.
    QueueFull,
    /// No thread did anything that is recorded.
    NothingSubmitted,
    /// The launch call is not recorded.
    Unknown,
}

impl Cause {
    /// All, in the order of their numbers.
    pub const ALL: [Self; 7] = [
        Self::HostLate,
        Self::LaunchLatency,
        Self::EventWait,
        Self::PeerWait,
        Self::QueueFull,
        Self::NothingSubmitted,
        Self::Unknown,
    ];

    /// The word for it in an analysis.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    const NAMES: [&str; 7] = [
        "host_late",
        "launch_latency",
        "event_wait",
        "peer_wait",
        "queue_full",
        "nothing_submitted",
        "unknown",
    ];
}

/// A gap's parts by cause.
#[derive(Clone, Copy, Debug, Default)]
struct Parts([i64; Cause::NAMES.len()]);

impl Parts {
    fn add(&mut self, cause: Cause, length: i64) {
        self.0[cause as usize] += length;
    }

    /// The cause of the longest part; of equal ones the first.
    fn greatest(&self) -> Cause {
        let mut greatest = 0;
        for (index, length) in self.0.iter().enumerate() {
            if *length > self.0[greatest] {
                greatest = index;
            }
        }
        Cause::ALL[greatest]
    }
}

/// Explains the gaps of a device's (sorted) operations.
///
/// Each gap is split at the start of the call that launched the operation which ends it. After it the launch took its time;
/// what lies after the call's end is waiting for an event when it is long and the stream was told to wait for one since the
/// operation before. Before it, what the launching thread did tells: it waited for other ranks, it waited for room in a
/// stream's queue, it was late with something else (by what), or no thread did anything at all.
pub(crate) fn causes(
    operations: &[Operation],
    all: &ProcessOperations,
    process: &Process,
    queues: &BTreeMap<u32, Queues>,
    pauses: &Pauses,
    names: &Interner,
    keep_all: bool,
) -> IdleCauses {
    let calls = &process.tables.api_calls;
    let mut parts: Vec<Parts> = Vec::new();
    let mut found: Vec<(i64, i64, &Operation)> = Vec::new();
    // By launching thread: the stretches before the calls, and the gaps they are of.
    let mut before: BTreeMap<u32, Vec<(i64, i64, usize)>> = BTreeMap::new();
    // When the latest operation of each stream was launched: an event wait before that held that one up.
    let mut launched: FxHashMap<(u32, u32), i64> = FxHashMap::default();
    let mut seen = 0;
    for (from, to, operation) in gaps(operations) {
        // Operations up to this one, to know what its stream was given before.
        while let Some(earlier) = operations
            .get(seen)
            .filter(|earlier| !std::ptr::eq(*earlier, operation))
        {
            note_launch(&mut launched, earlier, process);
            seen += 1;
        }
        // What a pause in recording cut off has no operation at its end that could tell.
        let mut rest = None;
        for (from, part_end) in pauses.recorded(from, to) {
            if part_end == to {
                rest = Some(from);
            } else {
                let mut cut_off = Parts::default();
                cut_off.add(Cause::Unknown, part_end - from);
                parts.push(cut_off);
                found.push((from, part_end, operation));
            }
        }
        let Some(from) = rest else {
            continue;
        };
        let mut gap = Parts::default();
        match operation.call(calls) {
            None => gap.add(Cause::Unknown, to - from),
            Some(call) => {
                let (begun, ended) = (call.start.clamp(from, to), call.end.clamp(from, to));
                if begun > from {
                    before
                        .entry(call.thread)
                        .or_default()
                        .push((from, begun, parts.len()));
                }
                let stream = (operation.context, operation.stream);
                let since = launched.get(&stream).copied().unwrap_or(i64::MIN);
                if to - ended > LONG_LAUNCH_NS
                    && all.waited_for_event(operation, call.thread, since, call.start)
                {
                    gap.add(Cause::LaunchLatency, ended - begun);
                    gap.add(Cause::EventWait, to - ended);
                } else {
                    gap.add(Cause::LaunchLatency, to - begun);
                }
            }
        }
        parts.push(gap);
        found.push((from, to, operation));
    }
    let mut host_late_by: BTreeMap<String, i64> = BTreeMap::new();
    let streams = streams_by_launch(all, process, queues);
    let stretches: BTreeMap<u32, Vec<(i64, i64)>> = before
        .iter()
        .map(|(thread, list)| (*thread, list.iter().map(|(from, to, _)| (*from, *to)).collect()))
        .collect();
    let mut by_activity: BTreeMap<Activity, i64> = BTreeMap::new();
    let mut nothing: Vec<(i64, i64, usize)> = Vec::new();
    activities(
        process,
        names,
        &stretches,
        |thread, stretch, activity, from, to| {
            let gap = before[&thread][stretch].2;
            match activity {
                Activity::WaitingForPeers(_) => parts[gap].add(Cause::PeerWait, to - from),
                Activity::Call(_, row) if waits_for_room(row, process, &streams, queues) => {
                    parts[gap].add(Cause::QueueFull, to - from);
                }
                Activity::Nothing if to - from >= LONG_SILENCE_NS => nothing.push((from, to, gap)),
                // Calls are told apart by name here.
                Activity::Call(name, _) => {
                    parts[gap].add(Cause::HostLate, to - from);
                    *by_activity.entry(Activity::Call(name, 0)).or_default() += to - from;
                }
                other => {
                    parts[gap].add(Cause::HostLate, to - from);
                    *by_activity.entry(other).or_default() += to - from;
                }
            }
        },
    );
    // Gaps are disjoint, whichever thread ends them.
    nothing.sort_unstable();
    let plain: Vec<(i64, i64)> = nothing.iter().map(|(from, to, _)| (*from, *to)).collect();
    let silence = if plain.is_empty() {
        Vec::new()
    } else {
        silent(process, &plain)
    };
    for (from, to, gap) in nothing {
        let first = silence.partition_point(|(_, end)| *end <= from);
        let submitted_nothing: i64 = silence[first..]
            .iter()
            .take_while(|(start, _)| *start < to)
            .map(|(start, end)| end.min(&to) - start.max(&from))
            .filter(|length| *length >= LONG_SILENCE_NS)
            .sum();
        parts[gap].add(Cause::NothingSubmitted, submitted_nothing);
        let late = to - from - submitted_nothing;
        parts[gap].add(Cause::HostLate, late);
        if late > 0 {
            *by_activity.entry(Activity::Nothing).or_default() += late;
        }
    }
    for (activity, length) in by_activity {
        *host_late_by.entry(activity.text(names)).or_default() += length;
    }
    let mut sums = Parts::default();
    for gap in &parts {
        for (sum, length) in sums.0.iter_mut().zip(gap.0) {
            *sum += length;
        }
    }
    // A cause that no gap has is absent.
    let causes = Cause::NAMES
        .iter()
        .zip(sums.0)
        .filter(|(_, length)| *length > 0)
        .map(|(name, length)| ((*name).to_owned(), length));
    IdleCauses {
        causes: causes.collect(),
        host_late_by,
        longest: longest(&found, &parts, names),
        all: if keep_all {
            let gaps = found.iter().zip(&parts);
            gaps.map(|(&(start_ns, end_ns, _), parts)| CausedGap {
                start_ns,
                end_ns,
                cause: parts.greatest(),
            })
            .collect()
        } else {
            Vec::new()
        },
    }
}

fn note_launch(launched: &mut FxHashMap<(u32, u32), i64>, operation: &Operation, process: &Process) {
    if let Some(call) = operation.call(&process.tables.api_calls) {
        launched.insert((operation.context, operation.stream), call.start);
    }
}

/// The (device, stream) that each long call launched on, by its correlation id; empty where no queue was ever full.
fn streams_by_launch(
    all: &ProcessOperations,
    process: &Process,
    queues: &BTreeMap<u32, Queues>,
) -> HashMap<u32, (u32, u32)> {
    let calls = &process.tables.api_calls;
    let mut streams = HashMap::new();
    if queues.values().any(Queues::was_full) {
        for (&device, operations) in &all.devices {
            for operation in operations.uncut() {
                if let Some(call) = operation.call(calls)
                    && call.end - call.start >= LONG_CALL_NS
                {
                    streams.insert(operation.correlation, (device, operation.stream));
                }
            }
        }
    }
    streams
}

/// Whether a call launched on a stream whose queue was full.
fn waits_for_room(
    row: u32,
    process: &Process,
    streams: &HashMap<u32, (u32, u32)>,
    queues: &BTreeMap<u32, Queues>,
) -> bool {
    let calls = &process.tables.api_calls;
    let row = row as usize;
    streams
        .get(&calls.correlation[row])
        .is_some_and(|(device, stream)| {
            let queue = queues.get(device);
            // The call itself is one of those that wait.
            queue.is_some_and(|queue| queue.depth_at(*stream, calls.start_ns[row].0) >= FULL_QUEUE)
        })
}

fn longest(found: &[(i64, i64, &Operation)], parts: &[Parts], names: &Interner) -> Vec<Gap> {
    let mut order: Vec<usize> = (0..found.len()).collect();
    let key = |index: &usize| {
        (
            std::cmp::Reverse(found[*index].1 - found[*index].0),
            found[*index].0,
        )
    };
    if order.len() > LONGEST_GAPS {
        order.select_nth_unstable_by_key(LONGEST_GAPS, key);
        order.truncate(LONGEST_GAPS);
    }
    order.sort_by_key(key);
    order
        .into_iter()
        .map(|index| {
            let (start_ns, end_ns, operation) = found[index];
            Gap {
                start_ns,
                end_ns,
                cause: parts[index].greatest().name().to_owned(),
                next_operation: operation.name.text(names),
            }
        })
        .collect()
}
