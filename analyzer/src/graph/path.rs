//! The critical path: what the time of the steps was spent on, followed backwards over ranks from the end of the last step.

use std::collections::BTreeMap;

use gputrace_trace::Interner;
use serde::Serialize;

use super::dag::Node;
use super::edits::label_text;
use super::job::Job;
use super::nodes::{Label, Part};

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

/// A stretch of the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Process, by its place in the recording.
    pub process: u32,
    /// Device index within it.
    pub device_index: u32,
    /// Start, as a stamp.
    pub start_ns: i64,
    /// End.
    pub end_ns: i64,
    /// As in [`PathPart`].
    pub what: &'static str,
    /// Row in its table, of a kernel, copy, memset or call.
    pub row: Option<u32>,
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

/// Follows the path of a job whose nodes took these works and gaps and ended at `ends`.
pub(crate) fn critical_path(job: &Job, names: &Interner) -> CriticalPath {
    let ends = &job.ends;
    let (from, last) = job.followed(ends);
    let mut path = CriticalPath {
        steps: job.steps.len().saturating_sub(1).max(1),
        ..CriticalPath::default()
    };
    let Some(mut node) = last else { return path };
    let mut sums: BTreeMap<(&'static str, Option<u32>, Label), i64> = BTreeMap::new();
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
        let sum = sums.entry((what, device.rank, label)).or_default();
        *sum = sum.saturating_add(end.saturating_sub(start));
        path.pieces.push(Piece {
            process: device.process,
            device_index: device.index,
            start_ns: job.origin.saturating_add(start),
            end_ns: job.origin.saturating_add(end),
            what,
            row: (its.part != Part::Meeting && its.part != Part::Arrival).then_some(its.row),
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
    path.parts = sums
        .into_iter()
        .map(|((what, rank, label), time_ns)| PathPart {
            what,
            name: label_text(job, label, names),
            rank,
            time_ns,
        })
        .collect();
    // Of equal ones the order must not be that in which names were met.
    path.parts.sort_by(|a, b| {
        b.time_ns
            .cmp(&a.time_ns)
            .then_with(|| (a.what, a.rank, &a.name).cmp(&(b.what, b.rank, &b.name)))
    });
    path
}
