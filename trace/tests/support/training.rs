//! A training run's rows, as real ones scatter: starts at irregular gaps, durations log-normal around each name's mean,
//! correlation numbers that rise with gaps.

#![allow(dead_code, reason = "each user takes a part")]

use std::path::Path;

use gputrace_trace::tables::*;
use gputrace_trace::writer::{BATCH_ROWS, ProcessWriter};
use gputrace_trace::{DurationNs, Interner, TimeNs};

/// A row of some table.
pub enum Row {
    Kernel(Kernel),
    ApiCall(ApiCall),
    Copy(Copy),
    Memset(Memset),
    Collective(Collective),
    Synchronization(Synchronization),
    Marker(Marker),
    Memory(MemoryEvent),
    Counter(Counter),
    ExternalCorrelation(ExternalCorrelation),
    Clock(Clock),
}

struct Jitter(u64);

impl Jitter {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn uniform(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    fn log_normal(&mut self, mean_ns: f64, sigma: f64) -> i64 {
        let (u, v) = (self.uniform().max(1e-12), self.uniform());
        let normal = (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos();
        (mean_ns * (normal * sigma).exp()) as i64
    }
}

const CALLS: &[(&str, u8, u32, f64)] = &[
    ("cuLaunchKernel", 4, 307, 3200.0),
    ("cudaLaunchKernel_v7000", 5, 211, 4100.0),
    ("cuLaunchKernelEx", 4, 652, 3600.0),
    ("cudaEventRecord_v3020", 5, 135, 900.0),
    ("cudaStreamWaitEvent_v3020", 5, 147, 700.0),
    ("cudaMemcpyAsync_v3020", 5, 41, 5200.0),
];
const STEP_KERNELS: usize = 600;

/// Hands at least `total` rows to `sink`, and says how many.
pub fn generate(total: u64, names: &mut Interner, sink: &mut dyn FnMut(Row, &Interner)) -> u64 {
    let mut jitter = Jitter(0x1234_5678_9abc_def1);
    let kernel_names: Vec<_> = (0..60)
        .map(|n| {
            names.intern(&format!(
                "_ZN2at6native29vectorized_elementwise_kernelILi{n}EEEvv"
            ))
        })
        .collect();
    // One step's kernels: which name at each place, and the name's mean and shape.
    let step: Vec<usize> = (0..STEP_KERNELS).map(|_| (jitter.next() % 60) as usize).collect();
    let means: Vec<f64> = (0..60)
        .map(|_| 2000.0 * (40.0f64).powf(jitter.uniform()))
        .collect();
    let shapes: Vec<(i32, i32, u16, i32)> = (0..60)
        .map(|_| {
            let block = [128, 256, 512][(jitter.next() % 3) as usize];
            (
                (jitter.next() % 4096) as i32 + 1,
                block,
                (jitter.next() % 200) as u16 + 24,
                0,
            )
        })
        .collect();
    let call_names: Vec<_> = CALLS.iter().map(|call| names.intern(call.0)).collect();
    let nccl = names.intern("_Z39ncclDevKernel_AllReduce_Sum_f32_RING_LL24ncclDevKernelArgsStorageILm4096EE");
    let (all_reduce, float) = (names.intern("AllReduce"), names.intern("ncclFloat32"));
    let (ring, simple) = (names.intern("RING"), names.intern("SIMPLE"));
    let phases = ["forward", "backward", "optimizer", "data"].map(|name| names.intern(name));
    let (power, domain) = (names.intern("power_watts"), names.intern("training"));

    let epoch = 1_790_000_000_123_456_789i64;
    let (mut host, mut device, mut communication) = (epoch, epoch + 20_000, epoch + 20_000);
    let (mut correlation, mut rows, mut sequence) = (1000u32, 0u64, 0u64);
    let (thread, backward_thread) = (41_337, 41_401);
    let mut number = 0usize;
    let mut last_second = epoch;
    while rows < total {
        let mut give = |row: Row, names: &Interner| {
            sink(row, names);
            rows += 1;
        };
        let place = number % STEP_KERNELS;
        let phase_thread = if place > STEP_KERNELS / 3 {
            backward_thread
        } else {
            thread
        };
        if place.is_multiple_of(30) {
            let phase = phases[(number / 150) % phases.len()];
            let name = if place == 0 {
                names.intern(&format!("step {}", number / STEP_KERNELS))
            } else {
                phase
            };
            let marker = Marker {
                start_ns: TimeNs(host),
                duration_ns: Some(DurationNs(jitter.log_normal(300_000.0, 0.2))),
                name,
                domain,
                thread: phase_thread,
                kind: 0,
                depth: u16::from(place != 0),
                ..Marker::default()
            };
            give(Row::Marker(marker), names);
        }
        let call = |which: usize, host: &mut i64, correlation: &mut u32, jitter: &mut Jitter| {
            *correlation += 1 + (jitter.next() % 4) as u32;
            *host += jitter.log_normal(1500.0, 0.6);
            let duration = jitter.log_normal(CALLS[which].3, 0.25);
            let call = ApiCall {
                start_ns: TimeNs(*host),
                duration_ns: DurationNs(duration),
                name: call_names[which],
                kind: CALLS[which].1,
                callback: CALLS[which].2,
                thread: phase_thread,
                correlation: *correlation,
                result: 0,
            };
            *host += duration;
            call
        };
        // Every other thing beside kernels comes now and then.
        if number % 25 == 7 {
            let launch = call(5, &mut host, &mut correlation, &mut jitter);
            let start = host + jitter.log_normal(3000.0, 0.3);
            give(Row::ApiCall(launch), names);
            let bytes = 1 << (12 + jitter.next() % 12);
            let copy = Copy {
                start_ns: TimeNs(start),
                duration_ns: DurationNs(jitter.log_normal(bytes as f64 / 20.0 + 1500.0, 0.05)),
                device: 0,
                context: 1,
                stream: 21,
                correlation,
                copy_kind: 1,
                source_kind: 2,
                destination_kind: 3,
                flags: 1,
                bytes,
                ..Copy::default()
            };
            give(Row::Copy(copy), names);
        }
        if number % 100 == 50 {
            correlation += 1;
            let launch = call(2, &mut host, &mut correlation, &mut jitter);
            give(Row::ApiCall(launch), names);
            communication = communication.max(device) + jitter.log_normal(4000.0, 0.4);
            let duration = jitter.log_normal(180_000.0, 0.15);
            sequence += 1;
            let kernel = Kernel {
                start_ns: TimeNs(communication),
                duration_ns: DurationNs(duration),
                name: nccl,
                context: 1,
                stream: 20,
                correlation,
                grid_x: 24,
                grid_y: 1,
                grid_z: 1,
                block_x: 512,
                block_y: 1,
                block_z: 1,
                registers: 96,
                dynamic_shared_bytes: 82_240,
                ..Kernel::default()
            };
            communication += duration;
            give(Row::Kernel(kernel), names);
            let collective = Collective {
                start_ns: TimeNs(host),
                duration_ns: DurationNs(jitter.log_normal(2000.0, 0.3)),
                communicator: 0x1234_5678_dead_beef,
                sequence: Some(sequence),
                function: all_reduce,
                datatype: float,
                count: 6_553_600,
                bytes: 26_214_400,
                algorithm: Some(ring),
                protocol: Some(simple),
                channels: 24,
                warps: 16,
                plan: Some(sequence),
                thread: backward_thread,
                ..Collective::default()
            };
            give(Row::Collective(collective), names);
            let external = ExternalCorrelation {
                correlation,
                kind: 4,
                id: sequence,
            };
            give(Row::ExternalCorrelation(external), names);
        }
        if number % 60 == 31 {
            let synchronization = Synchronization {
                start_ns: TimeNs(host),
                duration_ns: DurationNs(jitter.log_normal(900.0, 0.5)),
                kind: 2,
                context: Some(1),
                stream: Some(20),
                event: Some((number % 37) as u32),
                correlation,
                ..Synchronization::default()
            };
            give(Row::Synchronization(synchronization), names);
        }
        if number % 80 == 3 {
            let memory = MemoryEvent {
                time_ns: TimeNs(host),
                operation: 1 + (jitter.next() % 2) as u8,
                memory_kind: 3,
                address: 0x7f00_0000_0000 + (jitter.next() % 4096) * 0x20_0000,
                bytes: 0x20_0000 * (1 + jitter.next() % 16),
                context: 1,
                correlation,
                ..MemoryEvent::default()
            };
            give(Row::Memory(memory), names);
        }
        if host - last_second > 100_000_000 {
            last_second = host;
            let counter = Counter {
                time_ns: TimeNs(host),
                name: power,
                device: Some(0),
                value: 400.0 + jitter.uniform() * 200.0,
                ..Counter::default()
            };
            give(Row::Counter(counter), names);
        }
        // The launch and its kernel.
        let which = step[place];
        let launch = call(which % 2, &mut host, &mut correlation, &mut jitter);
        give(Row::ApiCall(launch), names);
        let gap = jitter.log_normal(1400.0, 0.3);
        device = (device + gap).max(host + jitter.log_normal(2500.0, 0.3));
        let duration = jitter.log_normal(means[which], 0.04);
        let (grid_x, block_x, registers, shared) = shapes[which];
        let kernel = Kernel {
            start_ns: TimeNs(device),
            duration_ns: DurationNs(duration),
            name: kernel_names[which],
            context: 1,
            stream: 7,
            correlation,
            grid_x,
            grid_y: 1,
            grid_z: 1,
            block_x,
            block_y: 1,
            block_z: 1,
            registers,
            static_shared_bytes: shared,
            dynamic_shared_bytes: if which.is_multiple_of(3) { 49_152 } else { 0 },
            ..Kernel::default()
        };
        device += duration;
        host = host.max(device - 2_000_000);
        give(Row::Kernel(kernel), names);
        number += 1;
    }
    rows
}

/// Writes such a run as the collector does: full batches at once, everything once a second of the run.
pub fn write(folder: &Path, total: u64) -> u64 {
    let mut writer = ProcessWriter::create(folder).unwrap();
    let mut names = std::mem::take(&mut writer.names);
    let (mut second, mut pushed) = (0, 0usize);
    let rows = generate(total, &mut names, &mut |row, names| {
        let tables = &mut writer.tables;
        let mut now = second;
        match row {
            Row::Kernel(row) => {
                now = row.start_ns.0 / 1_000_000_000;
                tables.kernels.push(row);
            }
            Row::ApiCall(row) => tables.api_calls.push(row),
            Row::Copy(row) => tables.copies.push(row),
            Row::Memset(row) => tables.memsets.push(row),
            Row::Collective(row) => tables.collectives.push(row),
            Row::Synchronization(row) => tables.synchronizations.push(row),
            Row::Marker(row) => tables.markers.push(row),
            Row::Memory(row) => tables.memory.push(row),
            Row::Counter(row) => tables.counters.push(row),
            Row::ExternalCorrelation(row) => tables.external_correlations.push(row),
            Row::Clock(row) => tables.clocks.push(row),
        }
        pushed += 1;
        let threshold = if now > second {
            1
        } else if pushed.is_multiple_of(1024) {
            BATCH_ROWS
        } else {
            return;
        };
        second = now.max(second);
        writer.names.clone_from(names);
        writer.flush(threshold).unwrap();
    });
    writer.names = names;
    writer.close().unwrap();
    rows
}
