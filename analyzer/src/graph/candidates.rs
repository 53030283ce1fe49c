//! Single changes that are worth trying on a job.

use std::collections::{BTreeMap, BTreeSet};

use gputrace_trace::Interner;

use super::edits::{Change, Edit, Target, label_text, works_by_label};
use super::job::Job;
use super::nodes::{Label, Part};
use crate::operations::Name;

/// Of kernels, communicators and host work the ones with most time are tried.
const MOST_EACH: usize = 6;
/// Ranks whose changes are tried one by one: of more those that compute longest.
const MOST_RANKS: usize = 16;

/// All of them.
pub(crate) fn candidates(job: &Job, names: &Interner) -> Vec<Edit> {
    let mut edits: Vec<Edit> = of_ranks(job);
    let several = edits.len() > 1;
    let mut add = |target, change| edits.push(Edit { target, change });
    let mut of_kind: BTreeMap<&'static str, BTreeMap<String, i64>> = BTreeMap::new();
    for ((part, label), work) in works_by_label(job) {
        let kind = match part {
            Part::Compute => "kernel",
            Part::Communication => "communicator",
            Part::Copy => "copy",
            Part::Host | Part::Call if label != Label::None => "host",
            _ => continue,
        };
        let name = match (kind, label) {
            ("communicator", Label::Collective(kind)) => job.kinds[kind as usize].label().to_owned(),
            ("communicator", _) => continue,
            ("copy", Label::Operation(Name::Copy { direction, .. })) => {
                gputrace_trace::copy_words::direction_name(direction).to_owned()
            }
            (_, label) => label_text(job, label, names),
        };
        let sum = of_kind.entry(kind).or_default().entry(name).or_default();
        *sum = sum.saturating_add(work);
    }
    let most = |kind: &str| -> Vec<String> {
        let mut found: Vec<(String, i64)> = of_kind
            .get(kind)
            .into_iter()
            .flatten()
            .map(|(name, work)| (name.clone(), *work))
            .collect();
        found.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        found
            .into_iter()
            .take(MOST_EACH)
            .filter(|(_, work)| *work > 0)
            .map(|(name, _)| name)
            .collect()
    };
    for name in most("kernel") {
        if several {
            add(Target::Kernel(name.clone()), Change::AsOthers);
        }
        add(Target::Kernel(name), Change::None);
    }
    if of_kind.contains_key("communicator") {
        add(Target::Communication, Change::None);
        let communicators = most("communicator");
        if communicators.len() > 1 {
            for name in communicators {
                add(Target::Communicator(name.clone()), Change::AsOthers);
                add(Target::Communicator(name), Change::None);
            }
        }
    }
    for name in most("copy") {
        add(Target::Copy(name), Change::None);
    }
    if of_kind.contains_key("host") {
        add(Target::Host, Change::None);
        for name in most("host") {
            add(Target::HostBy(name), Change::None);
        }
        add(Target::Idle("launch_latency".to_owned()), Change::None);
    }
    edits
}

/// Each rank as the others, those first that work longest, and sets of ranks; none of a single rank.
pub(crate) fn of_ranks(job: &Job) -> Vec<Edit> {
    let mut own: BTreeMap<u32, i64> = BTreeMap::new();
    for (node, what) in job.what.iter().enumerate() {
        if let (true, Some(rank)) = (what.part.is_own(), job.devices[what.device as usize].rank) {
            let sum = own.entry(rank).or_default();
            *sum = sum.saturating_add(job.graph.work[node]);
        }
    }
    if own.len() < 2 {
        return Vec::new();
    }
    let mut ranks: Vec<(u32, i64)> = own.into_iter().collect();
    ranks.sort_by_key(|(rank, work)| (std::cmp::Reverse(*work), *rank));
    let each = ranks.iter().take(MOST_RANKS).map(|(rank, _)| vec![*rank]);
    each.chain(sets(job).into_iter().take(MOST_RANKS))
        .map(|ranks| Edit {
            target: Target::Ranks(ranks),
            change: Change::AsOthers,
        })
        .collect()
}

/// Sets of ranks that may be slow together: those of a host, and those that come to the same collectives (a pipeline's
/// stage, a tensor parallel group), where that is neither one nor half of all.
pub(crate) fn sets(job: &Job) -> BTreeSet<Vec<u32>> {
    let all: BTreeSet<u32> = job.devices.iter().filter_map(|device| device.rank).collect();
    let mut hosts: BTreeMap<&str, BTreeSet<u32>> = BTreeMap::new();
    for device in &job.devices {
        if let Some(rank) = device.rank {
            hosts.entry(&device.host).or_default().insert(rank);
        }
    }
    let of_hosts = hosts.into_values().map(|ranks| ranks.into_iter().collect());
    let of_kinds = job.kinds.iter().map(|kind| kind.ranks.clone());
    of_hosts
        .chain(of_kinds)
        .filter(|set: &Vec<u32>| set.len() > 1 && set.len() * 2 <= all.len())
        .collect()
}
