//! A hang as it is told and kept: an operation of a communicator that some ranks wait in and others have not joined.

use serde::{Deserialize, Serialize};

use crate::time::TimeNs;

/// One operation that does not end, with who waits in it and what the others did instead.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Hang {
    /// The communicator's hash, in hexadecimal.
    pub communicator: String,
    /// Its name, where it has one.
    pub communicator_name: Option<String>,
    /// Ranks in it, recorded or not.
    pub communicator_ranks: Option<u32>,
    /// "AllReduce", ..., "Send" or "Recv".
    pub name: String,
    /// NCCL's number of it among those of its name; of a transfer, its place among those of its pair, from 0.
    pub sequence: Option<u64>,
    /// Elements, as NCCL counts them for this function.
    pub count: u64,
    /// "ncclFloat32", ...
    pub dtype: String,
    /// Bytes of `count` elements.
    pub bytes: u64,
    /// The ranks that have enqueued it and have not finished it.
    pub waiting: Vec<Waiting>,
    /// Those that it waits for; empty where all have joined and it does not end all the same.
    pub absent: Vec<Absent>,
    /// Operations enqueued earlier on this communicator by a rank that waits, which have no recorded end either.
    pub unfinished_before: u64,
    /// Whether another hang explains this one: all that it waits for wait there.
    pub follows: bool,
    /// How long no GPU of the job had finished anything when this was noticed.
    pub silent_ns: i64,
    /// When it was noticed, nanoseconds since the epoch.
    pub noticed_ns: TimeNs,
}

/// A rank that waits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Waiting {
    /// Its rank in the job, where that is known.
    pub rank: Option<u32>,
    /// Its rank in the communicator.
    pub communicator_rank: u32,
    /// When it enqueued the operation, nanoseconds since the epoch.
    pub since_ns: TimeNs,
}

/// A rank that the operation waits for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Absent {
    /// Its rank in the job, where that is known.
    pub rank: Option<u32>,
    /// Its rank in the communicator.
    pub communicator_rank: u32,
    /// "nothing" (it enqueued no more on this communicator), "other" (another operation), "differs" (the same with
    /// another size, type or root), "enqueued" (the same, but its process does not run any more), "behind" (it has enqueued it behind one that waits itself), "waits" (nothing, as it
    /// waits in another hang), or "not recorded".
    pub did: String,
    /// Its process: "running", "stopped", "ended"; "silent" where all that is known is that its recording ends before the
    /// others'.
    pub process: String,
    /// The same in words: what stands after "rank 3".
    pub text: String,
}
