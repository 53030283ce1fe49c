//! A recording with rows in every table.

use gputrace_trace::manifest::ProcessHeader;
use gputrace_trace::tables::*;
use gputrace_trace::{DurationNs, Process, Recording, Table, TimeNs};

use super::{at, long, two_ranks};

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
    // A tree of functions, of which some are not known, and a caller that is not there.
    for (frame, parent, function, object, address) in [
        (0, None, None, None, 0),
        (1, Some(0), Some(one), Some(other), 0x1040),
        (2, Some(1), None, Some(other), u64::MAX),
        (u32::MAX, Some(77), None, None, 5),
    ] {
        tables.stack_frames.push(StackFrame {
            frame,
            parent,
            function,
            object,
            address,
            build_id: object,
        });
    }
    for (time_ns, frame) in [(at(1), 2), (at(80), u32::MAX), (at(81), 9)] {
        tables.launch_stacks.push(LaunchStack {
            time_ns,
            thread: 4242,
            correlation: 3,
            frame,
        });
    }
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
        thread: Some(5),
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
