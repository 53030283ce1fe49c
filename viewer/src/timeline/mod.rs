//! What a picture of a recording needs, at any zoom: rows of slices that do not overlap, counters, shares of time, details
//! and names.
//!
//! A [`Timeline`] is made of a recording alone ([`Timeline::build`]), fast enough to draw at once, and once more when the
//! analysis is there ([`Timeline::with_analysis`]), which adds the rows of communicators, the causes of gaps and the peers
//! of collectives. It is never changed: each is one generation. All times that go in and out are nanoseconds since
//! [`Timeline::origin_ns`].

pub mod answers;
pub mod kinds;
mod names;
mod series;
mod slices;
mod tile;

use std::sync::Arc;

use gputrace_analyzer::{Analysis, Details};
use gputrace_trace::Recording;

pub use answers::*;

/// The coarsest level of tiles: 2^50 ns a bin, so that a tile has years.
pub const MOST_LEVEL: u32 = 50;
/// Bins of a tile.
pub const TILE_BINS: i64 = 1024;

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
}

/// Which collectives to list.
#[derive(Clone, Debug, Default)]
pub struct CollectiveQuery {
    /// Ordered by what.
    pub order: CollectiveOrder,
    /// Greatest first.
    pub descending: bool,
    /// Only of this communicator (its hash as the analysis writes it).
    pub communicator: Option<String>,
    /// Only of this name.
    pub name: Option<String>,
    /// How many to pass over.
    pub offset: usize,
    /// How many at most.
    pub limit: usize,
}

/// The slices and counters of a recording, indexed for pictures of it.
pub struct Timeline {
    recording: Arc<Recording>,
}

impl Timeline {
    /// Everything that needs no analysis.
    #[must_use]
    pub fn build(recording: Arc<Recording>) -> Self {
        Self { recording }
    }

    /// The same with what the analysis of the recording knows.
    #[must_use]
    pub fn with_analysis(&self, _analysis: &Analysis, _details: Details) -> Self {
        Self {
            recording: self.recording.clone(),
        }
    }

    /// The moment that all times count from, since the epoch: nothing is before it.
    #[must_use]
    pub fn origin_ns(&self) -> i64 {
        0
    }

    /// Start of the first slice.
    #[must_use]
    pub fn begin(&self) -> i64 {
        0
    }

    /// End of the last slice.
    #[must_use]
    pub fn end(&self) -> i64 {
        0
    }

    /// How many slices and samples there are.
    #[must_use]
    pub fn events(&self) -> u64 {
        0
    }

    /// All rows, in the order in which they are shown; a row's number is its place here.
    #[must_use]
    pub fn rows(&self) -> &[Row] {
        &[]
    }

    /// The devices, in the order of [`Self::overview`].
    #[must_use]
    pub fn bands(&self) -> &[Band] {
        &[]
    }

    /// When processes did not record.
    #[must_use]
    pub fn gaps(&self) -> &[NotRecorded] {
        &[]
    }

    /// What was left out of the rows and why, in sentences.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &[]
    }

    /// One tile of some rows, as it goes over the wire. Rows that do not exist and counters are left out, and there are no
    /// tiles beyond [`MOST_LEVEL`]: they are empty.
    #[must_use]
    pub fn tile(&self, _level: u32, _index: u64, _rows: &[u32]) -> Vec<u8> {
        Vec::new()
    }

    /// The same of counters.
    #[must_use]
    pub fn counters(&self, _level: u32, _index: u64, _rows: &[u32]) -> Vec<u8> {
        Vec::new()
    }

    /// Shares of each bin's time by band, as they go over the wire.
    #[must_use]
    pub fn overview(&self, _from: i64, _to: i64, _bins: u32) -> Vec<u8> {
        Vec::new()
    }

    /// Texts and colours for numbers of names; unknown numbers are left out.
    #[must_use]
    pub fn names(&self, _ids: &[u32]) -> Names {
        Names::default()
    }

    /// Everything that is known of a slice.
    #[must_use]
    pub fn slice(&self, _row: u32, _index: u32) -> Option<SliceDetails> {
        None
    }

    /// The slice of the row with a key that starts then; the longest where several do.
    #[must_use]
    pub fn slice_at(&self, _key: &str, _start: i64) -> Option<Ref> {
        None
    }

    /// The slice at a time, or else the nearest that is no further than `tolerance`.
    #[must_use]
    pub fn hit(&self, _row: u32, _at: i64, _tolerance: i64) -> Option<Ref> {
        None
    }

    /// The next or previous slice on the row; with `same_name` of its name.
    #[must_use]
    pub fn neighbour(&self, _row: u32, _index: u32, _direction: Direction, _same_name: bool) -> Option<Ref> {
        None
    }

    /// What lies in `[from, to)` of some rows; of all rows of slices where none are named.
    #[must_use]
    pub fn area(&self, _from: i64, _to: i64, _rows: Option<&[u32]>) -> Area {
        Area::default()
    }

    /// Slices whose whole name matches, by start, without the first `offset`.
    #[must_use]
    pub fn search(&self, _pattern: &regex::Regex, _limit: usize, _offset: usize) -> Found {
        Found::default()
    }

    /// Collectives over the ranks; none before there is an analysis.
    #[must_use]
    pub fn collectives(&self, _query: &CollectiveQuery) -> CollectivePage {
        CollectivePage::default()
    }
}
