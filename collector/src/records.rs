//! CUPTI's activity records as they lie in a buffer (cupti_activity.h, CUDA 12.0 to 13.5).
//!
//! Later versions of a record only append to earlier ones, so each struct here holds the members that gputrace
//! reads, at the offsets that they have in every version. Enums are integers: an unknown value is data.

/// `CUpti_ActivityKind` values.
pub mod kind {
    /// Copy.
    pub const MEMCPY: u32 = 1;
    /// Memset.
    pub const MEMSET: u32 = 2;
    /// Kernel, when kernels are serialised.
    pub const KERNEL: u32 = 3;
    /// Driver call.
    pub const DRIVER: u32 = 4;
    /// Runtime call.
    pub const RUNTIME: u32 = 5;
    /// Device.
    pub const DEVICE: u32 = 8;
    /// Context.
    pub const CONTEXT: u32 = 9;
    /// Kernel.
    pub const CONCURRENT_KERNEL: u32 = 10;
    /// CUPTI's own work.
    pub const OVERHEAD: u32 = 17;
    /// Copy between devices.
    pub const MEMCPY2: u32 = 22;
    /// Stream.
    pub const STREAM: u32 = 37;
    /// Waiting.
    pub const SYNCHRONIZATION: u32 = 38;
    /// An id of ours joined to a call.
    pub const EXTERNAL_CORRELATION: u32 = 39;
}

/// The kinds that are recorded, in the order in which they are enabled.
pub const RECORDED_KINDS: [(u32, &str); 12] = [
    (kind::DEVICE, "devices"),
    (kind::CONTEXT, "contexts"),
    (kind::STREAM, "streams"),
    (kind::CONCURRENT_KERNEL, "kernels"),
    (kind::MEMCPY, "copies"),
    (kind::MEMCPY2, "peer copies"),
    (kind::MEMSET, "memsets"),
    (kind::SYNCHRONIZATION, "synchronisations"),
    (kind::OVERHEAD, "CUPTI's overhead"),
    (kind::EXTERNAL_CORRELATION, "the join of collectives to kernels"),
    (kind::DRIVER, "driver calls"),
    (kind::RUNTIME, "runtime calls"),
];

/// `CUpti_ActivityKernel9` and later.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(missing_docs)] // The members are CUPTI's own.
pub struct Kernel {
    pub kind: u32,
    pub cache_config: u8,
    pub shared_memory_config: u8,
    pub registers: u16,
    pub partitioned_requested: u32,
    pub partitioned_executed: u32,
    pub start: u64,
    pub end: u64,
    pub completed: u64,
    pub device: u32,
    pub context: u32,
    pub stream: u32,
    pub grid: [i32; 3],
    pub block: [i32; 3],
    pub static_shared: i32,
    pub dynamic_shared: i32,
    pub local_per_thread: u32,
    pub local_total: u32,
    pub correlation: u32,
    pub grid_id: i64,
    pub name: u64,
    pub reserved0: u64,
    pub queued: u64,
    pub submitted: u64,
    pub launch_type: u8,
    pub carveout: [u8; 3],
    pub shared_executed: u32,
    pub graph_node: u64,
    pub shared_limit: u32,
    pub graph: u32,
}

/// `CUpti_ActivityMemcpy5` and later.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(missing_docs)]
pub struct Memcpy {
    pub kind: u32,
    pub copy_kind: u8,
    pub source_kind: u8,
    pub destination_kind: u8,
    pub flags: u8,
    pub bytes: u64,
    pub start: u64,
    pub end: u64,
    pub device: u32,
    pub context: u32,
    pub stream: u32,
    pub correlation: u32,
    pub runtime_correlation: u32,
    pub pad: u32,
    pub reserved0: u64,
    pub graph_node: u64,
    pub graph: u32,
}

/// `CUpti_ActivityMemcpyPtoP4`.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(missing_docs)]
pub struct PeerCopy {
    pub kind: u32,
    pub copy_kind: u8,
    pub source_kind: u8,
    pub destination_kind: u8,
    pub flags: u8,
    pub bytes: u64,
    pub start: u64,
    pub end: u64,
    pub device: u32,
    pub context: u32,
    pub stream: u32,
    pub source_device: u32,
    pub source_context: u32,
    pub destination_device: u32,
    pub destination_context: u32,
    pub correlation: u32,
    pub reserved0: u64,
    pub graph_node: u64,
    pub graph: u32,
}

/// `CUpti_ActivityMemset4` and later.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(missing_docs)]
pub struct Memset {
    pub kind: u32,
    pub value: u32,
    pub bytes: u64,
    pub start: u64,
    pub end: u64,
    pub device: u32,
    pub context: u32,
    pub stream: u32,
    pub correlation: u32,
    pub flags: u16,
    pub memory_kind: u16,
    pub pad: u32,
    pub reserved0: u64,
    pub graph_node: u64,
    pub graph: u32,
}

/// `CUpti_ActivityAPI`.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(missing_docs)]
pub struct ApiCall {
    pub kind: u32,
    pub callback: u32,
    pub start: u64,
    pub end: u64,
    pub process: u32,
    pub thread: u32,
    pub correlation: u32,
    pub result: u32,
}

/// `CUpti_ActivitySynchronization` and later.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(missing_docs)]
pub struct Synchronization {
    pub kind: u32,
    pub wait: u32,
    pub start: u64,
    pub end: u64,
    pub correlation: u32,
    pub context: u32,
    pub stream: u32,
    pub event: u32,
}

/// `CUpti_ActivityOverhead` and later.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(missing_docs)]
pub struct Overhead {
    pub kind: u32,
    pub overhead: u32,
    pub object_kind: u32,
    pub object: [u32; 3],
    pub start: u64,
    pub end: u64,
}

/// `CUpti_ActivityExternalCorrelation`.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(missing_docs)]
pub struct ExternalCorrelation {
    pub kind: u32,
    pub external_kind: u32,
    pub id: u64,
    pub correlation: u32,
}

/// `CUpti_ActivityContext` and later.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(missing_docs)]
pub struct Context {
    pub kind: u32,
    pub context: u32,
    pub device: u32,
    pub compute_api: u16,
    pub null_stream: u16,
}

/// `CUpti_ActivityStream`.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(missing_docs)]
pub struct Stream {
    pub kind: u32,
    pub context: u32,
    pub stream: u32,
    pub priority: i32,
    pub flag: u32,
}

/// `CUpti_ActivityDevice4` and later.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(missing_docs)]
pub struct Device {
    pub kind: u32,
    pub flags: u32,
    /// In kB/s.
    pub memory_bandwidth: u64,
    pub memory_bytes: u64,
    pub constant_bytes: u32,
    pub l2_bytes: u32,
    pub warp: u32,
    pub clock: u32,
    pub copy_engines: u32,
    pub multiprocessors: u32,
    pub limits: [u32; 14],
    pub capability_major: u32,
    pub capability_minor: u32,
    pub id: u32,
    pub ecc: u32,
    pub uuid: [u8; 16],
    pub name: u64,
}

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
records! { Kernel Memcpy PeerCopy Memset ApiCall Synchronization Overhead ExternalCorrelation Context Stream Device }

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
            name = name, graph_node = graphNodeId, graph = graphId);
        same_offsets!(Kernel, CUpti_ActivityKernel9: start = start, correlation = correlationId, name = name, graph = graphId);
        same_offsets!(Memcpy, CUpti_ActivityMemcpy7: copy_kind = copyKind, bytes = bytes, start = start, device = deviceId,
            stream = streamId, correlation = correlationId, graph_node = graphNodeId, graph = graphId);
        same_offsets!(PeerCopy, CUpti_ActivityMemcpyPtoP4: bytes = bytes, source_device = srcDeviceId,
            destination_device = dstDeviceId, correlation = correlationId, graph = graphId);
        same_offsets!(Memset, CUpti_ActivityMemset5: value = value, bytes = bytes, start = start, stream = streamId,
            correlation = correlationId, flags = flags, memory_kind = memoryKind, graph = graphId);
        same_offsets!(ApiCall, CUpti_ActivityAPI: callback = cbid, start = start, thread = threadId,
            correlation = correlationId, result = returnValue);
        same_offsets!(Synchronization, CUpti_ActivitySynchronization2: wait = type_, start = start,
            correlation = correlationId, context = contextId, stream = streamId, event = cudaEventId);
        same_offsets!(Overhead, CUpti_ActivityOverhead3: overhead = overheadKind, object_kind = objectKind,
            object = objectId, start = start, end = end);
        same_offsets!(ExternalCorrelation, CUpti_ActivityExternalCorrelation: external_kind = externalKind,
            id = externalId, correlation = correlationId);
        same_offsets!(Context, CUpti_ActivityContext4: context = contextId, device = deviceId, null_stream = nullStreamId);
        same_offsets!(Stream, CUpti_ActivityStream: context = contextId, stream = streamId, priority = priority, flag = flag);
        same_offsets!(Device, CUpti_ActivityDevice6: memory_bandwidth = globalMemoryBandwidth,
            memory_bytes = globalMemorySize, multiprocessors = numMultiprocessors,
            capability_major = computeCapabilityMajor, id = id, uuid = uuid, name = name);
    }

    #[test]
    fn a_short_record_leaves_zeros() {
        let call: ApiCall = read(&[5, 0, 0, 0, 7, 0, 0, 0, 1]);
        assert_eq!((call.kind, call.callback, call.start, call.result), (5, 7, 1, 0));
    }
}
