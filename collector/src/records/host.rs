//! Records of what happened on the host.

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
    /// From `CUpti_ActivitySynchronization2` on, as the next.
    pub event_synchronization: u64,
    pub result: u32,
}

/// `CUpti_ActivityCudaEvent` and later.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(missing_docs)]
pub struct EventRecord {
    pub kind: u32,
    pub correlation: u32,
    pub context: u32,
    pub stream: u32,
    pub event: u32,
    pub pad: u32,
    /// From `CUpti_ActivityCudaEvent2` on, as all that follow.
    pub device: u32,
    pub pad2: u32,
    pub reserved0: u64,
    /// 0 unless asked for, which nobody here does: it costs.
    pub device_timestamp: u64,
    pub event_synchronization: u64,
}

/// `CUpti_ActivityOverhead` and later.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(missing_docs)]
pub struct Overhead {
    pub kind: u32,
    pub overhead: u32,
    pub object_kind: u32,
    /// Process and thread; or device, context and stream.
    pub object: [u32; 3],
    pub start: u64,
    pub end: u64,
    /// From `CUpti_ActivityOverhead2` on.
    pub correlation: u32,
    pub reserved0: u32,
    /// From `CUpti_ActivityOverhead3` on: memory that is the client's to free.
    pub data: u64,
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

/// `CUpti_ActivityModule`.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(missing_docs)]
pub struct Module {
    pub kind: u32,
    pub context: u32,
    pub id: u32,
    pub cubin_bytes: u32,
}

/// `CUpti_ActivityJit` and later.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(missing_docs)]
pub struct Jit {
    pub kind: u32,
    pub entry: u32,
    pub operation: u32,
    pub device: u32,
    pub start: u64,
    pub end: u64,
    pub correlation: u32,
    pub pad: u32,
    pub operation_id: u64,
    pub cache_bytes: u64,
    pub cache_path: u64,
    /// From `CUpti_ActivityJit2` on, as the next.
    pub process: u32,
    pub thread: u32,
}
