//! What was lost, and what must be known to read the numbers right.

use std::collections::BTreeMap;

use gputrace_trace::hang::Hang;
use gputrace_trace::options::Kind as Asked;
use gputrace_trace::{Loss, Process, Recording};

use crate::analysis::RankAnalysis;
use crate::collective_parts::Parts;
use crate::collectives::Matched;
use crate::idle;
use crate::kinds::KindFrom;
use crate::operations::ProcessOperations;

/// What the analysis met on its way.
pub(crate) struct Found<'a> {
    pub(crate) operations: &'a [ProcessOperations],
    pub(crate) parts: &'a [Parts],
    pub(crate) matched: &'a Matched,
    /// A sentence, where the ranks' times do not overlap.
    pub(crate) disjoint: Option<&'a str>,
    pub(crate) too_much: TooMuch,
}

/// Devices of processes that have so many of them, beside so much else, that each can't have all of that.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TooMuch {
    /// Those whose steps are left out.
    pub(crate) steps: u64,
    /// Those of which it was not looked into all that the host did in their idle time.
    pub(crate) causes: u64,
}

impl TooMuch {
    pub(crate) fn add(&mut self, other: Self) {
        self.steps += other.steps;
        self.causes += other.causes;
    }
}

/// What was lost while recording, and in the analysis. What was not asked for is not lost.
pub(crate) fn losses(recording: &Recording, found: &Found<'_>, hangs: &[Hang]) -> Vec<Loss> {
    let processes = &recording.processes;
    let sum = |of: fn(&Parts) -> u64| found.parts.iter().map(of).sum::<u64>();
    let if_asked = |kind: Asked, count: u64| match recording.manifest.options.records(kind) {
        true => count,
        false => 0,
    };
    let mut losses = recording.losses.clone();
    let mut lose = |what: &str, count: u64, affects: &str| {
        if count > 0 {
            losses.push(Loss {
                what: what.to_owned(),
                count: Some(count),
                affects: affects.to_owned(),
            });
        }
    };
    lose(
        "operations that end before they start, left out",
        found.operations.iter().map(|process| process.backwards).sum(),
        "every duration",
    );
    lose(
        "operations with impossible times (beyond 73 years), left out",
        found.operations.iter().map(|process| process.impossible).sum(),
        "every number of their ranks",
    );
    lose(
        "collectives without a recorded kernel",
        if_asked(Asked::Kernels, sum(|parts| parts.without_kernel)),
        "wait, transfer and skew of those collectives",
    );
    lose(
        "NCCL kernels that none of the recorded operations is tied to",
        if_asked(Asked::Collectives, sum(|parts| parts.untold)),
        "matching over ranks; their time is counted under the communicator \"unknown\"",
    );
    lose(
        "collectives of processes that say no rank, beside others that do",
        found.matched.unranked,
        "matching over ranks, which they are left out of",
    );
    lose(
        "collectives on communicators of unknown size with fewer ranks here than the job has",
        found.matched.unknown_size,
        "wait, transfer and skew of those collectives, which are left out",
    );
    lose(
        "operations whose launch call is not recorded",
        if_asked(
            Asked::Calls,
            found.operations.iter().map(|process| process.without_call).sum(),
        ),
        "idle causes (unknown), host wait and launch statistics",
    );
    lose(
        "collectives of a kind of which the ranks have different numbers, so that order can't match them",
        found.matched.uneven,
        "wait, transfer and skew of those collectives",
    );
    lose(
        "matched collectives whose kernels do not run at one time on all ranks: their clocks differ, or the match is wrong",
        found.matched.apart,
        "wait, transfer and skew of those collectives, which are left out",
    );
    let clocks = recording.clocks.iter().flat_map(|alignment| &alignment.clocks);
    lose(
        "collectives whose times contradict those of the others on the same hosts: a wrong match, or a clock that was set",
        clocks.map(|clock| clock.contradicted).sum(),
        "the bounds of the clocks' offsets, which go by the others",
    );
    lose(
        "operations that begin before the call that launched them: stamps of host and device differ by more than a launch takes",
        found.operations.iter().map(|process| process.before_call).sum(),
        "launch latency, idle causes and HTA's host wait around them",
    );
    lose(
        "devices of processes that have more than 1,048,576 steps over all their devices: the steps of these are left out",
        found.too_much.steps,
        "the steps of those devices",
    );
    lose(
        "devices of processes with so many of them that it was not looked into all that the host did while they were idle",
        found.too_much.causes,
        "what host_late is made of on those devices, and peer_wait, queue_full and nothing_submitted beside it",
    );
    for alike in same_ranks(processes, found.operations) {
        lose(
            &alike,
            1,
            "whatever compares ranks: they are one rank's processes, or two runs",
        );
    }
    for apart in far_apart(found.operations, processes) {
        lose(&apart, 1, "span and idle time: are those times right?");
    }
    if let Some(disjoint) = found.disjoint {
        lose(
            disjoint,
            1,
            "idle before and after, and whatever compares ranks: left out",
        );
    }
    if let Some(silent_ns) = hangs.iter().map(|hang| hang.silent_ns).max() {
        lose(
            &format!(
                "the job hung: nothing of its last {:.0} s is in a span or an idle time, for nothing ended in them",
                silent_ns as f64 / 1e9
            ),
            1,
            "span and idle time, and every operation that was under way",
        );
    }
    losses
}

/// What is not as it should be with steps.
pub(crate) struct StepsOf {
    /// Processes that have none of the chosen ones.
    pub(crate) without: usize,
    /// Devices whose steps are the host's, for want of calls.
    pub(crate) by_host: usize,
}

/// What was ignored, rebuilt, assumed or not asked for.
pub(crate) fn notes(
    recording: &Recording,
    operations: &[ProcessOperations],
    ranks: &[RankAnalysis],
    steps: &StepsOf,
) -> Vec<String> {
    let processes = &recording.processes;
    let mut notes = recording.notes.clone();
    if steps.without > 0 {
        notes.push(format!(
            "{} of {} processes have none of the chosen steps and are left out of the ranks",
            steps.without,
            processes.len()
        ));
    }
    if steps.by_host > 0 {
        notes.push(format!(
            "no call that launched anything is recorded of {} of {} devices: a step there is what ran while the host was in \
             it, and not what it launched",
            steps.by_host,
            operations.iter().map(|process| process.devices.len()).sum::<usize>()
        ));
    }
    let mut by_name = operations
        .iter()
        .flat_map(|process| process.devices.values().flat_map(|operations| &operations.cut));
    if by_name.any(|operation| operation.kind_from == KindFrom::Name) {
        notes.push(
            "some communication kernels were told by their names alone: --explain lists them with the rule"
                .to_owned(),
        );
    }
    if ranks
        .iter()
        .any(|rank| rank.step_summary.as_ref().is_some_and(|summary| summary.detected))
    {
        notes.push(
            "no range names the steps: they are guessed from the pattern that operations repeat".to_owned(),
        );
    }
    if !recording.manifest.options.records(Asked::Calls) {
        notes.push(
            "calls were not recorded (--kinds): idle time has the cause \"unknown\", and there are no launch statistics"
                .to_owned(),
        );
    }
    let graphs: usize = processes
        .iter()
        .map(|process| process.tables.graph_launches.start_ns.len())
        .sum();
    if graphs > 0 {
        notes.push(format!(
            "{graphs} launches of CUDA graphs were recorded as wholes (--graphs graph): what ran in them counts as compute, \
             communication too"
        ));
    }
    notes
}

/// A sentence for each rank that several processes with operations say they are.
fn same_ranks(processes: &[Process], operations: &[ProcessOperations]) -> Vec<String> {
    let mut folders: BTreeMap<u32, Vec<&str>> = BTreeMap::new();
    for (process, operations) in processes.iter().zip(operations) {
        if let (Some(rank), false) = (process.header.rank, operations.devices.is_empty()) {
            folders.entry(rank).or_default().push(&process.folder);
        }
    }
    folders
        .into_iter()
        .filter(|(_, folders)| folders.len() > 1)
        .map(|(rank, folders)| {
            format!(
                "{} processes say that they are rank {rank}: {}",
                folders.len(),
                folders.join(", ")
            )
        })
        .collect()
}

/// A sentence for each device with a gap between operations that no profile has.
fn far_apart(operations: &[ProcessOperations], processes: &[Process]) -> Vec<String> {
    const A_DAY_NS: i64 = 24 * 3600 * 1_000_000_000;
    let mut found = Vec::new();
    for (process, operations) in processes.iter().zip(operations) {
        for (device, operations) in &operations.devices {
            let longest = idle::gaps(operations.uncut()).max_by_key(|(from, to, _)| to.saturating_sub(*from));
            if let Some((from, to, _)) = longest.filter(|(from, to, _)| to.saturating_sub(*from) > A_DAY_NS) {
                let days = to.saturating_sub(from) as f64 / A_DAY_NS as f64;
                found.push(format!(
                    "{}: GPU {device} has operations {days:.0} days apart",
                    process.folder
                ));
            }
        }
    }
    found
}
