//! A recording of two ranks, small enough to count by hand.

#![allow(dead_code, reason = "each test file uses a part")]

use gputrace_trace::alignment::{Alignment, Bounds, Course, HostClock, Knot};
use gputrace_trace::manifest::{Device, Manifest, ProcessHeader};
use gputrace_trace::tables::*;
use gputrace_trace::{DurationNs, Loss, Process, Recording, Table, TimeNs};

/// Where the recording's times begin: no whole second, and too large for a double's nanoseconds.
pub const EPOCH_NS: i64 = 1_790_000_000_000_000_123;

pub const NCCL_KERNEL: &str =
    "_Z39ncclDevKernel_AllReduce_Sum_f32_RING_LL24ncclDevKernelArgsStorageILm4096EE";

fn at(us: i64) -> TimeNs {
    TimeNs(EPOCH_NS + us * 1000)
}

fn long(us: i64) -> DurationNs {
    DurationNs(us * 1000)
}

/// Two ranks on two hosts, whose stamps were moved to the first one's clock: the second's was 5 ms ahead and gained 20 ppm.
pub fn two_hosts() -> Recording {
    let mut recording = two_ranks();
    for (number, process) in (0u32..).zip(&mut recording.processes) {
        process.header.host = format!("node-{number}");
        process.header.clock = Some(number);
    }
    let knot = |local_ns: i64| Knot {
        local_ns: EPOCH_NS + local_ns,
        offset_ns: 5_000_000 + local_ns / 50_000,
        half_width_ns: 900,
        jump: false,
    };
    let course = Course {
        knots: vec![knot(-1_000_000_000), knot(3_000_000_000)],
        wander_ns: 70,
        bounds: vec![Bounds(Vec::new())],
    };
    let second = HostClock {
        host: "node-1".to_owned(),
        course,
        from_ns: EPOCH_NS,
        to_ns: EPOCH_NS + 2_000_000_000,
        collectives: 40,
        contradicted: 1,
        steps: vec![(EPOCH_NS, 3_000)],
        ..HostClock::default()
    };
    let first = HostClock {
        host: "node-0".to_owned(),
        collectives: 40,
        ..HostClock::default()
    };
    recording.align(Alignment {
        source: "estimated".to_owned(),
        clocks: vec![first, second],
    });
    recording
}

/// Both ranks have the same process id (two hosts) and the same correlation numbers.
///
/// On each rank's GPU, in microseconds: compute `add` on stream 7 at [100, 200), [200, 300) and, overlapping the
/// latter, [250, 320); the collective on stream 20 at [280, 420) (rank 0) or [280, 400) (rank 1); a copy on stream 21
/// at [20, 60), a memset on stream 7 at [90, 95).
pub fn two_ranks() -> Recording {
    let mut recording = Recording {
        manifest: Manifest {
            device: "sim".to_owned(),
            command: vec!["train".to_owned()],
            ..Manifest::new()
        },
        losses: vec![Loss {
            what: "CUPTI records".to_owned(),
            count: Some(3),
            affects: "kernels".to_owned(),
        }],
        ..Recording::default()
    };
    for rank in 0..2u32 {
        let names = &mut recording.names;
        let (add, nccl) = (names.intern("_Z3addPfi"), names.intern(NCCL_KERNEL));
        let mut tables = Tables::default();
        tables.contexts.push(Context {
            context: 1,
            device: 0,
            null_stream: 7,
        });
        let nccl_end = if rank == 0 { 420 } else { 400 };
        // Out of order, as CUPTI's buffers may come.
        for (start, end, stream, name, correlation) in [
            (200, 300, 7, add, 12),
            (100, 200, 7, add, 11),
            (250, 320, 7, add, 13),
            (280, nccl_end, 20, nccl, 14),
        ] {
            tables.kernels.push(Kernel {
                start_ns: at(start),
                duration_ns: long(end - start),
                name,
                context: 1,
                stream,
                correlation,
                grid_x: 264,
                grid_y: 1,
                grid_z: 1,
                block_x: 256,
                block_y: 1,
                block_z: 1,
                registers: 32,
                static_shared_bytes: 16,
                dynamic_shared_bytes: 1024,
                ..Kernel::default()
            });
        }
        for (start, end, name, kind, correlation) in [
            (5, 9, "cudaMemcpyAsync_v3020", 5, 9),
            (10, 14, "cuMemsetD32Async", 4, 10),
            (15, 19, "cuLaunchKernel", 4, 11),
            (20, 24, "cudaLaunchKernel_v7000", 5, 12),
            // The driver's call within the runtime's has the same number.
            (21, 23, "cuLaunchKernel", 4, 12),
            // The clocks disagree: the launch of 14 begins after its kernel.
            (281, 284, "cuLaunchKernelEx", 4, 14),
            (500, 510, "cudaDeviceSynchronize_v3020", 5, 15),
        ] {
            tables.api_calls.push(ApiCall {
                start_ns: at(start),
                duration_ns: long(end - start),
                name: names.intern(name),
                kind,
                callback: 307,
                thread: 4242,
                correlation,
                result: u32::from(correlation == 15) * 700,
            });
        }
        tables.copies.push(Copy {
            start_ns: at(20),
            duration_ns: long(40),
            context: 1,
            stream: 21,
            correlation: 9,
            copy_kind: 1,
            source_kind: 2,
            destination_kind: 3,
            bytes: 1_000_000,
            ..Copy::default()
        });
        tables.memsets.push(Memset {
            start_ns: TimeNs(at(90).0 + 1),
            duration_ns: DurationNs(4999),
            context: 1,
            stream: 7,
            correlation: 10,
            bytes: 4096,
            memory_kind: 3,
            ..Memset::default()
        });
        tables.communicators.push(Communicator {
            created_ns: at(0),
            communicator: 0xabc,
            rank,
            ranks: 2,
            nodes: 2,
            ..Communicator::default()
        });
        tables.collectives.push(Collective {
            start_ns: at(281),
            duration_ns: long(1),
            communicator: 0xabc,
            rank,
            sequence: Some(5),
            function: names.intern("AllReduce"),
            datatype: names.intern("ncclFloat32"),
            count: 1000,
            bytes: 4000,
            plan: Some(77),
            thread: 4242,
            channels: 2,
            ..Collective::default()
        });
        tables.external_correlations.push(ExternalCorrelation {
            correlation: 14,
            kind: 4,
            id: 77,
        });
        tables.synchronizations.push(Synchronization {
            start_ns: at(501),
            duration_ns: long(8),
            kind: 4,
            context: Some(1),
            correlation: 15,
            ..Synchronization::default()
        });
        tables.overheads.push(Overhead {
            start_ns: at(30),
            duration_ns: DurationNs(-5),
            kind: 0x1_0000,
            thread: Some(4242),
            ..Overhead::default()
        });
        for (start, duration, name, kind) in [
            (1, Some(long(520)), "step 0", 0),
            (12, Some(long(10)), "a \"start/end\" range \u{1}😀", 1),
            (16, None, "mark", 2),
        ] {
            tables.markers.push(Marker {
                start_ns: at(start),
                duration_ns: duration,
                name: names.intern(name),
                thread: 4242,
                kind,
                payload: Some(f64::NAN),
                ..Marker::default()
            });
        }
        for (time, operation, bytes) in [(2, 1, 4096), (400, 2, 4096)] {
            tables.memory.push(MemoryEvent {
                time_ns: at(time),
                operation,
                memory_kind: 3,
                address: 0x7f00,
                bytes,
                context: 1,
                correlation: 3,
                ..MemoryEvent::default()
            });
        }
        for value in [412.5, f64::NAN] {
            tables.counters.push(Counter {
                time_ns: at(50),
                name: names.intern("power_watts"),
                device: Some(0),
                value,
                ..Counter::default()
            });
        }
        recording.processes.push(Process {
            folder: format!("rank{rank}"),
            header: ProcessHeader {
                host: format!("node{rank}"),
                pid: 4242,
                command: vec!["/usr/bin/train".to_owned()],
                rank: Some(rank),
                world_size: Some(2),
                devices: vec![Device {
                    index: 0,
                    name: "Simulated H200".to_owned(),
                    compute_capability: Some((9, 0)),
                    memory_bytes: Some(1 << 30),
                    multiprocessors: Some(132),
                    ..Device::default()
                }],
                ..ProcessHeader::new()
            },
            tables,
        });
    }
    recording
}

/// Events a rank of [`two_ranks`]: kernels, calls, copy, memset, collective, wait, overhead, markers, memory, counters.
pub const EVENTS_A_RANK: u64 = 4 + 7 + 1 + 1 + 1 + 1 + 1 + 3 + 2 + 2;

/// The recording of one of its ranks alone.
pub fn rank_alone(recording: &Recording, rank: usize) -> Recording {
    let mut alone = recording.clone();
    alone.processes = vec![recording.processes[rank].clone()];
    alone
}

pub mod same;

/// [`two_ranks`] with rows in every table, with something in every column, and a host's samples.
pub fn everything() -> Recording {
    let mut recording = two_ranks();
    let names = &mut recording.names;
    let [one, other, empty] = ["one", "the other \"name\" 😀", ""].map(|name| names.intern(name));
    let lists = ["[[2, 3], []]", "[\"float\", \"Scalar\"]"].map(|list| names.intern(list));
    let convolution = names.intern("aten::convolution");
    let ambiguous = ["cudaLaunchKernel", "add(float*, int)"].map(|name| names.intern(name));
    let mut host = Process {
        folder: "host-node0".to_owned(),
        header: ProcessHeader {
            role: "host".to_owned(),
            host: "node0".to_owned(),
            pid: 99,
            ..ProcessHeader::new()
        },
        tables: Tables::default(),
    };
    for (device, pid, thread, value) in [
        (Some(1), None, None, 1e300),
        (None, Some(7), None, 0.1),
        (None, Some(7), Some(8), -0.0),
        (None, None, Some(8), f64::INFINITY),
    ] {
        host.tables.counters.push(Counter {
            time_ns: at(3),
            name: one,
            device,
            value,
            pid,
            thread,
        });
    }
    recording.hosts.push(host);
    let tables = &mut recording.processes[0].tables;
    let kernel = Kernel {
        start_ns: at(600),
        duration_ns: DurationNs(-7),
        name: ambiguous[1],
        device: 1,
        context: 2,
        stream: u32::MAX,
        correlation: u32::MAX,
        grid_x: i32::MAX,
        grid_y: 1,
        grid_z: 65535,
        block_x: -1,
        block_y: 0,
        block_z: 1,
        registers: 255,
        static_shared_bytes: 7,
        dynamic_shared_bytes: 100_000,
        shared_executed_bytes: 9,
        local_bytes: 11,
        launch_type: 1,
        cluster_x: Some(2),
        cluster_y: Some(0),
        cluster_z: Some(1),
        graph: Some(4),
        graph_node: Some(1 << 40),
    };
    tables.kernels.push(kernel.clone());
    // Of the same time, and one without length in it.
    tables.kernels.push(kernel);
    tables.kernels.push(Kernel {
        start_ns: at(100),
        name: one,
        context: 1,
        stream: 7,
        ..Kernel::default()
    });
    tables.api_calls.push(ApiCall {
        start_ns: at(700),
        duration_ns: long(1),
        name: ambiguous[0],
        kind: 5,
        thread: 0,
        result: u32::MAX,
        ..ApiCall::default()
    });
    for (copy_kind, source_kind) in [(3, 1), (10, 3), (8, 200), (77, 0)] {
        tables.copies.push(Copy {
            start_ns: at(800),
            duration_ns: long(5),
            copy_kind,
            source_kind,
            destination_kind: 3,
            flags: 1,
            bytes: u64::from(u32::MAX) * 4,
            source_device: Some(0),
            destination_device: Some(3),
            graph: Some(9),
            graph_node: Some(10),
            ..Copy::default()
        });
    }
    tables.memsets.push(Memset {
        start_ns: at(810),
        value: 255,
        memory_kind: 99,
        flags: 3,
        graph: Some(9),
        graph_node: Some(11),
        ..Memset::default()
    });
    tables.graph_nodes.push(GraphNode {
        node: 1 << 40,
        plan: 78,
        original: Some(3),
    });
    tables.graph_launches.push(GraphLaunch {
        start_ns: at(820),
        duration_ns: long(10),
        graph: 4,
        context: 1,
        stream: 7,
        correlation: 12,
        end_device: Some(1),
        end_context: Some(2),
        ..GraphLaunch::default()
    });
    for start_ns in [None, Some(at(830))] {
        tables.untimed_operations.push(UntimedOperation {
            kind: 10,
            start_ns,
            name: Some(other),
            device: Some(0),
            stream: Some(7),
            correlation: 55,
            bytes: Some(u64::MAX),
            ..UntimedOperation::default()
        });
    }
    tables.collectives.push(Collective {
        start_ns: at(840),
        communicator: u64::MAX,
        function: other,
        datatype: empty,
        count: u64::MAX,
        bytes: 5,
        root: Some(-1),
        peer: Some(1),
        algorithm: Some(one),
        protocol: Some(other),
        channels: 255,
        warps: 16,
        thread: 4243,
        graph_captured: 1,
        reduction: Some(one),
        source: 3,
        stream: Some(u64::MAX),
        user_tag: Some(0),
        variant: Some(one),
        symmetric: 1,
        operation: Some(12),
        ..Collective::default()
    });
    for phase in [None, Some(one)] {
        tables.nccl_channels.push(NcclChannel {
            start_ns: at(850),
            duration_ns: long(3),
            operation: Some(12),
            communicator: 0xabc,
            rank: 1,
            channel: 2,
            phase,
            device_start_ns: u64::MAX,
            device_end_ns: Some(0),
        });
    }
    for step in [None, Some(0)] {
        tables.nccl_proxy.push(NcclProxyStep {
            start_ns: at(860),
            duration_ns: long(4),
            number: 5,
            parent: Some(12),
            thread: 4299,
            step,
            channel: Some(0),
            sends: Some(1),
            peer: Some(-1),
            steps: Some(2),
            bytes: Some(0),
            gpu_wait_ns: Some(DurationNs(-1)),
            peer_wait_ns: Some(DurationNs(0)),
            network_ns: Some(DurationNs(5)),
            flush_ns: None,
            ..NcclProxyStep::default()
        });
    }
    for (kind, event) in [(2, Some(3)), (99, None)] {
        tables.synchronizations.push(Synchronization {
            start_ns: at(870),
            duration_ns: long(1),
            kind,
            context: Some(1),
            stream: Some(u32::MAX),
            event,
            event_synchronization: Some(u64::MAX),
            result: Some(0),
            ..Synchronization::default()
        });
    }
    for (device, number) in [(Some(0), Some(u64::MAX)), (None, None)] {
        tables.event_records.push(EventRecord {
            correlation: u32::MAX,
            device,
            context: 1,
            stream: 9,
            event: 3,
            event_synchronization: number,
        });
    }
    tables.overheads.push(Overhead {
        start_ns: at(880),
        kind: 0x9_0000,
        object_kind: 2,
        device: Some(0),
        correlation: Some(0),
        ..Overhead::default()
    });
    tables.modules.push(Module {
        context: 1,
        module: 2,
        bytes: 3,
    });
    tables.compilations.push(Compilation {
        start_ns: at(890),
        duration_ns: long(2),
        entry: 1,
        operation: 3,
        unit: 5,
        cache_path: Some(other),
        thread: Some(4242),
        ..Compilation::default()
    });
    // Overlaps the ranges of its thread, and so is shown in another lane.
    for (kind, start, length) in [(0, 2, 600), (0, 2, 600), (1, 3, 1), (0, 100, 600)] {
        tables.markers.push(Marker {
            start_ns: at(start),
            duration_ns: Some(long(length)),
            name: one,
            domain: other,
            thread: 4242,
            kind,
            depth: 3,
            category: Some(0),
            color: Some(0xff00_ff00),
            payload: Some(0.5),
            payload_type: Some(3),
            payload_integer: Some(u64::MAX),
        });
    }
    tables.payload_fields.push(PayloadField {
        time_ns: at(2),
        thread: 4242,
        domain: other,
        range: one,
        schema: one,
        schema_id: 1,
        field: other,
        element: Some(0),
        integer: Some(5),
        number: Some(f64::NAN),
        text: Some(empty),
    });
    tables.object_names.push(ObjectName {
        time_ns: at(1),
        kind: 4,
        domain: empty,
        identifier: u64::MAX,
        resource_type: Some(1),
        cupti: Some(7),
        name: other,
    });
    tables.operators.push(Operator {
        start_ns: TimeNs(-5),
        duration_ns: long(1),
        name: other,
        thread: 4242,
        input_dims: Some(lists[0]),
        input_types: Some(lists[1]),
        input_values: None,
        sequence: Some(7),
        forward_thread: Some(1),
        number: Some(3),
    });
    tables.operators.push(Operator {
        start_ns: at(70),
        duration_ns: DurationNs(10),
        name: convolution,
        thread: 4242,
        input_dims: Some(lists[0]),
        input_types: None,
        input_values: Some(lists[1]),
        sequence: None,
        forward_thread: Some(0),
        number: Some(u32::MAX),
    });
    tables.python_frames.push(PythonFrame {
        start_ns: at(2),
        duration_ns: long(1),
        name: other,
        thread: 4242,
        number: Some(u32::MAX),
    });
    tables.memory.push(MemoryEvent {
        time_ns: at(900),
        operation: 7,
        memory_kind: 1,
        address: u64::MAX,
        bytes: 0,
        device: 1,
        context: 2,
        stream: Some(3),
        correlation: 4,
        name: Some(one),
        source: Some(other),
        pool_type: Some(1),
        pool_address: Some(2),
        pool_bytes: Some(3),
        pool_used_bytes: Some(4),
    });
    tables.memory_pools.push(MemoryPoolEvent {
        time_ns: at(901),
        operation: 1,
        pool_type: 1,
        address: 5,
        bytes: 6,
        least_bytes_kept: Some(0),
        is_managed: Some(1),
        ..MemoryPoolEvent::default()
    });
    tables.streams.push(Stream {
        context: 1,
        stream: 7,
        flag: 1,
        priority: -1,
    });
    tables.clocks.push(Clock {
        realtime_ns: at(0),
        monotonic_ns: i64::MIN,
        boottime_ns: i64::MAX,
        tsc: Some(u64::MAX),
    });
    tables.windows.push(Window {
        start_ns: at(0),
        duration_ns: long(1000),
        what: one,
        first_step: Some(0),
        repeat: None,
    });
    tables.losses.push(LossRow {
        time_ns: TimeNs(0),
        what: one,
        count: 1,
        affects: other,
    });
    recording
        .notes
        .push("a note\twith \\ and \"quotes\"".replace('\t', " "));
    recording.unaligned = Some("no time zero".to_owned());
    recording
}
