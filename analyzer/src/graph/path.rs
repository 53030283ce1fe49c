//! The critical path: what the time of the steps was spent on, followed backwards over ranks from the end of the last step.

use std::collections::BTreeMap;

use gputrace_trace::Interner;
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
    /// The path itself, by time; its pieces sum to the total as well.
    #[serde(skip)]
    pub pieces: Vec<Piece>,
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

fn what_of(part: Part) -> &'static str {
    match part {
        Part::Host => "host",
        Part::Call | Part::Blocked => "call",
        Part::Compute => "kernel",
        Part::Communication | Part::Arrival | Part::Meeting => "transfer",
        Part::Copy => "copy",
        Part::Memset => "memset",
    }
}

/// Follows the path of a job; with its pieces, which may be as many as operations, where they are wanted.
pub(crate) fn critical_path(job: &Job, names: &Interner, with_pieces: bool) -> CriticalPath {
    let ends = &job.ends;
    let (from, last) = job.followed(ends);
    let mut path = CriticalPath {
        steps: job.steps.len().saturating_sub(1).max(1),
        ..CriticalPath::default()
    };
    let Some(mut node) = last else { return path };
    let mut sums: BTreeMap<(&'static str, Option<u32>, Label), (u32, i64)> = BTreeMap::new();
    let mut at = ends[node as usize];
    path.total_ns = at.saturating_sub(from);
    let mut add = |what: &'static str, node: Node, start: i64, end: i64| {
        // What began before the first of the steps counts from there on.
        let (start, end) = (start.max(from), end);
        if start >= end {
            return;
        }
        let its = &job.what[node as usize];
        let device = &job.devices[its.device as usize];
        let label = if matches!(what, "latency" | "unexplained") {
            Label::None
        } else {
            its.label
        };
        let next = u32::try_from(sums.len()).unwrap_or(u32::MAX);
        let (part, sum) = sums.entry((what, device.rank, label)).or_insert((next, 0));
        *sum = sum.saturating_add(end.saturating_sub(start));
        if !with_pieces {
            return;
        }
        path.pieces.push(Piece {
            process: device.process,
            device_index: device.index,
            start_ns: job.origin.saturating_add(start),
            end_ns: job.origin.saturating_add(end),
            what,
            part: *part,
            row: row_of(its),
        });
    };
    while at > from {
        let index = node as usize;
        let began = ends[index].saturating_sub(job.graph.work[index]);
        add(what_of(job.what[index].part), node, began.min(at), at);
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
    path.pieces.reverse();
    let mut parts: Vec<(u32, PathPart)> = sums
        .into_iter()
        .map(|((what, rank, label), (met, time_ns))| {
            let name = label_text(job, label, names);
            (
                met,
                PathPart {
                    what,
                    name,
                    rank,
                    time_ns,
                },
            )
        })
        .collect();
    // Of equal ones the order must not be that in which names were met.
    parts.sort_by(|(_, a), (_, b)| {
        b.time_ns
            .cmp(&a.time_ns)
            .then_with(|| (a.what, a.rank, &a.name).cmp(&(b.what, b.rank, &b.name)))
    });
    let mut places = vec![0; parts.len()];
    for (place, (met, _)) in (0u32..).zip(&parts) {
        places[*met as usize] = place;
    }
    for piece in &mut path.pieces {
        piece.part = places[piece.part as usize];
    }
    path.parts = parts.into_iter().map(|(_, part)| part).collect();
    path
}
