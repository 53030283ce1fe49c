//! What things would take if they took as long as their peers: the same on other ranks.

use std::collections::BTreeMap;

use rustc_hash::{FxHashMap, FxHashSet};

use super::dag::Node;
use super::job::Job;
use super::nodes::{Label, Part};

/// Things that are compared with each other: in one step, of one kind, name and size.
type Place = (u32, Part, Label, Option<u32>);

/// What the nodes would take if it was as much as the median of their peers at the same place.
///
/// Peers are the same thing on other devices (of a collective: on other communicators of as many ranks), the same time in the
/// step; of the same size, where anybody has it in that size. Where they have it another number of times each takes as much of the mean as theirs. Where nobody else has it, or only
/// those that are changed themselves, it stays. With `whole_ranks` ranks that are changed are nobody's peers; else (of a kernel or
/// collective) all others are.
pub(crate) fn as_others(job: &Job, nodes: &[Node], whole_ranks: bool) -> Vec<i64> {
    let chosen: FxHashSet<Node> = nodes.iter().copied().collect();
    let parts: FxHashSet<Part> = nodes.iter().map(|node| job.what[*node as usize].part).collect();
    let mut works = FxHashMap::default();
    for of_size in [true, false] {
        let mut groups: FxHashMap<Place, FxHashMap<u64, Vec<Node>>> = FxHashMap::default();
        let mut alike: BTreeMap<(&str, usize), u32> = BTreeMap::new();
        for (node, what) in (0u32..).zip(&job.what) {
            if !parts.contains(&what.part) {
                continue;
            }
            let (label, group) = match what.label {
                Label::Collective(kind) => {
                    let its = &job.kinds[kind as usize];
                    let first = *alike.entry((&its.name, its.ranks.len())).or_insert(kind);
                    let group = (u64::from(kind) + 1) << 32 | u64::from(what.device);
                    (Label::Collective(first), group)
                }
                label => (label, u64::from(what.device)),
            };
            let size = of_size.then_some(what.size);
            let place = groups.entry((what.step, what.part, label, size)).or_default();
            place.entry(group).or_default().push(node);
        }
        for of_place in groups.values_mut() {
            compare(job, of_place, &chosen, whole_ranks, &mut works);
        }
    }
    let own = |node: &Node| job.graph.work[*node as usize];
    nodes
        .iter()
        .map(|node| works.get(node).copied().unwrap_or_else(|| own(node)))
        .collect()
}

/// Gives the chosen nodes of one place what their peers there take.
fn compare(
    job: &Job,
    of_place: &mut FxHashMap<u64, Vec<Node>>,
    chosen: &FxHashSet<Node>,
    whole_ranks: bool,
    works: &mut FxHashMap<Node, i64>,
) {
    for of_group in of_place.values_mut() {
        of_group.sort_by_key(|node| job.ends[*node as usize]);
    }
    let work = |node: &Node| job.graph.work[*node as usize];
    let total = |nodes: &[Node]| {
        nodes
            .iter()
            .fold(0i64, |sum, node| sum.saturating_add(work(node)))
    };
    let any_chosen = |nodes: &[Node]| nodes.iter().any(|node| chosen.contains(node));
    if of_place.len() > MOST_PEERS {
        compare_many(job, of_place, chosen, whole_ranks, works);
        return;
    }
    for (group, own) in &*of_place {
        let is_open = |node: &Node| chosen.contains(node) && !works.contains_key(node);
        if !own.iter().any(is_open) {
            continue;
        }
        let communicator = *group >> 32;
        let is_peer = |other: &u64, nodes: &[Node]| {
            other != group
                && (!whole_ranks || !any_chosen(nodes))
                && (communicator == 0 || *other >> 32 != communicator)
        };
        let peers: Vec<&Vec<Node>> = of_place
            .iter()
            .filter(|(other, nodes)| is_peer(other, nodes))
            .map(|(_, nodes)| nodes)
            .collect();
        let same: Vec<&&Vec<Node>> = peers.iter().filter(|nodes| nodes.len() == own.len()).collect();
        if !same.is_empty() {
            for (place, node) in own.iter().enumerate() {
                let mut theirs: Vec<i64> = same.iter().map(|nodes| work(&nodes[place])).collect();
                works.entry(*node).or_insert(median(&mut theirs));
            }
        } else if !peers.is_empty() {
            let mut totals: Vec<i64> = peers.iter().map(|nodes| total(nodes)).collect();
            let (theirs, total) = (median(&mut totals), total(own));
            let factor = if total > 0 {
                theirs as f64 / total as f64
            } else {
                1.0
            };
            for node in own {
                let as_theirs = (work(node) as f64 * factor).round() as i64;
                works.entry(*node).or_insert(as_theirs);
            }
        }
    }
}

/// With more peers than this each is compared with the median of all, itself among them: it hardly changes that, and comparing
/// each with each costs too much.
const MOST_PEERS: usize = 64;

/// The same for a place with many peers: those that have the thing the same number of times are compared.
fn compare_many(
    job: &Job,
    of_place: &FxHashMap<u64, Vec<Node>>,
    chosen: &FxHashSet<Node>,
    whole_ranks: bool,
    works: &mut FxHashMap<Node, i64>,
) {
    let any_chosen = |nodes: &[Node]| nodes.iter().any(|node| chosen.contains(node));
    let mut by_count: FxHashMap<usize, Vec<&Vec<Node>>> = FxHashMap::default();
    for nodes in of_place
        .values()
        .filter(|nodes| !whole_ranks || !any_chosen(nodes))
    {
        by_count.entry(nodes.len()).or_default().push(nodes);
    }
    let medians: FxHashMap<usize, Vec<i64>> = by_count
        .into_iter()
        .filter(|(_, alike)| alike.len() > 1)
        .map(|(count, alike)| {
            let at = |place: usize| {
                let mut theirs: Vec<i64> = alike
                    .iter()
                    .map(|nodes| job.graph.work[nodes[place] as usize])
                    .collect();
                median(&mut theirs)
            };
            (count, (0..count).map(at).collect())
        })
        .collect();
    for own in of_place.values() {
        let Some(medians) = medians.get(&own.len()) else {
            continue;
        };
        for (node, median) in own.iter().zip(medians) {
            if chosen.contains(node) {
                works.entry(*node).or_insert(*median);
            }
        }
    }
}

/// The median: of an even number the mean of the two in the middle.
fn median(values: &mut [i64]) -> i64 {
    values.sort_unstable();
    let middle = values.len() / 2;
    if values.len() % 2 == 1 {
        values[middle]
    } else {
        i64::midpoint(values[middle - 1], values[middle])
    }
}
