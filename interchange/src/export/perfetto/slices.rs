//! One event of a process each: its name, its category and its arguments.

use std::io;

use gputrace_trace::copy_words::memory_name;
use gputrace_trace::derived::{DerivedCollective, DerivedPart};

use super::arguments::{Arguments, Key};
use super::categories::Category;
use super::fields::event;
use super::names::Wording;
use super::packets::Packets;
use super::process::Exporter;
use crate::export::layout::{Slice, Source};
use crate::export::protobuf::ProtoBuffer;
use crate::export::words;

impl Exporter<'_, '_> {
    /// Writes the begin of a slice, with all that is known of it.
    pub(super) fn write_begin(&mut self, slice: &Slice, packets: &mut Packets<'_>) -> io::Result<()> {
        let name = self.slice_name(slice, packets)?;
        let (category, index) = (self.category(slice), slice.index);
        let has_arguments = packets.has_arguments();
        packets.begin(slice.start_ns, name, category, |fields| {
            if let Some(id) = self.collective_id(slice) {
                fields.uint(event::CORRELATION_ID, id);
            }
            if slice.source() == Source::ApiCall {
                self.write_launches(index, fields);
            } else if let Some(flow) = self.flows.of_operation(slice).filter(|_| !self.is_stage(slice)) {
                fields.fixed64(event::TERMINATING_FLOW_IDS, flow);
            }
            if has_arguments {
                self.write_arguments(slice, &mut Arguments::new(fields));
            }
        })
    }

    /// Whether it is written as a stage of Perfetto's own vocabulary for GPUs.
    fn is_stage(&self, slice: &Slice) -> bool {
        self.stages.is_some() && matches!(slice.source(), Source::Kernel | Source::Copy | Source::Memset)
    }

    /// What a call launched.
    fn write_launches(&self, call: u32, fields: &mut ProtoBuffer) {
        if self.stages.is_none() {
            for flow in self.flows.of_call(call) {
                fields.fixed64(event::FLOW_IDS, flow);
            }
            return;
        }
        fields.uint(event::GPU_API, super::fields::stage::CUDA);
        let mut launched = self.flows.of_call(call).peekable();
        if launched.peek().is_some() {
            fields.message(event::GPU_CORRELATION, |fields| {
                for id in launched {
                    fields.uint(event::SUBMISSION_EVENT_IDS, id);
                }
            });
        }
    }

    /// The parts in collectives that a kernel carries out, and nothing for what is no kernel.
    pub(super) fn parts(&self, slice: &Slice) -> &[DerivedPart] {
        match self.layout.derived {
            // Most kernels compute: that is quickly known.
            Some(derived)
                if slice.source() == Source::Kernel
                    && derived
                        .communicates
                        .get(slice.index as usize)
                        .copied()
                        .unwrap_or(true) =>
            {
                derived.parts_of_kernel(slice.index)
            }
            _ => &[],
        }
    }

    /// The number that a collective has on all its ranks.
    pub(super) fn collective_id(&self, slice: &Slice) -> Option<u64> {
        match slice.source() {
            Source::Kernel => {
                let part = self.parts(slice).first()?;
                Some(self.collective(part)?.id)
            }
            Source::Collective => self.enqueued.get(&slice.index).copied(),
            _ => None,
        }
    }

    pub(super) fn collective(&self, part: &DerivedPart) -> Option<&DerivedCollective> {
        self.derived.collectives.get(part.collective as usize)
    }

    fn category(&self, slice: &Slice) -> Category {
        match slice.source() {
            Source::Kernel => Category::Kernel,
            Source::Copy => Category::Copy,
            Source::Memset => Category::Memset,
            Source::GraphLaunch => Category::GraphLaunch,
            Source::ApiCall => match self.layout.process.tables.api_calls.kind[slice.index as usize] {
                4 => Category::Driver,
                _ => Category::Runtime,
            },
            Source::Operator => Category::Operator,
            Source::PythonFrame => Category::PythonFrame,
            Source::Marker | Source::Collective => Category::Annotation,
            Source::Synchronization => Category::Synchronization,
            Source::Overhead => Category::Overhead,
            Source::Compilation => Category::Compilation,
            Source::ProxyStep => Category::ProxyStep,
            Source::Channel => Category::Channel,
            Source::Window => Category::Window,
        }
    }

    /// The number of a slice's name.
    pub(super) fn slice_name(&mut self, slice: &Slice, packets: &mut Packets<'_>) -> io::Result<u64> {
        let tables = &self.layout.process.tables;
        let index = slice.index as usize;
        let names = &mut *self.names;
        match slice.source() {
            Source::Kernel => names.of(Wording::Kernel, tables.kernels.name[index], packets),
            Source::ApiCall => names.of(Wording::Call, tables.api_calls.name[index], packets),
            Source::Operator => names.of(Wording::Plain, tables.operators.name[index], packets),
            Source::PythonFrame => names.of(Wording::Plain, tables.python_frames.name[index], packets),
            Source::Marker => names.of(Wording::Plain, tables.markers.name[index], packets),
            Source::Window => names.of(Wording::Plain, tables.windows.what[index], packets),
            Source::Collective => names.of(Wording::Enqueued, tables.collectives.function[index], packets),
            Source::Copy => {
                let row = &tables.copies;
                let kinds = (
                    row.copy_kind[index],
                    row.source_kind[index],
                    row.destination_kind[index],
                );
                names.text(&words::copy_name(kinds.0, kinds.1, kinds.2), packets)
            }
            Source::Memset => {
                let kind = memory_name(tables.memsets.memory_kind[index].into());
                names.text(&format!("Memset ({kind})"), packets)
            }
            Source::GraphLaunch => {
                names.text(&format!("graph {}", tables.graph_launches.graph[index]), packets)
            }
            Source::Synchronization => names.text(
                words::synchronization_name(tables.synchronizations.kind[index]),
                packets,
            ),
            Source::Overhead => names.text(words::overhead_name(tables.overheads.kind[index]), packets),
            Source::Compilation => names.text(
                words::compilation_name(tables.compilations.operation[index]),
                packets,
            ),
            Source::ProxyStep => match (tables.nccl_proxy.step[index], tables.nccl_proxy.sends[index]) {
                (Some(step), _) => names.text(&format!("step {step}"), packets),
                (None, Some(0)) => names.text("receive", packets),
                (None, Some(_)) => names.text("send", packets),
                (None, None) => names.text("part", packets),
            },
            Source::Channel => match tables.nccl_channels.phase[index] {
                Some(phase) => names.of(Wording::Plain, phase, packets),
                None => names.text(
                    &format!("channel {}", tables.nccl_channels.channel[index]),
                    packets,
                ),
            },
        }
    }

    pub(super) fn write_arguments(&self, slice: &Slice, arguments: &mut Arguments<'_>) {
        let strings = &self.layout.recording.names;
        let tables = &self.layout.process.tables;
        let index = slice.index as usize;
        match slice.source() {
            Source::Kernel => self.kernel_arguments(slice, arguments),
            Source::Copy => {
                let row = &tables.copies;
                self.place_arguments(
                    row.device[index],
                    row.context[index],
                    row.stream[index],
                    arguments,
                );
                arguments.uint(Key::Correlation, row.correlation[index]);
                arguments.transfer(row.bytes[index], row.duration_ns[index].0);
                arguments.maybe_uint(Key::SourceDevice, row.source_device[index]);
                arguments.maybe_uint(Key::DestinationDevice, row.destination_device[index]);
                arguments.maybe_uint(Key::Graph, row.graph[index]);
                arguments.maybe_uint(Key::GraphNode, row.graph_node[index]);
                arguments.recorded_duration(row.duration_ns[index].0);
            }
            Source::Memset => {
                let row = &tables.memsets;
                self.place_arguments(
                    row.device[index],
                    row.context[index],
                    row.stream[index],
                    arguments,
                );
                arguments.uint(Key::Correlation, row.correlation[index]);
                arguments.transfer(row.bytes[index], row.duration_ns[index].0);
                arguments.uint(Key::Value, row.value[index]);
                arguments.maybe_uint(Key::Graph, row.graph[index]);
                arguments.maybe_uint(Key::GraphNode, row.graph_node[index]);
                arguments.recorded_duration(row.duration_ns[index].0);
            }
            Source::GraphLaunch => {
                let row = &tables.graph_launches;
                self.place_arguments(
                    row.device[index],
                    row.context[index],
                    row.stream[index],
                    arguments,
                );
                arguments.uint(Key::Correlation, row.correlation[index]);
                arguments.uint(Key::Graph, row.graph[index]);
                arguments.maybe_uint(Key::EndDevice, row.end_device[index]);
                arguments.maybe_uint(Key::EndContext, row.end_context[index]);
                arguments.recorded_duration(row.duration_ns[index].0);
            }
            Source::ApiCall => {
                let row = &tables.api_calls;
                arguments.uint(Key::Correlation, row.correlation[index]);
                arguments.uint(Key::Callback, row.callback[index]);
                if row.result[index] != 0 {
                    arguments.uint(Key::Result, row.result[index]);
                }
                arguments.recorded_duration(row.duration_ns[index].0);
            }
            Source::Operator => self.operator_arguments(index, arguments),
            Source::PythonFrame => arguments.recorded_duration(tables.python_frames.duration_ns[index].0),
            Source::Collective => {
                self.enqueued_arguments(index, arguments);
                arguments.recorded_duration(tables.collectives.duration_ns[index].0);
            }
            Source::Marker => {
                self.marker_arguments(index, arguments);
                arguments.recorded_duration(tables.markers.duration_ns[index].map_or(0, |d| d.0));
            }
            Source::Synchronization => {
                let row = &tables.synchronizations;
                arguments.uint(Key::Correlation, row.correlation[index]);
                arguments.maybe_uint(Key::Context, row.context[index]);
                arguments.maybe_uint(Key::Stream, row.stream[index]);
                arguments.maybe_uint(Key::Event, row.event[index]);
                arguments.maybe_uint(Key::Result, row.result[index].filter(|&result| result != 0));
                arguments.recorded_duration(row.duration_ns[index].0);
            }
            Source::Overhead => {
                let row = &tables.overheads;
                arguments.maybe_uint(Key::Device, row.device[index]);
                arguments.maybe_uint(Key::Correlation, row.correlation[index]);
                arguments.recorded_duration(row.duration_ns[index].0);
            }
            Source::Compilation => {
                let row = &tables.compilations;
                arguments.uint(Key::Device, row.device[index]);
                arguments.uint(Key::Correlation, row.correlation[index]);
                arguments.uint(Key::Unit, row.unit[index]);
                arguments.uint(Key::CacheBytes, row.cache_bytes[index]);
                if let Some(path) = row.cache_path[index] {
                    arguments.text(Key::CachePath, strings.get(path));
                }
                arguments.recorded_duration(row.duration_ns[index].0);
            }
            Source::ProxyStep => {
                let row = &tables.nccl_proxy;
                arguments.hexadecimal(Key::Communicator, row.communicator[index]);
                arguments.uint(Key::Rank, row.rank[index]);
                arguments.uint(Key::Number, row.number[index]);
                arguments.maybe_uint(Key::Parent, row.parent[index]);
                arguments.maybe_uint(Key::Channel, row.channel[index]);
                arguments.maybe_int(Key::Peer, row.peer[index]);
                arguments.maybe_uint(Key::Steps, row.steps[index]);
                arguments.maybe_uint(Key::Bytes, row.bytes[index]);
                arguments.maybe_int(Key::GpuWait, row.gpu_wait_ns[index].map(|d| d.0));
                arguments.maybe_int(Key::PeerWait, row.peer_wait_ns[index].map(|d| d.0));
                arguments.maybe_int(Key::Network, row.network_ns[index].map(|d| d.0));
                arguments.maybe_int(Key::Flush, row.flush_ns[index].map(|d| d.0));
                arguments.recorded_duration(row.duration_ns[index].0);
            }
            Source::Channel => {
                let row = &tables.nccl_channels;
                arguments.hexadecimal(Key::Communicator, row.communicator[index]);
                arguments.uint(Key::Rank, row.rank[index]);
                arguments.maybe_uint(Key::Operation, row.operation[index]);
                arguments.uint(Key::DeviceStart, row.device_start_ns[index]);
                arguments.maybe_uint(Key::DeviceEnd, row.device_end_ns[index]);
                arguments.recorded_duration(row.duration_ns[index].0);
            }
            Source::Window => {
                let row = &tables.windows;
                arguments.maybe_uint(Key::FirstStep, row.first_step[index]);
                arguments.maybe_uint(Key::Repeat, row.repeat[index]);
                arguments.recorded_duration(row.duration_ns[index].0);
            }
        }
    }

    /// Where a slice of a stream was executed.
    pub(super) fn write_place(&self, slice: &Slice, arguments: &mut Arguments<'_>) {
        let tables = &self.layout.process.tables;
        let index = slice.index as usize;
        let (device, context, stream) = match slice.source() {
            Source::Copy => (
                tables.copies.device[index],
                tables.copies.context[index],
                tables.copies.stream[index],
            ),
            Source::Memset => (
                tables.memsets.device[index],
                tables.memsets.context[index],
                tables.memsets.stream[index],
            ),
            _ => (
                tables.kernels.device[index],
                tables.kernels.context[index],
                tables.kernels.stream[index],
            ),
        };
        self.place_arguments(device, context, stream, arguments);
    }

    fn place_arguments(&self, device: u32, context: u32, stream: u32, arguments: &mut Arguments<'_>) {
        arguments.uint(Key::Device, device);
        arguments.uint(Key::Context, context);
        arguments.uint(Key::Stream, stream);
    }

    fn kernel_arguments(&self, slice: &Slice, arguments: &mut Arguments<'_>) {
        let row = &self.layout.process.tables.kernels;
        let index = slice.index as usize;
        self.place_arguments(
            row.device[index],
            row.context[index],
            row.stream[index],
            arguments,
        );
        arguments.uint(Key::Correlation, row.correlation[index]);
        let grid = [row.grid_x[index], row.grid_y[index], row.grid_z[index]];
        let block = [row.block_x[index], row.block_y[index], row.block_z[index]];
        arguments.extent(Key::Grid, grid.map(i64::from));
        arguments.extent(Key::Block, block.map(i64::from));
        if let (Some(x), Some(y), Some(z)) =
            (row.cluster_x[index], row.cluster_y[index], row.cluster_z[index])
        {
            arguments.extent(Key::Cluster, [x, y, z].map(i64::from));
        }
        arguments.uint(Key::Registers, row.registers[index]);
        arguments.int(Key::StaticShared, row.static_shared_bytes[index]);
        arguments.int(Key::DynamicShared, row.dynamic_shared_bytes[index]);
        if row.local_bytes[index] != 0 {
            arguments.uint(Key::Local, row.local_bytes[index]);
        }
        let multiprocessors = self
            .device(row.device[index])
            .and_then(|device| device.multiprocessors);
        if let Some(multiprocessors) = multiprocessors.filter(|&count| count > 0) {
            let blocks: f64 = grid.iter().map(|&size| f64::from(size)).product();
            let threads: f64 = block.iter().map(|&size| f64::from(size)).product();
            let each = blocks / f64::from(multiprocessors);
            arguments.double(Key::BlocksPerMultiprocessor, each);
            arguments.double(Key::WarpsPerMultiprocessor, each * (threads / 32.0).ceil());
        }
        arguments.maybe_uint(Key::Graph, row.graph[index]);
        arguments.maybe_uint(Key::GraphNode, row.graph_node[index]);
        if let Some(derived) = self.layout.derived {
            let keys = [Key::Operator, Key::InputDims, Key::Module];
            for (key, (_, column)) in keys.into_iter().zip(derived.launched_by.columns()) {
                if let Some(name) = column.get(index).copied().flatten() {
                    arguments.text(key, self.layout.recording.names.get(name));
                }
            }
        }
        self.carried_arguments(slice, arguments);
        arguments.recorded_duration(row.duration_ns[index].0);
    }

    fn operator_arguments(&self, index: usize, arguments: &mut Arguments<'_>) {
        let row = &self.layout.process.tables.operators;
        for (key, list) in [
            (Key::InputDims, row.input_dims[index]),
            (Key::InputTypes, row.input_types[index]),
            (Key::InputValues, row.input_values[index]),
        ] {
            if let Some(list) = list {
                arguments.text(key, self.layout.recording.names.get(list));
            }
        }
        arguments.maybe_uint(Key::SequenceNumber, row.sequence[index]);
        arguments.maybe_uint(Key::ForwardThread, row.forward_thread[index]);
        arguments.recorded_duration(row.duration_ns[index].0);
    }

    /// What a kernel carries out: one collective with all that is known of it, or a group.
    fn carried_arguments(&self, slice: &Slice, arguments: &mut Arguments<'_>) {
        match self.parts(slice) {
            [] => match self.layout.collectives_of_kernel(slice.index).as_slice() {
                [] => {}
                [row] => self.enqueued_arguments(*row as usize, arguments),
                rows => arguments.uint(Key::Collectives, rows.len() as u64),
            },
            [part] => self.part_arguments(part, arguments),
            parts => {
                let collectives = || parts.iter().filter_map(|part| self.collective(part));
                let names: Vec<&str> = collectives().map(|collective| collective.name.as_str()).collect();
                arguments.uint(Key::Collectives, parts.len() as u64);
                arguments.text(Key::Collective, &names.join(", "));
                let bytes = collectives().map(|collective| collective.bytes.unwrap_or(0));
                arguments.uint(Key::Bytes, bytes.fold(0, u64::saturating_add));
                // All are one kernel, whose times they share.
                arguments.maybe_int(Key::Wait, parts[0].wait_ns);
                arguments.maybe_int(Key::Transfer, parts[0].transfer_ns);
                arguments.maybe_int(Key::Exposed, parts[0].exposed_ns);
            }
        }
    }

    /// A collective over its ranks, and this process's part in it.
    pub(super) fn part_arguments(&self, part: &DerivedPart, arguments: &mut Arguments<'_>) {
        if let Some(collective) = self.collective(part) {
            arguments.text(Key::Collective, &collective.name);
            arguments.text(Key::Communicator, &collective.communicator);
            if let Some(name) = &collective.communicator_name {
                arguments.text(Key::CommunicatorName, name);
            }
            arguments.maybe_uint(Key::Sequence, collective.sequence);
            let ranks: Vec<String> = collective.ranks.iter().map(u32::to_string).collect();
            arguments.text(Key::Ranks, &ranks.join(","));
            arguments.maybe_uint(Key::Bytes, collective.bytes);
            arguments.some_text(Key::DataType, &collective.dtype);
            arguments.maybe_double(Key::AlgorithmBandwidth, collective.algbw);
            arguments.maybe_double(Key::BusBandwidth, collective.busbw);
            arguments.maybe_int(Key::Skew, collective.skew_ns);
            arguments.maybe_uint(Key::LastRank, collective.last_rank);
            arguments.flag(Key::WarmUp, collective.warm_up);
        }
        arguments.maybe_int(Key::Wait, part.wait_ns);
        arguments.maybe_int(Key::Transfer, part.transfer_ns);
        arguments.maybe_int(Key::Exposed, part.exposed_ns);
    }

    /// A row of `collectives`, as NCCL was called.
    fn enqueued_arguments(&self, index: usize, arguments: &mut Arguments<'_>) {
        let strings = &self.layout.recording.names;
        let row = &self.layout.process.tables.collectives;
        arguments.text(Key::Collective, strings.get(row.function[index]));
        arguments.hexadecimal(Key::Communicator, row.communicator[index]);
        arguments.uint(Key::Rank, row.rank[index]);
        arguments.maybe_uint(Key::Sequence, row.sequence[index]);
        arguments.uint(Key::Bytes, row.bytes[index]);
        arguments.uint(Key::Elements, row.count[index]);
        arguments.some_text(Key::DataType, strings.get(row.datatype[index]));
        arguments.maybe_int(Key::Root, row.root[index]);
        arguments.maybe_int(Key::Peer, row.peer[index]);
        for (name, text) in [
            (Key::Algorithm, row.algorithm[index]),
            (Key::Protocol, row.protocol[index]),
        ] {
            if let Some(text) = text {
                arguments.text(name, strings.get(text));
            }
        }
        arguments.uint(Key::Channels, row.channels[index]);
    }

    pub(super) fn marker_arguments(&self, index: usize, arguments: &mut Arguments<'_>) {
        let strings = &self.layout.recording.names;
        let row = &self.layout.process.tables.markers;
        arguments.some_text(Key::Domain, strings.get(row.domain[index]));
        arguments.maybe_uint(Key::Kind, row.category[index]);
        if let Some(color) = row.color[index] {
            arguments.text(Key::Color, &format!("#{color:08x}"));
        }
        match (
            row.payload_integer[index],
            row.payload_type[index],
            row.payload[index],
        ) {
            // Signed types are sign-extended.
            (Some(integer), Some(2 | 5), _) => arguments.int(Key::Payload, integer.cast_signed()),
            (Some(integer), ..) => arguments.uint(Key::Payload, integer),
            (None, _, payload) => arguments.maybe_double(Key::Payload, payload),
        }
    }
}
