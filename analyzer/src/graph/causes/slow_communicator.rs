//! A communicator whose transfers take longer than the same ones of others like it, or than its links should.

use std::collections::BTreeMap;

use super::candidate::{Candidate, MOST_TRIED, What, add};
use super::replay::Replay;
use crate::collectives::bus_factor;
use crate::facts::Facts;
use crate::finding::{CauseLink, Finding};
use crate::graph::nodes::{Label, Part};
use crate::units::{duration, three_digits};

/// A communicator by its label, and of one with transfers between pairs the pair.
type Links<'a> = (&'a str, &'a [u32]);

/// Large transfers reach this share of what NVLinks carry, and more: NCCL's own tests have 0.78 (A100) to 0.82 (H100, rings) and
/// more with NVLink's own reductions.
const REACHED: f64 = 0.7;
/// Links are slow where transfers take so many times what they take at that.
const TIMES: f64 = 1.5;
/// A transfer is large where it takes at least this long at that: what it costs besides its bytes hardly counts.
const LARGE_NS: f64 = 200_000.0;

/// The one whose mending saves most.
pub(super) fn slow_communicator(replay: &Replay<'_>) -> Option<Candidate> {
    let job = replay.job;
    let links = |kind: u32| -> Links<'_> {
        let kind = &job.kinds[kind as usize];
        (kind.label(), &kind.ranks)
    };
    let of_node = |node: u32| match (replay.what(node).part, replay.what(node).label) {
        (Part::Communication, Label::Collective(kind)) => Some(links(kind)),
        _ => None,
    };
    let by_peers = replay.typical(|part| part == Part::Communication);
    let mut works: BTreeMap<u32, i64> = by_peers.work.into_iter().collect();
    // Where its links are known none need be beside it.
    for node in replay.nodes(|what| what.part == Part::Communication) {
        if let Some(expected) = by_link(replay, node) {
            let work = works.entry(node).or_insert(expected);
            *work = (*work).min(expected);
        }
    }
    let typical = replay.changing(works.into_iter());
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
    let than = match kind.link {
        Some(link) => format!(
            "NVLinks that carry {} GB/s are up between them",
            three_digits(link)
        ),
        None => "the same takes less elsewhere".to_owned(),
    };
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
                link_gb_per_s: kind.link,
            },
            format!(
                "The links between ranks {} (communicator {name}) are slower than they should be: look at the cables, the topology and who shares them",
                listed.join(", ")
            ),
            format!(
                "{} takes {} a step and rank there where {} is to be expected: {than}",
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

/// What a large transfer takes where links are healthy, if it takes far longer; `None` where they are not known.
fn by_link(replay: &Replay<'_>, node: u32) -> Option<i64> {
    let what = replay.what(node);
    // Sizes are known up to 4 GB.
    let (Label::Collective(kind), true) = (what.label, what.size < u32::MAX) else {
        return None;
    };
    let kind = &replay.job.kinds[kind as usize];
    let bytes = f64::from(what.size) * bus_factor(&kind.name, kind.ranks.len() as f64);
    // GB/s are bytes a nanosecond.
    let expected = bytes / (REACHED * kind.link?);
    (expected >= LARGE_NS && replay.work(node) as f64 > TIMES * expected).then_some(expected as i64)
}
