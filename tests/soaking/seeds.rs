//! Recordings and files that damage is done to: the same each time.

use std::path::{Path, PathBuf};

use gputrace_trace::json_file::write_json;

use gputrace_trace::manifest::{Device, MANIFEST_FILE, Manifest, PROCESS_FILE, ProcessHeader, Thread};
use gputrace_trace::seal::{Identity, id_text};
use gputrace_trace::tables::{
    ApiCall, Clock, Collective, Communicator, Context, Copy, Counter, EventRecord, ExternalCorrelation,
    Kernel, Marker, MemoryEvent, Memset, Operator, Overhead, Stream, Synchronization,
};
use gputrace_trace::writer::{OwnFiles, ProcessWriter, make_folder};
use gputrace_trace::{DurationNs, TimeNs};

use crate::random::Random;

const EPOCH_NS: i64 = 1_790_000_000_000_000_000;
/// Steps of the recording, a batch each.
const STEPS: i64 = 4;
/// Kernels in each, one of them a collective's.
const KERNELS: i64 = 24;
const RANKS: u32 = 2;
const COMMUNICATOR: u64 = 0x1234_5678_9abc_def0;

/// Names that stand in a recording.
#[derive(Clone, Copy)]
pub struct Words<'a> {
    pub host: &'a str,
    pub device: &'a str,
    pub kernel: &'a str,
    pub range: &'a str,
    pub operator: &'a str,
    pub communicator: &'a str,
    pub counter: &'a str,
    pub command: &'a str,
    pub variable: &'a str,
    pub thread: &'a str,
}

impl Default for Words<'_> {
    fn default() -> Self {
        Self {
            host: "node-7",
            device: "NVIDIA H200",
            kernel: "gemm_tn<float, 128>",
            range: "forward",
            operator: "aten::mm",
            communicator: "data parallel",
            counter: "power_W",
            command: "train.py",
            variable: "INFO",
            thread: "loader",
        }
    }
}

/// A rank that is being written.
struct Rank<'a> {
    writer: ProcessWriter,
    rank: u32,
    words: Words<'a>,
    random: Random,
}

impl Rank<'_> {
    fn thread(&self) -> u32 {
        1000 + self.rank
    }

    /// What is there before the first step.
    fn begin(&mut self) {
        let name = self.writer.names.intern(self.words.communicator);
        let tables = &mut self.writer.tables;
        tables.contexts.push(Context {
            context: 1,
            device: 0,
            null_stream: 7,
        });
        for stream in [7, 14] {
            tables.streams.push(Stream {
                context: 1,
                stream,
                flag: 1,
                ..Stream::default()
            });
        }
        tables.communicators.push(Communicator {
            created_ns: TimeNs(EPOCH_NS - 1_000_000),
            communicator: COMMUNICATOR,
            name: Some(name),
            rank: self.rank,
            ranks: RANKS,
            nodes: 1,
        });
    }

    /// Kernels with the calls that launched them; the last is a collective's. The correlation id of that one.
    fn kernels(&mut self, begin: i64, step: i64) -> u32 {
        let thread = self.thread();
        let names = &mut self.writer.names;
        let (gemm, other) = (names.intern(self.words.kernel), names.intern("reduce_kernel"));
        let nccl = names.intern("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)");
        let launch = names.intern("cuLaunchKernel");
        let first = (step * 100) as u32 + 1;
        for number in 0..KERNELS {
            let at = begin + 200_000 + number * 300_000;
            let is_last = number == KERNELS - 1;
            let correlation = first + number as u32;
            self.writer.tables.api_calls.push(ApiCall {
                start_ns: TimeNs(at - 60_000),
                duration_ns: DurationNs(20_000 + self.random.below(9_000) as i64),
                name: launch,
                kind: 4,
                callback: 307,
                thread,
                correlation,
                ..ApiCall::default()
            });
            self.writer.tables.kernels.push(Kernel {
                start_ns: TimeNs(at),
                duration_ns: DurationNs(100_000 + self.random.below(190_000) as i64),
                name: match (is_last, number % 3) {
                    (true, _) => nccl,
                    (false, 0) => other,
                    _ => gemm,
                },
                context: 1,
                stream: if is_last { 14 } else { 7 },
                correlation,
                grid_x: 64,
                grid_y: 1,
                grid_z: 1,
                block_x: 256,
                block_y: 1,
                block_z: 1,
                ..Kernel::default()
            });
        }
        first + KERNELS as u32 - 1
    }

    /// The collective of a step, and its copy, memset, wait and the rest of what a device does.
    fn others(&mut self, begin: i64, step: i64, correlation: u32) {
        let thread = self.thread();
        let names = &mut self.writer.names;
        let (function, datatype) = (names.intern("AllReduce"), names.intern("ncclFloat32"));
        let (wait, counter) = (
            names.intern("cuStreamSynchronize"),
            names.intern(self.words.counter),
        );
        let tables = &mut self.writer.tables;
        tables.collectives.push(Collective {
            start_ns: TimeNs(begin + KERNELS * 300_000),
            communicator: COMMUNICATOR,
            rank: self.rank,
            sequence: Some(step as u64),
            function,
            datatype,
            count: 1 << 20,
            bytes: 4 << 20,
            channels: 8,
            plan: Some(step as u64 + 1),
            thread,
            ..Collective::default()
        });
        tables.external_correlations.push(ExternalCorrelation {
            correlation,
            kind: 1,
            id: step as u64 + 1,
        });
        tables.copies.push(Copy {
            start_ns: TimeNs(begin + 50_000),
            duration_ns: DurationNs(90_000),
            context: 1,
            stream: 7,
            correlation: correlation + 1,
            copy_kind: 1,
            source_kind: 1,
            destination_kind: 3,
            bytes: 1 << 20,
            ..Copy::default()
        });
        tables.memsets.push(Memset {
            start_ns: TimeNs(begin + 150_000),
            duration_ns: DurationNs(5_000),
            context: 1,
            stream: 7,
            correlation: correlation + 2,
            bytes: 4096,
            memory_kind: 3,
            ..Memset::default()
        });
        tables.api_calls.push(ApiCall {
            start_ns: TimeNs(begin + 8_000_000),
            duration_ns: DurationNs(900_000),
            name: wait,
            kind: 4,
            callback: 126,
            thread,
            correlation: correlation + 3,
            ..ApiCall::default()
        });
        tables.synchronizations.push(Synchronization {
            start_ns: TimeNs(begin + 8_000_000),
            duration_ns: DurationNs(890_000),
            kind: 3,
            context: Some(1),
            stream: Some(7),
            correlation: correlation + 3,
            ..Synchronization::default()
        });
        tables.event_records.push(EventRecord {
            correlation: correlation + 2,
            context: 1,
            stream: 7,
            event: 1,
            event_synchronization: Some(step as u64 + 1),
            ..EventRecord::default()
        });
        tables.overheads.push(Overhead {
            start_ns: TimeNs(begin + 9_000_000),
            duration_ns: DurationNs(10_000),
            kind: 1 << 16,
            ..Overhead::default()
        });
        tables.memory.push(MemoryEvent {
            time_ns: TimeNs(begin + 20_000),
            operation: 1,
            memory_kind: 3,
            address: 0x7f00_0000_0000 + step as u64 * 4096,
            bytes: 4096,
            context: 1,
            ..MemoryEvent::default()
        });
        tables.counters.push(Counter {
            time_ns: TimeNs(begin),
            name: counter,
            device: Some(0),
            value: 300.5 + self.random.below(100) as f64,
            ..Counter::default()
        });
    }

    /// A step: a batch of each table.
    fn step(&mut self, step: i64) -> std::io::Result<()> {
        let begin = EPOCH_NS + step * 10_000_000 + i64::from(self.rank) * 100_000;
        let thread = self.thread();
        let names = &mut self.writer.names;
        let (range, operator) = (names.intern(self.words.range), names.intern(self.words.operator));
        let (step_name, domain) = (names.intern(&format!("step {step}")), names.intern(""));
        self.writer.tables.clocks.push(Clock {
            realtime_ns: TimeNs(EPOCH_NS + step * 10_000_000),
            monotonic_ns: 5_000_000_000 + step * 10_000_000,
            boottime_ns: 6_000_000_000 + step * 10_000_000,
            tsc: None,
        });
        for (name, at, long) in [(step_name, 0, 9_500_000), (range, 100_000, 4_000_000)] {
            self.writer.tables.markers.push(Marker {
                start_ns: TimeNs(begin + at),
                duration_ns: Some(DurationNs(long)),
                name,
                domain,
                thread,
                depth: u16::from(at > 0),
                ..Marker::default()
            });
        }
        self.writer.tables.operators.push(Operator {
            start_ns: TimeNs(begin + 150_000),
            duration_ns: DurationNs(2_000_000),
            name: operator,
            thread,
            ..Operator::default()
        });
        let correlation = self.kernels(begin, step);
        self.others(begin, step, correlation);
        self.writer.flush(0)
    }
}

fn write_rank(
    folder: &Path,
    recording: u64,
    rank: u32,
    words: Words<'_>,
    mut random: Random,
) -> std::io::Result<()> {
    let folder = folder.join(format!("node-7-{}-1", 4000 + rank));
    make_folder(&folder)?;
    let identity = Identity {
        process: random.next(),
        segment: 0,
    };
    let mut writing = Rank {
        writer: ProcessWriter::in_folder(OwnFiles::shared(), &folder, identity),
        rank,
        words,
        random,
    };
    writing.begin();
    for step in 0..STEPS {
        writing.step(step)?;
    }
    let rows = writing.writer.close()?;
    let mut header = ProcessHeader {
        recording: id_text(recording),
        host: words.host.to_owned(),
        pid: 4000 + rank,
        command: vec!["python3".to_owned(), words.command.to_owned()],
        started_ns: EPOCH_NS - 5_000_000,
        ended_ns: Some(EPOCH_NS + STEPS * 10_000_000 + 5_000_000),
        rank: Some(rank),
        world_size: Some(RANKS),
        rank_source: Some("RANK".to_owned()),
        devices: vec![Device {
            name: words.device.to_owned(),
            ..Device::default()
        }],
        threads: vec![Thread {
            pid: 4000 + rank,
            thread: writing.thread(),
            name: words.thread.to_owned(),
        }],
        environment: [("NCCL_DEBUG".to_owned(), words.variable.to_owned())].into(),
        rows: rows
            .into_iter()
            .map(|(table, rows)| (table.to_owned(), rows))
            .collect(),
        ..ProcessHeader::new()
    };
    identity.sign(&folder, &mut header);
    write_json(&folder.join(PROCESS_FILE), &header)
}

/// A whole recording of two ranks in `folder`, which must not be there yet. Equal seeds and words give equal bytes.
pub fn recording(folder: &Path, seed: u64, words: Words<'_>) {
    let write = || -> std::io::Result<()> {
        std::fs::create_dir(folder)?;
        let id = Random::of(seed, "recording's id", 0).next();
        for rank in 0..RANKS {
            write_rank(
                folder,
                id,
                rank,
                words,
                Random::of(seed, "recording", u64::from(rank)),
            )?;
        }
        let manifest = Manifest {
            recording: id_text(id),
            state: "complete".to_owned(),
            device: "cuda".to_owned(),
            command: vec!["python3".to_owned(), words.command.to_owned()],
            host: words.host.to_owned(),
            environment: [("NCCL_DEBUG".to_owned(), words.variable.to_owned())].into(),
            ..Manifest::new()
        };
        write_json(&folder.join(MANIFEST_FILE), &manifest)
    };
    write().unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
}

/// What searches for crashes have found for a target, by name: the same order each time.
pub fn corpus(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fuzz/corpus")
        .join(target);
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    paths
        .iter()
        .map(|path| std::fs::read(path).expect("a file of the corpus"))
        .collect()
}
