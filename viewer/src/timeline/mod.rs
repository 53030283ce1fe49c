//! What a picture of a recording needs, at any zoom: rows of slices that do not overlap, counters, shares of time, details
//! and names.
//!
//! A [`Timeline`] is made of a recording alone ([`Timeline::build`]), fast enough to draw at once, and once more when the
//! analysis is there ([`Timeline::with_analysis`]), which adds the rows of communicators, the causes of gaps and the peers
//! of collectives. It is never changed: each is one generation. All times that go in and out are nanoseconds since
//! [`Timeline::origin_ns`]; inside they are those of the recording.

pub mod answers;
mod area;
mod collectives;
mod correlations;
mod counters;
mod details;
mod fields;
mod gather;
pub mod kinds;
mod lanes;
mod names;
mod profile;
mod rows;
mod search;
mod series;
pub mod slices;
#[cfg(test)]
mod tests;
mod tile;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, OnceLock};

use gputrace_analyzer::intervals::IntervalSet;
use gputrace_analyzer::{Analysis, Details};
use gputrace_trace::{Process, Recording, parallel};
use rustc_hash::FxHashMap;

pub use answers::*;
use collectives::Known;
use correlations::Correlations;
use gather::{Group, Place, Table};
use names::{Class, Texts};
use profile::{Profile, SHARES};
use rows::{Counter, Data, Identity, Rows};
use series::Series;
use slices::Slices;
use tile::Shades;

/// The coarsest level of tiles: 2^50 ns a bin, so that a tile has years.
pub const MOST_LEVEL: u32 = 50;
/// Bins of a tile.
pub const TILE_BINS: i64 = 1024;

const OVERVIEW_MAGIC: u32 = 0x5245_564F;
const OVERVIEW_VERSION: u32 = 1;

/// Which way to the neighbour of a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Later.
    Next,
    /// Earlier.
    Previous,
}

/// What to order collectives by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CollectiveOrder {
    /// Start of the first kernel.
    #[default]
    Start,
    /// Last arrival minus first.
    Skew,
    /// Bytes.
    Bytes,
    /// Bus bandwidth.
    Busbw,
    /// Longest kernel.
    Duration,
    /// What the last rank alone cost.
    Cost,
}

/// Which collectives to list.
#[derive(Clone, Debug, Default)]
pub struct CollectiveQuery {
    /// Ordered by what.
    pub order: CollectiveOrder,
    /// Greatest first; what has no such value comes last either way.
    pub descending: bool,
    /// Only of this communicator (its hash as the analysis writes it).
    pub communicator: Option<String>,
    /// Only of this name.
    pub name: Option<String>,
    /// Only those that this rank came last to.
    pub last_rank: Option<u32>,
    /// How many to pass over.
    pub offset: usize,
    /// How many at most.
    pub limit: usize,
}

/// Where the rows of a process's tables are by correlation id.
#[derive(Debug, Default)]
struct Joins {
    calls: Correlations,
    kernels: Correlations,
    copies: Correlations,
    memsets: Correlations,
    graph_launches: Correlations,
    synchronizations: Correlations,
}

/// What a timeline and the one with its analysis have in common.
struct Base {
    recording: Arc<Recording>,
    identities: Vec<Identity>,
    groups: Vec<Group>,
    counters: Vec<Counter>,
    bands: Vec<Band>,
    /// By process; made when first asked for.
    joins: Vec<OnceLock<Joins>>,
    /// By name of the recording, as a kernel's and as anything else's: its shade and 1, or 0 where that is not known yet.
    shades: [Vec<AtomicU16>; 2],
    /// Colours of ranges by name; made when first asked for.
    colors: OnceLock<FxHashMap<u32, u32>>,
    origin: i64,
    begin: i64,
    end: i64,
    events: u64,
    gaps: Vec<NotRecorded>,
    notes: Vec<String>,
}

/// The slices and counters of a recording, indexed for pictures of it.
pub struct Timeline {
    base: Arc<Base>,
    rows: Rows,
    /// By band; made when first asked for.
    profiles: Vec<Arc<OnceLock<Profile>>>,
    known: Option<Known>,
    /// The names on each row; made when first searched.
    names_on_rows: OnceLock<Vec<Vec<u32>>>,
}

impl Timeline {
    /// Everything that needs no analysis.
    #[must_use]
    pub fn build(recording: Arc<Recording>) -> Self {
        let identities = rows::identities(&recording);
        let groups = gather::groups(&recording.processes, &recording.names);
        let counters = counters::counters(&recording, &identities);
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
        let mut notes = Vec::new();
        for group in groups.iter().filter(|group| group.left_out > 0) {
            notes.push(format!(
                "{}: {} slices are not drawn, for more than {} others go on at the same time",
                identities[group.process as usize].label,
                group.left_out,
                lanes::MOST_LANES
            ));
        }
        for (identity, process) in identities.iter().zip(&recording.processes) {
            for (table, rows) in process.tables.row_counts() {
                if rows > gather::MOST_ROWS {
                    notes.push(format!(
                        "{}: only the first {} of {rows} rows of {table} are drawn",
                        identity.label,
                        gather::MOST_ROWS
                    ));
                }
            }
        }
        let bands = bands(&recording.processes, &identities, &groups);
        let count = recording.names.len();
        let base = Base {
            joins: recording.processes.iter().map(|_| OnceLock::new()).collect(),
            shades: [(); 2].map(|()| (0..count).map(|_| AtomicU16::new(0)).collect()),
            colors: OnceLock::new(),
            gaps: not_recorded(&recording, &identities, begin, end, origin),
            origin,
            begin,
            end,
            events: events as u64,
            notes,
            bands,
            identities,
            groups,
            counters,
            recording,
        };
        Self {
            rows: base.rows(&[]),
            profiles: base.bands.iter().map(|_| Arc::default()).collect(),
            base: Arc::new(base),
            known: None,
            names_on_rows: OnceLock::new(),
        }
    }

    /// The same with what the analysis of the whole recording knows.
    #[must_use]
    pub fn with_analysis(&self, analysis: Arc<Analysis>, details: Details) -> Self {
        let known = Known::new(analysis, &self.base.recording);
        let profiles = parallel::map(self.base.bands.len(), |band| {
            let Band {
                process,
                device_index,
                ..
            } = self.base.bands[band];
            let found = details
                .devices
                .iter()
                .find(|device| device.process == process && device.device_index == device_index);
            match found {
                Some(device) => {
                    let mut profile = self.profile(band).clone();
                    profile.set_causes(&device.gaps);
                    Arc::new(OnceLock::from(profile))
                }
                None => self.profiles[band].clone(),
            }
        });
        Self {
            rows: self.base.rows(&known.communicators),
            base: self.base.clone(),
            profiles,
            known: Some(known),
            names_on_rows: OnceLock::new(),
        }
    }

    /// The recording that it is of.
    #[must_use]
    pub fn recording(&self) -> &Arc<Recording> {
        &self.base.recording
    }

    /// The moment that all times count from, since the epoch: nothing is before it.
    #[must_use]
    pub fn origin_ns(&self) -> i64 {
        self.base.origin
    }

    /// Start of the first slice.
    #[must_use]
    pub fn begin(&self) -> i64 {
        self.base.begin - self.base.origin
    }

    /// End of the last slice.
    #[must_use]
    pub fn end(&self) -> i64 {
        self.base.end - self.base.origin
    }

    /// How many slices and samples there are.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.base.events
    }

    /// All rows, in the order in which they are shown; a row's number is its place here.
    #[must_use]
    pub fn rows(&self) -> &[Row] {
        &self.rows.rows
    }

    /// The devices, in the order of [`Self::overview`].
    #[must_use]
    pub fn bands(&self) -> &[Band] {
        &self.base.bands
    }

    /// When processes did not record.
    #[must_use]
    pub fn gaps(&self) -> &[NotRecorded] {
        &self.base.gaps
    }

    /// What was left out of the rows and why, in sentences.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.base.notes
    }

    /// Bytes that rows, counters and shares take, without the recording.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let lanes: usize = (self.rows.data.iter())
            .map(|data| match data {
                Data::Slices(slices) => slices.bytes(),
                Data::Series(series) => series.bytes(),
            })
            .sum();
        let profiles = self.profiles.iter().filter_map(|profile| profile.get());
        lanes + profiles.map(Profile::bytes).sum::<usize>()
    }

    /// The slices of a row; `None` for counters and rows that are not there. Their times are those of the recording.
    #[must_use]
    pub fn slices(&self, row: u32) -> Option<&Slices> {
        self.rows.slices(row).map(|slices| &**slices)
    }

    /// One tile of some rows, as it goes over the wire. Rows that do not exist and counters are left out, and there are no
    /// tiles beyond [`MOST_LEVEL`]: they are empty.
    #[must_use]
    pub fn tile(&self, level: u32, index: u64, rows: &[u32]) -> Vec<u8> {
        let rows: Vec<(u32, &Slices)> = rows
            .iter()
            .filter_map(|row| Some((*row, &**self.rows.slices(*row)?)))
            .collect();
        tile::encode(level, index, self.base.origin, &rows, self)
    }

    /// The same of counters.
    #[must_use]
    pub fn counters(&self, level: u32, index: u64, rows: &[u32]) -> Vec<u8> {
        let rows: Vec<(u32, &Series)> = rows
            .iter()
            .filter_map(|row| match self.rows.data.get(*row as usize)? {
                Data::Series(series) => Some((*row, &**series)),
                Data::Slices(_) => None,
            })
            .collect();
        series::encode(level, index, self.base.origin, &rows)
    }

    /// Shares of each bin's time by band, as they go over the wire.
    #[must_use]
    pub fn overview(&self, from: i64, to: i64, bins: u32) -> Vec<u8> {
        let bands = self.base.bands.len();
        let mut bytes = Vec::with_capacity(16 + bands * SHARES * bins as usize * 4);
        tile::header(
            &mut bytes,
            OVERVIEW_MAGIC,
            OVERVIEW_VERSION,
            u32::try_from(bands).unwrap_or(u32::MAX),
            bins as usize,
        );
        let (from, to) = (self.absolute(from), self.absolute(to));
        for shares in parallel::map(bands, |band| self.profile(band).shares(from, to, bins)) {
            for share in &shares {
                tile::floats(&mut bytes, share);
            }
        }
        bytes
    }

    /// Texts and colours for numbers of names; unknown numbers are left out.
    #[must_use]
    pub fn names(&self, ids: &[u32]) -> Names {
        let texts = self.texts();
        let mut found = Names::default();
        for &id in ids {
            let Some(text) = names::short(id, texts) else {
                continue;
            };
            found.names.insert(id, text);
            if let (Some((Class::Range, _)), Some(name)) = (names::parts(id), names::recorded(id))
                && let Some(color) = self.colors().get(&name.0)
            {
                found.colors.insert(id, format!("#{:06x}", color & 0xff_ffff));
            }
        }
        found
    }

    /// The slice of the row with a key that starts then; the longest where several do.
    #[must_use]
    pub fn slice_at(&self, key: &str, start: i64) -> Option<Ref> {
        let row = *self.rows.by_key.get(key)?;
        let slices = self.rows.slices(row)?;
        let start = self.absolute(start);
        let first = slices.first_from(start);
        let after = slices.first_from(start.saturating_add(1));
        (first < after).then(|| self.reference(row, slices, slices.longest(first, after)))
    }

    /// The slice at a time, or else the nearest that is no further than `tolerance`.
    #[must_use]
    pub fn hit(&self, row: u32, at: i64, tolerance: i64) -> Option<Ref> {
        let slices = self.rows.slices(row)?;
        let at = self.absolute(at);
        let after = slices.first_from(at.saturating_add(1));
        let distance = |place: usize| {
            let (start, end) = (slices.start(place), slices.end_of(place));
            // The end is not in the slice any more.
            (start - at).max(at - (end - 1).max(start)).max(0)
        };
        let candidates = after.saturating_sub(2)..(after + 1).min(slices.len());
        let nearest = candidates.min_by_key(|place| (distance(*place), std::cmp::Reverse(*place)))?;
        (distance(nearest) <= tolerance).then(|| self.reference(row, slices, nearest))
    }

    /// The next or previous slice on the row; with `same_name` of its name.
    #[must_use]
    pub fn neighbour(&self, row: u32, index: u32, direction: Direction, same_name: bool) -> Option<Ref> {
        let slices = self.rows.slices(row)?;
        let index = index as usize;
        if index >= slices.len() {
            return None;
        }
        let name = slices.name(index);
        let fits = |other: &u32| !same_name || *other == name;
        let place = match direction {
            Direction::Next => index + 1 + slices.names()[index + 1..].iter().position(fits)?,
            Direction::Previous => slices.names()[..index].iter().rposition(fits)?,
        };
        Some(self.reference(row, slices, place))
    }

    fn texts(&self) -> Texts<'_> {
        Texts {
            recorded: &self.base.recording.names,
            more: self.known.as_ref().map_or(&[], |known| &known.names),
        }
    }

    fn colors(&self) -> &FxHashMap<u32, u32> {
        self.base.colors.get_or_init(|| {
            let mut colors = FxHashMap::default();
            for process in &self.base.recording.processes {
                let markers = &process.tables.markers;
                for (name, color) in markers.name.iter().zip(&markers.color) {
                    if let Some(color) = color {
                        colors.entry(name.0).or_insert(*color);
                    }
                }
            }
            colors
        })
    }

    fn absolute(&self, time: i64) -> i64 {
        // Beyond what a recording can hold nothing is.
        const FAR: i64 = 1 << 62;
        time.clamp(-FAR, FAR).saturating_add(self.base.origin)
    }

    fn relative(&self, time: i64) -> i64 {
        time - self.base.origin
    }

    fn reference(&self, row: u32, slices: &Slices, place: usize) -> Ref {
        let name = slices.name(place);
        Ref {
            row,
            index: u32::try_from(place).unwrap_or(u32::MAX),
            start: self.relative(slices.start(place)),
            duration: slices.duration(place),
            name: names::short(name, self.texts()).unwrap_or_default(),
            kind: names::kind(name),
        }
    }

    fn process(&self, process: u32) -> Option<&Process> {
        self.base.recording.processes.get(process as usize)
    }

    fn joins(&self, process: u32) -> Option<&Joins> {
        let tables = &self.process(process)?.tables;
        Some(self.base.joins.get(process as usize)?.get_or_init(|| Joins {
            calls: Correlations::new(&tables.api_calls.correlation),
            kernels: Correlations::new(&tables.kernels.correlation),
            copies: Correlations::new(&tables.copies.correlation),
            memsets: Correlations::new(&tables.memsets.correlation),
            graph_launches: Correlations::new(&tables.graph_launches.correlation),
            synchronizations: Correlations::new(&tables.synchronizations.correlation),
        }))
    }

    fn profile(&self, band: usize) -> &Profile {
        self.profiles[band].get_or_init(|| {
            let band = &self.base.bands[band];
            let of_device = |group: &&Group| {
                group.process == band.process
                    && matches!(group.place, Place::Stream(device, _) if device == band.device_index)
            };
            let lanes = self
                .base
                .groups
                .iter()
                .filter(of_device)
                .flat_map(|group| &group.lanes);
            let counts = |source| gather::table_and_row(source).0 != Table::Untimed;
            Profile::new(lanes.map(|slices| &**slices), counts, names::kind)
        })
    }
}

impl Base {
    fn rows(&self, communicators: &[rows::Communicator]) -> Rows {
        let mut rows = Rows::new(
            &self.recording,
            &self.identities,
            &self.groups,
            &self.counters,
            communicators,
        );
        for row in &mut rows.rows {
            row.begin -= self.origin;
            row.end -= self.origin;
        }
        rows
    }
}

impl Shades for Timeline {
    fn shade(&self, name: u32) -> u8 {
        let shade = || names::shade(&names::short(name, self.texts()).unwrap_or_default());
        let Some(recorded) = names::recorded(name) else {
            // These are the same in every recording, and so are their numbers.
            let [shade, ..] = name.wrapping_mul(0x9e37_79b1).to_be_bytes();
            return shade;
        };
        let is_kernel = matches!(
            names::parts(name),
            Some((Class::Compute | Class::Communication, _))
        );
        let Some(kept) = self.base.shades[usize::from(!is_kernel)].get(recorded.0 as usize) else {
            return shade();
        };
        match kept.load(Ordering::Relaxed) {
            0 => {
                let shade = shade();
                kept.store(u16::from(shade) + 1, Ordering::Relaxed);
                shade
            }
            known => (known - 1) as u8,
        }
    }
}

/// The devices that operations ran on which the analysis counts, as it orders them.
fn bands(processes: &[Process], identities: &[Identity], groups: &[Group]) -> Vec<Band> {
    let counts = |group: &Group| {
        let is_counted = |slices: &Arc<Slices>| {
            (0..slices.len()).any(|place| {
                let (table, _) = gather::table_and_row(slices.source(place));
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
