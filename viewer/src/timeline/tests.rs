//! Whole timelines, by hand and against looking at every row of the tables.

use std::collections::BTreeMap;
use std::sync::Arc;

use gputrace_analyzer::{Options, analyze_in_detail};
use gputrace_trace::manifest::Device;
use gputrace_trace::tables::{
    ApiCall, Collective, Communicator, Copy, Counter, ExternalCorrelation, Kernel, Marker, MemoryEvent,
    Memset, Synchronization, Tables, UntimedOperation, Window,
};
use gputrace_trace::{DurationNs, Interner, Process, Recording, Table as _, TimeNs};
use proptest::prelude::*;
use regex::Regex;

use super::*;

const STARTED: i64 = 1_000_000;

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
    let plain = Timeline::build(recording.clone());
    let (analysis, details) = analyze_in_detail(&recording, &Options::default());
    let analysis = Arc::new(analysis);
    let whole = plain.with_analysis(analysis.clone(), details.clone());
    // Packed it says the same, and has the same recording.
    let packed = plain.with(analysis, &details, true);
    assert_eq!(packed.rows(), whole.rows());
    for row in whole.rows() {
        for index in 0..row.slices {
            assert_eq!(packed.slice(row.row, index), whole.slice(row.row, index));
        }
    }
    assert_eq!(packed.recording().processes, recording.processes);
    assert_eq!(packed.outline().processes.len(), recording.processes.len());
    assert!(packed.outline().processes.iter().all(|process| process.tables.kernels.start_ns.is_empty()));
    (plain, whole)
}

fn row_of(timeline: &Timeline, key: &str) -> u32 {
    let row = timeline.rows().iter().find(|row| row.key == key);
    row.unwrap_or_else(|| panic!("no row {key}")).row
}

#[test]
fn rows_are_told_by_rank_stream_thread_and_communicator() {
    let (plain, whole) = timelines(recording());
    let keys = |timeline: &Timeline| -> Vec<(String, String, u32)> {
        let rows = timeline.rows().iter();
        rows.map(|row| (row.key.clone(), row.path.join(" > "), row.slices))
            .collect()
    };
    let of_rank = |rank: u32| {
        [
            ("gpu0/stream7/0", "GPU 0 > stream 7", 3),
            ("gpu0/stream8/0", "GPU 0 > stream 8", 1),
            ("nvtx/11/0", "NVTX > thread 11", 1),
            ("nvtx/11/1", "NVTX > thread 11", 1),
            ("thread/11/0", "thread 11", 5),
            ("thread/11/1", "thread 11", 2),
        ]
        .map(|(key, path, slices)| {
            (
                format!("r{rank}.p0/{key}"),
                format!("rank {rank} > {path}"),
                slices,
            )
        })
    };
    let mut expected: Vec<(String, String, u32)> = of_rank(0).into_iter().chain(of_rank(1)).collect();
    assert_eq!(keys(&plain), expected);
    let communicator = |rank: u32, slices| {
        let key = format!("communicator/0x0000000000000abc/r{rank}.p0/gpu0/0");
        (
            key,
            format!("communicators > world · 2 ranks > rank {rank}"),
            slices,
        )
    };
    expected.splice(0..0, [communicator(0, 2), communicator(1, 1)]);
    assert_eq!(keys(&whole), expected);
    assert!((0..).zip(whole.rows()).all(|(place, row)| row.row == place));
    assert_eq!((whole.origin_ns(), whole.begin(), whole.end()), (STARTED, 0, 910));
    assert_eq!(plain.events(), 26);
    let bands: Vec<(Option<u32>, u32)> = whole
        .bands()
        .iter()
        .map(|band| (band.rank, band.process))
        .collect();
    assert_eq!(bands, [(Some(0), 0), (Some(1), 1)]);
}

/// A picture's words and floats behind its first 16 bytes.
fn decoded(bytes: &[u8]) -> (Vec<u32>, Vec<f32>) {
    let chunks = bytes
        .chunks_exact(4)
        .map(|chunk| <[u8; 4]>::try_from(chunk).unwrap());
    let words: Vec<u32> = chunks.clone().map(u32::from_le_bytes).collect();
    (words, chunks.map(f32::from_le_bytes).skip(4).collect())
}

#[test]
fn tiles_are_columns_of_the_rows_that_were_asked_for() {
    let (_, whole) = timelines(recording());
    let (stream, missing) = (row_of(&whole, "r0.p0/gpu0/stream7/0"), 999);
    let communicator = row_of(&whole, "communicator/0x0000000000000abc/r0.p0/gpu0/0");
    let (words, _) = decoded(&whole.tile(0, 0, &[missing, stream, communicator]));
    assert_eq!(words[..8], [0x454C_4954, 1, 0, 2, stream, communicator, 3, 2]);
    let floats: Vec<f32> = words[8..].iter().map(|word| f32::from_bits(*word)).collect();
    assert_eq!(floats[..6], [200.0, 300.0, 600.0, 300.0, 400.0, 700.0]);
    let kinds: Vec<u32> = words[17..20].iter().map(|meta| meta & 0xff_ffff).collect();
    assert_eq!(kinds, [255 << 8, 255 << 8 | 2, 255 << 8]);
    assert_eq!(words[20..23], [0, 1, 2]);
    // The wait until the last rank comes, and the transfer.
    assert_eq!(floats[15..19], [650.0, 740.0, 740.0, 900.0]);
    let kinds: Vec<u32> = words[29..31].iter().map(|meta| meta & 255).collect();
    assert_eq!(kinds, [13, 9]);
    let names = whole.names(&[words[14], words[15], words[27], words[28], u32::MAX]);
    let texts: Vec<&str> = names.names.values().map(String::as_str).collect();
    assert_eq!(
        texts,
        [
            "gemm",
            "AllReduce",
            "AllReduce: wait",
            "Memcpy HtoD (Pinned -> Device)"
        ]
    );
    assert!(names.colors.is_empty());
    let ranges = whole.slices(row_of(&whole, "r0.p0/nvtx/11/0")).unwrap();
    assert_eq!(
        whole.names(&[ranges.name(0)]).colors.values().next().unwrap(),
        "#123456"
    );
}

#[test]
fn overviews_are_shares_of_time() {
    let (plain, whole) = timelines(recording());
    for timeline in [&plain, &whole] {
        let (words, floats) = decoded(&timeline.overview(0, 1000, 2));
        assert_eq!(words[..4], [0x5245_564F, 1, 2, 2]);
        // Rank 0, halves of 500 ns: compute 200 to 300, copy 300 to 400; compute 600 to 650, both to 700, then alone.
        assert_eq!(floats[..8], [0.2, 0.1, 0.0, 0.1, 0.0, 0.4, 0.2, 0.0]);
        // Rank 1 communicates from 740 on.
        assert_eq!(floats[8..], [0.2, 0.2, 0.0, 0.0, 0.0, 0.32, 0.2, 0.0]);
    }
    let (_, floats) = decoded(&whole.overview(250, 250, 1));
    assert_eq!(floats[..4], [1.0, 0.0, 0.0, 0.0]);
    assert_eq!(decoded(&whole.overview(i64::MIN, i64::MAX, 1)).1.len(), 8);
}

fn field<'a>(slice: &'a SliceDetails, label: &str) -> &'a str {
    let field = slice.fields.iter().find(|field| field.label == label);
    &field
        .unwrap_or_else(|| panic!("no {label} in {:?}", slice.fields))
        .value
}

fn links(slice: &SliceDetails) -> Vec<(&str, &str, &str, i64)> {
    let links = slice.links.iter();
    links
        .map(|link| {
            (
                link.link_type,
                link.label.as_str(),
                link.reference.name.as_str(),
                link.reference.start,
            )
        })
        .collect()
}

#[test]
fn a_kernel_is_known_with_its_launch_ranges_and_the_gap_before_it() {
    let (plain, whole) = timelines(recording());
    let row = row_of(&whole, "r0.p0/gpu0/stream7/0");
    let gemm = whole.slice(row, 0).unwrap();
    assert_eq!(gemm.full_name, "net::gemm(float*)");
    assert_eq!(
        (gemm.reference.name.as_str(), gemm.reference.kind, gemm.end),
        ("gemm", 0, 300)
    );
    assert_eq!(field(&gemm, "Grid"), "8 × 2 × 1 (16 blocks)");
    assert_eq!(field(&gemm, "Block"), "128 × 1 × 1 (128 threads)");
    assert_eq!(field(&gemm, "Occupancy, theoretical"), "100.0");
    assert_eq!(field(&gemm, "From its call to its start"), "90 ns");
    assert_eq!(field(&gemm, "From its call's end to its start"), "80 ns");
    assert_eq!(gemm.nvtx, ["step 0", "forward"]);
    assert_eq!(links(&gemm), [("launch", "launched by", "cudaLaunchKernel", 110)]);
    assert_eq!((gemm.before, gemm.collective), (None, None));
    // Idle from 400 to 600: the call that ends it began at 550, so the host was late for most of it.
    let relu = whole.slice(row, 2).unwrap();
    let before = relu.before.unwrap();
    assert_eq!(
        (before.from, before.to, before.cause),
        (400, 600, Some("host_late"))
    );
    let text =
        "The GPU was idle for 200 ns: the host launched late. Thread 11 was in step 0 for 150 ns of it.";
    assert_eq!(before.text, text);
    assert_eq!(relu.nvtx, ["step 0"]);
    // Without an analysis the gap is known, and its cause is not.
    let early = plain.slice(row_of(&plain, "r0.p0/gpu0/stream7/0"), 2).unwrap();
    let before = early.before.unwrap();
    assert_eq!(
        (before.from, before.cause, before.text.as_str()),
        (400, None, "The GPU was idle for 200 ns.")
    );
    let copy = whole.slice(row, 1).unwrap();
    assert_eq!(
        (field(&copy, "Bytes"), field(&copy, "Bandwidth")),
        ("1.50 kB (1\u{202f}500 B)", "15.0")
    );
    assert_eq!(whole.slice(row, 3), None);
    assert_eq!(whole.slice(999, 0), None);
}

#[test]
fn calls_and_synchronizations_lead_to_what_they_are_about() {
    let (_, whole) = timelines(recording());
    let row = row_of(&whole, "r1.p0/thread/11/0");
    let copy = whole.slice(row, 1).unwrap();
    assert_eq!(
        links(&copy),
        [("operation", "launched", "Memcpy HtoD (Pinned -> Device)", 300)]
    );
    let wait = whole.slice(row, 4).unwrap();
    let kernel = "ncclDevKernel_AllReduce_Sum_f32_RING_LL";
    assert_eq!(
        links(&wait),
        [
            ("synchronization", "stream synchronize", "stream synchronize", 591),
            ("synchronization", "waited for", kernel, 740)
        ]
    );
    let inner = whole.slice(row_of(&whole, "r1.p0/thread/11/1"), 1).unwrap();
    assert_eq!(
        links(&inner),
        [
            ("synchronization", "called by", "cudaStreamSynchronize", 590),
            ("synchronization", "waited for", kernel, 740)
        ]
    );
}

#[test]
fn a_collective_is_known_with_its_peers() {
    let (_, whole) = timelines(recording());
    let row = row_of(&whole, "r0.p0/gpu0/stream8/0");
    let kernel = whole.slice(row, 0).unwrap();
    assert_eq!(kernel.reference.kind, 1);
    assert_eq!(
        (
            field(&kernel, "Waited for other ranks"),
            field(&kernel, "Transfer")
        ),
        ("90 ns", "160 ns")
    );
    assert_eq!(
        (field(&kernel, "Bytes"), field(&kernel, "Algorithm")),
        ("1.00 kB (1\u{202f}000 B)", "RING")
    );
    let collective = kernel.collective.as_ref().unwrap();
    assert_eq!(
        (collective.collective.start_ns, collective.collective.skew_ns),
        (Some(650), Some(90))
    );
    let told: Vec<(Option<u32>, Option<i64>, Option<i64>, Option<i64>, Option<u32>)> = collective
        .participants
        .iter()
        .map(|part| {
            (
                part.rank,
                part.arrival,
                part.wait,
                part.transfer,
                part.reference.as_ref().map(|at| at.row),
            )
        })
        .collect();
    let other = row_of(&whole, "r1.p0/gpu0/stream8/0");
    assert_eq!(
        told,
        [
            (Some(0), Some(650), Some(90), Some(160), Some(row)),
            (Some(1), Some(740), Some(0), Some(160), Some(other))
        ]
    );
    let name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL";
    assert_eq!(
        links(&kernel),
        [
            ("launch", "launched by", "cudaLaunchKernel", 565),
            ("collective", "on its communicator", "AllReduce", 740),
            ("launch", "enqueued by", "AllReduce", 562),
            ("collective", "rank 1", name, 740),
        ]
    );
    // The stream had nothing before it, and the device was busy.
    assert_eq!(kernel.before, None);
    let enqueued = whole.slice_at("r0.p0/thread/11/0", 562);
    assert_eq!(enqueued.as_ref().map(|at| at.name.as_str()), Some("AllReduce"));
    let line = row_of(&whole, "communicator/0x0000000000000abc/r0.p0/gpu0/0");
    let wait = whole.slice(line, 0).unwrap();
    assert_eq!(
        (wait.full_name.as_str(), wait.reference.duration),
        ("AllReduce: wait", 90)
    );
    assert_eq!(wait.nvtx, ["step 0"]);
    let all = whole.collectives(&CollectiveQuery {
        limit: 10,
        last_rank: Some(1),
        ..CollectiveQuery::default()
    });
    assert_eq!(
        (
            all.total,
            all.collectives.len(),
            all.collectives[0].participants.len()
        ),
        (1, 1, 2)
    );
    let none = CollectiveQuery {
        limit: 10,
        last_rank: Some(0),
        ..CollectiveQuery::default()
    };
    assert_eq!(whole.collectives(&none).total, 0);
}

#[test]
fn slices_are_found_by_place_name_and_neighbourhood() {
    let (_, whole) = timelines(recording());
    let row = row_of(&whole, "r0.p0/gpu0/stream7/0");
    let start = |reference: Option<Ref>| reference.map(|reference| reference.start);
    assert_eq!(start(whole.hit(row, 250, 0)), Some(200));
    assert_eq!(start(whole.hit(row, 300, 0)), Some(300));
    assert_eq!(start(whole.hit(row, 410, 0)), None);
    assert_eq!(start(whole.hit(row, 410, 11)), Some(300));
    assert_eq!(start(whole.hit(row, 590, 11)), Some(600));
    assert_eq!(start(whole.hit(row, i64::MAX, 11)), None);
    assert_eq!(start(whole.neighbour(row, 1, Direction::Next, false)), Some(600));
    assert_eq!(
        start(whole.neighbour(row, 1, Direction::Previous, false)),
        Some(200)
    );
    assert_eq!(start(whole.neighbour(row, 0, Direction::Previous, false)), None);
    assert_eq!(start(whole.neighbour(row, 0, Direction::Next, true)), None);
    let calls = row_of(&whole, "r0.p0/thread/11/0");
    assert_eq!(start(whole.neighbour(calls, 0, Direction::Next, true)), Some(550));
    assert_eq!(start(whole.slice_at("r0.p0/gpu0/stream7/0", 300)), Some(300));
    assert_eq!(whole.slice_at("r0.p0/gpu0/stream7/0", 301), None);
    assert_eq!(whole.slice_at("nowhere", 300), None);
    let found = whole.search(&Regex::new("(?i)GEMM").unwrap(), 1, 0);
    assert_eq!((found.total, found.names, found.truncated), (2, 1, true));
    assert_eq!((found.hits[0].row, found.hits[0].start), (row, 200));
    // 200 of 910 ns in 512ths is the 112th.
    assert_eq!(
        (
            found.ticks.len(),
            found.ticks[112],
            found.ticks.iter().sum::<u32>()
        ),
        (512, 2, 2)
    );
    let rest = whole.search(&Regex::new("gemm").unwrap(), 5, 1);
    assert_eq!((rest.hits.len(), rest.truncated), (1, false));
    assert_eq!(rest.hits[0].row, row_of(&whole, "r1.p0/gpu0/stream7/0"));
    assert_eq!(whole.search(&Regex::new("nothing").unwrap(), 5, 0).total, 0);
}

#[test]
fn an_area_sums_up_what_lies_in_it() {
    let (_, whole) = timelines(recording());
    let row = row_of(&whole, "r0.p0/gpu0/stream7/0");
    let area = whole.area(250, 650, Some(&[row, 999]));
    assert_eq!(
        area.rows,
        [AreaRow {
            row,
            count: 3,
            busy: 50 + 100 + 50,
            idle: 200
        }]
    );
    let names: Vec<(&str, u64, i64)> = area
        .names
        .iter()
        .map(|name| (name.name.as_str(), name.count, name.total))
        .collect();
    assert_eq!(names.len(), 3);
    assert!(names.contains(&("gemm", 1, 100)));
    assert_eq!((area.count, area.total, area.more), (3, 300, 0));
    assert_eq!(whole.area(0, 1000, None).count, 26 + 3);
    assert_eq!(whole.area(500, 400, None).count, 0);
}

#[test]
fn counters_memory_and_what_was_not_recorded_are_there() {
    let mut recording = recording();
    let names = &mut recording.names;
    let (power, active, taken) = (
        names.intern("power_watts"),
        names.intern("active"),
        names.intern("taken by another profiler"),
    );
    for (time, operation, bytes) in [(100, 1, 50), (200, 1, 30), (300, 2, 50)] {
        recording.processes[0].tables.memory.push(MemoryEvent {
            time_ns: TimeNs(STARTED + time),
            operation,
            memory_kind: 3,
            address: bytes,
            bytes,
            ..MemoryEvent::default()
        });
    }
    for (start, end, what) in [(0, 300, active), (500, 2000, active), (350, 360, taken)] {
        let (start_ns, duration_ns) = at(start, end);
        recording.processes[1].tables.windows.push(Window {
            start_ns,
            duration_ns,
            what,
            ..Window::default()
        });
    }
    let mut host = Process::default();
    host.header.host = "here".to_owned();
    host.header.devices = vec![Device {
        index: 5,
        uuid: Some(format!("{:032x}", 1)),
        ..Device::default()
    }];
    recording.processes[1]
        .tables
        .contexts
        .push(gputrace_trace::tables::Context {
            context: 1,
            device: 0,
            null_stream: 7,
        });
    for (time, device, value) in [
        (-50, Some(5), 300.0),
        (50, Some(5), 400.0),
        (10, Some(6), 1.0),
        (10, None, 2.0),
    ] {
        host.tables.counters.push(Counter {
            time_ns: TimeNs(STARTED + time),
            name: power,
            device,
            value,
            ..Counter::default()
        });
    }
    recording.hosts.push(host);
    let (plain, _) = timelines(recording);
    assert_eq!((plain.origin_ns(), plain.begin()), (STARTED - 50, 50));
    let told: Vec<(&str, Option<&str>, Option<f64>)> = plain
        .rows()
        .iter()
        .filter(|row| row.row_type == "counter")
        .map(|row| (row.key.as_str(), row.unit.as_deref(), row.max))
        .collect();
    assert_eq!(
        told,
        [
            ("r0.p0/gpu0/memory", Some("B"), Some(80.0)),
            ("r1.p0/gpu0/sampled/power_watts", Some("W"), Some(400.0)),
            ("host/here/gpu6/power_watts", Some("W"), Some(1.0)),
            ("host/here/power_watts", Some("W"), Some(2.0)),
        ]
    );
    let row = row_of(&plain, "r1.p0/gpu0/sampled/power_watts");
    let (words, floats) = decoded(&plain.counters(0, 0, &[row, 0]));
    assert_eq!(words[..6], [0x5254_4E43, 1, 0, 1, row, 2]);
    assert_eq!(
        floats[2..],
        [0.0, 100.0, 100.0, 200.0, 300.0, 400.0, 300.0, 400.0, 300.0, 400.0]
    );
    let gaps: Vec<(u32, i64, i64, &str)> = plain
        .gaps()
        .iter()
        .map(|gap| (gap.process, gap.from, gap.to, gap.what.as_str()))
        .collect();
    assert_eq!(
        gaps,
        [
            (1, 350, 550, "not recorded"),
            (1, 400, 410, "taken by another profiler")
        ]
    );
}

#[test]
fn what_had_not_ended_lasts_until_the_last_moment() {
    let mut recording = recording();
    recording.processes[0].header.ended_ns = Some(STARTED + 2000);
    let name = recording.names.intern("stuck");
    recording.processes[0]
        .tables
        .untimed_operations
        .push(UntimedOperation {
            kind: 10,
            start_ns: Some(TimeNs(STARTED + 650)),
            name: Some(name),
            device: Some(0),
            stream: Some(7),
            ..UntimedOperation::default()
        });
    let (plain, _) = timelines(recording);
    let second = row_of(&plain, "r0.p0/gpu0/stream7/1");
    let slice = plain.slice(second, 0).unwrap();
    assert_eq!(
        (slice.unfinished, slice.reference.start, slice.end),
        (true, 650, 2000)
    );
    assert_eq!(slice.full_name, "stuck");
    // The analysis does not count it, so neither does the overview.
    let (_, floats) = decoded(&plain.overview(1000, 2000, 1));
    assert_eq!(floats[..4], [0.0; 4]);
}

#[test]
fn hostile_and_empty_recordings_are_harmless() {
    let (plain, whole) = timelines(Recording::default());
    assert_eq!((plain.begin(), plain.end(), whole.rows().len()), (0, 0, 0));
    assert_eq!(whole.tile(0, 0, &[0]).len(), 16);
    assert_eq!(
        whole.search(&Regex::new("").unwrap(), 1, 0),
        Found {
            ticks: vec![0; 512],
            ..Found::default()
        }
    );
    let mut recording = Recording::default();
    let hostile = format!("<script>alert(1)</script>{}", "x".repeat(100_000));
    let name = recording.names.intern(&hostile);
    let mut process = Process::default();
    for (start, duration) in [
        (0, 10),
        (5, -3),
        (i64::MAX - 5, 10),
        (i64::MIN, 5),
        (50, i64::MAX),
        (-(1 << 61), 1),
        (1 << 60, 0),
    ] {
        process.tables.kernels.push(Kernel {
            start_ns: TimeNs(start),
            duration_ns: DurationNs(duration),
            name,
            correlation: u32::MAX,
            ..Kernel::default()
        });
        process.tables.memsets.push(Memset {
            start_ns: TimeNs(start),
            duration_ns: DurationNs(duration),
            ..Memset::default()
        });
    }
    recording.processes.push(process);
    let (_, whole) = timelines(recording);
    let slices: u32 = whole.rows().iter().map(|row| row.slices).sum();
    assert_eq!(slices, 6);
    for level in 0..=MOST_LEVEL {
        for index in [0, 1, 1 << 20, u64::MAX] {
            let bytes = whole.tile(level, index, &[0, 1]);
            assert!(bytes.len() <= 16 + 16 + 6 * 20);
        }
    }
    let found = whole.search(&Regex::new("script").unwrap(), 10, 0);
    assert_eq!(found.total, 3);
    assert!(found.hits.iter().all(|hit| hit.name.chars().count() <= 200));
    for row in 0..2 {
        for index in 0..4 {
            drop(whole.slice(row, index));
            drop(whole.hit(row, i64::MIN, i64::MAX));
        }
    }
    drop(whole.overview(0, i64::MAX, 4096));
    drop(whole.area(i64::MIN, i64::MAX, None));
}

proptest! {
    /// Every row of the tables is on a row of the timeline, once, with its time; whatever the order in the files.
    #[test]
    fn no_slice_is_lost(
        kernels in proptest::collection::vec((0i64..5000, 0i64..60, 0u32..3, 0u32..2), 0..300),
        calls in proptest::collection::vec((0i64..5000, 0i64..60, 0u32..3), 0..300),
        ranges in proptest::collection::vec((0i64..5000, 0i64..600, 0u32..2), 0..60),
    ) {
        let mut recording = Recording::default();
        let name = recording.names.intern("anything");
        let mut process = Process::default();
        for (row, (start, duration, stream, device)) in (1..).zip(&kernels) {
            kernel(&mut process.tables, name, *stream, row, *start, start + duration);
            process.tables.kernels.device[row as usize - 1] = *device;
        }
        for (row, (start, duration, thread)) in (1..).zip(&calls) {
            call(&mut process.tables, name, *thread, row, *start, start + duration);
        }
        for (start, duration, thread) in &ranges {
            range(&mut process.tables, name, *thread, *start, start + duration);
        }
        recording.processes.push(process);
        let (plain, whole) = timelines(recording);
        let mut seen: BTreeMap<(Vec<String>, i64, i64), i64> = BTreeMap::new();
        for row in plain.rows() {
            let slices = plain.slices(row.row).unwrap();
            for place in 0..slices.len() {
                *seen.entry((row.path.clone(), slices.start(place) - STARTED, slices.duration(place))).or_default() += 1;
                let details = whole.slice(row.row, place as u32).unwrap();
                prop_assert_eq!(details.reference.start, slices.start(place) - plain.origin_ns());
            }
        }
        let mut expect = |path: Vec<String>, start: i64, duration: i64| {
            *seen.entry((path, start, duration)).or_default() -= 1;
        };
        let path = |of: &[&str]| of.iter().map(|part| (*part).to_owned()).collect::<Vec<String>>();
        for (start, duration, stream, device) in &kernels {
            expect(path(&["rank 0", &format!("GPU {device}"), &format!("stream {stream}")]), *start, *duration);
        }
        for (start, duration, thread) in &calls {
            expect(path(&["rank 0", &format!("thread {thread}")]), *start, *duration);
        }
        for (start, duration, thread) in &ranges {
            expect(path(&["rank 0", "NVTX", &format!("thread {thread}")]), *start, *duration);
        }
        prop_assert!(seen.values().all(|count| *count == 0), "{:?}", seen);
        // A launch leads to its kernel, and the kernel to its launch.
        for (correlation, (start, ..)) in (1..).zip(&kernels) {
            let call = whole.call_of(0, correlation);
            prop_assert_eq!(call, calls.get(correlation as usize - 1).map(|_| correlation as usize - 1));
            let found = whole.find(0, Table::Kernel, correlation as usize - 1).unwrap();
            prop_assert_eq!(found.start, start + STARTED - plain.origin_ns());
        }
    }
}
