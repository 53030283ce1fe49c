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

pub mod everything;
pub mod same;
