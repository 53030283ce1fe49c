//! What things would take if they took as long as their peers: the same on other ranks.

use std::collections::BTreeMap;

use rustc_hash::{FxHashMap, FxHashSet};

use super::dag::Node;
use super::job::Job;
use super::nodes::{Label, Part};
use crate::statistics::median_ns;

/// Things that are compared with each other: in one step, of one kind, name and size.
type Place = (u32, Part, Label, Option<u32>);

/// What the nodes would take if it was as much as the median of their peers at the same place.
///
/// Peers are the same thing on other devices (of a collective: on other communicators of as many ranks), the same time in the
/// step; of the same size, where anybody has it in that size. Where they have it another number of times it takes so much of its
/// time as theirs is of all of it. Where nobody else has it, or only those that are changed themselves, it stays; but work that no
/// other host in the same role does is none that a host there would do. With
/// `whole_ranks` ranks that are changed are nobody's peers; else (of a kernel or collective) all others are. Those in the same role
/// come before all others. With `same_work` only what is surely the same is compared: in the same size, and on devices in the
/// same role. A stage of a pipeline may have
/// more to do than another under the same names, and the dimensions of a matrix product's launch don't tell how deep it is.
pub(crate) fn as_others(job: &Job, nodes: &[Node], whole_ranks: bool, same_work: bool) -> Vec<i64> {
    let mut changed = vec![false; job.devices.len()];
    if whole_ranks {
        for node in nodes {
            changed[job.what[*node as usize].device as usize] = true;
        }
    }
    let roles = roles(job);
    let mut unchanged: FxHashMap<u32, usize> = FxHashMap::default();
    for (role, changed) in roles.iter().zip(&changed) {
        *unchanged.entry(*role).or_default() += usize::from(!changed);
    }
    let among = Among {
        job,
        chosen: nodes.iter().copied().collect(),
        whole_ranks,
        same_work,
        roles,
        changed,
        unchanged,
    };
    let parts: FxHashSet<Part> = nodes.iter().map(|node| job.what[*node as usize].part).collect();
    let mut works = FxHashMap::default();
    let passes: &[bool] = if same_work { &[true] } else { &[true, false] };
    for &of_size in passes {
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
        for ((_, part, ..), of_place) in &mut groups {
            among.compare(*part, of_place, &mut works);
        }
    }
    let own = |node: &Node| job.graph.work[*node as usize];
    nodes
        .iter()
        .map(|node| works.get(node).copied().unwrap_or_else(|| own(node)))
        .collect()
}

/// By device: a number that those share that take part in the same kinds of collectives, as often a step. Stages of a pipeline
/// differ in it, replicas of one do not.
pub(crate) fn roles(job: &Job) -> Vec<u32> {
    let mut parts: Vec<BTreeMap<(&str, usize), usize>> = vec![BTreeMap::new(); job.devices.len()];
    for what in &job.what {
        if let (Part::Communication, Label::Collective(kind)) = (what.part, what.label) {
            let kind = &job.kinds[kind as usize];
            let part = (kind.name.as_str(), kind.ranks.len());
            *parts[what.device as usize].entry(part).or_default() += 1;
        }
    }
    let steps = job.steps.len().max(1);
    let mut known = BTreeMap::new();
    let roles = parts.into_iter().map(|mut parts| {
        // One that was cut off at the end makes no other role.
        parts
            .values_mut()
            .for_each(|count| *count = (*count + steps / 2) / steps);
        let next = known.len() as u32;
        *known.entry(parts).or_insert(next)
    });
    roles.collect()
}

/// What is compared with what.
struct Among<'a> {
    job: &'a Job,
    chosen: FxHashSet<Node>,
    whole_ranks: bool,
    same_work: bool,
    /// By device.
    roles: Vec<u32>,
    /// By device: whether it is changed as a whole.
    changed: Vec<bool>,
    /// By role: how many devices are not.
    unchanged: FxHashMap<u32, usize>,
}

/// With more peers than this each is compared with the median of all, itself among them: it hardly changes that, and comparing
/// each with each costs too much.
const MOST_PEERS: usize = 64;

impl Among<'_> {
    fn work(&self, node: Node) -> i64 {
        self.job.graph.work[node as usize]
    }

    fn any_chosen(&self, nodes: &[Node]) -> bool {
        nodes.iter().any(|node| self.chosen.contains(node))
    }

    fn role(&self, nodes: &[Node]) -> Option<u32> {
        let what = &self.job.what[*nodes.first()? as usize];
        Some(self.roles[what.device as usize])
    }

    /// Gives the chosen nodes of one place what their peers there take.
    fn compare(
        &self,
        part: Part,
        of_place: &mut FxHashMap<u64, Vec<Node>>,
        works: &mut FxHashMap<Node, i64>,
    ) {
        for of_group in of_place.values_mut() {
            of_group.sort_by_key(|node| self.job.ends[*node as usize]);
        }
        if of_place.len() > MOST_PEERS {
            self.compare_many(of_place, works);
            return;
        }
        let total = |nodes: &[Node]| {
            let each = nodes.iter();
            each.fold(0i64, |sum, node| sum.saturating_add(self.work(*node)))
        };
        for (group, own) in &*of_place {
            let is_open = |node: &Node| self.chosen.contains(node) && !works.contains_key(node);
            if !own.iter().any(is_open) {
                continue;
            }
            let communicator = *group >> 32;
            let is_peer = |other: &u64, nodes: &[Node]| {
                other != group
                    && (!self.whole_ranks || !self.any_chosen(nodes))
                    && (communicator == 0 || *other >> 32 != communicator)
            };
            let mut peers: Vec<&Vec<Node>> = of_place
                .iter()
                .filter(|(other, nodes)| is_peer(other, nodes))
                .map(|(_, nodes)| nodes)
                .collect();
            // Those in the same role, if there are any; others have other work.
            let in_role = |nodes: &Vec<Node>| communicator > 0 || self.role(nodes) == self.role(own);
            if self.same_work || peers.iter().any(|nodes| in_role(nodes)) {
                peers.retain(|nodes| in_role(nodes));
            }
            let same: Vec<&&Vec<Node>> = peers.iter().filter(|nodes| nodes.len() == own.len()).collect();
            if !same.is_empty() {
                for (place, node) in own.iter().enumerate() {
                    let mut theirs: Vec<i64> = same.iter().map(|nodes| self.work(nodes[place])).collect();
                    works.entry(*node).or_insert(median_ns(&mut theirs));
                }
                continue;
            }
            let mut totals: Vec<i64> = peers.iter().map(|nodes| total(nodes)).collect();
            // A host in the same role that does nothing of the kind takes no time for it.
            if part.is_host_work() {
                let without = self.without(own, of_place).min(totals.len() + 1);
                totals.resize(totals.len() + without, 0);
            }
            if totals.is_empty() {
                continue;
            }
            let (theirs, total) = (median_ns(&mut totals), total(own));
            let factor = if total > 0 {
                theirs as f64 / total as f64
            } else {
                1.0
            };
            for node in own {
                let as_theirs = (self.work(*node) as f64 * factor).round() as i64;
                works.entry(*node).or_insert(as_theirs);
            }
        }
    }

    /// How many devices in the same role as that of some nodes don't have what is at their place, and are nobody's that is changed.
    fn without(&self, own: &[Node], of_place: &FxHashMap<u64, Vec<Node>>) -> usize {
        let role = self.role(own);
        let there = of_place.keys().filter(|device| {
            let device = **device as usize;
            self.roles.get(device).copied() == role && !self.changed[device]
        });
        let all = role.and_then(|role| self.unchanged.get(&role)).copied();
        all.unwrap_or(0).saturating_sub(there.count())
    }

    /// The same for a place with many peers: those in one role that have the thing the same number of times are compared. Of a
    /// communicator, whose members all take part in the same transfers, the first one stands for all.
    fn compare_many(&self, of_place: &FxHashMap<u64, Vec<Node>>, works: &mut FxHashMap<Node, i64>) {
        let mut by_count: FxHashMap<(usize, Option<u32>), Vec<&Vec<Node>>> = FxHashMap::default();
        let mut seen: FxHashSet<u64> = FxHashSet::default();
        let key = |group: u64, nodes: &[Node]| {
            let role = self.role(nodes).filter(|_| self.same_work && group >> 32 == 0);
            (nodes.len(), role)
        };
        // In an order that does not depend on the table's.
        let mut groups: Vec<(&u64, &Vec<Node>)> = of_place.iter().collect();
        groups.sort_unstable_by_key(|(group, _)| **group);
        for (group, nodes) in groups {
            let stands_for_it = *group >> 32 == 0 || seen.insert(*group >> 32);
            if stands_for_it && (!self.whole_ranks || !self.any_chosen(nodes)) {
                by_count.entry(key(*group, nodes)).or_default().push(nodes);
            }
        }
        let medians: FxHashMap<(usize, Option<u32>), Vec<i64>> = by_count
            .into_iter()
            .filter(|(_, alike)| alike.len() > 1)
            .map(|(place, alike)| {
                let at = |place: usize| {
                    let mut theirs: Vec<i64> = alike.iter().map(|nodes| self.work(nodes[place])).collect();
                    median_ns(&mut theirs)
                };
                (place, (0..place.0).map(at).collect())
            })
            .collect();
        for (group, own) in of_place {
            let Some(medians) = medians.get(&key(*group, own)) else {
                continue;
            };
            for (node, median) in own.iter().zip(medians) {
                if self.chosen.contains(node) {
                    works.entry(*node).or_insert(*median);
                }
            }
        }
    }
}
