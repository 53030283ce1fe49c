//! Where each event of a process is shown: the one pass over its tables that every exporter starts from.
//!
//! Slices come by row and lane, in order and without overlap within a lane, with the call that launched them. Numbers of
//! processes and tracks differ between formats, so they are each exporter's own.

mod row_key;
mod row_names;

use std::cmp::Reverse;

use gputrace_trace::derived::DerivedProcess;
use gputrace_trace::{Derived, DurationNs, Process, Recording, TimeNs};
use rustc_hash::FxHashMap;

use super::calls::Calls;
use super::lanes::Lanes;
pub use row_key::RowKey;
pub use row_names::CommunicatorNames;
use row_names::RowNames;

/// Which table an event is a row of. Of two that begin and end together, the later one here is the inner one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Source {
    /// `windows`.
    Window,
    /// `markers` that have a duration.
    Marker,
    /// `python_frames`.
    PythonFrame,
    /// `operators`.
    Operator,
    /// `collectives`: their enqueueing. Those of imported traces are their kernels, and no events of their own.
    Collective,
    /// `api_calls`.
    ApiCall,
    /// `compilations`.
    Compilation,
    /// `overheads`.
    Overhead,
    /// `synchronizations`.
    Synchronization,
    /// `nccl_proxy`.
    ProxyStep,
    /// `nccl_channels`.
    Channel,
    /// `graph_launches`.
    GraphLaunch,
    /// `kernels`.
    Kernel,
    /// `copies`.
    Copy,
    /// `memsets`.
    Memset,
}

impl Source {
    const ALL: [Self; 15] = [
        Self::Window,
        Self::Marker,
        Self::PythonFrame,
        Self::Operator,
        Self::Collective,
        Self::ApiCall,
        Self::Compilation,
        Self::Overhead,
        Self::Synchronization,
        Self::ProxyStep,
        Self::Channel,
        Self::GraphLaunch,
        Self::Kernel,
        Self::Copy,
        Self::Memset,
    ];

    /// Whether a call launched it.
    #[must_use]
    pub fn is_launched(self) -> bool {
        matches!(self, Self::GraphLaunch | Self::Kernel | Self::Copy | Self::Memset)
    }
}

/// An event with a length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    /// Start.
    pub start_ns: i64,
    /// End, never before the start: a negative duration is none, and counted.
    pub end_ns: i64,
    /// Its row in the table of its source.
    pub index: u32,
    /// Source in the upper bits, lane in the lower ones.
    source_and_lane: u32,
}

/// Bits for the lane.
const LANE_BITS: u32 = 27;

impl Slice {
    /// Which table it is a row of.
    #[must_use]
    pub fn source(&self) -> Source {
        Source::ALL[(self.source_and_lane >> LANE_BITS) as usize]
    }

    /// The lane of its row, from 0.
    #[must_use]
    pub fn lane(&self) -> usize {
        (self.source_and_lane & ((1 << LANE_BITS) - 1)) as usize
    }
}

/// A row of a process.
#[derive(Clone, Debug)]
pub struct Row {
    /// What it stands for.
    pub key: RowKey,
    /// "thread 4711 (loader)", "stream 7", ...
    pub name: String,
    /// By start, the longer first.
    pub slices: Vec<Slice>,
    /// Lanes that they need: at least 1.
    pub lanes: usize,
}

/// The call that launched an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Row of `api_calls`.
    pub call: u32,
    /// Start of the call.
    pub start_ns: i64,
    /// Where it is shown, in [`Layout::rows`].
    pub row: usize,
    /// The lane there.
    pub lane: usize,
}

/// How an operation is joined to its call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// The operation is none that a call launches.
    None,
    /// From this call.
    From(Launch),
    /// The call was not recorded.
    Unknown,
    /// The operation begins before its call: the clocks disagree, and an arrow back in time is refused by readers.
    Later(Launch),
}

/// One process's events by row and lane.
pub struct Layout<'r> {
    /// All of the recording.
    pub recording: &'r Recording,
    /// The process.
    pub process: &'r Process,
    /// What the analysis knows of it.
    pub derived: Option<&'r DerivedProcess>,
    /// Its place among the recording's processes, the hosts' samples behind them.
    pub number: usize,
    /// Whether it is no rank, but what a recorder sampled of a host.
    pub is_host: bool,
    /// What its communicators are called.
    pub communicators: CommunicatorNames<'r>,
    /// By their keys.
    pub rows: Vec<Row>,
    /// Slices whose duration is negative.
    pub durations_clamped: u64,
    calls: Calls,
    /// By row of `api_calls`: row and lane.
    call_places: Vec<(u32, u32)>,
    /// By kernel, the rows of `collectives` that it carries out: of what the analysis has not joined.
    joined: FxHashMap<u32, Vec<u32>>,
}

/// All processes of a recording one after another, the hosts' samples last: their index of events is made when its turn comes.
pub fn layouts<'r>(
    recording: &'r Recording,
    derived: &'r Derived,
) -> impl ExactSizeIterator<Item = Layout<'r>> + use<'r> {
    (0..recording.processes.len() + recording.hosts.len())
        .map(|number| Layout::new(recording, derived, number))
}

/// Rows while they are found.
#[derive(Default)]
struct Rows {
    numbers: FxHashMap<RowKey, usize>,
    rows: Vec<(RowKey, Vec<Slice>)>,
    last: Option<(RowKey, usize)>,
    durations_clamped: u64,
}

impl Rows {
    fn push(&mut self, key: RowKey, source: Source, index: usize, start: TimeNs, duration: DurationNs) {
        let place = match self.last {
            Some((last, place)) if last == key => place,
            _ => {
                let rows = &mut self.rows;
                let place = *self.numbers.entry(key).or_insert_with(|| {
                    rows.push((key, Vec::new()));
                    rows.len() - 1
                });
                self.last = Some((key, place));
                place
            }
        };
        self.durations_clamped += u64::from(duration.0 < 0);
        self.rows[place].1.push(Slice {
            start_ns: start.0,
            end_ns: start.0.saturating_add(duration.0.max(0)),
            index: u32::try_from(index).unwrap_or(u32::MAX),
            source_and_lane: (source as u32) << LANE_BITS,
        });
    }
}

impl<'r> Layout<'r> {
    /// The process in place `number`; the hosts' samples come behind the processes.
    ///
    /// # Panics
    /// When there are not so many.
    #[must_use]
    pub fn new(recording: &'r Recording, derived: &'r Derived, number: usize) -> Self {
        let ranks = recording.processes.len();
        let is_host = number >= ranks;
        let process = match is_host {
            false => &recording.processes[number],
            true => &recording.hosts[number - ranks],
        };
        let derived = derived.processes.get(number).filter(|_| !is_host);
        let mut rows = gather(process);
        let durations_clamped = rows.durations_clamped;
        rows.rows.sort_by_key(|(key, _)| *key);
        let calls = &process.tables.api_calls;
        let mut call_places = vec![(0, 0); calls.start_ns.len()];
        let communicators = CommunicatorNames::new(recording, process);
        let names = RowNames::new(recording, process, &communicators);
        let rows = (0u32..)
            .zip(rows.rows)
            .map(|(row, (key, mut slices))| {
                // Records come nearly in order, which a stable sort makes use of.
                slices.sort_by_key(|slice| {
                    (
                        slice.start_ns,
                        Reverse(slice.end_ns),
                        slice.source_and_lane,
                        slice.index,
                    )
                });
                let mut lanes = Lanes::new(key.nests());
                for slice in &mut slices {
                    let lane = lanes.place(slice.start_ns, slice.end_ns);
                    let lane = u32::try_from(lane).unwrap_or(u32::MAX) & ((1 << LANE_BITS) - 1);
                    if slice.source() == Source::ApiCall {
                        call_places[slice.index as usize] = (row, lane);
                    }
                    slice.source_and_lane |= lane;
                }
                Row {
                    key,
                    name: names.of(key),
                    slices,
                    lanes: lanes.count().max(1),
                }
            })
            .collect();
        Self {
            recording,
            process,
            derived,
            number,
            is_host,
            communicators,
            rows,
            durations_clamped,
            calls: Calls::new(calls),
            call_places,
            joined: match derived {
                Some(derived) if !derived.parts.is_empty() => FxHashMap::default(),
                _ => joined_by_tables(process),
            },
        }
    }

    /// The outermost call with this correlation id: a runtime call and the driver call within it may share the number.
    #[must_use]
    pub fn launch(&self, correlation: u32) -> Option<Launch> {
        let (start_ns, call) = self.calls.outermost(correlation)?;
        let (row, lane) = self.call_places[call as usize];
        Some(Launch {
            call,
            start_ns,
            row: row as usize,
            lane: lane as usize,
        })
    }

    /// The correlation id of what a call launches; 0 of all else.
    #[must_use]
    pub fn correlation(&self, slice: &Slice) -> u32 {
        let (tables, index) = (&self.process.tables, slice.index as usize);
        match slice.source() {
            Source::Kernel => tables.kernels.correlation[index],
            Source::Copy => tables.copies.correlation[index],
            Source::Memset => tables.memsets.correlation[index],
            Source::GraphLaunch => tables.graph_launches.correlation[index],
            _ => 0,
        }
    }

    /// Which call launched the slice.
    #[must_use]
    pub fn flow(&self, slice: &Slice) -> Flow {
        if !slice.source().is_launched() {
            return Flow::None;
        }
        match self.launch(self.correlation(slice)) {
            None => Flow::Unknown,
            Some(launch) if launch.start_ns > slice.start_ns => Flow::Later(launch),
            Some(launch) => Flow::From(launch),
        }
    }

    /// The rows of `collectives` that the kernel in this row carries out.
    #[must_use]
    pub fn collectives_of_kernel(&self, kernel: u32) -> Vec<u32> {
        if let Some(derived) = self.derived.filter(|derived| !derived.parts.is_empty()) {
            let parts = derived.parts_of_kernel(kernel);
            return parts.iter().filter_map(|part| part.row).collect();
        }
        self.joined.get(&kernel).cloned().unwrap_or_default()
    }

    /// How many events the process has: its slices, and what is of a moment (marks, memory, counters) or without a time.
    #[must_use]
    pub fn events(&self) -> u64 {
        let tables = &self.process.tables;
        let slices: usize = self.rows.iter().map(|row| row.slices.len()).sum();
        let marks = tables.markers.duration_ns.iter().filter(|d| d.is_none()).count();
        let moments = tables.memory.time_ns.len()
            + tables.memory_pools.time_ns.len()
            + tables.counters.time_ns.len()
            + tables.untimed_operations.start_ns.len();
        (slices + marks + moments) as u64
    }
}

/// Every slice of a process, by row, in the order of the tables.
fn gather(process: &Process) -> Rows {
    let tables = &process.tables;
    let mut rows = Rows::default();
    macro_rules! gather {
        ($source:ident, $table:expr, |$index:ident| $key:expr) => {
            for $index in 0..$table.start_ns.len() {
                let (start, duration) = ($table.start_ns[$index], $table.duration_ns[$index]);
                rows.push($key, Source::$source, $index, start, duration);
            }
        };
    }
    gather!(Window, tables.windows, |_index| RowKey::Windows);
    gather!(ApiCall, tables.api_calls, |i| RowKey::Thread(
        tables.api_calls.thread[i]
    ));
    gather!(Operator, tables.operators, |i| RowKey::Thread(
        tables.operators.thread[i]
    ));
    gather!(PythonFrame, tables.python_frames, |i| RowKey::Python(
        tables.python_frames.thread[i]
    ));
    gather!(Compilation, tables.compilations, |i| tables.compilations.thread
        [i]
        .map_or(RowKey::NoThread, RowKey::Thread));
    let collectives = &tables.collectives;
    for index in 0..collectives.start_ns.len() {
        // Those of imported traces are their kernels, which carry their members.
        if collectives.kernel[index].is_none() {
            let key = RowKey::Thread(collectives.thread[index]);
            let (start, duration) = (collectives.start_ns[index], collectives.duration_ns[index]);
            rows.push(key, Source::Collective, index, start, duration);
        }
    }
    let markers = &tables.markers;
    for index in 0..markers.start_ns.len() {
        let Some(duration) = markers.duration_ns[index] else {
            continue;
        };
        let key = match markers.kind[index] {
            1 => RowKey::Ranges(markers.thread[index]),
            _ => RowKey::Thread(markers.thread[index]),
        };
        rows.push(key, Source::Marker, index, markers.start_ns[index], duration);
    }
    gather!(Overhead, tables.overheads, |i| RowKey::Overhead(
        tables.overheads.thread[i]
    ));
    gather!(ProxyStep, tables.nccl_proxy, |i| RowKey::Proxy(
        tables.nccl_proxy.thread[i]
    ));
    gather!(Channel, tables.nccl_channels, |i| RowKey::Channel {
        communicator: tables.nccl_channels.communicator[i],
        channel: tables.nccl_channels.channel[i],
    });
    gather!(GraphLaunch, tables.graph_launches, |i| RowKey::Graphs {
        device: tables.graph_launches.device[i],
        context: tables.graph_launches.context[i],
        stream: tables.graph_launches.stream[i],
    });
    macro_rules! of_streams {
        ($source:ident, $table:expr) => {
            gather!($source, $table, |i| RowKey::Stream {
                device: $table.device[i],
                context: $table.context[i],
                stream: $table.stream[i],
            })
        };
    }
    of_streams!(Kernel, tables.kernels);
    of_streams!(Copy, tables.copies);
    of_streams!(Memset, tables.memsets);
    let contexts = &tables.contexts;
    let devices: FxHashMap<u32, u32> = contexts
        .context
        .iter()
        .copied()
        .zip(contexts.device.iter().copied())
        .collect();
    let waits = &tables.synchronizations;
    gather!(Synchronization, waits, |i| {
        let context = waits.context[i];
        match context.and_then(|context| Some((context, *devices.get(&context)?))) {
            Some((context, device)) => RowKey::StreamWaits {
                device,
                context,
                stream: waits.stream[i],
            },
            None => RowKey::NoThread,
        }
    });
    rows
}

/// Collectives by kernel, as the tables alone tell: imported ones name their kernels, ours the plan that launched them.
fn joined_by_tables(process: &Process) -> FxHashMap<u32, Vec<u32>> {
    let tables = &process.tables;
    let mut joined: FxHashMap<u32, Vec<u32>> = FxHashMap::default();
    let mut by_plan: FxHashMap<u64, Vec<u32>> = FxHashMap::default();
    let collectives = &tables.collectives;
    for (row, (kernel, plan)) in (0u32..).zip(collectives.kernel.iter().zip(&collectives.plan)) {
        match (kernel.and_then(|kernel| u32::try_from(kernel).ok()), plan) {
            (Some(kernel), _) => joined.entry(kernel).or_default().push(row),
            (None, Some(plan)) => by_plan.entry(*plan).or_default().push(row),
            (None, None) => {}
        }
    }
    if by_plan.is_empty() {
        return joined;
    }
    let external = &tables.external_correlations;
    let mut by_launch: FxHashMap<u32, &Vec<u32>> = FxHashMap::default();
    for (id, correlation) in external.id.iter().zip(&external.correlation) {
        if let Some(rows) = by_plan.get(id) {
            by_launch.insert(*correlation, rows);
        }
    }
    for (kernel, correlation) in (0u32..).zip(&tables.kernels.correlation) {
        if let Some(rows) = by_launch.get(correlation) {
            joined.entry(kernel).or_insert_with(|| (*rows).clone());
        }
    }
    joined
}

/// The earliest stamp of any event: what times of a selection count from.
#[must_use]
pub fn first_moment_ns(recording: &Recording) -> Option<i64> {
    let earliest = |times: &[TimeNs]| times.iter().map(|time| time.0).filter(|&time| time > 0).min();
    let processes = recording.processes.iter().chain(&recording.hosts);
    let of_tables = processes.map(|process| &process.tables).flat_map(|tables| {
        [
            earliest(&tables.kernels.start_ns),
            earliest(&tables.copies.start_ns),
            earliest(&tables.memsets.start_ns),
            earliest(&tables.graph_launches.start_ns),
            earliest(&tables.collectives.start_ns),
            earliest(&tables.nccl_channels.start_ns),
            earliest(&tables.nccl_proxy.start_ns),
            earliest(&tables.api_calls.start_ns),
            earliest(&tables.compilations.start_ns),
            earliest(&tables.operators.start_ns),
            earliest(&tables.python_frames.start_ns),
            earliest(&tables.synchronizations.start_ns),
            earliest(&tables.overheads.start_ns),
            earliest(&tables.markers.start_ns),
            earliest(&tables.windows.start_ns),
            earliest(&tables.memory.time_ns),
            earliest(&tables.memory_pools.time_ns),
            earliest(&tables.counters.time_ns),
            tables
                .untimed_operations
                .start_ns
                .iter()
                .flatten()
                .map(|time| time.0)
                .min(),
        ]
    });
    of_tables.flatten().min()
}
