//! Whose fault it is that a rank comes last to a collective: its own, or that of a rank that it waited for before.
//!
//! Each node inherits a note from what it waited for last: which rank took longer than its peers, and by how much. Where another
//! rank's excess joins, the greater one stays, less the other: the vote of Boyer and Moore, weighted by time. At a collective
//! the note of the last arrival is whose fault that was. Notes begin anew with each step.

use std::collections::BTreeMap;

use super::dag::Node;
use super::job::Job;
use super::nodes::{Label, NO_STEP, Part};

/// By the rank that came last: by the rank that caused it, how often, and what the last one alone cost then, nanoseconds.
pub(crate) type Blame = BTreeMap<u32, BTreeMap<u32, (usize, i64)>>;

/// Looks at all collectives that several ranks come to. `typical` has, of nodes by number, what their peers take.
pub(crate) fn blame(job: &Job, typical: &[(Node, i64)]) -> Blame {
    let mut excess: Vec<i64> = vec![0; job.graph.len()];
    for (node, typical) in typical {
        excess[*node as usize] = job.graph.work[*node as usize].saturating_sub(*typical);
    }
    // By node: whose excess came along, and how much is left of it.
    let mut notes: Vec<(u32, i64)> = Vec::with_capacity(job.graph.len());
    let mut steps: Vec<u32> = Vec::with_capacity(job.graph.len());
    let mut found = Blame::new();
    for node in (0u32..).take(job.graph.len()) {
        let what = &job.what[node as usize];
        let before = job
            .graph
            .last_wait(node, &job.ends)
            .map(|(wait, _)| wait.of as usize);
        // What belongs to no step is of the one that it comes after.
        let step = match (what.step, before) {
            (NO_STEP, Some(before)) => steps[before],
            (step, _) => step,
        };
        let (mut whose, mut left) = match before {
            Some(before) if steps[before] == step => notes[before],
            _ => (u32::MAX, 0),
        };
        let own = excess[node as usize];
        if let (true, Some(rank)) = (own > 0, job.rank(node)) {
            if whose == rank {
                left = left.saturating_add(own);
            } else if own > left {
                (whose, left) = (rank, own - left);
            } else {
                left -= own;
            }
        }
        if let (Part::Meeting, Label::Collective(kind)) = (what.part, what.label)
            && !job.kinds[kind as usize].is_pair
            && let Some((last, cost)) = last_arrival(job, node)
        {
            let cause = if left > 0 { whose } else { last };
            let entry = found.entry(last).or_default().entry(cause).or_default();
            entry.0 += 1;
            entry.1 = entry.1.saturating_add(cost);
        }
        notes.push((whose, left));
        steps.push(step);
    }
    found
}

/// The rank that came last to a meeting, and how long after the last but one.
fn last_arrival(job: &Job, meeting: Node) -> Option<(u32, i64)> {
    let arrivals = job.graph.waits(meeting).iter().map(|wait| wait.of);
    let mut arrivals: Vec<(i64, Node)> = arrivals.map(|of| (job.ends[of as usize], of)).collect();
    arrivals.sort_unstable();
    let [.., (before, _), (end, last)] = arrivals.as_slice() else {
        return None;
    };
    let cost = end.saturating_sub(*before);
    Some((job.rank(*last)?, cost)).filter(|_| cost > 0)
}
