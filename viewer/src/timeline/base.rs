//! What a timeline has before there is an analysis, and what it has in common with the one after it.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU16;
use std::sync::{Arc, OnceLock};

use gputrace_analyzer::intervals::IntervalSet;
use gputrace_trace::tables::{ApiCalls, Copies, GraphLaunches, Kernels, Memsets, Synchronizations};
use gputrace_trace::{Process, Recording};
use rustc_hash::FxHashMap;

use super::answers::{Band, NotRecorded};
use super::correlations::Correlations;
use super::early::{Early, Promise};
use super::gather::{self, Group, Place};
use super::rows::{self, Communicator, Counter, Identity, Rows};
use super::slices::Slices;
use super::source::{MOST_ROWS, Table, table_and_row};
use super::store::{Coming, Store, Stored};
use super::{counters, lanes};

/// The column that joins rows.
const ID: &str = "correlation";

/// Where the rows of a process's tables are by correlation id.
#[derive(Debug, Default)]
pub(crate) struct Joins {
    pub(crate) calls: Correlations,
    pub(crate) kernels: Correlations,
    pub(crate) copies: Correlations,
    pub(crate) memsets: Correlations,
    pub(crate) graph_launches: Correlations,
    pub(crate) synchronizations: Correlations,
}

/// What a timeline and the one with its analysis have in common.
pub(crate) struct Base {
    pub(crate) store: Store,
    pub(crate) identities: Arc<Vec<Identity>>,
    pub(crate) groups: Arc<Vec<Group>>,
    counters: Arc<Vec<Counter>>,
    pub(crate) bands: Vec<Band>,
    /// By process; made when first asked for.
    joins: Vec<OnceLock<Joins>>,
    /// By name of the recording, as a kernel's and as anything else's: its shade and 1, or 0 where that is not known yet.
    pub(crate) shades: Arc<[Vec<AtomicU16>; 2]>,
    /// Colours of ranges by name.
    pub(crate) colors: Arc<FxHashMap<u32, u32>>,
    pub(crate) origin: i64,
    pub(crate) begin: i64,
    pub(crate) end: i64,
    pub(crate) events: u64,
    pub(crate) gaps: Vec<NotRecorded>,
    pub(crate) notes: Vec<String>,
}

impl Base {
    pub(crate) fn new(recording: &Arc<Recording>) -> Self {
        let groups = gather::groups(&recording.processes, &recording.names);
        let colors = colors(&recording.processes);
        Self::of(recording, groups, colors, Store::whole(recording.clone()))
    }

    /// Of a recording that grows, as far as it has come: of its large tables the outline has none.
    pub(crate) fn growing(
        outline: &Recording,
        groups: Vec<Group>,
        colors: FxHashMap<u32, u32>,
        store: Store,
        counters: Arc<Vec<Counter>>,
        shades: Arc<[Vec<AtomicU16>; 2]>,
    ) -> Self {
        let identities = rows::identities(outline);
        Self::with(outline, identities, groups, colors, store, counters, shades)
    }

    /// Of a first look.
    pub(crate) fn early(early: Early) -> (Self, Promise) {
        let rows = early.rows().to_vec();
        let Early {
            outline,
            groups,
            colors,
            ..
        } = early;
        let (outline, coming) = (Arc::new(outline), Coming::default());
        let store = Store::outlined(outline.clone(), coming.clone());
        let base = Self::of(&outline, groups, colors, store);
        (base, Promise::new(coming, outline, rows))
    }

    fn of(recording: &Recording, groups: Vec<Group>, colors: FxHashMap<u32, u32>, store: Store) -> Self {
        let identities = rows::identities(recording);
        let counters = Arc::new(counters::counters(recording, &identities));
        let count = recording.names.len();
        let shades = Arc::new([(); 2].map(|()| (0..count).map(|_| AtomicU16::new(0)).collect()));
        Self::with(recording, identities, groups, colors, store, counters, shades)
    }

    fn with(
        recording: &Recording,
        identities: Vec<Identity>,
        groups: Vec<Group>,
        colors: FxHashMap<u32, u32>,
        store: Store,
        counters: Arc<Vec<Counter>>,
        shades: Arc<[Vec<AtomicU16>; 2]>,
    ) -> Self {
        let lanes = || groups.iter().flat_map(|group| &group.lanes);
        let begin = lanes().map(|slices| slices.begin()).min();
        let end = lanes().map(|slices| slices.end()).max();
        let sampled = counters.iter().map(|counter| counter.series.begin()).min();
        let origin = begin.into_iter().chain(sampled).min().unwrap_or(0);
        let (begin, end) = begin.zip(end).unwrap_or_else(|| {
            let last = counters.iter().map(|counter| counter.series.end()).max();
            (origin, last.unwrap_or(origin))
        });
        let events = lanes().map(|slices| slices.len()).sum::<usize>()
            + counters.iter().map(|counter| counter.series.len()).sum::<usize>();
        Self {
            joins: recording.processes.iter().map(|_| OnceLock::new()).collect(),
            shades,
            colors: Arc::new(colors),
            gaps: not_recorded(recording, &identities, begin, end, origin),
            origin,
            begin,
            end,
            events: events as u64,
            notes: notes(&recording.processes, &identities, &groups),
            bands: bands(&recording.processes, &identities, &groups),
            identities: Arc::new(identities),
            groups: Arc::new(groups),
            counters,
            store,
        }
    }

    /// The same with the recording packed.
    pub(crate) fn packed(&self) -> Self {
        Self {
            store: self.store.pack(),
            identities: self.identities.clone(),
            groups: self.groups.clone(),
            counters: self.counters.clone(),
            bands: self.bands.clone(),
            joins: self.joins.iter().map(|_| OnceLock::new()).collect(),
            shades: self.shades.clone(),
            colors: self.colors.clone(),
            gaps: self.gaps.clone(),
            notes: self.notes.clone(),
            ..*self
        }
    }

    /// All rows, those of communicators first.
    pub(crate) fn rows(&self, projected: &[Group], communicators: &[Communicator]) -> Rows {
        let mut rows = Rows::new(
            self.store.outline(),
            &self.identities,
            &self.groups,
            projected,
            &self.counters,
            communicators,
        );
        for row in &mut rows.rows {
            row.begin -= self.origin;
            row.end -= self.origin;
        }
        rows
    }

    /// The rows of a process's table with this correlation id; `index` is that table's of the joins.
    pub(crate) fn rows_with<T: Stored>(
        &self,
        process: u32,
        id: u32,
        index: impl Fn(&Joins) -> &Correlations,
    ) -> Vec<usize> {
        if let Some(rows) = self.store.rows_with::<T>(process, id) {
            return rows;
        }
        let Some(joins) = self.joins(process) else {
            return Vec::new();
        };
        let ids = self.store.words::<T>(process, ID);
        index(joins).rows(ids, id).collect()
    }

    fn joins(&self, process: u32) -> Option<&Joins> {
        let store = &self.store;
        Some(self.joins.get(process as usize)?.get_or_init(|| Joins {
            calls: Correlations::new(store.words::<ApiCalls>(process, ID)),
            kernels: Correlations::new(store.words::<Kernels>(process, ID)),
            copies: Correlations::new(store.words::<Copies>(process, ID)),
            memsets: Correlations::new(store.words::<Memsets>(process, ID)),
            graph_launches: Correlations::new(store.words::<GraphLaunches>(process, ID)),
            synchronizations: Correlations::new(store.words::<Synchronizations>(process, ID)),
        }))
    }
}

/// The colours that the program gave to ranges, by name: of several the first.
fn colors(processes: &[Process]) -> FxHashMap<u32, u32> {
    let mut colors = FxHashMap::default();
    for process in processes {
        let markers = &process.tables.markers;
        for (name, color) in markers.name.iter().zip(&markers.color) {
            if let Some(color) = color {
                colors.entry(name.number()).or_insert(*color);
            }
        }
    }
    colors
}

/// What is not on the rows.
fn notes(processes: &[Process], identities: &[Identity], groups: &[Group]) -> Vec<String> {
    let mut notes = Vec::new();
    for group in groups.iter().filter(|group| group.left_out > 0) {
        notes.push(format!(
            "{}: {} slices are not drawn, for more than {} others go on at the same time",
            identities[group.process as usize].label,
            group.left_out,
            lanes::MOST_LANES
        ));
    }
    for (identity, process) in identities.iter().zip(processes) {
        for (table, rows) in process.tables.row_counts() {
            if rows > MOST_ROWS {
                notes.push(format!(
                    "{}: only the first {} of {rows} rows of {table} are drawn",
                    identity.label, MOST_ROWS
                ));
            }
        }
    }
    notes
}

/// The devices that operations ran on which the analysis counts, as it orders them.
fn bands(processes: &[Process], identities: &[Identity], groups: &[Group]) -> Vec<Band> {
    let counts = |group: &Group| {
        let is_counted = |slices: &Arc<Slices>| {
            (0..slices.len()).any(|place| {
                let (table, _) = table_and_row(slices.source(place));
                matches!(table, Table::Kernel | Table::Copy | Table::Memset)
            })
        };
        group.lanes.iter().any(is_counted)
    };
    let mut found: BTreeMap<(u32, u32), Band> = BTreeMap::new();
    for group in groups {
        let Place::Stream(device_index, _) = group.place else {
            continue;
        };
        let key = (group.process, device_index);
        if found.contains_key(&key) || !counts(group) {
            continue;
        }
        let process = &processes[group.process as usize];
        let mut devices = process.header.devices.iter();
        let device = devices.find(|device| device.index == device_index);
        found.insert(
            key,
            Band {
                rank: identities[group.process as usize].rank,
                process: group.process,
                device_index,
                device_name: device
                    .map(|device| device.name.clone())
                    .filter(|name| !name.is_empty()),
                host: process.header.host.clone(),
            },
        );
    }
    found.into_values().collect()
}

/// The stretches that no window covers, and those that others kept from being recorded.
fn not_recorded(
    recording: &Recording,
    identities: &[Identity],
    begin: i64,
    end: i64,
    origin: i64,
) -> Vec<NotRecorded> {
    let mut found = Vec::new();
    for (place, (process, identity)) in (0u32..).zip(recording.processes.iter().zip(identities)) {
        let windows = &process.tables.windows;
        let mut active: Vec<(i64, i64)> = Vec::new();
        let mut add = |from: i64, to: i64, what: &str| {
            let (from, to) = (from.max(begin), to.min(end));
            if from < to {
                found.push(NotRecorded {
                    process: place,
                    rank: identity.rank,
                    from: from - origin,
                    to: to - origin,
                    what: what.to_owned(),
                });
            }
        };
        for row in 0..windows.start_ns.len() {
            let from = windows.start_ns[row].0;
            let to = from.saturating_add(windows.duration_ns[row].0);
            match recording.names.get(windows.what[row]) {
                "active" | "warm-up" => active.push((from, to)),
                what => add(from, to, what),
            }
        }
        if !active.is_empty() {
            for gap in IntervalSet::union_of(active).gaps_within(begin, end).as_slice() {
                add(gap.start, gap.end, "not recorded");
            }
        }
    }
    found.sort_by_key(|gap| (gap.process, gap.from));
    found
}
