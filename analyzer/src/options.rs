//! What to analyse.

use serde::{Deserialize, Serialize};

/// What kernels are ordered by, greatest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Sort {
    /// Sum of durations.
    #[default]
    Total,
    /// How many.
    Count,
    /// Mean duration.
    Mean,
    /// Longest.
    Max,
}

/// What to analyse and how to order it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// Only the steps from the first number to the second, both counted.
    pub steps: Option<(u64, u64)>,
    /// Order of the kernels.
    pub sort: Sort,
    /// Kernels by their demangled short names.
    pub short_names: bool,
    /// What each step of each device is made of, by name, in the details too.
    pub by_step: bool,
}

impl Options {
    /// As a text that [`Options::parse`] reads.
    pub(crate) fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }
}
