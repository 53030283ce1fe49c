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
    /// Steps that have ended on its ranks, a few times a second.
    Steps {
        /// Which node.
        host: String,
        /// By job.
        jobs: Vec<Steps>,
    },
    /// It has found something of a job, which is told once, and keeps something of it: all do.
    Keep {
        /// Which node.
        host: String,
        /// Whose job.
        uid: u32,
        /// The group of its processes.
        group: String,
        /// The rule that fired.
        trigger: String,
        /// The rank that it is about.
        #[serde(default)]
        rank: Option<u32>,
        /// What was found.
        title: String,
        /// The kernels of so many steps; none: what the ring holds.
        steps: Option<u64>,
        /// Nothing is kept of it: the others are to know that it was told.
        #[serde(default)]
        nothing: bool,
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

/// Steps of a job on a node, each rank's in their order.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Steps {
    /// Whose job.
    pub(crate) uid: u32,
    /// The group of its processes.
    pub(crate) group: String,
    /// The steps.
    pub(crate) steps: Vec<ToldStep>,
}

/// A step of a rank, as a list of numbers since there are many: rank, number, how long ago it ended when this was said, duration,
/// communication, compute, exposed, idle; all times in nanoseconds, null where not known.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ToldStep(
    pub(crate) u32,
    pub(crate) u64,
    pub(crate) i64,
    pub(crate) i64,
    pub(crate) Option<i64>,
    pub(crate) Option<i64>,
    pub(crate) Option<i64>,
    pub(crate) Option<i64>,
);
