//! The host's plane: steps, what each thread did, waits, memory, marks and the host's samples.
//!
//! Steps are roots: XProf counts for a step whatever was launched within it. It looks for that among the events of the
//! step's line alone, so every other line says, by an event of its own as long as the step, that it works for the step too.

use std::collections::HashMap;
use std::io;

use gputrace_trace::DurationNs;
use gputrace_trace::copy_words::memory_name;
use gputrace_trace::tables::Counters;

use super::device::recorded_duration;
use super::part::{LineNumbers, Part, by_lane};
use super::plane::{About, Event, EventNames, Line, Plane};
use super::schema::{self, Stat};
use crate::export::ExportSummary;
use crate::export::layout::{Flow, Layout, RowKey, Slice, Source};
use crate::export::words;

/// `CUpti_ActivityMemoryKind` from which on memory is a device's.
const FIRST_DEVICE_KIND: u32 = 3;
/// `CUpti_ActivityMemoryOperationType` of a release.
const RELEASE: u8 = 2;
/// Lines that are no thread's: behind all threads.
const OTHER_LINES: u64 = 5_000_000;

/// What a line has.
enum Content {
    Steps,
    /// Slices of a row of the layout.
    Row(usize, Vec<u32>),
    /// A call for each operation whose call was not recorded: as row and slice.
    Launches(Vec<(usize, u32)>),
    Memory,
    Marks,
    Counters,
}

/// The plane.
pub(super) struct HostPlane<'p> {
    part: &'p Part<'p>,
    lines: Vec<Line>,
    contents: Vec<Content>,
    /// Events of moments; those of lines are counted by their slices.
    moments: u64,
}

impl<'p> HostPlane<'p> {
    pub(super) fn new(part: &'p Part<'p>) -> Self {
        let mut plane = Self {
            part,
            lines: Vec::new(),
            contents: Vec::new(),
            moments: 0,
        };
        let mut numbers = LineNumbers::default();
        plane.push(&mut numbers, 1, "steps", Content::Steps);
        let mut unknown = Vec::new();
        for (number, row) in (0u64..).zip(&part.layout.rows) {
            let wanted = match row.key {
                RowKey::Thread(thread) => thread.into(),
                RowKey::Stream { .. } | RowKey::Graphs { .. } => {
                    let slices = (0u32..).zip(&row.slices);
                    let without = slices
                        .filter(|(_, slice)| part.has(slice) && part.layout.flow(slice) == Flow::Unknown);
                    unknown.extend(without.map(|(place, _)| (number as usize, place)));
                    continue;
                }
                _ => OTHER_LINES + number,
            };
            for (lane, slices) in by_lane(part, number as usize).into_iter().enumerate() {
                let name = match lane {
                    0 => row.name.clone(),
                    lane => format!("{} (lane {})", row.name, lane + 1),
                };
                plane.push(&mut numbers, wanted, &name, Content::Row(number as usize, slices));
            }
        }
        if !unknown.is_empty() {
            unknown.sort_by_key(|(row, place)| part.layout.rows[*row].slices[*place as usize].start_ns);
            let name = "launches that were not recorded, at the begin of what they launched";
            plane.push(&mut numbers, OTHER_LINES, name, Content::Launches(unknown));
        }
        let tables = &part.layout.process.tables;
        let has_marks = tables.markers.duration_ns.contains(&None)
            || !tables.untimed_operations.start_ns.is_empty()
            || !tables.memory_pools.time_ns.is_empty();
        let own = [&tables.counters].into_iter();
        let mut counters = own.chain(part.hosts.iter().map(|host| &host.process.tables.counters));
        if has_marks || counters.any(|counters| counters.value.iter().any(|value| !value.is_finite())) {
            plane.push(&mut numbers, OTHER_LINES, "marks", Content::Marks);
        }
        if !tables.memory.time_ns.is_empty() {
            plane.push(&mut numbers, OTHER_LINES, "memory", Content::Memory);
        }
        if tables.counters.device.contains(&None) || !part.hosts.is_empty() {
            plane.push(
                &mut numbers,
                OTHER_LINES,
                schema::COUNTERS_LINE,
                Content::Counters,
            );
        }
        plane
    }

    fn push(&mut self, numbers: &mut LineNumbers, wanted: u64, name: &str, content: Content) {
        self.lines.push(Line {
            number: numbers.take(wanted),
            name: name.to_owned(),
        });
        self.contents.push(content);
    }

    fn steps(
        &self,
        names: &mut EventNames,
        event: &mut Event,
        take: &mut dyn FnMut(&Event) -> io::Result<()>,
    ) -> io::Result<()> {
        for (place, step) in self.part.steps.iter().enumerate() {
            // XProf adds the number itself.
            let name = names.number("step");
            let (start, end) = self.times_of_step(place);
            event.begin(name, start, end);
            event.int(Stat::IsRoot, 1);
            event.int(Stat::StepNumber, i64::try_from(step.number).unwrap_or(i64::MAX));
            event.int(Stat::ProducerType, schema::CONTEXT_OF_STEPS);
            event.uint(Stat::ProducerId, self.part.step_id(place));
            event.text(Stat::Name, &step.name);
            if step.detected {
                event.int(Stat::Detected, 1);
            }
            take(event)?;
        }
        Ok(())
    }

    /// A step of everything lasts as long as the events do.
    fn times_of_step(&self, place: usize) -> (i64, i64) {
        let step = &self.part.steps[place];
        if step.start_ns > i64::MIN {
            return (step.start_ns, step.end_ns);
        }
        self.part.extent()
    }

    /// Says that a line works for each step in which it has calls, before the calls.
    fn work_for_steps(
        &self,
        starts: &mut dyn Iterator<Item = i64>,
        names: &mut EventNames,
    ) -> Vec<(usize, u64, (i64, i64))> {
        let steps = &self.part.steps;
        let mut found: Vec<(usize, u64, (i64, i64))> = Vec::new();
        for start in starts {
            let after = steps.partition_point(|step| step.start_ns <= start);
            let Some(place) = after.checked_sub(1).filter(|place| start < steps[*place].end_ns) else {
                continue;
            };
            if found.last().is_none_or(|(last, _, _)| *last != place) {
                found.push((place, names.number("part of a step"), self.times_of_step(place)));
            }
        }
        found
    }

    fn part_of_step(&self, place: usize, name: u64, times: (i64, i64), event: &mut Event) {
        event.begin(name, times.0, times.1);
        event.int(Stat::ConsumerType, schema::CONTEXT_OF_STEPS);
        event.uint(Stat::ConsumerId, self.part.step_id(place));
    }

    fn row(
        &mut self,
        line: usize,
        names: &mut EventNames,
        event: &mut Event,
        take: &mut dyn FnMut(&Event) -> io::Result<()>,
    ) -> io::Result<()> {
        let Content::Row(row, places) = &self.contents[line] else {
            return Ok(());
        };
        let slices = &self.part.layout.rows[*row].slices;
        let of_line = || places.iter().map(|place| &slices[*place as usize]);
        let calls = of_line().filter(|slice| slice.source() == Source::ApiCall);
        let parts = self.work_for_steps(&mut calls.map(|slice| slice.start_ns), names);
        let mut parts = parts.into_iter().peekable();
        for slice in of_line() {
            // What begins with a step and lasts longer is around it.
            let is_before = |(_, _, times): &(usize, u64, (i64, i64))| {
                times.0 < slice.start_ns || times.0 == slice.start_ns && times.1 >= slice.end_ns
            };
            while let Some((place, name, times)) = parts.next_if(is_before) {
                self.part_of_step(place, name, times, event);
                take(event)?;
            }
            self.slice(slice, names, event);
            take(event)?;
        }
        for (place, name, times) in parts {
            self.part_of_step(place, name, times, event);
            take(event)?;
        }
        Ok(())
    }

    fn slice(&self, slice: &Slice, names: &mut EventNames, event: &mut Event) {
        let layout = self.part.layout;
        let (tables, index) = (&layout.process.tables, slice.index as usize);
        let texts = &layout.recording.names;
        let (start, end) = (slice.start_ns, slice.end_ns);
        let duration = match slice.source() {
            Source::ApiCall => {
                let row = &tables.api_calls;
                event.begin(
                    names.number(words::call_name(texts.get(row.name[index]))),
                    start,
                    end,
                );
                if row.correlation[index] != 0 {
                    // Of a runtime call and the driver call within it, which share it, the outer one launched.
                    let launch = layout.launch(row.correlation[index]);
                    let call = launch.map_or(slice.index, |launch| launch.call);
                    if call == slice.index {
                        let id = self.part.call_id(call);
                        event.uint(Stat::Correlation, id);
                        event.int(Stat::ProducerType, schema::CONTEXT_OF_LAUNCHES);
                        event.uint(Stat::ProducerId, id);
                    }
                    event.int(Stat::CudaCorrelation, row.correlation[index].into());
                }
                if row.result[index] != 0 {
                    event.int(Stat::Returned, row.result[index].into());
                }
                row.duration_ns[index]
            }
            Source::Operator => {
                event.begin(names.number(texts.get(tables.operators.name[index])), start, end);
                tables.operators.duration_ns[index]
            }
            Source::PythonFrame => {
                event.begin(
                    names.number(texts.get(tables.python_frames.name[index])),
                    start,
                    end,
                );
                tables.python_frames.duration_ns[index]
            }
            Source::Marker => {
                event.begin(names.number(texts.get(tables.markers.name[index])), start, end);
                tables.markers.duration_ns[index].unwrap_or_default()
            }
            Source::Collective => {
                let row = &tables.collectives;
                let name = format!("ncclEnqueue {}", texts.get(row.function[index]));
                event.begin(names.number(&name), start, end);
                event.uint(Stat::Bytes, row.bytes[index]);
                if let Some(sequence) = row.sequence[index] {
                    event.uint(Stat::Sequence, sequence);
                }
                row.duration_ns[index]
            }
            source => {
                event.begin(names.number(&other_name(layout, source, index)), start, end);
                DurationNs(0)
            }
        };
        recorded_duration(event, duration);
    }

    fn launches(
        &self,
        line: usize,
        names: &mut EventNames,
        event: &mut Event,
        take: &mut dyn FnMut(&Event) -> io::Result<()>,
    ) -> io::Result<()> {
        let Content::Launches(all) = &self.contents[line] else {
            return Ok(());
        };
        let slice = |(row, place): (usize, u32)| self.part.layout.rows[row].slices[place as usize];
        let starts = all.iter().map(|at| slice(*at).start_ns);
        let parts = self.work_for_steps(&mut starts.clone(), names);
        let mut parts = parts.into_iter().peekable();
        let name = names.number("launch that was not recorded");
        for at in all {
            let slice = slice(*at);
            while let Some((place, name, times)) = parts.next_if(|(_, _, times)| times.0 <= slice.start_ns) {
                self.part_of_step(place, name, times, event);
                take(event)?;
            }
            event.begin(name, slice.start_ns, slice.start_ns);
            let id = self.part.own_id(&slice);
            event.uint(Stat::Correlation, id);
            event.int(Stat::ProducerType, schema::CONTEXT_OF_LAUNCHES);
            event.uint(Stat::ProducerId, id);
            take(event)?;
        }
        Ok(())
    }

    /// Allocations in the form that XProf's memory profile reads, with sums of what is in use.
    fn memory(
        &mut self,
        names: &mut EventNames,
        event: &mut Event,
        take: &mut dyn FnMut(&Event) -> io::Result<()>,
    ) -> io::Result<()> {
        let layout = self.part.layout;
        let memory = &layout.process.tables.memory;
        let mut order: Vec<usize> = (0..memory.time_ns.len()).collect();
        order.sort_by_key(|row| memory.time_ns[*row]);
        let (allocation, release) = (
            names.number("MemoryAllocation"),
            names.number("MemoryDeallocation"),
        );
        // By device, or none for the host's: bytes in use, and the most so far.
        let mut in_use: HashMap<Option<u32>, (i64, i64)> = HashMap::new();
        let mut sizes: HashMap<(u32, u64), i64> = HashMap::new();
        let mut known: HashMap<u32, Option<i64>> = HashMap::new();
        for device in &layout.process.header.devices {
            let bytes = device.memory_bytes.and_then(|bytes| i64::try_from(bytes).ok());
            known.entry(device.index).or_insert(bytes);
        }
        for row in order {
            let (device, address) = (memory.device[row], memory.address[row]);
            let on_device = (memory.memory_kind[row] >= FIRST_DEVICE_KIND).then_some(device);
            let said = i64::try_from(memory.bytes[row]).unwrap_or(i64::MAX);
            let is_release = memory.operation[row] == RELEASE;
            let bytes = match is_release {
                true => sizes
                    .remove(&(device, address))
                    .filter(|_| said == 0)
                    .unwrap_or(said),
                false => {
                    sizes.insert((device, address), said);
                    said
                }
            };
            let (now, most) = in_use.entry(on_device).or_default();
            // What was allocated before the recording is not known when it is released.
            *now = match is_release {
                true => now.saturating_sub(bytes).max(0),
                false => now.saturating_add(bytes),
            };
            *most = (*most).max(*now);
            let (now, most) = (*now, *most);
            let time_ns = memory.time_ns[row].0;
            if !self.part.has_moment(time_ns) {
                continue;
            }
            let of_device = on_device.and_then(|device| *known.get(&device)?);
            event.begin(if is_release { release } else { allocation }, time_ns, time_ns);
            let allocator = on_device.map_or("host".to_owned(), |device| format!("GPU_{device}"));
            event.text(Stat::Allocator, &allocator);
            let pool = memory.pool_bytes[row].and_then(|bytes| i64::try_from(bytes).ok());
            event.int(Stat::BytesAllocated, now);
            event.int(
                Stat::BytesReserved,
                pool.map_or(0, |pool| pool.saturating_sub(now).max(0)),
            );
            event.int(
                Stat::BytesAvailable,
                of_device.map_or(0, |bytes| bytes.saturating_sub(now).max(0)),
            );
            event.number(Stat::Fragmentation, 0.0);
            event.int(Stat::PeakBytes, most);
            event.int(Stat::RequestedBytes, bytes);
            event.int(Stat::AllocationBytes, bytes);
            event.uint(Stat::Address, address);
            event.text(Stat::Shape, "unknown");
            event.text(Stat::Region, memory_name(memory.memory_kind[row]));
            take(event)?;
            self.moments += 1;
        }
        Ok(())
    }

    /// Marks, and operations without an end, and what became of memory pools.
    fn marks(
        &mut self,
        names: &mut EventNames,
        event: &mut Event,
        take: &mut dyn FnMut(&Event) -> io::Result<()>,
    ) -> io::Result<()> {
        let layout = self.part.layout;
        let tables = &layout.process.tables;
        let texts = &layout.recording.names;
        let (markers, untimed, pools) = (&tables.markers, &tables.untimed_operations, &tables.memory_pools);
        let marks = (0..markers.start_ns.len()).filter(|row| markers.duration_ns[*row].is_none());
        let marks = marks.map(|row| (markers.start_ns[row].0, texts.get(markers.name[row]).to_owned()));
        let unfinished = (0..untimed.start_ns.len()).map(|row| {
            let time_ns = untimed.start_ns[row].map_or(self.part.base_ns, |start| start.0);
            let name = untimed.name[row].map_or("", |name| texts.get(name));
            let name = match name {
                "" => words::activity_name(untimed.kind[row]).to_owned(),
                name => words::kernel_name(name),
            };
            (time_ns, format!("unfinished: {name}"))
        });
        let of_pools = (0..pools.time_ns.len()).map(|row| {
            let name = words::pool_operation_name(pools.operation[row]);
            (pools.time_ns[row].0, name.to_owned())
        });
        // XProf writes them into JSON, which has no such numbers.
        let own = [&tables.counters].into_iter();
        let of_hosts = self.part.hosts.iter().map(|host| &host.process.tables.counters);
        let odd_samples = own.chain(of_hosts).flat_map(|counters| {
            let odd = (0..counters.time_ns.len()).filter(|row| !counters.value[*row].is_finite());
            odd.map(|row| {
                let name = texts.get(counters.name[row]);
                (
                    counters.time_ns[row].0,
                    format!("{name}: {}", counters.value[row]),
                )
            })
        });
        let mut all: Vec<(i64, String)> = marks
            .chain(unfinished)
            .chain(of_pools)
            .chain(odd_samples)
            .filter(|(time_ns, _)| self.part.has_moment(*time_ns))
            .collect();
        all.sort_by_key(|(time_ns, _)| *time_ns);
        for (time_ns, name) in all {
            event.begin(names.number(&name), time_ns, time_ns);
            take(event)?;
            self.moments += 1;
        }
        Ok(())
    }

    fn counters(
        &mut self,
        names: &mut EventNames,
        event: &mut Event,
        take: &mut dyn FnMut(&Event) -> io::Result<()>,
    ) -> io::Result<()> {
        let part = self.part;
        let own = &part.layout.process.tables.counters;
        self.samples(own, false, names, event, take)?;
        for host in part.hosts {
            self.samples(&host.process.tables.counters, true, names, event, take)?;
            if part.span > 0 {
                continue;
            }
            for slice in host.rows.iter().flat_map(|row| &row.slices) {
                event.begin(
                    names.number("host: sampled from here"),
                    slice.start_ns,
                    slice.start_ns,
                );
                event.number(Stat::CounterValue, 1.0);
                take(event)?;
                self.moments += 1;
            }
        }
        Ok(())
    }

    fn samples(
        &mut self,
        counters: &Counters,
        is_host: bool,
        names: &mut EventNames,
        event: &mut Event,
        take: &mut dyn FnMut(&Event) -> io::Result<()>,
    ) -> io::Result<()> {
        let texts = &self.part.layout.recording.names;
        for row in 0..counters.time_ns.len() {
            let time_ns = counters.time_ns[row].0;
            // Those of a device of the process are on its plane.
            let is_here = counters.device[row].is_none() || is_host;
            if !is_here || !counters.value[row].is_finite() || !self.part.has_moment(time_ns) {
                continue;
            }
            let name = texts.get(counters.name[row]);
            let of = match counters.device[row] {
                Some(device) => format!(" of the host's GPU {device}"),
                None if is_host => " of the host".to_owned(),
                None => String::new(),
            };
            let of_process = counters.pid[row].map_or_else(String::new, |pid| format!(" (process {pid})"));
            let of_thread =
                counters.thread[row].map_or_else(String::new, |thread| format!(" (thread {thread})"));
            event.begin(
                names.number(&format!("{name}{of}{of_process}{of_thread}")),
                time_ns,
                time_ns,
            );
            event.number(Stat::CounterValue, counters.value[row]);
            take(event)?;
            self.moments += 1;
        }
        Ok(())
    }
}

/// The name of what is no call, range or collective.
fn other_name(layout: &Layout<'_>, source: Source, index: usize) -> String {
    let tables = &layout.process.tables;
    let texts = &layout.recording.names;
    match source {
        Source::Window => texts.get(tables.windows.what[index]).to_owned(),
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
            Some(phase) => texts.get(phase).to_owned(),
            None => format!("channel {}", tables.nccl_channels.channel[index]),
        },
        _ => "event".to_owned(),
    }
}

impl Plane for HostPlane<'_> {
    fn number(&self) -> u64 {
        1
    }

    fn name(&self) -> String {
        schema::HOST_PLANE.to_owned()
    }

    fn about(&self) -> Vec<About> {
        Vec::new()
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
        if line == 0 {
            // Lines are gone through twice, and the last time counts.
            self.moments = 0;
        }
        match &self.contents[line] {
            Content::Steps => self.steps(names, event, take),
            Content::Row(..) => self.row(line, names, event, take),
            Content::Launches(_) => self.launches(line, names, event, take),
            Content::Memory => self.memory(names, event, take),
            Content::Marks => self.marks(names, event, take),
            Content::Counters => self.counters(names, event, take),
        }
    }

    fn count(&self, summary: &mut ExportSummary) {
        let of_rows = self.contents.iter().map(|content| match content {
            Content::Row(_, slices) => slices.len() as u64,
            _ => 0,
        });
        summary.events_out += of_rows.sum::<u64>() + self.moments;
    }
}
