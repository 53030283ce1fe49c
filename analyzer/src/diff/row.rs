//! A row of a comparison, and its verdict.

use serde::Serialize;

use crate::baseline::By;

/// What became of something from the first side to the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It takes more time.
    Slower,
    /// It takes less time.
    Faster,
    /// No difference that these runs can show.
    Same,
    /// There are too few steps to know.
    Unknown,
    /// Only in the second.
    New,
    /// Only in the first.
    Gone,
}

impl Verdict {
    /// Its word in JSON and in tables.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Slower => "slower",
            Self::Faster => "faster",
            Self::Same => "same",
            Self::Unknown => "unknown",
            Self::New => "new",
            Self::Gone => "gone",
        }
    }
}

/// Of a change of which it is known whether it is one, or not known.
pub(super) fn verdict_of(change_ns: i64, is_one: Option<bool>) -> Verdict {
    match is_one {
        None => Verdict::Unknown,
        Some(true) if change_ns > 0 => Verdict::Slower,
        Some(true) if change_ns < 0 => Verdict::Faster,
        Some(_) => Verdict::Same,
    }
}

/// One thing compared, in nanoseconds a step.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// What it is.
    pub by: By,
    /// Its name.
    pub name: String,
    /// "time"; of collectives "transfer" and "wait".
    pub what: String,
    /// The rank; null is the mean over all GPUs.
    pub rank: Option<u32>,
    /// The device, where the rank has several.
    pub device_index: Option<u32>,
    /// What it typically takes in a step of the first: as [`crate::diff::StepChange::a_ns`]. Null where it is not in the first.
    pub a_ns: Option<i64>,
    /// In the second.
    pub b_ns: Option<i64>,
    /// Second minus first; what is not there takes nothing.
    pub change_ns: i64,
    /// From here ...
    pub low_ns: Option<i64>,
    /// ... to here: the change's 95 % confidence interval. Null where there are too few steps, and of what is new or gone.
    pub high_ns: Option<i64>,
    /// What became of it. All rows are tested at once: of those that are called slower or faster at most one in twenty is not.
    pub verdict: Verdict,
    /// How many there were in a step of the first, on all GPUs or on the one; null of what is not counted.
    pub count_a: Option<f64>,
    /// In the second.
    pub count_b: Option<f64>,
}

/// How much of what took time has something to be compared with: sums of durations over the steps that count, on all GPUs. Matched
/// and unmatched sum to the total.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Coverage {
    /// What it is matched by.
    pub by: By,
    /// All time of the first side.
    pub total_a_ns: i64,
    /// What of it is in both.
    pub matched_a_ns: i64,
    /// What is gone.
    pub unmatched_a_ns: i64,
    /// All time of the second side.
    pub total_b_ns: i64,
    /// What of it is in both.
    pub matched_b_ns: i64,
    /// What is new.
    pub unmatched_b_ns: i64,
}
