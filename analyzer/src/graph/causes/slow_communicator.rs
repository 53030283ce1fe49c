//! A communicator whose transfers take longer than the same ones of others like it.

use std::collections::{BTreeMap, BTreeSet};

use super::replay::Replay;
use super::{Candidate, MOST_TRIED, What, add};
use crate::facts::Facts;
use crate::finding::{CauseLink, Finding};
use crate::graph::nodes::{Label, Part};
use crate::units::duration;

/// A communicator by its label, and of one with transfers between pairs the pair.
type Links<'a> = (&'a str, &'a [u32]);

/// The one whose mending saves most.
pub(super) fn slow_communicator(replay: &Replay<'_>) -> Option<Candidate> {
    let job = replay.job;
    let links = |kind: u32| -> Links<'_> {
        let kind = &job.kinds[kind as usize];
        (kind.label(), &kind.ranks)
    };
    let count = (0u32..).take(job.kinds.len());
    if count.map(links).collect::<BTreeSet<_>>().len() < 2 {
        return None;
    }
    let of_node = |node: u32| match (replay.what(node).part, replay.what(node).label) {
        (Part::Communication, Label::Collective(kind)) => Some(links(kind)),
        _ => None,
    };
    let typical = replay.typical(|part| part == Part::Communication);
    // By communicator: what its transfers take longer than those of others like it.
    let mut longer: BTreeMap<Links<'_>, i64> = BTreeMap::new();
    for (node, typical) in &typical.work {
        if let Some(links) = of_node(*node) {
            add(
                longer.entry(links).or_default(),
                replay.work(*node).saturating_sub(*typical),
            );
        }
    }
    let mut worst: Vec<(i64, Links<'_>)> = longer
        .into_iter()
        .map(|(links, longer)| (longer, links))
        .collect();
    worst.sort_unstable_by(|a, b| b.cmp(a));
    let tried = worst.into_iter().take(MOST_TRIED).map(|(_, links)| {
        let remedy = typical.only(|node| of_node(node) == Some(links));
        (replay.saved(&[&remedy]), links, remedy)
    });
    let (saved, (name, ranks), remedy) = tried.max_by(|a, b| a.0.middle().total_cmp(&b.0.middle()))?;
    let kind = job
        .kinds
        .iter()
        .find(|kind| (kind.label(), &kind.ranks[..]) == (name, ranks))?;
    let changed = remedy.work.iter();
    let changed = changed.filter(|(node, work)| *work != replay.work(*node));
    let (mut own, mut others) = (0i64, 0i64);
    for (node, work) in changed {
        add(&mut own, replay.work(*node));
        add(&mut others, *work);
    }
    let members = i64::try_from(ranks.len()).unwrap_or(1).max(1);
    let (own_ns, others_ns) = (replay.a_step(own) / members, replay.a_step(others) / members);
    let listed: Vec<String> = ranks.iter().map(u32::to_string).collect();
    let finding = Finding {
        ranks: ranks.to_vec(),
        cause: vec![CauseLink {
            what: "collective".to_owned(),
            rank: None,
            name: kind.name.clone(),
            start_ns: None,
        }],
        ..Finding::new(
            Facts::SlowCommunicator {
                communicator: kind.communicator.clone(),
                communicator_name: kind.communicator_name.clone(),
                own_ns,
                others_ns,
            },
            format!(
                "The links between ranks {} (communicator {name}) are slower than those of others: look at the cables, the topology and who shares them",
                listed.join(", ")
            ),
            format!(
                "{} takes {} a step and rank there, where the same takes {} elsewhere",
                kind.name,
                duration(own_ns),
                duration(others_ns)
            ),
        )
    };
    Some(Candidate {
        what: What::Finding(Box::new(finding)),
        saved,
        remedy,
    })
}
