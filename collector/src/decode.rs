//! From CUPTI's buffers to rows of the recording.

use std::collections::HashMap;
use std::ffi::{CStr, c_char};

use gputrace_trace::manifest::Device;
use gputrace_trace::tables;
use gputrace_trace::writer::ProcessWriter;
use gputrace_trace::{DurationNs, NameId, TimeNs};

use crate::records::{self, kind, read};

/// The sizes of records by kind, as the running CUPTI has them.
#[derive(Clone, Debug, Default)]
pub struct RecordSizes {
    sizes: Vec<usize>,
}

impl RecordSizes {
    /// Kinds that are asked for; CUPTI 13.5 has 51.
    pub const KINDS: u32 = 128;

    /// Asks `size_of` for each kind; 0 where it does not know.
    pub fn ask(size_of: impl Fn(u32) -> Option<usize>) -> Self {
        Self {
            sizes: (0..Self::KINDS).map(|kind| size_of(kind).unwrap_or(0)).collect(),
        }
    }

    /// The kinds whose size is known, with their sizes.
    pub fn known(&self) -> impl Iterator<Item = (u32, usize)> {
        (0u32..)
            .zip(&self.sizes)
            .filter(|(_, size)| **size >= 8)
            .map(|(kind, size)| (kind, *size))
    }

    pub(crate) fn get(&self, kind: u32) -> Option<usize> {
        self.sizes.get(kind as usize).copied().filter(|&size| size >= 8)
    }
}

/// What a buffer held besides rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Decoded {
    /// Records read.
    pub records: u64,
    /// Operations whose start and end are both 0: CUPTI's device buffers had run out. They are no rows.
    pub without_times: u64,
    /// Records of kinds that were not asked for, passed over by their size.
    pub unknown: u64,
    /// Bytes at the end behind a record of a kind whose size is not known.
    pub unread_bytes: u64,
}

/// Gives the name of a callback id: (kind, id) to text.
pub type CallbackName = Box<dyn Fn(u32, u32) -> Option<String> + Send>;

/// Decodes buffers; remembers the names that it has seen.
pub struct Decoder {
    sizes: RecordSizes,
    callback_name: CallbackName,
    /// Kernel names by their address; the text is compared once a buffer, since an address can come to name another
    /// kernel after its module is unloaded.
    kernel_names: HashMap<u64, NameId>,
    /// The addresses seen last, by some of their bits: a training step's kernels take turns, and hashing each costs.
    recent_names: Box<[RecentName; RECENT]>,
    /// Counts buffers: within one, an address is read at one moment and so names one kernel.
    buffers: u64,
    /// By kind and callback id; `None` for calls that are left out.
    call_names: HashMap<(u32, u32), Option<NameId>>,
    /// Devices seen, for the header.
    pub devices: Vec<Device>,
}

/// Addresses of kernel names that are found without hashing.
const RECENT: usize = 256;

/// A kernel name's address, and the buffer in which its text was last compared.
#[derive(Clone, Copy, Default)]
struct RecentName {
    address: u64,
    name: NameId,
    buffer: u64,
}

/// Calls that only ask or switch, many times a launch: left out of the recording by design.
const QUERIES: &[&str] = &[
    "cuCtxGetCurrent",
    "cuCtxSetCurrent",
    "cuCtxGetDevice",
    "cuCtxPushCurrent",
    "cuCtxPopCurrent",
    "cuDeviceGet",
    "cuDevicePrimaryCtxGetState",
    "cuDriverGetVersion",
    "cuGetProcAddress",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuKernelGetAttribute",
    "cuKernelGetFunction",
    "cuFuncGetAttribute",
    "cuPointerGetAttribute",
    "cuStreamGetCaptureInfo",
    "cuStreamIsCapturing",
    "cudaGetDevice",
    "cudaSetDevice",
    "cudaGetLastError",
    "cudaPeekAtLastError",
    "cudaDeviceGetAttribute",
    "cudaFuncGetAttributes",
    "cudaPointerGetAttributes",
    "cudaStreamGetCaptureInfo",
    "cudaStreamIsCapturing",
    "cudaOccupancy",
];

fn is_query(name: &str) -> bool {
    // By prefix: versions and variants are suffixes (cuDeviceGetAttribute, cuCtxPopCurrent_v2, ..._ptsz).
    QUERIES.iter().any(|query| name.starts_with(query))
}

fn times(start: u64, end: u64) -> (TimeNs, DurationNs) {
    let (start, end) = (start.cast_signed(), end.cast_signed());
    (TimeNs(start), DurationNs(end.wrapping_sub(start)))
}

fn graph(graph: u32, node: u64) -> (Option<u32>, Option<u64>) {
    ((graph != 0).then_some(graph), (node != 0).then_some(node))
}

/// The row of a copy and of a peer copy, whose records have the same members at other places.
macro_rules! copy_row {
    ($record:expr, $source:expr, $destination:expr) => {{
        let (start_ns, duration_ns) = times($record.start, $record.end);
        let (graph, graph_node) = graph($record.graph, $record.graph_node);
        tables::Copy {
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
        }
    }};
}

/// Takes in a copy, unless it has no times.
fn copy(row: tables::Copy, writer: &mut ProcessWriter, decoded: &mut Decoded) {
    if row.start_ns.0 == 0 && row.duration_ns.0 == 0 {
        decoded.without_times += 1;
    } else {
        writer.tables.copies.push(row);
    }
}

/// CUPTI's "none" for contexts, streams and events.
fn known(id: u32) -> Option<u32> {
    (id != u32::MAX && id != u32::MAX - 1).then_some(id)
}

impl Decoder {
    /// A decoder of records of these sizes.
    #[must_use]
    pub fn new(sizes: RecordSizes, callback_name: CallbackName) -> Self {
        Self {
            sizes,
            callback_name,
            kernel_names: HashMap::new(),
            recent_names: Box::new([RecentName::default(); RECENT]),
            buffers: 0,
            call_names: HashMap::new(),
            devices: Vec::new(),
        }
    }

    /// The sizes of records that this decoder goes by.
    pub(crate) fn sizes(&self) -> &RecordSizes {
        &self.sizes
    }

    /// The name of a call.
    pub(crate) fn call_name(&self, kind: u32, callback: u32) -> Option<String> {
        (self.callback_name)(kind, callback)
    }

    /// Decodes one buffer into rows.
    ///
    /// # Safety
    /// Pointers inside the records (kernel and device names) must be null or lead to zero-terminated text, as those
    /// in a buffer that CUPTI just delivered to this process do.
    pub unsafe fn decode(&mut self, buffer: &[u8], writer: &mut ProcessWriter) -> Decoded {
        let mut decoded = Decoded::default();
        self.buffers += 1;
        let mut rest = buffer;
        while let Some((head, _)) = rest.split_first_chunk::<4>() {
            let record_kind = u32::from_le_bytes(*head);
            let Some(record) = self.sizes.get(record_kind).and_then(|size| rest.get(..size)) else {
                decoded.unread_bytes = rest.len() as u64;
                break;
            };
            decoded.records += 1;
            // SAFETY: the caller's promise is handed on.
            unsafe { self.row(record_kind, record, writer, &mut decoded) };
            rest = &rest[record.len()..];
        }
        decoded
    }

    /// # Safety
    /// As [`Self::decode`].
    unsafe fn row(
        &mut self,
        record_kind: u32,
        bytes: &[u8],
        writer: &mut ProcessWriter,
        decoded: &mut Decoded,
    ) {
        match record_kind {
            kind::CONCURRENT_KERNEL | kind::KERNEL => {
                // SAFETY: the caller's promise is handed on.
                unsafe { self.kernel(&read(bytes), writer, decoded) };
            }
            kind::DRIVER | kind::RUNTIME => self.api_call(&read(bytes), writer),
            kind::MEMCPY => {
                let record: records::Memcpy = read(bytes);
                copy(copy_row!(record, None, None), writer, decoded);
            }
            kind::MEMCPY2 => {
                let record: records::PeerCopy = read(bytes);
                let (source, destination) = (record.source_device, record.destination_device);
                copy(
                    copy_row!(record, Some(source), Some(destination)),
                    writer,
                    decoded,
                );
            }
            kind::MEMSET => {
                let record: records::Memset = read(bytes);
                if record.start == 0 && record.end == 0 {
                    decoded.without_times += 1;
                    return;
                }
                let (start_ns, duration_ns) = times(record.start, record.end);
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
            kind::SYNCHRONIZATION => {
                let record: records::Synchronization = read(bytes);
                let (start_ns, duration_ns) = times(record.start, record.end);
                writer.tables.synchronizations.push(tables::Synchronization {
                    start_ns,
                    duration_ns,
                    kind: record.wait,
                    context: known(record.context),
                    stream: known(record.stream),
                    event: known(record.event),
                    correlation: record.correlation,
                });
            }
            kind::OVERHEAD => {
                let record: records::Overhead = read(bytes);
                let (start_ns, duration_ns) = times(record.start, record.end);
                // CUPTI_ACTIVITY_OBJECT_THREAD is 2; its object is process and thread.
                let thread = (record.object_kind == 2).then_some(record.object[1]);
                writer.tables.overheads.push(tables::Overhead {
                    start_ns,
                    duration_ns,
                    kind: record.overhead,
                    object_kind: record.object_kind,
                    thread,
                });
            }
            kind::EXTERNAL_CORRELATION => {
                let record: records::ExternalCorrelation = read(bytes);
                writer
                    .tables
                    .external_correlations
                    .push(tables::ExternalCorrelation {
                        correlation: record.correlation,
                        kind: record.external_kind,
                        id: record.id,
                    });
            }
            kind::CONTEXT => {
                let record: records::Context = read(bytes);
                writer.tables.contexts.push(tables::Context {
                    context: record.context,
                    device: record.device,
                    null_stream: u32::from(record.null_stream),
                });
            }
            kind::STREAM => {
                let record: records::Stream = read(bytes);
                writer.tables.streams.push(tables::Stream {
                    context: record.context,
                    stream: record.stream,
                    flag: record.flag,
                    priority: record.priority,
                });
            }
            // SAFETY: the caller's promise is handed on.
            kind::DEVICE => unsafe { self.device(&read(bytes)) },
            _ => decoded.unknown += 1,
        }
    }

    /// # Safety
    /// As [`Self::decode`].
    unsafe fn kernel(&mut self, record: &records::Kernel, writer: &mut ProcessWriter, decoded: &mut Decoded) {
        if record.start == 0 && record.end == 0 {
            decoded.without_times += 1;
            return;
        }
        let (start_ns, duration_ns) = times(record.start, record.end);
        let (graph, graph_node) = graph(record.graph, record.graph_node);
        // SAFETY: the caller's promise is handed on.
        let name = unsafe { self.kernel_name(record.name, writer) };
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
            graph,
            graph_node,
        });
    }

    /// # Safety
    /// `address` is null or leads to zero-terminated text.
    unsafe fn kernel_name(&mut self, address: u64, writer: &mut ProcessWriter) -> NameId {
        if address == 0 {
            return NameId::default();
        }
        // A multiplicative hash: names often lie at equal distances.
        let slot = (address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - RECENT.trailing_zeros())) as usize;
        let recent = self.recent_names[slot];
        if recent.address == address && recent.buffer == self.buffers {
            return recent.name;
        }
        // SAFETY: not null, and text by the caller's promise.
        let text = unsafe { CStr::from_ptr(address as *const c_char) };
        let name = match self.kernel_names.get(&address) {
            Some(&known) if writer.names.get(known).as_bytes() == text.to_bytes() => known,
            _ => {
                let name = writer.names.intern(&text.to_string_lossy());
                self.kernel_names.insert(address, name);
                name
            }
        };
        self.recent_names[slot] = RecentName {
            address,
            name,
            buffer: self.buffers,
        };
        name
    }

    fn api_call(&mut self, record: &records::ApiCall, writer: &mut ProcessWriter) {
        let callback_name = &self.callback_name;
        let name = *self
            .call_names
            .entry((record.kind, record.callback))
            .or_insert_with(|| {
                let name = callback_name(record.kind, record.callback);
                if name.as_deref().is_some_and(is_query) {
                    return None;
                }
                let unnamed = || {
                    let api = if record.kind == kind::DRIVER {
                        "driver"
                    } else {
                        "runtime"
                    };
                    format!("{api}:{}", record.callback)
                };
                Some(writer.names.intern(&name.unwrap_or_else(unnamed)))
            });
        let Some(name) = name else { return };
        let (start_ns, duration_ns) = times(record.start, record.end);
        writer.tables.api_calls.push(tables::ApiCall {
            start_ns,
            duration_ns,
            name,
            kind: record.kind as u8,
            callback: record.callback,
            thread: record.thread,
            correlation: record.correlation,
            result: record.result,
        });
    }

    /// # Safety
    /// As [`Self::decode`].
    unsafe fn device(&mut self, record: &records::Device) {
        if self.devices.iter().any(|device| device.index == record.id) {
            return;
        }
        let name = if record.name == 0 {
            String::new()
        } else {
            // SAFETY: not null, and text by the caller's promise.
            unsafe { CStr::from_ptr(record.name as *const c_char) }
                .to_string_lossy()
                .into_owned()
        };
        self.devices.push(Device {
            index: record.id,
            name,
            compute_capability: Some((record.capability_major, record.capability_minor)),
            memory_bytes: Some(record.memory_bytes),
            multiprocessors: Some(record.multiprocessors),
            memory_bandwidth_bytes_per_s: Some(record.memory_bandwidth * 1000),
            uuid: Some(record.uuid.iter().map(|byte| format!("{byte:02x}")).collect()),
        });
    }
}
