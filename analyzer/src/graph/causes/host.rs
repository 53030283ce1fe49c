//! What the steps wait for on the host.

use std::collections::BTreeMap;

use super::candidate::{Candidate, MOST_TRIED, Told, WORTH_A_SENTENCE, What, link};
use super::replay::{Remedy, Replay};
use crate::graph::edits::{Change, Edit, Target};
use crate::graph::nodes::Label;

/// One name stands for all host work where mending it saves this share of what mending all does.
const MOST_OF_IT: f64 = 0.7;

/// What all hosts do, and the one thing that most of it is.
pub(super) fn host(replay: &Replay<'_>) -> Option<Candidate> {
    let job = replay.job;
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
    let mut by_label: BTreeMap<Label, (i64, u32)> = BTreeMap::new();
    for (node, what) in (0u32..).zip(&job.what) {
        if what.part.is_host_work() && what.label != Label::None {
            let entry = by_label.entry(what.label).or_insert((0, node));
            entry.0 = entry.0.saturating_add(replay.work(node));
            if replay.work(node) > replay.work(entry.1) {
                entry.1 = node;
            }
        }
    }
    let mut by_label: Vec<(i64, Label, u32)> = by_label
        .into_iter()
        .map(|(label, (work, node))| (work, label, node))
        .collect();
    by_label.sort_by(|a, b| b.cmp(a));
    let tried = by_label.into_iter().take(MOST_TRIED).map(|(_, label, longest)| {
        let nodes = replay.nodes(|what| what.part.is_host_work() && what.label == label);
        let remedy = Remedy {
            work: nodes.into_iter().map(|node| (node, 0)).collect(),
            ..Remedy::default()
        };
        (replay.saved(&[&remedy]), longest, remedy)
    });
    let best = tried.max_by(|a, b| a.0.middle().total_cmp(&b.0.middle()));
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
