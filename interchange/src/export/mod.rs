//! Recordings in the formats of other tools.
//!
//! One pass ([`layout`]) says for every exporter which row and lane an event is shown in, which call launched it and what
//! ids join it to others; what the analysis knows beyond events comes as a [`gputrace_trace::Derived`]. Whatever is
//! exported is cut before ([`select`]), so that an exporter always writes all that it is given, and counts it.

mod calls;
pub mod chrome;
pub mod files;
pub mod gzip;
mod lanes;
pub mod layout;
pub mod parquet;
pub mod perfetto;
pub mod protobuf;
pub mod select;
pub mod tensorboard;
pub mod words;
pub mod xplane;

/// What an export did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExportSummary {
    /// Events in the recording.
    pub events_in: u64,
    /// Events written; without launch arrows, names and other additions.
    pub events_out: u64,
    /// Rows that were added because operations of one row overlap.
    pub lanes_added: u64,
    /// Arrows from a call to the operation that it launched.
    pub flows: u64,
    /// Operations without an arrow because their call was not recorded.
    pub launches_unknown: u64,
    /// Operations without an arrow because they begin before their call: the clocks disagree.
    pub launches_later: u64,
    /// Events whose duration is negative and was written as 0.
    pub durations_clamped: u64,
}

impl std::ops::AddAssign for ExportSummary {
    fn add_assign(&mut self, other: Self) {
        self.events_in += other.events_in;
        self.events_out += other.events_out;
        self.lanes_added += other.lanes_added;
        self.flows += other.flows;
        self.launches_unknown += other.launches_unknown;
        self.launches_later += other.launches_later;
        self.durations_clamped += other.durations_clamped;
    }
}
