//! Whole timelines: a small job that is known to the nanosecond.

mod by_hand;
pub(crate) mod early;
mod growing;
mod odd;

use std::sync::Arc;

use gputrace_analyzer::{Options, analyze_in_detail};
use gputrace_trace::manifest::Device;
use gputrace_trace::tables::{
    ApiCall, Collective, Communicator, Copy, ExternalCorrelation, Kernel, Marker, Synchronization, Tables,
};
use gputrace_trace::{DurationNs, Interner, Process, Recording, Table as _, TimeNs};

use super::*;

pub(crate) const STARTED: i64 = 1_000_000;

fn at(start: i64, end: i64) -> (TimeNs, DurationNs) {
    (TimeNs(STARTED + start), DurationNs(end - start))
}

fn kernel(
    tables: &mut Tables,
    name: gputrace_trace::NameId,
    stream: u32,
    correlation: u32,
    start: i64,
    end: i64,
) {
    let (start_ns, duration_ns) = at(start, end);
    tables.kernels.push(Kernel {
        start_ns,
        duration_ns,
        name,
        stream,
        correlation,
        context: 1,
        grid_x: 8,
        grid_y: 2,
        grid_z: 1,
        block_x: 128,
        block_y: 1,
        block_z: 1,
        registers: 32,
        ..Kernel::default()
    });
}

fn call(
    tables: &mut Tables,
    name: gputrace_trace::NameId,
    thread: u32,
    correlation: u32,
    start: i64,
    end: i64,
) {
    let (start_ns, duration_ns) = at(start, end);
    tables.api_calls.push(ApiCall {
        start_ns,
        duration_ns,
        name,
        kind: 5,
        callback: 211,
        thread,
        correlation,
        result: 0,
    });
}

fn range(tables: &mut Tables, name: gputrace_trace::NameId, thread: u32, start: i64, end: i64) {
    let (start_ns, duration_ns) = at(start, end);
    tables.markers.push(Marker {
        start_ns,
        duration_ns: Some(duration_ns),
        name,
        thread,
        color: Some(0xff12_3456),
        ..Marker::default()
    });
}

/// One rank: ranges "step 0" (0 to 900) with "forward" (100 to 400) on thread 11; calls on it; on stream 7 a kernel (200 to
/// 300), a copy (300 to 400), after 200 ns of nothing a kernel (600 to 700); on stream 8 an AllReduce, 650 + `late` to 900.
fn rank(names: &mut Interner, rank: u32, late: i64) -> Process {
    let mut process = Process {
        folder: format!("rank{rank}"),
        ..Process::default()
    };
    process.header.rank = Some(rank);
    process.header.world_size = Some(2);
    process.header.host = "here".to_owned();
    process.header.pid = 100 + rank;
    process.header.devices = vec![Device {
        index: 0,
        name: "NVIDIA A100-SXM4-40GB".to_owned(),
        compute_capability: Some((8, 0)),
        multiprocessors: Some(108),
        uuid: Some(format!("{rank:032x}")),
        ..Device::default()
    }];
    let tables = &mut process.tables;
    let (launch, copy, wait) = (
        names.intern("cudaLaunchKernel"),
        names.intern("cudaMemcpyAsync"),
        names.intern("cudaStreamSynchronize"),
    );
    let (gemm, relu) = (names.intern("_ZN3net4gemmEPf"), names.intern("relu"));
    let all_reduce =
        names.intern("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)");
    range(tables, names.intern("step 0"), 11, 0, 900);
    range(tables, names.intern("forward"), 11, 100, 400);
    call(tables, launch, 11, 1, 110, 120);
    call(tables, copy, 11, 2, 130, 150);
    call(tables, launch, 11, 3, 550, 560);
    call(tables, launch, 11, 4, 565, 580);
    call(tables, wait, 11, 5, 590, 910);
    kernel(tables, gemm, 7, 1, 200, 300);
    kernel(tables, relu, 7, 3, 600, 700);
    kernel(tables, all_reduce, 8, 4, 650 + late, 900);
    let (start_ns, duration_ns) = at(300, 400);
    tables.copies.push(Copy {
        start_ns,
        duration_ns,
        stream: 7,
        context: 1,
        correlation: 2,
        copy_kind: 1,
        source_kind: 2,
        destination_kind: 3,
        flags: 1,
        bytes: 1500,
        ..Copy::default()
    });
    let (start_ns, duration_ns) = at(591, 909);
    tables.synchronizations.push(Synchronization {
        start_ns,
        duration_ns,
        kind: 3,
        stream: Some(8),
        correlation: 5,
        ..Synchronization::default()
    });
    tables.external_correlations.push(ExternalCorrelation {
        correlation: 4,
        kind: 0,
        id: 77,
    });
    let (start_ns, duration_ns) = at(562, 584);
    tables.collectives.push(Collective {
        start_ns,
        duration_ns,
        communicator: 0xabc,
        rank,
        sequence: Some(0),
        function: names.intern("AllReduce"),
        datatype: names.intern("ncclFloat32"),
        count: 250,
        bytes: 1000,
        plan: Some(77),
        thread: 11,
        algorithm: Some(names.intern("RING")),
        ..Collective::default()
    });
    tables.communicators.push(Communicator {
        communicator: 0xabc,
        name: Some(names.intern("world")),
        rank,
        ranks: 2,
        nodes: 1,
        ..Communicator::default()
    });
    process
}

fn recording() -> Recording {
    let mut recording = Recording::default();
    let mut names = std::mem::take(&mut recording.names);
    recording.processes = vec![rank(&mut names, 0, 0), rank(&mut names, 1, 90)];
    recording.names = names;
    recording
}

fn timelines(recording: Recording) -> (Timeline, Timeline) {
    let recording = Arc::new(recording);
    let plain = Timeline::build(&recording);
    let (analysis, details) = analyze_in_detail(&recording, &Options::default());
    let analysis = Arc::new(analysis);
    let whole = plain.with_analysis(&analysis, &details);
    // Packed it says the same, and has the same recording.
    let packed = plain.with(&analysis, &details, true);
    assert_eq!(packed.rows(), whole.rows());
    for row in whole.rows() {
        for index in 0..row.slices {
            assert_eq!(packed.slice(row.row, index), whole.slice(row.row, index));
        }
    }
    let unpacked = packed.recording();
    assert_eq!(unpacked.processes, recording.processes);
    assert!(
        Arc::ptr_eq(&unpacked, &packed.recording()),
        "it is made once for all who have it"
    );
    assert_eq!(packed.outline().processes.len(), recording.processes.len());
    assert!(
        packed
            .outline()
            .processes
            .iter()
            .all(|process| process.tables.kernels.start_ns.is_empty())
    );
    (plain, whole)
}

fn row_of(timeline: &Timeline, key: &str) -> u32 {
    let row = timeline.rows().iter().find(|row| row.key == key);
    row.unwrap_or_else(|| panic!("no row {key}")).row
}

/// A picture's words, and its floats behind the first 16 bytes.
fn decoded(bytes: &[u8]) -> (Vec<u32>, Vec<f32>) {
    let chunks = bytes
        .chunks_exact(4)
        .map(|chunk| <[u8; 4]>::try_from(chunk).unwrap());
    let words: Vec<u32> = chunks.clone().map(u32::from_le_bytes).collect();
    (words, chunks.map(f32::from_le_bytes).skip(4).collect())
}
