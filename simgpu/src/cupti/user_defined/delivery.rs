//! Each subscriber's buffers: filled here, handed back by a thread of CUPTI's.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use super::super::delivery::without_flushing;
use super::super::layouts::kind;
use super::super::records::{self, Record};
use super::super::worker::{Delivery, Worker};
use super::super::{in_flight, is_recording, lock, thread_id};
use super::selection::{RecordLayout, Selection};
use super::{CompleteInfo, KINDS, RequestInfo, Subscriber, is_of_thread, subscribers};
use crate::clock::now_ns;

/// A buffer of a subscriber's that is being filled.
pub(super) struct Buffer {
    address: usize,
    capacity: usize,
    used: usize,
    /// The client takes no more than so many records in it; 0 for as many as fit.
    most: usize,
    records: usize,
    thread: u32,
    /// The kinds in it, a bit each.
    kinds: u64,
}

/// A buffer, and whose it is.
type Full = (Arc<Subscriber>, Buffer);

impl Buffer {
    /// Whether it holds records of a kind.
    pub(super) fn holds(&self, record_kind: u32) -> bool {
        self.kinds & 1 << record_kind != 0
    }
}

impl Subscriber {
    /// Puts a record into the buffer that it belongs into.
    pub(super) fn put(&self, record: &Record, selection: &Selection) {
        let record_kind = record.kind();
        let of_thread = is_of_thread(record_kind);
        let mut bytes = Vec::with_capacity(256);
        selection.write(record, self.thread().filter(|_| of_thread), &mut bytes);
        let place = if of_thread { thread_id() } else { 0 };
        let mut buffers = lock(&self.buffers);
        let is_full = |buffer: &mut Buffer| {
            buffer.used + bytes.len() > buffer.capacity || buffer.most > 0 && buffer.records >= buffer.most
        };
        if buffers.get_mut(&place).is_some_and(is_full)
            && let Some(buffer) = buffers.remove(&place)
        {
            self.hand_over(buffer);
        }
        let buffer = match buffers.entry(place) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => match self.request_buffer(place) {
                Some(buffer) => entry.insert(buffer),
                None => {
                    self.dropped.fetch_add(1, Ordering::Relaxed);
                    return;
                }
            },
        };
        // SAFETY: the buffer has `capacity` bytes of the client's, and the record was checked to fit behind `used`; a
        // new buffer has room for any.
        unsafe {
            ((buffer.address + buffer.used) as *mut u8).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        }
        buffer.used += bytes.len();
        buffer.records += 1;
        buffer.kinds |= 1 << record_kind;
    }

    /// Asks the client for a buffer; `None` when it gives none that a record fits into.
    fn request_buffer(&self, thread: u32) -> Option<Buffer> {
        let (request, _) = self.client.get()?;
        let (mut address, mut capacity, mut most) = (std::ptr::null_mut(), 0usize, 0usize);
        let info = RequestInfo {
            struct_bytes: size_of::<RequestInfo>(),
        };
        // SAFETY: the client's function fills the three places; all are valid for the call.
        without_flushing(|| unsafe {
            request(
                &raw mut address,
                &raw mut capacity,
                &raw mut most,
                &raw const info,
            );
        });
        if address.is_null() || capacity < 512 {
            return None;
        }
        if !self.zeroed.load(Ordering::Relaxed) {
            // SAFETY: the client gave `capacity` writable bytes.
            unsafe { address.write_bytes(0, capacity) };
        }
        Some(Buffer {
            address: address as usize,
            capacity,
            used: 0,
            most,
            records: 0,
            thread,
            kinds: 0,
        })
    }

    fn hand_over(&self, buffer: Buffer) {
        let this = subscribers().into_iter().find(|one| one.handle == self.handle);
        if let Some(this) = this {
            worker().hand_over((this, buffer));
        }
    }

    fn complete(&self, buffer: &Buffer) {
        let Some((_, complete)) = self.client.get() else {
            return;
        };
        let layouts: [*const RecordLayout; KINDS] = std::array::from_fn(|record_kind| {
            let selection = self.selection(record_kind as u32);
            let layout = selection.and_then(|selection| selection.layout());
            layout.map_or(std::ptr::null(), std::ptr::from_ref)
        });
        let user_defined = self.user_defined.load(Ordering::Relaxed);
        let info = CompleteInfo {
            struct_bytes: size_of::<CompleteInfo>(),
            thread: u64::from(buffer.thread),
            layouts: if user_defined {
                layouts.as_ptr()
            } else {
                std::ptr::null()
            },
            layout_count: if user_defined { KINDS } else { 0 },
        };
        // SAFETY: the client gave this buffer and this function for it; the layouts live for the call, as CUPTI's do.
        without_flushing(|| unsafe {
            complete(
                buffer.address as *mut u8,
                buffer.capacity,
                buffer.used,
                &raw const info,
            );
        });
    }
}

/// The thread that hands buffers back.
fn worker() -> &'static Worker<Full> {
    static WORKER: OnceLock<Worker<Full>> = OnceLock::new();
    WORKER.get_or_init(|| {
        Worker::<Full>::start(|deliveries| {
            for delivery in deliveries {
                match delivery {
                    Delivery::Buffer((subscriber, buffer)) => subscriber.complete(&buffer),
                    Delivery::Fence(reached) => drop(reached.send(())),
                }
            }
        })
    })
}

/// cuptiActivityFlushAll for all subscribers: every buffer that holds anything goes to its client. `forced`: operations
/// that run or wait get their records without an end, and the clients have everything when this returns.
pub(in crate::cupti) fn flush(forced: bool) {
    if !is_recording() {
        return;
    }
    if forced {
        for record in in_flight::take_all() {
            super::take(&record);
        }
    }
    let start_ns = now_ns();
    let mut any = false;
    for subscriber in subscribers() {
        let buffers: HashMap<u32, Buffer> = std::mem::take(&mut *lock(&subscriber.buffers));
        for buffer in buffers.into_values() {
            if buffer.used > 0 {
                any = true;
                subscriber.hand_over(buffer);
            } else {
                lock(&subscriber.buffers).entry(buffer.thread).or_insert(buffer);
            }
        }
    }
    if any && !forced && super::enabled_kinds() & 1 << kind::OVERHEAD != 0 {
        super::take(&records::overhead(
            records::BUFFER_FLUSH,
            thread_id(),
            0,
            start_ns,
            now_ns(),
        ));
    }
    if forced {
        worker().catch_up();
    }
}
