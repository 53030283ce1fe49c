//! One event of a process each: its category, its name and its `args`, in Kineto's words.

use std::collections::HashMap;
use std::io;
use std::rc::Rc;

use gputrace_trace::NameId;

use super::event::{Args, EventWriter, Place, json_string};
use super::frame;
use super::process::Exporter;
use crate::export::layout::{Slice, Source};
use crate::export::{ExportSummary, words};

impl Exporter<'_> {
    /// Writes one slice.
    pub(super) fn write_slice(
        &mut self,
        slice: &Slice,
        place: Place,
        writer: &mut EventWriter<'_>,
    ) -> io::Result<()> {
        let (recording, process) = (self.layout.recording, self.layout.process);
        let tables = &process.tables;
        let index = slice.index as usize;
        let span = (slice.start_ns, slice.end_ns);
        match slice.source() {
            Source::Kernel => {
                let row = &tables.kernels;
                let name = self.name(Source::Kernel, row.name[index]);
                let correlation = row.correlation[index];
                let multiprocessors = self.multiprocessors(row.device[index]);
                let collective_rows = self.layout.collectives_of_kernel(slice.index);
                writer.slice("kernel", &name, place, span, |args| {
                    if let Some(first) = collective_rows.first() {
                        args.raw("External id", self.collective_id(*first));
                    }
                    args.raw("device", row.device[index]);
                    args.raw("context", row.context[index]);
                    args.raw("stream", row.stream[index]);
                    args.raw("correlation", correlation);
                    args.raw("registers per thread", row.registers[index]);
                    let shared = i64::from(row.static_shared_bytes[index])
                        + i64::from(row.dynamic_shared_bytes[index]);
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
                    for (key, value) in frame::collective_args(recording, process, &collective_rows) {
                        args.raw(key, value);
                    }
                    original_duration(args, row.duration_ns[index].0);
                })
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
                })
            }
            Source::Memset => {
                let row = &tables.memsets;
                let kind = gputrace_trace::copy_words::memory_name(row.memory_kind[index].into());
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
                })
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
                })
            }
            Source::Operator => {
                let name = self.name(Source::Operator, tables.operators.name[index]);
                writer.slice("cpu_op", &name, place, span, |args| {
                    original_duration(args, tables.operators.duration_ns[index].0);
                })
            }
            Source::Collective => {
                let row = &tables.collectives;
                let function = self.layout.recording.names.get(row.function[index]);
                let name = json_string(&format!("nccl:{}", words::collective_name(function)));
                writer.slice("user_annotation", &name, place, span, |args| {
                    args.raw("External id", self.collective_id(slice.index));
                    for (key, value) in frame::collective_args(recording, process, &[slice.index]) {
                        args.raw(key, value);
                    }
                    original_duration(args, row.duration_ns[index].0);
                })
            }
            Source::Synchronization => {
                let row = &tables.synchronizations;
                let kind = words::synchronization_name(row.kind[index]);
                writer.slice("cuda_sync", &json_string(kind), place, span, |args| {
                    args.text("cuda_sync_kind", kind);
                    args.maybe("wait_on_cuda_event_id", row.event[index]);
                    // Not as "stream": Holistic Trace Analysis would count the wait as a kernel of that stream.
                    args.maybe("stream of the wait", row.stream[index]);
                    args.raw("correlation", row.correlation[index]);
                    args.maybe("context", row.context[index]);
                    original_duration(args, row.duration_ns[index].0);
                })
            }
            Source::Overhead => {
                let name = json_string(words::overhead_name(tables.overheads.kind[index]));
                writer.slice("overhead", &name, place, span, |args| {
                    original_duration(args, tables.overheads.duration_ns[index].0);
                })
            }
            Source::GraphLaunch => {
                let row = &tables.graph_launches;
                let name = json_string(&format!("graph {}", row.graph[index]));
                writer.slice("graph_launch", &name, place, span, |args| {
                    args.raw("device", row.device[index]);
                    args.raw("context", row.context[index]);
                    args.raw("graph id", row.graph[index]);
                    args.raw("correlation", row.correlation[index]);
                    args.maybe("end device", row.end_device[index]);
                    args.maybe("end context", row.end_context[index]);
                    original_duration(args, row.duration_ns[index].0);
                })
            }
            Source::Window => {
                let row = &tables.windows;
                let name = self.name(Source::Window, row.what[index]);
                writer.slice("recording", &name, place, span, |args| {
                    args.maybe("first step", row.first_step[index]);
                    args.maybe("repeat", row.repeat[index]);
                    original_duration(args, row.duration_ns[index].0);
                })
            }
            Source::Compilation => {
                let row = &tables.compilations;
                let name = json_string(words::compilation_name(row.operation[index]));
                writer.slice("compilation", &name, place, span, |args| {
                    args.raw("device", row.device[index]);
                    args.raw("correlation", row.correlation[index]);
                    args.raw("unit", row.unit[index]);
                    args.raw("cache bytes", row.cache_bytes[index]);
                    if let Some(path) = row.cache_path[index] {
                        args.text("cache path", recording.names.get(path));
                    }
                    original_duration(args, row.duration_ns[index].0);
                })
            }
            Source::ProxyStep => {
                let row = &tables.nccl_proxy;
                let name = match (row.step[index], row.sends[index]) {
                    (Some(step), _) => format!("step {step}"),
                    (None, Some(0)) => "receive".to_owned(),
                    (None, Some(_)) => "send".to_owned(),
                    (None, None) => "part".to_owned(),
                };
                writer.slice("nccl_proxy", &json_string(&name), place, span, |args| {
                    args.text("communicator", &format!("{:#x}", row.communicator[index]));
                    args.raw("rank", row.rank[index]);
                    args.raw("number", row.number[index]);
                    args.maybe("parent", row.parent[index]);
                    args.maybe("channel", row.channel[index]);
                    args.maybe("peer", row.peer[index]);
                    args.maybe("steps", row.steps[index]);
                    args.maybe("bytes", row.bytes[index]);
                    let waits = [
                        ("waited for the GPU (ns)", row.gpu_wait_ns[index]),
                        ("waited for the peer (ns)", row.peer_wait_ns[index]),
                        ("in the network (ns)", row.network_ns[index]),
                        ("flush (ns)", row.flush_ns[index]),
                    ];
                    for (key, wait) in waits {
                        args.maybe(key, wait.map(|wait| wait.0));
                    }
                    original_duration(args, row.duration_ns[index].0);
                })
            }
            Source::Channel => {
                let row = &tables.nccl_channels;
                let name = match row.phase[index] {
                    Some(phase) => self.name(Source::Channel, phase),
                    None => json_string(&format!("channel {}", row.channel[index])).into(),
                };
                writer.slice("nccl_channel", &name, place, span, |args| {
                    args.text("communicator", &format!("{:#x}", row.communicator[index]));
                    args.raw("rank", row.rank[index]);
                    args.maybe("operation", row.operation[index]);
                    args.raw("device start (ns)", row.device_start_ns[index]);
                    args.maybe("device end (ns)", row.device_end_ns[index]);
                    original_duration(args, row.duration_ns[index].0);
                })
            }
            Source::Marker => {
                let name = self.name(Source::Marker, tables.markers.name[index]);
                writer.slice("user_annotation", &name, place, span, |args| {
                    self.marker_args(args, index);
                })
            }
        }
    }

    fn marker_args(&self, args: &mut Args<'_>, index: usize) {
        let row = &self.layout.process.tables.markers;
        let domain = self.layout.recording.names.get(row.domain[index]);
        if !domain.is_empty() {
            args.text("domain", domain);
        }
        args.maybe("category", row.category[index]);
        if let Some(color) = row.color[index] {
            args.raw("color", format_args!("\"#{color:08x}\""));
        }
        args.maybe(
            "payload",
            row.payload[index].filter(|payload| payload.is_finite()),
        );
        original_duration(args, row.duration_ns[index].map_or(0, |duration| duration.0));
    }

    /// A collective's number in the file.
    fn collective_id(&self, row: u32) -> u64 {
        ((self.layout.number as u64) << 40) + u64::from(row) + 1
    }

    fn multiprocessors(&self, device: u32) -> Option<u32> {
        let devices = &self.layout.process.header.devices;
        devices
            .iter()
            .find(|known| known.index == device)?
            .multiprocessors
    }

    /// A name as a JSON string.
    fn name(&mut self, source: Source, id: NameId) -> Rc<str> {
        let names = &self.layout.recording.names;
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
    pub(super) fn write_moments(
        &mut self,
        writer: &mut EventWriter<'_>,
        summary: &mut ExportSummary,
    ) -> io::Result<()> {
        let tables = &self.layout.process.tables;
        let markers = &tables.markers;
        for index in 0..markers.start_ns.len() {
            if markers.duration_ns[index].is_some() {
                continue;
            }
            let place = self.thread_place(markers.thread[index]);
            let name = self.name(Source::Marker, markers.name[index]);
            writer.instant(
                "cpu_instant_event",
                &name,
                place,
                markers.start_ns[index].0,
                |args| {
                    self.marker_args(args, index);
                },
            )?;
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
            writer.instant(
                "cpu_instant_event",
                "\"[memory]\"",
                place,
                memory.time_ns[index].0,
                |args| {
                    args.raw("Addr", memory.address[index]);
                    args.raw("Bytes", change);
                    args.raw("Total Allocated", total);
                    args.raw("Total Reserved", total);
                    args.raw("Device Type", u8::from(on_device));
                    args.raw("Device Id", device);
                    args.text(
                        "memory kind",
                        gputrace_trace::copy_words::memory_name(memory.memory_kind[index]),
                    );
                    args.raw("correlation", memory.correlation[index]);
                },
            )?;
            summary.events_out += 1;
        }
        let pools = &tables.memory_pools;
        for index in 0..pools.time_ns.len() {
            let name = json_string(words::pool_operation_name(pools.operation[index]));
            let place = Place {
                pid: self.host_pid,
                tid: self.host_pid,
            };
            writer.instant("memory_pool", &name, place, pools.time_ns[index].0, |args| {
                args.raw("Device Id", pools.device[index]);
                args.raw("Addr", pools.address[index]);
                args.raw("Bytes", pools.bytes[index]);
                args.raw("used bytes", pools.used_bytes[index]);
                args.raw("release threshold (bytes)", pools.release_threshold_bytes[index]);
                args.maybe("least bytes kept", pools.least_bytes_kept[index]);
                args.raw("correlation", pools.correlation[index]);
            })?;
            summary.events_out += 1;
        }
        self.write_untimed(writer, summary)?;
        let counters = &tables.counters;
        for index in 0..counters.time_ns.len() {
            let pid = match counters.device[index] {
                Some(device) => self.gpu_pids.get(&device).copied().unwrap_or(self.host_pid),
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
}

impl Exporter<'_> {
    /// Operations without an end, as moments at their starts; without a start, at the first moment of the file.
    fn write_untimed(&self, writer: &mut EventWriter<'_>, summary: &mut ExportSummary) -> io::Result<()> {
        let recording = self.layout.recording;
        let untimed = &self.layout.process.tables.untimed_operations;
        for index in 0..untimed.start_ns.len() {
            let name = untimed.name[index].map_or("", |name| recording.names.get(name));
            let pid = untimed.device[index].and_then(|device| self.gpu_pids.get(&device).copied());
            let place = match (untimed.thread[index], pid, untimed.stream[index]) {
                (Some(thread), _, _) => self.thread_place(thread),
                (None, Some(pid), stream) => Place {
                    pid,
                    tid: stream.unwrap_or(0).max(1).into(),
                },
                (None, None, _) => Place {
                    pid: self.host_pid,
                    tid: self.host_pid,
                },
            };
            let start = untimed.start_ns[index].map_or(writer.base_ns(), |start| start.0);
            let kind = words::activity_name(untimed.kind[index]);
            let name = json_string(&format!(
                "unfinished {}",
                if name.is_empty() { kind } else { name }
            ));
            writer.instant("unfinished", &name, place, start, |args| {
                args.text("kind", kind);
                args.maybe("start known", untimed.start_ns[index].is_none().then_some(0));
                args.maybe("stream", untimed.stream[index]);
                args.raw("correlation", untimed.correlation[index]);
                args.maybe("bytes", untimed.bytes[index]);
                args.maybe("graph id", untimed.graph[index]);
                args.maybe("graph node id", untimed.graph_node[index]);
            })?;
            summary.events_out += 1;
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
