//! CUPTI's activity records as they lie in a buffer (cupti_activity.h, CUDA 12.0 to 13.5).
//!
//! Later versions of a record only append to earlier ones, so each struct here holds the members that gputrace
//! reads, at the offsets that they have in every version. Enums are integers: an unknown value is data.

mod gpu;
mod host;
pub mod kind;
mod resources;
mod sizes;

pub use gpu::{GraphTrace, Kernel, Memcpy, Memset, PeerCopy};
pub use host::{ApiCall, EventRecord, ExternalCorrelation, Jit, Module, Overhead, Synchronization};
pub use resources::{Context, Device, Memory, MemoryPool, Stream};
pub use sizes::RecordSizes;

/// A record type, read from a place in a buffer.
///
/// # Safety
/// Implementors hold integers and arrays of them only: every bit pattern is a value.
pub unsafe trait Record: Copy {}

macro_rules! records {
    ($($name:ident)*) => {$(
        // SAFETY: integers only.
        unsafe impl Record for $name {}
    )*};
}
records! { Kernel Memcpy PeerCopy Memset GraphTrace ApiCall Synchronization EventRecord Overhead ExternalCorrelation }
records! { Module Jit Context Stream Device Memory MemoryPool }

/// Whether a record of so many bytes has the member that begins at `offset`.
#[must_use]
#[inline]
pub fn reaches(bytes: &[u8], offset: usize) -> bool {
    bytes.len() > offset
}

/// Reads a record from its bytes; members that the bytes do not reach are 0.
#[must_use]
#[inline]
pub fn read<R: Record>(bytes: &[u8]) -> R {
    if bytes.len() >= size_of::<R>() {
        // SAFETY: enough bytes, read without alignment; any bytes are a value of R (see `Record`).
        return unsafe { bytes.as_ptr().cast::<R>().read_unaligned() };
    }
    let mut record = std::mem::MaybeUninit::<R>::zeroed();
    let length = bytes.len();
    // SAFETY: copies within both the bytes and the record; zeros and any bytes are a value of R (see `Record`).
    unsafe {
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), record.as_mut_ptr().cast::<u8>(), length);
        record.assume_init()
    }
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use cudarc::cupti::sys;

    use super::*;

    macro_rules! same_offsets {
        ($ours:ident, $theirs:ident: $($our_field:ident = $their_field:ident),* $(,)?) => {
            $( assert_eq!(
                offset_of!($ours, $our_field), offset_of!(sys::$theirs, $their_field),
                "{}.{}", stringify!($theirs), stringify!($their_field)
            ); )*
        };
    }

    #[test]
    fn members_lie_where_the_headers_have_them() {
        same_offsets!(Kernel, CUpti_ActivityKernel13: registers = registersPerThread, start = start, end = end,
            device = deviceId, context = contextId, stream = streamId, grid = gridX, block = blockX,
            static_shared = staticSharedMemory, dynamic_shared = dynamicSharedMemory, correlation = correlationId,
            name = name, graph_node = graphNodeId, graph = graphId, local_per_thread = localMemoryPerThread,
            launch_type = launchType, shared_executed = sharedMemoryExecuted, cluster = clusterX);
        same_offsets!(Kernel, CUpti_ActivityKernel9: cluster = clusterX, launch_type = launchType, start = start, correlation = correlationId, name = name, graph = graphId);
        same_offsets!(Memcpy, CUpti_ActivityMemcpy7: copy_kind = copyKind, bytes = bytes, start = start, device = deviceId,
            stream = streamId, correlation = correlationId, graph_node = graphNodeId, graph = graphId);
        same_offsets!(PeerCopy, CUpti_ActivityMemcpyPtoP4: bytes = bytes, source_device = srcDeviceId,
            destination_device = dstDeviceId, correlation = correlationId, graph = graphId);
        same_offsets!(Memset, CUpti_ActivityMemset5: value = value, bytes = bytes, start = start, stream = streamId,
            correlation = correlationId, flags = flags, memory_kind = memoryKind, graph = graphId);
        same_offsets!(ApiCall, CUpti_ActivityAPI: callback = cbid, start = start, thread = threadId,
            correlation = correlationId, result = returnValue);
        same_offsets!(Synchronization, CUpti_ActivitySynchronization2: wait = type_, start = start,
            correlation = correlationId, context = contextId, stream = streamId, event = cudaEventId,
            event_synchronization = cudaEventSyncId, result = returnValue);
        same_offsets!(EventRecord, CUpti_ActivityCudaEvent2: correlation = correlationId, context = contextId,
            stream = streamId, event = eventId, device = deviceId, device_timestamp = deviceTimestamp,
            event_synchronization = cudaEventSyncId);
        same_offsets!(EventRecord, CUpti_ActivityCudaEvent: correlation = correlationId, context = contextId,
            stream = streamId, event = eventId);
        same_offsets!(Overhead, CUpti_ActivityOverhead3: overhead = overheadKind, object_kind = objectKind,
            object = objectId, start = start, end = end, correlation = correlationId, data = overheadData);
        same_offsets!(GraphTrace, CUpti_ActivityGraphTrace2: correlation = correlationId, start = start, end = end,
            device = deviceId, graph = graphId, context = contextId, stream = streamId, end_device = endDeviceId,
            end_context = endContextId);
        same_offsets!(GraphTrace, CUpti_ActivityGraphTrace: start = start, graph = graphId, stream = streamId);
        same_offsets!(Module, CUpti_ActivityModule: context = contextId, id = id, cubin_bytes = cubinSize);
        same_offsets!(Jit, CUpti_ActivityJit2: entry = jitEntryType, operation = jitOperationType, device = deviceId,
            start = start, end = end, correlation = correlationId, operation_id = jitOperationCorrelationId,
            cache_bytes = cacheSize, cache_path = cachePath, thread = threadId);
        same_offsets!(Memory, CUpti_ActivityMemory4: operation = memoryOperationType, memory_kind = memoryKind,
            correlation = correlationId, address = address, bytes = bytes, time = timestamp, device = deviceId,
            context = contextId, stream = streamId, name = name, is_asynchronous = isAsync,
            pool_type = memoryPoolConfig, source = source);
        same_offsets!(Memory, CUpti_ActivityMemory3: bytes = bytes, stream = streamId, pool_type = memoryPoolConfig);
        same_offsets!(MemoryPool, CUpti_ActivityMemoryPool3: operation = memoryPoolOperationType,
            pool_type = memoryPoolType, correlation = correlationId, device = deviceId, least_bytes_kept = minBytesToKeep,
            address = address, bytes = size, release_threshold = releaseThreshold, time = timestamp,
            used_bytes = utilizedSize, is_managed = isManagedPool);
        same_offsets!(MemoryPool, CUpti_ActivityMemoryPool2: time = timestamp, used_bytes = utilizedSize);
        same_offsets!(ExternalCorrelation, CUpti_ActivityExternalCorrelation: external_kind = externalKind,
            id = externalId, correlation = correlationId);
        same_offsets!(Context, CUpti_ActivityContext4: context = contextId, device = deviceId, null_stream = nullStreamId);
        same_offsets!(Stream, CUpti_ActivityStream: context = contextId, stream = streamId, priority = priority, flag = flag);
        same_offsets!(Device, CUpti_ActivityDevice6: memory_bandwidth = globalMemoryBandwidth,
            memory_bytes = globalMemorySize, multiprocessors = numMultiprocessors,
            warps_a_multiprocessor = maxWarpsPerMultiprocessor, blocks_a_multiprocessor = maxBlocksPerMultiprocessor,
            shared_bytes_a_multiprocessor = maxSharedMemoryPerMultiprocessor,
            registers_a_multiprocessor = maxRegistersPerMultiprocessor, registers_a_block = maxRegistersPerBlock,
            shared_bytes_a_block = maxSharedMemoryPerBlock, threads_a_block = maxThreadsPerBlock,
            most_block = maxBlockDimX, most_grid = maxGridDimX, capability_major = computeCapabilityMajor, id = id, uuid = uuid, name = name);
    }

    #[test]
    fn a_short_record_leaves_zeros() {
        let call: ApiCall = read(&[5, 0, 0, 0, 7, 0, 0, 0, 1]);
        assert_eq!((call.kind, call.callback, call.start, call.result), (5, 7, 1, 0));
    }
}
