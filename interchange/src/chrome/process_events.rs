//! One event of a process each: its category, its name and its `args`, in Kineto's words.

use std::collections::HashMap;
use std::io;
use std::rc::Rc;

use gputrace_trace::NameId;

use super::event::{Args, EventWriter, Place, json_string};
use super::process::{Exporter, Identifiers, RowKey, Slice, Source};
use super::{ExportSummary, frame, words};

impl Exporter<'_> {
    /// Writes one slice; for an operation of a device, its correlation.
    pub(super) fn write_slice(
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
                let by_kernel = self.collectives_by_kernel.get(&slice.index);
                let collective_rows = by_kernel.or_else(|| self.collectives.get(&correlation));
                writer.slice("kernel", &name, place, span, |args| {
                    if let Some(first) = collective_rows.and_then(|rows| rows.first()) {
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
            Source::Operator => {
                let name = self.name(Source::Operator, tables.operators.name[index]);
                writer.slice("cpu_op", &name, place, span, |args| {
                    original_duration(args, tables.operators.duration_ns[index].0);
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
                    // Not as "stream": Holistic Trace Analysis would count the wait as a kernel of that stream.
                    args.maybe("stream of the wait", row.stream[index]);
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
        args.maybe(
            "payload",
            row.payload[index].filter(|payload| payload.is_finite()),
        );
        original_duration(args, row.duration_ns[index].map_or(0, |duration| duration.0));
    }

    /// A collective's number in the file.
    fn collective_id(&self, row: u32) -> u64 {
        (self.number << 40) + u64::from(row) + 1
    }

    fn multiprocessors(&self, device: u32) -> Option<u32> {
        let devices = &self.process.header.devices;
        devices
            .iter()
            .find(|known| known.index == device)?
            .multiprocessors
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
    pub(super) fn write_moments(
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
