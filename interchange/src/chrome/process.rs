//! One process's events: which row and lane each goes to, its category and its `args`.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::io;
use std::rc::Rc;

use gputrace_trace::{NameId, Process, Recording};

use super::ExportSummary;
use super::event::{Args, EventWriter, Place, json_string};
use super::lanes::Lanes;
use super::{frame, words};

/// Where the numbers of GPU "processes" begin: above every process id that Linux gives.
const GPU_PIDS: u64 = 5_000_000;
/// Where the numbers of overhead "processes" begin.
const OVERHEAD_PIDS: u64 = 900_000_000;
/// What is added to a row's number for a further lane, and where a number is taken already.
const LANE_STEP: u64 = 10_000_000;
/// What is added to a stream's number for the row of the waits on it, as Kineto does.
const SYNC_STEP: u64 = 1_000_000;

/// The process ids in use in the file: two ranks on two hosts may well have the same.
#[derive(Default)]
pub struct Identifiers {
    pids: HashSet<u64>,
}

impl Identifiers {
    fn take(&mut self, wanted: u64) -> u64 {
        let mut pid = wanted.max(1);
        while !self.pids.insert(pid) {
            pid += LANE_STEP;
        }
        pid
    }
}

/// What a row of the timeline stands for.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum RowKey {
    Thread(u32),
    /// Start/end ranges of a thread: they don't nest with its calls.
    Ranges(u32),
    /// Waits on a device or context that is not known.
    Waits,
    Overhead(u32),
    Stream {
        device: u32,
        context: u32,
        stream: u32,
    },
    StreamWaits {
        device: u32,
        context: u32,
        stream: Option<u32>,
    },
}

struct Row {
    pid: u64,
    name: String,
    sort: u64,
    nested: bool,
    /// By lane.
    tids: Vec<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Source {
    Marker,
    Collective,
    ApiCall,
    Overhead,
    Synchronization,
    Kernel,
    Copy,
    Memset,
}

/// An event with a length, before it is written.
struct Slice {
    start_ns: i64,
    end_ns: i64,
    row: u32,
    index: u32,
    source: Source,
}

struct Exporter<'r> {
    recording: &'r Recording,
    process: &'r Process,
    number: u64,
    host_pid: u64,
    gpu_pids: HashMap<u32, u64>,
    overhead_pid: Option<u64>,
    rows: Vec<Row>,
    row_numbers: HashMap<RowKey, u32>,
    tids: HashSet<(u64, u64)>,
    names: HashMap<(Source, NameId), Rc<str>>,
    /// By correlation, the collectives whose kernel the launch carries.
    collectives: HashMap<u32, Vec<u32>>,
}

/// Writes one process: `number` is its place among the recording's.
pub fn write(
    recording: &Recording,
    number: usize,
    process: &Process,
    identifiers: &mut Identifiers,
    writer: &mut EventWriter<'_>,
    summary: &mut ExportSummary,
) -> io::Result<()> {
    let mut exporter = Exporter {
        recording,
        process,
        number: number as u64,
        host_pid: identifiers.take(if process.header.pid > 0 {
            process.header.pid.into()
        } else {
            GPU_PIDS - 1 - number as u64
        }),
        gpu_pids: HashMap::new(),
        overhead_pid: None,
        rows: Vec::new(),
        row_numbers: HashMap::new(),
        tids: HashSet::new(),
        names: HashMap::new(),
        collectives: collectives_by_launch(process),
    };
    let slices = exporter.gather(identifiers, summary);
    exporter.write_slices(&slices, writer, summary)?;
    drop(slices);
    exporter.write_moments(identifiers, writer, summary)?;
    exporter.write_names(writer, summary)
}

/// Joins collectives to launches through the plan's number.
fn collectives_by_launch(process: &Process) -> HashMap<u32, Vec<u32>> {
    let external = &process.tables.external_correlations;
    let mut launches: HashMap<u64, Vec<u32>> = HashMap::new();
    for (&id, &correlation) in external.id.iter().zip(&external.correlation) {
        launches.entry(id).or_default().push(correlation);
    }
    let mut joined: HashMap<u32, Vec<u32>> = HashMap::new();
    for (row, plan) in (0u32..).zip(&process.tables.collectives.plan) {
        for &correlation in plan.and_then(|plan| launches.get(&plan)).into_iter().flatten() {
            joined.entry(correlation).or_default().push(row);
        }
    }
    joined
}

impl Exporter<'_> {
    fn gpu_pid(&mut self, device: u32, identifiers: &mut Identifiers) -> u64 {
        let wanted = GPU_PIDS + self.number * 1000 + u64::from(device);
        *self
            .gpu_pids
            .entry(device)
            .or_insert_with(|| identifiers.take(wanted))
    }

    fn take_tid(&mut self, pid: u64, wanted: u64) -> u64 {
        // 0 is nobody's: Perfetto takes it for the process's main thread.
        let mut tid = if wanted == 0 { LANE_STEP } else { wanted };
        while !self.tids.insert((pid, tid)) {
            tid += LANE_STEP;
        }
        tid
    }

    /// The number of the row for `key`, new if there was none.
    fn row(&mut self, key: RowKey, identifiers: &mut Identifiers) -> u32 {
        if let Some(&row) = self.row_numbers.get(&key) {
            return row;
        }
        let (pid, sort, name, nested) = match key {
            RowKey::Thread(thread) => (self.host_pid, thread.into(), format!("thread {thread}"), true),
            RowKey::Ranges(thread) => (
                self.host_pid,
                u64::from(thread) + SYNC_STEP * 5,
                format!("thread {thread} (start/end ranges)"),
                true,
            ),
            RowKey::Waits => (self.host_pid, SYNC_STEP * 10, "synchronizations".to_owned(), false),
            RowKey::Overhead(thread) => {
                let wanted = OVERHEAD_PIDS + self.number;
                let pid = *self
                    .overhead_pid
                    .get_or_insert_with(|| identifiers.take(wanted));
                (pid, thread.into(), format!("thread {thread}"), false)
            }
            RowKey::Stream { device, stream, .. } => {
                let pid = self.gpu_pid(device, identifiers);
                (pid, stream.into(), format!("stream {stream}"), false)
            }
            RowKey::StreamWaits { device, stream, .. } => {
                let pid = self.gpu_pid(device, identifiers);
                match stream {
                    Some(stream) => (
                        pid,
                        u64::from(stream) + SYNC_STEP,
                        format!("stream {stream} (sync)"),
                        false,
                    ),
                    None => (pid, SYNC_STEP * 2, format!("device {device} (sync)"), false),
                }
            }
        };
        let tid = self.take_tid(pid, sort);
        let number = u32::try_from(self.rows.len()).unwrap_or(u32::MAX);
        self.rows.push(Row {
            pid,
            name,
            sort,
            nested,
            tids: vec![tid],
        });
        self.row_numbers.insert(key, number);
        number
    }

    /// All slices of the process, by row and start, the host's rows first.
    fn gather(&mut self, identifiers: &mut Identifiers, summary: &mut ExportSummary) -> Vec<Slice> {
        let tables = &self.process.tables;
        let contexts: HashMap<u32, u32> = tables
            .contexts
            .context
            .iter()
            .copied()
            .zip(tables.contexts.device.iter().copied())
            .collect();
        let mut slices = Vec::new();
        macro_rules! gather {
            ($source:ident, $table:expr, |$index:ident| $key:expr) => {
                for $index in 0..$table.start_ns.len() {
                    let row = self.row($key, identifiers);
                    let start_ns = $table.start_ns[$index].0;
                    let duration_ns = $table.duration_ns[$index].0;
                    summary.durations_clamped += u64::from(duration_ns < 0);
                    slices.push(Slice {
                        start_ns,
                        end_ns: start_ns.saturating_add(duration_ns.max(0)),
                        row,
                        index: u32::try_from($index).unwrap_or(u32::MAX),
                        source: Source::$source,
                    });
                }
            };
        }
        gather!(ApiCall, tables.api_calls, |i| RowKey::Thread(tables.api_calls.thread[i]));
        gather!(Collective, tables.collectives, |i| RowKey::Thread(tables.collectives.thread[i]));
        for index in 0..tables.markers.start_ns.len() {
            let Some(duration) = tables.markers.duration_ns[index] else {
                continue;
            };
            let thread = tables.markers.thread[index];
            let key = if tables.markers.kind[index] == 1 {
                RowKey::Ranges(thread)
            } else {
                RowKey::Thread(thread)
            };
            let row = self.row(key, identifiers);
            let start_ns = tables.markers.start_ns[index].0;
            summary.durations_clamped += u64::from(duration.0 < 0);
            slices.push(Slice {
                start_ns,
                end_ns: start_ns.saturating_add(duration.0.max(0)),
                row,
                index: u32::try_from(index).unwrap_or(u32::MAX),
                source: Source::Marker,
            });
        }
        gather!(Overhead, tables.overheads, |i| RowKey::Overhead(
            tables.overheads.thread[i].unwrap_or(0)
        ));
        gather!(Kernel, tables.kernels, |i| RowKey::Stream {
            device: tables.kernels.device[i],
            context: tables.kernels.context[i],
            stream: tables.kernels.stream[i],
        });
        gather!(Copy, tables.copies, |i| RowKey::Stream {
            device: tables.copies.device[i],
            context: tables.copies.context[i],
            stream: tables.copies.stream[i],
        });
        gather!(Memset, tables.memsets, |i| RowKey::Stream {
            device: tables.memsets.device[i],
            context: tables.memsets.context[i],
            stream: tables.memsets.stream[i],
        });
        let waits = &tables.synchronizations;
        gather!(Synchronization, waits, |i| match waits.context[i]
            .and_then(|context| Some((context, *contexts.get(&context)?)))
        {
            Some((context, device)) => RowKey::StreamWaits {
                device,
                context,
                stream: waits.stream[i]
            },
            None => RowKey::Waits,
        });
        slices.sort_unstable_by_key(|slice| {
            (slice.row, slice.start_ns, Reverse(slice.end_ns), slice.source, slice.index)
        });
        summary.events_in += slices.len() as u64
            + tables.markers.duration_ns.iter().filter(|d| d.is_none()).count() as u64
            + (tables.memory.time_ns.len() + tables.counters.time_ns.len()) as u64;
        slices
    }

    fn write_slices(
        &mut self,
        slices: &[Slice],
        writer: &mut EventWriter<'_>,
        summary: &mut ExportSummary,
    ) -> io::Result<()> {
        let calls = &self.process.tables.api_calls;
        // By correlation, the outermost call: a runtime call and the driver call within it may share the number.
        let mut launches: Vec<(u32, i64, u32)> = (0u32..)
            .zip(calls.correlation.iter().zip(&calls.start_ns))
            .filter(|(_, (correlation, _))| **correlation != 0)
            .map(|(index, (&correlation, start))| (correlation, start.0, index))
            .collect();
        launches.sort_unstable();
        let mut call_tids = vec![0u64; calls.start_ns.len()];
        let mut lanes: Option<(u32, Lanes)> = None;
        let mut flow = self.number << 40;
        for slice in slices {
            if lanes.as_ref().is_none_or(|(row, _)| *row != slice.row) {
                lanes = Some((slice.row, Lanes::new(self.rows[slice.row as usize].nested)));
            }
            let Some((_, row_lanes)) = &mut lanes else { continue };
            let lane = row_lanes.place(slice.start_ns, slice.end_ns);
            let place = self.lane_place(slice.row, lane);
            let index = slice.index as usize;
            if slice.source == Source::ApiCall {
                call_tids[index] = place.tid;
            }
            let correlation = self.write_slice(slice, place, writer)?;
            summary.events_out += 1;
            let Some(correlation) = correlation else { continue };
            let first = launches.partition_point(|&(number, _, _)| number < correlation);
            match launches.get(first) {
                Some(&(number, start_ns, call)) if number == correlation => {
                    if start_ns > slice.start_ns {
                        summary.launches_later += 1;
                        continue;
                    }
                    flow += 1;
                    let from = Place {
                        pid: self.host_pid,
                        tid: call_tids[call as usize],
                    };
                    writer.flow(flow, (from, start_ns), (place, slice.start_ns))?;
                    summary.flows += 1;
                }
                _ => summary.launches_unknown += 1,
            }
        }
        Ok(())
    }

    fn lane_place(&mut self, row: u32, lane: usize) -> Place {
        let row = row as usize;
        let pid = self.rows[row].pid;
        while self.rows[row].tids.len() <= lane {
            let wanted = self.rows[row].sort + LANE_STEP * self.rows[row].tids.len() as u64;
            let tid = self.take_tid(pid, wanted);
            self.rows[row].tids.push(tid);
        }
        Place {
            pid,
            tid: self.rows[row].tids[lane],
        }
    }

    /// Writes one slice; for an operation of a device, its correlation.
    fn write_slice(
        &mut self,
        slice: &Slice,
        place: Place,
        writer: &mut EventWriter<'_>,
    ) -> io::Result<Option<u32>> {
        let tables = &self.process.tables;
        let index = slice.index as usize;
        let span = (slice.start_ns, slice.end_ns);
        match slice.source {
            Source::Kernel => {
                let row = &tables.kernels;
                let name = self.name(Source::Kernel, row.name[index]);
                let correlation = row.correlation[index];
                let multiprocessors = self.multiprocessors(row.device[index]);
                let collective_rows = self.collectives.get(&correlation);
                writer.slice("kernel", &name, place, span, |args| {
                    if let Some(first) = collective_rows.and_then(|rows| rows.first()) {
                        args.raw("External id", self.collective_id(*first));
                    }
                    args.raw("device", row.device[index]);
                    args.raw("context", row.context[index]);
                    args.raw("stream", row.stream[index]);
                    args.raw("correlation", correlation);
                    args.raw("registers per thread", row.registers[index]);
                    let shared =
                        i64::from(row.static_shared_bytes[index]) + i64::from(row.dynamic_shared_bytes[index]);
                    args.raw("shared memory", shared);
                    let grid = [row.grid_x[index], row.grid_y[index], row.grid_z[index]];
                    let block = [row.block_x[index], row.block_y[index], row.block_z[index]];
                    if let Some(multiprocessors) = multiprocessors.filter(|&count| count > 0) {
                        let blocks: f64 = grid.iter().map(|&size| f64::from(size)).product();
                        let threads: f64 = block.iter().map(|&size| f64::from(size)).product();
                        let each = blocks / f64::from(multiprocessors);
                        args.raw("blocks per SM", each);
                        args.raw("warps per SM", each * (threads / 32.0).ceil());
                    }
                    let [x, y, z] = grid;
                    args.raw("grid", format_args!("[{x},{y},{z}]"));
                    let [x, y, z] = block;
                    args.raw("block", format_args!("[{x},{y},{z}]"));
                    args.maybe("graph id", row.graph[index]);
                    args.maybe("graph node id", row.graph_node[index]);
                    if let Some(rows) = collective_rows {
                        for (key, value) in frame::collective_args(self.recording, self.process, rows) {
                            args.raw(key, value);
                        }
                    }
                    original_duration(args, row.duration_ns[index].0);
                })?;
                Ok(Some(correlation))
            }
            Source::Copy => {
                let row = &tables.copies;
                let name = json_string(&words::copy_name(
                    row.copy_kind[index],
                    row.source_kind[index],
                    row.destination_kind[index],
                ));
                writer.slice("gpu_memcpy", &name, place, span, |args| {
                    args.raw("device", row.device[index]);
                    args.raw("context", row.context[index]);
                    args.raw("stream", row.stream[index]);
                    args.raw("correlation", row.correlation[index]);
                    transfer(args, row.bytes[index], row.duration_ns[index].0);
                    args.maybe("fromDevice", row.source_device[index]);
                    args.maybe("toDevice", row.destination_device[index]);
                    args.maybe("graph id", row.graph[index]);
                    args.maybe("graph node id", row.graph_node[index]);
                    original_duration(args, row.duration_ns[index].0);
                })?;
                Ok(Some(row.correlation[index]))
            }
            Source::Memset => {
                let row = &tables.memsets;
                let kind = words::memory_kind(row.memory_kind[index].into());
                let name = json_string(&format!("Memset ({kind})"));
                writer.slice("gpu_memset", &name, place, span, |args| {
                    args.raw("device", row.device[index]);
                    args.raw("context", row.context[index]);
                    args.raw("stream", row.stream[index]);
                    args.raw("correlation", row.correlation[index]);
                    transfer(args, row.bytes[index], row.duration_ns[index].0);
                    args.maybe("graph id", row.graph[index]);
                    args.maybe("graph node id", row.graph_node[index]);
                    original_duration(args, row.duration_ns[index].0);
                })?;
                Ok(Some(row.correlation[index]))
            }
            Source::ApiCall => {
                let row = &tables.api_calls;
                let name = self.name(Source::ApiCall, row.name[index]);
                let category = if row.kind[index] == 4 {
                    "cuda_driver"
                } else {
                    "cuda_runtime"
                };
                writer.slice(category, &name, place, span, |args| {
                    args.raw("cbid", row.callback[index]);
                    args.raw("correlation", row.correlation[index]);
                    if row.result[index] != 0 {
                        args.raw("return value", row.result[index]);
                    }
                    original_duration(args, row.duration_ns[index].0);
                })?;
                Ok(None)
            }
            Source::Collective => {
                let row = &tables.collectives;
                let function = self.recording.names.get(row.function[index]);
                let name = json_string(&format!("nccl:{}", words::collective_name(function)));
                writer.slice("user_annotation", &name, place, span, |args| {
                    args.raw("External id", self.collective_id(slice.index));
                    for (key, value) in frame::collective_args(self.recording, self.process, &[slice.index]) {
                        args.raw(key, value);
                    }
                    original_duration(args, row.duration_ns[index].0);
                })?;
                Ok(None)
            }
            Source::Synchronization => {
                let row = &tables.synchronizations;
                let kind = words::synchronization_name(row.kind[index]);
                writer.slice("cuda_sync", &json_string(kind), place, span, |args| {
                    args.text("cuda_sync_kind", kind);
                    args.maybe("wait_on_cuda_event_id", row.event[index]);
                    args.maybe("stream", row.stream[index]);
                    args.raw("correlation", row.correlation[index]);
                    args.maybe("context", row.context[index]);
                    original_duration(args, row.duration_ns[index].0);
                })?;
                Ok(None)
            }
            Source::Overhead => {
                let name = json_string(words::overhead_name(tables.overheads.kind[index]));
                writer.slice("overhead", &name, place, span, |args| {
                    original_duration(args, tables.overheads.duration_ns[index].0);
                })?;
                Ok(None)
            }
            Source::Marker => {
                let name = self.name(Source::Marker, tables.markers.name[index]);
                writer.slice("user_annotation", &name, place, span, |args| {
                    self.marker_args(args, index);
                })?;
                Ok(None)
            }
        }
    }

    fn marker_args(&self, args: &mut Args<'_>, index: usize) {
        let row = &self.process.tables.markers;
        let domain = self.recording.names.get(row.domain[index]);
        if !domain.is_empty() {
            args.text("domain", domain);
        }
        args.maybe("category", row.category[index]);
        if let Some(color) = row.color[index] {
            args.raw("color", format_args!("\"#{color:08x}\""));
        }
        args.maybe("payload", row.payload[index].filter(|payload| payload.is_finite()));
        original_duration(args, row.duration_ns[index].map_or(0, |duration| duration.0));
    }

    /// A collective's number in the file.
    fn collective_id(&self, row: u32) -> u64 {
        (self.number << 40) + u64::from(row) + 1
    }

    fn multiprocessors(&self, device: u32) -> Option<u32> {
        let devices = &self.process.header.devices;
        devices.iter().find(|known| known.index == device)?.multiprocessors
    }

    /// A name as a JSON string.
    fn name(&mut self, source: Source, id: NameId) -> Rc<str> {
        let names = &self.recording.names;
        self.names
            .entry((source, id))
            .or_insert_with(|| {
                let text = names.get(id);
                Rc::from(match source {
                    Source::Kernel => json_string(&words::kernel_name(text)),
                    Source::ApiCall => json_string(words::call_name(text)),
                    _ => json_string(text),
                })
            })
            .clone()
    }

    /// Marks, allocations and counter samples.
    fn write_moments(
        &mut self,
        identifiers: &mut Identifiers,
        writer: &mut EventWriter<'_>,
        summary: &mut ExportSummary,
    ) -> io::Result<()> {
        let tables = &self.process.tables;
        let markers = &tables.markers;
        for index in 0..markers.start_ns.len() {
            if markers.duration_ns[index].is_some() {
                continue;
            }
            let row = self.row(RowKey::Thread(markers.thread[index]), identifiers);
            let place = self.lane_place(row, 0);
            let name = self.name(Source::Marker, markers.name[index]);
            writer.instant("cpu_instant_event", &name, place, markers.start_ns[index].0, |args| {
                self.marker_args(args, index);
            })?;
            summary.events_out += 1;
        }
        let memory = &tables.memory;
        let mut allocated: HashMap<u32, i64> = HashMap::new();
        for index in 0..memory.time_ns.len() {
            let device = memory.device[index];
            let on_device = memory.memory_kind[index] >= 3;
            let size = i64::try_from(memory.bytes[index]).unwrap_or(i64::MAX);
            let change = if memory.operation[index] == 2 { -size } else { size };
            let total = allocated.entry(device).or_default();
            if on_device {
                *total = total.saturating_add(change);
            }
            let total = *total;
            let place = Place {
                pid: self.host_pid,
                tid: self.host_pid,
            };
            writer.instant("cpu_instant_event", "\"[memory]\"", place, memory.time_ns[index].0, |args| {
                args.raw("Addr", memory.address[index]);
                args.raw("Bytes", change);
                args.raw("Total Allocated", total);
                args.raw("Total Reserved", total);
                args.raw("Device Type", u8::from(on_device));
                args.raw("Device Id", device);
                args.text("memory kind", words::memory_kind(memory.memory_kind[index]));
                args.raw("correlation", memory.correlation[index]);
            })?;
            summary.events_out += 1;
        }
        let counters = &tables.counters;
        for index in 0..counters.time_ns.len() {
            let pid = match counters.device[index] {
                Some(device) => self.gpu_pid(device, identifiers),
                None => self.host_pid,
            };
            let place = Place { pid, tid: pid };
            let name = self.name(Source::Marker, counters.name[index]);
            let (time_ns, value) = (counters.time_ns[index].0, counters.value[index]);
            if value.is_finite() {
                writer.counter(&name, place, time_ns, value)?;
            } else {
                // JSON has no such number, and a counter without a value is refused.
                writer.instant("counter", &name, place, time_ns, |args| {
                    args.text("value", &value.to_string());
                })?;
            }
            summary.events_out += 1;
        }
        Ok(())
    }

    /// The names and the order of processes and rows.
    fn write_names(&mut self, writer: &mut EventWriter<'_>, summary: &mut ExportSummary) -> io::Result<()> {
        let header = &self.process.header;
        let simulated = if self.recording.is_simulated() {
            " (simulated)"
        } else {
            ""
        };
        let who = match header.rank {
            Some(rank) => format!("rank {rank}"),
            None => self.process.folder.clone(),
        };
        let program = header
            .command
            .first()
            .and_then(|program| program.rsplit('/').next())
            .unwrap_or("process");
        let on_host = if header.host.is_empty() {
            String::new()
        } else {
            format!(" on {}", header.host)
        };
        // Hosts and GPUs alternate: rank 0, its GPUs, rank 1, ...
        let sort = self.number * 1000;
        let mut processes = vec![(
            self.host_pid,
            sort,
            format!("{who}: {program} (process {}{on_host}){simulated}", header.pid),
            "CPU".to_owned(),
        )];
        for (&device, &pid) in &self.gpu_pids {
            let name = header
                .devices
                .iter()
                .find(|known| known.index == device)
                .map_or_else(String::new, |known| format!(" {}", known.name));
            let place = sort + 1 + u64::from(device);
            let title = format!("{who}: GPU {device}{name}{simulated}");
            processes.push((pid, place, title, format!("GPU {device}")));
        }
        if let Some(pid) = self.overhead_pid {
            let title = format!("{who}: CUPTI overhead{simulated}");
            processes.push((pid, 0x1000_0000 + self.number, title, "overhead".to_owned()));
        }
        processes.sort();
        for (pid, sort, name, label) in processes {
            let place = Place { pid, tid: 0 };
            writer.metadata("process_name", place, &json_string(&name))?;
            writer.metadata("process_labels", place, &json_string(&label))?;
            writer.metadata("process_sort_index", place, &sort.to_string())?;
        }
        let mut lanes: Vec<_> = self
            .rows
            .iter()
            .flat_map(|row| {
                row.tids
                    .iter()
                    .enumerate()
                    .map(move |(lane, &tid)| (row.pid, row.sort, lane, tid, &row.name))
            })
            .collect();
        lanes.sort();
        for (sort, (pid, _, lane, tid, name)) in lanes.into_iter().enumerate() {
            let place = Place { pid, tid };
            let name = if lane == 0 {
                name.clone()
            } else {
                summary.lanes_added += 1;
                format!("{name} (lane {})", lane + 1)
            };
            writer.metadata("thread_name", place, &json_string(&name))?;
            writer.metadata("thread_sort_index", place, &sort.to_string())?;
        }
        Ok(())
    }
}

/// Bytes, and their rate where there is one.
fn transfer(args: &mut Args<'_>, bytes: u64, duration_ns: i64) {
    args.raw("bytes", bytes);
    if duration_ns > 0 {
        // A byte a nanosecond is a gigabyte a second.
        args.raw("memory bandwidth (GB/s)", bytes as f64 / duration_ns as f64);
    }
}

/// A negative duration can't be drawn; it is kept beside the 0 that is.
fn original_duration(args: &mut Args<'_>, duration_ns: i64) {
    if duration_ns < 0 {
        args.raw("recorded duration (ns)", duration_ns);
    }
}
