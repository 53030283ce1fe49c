//! What has no length: marks, allocations, operations without an end, samples of counters.

use std::io;

use gputrace_trace::copy_words::memory_name;
use rustc_hash::FxHashMap;

use super::event::{EventWriter, Place, json_string};
use super::gputrace_members::Odd;
use super::names::Of;
use super::process::{Caches, Exporter};
use crate::cells::Named;
use crate::export::{ExportSummary, words};

/// The beginning of an instant event on a thread, up to its name.
macro_rules! head {
    ($category:literal) => {
        concat!("{\"ph\":\"i\",\"s\":\"t\",\"cat\":\"", $category, "\",\"name\":")
    };
}

impl Exporter<'_> {
    /// Writes all of them.
    pub(super) fn write_moments(
        &self,
        caches: &mut Caches<'_>,
        writer: &mut EventWriter<'_>,
        summary: &mut ExportSummary,
    ) -> io::Result<()> {
        let written = self.write_marks(caches, writer)?
            + self.write_memory(writer)?
            + self.write_pools(writer)?
            + self.write_untimed(writer)?
            + self.write_counters(caches, writer)?;
        summary.events_out += written;
        Ok(())
    }

    /// Ends an event that is a row of a table of ours, at `time_ns`.
    fn end_moment(
        &self,
        table: &str,
        columns: &[Named<'_>],
        index: usize,
        (column, time_ns): (&'static str, i64),
        writer: &mut EventWriter<'_>,
    ) -> io::Result<()> {
        let mut odd = Odd::default();
        let relative = time_ns.saturating_sub(writer.base_ns());
        odd.say_if(relative < 0, column, relative);
        writer.end_as_row(table, columns, index, &odd, &self.layout.recording.names)
    }

    fn write_marks(&self, caches: &mut Caches<'_>, writer: &mut EventWriter<'_>) -> io::Result<u64> {
        let markers = &self.layout.process.tables.markers;
        let mut written = 0;
        for index in 0..markers.start_ns.len() {
            if markers.duration_ns[index].is_some() {
                continue;
            }
            let place = self.thread_place(markers.thread[index]);
            let name = caches.names.json(Of::Other, markers.name[index]);
            let start = markers.start_ns[index].0;
            writer.moment(head!("cpu_instant_event"), name, &place, start);
            let columns = &self.columns.marks;
            self.end_moment("markers", columns, index, ("start_ns", start), writer)?;
            written += 1;
        }
        Ok(written)
    }

    /// PyTorch's allocator says so what it does. The totals are those that the recording has samples of, else they count from
    /// its start.
    fn write_memory(&self, writer: &mut EventWriter<'_>) -> io::Result<u64> {
        let memory = &self.layout.process.tables.memory;
        let sampled = self.sampled_totals();
        let nobodys = Place::new(self.host_pid, self.host_pid);
        let mut allocated: FxHashMap<u32, i64> = FxHashMap::default();
        for index in 0..memory.time_ns.len() {
            let device = memory.device[index];
            let on_device = memory.memory_kind[index] >= 3;
            let size = i64::try_from(memory.bytes[index]).unwrap_or(i64::MAX);
            let change = if memory.operation[index] == 2 { -size } else { size };
            let total = allocated.entry(device).or_default();
            if on_device {
                *total = total.saturating_add(change);
            }
            let time_ns = memory.time_ns[index].0;
            let totals = sampled.get(&(time_ns, device));
            let [in_use, reserved] = totals.copied().unwrap_or([*total as f64; 2]);
            let place = memory.thread[index].map(|thread| self.thread_place(thread));
            let place = place.as_ref().unwrap_or(&nobodys);
            writer.moment(head!("cpu_instant_event"), b"\"[memory]\"", place, time_ns);
            writer.unsigned("Addr", memory.address[index]);
            writer.signed("Bytes", change);
            writer.float("Total Allocated", in_use);
            writer.float("Total Reserved", reserved);
            writer.unsigned("Device Type", u8::from(on_device));
            writer.unsigned("Device Id", device);
            writer.text("memory kind", memory_name(memory.memory_kind[index]));
            let columns = &self.columns.memory;
            self.end_moment("memory", columns, index, ("time_ns", time_ns), writer)?;
        }
        Ok(memory.time_ns.len() as u64)
    }

    /// By time and device, what counters say was allocated and reserved.
    fn sampled_totals(&self) -> FxHashMap<(i64, u32), [f64; 2]> {
        let tables = &self.layout.process.tables;
        let names = &self.layout.recording.names;
        let mut totals: FxHashMap<(i64, u32), [f64; 2]> = FxHashMap::default();
        if tables.memory.time_ns.is_empty() {
            return totals;
        }
        let counters = &tables.counters;
        for (place, name) in ["memory_allocated_bytes", "memory_reserved_bytes"]
            .into_iter()
            .enumerate()
        {
            let Some(name) = names.find(name) else { continue };
            for index in (0..counters.time_ns.len()).filter(|&index| counters.name[index] == name) {
                let Some(device) = counters.device[index] else {
                    continue;
                };
                let key = (counters.time_ns[index].0, device);
                totals.entry(key).or_default()[place] = counters.value[index];
            }
        }
        totals
    }

    fn write_pools(&self, writer: &mut EventWriter<'_>) -> io::Result<u64> {
        let pools = &self.layout.process.tables.memory_pools;
        let place = Place::new(self.host_pid, self.host_pid);
        for index in 0..pools.time_ns.len() {
            let name = json_string(words::pool_operation_name(pools.operation[index]));
            let time_ns = pools.time_ns[index].0;
            writer.moment(head!("memory_pool"), &name, &place, time_ns);
            let columns = &self.columns.memory_pools;
            self.end_moment("memory_pools", columns, index, ("time_ns", time_ns), writer)?;
        }
        Ok(pools.time_ns.len() as u64)
    }

    /// Operations without an end, as moments at their starts; without a start, at the first moment of the file.
    fn write_untimed(&self, writer: &mut EventWriter<'_>) -> io::Result<u64> {
        let names = &self.layout.recording.names;
        let untimed = &self.layout.process.tables.untimed_operations;
        for index in 0..untimed.start_ns.len() {
            let name = untimed.name[index].map_or("", |name| names.get(name));
            let pid = untimed.device[index].and_then(|device| self.gpu_pids.get(&device).copied());
            let place = match (untimed.thread[index], pid, untimed.stream[index]) {
                (Some(thread), _, _) => self.thread_place(thread),
                (None, Some(pid), stream) => Place::new(pid, stream.unwrap_or(0).max(1).into()),
                (None, None, _) => Place::new(self.host_pid, self.host_pid),
            };
            let start = untimed.start_ns[index].map_or(writer.base_ns(), |start| start.0);
            let kind = words::activity_name(untimed.kind[index]);
            let name = format!("unfinished {}", if name.is_empty() { kind } else { name });
            writer.moment(head!("unfinished"), &json_string(&name), &place, start);
            let columns = &self.columns.untimed_operations;
            writer.end_as_row("untimed_operations", columns, index, &Odd::default(), names)?;
        }
        Ok(untimed.start_ns.len() as u64)
    }

    fn write_counters(&self, caches: &mut Caches<'_>, writer: &mut EventWriter<'_>) -> io::Result<u64> {
        let counters = &self.layout.process.tables.counters;
        let of_host = Place::new(self.host_pid, self.host_pid);
        let of_gpus: FxHashMap<u32, Place> = self
            .gpu_pids
            .iter()
            .map(|(&device, &pid)| (device, Place::new(pid, pid)))
            .collect();
        let mut named: FxHashMap<_, Box<[u8]>> = FxHashMap::default();
        for index in 0..counters.time_ns.len() {
            let device = counters.device[index];
            let place = device.and_then(|device| of_gpus.get(&device)).unwrap_or(&of_host);
            let (name, pid, thread) = (counters.name[index], counters.pid[index], counters.thread[index]);
            let (time_ns, value) = (counters.time_ns[index].0, counters.value[index]);
            // Samples of one name are one curve, so the name must say of what they are.
            let name = match (pid, thread) {
                (None, _) => caches.names.json(Of::Other, name),
                (Some(pid), thread) => named.entry((name, pid, thread)).or_insert_with(|| {
                    let text = self.layout.recording.names.get(name);
                    let thread = thread.map_or(String::new(), |thread| format!(", thread {thread}"));
                    json_string(&format!("{text} (process {pid}{thread})"))
                }),
            };
            let shows = time_ns >= writer.base_ns() && (pid.is_some() || thread.is_none());
            if value.is_finite() && shows {
                writer.counter(name, place, time_ns, value)?;
            } else {
                // JSON has no such number, and a counter without a value is refused.
                writer.moment(head!("counter"), name, place, time_ns);
                let columns = &self.columns.counters;
                self.end_moment("counters", columns, index, ("time_ns", time_ns), writer)?;
            }
        }
        Ok(counters.time_ns.len() as u64)
    }
}
