//! The jobs that a daemon watches: where this server is a daemon's, it passes on what that says of them.

use std::fmt;
use std::sync::Arc;

use serde_json::Value;

/// Why there is no answer, as one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoJobs {
    /// There is no such job.
    Unknown(String),
    /// The daemon does not answer now.
    Away(String),
}

/// Asks the daemon: of one job ("gputrace.job/1"), or without one of all ("gputrace.jobs/1").
pub type AskJobs = dyn Fn(Option<&str>) -> Result<Value, NoJobs> + Send + Sync;

/// A daemon that can be asked.
#[derive(Clone)]
pub struct Jobs(pub Arc<AskJobs>);

impl fmt::Debug for Jobs {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Jobs").finish_non_exhaustive()
    }
}
