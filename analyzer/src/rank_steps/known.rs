//! What the table is made of: what is known of a rank without the others.

use crate::analysis::RankAnalysis;
use crate::steps::StepAnalysis;

/// A communicator that a rank is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InCommunicator {
    /// Its hash, in hexadecimal.
    pub communicator: String,
    /// Its name, where it has one.
    pub name: Option<String>,
    /// Ranks in it; `None` where that is not known.
    pub ranks: Option<u32>,
    /// The rank's place in it; `None` where the source does not say.
    pub place: Option<u32>,
}

/// A device of a rank with its steps.
#[derive(Clone, Debug)]
pub struct KnownRank {
    /// The rank in the job, where it is known.
    pub rank: Option<u32>,
    /// Device index within the process.
    pub device_index: u32,
    /// The device's name, where it is known.
    pub device_name: Option<String>,
    /// Host of the process.
    pub host: String,
    /// Communicators of its process.
    pub communicators: Vec<InCommunicator>,
    /// Its steps, by time.
    pub steps: Vec<StepAnalysis>,
}

impl KnownRank {
    /// Of what an analysis says of it, without communicators.
    pub(super) fn of(rank: &RankAnalysis) -> Self {
        Self {
            rank: rank.rank,
            device_index: rank.device_index,
            device_name: rank.device_name.clone(),
            host: rank.host.clone(),
            communicators: Vec::new(),
            steps: rank.steps.clone(),
        }
    }
}
