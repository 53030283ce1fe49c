//! Records of what there is: devices, contexts, streams, memory.

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
    pub most_instructions_a_cycle: u32,
    pub warps_a_multiprocessor: u32,
    pub blocks_a_multiprocessor: u32,
    pub shared_bytes_a_multiprocessor: u32,
    pub registers_a_multiprocessor: u32,
    pub registers_a_block: u32,
    pub shared_bytes_a_block: u32,
    pub threads_a_block: u32,
    pub most_block: [u32; 3],
    pub most_grid: [u32; 3],
    pub capability_major: u32,
    pub capability_minor: u32,
    pub id: u32,
    pub ecc: u32,
    pub uuid: [u8; 16],
    pub name: u64,
}

/// `CUpti_ActivityMemory3` (kind MEMORY2) and later.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(missing_docs)]
pub struct Memory {
    pub kind: u32,
    pub operation: u32,
    pub memory_kind: u32,
    pub correlation: u32,
    pub address: u64,
    pub bytes: u64,
    pub time: u64,
    pub program_counter: u64,
    pub process: u32,
    pub device: u32,
    pub context: u32,
    pub stream: u32,
    pub name: u64,
    pub is_asynchronous: u32,
    pub pad1: u32,
    pub pool_type: u32,
    pub pad2: u32,
    pub pool_address: u64,
    pub pool_release_threshold: u64,
    /// The pool's size in bytes; of an imported pool the exporting process.
    pub pool_bytes_or_process: u64,
    pub pool_used_bytes: u64,
    /// From `CUpti_ActivityMemory4` on: the library or program that asked for it.
    pub source: u64,
}

/// `CUpti_ActivityMemoryPool2` and later.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(missing_docs)]
pub struct MemoryPool {
    pub kind: u32,
    pub operation: u32,
    pub pool_type: u32,
    pub correlation: u32,
    pub process: u32,
    pub device: u32,
    pub least_bytes_kept: u64,
    pub address: u64,
    pub bytes: u64,
    pub release_threshold: u64,
    pub time: u64,
    pub used_bytes: u64,
    /// From `CUpti_ActivityMemoryPool3` on.
    pub is_managed: u8,
}
