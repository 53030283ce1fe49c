//! NVTX: the tool's side of the C interface (nvtx3/nvtxDetail/nvtxTypes.h, NVTX 3.1), called on the program's threads.
//!
//! A push reads the clock and keeps what it was told on the thread's own stack; a pop reads the clock and passes one
//! finished range on. Ranges that end on any thread go to the writer in two halves, which it joins.

mod attributes;
mod callbacks;
mod domains;
mod extension;
mod injection;
mod names;
mod payloads;
mod range;

use std::ffi::c_int;
use std::sync::atomic::{AtomicU64, Ordering};

use gputrace_trace::{TimeNs, now};

pub(crate) use domains::domain_name;
pub use injection::InitializeInjectionNvtx2;
pub(crate) use names::NameRecord;
pub(crate) use payloads::{FIELD_BYTES, FIRST_SCHEMA, FieldKind, PayloadRecord, SchemaField, plain_field};
use range::Open;
pub(crate) use range::{Payload, Range};

use crate::host_events::{BUDGET, Lost, Text, record, with_thread};
use crate::nccl::{self, PayloadData};
use crate::windows::watch;
use crate::{cost, session};

/// Range kinds of the markers table.
const PUSH_POP: u8 = 0;
const START_END: u8 = 1;
const MARK: u8 = 2;
/// Ranges that one thread may have pushed: against programs that never pop.
const MOST_OPEN: usize = 4096;
/// NVTX_NO_PUSH_POP_TRACKING.
const NOT_TRACKED: c_int = -2;

static NEXT_RANGE: AtomicU64 = AtomicU64::new(1);

/// What a range or mark says of itself.
#[derive(Clone, Copy, Default)]
struct Label<'a> {
    text: Text<'a>,
    category: Option<u32>,
    color: Option<u32>,
    payload: Option<Payload>,
    /// Payloads with schemas.
    extended: &'a [PayloadData],
}

/// The push/pop ranges that a thread has open.
#[derive(Default)]
pub(crate) struct Stack {
    open: Vec<Open>,
    /// Pushes that found the stack full; as many pops are theirs.
    beyond: usize,
}

impl Stack {
    /// Puts a range on top; gives its depth in its domain.
    #[inline]
    fn push(&mut self, mut range: Open) -> Option<u16> {
        if self.open.len() == self.open.capacity() && !self.grow() {
            self.beyond += 1;
            return None;
        }
        let below = self.open.iter().rfind(|open| open.domain == range.domain);
        let depth = below.map_or(0, |below| below.depth + 1);
        range.set_depth(depth);
        self.open.push(range);
        Some(depth)
    }

    #[cold]
    fn grow(&mut self) -> bool {
        let capacity = self.open.capacity();
        let more = (2 * capacity).clamp(16, MOST_OPEN);
        if more <= capacity || !BUDGET.take((more - capacity) * size_of::<Open>()) {
            return false;
        }
        self.open.reserve_exact(more - self.open.len());
        true
    }

    /// Takes the innermost range of a domain off.
    #[inline]
    fn pop(&mut self, domain: u32) -> Option<Open> {
        if self.beyond > 0 {
            self.beyond -= 1;
            return None;
        }
        match self.open.last() {
            Some(last) if last.domain == domain => self.open.pop(),
            _ => {
                let place = self.open.iter().rposition(|open| open.domain == domain)?;
                Some(self.open.remove(place))
            }
        }
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        BUDGET.give(self.open.capacity() * size_of::<Open>());
    }
}

/// Runs a callback's body; a panic stays here, and a forked child does nothing.
#[inline]
fn guarded<T>(otherwise: T, body: impl FnOnce() -> T) -> T {
    let _measured = cost::enter(cost::Callback::Nvtx);
    if session::is_dead() {
        return otherwise;
    }
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).unwrap_or(otherwise)
}

#[inline]
fn push(domain: u32, label: Label<'_>) -> c_int {
    let depth = with_thread(Lost::Ranges, |thread| {
        let text = thread.text(label.text);
        if nccl::is_nccl(domain) {
            nccl::call_begins(thread, label.extended.first());
            nccl::group_range(thread, &label.text);
        }
        // The clock last, so that what happens here is not in the range.
        let start = now();
        let range = Open::new(domain, text, &label, start.0);
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
        thread.push(Lost::Ranges, record::RANGE, range.end(end_ns));
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
        thread.push(Lost::Ranges, record::RANGE, &fields[..count]);
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
        thread.push(Lost::Ranges, record::RANGE_START, &begun);
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
    watch::range_stops(id, TimeNs(end_ns));
    with_thread(Lost::Ranges, |thread| {
        thread.push(Lost::Ranges, record::RANGE_END, &[id, end_ns.cast_unsigned()]);
        if !extended.is_empty() {
            // Which range it was is the writer's to know: the moment is that of the end.
            payloads::pass_on(thread, domain, end_ns, 0, extended);
        }
    });
}

#[cfg(test)]
mod tests;
