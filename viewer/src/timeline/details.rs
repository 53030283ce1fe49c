//! Everything that is known of one slice: its record, what it hangs together with, and why nothing ran before it.

use std::cell::Cell;

use gputrace_analyzer::Cause;
use gputrace_trace::synchronization_kind;
use gputrace_trace::tables::{
    ApiCall, ApiCalls, Copies, GraphLaunches, Kernels, Markers, Memsets, Overheads, Synchronization,
    Synchronizations,
};

use super::answers::{Before, Link, Ref, SliceDetails};
use super::fields::{self, Fields, Source, time};
use super::gather::Place;
use super::slices::Slices;
use super::source::{Table, source, table_and_row};
use super::{Timeline, names};

/// Links that are listed: a graph may have launched thousands of kernels.
const MOST_LINKS: usize = 100;

/// A slice, as it is looked at.
struct Chosen<'a> {
    row: u32,
    place: usize,
    slices: &'a Slices,
    process: u32,
    table: Table,
    /// Row of the table.
    record: usize,
}

impl Chosen<'_> {
    fn start(&self) -> i64 {
        self.slices.start(self.place)
    }

    fn end(&self) -> i64 {
        self.slices.end_of(self.place)
    }
}

/// What a cause means, for a sentence.
fn meaning(cause: Cause) -> &'static str {
    match cause {
        Cause::HostLate => "the host launched late",
        Cause::LaunchLatency => "the launch took its time",
        Cause::EventWait => "the stream waited for an event of another stream",
        Cause::PeerWait => "the host waited for other ranks",
        Cause::QueueFull => "the host waited for room in a stream's queue",
        Cause::NothingSubmitted => "nothing was submitted: no thread did anything that is recorded",
        Cause::Unknown => "the launch call is not recorded",
    }
}

impl Timeline {
    /// Everything that is known of a slice.
    #[must_use]
    pub fn slice(&self, row: u32, index: u32) -> Option<SliceDetails> {
        let slices = self.rows.slices(row)?;
        let place = index as usize;
        if place >= slices.len() {
            return None;
        }
        let process = self.rows.rows.get(row as usize)?.process?;
        let (table, record) = table_and_row(slices.source(place));
        let chosen = Chosen {
            row,
            place,
            slices,
            process,
            table,
            record,
        };
        let outline = self.process(process)?;
        let from = Source {
            store: &self.base.store,
            process,
            outline,
            recorded: self.recorded(),
        };
        let mut fields = Fields(fields::of(&from, table, record, slices.duration(place)));
        let call_row = self.launch_call(&chosen);
        let call = call_row.and_then(|row| self.call(process, row));
        if let Some(call) = call.as_ref().filter(|_| is_on_device(table)) {
            let start = call.start_ns.0;
            let end = start.saturating_add(call.duration_ns.0);
            fields.time("From its call to its start", chosen.start().saturating_sub(start));
            fields.time(
                "From its call's end to its start",
                chosen.start().saturating_sub(end),
            );
        }
        let collective = self.collective_of(&chosen);
        if let Some(collective) = collective {
            self.add_collective_fields(&chosen, collective, &mut fields);
        }
        let mut links = Vec::new();
        let more_links = self.links(&chosen, call_row, collective, &mut links);
        let name = slices.name(place);
        Some(SliceDetails {
            reference: self.reference(row, slices, place),
            end: self.relative(chosen.end()),
            unfinished: slices.is_unfinished(place),
            full_name: names::full(name, self.texts()).unwrap_or_default(),
            process: outline.folder.clone(),
            rank: self.base.identities.get(process as usize)?.rank,
            fields: fields.0,
            before: self.before(&chosen, call.as_ref()),
            nvtx: self.nvtx_path(&chosen, call.as_ref()),
            launched_by: self.called_at(&chosen, call.as_ref()).and_then(|(thread, at)| {
                let correlation = call.as_ref().map(|call| call.correlation);
                self.launched_by((process, thread, at), correlation, table == Table::Operator)
            }),
            links,
            more_links,
            collective: collective.and_then(|place| self.collective(place)),
        })
    }

    fn call(&self, process: u32, row: usize) -> Option<ApiCall> {
        self.base.store.row::<ApiCalls>(process, row)
    }

    fn wait(&self, process: u32, row: usize) -> Option<Synchronization> {
        self.base.store.row::<Synchronizations>(process, row)
    }

    /// The correlation id of a record.
    fn correlation(&self, chosen: &Chosen<'_>) -> Option<u32> {
        let (store, process, row) = (&self.base.store, chosen.process, chosen.record);
        let tables = &self.process(process)?.tables;
        match chosen.table {
            Table::Kernel => store.row::<Kernels>(process, row).map(|row| row.correlation),
            Table::Copy => store.row::<Copies>(process, row).map(|row| row.correlation),
            Table::Memset => store.row::<Memsets>(process, row).map(|row| row.correlation),
            Table::GraphLaunch => store
                .row::<GraphLaunches>(process, row)
                .map(|row| row.correlation),
            Table::Call => self.call(process, row).map(|row| row.correlation),
            Table::Synchronization => self.wait(process, row).map(|row| row.correlation),
            Table::Untimed => tables.untimed_operations.correlation.get(row).copied(),
            Table::Compilation => store.compilation(process, row).map(|row| row.correlation),
            Table::Overhead => store
                .row::<Overheads>(process, row)
                .and_then(|row| row.correlation),
            _ => None,
        }
        .filter(|correlation| *correlation != 0)
    }

    /// The row of the call that brought about what is no call itself.
    fn launch_call(&self, chosen: &Chosen<'_>) -> Option<usize> {
        if chosen.table == Table::Call {
            return None;
        }
        self.call_of(chosen.process, self.correlation(chosen)?)
    }

    /// The collective that a slice is part of, as its place in the analysis.
    fn collective_of(&self, chosen: &Chosen<'_>) -> Option<u32> {
        let known = self.known.as_ref()?;
        let record = u32::try_from(chosen.record).ok()?;
        match chosen.table {
            Table::Kernel => known.of_kernel(chosen.process, record).next(),
            Table::Enqueue => known.of_row(chosen.process, record).next(),
            Table::Collective => Some(record),
            _ => None,
        }
    }

    /// What NCCL said of the collective when it was enqueued, and what this rank waited.
    fn add_collective_fields(&self, chosen: &Chosen<'_>, collective: u32, fields: &mut Fields) {
        let Some(known) = &self.known else { return };
        let parts = known.parts(collective);
        let own = parts.iter().find(|part| self.is_part_of(chosen, part));
        let Some(part) = own else { return };
        if let (Some(wait), Some(transfer)) = (part.wait_ns, part.transfer_ns) {
            fields.time("Waited for other ranks", wait);
            fields.time("Transfer", transfer);
        }
        if chosen.table != Table::Enqueue
            && let Some(row) = part.row
            && let Some(row) = self.base.store.collective(chosen.process, row as usize)
        {
            fields::enqueued(&row, self.recorded(), fields);
        }
    }

    fn is_part_of(&self, chosen: &Chosen<'_>, part: &gputrace_analyzer::CollectivePart) -> bool {
        let record = u32::try_from(chosen.record).ok();
        part.process == chosen.process
            && match chosen.table {
                Table::Kernel => part.kernel.map(|(_, row)| row) == record,
                Table::Enqueue => part.row == record,
                Table::Collective => {
                    let device = self.rows.rows[chosen.row as usize].device;
                    part.kernel.map(|(device, _)| device) == device
                }
                _ => false,
            }
    }

    /// Adds links; how many more there are.
    fn links(
        &self,
        chosen: &Chosen<'_>,
        call: Option<usize>,
        collective: Option<u32>,
        links: &mut Vec<Link>,
    ) -> usize {
        let more = Cell::new(0);
        let mut add = |link_type: &'static str, label: &str, reference: Option<Ref>| {
            let Some(reference) = reference else { return };
            if links.len() < MOST_LINKS {
                links.push(Link {
                    link_type,
                    label: label.to_owned(),
                    reference,
                });
            } else {
                more.set(more.get() + 1);
            }
        };
        let process = chosen.process;
        if chosen.table == Table::Projected {
            add(
                "launch",
                "on its thread",
                self.find(process, Table::Marker, chosen.record),
            );
        }
        if let Some(call) = call {
            let label = if is_on_device(chosen.table) {
                "launched by"
            } else {
                "called by"
            };
            let link_type = if chosen.table == Table::Synchronization {
                "synchronization"
            } else {
                "launch"
            };
            add(link_type, label, self.find(process, Table::Call, call));
        }
        if let (Table::Call, Some(id)) = (chosen.table, self.correlation(chosen)) {
            let base = &self.base;
            // Looked up one by one only as far as they are listed.
            let mut found = 0;
            for (table, rows) in [
                (
                    Table::Kernel,
                    base.rows_with::<Kernels>(process, id, |joins| &joins.kernels),
                ),
                (
                    Table::Copy,
                    base.rows_with::<Copies>(process, id, |joins| &joins.copies),
                ),
                (
                    Table::Memset,
                    base.rows_with::<Memsets>(process, id, |joins| &joins.memsets),
                ),
                (
                    Table::GraphLaunch,
                    base.rows_with::<GraphLaunches>(process, id, |joins| &joins.graph_launches),
                ),
            ] {
                for row in rows {
                    if found < MOST_LINKS {
                        add("operation", "launched", self.find(process, table, row));
                    } else {
                        more.set(more.get() + 1);
                    }
                    found += 1;
                }
            }
            for row in base.rows_with::<Synchronizations>(process, id, |joins| &joins.synchronizations) {
                let kind = self.wait(process, row).map_or(0, |wait| wait.kind);
                let reference = self.find(process, Table::Synchronization, row);
                add("synchronization", synchronization_kind::name(kind), reference);
                add("synchronization", "waited for", self.waited_for(process, row));
            }
        }
        if chosen.table == Table::Synchronization {
            add(
                "synchronization",
                "waited for",
                self.waited_for(process, chosen.record),
            );
        }
        if let (Some(place), Some(known)) = (collective, &self.known) {
            let parts = known.parts(place);
            for part in parts.iter().filter(|part| self.is_part_of(chosen, part)) {
                if chosen.table != Table::Kernel {
                    add("collective", "its kernel", self.kernel_of(part));
                }
                if chosen.table != Table::Collective {
                    add(
                        "collective",
                        "on its communicator",
                        self.on_communicator(place, part),
                    );
                }
                if let Some(row) = part.row.filter(|_| chosen.table != Table::Enqueue) {
                    add(
                        "launch",
                        "enqueued by",
                        self.find(process, Table::Enqueue, row as usize),
                    );
                }
            }
            let others = |part: &&gputrace_analyzer::CollectivePart| !self.is_part_of(chosen, part);
            for part in parts.iter().filter(others) {
                let label = part
                    .rank
                    .map_or_else(|| "a peer".to_owned(), |rank| format!("rank {rank}"));
                let reference = if chosen.table == Table::Collective {
                    self.on_communicator(place, part)
                } else {
                    self.kernel_of(part)
                };
                add("collective", &label, reference);
            }
        }
        more.get()
    }

    /// The operation that a synchronization ended with: the last of its stream, or else of its context's streams, to end
    /// while it waited.
    fn waited_for(&self, process: u32, record: usize) -> Option<Ref> {
        const STREAM_WAITS: u32 = 2;
        let wait = self.wait(process, record)?;
        let start = wait.start_ns.0;
        let end = start.saturating_add(wait.duration_ns.0);
        if wait.kind == STREAM_WAITS {
            return None;
        }
        let stream = wait.stream;
        let mut last: Option<(i64, u32, usize)> = None;
        for (&(of, place), &(first, count)) in &self.rows.places {
            let Place::Stream(_, number) = place else { continue };
            if of != process || stream.is_some_and(|stream| stream != number) {
                continue;
            }
            for row in first..first + count {
                let Some(slices) = self.rows.slices(row) else {
                    continue;
                };
                // Slices of a row end in the order in which they start.
                let before = slices.first_from(end);
                let Some(at) = (before.saturating_sub(2)..before)
                    .rev()
                    .find(|at| slices.end_of(*at) <= end)
                else {
                    continue;
                };
                let ended = slices.end_of(at);
                if ended > start && last.is_none_or(|(latest, ..)| ended > latest) {
                    last = Some((ended, row, at));
                }
            }
        }
        let (_, row, at) = last?;
        Some(self.reference(row, self.rows.slices(row)?, at))
    }

    /// The idle time before an operation of a device: of the device, or else of its stream.
    fn before(&self, chosen: &Chosen<'_>, call: Option<&ApiCall>) -> Option<Before> {
        if !is_on_device(chosen.table) {
            return None;
        }
        let row = self.rows.rows.get(chosen.row as usize)?;
        let device = row.device?;
        let start = chosen.start();
        let band = (self.base.bands.iter())
            .position(|band| band.process == chosen.process && band.device_index == device);
        let idle = band.and_then(|band| self.profile(band).idle_before(start));
        if let Some(idle) = idle {
            let length = time(idle.to - idle.from);
            let mut text = match idle.cause {
                Some(cause) => format!("The GPU was idle for {length}: {}.", meaning(cause)),
                None => format!("The GPU was idle for {length}."),
            };
            let late = matches!(
                idle.cause,
                Some(Cause::HostLate | Cause::PeerWait | Cause::QueueFull)
            );
            if let Some(call) = call.filter(|_| late)
                && let Some(meanwhile) = self.meanwhile(chosen.process, call, idle.from)
            {
                text = format!("{text} {meanwhile}");
            }
            return Some(Before {
                from: self.relative(idle.from),
                to: self.relative(idle.to),
                cause: idle.cause.map(Cause::name),
                text,
            });
        }
        // The end of what came before on any lane of the stream.
        let lanes = row.row - row.lane..row.row - row.lane + row.lanes;
        let ends = lanes.filter_map(|lane| {
            let slices = self.rows.slices(lane)?;
            let before = slices.first_from(start).checked_sub(1)?;
            Some(slices.end_of(before))
        });
        let from = ends.max().filter(|from| *from < start)?;
        Some(Before {
            from: self.relative(from),
            to: self.relative(start),
            cause: Some("stream"),
            text: format!(
                "The stream was idle for {}; the GPU was busy with other streams.",
                time(start - from)
            ),
        })
    }

    /// What the launching thread did most from a moment until it made a call.
    fn meanwhile(&self, process: u32, call: &ApiCall, from: i64) -> Option<String> {
        let (thread, to) = (call.thread, call.start_ns.0);
        if to <= from {
            return None;
        }
        // The innermost lane that has something of at least a third of the time.
        let mut found = None;
        for place in [Place::Ranges(thread), Place::Thread(thread)] {
            let Some(&(first, count)) = self.rows.places.get(&(process, place)) else {
                continue;
            };
            for row in first..first + count {
                let Some(slices) = self.rows.slices(row) else {
                    continue;
                };
                let within = slices.within(from, to);
                if within.is_empty() {
                    continue;
                }
                let overlap = |at: usize| slices.end_of(at).min(to) - slices.start(at).max(from);
                let inner = (within.len() > 2).then(|| slices.longest(within.start + 1, within.end - 1));
                let most = [Some(within.start), inner, Some(within.end - 1)]
                    .into_iter()
                    .flatten()
                    .max_by_key(|at| overlap(*at))?;
                if overlap(most) * 3 >= to - from {
                    let name = self.label(slices.name(most)).unwrap_or_default();
                    found = Some((name, overlap(most)));
                }
            }
        }
        let (name, overlap) = found?;
        Some(format!(
            "Thread {thread} was in {name} for {} of it.",
            time(overlap)
        ))
    }

    /// Thread and time of what a slice is of: its call, or else its own.
    fn called_at(&self, chosen: &Chosen<'_>, call: Option<&ApiCall>) -> Option<(u32, i64)> {
        match (call, self.rows.rows[chosen.row as usize].thread) {
            (Some(call), _) => Some((call.thread, call.start_ns.0)),
            (None, Some(thread)) if chosen.table == Table::Projected => {
                let range = self.base.store.row::<Markers>(chosen.process, chosen.record);
                Some((thread, range.map_or(0, |range| range.start_ns.0)))
            }
            (None, Some(thread)) => Some((thread, chosen.start())),
            (None, None) => self.enqueued_at(chosen),
        }
    }

    /// The NVTX ranges that a slice was called in, outermost first: those of its thread at its start, or at its call's.
    fn nvtx_path(&self, chosen: &Chosen<'_>, call: Option<&ApiCall>) -> Vec<String> {
        let Some((thread, at)) = self.called_at(chosen, call) else {
            return Vec::new();
        };
        let Some(&(first, count)) = self.rows.places.get(&(chosen.process, Place::Ranges(thread))) else {
            return Vec::new();
        };
        // Not the range itself.
        let own = u32::try_from(chosen.record).map_or(u32::MAX, |record| source(Table::Marker, record));
        let is_range = matches!(chosen.table, Table::Marker | Table::Projected);
        (first..first + count)
            .filter(|row| chosen.table != Table::Marker || *row < chosen.row)
            .filter_map(|row| {
                let slices = self.rows.slices(row)?;
                let place = slices.first_from(at.saturating_add(1)).checked_sub(1)?;
                let encloses = slices.end_of(place) > at && !(is_range && slices.source(place) == own);
                encloses.then(|| names::full(slices.name(place), self.texts()).map(names::cut))?
            })
            .collect()
    }

    /// Thread and time of a collective's enqueueing.
    fn enqueued_at(&self, chosen: &Chosen<'_>) -> Option<(u32, i64)> {
        let place = self.collective_of(chosen)?;
        let parts = self.known.as_ref()?.parts(place);
        let row = parts.iter().find(|part| self.is_part_of(chosen, part))?.row? as usize;
        let row = self.base.store.collective(chosen.process, row)?;
        // With a kernel's row the times are the kernel's.
        row.kernel.is_none().then_some((row.thread, row.start_ns.0))
    }
}

/// Whether a table's rows are operations of a device.
fn is_on_device(table: Table) -> bool {
    matches!(
        table,
        Table::Kernel | Table::Copy | Table::Memset | Table::GraphLaunch | Table::Untimed
    )
}
