//! Which fields are asked for of each kind: those that the recording's tables need, and where their values go in the
//! structs that the decoder reads (`records`).

use std::mem::offset_of;

use crate::records::{
    ApiCall, Context, Device, EventRecord, ExternalCorrelation, GraphTrace, Jit, Kernel, Memcpy, Memory,
    MemoryPool, Memset, Overhead, PeerCopy, Stream, Synchronization,
};

/// A field: its number in the kind's `CUpti_Activity*FieldIds`, and its place in the struct.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// The number.
    pub id: i32,
    /// Offset in the struct.
    pub to: usize,
    /// Bytes in the struct: what CUPTI gives is as long or longer, or is filled up with zeros.
    pub bytes: usize,
}

/// What is asked for of a kind.
#[derive(Clone, Copy, Debug)]
pub struct KindFields {
    /// Size of the struct, rounded up to 8 bytes, which records are in a buffer.
    pub record_bytes: usize,
    /// The fields but the first, which is the kind.
    pub fields: &'static [Field],
    /// A value that no field gives: offset in the struct, and the value.
    pub constant: Option<(usize, u32)>,
}

const fn bytes_of<T>(_: *const T) -> usize {
    size_of::<T>()
}

/// What is asked for of a struct's kind: `id => member` or, for a part of an array, `id => member[index]: type`.
macro_rules! fields {
    ($record:ident: $($id:literal => $member:ident $([$index:literal]: $type:ty)?),* $(,)?) => {
        KindFields {
            record_bytes: size_of::<$record>().next_multiple_of(8),
            fields: const { &[$( Field {
                id: $id,
                to: offset_of!($record, $member) $(+ $index * size_of::<$type>())?,
                bytes: fields!(@bytes $record $member $($type)?),
            } ),*] },
            constant: None,
        }
    };
    (@bytes $record:ident $member:ident $type:ty) => { size_of::<$type>() };
    (@bytes $record:ident $member:ident) => {{
        let record = std::mem::MaybeUninit::<$record>::uninit();
        // SAFETY: makes a pointer to a member of a place that is valid; nothing is read.
        bytes_of(unsafe { &raw const (*record.as_ptr()).$member })
    }};
}

pub(crate) const KERNEL: KindFields = fields! { Kernel:
    4 => registers, 7 => start, 8 => end, 10 => device, 11 => context, 12 => stream,
    13 => grid[0]: i32, 14 => grid[1]: i32, 15 => grid[2]: i32,
    16 => block[0]: i32, 17 => block[1]: i32, 18 => block[2]: i32,
    19 => static_shared, 20 => dynamic_shared, 21 => local_per_thread, 22 => correlation, 24 => name, 27 => launch_type,
    30 => shared_executed, 31 => graph_node, 33 => graph,
    37 => cluster[0]: u32, 38 => cluster[1]: u32, 39 => cluster[2]: u32,
};
pub(crate) const MEMCPY: KindFields = fields! { Memcpy:
    1 => copy_kind, 2 => source_kind, 3 => destination_kind, 4 => flags, 5 => bytes, 6 => start, 7 => end,
    8 => device, 9 => context, 10 => stream, 11 => correlation, 12 => graph_node, 13 => graph,
};
pub(crate) const PEER_COPY: KindFields = fields! { PeerCopy:
    1 => copy_kind, 2 => source_kind, 3 => destination_kind, 4 => flags, 5 => bytes, 6 => start, 7 => end,
    8 => device, 9 => context, 10 => stream, 11 => source_device, 13 => destination_device, 15 => correlation,
    16 => graph_node, 17 => graph,
};
pub(crate) const MEMSET: KindFields = fields! { Memset:
    1 => value, 2 => bytes, 3 => start, 4 => end, 5 => device, 6 => context, 7 => stream, 8 => correlation,
    9 => flags, 10 => memory_kind, 11 => graph_node, 12 => graph,
};
pub(crate) const API_CALL: KindFields = fields! { ApiCall:
    1 => callback, 2 => start, 3 => end, 5 => thread, 6 => correlation, 7 => result,
};
pub(crate) const SYNCHRONIZATION: KindFields = fields! { Synchronization:
    1 => wait, 2 => start, 3 => end, 4 => correlation, 5 => context, 6 => stream, 7 => event,
    8 => event_synchronization, 9 => result,
};
pub(crate) const EVENT_RECORD: KindFields = fields! { EventRecord:
    1 => correlation, 2 => context, 3 => stream, 4 => event, 5 => device, 7 => event_synchronization,
};
/// CUPTI_ACTIVITY_OBJECT_THREAD: user-defined records of overheads name a thread and say nothing of other objects.
const THREAD_OBJECT: u32 = 2;

pub(crate) const OVERHEAD: KindFields = KindFields {
    constant: Some((offset_of!(Overhead, object_kind), THREAD_OBJECT)),
    ..fields! { Overhead:
        1 => overhead, 3 => object[1]: u32, 4 => start, 5 => end, 6 => correlation,
    }
};
pub(crate) const EXTERNAL_CORRELATION: KindFields = fields! { ExternalCorrelation:
    1 => external_kind, 2 => id, 3 => correlation,
};
pub(crate) const CONTEXT: KindFields = fields! { Context: 1 => context, 2 => device, 4 => null_stream };
pub(crate) const STREAM: KindFields = fields! { Stream: 1 => context, 2 => stream, 3 => priority, 4 => flag };
pub(crate) const DEVICE: KindFields = fields! { Device:
    2 => memory_bandwidth, 3 => memory_bytes, 6 => warp, 9 => multiprocessors, 11 => warps_a_multiprocessor,
    12 => blocks_a_multiprocessor, 13 => shared_bytes_a_multiprocessor, 14 => registers_a_multiprocessor,
    15 => registers_a_block, 16 => shared_bytes_a_block, 17 => threads_a_block, 24 => capability_major,
    25 => capability_minor, 26 => id, 28 => uuid, 29 => name,
};

pub(crate) const GRAPH_TRACE: KindFields = fields! { GraphTrace:
    1 => correlation, 2 => start, 3 => end, 4 => device, 5 => graph, 6 => context, 7 => stream, 8 => end_device,
    9 => end_context,
};
pub(crate) const JIT: KindFields = fields! { Jit:
    1 => entry, 2 => operation, 3 => device, 4 => start, 5 => end, 6 => correlation, 7 => operation_id, 8 => cache_bytes,
    9 => cache_path, 11 => thread,
};
pub(crate) const MEMORY: KindFields = fields! { Memory:
    1 => operation, 2 => memory_kind, 3 => correlation, 4 => address, 5 => bytes, 6 => time, 8 => device, 9 => context,
    10 => stream, 11 => is_asynchronous, 12 => pool_type, 13 => pool_address, 15 => pool_bytes_or_process,
    17 => pool_used_bytes, 18 => source,
};
pub(crate) const MEMORY_POOL: KindFields = fields! { MemoryPool:
    1 => operation, 2 => pool_type, 3 => correlation, 5 => device, 6 => least_bytes_kept, 7 => address, 8 => bytes,
    9 => release_threshold, 10 => time, 11 => used_bytes, 12 => is_managed,
};

#[cfg(test)]
mod tests {
    use cudarc::cupti::sys;

    use super::*;
    use crate::kinds::KINDS;

    #[test]
    fn numbers_are_those_of_the_headers() {
        macro_rules! numbers {
            ($($fields:ident $enum:ident: $($id:ident)*;)*) => {$(
                assert_eq!(
                    $fields.fields.iter().map(|field| field.id).collect::<Vec<_>>(),
                    [$( sys::$enum::$id as i32 ),*],
                    stringify!($enum)
                );
            )*};
        }
        numbers! {
            KERNEL CUpti_ActivityKernelFieldIds: KERNEL_FIELD_REGISTERS_PER_THREAD KERNEL_FIELD_START KERNEL_FIELD_END
                KERNEL_FIELD_DEVICE_ID KERNEL_FIELD_CONTEXT_ID KERNEL_FIELD_STREAM_ID
                KERNEL_FIELD_GRID_X KERNEL_FIELD_GRID_Y KERNEL_FIELD_GRID_Z
                KERNEL_FIELD_BLOCK_X KERNEL_FIELD_BLOCK_Y KERNEL_FIELD_BLOCK_Z
                KERNEL_FIELD_STATIC_SHARED_MEMORY KERNEL_FIELD_DYNAMIC_SHARED_MEMORY
                KERNEL_FIELD_LOCAL_MEMORY_PER_THREAD KERNEL_FIELD_CORRELATION_ID KERNEL_FIELD_NAME
                KERNEL_FIELD_LAUNCH_TYPE KERNEL_FIELD_SHARED_MEMORY_EXECUTED KERNEL_FIELD_GRAPH_NODE_ID
                KERNEL_FIELD_GRAPH_ID KERNEL_FIELD_CLUSTER_X KERNEL_FIELD_CLUSTER_Y KERNEL_FIELD_CLUSTER_Z;
            MEMCPY CUpti_ActivityMemcpyFieldIds: MEMCPY_FIELD_COPY_KIND MEMCPY_FIELD_SRC_KIND MEMCPY_FIELD_DST_KIND
                MEMCPY_FIELD_FLAGS MEMCPY_FIELD_BYTES MEMCPY_FIELD_START MEMCPY_FIELD_END MEMCPY_FIELD_DEVICE_ID
                MEMCPY_FIELD_CONTEXT_ID MEMCPY_FIELD_STREAM_ID MEMCPY_FIELD_CORRELATION_ID MEMCPY_FIELD_GRAPH_NODE_ID
                MEMCPY_FIELD_GRAPH_ID;
            PEER_COPY CUpti_ActivityMemcpy2FieldIds: MEMCPY2_FIELD_COPY_KIND MEMCPY2_FIELD_SRC_KIND
                MEMCPY2_FIELD_DST_KIND MEMCPY2_FIELD_FLAGS MEMCPY2_FIELD_BYTES MEMCPY2_FIELD_START MEMCPY2_FIELD_END
                MEMCPY2_FIELD_DEVICE_ID MEMCPY2_FIELD_CONTEXT_ID MEMCPY2_FIELD_STREAM_ID MEMCPY2_FIELD_SRC_DEVICE_ID
                MEMCPY2_FIELD_DST_DEVICE_ID MEMCPY2_FIELD_CORRELATION_ID MEMCPY2_FIELD_GRAPH_NODE_ID
                MEMCPY2_FIELD_GRAPH_ID;
            MEMSET CUpti_ActivityMemsetFieldIds: MEMSET_FIELD_VALUE MEMSET_FIELD_BYTES MEMSET_FIELD_START
                MEMSET_FIELD_END MEMSET_FIELD_DEVICE_ID MEMSET_FIELD_CONTEXT_ID MEMSET_FIELD_STREAM_ID
                MEMSET_FIELD_CORRELATION_ID MEMSET_FIELD_FLAGS MEMSET_FIELD_MEMORY_KIND MEMSET_FIELD_GRAPH_NODE_ID
                MEMSET_FIELD_GRAPH_ID;
            API_CALL CUpti_ActivityApiFieldIds: API_FIELD_CBID API_FIELD_START API_FIELD_END API_FIELD_THREAD_ID
                API_FIELD_CORRELATION_ID API_FIELD_RETURN_VALUE;
            SYNCHRONIZATION CUpti_ActivitySynchronizationFieldIds: SYNCHRONIZATION_FIELD_TYPE
                SYNCHRONIZATION_FIELD_START SYNCHRONIZATION_FIELD_END SYNCHRONIZATION_FIELD_CORRELATION_ID
                SYNCHRONIZATION_FIELD_CONTEXT_ID SYNCHRONIZATION_FIELD_STREAM_ID SYNCHRONIZATION_FIELD_CUDA_EVENT_ID
                SYNCHRONIZATION_FIELD_CUDA_EVENT_SYNC_ID SYNCHRONIZATION_FIELD_RETURN_VALUE;
            EVENT_RECORD CUpti_ActivityCudaEventFieldIds: CUDA_EVENT_FIELD_CORRELATION_ID CUDA_EVENT_FIELD_CONTEXT_ID
                CUDA_EVENT_FIELD_STREAM_ID CUDA_EVENT_FIELD_EVENT_ID CUDA_EVENT_FIELD_DEVICE_ID
                CUDA_EVENT_FIELD_CUDA_EVENT_SYNC_ID;
            OVERHEAD CUpti_ActivityOverheadFieldIds: OVERHEAD_FIELD_OVERHEAD_KIND OVERHEAD_FIELD_THREAD_ID
                OVERHEAD_FIELD_START OVERHEAD_FIELD_END OVERHEAD_FIELD_CORRELATION_ID;
            EXTERNAL_CORRELATION CUpti_ActivityExternalCorrelationFieldIds: EXTERNAL_CORRELATION_FIELD_EXTERNAL_KIND
                EXTERNAL_CORRELATION_FIELD_EXTERNAL_ID EXTERNAL_CORRELATION_FIELD_CORRELATION_ID;
            CONTEXT CUpti_ActivityContextFieldIds: CONTEXT_FIELD_CONTEXT_ID CONTEXT_FIELD_DEVICE_ID
                CONTEXT_FIELD_NULL_STREAM_ID;
            STREAM CUpti_ActivityStreamFieldIds: STREAM_FIELD_CONTEXT_ID STREAM_FIELD_STREAM_ID STREAM_FIELD_PRIORITY
                STREAM_FIELD_FLAG;
            DEVICE CUpti_ActivityDeviceFieldIds: DEVICE_FIELD_GLOBAL_MEMORY_BANDWIDTH DEVICE_FIELD_GLOBAL_MEMORY_SIZE
                DEVICE_FIELD_NUM_THREADS_PER_WARP DEVICE_FIELD_NUM_MULTIPROCESSORS DEVICE_FIELD_MAX_WARPS_PER_MULTIPROCESSOR
                DEVICE_FIELD_MAX_BLOCKS_PER_MULTIPROCESSOR DEVICE_FIELD_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR
                DEVICE_FIELD_MAX_REGISTERS_PER_MULTIPROCESSOR DEVICE_FIELD_MAX_REGISTERS_PER_BLOCK
                DEVICE_FIELD_MAX_SHARED_MEMORY_PER_BLOCK DEVICE_FIELD_MAX_THREADS_PER_BLOCK
                DEVICE_FIELD_COMPUTE_CAPABILITY_MAJOR
                DEVICE_FIELD_COMPUTE_CAPABILITY_MINOR DEVICE_FIELD_ID DEVICE_FIELD_UUID DEVICE_FIELD_NAME;
            GRAPH_TRACE CUpti_ActivityGraphTraceFieldIds: GRAPH_TRACE_FIELD_CORRELATION_ID GRAPH_TRACE_FIELD_START
                GRAPH_TRACE_FIELD_END GRAPH_TRACE_FIELD_DEVICE_ID GRAPH_TRACE_FIELD_GRAPH_ID
                GRAPH_TRACE_FIELD_CONTEXT_ID GRAPH_TRACE_FIELD_STREAM_ID GRAPH_TRACE_FIELD_END_DEVICE_ID
                GRAPH_TRACE_FIELD_END_CONTEXT_ID;
            JIT CUpti_ActivityJitFieldIds: JIT_FIELD_ENTRY_TYPE JIT_FIELD_OPERATION_TYPE JIT_FIELD_DEVICE_ID
                JIT_FIELD_START JIT_FIELD_END JIT_FIELD_CORRELATION_ID JIT_FIELD_OPERATION_CORRELATION_ID
                JIT_FIELD_CACHE_SIZE JIT_FIELD_CACHE_PATH JIT_FIELD_THREAD_ID;
            MEMORY CUpti_ActivityMemoryFieldIds: MEMORY_FIELD_OPERATION_TYPE MEMORY_FIELD_MEMORY_KIND
                MEMORY_FIELD_CORRELATION_ID MEMORY_FIELD_ADDRESS MEMORY_FIELD_BYTES MEMORY_FIELD_TIMESTAMP
                MEMORY_FIELD_DEVICE_ID MEMORY_FIELD_CONTEXT_ID MEMORY_FIELD_STREAM_ID MEMORY_FIELD_IS_ASYNC
                MEMORY_FIELD_POOL_TYPE MEMORY_FIELD_POOL_ADDRESS MEMORY_FIELD_POOL_SIZE
                MEMORY_FIELD_POOL_UTILIZED_SIZE MEMORY_FIELD_SOURCE;
            MEMORY_POOL CUpti_ActivityMemoryPoolFieldIds: MEMORY_POOL_FIELD_OPERATION_TYPE
                MEMORY_POOL_FIELD_POOL_TYPE MEMORY_POOL_FIELD_CORRELATION_ID MEMORY_POOL_FIELD_DEVICE_ID
                MEMORY_POOL_FIELD_MIN_BYTES_TO_KEEP MEMORY_POOL_FIELD_ADDRESS MEMORY_POOL_FIELD_SIZE
                MEMORY_POOL_FIELD_RELEASE_THRESHOLD MEMORY_POOL_FIELD_TIMESTAMP MEMORY_POOL_FIELD_UTILIZED_SIZE
                MEMORY_POOL_FIELD_IS_MANAGED_POOL;
        }
    }

    #[test]
    fn members_keep_inside_their_records() {
        for kind in &KINDS {
            let Some(kind_fields) = kind.fields else { continue };
            for field in kind_fields.fields {
                assert!(
                    field.to >= 4 && field.to + field.bytes <= kind_fields.record_bytes,
                    "kind {}: {field:?}",
                    kind.kind
                );
            }
        }
    }
}
