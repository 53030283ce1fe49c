//! What was found.

use serde::Serialize;

use super::rules::Kind;

/// A finding of a rule.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Fired {
    /// Which rule.
    pub trigger: Kind,
    /// When, nanoseconds since 1970.
    pub time_ns: i64,
    /// The step at which it was noticed.
    pub step: Option<u64>,
    /// The rank that it is about.
    pub rank: Option<u32>,
    /// What was found, as a sentence: what changed against before.
    pub title: String,
    /// The recording that was kept for it, once there is one.
    pub recording: Option<String>,
}

/// What was found here, and another node is to act upon.
#[derive(Debug)]
pub struct Held {
    /// Until then it is waited for that node, nanoseconds since 1970.
    pub due_ns: i64,
    /// The job that it is of.
    pub job: String,
    /// What was found.
    pub fired: Fired,
}
