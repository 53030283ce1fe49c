//! The nodes of a process's threads: its calls, what it does between them, and what it waits for in them.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use gputrace_trace::{NameId, synchronization_kind as kind};
use rustc_hash::{FxHashMap, FxHashSet};

use super::dag::Node;
use super::events::{Events, MOST_STREAMS, last_launched};
use super::nodes::{Label, NO_STEP, Nodes, Part, Placed, Source, Streams, What, step_at};
use crate::calls::Call;
use crate::host_activity::{Activity, Stretch, activities};
use crate::intervals::is_possible;
use crate::kinds::Kind;

/// A call that neither launches nor waits and is shorter than this is the host's work like what is around it.
const SHORT_CALL_NS: i64 = 20_000;
/// What a thread did for less than this between two calls is not told apart.
const SHORT_WORK_NS: i64 = 10_000;
/// What a call that waits costs by itself, at most: the rest is waiting.
const CALL_NS: i64 = 5_000;
/// From the end of the awaited operation to the end of the call: more than this is not explained by it.
const LONGEST_RETURN_NS: i64 = 200_000;
/// Stamps of host and device may be so far apart the wrong way.
const JITTER_NS: i64 = 5_000;
/// Threads take turns where one goes on within this time after another's call, or within a quarter of its silence.
const TURN_NS: i64 = 100_000;
/// Of the calls before one so many are looked at for the one that it took turns with.
const LAST_TURNS: usize = 8;

/// What a call waits for, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Blocks {
    Never,
    /// For all that was launched.
    OnDevice,
    /// For a stream.
    OnStream,
    /// For an event.
    OnEvent,
    /// For the copy that it makes.
    OnCopy,
}

fn blocks(name: &str) -> Blocks {
    let lower = name.to_ascii_lowercase();
    if lower.contains("streamsynchronize") {
        Blocks::OnStream
    } else if lower.contains("eventsynchronize") {
        Blocks::OnEvent
    } else if lower.contains("ctxsynchronize") || lower.contains("devicesynchronize") {
        Blocks::OnDevice
    } else if lower.contains("memcpy") && !lower.contains("async") {
        Blocks::OnCopy
    } else {
        Blocks::Never
    }
}

/// Calls that launch, by row: the node that is over when the outermost call around it begins, and how long after that it
/// begins itself.
pub(crate) struct Calls(FxHashMap<u32, (Node, i64)>);

impl Calls {
    /// Of the call in this row.
    pub(crate) fn of(&self, row: u32) -> Option<(Node, i64)> {
        self.0.get(&row).copied()
    }
}

/// A call that no other of its thread encloses.
#[derive(Clone, Copy)]
struct Outer {
    call: Call,
    blocks: Blocks,
    /// Whether it gets a node of its own.
    kept: bool,
}

/// Makes the nodes of all threads that launch or wait.
pub(crate) fn calls(
    source: &Source<'_>,
    placed: &[Placed<'_>],
    streams: &Streams,
    events: &Events,
    nodes: &mut Nodes,
) -> Calls {
    let table = &source.process.tables.api_calls;
    let (from, to) = source.span;
    let mut last_of_call: FxHashMap<u32, u32> = FxHashMap::default();
    for (place, one) in (0..).zip(placed) {
        if one.called.is_some() {
            let last = last_of_call.entry(one.operation.call).or_insert(place);
            if placed[*last as usize].operation.end < one.operation.end {
                *last = place;
            }
        }
    }
    let in_span = |row: &u32| {
        let call = Call::of(*row, table);
        (from..to).contains(&call.start) && is_possible(call.start, call.end)
    };
    let mut rows: Vec<u32> = (0u32..).take(table.start_ns.len()).filter(in_span).collect();
    // Of equal ones neither the order of rows nor that in which names were met says anything.
    let key = |row: u32| {
        let call = Call::of(row, table);
        (call.thread, call.start, Reverse(call.end))
    };
    let name = |row: u32| source.names.get(table.name[row as usize]);
    rows.sort_by(|a, b| {
        let times = key(*a).cmp(&key(*b));
        times.then_with(|| name(*a).cmp(name(*b))).then(a.cmp(b))
    });
    let mut meanings: FxHashMap<NameId, Blocks> = FxHashMap::default();
    let mut outer: Vec<Outer> = Vec::new();
    // Calls within others that launch: which of `outer` is around them.
    let mut inner: Vec<(u32, u32)> = Vec::new();
    for row in rows {
        let call = Call::of(row, table);
        let name = table.name[row as usize];
        let blocks = *meanings
            .entry(name)
            .or_insert_with(|| blocks(source.names.get(name)));
        let launches = last_of_call.contains_key(&row);
        match outer.last_mut() {
            Some(around) if around.call.thread == call.thread && call.start < around.call.end => {
                around.kept |= launches;
                if around.blocks == Blocks::Never && blocks != Blocks::Never {
                    around.blocks = blocks;
                    around.kept = true;
                }
                if launches {
                    let place = u32::try_from(outer.len() - 1).unwrap_or(u32::MAX);
                    inner.push((row, place));
                }
            }
            _ => outer.push(Outer {
                call,
                blocks,
                kept: launches || blocks != Blocks::Never || call.end - call.start >= SHORT_CALL_NS,
            }),
        }
    }
    let threads: FxHashSet<u32> = outer
        .iter()
        .filter(|one| one.blocks != Blocks::Never || last_of_call.contains_key(&one.call.row))
        .map(|one| one.call.thread)
        .chain(inner.iter().map(|(_, place)| outer[*place as usize].call.thread))
        .collect();
    let mut between = Between::of(source, &outer, &threads);
    let waiting = Waiting {
        source,
        placed,
        streams,
        last_of_call: &last_of_call,
        events,
    };
    let device = source.places.values().copied().min().unwrap_or(0);
    let mut starts: Vec<Option<Node>> = vec![None; outer.len()];
    let mut thread: Option<(u32, Node, i64)> = None;
    let mut turns: Vec<Turn> = Vec::new();
    for (place, one) in (0u32..).zip(&outer) {
        let call = one.call;
        if !one.kept || !threads.contains(&call.thread) {
            continue;
        }
        let step = if source.on_host {
            step_at(&source.windows, call.start)
        } else {
            NO_STEP
        };
        let host = |label| What {
            part: Part::Host,
            device,
            step,
            label,
            row: call.row,
            size: 0,
        };
        let before = thread.filter(|(thread, ..)| *thread == call.thread);
        // What the thread did since its last call, in order.
        let mut first = None;
        let mut last: Option<Node> = None;
        if let Some((_, _, ended)) = before {
            let mut at = ended;
            let did = between.take(place);
            let rest = call.start - ended - did.iter().map(|(_, length)| *length).sum::<i64>();
            let unknown = (Activity::NotLookedInto, rest);
            let unknown = Some(unknown).filter(|_| rest > 0 && !did.is_empty());
            let plain = Some((Activity::Nothing, rest)).filter(|_| did.is_empty());
            for (activity, length) in did.into_iter().chain(unknown).chain(plain) {
                at += length;
                let node = nodes.add(host(Label::Host(activity)), length, at);
                if let Some(last) = last {
                    nodes.builder.wait(node, last, 0);
                }
                first.get_or_insert(node);
                last = Some(node);
            }
        }
        let start = last.unwrap_or_else(|| {
            // A thread's first call begins when it began.
            let node = nodes.add(host(Label::None), 0, call.start);
            nodes.builder.set(node, 0, call.start);
            node
        });
        if let (Some((_, before, _)), Some(first)) = (before, first) {
            nodes.builder.wait(first, before, 0);
        }
        starts[place as usize] = Some(start);
        let end = waiting.node(
            one,
            start,
            &host(Label::Call(table.name[call.row as usize])),
            nodes,
        );
        turns.push(Turn {
            call,
            silence: before.map(|(_, _, ended)| ended),
            first,
            start,
            end,
        });
        thread = Some((call.thread, end, call.end));
    }
    take_turns(&mut turns, nodes);
    let of_outer = (0..).zip(&outer).filter_map(|(place, one): (usize, _)| {
        let node = starts[place]?;
        last_of_call
            .contains_key(&one.call.row)
            .then_some((one.call.row, (node, 0)))
    });
    let of_inner = inner.iter().filter_map(|(row, place)| {
        let around = &outer[*place as usize];
        let node = starts[*place as usize]?;
        Some((*row, (node, Call::of(*row, table).start - around.call.start)))
    });
    Calls(of_outer.chain(of_inner).collect())
}

/// What threads did between their calls.
struct Between(FxHashMap<u32, Vec<(Activity, i64)>>);

impl Between {
    fn of(source: &Source<'_>, outer: &[Outer], threads: &FxHashSet<u32>) -> Self {
        let mut stretches: BTreeMap<u32, Vec<Stretch>> = BTreeMap::new();
        let mut before: Option<Call> = None;
        for (place, one) in (0u32..).zip(outer) {
            let call = one.call;
            if !one.kept || !threads.contains(&call.thread) {
                continue;
            }
            let previous = before.replace(call).filter(|before| before.thread == call.thread);
            if let Some(previous) = previous.filter(|previous| call.start - previous.end >= SHORT_WORK_NS) {
                stretches.entry(call.thread).or_default().push(Stretch {
                    start: previous.end,
                    end: call.start,
                    device: 0,
                    gap: place,
                });
            }
        }
        let mut did: FxHashMap<u32, Vec<(Activity, i64)>> = FxHashMap::default();
        activities(
            source.process,
            source.names,
            &mut stretches,
            |stretch, activity, from, to| {
                // Calls are told apart by name, and what is short belongs to what was before it.
                let activity = match activity {
                    Activity::Call(name, _) => Activity::Call(name, 0),
                    other => other,
                };
                let did = did.entry(stretch.gap).or_default();
                match did.last_mut() {
                    Some((last, length)) if *last == activity || to - from < SHORT_WORK_NS => {
                        *length += to - from;
                    }
                    Some((last, length)) if *length < SHORT_WORK_NS => {
                        *last = activity;
                        *length += to - from;
                    }
                    _ => did.push((activity, to - from)),
                }
            },
        );
        Self(did)
    }

    fn take(&mut self, place: u32) -> Vec<(Activity, i64)> {
        self.0.remove(&place).unwrap_or_default()
    }
}

/// A call, for finding out which threads take turns.
struct Turn {
    call: Call,
    /// When the call before it on its thread had ended.
    silence: Option<i64>,
    /// The first node of what the thread did since.
    first: Option<Node>,
    start: Node,
    end: Node,
}

/// Where a thread is silent while another calls, and goes on right after it, it waited for that: PyTorch's main thread for the one
/// that runs backward, and the other way round. The silence is that wait then, and not work.
fn take_turns(turns: &mut [Turn], nodes: &mut Nodes) {
    turns.sort_by_key(|turn| (turn.call.start, turn.call.end, turn.call.thread));
    let Some(begin) = turns.first().map(|turn| turn.call.start) else {
        return;
    };
    for place in 1..turns.len() {
        let after = &turns[place];
        // A thread that has not called yet was silent from the beginning on.
        let silence = after.silence.unwrap_or(begin);
        let first = after.first.unwrap_or(after.start);
        // The other thread may have called again by the time that this one is awake.
        let near = turns[..place].iter().rev().take(LAST_TURNS);
        let others = near.filter(|turn| {
            turn.call.thread != after.call.thread && (silence..=after.call.start).contains(&turn.call.end)
        });
        let Some(before) = others.max_by_key(|turn| turn.call.end) else {
            continue;
        };
        let (length, behind) = (after.call.start - silence, after.call.start - before.call.end);
        // Who loads a batch meanwhile is at work, unless it goes on at once.
        let is_loading = |node: &Node| {
            let label = nodes.what[*node as usize].label;
            matches!(label, Label::Host(Activity::DataLoading(_)))
        };
        let loading = (first..=after.start).filter(is_loading);
        let loading: i64 = loading.map(|node| nodes.builder.get(node).0).sum();
        let near = if loading > length / 2 {
            TURN_NS
        } else {
            TURN_NS.max(length / 4)
        };
        if behind > near || length <= 2 * behind {
            continue;
        }
        // What the thread did since its own last call is not work but that wait: only what came after it is.
        for node in first..after.start {
            nodes.builder.set(node, 0, 0);
        }
        nodes.builder.set(after.start, behind, 0);
        nodes.builder.wait(after.start, before.end, 0);
    }
}

/// What is needed to find what calls wait for.
struct Waiting<'a, 'b> {
    source: &'a Source<'b>,
    placed: &'a [Placed<'b>],
    streams: &'a Streams,
    last_of_call: &'a FxHashMap<u32, u32>,
    events: &'a Events,
}

impl Waiting<'_, '_> {
    /// The node that is over when a call is.
    fn node(&self, one: &Outer, start: Node, what: &What, nodes: &mut Nodes) -> Node {
        let call = one.call;
        let mut one = *one;
        // Whatever it is called, a copy that is over when its call is was waited for: from pageable memory all are.
        let copied = self.last_of_call.get(&call.row);
        let copied = copied.map(|place| self.placed[*place as usize].operation);
        if copied.is_some_and(|copy| copy.kind == Kind::Copy && copy.end <= call.end + JITTER_NS) {
            one.blocks = Blocks::OnCopy;
        }
        let awaited = if one.blocks == Blocks::Never {
            Vec::new()
        } else {
            self.awaited(&one)
        };
        let until = awaited
            .iter()
            .map(|place| self.placed[*place as usize].operation.end)
            .max();
        let waited = until.filter(|until| *until > call.start);
        let Some(until) = waited else {
            // A call that can wait is told apart from others even where it did not.
            let part = if one.blocks == Blocks::Never {
                Part::Call
            } else {
                Part::Blocked
            };
            let what = What { part, ..*what };
            let node = nodes.add(what, call.end - call.start, call.end);
            nodes.builder.wait(node, start, 0);
            return node;
        };
        let what = What {
            part: Part::Blocked,
            ..*what
        };
        let node = nodes.add(what, 0, call.end);
        let own = (call.end - call.start).min(CALL_NS);
        nodes
            .builder
            .wait(node, start, i32::try_from(own).unwrap_or(i32::MAX));
        let lag = (call.end - until).min(LONGEST_RETURN_NS);
        for place in awaited {
            let lag = i32::try_from(lag).unwrap_or(i32::MIN);
            nodes.builder.wait(node, self.placed[place as usize].end, lag);
        }
        let gap = call.end - (until + lag).max(call.start + own);
        nodes.builder.set(node, 0, gap);
        node
    }

    /// The operations that a call waits for, as far as that can be told.
    fn awaited(&self, one: &Outer) -> Vec<u32> {
        let call = one.call;
        if one.blocks == Blocks::OnCopy {
            return self.last_of_call.get(&call.row).copied().into_iter().collect();
        }
        let correlation = self.source.process.tables.api_calls.correlation[call.row as usize];
        let told = self.events.calls.get(&correlation).copied();
        let (kind, context, stream, recording) = told.unwrap_or((0, None, None, None));
        if kind == kind::EVENT
            && let Some(place) = recording.and_then(|id| self.events.before(id, self.placed, self.streams))
        {
            return vec![place];
        }
        let of_stream = kind == kind::STREAM || (kind == 0 && one.blocks == Blocks::OnStream);
        let of_context = kind == kind::CONTEXT || (kind == 0 && one.blocks == Blocks::OnDevice);
        if self.streams.len() <= MOST_STREAMS && (of_context || (of_stream && stream.is_some())) {
            let streams = self.streams.iter().filter(|((_, its_context, its_stream), _)| {
                context.is_none_or(|context| context == *its_context || context == u32::MAX)
                    && (!of_stream || stream == Some(*its_stream))
            });
            let last = streams.filter_map(|(_, places)| last_launched(places, call.start, self.placed));
            let mut awaited: Vec<u32> = last
                .filter(|place| self.placed[*place as usize].operation.end <= call.end + JITTER_NS)
                .collect();
            let until = awaited
                .iter()
                .map(|place| self.placed[*place as usize].operation.end);
            // One of the whole context waits for what other threads launch meanwhile, too.
            if of_context
                && until
                    .max()
                    .is_none_or(|until| until < call.end - LONGEST_RETURN_NS)
            {
                awaited.extend(self.ended_right_before(call, call.end));
            }
            return awaited;
        }
        debug_assert!(kind == 0 || kind == kind::EVENT || kind == kind::STREAM);
        // Which event or stream is not known.
        self.ended_right_before(call, call.start).into_iter().collect()
    }

    /// What ended right before a call did, of what was launched before a moment.
    fn ended_right_before(&self, call: Call, launched_before: i64) -> Option<u32> {
        let ended = self
            .streams
            .values()
            .filter(|_| self.streams.len() <= MOST_STREAMS)
            .filter_map(|places| {
                let after = places.partition_point(|place| {
                    self.placed[*place as usize].operation.end <= call.end + JITTER_NS
                });
                let place = *places.get(after.checked_sub(1)?)?;
                let one = &self.placed[place as usize];
                let launched = one.called.unwrap_or(one.operation.start) < launched_before;
                (launched && one.operation.end >= call.end - LONGEST_RETURN_NS).then_some(place)
            });
        ended.max_by_key(|place| self.placed[*place as usize].operation.end)
    }
}
