//! From the tables of a process to what happened on each of its streams and threads.

use std::cell::RefCell;
use std::sync::Arc;

use gputrace_analyzer::{KernelKinds, is_possible, last_moment};
use gputrace_trace::tables::{ApiCalls, Kernels, Markers, Operators};
use gputrace_trace::{Interner, NameId, Process, parallel};
use rustc_hash::FxHashMap;

use super::correlations::Correlations;
use super::lanes::{Item, lay_out};
use super::names::{self, Class, Other};
use super::slices::Slices;
use super::source::{MOST_ROWS, Table, source, table_and_row};
use super::store::Words;

/// What slices are grouped by within a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Place {
    /// Ranges on a device, by the thread that they are of.
    Projected(u32, u32),
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
    pub(crate) lanes: Vec<Arc<Slices>>,
    /// Those that there was no room for.
    pub(crate) left_out: u64,
}

/// The numbers of places, in the order in which they were met.
#[derive(Default)]
pub(crate) struct Places {
    numbers: FxHashMap<Place, usize>,
    /// The latest by their keys, where the lowest bits of those say. A key of 0 is nobody's.
    recent: [(u128, usize); RECENT],
    pub(crate) all: Vec<Place>,
}

const RECENT: usize = 16;

impl Place {
    /// All that tells it from others, in whole words: millions of them are compared.
    #[inline]
    fn key(self) -> u128 {
        let (kind, high, low): (u128, u32, u32) = match self {
            Self::Projected(thread, second) => (1, thread, second),
            Self::Stream(device, stream) => (2, device, stream),
            Self::Ranges(thread) => (3, 0, thread),
            Self::Thread(thread) => (4, 0, thread),
            Self::NoThread => (5, 0, 0),
            Self::Proxy(thread) => (6, 0, thread),
            Self::Channel(channel) => (7, 0, channel.into()),
        };
        kind << 64 | u128::from(high) << 32 | u128::from(low)
    }
}

impl Places {
    #[inline]
    pub(crate) fn number(&mut self, place: Place) -> usize {
        let key = place.key();
        let recent = &self.recent[key as usize % RECENT];
        if recent.0 == key {
            return recent.1;
        }
        self.any_number(place)
    }

    #[cold]
    fn any_number(&mut self, place: Place) -> usize {
        let all = &mut self.all;
        let number = *self.numbers.entry(place).or_insert_with(|| {
            all.push(place);
            all.len() - 1
        });
        let key = place.key();
        self.recent[key as usize % RECENT] = (key, number);
        number
    }
}

/// Items that are put at their places one after another: how many there are is counted first.
struct Gathered<'a> {
    places: Places,
    counts: Vec<usize>,
    /// Where the items of each place begin, and where the next one comes; empty while they are counted.
    ranges: Vec<std::ops::Range<usize>>,
    items: &'a mut Vec<Item>,
}

impl<'a> Gathered<'a> {
    /// Into memory that is used again.
    fn new(items: &'a mut Vec<Item>) -> Self {
        Self {
            places: Places::default(),
            counts: Vec::new(),
            ranges: Vec::new(),
            items,
        }
    }

    #[inline]
    fn count(&mut self, place: Place) {
        let number = self.places.number(place);
        if number >= self.counts.len() {
            self.counts.resize(number + 1, 0);
        }
        self.counts[number] += 1;
    }

    /// Counts a few items too, and adds first what `add_many` adds and then these.
    fn take_in(&mut self, few: Few, add_many: impl FnOnce(&mut Self)) {
        for (place, _) in &few {
            self.count(*place);
        }
        self.make_room();
        add_many(self);
        for (place, item) in few {
            self.add(place, item);
        }
    }

    /// Everything is counted.
    fn make_room(&mut self) {
        let mut from = 0;
        for count in &self.counts {
            self.ranges.push(from..from);
            from += count;
        }
        if self.items.len() < from {
            self.items.resize(from, Item::default());
        }
    }

    /// Adds a slice, which has been counted, unless its times are none.
    #[inline]
    fn add(&mut self, place: Place, item: Item) {
        if item.duration >= 0 && is_possible(item.start, item.start.saturating_add(item.duration)) {
            let number = self.places.number(place);
            let range = &mut self.ranges[number];
            self.items[range.end] = item;
            range.end += 1;
        }
    }

    /// The rows of all places.
    fn groups(self, process: u32) -> Vec<Group> {
        let is_unfinished = |source| table_and_row(source).0 == Table::Untimed;
        let mut groups = Vec::new();
        for (place, range) in self.places.all.into_iter().zip(self.ranges) {
            if !range.is_empty() {
                let (lanes, left_out) = lay_out(&mut self.items[range], is_unfinished);
                groups.push(Group {
                    process,
                    place,
                    lanes: lanes.into_iter().map(Arc::new).collect(),
                    left_out,
                });
            }
        }
        groups
    }
}

/// Slices of tables that have few, each with its place.
pub(crate) type Few = Vec<(Place, Item)>;

/// Rows of a table that can be numbered.
fn rows(count: usize) -> impl Iterator<Item = (usize, u32)> {
    (0..count.min(MOST_ROWS)).zip(0u32..)
}

/// A kernel: the one at a place of these, in a row of the table.
#[inline]
pub(crate) fn of_kernel(kernels: &Kernels, place: usize, row: u32, communicates: bool) -> Item {
    let class = if communicates {
        Class::Communication
    } else {
        Class::Compute
    };
    Item {
        start: kernels.start_ns[place].0,
        duration: kernels.duration_ns[place].0,
        name: names::named(class, kernels.name[place]),
        source: source(Table::Kernel, row),
    }
}

/// A call, as [`of_kernel`].
#[inline]
pub(crate) fn of_call(calls: &ApiCalls, place: usize, row: u32) -> Item {
    const RUNTIME: u8 = 5;
    let class = if calls.kind[place] == RUNTIME {
        Class::RuntimeCall
    } else {
        Class::DriverCall
    };
    Item {
        start: calls.start_ns[place].0,
        duration: calls.duration_ns[place].0,
        name: names::named(class, calls.name[place]),
        source: source(Table::Call, row),
    }
}

/// An operator, as [`of_kernel`].
#[inline]
pub(crate) fn of_operator(operators: &Operators, place: usize, row: u32) -> Item {
    Item {
        start: operators.start_ns[place].0,
        duration: operators.duration_ns[place].0,
        name: names::named(Class::Operator, operators.name[place]),
        source: source(Table::Operator, row),
    }
}

/// A range or mark, as [`of_kernel`].
#[inline]
pub(crate) fn of_marker(markers: &Markers, place: usize, row: u32) -> Item {
    Item {
        start: markers.start_ns[place].0,
        duration: markers.duration_ns[place].map_or(0, |duration| duration.0),
        name: names::named(Class::Range, markers.name[place]),
        source: source(Table::Marker, row),
    }
}

/// What is on the device's streams.
fn on_streams<'a>(process: &Process, recorded: &Interner, items: &'a mut Vec<Item>) -> Gathered<'a> {
    let tables = &process.tables;
    let kernels = &tables.kernels;
    let mut few = Few::new();
    copies_and_sets(process, &mut few);
    unfinished(process, recorded, &mut few, true);
    let mut gathered = Gathered::new(items);
    let on_stream = |row: usize| Place::Stream(kernels.device[row], kernels.stream[row]);
    for (index, _) in rows(kernels.start_ns.len()) {
        gathered.count(on_stream(index));
    }
    gathered.take_in(few, |gathered| {
        let mut kinds = KernelKinds::new(process, recorded);
        for (index, row) in rows(kernels.start_ns.len()) {
            let name = kernels.name[index];
            let communicates = kinds.communicates(row, name, kernels.correlation[index]);
            gathered.add(on_stream(index), of_kernel(kernels, index, row, communicates));
        }
    });
    gathered
}

pub(crate) fn copies_and_sets(process: &Process, few: &mut Few) {
    let tables = &process.tables;
    let (copies, memsets, graphs) = (&tables.copies, &tables.memsets, &tables.graph_launches);
    for (index, row) in rows(copies.start_ns.len()) {
        let item = Item {
            start: copies.start_ns[index].0,
            duration: copies.duration_ns[index].0,
            name: names::copy(
                copies.copy_kind[index],
                copies.source_kind[index],
                copies.destination_kind[index],
            ),
            source: source(Table::Copy, row),
        };
        few.push((Place::Stream(copies.device[index], copies.stream[index]), item));
    }
    for (index, row) in rows(memsets.start_ns.len()) {
        let item = Item {
            start: memsets.start_ns[index].0,
            duration: memsets.duration_ns[index].0,
            name: names::number(Class::Memset, memsets.memory_kind[index].into()),
            source: source(Table::Memset, row),
        };
        few.push((Place::Stream(memsets.device[index], memsets.stream[index]), item));
    }
    for (index, row) in rows(graphs.start_ns.len()) {
        let item = Item {
            start: graphs.start_ns[index].0,
            duration: graphs.duration_ns[index].0,
            name: names::number(Class::GraphLaunch, graphs.graph[index]),
            source: source(Table::GraphLaunch, row),
        };
        few.push((Place::Stream(graphs.device[index], graphs.stream[index]), item));
    }
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
fn unfinished(process: &Process, recorded: &Interner, few: &mut Few, on_device: bool) {
    let begun = &process.tables.untimed_operations;
    if begun.start_ns.iter().all(Option::is_none) {
        return;
    }
    let last = last_moment(process);
    let mut kinds = KernelKinds::new(process, recorded);
    let calls = &process.tables.api_calls;
    let correlation = Words::Plain(&calls.correlation);
    let by_correlation = Correlations::new(correlation);
    for (index, row) in rows(begun.start_ns.len()) {
        let Some(start) = begun.start_ns[index] else {
            continue;
        };
        let name = begun.name[index];
        // No row of the kernels describes it.
        let communicates =
            name.is_some_and(|name| kinds.communicates(u32::MAX, name, begun.correlation[index]));
        let (class, is_on_device) = class_of(begun.kind[index], communicates);
        if is_on_device != on_device {
            continue;
        }
        let number = match (class, name) {
            (Class::Compute | Class::Communication | Class::DriverCall | Class::RuntimeCall, Some(name)) => {
                names::named(class, name)
            }
            (Class::Copy | Class::Memset | Class::Synchronization, _) => names::number(class, 0),
            (Class::GraphLaunch, _) => names::number(class, begun.graph[index].unwrap_or(0)),
            _ => names::number(Class::Other, Other::Unfinished as u32),
        };
        let place = if is_on_device {
            Place::Stream(begun.device[index].unwrap_or(0), begun.stream[index].unwrap_or(0))
        } else {
            let of_call = || {
                let row = by_correlation.find(correlation, begun.correlation[index], &mut 0)?;
                Some(calls.thread[row])
            };
            begun.thread[index]
                .or_else(of_call)
                .map_or(Place::NoThread, Place::Thread)
        };
        let item = Item {
            start: start.0,
            duration: last.saturating_sub(start.0).max(0),
            name: number,
            source: source(Table::Untimed, row),
        };
        few.push((place, item));
    }
}

/// Who told of a collective: its NVTX range, which is among the ranges too.
const BY_NVTX: u8 = 3;

/// What is on the host's threads.
fn on_threads<'a>(process: &Process, recorded: &Interner, items: &'a mut Vec<Item>) -> Gathered<'a> {
    let tables = &process.tables;
    let (operators, calls) = (&tables.operators, &tables.api_calls);
    let mut few = Few::new();
    let correlation = Words::Plain(&calls.correlation);
    let mut by_correlation: Option<Correlations> = None;
    let mut near = 0;
    waits_and_others(process, |host, item| {
        let place = match host {
            Host::At(place) => place,
            Host::OfCall(id) => {
                let by_correlation = by_correlation.get_or_insert_with(|| Correlations::new(correlation));
                let row = by_correlation.find(correlation, id, &mut near);
                row.map_or(Place::NoThread, |row| Place::Thread(calls.thread[row]))
            }
        };
        few.push((place, item));
    });
    unfinished(process, recorded, &mut few, false);
    let mut gathered = Gathered::new(items);
    for (_, thread) in rows(operators.start_ns.len()).zip(&operators.thread) {
        gathered.count(Place::Thread(*thread));
    }
    for (_, thread) in rows(calls.start_ns.len()).zip(&calls.thread) {
        gathered.count(Place::Thread(*thread));
    }
    gathered.take_in(few, |gathered| {
        for (index, row) in rows(operators.start_ns.len()) {
            gathered.add(
                Place::Thread(operators.thread[index]),
                of_operator(operators, index, row),
            );
        }
        for (index, row) in rows(calls.start_ns.len()) {
            gathered.add(Place::Thread(calls.thread[index]), of_call(calls, index, row));
        }
    });
    gathered
}

/// Where something of the host is: on a thread that is known, or on that of the call with a correlation id.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Host {
    At(Place),
    OfCall(u32),
}

/// What else is on threads: NCCL's operations as they were enqueued, waiting, what CUPTI cost, and compilations.
pub(crate) fn waits_and_others(process: &Process, mut add: impl FnMut(Host, Item)) {
    let tables = &process.tables;
    let enqueued = &tables.collectives;
    for (index, row) in rows(enqueued.start_ns.len()) {
        // With a kernel's row the times are the kernel's.
        if enqueued.kernel[index].is_none() && enqueued.source[index] != BY_NVTX {
            let item = Item {
                start: enqueued.start_ns[index].0,
                duration: enqueued.duration_ns[index].0,
                name: names::named(Class::Enqueue, enqueued.function[index]),
                source: source(Table::Enqueue, row),
            };
            add(Host::At(Place::Thread(enqueued.thread[index])), item);
        }
    }
    let (waits, compilations) = (&tables.synchronizations, &tables.compilations);
    for (index, row) in rows(waits.start_ns.len()) {
        let item = Item {
            start: waits.start_ns[index].0,
            duration: waits.duration_ns[index].0,
            name: names::number(Class::Synchronization, waits.kind[index]),
            source: source(Table::Synchronization, row),
        };
        add(Host::OfCall(waits.correlation[index]), item);
    }
    let overheads = &tables.overheads;
    for (index, row) in rows(overheads.start_ns.len()) {
        let item = Item {
            start: overheads.start_ns[index].0,
            duration: overheads.duration_ns[index].0,
            name: names::number(Class::Overhead, overheads.kind[index]),
            source: source(Table::Overhead, row),
        };
        let place = overheads.thread[index].map_or(Place::NoThread, Place::Thread);
        add(Host::At(place), item);
    }
    for (index, row) in rows(compilations.start_ns.len()) {
        let item = Item {
            start: compilations.start_ns[index].0,
            duration: compilations.duration_ns[index].0,
            name: names::number(Class::Other, Other::Compilation as u32),
            source: source(Table::Compilation, row),
        };
        let host = match compilations.thread[index] {
            Some(thread) => Host::At(Place::Thread(thread)),
            None => Host::OfCall(compilations.correlation[index]),
        };
        add(host, item);
    }
}

/// What NCCL's proxy and the channels of its kernels did.
pub(crate) fn of_nccl(process: &Process, mut add: impl FnMut(Place, Item)) {
    let (proxy, channels) = (&process.tables.nccl_proxy, &process.tables.nccl_channels);
    for (index, row) in rows(proxy.start_ns.len()) {
        let name = if proxy.step[index].is_some() {
            Other::ProxyStep
        } else {
            Other::ProxyOperation
        };
        let item = Item {
            start: proxy.start_ns[index].0,
            duration: proxy.duration_ns[index].0,
            name: names::number(Class::Other, name as u32),
            source: source(Table::ProxyStep, row),
        };
        add(Place::Proxy(proxy.thread[index]), item);
    }
    for (index, row) in rows(channels.start_ns.len()) {
        let phase = channels.phase[index].filter(|phase| *phase != NameId::default());
        let item = Item {
            start: channels.start_ns[index].0,
            duration: channels.duration_ns[index].0,
            name: phase.map_or(names::number(Class::Other, Other::Channel as u32), |phase| {
                names::named(Class::Range, phase)
            }),
            source: source(Table::Channel, row),
        };
        add(Place::Channel(channels.channel[index]), item);
    }
}

/// NVTX ranges, and what NCCL tells of itself.
fn ranges<'a>(process: &Process, items: &'a mut Vec<Item>) -> Gathered<'a> {
    let tables = &process.tables;
    let (markers, proxy, channels) = (&tables.markers, &tables.nccl_proxy, &tables.nccl_channels);
    let mut gathered = Gathered::new(items);
    for (_, thread) in rows(markers.start_ns.len()).zip(&markers.thread) {
        gathered.count(Place::Ranges(*thread));
    }
    for (_, thread) in rows(proxy.start_ns.len()).zip(&proxy.thread) {
        gathered.count(Place::Proxy(*thread));
    }
    for (_, channel) in rows(channels.start_ns.len()).zip(&channels.channel) {
        gathered.count(Place::Channel(*channel));
    }
    gathered.make_room();
    for (index, row) in rows(markers.start_ns.len()) {
        gathered.add(
            Place::Ranges(markers.thread[index]),
            of_marker(markers, index, row),
        );
    }
    of_nccl(process, |place, item| gathered.add(place, item));
    gathered
}

/// Everything that happened in some processes, by process and place.
pub(crate) fn groups(processes: &[Process], recorded: &Interner) -> Vec<Group> {
    const SIDES: usize = 3;
    thread_local! {
        /// Items between the tables and the rows, in memory that each thread uses again.
        static ITEMS: RefCell<Vec<Item>> = const { RefCell::new(Vec::new()) };
    }
    // The longest first, so that none is begun when the others are done.
    let mut tasks: Vec<(usize, usize)> = (0..processes.len())
        .flat_map(|process| (0..SIDES).map(move |side| (process, side)))
        .collect();
    tasks.sort_by_key(|&(process, side)| {
        let tables = &processes[process].tables;
        std::cmp::Reverse(match side {
            0 => tables.kernels.start_ns.len(),
            1 => tables.api_calls.start_ns.len() + tables.operators.start_ns.len(),
            _ => tables.markers.start_ns.len(),
        })
    });
    let found = parallel::map(tasks.len(), |task| {
        let (place, side) = tasks[task];
        let process = &processes[place];
        ITEMS.with_borrow_mut(|items| {
            let gathered = match side {
                0 => on_streams(process, recorded, items),
                1 => on_threads(process, recorded, items),
                _ => ranges(process, items),
            };
            gathered.groups(u32::try_from(place).unwrap_or(u32::MAX))
        })
    });
    let mut groups: Vec<Group> = found.into_iter().flatten().collect();
    groups.sort_by_key(|group| (group.process, group.place));
    groups
}
