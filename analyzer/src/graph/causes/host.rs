//! What the steps wait for on the host.

use super::candidate::{ByName, Candidate, MOST_TRIED, Told, WORTH_A_SENTENCE, What, link};
use super::replay::{Remedy, Replay};
use crate::graph::edits::{Change, Edit, Target};
use crate::graph::nodes::Label;

/// One name stands for all host work where mending it saves this share of what mending all does.
const MOST_OF_IT: f64 = 0.7;

/// What all hosts do, and the one thing that most of it is.
pub(super) fn host(replay: &Replay<'_>) -> Option<Candidate> {
    let none = |target| {
        replay.remedy(Edit {
            target,
            change: Change::None,
        })
    };
    let remedy = none(Target::Host)?;
    let saved = replay.saved(&[&remedy]);
    if saved.middle() < WORTH_A_SENTENCE * replay.baseline.kept_ns {
        return None;
    }
    let mut by_name = ByName::default();
    for node in replay.nodes(|what| what.part.is_host_work() && what.label != Label::None) {
        by_name.add(replay, node, replay.work(node));
    }
    let sorted = by_name.sorted(replay).into_iter();
    let tried = sorted.take(MOST_TRIED).map(|(_, label, named)| {
        let longest = named.worst.1;
        let nodes = replay.nodes(|what| what.part.is_host_work() && what.label == label);
        let remedy = Remedy {
            work: nodes.into_iter().map(|node| (node, 0)).collect(),
            ..Remedy::default()
        };
        (replay.saved(&[&remedy]), longest, remedy)
    });
    // Of equal ones the first.
    let best = tried.reduce(|a, b| if b.0.middle() > a.0.middle() { b } else { a });
    let one = best.filter(|(of_one, ..)| of_one.middle() >= MOST_OF_IT * saved.middle());
    let (saved, link, remedy) = match one {
        Some((saved, longest, remedy)) => (saved, Some(link(replay, "host", longest)), remedy),
        None => (saved, None, remedy),
    };
    Some(Candidate {
        what: What::Told(Told::Host(link)),
        saved,
        remedy,
    })
}

/// Hosts that wait for other ranks.
pub(super) fn peers(replay: &Replay<'_>) -> Option<Candidate> {
    let remedy = replay.remedy(Edit {
        target: Target::Idle("peer_wait".to_owned()),
        change: Change::None,
    })?;
    Some(Candidate {
        what: What::Told(Told::Peers),
        saved: replay.saved(&[&remedy]),
        remedy,
    })
}
