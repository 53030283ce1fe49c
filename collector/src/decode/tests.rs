//! Buffers made by hand, decoded and read back.

use std::ffi::CString;
use std::mem::offset_of;

use gputrace_trace::tables::Tables;
use gputrace_trace::writer::ProcessWriter;
use gputrace_trace::{Recording, TimeNs};

use super::*;
use crate::records::*;

/// The newest sizes, so that every member is there.
fn newest(asked: u32) -> Option<usize> {
    Some(match asked {
        kind::CONCURRENT_KERNEL => 248,
        kind::MEMCPY => 112,
        kind::MEMSET => 104,
        kind::DRIVER | kind::RUNTIME => 40,
        kind::SYNCHRONIZATION | kind::OVERHEAD | kind::GRAPH_TRACE => 56,
        kind::JIT => 72,
        kind::MODULE => 24,
        kind::MEMORY2 => 128,
        kind::CUDA_EVENT | kind::MEMORY_POOL => 80,
        // A kind that nobody knows yet.
        99 => 32,
        _ => return None,
    })
}

/// The sizes of CUDA 12.0.
fn oldest(asked: u32) -> Option<usize> {
    Some(match asked {
        kind::CONCURRENT_KERNEL => 208,
        kind::SYNCHRONIZATION | kind::OVERHEAD => 40,
        kind::CUDA_EVENT => 24,
        kind::GRAPH_TRACE => 48,
        kind::JIT => 64,
        kind::MEMORY2 => 120,
        kind::MEMORY_POOL => 72,
        _ => return newest(asked),
    })
}

/// A buffer under construction.
#[derive(Default)]
struct Buffer(Vec<u8>);

impl Buffer {
    /// Appends a record of so many bytes with these members: offset and value.
    fn record(&mut self, record_kind: u32, bytes: usize, members: &[(usize, u64, usize)]) {
        let start = self.0.len();
        self.0.resize(start + bytes, 0);
        let record = &mut self.0[start..];
        record[..4].copy_from_slice(&record_kind.to_le_bytes());
        for &(offset, value, width) in members {
            // A member that an older record does not reach is not written.
            if offset + width <= bytes {
                record[offset..offset + width].copy_from_slice(&value.to_le_bytes()[..width]);
            }
        }
    }

    fn call(&mut self, record_kind: u32, callback: u64, times: (u64, u64), thread: u64, correlation: u64) {
        self.record(
            record_kind,
            40,
            &[
                (offset_of!(ApiCall, callback), callback, 4),
                (offset_of!(ApiCall, start), times.0, 8),
                (offset_of!(ApiCall, end), times.1, 8),
                (offset_of!(ApiCall, thread), thread, 4),
                (offset_of!(ApiCall, correlation), correlation, 4),
            ],
        );
    }
}

/// Decodes buffers and gives what a reader finds.
fn decode(buffers: &[&[u8]], sizes: fn(u32) -> Option<usize>) -> (Decoded, Tables, Decoder, Vec<String>) {
    let root = tempfile::tempdir().expect("a folder");
    let folder = root.path().join("process");
    let mut writer = ProcessWriter::create(&folder).expect("a process folder");
    let name = |api: u32, callback: u32| {
        let name = match (api, callback) {
            (kind::DRIVER, 307) => "cuLaunchKernel",
            (kind::DRIVER, 243) => "cuMemAlloc_v2",
            (kind::DRIVER, 304) => "cuCtxGetCurrent",
            (kind::RUNTIME, 211) => "cudaLaunchKernel_v7000",
            (kind::RUNTIME, 20) => "cudaMalloc_v3020",
            (kind::RUNTIME, 17) => "cudaGetDevice_v3020",
            _ => return None,
        };
        Some(name.to_owned())
    };
    let mut decoder = Decoder::new(RecordSizes::ask(sizes), Box::new(name));
    let mut all = Decoded::default();
    for buffer in buffers {
        // SAFETY: pointers in the buffers are null or of texts that the callers keep.
        let decoded = unsafe { decoder.decode(buffer, &mut writer) };
        all.records += decoded.records;
        all.without_times += decoded.without_times;
        all.unfinished += decoded.unfinished;
        all.folded += decoded.folded;
        all.unknown += decoded.unknown;
        all.unread_bytes += decoded.unread_bytes;
    }
    writer.close().expect("the disk takes it");
    let mut recording = Recording::open(root.path()).expect("a recording");
    let names = (0..recording.names.len())
        .map(|id| {
            recording
                .names
                .get(gputrace_trace::NameId::new(id as u32))
                .to_owned()
        })
        .collect();
    let tables = recording.processes.remove(0).tables;
    (all, tables, decoder, names)
}

fn call_names(tables: &Tables, names: &[String]) -> Vec<String> {
    let name = |id: &gputrace_trace::NameId| names[id.number() as usize].clone();
    tables.api_calls.name.iter().map(name).collect()
}

#[test]
fn inner_calls_are_folded_and_others_stay() {
    let mut buffer = Buffer::default();
    // A runtime launch with its driver launch inside, under one correlation id.
    buffer.call(kind::DRIVER, 307, (110, 180), 7, 50);
    buffer.call(kind::RUNTIME, 211, (100, 200), 7, 50);
    // Triton's: no runtime call encloses it, though one of another thread does in time.
    buffer.call(kind::DRIVER, 307, (210, 280), 7, 51);
    buffer.call(kind::RUNTIME, 211, (200, 300), 8, 52);
    // An allocation inside an allocation, each with an id of its own.
    buffer.call(kind::DRIVER, 243, (310, 380), 7, 54);
    buffer.call(kind::RUNTIME, 20, (300, 400), 7, 53);
    // A launch inside a runtime call with an id of its own: its kernel may carry that, so it stays.
    buffer.call(kind::DRIVER, 307, (410, 480), 7, 56);
    buffer.call(kind::RUNTIME, 211, (400, 500), 7, 55);
    // The outer one first, as no order is promised.
    buffer.call(kind::RUNTIME, 211, (600, 700), 7, 57);
    buffer.call(kind::DRIVER, 307, (610, 680), 7, 57);
    // Queries of either.
    buffer.call(kind::DRIVER, 304, (800, 801), 7, 58);
    buffer.call(kind::RUNTIME, 17, (802, 803), 7, 59);
    let (decoded, tables, ..) = decode(&[&buffer.0], newest);
    assert_eq!((decoded.records, decoded.folded), (12, 3));
    let mut ids = tables.api_calls.correlation.clone();
    ids.sort_unstable();
    assert_eq!(ids, [50, 51, 52, 53, 55, 56, 57]);
}

#[test]
fn many_driver_calls_without_a_runtime_all_stay() {
    let mut buffer = Buffer::default();
    for call in 0..1000 {
        buffer.call(
            kind::DRIVER,
            307,
            (100 + call * 10, 105 + call * 10),
            call % 3,
            call,
        );
    }
    let (decoded, tables, _, names) = decode(&[&buffer.0, &buffer.0], newest);
    assert_eq!((decoded.folded, tables.api_calls.start_ns.len()), (0, 2000));
    assert!(
        call_names(&tables, &names)
            .iter()
            .all(|name| name == "cuLaunchKernel")
    );
}

fn kernel(buffer: &mut Buffer, bytes: usize, name: &CString, times: (u64, u64), correlation: u64) {
    buffer.record(
        kind::CONCURRENT_KERNEL,
        bytes,
        &[
            (offset_of!(Kernel, registers), 64, 2),
            (offset_of!(Kernel, start), times.0, 8),
            (offset_of!(Kernel, end), times.1, 8),
            (offset_of!(Kernel, device), 1, 4),
            (offset_of!(Kernel, context), 2, 4),
            (offset_of!(Kernel, stream), 7, 4),
            (offset_of!(Kernel, local_per_thread), 16, 4),
            (offset_of!(Kernel, correlation), correlation, 4),
            (offset_of!(Kernel, name), name.as_ptr() as u64, 8),
            (offset_of!(Kernel, launch_type), 1, 1),
            (offset_of!(Kernel, shared_executed), 65_536, 4),
            (offset_of!(Kernel, cluster), 2, 4),
            (offset_of!(Kernel, cluster) + 4, 1, 4),
            (offset_of!(Kernel, cluster) + 8, 1, 4),
        ],
    );
}

#[test]
fn what_has_no_whole_times_is_kept_apart() {
    let name = CString::new("saxpy").expect("no zero in it");
    for sizes in [newest as fn(u32) -> Option<usize>, oldest] {
        let bytes = sizes(kind::CONCURRENT_KERNEL).expect("known");
        let mut buffer = Buffer::default();
        kernel(&mut buffer, bytes, &name, (5000, 6000), 1);
        kernel(&mut buffer, bytes, &name, (7000, 0), 2);
        kernel(&mut buffer, bytes, &name, (0, 0), 3);
        // Out of order.
        kernel(&mut buffer, bytes, &name, (1000, 1500), 4);
        let copy = [
            (offset_of!(Memcpy, start), 9000, 8),
            (offset_of!(Memcpy, bytes), 4096, 8),
            (offset_of!(Memcpy, correlation), 5, 4),
        ];
        buffer.record(kind::MEMCPY, 112, &copy);
        buffer.record(99, 32, &[]);
        buffer.record(99, 32, &[]);
        let (decoded, tables, mut decoder, names) = decode(&[&buffer.0], sizes);
        assert_eq!(
            decoded,
            Decoded {
                records: 7,
                without_times: 1,
                unfinished: 2,
                unknown: 2,
                ..Decoded::default()
            }
        );
        assert_eq!(decoder.take_unknown_kinds(), [(99, 2)]);
        assert_eq!(decoder.take_unknown_kinds(), []);
        let kernels = &tables.kernels;
        assert_eq!(kernels.start_ns, [TimeNs(5000), TimeNs(1000)]);
        assert_eq!(
            (kernels.shared_executed_bytes[0], kernels.local_bytes[0]),
            (65_536, 16)
        );
        assert_eq!((kernels.launch_type[0], kernels.cluster_x[0]), (1, Some(2)));
        let untimed = &tables.untimed_operations;
        assert_eq!(untimed.start_ns, [Some(TimeNs(7000)), None, Some(TimeNs(9000))]);
        assert_eq!(untimed.kind, [10, 10, 1]);
        assert_eq!(untimed.correlation, [2, 3, 5]);
        assert_eq!(untimed.bytes, [None, None, Some(4096)]);
        let named = untimed.name[0].map(|id| names[id.number() as usize].as_str());
        assert_eq!((named, untimed.name[2]), (Some("saxpy"), None));
        assert_eq!(tables.copies.start_ns, []);
    }
}

#[test]
fn what_older_records_do_not_reach_is_unknown_and_not_nought() {
    for (sizes, is_new) in [(newest as fn(u32) -> Option<usize>, true), (oldest, false)] {
        let size = |asked| sizes(asked).expect("known");
        let mut buffer = Buffer::default();
        let times = [(16, 200, 8), (8, 100, 8)];
        let with = |more: &[(usize, u64, usize)]| [&times[..], more].concat();
        buffer.record(
            kind::SYNCHRONIZATION,
            size(kind::SYNCHRONIZATION),
            &with(&[
                (offset_of!(Synchronization, wait), 2, 4),
                (offset_of!(Synchronization, stream), 9, 4),
                (offset_of!(Synchronization, event), 11, 4),
                (offset_of!(Synchronization, event_synchronization), 77, 8),
            ]),
        );
        buffer.record(
            kind::CUDA_EVENT,
            size(kind::CUDA_EVENT),
            &[
                (offset_of!(EventRecord, correlation), 34, 4),
                (offset_of!(EventRecord, context), 1, 4),
                (offset_of!(EventRecord, stream), 7, 4),
                (offset_of!(EventRecord, event), 11, 4),
                (offset_of!(EventRecord, device), 3, 4),
                (offset_of!(EventRecord, event_synchronization), 77, 8),
            ],
        );
        buffer.record(
            kind::OVERHEAD,
            size(kind::OVERHEAD),
            &[
                (offset_of!(Overhead, overhead), 5 << 16, 4),
                (offset_of!(Overhead, object_kind), 2, 4),
                (offset_of!(Overhead, object) + 4, 4711, 4),
                (offset_of!(Overhead, start), 100, 8),
                (offset_of!(Overhead, end), 150, 8),
                (offset_of!(Overhead, correlation), 33, 4),
            ],
        );
        buffer.record(
            kind::GRAPH_TRACE,
            size(kind::GRAPH_TRACE),
            &with(&[
                (offset_of!(GraphTrace, graph), 3, 4),
                (offset_of!(GraphTrace, end_device), 1, 4),
            ]),
        );
        let path = CString::new("/home/x/.nv/ComputeCache").expect("no zero in it");
        buffer.record(
            kind::JIT,
            size(kind::JIT),
            &[
                (offset_of!(Jit, operation), 3, 4),
                (offset_of!(Jit, start), 100, 8),
                (offset_of!(Jit, end), 5100, 8),
                (offset_of!(Jit, cache_path), path.as_ptr() as u64, 8),
                (offset_of!(Jit, thread), 4711, 4),
            ],
        );
        buffer.record(
            kind::MODULE,
            24,
            &[
                (offset_of!(Module, id), 5, 4),
                (offset_of!(Module, cubin_bytes), 12_345, 4),
            ],
        );
        let library = CString::new("libtorch_cuda.so").expect("no zero in it");
        buffer.record(
            kind::MEMORY2,
            size(kind::MEMORY2),
            &[
                (offset_of!(Memory, operation), 1, 4),
                (offset_of!(Memory, memory_kind), 3, 4),
                (offset_of!(Memory, address), 0x7000, 8),
                (offset_of!(Memory, bytes), 1 << 20, 8),
                (offset_of!(Memory, time), 900, 8),
                (offset_of!(Memory, stream), u64::from(u32::MAX), 4),
                (offset_of!(Memory, pool_type), 1, 4),
                (offset_of!(Memory, pool_address), 0x9000, 8),
                (offset_of!(Memory, pool_bytes_or_process), 32 << 20, 8),
                (offset_of!(Memory, pool_used_bytes), 1 << 20, 8),
                (offset_of!(Memory, source), library.as_ptr() as u64, 8),
            ],
        );
        buffer.record(
            kind::MEMORY_POOL,
            size(kind::MEMORY_POOL),
            &[
                (offset_of!(MemoryPool, operation), 3, 4),
                (offset_of!(MemoryPool, least_bytes_kept), 100, 8),
                (offset_of!(MemoryPool, bytes), 32 << 20, 8),
                (offset_of!(MemoryPool, is_managed), 1, 1),
            ],
        );
        let (decoded, tables, _, names) = decode(&[&buffer.0], sizes);
        assert_eq!(
            (decoded.records, decoded.unknown, decoded.unread_bytes),
            (8, 0, 0)
        );
        let text = |id: Option<gputrace_trace::NameId>| id.map(|id| names[id.number() as usize].as_str());
        let only_new = |value| is_new.then_some(value);

        let synchronizations = &tables.synchronizations;
        assert_eq!(
            (synchronizations.stream[0], synchronizations.event[0]),
            (Some(9), Some(11))
        );
        assert_eq!(synchronizations.event_synchronization[0], is_new.then_some(77));
        assert_eq!(synchronizations.result[0], only_new(0));
        let recorded = &tables.event_records;
        assert_eq!((recorded.correlation[0], recorded.context[0]), (34, 1));
        assert_eq!((recorded.stream[0], recorded.event[0]), (7, 11));
        assert_eq!(recorded.device[0], only_new(3));
        assert_eq!(recorded.event_synchronization[0], is_new.then_some(77));
        assert_eq!(tables.overheads.thread[0], Some(4711));
        assert_eq!(tables.overheads.correlation[0], only_new(33));
        assert_eq!(tables.graph_launches.end_device[0], only_new(1));
        assert_eq!(tables.compilations.duration_ns[0].0, 5000);
        assert_eq!(
            text(tables.compilations.cache_path[0]),
            Some("/home/x/.nv/ComputeCache")
        );
        assert_eq!(tables.compilations.thread[0], only_new(4711));
        assert_eq!((tables.modules.module[0], tables.modules.bytes[0]), (5, 12_345));
        assert_eq!(
            text(tables.memory.source[0]),
            is_new.then_some("libtorch_cuda.so")
        );
        assert_eq!(
            (tables.memory.stream[0], tables.memory.pool_bytes[0]),
            (None, Some(32 << 20))
        );
        assert_eq!(tables.memory_pools.least_bytes_kept[0], Some(100));
        assert_eq!(tables.memory_pools.is_managed[0], is_new.then_some(1));
    }
}

#[test]
fn recordings_of_events_without_a_number_have_none() {
    for (number, expected) in [
        (0, None),
        (u64::from(u32::MAX), None),
        (u64::MAX, None),
        (5, Some(5)),
    ] {
        // 12.8's record.
        let sizes = |asked| (asked == kind::CUDA_EVENT).then_some(56);
        let mut buffer = Buffer::default();
        let member = (offset_of!(EventRecord, event_synchronization), number, 8);
        buffer.record(kind::CUDA_EVENT, 56, &[member]);
        let (_, tables, ..) = decode(&[&buffer.0], sizes);
        assert_eq!(tables.event_records.event_synchronization, [expected]);
        assert_eq!(tables.event_records.device, [Some(0)]);
    }
}

#[test]
fn a_kind_of_unknown_length_ends_the_buffer() {
    let mut buffer = Buffer::default();
    buffer.call(kind::DRIVER, 307, (1, 2), 7, 1);
    buffer.record(120, 64, &[]);
    let (decoded, tables, ..) = decode(&[&buffer.0], newest);
    assert_eq!((decoded.records, decoded.unread_bytes), (1, 64));
    assert_eq!(tables.api_calls.start_ns.len(), 1);
}
