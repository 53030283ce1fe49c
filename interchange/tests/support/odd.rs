//! Recordings with whatever is known to trouble a reader, and what is known of them.

#![allow(dead_code, reason = "each test file uses a part")]

use std::collections::BTreeMap;
use std::io::{self, Write};

use gputrace_interchange::export::files::Files;
use gputrace_trace::derived::{DerivedProcess, DerivedStep};
use gputrace_trace::manifest::Device;
use gputrace_trace::measures::Measures;
use gputrace_trace::tables::{ApiCall, Kernel, Marker, MemoryEvent, Operator, PythonFrame};
use gputrace_trace::{Derived, DurationNs, Recording, Table, TimeNs};

use crate::support::{EPOCH_NS, two_ranks};

/// Files in memory, by name.
#[derive(Default)]
pub struct InMemory(pub BTreeMap<String, Vec<u8>>);

impl Files for InMemory {
    fn file(
        &mut self,
        name: &str,
        write: &mut dyn FnMut(&mut (dyn Write + Send)) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut bytes = Vec::new();
        write(&mut bytes)?;
        assert!(self.0.insert(name.to_owned(), bytes).is_none(), "{name} twice");
        Ok(())
    }
}

pub fn at(us: i64) -> TimeNs {
    TimeNs(EPOCH_NS + us * 1000)
}

pub fn step(number: u64, from_us: i64, to_us: i64, detected: bool) -> DerivedStep {
    DerivedStep {
        device: 0,
        number: Some(number),
        name: format!("step {number}"),
        start_ns: at(from_us).0,
        end_ns: at(to_us).0,
        host_ns: None,
        detected,
        outlier: false,
        measures: Measures {
            busy_ns: 1,
            ..Measures::default()
        },
    }
}

pub fn with_steps(steps: &[(u64, i64, i64)], detected: bool) -> Derived {
    let steps: Vec<DerivedStep> = steps
        .iter()
        .map(|(number, from, to)| step(*number, *from, *to, detected))
        .collect();
    let process = DerivedProcess {
        steps,
        ..DerivedProcess::default()
    };
    Derived {
        processes: vec![process.clone(), process],
        ..Derived::default()
    }
}

/// Names, numbers and times that lose torch-tb-profiler a worker, or come out of no program, in one recording.
pub fn odd() -> (Recording, Derived) {
    let mut recording = two_ranks();
    let long = "template<".repeat(12_000);
    let texts: Vec<_> = [
        "ProfilerStep#x",
        "nccl:all_reduce",
        "gloo:reduce",
        "[memory]",
        "]\"quotes\"\n\u{1}\u{7f}\u{2028}😀",
        &long,
        "",
        "Record Window End",
        "epoch",
    ]
    .iter()
    .map(|text| recording.names.intern(text))
    .collect();
    for process in &mut recording.processes {
        process.header.host = "10.0.0.7".to_owned();
        process.header.pid = 1;
        process.header.devices.push(Device {
            index: 70,
            multiprocessors: Some(0),
            ..Device::default()
        });
        let tables = &mut process.tables;
        for (place, name) in (0i64..).zip(&texts) {
            for duration in [Some(DurationNs(3_000)), None] {
                tables.markers.push(Marker {
                    start_ns: at(30 + 10 * place),
                    duration_ns: duration,
                    name: *name,
                    thread: u32::MAX,
                    ..Marker::default()
                });
            }
            tables.operators.push(Operator {
                start_ns: at(31 + 10 * place),
                duration_ns: DurationNs(1_000),
                name: *name,
                thread: 4242,
                // Texts that are no lists, and a number that no operator has.
                input_dims: (place % 2 == 0).then_some(*name),
                sequence: u32::try_from(place).ok(),
                ..Operator::default()
            });
            tables.python_frames.push(PythonFrame {
                start_ns: at(29 + 10 * place),
                duration_ns: DurationNs(20_000),
                name: *name,
                thread: 4242,
                number: None,
            });
            tables.kernels.push(Kernel {
                // Before its launch, and in the end of the one before.
                start_ns: at(600 + 10 * place),
                duration_ns: DurationNs(12_000),
                name: *name,
                device: 70,
                stream: u32::MAX,
                context: u32::MAX,
                correlation: 1000 + place as u32,
                ..Kernel::default()
            });
            tables.api_calls.push(ApiCall {
                start_ns: at(605 + 10 * place),
                duration_ns: DurationNs(1_000),
                name: *name,
                kind: 5,
                thread: u32::MAX,
                correlation: 1000 + place as u32,
                ..ApiCall::default()
            });
        }
        // Operations and calls without a correlation must not find each other.
        tables.kernels.push(Kernel {
            start_ns: at(720),
            ..Kernel::default()
        });
        tables.api_calls.push(ApiCall {
            start_ns: at(710),
            duration_ns: DurationNs(-5),
            ..ApiCall::default()
        });
        for depth in 0..1500 {
            tables.markers.push(Marker {
                start_ns: at(800 + depth),
                duration_ns: Some(DurationNs((4000 - 2 * depth) * 1000)),
                name: texts[8],
                thread: 77,
                ..Marker::default()
            });
        }
        tables.memory.push(MemoryEvent {
            time_ns: at(90),
            operation: 1,
            memory_kind: 3,
            device: 5,
            bytes: 1 << 40,
            ..MemoryEvent::default()
        });
    }
    // The second has nothing, and ends before the first one's operations do.
    let derived = with_steps(&[(0, 0, 17), (1, 17, 18), (2, 18, 700), (3, 700, 701)], false);
    (recording, derived)
}
