//! Capturing streams: what would be enqueued becomes nodes of a graph.
//!
//! A capture begins on one stream; others join it by waiting for an event that was recorded in it. Waiting for the
//! device in a capturing stream is an error that spoils the capture.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{NodeWork, add, books, create};
use crate::device::{OpKind, Stream, Submission, Work};
use crate::driver::context::context_of_id;
use crate::driver::entry::Call;
use crate::driver::error;

struct Capture {
    /// CUPTI's id of the stream that it began on.
    origin: u32,
    graph: u64,
    /// By stream: the nodes that the stream's next one comes after.
    tails: BTreeMap<u32, Vec<usize>>,
    is_spoilt: bool,
}

#[derive(Default)]
struct Captures {
    next: u64,
    captures: BTreeMap<u64, Capture>,
    /// Events recorded in a capture: its number, and the nodes before the event.
    events: BTreeMap<u32, (u64, Vec<usize>)>,
}

impl Captures {
    fn number_of(&self, stream: u32) -> Option<u64> {
        let mut captures = self.captures.iter();
        captures
            .find(|(_, capture)| capture.tails.contains_key(&stream))
            .map(|(number, _)| *number)
    }

    fn of(&mut self, stream: u32) -> Option<&mut Capture> {
        let number = self.number_of(stream)?;
        self.captures.get_mut(&number)
    }
}

static CAPTURES: Mutex<Captures> = Mutex::new(Captures {
    next: 1,
    captures: BTreeMap::new(),
    events: BTreeMap::new(),
});
/// How many captures there are: nearly always none.
static COUNT: AtomicUsize = AtomicUsize::new(0);

fn captures() -> MutexGuard<'static, Captures> {
    CAPTURES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether a stream is being captured.
pub(crate) fn is_capturing(stream: &Stream) -> bool {
    COUNT.load(Ordering::Relaxed) > 0 && captures().number_of(stream.id).is_some()
}

/// What cannot be captured: an error if the stream is, whose capture is spoilt.
pub(crate) fn forbid(stream: &Stream) -> Result<(), u32> {
    if COUNT.load(Ordering::Relaxed) == 0 {
        return Ok(());
    }
    match captures().of(stream.id) {
        Some(capture) => {
            capture.is_spoilt = true;
            Err(error::STREAM_CAPTURE_UNSUPPORTED)
        }
        None => Ok(()),
    }
}

/// Puts an operation at a stream's end, or as a node into the graph that is captured from it.
pub(crate) fn submit(
    stream: &Stream,
    call: &Call,
    kind: OpKind,
    make: impl Fn() -> Work + Send + Sync + 'static,
) -> Result<(), u32> {
    if is_capturing(stream) {
        let work = NodeWork::operation(kind, std::sync::Arc::new(make));
        return append(stream, work, &[]);
    }
    stream.submit(Submission {
        correlation: call.correlation,
        kind,
        work: make(),
        graph: None,
    });
    Ok(())
}

/// Puts a node after all that was captured from a stream, and from others that join here and go on behind it.
pub(crate) fn append(stream: &Stream, work: NodeWork, others: &[u32]) -> Result<(), u32> {
    let (graph, dependencies) = {
        let mut captures = captures();
        let capture = captures.of(stream.id).ok_or(error::INVALID_VALUE)?;
        if capture.is_spoilt {
            return Err(error::STREAM_CAPTURE_INVALIDATED);
        }
        let mut before = Vec::new();
        for one in others.iter().chain([&stream.id]) {
            before.extend(capture.tails.get(one).into_iter().flatten().copied());
        }
        before.sort_unstable();
        before.dedup();
        (capture.graph, before)
    };
    let (place, _) = add(graph, work, dependencies)?;
    if let Some(capture) = captures().of(stream.id) {
        for one in others.iter().chain([&stream.id]) {
            capture.tails.insert(*one, vec![place]);
        }
    }
    Ok(())
}

/// cuStreamBeginCapture.
pub(super) fn begin(stream: &Stream) -> Result<(), u32> {
    if captures().number_of(stream.id).is_some() {
        return Err(error::ILLEGAL_STATE);
    }
    // The stream's own context, whichever is current.
    let graph = create(context_of_id(stream.context)?)?;
    let mut captures = captures();
    let number = captures.next;
    captures.next += 1;
    let capture = Capture {
        origin: stream.id,
        graph,
        tails: BTreeMap::from([(stream.id, Vec::new())]),
        is_spoilt: false,
    };
    captures.captures.insert(number, capture);
    COUNT.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

/// cuStreamEndCapture: gives the graph.
pub(super) fn end(stream: &Stream) -> Result<u64, u32> {
    let mut captures = captures();
    let number = captures.number_of(stream.id).ok_or(error::ILLEGAL_STATE)?;
    let capture = &captures.captures[&number];
    if capture.origin != stream.id {
        return Err(error::STREAM_CAPTURE_UNMATCHED);
    }
    let (graph, is_spoilt) = (capture.graph, capture.is_spoilt);
    let last = capture.tails[&stream.id].clone();
    let forked: Vec<usize> = capture.tails.values().flatten().copied().collect();
    captures.captures.remove(&number);
    captures.events.retain(|_, (of, _)| *of != number);
    COUNT.fetch_sub(1, Ordering::Relaxed);
    drop(captures);
    let failure = if is_spoilt {
        Some(error::STREAM_CAPTURE_INVALIDATED)
    } else if forked.iter().any(|place| !comes_before(graph, *place, &last)) {
        Some(error::STREAM_CAPTURE_UNJOINED)
    } else {
        None
    };
    match failure {
        Some(code) => {
            books().graphs.remove(&graph);
            Err(code)
        }
        None => Ok(graph),
    }
}

/// Whether a node is one of these, or comes before one of them.
fn comes_before(graph: u64, place: usize, last: &[usize]) -> bool {
    let books = books();
    let Some(graph) = books.graphs.get(&graph) else {
        return false;
    };
    let mut left = last.to_vec();
    while let Some(one) = left.pop() {
        if one == place {
            return true;
        }
        // Dependencies have lower places.
        left.extend(
            graph.nodes[one]
                .dependencies
                .iter()
                .filter(|before| **before >= place),
        );
    }
    false
}

/// A stream's capture, if any: whether it is spoilt, its number, its graph, and the nodes that the next comes after.
pub(super) fn info(stream: &Stream) -> Option<(bool, u64, u64, Vec<usize>)> {
    let captures = captures();
    let number = captures.number_of(stream.id)?;
    let capture = &captures.captures[&number];
    let tail = capture.tails[&stream.id].clone();
    Some((capture.is_spoilt, number, capture.graph, tail))
}

/// An event is recorded on a stream: gives whether that is captured. One that is not takes the event out of any capture.
pub(crate) fn record(event: u32, stream: &Stream) -> bool {
    if COUNT.load(Ordering::Relaxed) == 0 {
        return false;
    }
    let mut captures = captures();
    let Some(number) = captures.number_of(stream.id) else {
        captures.events.remove(&event);
        return false;
    };
    let tail = captures.captures[&number].tails[&stream.id].clone();
    captures.events.insert(event, (number, tail));
    true
}

/// A stream waits for an event: gives whether that is captured, and the stream with it.
pub(crate) fn wait(event: u32, stream: &Stream) -> Result<bool, u32> {
    if COUNT.load(Ordering::Relaxed) == 0 {
        return Ok(false);
    }
    let mut captures = captures();
    let of_stream = captures.number_of(stream.id);
    let Some((number, before)) = captures.events.get(&event).cloned() else {
        // A capture may not wait for what is outside of it.
        return if of_stream.is_some() {
            Err(error::STREAM_CAPTURE_ISOLATION)
        } else {
            Ok(false)
        };
    };
    if of_stream.is_some_and(|own| own != number) {
        return Err(error::STREAM_CAPTURE_MERGE);
    }
    let capture = captures.captures.get_mut(&number).ok_or(error::INVALID_VALUE)?;
    let tail = capture.tails.entry(stream.id).or_default();
    tail.extend(before);
    tail.sort_unstable();
    tail.dedup();
    Ok(true)
}

/// Whether an event was recorded in a capture that goes on: the host cannot wait for it.
pub(crate) fn is_captured(event: u32) -> bool {
    COUNT.load(Ordering::Relaxed) > 0 && captures().events.contains_key(&event)
}
