//! The event model: every table of a recording with its columns.
//!
//! Kinds, flags and codes are kept as the integers that arrived: a value that this version does not know is data.
//! `process` is nowhere a column: each process has its own folder.
//!
//! The file is as long as the list: a macro hands it on whole, since [`Tables`] has a field for each of its entries, and a list in
//! two files would take one macro that hands its half to the other.

use std::path::Path;
use std::sync::Arc;
use std::sync::OnceLock;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;

use crate::column::{Column, Value};
use crate::names::{Interner, NameId};
use crate::private_file::Files;
use crate::seal::Identity;
use crate::table::{About, Holds, Size, Table, tables};
use crate::table_writer::{AnyTableWriter, TableWriter};
use crate::time::{DurationNs, TimeNs};

/// Hands the list to a macro: what each table is called, what it holds ([`Holds`]), how many rows it gets ([`Size`]), and its
/// columns.
macro_rules! each_table {
    ($make:ident) => {
        $make! {
        /// Kernels that ran on a device (`CUpti_ActivityKernel9` and later).
        kernels: Kernel / Kernels, Operations, Packed {
            /// Start on the device, as CUPTI converted it to the host's clock.
            start_ns: TimeNs,
            /// End minus start.
            duration_ns: DurationNs,
            /// The mangled name.
            name: NameId,
            /// Device index within the process.
            device: u32,
            /// CUPTI's context id.
            context: u32,
            /// CUPTI's stream id.
            stream: u32,
            /// Joins the kernel to the call that launched it.
            correlation: u32,
            /// Blocks in x.
            grid_x: i32,
            /// Blocks in y.
            grid_y: i32,
            /// Blocks in z.
            grid_z: i32,
            /// Threads a block in x.
            block_x: i32,
            /// Threads a block in y.
            block_y: i32,
            /// Threads a block in z.
            block_z: i32,
            /// Registers a thread.
            registers: u16,
            /// Static shared memory a block.
            static_shared_bytes: i32,
            /// Dynamic shared memory a block.
            dynamic_shared_bytes: i32,
            /// Shared memory a multiprocessor that the driver set aside for the kernel; 0 where it is not known.
            shared_executed_bytes: u32,
            /// Local memory a thread.
            local_bytes: u32,
            /// `CUpti_ActivityLaunchType`: 0 ordinary, 1 cooperative on one device, 2 on several, 3 of a command list.
            launch_type: u8,
            /// Blocks a cluster in x; null for a launch without clusters.
            cluster_x: Option<u32>,
            /// Blocks a cluster in y.
            cluster_y: Option<u32>,
            /// Blocks a cluster in z.
            cluster_z: Option<u32>,
            /// The CUDA graph that launched the kernel.
            graph: Option<u32>,
            /// The node of that graph.
            graph_node: Option<u64>,
        }

        /// Memory copies (`CUpti_ActivityMemcpy5` and later, and peer copies).
        copies: Copy / Copies, Operations, Packed {
            /// Start on the device.
            start_ns: TimeNs,
            /// End minus start.
            duration_ns: DurationNs,
            /// Device that the record belongs to.
            device: u32,
            /// CUPTI's context id.
            context: u32,
            /// CUPTI's stream id.
            stream: u32,
            /// Joins the copy to its call.
            correlation: u32,
            /// `CUpti_ActivityMemcpyKind`: 1 HtoD, 2 DtoH, 8 DtoD, 9 HtoH, 10 PtoP.
            copy_kind: u8,
            /// `CUpti_ActivityMemoryKind` of the source: 1 pageable, 2 pinned, 3 device.
            source_kind: u8,
            /// `CUpti_ActivityMemoryKind` of the destination.
            destination_kind: u8,
            /// `CUpti_ActivityFlag`: bit 0 set for an asynchronous copy.
            flags: u8,
            /// Bytes copied.
            bytes: u64,
            /// Source device of a peer copy.
            source_device: Option<u32>,
            /// Destination device of a peer copy.
            destination_device: Option<u32>,
            /// The CUDA graph that launched the copy.
            graph: Option<u32>,
            /// The node of that graph.
            graph_node: Option<u64>,
        }

        /// Memory sets (`CUpti_ActivityMemset4` and later).
        memsets: Memset / Memsets, Operations, Packed {
            /// Start on the device.
            start_ns: TimeNs,
            /// End minus start.
            duration_ns: DurationNs,
            /// Device index.
            device: u32,
            /// CUPTI's context id.
            context: u32,
            /// CUPTI's stream id.
            stream: u32,
            /// Joins the memset to its call.
            correlation: u32,
            /// Bytes set.
            bytes: u64,
            /// The value written.
            value: u32,
            /// `CUpti_ActivityMemoryKind`.
            memory_kind: u16,
            /// `CUpti_ActivityFlag`.
            flags: u16,
            /// The CUDA graph that launched the memset.
            graph: Option<u32>,
            /// The node of that graph.
            graph_node: Option<u64>,
        }

        /// Nodes of CUDA graphs that carry NCCL's kernels: what NCCL launched while a stream was captured.
        graph_nodes: GraphNode / GraphNodes, Standing, Few {
            /// The node: `graph_node` of the kernels that ran for it.
            node: u64,
            /// Number of the kernel launch of NCCL's that it carries: the `plan` of collectives.
            plan: u64,
            /// The node that it is a copy of: graphs are copied when they are made executable.
            original: Option<u64>,
        }

        /// Launches of CUDA graphs as wholes, where graphs are not recorded by node (`CUpti_ActivityGraphTrace` and later).
        graph_launches: GraphLaunch / GraphLaunches, Operations, Packed {
            /// Start of the first node on a device.
            start_ns: TimeNs,
            /// End of the last one minus that.
            duration_ns: DurationNs,
            /// The executable graph.
            graph: u32,
            /// Device of the first node.
            device: u32,
            /// CUPTI's context id.
            context: u32,
            /// The stream that the graph was launched into.
            stream: u32,
            /// Joins the launch to its call.
            correlation: u32,
            /// Device of the last node.
            end_device: Option<u32>,
            /// CUPTI's context id of the last node.
            end_context: Option<u32>,
        }

        /// Records whose times are not whole, kept as what they are: operations that had not ended when the recording did, and those
        /// that CUPTI had no times for.
        ///
        /// No duration can be made of them, so they are rows here and not in the table of their kind.
        untimed_operations: UntimedOperation / UntimedOperations, Details, Few {
            /// `CUpti_ActivityKind`: 10 kernel, 1 and 22 copy, 2 memset, 4 and 5 call, 38 synchronization, 51 graph, 52 compilation.
            kind: u32,
            /// Start; null where CUPTI gave no time at all.
            start_ns: Option<TimeNs>,
            /// A kernel's or call's name.
            name: Option<NameId>,
            /// Device index.
            device: Option<u32>,
            /// CUPTI's context id.
            context: Option<u32>,
            /// CUPTI's stream id.
            stream: Option<u32>,
            /// Host thread of a call.
            thread: Option<u32>,
            /// Joins it to its call.
            correlation: u32,
            /// Bytes of a copy or memset.
            bytes: Option<u64>,
            /// The CUDA graph that launched it.
            graph: Option<u32>,
            /// The node of that graph.
            graph_node: Option<u64>,
        }

        /// Collective and point-to-point operations as NCCL enqueued them (profiler plugin, `Coll` and `P2p` events; where
        /// NCCL does not send those, its `CollApi` and `P2pApi` events or its NVTX ranges, see `source`).
        ///
        /// Times are host times of the enqueueing; when it ran on the device is its kernel's to say, found through `plan`.
        collectives: Collective / Collectives, Collectives, Many {
            /// When NCCL enqueued the operation.
            start_ns: TimeNs,
            /// How long the call took, where NVTX alone tells of it or it was made of transfers; else 0.
            duration_ns: DurationNs,
            /// NCCL's communicator hash: equal on all ranks of the communicator.
            communicator: u64,
            /// This process's rank in the communicator.
            rank: u32,
            /// The operation's number among those of its kind (`function`) on this communicator; null where NCCL gives none (P2p).
            sequence: Option<u64>,
            /// "AllReduce", "Send", ...
            function: NameId,
            /// "ncclFloat32", ...
            datatype: NameId,
            /// Elements of the call; as NCCL counts them for this function (some in bytes) where the call is not known.
            count: u64,
            /// Bytes of `count` elements.
            bytes: u64,
            /// Root rank of a rooted operation.
            root: Option<i32>,
            /// Peer rank of Send and Recv.
            peer: Option<i32>,
            /// "RING", "TREE", "NVLS", ...
            algorithm: Option<NameId>,
            /// "LL", "LL128", "SIMPLE".
            protocol: Option<NameId>,
            /// Channels used.
            channels: u8,
            /// Warps a channel.
            warps: u8,
            /// Number of the kernel launch that carries the operation: the `id` in [`ExternalCorrelation`] with the
            /// launch's `correlation`. Operations of one group share a kernel and so a plan. Where NCCL did not tell of the
            /// launch it is the number of the group of calls, around all that the group launched. Null where there is neither.
            plan: Option<u64>,
            /// Host thread.
            thread: u32,
            /// Whether the call was captured into a CUDA graph instead of launched.
            graph_captured: u8,
            /// The row of its kernel in this process's kernels, where the source ties the two together; times are then
            /// the kernel's.
            kernel: Option<u64>,
            /// How it reduces, where NCCL's NVTX ranges say: "Sum", "Prod", "Max", "Min", "Avg", "PreMulSum".
            reduction: Option<NameId>,
            /// Who told of it: 0 the plugin, as it was put into a kernel; 1 the plugin, but only the call; 2 the plugin, as
            /// copies; 3 NVTX alone.
            source: u8,
            /// The stream's handle (`CUstream`) that it was called with, or that its kernel was launched on.
            stream: Option<u64>,
            /// The tag that the program gave (NCCL 2.31 and later).
            user_tag: Option<u64>,
            /// Which of several kernels for it (NCCL 2.31 and later), or how copies were kept in step ("MC", "UC").
            variant: Option<NameId>,
            /// Whether its kernel works on symmetric memory.
            symmetric: u8,
            /// Its number in this process, which `nccl_channels` and `nccl_proxy` name; null unless those are recorded.
            operation: Option<u64>,
        }

        /// NCCL's kernels by channel, and phases of them, on request (profiler plugin, `KernelCh` and `KernelPhase`).
        ///
        /// Times of the row are the host's: when NCCL noticed. Device times are of the GPU's own `globaltimer`.
        nccl_channels: NcclChannel / NcclChannels, Events, Packed {
            /// When NCCL noticed the start.
            start_ns: TimeNs,
            /// Until it noticed the end.
            duration_ns: DurationNs,
            /// The `operation` in [`Collective`] that it is part of; null where it is not known.
            operation: Option<u64>,
            /// NCCL's communicator hash.
            communicator: u64,
            /// This process's rank in it.
            rank: u32,
            /// The channel.
            channel: u8,
            /// The phase's name; null for the channel as a whole.
            phase: Option<NameId>,
            /// Start by the device's clock, nanoseconds.
            device_start_ns: u64,
            /// End by the device's clock.
            device_end_ns: Option<u64>,
        }

        /// What NCCL's proxy threads do for operations, on request: one row for each channel's part, and one for each of its
        /// steps (profiler plugin, `ProxyOp` and `ProxyStep`).
        nccl_proxy: NcclProxyStep / NcclProxySteps, Events, Packed {
            /// Start.
            start_ns: TimeNs,
            /// End minus start.
            duration_ns: DurationNs,
            /// Its number in this process.
            number: u64,
            /// The `operation` in [`Collective`], or for a step the `number` of its part; null where that is another
            /// process's.
            parent: Option<u64>,
            /// NCCL's communicator hash.
            communicator: u64,
            /// This process's rank in it.
            rank: u32,
            /// Host thread.
            thread: u32,
            /// The step's number; null for the part as a whole.
            step: Option<u32>,
            /// The part's channel.
            channel: Option<u8>,
            /// 1 if the part sends, 0 if it receives.
            sends: Option<u8>,
            /// The part's peer rank.
            peer: Option<i32>,
            /// How many steps the part has.
            steps: Option<u32>,
            /// Bytes of the step, or of a chunk of the part.
            bytes: Option<u64>,
            /// How long the step waited for the GPU.
            gpu_wait_ns: Option<DurationNs>,
            /// How long it waited for the peer to take more.
            peer_wait_ns: Option<DurationNs>,
            /// How long it was in the network.
            network_ns: Option<DurationNs>,
            /// How long received data took to be visible to the GPU.
            flush_ns: Option<DurationNs>,
        }

        /// Communicators that NCCL set up in this process.
        communicators: Communicator / Communicators, Standing, Few {
            /// When.
            created_ns: TimeNs,
            /// NCCL's communicator hash.
            communicator: u64,
            /// Its name, where the program gave one.
            name: Option<NameId>,
            /// This process's rank in it.
            rank: u32,
            /// Ranks in it.
            ranks: u32,
            /// Nodes that they are on.
            nodes: u32,
        }

        /// Calls of the CUDA driver and runtime API (`CUpti_ActivityAPI`).
        api_calls: ApiCall / ApiCalls, Events, Packed {
            /// Start on the host.
            start_ns: TimeNs,
            /// End minus start.
            duration_ns: DurationNs,
            /// "cuLaunchKernel", ... or "driver:NNN", "runtime:NNN" where CUPTI gave no name.
            name: NameId,
            /// `CUpti_ActivityKind`: 4 driver, 5 runtime.
            kind: u8,
            /// CUPTI's callback id.
            callback: u32,
            /// Host thread (`gettid`).
            thread: u32,
            /// Joins the call to the operation it launched.
            correlation: u32,
            /// What the call returned: 0 is success.
            result: u32,
        }

        /// The host waiting for a device, or a stream for an event (`CUpti_ActivitySynchronization`).
        synchronizations: Synchronization / Synchronizations, Events, Packed {
            /// Start on the host.
            start_ns: TimeNs,
            /// End minus start.
            duration_ns: DurationNs,
            /// `CUpti_ActivitySynchronizationType`: 1 event synchronize, 2 stream wait event, 3 stream, 4 context.
            kind: u32,
            /// CUPTI's context id.
            context: Option<u32>,
            /// CUPTI's stream id.
            stream: Option<u32>,
            /// CUPTI's event id.
            event: Option<u32>,
            /// Joins it to its call.
            correlation: u32,
            /// Which recording of the event was waited for, of those in `event_records`: unlike the event's id, one is used once.
            event_synchronization: Option<u64>,
            /// What the call returned (`CUresult`), where CUPTI says; 0 is success.
            result: Option<u32>,
        }

        /// Events that were recorded on streams (`CUpti_ActivityCudaEvent` and later): what `synchronizations` wait for. CUPTI
        /// gives no time of the host: the call that recorded one is in `api_calls`.
        event_records: EventRecord / EventRecords, Details, Packed {
            /// Joins it to its call, and so to its place in the stream's order.
            correlation: u32,
            /// Device index, where CUPTI says.
            device: Option<u32>,
            /// CUPTI's context id.
            context: u32,
            /// CUPTI's id of the stream that it was recorded on.
            stream: u32,
            /// CUPTI's event id, the same each time that the event is recorded.
            event: u32,
            /// Which recording it is: the `event_synchronization` of the [`Synchronization`]s that wait for it; null where CUPTI
            /// does not say.
            event_synchronization: Option<u64>,
        }

        /// CUPTI's own work (`CUpti_ActivityOverhead`).
        overheads: Overhead / Overheads, Events, Packed {
            /// Start.
            start_ns: TimeNs,
            /// End minus start.
            duration_ns: DurationNs,
            /// `CUpti_ActivityOverheadKind`.
            kind: u32,
            /// `CUpti_ActivityObjectKind` of what it happened to.
            object_kind: u32,
            /// Thread, where the object is a thread.
            thread: Option<u32>,
            /// Device index, where the object is a device, a context or a stream.
            device: Option<u32>,
            /// Joins it to the call that brought it about, where CUPTI says.
            correlation: Option<u32>,
        }

        /// Modules of device code that were loaded (`CUpti_ActivityModule`). CUPTI gives no time: the call that loaded one is in
        /// `api_calls`.
        modules: Module / Modules, Details, Few {
            /// CUPTI's context id.
            context: u32,
            /// The module's id.
            module: u32,
            /// Bytes of its code.
            bytes: u64,
        }

        /// Device code that was compiled at run time, or found in the cache (`CUpti_ActivityJit` and later).
        compilations: Compilation / Compilations, Details, Many {
            /// Start on the host.
            start_ns: TimeNs,
            /// End minus start.
            duration_ns: DurationNs,
            /// `CUpti_ActivityJitEntryType`: 1 from PTX to machine code, 2 from NVVM IR to PTX.
            entry: u32,
            /// `CUpti_ActivityJitOperationType`: 1 loaded from the cache, 2 stored there, 3 compiled.
            operation: u32,
            /// Device index.
            device: u32,
            /// Joins it to its call.
            correlation: u32,
            /// Joins the compilation and what the cache did about it.
            unit: u64,
            /// Bytes of the cache.
            cache_bytes: u64,
            /// The cache's file.
            cache_path: Option<NameId>,
            /// Host thread, where CUPTI says.
            thread: Option<u32>,
        }

        /// NVTX ranges and marks.
        markers: Marker / Markers, Events, Packed {
            /// Start.
            start_ns: TimeNs,
            /// End minus start; null for a mark.
            duration_ns: Option<DurationNs>,
            /// The message.
            name: NameId,
            /// The domain; the empty string is NVTX's default domain.
            domain: NameId,
            /// Host thread that began it.
            thread: u32,
            /// 0 push/pop range, 1 start/end range, 2 mark.
            kind: u8,
            /// Enclosing push/pop ranges of the same thread and domain.
            depth: u16,
            /// The category.
            category: Option<u32>,
            /// The colour, ARGB.
            color: Option<u32>,
            /// A numeric payload, rounded where a double can't hold it.
            payload: Option<f64>,
            /// `nvtxPayloadType_t` of it: 1 u64, 2 i64, 3 f64, 4 u32, 5 i32, 6 f32.
            payload_type: Option<u8>,
            /// An integer payload without loss: its 64 bits, sign-extended where the type is signed.
            payload_integer: Option<u64>,
        }

        /// Fields of the payloads that NVTX ranges and marks carry by schemas (nvToolsExtPayload.h): a row a field.
        payload_fields: PayloadField / PayloadFields, Details, Few {
            /// Start of the range, or time of the mark; of what a start/end range says only at its end, that end.
            time_ns: TimeNs,
            /// Host thread.
            thread: u32,
            /// The domain.
            domain: NameId,
            /// The range's message; the empty string where it is said at the end of a start/end range.
            range: NameId,
            /// The schema's name.
            schema: NameId,
            /// The schema's number.
            schema_id: u64,
            /// The field's name.
            field: NameId,
            /// Which element of an array.
            element: Option<u32>,
            /// An integer's 64 bits, sign-extended where its type is signed; an address or a value of an enumeration too.
            integer: Option<u64>,
            /// A floating-point number.
            number: Option<f64>,
            /// A text, or the name of a value of an enumeration.
            text: Option<NameId>,
        }

        /// Names that the program gave to things by NVTX.
        object_names: ObjectName / ObjectNames, Details, Few {
            /// When.
            time_ns: TimeNs,
            /// Of what: 0 a category of the domain, 1 a thread, 2 a device, 3 a context, 4 a stream, 5 an event, 6 another
            /// resource.
            kind: u8,
            /// The domain; the empty string is NVTX's default domain.
            domain: NameId,
            /// The category's number, the thread's id, the device's index, or the handle (`CUcontext`, `CUstream`, ...).
            identifier: u64,
            /// What the program said of a resource's identifier (`NVTX_RESOURCE_TYPE_...`).
            resource_type: Option<u32>,
            /// CUPTI's id of the context or stream, where it could tell.
            cupti: Option<u32>,
            /// The name.
            name: NameId,
        }

        /// What a framework did on the host: operators as PyTorch's profiler names them ("aten::mm").
        operators: Operator / Operators, Events, Packed {
            /// Start on the host.
            start_ns: TimeNs,
            /// End minus start.
            duration_ns: DurationNs,
            /// The operator's name.
            name: NameId,
            /// Host thread.
            thread: u32,
            /// The sizes of its inputs as a list in JSON, "[[8944, 1024], [1024, 2816], []]"; null where they are not recorded.
            input_dims: Option<NameId>,
            /// Their types, "["c10::BFloat16", "Scalar"]".
            input_types: Option<NameId>,
            /// The values of those that are no tensors, as texts; kept of operators whose work they decide (convolutions,
            /// attention).
            input_values: Option<NameId>,
            /// Autograd's number of the operator: that of its backward pass is the same. It counts by thread.
            sequence: Option<u32>,
            /// Of an operator of the backward pass: PyTorch's number of the thread that ran its forward operator; 0 where only that
            /// it is of the backward pass is known.
            forward_thread: Option<u32>,
            /// PyTorch's number of the operator, which counts as they begin: of two with one time the smaller holds the other.
            number: Option<u32>,
        }

        /// Python functions while they ran: "train.py(12): main", "nn.Module: Linear_3", as PyTorch's profiler names them.
        python_frames: PythonFrame / PythonFrames, Events, Packed {
            /// Start on the host.
            start_ns: TimeNs,
            /// End minus start.
            duration_ns: DurationNs,
            /// File, line and function, or the module's class and number.
            name: NameId,
            /// Host thread.
            thread: u32,
            /// PyTorch's number of the call, which counts as they begin.
            number: Option<u32>,
        }

        /// Functions of the host that launched something, each called by another: a tree, in which a caller comes before what it
        /// calls. Native code alone; Python's functions are in `python_frames`.
        stack_frames: StackFrame / StackFrames, Standing, Few {
            /// Its number in the process.
            frame: u32,
            /// The number of its caller; null for the outermost.
            parent: Option<u32>,
            /// The function's name in the object's symbol table, mangled; null where it has none for it.
            function: Option<NameId>,
            /// The path of the program or library that it is in; null of code that was made at run time, and of what stands for
            /// callers that were not recorded.
            object: Option<NameId>,
            /// Where the function begins in the object (its address there, as `nm` has it); without a function, the address
            /// that the call returns to; without an object, 0 for callers that were not recorded.
            address: u64,
            /// The object's build id in hexadecimal, by which its debug information can be found later.
            build_id: Option<NameId>,
        }

        /// From which stack each launch, copy and memset was called.
        launch_stacks: LaunchStack / LaunchStacks, Details, Packed {
            /// When the call began.
            time_ns: TimeNs,
            /// Host thread.
            thread: u32,
            /// Joins it to its call, and so to what it launched.
            correlation: u32,
            /// The innermost function of the stack, of those in `stack_frames`.
            frame: u32,
        }

        /// Allocations and frees of device memory.
        memory: MemoryEvent / MemoryEvents, Details, Packed {
            /// When.
            time_ns: TimeNs,
            /// `CUpti_ActivityMemoryOperationType`: 1 allocation, 2 release.
            operation: u8,
            /// `CUpti_ActivityMemoryKind`.
            memory_kind: u32,
            /// The address.
            address: u64,
            /// Bytes.
            bytes: u64,
            /// Device index.
            device: u32,
            /// CUPTI's context id.
            context: u32,
            /// Stream of an asynchronous allocation.
            stream: Option<u32>,
            /// Joins it to its call.
            correlation: u32,
            /// The variable's name, of a static allocation.
            name: Option<NameId>,
            /// The library or program that asked for it, where CUPTI says.
            source: Option<NameId>,
            /// `CUpti_ActivityMemoryPoolType` of the pool that it is from: 1 of this process, 2 imported; null without a pool.
            pool_type: Option<u32>,
            /// The pool's address.
            pool_address: Option<u64>,
            /// The pool's size then, bytes.
            pool_bytes: Option<u64>,
            /// How much of the pool was in use then, bytes.
            pool_used_bytes: Option<u64>,
            /// Host thread that asked for it; null where only its call is known.
            thread: Option<u32>,
        }

        /// Memory pools that were made, trimmed and destroyed (`CUpti_ActivityMemoryPool2` and later).
        memory_pools: MemoryPoolEvent / MemoryPoolEvents, Details, Few {
            /// When.
            time_ns: TimeNs,
            /// `CUpti_ActivityMemoryPoolOperationType`: 1 made, 2 destroyed, 3 trimmed.
            operation: u32,
            /// `CUpti_ActivityMemoryPoolType`: 1 of this process, 2 imported.
            pool_type: u32,
            /// Device index.
            device: u32,
            /// The pool's address.
            address: u64,
            /// The pool's size, bytes.
            bytes: u64,
            /// How much of it was in use, bytes.
            used_bytes: u64,
            /// How much the pool keeps when memory is freed, bytes.
            release_threshold_bytes: u64,
            /// What a trimming was to leave, bytes.
            least_bytes_kept: Option<u64>,
            /// Whether its memory is managed; null where CUPTI does not say.
            is_managed: Option<u8>,
            /// Joins it to its call.
            correlation: u32,
        }

        /// Samples of a quantity over time.
        counters: Counter / Counters, Events, Packed {
            /// When.
            time_ns: TimeNs,
            /// What, with its unit: "power_watts".
            name: NameId,
            /// Device index; null for the host.
            device: Option<u32>,
            /// The value.
            value: f64,
            /// The process that it is about, where it is about one of several: in a host's samples.
            pid: Option<u32>,
            /// The thread of it.
            thread: Option<u32>,
        }

        /// Joins ids of ours to CUPTI's correlation ids (`CUpti_ActivityExternalCorrelation`).
        external_correlations: ExternalCorrelation / ExternalCorrelations, Details, Packed {
            /// The launch.
            correlation: u32,
            /// `CUpti_ExternalCorrelationKind`: which stack of ids.
            kind: u32,
            /// The id pushed around the launch.
            id: u64,
        }

        /// CUDA contexts.
        contexts: Context / Contexts, Standing, Few {
            /// CUPTI's context id.
            context: u32,
            /// Device index.
            device: u32,
            /// CUPTI's id of the context's null stream.
            null_stream: u32,
        }

        /// CUDA streams.
        streams: Stream / Streams, Standing, Few {
            /// CUPTI's context id.
            context: u32,
            /// CUPTI's stream id.
            stream: u32,
            /// `CUpti_ActivityStreamFlag`: 1 default, 2 non-blocking, 3 null stream.
            flag: u32,
            /// Priority: lower is more urgent.
            priority: i32,
        }

        /// Readings of all clocks at one moment, about one a second.
        clocks: Clock / Clocks, Recording, Few {
            /// `CLOCK_REALTIME`.
            realtime_ns: TimeNs,
            /// `CLOCK_MONOTONIC`.
            monotonic_ns: i64,
            /// `CLOCK_BOOTTIME`.
            boottime_ns: i64,
            /// Time stamp counter of the processor.
            tsc: Option<u64>,
        }

        /// When this process recorded, where that was not all the time; and when others kept it from recording. Windows of one
        /// `what` do not overlap.
        windows: Window / Windows, Recording, Few {
            /// Start.
            start_ns: TimeNs,
            /// End minus start.
            duration_ns: DurationNs,
            /// "active", "warm-up", or what kept it: "taken by another profiler", ...
            what: NameId,
            /// The first step in it, counted from 0, where steps decided.
            first_step: Option<u64>,
            /// Which of the schedule's repeats, counted from 0.
            repeat: Option<u64>,
        }

        /// What was lost, as it was lost: the sums over rows are the totals.
        losses: LossRow / LossRows, Recording, Few {
            /// When it was counted.
            time_ns: TimeNs,
            /// What was lost: "CUPTI records", "ranges", ...
            what: NameId,
            /// How many.
            count: u64,
            /// Which numbers it touches.
            affects: NameId,
        }
        }
    };
}
pub(crate) use each_table;

each_table!(tables);
