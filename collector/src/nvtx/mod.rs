//! NVTX: the tool's side of the C interface (nvtx3/nvtxDetail/nvtxTypes.h, NVTX 3.1), called on the program's threads.
//!
//! A push reads the clock and keeps what it was told on the thread's own stack; a pop reads the clock and passes one
//! finished range on. Ranges that end on any thread go to the writer in two halves, which it joins.

mod attributes;
mod callbacks;
mod domains;
mod entry;
mod extension;
mod injection;
mod names;
mod operator;
mod payload_data;
mod payloads;
mod range;
mod stack;

use std::ffi::c_int;
use std::sync::atomic::{AtomicU64, Ordering};

use gputrace_trace::pytorch::{OperatorRange, Range as Said, range as range_of};
use gputrace_trace::{TimeNs, now};

pub(crate) use domains::domain_name;
pub use injection::InitializeInjectionNvtx2;
pub(crate) use names::NameRecord;
pub(crate) use operator::Operator;
pub(crate) use payload_data::PayloadData;
pub(crate) use payloads::{FIELD_BYTES, FIRST_SCHEMA, FieldKind, PayloadRecord, SchemaField, plain_field};
use range::{Label, MARK, Open, START_END};
pub(crate) use range::{Payload, Range};
pub(crate) use stack::Stack;

use crate::host_events::{Lost, Text, Thread, record, with_thread};
use crate::nccl;
use crate::windows::watch;

/// NVTX_NO_PUSH_POP_TRACKING.
const NOT_TRACKED: c_int = -2;

static NEXT_RANGE: AtomicU64 = AtomicU64::new(1);

/// What PyTorch says by a range; of any other `None`. PyTorch has no domain and says nothing but a text.
///
/// It is taken apart on the thread that pushes it: the whole text has numbers in it and never comes again, while names and sizes
/// do, so that they are sent once.
#[inline]
fn said_by_pytorch<'a>(domain: u32, label: &Label<'a>) -> Option<Said<'a>> {
    let is_text_alone = domain == 0
        && label.category.is_none()
        && label.color.is_none()
        && label.payload.is_none()
        && label.extended.is_empty();
    is_text_alone.then(|| range_of(label.text.bytes)).flatten()
}

#[inline]
fn push(domain: u32, mut label: Label<'_>) -> c_int {
    let said = said_by_pytorch(domain, &label);
    if let Some(said) = &said {
        label.text = Text::new(said.name().as_bytes());
    }
    let depth = with_thread(Lost::Ranges, |thread| {
        let text = thread.text(label.text);
        if nccl::is_nccl(domain) {
            nccl::call_begins(thread, label.extended.first());
            nccl::group_range(thread, &label.text);
        }
        let mut range = match &said {
            Some(Said::Operator(operator)) => open_operator(thread, text, operator),
            Some(Said::Module(_)) => Open::frame(domain, text),
            None if domains::is_python(domain) => Open::frame(domain, text),
            Some(Said::Own(_)) | None => Open::new(domain, text, &label),
        };
        // The clock last, so that what happens here is not in the range.
        let start = now();
        range.begin(start.0);
        let depth = thread.ranges.push(range);
        if !label.extended.is_empty() {
            payloads::pass_on(thread, domain, start.0, text, label.extended);
        }
        thread.set_open_ranges(thread.ranges.open.len());
        if depth.is_none() {
            thread.lose(Lost::Ranges);
        } else {
            watch::range_begins(label.text, start, thread.id());
        }
        depth
    });
    depth.flatten().map_or(NOT_TRACKED, c_int::from)
}

/// An operator with the text of this number; its lists are texts too.
fn open_operator(thread: &mut Thread, name: u64, said: &OperatorRange<'_>) -> Open {
    let mut list = |list: Option<&str>| list.map_or(0, |list| thread.text(Text::new(list.as_bytes())));
    Open::operator(&Operator {
        start_ns: 0,
        duration_ns: 0,
        name,
        input_dims: list(said.input_dims),
        input_types: list(said.input_types),
        sequence: said.sequence,
        number: said.number,
        forward_thread: said.forward_thread,
    })
}

#[inline]
fn pop(domain: u32) -> c_int {
    pop_with(domain, &[])
}

/// Ends the innermost range of a domain; `extended` is what it says of itself only now.
#[inline]
fn pop_with(domain: u32, extended: &[PayloadData]) -> c_int {
    let end_ns = now().0;
    let depth = with_thread(Lost::Ranges, |thread| {
        let range = thread.ranges.pop(domain);
        if nccl::is_nccl(domain) {
            // Also where its push found no room: what began there ends here.
            let start_ns = range.as_ref().map_or(end_ns, Open::start_ns);
            nccl::call_ends(thread, start_ns, end_ns, extended.first());
        }
        let mut range = range?;
        watch::range_ends(range.text(), TimeNs(end_ns));
        thread.set_open_ranges(thread.ranges.open.len());
        thread.push_range(range.record, range.end(end_ns));
        if !extended.is_empty() {
            payloads::pass_on(thread, domain, range.start_ns(), range.text(), extended);
        }
        Some(range.depth)
    });
    depth.flatten().map_or(NOT_TRACKED, c_int::from)
}

fn mark(domain: u32, label: Label<'_>) {
    let start_ns = now().0;
    with_thread(Lost::Ranges, |thread| {
        let mut range = Range::new(MARK, domain, thread.text(label.text), &label);
        range.start_ns = start_ns;
        let (fields, count) = range.fields();
        thread.push_range(record::RANGE, &fields[..count]);
        if !label.extended.is_empty() {
            payloads::pass_on(thread, domain, start_ns, range.text, label.extended);
        }
    });
}

fn start(domain: u32, label: Label<'_>) -> u64 {
    let id = NEXT_RANGE.fetch_add(1, Ordering::Relaxed);
    with_thread(Lost::Ranges, |thread| {
        let mut range = Range::new(START_END, domain, thread.text(label.text), &label);
        let start = now();
        range.start_ns = start.0;
        watch::range_starts(id, label.text, start, thread.id());
        let (fields, _) = range.fields();
        let mut begun = [id; 1 + range::FIELDS];
        begun[1..].copy_from_slice(&fields);
        thread.push_range(record::RANGE_START, &begun);
        if !label.extended.is_empty() {
            payloads::pass_on(thread, domain, start.0, range.text, label.extended);
        }
    });
    id
}

fn end(id: u64) {
    end_with(0, id, &[]);
}

/// Ends a range that may have begun on another thread; `extended` is what it says of itself only now.
fn end_with(domain: u32, id: u64, extended: &[PayloadData]) {
    let end_ns = now().0;
    let noted = with_thread(Lost::Ranges, |thread| {
        watch::range_stops(id, TimeNs(end_ns), true);
        thread.push_range(record::RANGE_END, &[id, end_ns.cast_unsigned()]);
        if !extended.is_empty() {
            // Which range it was is the writer's to know: the moment is that of the end.
            payloads::pass_on(thread, domain, end_ns, 0, extended);
        }
    });
    if noted.is_none() {
        // Without a place of its own, or from a signal's handler within one of these functions.
        watch::range_stops(id, TimeNs(end_ns), false);
    }
}

#[cfg(test)]
mod tests;
