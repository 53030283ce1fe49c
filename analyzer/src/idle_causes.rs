//! Why a device was idle: every gap explained completely, its parts summing to it.

use std::collections::{BTreeMap, HashMap};

use gputrace_trace::{Interner, Process, TimeNs};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::by_step::GapParts;
use crate::cause::Cause;
use crate::details::CausedGap;
use crate::host_activity::{Activity, Silence, Stretch, activities};
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// End of the operation before it.
    pub start_ns: TimeNs,
    /// Start of the operation that ends it.
    pub end_ns: TimeNs,
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
    /// The same with their parts, where those were asked for.
    pub(crate) parts: Vec<GapParts>,
}

/// What of single gaps is kept.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Keep {
    /// Each with the cause of its longest part.
    pub(crate) gaps: bool,
    /// Each with its parts.
    pub(crate) parts: bool,
}

/// A gap's parts by cause.
#[derive(Clone, Copy, Debug, Default)]
struct Parts([i64; Cause::ALL.len()]);

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

/// The gaps of one device, while they are being explained.
struct Gaps<'a> {
    parts: Vec<Parts>,
    found: Vec<(i64, i64, &'a Operation)>,
    by_activity: BTreeMap<Activity, i64>,
}

/// The idle time of a process's devices, explained.
#[derive(Default)]
pub(crate) struct Explained {
    pub(crate) devices: BTreeMap<u32, IdleCauses>,
    /// Devices of which it was not looked into all that the host did: there were too many beside too much.
    pub(crate) not_looked_into: u64,
}

/// Explains the gaps of the (sorted) operations of a process's devices.
///
/// Each gap is split at the start of the call that launched the operation which ends it. After it the launch took its time;
/// what lies after the call's end is waiting for an event when it is long and the stream was told to wait for one since the
/// operation before. Before it, what the launching thread did tells: it waited for other ranks, it waited for room in a
/// stream's queue, it was late with something else (by what), or no thread did anything at all.
///
/// All devices are explained together, since what the host did is gone through once.
pub(crate) fn causes(
    all: &ProcessOperations,
    process: &Process,
    queues: &BTreeMap<u32, Queues>,
    pauses: &Pauses,
    names: &Interner,
    keep: Keep,
) -> Explained {
    // By launching thread: the stretches before the calls.
    let mut before: BTreeMap<u32, Vec<Stretch>> = BTreeMap::new();
    let mut devices: Vec<Gaps<'_>> = (0..)
        .zip(all.devices.values())
        .map(|(device, operations)| gaps_of(&operations.cut, all, process, pauses, device, &mut before))
        .collect();
    let streams = streams_by_launch(all, process, queues);
    let mut nothing: Vec<(i64, i64, Stretch)> = Vec::new();
    let told_all = activities(process, names, &mut before, |stretch, activity, from, to| {
        let device = &mut devices[stretch.device as usize];
        let parts = &mut device.parts[stretch.gap as usize];
        match activity {
            Activity::WaitingForPeers(_) => parts.add(Cause::PeerWait, to - from),
            Activity::Call(_, row) if waits_for_room(row, process, &streams, queues) => {
                parts.add(Cause::QueueFull, to - from);
            }
            Activity::Nothing if to - from >= LONG_SILENCE_NS => nothing.push((from, to, *stretch)),
            // Calls are told apart by name here.
            Activity::Call(name, _) => device.add_late(*stretch, Activity::Call(name, 0), to - from),
            other => device.add_late(*stretch, other, to - from),
        }
    });
    let stretches = nothing.iter().map(|(from, to, _)| (*from, *to));
    let silence = Silence::of(process, stretches, LONG_SILENCE_NS);
    for (from, to, stretch) in nothing {
        let submitted_nothing = silence.within(from, to);
        let device = &mut devices[stretch.device as usize];
        device.parts[stretch.gap as usize].add(Cause::NothingSubmitted, submitted_nothing);
        let late = to - from - submitted_nothing;
        if late > 0 {
            device.add_late(stretch, Activity::Nothing, late);
        }
    }
    let mut not_looked_into = 0;
    if !told_all {
        not_looked_into = devices
            .iter_mut()
            .map(|device| u64::from(device.add_rest()))
            .sum();
    }
    let explained = devices.into_iter().map(|device| device.explained(names, keep));
    Explained {
        devices: all.devices.keys().copied().zip(explained).collect(),
        not_looked_into,
    }
}

/// The gaps of a device, each explained from its launch on; the stretches before the launches are added to `before`.
fn gaps_of<'a>(
    operations: &'a [Operation],
    all: &ProcessOperations,
    process: &Process,
    pauses: &Pauses,
    device: u32,
    before: &mut BTreeMap<u32, Vec<Stretch>>,
) -> Gaps<'a> {
    let calls = &process.tables.api_calls;
    let mut parts: Vec<Parts> = Vec::new();
    let mut found: Vec<(i64, i64, &Operation)> = Vec::new();
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
                    before.entry(call.thread).or_default().push(Stretch {
                        start: from,
                        end: begun,
                        device,
                        gap: u32::try_from(parts.len()).unwrap_or(u32::MAX),
                    });
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
    Gaps {
        parts,
        found,
        by_activity: BTreeMap::new(),
    }
}

impl Gaps<'_> {
    fn add_late(&mut self, stretch: Stretch, activity: Activity, length: i64) {
        self.parts[stretch.gap as usize].add(Cause::HostLate, length);
        *self.by_activity.entry(activity).or_default() += length;
    }

    /// Adds what of the gaps has no cause yet as the host's, by nothing that is known; whether there was any.
    fn add_rest(&mut self) -> bool {
        let mut rest = 0;
        for (parts, (from, to, _)) in self.parts.iter_mut().zip(&self.found) {
            let length = to - from - parts.0.iter().sum::<i64>();
            parts.add(Cause::HostLate, length);
            rest += length;
        }
        if rest > 0 {
            *self.by_activity.entry(Activity::NotLookedInto).or_default() += rest;
        }
        rest > 0
    }

    fn explained(self, names: &Interner, keep: Keep) -> IdleCauses {
        let Self {
            parts,
            found,
            by_activity,
        } = self;
        let mut host_late_by: BTreeMap<String, i64> = BTreeMap::new();
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
            all: if keep.gaps {
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
            parts: if keep.parts {
                let gaps = found.iter().zip(&parts);
                gaps.map(|(&(start_ns, ..), parts)| GapParts {
                    start_ns,
                    parts: parts.0,
                })
                .collect()
            } else {
                Vec::new()
            },
        }
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
            let (start, end, operation) = found[index];
            Gap {
                start_ns: TimeNs(start),
                end_ns: TimeNs(end),
                cause: parts[index].greatest().name().to_owned(),
                next_operation: operation.name.text(names).into_owned(),
            }
        })
        .collect()
}
