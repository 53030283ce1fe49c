//! Records of memory: allocations and frees, pools, modules and their compilation.

use std::mem::offset_of;

use cudarc::cupti::sys::{
    CUpti_ActivityJit2 as Jit, CUpti_ActivityMemory4 as Memory,
    CUpti_ActivityMemory4__bindgen_ty_1 as PoolConfig, CUpti_ActivityMemoryPool3 as MemoryPool,
    CUpti_ActivityModule as Module,
};

use super::delivery::emit_for_thread;
use super::layouts::kind;
use super::records::{self, Record};
use super::{is_enabled, thread_id};
use crate::clock::{now_ns, stamp_ns};
use crate::device::memory::Place;
use crate::device::pool::Levels;

/// CUPTI_INVALID_CONTEXT_ID and CUPTI_INVALID_STREAM_ID.
const NONE: u32 = u32::MAX;
/// Whether memory is taken or given back (CUpti_ActivityMemoryOperationType).
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    Allocation = 1,
    Release = 2,
}

/// What is done to a pool (CUpti_ActivityMemoryPoolOperationType).
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum PoolOperation {
    Created = 1,
    Destroyed = 2,
    Trimmed = 3,
}

/// A pool as its records name it: CUPTI gives an address, of which a handle here is one as well as any.
#[derive(Clone, Copy)]
pub(crate) struct PoolState {
    pub(crate) handle: u64,
    pub(crate) device: u32,
    pub(crate) levels: Levels,
}

/// An allocation or a free.
pub(crate) struct Allocated {
    pub(crate) operation: Operation,
    pub(crate) correlation: u32,
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    pub(crate) place: Place,
    /// CUPTI's ids.
    pub(crate) context: u32,
    /// Of those in a stream's order.
    pub(crate) stream: Option<u32>,
    pub(crate) pool: Option<PoolState>,
}

/// Whether anybody wants to know of allocations: their pools need not be looked up otherwise.
pub(crate) fn are_allocations_recorded() -> bool {
    is_enabled(kind::MEMORY2)
}

/// Memory was taken or given back.
pub(crate) fn allocated(what: &Allocated) {
    /// CUpti_ActivityMemoryKind.
    const PINNED: u32 = 2;
    const DEVICE: u32 = 3;
    if !is_enabled(kind::MEMORY2) {
        return;
    }
    let mut record = Record::new(kind::MEMORY2);
    let (memory, device) = match what.place {
        Place::Device(device) => (DEVICE, device),
        Place::Pinned => (PINNED, 0),
    };
    record.u32(offset_of!(Memory, memoryOperationType), what.operation as u32);
    record.u32(offset_of!(Memory, memoryKind), memory);
    record.u32(offset_of!(Memory, correlationId), what.correlation);
    record.u64(offset_of!(Memory, address), what.address);
    record.u64(offset_of!(Memory, bytes), what.bytes);
    record.u64(offset_of!(Memory, timestamp), stamp_ns(now_ns()).cast_unsigned());
    record.u32(offset_of!(Memory, processId), std::process::id());
    record.u32(offset_of!(Memory, deviceId), device);
    record.u32(offset_of!(Memory, contextId), what.context);
    record.u32(offset_of!(Memory, streamId), what.stream.unwrap_or(NONE));
    record.u32(offset_of!(Memory, isAsync), u32::from(what.stream.is_some()));
    if let Some(pool) = &what.pool {
        let at = offset_of!(Memory, memoryPoolConfig);
        // CUPTI_ACTIVITY_MEMORY_POOL_TYPE_LOCAL.
        record.u32(at + offset_of!(PoolConfig, memoryPoolType), 1);
        record.u64(at + offset_of!(PoolConfig, address), pool.handle);
        record.u64(
            at + offset_of!(PoolConfig, releaseThreshold),
            pool.levels.threshold,
        );
        record.u64(at + offset_of!(PoolConfig, pool), pool.levels.reserved);
        record.u64(at + offset_of!(PoolConfig, utilizedSize), pool.levels.used);
    }
    emit_for_thread(&record);
}

/// Something was done to a pool; a trim has the bytes that it was to keep.
pub(crate) fn pool(operation: PoolOperation, pool: &PoolState, keep_bytes: u64, correlation: u32) {
    if !is_enabled(kind::MEMORY_POOL) {
        return;
    }
    let mut record = Record::new(kind::MEMORY_POOL);
    record.u32(offset_of!(MemoryPool, memoryPoolOperationType), operation as u32);
    record.u32(offset_of!(MemoryPool, memoryPoolType), 1);
    record.u32(offset_of!(MemoryPool, correlationId), correlation);
    record.u32(offset_of!(MemoryPool, processId), std::process::id());
    record.u32(offset_of!(MemoryPool, deviceId), pool.device);
    record.u64(offset_of!(MemoryPool, minBytesToKeep), keep_bytes);
    record.u64(offset_of!(MemoryPool, address), pool.handle);
    record.u64(offset_of!(MemoryPool, size), pool.levels.reserved);
    record.u64(offset_of!(MemoryPool, releaseThreshold), pool.levels.threshold);
    record.u64(
        offset_of!(MemoryPool, timestamp),
        stamp_ns(now_ns()).cast_unsigned(),
    );
    record.u64(offset_of!(MemoryPool, utilizedSize), pool.levels.used);
    emit_for_thread(&record);
}

/// A module was loaded.
pub(crate) fn module_loaded(context: u32, id: u32, image: &std::ffi::CStr) {
    if !is_enabled(kind::MODULE) {
        return;
    }
    let mut record = Record::new(kind::MODULE);
    record.u32(offset_of!(Module, contextId), context);
    record.u32(offset_of!(Module, id), id);
    record.u32(
        offset_of!(Module, cubinSize),
        u32::try_from(image.count_bytes()).unwrap_or(u32::MAX),
    );
    record.u64(offset_of!(Module, cubin), image.as_ptr() as u64);
    emit_for_thread(&record);
}

/// PTX was compiled for a device, from the start until now.
pub(crate) fn compiled(device: u32, correlation: u32, start_ns: i64) {
    let end_ns = now_ns();
    if is_enabled(kind::JIT) {
        let mut record = Record::new(kind::JIT);
        // From PTX to cubin, compiled.
        record.u32(offset_of!(Jit, jitEntryType), 1);
        record.u32(offset_of!(Jit, jitOperationType), 3);
        record.u32(offset_of!(Jit, deviceId), device);
        record.stamps(offset_of!(Jit, start), start_ns, end_ns);
        record.u32(offset_of!(Jit, correlationId), correlation);
        record.u64(offset_of!(Jit, jitOperationCorrelationId), u64::from(correlation));
        record.u32(offset_of!(Jit, processId), std::process::id());
        record.u32(offset_of!(Jit, threadId), thread_id());
        emit_for_thread(&record);
    }
    overhead(records::DRIVER_COMPILER, correlation, start_ns);
}

/// Time that the driver took for something that is not the program's, from the start until now.
pub(crate) fn overhead(what: u32, correlation: u32, start_ns: i64) {
    if is_enabled(kind::OVERHEAD) {
        emit_for_thread(&records::overhead(
            what,
            thread_id(),
            correlation,
            start_ns,
            now_ns(),
        ));
    }
}

/// A function was loaded at its first use.
pub(crate) fn function_loaded(correlation: u32, start_ns: i64) {
    overhead(records::LAZY_FUNCTION_LOADING, correlation, start_ns);
}
