//! A GPU's plane: its operations by stream, and its samples. Whatever is on it counts as work of the GPU.

use std::collections::BTreeMap;
use std::io;

use rustc_hash::FxHashMap;

use gputrace_trace::copy_words::{direction_name, memory_name};
use gputrace_trace::manifest::Device;
use gputrace_trace::occupancy::{Block, Multiprocessor};
use gputrace_trace::{DurationNs, NameId};

use super::part::{LineNumbers, Part, by_lane};
use super::plane::{About, Event, EventNames, Line, Plane};
use super::schema::{self, Stat};
use crate::export::ExportSummary;
use crate::export::layout::{Flow, RowKey, Slice, Source};
use crate::export::words;

/// What a process has of one device.
#[derive(Default)]
pub(super) struct Found<'p> {
    /// Rows of the layout.
    rows: Vec<usize>,
    /// Rows of the counters.
    samples: Vec<usize>,
    known: Option<&'p Device>,
}

/// The devices that a process's operations and samples are on.
pub(super) fn devices<'p>(part: &Part<'p>) -> BTreeMap<u32, Found<'p>> {
    let mut devices: BTreeMap<u32, Found<'p>> = BTreeMap::new();
    for (number, row) in part.layout.rows.iter().enumerate() {
        if let Some(device) = row.key.device().filter(|_| is_of_device(row.key)) {
            devices.entry(device).or_default().rows.push(number);
        }
    }
    for (row, device) in part.layout.process.tables.counters.device.iter().enumerate() {
        if let Some(device) = device {
            devices.entry(*device).or_default().samples.push(row);
        }
    }
    for known in &part.layout.process.header.devices {
        if let Some(found) = devices.get_mut(&known.index) {
            found.known.get_or_insert(known);
        }
    }
    devices
}

fn is_of_device(key: RowKey) -> bool {
    matches!(key, RowKey::Stream { .. } | RowKey::Graphs { .. })
}

/// The plane of one device.
pub(super) struct DevicePlane<'p> {
    part: &'p Part<'p>,
    device: u32,
    known: Option<&'p Device>,
    /// Rows of the counters.
    samples: Vec<usize>,
    lines: Vec<Line>,
    /// By line: the row of the layout and the slices there; none for samples.
    slices: Vec<Option<(usize, Vec<u32>)>>,
    /// Numbers of kernels' names.
    kernel_names: FxHashMap<(NameId, bool), u64>,
    counters: u64,
}

impl<'p> DevicePlane<'p> {
    pub(super) fn new(part: &'p Part<'p>, device: u32, found: Found<'p>) -> Self {
        let mut plane = Self {
            part,
            device,
            known: found.known,
            samples: found.samples,
            lines: Vec::new(),
            slices: Vec::new(),
            kernel_names: FxHashMap::default(),
            counters: 0,
        };
        let mut numbers = LineNumbers::default();
        for number in found.rows {
            let row = &part.layout.rows[number];
            let stream = match row.key {
                RowKey::Stream { stream, .. } | RowKey::Graphs { stream, .. } => u64::from(stream),
                _ => 0,
            };
            for (lane, slices) in by_lane(part, number).into_iter().enumerate() {
                let name = match lane {
                    0 => row.name.clone(),
                    lane => format!("{} (lane {})", row.name, lane + 1),
                };
                plane.lines.push(Line {
                    number: numbers.take(stream),
                    name,
                });
                plane.slices.push(Some((number, slices)));
            }
        }
        if !plane.samples.is_empty() {
            plane.lines.push(Line {
                number: numbers.take(1_900_000_000),
                name: schema::COUNTERS_LINE.to_owned(),
            });
            plane.slices.push(None);
        }
        plane
    }

    fn communicates(&self, kernel: u32) -> bool {
        let derived = self.part.layout.derived;
        derived
            .and_then(|derived| derived.communicates.get(kernel as usize).copied())
            .unwrap_or_else(|| !self.part.layout.collectives_of_kernel(kernel).is_empty())
    }

    fn kernel_name(&mut self, kernel: u32, names: &mut EventNames) -> u64 {
        let id = self.part.layout.process.tables.kernels.name[kernel as usize];
        let communicates = self.communicates(kernel);
        if let Some(number) = self.kernel_names.get(&(id, communicates)) {
            return *number;
        }
        let name = words::kernel_name(self.part.layout.recording.names.get(id));
        let begins_so = name
            .get(..4)
            .is_some_and(|begin| begin.eq_ignore_ascii_case("nccl"));
        // XProf knows communication by these letters alone, at the begin of the name.
        let name = match communicates && !begins_so {
            true => format!("nccl-like: {name}"),
            false => name,
        };
        let number = names.number(&name);
        self.kernel_names.insert((id, communicates), number);
        number
    }

    fn operation(&mut self, slice: &Slice, names: &mut EventNames, event: &mut Event) {
        let part = self.part;
        let layout = part.layout;
        let (tables, index) = (&layout.process.tables, slice.index as usize);
        let (name, context, duration) = match slice.source() {
            Source::Kernel => (
                self.kernel_name(slice.index, names),
                tables.kernels.context[index],
                tables.kernels.duration_ns[index],
            ),
            Source::Copy => (
                names.number(&copy_name(
                    tables.copies.copy_kind[index],
                    tables.copies.source_kind[index],
                    tables.copies.destination_kind[index],
                )),
                tables.copies.context[index],
                tables.copies.duration_ns[index],
            ),
            Source::Memset => {
                let kind = memory_name(tables.memsets.memory_kind[index].into());
                (
                    names.number(&format!("Memset ({kind})")),
                    tables.memsets.context[index],
                    tables.memsets.duration_ns[index],
                )
            }
            _ => (
                names.number(&format!("CUDA graph {}", tables.graph_launches.graph[index])),
                tables.graph_launches.context[index],
                tables.graph_launches.duration_ns[index],
            ),
        };
        event.begin(name, slice.start_ns, slice.end_ns);
        let (id, _) = part.launch_id(slice);
        event.uint(Stat::Correlation, id);
        event.int(Stat::ConsumerType, schema::CONTEXT_OF_LAUNCHES);
        event.uint(Stat::ConsumerId, id);
        event.int(Stat::Context, context.into());
        match layout.correlation(slice) {
            0 => {}
            correlation => event.int(Stat::CudaCorrelation, correlation.into()),
        }
        match slice.source() {
            Source::Kernel => self.kernel_stats(slice.index, event),
            Source::Copy => {
                let bytes = tables.copies.bytes[index];
                let details = format!(
                    "kind_src:{} kind_dst:{} size:{bytes} dest:{}",
                    memory_name(tables.copies.source_kind[index].into()),
                    memory_name(tables.copies.destination_kind[index].into()),
                    tables.copies.destination_device[index].unwrap_or(self.device)
                );
                event.text(Stat::CopyDetails, &details);
                event.uint(Stat::Bytes, bytes);
            }
            Source::Memset => {
                let bytes = tables.memsets.bytes[index];
                let kind = memory_name(tables.memsets.memory_kind[index].into());
                event.text(Stat::MemsetDetails, &format!("kind:{kind} size:{bytes}"));
                event.uint(Stat::Bytes, bytes);
            }
            _ => {}
        }
        recorded_duration(event, duration);
    }

    fn kernel_stats(&self, kernel: u32, event: &mut Event) {
        let layout = self.part.layout;
        let (row, index) = (&layout.process.tables.kernels, kernel as usize);
        let multiprocessor = self.known.and_then(Multiprocessor::of);
        let fit = multiprocessor.zip(Block::of(row, index));
        let occupancy = match fit.and_then(|(of, block)| Some((of, of.fit(block)?))) {
            Some((of, fit)) => {
                let warps = f64::from(fit.blocks * fit.warps_a_block);
                format!(" occ_pct:{}", warps / f64::from(of.limits.warps) * 100.0)
            }
            None => String::new(),
        };
        let details = format!(
            "regs:{} static_shared:{} dynamic_shared:{} grid:{},{},{} block:{},{},{}{occupancy}",
            row.registers[index],
            row.static_shared_bytes[index],
            row.dynamic_shared_bytes[index],
            row.grid_x[index],
            row.grid_y[index],
            row.grid_z[index],
            row.block_x[index],
            row.block_y[index],
            row.block_z[index],
        );
        event.text(Stat::KernelDetails, &details);
        if let Some(graph) = row.graph[index] {
            event.int(Stat::Graph, graph.into());
        }
        let rows = layout.collectives_of_kernel(kernel);
        let collectives = &layout.process.tables.collectives;
        if let Some(first) = rows.first().map(|row| *row as usize) {
            let name = layout.communicators.of(collectives.communicator[first]);
            event.text(Stat::Communicator, &name);
            let bytes = rows.iter().map(|row| collectives.bytes[*row as usize]);
            event.uint(Stat::Bytes, bytes.fold(0, u64::saturating_add));
            if let Some(sequence) = collectives.sequence[first] {
                event.uint(Stat::Sequence, sequence);
            }
        }
        let parts = layout.derived.map(|derived| derived.parts_of_kernel(kernel));
        if let Some(part) = parts.and_then(|parts| parts.first()) {
            let known = [
                (Stat::WaitNs, part.wait_ns),
                (Stat::TransferNs, part.transfer_ns),
                (Stat::ExposedNs, part.exposed_ns),
            ];
            for (stat, value) in known {
                if let Some(value) = value {
                    event.int(stat, value);
                }
            }
        }
    }

    fn samples(
        &mut self,
        names: &mut EventNames,
        event: &mut Event,
        take: &mut dyn FnMut(&Event) -> io::Result<()>,
    ) -> io::Result<()> {
        let layout = self.part.layout;
        let counters = &layout.process.tables.counters;
        self.counters = 0;
        for &row in &self.samples {
            let time_ns = counters.time_ns[row].0;
            if !counters.value[row].is_finite() || !self.part.has_moment(time_ns) {
                continue;
            }
            let name = names.number(layout.recording.names.get(counters.name[row]));
            event.begin(name, time_ns, time_ns);
            event.number(Stat::CounterValue, counters.value[row]);
            take(event)?;
            self.counters += 1;
        }
        Ok(())
    }
}

/// Kineto's name without the space: XProf knows copies by "MemcpyHtoD" at the begin. One between GPUs is one within.
fn copy_name(kind: u8, source: u8, destination: u8) -> String {
    let direction = match direction_name(kind) {
        "PtoP" => "DtoD, peers",
        direction => direction,
    };
    format!(
        "Memcpy{direction} ({} -> {})",
        memory_name(source.into()),
        memory_name(destination.into())
    )
}

/// A negative duration can't be drawn; it is kept beside the 0 that is.
pub(super) fn recorded_duration(event: &mut Event, duration: DurationNs) {
    if duration.0 < 0 {
        event.int(Stat::RecordedDurationNs, duration.0);
    }
}

impl Plane for DevicePlane<'_> {
    fn number(&self) -> u64 {
        u64::from(self.device) + 2
    }

    fn name(&self) -> String {
        format!("{}{}", schema::DEVICE_PLANE, self.device)
    }

    fn about(&self) -> Vec<About> {
        let mut about = vec![About::Text(Stat::Vendor, "Nvidia".to_owned())];
        let Some(known) = self.known else {
            return about;
        };
        about.push(About::Text(Stat::Name, known.name.clone()));
        let (major, minor) = known.compute_capability.unzip();
        let numbers = [
            (Stat::CapabilityMajor, major.map(i64::from)),
            (Stat::CapabilityMinor, minor.map(i64::from)),
            (Stat::Multiprocessors, known.multiprocessors.map(i64::from)),
            (
                Stat::MemoryBytes,
                known.memory_bytes.and_then(|bytes| i64::try_from(bytes).ok()),
            ),
            (
                Stat::MemoryBandwidth,
                known
                    .memory_bandwidth_bytes_per_s
                    .and_then(|rate| i64::try_from(rate).ok()),
            ),
        ];
        let numbers = numbers.into_iter();
        about.extend(numbers.filter_map(|(stat, value)| Some(About::Int(stat, value?))));
        if self.part.layout.recording.is_simulated() {
            about.push(About::Int(Stat::Simulated, 1));
        }
        about
    }

    fn base_ns(&self) -> i64 {
        self.part.base_ns
    }

    fn lines(&self) -> &[Line] {
        &self.lines
    }

    fn events(
        &mut self,
        line: usize,
        names: &mut EventNames,
        event: &mut Event,
        take: &mut dyn FnMut(&Event) -> io::Result<()>,
    ) -> io::Result<()> {
        let Some((row, count)) = self.slices[line]
            .as_ref()
            .map(|(row, slices)| (*row, slices.len()))
        else {
            return self.samples(names, event, take);
        };
        for place in 0..count {
            let Some((_, slices)) = &self.slices[line] else {
                break;
            };
            let slice = self.part.layout.rows[row].slices[slices[place] as usize];
            self.operation(&slice, names, event);
            take(event)?;
        }
        Ok(())
    }

    fn count(&self, summary: &mut ExportSummary) {
        summary.events_out += self.counters;
        for (row, slices) in self.slices.iter().flatten() {
            summary.events_out += slices.len() as u64;
            for place in slices {
                match self
                    .part
                    .layout
                    .flow(&self.part.layout.rows[*row].slices[*place as usize])
                {
                    Flow::None => {}
                    Flow::Unknown => summary.launches_unknown += 1,
                    Flow::Later(_) => summary.launches_later += 1,
                    Flow::From(_) => summary.flows += 1,
                }
            }
        }
    }
}
