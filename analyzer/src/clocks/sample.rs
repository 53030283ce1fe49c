//! What a curve is drawn through.

/// What one operation says of two clocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    /// When it ended by the first clock.
    pub(super) time_ns: i64,
    /// What the second clock said beyond the first.
    pub(super) offset_ns: i64,
    /// What that is at least, and at most.
    pub(super) low_ns: i64,
    pub(super) high_ns: i64,
    pub(super) class: u32,
    pub(super) kind: u32,
    pub(super) work: u32,
    /// How far chance alone puts the offset off, by how ends of one host scatter, nanoseconds; 0 of single ranks.
    pub(super) spread_ns: f64,
    /// Where the last to arrive of all was a rank of one of the two.
    pub(super) last: Option<Last>,
}

/// Whose rank was the last to arrive, and how long the operation took from there on, by the clock of the same host.
#[derive(Clone, Copy, Debug)]
pub(super) struct Last {
    /// Whether it was the second host's.
    pub(super) is_second: bool,
    pub(super) took_ns: i64,
}
