//! What daemons of several nodes say to each other.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What one node says to another.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Said {
    /// Its jobs, every second.
    Jobs {
        /// Which node.
        host: String,
        /// Those that may have parts elsewhere.
        jobs: Vec<Part>,
    },
    /// It keeps something of a job: all do.
    Keep {
        /// Which node.
        host: String,
        /// Whose job.
        uid: u32,
        /// The group of its processes.
        group: String,
        /// The rule that fired.
        trigger: String,
        /// What was found.
        title: String,
        /// The kernels of so many steps; none: what the ring holds.
        steps: Option<u64>,
    },
}

/// A job's part on a node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Part {
    /// Whose.
    pub(crate) uid: u32,
    /// The group of its processes.
    pub(crate) group: String,
    /// As "gputrace.job/1" lists them.
    pub(crate) processes: Vec<Value>,
}
