//! From CUPTI's buffers to rows of the recording.

mod calls;
mod names;
mod rows;
#[cfg(test)]
mod tests;

use gputrace_trace::manifest::Device;
use gputrace_trace::tables;
use gputrace_trace::writer::ProcessWriter;
use gputrace_trace::{DurationNs, TimeNs};

use calls::Calls;
pub(crate) use calls::PROBE;
pub use calls::{is_wanted as is_wanted_call, wanted_callbacks};
use names::KernelNames;
pub(crate) use rows::discard;

use crate::records::{self, kind, read};

/// The sizes of records by kind, as the running CUPTI has them.
#[derive(Clone, Debug, Default)]
pub struct RecordSizes {
    sizes: Vec<usize>,
}

impl RecordSizes {
    /// Kinds that are asked for; CUPTI 13.5 has 60.
    pub const KINDS: u32 = 128;

    /// Asks `size_of` for each kind; 0 where it does not know.
    pub fn ask(size_of: impl Fn(u32) -> Option<usize>) -> Self {
        Self {
            sizes: (0..Self::KINDS).map(|kind| size_of(kind).unwrap_or(0)).collect(),
        }
    }

    /// The kinds whose size is known, with their sizes.
    pub fn known(&self) -> impl Iterator<Item = (u32, usize)> {
        (0u32..)
            .zip(&self.sizes)
            .filter(|(_, size)| **size >= 8)
            .map(|(kind, size)| (kind, *size))
    }

    #[inline]
    pub(crate) fn get(&self, kind: u32) -> Option<usize> {
        self.sizes.get(kind as usize).copied().filter(|&size| size >= 8)
    }
}

/// What a buffer held besides rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Decoded {
    /// Records read.
    pub records: u64,
    /// Records of things that happen whose start and end are both 0: CUPTI had no times for them (its device buffers had run
    /// out). They are rows of `untimed_operations`.
    pub without_times: u64,
    /// Records of things that had begun and not ended. They are rows of `untimed_operations`.
    pub unfinished: u64,
    /// Driver calls that were folded into the runtime calls that made them.
    pub folded: u64,
    /// Records of kinds that are not known here, passed over by their size.
    pub unknown: u64,
    /// Bytes at the end behind a record of a kind whose size is not known.
    pub unread_bytes: u64,
}

impl Decoded {
    fn count(&mut self, times: Times) {
        match times {
            Times::Whole(..) => {}
            Times::Unfinished(_) => self.unfinished += 1,
            Times::Absent => self.without_times += 1,
        }
    }
}

/// The times of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Times {
    Whole(TimeNs, DurationNs),
    /// Begun, and not ended when CUPTI gave it out.
    Unfinished(TimeNs),
    Absent,
}

impl Times {
    #[inline]
    fn of(start: u64, end: u64) -> Self {
        let (start_ns, end_ns) = (start.cast_signed(), end.cast_signed());
        match (start, end) {
            (0, _) => Self::Absent,
            (_, 0) => Self::Unfinished(TimeNs(start_ns)),
            _ => Self::Whole(TimeNs(start_ns), DurationNs(end_ns.wrapping_sub(start_ns))),
        }
    }
}

/// Keeps what has no whole times.
#[cold]
#[allow(clippy::needless_pass_by_value)] // A row made for this.
fn untimed(row: tables::UntimedOperation, times: Times, writer: &mut ProcessWriter) {
    let start_ns = match times {
        Times::Unfinished(start_ns) | Times::Whole(start_ns, _) => Some(start_ns),
        Times::Absent => None,
    };
    let rows = &mut writer.tables.untimed_operations;
    rows.push(tables::UntimedOperation { start_ns, ..row });
}

/// Gives the name of a callback id: (kind, id) to text.
pub type CallbackName = Box<dyn Fn(u32, u32) -> Option<String> + Send>;

/// Decodes buffers; remembers the names that it has seen.
pub struct Decoder {
    sizes: RecordSizes,
    calls: Calls,
    kernel_names: KernelNames,
    /// Kinds that are not known here, and how many of their records came.
    unknown_kinds: Vec<(u32, u64)>,
    /// Devices seen, for the header.
    pub devices: Vec<Device>,
}

/// Kinds that are told apart at most: what CUPTI's buffer says is only believed so far.
const MOST_UNKNOWN_KINDS: usize = 64;

impl Decoder {
    /// A decoder of records of these sizes.
    #[must_use]
    pub fn new(sizes: RecordSizes, callback_name: CallbackName) -> Self {
        Self {
            sizes,
            calls: Calls::new(callback_name),
            kernel_names: KernelNames::default(),
            unknown_kinds: Vec::new(),
            devices: Vec::new(),
        }
    }

    /// The sizes of records that this decoder goes by.
    pub(crate) fn sizes(&self) -> &RecordSizes {
        &self.sizes
    }

    /// The name of a call.
    pub(crate) fn call_name(&self, kind: u32, callback: u32) -> Option<String> {
        self.calls.name(kind, callback)
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
        self.kernel_names.begin_buffer();
    }

    /// Ends a buffer: what waited for later records of it becomes rows.
    pub fn settle(&mut self, writer: &mut ProcessWriter, decoded: &mut Decoded) {
        decoded.folded += self.calls.settle(writer);
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
        match record_kind {
            kind::CONCURRENT_KERNEL | kind::KERNEL => {
                // SAFETY: the caller's promise is handed on.
                unsafe { self.kernel(&read(bytes), writer, decoded) };
            }
            kind::DRIVER | kind::RUNTIME => {
                let record: records::ApiCall = read(bytes);
                if let Some(times) = self.calls.take(&record, writer) {
                    decoded.count(times);
                }
            }
            // SAFETY: the caller's promise is handed on.
            _ => unsafe { self.rarer_row(record_kind, bytes, writer, decoded) },
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
