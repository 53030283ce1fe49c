//! The nodes of one process: its operations, and the calls that launched them or wait for them.

use gputrace_trace::{Interner, NameId, Process};
use rustc_hash::FxHashMap;

use super::dag::{Builder, Node};
use super::{events, host};
use crate::host_activity::Activity;
use crate::kinds::Kind;
use crate::operations::{Name, Operation, ProcessOperations};
use crate::statistics::nearest_rank;

/// What a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Part {
    /// The host at work between two calls.
    Host,
    /// A call of CUDA.
    Call,
    /// The end of a call that waited for the GPU.
    Blocked,
    /// A kernel that computes.
    Compute,
    /// A collective's or transfer's time on the wire; of a kernel that is matched with no other rank's all of it.
    Communication,
    /// A copy.
    Copy,
    /// A memset.
    Memset,
    /// A rank comes to a collective.
    Arrival,
    /// All ranks have come.
    Meeting,
}

impl Part {
    /// Whether it is an operation of the device, whole or its end.
    pub(crate) fn is_operation(self) -> bool {
        matches!(
            self,
            Self::Compute | Self::Communication | Self::Copy | Self::Memset
        )
    }
}

/// What a node is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Label {
    /// An operation, by its name.
    Operation(Name),
    /// A collective, by its place in the job's list of names and communicators.
    Collective(u32),
    /// A call.
    Call(NameId),
    /// The host's work, by what the thread was doing.
    Host(Activity),
    /// Nothing that needs a name.
    None,
}

/// Which step a node belongs to where it belongs to none.
pub(crate) const NO_STEP: u32 = u32::MAX;

/// What is known of a node beside its time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct What {
    pub(crate) part: Part,
    /// Whose: a place in the job's list of devices.
    pub(crate) device: u16,
    /// The place of its step among the job's.
    pub(crate) step: u32,
    pub(crate) label: Label,
    /// Row in its table: of calls, or of its kind of operation.
    pub(crate) row: u32,
}

/// A step of the job in one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) start: i64,
    pub(crate) end: i64,
    /// Its place among the job's steps.
    pub(crate) step: u32,
}

/// What is to be looked at of one process.
pub(crate) struct Source<'a> {
    pub(crate) process: &'a Process,
    pub(crate) operations: &'a ProcessOperations,
    pub(crate) names: &'a Interner,
    /// The chosen steps on each device's operations' launches, by start.
    pub(crate) windows: Vec<Window>,
    /// Whether the windows are of the host (by ranges) or of the device (found in its operations).
    pub(crate) on_host: bool,
    /// From the first of them to the last's end.
    pub(crate) span: (i64, i64),
    /// By device of the process: its place in the job's list.
    pub(crate) places: FxHashMap<u32, u16>,
    /// Kernels (device and row) that meet those of other ranks.
    pub(crate) meeting: &'a FxHashMap<(u32, u32), u32>,
}

/// How many operations were placed by which rule, and what was left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) operations: u64,
    /// Without a recorded launch.
    pub(crate) without_launch: u64,
    /// Placed by time alone.
    pub(crate) in_time: u64,
    /// Explained by other ranks, by time alone.
    pub(crate) hidden: u64,
    /// Waits that the recorded times contradict.
    pub(crate) contradicted: u64,
}

impl Counts {
    pub(crate) fn add(&mut self, other: Self) {
        self.operations += other.operations;
        self.without_launch += other.without_launch;
        self.in_time += other.in_time;
        self.hidden += other.hidden;
        self.contradicted += other.contradicted;
    }
}

/// The nodes of one process while they are made.
#[derive(Default)]
pub(crate) struct Nodes {
    pub(crate) builder: Builder,
    pub(crate) what: Vec<What>,
    /// When each ended, as recorded.
    pub(crate) ends: Vec<i64>,
    /// By kernel that meets others (device and row): its arrival and its end.
    pub(crate) parts: FxHashMap<(u32, u32), (Node, Node)>,
    pub(crate) counts: Counts,
}

impl Nodes {
    pub(crate) fn add(&mut self, what: What, work: i64, end: i64) -> Node {
        self.what.push(what);
        self.ends.push(end);
        self.builder.add(work, 0)
    }

    fn end(&self, node: Node) -> i64 {
        self.ends[node as usize]
    }
}

/// An operation that is looked at.
#[derive(Clone, Copy)]
pub(crate) struct Placed<'a> {
    pub(crate) operation: &'a Operation,
    pub(crate) device: u32,
    /// What waits for its launch: itself, or its arrival.
    pub(crate) begin: Node,
    /// What is over with it.
    pub(crate) end: Node,
    /// When it was launched, where that is known and in the span.
    pub(crate) called: Option<i64>,
}

/// By stream (device, context, stream): its operations by start, as places in the list of all.
pub(crate) type Streams = FxHashMap<(u32, u32, u32), Vec<u32>>;

/// A launch does not take longer than this: what does waits for something.
const LONGEST_LATENCY_NS: i64 = 100_000;
/// From the end of an operation to the start of the next that waits for it alone: more than this is no latency.
const LONGEST_HANDOVER_NS: i64 = 10_000;
/// A gap up to this is left unexplained without looking for what it waited for.
const SHORT_GAP_NS: i64 = 3_000;
/// Stamps of traces that were rounded (to float32 seconds, say) are off by at most this.
const MOST_ROUNDING_NS: i64 = 100_000;
/// Stamps of operations that follow each other may be so far apart the wrong way.
const JITTER_NS: i64 = 1_000;

/// Makes the nodes of a process.
pub(crate) fn nodes(source: &Source<'_>) -> Nodes {
    let mut nodes = Nodes::default();
    let placed = place(source, &mut nodes);
    let mut streams = Streams::default();
    for (place, one) in (0u32..).zip(&placed) {
        streams
            .entry((one.device, one.operation.context, one.operation.stream))
            .or_default()
            .push(place);
    }
    let recorded = events::Events::of(source);
    let calls = host::calls(source, &placed, &streams, &recorded, &mut nodes);
    let latencies = Latencies::fit(source, &placed, &streams);
    let in_time = InTime::new(&placed);
    let mut before: FxHashMap<(u32, u32, u32), u32> = FxHashMap::default();
    for (place, one) in (0u32..).zip(&placed) {
        let stream = (one.device, one.operation.context, one.operation.stream);
        let previous = before.insert(stream, place).map(|place| placed[place as usize]);
        let start = one.operation.start;
        let latency = latencies.of(one.device);
        let mut ready = i64::MIN;
        let mut waits: Vec<(Node, i64)> = Vec::with_capacity(4);
        // The launch.
        if let (Some(called), Some((call, offset))) = (one.called, calls.of(one.operation.call)) {
            let lag = offset + (start - called).min(latency.launch_ns);
            waits.push((call, lag));
            ready = ready.max(nodes.end(call) + lag);
        }
        // The one before it on its stream.
        if let Some(previous) = previous {
            // Stamps are rounded, and a kernel may be let in before the one before it has ended: it waits for that all the same.
            let behind = start - previous.operation.end;
            if behind >= (previous.operation.start - previous.operation.end) / 2 - JITTER_NS {
                let lag = behind.min(latency.handover_ns);
                waits.push((previous.end, lag));
                ready = ready.max(previous.operation.end + lag);
            } else {
                nodes.counts.contradicted += 1;
            }
        }
        // Events that its stream was told to wait for since the one before.
        for awaited in events::awaited_by_stream(source, &recorded, one, previous.as_ref(), &placed, &streams)
        {
            let awaited = placed[awaited as usize];
            let lag = (start - awaited.operation.end).min(latency.handover_ns);
            waits.push((awaited.end, lag));
            ready = ready.max(awaited.operation.end + lag);
        }
        // What nothing of this explains began when something else of its process had ended.
        if one.called.is_none() && start.saturating_sub(ready) > SHORT_GAP_NS {
            for other in in_time.before(start, ready, place, &placed) {
                let lag = (start - other.operation.end).min(latency.handover_ns);
                waits.push((other.end, lag));
                ready = ready.max(other.operation.end + lag);
                nodes.counts.in_time += 1;
            }
        }
        for (of, lag) in &waits {
            nodes
                .builder
                .wait(one.begin, *of, i32::try_from(*lag).unwrap_or(i32::MAX));
        }
        // Without anything to wait for it begins when it began.
        let gap = if waits.is_empty() { start } else { start - ready };
        let work = if one.begin == one.end {
            one.operation.end - start
        } else {
            0
        };
        nodes.builder.set(one.begin, work, gap);
        nodes.counts.operations += 1;
        nodes.counts.without_launch += u64::from(one.called.is_none());
    }
    nodes
}

/// Makes the nodes of the operations, in the order in which they began.
fn place<'a>(source: &Source<'a>, nodes: &mut Nodes) -> Vec<Placed<'a>> {
    let calls = &source.process.tables.api_calls;
    let (from, to) = source.span;
    let mut placed: Vec<Placed<'a>> = Vec::new();
    for (&device, operations) in &source.operations.devices {
        let Some(&place) = source.places.get(&device) else {
            continue;
        };
        for operation in operations.all() {
            let call = operation.call(calls);
            // What was launched before the span and still runs in it holds up what comes.
            let begun = call.map_or(operation.start, |call| call.start);
            if begun >= to || operation.end <= from {
                continue;
            }
            let at = if source.on_host { begun } else { operation.start };
            let step = step_at(&source.windows, at);
            let meets = matches!(operation.name, Name::Kernel(_) | Name::Graph { .. })
                && source.meeting.contains_key(&(device, operation.row));
            let part = match operation.kind {
                Kind::Compute => Part::Compute,
                Kind::Communication => Part::Communication,
                Kind::Copy => Part::Copy,
                Kind::Memset => Part::Memset,
            };
            let what = What {
                part,
                device: place,
                step,
                label: Label::Operation(operation.name),
                row: operation.row,
            };
            let length = operation.end - operation.start;
            let (begin, end) = if meets {
                let arrival = What {
                    part: Part::Arrival,
                    ..what
                };
                let arrival = nodes.add(arrival, 0, operation.start);
                // What it takes is known when its ranks are.
                let end = nodes.add(what, length, operation.end);
                nodes.parts.insert((device, operation.row), (arrival, end));
                (arrival, end)
            } else {
                let node = nodes.add(what, length, operation.end);
                (node, node)
            };
            placed.push(Placed {
                operation,
                device,
                begin,
                end,
                called: call.map(|call| call.start).filter(|called| *called >= from),
            });
        }
    }
    placed.sort_by_key(|one| (one.operation.start, one.operation.end, one.device));
    placed
}

/// The step of a moment.
pub(crate) fn step_at(windows: &[Window], at: i64) -> u32 {
    let after = windows.partition_point(|window| window.start <= at);
    match after.checked_sub(1).map(|place| windows[place]) {
        Some(window) if at < window.end => window.step,
        _ => NO_STEP,
    }
}

/// How long a device takes where nothing holds it up.
#[derive(Clone, Copy, Debug)]
struct Latency {
    /// From the start of a call to that of its operation, on an empty stream.
    launch_ns: i64,
    /// From the end of an operation to the start of one that was only waiting for it.
    handover_ns: i64,
}

/// Those of each device.
struct Latencies(FxHashMap<u32, Latency>);

impl Latencies {
    /// The medians over what nothing held up.
    fn fit(source: &Source<'_>, placed: &[Placed<'_>], streams: &Streams) -> Self {
        let mut launches: FxHashMap<u32, Vec<i64>> = FxHashMap::default();
        let mut handovers: FxHashMap<u32, Vec<i64>> = FxHashMap::default();
        let calls = &source.process.tables.api_calls;
        for ((device, ..), of_stream) in streams {
            let mut end_before = i64::MIN;
            for place in of_stream {
                let one = &placed[*place as usize];
                let start = one.operation.start;
                if let Some(call) = one.operation.call(calls) {
                    if end_before <= call.start && start >= call.start {
                        launches.entry(*device).or_default().push(start - call.start);
                    } else if end_before > call.end && start >= end_before {
                        handovers.entry(*device).or_default().push(start - end_before);
                    }
                }
                end_before = end_before.max(one.operation.end);
            }
        }
        let median = |times: Option<&mut Vec<i64>>, most: i64, else_: i64| {
            times.map_or(else_, |times| {
                times.sort_unstable();
                nearest_rank(times, 50).min(most)
            })
        };
        let devices = source.places.keys().map(|device| {
            let latency = Latency {
                launch_ns: median(launches.get_mut(device), LONGEST_LATENCY_NS, LONGEST_HANDOVER_NS),
                handover_ns: median(handovers.get_mut(device), LONGEST_HANDOVER_NS, JITTER_NS),
            };
            (*device, latency)
        });
        Self(devices.collect())
    }

    fn of(&self, device: u32) -> Latency {
        self.0.get(&device).copied().unwrap_or(Latency {
            launch_ns: LONGEST_HANDOVER_NS,
            handover_ns: JITTER_NS,
        })
    }
}

/// The operations of a process by when they ended.
struct InTime(Vec<(i64, u32)>);

/// Operations that end together (a send and a receive of one group) are all waited for, up to so many.
const MOST_TOGETHER: usize = 4;

impl InTime {
    fn new(placed: &[Placed<'_>]) -> Self {
        let mut ends: Vec<(i64, u32)> = (0..)
            .zip(placed)
            .map(|(place, one)| (one.operation.end, place))
            .collect();
        ends.sort_unstable();
        Self(ends)
    }

    /// The operations that ended last before `start` and after `ready`, on other streams than that of the one at `place`.
    fn before<'b, 'a: 'b>(
        &'b self,
        start: i64,
        ready: i64,
        place: u32,
        placed: &'b [Placed<'a>],
    ) -> impl Iterator<Item = &'b Placed<'a>> {
        let one = &placed[place as usize];
        let stream = |one: &Placed<'_>| (one.device, one.operation.context, one.operation.stream);
        // Stamps are rounded, some to microseconds and more: what ends right after is meant too, if it is far nearer than what
        // else it can have waited for.
        let unexplained = start.saturating_sub(ready.max(start.saturating_sub(MOST_ROUNDING_NS * 20)));
        let rounding = (unexplained / 20).max(JITTER_NS);
        let after = self.0.partition_point(|(end, _)| *end <= start + rounding);
        let mut latest = None;
        self.0[..after]
            .iter()
            .rev()
            .take(4 * MOST_TOGETHER)
            .map(|(_, place)| &placed[*place as usize])
            .filter(move |other| {
                stream(other) != stream(one) && other.operation.start < start && other.operation.end > ready
            })
            .take_while(move |other| {
                *latest.get_or_insert(other.operation.end) - other.operation.end <= rounding
            })
            .take(MOST_TOGETHER)
    }
}
