//! Records of what ran on a device.

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
    pub access_policy: u64,
    pub channel: u32,
    pub channel_type: u32,
    pub cluster: [u32; 3],
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

/// `CUpti_ActivityGraphTrace` and later.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(missing_docs)]
pub struct GraphTrace {
    pub kind: u32,
    pub correlation: u32,
    pub start: u64,
    pub end: u64,
    pub device: u32,
    pub graph: u32,
    pub context: u32,
    pub stream: u32,
    pub reserved: u64,
    /// From `CUpti_ActivityGraphTrace2` on, as the next.
    pub end_device: u32,
    pub end_context: u32,
}
