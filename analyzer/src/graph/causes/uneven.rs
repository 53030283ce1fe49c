//! Work that is dealt unevenly: over ranks, and over steps.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

use rustc_hash::{FxHashMap, FxHasher};

use super::candidate::{ByName, Candidate, What, add, link};
use super::replay::{Remedy, Replay};
use crate::facts::Facts;
use crate::finding::Finding;
use crate::graph::dag::Node;
use crate::graph::hidden::{Thing, things};
use crate::graph::nodes::{NO_STEP, Part};
use crate::graph::peers;
use crate::units::duration;

/// A rank has more than its share from so many times the mean on.
const MORE: f64 = 1.05;
/// With fewer steps nobody can say which are as usual.
const LEAST_STEPS: usize = 4;
/// What takes so many times as long as in most steps, and so much longer, is not as usual: nanoseconds.
const UNUSUAL: f64 = 1.5;
const UNUSUAL_NS: i64 = 20_000;
/// A step is long from so many times the median on.
const LONG_STEP: f64 = 1.1;

/// What one device computes in a step.
#[derive(Default)]
struct Share {
    nodes: Vec<Node>,
    total: i64,
    /// Of the launches' names and sizes, whatever their order: equal where the same work was dealt.
    dealt: u64,
}

/// Ranks whose kernels have other sizes or numbers than those of others, or that are other stages of a pipeline: the work was
/// dealt so. Mended, each computes the mean.
pub(super) fn work(replay: &Replay<'_>) -> Option<Candidate> {
    let mut steps: BTreeMap<u32, BTreeMap<u16, Share>> = BTreeMap::new();
    for node in replay.nodes(|what| what.part == Part::Compute && what.step != NO_STEP) {
        let what = replay.what(node);
        let share = steps
            .entry(what.step)
            .or_default()
            .entry(what.device)
            .or_default();
        let mut hasher = FxHasher::default();
        (what.label, what.size).hash(&mut hasher);
        share.dealt = share.dealt.wrapping_add(hasher.finish());
        add(&mut share.total, replay.work(node));
        share.nodes.push(node);
    }
    // Where roles differ, equal launches need not be equal work.
    let roles = peers::roles(replay.job);
    let mut remedy = Remedy::default();
    let mut totals: BTreeMap<u32, i64> = BTreeMap::new();
    let mut slowest: BTreeMap<u32, usize> = BTreeMap::new();
    let (mut uneven, mut most): (usize, Option<(i64, Node)>) = (0, None);
    for shares in steps.values() {
        let total: i128 = shares.values().map(|share| i128::from(share.total)).sum();
        let mean = total as f64 / shares.len().max(1) as f64;
        let mut worst: Option<(i64, u32)> = None;
        for share in shares.values() {
            if let Some(rank) = share.nodes.first().and_then(|node| replay.rank(*node)) {
                add(totals.entry(rank).or_default(), share.total);
                worst = worst.max(Some((share.total, rank)));
            }
        }
        let mut dealt = shares
            .iter()
            .map(|(device, share)| (share.dealt, roles[*device as usize]));
        let first = dealt.next();
        if dealt.all(|one| Some(one) == first) {
            continue;
        }
        uneven += 1;
        if let Some((_, rank)) = worst {
            *slowest.entry(rank).or_default() += 1;
        }
        for share in shares.values().filter(|share| share.total > 0) {
            let factor = mean / share.total as f64;
            for node in &share.nodes {
                let work = (replay.work(*node) as f64 * factor).round() as i64;
                remedy.work.push((*node, work));
                let less = replay.work(*node).saturating_sub(work);
                // Of equal ones the first.
                let key = |(less, node): (i64, Node)| (less, Reverse(replay.job.ends[node as usize]));
                if most.is_none_or(|most| key((less, *node)) > key(most)) {
                    most = Some((less, *node));
                }
            }
        }
    }
    let (_, node) = most?;
    let sum: i128 = totals.values().map(|total| i128::from(*total)).sum();
    let mean = sum as f64 / totals.len().max(1) as f64;
    let more = totals.iter().filter(|(_, total)| **total as f64 > MORE * mean);
    let ranks: Vec<u32> = more.map(|(rank, _)| *rank).collect();
    let (worst, most_ns) = totals.iter().max_by_key(|(_, total)| **total)?;
    let (often, times) = (
        slowest.values().copied().max().unwrap_or(0),
        *most_ns as f64 / mean.max(1.0),
    );
    let differs = often * 2 < uneven;
    let evidence = if differs {
        format!(
            "no one rank is to blame: the one with most to do differs from step to step, and none has most in more than {often} of {uneven} steps"
        )
    } else {
        format!(
            "rank {worst} computes {} a step, {times:.2} times the mean of all, in kernels of other sizes or numbers or as another stage",
            duration(replay.a_step(*most_ns))
        )
    };
    if ranks.is_empty() && !differs {
        return None;
    }
    let finding = Finding {
        rank: match ranks.as_slice() {
            [one] if !differs => Some(*one),
            _ => None,
        },
        ranks,
        cause: vec![link(replay, "kernel", node)],
        ..Finding::new(
            Facts::UnevenWork {
                most_ns: replay.a_step(*most_ns),
                mean_ns: replay.a_step(mean as i64),
                differs_by_step: differs,
            },
            "Work is dealt unevenly over the ranks: give each the same number of samples or tokens, and stages that take equally long"
                .to_owned(),
            evidence,
        )
    };
    Some(Candidate {
        what: What::Finding(Box::new(finding)),
        saved: replay.saved(&[&remedy]),
        remedy,
    })
}

/// What only some steps do, or take far longer for: mended, each step is as most are.
pub(super) fn steps(replay: &Replay<'_>) -> Option<Candidate> {
    let job = replay.job;
    if job.steps.len() < LEAST_STEPS {
        return None;
    }
    let is_meant = |part: Part| part.is_own() || part == Part::Communication;
    let things = things(&job.what, &job.ends, is_meant);
    let mut by_thing: FxHashMap<Thing, Vec<Node>> = FxHashMap::default();
    for node in replay.nodes(|what| is_meant(what.part) && what.step != NO_STEP) {
        by_thing.entry(things[node as usize]).or_default().push(node);
    }
    let mut remedy = Remedy::default();
    let mut by_name = ByName::default();
    let mut by_rank: BTreeMap<u32, i64> = BTreeMap::new();
    let mut works: Vec<i64> = Vec::with_capacity(job.steps.len());
    for nodes in by_thing.into_values() {
        // In steps that lack it it takes no time.
        works.clear();
        works.extend(nodes.iter().map(|node| replay.work(*node)));
        works.sort_unstable();
        let all = job.steps.len().max(works.len());
        let usual = (all / 2)
            .checked_sub(all - works.len())
            .map_or(0, |place| works[place]);
        for node in nodes {
            let work = replay.work(node);
            let more = work.saturating_sub(usual);
            if more < UNUSUAL_NS || (work as f64) < UNUSUAL * usual as f64 {
                continue;
            }
            remedy.work.push((node, usual));
            by_name.add(replay, node, more);
            if let Some(rank) = replay.rank(node) {
                add(by_rank.entry(rank).or_default(), more);
            }
        }
    }
    let (part, _, most_of_it) = by_name.sorted(replay).into_iter().next()?;
    let worst = most_of_it.worst.1;
    let mut times: Vec<i64> = job.measured.clone();
    times.sort_unstable();
    let median = times.get(times.len() / 2).copied().unwrap_or(0);
    let is_long = |time: &i64| *time as f64 > LONG_STEP * median as f64;
    let timed = job.measured.iter().zip(job.timed());
    let long: Vec<String> = timed
        .filter(|(time, _)| is_long(time))
        .map(|(_, step)| job.steps[step].name.clone())
        .collect();
    if long.is_empty() {
        return None;
    }
    let most = by_rank.values().copied().max().unwrap_or(0);
    let ranks: Vec<u32> = by_rank
        .into_iter()
        .filter(|(_, more)| *more > most / 2)
        .map(|(rank, _)| rank)
        .collect();
    let by = part.word();
    let link = link(replay, by, worst);
    let evidence = format!(
        "{} of {} steps, among them {}; the median is {}; most of it {by} {}, {} in one of them",
        long.len(),
        job.measured.len(),
        long.iter()
            .take(5)
            .map(String::as_str)
            .collect::<Vec<_>>()
            .join(", "),
        duration(median),
        link.name,
        duration(replay.work(worst))
    );
    let finding = Finding {
        rank: match ranks.as_slice() {
            [one] => Some(*one),
            _ => None,
        },
        ranks,
        cause: vec![link],
        ..Finding::new(
            Facts::UnevenSteps {
                count: job.measured.len(),
                steps: long,
                median_ns: median,
            },
            "Some steps take much longer than the others: look at what only they do".to_owned(),
            evidence,
        )
    };
    Some(Candidate {
        what: What::Finding(Box::new(finding)),
        saved: replay.saved(&[&remedy]),
        remedy,
    })
}
