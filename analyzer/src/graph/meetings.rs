//! Collectives and transfers: the ranks' parts joined.

use rustc_hash::FxHashMap;

use super::dag::{Builder, Node};
use super::nodes::{Label, MeetingParts, NO_STEP, Part, What};
use super::process::bytes;
use super::rows::Source;
use crate::collectives::Collective;
use crate::details::CollectivePart;

/// Stamps of ranks may be so far apart the wrong way, and as much more as their clocks may differ.
const JITTER_NS: i64 = 20_000;

/// Whether data goes from one rank to all others, or from all to one; `None` where all need all.
fn direction(name: &str) -> Option<bool> {
    match name {
        "Broadcast" | "Scatter" => Some(true),
        "Reduce" | "Gather" => Some(false),
        _ => None,
    }
}

/// What is known of the nodes, while ranks are joined.
pub(crate) struct Joined<'a> {
    pub(crate) builder: &'a mut Builder,
    pub(crate) what: &'a mut Vec<What>,
    pub(crate) ends: &'a mut Vec<i64>,
    /// By process, of the kernels that meet others.
    pub(crate) parts: &'a [MeetingParts],
}

/// The kernels (device and row) of each process that meet those of others.
pub(crate) fn kernels(processes: usize, collectives: &[Collective]) -> Vec<FxHashMap<(u32, u32), u32>> {
    let mut kernels = vec![FxHashMap::default(); processes];
    for (place, collective) in (0..).zip(collectives) {
        if !meets(collective) {
            continue;
        }
        for part in &collective.parts {
            if let (Some(kernel), Some(kernels)) = (part.kernel, kernels.get_mut(part.process as usize)) {
                kernels.entry(kernel).or_insert(place);
            }
        }
    }
    kernels
}

/// Whether its parts can be joined: there are several, their stamps can be compared, and the match is one that times allow. Of a communicator of which not
/// all ranks were recorded those that were meet all the same.
fn meets(collective: &Collective) -> bool {
    let with_kernel = collective
        .parts
        .iter()
        .filter(|part| part.kernel.is_some())
        .count();
    let partly = collective.sequence.is_some()
        && collective
            .communicator_ranks
            .is_some_and(|ranks| ranks as usize > with_kernel);
    collective.timing.common_clock && with_kernel >= 2 && (collective.skew_ns.is_some() || partly)
}

/// Joins the parts of all collectives.
pub(crate) fn join(
    sources: &[Source<'_>],
    collectives: &[Collective],
    labels: &[u32],
    joined: &mut Joined<'_>,
) {
    // Ends of kernels that carry several operations wait for all of them, and their work is what is left after the last.
    let mut latest: FxHashMap<Node, i64> = FxHashMap::default();
    let mut sizes: FxHashMap<Node, u32> = FxHashMap::default();
    for (collective, label) in collectives.iter().zip(labels) {
        if !meets(collective) {
            continue;
        }
        let parts: Vec<(&CollectivePart, Node, Node)> = collective
            .parts
            .iter()
            .filter_map(|part| {
                let (arrival, end) = joined.parts.get(part.process as usize)?.get(&part.kernel?)?;
                Some((part, *arrival, *end))
            })
            .collect();
        for (_, _, end) in &parts {
            joined.what[*end as usize].label = Label::Collective(*label);
            let size = sizes.entry(*end).or_default();
            *size = size.saturating_add(bytes(collective.bytes.unwrap_or(0)));
        }
        let Some(last) = parts
            .iter()
            .map(|(_, arrival, _)| joined.ends[*arrival as usize])
            .max()
        else {
            continue;
        };
        let is_root = |part: &CollectivePart| -> Option<bool> {
            let row = part.row? as usize;
            let rows = &sources.get(part.process as usize)?.process.tables.collectives;
            Some(i64::from(*rows.rank.get(row)?) == i64::from((*rows.root.get(row)?)?))
        };
        let root = parts.iter().find(|(part, ..)| is_root(part) == Some(true));
        let direction = direction(&collective.name).filter(|_| root.is_some());
        let jitter = JITTER_NS.saturating_add(collective.timing.clock_error_ns);
        let all = |end: Node, joined: &Joined<'_>| joined.ends[end as usize].saturating_add(jitter) >= last;
        // Those that need all others.
        let mut together: Vec<Node> = Vec::new();
        for (part, arrival, end) in &parts {
            let awaited = match (direction, root) {
                (Some(true), Some((_, root, _))) => Some(*root),
                (Some(false), Some((root, ..))) if !std::ptr::eq(*root, *part) => None,
                // What had ended when the last one came did not need it: a small send, or a part that data does not pass.
                _ if all(*end, joined) => {
                    together.push(*end);
                    continue;
                }
                _ => None,
            };
            let mut ready = joined.ends[*arrival as usize];
            joined.builder.wait(*end, *arrival, 0);
            if let Some(awaited) = awaited.filter(|awaited| awaited != arrival) {
                joined.builder.wait(*end, awaited, 0);
                ready = ready.max(joined.ends[awaited as usize]);
            }
            latest
                .entry(*end)
                .and_modify(|latest| *latest = ready.max(*latest))
                .or_insert(ready);
        }
        if together.is_empty() {
            continue;
        }
        let meeting = joined.builder.add(0, 0);
        joined.ends.push(last);
        joined.what.push(What {
            part: Part::Meeting,
            device: 0,
            step: NO_STEP,
            label: Label::Collective(*label),
            row: 0,
            size: 0,
        });
        for (_, arrival, _) in &parts {
            joined.builder.wait(meeting, *arrival, 0);
        }
        for end in together {
            joined.builder.wait(end, meeting, 0);
            latest
                .entry(end)
                .and_modify(|latest| *latest = last.max(*latest))
                .or_insert(last);
        }
    }
    for (end, size) in sizes {
        joined.what[end as usize].size = size;
    }
    for parts in joined.parts {
        for (arrival, end) in parts.values() {
            let ready = match latest.get(end) {
                Some(ready) => *ready,
                // Its collective was left out after all.
                None => {
                    joined.builder.wait(*end, *arrival, 0);
                    joined.ends[*arrival as usize]
                }
            };
            let left = joined.ends[*end as usize] - ready;
            // Ended before the last one came, by the clocks: it took no time after it.
            joined.builder.set(*end, left.max(0), left.min(0));
        }
    }
}
