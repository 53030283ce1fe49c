//! One event of a worker each: the category under which torch-tb-profiler reads it, or one that it does not know.

use std::io;

use gputrace_trace::NameId;
use gputrace_trace::copy_words::memory_name;
use gputrace_trace::occupancy::{Block, Multiprocessor};
use serde::de::IgnoredAny;

use super::event::{Args, EventWriter, Place, json_string};
use super::plan::is_misread;
use super::worker::{MOST_DEVICES, Span, Untold, Worker};
use crate::export::ExportSummary;
use crate::export::layout::{Flow, Slice, Source};
use crate::export::words;

/// Correlation ids are positive; operations and calls without one must not be taken for each other's.
const NO_CORRELATION_OF_CALL: i64 = -1;
const NO_CORRELATION_OF_OPERATION: i64 = -2;

impl Worker<'_> {
    /// Writes what of a row belongs to the span.
    pub(super) fn write_row(
        &mut self,
        row: usize,
        span: &Span,
        writer: &mut EventWriter<'_>,
        summary: &mut ExportSummary,
        untold: &mut Untold,
    ) -> io::Result<()> {
        let layout = self.layout;
        for slice in &layout.rows[row].slices {
            if self.span_of(slice) != span.number {
                continue;
            }
            let place = self.place(row, slice.lane());
            if slice.source().is_launched() {
                self.write_operation(slice, place, writer, untold)?;
                self.write_flow(slice, place, writer, summary)?;
            } else {
                self.write_host_slice(slice, place, writer)?;
            }
            summary.events_out += 1;
        }
        Ok(())
    }

    fn write_flow(
        &self,
        slice: &Slice,
        place: Place,
        writer: &mut EventWriter<'_>,
        summary: &mut ExportSummary,
    ) -> io::Result<()> {
        match self.layout.flow(slice) {
            Flow::None => {}
            Flow::Unknown => summary.launches_unknown += 1,
            Flow::Later(_) => summary.launches_later += 1,
            Flow::From(launch) => {
                summary.flows += 1;
                let from = self.place(launch.row, launch.lane);
                let number = (self.layout.number as u64) << 40 | summary.flows;
                writer.flow(number, (from, launch.start_ns), (place, slice.start_ns))?;
            }
        }
        Ok(())
    }

    /// The name of an operation or a call, not yet as JSON.
    pub(super) fn slice_name(&self, slice: &Slice) -> String {
        let (tables, index) = (&self.layout.process.tables, slice.index as usize);
        let names = &self.layout.recording.names;
        match slice.source() {
            Source::Kernel => words::kernel_name(names.get(tables.kernels.name[index])),
            Source::Copy => words::copy_name(
                tables.copies.copy_kind[index],
                tables.copies.source_kind[index],
                tables.copies.destination_kind[index],
            ),
            Source::Memset => format!(
                "Memset ({})",
                memory_name(tables.memsets.memory_kind[index].into())
            ),
            Source::GraphLaunch => format!("CUDA graph {}", tables.graph_launches.graph[index]),
            Source::ApiCall => words::call_name(names.get(tables.api_calls.name[index])).to_owned(),
            Source::Operator => names.get(tables.operators.name[index]).to_owned(),
            Source::PythonFrame => names.get(tables.python_frames.name[index]).to_owned(),
            Source::Marker => names.get(tables.markers.name[index]).to_owned(),
            Source::Window => names.get(tables.windows.what[index]).to_owned(),
            Source::Collective => {
                let function = names.get(tables.collectives.function[index]);
                format!("nccl:{}", words::collective_name(function))
            }
            Source::Compilation => words::compilation_name(tables.compilations.operation[index]).to_owned(),
            Source::Overhead => words::overhead_name(tables.overheads.kind[index]).to_owned(),
            Source::Synchronization => {
                words::synchronization_name(tables.synchronizations.kind[index]).to_owned()
            }
            Source::ProxyStep => match tables.nccl_proxy.step[index] {
                Some(step) => format!("NCCL proxy: step {step}"),
                None => "NCCL proxy".to_owned(),
            },
            Source::Channel => match tables.nccl_channels.phase[index] {
                Some(phase) => names.get(phase).to_owned(),
                None => format!("channel {}", tables.nccl_channels.channel[index]),
            },
        }
    }

    fn write_operation(
        &mut self,
        slice: &Slice,
        place: Place,
        writer: &mut EventWriter<'_>,
        untold: &mut Untold,
    ) -> io::Result<()> {
        let layout = self.layout;
        let (tables, index) = (&layout.process.tables, slice.index as usize);
        let span = (slice.start_ns, slice.end_ns);
        let id = self.plan.operation_id(layout, slice);
        let correlation = match layout.correlation(slice) {
            0 => NO_CORRELATION_OF_OPERATION,
            correlation => correlation.into(),
        };
        let (category, name, device, stream, context, duration_ns) = match slice.source() {
            Source::Kernel => {
                let row = &tables.kernels;
                let name = self.name(Source::Kernel, row.name[index], words::kernel_name);
                let at = (row.device[index], row.stream[index], row.context[index]);
                ("kernel", name, at.0, at.1, at.2, row.duration_ns[index].0)
            }
            Source::Copy => {
                let row = &tables.copies;
                let at = (row.device[index], row.stream[index], row.context[index]);
                let name = json_string(&self.slice_name(slice)).into();
                ("gpu_memcpy", name, at.0, at.1, at.2, row.duration_ns[index].0)
            }
            Source::Memset => {
                let row = &tables.memsets;
                let at = (row.device[index], row.stream[index], row.context[index]);
                let name = json_string(&self.slice_name(slice)).into();
                ("gpu_memset", name, at.0, at.1, at.2, row.duration_ns[index].0)
            }
            // What ran in it is not known: it counts as a kernel, as it does in our own analysis.
            _ => {
                let row = &tables.graph_launches;
                let at = (row.device[index], row.stream[index], row.context[index]);
                let name = json_string(&self.slice_name(slice)).into();
                ("kernel", name, at.0, at.1, at.2, row.duration_ns[index].0)
            }
        };
        let category = match self.devices.contains_key(&device) {
            true => category,
            false => {
                untold.operations_on_further_devices += 1;
                "operation on a further GPU"
            }
        };
        let number = self.devices.get(&device).copied().unwrap_or(MOST_DEVICES);
        writer.slice(category, &name, place, span, |args| {
            args.raw("External id", id);
            args.raw("device", number);
            if number != device {
                args.raw("CUDA device", device);
            }
            args.raw("context", context);
            args.raw("stream", stream);
            args.raw("correlation", correlation);
            match slice.source() {
                Source::Kernel => self.kernel_args(args, slice.index),
                Source::Copy => args.raw("bytes", tables.copies.bytes[index]),
                Source::Memset => args.raw("bytes", tables.memsets.bytes[index]),
                _ => {}
            }
            original_duration(args, duration_ns);
        })
    }

    fn kernel_args(&self, args: &mut Args<'_>, kernel: u32) {
        let row = &self.layout.process.tables.kernels;
        let index = kernel as usize;
        args.raw("registers per thread", row.registers[index]);
        let shared = i64::from(row.static_shared_bytes[index]) + i64::from(row.dynamic_shared_bytes[index]);
        args.raw("shared memory", shared);
        let grid = [row.grid_x[index], row.grid_y[index], row.grid_z[index]];
        let block = [row.block_x[index], row.block_y[index], row.block_z[index]];
        let [x, y, z] = grid;
        args.raw("grid", format_args!("[{x},{y},{z}]"));
        let [x, y, z] = block;
        args.raw("block", format_args!("[{x},{y},{z}]"));
        let devices = &self.layout.process.header.devices;
        let device = devices.iter().find(|known| known.index == row.device[index]);
        let blocks: f64 = grid.iter().map(|size| f64::from((*size).max(0))).product();
        let threads: f64 = block.iter().map(|size| f64::from((*size).max(0))).product();
        // The plugin refuses a number of blocks that is not finite, and one of 0.
        if let Some(multiprocessors) = device.and_then(|device| device.multiprocessors)
            && multiprocessors > 0
            && blocks > 0.0
        {
            let each = blocks / f64::from(multiprocessors);
            args.raw("blocks per SM", each);
            args.raw("warps per SM", each * (threads / 32.0).ceil());
            let multiprocessor = device.and_then(Multiprocessor::of);
            let fit = multiprocessor.zip(Block::of(row, index));
            if let Some((of, fit)) = fit.and_then(|(of, block)| Some((of, of.fit(block)?))) {
                // As Kineto rounds it (DeviceProperties.cpp).
                let most = f64::from(of.limits.warps) * f64::from(of.limits.warp_threads);
                let active = f64::from(fit.blocks).min(each) * threads;
                args.raw("est. achieved occupancy %", (active / most * 100.0).round());
            }
        }
        if let Some(graph) = row.graph[index] {
            args.raw("graph id", graph);
            args.maybe("graph node id", row.graph_node[index]);
        }
        if let Some(part) = self
            .layout
            .derived
            .and_then(|derived| derived.parts_of_kernel(kernel).first())
        {
            args.maybe("wait (ns)", part.wait_ns);
            args.maybe("transfer (ns)", part.transfer_ns);
            args.maybe("exposed (ns)", part.exposed_ns);
        }
    }

    /// What the plugin takes for the size of a collective: shapes and types of its inputs. Both or neither, or it stumbles.
    pub(super) fn collective_sizes(&self, args: &mut Args<'_>, rows: &[u32]) {
        if rows.is_empty() {
            return;
        }
        let process = self.layout.process;
        let table = &process.tables.collectives;
        let communicators = &process.tables.communicators;
        let (mut shapes, mut types) = (Vec::new(), Vec::new());
        for row in rows.iter().map(|row| *row as usize) {
            let names = &self.layout.recording.names;
            let communicator = table.communicator[row];
            let place = communicators
                .communicator
                .iter()
                .position(|known| *known == communicator);
            let ranks = place.map_or(1, |place| communicators.ranks[place].max(1));
            // NCCL counts what a rank gets of a ReduceScatter, of all others what it gives.
            let times = match names.get(table.function[row]) {
                "ReduceScatter" => u64::from(ranks),
                _ => 1,
            };
            let (count, bytes) = (table.count[row], table.bytes[row]);
            // Of other types the plugin knows no size: they are written as bytes.
            let known = known_type(names.get(table.datatype[row]))
                .filter(|(_, size)| count.checked_mul(*size) == Some(bytes));
            let (elements, name) = match known {
                Some((name, _)) => (count, name),
                None => (bytes, "unsigned char"),
            };
            shapes.push(format!("[{}]", elements.saturating_mul(times)));
            types.push(format!("\"{name}\""));
        }
        args.raw("Input Dims", format_args!("[{}]", shapes.join(",")));
        args.raw("Input type", format_args!("[{}]", types.join(",")));
    }

    fn write_host_slice(
        &mut self,
        slice: &Slice,
        place: Place,
        writer: &mut EventWriter<'_>,
    ) -> io::Result<()> {
        let layout = self.layout;
        let (tables, index) = (&layout.process.tables, slice.index as usize);
        let span = (slice.start_ns, slice.end_ns);
        match slice.source() {
            Source::ApiCall => {
                let row = &tables.api_calls;
                let name = self.name(Source::ApiCall, row.name[index], |name| {
                    words::call_name(name).to_owned()
                });
                writer.slice("Runtime", &name, place, span, |args| {
                    args.raw("External id", self.plan.calls[index]);
                    match row.correlation[index] {
                        0 => args.raw("correlation", NO_CORRELATION_OF_CALL),
                        correlation => args.raw("correlation", correlation),
                    }
                    args.raw("cbid", row.callback[index]);
                    if row.result[index] != 0 {
                        args.raw("return value", row.result[index]);
                    }
                    original_duration(args, row.duration_ns[index].0);
                })
            }
            Source::Operator => {
                let (name, id) = (tables.operators.name[index], self.plan.operators[index]);
                let duration_ns = tables.operators.duration_ns[index].0;
                let shapes = self.shapes(index);
                self.write_range(slice, name, id, shapes, duration_ns, place, writer)
            }
            Source::Marker => {
                let (name, id) = (tables.markers.name[index], self.plan.markers[index]);
                let duration_ns = tables.markers.duration_ns[index].map_or(0, |duration| duration.0);
                self.write_range(slice, name, id, None, duration_ns, place, writer)
            }
            source => {
                let category = match source {
                    // The plugin takes "python" and "python_function" for its own, with numbers that only PyTorch gives.
                    Source::PythonFrame => "function",
                    Source::Collective => "collective",
                    Source::Compilation => "compilation",
                    Source::Overhead => "overhead",
                    Source::Synchronization => "cuda_sync",
                    Source::ProxyStep => "nccl_proxy",
                    Source::Channel => "nccl_channel",
                    _ => "recording",
                };
                let name = json_string(&self.slice_name(slice));
                writer.slice(category, &name, place, span, |args| {
                    if source == Source::Collective {
                        let bytes = tables.collectives.bytes[index];
                        args.raw("bytes", bytes);
                        args.maybe("Seq", tables.collectives.sequence[index]);
                    }
                })
            }
        }
    }

    /// An operator, or a range that is none, and is in no category that the plugin knows then.
    /// Shapes and types of an operator's inputs, by which the plugin tells operators of one name apart. Both or neither, or it
    /// stumbles.
    fn shapes(&mut self, operator: usize) -> Option<(NameId, NameId)> {
        let (layout, operators) = (self.layout, &self.layout.process.tables.operators);
        let shapes = operators.input_dims[operator].zip(operators.input_types[operator])?;
        let mut is_list = |list: NameId| {
            *self.lists.entry(list).or_insert_with(|| {
                serde_json::from_str::<Vec<IgnoredAny>>(layout.recording.names.get(list)).is_ok()
            })
        };
        (is_list(shapes.0) && is_list(shapes.1)).then_some(shapes)
    }

    fn write_range(
        &mut self,
        slice: &Slice,
        name: NameId,
        id: u64,
        shapes: Option<(NameId, NameId)>,
        duration_ns: i64,
        place: Place,
        writer: &mut EventWriter<'_>,
    ) -> io::Result<()> {
        let name = self.name(Source::Marker, name, str::to_owned);
        let category = if id == 0 { "range" } else { "cpu_op" };
        debug_assert!(id == 0 || !is_misread(&name));
        let names = &self.layout.recording.names;
        writer.slice(category, &name, place, (slice.start_ns, slice.end_ns), |args| {
            if id != 0 {
                args.raw("External id", id);
                if let Some((dims, types)) = shapes {
                    args.raw("Input Dims", names.get(dims));
                    args.raw("Input type", names.get(types));
                }
            }
            original_duration(args, duration_ns);
        })
    }
}

/// The plugin's name of a data type and its bytes, of those that it knows.
fn known_type(datatype: &str) -> Option<(&'static str, u64)> {
    Some(match words::datatype_name(datatype) {
        "Long" | "long" => ("long int", 8),
        "Float" | "float" => ("float", 4),
        "Int" | "int" => ("int", 4),
        "Half" | "c10::Half" => ("c10::Half", 2),
        "BFloat16" | "c10::BFloat16" => ("c10::BFloat16", 2),
        "Byte" | "unsigned char" => ("unsigned char", 1),
        _ => return None,
    })
}

/// A negative duration can't be drawn; it is kept beside the 0 that is.
fn original_duration(args: &mut Args<'_>, duration_ns: i64) {
    if duration_ns < 0 {
        args.raw("recorded duration (ns)", duration_ns);
    }
}
