//! The fields that user-defined records can have: each kind's `CUpti_Activity*FieldIds`, how long a field is in such a
//! record, and where its value lies in the record of the newest layout.
//!
//! Types are those that cupti_activity.h gives beside each id: ids of threads, contexts, streams and correlation are
//! often longer than in the structs.

use std::mem::offset_of;

use cudarc::cupti::sys;

use super::super::layouts::kind;

/// A field of a user-defined record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Field {
    /// Its number in the kind's enum.
    pub(super) id: i32,
    /// Its size in a user-defined record; its alignment, too, but for ids of 16 bytes, which are characters.
    pub(super) bytes: usize,
    /// Where its value lies in a predefined record, and how many bytes it has there.
    pub(super) from: usize,
    pub(super) from_bytes: usize,
}

const fn bytes_of<T>(_: *const T) -> usize {
    size_of::<T>()
}

macro_rules! fields {
    ($ids:ident $record:ident: $($id:ident $bytes:literal $($member:ident).+),* $(,)?) => {
        &[$( Field {
            id: sys::$ids::$id as i32,
            bytes: $bytes,
            from: offset_of!(sys::$record, $($member).+),
            from_bytes: {
                let record = std::mem::MaybeUninit::<sys::$record>::uninit();
                // SAFETY: makes a pointer to a member of a place that is valid; nothing is read.
                bytes_of(unsafe { &raw const (*record.as_ptr()).$($member).+ })
            },
        } ),*]
    };
}

const MEMCPY: &[Field] = fields! { CUpti_ActivityMemcpyFieldIds CUpti_ActivityMemcpy7:
    MEMCPY_FIELD_KIND 4 kind, MEMCPY_FIELD_COPY_KIND 1 copyKind, MEMCPY_FIELD_SRC_KIND 1 srcKind,
    MEMCPY_FIELD_DST_KIND 1 dstKind, MEMCPY_FIELD_FLAGS 1 flags, MEMCPY_FIELD_BYTES 8 bytes,
    MEMCPY_FIELD_START 8 start, MEMCPY_FIELD_END 8 end, MEMCPY_FIELD_DEVICE_ID 4 deviceId,
    MEMCPY_FIELD_CONTEXT_ID 4 contextId, MEMCPY_FIELD_STREAM_ID 4 streamId,
    MEMCPY_FIELD_CORRELATION_ID 8 correlationId, MEMCPY_FIELD_GRAPH_NODE_ID 8 graphNodeId,
    MEMCPY_FIELD_GRAPH_ID 4 graphId, MEMCPY_FIELD_CHANNEL_ID 4 channelID,
    MEMCPY_FIELD_CHANNEL_TYPE 4 channelType, MEMCPY_FIELD_IS_DEVICE_LAUNCHED 1 isDeviceLaunched,
    MEMCPY_FIELD_COPY_COUNT 8 copyCount, MEMCPY_FIELD_SOURCE_GRAPH_ID 4 sourceGraphId,
    MEMCPY_FIELD_SOURCE_GRAPH_NODE_ID 8 sourceGraphNodeId,
};
const MEMSET: &[Field] = fields! { CUpti_ActivityMemsetFieldIds CUpti_ActivityMemset5:
    MEMSET_FIELD_KIND 4 kind, MEMSET_FIELD_VALUE 4 value, MEMSET_FIELD_BYTES 8 bytes,
    MEMSET_FIELD_START 8 start, MEMSET_FIELD_END 8 end, MEMSET_FIELD_DEVICE_ID 4 deviceId,
    MEMSET_FIELD_CONTEXT_ID 4 contextId, MEMSET_FIELD_STREAM_ID 4 streamId,
    MEMSET_FIELD_CORRELATION_ID 8 correlationId, MEMSET_FIELD_FLAGS 2 flags,
    MEMSET_FIELD_MEMORY_KIND 2 memoryKind, MEMSET_FIELD_GRAPH_NODE_ID 8 graphNodeId,
    MEMSET_FIELD_GRAPH_ID 4 graphId, MEMSET_FIELD_CHANNEL_ID 4 channelID,
    MEMSET_FIELD_CHANNEL_TYPE 4 channelType, MEMSET_FIELD_IS_DEVICE_LAUNCHED 1 isDeviceLaunched,
    MEMSET_FIELD_SOURCE_GRAPH_ID 4 sourceGraphId, MEMSET_FIELD_SOURCE_GRAPH_NODE_ID 8 sourceGraphNodeId,
};
const CONCURRENT_KERNEL: &[Field] = fields! { CUpti_ActivityKernelFieldIds CUpti_ActivityKernel13:
    KERNEL_FIELD_KIND 4 kind, KERNEL_FIELD_SHARED_MEMORY_CONFIG 1 sharedMemoryConfig,
    KERNEL_FIELD_REGISTERS_PER_THREAD 2 registersPerThread,
    KERNEL_FIELD_PARTITIONED_GLOBAL_CACHE_REQUESTED 4 partitionedGlobalCacheRequested,
    KERNEL_FIELD_PARTITIONED_GLOBAL_CACHE_EXECUTED 4 partitionedGlobalCacheExecuted,
    KERNEL_FIELD_START 8 start, KERNEL_FIELD_END 8 end, KERNEL_FIELD_COMPLETED 8 completed,
    KERNEL_FIELD_DEVICE_ID 4 deviceId, KERNEL_FIELD_CONTEXT_ID 8 contextId,
    KERNEL_FIELD_STREAM_ID 8 streamId, KERNEL_FIELD_GRID_X 4 gridX, KERNEL_FIELD_GRID_Y 4 gridY,
    KERNEL_FIELD_GRID_Z 4 gridZ, KERNEL_FIELD_BLOCK_X 4 blockX, KERNEL_FIELD_BLOCK_Y 4 blockY,
    KERNEL_FIELD_BLOCK_Z 4 blockZ, KERNEL_FIELD_STATIC_SHARED_MEMORY 4 staticSharedMemory,
    KERNEL_FIELD_DYNAMIC_SHARED_MEMORY 4 dynamicSharedMemory,
    KERNEL_FIELD_LOCAL_MEMORY_PER_THREAD 4 localMemoryPerThread,
    KERNEL_FIELD_CORRELATION_ID 8 correlationId, KERNEL_FIELD_GRID_ID 8 gridId, KERNEL_FIELD_NAME 8 name,
    KERNEL_FIELD_QUEUED 8 queued, KERNEL_FIELD_SUBMITTED 8 submitted, KERNEL_FIELD_LAUNCH_TYPE 1 launchType,
    KERNEL_FIELD_IS_SHARED_MEMORY_CARVEOUT_REQUESTED 1 isSharedMemoryCarveoutRequested,
    KERNEL_FIELD_SHARED_MEMORY_CARVEOUT_REQUESTED 1 sharedMemoryCarveoutRequested,
    KERNEL_FIELD_SHARED_MEMORY_EXECUTED 4 sharedMemoryExecuted, KERNEL_FIELD_GRAPH_NODE_ID 8 graphNodeId,
    KERNEL_FIELD_SHMEM_LIMIT_CONFIG 4 shmemLimitConfig, KERNEL_FIELD_GRAPH_ID 4 graphId,
    KERNEL_FIELD_ACCESS_POLICY_WINDOW 8 pAccessPolicyWindow, KERNEL_FIELD_CHANNEL_ID 4 channelID,
    KERNEL_FIELD_CHANNEL_TYPE 4 channelType, KERNEL_FIELD_CLUSTER_X 4 clusterX,
    KERNEL_FIELD_CLUSTER_Y 4 clusterY, KERNEL_FIELD_CLUSTER_Z 4 clusterZ,
    KERNEL_FIELD_CLUSTER_SCHEDULING_POLICY 4 clusterSchedulingPolicy,
    KERNEL_FIELD_LOCAL_MEMORY_TOTAL 8 localMemoryTotal_v2,
    KERNEL_FIELD_MAX_POTENTIAL_CLUSTER_SIZE 4 maxPotentialClusterSize,
    KERNEL_FIELD_MAX_ACTIVE_CLUSTERS 4 maxActiveClusters,
    KERNEL_FIELD_IS_DEVICE_LAUNCHED 1 isDeviceLaunched, KERNEL_FIELD_LAUNCH_PRIORITY 4 priority,
    KERNEL_FIELD_EXECUTION_MODEL 4 executionModel, KERNEL_FIELD_SOURCE_GRAPH_ID 4 sourceGraphId,
    KERNEL_FIELD_SOURCE_GRAPH_NODE_ID 8 sourceGraphNodeId,
};
const DRIVER: &[Field] = fields! { CUpti_ActivityApiFieldIds CUpti_ActivityAPI:
    API_FIELD_KIND 4 kind, API_FIELD_CBID 4 cbid, API_FIELD_START 8 start, API_FIELD_END 8 end,
    API_FIELD_PROCESS_ID 4 processId, API_FIELD_THREAD_ID 8 threadId,
    API_FIELD_CORRELATION_ID 8 correlationId, API_FIELD_RETURN_VALUE 4 returnValue,
};
const DEVICE: &[Field] = fields! { CUpti_ActivityDeviceFieldIds CUpti_ActivityDevice6:
    DEVICE_FIELD_KIND 4 kind, DEVICE_FIELD_FLAGS 4 flags,
    DEVICE_FIELD_GLOBAL_MEMORY_BANDWIDTH 8 globalMemoryBandwidth,
    DEVICE_FIELD_GLOBAL_MEMORY_SIZE 8 globalMemorySize,
    DEVICE_FIELD_CONSTANT_MEMORY_SIZE 4 constantMemorySize, DEVICE_FIELD_L2_CACHE_SIZE 4 l2CacheSize,
    DEVICE_FIELD_NUM_THREADS_PER_WARP 4 numThreadsPerWarp, DEVICE_FIELD_CORE_CLOCK_RATE 4 coreClockRate,
    DEVICE_FIELD_NUM_MEMCPY_ENGINES 4 numMemcpyEngines,
    DEVICE_FIELD_NUM_MULTIPROCESSORS 4 numMultiprocessors, DEVICE_FIELD_MAX_IPC 4 maxIPC,
    DEVICE_FIELD_MAX_WARPS_PER_MULTIPROCESSOR 4 maxWarpsPerMultiprocessor,
    DEVICE_FIELD_MAX_BLOCKS_PER_MULTIPROCESSOR 4 maxBlocksPerMultiprocessor,
    DEVICE_FIELD_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR 4 maxSharedMemoryPerMultiprocessor,
    DEVICE_FIELD_MAX_REGISTERS_PER_MULTIPROCESSOR 4 maxRegistersPerMultiprocessor,
    DEVICE_FIELD_MAX_REGISTERS_PER_BLOCK 4 maxRegistersPerBlock,
    DEVICE_FIELD_MAX_SHARED_MEMORY_PER_BLOCK 4 maxSharedMemoryPerBlock,
    DEVICE_FIELD_MAX_THREADS_PER_BLOCK 4 maxThreadsPerBlock, DEVICE_FIELD_MAX_BLOCK_DIM_X 4 maxBlockDimX,
    DEVICE_FIELD_MAX_BLOCK_DIM_Y 4 maxBlockDimY, DEVICE_FIELD_MAX_BLOCK_DIM_Z 4 maxBlockDimZ,
    DEVICE_FIELD_MAX_GRID_DIM_X 4 maxGridDimX, DEVICE_FIELD_MAX_GRID_DIM_Y 4 maxGridDimY,
    DEVICE_FIELD_MAX_GRID_DIM_Z 4 maxGridDimZ,
    DEVICE_FIELD_COMPUTE_CAPABILITY_MAJOR 4 computeCapabilityMajor,
    DEVICE_FIELD_COMPUTE_CAPABILITY_MINOR 4 computeCapabilityMinor, DEVICE_FIELD_ID 4 id,
    DEVICE_FIELD_ECC_ENABLED 4 eccEnabled, DEVICE_FIELD_UUID 16 uuid, DEVICE_FIELD_NAME 8 name,
    DEVICE_FIELD_IS_CUDA_VISIBLE 1 isCudaVisible, DEVICE_FIELD_IS_MIG_ENABLED 1 isMigEnabled,
    DEVICE_FIELD_GPU_INSTANCE_ID 4 gpuInstanceId, DEVICE_FIELD_COMPUTE_INSTANCE_ID 4 computeInstanceId,
    DEVICE_FIELD_MIG_UUID 16 migUuid, DEVICE_FIELD_IS_NUMA_NODE 4 isNumaNode, DEVICE_FIELD_NUMA_ID 4 numaId,
    DEVICE_FIELD_NUM_TPCS 4 numTpcs,
};
const CONTEXT: &[Field] = fields! { CUpti_ActivityContextFieldIds CUpti_ActivityContext4:
    CONTEXT_FIELD_KIND 4 kind, CONTEXT_FIELD_CONTEXT_ID 4 contextId, CONTEXT_FIELD_DEVICE_ID 4 deviceId,
    CONTEXT_FIELD_COMPUTE_API_KIND 2 computeApiKind, CONTEXT_FIELD_NULL_STREAM_ID 4 nullStreamId,
    CONTEXT_FIELD_PARENT_CONTEXT_ID 4 parentContextId, CONTEXT_FIELD_IS_GREEN_CONTEXT 1 isGreenContext,
    CONTEXT_FIELD_NUM_MULTIPROCESSORS 2 numMultiprocessors, CONTEXT_FIELD_CIG_MODE 4 cigMode,
    CONTEXT_FIELD_PROCESS_ID 4 processId,
};
const OVERHEAD: &[Field] = fields! { CUpti_ActivityOverheadFieldIds CUpti_ActivityOverhead3:
    OVERHEAD_FIELD_KIND 4 kind, OVERHEAD_FIELD_OVERHEAD_KIND 4 overheadKind, OVERHEAD_FIELD_START 8 start,
    OVERHEAD_FIELD_END 8 end, OVERHEAD_FIELD_CORRELATION_ID 8 correlationId,
    OVERHEAD_FIELD_OVERHEAD_DATA 8 overheadData,
};
const MEMCPY2: &[Field] = fields! { CUpti_ActivityMemcpy2FieldIds CUpti_ActivityMemcpyPtoP4:
    MEMCPY2_FIELD_KIND 4 kind, MEMCPY2_FIELD_COPY_KIND 1 copyKind, MEMCPY2_FIELD_SRC_KIND 1 srcKind,
    MEMCPY2_FIELD_DST_KIND 1 dstKind, MEMCPY2_FIELD_FLAGS 1 flags, MEMCPY2_FIELD_BYTES 8 bytes,
    MEMCPY2_FIELD_START 8 start, MEMCPY2_FIELD_END 8 end, MEMCPY2_FIELD_DEVICE_ID 4 deviceId,
    MEMCPY2_FIELD_CONTEXT_ID 4 contextId, MEMCPY2_FIELD_STREAM_ID 4 streamId,
    MEMCPY2_FIELD_SRC_DEVICE_ID 4 srcDeviceId, MEMCPY2_FIELD_SRC_CONTEXT_ID 4 srcContextId,
    MEMCPY2_FIELD_DST_DEVICE_ID 4 dstDeviceId, MEMCPY2_FIELD_DST_CONTEXT_ID 4 dstContextId,
    MEMCPY2_FIELD_CORRELATION_ID 8 correlationId, MEMCPY2_FIELD_GRAPH_NODE_ID 8 graphNodeId,
    MEMCPY2_FIELD_GRAPH_ID 4 graphId, MEMCPY2_FIELD_CHANNEL_ID 4 channelID,
    MEMCPY2_FIELD_CHANNEL_TYPE 4 channelType,
};
const CUDA_EVENT: &[Field] = fields! { CUpti_ActivityCudaEventFieldIds CUpti_ActivityCudaEvent2:
    CUDA_EVENT_FIELD_KIND 4 kind, CUDA_EVENT_FIELD_CORRELATION_ID 8 correlationId,
    CUDA_EVENT_FIELD_CONTEXT_ID 4 contextId, CUDA_EVENT_FIELD_STREAM_ID 4 streamId,
    CUDA_EVENT_FIELD_EVENT_ID 8 eventId, CUDA_EVENT_FIELD_DEVICE_ID 4 deviceId,
    CUDA_EVENT_FIELD_DEVICE_TIMESTAMP 8 deviceTimestamp,
    CUDA_EVENT_FIELD_CUDA_EVENT_SYNC_ID 8 cudaEventSyncId,
};
const STREAM: &[Field] = fields! { CUpti_ActivityStreamFieldIds CUpti_ActivityStream:
    STREAM_FIELD_KIND 4 kind, STREAM_FIELD_CONTEXT_ID 4 contextId, STREAM_FIELD_STREAM_ID 4 streamId,
    STREAM_FIELD_PRIORITY 4 priority, STREAM_FIELD_FLAG 4 flag, STREAM_FIELD_CORRELATION_ID 8 correlationId,
};
const SYNCHRONIZATION: &[Field] = fields! { CUpti_ActivitySynchronizationFieldIds CUpti_ActivitySynchronization2:
    SYNCHRONIZATION_FIELD_KIND 4 kind, SYNCHRONIZATION_FIELD_TYPE 4 type_,
    SYNCHRONIZATION_FIELD_START 8 start, SYNCHRONIZATION_FIELD_END 8 end,
    SYNCHRONIZATION_FIELD_CORRELATION_ID 8 correlationId, SYNCHRONIZATION_FIELD_CONTEXT_ID 4 contextId,
    SYNCHRONIZATION_FIELD_STREAM_ID 4 streamId, SYNCHRONIZATION_FIELD_CUDA_EVENT_ID 8 cudaEventId,
    SYNCHRONIZATION_FIELD_CUDA_EVENT_SYNC_ID 8 cudaEventSyncId,
    SYNCHRONIZATION_FIELD_RETURN_VALUE 4 returnValue,
};
const EXTERNAL_CORRELATION: &[Field] = fields! { CUpti_ActivityExternalCorrelationFieldIds CUpti_ActivityExternalCorrelation:
    EXTERNAL_CORRELATION_FIELD_KIND 4 kind, EXTERNAL_CORRELATION_FIELD_EXTERNAL_KIND 4 externalKind,
    EXTERNAL_CORRELATION_FIELD_EXTERNAL_ID 8 externalId,
    EXTERNAL_CORRELATION_FIELD_CORRELATION_ID 8 correlationId,
};
const MEMORY2: &[Field] = fields! { CUpti_ActivityMemoryFieldIds CUpti_ActivityMemory4:
    MEMORY_FIELD_KIND 4 kind, MEMORY_FIELD_OPERATION_TYPE 4 memoryOperationType,
    MEMORY_FIELD_MEMORY_KIND 4 memoryKind, MEMORY_FIELD_CORRELATION_ID 8 correlationId,
    MEMORY_FIELD_ADDRESS 8 address, MEMORY_FIELD_BYTES 8 bytes, MEMORY_FIELD_TIMESTAMP 8 timestamp,
    MEMORY_FIELD_PROCESS_ID 4 processId, MEMORY_FIELD_DEVICE_ID 4 deviceId,
    MEMORY_FIELD_CONTEXT_ID 4 contextId, MEMORY_FIELD_STREAM_ID 4 streamId, MEMORY_FIELD_IS_ASYNC 4 isAsync,
    MEMORY_FIELD_POOL_TYPE 4 memoryPoolConfig.memoryPoolType,
    MEMORY_FIELD_POOL_ADDRESS 8 memoryPoolConfig.address,
    MEMORY_FIELD_POOL_RELEASE_THRESHOLD 8 memoryPoolConfig.releaseThreshold,
    MEMORY_FIELD_POOL_UTILIZED_SIZE 8 memoryPoolConfig.utilizedSize, MEMORY_FIELD_SOURCE 8 source,
};
const MEMORY_POOL: &[Field] = fields! { CUpti_ActivityMemoryPoolFieldIds CUpti_ActivityMemoryPool3:
    MEMORY_POOL_FIELD_KIND 4 kind, MEMORY_POOL_FIELD_OPERATION_TYPE 4 memoryPoolOperationType,
    MEMORY_POOL_FIELD_POOL_TYPE 4 memoryPoolType, MEMORY_POOL_FIELD_CORRELATION_ID 8 correlationId,
    MEMORY_POOL_FIELD_PROCESS_ID 4 processId, MEMORY_POOL_FIELD_DEVICE_ID 4 deviceId,
    MEMORY_POOL_FIELD_MIN_BYTES_TO_KEEP 8 minBytesToKeep, MEMORY_POOL_FIELD_ADDRESS 8 address,
    MEMORY_POOL_FIELD_SIZE 8 size, MEMORY_POOL_FIELD_RELEASE_THRESHOLD 8 releaseThreshold,
    MEMORY_POOL_FIELD_TIMESTAMP 8 timestamp, MEMORY_POOL_FIELD_UTILIZED_SIZE 8 utilizedSize,
    MEMORY_POOL_FIELD_IS_MANAGED_POOL 1 isManagedPool,
};
const GRAPH_TRACE: &[Field] = fields! { CUpti_ActivityGraphTraceFieldIds CUpti_ActivityGraphTrace2:
    GRAPH_TRACE_FIELD_KIND 4 kind, GRAPH_TRACE_FIELD_CORRELATION_ID 8 correlationId,
    GRAPH_TRACE_FIELD_START 8 start, GRAPH_TRACE_FIELD_END 8 end, GRAPH_TRACE_FIELD_DEVICE_ID 4 deviceId,
    GRAPH_TRACE_FIELD_GRAPH_ID 4 graphId, GRAPH_TRACE_FIELD_CONTEXT_ID 4 contextId,
    GRAPH_TRACE_FIELD_STREAM_ID 4 streamId, GRAPH_TRACE_FIELD_END_DEVICE_ID 4 endDeviceId,
    GRAPH_TRACE_FIELD_END_CONTEXT_ID 4 endContextId,
};
const JIT: &[Field] = fields! { CUpti_ActivityJitFieldIds CUpti_ActivityJit2:
    JIT_FIELD_KIND 4 kind, JIT_FIELD_ENTRY_TYPE 4 jitEntryType, JIT_FIELD_OPERATION_TYPE 4 jitOperationType,
    JIT_FIELD_DEVICE_ID 4 deviceId, JIT_FIELD_START 8 start, JIT_FIELD_END 8 end,
    JIT_FIELD_CORRELATION_ID 8 correlationId,
    JIT_FIELD_OPERATION_CORRELATION_ID 8 jitOperationCorrelationId, JIT_FIELD_CACHE_SIZE 8 cacheSize,
    JIT_FIELD_CACHE_PATH 8 cachePath, JIT_FIELD_PROCESS_ID 4 processId, JIT_FIELD_THREAD_ID 8 threadId,
};
/// The object of an overhead's record is a process and a thread.
const OVERHEAD_OBJECT: &[Field] = &[
    Field {
        id: sys::CUpti_ActivityOverheadFieldIds::OVERHEAD_FIELD_PROCESS_ID as i32,
        bytes: 4,
        from: offset_of!(sys::CUpti_ActivityOverhead3, objectId),
        from_bytes: 4,
    },
    Field {
        id: sys::CUpti_ActivityOverheadFieldIds::OVERHEAD_FIELD_THREAD_ID as i32,
        bytes: 8,
        from: offset_of!(sys::CUpti_ActivityOverhead3, objectId) + 4,
        from_bytes: 4,
    },
];
/// The union of an allocation's pool: its size, or the process that exported it.
const MEMORY_POOL_UNION: &[Field] = &[
    Field {
        id: sys::CUpti_ActivityMemoryFieldIds::MEMORY_FIELD_POOL_SIZE as i32,
        bytes: 8,
        from: offset_of!(sys::CUpti_ActivityMemory4, memoryPoolConfig.pool),
        from_bytes: 8,
    },
    Field {
        id: sys::CUpti_ActivityMemoryFieldIds::MEMORY_FIELD_POOL_PROCESS_ID as i32,
        bytes: 8,
        from: offset_of!(sys::CUpti_ActivityMemory4, memoryPoolConfig.pool),
        from_bytes: 8,
    },
];

/// A kind's fields, in parts; `None` for a kind that has none or is not known here.
fn parts(record_kind: u32) -> Option<[&'static [Field]; 2]> {
    Some(match record_kind {
        kind::MEMCPY => [MEMCPY, &[]],
        kind::MEMSET => [MEMSET, &[]],
        kind::KERNEL | kind::CONCURRENT_KERNEL => [CONCURRENT_KERNEL, &[]],
        kind::DRIVER | kind::RUNTIME => [DRIVER, &[]],
        kind::DEVICE => [DEVICE, &[]],
        kind::CONTEXT => [CONTEXT, &[]],
        kind::OVERHEAD => [OVERHEAD, OVERHEAD_OBJECT],
        kind::MEMCPY2 => [MEMCPY2, &[]],
        kind::CUDA_EVENT => [CUDA_EVENT, &[]],
        kind::STREAM => [STREAM, &[]],
        kind::SYNCHRONIZATION => [SYNCHRONIZATION, &[]],
        kind::EXTERNAL_CORRELATION => [EXTERNAL_CORRELATION, &[]],
        kind::MEMORY2 => [MEMORY2, MEMORY_POOL_UNION],
        kind::MEMORY_POOL => [MEMORY_POOL, &[]],
        kind::GRAPH_TRACE => [GRAPH_TRACE, &[]],
        kind::JIT => [JIT, &[]],
        _ => return None,
    })
}

/// A field of a kind by its number.
pub(super) fn field(record_kind: u32, id: i32) -> Option<Field> {
    let mut fields = parts(record_kind)?.into_iter().flatten();
    fields.find(|field| field.id == id).copied()
}

/// Whether a kind's records can be user-defined.
pub(super) fn has_fields(record_kind: u32) -> bool {
    parts(record_kind).is_some()
}

/// The number of a kind's field for the id of the thread: what it holds is the subscriber's choice.
pub(super) fn thread_field(record_kind: u32) -> Option<i32> {
    Some(match record_kind {
        kind::DRIVER | kind::RUNTIME => sys::CUpti_ActivityApiFieldIds::API_FIELD_THREAD_ID as i32,
        kind::OVERHEAD => sys::CUpti_ActivityOverheadFieldIds::OVERHEAD_FIELD_THREAD_ID as i32,
        kind::JIT => sys::CUpti_ActivityJitFieldIds::JIT_FIELD_THREAD_ID as i32,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_there_once_and_begin_with_the_kind() {
        for record_kind in 0..128 {
            let Some(parts) = parts(record_kind) else {
                continue;
            };
            let mut ids: Vec<i32> = parts.into_iter().flatten().map(|field| field.id).collect();
            ids.sort_unstable();
            assert_eq!(ids[0], 0, "kind {record_kind}");
            assert!(ids.windows(2).all(|pair| pair[0] < pair[1]), "kind {record_kind}");
            let first = field(record_kind, 0).expect("the kind");
            assert_eq!((first.bytes, first.from, first.from_bytes), (4, 0, 4));
        }
    }
}
