//! A piece of the critical path.

/// A stretch of the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Process, by its place in the recording.
    pub process: u32,
    /// Device index within it.
    pub device_index: u32,
    /// Start, as a stamp.
    pub start_ns: i64,
    /// End.
    pub end_ns: i64,
    /// As in [`super::PathPart`].
    pub what: &'static str,
    /// Its place among [`super::CriticalPath::parts`].
    pub part: u32,
    /// The operation or call that it is of, or that began after it: table of the recording, and row.
    pub row: Option<(PathTable, u32)>,
}

/// A table whose rows are on the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathTable {
    /// Kernels.
    Kernels,
    /// Copies.
    Copies,
    /// Memsets.
    Memsets,
    /// CUDA graphs as wholes.
    GraphLaunches,
    /// Calls; of the host's work the call that came after it.
    ApiCalls,
}
