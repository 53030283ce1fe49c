//! What to analyse.

use serde_json::{Value, json};

/// What kernels are ordered by, greatest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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

impl Sort {
    const ALL: [(Self, &str); 4] = [
        (Self::Total, "total"),
        (Self::Count, "count"),
        (Self::Mean, "mean"),
        (Self::Max, "max"),
    ];
}

impl Options {
    /// As a text that [`Options::parse`] reads; without `by_step`, which is for analyses in memory.
    pub(crate) fn text(&self) -> String {
        let word = Sort::ALL.iter().find(|(sort, _)| *sort == self.sort);
        let sort = word.map(|(_, word)| *word);
        json!({"steps": self.steps, "sort": sort, "short_names": self.short_names}).to_string()
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        let value: Value = serde_json::from_str(text).ok()?;
        let steps = match &value["steps"] {
            Value::Null => None,
            steps => Some((steps[0].as_u64()?, steps[1].as_u64()?)),
        };
        let word = value["sort"].as_str()?;
        let (sort, _) = *Sort::ALL.iter().find(|(_, known)| *known == word)?;
        Some(Self {
            steps,
            sort,
            short_names: value["short_names"].as_bool()?,
            by_step: false,
        })
    }
}
