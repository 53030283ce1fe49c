//! One event with a length: its category, its name and its `args`, in Kineto's words.

use std::io;

use gputrace_trace::copy_words::memory_name;

use super::event::{EventWriter, Place, json_string};
use super::gputrace_members::Odd;
use super::names::Of;
use super::operator_args::Written;
use super::process::{Caches, Exporter};
use crate::export::layout::{Slice, Source};
use crate::export::words;

/// The beginning of a slice, up to its name.
macro_rules! head {
    ($category:literal) => {
        concat!("{\"ph\":\"X\",\"cat\":\"", $category, "\",\"name\":")
    };
}

impl Exporter<'_> {
    /// Writes one slice.
    pub(super) fn write_slice(
        &self,
        slice: &Slice,
        place: &Place,
        caches: &mut Caches<'_>,
        writer: &mut EventWriter<'_>,
    ) -> io::Result<()> {
        let index = slice.index as usize;
        match slice.source() {
            Source::Kernel => self.write_kernel(slice, place, caches, writer),
            Source::Copy | Source::Memset => self.write_copy(slice, place, writer),
            Source::ApiCall => {
                let row = &self.layout.process.tables.api_calls;
                let head = if row.kind[index] == 4 {
                    head!("cuda_driver")
                } else {
                    head!("cuda_runtime")
                };
                let name = row.name[index];
                self.begin(head, caches.names.json(Of::Call, name), slice, place, writer);
                writer.unsigned("cbid", row.callback[index]);
                writer.unsigned("correlation", row.correlation[index]);
                let mut odd = self.odd(slice, row.duration_ns[index].0, writer);
                odd.thread(row.thread[index], place);
                odd.name = self.calls.ambiguous.contains(&name).then_some(name);
                self.end(&self.columns.api_calls, index, &odd, writer)
            }
            Source::Operator => {
                let row = &self.layout.process.tables.operators;
                let name = caches.names.json(Of::Other, row.name[index]);
                self.begin(head!("cpu_op"), name, slice, place, writer);
                let columns = match caches.operators.write(index, writer) {
                    Written::All => &self.columns.operators,
                    Written::ButForwardThread => &self.columns.backward_operators,
                    Written::Nothing => &self.columns.odd_operators,
                };
                let mut odd = self.odd(slice, row.duration_ns[index].0, writer);
                odd.thread(row.thread[index], place);
                self.end(columns, index, &odd, writer)
            }
            Source::PythonFrame => {
                let row = &self.layout.process.tables.python_frames;
                let name = caches.names.json(Of::Other, row.name[index]);
                self.begin(head!("python_function"), name, slice, place, writer);
                writer.maybe("Python id", row.number[index]);
                let mut odd = self.odd(slice, row.duration_ns[index].0, writer);
                odd.thread(row.thread[index], place);
                self.end(&self.columns.python_frames, index, &odd, writer)
            }
            Source::Marker => {
                let row = &self.layout.process.tables.markers;
                let name = caches.names.json(Of::Other, row.name[index]);
                self.begin(head!("user_annotation"), name, slice, place, writer);
                let duration = row.duration_ns[index].map_or(0, |duration| duration.0);
                let mut odd = self.odd(slice, duration, writer);
                odd.thread(row.thread[index], place);
                self.end(&self.columns.markers, index, &odd, writer)
            }
            Source::Collective => {
                let row = &self.layout.process.tables.collectives;
                let function = self.layout.recording.names.get(row.function[index]);
                let name = json_string(&format!("nccl:{}", words::collective_name(function)));
                self.begin(head!("user_annotation"), &name, slice, place, writer);
                writer.unsigned("External id", self.collective_id(slice.index));
                self.groups.write(&[slice.index], writer);
                self.end_as_row("collectives", slice, row.duration_ns[index].0, writer)
            }
            Source::Synchronization => self.write_wait(slice, place, writer),
            Source::Overhead => {
                let row = &self.layout.process.tables.overheads;
                let kind = words::overhead_name(row.kind[index]);
                self.begin(head!("overhead"), &json_string(kind), slice, place, writer);
                let mut odd = self.odd(slice, row.duration_ns[index].0, writer);
                odd.say_if(words::is_unknown(kind), "kind", row.kind[index]);
                self.end(&self.columns.overheads, index, &odd, writer)
            }
            Source::Window => {
                let row = &self.layout.process.tables.windows;
                let name = caches.names.json(Of::Other, row.what[index]);
                self.begin(head!("recording"), name, slice, place, writer);
                self.end_as_row("windows", slice, row.duration_ns[index].0, writer)
            }
            Source::GraphLaunch => {
                let row = &self.layout.process.tables.graph_launches;
                let name = json_string(&format!("graph {}", row.graph[index]));
                self.begin(head!("graph_launch"), &name, slice, place, writer);
                writer.unsigned("device", row.device[index]);
                writer.unsigned("context", row.context[index]);
                // Kineto knows none: with it, readers count the operations of the graph as what runs on the stream.
                writer.unsigned("stream", row.stream[index]);
                writer.unsigned("correlation", row.correlation[index]);
                writer.unsigned("graph id", row.graph[index]);
                self.end_as_row("graph_launches", slice, row.duration_ns[index].0, writer)
            }
            Source::Compilation => {
                let row = &self.layout.process.tables.compilations;
                let name = json_string(words::compilation_name(row.operation[index]));
                self.begin(head!("compilation"), &name, slice, place, writer);
                self.end_as_row("compilations", slice, row.duration_ns[index].0, writer)
            }
            Source::ProxyStep => {
                let row = &self.layout.process.tables.nccl_proxy;
                let name = match (row.step[index], row.sends[index]) {
                    (Some(step), _) => format!("step {step}"),
                    (None, Some(0)) => "receive".to_owned(),
                    (None, Some(_)) => "send".to_owned(),
                    (None, None) => "part".to_owned(),
                };
                self.begin(head!("nccl_proxy"), &json_string(&name), slice, place, writer);
                self.end_as_row("nccl_proxy", slice, row.duration_ns[index].0, writer)
            }
            Source::Channel => {
                let row = &self.layout.process.tables.nccl_channels;
                match row.phase[index] {
                    Some(phase) => {
                        let name = caches.names.json(Of::Other, phase);
                        self.begin(head!("nccl_channel"), name, slice, place, writer);
                    }
                    None => {
                        let name = json_string(&format!("channel {}", row.channel[index]));
                        self.begin(head!("nccl_channel"), &name, slice, place, writer);
                    }
                }
                self.end_as_row("nccl_channels", slice, row.duration_ns[index].0, writer)
            }
        }
    }

    fn begin(
        &self,
        head: &'static str,
        name: &[u8],
        slice: &Slice,
        place: &Place,
        writer: &mut EventWriter<'_>,
    ) {
        writer.slice(head, name, place, (slice.start_ns, slice.end_ns));
    }

    /// What `ts` and `dur` can't say of the slice.
    fn odd(&self, slice: &Slice, duration_ns: i64, writer: &EventWriter<'_>) -> Odd {
        let mut odd = Odd::default();
        let relative = slice.start_ns.saturating_sub(writer.base_ns());
        odd.say_if(relative < 0, "start_ns", relative);
        odd.say_if(duration_ns < 0, "duration_ns", duration_ns);
        odd
    }

    fn end(
        &self,
        columns: &[crate::cells::Named<'_>],
        index: usize,
        odd: &Odd,
        writer: &mut EventWriter<'_>,
    ) -> io::Result<()> {
        writer.end_with(columns, index, odd, &self.layout.recording.names)
    }

    fn end_as_row(
        &self,
        table: &'static str,
        slice: &Slice,
        duration_ns: i64,
        writer: &mut EventWriter<'_>,
    ) -> io::Result<()> {
        let columns = match slice.source() {
            Source::Collective => &self.columns.collectives,
            Source::Window => &self.columns.windows,
            Source::GraphLaunch => &self.columns.graph_launches,
            Source::Compilation => &self.columns.compilations,
            Source::ProxyStep => &self.columns.nccl_proxy,
            _ => &self.columns.nccl_channels,
        };
        let odd = self.odd(slice, duration_ns, writer);
        let names = &self.layout.recording.names;
        writer.end_as_row(table, columns, slice.index as usize, &odd, names)
    }

    fn write_kernel(
        &self,
        slice: &Slice,
        place: &Place,
        caches: &mut Caches<'_>,
        writer: &mut EventWriter<'_>,
    ) -> io::Result<()> {
        let index = slice.index as usize;
        let tables = &self.layout.process.tables;
        let row = &tables.kernels;
        let name = row.name[index];
        let collectives = self.layout.collectives_of_kernel(slice.index);
        self.begin(
            head!("kernel"),
            caches.names.json(Of::Kernel, name),
            slice,
            place,
            writer,
        );
        // An imported one has no event of its own that the number could lead to.
        let enqueued = |row: &&u32| tables.collectives.kernel[**row as usize].is_none();
        if let Some(first) = collectives.first().filter(enqueued) {
            writer.unsigned("External id", self.collective_id(*first));
        }
        writer.unsigned("device", row.device[index]);
        writer.unsigned("context", row.context[index]);
        writer.unsigned("stream", row.stream[index]);
        writer.unsigned("correlation", row.correlation[index]);
        writer.members(caches.shapes.members(index));
        writer.maybe("graph id", row.graph[index]);
        writer.maybe("graph node id", row.graph_node[index]);
        self.groups.write(&collectives, writer);
        let mut odd = self.odd(slice, row.duration_ns[index].0, writer);
        odd.name = self.kernels.ambiguous.contains(&name).then_some(name);
        let imported = collectives.iter().any(|row| !enqueued(&row));
        if !imported {
            return self.end(&self.columns.kernels, index, &odd, writer);
        }
        let names = &self.layout.recording.names;
        writer.open("gputrace", b'{');
        writer.own_members(&self.columns.kernels, index, names);
        odd.write(writer, names);
        writer.open("collectives", b'[');
        for (place, row) in collectives.iter().enumerate() {
            if place > 0 {
                writer.line.push(b',');
            }
            writer.line.push(b'{');
            writer.own_members(&self.columns.collectives, *row as usize, names);
            writer.line.push(b'}');
        }
        writer.line.extend_from_slice(b"]}");
        writer.end()
    }

    fn write_copy(&self, slice: &Slice, place: &Place, writer: &mut EventWriter<'_>) -> io::Result<()> {
        let index = slice.index as usize;
        let tables = &self.layout.process.tables;
        macro_rules! common {
            ($row:expr) => {
                writer.unsigned("device", $row.device[index]);
                writer.unsigned("context", $row.context[index]);
                writer.unsigned("stream", $row.stream[index]);
                writer.unsigned("correlation", $row.correlation[index]);
                transfer(writer, $row.bytes[index], $row.duration_ns[index].0);
                writer.maybe("graph id", $row.graph[index]);
                writer.maybe("graph node id", $row.graph_node[index]);
            };
        }
        if slice.source() == Source::Memset {
            let row = &tables.memsets;
            let kind = memory_name(row.memory_kind[index].into());
            let name = json_string(&format!("Memset ({kind})"));
            self.begin(head!("gpu_memset"), &name, slice, place, writer);
            common!(row);
            let mut odd = self.odd(slice, row.duration_ns[index].0, writer);
            odd.say_if(words::is_unknown(kind), "memory_kind", row.memory_kind[index]);
            return self.end(&self.columns.memsets, index, &odd, writer);
        }
        let row = &tables.copies;
        let (kind, from, to) = (
            row.copy_kind[index],
            row.source_kind[index],
            row.destination_kind[index],
        );
        let name = words::copy_name(kind, from, to);
        self.begin(head!("gpu_memcpy"), &json_string(&name), slice, place, writer);
        common!(row);
        writer.maybe("fromDevice", row.source_device[index]);
        writer.maybe("toDevice", row.destination_device[index]);
        let mut odd = self.odd(slice, row.duration_ns[index].0, writer);
        // A reader of Kineto's words takes only peer copies to have peers.
        let (source, destination) = (row.source_device[index], row.destination_device[index]);
        let has_peers = kind != 10 && (source.is_some() || destination.is_some());
        if words::is_unknown(&name) || has_peers {
            odd.say("copy_kind", kind);
            odd.say("source_kind", from);
            odd.say("destination_kind", to);
            for (key, device) in [("source_device", source), ("destination_device", destination)] {
                if let Some(device) = device {
                    odd.say(key, device);
                }
            }
        }
        self.end(&self.columns.copies, index, &odd, writer)
    }

    fn write_wait(&self, slice: &Slice, place: &Place, writer: &mut EventWriter<'_>) -> io::Result<()> {
        let index = slice.index as usize;
        let row = &self.layout.process.tables.synchronizations;
        let kind = words::synchronization_name(row.kind[index]);
        self.begin(head!("cuda_sync"), &json_string(kind), slice, place, writer);
        writer.text("cuda_sync_kind", kind);
        writer.maybe("wait_on_cuda_event_id", row.event[index]);
        // Not as "stream": Holistic Trace Analysis would count the wait as a kernel of that stream.
        writer.maybe("stream of the wait", row.stream[index]);
        writer.unsigned("correlation", row.correlation[index]);
        writer.maybe("context", row.context[index]);
        let mut odd = self.odd(slice, row.duration_ns[index].0, writer);
        odd.say_if(words::is_unknown(kind), "kind", row.kind[index]);
        self.end(&self.columns.synchronizations, index, &odd, writer)
    }

    /// A collective's number in the file.
    fn collective_id(&self, row: u32) -> u64 {
        (self.number << 40) + self.collective_numbers[row as usize]
    }
}

/// Bytes, and their rate where there is one.
fn transfer(writer: &mut EventWriter<'_>, bytes: u64, duration_ns: i64) {
    writer.unsigned("bytes", bytes);
    if duration_ns > 0 {
        // A byte a nanosecond is a gigabyte a second.
        writer.float("memory bandwidth (GB/s)", bytes as f64 / duration_ns as f64);
    }
}
