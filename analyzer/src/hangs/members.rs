//! What each rank enqueued on each communicator, in its order, and how much of it is finished.

use std::collections::{BTreeMap, HashMap, HashSet};

use gputrace_trace::{NameId, Process, Recording};

use crate::collective_parts::COPY_ENGINE;

/// One operation as a rank enqueued it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Enqueued {
    pub(super) function: NameId,
    pub(super) dtype: NameId,
    pub(super) count: u64,
    pub(super) bytes: u64,
    pub(super) root: Option<i32>,
    /// Peer of a transfer, as a rank in the communicator.
    pub(super) peer: Option<u32>,
    pub(super) sequence: Option<u64>,
    plan: Option<u64>,
    /// When, nanoseconds since the epoch.
    pub(super) at_ns: i64,
}

impl Enqueued {
    /// What ranks must agree on.
    pub(super) fn signature(&self) -> (NameId, NameId, u64, Option<i32>) {
        (self.function, self.dtype, self.count, self.root)
    }
}

/// One rank of a communicator.
#[derive(Clone, Debug, Default)]
pub(super) struct Member {
    /// The process's place in the recording.
    pub(super) process: usize,
    /// Whether the process runs: one that does not waits for nothing, and its last records may be missing.
    pub(super) runs: bool,
    /// In the order in which they run: operations of one communicator follow each other, whatever their streams.
    pub(super) operations: Vec<Enqueued>,
    /// So many of them are finished.
    pub(super) done: usize,
    /// Those that are collectives, as places in `operations`.
    pub(super) collectives: Vec<usize>,
    /// Sends by receiver, and receives by sender.
    pub(super) sends: BTreeMap<u32, Vec<usize>>,
    pub(super) receives: BTreeMap<u32, Vec<usize>>,
}

impl Member {
    pub(super) fn is_finished(&self, place: usize) -> bool {
        place < self.done
    }

    /// Whether it waits in an operation.
    pub(super) fn waits_in(&self, place: usize) -> bool {
        self.runs && !self.is_finished(place)
    }

    /// Whether an operation is in the first kernel that has not finished: nothing of this communicator keeps it from running.
    pub(super) fn is_first(&self, place: usize) -> bool {
        let Some(first) = self.operations.get(self.done) else {
            return false;
        };
        place == self.done
            || place > self.done && first.plan.is_some() && self.operations[place].plan == first.plan
    }
}

/// One communicator.
#[derive(Clone, Debug, Default)]
pub(super) struct Communicator {
    pub(super) name: Option<String>,
    /// Ranks in it, recorded or not.
    pub(super) ranks: Option<u32>,
    /// The recorded ones.
    pub(super) members: BTreeMap<u32, Member>,
}

impl Communicator {
    /// Its ranks that no recorded process is.
    pub(super) fn not_recorded(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.ranks.unwrap_or(0)).filter(|rank| !self.members.contains_key(rank))
    }
}

/// The plans of a process whose kernels were recorded: a kernel's record is there when it has ended.
fn finished_plans(process: &Process) -> HashSet<u64> {
    let tables = &process.tables;
    let wanted: HashSet<u64> = tables.collectives.plan.iter().flatten().copied().collect();
    let external = &tables.external_correlations;
    let plans: HashMap<u32, u64> = external
        .correlation
        .iter()
        .zip(&external.id)
        .filter(|(_, plan)| wanted.contains(plan))
        .map(|(correlation, plan)| (*correlation, *plan))
        .collect();
    let ended = &tables.kernels.correlation;
    ended
        .iter()
        .filter_map(|correlation| plans.get(correlation).copied())
        .collect()
}

/// All communicators with what their ranks enqueued. Processes whose kernels were not recorded count as done with everything.
pub(super) fn communicators(
    recording: &Recording,
    runs: impl Fn(usize) -> bool,
) -> BTreeMap<u64, Communicator> {
    let mut all: BTreeMap<u64, Communicator> = BTreeMap::new();
    for (place, process) in recording.processes.iter().enumerate() {
        let described = &process.tables.communicators;
        for row in 0..described.communicator.len() {
            let communicator = all.entry(described.communicator[row]).or_default();
            communicator.ranks = communicator.ranks.max(Some(described.ranks[row]));
            if let Some(name) = described.name[row] {
                communicator.name = Some(recording.names.get(name).to_owned());
            }
            let member = communicator.members.entry(described.rank[row]).or_default();
            (member.process, member.runs) = (place, runs(place));
        }
        let finished = finished_plans(process);
        let rows = &process.tables.collectives;
        let names = |row: usize| recording.names.get(rows.function[row]);
        // Rows that NCCL told of by their calls alone come later than those around them.
        let mut order: Vec<usize> = (0..rows.start_ns.len()).collect();
        order.sort_by_key(|row| rows.start_ns[*row]);
        for row in order {
            let communicator = all.entry(rows.communicator[row]).or_default();
            let member = communicator.members.entry(rows.rank[row]).or_default();
            (member.process, member.runs) = (place, runs(place));
            let index = member.operations.len();
            let peer = rows.peer[row].and_then(|peer| u32::try_from(peer).ok());
            match (names(row), peer) {
                ("Send", Some(peer)) => member.sends.entry(peer).or_default().push(index),
                ("Recv", Some(peer)) => member.receives.entry(peer).or_default().push(index),
                _ => member.collectives.push(index),
            }
            let plan = rows.plan[row];
            // Captured ones run with their graph, as often as that is launched, and copies are not tied to theirs.
            let has_no_own_end = rows.graph_captured[row] != 0 || rows.source[row] == COPY_ENGINE;
            // Without a plan nothing tells of the end, and without CUPTI nothing ever does.
            let ended = has_no_own_end || plan.is_none_or(|plan| finished.contains(&plan));
            if ended || process.header.cupti_version.is_none() {
                member.done = index + 1;
            }
            member.operations.push(Enqueued {
                function: rows.function[row],
                dtype: rows.datatype[row],
                count: rows.count[row],
                bytes: rows.bytes[row],
                root: rows.root[row],
                peer,
                sequence: rows.sequence[row],
                plan,
                at_ns: rows.start_ns[row].0,
            });
        }
    }
    all
}
