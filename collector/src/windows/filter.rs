//! CUPTI's records as windows see them: when something began, and by which call it was launched.

use crate::kinds;

/// What a record says of its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moment {
    /// A kernel, copy or memset: its start on the device and its launch's correlation id.
    Operation { start: i64, correlation: u32 },
    /// A call of the driver or the runtime.
    Call { start: i64, correlation: u32 },
    /// Something on the host that belongs where it began.
    Began { start: i64 },
    /// Something without a time of its own that is joined to a call.
    Joined { correlation: u32 },
    /// Of no moment: devices, contexts, streams, and kinds that are not known here.
    Always,
}

/// The member of so many bytes at an offset; zeros where the record does not reach it.
fn member<const BYTES: usize>(record: &[u8], offset: usize) -> [u8; BYTES] {
    let rest = record.get(offset..).and_then(<[u8]>::first_chunk);
    rest.copied().unwrap_or([0; BYTES])
}

/// What a record of this kind says.
#[inline]
pub(super) fn moment(record_kind: u32, record: &[u8]) -> Moment {
    let start = |offset| i64::from_le_bytes(member(record, offset));
    let correlation = |offset| u32::from_le_bytes(member(record, offset));
    match kinds::of(record_kind).map_or(kinds::Moment::Always, |kind| kind.moment) {
        kinds::Moment::Operation {
            start: at,
            correlation: by,
        } => Moment::Operation {
            start: start(at),
            correlation: correlation(by),
        },
        kinds::Moment::Call {
            start: at,
            correlation: by,
        } => Moment::Call {
            start: start(at),
            correlation: correlation(by),
        },
        kinds::Moment::Began { start: at } => Moment::Began { start: start(at) },
        kinds::Moment::Joined { correlation: by } => Moment::Joined {
            correlation: correlation(by),
        },
        kinds::Moment::Always => Moment::Always,
    }
}
