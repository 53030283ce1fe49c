//! CUPTI's records as windows see them: when something began, and by which call it was launched.

use std::mem::offset_of;

use crate::decode::RecordSizes;
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

/// The table that a record's row would be of.
pub(super) fn table(record_kind: u32) -> &'static str {
    match record_kind {
        kind::CONCURRENT_KERNEL | kind::KERNEL => "kernels",
        kind::MEMCPY | kind::MEMCPY2 => "copies",
        kind::MEMSET => "memsets",
        kind::DRIVER | kind::RUNTIME => "api_calls",
        kind::SYNCHRONIZATION => "synchronizations",
        kind::OVERHEAD => "overheads",
        kind::GRAPH_TRACE => "graph_launches",
        kind::JIT => "compilations",
        kind::MEMORY2 => "memory",
        kind::MEMORY_POOL => "memory_pools",
        kind::EXTERNAL_CORRELATION => "external_correlations",
        _ => "others",
    }
}

/// Walks over whole records: kind and bytes of each. What is behind a record of unknown size is not visited.
pub(super) fn walk(bytes: &[u8], sizes: &RecordSizes, mut visit: impl FnMut(u32, &[u8])) {
    let mut rest = bytes;
    while let Some((head, _)) = rest.split_first_chunk::<4>() {
        let record_kind = u32::from_le_bytes(*head);
        let Some(record) = sizes.get(record_kind).and_then(|size| rest.get(..size)) else {
            return;
        };
        visit(record_kind, record);
        rest = &rest[record.len()..];
    }
}

/// Moves the records that `keep` wants together at the front, with whatever is behind a record of unknown size. Gives their
/// length.
pub(super) fn compact(
    bytes: &mut [u8],
    sizes: &RecordSizes,
    mut keep: impl FnMut(u32, &[u8]) -> bool,
) -> usize {
    let (mut read, mut written) = (0, 0);
    while let Some((head, _)) = bytes[read..].split_first_chunk::<4>() {
        let record_kind = u32::from_le_bytes(*head);
        let Some(size) = sizes.get(record_kind).filter(|size| read + size <= bytes.len()) else {
            break;
        };
        if keep(record_kind, &bytes[read..read + size]) {
            if read != written {
                bytes.copy_within(read..read + size, written);
            }
            written += size;
        }
        read += size;
    }
    bytes.copy_within(read.., written);
    written + bytes.len() - read
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Kind 1 has 8 bytes, kind 2 24, others are not known.
    fn sizes() -> RecordSizes {
        RecordSizes::ask(|kind| match kind {
            1 => Some(8),
            2 => Some(24),
            _ => None,
        })
    }

    proptest! {
        #[test]
        fn what_is_kept_stays_in_order_and_whole(
            records in prop::collection::vec((1u32..4, 0u32..100), 0..50), cut in 0usize..30
        ) {
            let mut bytes = Vec::new();
            let mut starts = Vec::new();
            for (kind, number) in records {
                starts.push(bytes.len());
                bytes.extend(kind.to_le_bytes());
                bytes.extend(number.to_le_bytes());
                bytes.resize(bytes.len() + if kind == 2 { 16 } else { 0 }, 7);
            }
            bytes.truncate(bytes.len().saturating_sub(cut));
            // From the first record on that is not known or not whole, everything stays.
            let mut expected: Vec<u8> = Vec::new();
            starts.retain(|start| *start < bytes.len());
            for (place, &start) in starts.iter().enumerate() {
                let record = &bytes[start..starts.get(place + 1).copied().unwrap_or(bytes.len())];
                let is_whole = matches!((record[0], record.len()), (1, 8) | (2, 24));
                if !is_whole {
                    expected.extend(&bytes[start..]);
                    break;
                }
                if u32_at(record, 4) % 2 == 0 {
                    expected.extend(record);
                }
            }
            let kept = compact(&mut bytes, &sizes(), |_, record| u32_at(record, 4) % 2 == 0);
            prop_assert_eq!(&bytes[..kept], &expected[..]);
        }
    }
}
