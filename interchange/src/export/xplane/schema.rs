//! Field numbers of xplane.proto (OpenXLA, `tsl/profiler/protobuf`), and the names that XProf looks for.

/// XSpace.
pub(super) const SPACE_PLANES: u32 = 1;
pub(super) const SPACE_HOSTNAMES: u32 = 4;

/// XPlane.
pub(super) const PLANE_ID: u32 = 1;
pub(super) const PLANE_NAME: u32 = 2;
pub(super) const PLANE_LINES: u32 = 3;
pub(super) const PLANE_EVENT_METADATA: u32 = 4;
pub(super) const PLANE_STAT_METADATA: u32 = 5;
pub(super) const PLANE_STATS: u32 = 6;

/// XLine.
pub(super) const LINE_ID: u32 = 1;
pub(super) const LINE_NAME: u32 = 2;
pub(super) const LINE_TIMESTAMP_NS: u32 = 3;
pub(super) const LINE_EVENTS: u32 = 4;

/// XEvent.
pub(super) const EVENT_METADATA_ID: u32 = 1;
pub(super) const EVENT_OFFSET_PS: u32 = 2;
pub(super) const EVENT_DURATION_PS: u32 = 3;
pub(super) const EVENT_STATS: u32 = 4;

/// XStat.
pub(super) const STAT_METADATA_ID: u32 = 1;
pub(super) const STAT_DOUBLE: u32 = 2;
pub(super) const STAT_UINT64: u32 = 3;
pub(super) const STAT_INT64: u32 = 4;
pub(super) const STAT_TEXT: u32 = 5;

/// A map's entry, and XEventMetadata and XStatMetadata alike.
pub(super) const ENTRY_KEY: u32 = 1;
pub(super) const ENTRY_VALUE: u32 = 2;
pub(super) const METADATA_ID: u32 = 1;
pub(super) const METADATA_NAME: u32 = 2;

/// The host's plane.
pub(super) const HOST_PLANE: &str = "/host:CPU";
/// A GPU's plane, before its number.
pub(super) const DEVICE_PLANE: &str = "/device:GPU:";
/// The line of a plane whose events are samples.
pub(super) const COUNTERS_LINE: &str = "_counters_";

/// A context of events that no runtime defines: which step a thread works for.
pub(super) const CONTEXT_OF_STEPS: i64 = 0;
/// The context of launches on GPUs (`kGpuLaunch`): without it all arrows have one id.
pub(super) const CONTEXT_OF_LAUNCHES: i64 = 9;

macro_rules! stats {
    ($( $(#[$doc:meta])* $stat:ident = $name:literal, )*) => {
        /// What events and planes say of themselves. Numbers in a file are those here, from 1.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Stat { $( $(#[$doc])* $stat, )* }

        impl Stat {
            /// The names, in the order of the numbers.
            pub(super) const NAMES: &[&str] = &[$( $name, )*];
        }
    };
}

stats! {
    /// 1 of a step.
    IsRoot = "_r",
    ProducerType = "_pt",
    ProducerId = "_p",
    ConsumerType = "_ct",
    ConsumerId = "_c",
    StepNumber = "step_num",
    /// Of a call and what it launched. Without it there are no steps on a device.
    Correlation = "correlation_id",
    Context = "context_id",
    /// Without it a kernel is none of the kernel statistics.
    KernelDetails = "kernel_details",
    CopyDetails = "memcpy_details",
    MemsetDetails = "Memset_details",
    CounterValue = "counter_value",
    Vendor = "device_vendor",
    CapabilityMajor = "compute_cap_major",
    CapabilityMinor = "compute_cap_minor",
    Multiprocessors = "core_count",
    MemoryBytes = "memory_size",
    MemoryBandwidth = "memory_bandwidth",
    Allocator = "allocator_name",
    BytesReserved = "bytes_reserved",
    BytesAllocated = "bytes_allocated",
    BytesAvailable = "bytes_available",
    Fragmentation = "fragmentation",
    PeakBytes = "peak_bytes_in_use",
    RequestedBytes = "requested_bytes",
    AllocationBytes = "allocation_bytes",
    Address = "addr",
    Shape = "shape",
    Region = "region_type",
    /// Names of ours, which XProf shows with the event.
    CudaCorrelation = "CUDA correlation id",
    Bytes = "bytes",
    Communicator = "communicator",
    Sequence = "sequence",
    WaitNs = "wait_ns",
    TransferNs = "transfer_ns",
    ExposedNs = "exposed_ns",
    Graph = "graph",
    RecordedDurationNs = "recorded duration (ns)",
    Returned = "return value",
    Simulated = "simulated",
    Name = "name",
    Detected = "detected",
}
