//! From the tables of a process to what happened on each of its streams and threads.

use std::hash::Hash;
use std::sync::Mutex;

use gputrace_analyzer::{KernelKinds, is_possible, last_moment};
use gputrace_trace::{Interner, NameId, Process, parallel};
use rustc_hash::FxHashMap;

use super::correlations::Correlations;
use super::lanes::{Item, lay_out};
use super::names::{self, Class, Other};
use super::slices::Slices;

/// Which table a slice is a row of. Of two that begin and end together, the later one here is the inner one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Table {
    Operator,
    Marker,
    Enqueue,
    Call,
    Synchronization,
    Overhead,
    Compilation,
    ProxyStep,
    Channel,
    Kernel,
    Copy,
    Memset,
    GraphLaunch,
    Untimed,
    /// A part of a collective: the analysis's number of the collective.
    Collective,
}

const TABLES: [Table; 15] = [
    Table::Operator,
    Table::Marker,
    Table::Enqueue,
    Table::Call,
    Table::Synchronization,
    Table::Overhead,
    Table::Compilation,
    Table::ProxyStep,
    Table::Channel,
    Table::Kernel,
    Table::Copy,
    Table::Memset,
    Table::GraphLaunch,
    Table::Untimed,
    Table::Collective,
];

/// Bits for the row.
const BITS: u32 = 28;
/// Rows that a table may have here.
pub(crate) const MOST_ROWS: usize = 1 << BITS;

/// A row of a table as a slice's source.
#[inline]
pub(crate) fn source(table: Table, row: u32) -> u32 {
    ((table as u32) << BITS) | (row & (MOST_ROWS as u32 - 1))
}

/// The table and row of a source.
#[inline]
pub(crate) fn table_and_row(source: u32) -> (Table, usize) {
    let table = TABLES.get((source >> BITS) as usize).copied();
    (table.unwrap_or(Table::Untimed), source as usize & (MOST_ROWS - 1))
}

/// What slices are grouped by within a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Place {
    /// Device and stream.
    Stream(u32, u32),
    /// NVTX ranges of a thread.
    Ranges(u32),
    /// Calls of a thread.
    Thread(u32),
    /// What happened on the host on no thread that is known.
    NoThread,
    /// NCCL's proxy on a thread.
    Proxy(u32),
    /// A channel of NCCL's kernels.
    Channel(u8),
}

/// The slices of one stream or thread.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) process: u32,
    pub(crate) place: Place,
    pub(crate) lanes: Vec<std::sync::Arc<Slices>>,
    /// Those that there was no room for.
    pub(crate) left_out: u64,
}

/// Items by place, in the order in which places were met.
struct Gathered {
    places: FxHashMap<Place, usize>,
    last: Option<(Place, usize)>,
    groups: Vec<(Place, Vec<Item>)>,
}

impl Gathered {
    fn new() -> Self {
        Self {
            places: FxHashMap::default(),
            last: None,
            groups: Vec::new(),
        }
    }

    #[inline]
    fn index(&mut self, place: Place) -> usize {
        match self.last {
            Some((last, index)) if last == place => index,
            _ => {
                let groups = &mut self.groups;
                let index = *self.places.entry(place).or_insert_with(|| {
                    groups.push((place, Vec::new()));
                    groups.len() - 1
                });
                self.last = Some((place, index));
                index
            }
        }
    }

    /// Makes room for as many items as there are at each place.
    fn reserve(&mut self, places: impl Iterator<Item = Place>) {
        let mut counts: Vec<usize> = Vec::new();
        for place in places {
            let index = self.index(place);
            if index >= counts.len() {
                counts.resize(index + 1, 0);
            }
            counts[index] += 1;
        }
        for ((_, items), count) in self.groups.iter_mut().zip(counts) {
            items.reserve_exact(count);
        }
    }

    /// Adds a slice unless its times are none.
    #[inline]
    fn add(&mut self, place: Place, start: i64, duration: i64, name: u32, source: u32) {
        if duration >= 0 && is_possible(start, start.saturating_add(duration)) {
            let index = self.index(place);
            self.groups[index].1.push(Item {
                start,
                duration,
                name,
                source,
            });
        }
    }
}

/// Rows of a table that can be numbered.
fn rows(count: usize) -> impl Iterator<Item = (usize, u32)> {
    (0..count.min(MOST_ROWS)).zip(0u32..)
}

/// What is on the device's streams.
fn on_streams(process: &Process, recorded: &Interner) -> Gathered {
    let tables = &process.tables;
    let (kernels, copies) = (&tables.kernels, &tables.copies);
    let (memsets, graphs) = (&tables.memsets, &tables.graph_launches);
    let mut gathered = Gathered::new();
    let columns = [
        (&kernels.device, &kernels.stream),
        (&copies.device, &copies.stream),
        (&memsets.device, &memsets.stream),
        (&graphs.device, &graphs.stream),
    ];
    gathered.reserve(columns.into_iter().flat_map(|(device, stream)| {
        let streams = device.iter().zip(stream);
        streams.map(|(device, stream)| Place::Stream(*device, *stream))
    }));
    let mut kinds = KernelKinds::new(process, recorded);
    for (index, row) in rows(kernels.start_ns.len()) {
        let name = kernels.name[index];
        let class = if kinds.communicates(row, name, kernels.correlation[index]) {
            Class::Communication
        } else {
            Class::Compute
        };
        gathered.add(
            Place::Stream(kernels.device[index], kernels.stream[index]),
            kernels.start_ns[index].0,
            kernels.duration_ns[index].0,
            names::named(class, name),
            source(Table::Kernel, row),
        );
    }
    for (index, row) in rows(copies.start_ns.len()) {
        gathered.add(
            Place::Stream(copies.device[index], copies.stream[index]),
            copies.start_ns[index].0,
            copies.duration_ns[index].0,
            names::copy(
                copies.copy_kind[index],
                copies.source_kind[index],
                copies.destination_kind[index],
            ),
            source(Table::Copy, row),
        );
    }
    for (index, row) in rows(memsets.start_ns.len()) {
        gathered.add(
            Place::Stream(memsets.device[index], memsets.stream[index]),
            memsets.start_ns[index].0,
            memsets.duration_ns[index].0,
            names::number(Class::Memset, memsets.memory_kind[index].into()),
            source(Table::Memset, row),
        );
    }
    for (index, row) in rows(graphs.start_ns.len()) {
        gathered.add(
            Place::Stream(graphs.device[index], graphs.stream[index]),
            graphs.start_ns[index].0,
            graphs.duration_ns[index].0,
            names::number(Class::GraphLaunch, graphs.graph[index]),
            source(Table::GraphLaunch, row),
        );
    }
    unfinished(process, recorded, &mut gathered, true);
    gathered
}

/// The class of what did not end, by `CUpti_ActivityKind`, and whether it is on a device.
fn class_of(kind: u32, communicates: bool) -> (Class, bool) {
    match kind {
        3 | 10 if communicates => (Class::Communication, true),
        3 | 10 => (Class::Compute, true),
        1 | 22 => (Class::Copy, true),
        2 => (Class::Memset, true),
        51 => (Class::GraphLaunch, true),
        4 => (Class::DriverCall, false),
        5 => (Class::RuntimeCall, false),
        38 => (Class::Synchronization, false),
        _ => (Class::Other, false),
    }
}

/// What had begun and not ended lasts until the last moment that is known of.
fn unfinished(process: &Process, recorded: &Interner, gathered: &mut Gathered, on_device: bool) {
    let begun = &process.tables.untimed_operations;
    if begun.start_ns.iter().all(Option::is_none) {
        return;
    }
    let last = last_moment(process);
    let mut kinds = KernelKinds::new(process, recorded);
    let calls = &process.tables.api_calls;
    let by_correlation = Correlations::new(&calls.correlation);
    for (index, row) in rows(begun.start_ns.len()) {
        let Some(start) = begun.start_ns[index] else {
            continue;
        };
        let name = begun.name[index];
        // No row of the kernels describes it.
        let communicates = name.is_some_and(|name| kinds.communicates(u32::MAX, name, begun.correlation[index]));
        let (class, is_on_device) = class_of(begun.kind[index], communicates);
        if is_on_device != on_device {
            continue;
        }
        let number = match (class, name) {
            (Class::Compute | Class::Communication | Class::DriverCall | Class::RuntimeCall, Some(name)) => {
                names::named(class, name)
            }
            (Class::Copy | Class::Memset, _) => names::number(class, 0),
            (Class::GraphLaunch, _) => names::number(class, begun.graph[index].unwrap_or(0)),
            (Class::Synchronization, _) => names::number(class, 0),
            _ => names::number(Class::Other, Other::Unfinished as u32),
        };
        let place = if is_on_device {
            Place::Stream(begun.device[index].unwrap_or(0), begun.stream[index].unwrap_or(0))
        } else {
            let of_call = || {
                let row = by_correlation.find(&calls.correlation, begun.correlation[index], &mut 0)?;
                Some(calls.thread[row])
            };
            begun.thread[index]
                .or_else(of_call)
                .map_or(Place::NoThread, Place::Thread)
        };
        let duration = last.saturating_sub(start.0).max(0);
        gathered.add(place, start.0, duration, number, source(Table::Untimed, row));
    }
}

/// Who told of a collective: its NVTX range, which is among the ranges too.
const BY_NVTX: u8 = 3;

/// What is on the host's threads.
fn on_threads(process: &Process, recorded: &Interner) -> Gathered {
    let tables = &process.tables;
    let (operators, calls) = (&tables.operators, &tables.api_calls);
    let mut gathered = Gathered::new();
    let threads = operators.thread.iter().chain(&calls.thread);
    gathered.reserve(threads.map(|thread| Place::Thread(*thread)));
    for (index, row) in rows(operators.start_ns.len()) {
        gathered.add(
            Place::Thread(operators.thread[index]),
            operators.start_ns[index].0,
            operators.duration_ns[index].0,
            names::named(Class::Operator, operators.name[index]),
            source(Table::Operator, row),
        );
    }
    for (index, row) in rows(calls.start_ns.len()) {
        const RUNTIME: u8 = 5;
        let class = if calls.kind[index] == RUNTIME {
            Class::RuntimeCall
        } else {
            Class::DriverCall
        };
        gathered.add(
            Place::Thread(calls.thread[index]),
            calls.start_ns[index].0,
            calls.duration_ns[index].0,
            names::named(class, calls.name[index]),
            source(Table::Call, row),
        );
    }
    let enqueued = &tables.collectives;
    for (index, row) in rows(enqueued.start_ns.len()) {
        // With a kernel's row the times are the kernel's.
        if enqueued.kernel[index].is_none() && enqueued.source[index] != BY_NVTX {
            gathered.add(
                Place::Thread(enqueued.thread[index]),
                enqueued.start_ns[index].0,
                enqueued.duration_ns[index].0,
                names::named(Class::Enqueue, enqueued.function[index]),
                source(Table::Enqueue, row),
            );
        }
    }
    let waits = &tables.synchronizations;
    let by_correlation = if waits.start_ns.is_empty() && tables.compilations.start_ns.is_empty() {
        Correlations::default()
    } else {
        Correlations::new(&calls.correlation)
    };
    let mut near = 0;
    let mut thread_of = |correlation: u32| {
        let row = by_correlation.find(&calls.correlation, correlation, &mut near);
        row.map_or(Place::NoThread, |row| Place::Thread(calls.thread[row]))
    };
    for (index, row) in rows(waits.start_ns.len()) {
        gathered.add(
            thread_of(waits.correlation[index]),
            waits.start_ns[index].0,
            waits.duration_ns[index].0,
            names::number(Class::Synchronization, waits.kind[index]),
            source(Table::Synchronization, row),
        );
    }
    let overheads = &tables.overheads;
    for (index, row) in rows(overheads.start_ns.len()) {
        gathered.add(
            overheads.thread[index].map_or(Place::NoThread, Place::Thread),
            overheads.start_ns[index].0,
            overheads.duration_ns[index].0,
            names::number(Class::Overhead, overheads.kind[index]),
            source(Table::Overhead, row),
        );
    }
    let compilations = &tables.compilations;
    for (index, row) in rows(compilations.start_ns.len()) {
        let thread = compilations.thread[index].map(Place::Thread);
        gathered.add(
            thread.unwrap_or_else(|| thread_of(compilations.correlation[index])),
            compilations.start_ns[index].0,
            compilations.duration_ns[index].0,
            names::number(Class::Other, Other::Compilation as u32),
            source(Table::Compilation, row),
        );
    }
    unfinished(process, recorded, &mut gathered, false);
    gathered
}

/// NVTX ranges, and what NCCL tells of itself.
fn ranges(process: &Process) -> Gathered {
    let tables = &process.tables;
    let markers = &tables.markers;
    let mut gathered = Gathered::new();
    for (index, row) in rows(markers.start_ns.len()) {
        gathered.add(
            Place::Ranges(markers.thread[index]),
            markers.start_ns[index].0,
            markers.duration_ns[index].map_or(0, |duration| duration.0),
            names::named(Class::Range, markers.name[index]),
            source(Table::Marker, row),
        );
    }
    let proxy = &tables.nccl_proxy;
    for (index, row) in rows(proxy.start_ns.len()) {
        let name = if proxy.step[index].is_some() {
            Other::ProxyStep
        } else {
            Other::ProxyOperation
        };
        gathered.add(
            Place::Proxy(proxy.thread[index]),
            proxy.start_ns[index].0,
            proxy.duration_ns[index].0,
            names::number(Class::Other, name as u32),
            source(Table::ProxyStep, row),
        );
    }
    let channels = &tables.nccl_channels;
    for (index, row) in rows(channels.start_ns.len()) {
        let phase = channels.phase[index].filter(|phase| *phase != NameId(0));
        gathered.add(
            Place::Channel(channels.channel[index]),
            channels.start_ns[index].0,
            channels.duration_ns[index].0,
            phase.map_or(names::number(Class::Other, Other::Channel as u32), |phase| {
                names::named(Class::Range, phase)
            }),
            source(Table::Channel, row),
        );
    }
    gathered
}

/// Everything that happened in some processes, by process and place.
pub(crate) fn groups(processes: &[Process], recorded: &Interner) -> Vec<Group> {
    const SIDES: usize = 3;
    let gathered = parallel::map(processes.len() * SIDES, |task| {
        let process = &processes[task / SIDES];
        match task % SIDES {
            0 => on_streams(process, recorded),
            1 => on_threads(process, recorded),
            _ => ranges(process),
        }
    });
    let mut all: Vec<(u32, Place, Mutex<Vec<Item>>)> = Vec::new();
    for (process, sides) in (0u32..).zip(gathered.chunks_exact_owned(SIDES)) {
        for (place, items) in sides.into_iter().flat_map(|side| side.groups) {
            if !items.is_empty() {
                all.push((process, place, Mutex::new(items)));
            }
        }
    }
    // The longest first, so that none is begun when the others are done.
    let mut order: Vec<usize> = (0..all.len()).collect();
    let count = |index: usize| all[index].2.lock().map_or(0, |items| items.len());
    order.sort_by_key(|index| std::cmp::Reverse(count(*index)));
    let mut groups = parallel::map(order.len(), |index| {
        let (process, place, items) = &all[order[index]];
        let mut items = items
            .lock()
            .map(|mut items| std::mem::take(&mut *items))
            .unwrap_or_default();
        let is_unfinished = |source| table_and_row(source).0 == Table::Untimed;
        let (lanes, left_out) = lay_out(&mut items, is_unfinished);
        Group {
            process: *process,
            place: *place,
            lanes: lanes.into_iter().map(std::sync::Arc::new).collect(),
            left_out,
        }
    });
    groups.sort_by_key(|group| (group.process, group.place));
    groups
}

/// A vector cut into vectors of one length.
trait ChunksOwned<T> {
    fn chunks_exact_owned(self, size: usize) -> impl Iterator<Item = Vec<T>>;
}

impl<T> ChunksOwned<T> for Vec<T> {
    fn chunks_exact_owned(self, size: usize) -> impl Iterator<Item = Vec<T>> {
        let mut rest = self.into_iter();
        std::iter::from_fn(move || {
            let chunk: Vec<T> = rest.by_ref().take(size).collect();
            (!chunk.is_empty()).then_some(chunk)
        })
    }
}
