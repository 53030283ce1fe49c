//! Writing Chrome JSON, against serde_json writing the same events from trees that it is given.
//!
//! `cargo bench -p gputrace-interchange --bench chrome`, with `-- EVENTS` for another number than 200,000. Judged by CPU time.

use std::io::{self, Write};

use gputrace_interchange::export::chrome::export_chrome;
use gputrace_interchange::export::gzip::ParallelGzip;
use gputrace_trace::manifest::{Device, ProcessHeader};
use gputrace_trace::tables::{ApiCall, Copy, Kernel, Marker};
use gputrace_trace::time::process_cpu_ns;
use gputrace_trace::{Derived, DurationNs, Process, Recording, Table, TimeNs};

/// Repetitions; the fastest counts.
const TIMES: usize = 5;

/// Training as a process sees it: ranges around calls, each of which launches a kernel or, once in sixteen, a copy.
fn recording(events: usize) -> Recording {
    let mut recording = Recording::default();
    let kernels: Vec<_> = (0..40)
        .map(|number| {
            let name = format!(
                "_ZN2at6native29vectorized_elementwise_kernelILi{number}ENS0_11FillFunctorIfEEEEviT0_T1_"
            );
            recording.names.intern(&name)
        })
        .collect();
    let [launch, copy, range] =
        ["cudaLaunchKernel_v7000", "cudaMemcpyAsync_v3020", "layer"].map(|name| recording.names.intern(name));
    let mut process = Process {
        header: ProcessHeader {
            pid: 4711,
            rank: Some(0),
            world_size: Some(1),
            devices: vec![Device {
                name: "Simulated H200".to_owned(),
                compute_capability: Some((9, 0)),
                multiprocessors: Some(132),
                ..Device::default()
            }],
            ..ProcessHeader::new()
        },
        ..Process::default()
    };
    let tables = &mut process.tables;
    let mut now = 1_790_000_000_000_000_000i64;
    let mut correlation = 0;
    while tables.kernels.len() * 2 < events {
        let from = now;
        for place in 0..16usize {
            correlation += 1;
            now += 5_000 + i64::from(correlation % 700);
            let is_copy = place == 15;
            tables.api_calls.push(ApiCall {
                start_ns: TimeNs(now),
                duration_ns: DurationNs(4_321),
                name: if is_copy { copy } else { launch },
                kind: 5,
                callback: 211,
                thread: 4711,
                correlation,
                result: 0,
            });
            let (start_ns, duration_ns) = (TimeNs(now + 20_000), DurationNs(4_000 + place as i64));
            if is_copy {
                tables.copies.push(Copy {
                    start_ns,
                    duration_ns,
                    stream: 7,
                    correlation,
                    copy_kind: 1,
                    source_kind: 2,
                    destination_kind: 3,
                    bytes: 1 << 20,
                    ..Copy::default()
                });
            } else {
                tables.kernels.push(Kernel {
                    start_ns,
                    duration_ns,
                    name: kernels[(place * 7 + correlation as usize / 100) % kernels.len()],
                    stream: 7,
                    correlation,
                    grid_x: 64 * (1 + place as i32),
                    grid_y: 1,
                    grid_z: 1,
                    block_x: 256,
                    block_y: 1,
                    block_z: 1,
                    registers: 32,
                    dynamic_shared_bytes: 1024 * (place as i32 % 3),
                    ..Kernel::default()
                });
            }
        }
        tables.markers.push(Marker {
            start_ns: TimeNs(from),
            duration_ns: Some(DurationNs(now + 5_000 - from)),
            name: range,
            thread: 4711,
            ..Marker::default()
        });
    }
    recording.processes.push(process);
    recording
}

/// Counts and forgets.
#[derive(Default)]
struct Counter(u64);

impl Write for Counter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The least CPU seconds that `work` takes, and what it gives.
fn cpu_seconds<T>(mut work: impl FnMut() -> T) -> (f64, T) {
    let now = || process_cpu_ns(std::process::id()).expect("/proc") as f64 / 1e9;
    let mut least = f64::INFINITY;
    let mut result = None;
    for _ in 0..TIMES {
        let before = now();
        result = Some(work());
        least = least.min(now() - before);
    }
    (least, result.expect("at least one time"))
}

fn main() {
    let events = std::env::args().filter_map(|word| word.parse().ok()).next();
    let recording = recording(events.unwrap_or(200_000));
    let derived = Derived::default();
    let (ours, (summary, bytes)) = cpu_seconds(|| {
        let mut out = Counter::default();
        let summary = export_chrome(&recording, &derived, &mut out).expect("no disk");
        (summary, out.0)
    });
    let (with_gzip, packed) = cpu_seconds(|| {
        let mut out = Counter::default();
        let mut gzip = ParallelGzip::new(&mut out);
        export_chrome(&recording, &derived, &mut gzip).expect("no disk");
        gzip.finish().expect("no disk");
        out.0
    });
    let mut text = Vec::new();
    export_chrome(&recording, &derived, &mut text).expect("no disk");
    let file: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
    let (theirs, their_bytes) = cpu_seconds(|| {
        let mut out = Counter::default();
        serde_json::to_writer(io::BufWriter::with_capacity(1 << 18, &mut out), &file).expect("no disk");
        out.0
    });
    let rate = |bytes: u64, seconds: f64| bytes as f64 / seconds / 1e6;
    println!(
        "{} events and {} arrows, {:.0} bytes an event with its arrow",
        summary.events_out,
        summary.flows,
        bytes as f64 / summary.events_out as f64
    );
    println!(
        "chrome: {:.0} MB/s, {:.2} million events a CPU second",
        rate(bytes, ours),
        summary.events_out as f64 / ours / 1e6
    );
    println!(
        "with gzip: {:.0} MB/s, {:.1} times smaller",
        rate(bytes, with_gzip),
        bytes as f64 / packed as f64
    );
    println!(
        "serde_json, trees given: {:.0} MB/s; chrome takes {:.2} of its time for the same events",
        rate(their_bytes, theirs),
        ours / theirs
    );
}
