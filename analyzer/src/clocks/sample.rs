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
}
