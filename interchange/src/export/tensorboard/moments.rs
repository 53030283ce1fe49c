//! What of a worker is of a moment: marks, memory, samples, and operations without times.

use std::collections::HashMap;
use std::io;

use gputrace_trace::copy_words::memory_name;
use gputrace_trace::tables::Counters;

use super::event::{EventWriter, Place, json_string};
use super::worker::Worker;
use crate::export::ExportSummary;
use crate::export::layout::Source;
use crate::export::words;

/// What the plugin takes for an allocation.
const MEMORY: &str = "[memory]";
/// `CUpti_ActivityMemoryKind` from which on memory is a device's.
const FIRST_DEVICE_KIND: u32 = 3;
/// `CUpti_ActivityMemoryOperationType` of a release.
const RELEASE: u8 = 2;

impl Worker<'_> {
    /// Writes what of a moment belongs to the span.
    pub(super) fn write_moments(
        &mut self,
        span: usize,
        writer: &mut EventWriter<'_>,
        summary: &mut ExportSummary,
    ) -> io::Result<()> {
        self.write_marks(span, writer, summary)?;
        self.write_memory(span, writer, summary)?;
        self.write_pools(span, writer, summary)?;
        self.write_untimed(span, writer, summary)?;
        let layout = self.layout;
        self.write_counters(&layout.process.tables.counters, false, span, writer, summary)?;
        let hosts = self.hosts;
        for host in hosts {
            self.write_counters(&host.process.tables.counters, true, span, writer, summary)?;
            if span == 0 {
                self.write_host_windows(host, writer, summary)?;
            }
        }
        Ok(())
    }

    fn is_in(&self, time_ns: i64, span: usize) -> bool {
        self.spans.place(self.layout.number, time_ns) == span
    }

    fn write_marks(
        &mut self,
        span: usize,
        writer: &mut EventWriter<'_>,
        summary: &mut ExportSummary,
    ) -> io::Result<()> {
        let layout = self.layout;
        let markers = &layout.process.tables.markers;
        for index in 0..markers.start_ns.len() {
            let time_ns = markers.start_ns[index].0;
            if markers.duration_ns[index].is_some() || !self.is_in(time_ns, span) {
                continue;
            }
            let text = layout.recording.names.get(markers.name[index]);
            let name = match text {
                MEMORY => json_string("mark: [memory]").into(),
                _ => self.name(Source::Marker, markers.name[index], str::to_owned),
            };
            let place = self.thread_place(markers.thread[index]);
            writer.instant("mark", &name, place, time_ns, |_| {})?;
            summary.events_out += 1;
        }
        Ok(())
    }

    /// Allocations as the plugin's Memory view wants them, on the thread of the call that made them: that decides whose
    /// operator's they are.
    fn write_memory(
        &mut self,
        span: usize,
        writer: &mut EventWriter<'_>,
        summary: &mut ExportSummary,
    ) -> io::Result<()> {
        let layout = self.layout;
        let memory = &layout.process.tables.memory;
        let mut order: Vec<usize> = (0..memory.time_ns.len()).collect();
        order.sort_by_key(|row| memory.time_ns[*row]);
        // By device, or none for the host's: bytes in use. By address: the size, which a release may not say.
        let mut in_use: HashMap<Option<u32>, i64> = HashMap::new();
        let mut sizes: HashMap<(u32, u64), i64> = HashMap::new();
        for index in order {
            let (device, address) = (memory.device[index], memory.address[index]);
            let on_device = memory.memory_kind[index] >= FIRST_DEVICE_KIND;
            let said = i64::try_from(memory.bytes[index]).unwrap_or(i64::MAX);
            let change = match memory.operation[index] {
                RELEASE => {
                    let known = sizes.remove(&(device, address));
                    -(if said > 0 { said } else { known.unwrap_or(0) })
                }
                _ => {
                    sizes.insert((device, address), said);
                    said
                }
            };
            let total = in_use.entry(on_device.then_some(device)).or_default();
            // What was allocated before the recording is not known when it is released.
            *total = total.saturating_add(change).max(0);
            let total = *total;
            let time_ns = memory.time_ns[index].0;
            if !self.is_in(time_ns, span) {
                continue;
            }
            let place = match (layout.launch(memory.correlation[index]), memory.thread[index]) {
                (Some(launch), _) => self.place(launch.row, launch.lane),
                (None, Some(thread)) => self.thread_place(thread),
                (None, None) => Place {
                    pid: self.host_pid,
                    tid: 1,
                },
            };
            let number = self.devices.get(&device).copied();
            let name = match number {
                Some(_) => MEMORY,
                None => "[memory] of a further GPU",
            };
            let pool = memory.pool_bytes[index].and_then(|bytes| i64::try_from(bytes).ok());
            writer.instant("cpu_instant_event", &json_string(name), place, time_ns, |args| {
                args.raw("Addr", address);
                args.raw("Bytes", change);
                args.raw("Total Allocated", total);
                args.raw("Total Reserved", pool.unwrap_or(0).max(total));
                args.raw("Device Type", u8::from(on_device));
                args.raw("Device Id", number.unwrap_or(device));
                args.text("memory kind", memory_name(memory.memory_kind[index]));
            })?;
            summary.events_out += 1;
        }
        Ok(())
    }

    fn write_pools(
        &mut self,
        span: usize,
        writer: &mut EventWriter<'_>,
        summary: &mut ExportSummary,
    ) -> io::Result<()> {
        let pools = &self.layout.process.tables.memory_pools;
        for index in 0..pools.time_ns.len() {
            let time_ns = pools.time_ns[index].0;
            if !self.is_in(time_ns, span) {
                continue;
            }
            let name = json_string(words::pool_operation_name(pools.operation[index]));
            let place = Place {
                pid: self.host_pid,
                tid: 1,
            };
            writer.instant("memory_pool", &name, place, time_ns, |args| {
                args.raw("device", pools.device[index]);
                args.raw("bytes", pools.bytes[index]);
                args.raw("used bytes", pools.used_bytes[index]);
            })?;
            summary.events_out += 1;
        }
        Ok(())
    }

    /// Operations without an end, as moments at their starts; without a start, at the begin of the first file.
    fn write_untimed(
        &mut self,
        span: usize,
        writer: &mut EventWriter<'_>,
        summary: &mut ExportSummary,
    ) -> io::Result<()> {
        let layout = self.layout;
        let untimed = &layout.process.tables.untimed_operations;
        for index in 0..untimed.start_ns.len() {
            let time_ns = untimed.start_ns[index].map_or(writer.base_ns(), |start| start.0);
            if !self.is_in(time_ns, span) {
                continue;
            }
            let name = untimed.name[index].map_or("", |name| layout.recording.names.get(name));
            let name = match name {
                "" => words::activity_name(untimed.kind[index]).to_owned(),
                name => words::kernel_name(name),
            };
            let place = match (untimed.thread[index], untimed.device[index]) {
                (Some(thread), _) => self.thread_place(thread),
                (None, Some(device)) => Place {
                    pid: self.gpu_pid(device),
                    tid: untimed.stream[index].unwrap_or(0).max(1).into(),
                },
                (None, None) => Place {
                    pid: self.host_pid,
                    tid: 1,
                },
            };
            let name = json_string(&format!("unfinished: {name}"));
            writer.instant("unfinished", &name, place, time_ns, |_| {})?;
            summary.events_out += 1;
        }
        Ok(())
    }

    /// Samples of the process, or of its host.
    fn write_counters(
        &mut self,
        counters: &Counters,
        is_host: bool,
        span: usize,
        writer: &mut EventWriter<'_>,
        summary: &mut ExportSummary,
    ) -> io::Result<()> {
        let names = &self.layout.recording.names;
        for index in 0..counters.time_ns.len() {
            let (time_ns, value) = (counters.time_ns[index].0, counters.value[index]);
            if !self.is_in(time_ns, span) {
                continue;
            }
            let name = names.get(counters.name[index]);
            // The host's numbers of GPUs are not the process's.
            let (pid, of) = match counters.device[index] {
                Some(device) if is_host => (self.host_pid, format!(" of the host's GPU {device}")),
                Some(device) => (self.gpu_pid(device), String::new()),
                None if is_host => (self.host_pid, " of the host".to_owned()),
                None => (self.host_pid, String::new()),
            };
            let of_process = counters.pid[index].map_or_else(String::new, |pid| format!(" (process {pid})"));
            let of_thread =
                counters.thread[index].map_or_else(String::new, |thread| format!(" (thread {thread})"));
            let name = json_string(&format!("{name}{of}{of_process}{of_thread}"));
            let place = Place { pid, tid: 0 };
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

    /// Whatever else a recorder noted of a host: the times at which it sampled.
    fn write_host_windows(
        &mut self,
        host: &crate::export::layout::Layout<'_>,
        writer: &mut EventWriter<'_>,
        summary: &mut ExportSummary,
    ) -> io::Result<()> {
        for slice in host.rows.iter().flat_map(|row| &row.slices) {
            let tables = &host.process.tables;
            let name = match slice.source() {
                Source::Window => host
                    .recording
                    .names
                    .get(tables.windows.what[slice.index as usize]),
                _ => "of the host",
            };
            let place = Place {
                pid: self.host_pid,
                tid: 1,
            };
            let name = json_string(&format!("host: {name}"));
            writer.instant("recording", &name, place, slice.start_ns, |_| {})?;
            summary.events_out += 1;
        }
        Ok(())
    }
}
