//! What streams and calls wait for by events.

use gputrace_trace::synchronization_kind as kind;
use rustc_hash::FxHashMap;

use super::nodes::{Placed, Source, Streams};

/// Stamps of host and device may be so far apart the wrong way.
const JITTER_NS: i64 = 5_000;
/// With more streams than this it isn't guessed which of them another waited for.
pub(crate) const MOST_STREAMS: usize = 256;
/// Of the waits that a stream was told since its last operation so many are looked at, the last ones.
const MOST_WAITS: usize = 8;

/// A call that synchronized: kind, context, stream, and the recording of the event that it waited for.
pub(crate) type Synchronized = (u32, Option<u32>, Option<u32>, Option<u64>);

/// What is recorded of events and of waiting for them.
#[derive(Default)]
pub(crate) struct Events {
    /// By number of the recording: the stream (context and stream), and when it was called.
    recorded: FxHashMap<u64, (u32, u32, i64)>,
    /// By stream: when it was told to wait for which recording, by time.
    waits: FxHashMap<(u32, u32), Vec<(i64, u64)>>,
    /// By context: its device.
    devices: FxHashMap<u32, u32>,
    /// By correlation id: calls that waited themselves.
    pub(crate) calls: FxHashMap<u32, Synchronized>,
}

impl Events {
    pub(crate) fn of(source: &Source<'_>, streams: &Streams) -> Self {
        let tables = &source.process.tables;
        let (table, recorded) = (&tables.synchronizations, &tables.event_records);
        let mut events = Self {
            devices: streams
                .keys()
                .map(|(device, context, _)| (*context, *device))
                .collect(),
            ..Self::default()
        };
        let mut called: FxHashMap<u32, i64> = recorded.correlation.iter().map(|id| (*id, i64::MIN)).collect();
        if !called.is_empty() {
            for (id, start) in tables
                .api_calls
                .correlation
                .iter()
                .zip(&tables.api_calls.start_ns)
            {
                if let Some(moment) = called.get_mut(id) {
                    *moment = start.0;
                }
            }
        }
        for row in 0..recorded.correlation.len() {
            let moment = called.get(&recorded.correlation[row]).copied();
            if let (Some(id), Some(moment)) = (
                recorded.event_synchronization[row],
                moment.filter(|moment| *moment != i64::MIN),
            ) {
                let place = (recorded.context[row], recorded.stream[row], moment);
                events.recorded.insert(id, place);
            }
        }
        for row in 0..table.start_ns.len() {
            let id = table.event_synchronization[row];
            match (table.kind[row], table.context[row], table.stream[row], id) {
                (kind::STREAM_WAIT_EVENT, Some(context), Some(stream), Some(id)) => {
                    let waits = events.waits.entry((context, stream)).or_default();
                    waits.push((table.start_ns[row].0, id));
                }
                (kind::STREAM_WAIT_EVENT, ..) => {}
                (kind, context, stream, id) if table.correlation[row] != 0 => {
                    events
                        .calls
                        .insert(table.correlation[row], (kind, context, stream, id));
                }
                _ => {}
            }
        }
        events.waits.values_mut().for_each(|waits| waits.sort_unstable());
        events
    }

    /// The last operation before a recording, on its stream.
    pub(crate) fn before(&self, recording: u64, placed: &[Placed<'_>], streams: &Streams) -> Option<u32> {
        let (context, stream, moment) = self.recorded.get(&recording).copied()?;
        let device = self.devices.get(&context).copied()?;
        last_launched(streams.get(&(device, context, stream))?, moment, placed)
    }
}

/// Of a stream's operations the last that was launched before a moment.
pub(crate) fn last_launched(places: &[u32], moment: i64, placed: &[Placed<'_>]) -> Option<u32> {
    let launched = |place: &u32| {
        let one = &placed[*place as usize];
        one.called.unwrap_or(one.operation.start)
    };
    let after = places.partition_point(|place| launched(place) < moment);
    places.get(after.checked_sub(1)?).copied()
}

/// The operations that the stream of `one` was told to wait for by events, since the `previous` one was launched on it.
pub(crate) fn awaited_by_stream(
    source: &Source<'_>,
    events: &Events,
    one: &Placed<'_>,
    previous: Option<&Placed<'_>>,
    placed: &[Placed<'_>],
    streams: &Streams,
) -> Vec<u32> {
    let Some(called) = one.called else {
        return Vec::new();
    };
    let (context, stream) = (one.operation.context, one.operation.stream);
    let since = previous.map_or(i64::MIN, |previous| {
        previous.called.unwrap_or(previous.operation.start)
    });
    if !events.recorded.is_empty() {
        // Exactly: what was on the other stream when the event was recorded there.
        let waits = events
            .waits
            .get(&(context, stream))
            .map_or(&[][..], Vec::as_slice);
        let after = waits.partition_point(|(wait, _)| *wait <= called);
        let first = waits.partition_point(|(wait, _)| *wait < since);
        let mut found: Vec<u32> = waits[first.max(after.saturating_sub(MOST_WAITS)).min(after)..after]
            .iter()
            .filter_map(|(_, id)| events.before(*id, placed, streams))
            .filter(|place| {
                let awaited = placed[*place as usize].operation;
                awaited.end <= one.operation.start + JITTER_NS && !std::ptr::eq(awaited, one.operation)
            })
            .collect();
        found.sort_unstable();
        found.dedup();
        return found;
    }
    let operations = source.operations;
    let waits = operations
        .stream_waits
        .get(&(Some(context), stream))
        .or_else(|| operations.stream_waits.get(&(None, stream)))
        .or_else(|| {
            let call = one.operation.call(&source.process.tables.api_calls)?;
            operations.thread_waits.get(&call.thread)
        });
    let Some(waits) = waits.filter(|_| streams.len() <= MOST_STREAMS) else {
        return Vec::new();
    };
    let after = waits.partition_point(|wait| *wait <= called);
    let first = waits
        .partition_point(|wait| *wait < since)
        .max(after.saturating_sub(MOST_WAITS));
    let own = (one.device, context, stream);
    let mut found: Vec<u32> = waits[first.min(after)..after]
        .iter()
        .filter_map(|wait| {
            let others = streams.iter().filter(|(stream, _)| **stream != own);
            others
                .filter_map(|(_, places)| last_launched(places, *wait, placed))
                .filter(|place| placed[*place as usize].operation.end <= one.operation.start + JITTER_NS)
                .max_by_key(|place| placed[*place as usize].operation.end)
        })
        .collect();
    found.sort_unstable();
    found.dedup();
    found
}
