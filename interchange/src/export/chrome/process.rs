//! One process's events: which "process" and "thread" of the file each of its rows and lanes is.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::rc::Rc;

use gputrace_trace::NameId;

use super::event::{EventWriter, Place};
use crate::export::ExportSummary;
use crate::export::layout::{Flow, Launch, Layout, RowKey, Slice, Source};

/// Where the numbers of GPU "processes" begin: above every process id that Linux gives.
const GPU_PIDS: u64 = 5_000_000;
/// Where the numbers of overhead "processes" begin.
const OVERHEAD_PIDS: u64 = 900_000_000;
/// What is added to a row's number for a further lane, and where a number is taken already.
const LANE_STEP: u64 = 10_000_000;
/// What is added to a stream's number for the row of the waits on it, as Kineto does.
const SYNC_STEP: u64 = 1_000_000;

/// The process ids in use in the file: two ranks on two hosts may well have the same.
#[derive(Default)]
pub struct Identifiers {
    pids: HashSet<u64>,
}

impl Identifiers {
    fn take(&mut self, wanted: u64) -> u64 {
        let mut pid = wanted.max(1);
        while !self.pids.insert(pid) {
            pid += LANE_STEP;
        }
        pid
    }
}

/// Where a row of the layout is shown.
struct RowPlace {
    pid: u64,
    /// By lane.
    tids: Vec<u64>,
}

pub(super) struct Exporter<'l> {
    pub(super) layout: &'l Layout<'l>,
    pub(super) host_pid: u64,
    /// By device index.
    pub(super) gpu_pids: BTreeMap<u32, u64>,
    pub(super) overhead_pid: Option<u64>,
    places: Vec<RowPlace>,
    tids: HashSet<(u64, u64)>,
    pub(super) names: HashMap<(Source, NameId), Rc<str>>,
}

/// Writes one process.
pub fn write(
    layout: &Layout<'_>,
    identifiers: &mut Identifiers,
    writer: &mut EventWriter<'_>,
    summary: &mut ExportSummary,
) -> io::Result<()> {
    let mut exporter = Exporter::new(layout, identifiers);
    summary.events_in += layout.events();
    summary.durations_clamped += layout.durations_clamped;
    // First, so that a reader knows whose the events are.
    exporter.write_process_names(writer)?;
    exporter.write_row_names(writer, summary)?;
    exporter.write_slices(writer, summary)?;
    exporter.write_moments(writer, summary)
}

impl<'l> Exporter<'l> {
    fn new(layout: &'l Layout<'l>, identifiers: &mut Identifiers) -> Self {
        let number = layout.number as u64;
        let pid = layout.process.header.pid;
        let host_pid = identifiers.take(match pid {
            0 => GPU_PIDS - 1 - number,
            pid => pid.into(),
        });
        let tables = &layout.process.tables;
        let mut gpu_pids = BTreeMap::new();
        let devices = layout.rows.iter().filter_map(|row| row.key.device());
        for device in devices.chain(tables.counters.device.iter().flatten().copied()) {
            gpu_pids
                .entry(device)
                .or_insert_with(|| identifiers.take(GPU_PIDS + number * 1000 + u64::from(device)));
        }
        let has_overhead = layout
            .rows
            .iter()
            .any(|row| matches!(row.key, RowKey::Overhead(_)));
        let overhead_pid = has_overhead.then(|| identifiers.take(OVERHEAD_PIDS + number));
        let mut exporter = Self {
            layout,
            host_pid,
            gpu_pids,
            overhead_pid,
            places: Vec::new(),
            tids: HashSet::new(),
            names: HashMap::new(),
        };
        for row in &layout.rows {
            let (pid, wanted) = exporter.wanted(row.key);
            let tids = (0..row.lanes as u64)
                .map(|lane| exporter.take_tid(pid, wanted + LANE_STEP * lane))
                .collect();
            exporter.places.push(RowPlace { pid, tids });
        }
        exporter
    }

    /// The numbers that a row has where they are free.
    fn wanted(&self, key: RowKey) -> (u64, u64) {
        let gpu = |device| self.gpu_pids.get(&device).copied().unwrap_or(self.host_pid);
        match key {
            RowKey::Thread(thread) => (self.host_pid, thread.into()),
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
        while !self.tids.insert((pid, tid)) {
            tid += LANE_STEP;
        }
        tid
    }

    pub(super) fn place(&self, row: usize, lane: usize) -> Place {
        let row = &self.places[row];
        Place {
            pid: row.pid,
            tid: row.tids[lane],
        }
    }

    /// Where what is of a moment on this thread is shown.
    pub(super) fn thread_place(&self, thread: u32) -> Place {
        let rows = &self.layout.rows;
        let row = rows.binary_search_by_key(&RowKey::Thread(thread), |row| row.key);
        row.map_or(
            Place {
                pid: self.host_pid,
                tid: thread.max(1).into(),
            },
            |row| self.place(row, 0),
        )
    }

    fn write_slices(&mut self, writer: &mut EventWriter<'_>, summary: &mut ExportSummary) -> io::Result<()> {
        let layout = self.layout;
        let mut flow = layout.number as u64 * (1 << 40);
        for (row, slices) in layout.rows.iter().map(|row| &row.slices).enumerate() {
            for slice in slices {
                let place = self.place(row, slice.lane());
                self.write_slice(slice, place, writer)?;
                summary.events_out += 1;
                match layout.flow(slice) {
                    Flow::None => {}
                    Flow::Unknown => summary.launches_unknown += 1,
                    Flow::Later(_) => summary.launches_later += 1,
                    Flow::From(launch) => {
                        flow += 1;
                        self.write_flow(flow, &launch, slice, place, writer)?;
                        summary.flows += 1;
                    }
                }
            }
        }
        Ok(())
    }

    fn write_flow(
        &self,
        id: u64,
        launch: &Launch,
        slice: &Slice,
        place: Place,
        writer: &mut EventWriter<'_>,
    ) -> io::Result<()> {
        let from = self.place(launch.row, launch.lane);
        writer.flow(id, (from, launch.start_ns), (place, slice.start_ns))
    }
}
