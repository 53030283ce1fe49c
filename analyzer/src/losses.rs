//! What was lost, and what must be known to read the numbers right.

use std::collections::BTreeMap;

use gputrace_trace::hang::Hang;
use gputrace_trace::options::Kind as Asked;
use gputrace_trace::{Loss, Process, Recording};

use crate::alone::Alone;
use crate::analysis::RankAnalysis;
use crate::collectives::Matched;
use crate::counts::{Counts, TooMuch};

/// What the analysis met on its way.
pub(crate) struct Found<'a> {
    pub(crate) alone: &'a [Alone],
    pub(crate) matched: &'a Matched,
    /// A sentence, where the ranks' times do not overlap.
    pub(crate) disjoint: Option<&'a str>,
    pub(crate) too_much: TooMuch,
    /// Whether steps would be followed, if the processes had rows of them.
    pub(crate) not_carried: bool,
}

/// What was lost while recording, and in the analysis. What was not asked for is not lost.
pub(crate) fn losses(recording: &Recording, found: &Found<'_>, hangs: &[Hang]) -> Vec<Loss> {
    let processes = &recording.processes;
    let sum = |of: fn(&Counts) -> u64| found.alone.iter().map(|alone| of(&alone.counts)).sum::<u64>();
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
        sum(|counts| counts.backwards),
        "every duration",
    );
    lose(
        "operations with impossible times (beyond 73 years), left out",
        sum(|counts| counts.impossible),
        "every number of their ranks",
    );
    lose(
        "collectives without a recorded kernel",
        if_asked(Asked::Kernels, sum(|counts| counts.without_kernel)),
        "wait, transfer and skew of those collectives",
    );
    lose(
        "NCCL kernels that none of the recorded operations is tied to",
        if_asked(Asked::Collectives, sum(|counts| counts.untold)),
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
        if_asked(Asked::Calls, sum(|counts| counts.without_call)),
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
        sum(|counts| counts.before_call),
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
    for alike in same_ranks(processes, found.alone) {
        lose(
            &alike,
            1,
            "whatever compares ranks: they are one rank's processes, or two runs",
        );
    }
    for apart in found.alone.iter().flat_map(|alone| &alone.far_apart) {
        lose(apart, 1, "span and idle time: are those times right?");
    }
    if found.not_carried {
        lose(
            "no step that all ranks have is among those whose rows each rank keeps: ranks are missing, or recorded different steps",
            1,
            "critical path, and what findings save by replay",
        );
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

/// What was ignored, rebuilt, assumed or not asked for.
pub(crate) fn notes(recording: &Recording, alone: &[Alone], ranks: &[RankAnalysis]) -> Vec<String> {
    let processes = &recording.processes;
    let mut notes = recording.notes.clone();
    let sum = |of: fn(&Counts) -> u64| alone.iter().map(|alone| of(&alone.counts)).sum::<u64>();
    if let Some(status) = recording.manifest.exit_status.filter(|status| *status != 0) {
        notes.push(format!(
            "the command ended with status {status}: what it did not come to is in no number"
        ));
    }
    let without_steps = sum(|counts| counts.without_steps);
    if without_steps > 0 {
        notes.push(format!(
            "{without_steps} of {} processes have none of the chosen steps and are left out of the ranks",
            processes.len()
        ));
    }
    let by_host = sum(|counts| counts.by_host);
    if by_host > 0 {
        notes.push(format!(
            "no call that launched anything is recorded of {by_host} of {} devices: a step there is what ran while the host \
             was in it, and not what it launched",
            alone.iter().map(|process| process.used.len()).sum::<usize>()
        ));
    }
    if alone.iter().any(|process| process.counts.told_by_name) {
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
    let graphs = sum(|counts| counts.graph_launches);
    if graphs > 0 {
        notes.push(format!(
            "{graphs} launches of CUDA graphs were recorded as wholes (--graphs graph): what ran in them counts as compute, \
             communication too"
        ));
    }
    notes
}

/// A sentence for each rank that several processes with operations say they are.
fn same_ranks(processes: &[Process], alone: &[Alone]) -> Vec<String> {
    let mut folders: BTreeMap<u32, Vec<&str>> = BTreeMap::new();
    for (process, alone) in processes.iter().zip(alone) {
        if let (Some(rank), false) = (process.header.rank, alone.used.is_empty()) {
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
