//! The times of records, and what becomes of those that have none.

use gputrace_trace::tables;
use gputrace_trace::writer::ProcessWriter;
use gputrace_trace::{DurationNs, TimeNs};

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
    pub(super) fn count(&mut self, times: Times) {
        match times {
            Times::Whole(..) => {}
            Times::Unfinished(_) => self.unfinished += 1,
            Times::Absent => self.without_times += 1,
        }
    }
}

/// The times of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Times {
    Whole(TimeNs, DurationNs),
    /// Begun, and not ended when CUPTI gave it out.
    Unfinished(TimeNs),
    Absent,
}

impl Times {
    #[inline]
    pub(super) fn of(start: u64, end: u64) -> Self {
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
pub(super) fn untimed(row: tables::UntimedOperation, times: Times, writer: &mut ProcessWriter) {
    let start_ns = match times {
        Times::Unfinished(start_ns) | Times::Whole(start_ns, _) => Some(start_ns),
        Times::Absent => None,
    };
    let rows = &mut writer.tables.untimed_operations;
    rows.push(tables::UntimedOperation { start_ns, ..row });
}
