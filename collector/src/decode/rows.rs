//! One kind of record to its row each.

use std::mem::offset_of;

use gputrace_trace::manifest::{Device, Limits};
use gputrace_trace::writer::ProcessWriter;
use gputrace_trace::{DurationNs, TimeNs, tables};

use super::calls::{CallbackName, Calls};
use super::names::{KernelNames, name, text};
use super::times::{Decoded, Times, untimed};
use crate::daemon::{Timed, What};
use crate::records::{self, reaches, read};

/// `CUpti_ActivityObjectKind`: a thread, whose object is process and thread.
const OBJECT_THREAD: u32 = 2;
/// A device, a context, a stream: the object is device, context and stream.
const OBJECTS_OF_A_DEVICE: std::ops::RangeInclusive<u32> = 3..=5;
/// `CUpti_ActivityOverheadKind`: the driver's command buffer was full. The record's data is memory that is ours to free.
const COMMAND_BUFFER_FULL: u32 = 6 << 16;
/// `CUpti_ActivitySynchronizationType`: those that wait for an event.
const WAITS_FOR_EVENTS: std::ops::RangeInclusive<u32> = 1..=2;
/// `CUpti_ActivityMemoryPoolType`: of this process.
const POOL_LOCAL: u32 = 1;
/// `CUpti_ActivityMemoryPoolOperationType`: trimmed.
const POOL_TRIMMED: u32 = 3;

fn graph(graph: u32, node: u64) -> (Option<u32>, Option<u64>) {
    ((graph != 0).then_some(graph), (node != 0).then_some(node))
}

/// CUPTI's "none" for contexts, streams and events.
fn known(id: u32) -> Option<u32> {
    (id != u32::MAX && id != u32::MAX - 1).then_some(id)
}

/// Which recording of an event. "Not applicable" is all ones, of 32 bits or of 64; recordings are numbered from 1.
fn recording(id: u64) -> Option<u64> {
    (id != 0 && id != u64::from(u32::MAX) && id != u64::MAX).then_some(id)
}

/// What is kept of a kernel, copy or memset without whole times.
macro_rules! untimed_operation {
    ($record:expr, $name:expr, $bytes:expr) => {{
        let (graph, graph_node) = graph($record.graph, $record.graph_node);
        tables::UntimedOperation {
            kind: $record.kind,
            name: $name,
            device: Some($record.device),
            context: Some($record.context),
            stream: Some($record.stream),
            correlation: $record.correlation,
            bytes: $bytes,
            graph,
            graph_node,
            ..tables::UntimedOperation::default()
        }
    }};
}

/// The row of a copy and of a peer copy, whose records have the same members at other places.
macro_rules! copy {
    ($rows:expr, $record:expr, $source:expr, $destination:expr, $writer:expr, $decoded:expr) => {{
        let times = Times::of($record.start, $record.end);
        let Times::Whole(start_ns, duration_ns) = times else {
            $decoded.count(times);
            return untimed(
                untimed_operation!($record, None, Some($record.bytes)),
                times,
                $writer,
            );
        };
        $rows.time(What::Other, start_ns, duration_ns);
        let (graph, graph_node) = graph($record.graph, $record.graph_node);
        $writer.tables.copies.push(tables::Copy {
            start_ns,
            duration_ns,
            device: $record.device,
            context: $record.context,
            stream: $record.stream,
            correlation: $record.correlation,
            copy_kind: $record.copy_kind,
            source_kind: $record.source_kind,
            destination_kind: $record.destination_kind,
            flags: $record.flags,
            bytes: $record.bytes,
            source_device: $source,
            destination_device: $destination,
            graph,
            graph_node,
        });
    }};
}

/// What the functions below know of earlier records.
pub(crate) struct Rows {
    pub(super) calls: Calls,
    pub(super) kernel_names: KernelNames,
    /// Devices seen, for the header.
    pub(super) devices: Vec<Device>,
    /// What ran when, where somebody is told while the program runs.
    pub(super) timed: Option<Vec<Timed>>,
}

/// Makes rows of one record, of the bytes that CUPTI gives its kind. Its safety is that of [`super::Decoder::decode`].
pub(crate) type Decode = unsafe fn(&mut Rows, &[u8], &mut ProcessWriter, &mut Decoded);

impl Rows {
    pub(super) fn new(callback_name: CallbackName) -> Self {
        Self {
            calls: Calls::new(callback_name),
            kernel_names: KernelNames::default(),
            devices: Vec::new(),
            timed: None,
        }
    }

    fn time(&mut self, what: What, start_ns: TimeNs, duration_ns: DurationNs) {
        if let Some(timed) = &mut self.timed {
            timed.push(Timed {
                what,
                start_ns: start_ns.0,
                end_ns: start_ns.0.saturating_add(duration_ns.0),
            });
        }
    }
}

/// # Safety
/// As [`Decode`].
pub(crate) unsafe fn kernel(
    rows: &mut Rows,
    bytes: &[u8],
    writer: &mut ProcessWriter,
    decoded: &mut Decoded,
) {
    let record: records::Kernel = read(bytes);
    // SAFETY: the caller's promise is handed on.
    let name = unsafe { rows.kernel_names.get(record.name, writer) };
    let times = Times::of(record.start, record.end);
    let Times::Whole(start_ns, duration_ns) = times else {
        decoded.count(times);
        return untimed(untimed_operation!(record, Some(name), None), times, writer);
    };
    if rows.timed.is_some() {
        // All of NCCL's kernels have it in their names (ncclDevKernel, ncclKernel, ncclSymk), and hardly anybody else's.
        let is_nccl = writer.names.get(name).contains("nccl");
        let what = if is_nccl { What::NcclKernel } else { What::Kernel };
        rows.time(what, start_ns, duration_ns);
    }
    let (graph, graph_node) = graph(record.graph, record.graph_node);
    let cluster = |axis: usize| (record.cluster[0] != 0).then_some(record.cluster[axis]);
    writer.tables.kernels.push(tables::Kernel {
        start_ns,
        duration_ns,
        name,
        device: record.device,
        context: record.context,
        stream: record.stream,
        correlation: record.correlation,
        grid_x: record.grid[0],
        grid_y: record.grid[1],
        grid_z: record.grid[2],
        block_x: record.block[0],
        block_y: record.block[1],
        block_z: record.block[2],
        registers: record.registers,
        static_shared_bytes: record.static_shared,
        dynamic_shared_bytes: record.dynamic_shared,
        shared_executed_bytes: record.shared_executed,
        local_bytes: record.local_per_thread,
        launch_type: record.launch_type,
        cluster_x: cluster(0),
        cluster_y: cluster(1),
        cluster_z: cluster(2),
        graph,
        graph_node,
    });
}

pub(crate) fn call(rows: &mut Rows, bytes: &[u8], writer: &mut ProcessWriter, decoded: &mut Decoded) {
    let record: records::ApiCall = read(bytes);
    if let Some(times) = rows.calls.take(&record, writer) {
        decoded.count(times);
    }
}

pub(crate) fn copy(rows: &mut Rows, bytes: &[u8], writer: &mut ProcessWriter, decoded: &mut Decoded) {
    let record: records::Memcpy = read(bytes);
    copy!(rows, record, None, None, writer, decoded);
}

pub(crate) fn peer_copy(rows: &mut Rows, bytes: &[u8], writer: &mut ProcessWriter, decoded: &mut Decoded) {
    let record: records::PeerCopy = read(bytes);
    let (source, destination) = (record.source_device, record.destination_device);
    copy!(rows, record, Some(source), Some(destination), writer, decoded);
}

pub(crate) fn external_correlation(_: &mut Rows, bytes: &[u8], writer: &mut ProcessWriter, _: &mut Decoded) {
    let record: records::ExternalCorrelation = read(bytes);
    let rows = &mut writer.tables.external_correlations;
    rows.push(tables::ExternalCorrelation {
        correlation: record.correlation,
        kind: record.external_kind,
        id: record.id,
    });
}

pub(crate) fn module(_: &mut Rows, bytes: &[u8], writer: &mut ProcessWriter, _: &mut Decoded) {
    let record: records::Module = read(bytes);
    writer.tables.modules.push(tables::Module {
        context: record.context,
        module: record.id,
        bytes: u64::from(record.cubin_bytes),
    });
}

pub(crate) fn context(_: &mut Rows, bytes: &[u8], writer: &mut ProcessWriter, _: &mut Decoded) {
    let record: records::Context = read(bytes);
    writer.tables.contexts.push(tables::Context {
        context: record.context,
        device: record.device,
        null_stream: u32::from(record.null_stream),
    });
}

pub(crate) fn stream(_: &mut Rows, bytes: &[u8], writer: &mut ProcessWriter, _: &mut Decoded) {
    let record: records::Stream = read(bytes);
    writer.tables.streams.push(tables::Stream {
        context: record.context,
        stream: record.stream,
        flag: record.flag,
        priority: record.priority,
    });
}

/// # Safety
/// As [`Decode`].
pub(crate) unsafe fn device(rows: &mut Rows, bytes: &[u8], _: &mut ProcessWriter, _: &mut Decoded) {
    let record: records::Device = read(bytes);
    if rows.devices.iter().any(|device| device.index == record.id) {
        return;
    }
    // SAFETY: the caller's promise is handed on.
    let name = unsafe { text(record.name) };
    rows.devices.push(Device {
        index: record.id,
        name: name.map_or_else(String::new, |name| name.to_string_lossy().into_owned()),
        compute_capability: Some((record.capability_major, record.capability_minor)),
        memory_bytes: Some(record.memory_bytes),
        multiprocessors: Some(record.multiprocessors),
        memory_bandwidth_bytes_per_s: Some(record.memory_bandwidth * 1000),
        uuid: Some(record.uuid.iter().map(|byte| format!("{byte:02x}")).collect()),
        limits: (record.warps_a_multiprocessor != 0).then_some(Limits {
            warp_threads: record.warp,
            warps: record.warps_a_multiprocessor,
            blocks: record.blocks_a_multiprocessor,
            registers: record.registers_a_multiprocessor,
            shared_bytes: record.shared_bytes_a_multiprocessor,
            registers_a_block: record.registers_a_block,
            shared_bytes_a_block: record.shared_bytes_a_block,
            threads_a_block: record.threads_a_block,
        }),
    });
}

pub(crate) fn memset(rows: &mut Rows, bytes: &[u8], writer: &mut ProcessWriter, decoded: &mut Decoded) {
    let record: records::Memset = read(bytes);
    let times = Times::of(record.start, record.end);
    let Times::Whole(start_ns, duration_ns) = times else {
        decoded.count(times);
        return untimed(
            untimed_operation!(record, None, Some(record.bytes)),
            times,
            writer,
        );
    };
    rows.time(What::Other, start_ns, duration_ns);
    let (graph, graph_node) = graph(record.graph, record.graph_node);
    writer.tables.memsets.push(tables::Memset {
        start_ns,
        duration_ns,
        device: record.device,
        context: record.context,
        stream: record.stream,
        correlation: record.correlation,
        bytes: record.bytes,
        value: record.value,
        memory_kind: record.memory_kind,
        flags: record.flags,
        graph,
        graph_node,
    });
}

pub(crate) fn graph_launch(_: &mut Rows, bytes: &[u8], writer: &mut ProcessWriter, decoded: &mut Decoded) {
    let record: records::GraphTrace = read(bytes);
    let times = Times::of(record.start, record.end);
    let Times::Whole(start_ns, duration_ns) = times else {
        decoded.count(times);
        let row = tables::UntimedOperation {
            kind: record.kind,
            device: Some(record.device),
            context: known(record.context),
            stream: known(record.stream),
            correlation: record.correlation,
            graph: Some(record.graph),
            ..tables::UntimedOperation::default()
        };
        return untimed(row, times, writer);
    };
    let has_end = reaches(bytes, offset_of!(records::GraphTrace, end_context));
    writer.tables.graph_launches.push(tables::GraphLaunch {
        start_ns,
        duration_ns,
        graph: record.graph,
        device: record.device,
        context: record.context,
        stream: record.stream,
        correlation: record.correlation,
        end_device: has_end.then_some(record.end_device),
        end_context: has_end.then_some(record.end_context),
    });
}

pub(crate) fn synchronization(_: &mut Rows, bytes: &[u8], writer: &mut ProcessWriter, decoded: &mut Decoded) {
    let record: records::Synchronization = read(bytes);
    let times = Times::of(record.start, record.end);
    let Times::Whole(start_ns, duration_ns) = times else {
        decoded.count(times);
        let row = tables::UntimedOperation {
            kind: record.kind,
            context: known(record.context),
            stream: known(record.stream),
            correlation: record.correlation,
            ..tables::UntimedOperation::default()
        };
        return untimed(row, times, writer);
    };
    let event_synchronization =
        recording(record.event_synchronization).filter(|_| WAITS_FOR_EVENTS.contains(&record.wait));
    writer.tables.synchronizations.push(tables::Synchronization {
        start_ns,
        duration_ns,
        kind: record.wait,
        context: known(record.context),
        stream: known(record.stream),
        event: known(record.event),
        correlation: record.correlation,
        event_synchronization,
        result: reaches(bytes, offset_of!(records::Synchronization, result)).then_some(record.result),
    });
}

pub(crate) fn event_record(_: &mut Rows, bytes: &[u8], writer: &mut ProcessWriter, _: &mut Decoded) {
    let record: records::EventRecord = read(bytes);
    writer.tables.event_records.push(tables::EventRecord {
        correlation: record.correlation,
        device: reaches(bytes, offset_of!(records::EventRecord, device)).then_some(record.device),
        context: record.context,
        stream: record.stream,
        event: record.event,
        event_synchronization: recording(record.event_synchronization),
    });
}

/// Frees what belongs to a record that is done with, whether it became a row or not.
///
/// # Safety
/// As [`Decode`]; once for each record.
pub(crate) unsafe fn free_overhead(bytes: &[u8]) {
    let record: records::Overhead = read(bytes);
    if record.overhead == COMMAND_BUFFER_FULL && record.data != 0 {
        // SAFETY: "Client is responsible for freeing this memory using the free function" (cupti_activity.h, 12.4); nobody
        // else knows it, by the caller's promise.
        unsafe { libc::free(record.data as *mut _) };
    }
}

/// # Safety
/// As [`Decode`].
pub(crate) unsafe fn overhead(_: &mut Rows, bytes: &[u8], writer: &mut ProcessWriter, decoded: &mut Decoded) {
    let record: records::Overhead = read(bytes);
    // SAFETY: the caller's promise is handed on.
    unsafe { free_overhead(bytes) };
    let thread = (record.object_kind == OBJECT_THREAD).then_some(record.object[1]);
    let device = OBJECTS_OF_A_DEVICE
        .contains(&record.object_kind)
        .then_some(record.object[0]);
    let correlation = (record.correlation != 0).then_some(record.correlation);
    let times = Times::of(record.start, record.end);
    let Times::Whole(start_ns, duration_ns) = times else {
        decoded.count(times);
        let row = tables::UntimedOperation {
            kind: record.kind,
            device,
            thread,
            correlation: record.correlation,
            ..tables::UntimedOperation::default()
        };
        return untimed(row, times, writer);
    };
    writer.tables.overheads.push(tables::Overhead {
        start_ns,
        duration_ns,
        kind: record.overhead,
        object_kind: record.object_kind,
        thread,
        device,
        correlation,
    });
}

/// # Safety
/// As [`Decode`].
pub(crate) unsafe fn compilation(
    _: &mut Rows,
    bytes: &[u8],
    writer: &mut ProcessWriter,
    decoded: &mut Decoded,
) {
    let record: records::Jit = read(bytes);
    let thread = reaches(bytes, offset_of!(records::Jit, thread)).then_some(record.thread);
    let times = Times::of(record.start, record.end);
    let Times::Whole(start_ns, duration_ns) = times else {
        decoded.count(times);
        let row = tables::UntimedOperation {
            kind: record.kind,
            device: Some(record.device),
            thread,
            correlation: record.correlation,
            ..tables::UntimedOperation::default()
        };
        return untimed(row, times, writer);
    };
    // SAFETY: the caller's promise is handed on.
    let cache_path = unsafe { name(record.cache_path, writer) };
    writer.tables.compilations.push(tables::Compilation {
        start_ns,
        duration_ns,
        entry: record.entry,
        operation: record.operation,
        device: record.device,
        correlation: record.correlation,
        unit: record.operation_id,
        cache_bytes: record.cache_bytes,
        cache_path,
        thread,
    });
}

/// # Safety
/// As [`Decode`].
pub(crate) unsafe fn memory(_: &mut Rows, bytes: &[u8], writer: &mut ProcessWriter, _: &mut Decoded) {
    let record: records::Memory = read(bytes);
    // SAFETY: the caller's promise is handed on.
    let (variable, source) = unsafe { (name(record.name, writer), name(record.source, writer)) };
    let has_pool = record.pool_type != 0;
    let is_local = record.pool_type == POOL_LOCAL;
    writer.tables.memory.push(tables::MemoryEvent {
        time_ns: TimeNs(record.time.cast_signed()),
        operation: u8::try_from(record.operation).unwrap_or(u8::MAX),
        memory_kind: record.memory_kind,
        address: record.address,
        bytes: record.bytes,
        device: record.device,
        context: record.context,
        stream: known(record.stream).filter(|_| record.is_asynchronous != 0),
        correlation: record.correlation,
        name: variable,
        source,
        pool_type: has_pool.then_some(record.pool_type),
        pool_address: has_pool.then_some(record.pool_address),
        pool_bytes: is_local.then_some(record.pool_bytes_or_process),
        pool_used_bytes: is_local.then_some(record.pool_used_bytes),
        thread: None,
    });
}

pub(crate) fn memory_pool(_: &mut Rows, bytes: &[u8], writer: &mut ProcessWriter, _: &mut Decoded) {
    let record: records::MemoryPool = read(bytes);
    writer.tables.memory_pools.push(tables::MemoryPoolEvent {
        time_ns: TimeNs(record.time.cast_signed()),
        operation: record.operation,
        pool_type: record.pool_type,
        device: record.device,
        address: record.address,
        bytes: record.bytes,
        used_bytes: record.used_bytes,
        release_threshold_bytes: record.release_threshold,
        least_bytes_kept: (record.operation == POOL_TRIMMED).then_some(record.least_bytes_kept),
        is_managed: reaches(bytes, offset_of!(records::MemoryPool, is_managed)).then_some(record.is_managed),
        correlation: record.correlation,
    });
}
