//! What a picture of a recording needs, at any zoom: rows of slices that do not overlap, counters, shares of time, details
//! and names.
//!
//! A [`Timeline`] is made of a recording alone ([`Timeline::build`]), fast enough to draw at once, and once more when the
//! analysis is there ([`Timeline::with_analysis`]), which adds the rows of communicators and of NVTX ranges on devices, the
//! causes of gaps and the peers of collectives. It is never changed: each is one generation. All times that go in and out are nanoseconds since
//! [`Timeline::origin_ns`]; inside they are those of the recording.

pub mod answers;
mod area;
mod arriving;
mod base;
mod collectives;
mod correlations;
mod counters;
mod details;
mod early;
mod fields;
mod gather;
mod growing;
pub mod kinds;
mod lanes;
mod launched_by;
mod laying;
mod memory;
mod names;
mod path;
mod pieces;
mod profile;
mod projected;
mod rows;
mod search;
mod series;
pub mod slices;
mod source;
mod store;
#[cfg(test)]
pub(crate) mod tests;
mod tile;
mod tree;

use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use gputrace_analyzer::{Analysis, Details, DeviceGaps};
use gputrace_trace::{Interner, Process, Recording, parallel};
use rustc_hash::FxHashMap;

pub use answers::*;
pub use arriving::Arriving;
use base::Base;
use collectives::Known;
pub use early::Promise;
use gather::{Group, Place};
pub use growing::{Growing, Learned};
use memory::GivesBack;
use names::{Class, Texts};
use profile::{Profile, SHARES};
use rows::{Data, Rows};
pub use search::Where;
use series::Series;
use slices::Slices;
use source::Table;
use tile::Shades;
pub use tree::TreeOf;

/// The coarsest level of tiles: 2^50 ns a bin, so that a tile has years.
pub const MOST_LEVEL: u32 = 50;
/// Bins of a tile.
pub const TILE_BINS: i64 = 1024;

/// Slices and samples from which on a recording is packed.
const PACKED_FROM: u64 = 1 << 20;

/// Labels that are kept.
const MOST_LABELS: usize = 1 << 16;

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

/// The slices and counters of a recording, indexed for pictures of it.
pub struct Timeline {
    base: Arc<Base>,
    rows: Rows,
    /// By band; made when first asked for.
    profiles: Vec<Arc<OnceLock<Profile>>>,
    known: Option<Arc<Known>>,
    /// Of a recording that grows: how often everything was read anew before it.
    epoch: u64,
    /// Of a recording that grows: the causes of gaps, which its shares of time get when they are made.
    details: Option<Arc<Details>>,
    /// Of a recording that grows, by band: the shares of time that are known, and until when.
    settled: Vec<Option<(Arc<Profile>, i64)>>,
    /// Labels that were asked for, by number: a kernel's takes its time.
    labels: Mutex<FxHashMap<u32, Arc<str>>>,
    /// The whole names of kernels, by number; made when first searched.
    kernel_names: OnceLock<FxHashMap<u32, Box<str>>>,
    /// The names on each row; made when first searched.
    names_on_rows: OnceLock<Vec<Vec<u32>>>,
    /// Dropped after all else.
    _gives_back: GivesBack,
}

impl Timeline {
    /// Everything that needs no analysis.
    #[must_use]
    pub fn build(recording: &Arc<Recording>) -> Self {
        Self::of(Base::new(recording))
    }

    /// The same of a recording of ours, before it is read: of its large tables only what rows are made of. Details of slices are
    /// there when [`Promise::keep`] has been called; who asks earlier waits. Nothing where that can't be done, or where `path`
    /// is no recording of ours.
    #[must_use]
    pub fn first_look(path: &Path, growing: bool) -> Option<(Self, Promise)> {
        let (base, promise) = Base::early(early::look(path, growing)?);
        Some((Self::of(base), promise))
    }

    /// The same of the trace files of a run that have been read so far.
    #[must_use]
    pub fn of_arrived(arriving: &Arriving) -> (Self, Promise) {
        let (base, promise) = Base::early(arriving.so_far());
        (Self::of(base), promise)
    }

    /// Of a recording that is shown by rank: no rows, of a run that lasted from `begin` to `end`.
    #[must_use]
    pub fn without_rows(outline: &Arc<Recording>, span: Option<(i64, i64)>) -> Self {
        let mut base = Base::new(outline);
        if let Some((begin, end)) = span {
            (base.origin, base.begin, base.end) = (begin, begin, end);
        }
        Self::of(base)
    }

    /// Whether details are not there yet, so that who asks for them waits.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.base.store.is_waiting()
    }

    /// Whether details will never be there: the recording was read again before they were.
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        self.base.store.is_abandoned()
    }

    fn of(base: Base) -> Self {
        let is_large = base.events >= PACKED_FROM;
        Self {
            rows: base.rows(&[], &[]),
            profiles: base.bands.iter().map(|_| Arc::default()).collect(),
            base: Arc::new(base),
            known: None,
            epoch: 0,
            details: None,
            settled: Vec::new(),
            labels: Mutex::default(),
            kernel_names: OnceLock::new(),
            names_on_rows: OnceLock::new(),
            _gives_back: GivesBack { is_large },
        }
    }

    /// The same with what the analysis of the whole recording knows. From a million slices on the recording is packed: it has
    /// a fifth of its size then, and [`Self::recording`] makes it anew.
    #[must_use]
    pub fn with_analysis(&self, analysis: &Arc<Analysis>, details: &Details) -> Self {
        self.with(analysis, details, self.base.events >= PACKED_FROM)
    }

    fn with(&self, analysis: &Arc<Analysis>, details: &Details, packed: bool) -> Self {
        let recording = self.base.store.recording();
        let known = Known::new(analysis, details, &recording.names);
        let projected = projected::groups(&recording.processes);
        drop(recording);
        let base = if packed {
            Arc::new(self.base.packed())
        } else {
            self.base.clone()
        };
        let profiles = parallel::map(self.base.bands.len(), |band| match self.gaps_of(band, details) {
            Some(device) => {
                let mut profile = self.profile(band).clone();
                profile.set_causes(&device.gaps);
                Arc::new(OnceLock::from(profile))
            }
            None => self.profiles[band].clone(),
        });
        Self {
            rows: base.rows(&projected, &known.communicators),
            base,
            profiles,
            known: Some(Arc::new(known)),
            epoch: self.epoch,
            details: None,
            settled: Vec::new(),
            labels: Mutex::default(),
            kernel_names: OnceLock::new(),
            names_on_rows: OnceLock::new(),
            _gives_back: GivesBack { is_large: packed },
        }
    }

    /// Whether what an analysis knows is in it.
    #[must_use]
    pub fn is_analysed(&self) -> bool {
        self.known.is_some()
    }

    /// The recording that it is of, but for the large tables of its processes where those are packed.
    #[must_use]
    pub fn outline(&self) -> &Arc<Recording> {
        self.base.store.outline()
    }

    /// The whole recording that it is of: the one that it was made from, or a new one where that is packed.
    #[must_use]
    pub fn recording(&self) -> Arc<Recording> {
        self.base.store.recording()
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

    /// Bytes that rows, counters and shares take, and the recording where it is packed.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let lanes: usize = (self.rows.data.iter())
            .map(|data| match data {
                Data::Slices(slices) => slices.bytes(),
                Data::Series(series) => series.bytes(),
            })
            .sum();
        let profiles = self.profiles.iter().filter_map(|profile| profile.get());
        lanes + profiles.map(Profile::bytes).sum::<usize>() + self.base.store.bytes()
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

    /// Makes coarse tiles cheap, of 32 slices a bin on average and more: they are the same before it, but look into memory at so
    /// many places that those of a hundred million slices take 60 ms. It takes about a nanosecond a slice.
    pub fn summarize(&self) {
        let rows = &self.rows.data;
        parallel::map(rows.len(), |row| match &rows[row] {
            Data::Slices(slices) => slices.summarize(self.base.origin),
            Data::Series(_) => {}
        });
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
        let shares_of = |band: usize| {
            let known = self.profiles[band].get();
            let settled = self.settled.get(band).and_then(Option::as_ref);
            let settled = settled.map(|(profile, until)| (&**profile, *until));
            let at_once =
                || profile::shares_of(self.lanes(band), settled, counts, names::kind, (from, to), bins);
            let shares = match known {
                Some(profile) => Some(profile.shares(from, to, bins)),
                None => at_once(),
            };
            shares.unwrap_or_else(|| self.profile(band).shares(from, to, bins))
        };
        for shares in parallel::map(bands, shares_of) {
            for share in &shares {
                tile::floats(&mut bytes, share);
            }
        }
        bytes
    }

    /// Texts and colours for numbers of names, with `full` those of kernels with template arguments and parameters; unknown
    /// numbers are left out.
    #[must_use]
    pub fn names(&self, ids: &[u32], full: bool) -> Names {
        let mut found = Names::default();
        for &id in ids {
            let text = if full {
                names::full(id, self.texts()).map(names::cut)
            } else {
                self.label(id).map(|text| text.to_string())
            };
            let Some(text) = text else {
                continue;
            };
            found.names.insert(id, text);
            if let (Some((Class::Range, _)), Some(name)) = (names::parts(id), names::recorded(id))
                && let Some(color) = self.base.colors.get(&name.number())
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
        let fits = |other: u32| !same_name || other == name;
        let place = match direction {
            Direction::Next => (index + 1..slices.len()).find(|place| fits(slices.name(*place)))?,
            Direction::Previous => (0..index).rev().find(|place| fits(slices.name(*place)))?,
        };
        Some(self.reference(row, slices, place))
    }

    fn texts(&self) -> Texts<'_> {
        Texts {
            recorded: self.recorded(),
            more: self.known.as_ref().map_or(&[], |known| &known.names),
        }
    }

    /// A name for a label.
    fn label(&self, number: u32) -> Option<Arc<str>> {
        let labels = || self.labels.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(text) = labels().get(&number) {
            return Some(text.clone());
        }
        let text: Arc<str> = names::short(number, self.texts())?.into();
        let mut labels = labels();
        if labels.len() >= MOST_LABELS {
            labels.clear();
        }
        labels.insert(number, text.clone());
        Some(text)
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
            name: self.label(name).map(|text| text.to_string()).unwrap_or_default(),
            kind: names::kind(name),
        }
    }

    fn process(&self, process: u32) -> Option<&Process> {
        self.base.store.process(process)
    }

    fn recorded(&self) -> &Interner {
        &self.base.store.outline().names
    }

    /// The rows of a band's streams.
    fn lanes(&self, band: usize) -> impl Iterator<Item = &Slices> {
        let band = &self.base.bands[band];
        let of_device = |group: &&Group| {
            group.process == band.process
                && matches!(group.place, Place::Stream(device, _) if device == band.device_index)
        };
        let groups = self.base.groups.iter().filter(of_device);
        groups.flat_map(|group| &group.lanes).map(|slices| &**slices)
    }

    fn gaps_of<'a>(&self, band: usize, details: &'a Details) -> Option<&'a DeviceGaps> {
        let band = &self.base.bands[band];
        let is_its =
            |device: &&DeviceGaps| device.process == band.process && device.device_index == band.device_index;
        details.devices.iter().find(is_its)
    }

    fn profile(&self, band: usize) -> &Profile {
        self.profiles[band].get_or_init(|| {
            let mut profile = Profile::new(self.lanes(band), counts, names::kind);
            if let Some(device) = self
                .details
                .as_ref()
                .and_then(|details| self.gaps_of(band, details))
            {
                profile.set_causes(&device.gaps);
            }
            profile
        })
    }
}

/// Whether the analysis counts what a slice is of.
fn counts(source: u32) -> bool {
    source::table_and_row(source).0 != Table::Untimed
}

impl Shades for Timeline {
    fn shade(&self, name: u32) -> u8 {
        // A collective and the waiting in it are of one shade, as they have one place among those that are kept.
        let shown = match names::parts(name) {
            Some((Class::Wait, member)) => names::number(Class::Collective, member),
            _ => name,
        };
        let shade = || names::shade(&self.label(shown).unwrap_or_default());
        let Some(recorded) = names::recorded(name) else {
            // These are the same in every recording, and so are their numbers.
            let [shade, ..] = name.wrapping_mul(0x9e37_79b1).to_be_bytes();
            return shade;
        };
        let is_kernel = matches!(
            names::parts(name),
            Some((Class::Compute | Class::Communication, _))
        );
        let Some(kept) = self.base.shades[usize::from(!is_kernel)].get(recorded.number() as usize) else {
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
