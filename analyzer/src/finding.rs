//! One finding: what it is, whose, what mending it saves, and how it is seen.

use gputrace_trace::TimeNs;
use serde::Serialize;

use crate::facts::Facts;

/// One finding.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// What it is and names, for programs: `code` and `facts`.
    #[serde(flatten)]
    pub facts: Facts,
    /// What it is and what to try.
    pub text: String,
    /// The figures behind it.
    pub evidence: String,
    /// The rank that it is worst on, or whose fault it is; null where that has no number, and where it is of several.
    pub rank: Option<u32>,
    /// The device of that rank, index within its process; null where it is of no single one.
    pub device_index: Option<u32>,
    /// The ranks that are at fault or that it is about; empty where `rank` says it all.
    pub ranks: Vec<u32>,
    /// Time over the whole run that it could save at most; null of a hang, which has no end. Where all ranks' steps were replayed
    /// (`saves_low_ns` is there) it is what they would lose if this alone were mended.
    pub saves_ns: Option<i64>,
    /// The same for a step; null without steps.
    pub saves_per_step_ns: Option<i64>,
    /// Low end of what a replay says of `saves_per_step_ns`, which is the middle; null where there was none.
    pub saves_low_ns: Option<i64>,
    /// High end.
    pub saves_high_ns: Option<i64>,
    /// From what is to be mended to what is seen of it.
    pub cause: Vec<CauseLink>,
}

impl Finding {
    /// One of no rank, that says nothing of what it saves.
    pub(crate) fn new(facts: Facts, text: String, evidence: String) -> Self {
        Self {
            facts,
            text,
            evidence,
            rank: None,
            device_index: None,
            ranks: Vec::new(),
            saves_ns: None,
            saves_per_step_ns: None,
            saves_low_ns: None,
            saves_high_ns: None,
            cause: Vec::new(),
        }
    }
}

/// One link of the chain from a cause to its symptoms.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CauseLink {
    /// "kernel", "copy", "memset", "host", "call", "transfer", "clock", "collective": what kind of thing it is.
    pub what: String,
    /// Whose.
    pub rank: Option<u32>,
    /// Its name, or what happened to it.
    pub name: String,
    /// One place where it can be seen.
    pub start_ns: Option<TimeNs>,
}
