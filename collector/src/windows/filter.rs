//! CUPTI's records as windows see them: when something began, and by which call it was launched.

use std::mem::offset_of;

use crate::records::{self, kind};

/// What a record says of its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moment {
    /// A kernel, copy or memset: its start on the device and its launch's correlation id.
    Operation { start: i64, correlation: u32 },
    /// A call of the driver or the runtime.
    Call { start: i64, correlation: u32 },
    /// Something on the host that belongs where it began.
    Began { start: i64 },
    /// An id that is joined to a launch.
    Joined { correlation: u32 },
    /// Of no moment: devices, contexts, streams, and kinds that are not known here.
    Always,
}

fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    bytes
        .get(offset..offset + 4)
        .and_then(|bytes| bytes.try_into().ok())
        .map_or(0, u32::from_le_bytes)
}

fn i64_at(bytes: &[u8], offset: usize) -> i64 {
    bytes
        .get(offset..offset + 8)
        .and_then(|bytes| bytes.try_into().ok())
        .map_or(0, i64::from_le_bytes)
}

/// Where a record's start and correlation id lie, by its struct.
macro_rules! operation {
    ($bytes:expr, $Record:ident) => {
        Moment::Operation {
            start: i64_at($bytes, offset_of!(records::$Record, start)),
            correlation: u32_at($bytes, offset_of!(records::$Record, correlation)),
        }
    };
}

/// What a record of this kind says.
#[inline]
pub(super) fn moment(record_kind: u32, bytes: &[u8]) -> Moment {
    match record_kind {
        kind::CONCURRENT_KERNEL | kind::KERNEL => operation!(bytes, Kernel),
        kind::MEMCPY => operation!(bytes, Memcpy),
        kind::MEMCPY2 => operation!(bytes, PeerCopy),
        kind::MEMSET => operation!(bytes, Memset),
        kind::GRAPH_TRACE => operation!(bytes, GraphTrace),
        kind::DRIVER | kind::RUNTIME => Moment::Call {
            start: i64_at(bytes, offset_of!(records::ApiCall, start)),
            correlation: u32_at(bytes, offset_of!(records::ApiCall, correlation)),
        },
        kind::SYNCHRONIZATION => Moment::Began {
            start: i64_at(bytes, offset_of!(records::Synchronization, start)),
        },
        kind::OVERHEAD => Moment::Began {
            start: i64_at(bytes, offset_of!(records::Overhead, start)),
        },
        kind::JIT => Moment::Began {
            start: i64_at(bytes, offset_of!(records::Jit, start)),
        },
        kind::MEMORY2 => Moment::Began {
            start: i64_at(bytes, offset_of!(records::Memory, time)),
        },
        kind::MEMORY_POOL => Moment::Began {
            start: i64_at(bytes, offset_of!(records::MemoryPool, time)),
        },
        kind::EXTERNAL_CORRELATION => Moment::Joined {
            correlation: u32_at(bytes, offset_of!(records::ExternalCorrelation, correlation)),
        },
        _ => Moment::Always,
    }
}
