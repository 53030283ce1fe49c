//! One process's events: which "process" and "thread" of the file each of its rows and lanes is.

use std::collections::{BTreeMap, HashSet};
use std::io;

use gputrace_trace::Process;

use super::collectives::Groups;
use super::event::{EventWriter, Place};
use super::gputrace_members::{Columns, write_process};
use super::names::{Names, Of, Originals};
use super::operator_args::OperatorArgs;
use super::shapes::Shapes;
use crate::export::ExportSummary;
use crate::export::layout::{Flow, Layout, RowKey, Source};

/// Where the numbers of GPU "processes" begin: above every process id that Linux gives.
const GPU_PIDS: u64 = 5_000_000;
/// Where the numbers of overhead "processes" begin.
const OVERHEAD_PIDS: u64 = 900_000_000;
/// What is added to a row's number for a further lane, and where a number is taken already.
const LANE_STEP: u64 = 10_000_000;
/// What is added to a stream's number for the row of the waits on it, as Kineto does.
const SYNC_STEP: u64 = 1_000_000;
/// The largest number of a thread or process that Perfetto knows: it takes larger ones for 0.
const LARGEST: u64 = u32::MAX as u64;
/// Where arrows of a process are numbered that have no number of their own to have.
const MORE_FLOWS: u64 = 1 << 39;

/// The process ids in use in the file: two ranks on two hosts may well have the same.
#[derive(Default)]
pub struct Identifiers {
    pids: HashSet<u64>,
}

impl Identifiers {
    fn take(&mut self, wanted: u64) -> u64 {
        let mut pid = wanted.clamp(1, LARGEST);
        while !self.pids.insert(pid) {
            pid = (pid + LANE_STEP) % LARGEST + 1;
        }
        pid
    }
}

/// What is worked out once for many events.
pub(super) struct Caches<'l> {
    pub(super) names: Names<'l>,
    pub(super) shapes: Shapes<'l>,
    pub(super) operators: OperatorArgs<'l>,
}

pub(super) struct Exporter<'l> {
    pub(super) layout: &'l Layout<'l>,
    /// Its place among the processes of the file.
    pub(super) number: u64,
    pub(super) host_pid: u64,
    /// By device index.
    pub(super) gpu_pids: BTreeMap<u32, u64>,
    pub(super) overhead_pid: Option<u64>,
    pub(super) columns: Columns<'l>,
    pub(super) groups: Groups<'l>,
    pub(super) kernels: Originals,
    pub(super) calls: Originals,
    /// By row of `collectives`, the number of its enqueueing among those of the file's process, from 1.
    pub(super) collective_numbers: Vec<u64>,
    /// By row of the layout and lane.
    places: Vec<Vec<Place>>,
    tids: HashSet<(u64, u64)>,
}

/// Numbers enqueueings in the order in which they stand in the file, so that the export of an export has the same.
fn collective_numbers(layout: &Layout<'_>) -> Vec<u64> {
    let mut numbers = vec![0; layout.process.tables.collectives.start_ns.len()];
    let slices = layout.rows.iter().flat_map(|row| &row.slices);
    let enqueued = slices.filter(|slice| slice.source() == Source::Collective);
    for (number, slice) in (1..).zip(enqueued) {
        numbers[slice.index as usize] = number;
    }
    numbers
}

/// Writes one process, the one in place `number` of the file.
pub fn write(
    layout: &Layout<'_>,
    number: u64,
    identifiers: &mut Identifiers,
    writer: &mut EventWriter<'_>,
    summary: &mut ExportSummary,
) -> io::Result<()> {
    let exporter = Exporter::new(layout, number, identifiers);
    summary.events_in += layout.events();
    summary.durations_clamped += layout.durations_clamped;
    // First, so that a reader knows whose the events are.
    exporter.write_process_names(writer)?;
    exporter.write_row_names(writer, summary)?;
    let Process { header, tables, .. } = layout.process;
    let mut caches = Caches {
        names: Names::new(&layout.recording.names),
        shapes: Shapes::new(header, &tables.kernels),
        operators: OperatorArgs::new(&tables.operators, &layout.recording.names),
    };
    exporter.write_slices(&mut caches, writer, summary)?;
    exporter.write_moments(&mut caches, writer, summary)
}

impl<'l> Exporter<'l> {
    fn new(layout: &'l Layout<'l>, number: u64, identifiers: &mut Identifiers) -> Self {
        let pid = layout.process.header.pid;
        let host_pid = identifiers.take(match pid {
            0 => GPU_PIDS - 1 - number,
            pid => pid.into(),
        });
        let tables = &layout.process.tables;
        let mut gpu_pids = BTreeMap::new();
        let devices = layout.rows.iter().filter_map(|row| row.key.device());
        let sampled = tables.counters.device.iter().flatten();
        let untimed = tables.untimed_operations.device.iter().flatten();
        for device in devices.chain(sampled.chain(untimed).copied()) {
            gpu_pids.entry(device).or_insert(0);
        }
        // In the order of devices, whatever comes first.
        for (&device, pid) in &mut gpu_pids {
            *pid = identifiers.take(GPU_PIDS + number * 1000 + u64::from(device));
        }
        let has_overhead = layout
            .rows
            .iter()
            .any(|row| matches!(row.key, RowKey::Overhead(_)));
        let overhead_pid = has_overhead.then(|| identifiers.take(OVERHEAD_PIDS + number));
        let names = &layout.recording.names;
        let mut exporter = Self {
            layout,
            number,
            host_pid,
            gpu_pids,
            overhead_pid,
            columns: Columns::new(layout),
            groups: Groups::new(layout.recording, layout.process, &layout.communicators),
            kernels: Originals::of(Of::Kernel, &tables.kernels.name, names),
            calls: Originals::of(Of::Call, &tables.api_calls.name, names),
            collective_numbers: collective_numbers(layout),
            places: Vec::new(),
            tids: HashSet::new(),
        };
        for row in &layout.rows {
            let (pid, wanted) = exporter.wanted(row.key);
            let places = (0..row.lanes as u64)
                .map(|lane| Place::new(pid, exporter.take_tid(pid, wanted + LANE_STEP * lane)))
                .collect();
            exporter.places.push(places);
        }
        exporter
    }

    /// The numbers that a row has where they are free.
    fn wanted(&self, key: RowKey) -> (u64, u64) {
        let gpu = |device| self.gpu_pids.get(&device).copied().unwrap_or(self.host_pid);
        match key {
            RowKey::Thread(thread) => (self.host_pid, thread.into()),
            RowKey::Python(thread) => (self.host_pid, u64::from(thread) + SYNC_STEP * 4),
            RowKey::Ranges(thread) => (self.host_pid, u64::from(thread) + SYNC_STEP * 5),
            RowKey::Proxy(thread) => (self.host_pid, u64::from(thread) + SYNC_STEP * 6),
            RowKey::Windows => (self.host_pid, SYNC_STEP * 9),
            RowKey::NoThread => (self.host_pid, SYNC_STEP * 8),
            RowKey::Channel { channel, .. } => (self.host_pid, SYNC_STEP * 7 + u64::from(channel)),
            RowKey::Overhead(thread) => {
                let pid = self.overhead_pid.unwrap_or(self.host_pid);
                (pid, thread.unwrap_or(0).into())
            }
            RowKey::Stream { device, stream, .. } => (gpu(device), stream.into()),
            RowKey::Graphs { device, stream, .. } => (gpu(device), u64::from(stream) + SYNC_STEP * 3),
            RowKey::StreamWaits {
                device,
                stream: Some(stream),
                ..
            } => (gpu(device), u64::from(stream) + SYNC_STEP),
            RowKey::StreamWaits { device, .. } => (gpu(device), SYNC_STEP * 2),
        }
    }

    fn take_tid(&mut self, pid: u64, wanted: u64) -> u64 {
        // 0 is nobody's: Perfetto takes it for the process's main thread.
        let mut tid = if wanted == 0 { LANE_STEP } else { wanted };
        while tid > LARGEST || !self.tids.insert((pid, tid)) {
            tid = (tid + LANE_STEP) % LARGEST + 1;
        }
        tid
    }

    pub(super) fn place(&self, row: usize, lane: usize) -> &Place {
        &self.places[row][lane]
    }

    /// Where what is of a moment on this thread is shown.
    pub(super) fn thread_place(&self, thread: u32) -> Place {
        let rows = &self.layout.rows;
        let row = rows.binary_search_by_key(&RowKey::Thread(thread), |row| row.key);
        row.map_or_else(
            |_| Place::new(self.host_pid, thread.max(1).into()),
            |row| self.place(row, 0).clone(),
        )
    }

    /// What is true of the process as a whole.
    pub(super) fn write_own(&self, writer: &mut EventWriter<'_>) -> io::Result<()> {
        let names = [
            ("kernels", self.kernels.pairs.as_slice()),
            ("calls", self.calls.pairs.as_slice()),
        ];
        write_process(self.layout, (self.number, self.host_pid), &names, writer)
    }

    fn write_slices(
        &self,
        caches: &mut Caches<'l>,
        writer: &mut EventWriter<'_>,
        summary: &mut ExportSummary,
    ) -> io::Result<()> {
        let layout = self.layout;
        let process = self.number << 40;
        let mut more_flows = process + MORE_FLOWS;
        // An arrow's number is the correlation id, as Kineto has it, where the call launched one operation; of several the
        // first has it, since readers let an arrow end once.
        let mut numbered = HashSet::new();
        for (row, slices) in layout.rows.iter().map(|row| &row.slices).enumerate() {
            for slice in slices {
                let place = self.place(row, slice.lane());
                self.write_slice(slice, place, caches, writer)?;
                summary.events_out += 1;
                match layout.flow(slice) {
                    Flow::None => {}
                    Flow::Unknown => summary.launches_unknown += 1,
                    Flow::Later(_) => summary.launches_later += 1,
                    Flow::From(launch) => {
                        let correlation = layout.correlation(slice);
                        let id = if numbered.insert(correlation) {
                            process + u64::from(correlation)
                        } else {
                            more_flows += 1;
                            more_flows
                        };
                        let from = self.place(launch.row, launch.lane);
                        writer.flow(id, (from, launch.start_ns), (place, slice.start_ns));
                        summary.flows += 1;
                    }
                }
            }
        }
        Ok(())
    }
}
