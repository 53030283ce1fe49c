//! One process's events: which row and lane each goes to, its category and its `args`.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::io;
use std::rc::Rc;

use gputrace_trace::{DurationNs, NameId, Process, Recording, TimeNs};

use super::ExportSummary;
use super::event::{EventWriter, Place};
use super::lanes::Lanes;

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

/// What a row of the timeline stands for.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum RowKey {
    Thread(u32),
    /// Start/end ranges of a thread: they don't nest with its calls.
    Ranges(u32),
    /// Waits on a device or context that is not known.
    Waits,
    Overhead(u32),
    Stream {
        device: u32,
        context: u32,
        stream: u32,
    },
    StreamWaits {
        device: u32,
        context: u32,
        stream: Option<u32>,
    },
}

pub(super) struct Row {
    pub(super) pid: u64,
    pub(super) name: String,
    pub(super) sort: u64,
    pub(super) nested: bool,
    /// By lane.
    pub(super) tids: Vec<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Source {
    Marker,
    Operator,
    Collective,
    ApiCall,
    Overhead,
    Synchronization,
    Kernel,
    Copy,
    Memset,
}

/// An event with a length, before it is written.
pub(super) struct Slice {
    pub(super) start_ns: i64,
    pub(super) end_ns: i64,
    pub(super) row: u32,
    pub(super) index: u32,
    pub(super) source: Source,
}

pub(super) struct Exporter<'r> {
    pub(super) recording: &'r Recording,
    pub(super) process: &'r Process,
    pub(super) number: u64,
    pub(super) host_pid: u64,
    pub(super) gpu_pids: HashMap<u32, u64>,
    pub(super) overhead_pid: Option<u64>,
    pub(super) rows: Vec<Row>,
    pub(super) row_numbers: HashMap<RowKey, u32>,
    pub(super) tids: HashSet<(u64, u64)>,
    pub(super) names: HashMap<(Source, NameId), Rc<str>>,
    /// By correlation, the collectives whose kernel the launch carries.
    pub(super) collectives: HashMap<u32, Vec<u32>>,
    /// By row of the kernel, the collectives of imported traces that it carries.
    pub(super) collectives_by_kernel: HashMap<u32, Vec<u32>>,
}

/// Writes one process: `number` is its place among the recording's.
pub fn write(
    recording: &Recording,
    number: usize,
    process: &Process,
    identifiers: &mut Identifiers,
    writer: &mut EventWriter<'_>,
    summary: &mut ExportSummary,
) -> io::Result<()> {
    let mut exporter = Exporter {
        recording,
        process,
        number: number as u64,
        host_pid: identifiers.take(if process.header.pid > 0 {
            process.header.pid.into()
        } else {
            GPU_PIDS - 1 - number as u64
        }),
        gpu_pids: HashMap::new(),
        overhead_pid: None,
        rows: Vec::new(),
        row_numbers: HashMap::new(),
        tids: HashSet::new(),
        names: HashMap::new(),
        collectives: collectives_by_launch(process),
        collectives_by_kernel: collectives_by_kernel(process),
    };
    let slices = exporter.gather(identifiers, summary);
    // First, so that a reader knows whose the events are.
    exporter.write_process_names(writer)?;
    exporter.write_slices(&slices, writer, summary)?;
    drop(slices);
    exporter.write_moments(identifiers, writer, summary)?;
    exporter.write_row_names(writer, summary)
}

/// Joins collectives to launches through the plan's number.
fn collectives_by_launch(process: &Process) -> HashMap<u32, Vec<u32>> {
    let external = &process.tables.external_correlations;
    let mut launches: HashMap<u64, Vec<u32>> = HashMap::new();
    for (&id, &correlation) in external.id.iter().zip(&external.correlation) {
        launches.entry(id).or_default().push(correlation);
    }
    let mut joined: HashMap<u32, Vec<u32>> = HashMap::new();
    for (row, plan) in (0u32..).zip(&process.tables.collectives.plan) {
        for &correlation in plan.and_then(|plan| launches.get(&plan)).into_iter().flatten() {
            joined.entry(correlation).or_default().push(row);
        }
    }
    joined
}

fn collectives_by_kernel(process: &Process) -> HashMap<u32, Vec<u32>> {
    let mut joined: HashMap<u32, Vec<u32>> = HashMap::new();
    for (row, kernel) in (0u32..).zip(&process.tables.collectives.kernel) {
        if let Some(kernel) = kernel.and_then(|kernel| u32::try_from(kernel).ok()) {
            joined.entry(kernel).or_default().push(row);
        }
    }
    joined
}

/// The slice of row `index` of its table; a negative duration is counted and none.
fn slice(
    source: Source,
    index: usize,
    row: u32,
    start: TimeNs,
    duration: DurationNs,
    summary: &mut ExportSummary,
) -> Slice {
    summary.durations_clamped += u64::from(duration.0 < 0);
    Slice {
        start_ns: start.0,
        end_ns: start.0.saturating_add(duration.0.max(0)),
        row,
        index: u32::try_from(index).unwrap_or(u32::MAX),
        source,
    }
}

impl Exporter<'_> {
    pub(super) fn gpu_pid(&mut self, device: u32, identifiers: &mut Identifiers) -> u64 {
        let wanted = GPU_PIDS + self.number * 1000 + u64::from(device);
        *self
            .gpu_pids
            .entry(device)
            .or_insert_with(|| identifiers.take(wanted))
    }

    fn take_tid(&mut self, pid: u64, wanted: u64) -> u64 {
        // 0 is nobody's: Perfetto takes it for the process's main thread.
        let mut tid = if wanted == 0 { LANE_STEP } else { wanted };
        while !self.tids.insert((pid, tid)) {
            tid += LANE_STEP;
        }
        tid
    }

    /// The number of the row for `key`, new if there was none.
    pub(super) fn row(&mut self, key: RowKey, identifiers: &mut Identifiers) -> u32 {
        if let Some(&row) = self.row_numbers.get(&key) {
            return row;
        }
        let (pid, sort, name, nested) = match key {
            RowKey::Thread(thread) => (self.host_pid, thread.into(), format!("thread {thread}"), true),
            RowKey::Ranges(thread) => (
                self.host_pid,
                u64::from(thread) + SYNC_STEP * 5,
                format!("thread {thread} (start/end ranges)"),
                true,
            ),
            RowKey::Waits => (
                self.host_pid,
                SYNC_STEP * 10,
                "synchronizations".to_owned(),
                false,
            ),
            RowKey::Overhead(thread) => {
                let wanted = OVERHEAD_PIDS + self.number;
                let pid = *self.overhead_pid.get_or_insert_with(|| identifiers.take(wanted));
                (pid, thread.into(), format!("thread {thread}"), false)
            }
            RowKey::Stream { device, stream, .. } => {
                let pid = self.gpu_pid(device, identifiers);
                (pid, stream.into(), format!("stream {stream}"), false)
            }
            RowKey::StreamWaits { device, stream, .. } => {
                let pid = self.gpu_pid(device, identifiers);
                match stream {
                    Some(stream) => (
                        pid,
                        u64::from(stream) + SYNC_STEP,
                        format!("stream {stream} (sync)"),
                        false,
                    ),
                    None => (pid, SYNC_STEP * 2, format!("device {device} (sync)"), false),
                }
            }
        };
        let tid = self.take_tid(pid, sort);
        let number = u32::try_from(self.rows.len()).unwrap_or(u32::MAX);
        self.rows.push(Row {
            pid,
            name,
            sort,
            nested,
            tids: vec![tid],
        });
        self.row_numbers.insert(key, number);
        number
    }

    /// All slices of the process, by row and start, the host's rows first.
    fn gather(&mut self, identifiers: &mut Identifiers, summary: &mut ExportSummary) -> Vec<Slice> {
        let tables = &self.process.tables;
        let contexts: HashMap<u32, u32> = tables
            .contexts
            .context
            .iter()
            .copied()
            .zip(tables.contexts.device.iter().copied())
            .collect();
        let mut slices = Vec::new();
        macro_rules! gather {
            ($source:ident, $table:expr, |$index:ident| $key:expr) => {
                for $index in 0..$table.start_ns.len() {
                    let row = self.row($key, identifiers);
                    let (start, duration) = ($table.start_ns[$index], $table.duration_ns[$index]);
                    slices.push(slice(
                        Source::$source,
                        $index,
                        row,
                        start,
                        duration,
                        summary,
                    ));
                }
            };
        }
        gather!(ApiCall, tables.api_calls, |i| RowKey::Thread(
            tables.api_calls.thread[i]
        ));
        gather!(Operator, tables.operators, |i| RowKey::Thread(
            tables.operators.thread[i]
        ));
        let collectives = &tables.collectives;
        for index in 0..collectives.start_ns.len() {
            // Those of imported traces are their kernels, which carry their members.
            if collectives.kernel[index].is_none() {
                let row = self.row(RowKey::Thread(collectives.thread[index]), identifiers);
                let (start, duration) = (collectives.start_ns[index], collectives.duration_ns[index]);
                slices.push(slice(Source::Collective, index, row, start, duration, summary));
            }
        }
        for index in 0..tables.markers.start_ns.len() {
            let Some(duration) = tables.markers.duration_ns[index] else {
                continue;
            };
            let thread = tables.markers.thread[index];
            let key = if tables.markers.kind[index] == 1 {
                RowKey::Ranges(thread)
            } else {
                RowKey::Thread(thread)
            };
            let row = self.row(key, identifiers);
            let start = tables.markers.start_ns[index];
            slices.push(slice(Source::Marker, index, row, start, duration, summary));
        }
        gather!(Overhead, tables.overheads, |i| RowKey::Overhead(
            tables.overheads.thread[i].unwrap_or(0)
        ));
        gather!(Kernel, tables.kernels, |i| RowKey::Stream {
            device: tables.kernels.device[i],
            context: tables.kernels.context[i],
            stream: tables.kernels.stream[i],
        });
        gather!(Copy, tables.copies, |i| RowKey::Stream {
            device: tables.copies.device[i],
            context: tables.copies.context[i],
            stream: tables.copies.stream[i],
        });
        gather!(Memset, tables.memsets, |i| RowKey::Stream {
            device: tables.memsets.device[i],
            context: tables.memsets.context[i],
            stream: tables.memsets.stream[i],
        });
        // All processes of the file must be known before its names are written.
        for &device in tables.counters.device.iter().flatten() {
            self.gpu_pid(device, identifiers);
        }
        let waits = &tables.synchronizations;
        gather!(Synchronization, waits, |i| match waits.context[i]
            .and_then(|context| Some((context, *contexts.get(&context)?)))
        {
            Some((context, device)) => RowKey::StreamWaits {
                device,
                context,
                stream: waits.stream[i]
            },
            None => RowKey::Waits,
        });
        slices.sort_unstable_by_key(|slice| {
            (
                slice.row,
                slice.start_ns,
                Reverse(slice.end_ns),
                slice.source,
                slice.index,
            )
        });
        summary.events_in += slices.len() as u64
            + tables.markers.duration_ns.iter().filter(|d| d.is_none()).count() as u64
            + (tables.memory.time_ns.len() + tables.counters.time_ns.len()) as u64;
        slices
    }

    fn write_slices(
        &mut self,
        slices: &[Slice],
        writer: &mut EventWriter<'_>,
        summary: &mut ExportSummary,
    ) -> io::Result<()> {
        let calls = &self.process.tables.api_calls;
        // By correlation, the outermost call: a runtime call and the driver call within it may share the number.
        let mut launches: Vec<(u32, i64, u32)> = (0u32..)
            .zip(calls.correlation.iter().zip(&calls.start_ns))
            .filter(|(_, (correlation, _))| **correlation != 0)
            .map(|(index, (&correlation, start))| (correlation, start.0, index))
            .collect();
        launches.sort_unstable();
        let mut call_tids = vec![0u64; calls.start_ns.len()];
        let mut lanes: Option<(u32, Lanes)> = None;
        let mut flow = self.number << 40;
        for slice in slices {
            if lanes.as_ref().is_none_or(|(row, _)| *row != slice.row) {
                lanes = Some((slice.row, Lanes::new(self.rows[slice.row as usize].nested)));
            }
            let Some((_, row_lanes)) = &mut lanes else {
                continue;
            };
            let lane = row_lanes.place(slice.start_ns, slice.end_ns);
            let place = self.lane_place(slice.row, lane);
            let index = slice.index as usize;
            if slice.source == Source::ApiCall {
                call_tids[index] = place.tid;
            }
            let correlation = self.write_slice(slice, place, writer)?;
            summary.events_out += 1;
            let Some(correlation) = correlation else { continue };
            let first = launches.partition_point(|&(number, _, _)| number < correlation);
            match launches.get(first) {
                Some(&(number, start_ns, call)) if number == correlation => {
                    if start_ns > slice.start_ns {
                        summary.launches_later += 1;
                        continue;
                    }
                    flow += 1;
                    let from = Place {
                        pid: self.host_pid,
                        tid: call_tids[call as usize],
                    };
                    writer.flow(flow, (from, start_ns), (place, slice.start_ns))?;
                    summary.flows += 1;
                }
                _ => summary.launches_unknown += 1,
            }
        }
        Ok(())
    }

    pub(super) fn lane_place(&mut self, row: u32, lane: usize) -> Place {
        let row = row as usize;
        let pid = self.rows[row].pid;
        while self.rows[row].tids.len() <= lane {
            let wanted = self.rows[row].sort + LANE_STEP * self.rows[row].tids.len() as u64;
            let tid = self.take_tid(pid, wanted);
            self.rows[row].tids.push(tid);
        }
        Place {
            pid,
            tid: self.rows[row].tids[lane],
        }
    }
}
