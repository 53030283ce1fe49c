//! The critical path: what the time of the steps was spent on, followed backwards over ranks from the end of the last step.

use std::collections::BTreeMap;

use gputrace_trace::Interner;
use rustc_hash::FxHashMap;
use serde::Serialize;

use super::dag::Node;
use super::edits::label_text;
use super::job::Job;
use super::nodes::{Label, Part, What};
use super::piece::{PathTable, Piece};
use crate::operations::Name;

/// What the steps' time was spent on, one thing at a time: whatever the next thing was waiting for.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CriticalPath {
    /// The time of the steps that were followed.
    pub total_ns: i64,
    /// How many steps that are.
    pub steps: usize,
    /// By what, name and rank, longest first; they sum to the total.
    pub parts: Vec<PathPart>,
}

/// One kind of thing on the path.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PathPart {
    /// "kernel", "transfer", "copy", "memset", "host", "call", "latency" (of launches, and from one operation to the next) or "unexplained".
    pub what: &'static str,
    /// Of a kernel its short name, of a transfer the collective's, of the host what it was doing.
    pub name: String,
    /// Whose; null where that is not known.
    pub rank: Option<u32>,
    /// Its time on the path.
    pub time_ns: i64,
}

/// Where a node is recorded; nothing of the moment when all ranks met.
fn row_of(what: &What) -> Option<(PathTable, u32)> {
    let table = match (what.part, what.label) {
        (Part::Meeting, _) => return None,
        (Part::Host | Part::Call | Part::Blocked, _) => PathTable::ApiCalls,
        (_, Label::Operation(Name::Graph { .. })) => PathTable::GraphLaunches,
        (Part::Copy, _) => PathTable::Copies,
        (Part::Memset, _) => PathTable::Memsets,
        (Part::Compute | Part::Communication | Part::Arrival, _) => PathTable::Kernels,
    };
    Some((table, what.row))
}

/// What the steps of a job spent their time on.
pub(crate) fn critical_path(job: &Job, names: &Interner) -> CriticalPath {
    // A tree does not hold two tables while it grows: there may be as many names as operations.
    let mut sums: BTreeMap<Key, i64> = BTreeMap::new();
    let (total_ns, steps) = follow(job, |key, _, start, end| {
        let sum = sums.entry(key).or_default();
        *sum = sum.saturating_add(end.saturating_sub(start));
    });
    // Two names may be the same in short.
    let mut merged: BTreeMap<(&'static str, Option<u32>, String), i64> = BTreeMap::new();
    for ((what, rank, label), time_ns) in sums {
        let sum = merged
            .entry((what, rank, label_text(job, label, names)))
            .or_default();
        *sum = sum.saturating_add(time_ns);
    }
    let mut parts: Vec<PathPart> = Vec::with_capacity(merged.len());
    parts.extend(merged.into_iter().map(|((what, rank, name), time_ns)| PathPart {
        what,
        name,
        rank,
        time_ns,
    }));
    parts.sort_by_key(|part| std::cmp::Reverse(part.time_ns));
    CriticalPath {
        total_ns,
        steps,
        parts,
    }
}

/// The path itself, by time; its pieces sum to the total as well. There may be as many as operations.
pub(crate) fn pieces(job: &Job, path: &CriticalPath, names: &Interner) -> Vec<Piece> {
    let places: FxHashMap<(&str, Option<u32>, &str), u32> = path
        .parts
        .iter()
        .map(|part| (part.what, part.rank, part.name.as_str()))
        .zip(0..)
        .collect();
    let mut part_of: FxHashMap<Key, u32> = FxHashMap::default();
    let mut pieces = Vec::new();
    follow(job, |key, node, start, end| {
        let part = *part_of.entry(key).or_insert_with(|| {
            let (what, rank, label) = key;
            let name = label_text(job, label, names);
            places.get(&(what, rank, name.as_str())).copied().unwrap_or(0)
        });
        let its = &job.what[node as usize];
        let device = &job.devices[its.device as usize];
        pieces.push(Piece {
            process: device.process,
            device_index: device.index,
            start_ns: job.origin.saturating_add(start),
            end_ns: job.origin.saturating_add(end),
            what: key.0,
            part,
            row: row_of(its),
        });
    });
    pieces.reverse();
    pieces
}

/// What a piece is, whose, and its name.
type Key = (&'static str, Option<u32>, Label);

/// Follows the path backwards and visits its pieces: what they are, of which node, start and end since the origin. Returns the
/// time of the steps that were followed, and how many they are.
fn follow(job: &Job, mut visit: impl FnMut(Key, Node, i64, i64)) -> (i64, usize) {
    let ends = &job.ends;
    let (from, last) = job.followed(ends);
    let steps = job.steps.len().saturating_sub(1).max(1);
    let Some(mut node) = last else { return (0, steps) };
    let mut at = ends[node as usize];
    let total_ns = at.saturating_sub(from);
    let mut add = |what: &'static str, node: Node, start: i64, end: i64| {
        // What began before the first of the steps counts from there on.
        let start = start.max(from);
        if start < end {
            let label = match what {
                "latency" | "unexplained" => Label::None,
                _ => job.what[node as usize].label,
            };
            visit((what, job.rank(node), label), node, start, end);
        }
    };
    while at > from {
        let index = node as usize;
        let began = ends[index].saturating_sub(job.graph.work[index]);
        add(job.what[index].part.word(), node, began.min(at), at);
        at = at.min(began);
        let Some((wait, ready)) = job.graph.last_wait(node, ends) else {
            // It began on its own: what was before is not known.
            add("unexplained", node, from, at);
            break;
        };
        add("unexplained", node, ready, at);
        at = at.min(ready);
        let before = ends[wait.of as usize];
        add("latency", node, before, at);
        at = at.min(before);
        node = wait.of;
    }
    (total_ns, steps)
}
