//! What is exported: an analysis of the recording of two ranks, and that recording with whatever is not usual in it.

use gputrace_trace::derived::{
    Derived, DerivedCollective, DerivedGap, DerivedPart, DerivedPiece, DerivedProcess, DerivedStep,
    LaunchedBy,
};
use gputrace_trace::measures::Measures;
use gputrace_trace::tables::*;
use gputrace_trace::{DurationNs, Recording, Table, TimeNs};

use crate::support::{EPOCH_NS, two_ranks};

/// What an analysis would say of [`two_ranks`]: the collective waits for 20 us on the first rank.
pub fn derived() -> Derived {
    let part = |rank: usize| DerivedPart {
        collective: 0,
        kernel: Some(3),
        row: Some(0),
        device: Some(0),
        wait_ns: Some([20_000, 0][rank]),
        transfer_ns: Some(120_000),
        exposed_ns: Some([100_000, 80_000][rank]),
    };
    let step = |number: i64| DerivedStep {
        device: 0,
        number: Some(number as u64),
        name: format!("step {number}"),
        start_ns: EPOCH_NS + number * 200_000,
        end_ns: EPOCH_NS + (number + 1) * 200_000,
        host_ns: None,
        detected: false,
        outlier: false,
        measures: Measures {
            span_ns: 3,
            busy_ns: 1,
            idle_ns: 2,
            idle_ratio: Some(2.0 / 3.0),
            compute_ns: 3,
            communication_ns: 4,
            communication_hidden_ns: 5,
            communication_exposed_ns: 6,
            copy_ns: 7,
            memset_ns: 8,
            ..Measures::default()
        },
    };
    Derived {
        processes: (0..2)
            .map(|rank| DerivedProcess {
                steps: vec![step(0), step(1)],
                communicates: vec![false, false, false, true],
                launched_by: LaunchedBy::default(),
                parts: vec![part(rank)],
                gaps: vec![DerivedGap {
                    device: 0,
                    start_ns: EPOCH_NS + 60_000,
                    end_ns: EPOCH_NS + 90_001,
                    cause: "launch",
                }],
            })
            .collect(),
        collectives: vec![DerivedCollective {
            id: u64::MAX - 3,
            name: "AllReduce".to_owned(),
            communicator: "0xabc".to_owned(),
            communicator_name: None,
            sequence: Some(5),
            ranks: vec![0, 1],
            communicator_ranks: Some(2),
            bytes: Some(4000),
            dtype: "ncclFloat32".to_owned(),
            algbw: Some(2.5),
            busbw: Some(f64::NAN),
            skew_ns: Some(20_000),
            last_rank: Some(1),
            warm_up: false,
        }],
        // From the second rank to the first; the last piece, which reaches into the one before it, is cut.
        critical_path: [
            (1, 0, 60_000, "kernel", "gemm"),
            (1, 60_000, 60_500, "latency", ""),
            (0, 60_500, 200_000, "transfer", "AllReduce"),
            (0, 190_000, 210_000, "unexplained", ""),
        ]
        .map(|(process, start, end, what, name)| DerivedPiece {
            process,
            rank: Some(process),
            start_ns: EPOCH_NS + start,
            end_ns: EPOCH_NS + end,
            what,
            name: name.into(),
        })
        .to_vec(),
    }
}

/// Whatever a recording may hold that is not usual.
pub fn odd() -> Recording {
    let mut recording = two_ranks();
    recording.hosts = vec![recording.processes[1].clone()];
    recording.hosts[0].folder = "host".to_owned();
    recording.hosts[0].tables = Tables {
        counters: recording.hosts[0].tables.counters.clone(),
        ..Tables::default()
    };
    let long = "std::vector<".repeat(9000) + &">".repeat(9000);
    let texts = [
        "",
        "\"quoted\" and\nnew line\ttab",
        "emoji \u{1f600} and ümlaut",
        "control \u{1}\u{7f}\u{1b}[31m",
        "nul \0 inside",
        "{\"json\": [1, 2]}",
        "a.b[0].c",
        &long,
    ];
    let names: Vec<_> = texts.iter().map(|text| recording.names.intern(text)).collect();
    let odd_call = recording.names.intern("odd");
    // One process id twice on one host, and one that is not known.
    recording.processes[1].header.host = "node0".to_owned();
    let mut third = recording.processes[0].clone();
    third.header.pid = 0;
    third.header.rank = None;
    third.folder = "a folder with a \"name\"\n".to_owned();
    recording.processes.push(third);
    let tables = &mut recording.processes[0].tables;
    for (place, name) in (0i64..).zip(&names) {
        for (start, duration, stream) in [
            (1000 + place * 10, 10, 7),
            // Of no length, within, beside and at the ends of others.
            (1000 + place * 10, 0, 7),
            (1005 + place * 10, 0, 7),
            (1010 + place * 10, 0, u32::MAX),
            (1010 + place * 10, -77, u32::MAX),
            // Overlapping by a nanosecond, and all of one another.
            (5000 + place * 99, 100, 8),
            (7000 + place, 1000, 9),
            // Long before the epoch.
            (-EPOCH_NS - 5000 + place, 1, 10),
        ] {
            tables.kernels.push(Kernel {
                start_ns: TimeNs(EPOCH_NS + start),
                duration_ns: DurationNs(duration),
                name: *name,
                stream,
                context: u32::MAX,
                device: 3,
                correlation: 0,
                graph_node: Some(u64::MAX),
                grid_x: -1,
                ..Kernel::default()
            });
        }
        for thread in [0, u32::MAX, 4242] {
            tables.markers.push(Marker {
                start_ns: TimeNs(EPOCH_NS + 9000 + place),
                duration_ns: Some(DurationNs(5)),
                name: *name,
                thread,
                payload_integer: Some(u64::MAX),
                ..Marker::default()
            });
            tables.markers.push(Marker {
                start_ns: TimeNs(EPOCH_NS + 9000 + place),
                duration_ns: None,
                name: *name,
                thread,
                kind: 2,
                ..Marker::default()
            });
        }
        for value in [f64::INFINITY, f64::NEG_INFINITY, f64::MIN_POSITIVE, -1.0] {
            tables.counters.push(Counter {
                time_ns: TimeNs(EPOCH_NS - place),
                name: *name,
                value,
                device: (place % 2 == 0).then_some(9),
                pid: (place % 3 == 0).then_some(1),
                thread: (place % 5 == 0).then_some(2),
            });
        }
    }
    // A call of no length that launches two, one of them in its own moment.
    for start in [0, 50] {
        tables.kernels.push(Kernel {
            start_ns: TimeNs(EPOCH_NS + 20_000_000 + start),
            duration_ns: DurationNs(10),
            name: names[1],
            stream: 11,
            correlation: 99,
            ..Kernel::default()
        });
    }
    tables.api_calls.push(ApiCall {
        start_ns: TimeNs(EPOCH_NS + 20_000_000),
        name: odd_call,
        kind: 5,
        thread: 7,
        correlation: 99,
        ..ApiCall::default()
    });
    for (start_ns, device, thread) in [
        (None, Some(3), None),
        (Some(TimeNs(EPOCH_NS)), None, Some(4242)),
        (Some(TimeNs(EPOCH_NS)), None, None),
    ] {
        tables.untimed_operations.push(UntimedOperation {
            kind: 10,
            start_ns,
            device,
            thread,
            name: Some(names[3]),
            ..UntimedOperation::default()
        });
    }
    tables.windows.push(Window {
        start_ns: TimeNs(EPOCH_NS),
        duration_ns: DurationNs(1_000_000),
        what: names[1],
        ..Window::default()
    });
    tables.graph_launches.push(GraphLaunch {
        start_ns: TimeNs(EPOCH_NS + 30_000_000),
        duration_ns: DurationNs(1000),
        graph: 5,
        stream: 7,
        correlation: 11,
        ..GraphLaunch::default()
    });
    tables.memory_pools.push(MemoryPoolEvent {
        time_ns: TimeNs(EPOCH_NS),
        operation: 3,
        ..MemoryPoolEvent::default()
    });
    recording
}
