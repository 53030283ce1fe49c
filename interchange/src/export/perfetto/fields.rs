//! Numbers of fields and of enumerations' values in Perfetto's trace format.
//!
//! From `protos/perfetto/trace` of <https://github.com/google/perfetto>; the messages stand in the file that is named. Published
//! numbers never change.

/// `trace.proto`: Trace.
pub(super) const PACKET: u32 = 1;

/// `trace_packet.proto`: TracePacket.
pub(super) mod packet {
    pub(crate) const CLOCK_SNAPSHOT: u32 = 6;
    pub(crate) const TIMESTAMP: u32 = 8;
    pub(crate) const SEQUENCE_ID: u32 = 10;
    pub(crate) const TRACK_EVENT: u32 = 11;
    pub(crate) const INTERNED_DATA: u32 = 12;
    pub(crate) const SEQUENCE_FLAGS: u32 = 13;
    pub(crate) const SYSTEM_INFO: u32 = 45;
    pub(crate) const GPU_RENDER_STAGE_EVENT: u32 = 53;
    pub(crate) const DEFAULTS: u32 = 59;
    pub(crate) const TRACK_DESCRIPTOR: u32 = 60;
    pub(crate) const FIRST_ON_SEQUENCE: u32 = 87;
    pub(crate) const MACHINE_ID: u32 = 98;
    pub(crate) const GPU_INFO: u32 = 128;

    /// SequenceFlags: what was interned before is forgotten.
    pub(crate) const STATE_CLEARED: u64 = 1;
    /// SequenceFlags: the packet needs what was interned.
    pub(crate) const NEEDS_STATE: u64 = 2;
}

/// `clock_snapshot.proto`: ClockSnapshot and its Clock.
pub(super) mod clocks {
    pub(crate) const CLOCKS: u32 = 1;
    pub(crate) const PRIMARY: u32 = 2;
    pub(crate) const CLOCK_ID: u32 = 1;
    pub(crate) const CLOCK_TIMESTAMP: u32 = 2;

    /// `builtin_clock.proto`.
    pub(crate) const REALTIME: u64 = 1;
    pub(crate) const MONOTONIC: u64 = 3;
    pub(crate) const BOOTTIME: u64 = 6;
    /// From here on numbers are free, and hold for the whole trace.
    pub(crate) const FIRST_OWN: u64 = 128;
}

/// `system_info.proto`: SystemInfo and its Utsname.
pub(super) mod system {
    pub(crate) const UTSNAME: u32 = 1;
    pub(crate) const MACHINE_NAME: u32 = 17;
    pub(crate) const SYSNAME: u32 = 1;
}

/// `trace_packet_defaults.proto` and `track_event.proto`: TracePacketDefaults and TrackEventDefaults.
pub(super) mod defaults {
    pub(crate) const TRACK_EVENT: u32 = 11;
    pub(crate) const TRACK_UUID: u32 = 11;
}

/// `interned_data.proto`, and the messages in it, which all begin with a number and a text.
pub(super) mod interned {
    pub(crate) const CATEGORIES: u32 = 1;
    pub(crate) const EVENT_NAMES: u32 = 2;
    pub(crate) const ANNOTATION_NAMES: u32 = 3;
    pub(crate) const GRAPHICS_CONTEXTS: u32 = 23;
    pub(crate) const GPU_SPECIFICATIONS: u32 = 24;
    /// `gpu_interned_data.proto`, an extension.
    pub(crate) const COMPUTE_KERNELS: u32 = 1000;
    /// `gpu_interned_data.proto`, an extension.
    pub(crate) const COMPUTE_ARGUMENT_NAMES: u32 = 1001;

    pub(crate) const IID: u32 = 1;
    pub(crate) const TEXT: u32 = 2;
}

/// `track_descriptor.proto`: TrackDescriptor.
pub(super) mod track {
    pub(crate) const UUID: u32 = 1;
    pub(crate) const NAME: u32 = 2;
    pub(crate) const PROCESS: u32 = 3;
    pub(crate) const THREAD: u32 = 4;
    pub(crate) const PARENT_UUID: u32 = 5;
    pub(crate) const COUNTER: u32 = 8;
    pub(crate) const CHILD_ORDERING: u32 = 11;
    pub(crate) const SIBLING_ORDER_RANK: u32 = 12;
    pub(crate) const DESCRIPTION: u32 = 14;
    pub(crate) const SIBLING_MERGE_BEHAVIOR: u32 = 15;
    pub(crate) const PROCESS_ORDERING: u32 = 19;
    pub(crate) const THREAD_ORDERING: u32 = 20;

    /// ChildTracksOrdering: by `SIBLING_ORDER_RANK`.
    pub(crate) const EXPLICIT: u64 = 3;
    /// SiblingMergeBehavior: tracks of one name stay apart.
    pub(crate) const NEVER_MERGED: u64 = 2;
}

/// `process_descriptor.proto`: ProcessDescriptor.
pub(super) mod process {
    pub(crate) const PID: u32 = 1;
    pub(crate) const COMMAND: u32 = 2;
    pub(crate) const NAME: u32 = 6;
    pub(crate) const LABELS: u32 = 8;
}

/// `thread_descriptor.proto`: ThreadDescriptor.
pub(super) mod thread {
    pub(crate) const PID: u32 = 1;
    pub(crate) const TID: u32 = 2;
    pub(crate) const NAME: u32 = 5;
}

/// `counter_descriptor.proto`: CounterDescriptor.
pub(super) mod counter {
    pub(crate) const UNIT: u32 = 3;
    pub(crate) const UNIT_NAME: u32 = 6;
    pub(crate) const Y_AXIS_SHARE_KEY: u32 = 7;

    /// Unit: bytes.
    pub(crate) const BYTES: u64 = 3;
}

/// `track_event.proto`: TrackEvent.
pub(super) mod event {
    pub(crate) const CATEGORY_IIDS: u32 = 3;
    pub(crate) const ANNOTATIONS: u32 = 4;
    pub(crate) const TYPE: u32 = 9;
    pub(crate) const NAME_IID: u32 = 10;
    pub(crate) const TRACK_UUID: u32 = 11;
    pub(crate) const DOUBLE_COUNTER_VALUE: u32 = 44;
    pub(crate) const FLOW_IDS: u32 = 47;
    pub(crate) const TERMINATING_FLOW_IDS: u32 = 48;
    pub(crate) const CORRELATION_ID: u32 = 52;
    /// `gpu_track_event.proto`, an extension: GpuCorrelation.
    pub(crate) const GPU_CORRELATION: u32 = 3000;
    /// `gpu_track_event.proto`, an extension.
    pub(crate) const GPU_API: u32 = 3001;

    /// Type.
    pub(crate) const BEGIN: u64 = 1;
    pub(crate) const END: u64 = 2;
    pub(crate) const INSTANT: u64 = 3;
    pub(crate) const COUNTER: u64 = 4;

    /// GpuCorrelation: what the call submitted.
    pub(crate) const SUBMISSION_EVENT_IDS: u32 = 1;
}

/// `debug_annotation.proto`: DebugAnnotation.
pub(super) mod annotation {
    pub(crate) const NAME_IID: u32 = 1;
    pub(crate) const UINT: u32 = 3;
    pub(crate) const INT: u32 = 4;
    pub(crate) const DOUBLE: u32 = 5;
    pub(crate) const TEXT: u32 = 6;
}

/// `gpu_render_stage_event.proto`: GpuRenderStageEvent, its launch, and what is interned for it.
pub(super) mod stage {
    pub(crate) const EVENT_ID: u32 = 1;
    pub(crate) const DURATION: u32 = 2;
    pub(crate) const CONTEXT: u32 = 5;
    pub(crate) const GPU_ID: u32 = 11;
    pub(crate) const HW_QUEUE_IID: u32 = 13;
    pub(crate) const STAGE_IID: u32 = 14;
    pub(crate) const KERNEL_IID: u32 = 19;
    pub(crate) const NAME_IID: u32 = 20;
    pub(crate) const LAUNCH: u32 = 21;

    /// ComputeKernelLaunch.
    pub(crate) const GRID_SIZE: u32 = 1;
    pub(crate) const WORKGROUP_SIZE: u32 = 2;
    pub(crate) const ARGUMENTS: u32 = 3;

    /// ExtraComputeArg.
    pub(crate) const ARGUMENT_NAME_IID: u32 = 1;
    pub(crate) const ARGUMENT_INT: u32 = 3;
    pub(crate) const ARGUMENT_UINT: u32 = 4;
    pub(crate) const ARGUMENT_DOUBLE: u32 = 5;
    pub(crate) const ARGUMENT_TEXT: u32 = 6;

    /// InternedGraphicsContext.
    pub(crate) const CONTEXT_PID: u32 = 2;
    pub(crate) const CONTEXT_API: u32 = 3;
    /// InternedGraphicsContext.Api, and GpuApi.
    pub(crate) const CUDA: u64 = 4;

    /// InternedGpuRenderStageSpecification.
    pub(crate) const SPECIFICATION_CATEGORY: u32 = 4;
    /// RenderStageCategory.
    pub(crate) const OTHER: u64 = 0;
    pub(crate) const COMPUTE: u64 = 2;

    /// InternedComputeKernel.
    pub(crate) const KERNEL_NAME: u32 = 2;
    pub(crate) const KERNEL_DEMANGLED_NAME: u32 = 3;
    pub(crate) const KERNEL_ARCHITECTURE: u32 = 4;
}

/// `gpu_info.proto`: GpuInfo and its Gpu.
pub(super) mod gpu {
    pub(crate) const GPUS: u32 = 1;
    pub(crate) const NAME: u32 = 1;
    pub(crate) const VENDOR: u32 = 2;
    pub(crate) const ARCHITECTURE: u32 = 4;
    pub(crate) const UUID: u32 = 5;
    pub(crate) const EXTRA: u32 = 6;
    pub(crate) const KEY: u32 = 1;
    pub(crate) const VALUE: u32 = 2;
}
