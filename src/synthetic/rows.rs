//! A rank's rows, as the collector would have written them.

use std::io;

use gputrace_trace::json_file::write_json;
use gputrace_trace::manifest::{Device, PROCESS_FILE, ProcessHeader};
use gputrace_trace::tables::{
    ApiCall, Clock, Collective, Communicator, Context, Copy, ExternalCorrelation, Kernel, Marker,
    Synchronization,
};
use gputrace_trace::writer::{BATCH_ROWS, ProcessWriter};
use gputrace_trace::{DurationNs, NameId, TimeNs};

use super::model::{COLLECTIVES, LAUNCH_NS, LAYER_BYTES, RankStep, Time};
use super::plan::{GPUS, Plan};

/// Kernels of a layer, forward; backward there are twice as many.
const KERNELS: u32 = 20;
const OPTIMIZER_KERNELS: u32 = 8;
const CALL_NS: i64 = 4_000;
const BETWEEN_CALLS_NS: i64 = 2_000;

const COMPUTE_STREAM: u32 = 7;
const COMMUNICATION_STREAM: u32 = 16;
const CONTEXT: u32 = 1;

/// Rows of a step.
pub fn of_a_step(layers: u32) -> u64 {
    let kernels = u64::from(3 * KERNELS);
    let collectives = COLLECTIVES as u64;
    // Each kernel and collective has a call; a collective also a kernel, a row that joins them, an event recorded and awaited.
    let of_layer = 2 * kernels + collectives * (1 + 1 + 1 + 1 + 2) + 1;
    u64::from(layers) * of_layer + u64::from(2 * OPTIMIZER_KERNELS) + 2 + 2 + 1
}

/// The names that rows have.
struct Names {
    kernels: Vec<NameId>,
    launch: NameId,
    record: NameId,
    wait: NameId,
    synchronize: NameId,
    copy: NameId,
    nccl: [NameId; COLLECTIVES],
    functions: [NameId; COLLECTIVES],
    half: NameId,
    forward: NameId,
}

/// A rank that is being written.
struct Rank<'a> {
    plan: &'a Plan,
    writer: ProcessWriter,
    names: Names,
    rank: u32,
    correlation: u32,
    /// When the host calls next.
    host: i64,
    thread: u32,
    sequences: [u64; COLLECTIVES],
    pushed: usize,
}

/// Numbers of the communicators within hosts, and over them.
fn communicator(rank: u32, over_hosts: bool) -> u64 {
    let number = if over_hosts {
        0x5eed_0000_0000_0001 + (u64::from(rank % GPUS) << 8)
    } else {
        0x5eed_1000_0000_0001 + (u64::from(rank / GPUS) << 8)
    };
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Writes a rank's folder; gives its rows and bytes.
pub fn write(
    plan: &Plan,
    recording: &str,
    rank: u32,
    start_ns: i64,
    steps: &[RankStep],
) -> io::Result<(u64, u64)> {
    let folder = plan.output.join(format!("rank{rank}"));
    let mut writer = ProcessWriter::create(&folder)?;
    let names = names(&mut writer);
    let mut one = Rank {
        plan,
        writer,
        names,
        rank,
        correlation: 0,
        host: start_ns,
        thread: 100_000 + rank,
        sequences: [0; COLLECTIVES],
        pushed: 0,
    };
    one.communicators(start_ns);
    for (number, step) in steps.iter().enumerate() {
        one.step(number, step)?;
    }
    let ended_ns = one.host;
    one.clock(ended_ns, start_ns);
    let rows = one.writer.close()?;
    let mut header = ProcessHeader {
        recording: recording.to_owned(),
        host: plan.host_of(rank),
        pid: 1000 + rank,
        started_ns: start_ns,
        ended_ns: Some(ended_ns),
        rank: Some(rank),
        world_size: Some(plan.ranks),
        local_rank: Some(rank % GPUS),
        rank_source: Some("simulated".to_owned()),
        cupti_version: Some(26),
        driver_version: Some(12080),
        nccl_profiler_version: Some(4),
        devices: vec![Device {
            index: 0,
            name: "Simulated NVIDIA H200".to_owned(),
            compute_capability: Some((9, 0)),
            memory_bytes: Some(141 << 30),
            multiprocessors: Some(132),
            ..Device::default()
        }],
        rows: rows
            .iter()
            .map(|(table, rows)| ((*table).to_owned(), *rows))
            .collect(),
        ..ProcessHeader::new()
    };
    one.writer.sign(&mut header);
    write_json(&folder.join(PROCESS_FILE), &header)?;
    let (_, bytes) = one.writer.totals();
    Ok((rows.iter().map(|(_, rows)| rows).sum(), bytes))
}

fn names(writer: &mut ProcessWriter) -> Names {
    let mut name = |text: &str| writer.names.intern_own(text);
    let kinds = [
        "elementwise_kernel",
        "layer_norm_kernel",
        "softmax_kernel",
        "gemm_bf16_128x256",
    ];
    let kernels = (0..40u32).map(|number| {
        let kind = kinds[number as usize % kinds.len()];
        name(&format!("{kind}_{number}"))
    });
    let kernels: Vec<NameId> = kernels.collect();
    Names {
        kernels,
        launch: name("cudaLaunchKernel"),
        record: name("cudaEventRecord"),
        wait: name("cudaStreamWaitEvent"),
        synchronize: name("cudaStreamSynchronize"),
        copy: name("cudaMemcpyAsync"),
        nccl: [
            name("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"),
            name("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"),
            name("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"),
            name("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"),
        ],
        functions: [
            name("AllGather"),
            name("AllGather"),
            name("ReduceScatter"),
            name("AllReduce"),
        ],
        half: name("ncclBfloat16"),
        forward: name("layer"),
    }
}

impl Rank<'_> {
    fn communicators(&mut self, start_ns: i64) {
        let (ranks, rank) = (self.plan.ranks, self.rank);
        let first = rank / GPUS * GPUS;
        let over = (0..ranks).filter(|other| other % GPUS == rank % GPUS).count();
        for (over_hosts, own, count) in [
            (false, rank - first, GPUS.min(ranks - first)),
            (true, rank / GPUS, u32::try_from(over).unwrap_or(u32::MAX)),
        ] {
            let name = if over_hosts { "replicas" } else { "shards" };
            let name = self.writer.names.intern_own(name);
            self.writer.tables.communicators.push(Communicator {
                created_ns: TimeNs(start_ns),
                communicator: communicator(rank, over_hosts),
                name: Some(name),
                rank: own,
                ranks: count,
                nodes: if over_hosts { count } else { 1 },
            });
        }
        self.writer.tables.contexts.push(Context {
            context: CONTEXT,
            device: 0,
            null_stream: COMPUTE_STREAM,
        });
        self.clock(start_ns, start_ns);
    }

    fn clock(&mut self, now_ns: i64, start_ns: i64) {
        // A host that was started a thousand seconds before the job.
        let since = now_ns - start_ns + 1_000_000_000_000;
        self.writer.tables.clocks.push(Clock {
            realtime_ns: TimeNs(now_ns),
            monotonic_ns: since,
            boottime_ns: since,
            tsc: None,
        });
    }

    /// Batches as the collector writes them.
    fn pushed(&mut self, rows: usize) -> io::Result<()> {
        self.pushed += rows;
        if self.pushed >= 4096 {
            self.pushed = 0;
            self.writer.flush(BATCH_ROWS)?;
        }
        Ok(())
    }

    fn call(&mut self, name: NameId, callback: u32, length: i64) -> u32 {
        self.correlation += 1;
        self.writer.tables.api_calls.push(ApiCall {
            start_ns: TimeNs(self.host),
            duration_ns: DurationNs(length),
            name,
            kind: 5,
            callback,
            thread: self.thread,
            correlation: self.correlation,
            result: 0,
        });
        self.host += length + BETWEEN_CALLS_NS;
        self.correlation
    }

    fn kernel(&mut self, name: NameId, stream: u32, (start, end): Time, blocks: i32) {
        self.writer.tables.kernels.push(Kernel {
            start_ns: TimeNs(start),
            duration_ns: DurationNs(end - start),
            name,
            device: 0,
            context: CONTEXT,
            stream,
            correlation: self.correlation,
            grid_x: blocks,
            grid_y: 1,
            grid_z: 1,
            block_x: 256,
            block_y: 1,
            block_z: 1,
            registers: 64,
            ..Kernel::default()
        });
    }

    /// Kernels that fill a time, each with its launch. The host is ahead of them, by no more than `LEAD_NS`.
    fn kernels(&mut self, (start, end): Time, count: u32, first_name: u32) -> io::Result<()> {
        self.follow(start);
        let length = (end - start) / i64::from(count);
        for number in 0..count {
            let begin = start + i64::from(number) * length;
            let name = self.names.kernels[((first_name + number) % 40) as usize];
            self.call(self.names.launch, 211, CALL_NS);
            let blocks = 64 + 16 * number.cast_signed();
            self.kernel(name, COMPUTE_STREAM, (begin, begin + length - 1_200), blocks);
        }
        self.pushed(2 * count as usize)
    }

    /// The host waits for nothing, but does not run ahead for ever either.
    fn follow(&mut self, start: i64) {
        const LEAD_NS: i64 = 20_000_000;
        self.host = self.host.max(start - LEAD_NS);
    }

    fn collective(&mut self, kind: usize, time: Time) -> io::Result<()> {
        let over_hosts = kind == 3;
        self.follow(time.0);
        let called = self.host;
        self.call(self.names.record, 135, 900);
        self.call(self.names.wait, 147, 700);
        let correlation = self.call(self.names.launch, 211, CALL_NS);
        let sequence = self.sequences[usize::from(over_hosts) * 2 + usize::from(kind == 2)];
        self.sequences[usize::from(over_hosts) * 2 + usize::from(kind == 2)] += 1;
        // What a rank puts in, or takes out where it is scattered; the sum over hosts is of its part alone.
        let bytes = LAYER_BYTES / u64::from(GPUS);
        let group = if over_hosts {
            self.rank / GPUS
        } else {
            self.rank % GPUS
        };
        let plan = u64::from(correlation) + 1;
        self.writer.tables.collectives.push(Collective {
            start_ns: TimeNs(called),
            communicator: communicator(self.rank, over_hosts),
            rank: group,
            sequence: Some(sequence),
            function: self.names.functions[kind],
            datatype: self.names.half,
            count: bytes / 2,
            bytes,
            channels: 16,
            warps: 16,
            plan: Some(plan),
            thread: self.thread,
            ..Collective::default()
        });
        self.writer
            .tables
            .external_correlations
            .push(ExternalCorrelation {
                correlation,
                kind: 3,
                id: plan,
            });
        self.kernel(self.names.nccl[kind], COMMUNICATION_STREAM, time, 16);
        self.pushed(6)
    }

    fn step(&mut self, number: usize, step: &RankStep) -> io::Result<()> {
        self.host = step.host_start;
        let layers = self.plan.layers as usize;
        let correlation = self.call(self.names.copy, 41, 3_000);
        self.writer.tables.copies.push(Copy {
            start_ns: TimeNs(step.host_start + LAUNCH_NS),
            duration_ns: DurationNs(40_000),
            device: 0,
            context: CONTEXT,
            stream: COMMUNICATION_STREAM + 1,
            correlation,
            copy_kind: 1,
            source_kind: 2,
            destination_kind: 3,
            bytes: 1 << 20,
            ..Copy::default()
        });
        self.collective(0, step.collectives[0][0])?;
        for layer in 0..layers {
            if layer + 1 < layers {
                self.collective(0, step.collectives[layer + 1][0])?;
            }
            let begun = self.host;
            self.kernels(step.forward[layer], KERNELS, layer as u32)?;
            self.marker(self.names.forward, begun, self.host, 1);
        }
        for layer in (0..layers).rev() {
            self.collective(1, step.collectives[layer][1])?;
            self.kernels(step.backward[layer], 2 * KERNELS, layer as u32 + 7)?;
            self.collective(2, step.collectives[layer][2])?;
            self.collective(3, step.collectives[layer][3])?;
        }
        self.kernels(step.optimizer, OPTIMIZER_KERNELS, 30)?;
        let waited = self.host;
        let end = step.optimizer.1 + 5_000;
        let correlation = self.call(self.names.synchronize, 131, (end - waited).max(1_000));
        self.writer.tables.synchronizations.push(Synchronization {
            start_ns: TimeNs(waited),
            duration_ns: DurationNs((end - waited).max(1_000)),
            kind: 3,
            context: Some(CONTEXT),
            stream: Some(COMPUTE_STREAM),
            correlation,
            ..Synchronization::default()
        });
        let name = self.writer.names.intern_own(&format!("step {number}"));
        self.marker(name, step.host_start - 10_000, self.host, 0);
        Ok(())
    }

    fn marker(&mut self, name: NameId, from: i64, to: i64, depth: u16) {
        self.writer.tables.markers.push(Marker {
            start_ns: TimeNs(from),
            duration_ns: Some(DurationNs(to - from)),
            name,
            thread: self.thread,
            depth,
            ..Marker::default()
        });
    }
}
