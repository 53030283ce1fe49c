//! From CUPTI's buffers to rows of the recording.

mod calls;
mod names;
pub(crate) mod rows;
#[cfg(test)]
mod tests;
mod times;

use gputrace_trace::manifest::Device;
use gputrace_trace::writer::ProcessWriter;

pub use calls::{CallbackName, is_wanted as is_wanted_call, wanted_callbacks};
pub(crate) use calls::{PROBE, is_work, work_callbacks};
use rows::Rows;
pub use times::Decoded;

use crate::daemon::Timed;
use crate::kinds;
use crate::records::RecordSizes;

/// Decodes buffers; remembers the names that it has seen.
pub struct Decoder {
    sizes: RecordSizes,
    rows: Rows,
    /// Kinds that are not known here, and how many of their records came.
    unknown_kinds: Vec<(u32, u64)>,
}

/// Kinds that are told apart at most: what CUPTI's buffer says is only believed so far.
const MOST_UNKNOWN_KINDS: usize = 64;

impl Decoder {
    /// A decoder of records of these sizes.
    #[must_use]
    pub fn new(sizes: RecordSizes, callback_name: CallbackName) -> Self {
        Self {
            sizes,
            rows: Rows::new(callback_name),
            unknown_kinds: Vec::new(),
        }
    }

    /// The sizes of records that this decoder goes by.
    pub(crate) fn sizes(&self) -> &RecordSizes {
        &self.sizes
    }

    /// The name of a call.
    pub(crate) fn call_name(&self, kind: u32, callback: u32) -> Option<String> {
        self.rows.calls.name(kind, callback)
    }

    /// The devices seen so far, for the header.
    pub(crate) fn devices(&self) -> &[Device] {
        &self.rows.devices
    }

    /// From now on what ran when is kept for [`Self::take_timed`].
    pub(crate) fn keep_times(&mut self) {
        self.rows.timed.get_or_insert_default();
    }

    /// What ran when, since the last call.
    pub(crate) fn take_timed(&mut self) -> Vec<Timed> {
        self.rows.timed.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Decodes one buffer into rows.
    ///
    /// # Safety
    /// Pointers inside the records must be null or as those in a buffer that CUPTI just delivered to this process: names lead
    /// to zero-terminated text, and an overhead's data is memory of `malloc` that nobody else frees.
    pub unsafe fn decode(&mut self, buffer: &[u8], writer: &mut ProcessWriter) -> Decoded {
        let mut decoded = Decoded::default();
        self.begin();
        let mut rest = buffer;
        while let Some((head, _)) = rest.split_first_chunk::<4>() {
            let record_kind = u32::from_le_bytes(*head);
            let Some(record) = self.sizes.get(record_kind).and_then(|size| rest.get(..size)) else {
                decoded.unread_bytes = rest.len() as u64;
                break;
            };
            // SAFETY: the caller's promise is handed on.
            unsafe { self.row(record_kind, record, writer, &mut decoded) };
            rest = &rest[record.len()..];
        }
        self.settle(writer, &mut decoded);
        decoded
    }

    /// Begins a buffer, for callers who hand over its records one by one: a kernel name's address is trusted to name one
    /// kernel until the next.
    pub fn begin(&mut self) {
        self.rows.kernel_names.begin_buffer();
    }

    /// Ends a buffer: what waited for later records of it becomes rows.
    pub fn settle(&mut self, writer: &mut ProcessWriter, decoded: &mut Decoded) {
        decoded.folded += self.rows.calls.settle(writer);
    }

    /// The kinds of records that are not known here and how many came of each, since the last call.
    pub fn take_unknown_kinds(&mut self) -> Vec<(u32, u64)> {
        std::mem::take(&mut self.unknown_kinds)
    }

    /// Decodes one record, of the bytes that CUPTI gives its kind.
    ///
    /// # Safety
    /// As [`Self::decode`].
    #[inline]
    pub unsafe fn row(
        &mut self,
        record_kind: u32,
        bytes: &[u8],
        writer: &mut ProcessWriter,
        decoded: &mut Decoded,
    ) {
        decoded.records += 1;
        match kinds::of(record_kind) {
            // SAFETY: the caller's promise is handed on.
            Some(kind) => unsafe { (kind.decode)(&mut self.rows, bytes, writer, decoded) },
            None => self.unknown_kind(record_kind, decoded),
        }
    }

    fn unknown_kind(&mut self, record_kind: u32, decoded: &mut Decoded) {
        decoded.unknown += 1;
        let kinds = &mut self.unknown_kinds;
        if let Some((_, count)) = kinds.iter_mut().find(|(kind, _)| *kind == record_kind) {
            *count += 1;
        } else if kinds.len() < MOST_UNKNOWN_KINDS {
            kinds.push((record_kind, 1));
        }
    }
}
