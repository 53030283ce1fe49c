//! CUPTI's activity records as bytes, in the layouts of several versions.
//!
//! Transcribed by offset from the documented structs of cupti_activity.h 13.4 (`CUpti_ActivityKernel13`,
//! `CUpti_ActivityMemcpy7`, ...). Earlier versions of a struct are prefixes of later ones, so a record is written in
//! the newest layout and cut to the size that the emulated version gives it.

use std::ffi::CStr;

use crate::clock::delivered_ns;
use crate::config::config;
use crate::device::{self, CompletedOp, MULTIPROCESSORS, OpKind, model};

/// CUpti_ActivityKind values.
pub(super) mod kind {
    pub(in crate::cupti) const MEMCPY: u32 = 1;
    pub(in crate::cupti) const MEMSET: u32 = 2;
    pub(in crate::cupti) const KERNEL: u32 = 3;
    pub(in crate::cupti) const DRIVER: u32 = 4;
    pub(in crate::cupti) const RUNTIME: u32 = 5;
    pub(in crate::cupti) const DEVICE: u32 = 8;
    pub(in crate::cupti) const CONTEXT: u32 = 9;
    pub(in crate::cupti) const CONCURRENT_KERNEL: u32 = 10;
    pub(in crate::cupti) const OVERHEAD: u32 = 17;
    pub(in crate::cupti) const MEMCPY2: u32 = 22;
    pub(in crate::cupti) const STREAM: u32 = 37;
    pub(in crate::cupti) const SYNCHRONIZATION: u32 = 38;
    pub(in crate::cupti) const EXTERNAL_CORRELATION: u32 = 39;
}

/// A record's size in bytes in the emulated version (`cupti` as in `Config::cupti`); `None` for an unknown kind.
pub(super) fn size_of(record_kind: u32, cupti: u32) -> Option<usize> {
    let by_version = |sizes: [usize; 4]| match cupti {
        1200 => sizes[0],
        1208 => sizes[1],
        1300 => sizes[2],
        _ => sizes[3],
    };
    Some(match record_kind {
        kind::MEMCPY => by_version([88, 96, 96, 112]),
        kind::MEMSET => by_version([88, 88, 88, 104]),
        kind::KERNEL | kind::CONCURRENT_KERNEL => by_version([208, 208, 216, 248]),
        kind::DRIVER | kind::RUNTIME => 40,
        kind::DEVICE => by_version([176, 184, 184, 192]),
        kind::CONTEXT => by_version([16, 32, 32, 40]),
        kind::MEMCPY2 => 96,
        kind::STREAM | kind::EXTERNAL_CORRELATION => 24,
        kind::OVERHEAD | kind::SYNCHRONIZATION => by_version([40, 56, 56, 56]),
        _ => return None,
    })
}

/// The version number that cuptiGetVersion gives.
pub(super) fn version_number(cupti: u32) -> u32 {
    match cupti {
        1200 => 18,
        1208 => 26,
        1300 => 130_000,
        _ => 130_401,
    }
}

/// A record being written: the newest layouts need 248 bytes at most.
pub(super) struct Record {
    bytes: [u8; 248],
    length: usize,
}

impl Record {
    fn new(record_kind: u32) -> Self {
        let mut record = Self {
            bytes: [0; 248],
            length: size_of(record_kind, config().cupti).unwrap_or(0),
        };
        record.put(0, record_kind.to_le_bytes());
        record
    }

    fn put<const N: usize>(&mut self, offset: usize, value: [u8; N]) {
        self.bytes[offset..offset + N].copy_from_slice(&value);
    }

    fn u32(&mut self, offset: usize, value: u32) {
        self.put(offset, value.to_le_bytes());
    }

    fn u64(&mut self, offset: usize, value: u64) {
        self.put(offset, value.to_le_bytes());
    }

    /// Start and end: 0 both with the fault that CUPTI shows when its device buffers run out.
    fn times(&mut self, offset: usize, start_ns: i64, end_ns: i64) {
        let zero = config().has_fault("zero-timestamps");
        self.u64(offset, if zero { 0 } else { start_ns.cast_unsigned() });
        self.u64(offset + 8, if zero { 0 } else { end_ns.cast_unsigned() });
    }

    /// The bytes in the emulated version's layout.
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// The kind.
    pub(super) fn kind(&self) -> u32 {
        u32::from_le_bytes([self.bytes[0], self.bytes[1], self.bytes[2], self.bytes[3]])
    }
}

/// The record of a finished operation.
pub(super) fn operation(op: &CompletedOp) -> Record {
    let (start_ns, end_ns) = (delivered_ns(op.start_ns), delivered_ns(op.end_ns));
    match &op.kind {
        OpKind::Kernel {
            name,
            grid,
            block,
            registers,
            dynamic_shared_bytes,
        } => {
            let mut record = Record::new(kind::CONCURRENT_KERNEL);
            record.put(6, registers.to_le_bytes());
            record.times(16, start_ns, end_ns);
            record.u32(40, op.device);
            record.u32(44, op.context);
            record.u32(48, op.stream);
            for axis in 0..3 {
                record.u32(52 + 4 * axis, grid[axis]);
                record.u32(64 + 4 * axis, block[axis]);
            }
            record.u32(80, *dynamic_shared_bytes);
            record.u32(92, op.correlation);
            record.u64(96, u64::from(op.correlation));
            record.u64(104, name.as_ptr() as u64);
            record
        }
        OpKind::Copy {
            copy_kind,
            source_kind,
            destination_kind,
            asynchronous,
            bytes,
            peers,
        } => {
            let peer = *peers;
            let mut record = Record::new(if peer.is_some() {
                kind::MEMCPY2
            } else {
                kind::MEMCPY
            });
            record.put(
                4,
                [
                    *copy_kind,
                    *source_kind,
                    *destination_kind,
                    u8::from(*asynchronous),
                ],
            );
            record.u64(8, *bytes);
            record.times(16, start_ns, end_ns);
            record.u32(32, op.device);
            record.u32(36, op.context);
            record.u32(40, op.stream);
            if let Some((from, to)) = peer {
                record.u32(44, from);
                record.u32(48, from + 1);
                record.u32(52, to);
                record.u32(56, to + 1);
                record.u32(60, op.correlation);
            } else {
                record.u32(44, op.correlation);
                record.u64(88, 1);
            }
            record
        }
        OpKind::Memset {
            bytes,
            value,
            asynchronous,
        } => {
            let mut record = Record::new(kind::MEMSET);
            record.u32(4, *value);
            record.u64(8, *bytes);
            record.times(16, start_ns, end_ns);
            record.u32(32, op.device);
            record.u32(36, op.context);
            record.u32(40, op.stream);
            record.u32(44, op.correlation);
            record.put(48, u16::from(*asynchronous).to_le_bytes());
            record.put(50, 3u16.to_le_bytes());
            record
        }
    }
}

/// A driver call.
pub(super) struct DriverCall {
    pub(super) callback: u32,
    pub(super) start_ns: i64,
    pub(super) end_ns: i64,
    pub(super) thread: u32,
    pub(super) correlation: u32,
    pub(super) result: u32,
}

/// The record of a driver call (`CUpti_ActivityAPI`).
pub(super) fn driver_call(call: &DriverCall) -> Record {
    let mut record = Record::new(kind::DRIVER);
    record.u32(4, call.callback);
    record.u64(8, call.start_ns.cast_unsigned());
    record.u64(16, call.end_ns.cast_unsigned());
    record.u32(24, std::process::id());
    record.u32(28, call.thread);
    record.u32(32, call.correlation);
    record.u32(36, call.result);
    record
}

/// `CUpti_ActivityExternalCorrelation`.
pub(super) fn external_correlation(external_kind: u32, id: u64, correlation: u32) -> Record {
    let mut record = Record::new(kind::EXTERNAL_CORRELATION);
    record.u32(4, external_kind);
    record.u64(8, id);
    record.u32(16, correlation);
    record
}

/// `CUpti_ActivitySynchronization2`.
pub(super) fn synchronization(wait: u32, ids: [u32; 4], start_ns: i64, end_ns: i64) -> Record {
    let [correlation, context, stream, event] = ids;
    let mut record = Record::new(kind::SYNCHRONIZATION);
    record.u32(4, wait);
    record.u64(8, start_ns.cast_unsigned());
    record.u64(16, end_ns.cast_unsigned());
    record.u32(24, correlation);
    record.u32(28, context);
    record.u32(32, stream);
    record.u32(36, event);
    record
}

/// `CUpti_ActivityOverhead3` of a buffer being handed over (kind 1 << 16: buffer flush), on a thread.
pub(super) fn overhead(thread: u32, start_ns: i64, end_ns: i64) -> Record {
    let mut record = Record::new(kind::OVERHEAD);
    record.u32(4, 1 << 16);
    // CUPTI_ACTIVITY_OBJECT_THREAD, whose object id is process and thread.
    record.u32(8, 2);
    record.u32(12, std::process::id());
    record.u32(16, thread);
    record.u64(24, start_ns.cast_unsigned());
    record.u64(32, end_ns.cast_unsigned());
    record
}

/// `CUpti_ActivityDevice6`.
pub(super) fn device(index: u32, name: &'static CStr) -> Record {
    let mut record = Record::new(kind::DEVICE);
    // In kB/s.
    record.u64(8, (model::MEMORY_BANDWIDTH / config().scale / 1e3) as u64);
    record.u64(16, config().memory_bytes);
    record.u32(28, 50 << 20);
    record.u32(32, 32);
    record.u32(36, 1_980_000);
    record.u32(40, 2);
    record.u32(44, MULTIPROCESSORS);
    record.u32(76, 1024);
    record.u32(104, device::COMPUTE_CAPABILITY.0.cast_unsigned());
    record.u32(108, device::COMPUTE_CAPABILITY.1.cast_unsigned());
    record.u32(112, index);
    record.put(120, device::uuid(index));
    record.u64(136, name.as_ptr() as u64);
    record.put(144, [1]);
    record
}

/// `CUpti_ActivityContext4`.
pub(super) fn context(id: u32, device: u32, null_stream: u32) -> Record {
    let mut record = Record::new(kind::CONTEXT);
    record.u32(4, id);
    record.u32(8, device);
    // CUPTI_ACTIVITY_COMPUTE_API_CUDA.
    record.put(12, 1u16.to_le_bytes());
    record.put(14, (null_stream as u16).to_le_bytes());
    record
}

/// `CUpti_ActivityStream`.
pub(super) fn stream(context: u32, id: u32, priority: i32, flag: u32) -> Record {
    let mut record = Record::new(kind::STREAM);
    record.u32(4, context);
    record.u32(8, id);
    record.put(12, priority.to_le_bytes());
    record.u32(16, flag);
    record
}
