//! One process of a recording that grows: what of it has come, and on which rows that is.

use std::cmp::Reverse;
use std::collections::VecDeque;

use gputrace_analyzer::is_possible;
use gputrace_trace::tables::{
    ApiCalls, Collectives, Copies, ExternalCorrelations, GraphLaunches, Kernels, Markers, Memsets,
    NcclChannels, NcclProxySteps, Operators, Overheads, Synchronizations, Tables,
};
use gputrace_trace::{Interner, Process, Table as _};
use rustc_hash::FxHashMap;

use super::kinds::Kinds;
use super::place::{Growing, Key};
use crate::timeline::gather::{self, Group, Host, Place};
use crate::timeline::lanes::Item;
use crate::timeline::names::{self, Class};
use crate::timeline::pieces::{Collecting, Pieces};
use crate::timeline::source::{MOST_ROWS, Table, source, table_and_row};
use crate::timeline::store::{STORED, Stored};

/// What began so long before the newest event has its row for good: tables are written up to a second apart.
const SETTLED_NS: i64 = if cfg!(test) { 5_000 } else { 2_000_000_000 };
/// Calls whose threads are known for those who come later and hang at them; twice as many at the most.
const CALLS: usize = 1 << 19;
/// So many wait for their calls; of older ones the calls won't come.
const WAITING: usize = 1 << 14;

/// The threads of the latest calls by correlation id.
#[derive(Default)]
struct Calls {
    latest: FxHashMap<u32, u32>,
    before: FxHashMap<u32, u32>,
}

impl Calls {
    fn add(&mut self, id: u32, thread: u32) {
        if id == 0 {
            return;
        }
        if self.latest.len() >= CALLS {
            self.before = std::mem::take(&mut self.latest);
        }
        // Of several the first, as when all are looked at.
        if !self.before.contains_key(&id) {
            self.latest.entry(id).or_insert(thread);
        }
    }

    fn thread(&self, id: u32) -> Option<u32> {
        self.latest.get(&id).or_else(|| self.before.get(&id)).copied()
    }
}

/// What has come of a process.
#[derive(Default)]
pub(super) struct OfProcess {
    held: Collecting,
    places: FxHashMap<Place, Growing>,
    calls: Calls,
    /// What hangs at calls that have not come.
    waiting: VecDeque<(u32, Item)>,
    kinds: Kinds,
    /// Counters and memory.
    pub(super) counted: Tables,
    /// End of the last slice.
    newest: Option<i64>,
    /// Start of the first of the slices on streams that came with the last rows.
    earliest_new: Option<i64>,
}

/// The number that a row of a table has in the process.
struct Numbering {
    stored: [usize; STORED],
    collectives: usize,
    compilations: usize,
}

impl Numbering {
    fn shifted(&self, mut item: Item) -> Item {
        let (table, row) = table_and_row(item.source);
        let before = match table {
            Table::Operator => self.stored[Operators::PLACE],
            Table::Marker => self.stored[Markers::PLACE],
            Table::Enqueue => self.collectives,
            Table::Call => self.stored[ApiCalls::PLACE],
            Table::Synchronization => self.stored[Synchronizations::PLACE],
            Table::Overhead => self.stored[Overheads::PLACE],
            Table::Compilation => self.compilations,
            Table::ProxyStep => self.stored[NcclProxySteps::PLACE],
            Table::Channel => self.stored[NcclChannels::PLACE],
            Table::Kernel => self.stored[Kernels::PLACE],
            Table::Copy => self.stored[Copies::PLACE],
            Table::Memset => self.stored[Memsets::PLACE],
            Table::GraphLaunch => self.stored[GraphLaunches::PLACE],
            Table::Untimed | Table::Collective | Table::Projected => 0,
        };
        item.source = source(table, u32::try_from(before + row).unwrap_or(u32::MAX));
        item
    }
}

impl OfProcess {
    /// Takes in rows; `outline` has the process's other tables. `false` where there are more than have numbers.
    #[must_use]
    pub(super) fn take(
        &mut self,
        mut tables: Tables,
        outline: &Process,
        names: &Interner,
        colors: &mut FxHashMap<u32, u32>,
    ) -> bool {
        let numbering = Numbering {
            stored: self.held.next_rows(),
            collectives: self.held.collectives(),
            compilations: self.held.compilations(),
        };
        let most = tables
            .row_counts()
            .iter()
            .map(|(_, rows)| *rows)
            .max()
            .unwrap_or(0);
        let before = numbering.stored.iter().chain([&numbering.collectives]).max();
        if before.copied().unwrap_or(0) + most > MOST_ROWS {
            return false;
        }
        let earlier = self.learn(&tables.collectives, &tables.external_correlations, outline);
        let mut by_place: FxHashMap<Place, Vec<Item>> = FxHashMap::default();
        let mut newest = self.newest;
        let mut earliest = earlier;
        let mut add = |place: Place, item: Item| {
            let end = item.start.saturating_add(item.duration);
            if item.duration >= 0 && is_possible(item.start, end) {
                newest = newest.max(Some(end));
                if matches!(place, Place::Stream(..)) {
                    earliest = Some(earliest.map_or(item.start, |earliest: i64| earliest.min(item.start)));
                }
                by_place.entry(place).or_default().push(numbering.shifted(item));
            }
        };
        // The gathering functions take processes.
        let piece = Process {
            folder: String::new(),
            header: outline.header.clone(),
            tables: std::mem::take(&mut tables),
        };
        let of = &piece.tables;
        let first = numbering.stored[Kernels::PLACE];
        for place in 0..of.kernels.len() {
            let kernels = &of.kernels;
            let communicates = self.kinds.communicates(
                first + place,
                kernels.name[place],
                kernels.correlation[place],
                kernels.graph_node[place],
                names,
            );
            // Shifted like all others.
            let item = gather::of_kernel(kernels, place, place as u32, communicates);
            add(Place::Stream(kernels.device[place], kernels.stream[place]), item);
        }
        let mut few = gather::Few::new();
        gather::copies_and_sets(&piece, &mut few);
        few.into_iter().for_each(|(place, item)| add(place, item));
        for (place, row) in (0..of.operators.len()).zip(0u32..) {
            let thread = Place::Thread(of.operators.thread[place]);
            add(thread, gather::of_operator(&of.operators, place, row));
        }
        for (place, row) in (0..of.api_calls.len()).zip(0u32..) {
            let calls = &of.api_calls;
            self.calls.add(calls.correlation[place], calls.thread[place]);
            add(
                Place::Thread(calls.thread[place]),
                gather::of_call(calls, place, row),
            );
        }
        for (place, row) in (0..of.markers.len()).zip(0u32..) {
            let markers = &of.markers;
            if let Some(color) = markers.color[place] {
                colors.entry(markers.name[place].number()).or_insert(color);
            }
            add(
                Place::Ranges(markers.thread[place]),
                gather::of_marker(markers, place, row),
            );
        }
        gather::of_nccl(&piece, &mut add);
        let mut hanging = Vec::new();
        gather::waits_and_others(&piece, |host, item| match host {
            Host::At(place) => add(place, item),
            Host::OfCall(id) => hanging.push((id, item)),
        });
        for (id, item) in hanging {
            let end = item.start.saturating_add(item.duration);
            if item.duration >= 0 && is_possible(item.start, end) {
                newest = newest.max(Some(end));
                self.waiting.push_back((id, numbering.shifted(item)));
            }
        }
        let calls = &self.calls;
        self.waiting.retain(|(id, item)| match calls.thread(*id) {
            Some(thread) => {
                by_place.entry(Place::Thread(thread)).or_default().push(*item);
                false
            }
            None => true,
        });
        while self.waiting.len() > WAITING
            && let Some((_, item)) = self.waiting.pop_front()
        {
            by_place.entry(Place::NoThread).or_default().push(item);
        }
        self.newest = newest;
        self.earliest_new = self.earliest_new.into_iter().chain(earliest).min();
        for (place, items) in by_place {
            self.places.entry(place).or_default().add(items);
        }
        tables = piece.tables;
        self.counted.counters.append(tables.counters.clone(), false);
        self.counted.memory.append(tables.memory.clone(), false);
        self.held.append(tables);
        true
    }

    /// Takes in what tells which kernels communicate. Kernels that came before are drawn as what they are now known to be: the
    /// start of the first of them.
    fn learn(
        &mut self,
        collectives: &Collectives,
        external: &ExternalCorrelations,
        outline: &Process,
    ) -> Option<i64> {
        let news = self
            .kinds
            .learn(collectives, external, &outline.tables.graph_nodes);
        if news.is_empty() {
            return None;
        }
        let by_row = !news.rows.is_empty() || !news.nodes.is_empty();
        let found = self.held.kernels(&news.launches, by_row, |row, launch, node| {
            news.launches.contains(&launch)
                || news.rows.contains(&u64::from(row))
                || node.is_some_and(|node| news.nodes.contains(&node))
        });
        let mut earliest: Option<i64> = None;
        let mut by_place: FxHashMap<Place, Vec<(Key, u32)>> = FxHashMap::default();
        for (row, kernel) in found {
            let (start, duration) = (kernel.start_ns.0, kernel.duration_ns.0);
            let key = (start, Reverse(duration), source(Table::Kernel, row));
            let name = names::named(Class::Communication, kernel.name);
            let place = Place::Stream(kernel.device, kernel.stream);
            by_place.entry(place).or_default().push((key, name));
            earliest = Some(earliest.map_or(start, |earliest| earliest.min(start)));
        }
        for (place, renamed) in by_place {
            if let Some(growing) = self.places.get_mut(&place) {
                growing.rename(&renamed);
            }
        }
        earliest
    }

    /// The same of what is read anew at each look.
    pub(super) fn learn_of_graphs(&mut self, outline: &Process) {
        let earliest = self.learn(&Collectives::default(), &ExternalCorrelations::default(), outline);
        self.earliest_new = self.earliest_new.into_iter().chain(earliest).min();
    }

    /// Until when rows are as they will stay, unless something comes very late.
    pub(super) fn settled(&self) -> i64 {
        self.newest
            .map_or(i64::MIN, |newest| newest.saturating_sub(SETTLED_NS))
    }

    /// Start of the first slice on a stream that came since this was asked the last time.
    pub(super) fn take_earliest_new(&mut self) -> i64 {
        self.earliest_new.take().unwrap_or(i64::MAX)
    }

    /// Everything that has come, by place, as process number `process`.
    pub(super) fn groups(&mut self, process: u32) -> Vec<Group> {
        let settled = self
            .newest
            .map_or(i64::MIN, |newest| newest.saturating_sub(SETTLED_NS));
        let waiting: Vec<Item> = self.waiting.iter().map(|(_, item)| *item).collect();
        if !waiting.is_empty() {
            self.places.entry(Place::NoThread).or_default();
        }
        let mut groups = Vec::new();
        for (place, growing) in &mut self.places {
            let more: &[Item] = if *place == Place::NoThread { &waiting } else { &[] };
            let (lanes, left_out) = growing.rows(settled, more);
            if !lanes.is_empty() {
                groups.push(Group {
                    process,
                    place: *place,
                    lanes,
                    left_out,
                });
            }
        }
        groups.sort_by_key(|group| group.place);
        groups
    }

    /// The rows that are held in pieces.
    pub(super) fn pieces(&self) -> Pieces {
        self.held.so_far()
    }
}
