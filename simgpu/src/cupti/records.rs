//! CUPTI's activity records as bytes, in the layouts of several versions.
//!
//! Transcribed by offset from the documented structs of cupti_activity.h 13.4 (`CUpti_ActivityKernel13`,
//! `CUpti_ActivityMemcpy7`, ...). Earlier versions of a struct are prefixes of later ones, so a record is written in
//! the newest layout and cut to the size that the emulated version gives it.

use std::ffi::CStr;
use std::mem::offset_of;
use std::sync::atomic::{AtomicU64, Ordering};

use cudarc::cupti::sys::{
    CUpti_ActivityCudaEvent2 as EventRecorded, CUpti_ActivityGraphTrace2 as GraphTrace,
    CUpti_ActivityKernel13 as Kernel, CUpti_ActivityMemcpy7 as Memcpy, CUpti_ActivityMemcpyPtoP4 as PeerCopy,
    CUpti_ActivityMemset5 as Memset, CUpti_ActivitySynchronization2 as Synchronization,
};

use super::Wait;
use super::exports::walked_size;
use super::layouts::{UNKNOWN_BYTES, kind};
use crate::clock::{delivered_ns, stamp_ns};
use crate::config::config;
use crate::device::{self, CompletedOp, GraphRun, MULTIPROCESSORS, OpKind, model};

/// CUpti_ActivityOverheadKind.
pub(super) const DRIVER_COMPILER: u32 = 1;
pub(super) const BUFFER_FLUSH: u32 = 1 << 16;
pub(super) const LAZY_FUNCTION_LOADING: u32 = 5 << 16;

/// A record being written: the newest layouts need 248 bytes at most, and by a fault 128 more lie behind.
#[derive(Clone)]
pub(super) struct Record {
    bytes: [u8; 384],
    length: usize,
}

impl Record {
    pub(super) fn new(record_kind: u32) -> Self {
        let mut record = Self {
            bytes: [0; 384],
            length: walked_size(record_kind).unwrap_or(0).min(384),
        };
        record.put(0, record_kind.to_le_bytes());
        record
    }

    fn put<const N: usize>(&mut self, offset: usize, value: [u8; N]) {
        self.bytes[offset..offset + N].copy_from_slice(&value);
    }

    pub(super) fn u32(&mut self, offset: usize, value: u32) {
        self.put(offset, value.to_le_bytes());
    }

    pub(super) fn u64(&mut self, offset: usize, value: u64) {
        self.put(offset, value.to_le_bytes());
    }

    /// Start and end of an operation: 0 both with the fault that CUPTI shows when its device buffers run out.
    fn times(&mut self, offset: usize, op: &CompletedOp) {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let delivered = |true_ns: i64| {
            if true_ns == 0 {
                0
            } else {
                delivered_ns(true_ns).cast_unsigned()
            }
        };
        let (mut start, mut end) = (delivered(op.start_ns), delivered(op.end_ns));
        let config = config();
        if !config.faults.is_empty() {
            let count = COUNT.fetch_add(1, Ordering::Relaxed) + 1;
            let is_turn = |fault| {
                let every = config.fault_value(fault);
                every.is_some_and(|every| count.is_multiple_of(every))
            };
            if is_turn("zero-timestamps") {
                (start, end) = (0, 0);
            } else if is_turn("incomplete") && matches!(op.kind, OpKind::Kernel { .. }) {
                end = 0;
            }
        }
        self.u64(offset, start);
        self.u64(offset + 8, end);
    }

    /// Start and end on the host.
    pub(super) fn stamps(&mut self, offset: usize, start_ns: i64, end_ns: i64) {
        self.u64(offset, stamp_ns(start_ns).cast_unsigned());
        self.u64(offset + 8, stamp_ns(end_ns).cast_unsigned());
    }

    /// The node and graph of an operation that is one of a graph's.
    fn graph(&mut self, op: &CompletedOp) {
        let Some(place) = &op.graph else { return };
        let (node, graph) = match kind_of(op) {
            kind::MEMCPY => (offset_of!(Memcpy, graphNodeId), offset_of!(Memcpy, graphId)),
            kind::MEMCPY2 => (offset_of!(PeerCopy, graphNodeId), offset_of!(PeerCopy, graphId)),
            kind::MEMSET => (offset_of!(Memset, graphNodeId), offset_of!(Memset, graphId)),
            _ => (offset_of!(Kernel, graphNodeId), offset_of!(Kernel, graphId)),
        };
        self.u64(node, place.node);
        self.u32(graph, place.run.graph);
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

/// The kind of an operation's record.
pub(super) fn kind_of(op: &CompletedOp) -> u32 {
    match &op.kind {
        OpKind::Kernel { .. } => kind::CONCURRENT_KERNEL,
        OpKind::Copy { peers: Some(_), .. } => kind::MEMCPY2,
        OpKind::Copy { .. } => kind::MEMCPY,
        OpKind::Memset { .. } => kind::MEMSET,
    }
}

/// `CUpti_ActivityGraphTrace2`: a graph's launch as a whole.
pub(super) fn graph(run: &GraphRun) -> Record {
    let mut record = Record::new(kind::GRAPH_TRACE);
    let (start_ns, end_ns) = run.times_ns();
    let delivered = |true_ns: i64| {
        if true_ns == 0 {
            0
        } else {
            delivered_ns(true_ns).cast_unsigned()
        }
    };
    record.u32(offset_of!(GraphTrace, correlationId), run.correlation);
    record.u64(offset_of!(GraphTrace, start), delivered(start_ns));
    record.u64(offset_of!(GraphTrace, end), delivered(end_ns));
    record.u32(offset_of!(GraphTrace, deviceId), run.device);
    record.u32(offset_of!(GraphTrace, graphId), run.graph);
    record.u32(offset_of!(GraphTrace, contextId), run.context);
    record.u32(offset_of!(GraphTrace, streamId), run.stream);
    record.u32(offset_of!(GraphTrace, endDeviceId), run.device);
    record.u32(offset_of!(GraphTrace, endContextId), run.context);
    record
}

/// The record of an operation.
pub(super) fn operation(op: &CompletedOp) -> Record {
    let mut record = of_operation(op);
    record.graph(op);
    record
}

/// How a multiprocessor of Hopper splits its memory for a kernel that takes so much shared memory a block: the smallest
/// share that holds a block and the 1 KiB that CUDA keeps (CUDA C++ Programming Guide, compute capability 9.0).
fn shared_carveout(block_bytes: u32) -> u32 {
    const SHARES: [u32; 9] = [0, 8, 16, 32, 64, 100, 132, 164, 196];
    let needed = if block_bytes == 0 { 0 } else { block_bytes + 1024 };
    let share = SHARES.into_iter().find(|share| share << 10 >= needed);
    share.unwrap_or(228) << 10
}

fn of_operation(op: &CompletedOp) -> Record {
    match &op.kind {
        OpKind::Kernel {
            name,
            grid,
            block,
            resources,
        } => {
            let mut record = Record::new(kind::CONCURRENT_KERNEL);
            record.put(6, resources.registers.to_le_bytes());
            record.times(16, op);
            record.u32(40, op.device);
            record.u32(44, op.context);
            record.u32(48, op.stream);
            for axis in 0..3 {
                record.u32(52 + 4 * axis, grid[axis]);
                record.u32(64 + 4 * axis, block[axis]);
            }
            record.u32(
                offset_of!(Kernel, staticSharedMemory),
                resources.static_shared_bytes,
            );
            record.u32(80, resources.dynamic_shared_bytes);
            record.u32(offset_of!(Kernel, localMemoryPerThread), resources.local_bytes);
            // For as many threads as the device can run at the same time.
            let local_total = u64::from(resources.local_bytes) * u64::from(MULTIPROCESSORS) * 2048;
            record.u32(
                offset_of!(Kernel, localMemoryTotal),
                u32::try_from(local_total).unwrap_or(u32::MAX),
            );
            record.u64(offset_of!(Kernel, localMemoryTotal_v2), local_total);
            record.u32(92, op.correlation);
            record.u64(96, u64::from(op.correlation));
            record.u64(104, name.as_ptr() as u64);
            let shared_bytes = resources.static_shared_bytes + resources.dynamic_shared_bytes;
            record.u32(
                offset_of!(Kernel, sharedMemoryExecuted),
                shared_carveout(shared_bytes),
            );
            // CUPTI_CHANNEL_TYPE_COMPUTE, one channel a stream.
            record.u32(offset_of!(Kernel, channelID), op.stream);
            record.u32(offset_of!(Kernel, channelType), 1);
            record.u32(offset_of!(Kernel, maxPotentialClusterSize), 8);
            record.u32(offset_of!(Kernel, priority), op.priority.cast_unsigned());
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
            let mut record = Record::new(kind_of(op));
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
            record.times(16, op);
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
            record.times(16, op);
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
    record.stamps(8, call.start_ns, call.end_ns);
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
pub(super) fn synchronization(wait: &Wait, end_ns: i64) -> Record {
    let mut record = Record::new(kind::SYNCHRONIZATION);
    record.u32(4, wait.what);
    record.stamps(8, wait.start_ns, end_ns);
    record.u32(24, wait.correlation);
    record.u32(28, wait.context);
    record.u32(32, wait.stream);
    record.u32(36, wait.event);
    record.u64(offset_of!(Synchronization, cudaEventSyncId), wait.recording);
    record
}

/// `CUpti_ActivityOverhead3`, on a thread.
pub(super) fn overhead(what: u32, thread: u32, correlation: u32, start_ns: i64, end_ns: i64) -> Record {
    let mut record = Record::new(kind::OVERHEAD);
    record.u32(4, what);
    // CUPTI_ACTIVITY_OBJECT_THREAD, whose object id is process and thread.
    record.u32(8, 2);
    record.u32(12, std::process::id());
    record.u32(16, thread);
    record.stamps(24, start_ns, end_ns);
    record.u32(40, correlation);
    record
}

/// A record of a kind that no header names.
pub(super) fn unknown() -> Record {
    let mut record = Record::new(kind::UNKNOWN);
    for offset in (8..UNKNOWN_BYTES).step_by(8) {
        record.u64(offset, 0x5151_5151_5151_5151);
    }
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

/// `CUpti_ActivityCudaEvent2`: an event was recorded on a stream; `recording` tells recordings of one event apart.
pub(super) fn event_recorded(
    event: u32,
    recording: u64,
    (context, device, stream): (u32, u32, u32),
    correlation: u32,
) -> Record {
    let mut record = Record::new(kind::CUDA_EVENT);
    record.u32(offset_of!(EventRecorded, correlationId), correlation);
    record.u32(offset_of!(EventRecorded, contextId), context);
    record.u32(offset_of!(EventRecorded, streamId), stream);
    record.u32(offset_of!(EventRecorded, eventId), event);
    record.u32(offset_of!(EventRecorded, deviceId), device);
    record.u64(offset_of!(EventRecorded, cudaEventSyncId), recording);
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
