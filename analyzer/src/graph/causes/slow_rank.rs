//! Ranks that take longer than the others for the same things.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::candidate::{ByName, Candidate, MOST_TRIED, Told, What, add, link};
use super::replay::{Remedy, Replay};
use crate::facts::Facts;
use crate::finding::{CauseLink, Finding};
use crate::graph::candidates;
use crate::graph::dag::Node;
use crate::graph::edits::label_text;
use crate::graph::nodes::{Label, Part};
use crate::graph::peers;
use crate::graph::whatif::Interval;
use crate::units::duration;

/// Several ranks are named together where that saves so many times what the best one alone does.
const TOGETHER: f64 = 1.3;
/// A rank is among the slow ones where it works so many times as long as the median.
const SLOW: f64 = 1.05;

/// Ranks whose kernels, copies and memsets take longer.
pub(super) fn on_device(replay: &Replay<'_>) -> Option<Candidate> {
    slow_ranks(replay, Part::is_device_work)
}

/// Ranks whose host works longer.
pub(super) fn on_host(replay: &Replay<'_>) -> Option<Candidate> {
    slow_ranks(replay, Part::is_host_work)
}

/// The rank whose operations begin late for no reason that any rule knows, where that costs most.
pub(super) fn unexplained(replay: &Replay<'_>) -> Option<Candidate> {
    let job = replay.job;
    let mut gaps: BTreeMap<u32, (i64, Vec<Node>)> = BTreeMap::new();
    for node in (0u32..).take(job.graph.len()) {
        let gap = job.graph.gap[node as usize];
        if let (true, Some(rank)) = (gap > 0 && !job.graph.waits(node).is_empty(), replay.rank(node)) {
            let (sum, nodes) = gaps.entry(rank).or_default();
            add(sum, gap);
            nodes.push(node);
        }
    }
    if gaps.len() < 2 {
        return None;
    }
    let (rank, (_, no_gap)) = gaps.into_iter().max_by_key(|(_, (sum, _))| *sum)?;
    let remedy = Remedy {
        no_gap,
        ..Remedy::default()
    };
    Some(Candidate {
        what: What::Told(Told::Late(rank)),
        saved: replay.saved(&[&remedy]),
        remedy,
    })
}

/// Adds to slow ranks that their clock is held down, and takes away the findings that say so alone.
pub(super) fn add_clocks(causes: &mut [Finding], findings: &mut Vec<Finding>) {
    findings.retain(|finding| {
        let Facts::ClockHeldDown {
            clock_mhz,
            greatest_mhz,
            ..
        } = &finding.facts
        else {
            return true;
        };
        let mut is_told = false;
        let slow = causes.iter_mut().filter(|cause| {
            matches!(&cause.facts, Facts::SlowRank { by, .. } if by == "kernel")
                && finding.rank.is_some_and(|rank| cause.ranks.contains(&rank))
        });
        for cause in slow {
            // One that is held down all the time never showed what it could be.
            let of = if *greatest_mhz > 1.01 * *clock_mhz {
                format!(" of {greatest_mhz:.0}")
            } else {
                String::new()
            };
            let name = format!("held down at {clock_mhz:.0}{of} MHz");
            cause.evidence = format!("{}; its clock is {name}", cause.evidence);
            let link = CauseLink {
                what: "clock".to_owned(),
                rank: finding.rank,
                name,
                start_ns: None,
            };
            cause.cause.insert(0, link);
            is_told = true;
        }
        !is_told
    });
}

/// Ranks as the others in what is meant, where that saves most.
fn slow_ranks(replay: &Replay<'_>, is_meant: fn(Part) -> bool) -> Option<Candidate> {
    let job = replay.job;
    let typical = replay.typical(is_meant);
    // By rank: what it works longer than its peers.
    let mut longer: BTreeMap<u32, i64> = job
        .devices
        .iter()
        .filter_map(|device| Some((device.rank?, 0)))
        .collect();
    for (node, typical) in &typical.work {
        if let Some(longer) = replay.rank(*node).and_then(|rank| longer.get_mut(&rank)) {
            add(longer, replay.work(*node).saturating_sub(*typical));
        }
    }
    if longer.len() < 2 {
        return None;
    }
    let mut ranks: Vec<(u32, i64)> = longer.iter().map(|(rank, longer)| (*rank, *longer)).collect();
    ranks.sort_by_key(|(rank, longer)| (Reverse(*longer), *rank));
    let mut tried: Vec<(Vec<u32>, Interval, Remedy)> = Vec::new();
    for (rank, _) in ranks.iter().take(MOST_TRIED).filter(|(_, longer)| *longer > 0) {
        let remedy = typical.only(|node| replay.rank(node) == Some(*rank));
        tried.push((vec![*rank], replay.saved(&[&remedy]), remedy));
    }
    let mut sets: Vec<(i64, Vec<u32>)> = candidates::sets(job)
        .into_iter()
        .chain(all_slow(replay, is_meant))
        .map(|ranks| {
            let each = ranks.iter().filter_map(|rank| longer.get(rank));
            (each.fold(0i64, |sum, longer| sum.saturating_add(*longer)), ranks)
        })
        .collect();
    sets.sort_by(|a, b| b.cmp(a));
    sets.dedup();
    let sets = sets.into_iter().take(MOST_TRIED);
    for (_, ranks) in sets.filter(|(longer, _)| *longer > 0) {
        // None of them is another's peer.
        let of_set: BTreeSet<u32> = ranks.iter().copied().collect();
        let in_set = |node| replay.rank(node).is_some_and(|rank| of_set.contains(&rank));
        let nodes = replay.nodes(|what| is_meant(what.part));
        let nodes: Vec<Node> = nodes.into_iter().filter(|node| in_set(*node)).collect();
        let works = peers::as_others(job, &nodes, true, true);
        let remedy = replay.changing(nodes.into_iter().zip(works));
        tried.push((ranks, replay.saved(&[&remedy]), remedy));
    }
    let best = |several: bool| {
        let of_kind = tried.iter().filter(|(ranks, ..)| (ranks.len() > 1) == several);
        // Of sets that save the same the smaller one.
        of_kind.max_by(|a, b| {
            let key = |one: &(Vec<u32>, Interval, Remedy)| one.1.middle() * (1.0 - 0.02 * one.0.len() as f64);
            key(a).total_cmp(&key(b))
        })
    };
    let (ranks, saved, remedy) = match (best(false), best(true)) {
        (Some(one), Some(more)) if more.1.middle() <= TOGETHER * one.1.middle() => one,
        (_, Some(more)) => more,
        (one, None) => one?,
    };
    Some(Candidate {
        what: What::Finding(Box::new(finding(replay, ranks, remedy)?)),
        saved: *saved,
        remedy: remedy.clone(),
    })
}

/// All ranks that work longer than the median.
fn all_slow(replay: &Replay<'_>, is_meant: fn(Part) -> bool) -> Option<Vec<u32>> {
    let mut own: BTreeMap<u32, i64> = BTreeMap::new();
    for node in replay.nodes(|what| is_meant(what.part)) {
        if let Some(rank) = replay.rank(node) {
            add(own.entry(rank).or_default(), replay.work(node));
        }
    }
    let mut works: Vec<i64> = own.values().copied().collect();
    works.sort_unstable();
    let median = *works.get(works.len() / 2)? as f64;
    let slow: Vec<u32> = own
        .iter()
        .filter(|(_, work)| **work as f64 > SLOW * median)
        .map(|(rank, _)| *rank)
        .collect();
    (slow.len() > 1 && slow.len() * 2 <= own.len()).then_some(slow)
}

/// Says which ranks are slow, by what, and who waits for it.
fn finding(replay: &Replay<'_>, ranks: &[u32], remedy: &Remedy) -> Option<Finding> {
    // What most of it is: by kind and name.
    let mut lost = ByName::default();
    let mut by_part: BTreeMap<Part, i64> = BTreeMap::new();
    for (node, after) in &remedy.work {
        let less = replay.work(*node).saturating_sub(*after);
        lost.add(replay, *node, less);
        add(by_part.entry(replay.what(*node).part).or_default(), less);
    }
    let part = by_part.into_iter().max_by_key(|(_, lost)| *lost)?.0;
    let lost = lost.sorted(replay);
    let (_, label, most) = lost.into_iter().find(|(of, ..)| *of == part)?;
    let members = i64::try_from(ranks.len()).unwrap_or(1);
    let (own_ns, others_ns) = (
        replay.a_step(most.work) / members,
        replay.a_step(most.work.saturating_sub(most.total)) / members,
    );
    let by = part.word();
    let name = label_text(replay.job, label, replay.names);
    let (waited_ns, collective) = waited_for(replay, ranks);
    let listed: Vec<String> = ranks.iter().map(u32::to_string).collect();
    let (who, is, its) = match ranks {
        [one] => (format!("Rank {one}"), "is", "its"),
        _ => (format!("Ranks {}", listed.join(", ")), "are", "their"),
    };
    let text = match by {
        "kernel" => format!("{who} {is} slower than the others: {its} kernels take longer for the same work"),
        "host" | "call" => {
            format!("{who} {is} late: {its} host works longer between launches than those of the others")
        }
        _ => format!("{who} {is} slower than the others: {its} {by} operations take longer"),
    };
    let times = if others_ns > 0 {
        format!(", {:.2} times as long", own_ns as f64 / others_ns as f64)
    } else {
        String::new()
    };
    let waits = if waited_ns > 0 {
        format!(
            "; the other ranks wait {} a step for it in {collective}",
            duration(waited_ns)
        )
    } else {
        String::new()
    };
    let evidence = format!(
        "most of it {by} {name}: {} a step against {} on the others{times}{waits}",
        duration(own_ns),
        duration(others_ns)
    );
    let mut cause = vec![link(replay, by, most.worst.1)];
    if waited_ns > 0 {
        cause.push(CauseLink {
            what: "collective".to_owned(),
            rank: None,
            name: collective,
            start_ns: None,
        });
    }
    let facts = Facts::SlowRank {
        by: by.to_owned(),
        name,
        own_ns,
        others_ns,
        waited_ns,
    };
    Some(Finding {
        rank: match ranks {
            [one] => Some(*one),
            _ => None,
        },
        ranks: ranks.to_vec(),
        cause,
        ..Finding::new(facts, text, evidence)
    })
}

/// How long another rank waits in collectives for one of these to come, in the mean of a step, and in which most.
fn waited_for(replay: &Replay<'_>, ranks: &[u32]) -> (i64, String) {
    let job = replay.job;
    let is_one_of_them = |node: Node| replay.rank(node).is_some_and(|rank| ranks.contains(&rank));
    let mut waited: BTreeMap<u32, i64> = BTreeMap::new();
    for (node, what) in (0u32..).zip(&job.what) {
        let (Part::Meeting, Label::Collective(kind)) = (what.part, what.label) else {
            continue;
        };
        let arrivals = job.graph.waits(node);
        let last = arrivals.iter().max_by_key(|wait| job.ends[wait.of as usize]);
        let Some(last) = last.filter(|last| is_one_of_them(last.of)) else {
            continue;
        };
        for other in arrivals.iter().filter(|wait| !is_one_of_them(wait.of)) {
            let wait = job.ends[last.of as usize].saturating_sub(job.ends[other.of as usize]);
            add(waited.entry(kind).or_default(), wait);
        }
    }
    let all: BTreeSet<u32> = job.devices.iter().filter_map(|device| device.rank).collect();
    let others = all.len().saturating_sub(ranks.len()).max(1);
    let total = waited
        .values()
        .fold(0i64, |sum, waited| sum.saturating_add(*waited));
    let most = waited.into_iter().max_by_key(|(_, waited)| *waited);
    let name = most.map_or_else(String::new, |(kind, _)| job.kinds[kind as usize].name.clone());
    (replay.a_step(total) / i64::try_from(others).unwrap_or(1), name)
}
