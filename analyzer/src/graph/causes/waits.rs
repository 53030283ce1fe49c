//! Hosts that wait for their GPU where they need not.

use gputrace_trace::copy_words::PAGEABLE;
use rustc_hash::{FxHashMap, FxHashSet};

use super::candidate::{ByName, Candidate, Told, What, link};
use super::replay::{Remedy, Replay};
use crate::facts::Facts;
use crate::finding::Finding;
use crate::graph::dag::Node;
use crate::graph::nodes::{Label, NO_STEP, Part};
use crate::operations::Name;
use crate::units::duration;

/// The operations that a call waited for.
fn awaited<'a>(replay: &'a Replay<'_>, node: Node) -> impl Iterator<Item = Node> + 'a {
    let waits = replay.job.graph.waits(node).iter();
    waits
        .map(|wait| wait.of)
        .filter(|of| replay.what(*of).part.is_operation())
}

/// Whether an operation is a copy from or to pageable memory.
fn is_pageable(replay: &Replay<'_>, node: Node) -> bool {
    match replay.what(node).label {
        Label::Operation(Name::Copy {
            source, destination, ..
        }) => source == PAGEABLE || destination == PAGEABLE,
        _ => false,
    }
}

/// Calls that wait for the GPU within a step: the last one of each step is how the loop keeps pace with it, and stays.
pub(super) fn synchronization(replay: &Replay<'_>) -> Option<Candidate> {
    let job = replay.job;
    let blocked = replay.nodes(|what| what.part == Part::Blocked && what.step != NO_STEP);
    let mut last: FxHashMap<(u32, u16), Node> = FxHashMap::default();
    for node in &blocked {
        let what = replay.what(*node);
        let last = last.entry((what.step, what.device)).or_insert(*node);
        if job.ends[*last as usize] <= job.ends[*node as usize] {
            *last = *node;
        }
    }
    let mut remedy = Remedy::default();
    let mut by_name = ByName::default();
    for node in blocked {
        let what = replay.what(node);
        if last.get(&(what.step, what.device)) == Some(&node) {
            continue;
        }
        let of: Vec<Node> = awaited(replay, node)
            .filter(|of| !is_pageable(replay, *of))
            .collect();
        let Some(until) = of.iter().map(|of| job.ends[*of as usize]).max() else {
            continue;
        };
        // From what came before it on its thread.
        let before = job.graph.waits(node).iter().filter(|wait| !of.contains(&wait.of));
        let since = before
            .map(|wait| job.ends[wait.of as usize])
            .max()
            .unwrap_or(until);
        let waited = until.saturating_sub(since).max(0);
        by_name.add(replay, node, waited);
        remedy.dropped.extend(of.into_iter().map(|of| (node, of)));
    }
    let (.., most) = by_name.sorted(replay).into_iter().next()?;
    let saved = replay.saved(&[&remedy]);
    let devices = job.devices.len().max(1);
    let count = most.count.div_ceil(job.steps.len().max(1) * devices);
    let waits_ns = replay.a_step(most.total) / i64::try_from(devices).unwrap_or(1);
    let link = link(replay, "call", most.worst.1);
    let finding = Finding {
        cause: vec![link.clone()],
        ..Finding::new(
            Facts::Synchronization {
                name: link.name.clone(),
                count,
                waits_ns,
            },
            "The host waits for the GPU within the step, and the GPU for the host's next launches: leave out .item(), .cpu(), prints and \
             synchronizations, or do them at the step's end"
                .to_owned(),
            format!(
                "{} is called {count} times a step and rank before the step's last wait, and waits {}",
                link.name.trim_start_matches("call: "),
                duration(waits_ns)
            ),
        )
    };
    Some(Candidate {
        what: What::Finding(Box::new(finding)),
        saved,
        remedy,
    })
}

/// From pinned memory copies take at most this share of the time: "more than twice as fast" on the slowest machine of NVIDIA's
/// "How to Optimize Data Transfers in CUDA C/C++", and four times on today's links.
const PINNED: f64 = 0.5;

/// Copies from pageable memory, which their callers wait for and which are slower: from pinned memory nobody would wait for them,
/// and they would take up to [`PINNED`] of their time.
pub(super) fn pageable(replay: &Replay<'_>) -> Option<Candidate> {
    let copies = replay.nodes(|what| what.part == Part::Copy);
    let copies: Vec<Node> = copies
        .into_iter()
        .filter(|node| is_pageable(replay, *node))
        .collect();
    if copies.is_empty() {
        return None;
    }
    let mut dropped = FxHashSet::default();
    for node in replay.nodes(|what| what.part == Part::Blocked) {
        let of = awaited(replay, node).filter(|of| is_pageable(replay, *of));
        dropped.extend(of.map(|of| (node, of)));
    }
    let [slow, gone] = [PINNED, 0.0].map(|share| Remedy {
        work: copies
            .iter()
            .map(|node| (*node, (replay.work(*node) as f64 * share).round() as i64))
            .collect(),
        dropped: dropped.clone(),
        ..Remedy::default()
    });
    let (least, most) = (replay.saved(&[&slow]), replay.saved(&[&gone]));
    Some(Candidate {
        what: What::Told(Told::Pageable),
        saved: least.hull(most),
        remedy: gone,
    })
}
