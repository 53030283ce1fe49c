//! The nodes of one process: its operations, and the calls that launched them or wait for them.

use std::hash::Hasher;

use gputrace_trace::Process;
use rustc_hash::{FxHashMap, FxHasher};

use super::dag::Node;
use super::nodes::{Label, Nodes, Part, Placed, Source, Streams, What, step_at};
use super::{events, host};
use crate::kinds::Kind;
use crate::operations::{Name, Operation};
use crate::statistics::nearest_rank;

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
    let recorded = events::Events::of(source, &streams);
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
        // Without a recorded call it may have waited for what ended right before on another stream.
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
        // What has no recorded call is in the step in which it runs.
        let on_device = source.on_devices.get(&device);
        let until = on_device.and_then(|windows| windows.last());
        let until = until.map_or(to, |last| last.end.max(to));
        for operation in operations.all() {
            let call = operation.call(calls);
            // What was launched before the span and still runs in it holds up what comes.
            let is_later = call.map_or(operation.start >= until, |call| call.start >= to);
            if is_later || operation.end <= from {
                continue;
            }
            let step = match (call, on_device) {
                (Some(call), _) if source.on_host => step_at(&source.windows, call.start),
                (None, Some(windows)) => step_at(windows, operation.start),
                _ => step_at(&source.windows, operation.start),
            };
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
                size: size(source.process, operation),
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

/// Bytes as far as they fit.
pub(crate) fn bytes(bytes: u64) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// What an operation's work depends on beside its name.
fn size(process: &Process, operation: &Operation) -> u32 {
    let (tables, row) = (&process.tables, operation.row as usize);
    let hash = |values: &[u64]| {
        let mut hasher = FxHasher::default();
        values.iter().for_each(|value| hasher.write_u64(*value));
        (hasher.finish() >> 32) as u32
    };
    match operation.name {
        Name::Kernel(_) => {
            let kernels = &tables.kernels;
            let columns = [
                &kernels.grid_x,
                &kernels.grid_y,
                &kernels.grid_z,
                &kernels.block_x,
                &kernels.block_y,
                &kernels.block_z,
            ];
            hash(&columns.map(|column| u64::from(column[row].cast_unsigned())))
        }
        Name::Copy { .. } => bytes(tables.copies.bytes[row]),
        Name::Memset { .. } => bytes(tables.memsets.bytes[row]),
        Name::Graph { .. } => 0,
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
