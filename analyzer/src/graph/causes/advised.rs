//! What operators could do better on all ranks at once, by a replay.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use gputrace_trace::{Interner, TimeNs};
use rustc_hash::FxHashMap;

use super::candidate::WORTH_A_SENTENCE;
use super::replay::{Remedy, Replay};
use super::set_saved;
use crate::analysis::RankAnalysis;
use crate::finding::{CauseLink, Finding};
use crate::findings::{label, of_rank};
use crate::graph::dag::Node;
use crate::graph::job::Job;
use crate::graph::nodes::Part;
use crate::graph::rows::Source;
use crate::graph::whatif::{Baseline, Interval};
use crate::kinds::Kind;
use crate::operators::{Advice, Better};

/// Without a replay an advice is worth a sentence from this share of the longest span on.
const WORTH_IT_ALONE: f64 = 0.05;

/// What could be better on one device.
pub(crate) struct OfDevice {
    /// Its process's place in the recording.
    pub(crate) process: u32,
    pub(crate) device_index: u32,
    pub(crate) advice: Vec<Advice>,
}

/// One advice on one device, and the device's place among the ranks' analyses.
type Told = (usize, Advice);

/// A finding for each advice: what is told of several devices is one. `of_devices` are in the order of `ranks`; a run has so many
/// `steps`.
pub(crate) fn findings(
    names: &Interner,
    sources: &[Source<'_>],
    job: Option<&Job>,
    steps: usize,
    ranks: &[RankAnalysis],
    of_devices: Vec<OfDevice>,
) -> Vec<Finding> {
    let places: Vec<(u32, u32)> = of_devices
        .iter()
        .map(|device| (device.process, device.device_index))
        .collect();
    let mut by_about: BTreeMap<String, Vec<Told>> = BTreeMap::new();
    for (place, device) in of_devices.into_iter().enumerate() {
        for advice in device.advice {
            by_about
                .entry(advice.about.clone())
                .or_default()
                .push((place, advice));
        }
    }
    if by_about.is_empty() {
        return Vec::new();
    }
    let job = job.filter(|job| job.has_steps);
    let baseline = job.map(Baseline::of);
    let replay = job
        .zip(baseline.as_ref())
        .map(|(job, baseline)| Replay { job, names, baseline });
    let nodes = replay.as_ref().map(|replay| Nodes::of(replay.job, sources));
    let found = by_about.into_values().filter_map(|told| {
        let Some((replay, nodes)) = replay.as_ref().zip(nodes.as_ref()) else {
            // What the worst device would save at most. What is on the host alone can't be told then.
            let finding = finding(told, ranks)?;
            let span_ns = ranks.iter().map(|rank| rank.measures.span_ns).max()?;
            return (finding.saves_ns? as f64 >= WORTH_IT_ALONE * span_ns as f64).then_some(finding);
        };
        let surely = told.iter().all(|(_, advice)| advice.is_sure);
        let remedy = nodes.remedy(replay, &told, &places);
        let saved = replay.saved(&[&remedy]);
        let saved = if surely {
            saved
        } else {
            saved.hull(Interval { low: 0.0, high: 0.0 })
        };
        if saved.middle() < WORTH_A_SENTENCE * replay.baseline.kept_ns {
            return None;
        }
        let mut finding = finding(told, ranks)?;
        set_saved(&mut finding, saved, steps);
        Some(finding)
    });
    found.collect()
}

/// What an advice may save of a device's own time at most.
fn at_most(advice: &Advice) -> i64 {
    let saved = advice.operations.iter().map(Better::saved_ns);
    saved.fold(0, i64::saturating_add)
}

/// What is told of several devices, in the figures of the one on which most of it is.
fn finding(told: Vec<Told>, ranks: &[RankAnalysis]) -> Option<Finding> {
    let time = |advice: &Advice| {
        let host = advice.host.iter().map(|(_, start, end)| end - start);
        host.fold(at_most(advice), i64::saturating_add)
    };
    let (place, advice) = told
        .into_iter()
        .max_by_key(|(place, advice)| (time(advice), Reverse(*place)))?;
    let rank = &ranks[place];
    let saves_ns = at_most(&advice);
    let evidence = format!("{}: {}", label(rank), advice.evidence);
    let (what, name, start_ns) = advice.seen;
    Some(Finding {
        cause: vec![CauseLink {
            what: what.to_owned(),
            rank: rank.rank,
            name,
            start_ns: Some(TimeNs(start_ns)),
        }],
        ..of_rank(rank, saves_ns, advice.facts, advice.text, evidence)
    })
}

/// Where operations and host work are in a job's graph.
struct Nodes {
    /// By device of the job, part and row.
    operations: FxHashMap<(u16, Part, u32), Node>,
    /// By process and thread: host work by its start.
    host: FxHashMap<(u32, u32), Vec<(i64, Node)>>,
    /// By process and device index: the device's place in the job.
    devices: FxHashMap<(u32, u32), u16>,
}

impl Nodes {
    fn of(job: &Job, sources: &[Source<'_>]) -> Self {
        let devices = (0u16..).zip(&job.devices);
        let mut nodes = Self {
            operations: FxHashMap::default(),
            host: FxHashMap::default(),
            devices: devices
                .map(|(place, device)| ((device.process, device.index), place))
                .collect(),
        };
        for (node, what) in (0u32..).zip(&job.what) {
            if what.part.is_device_work() {
                nodes.operations.insert((what.device, what.part, what.row), node);
            } else if what.part.is_host_work() {
                let process = job.devices[what.device as usize].process;
                if let Some(thread) = sources[process as usize].thread_of_call(what.row) {
                    let of_thread = nodes.host.entry((process, thread)).or_default();
                    of_thread.push((job.began(node), node));
                }
            }
        }
        nodes
            .host
            .values_mut()
            .for_each(|of_thread| of_thread.sort_unstable());
        nodes
    }

    /// What is changed where an advice is followed on all devices that it is told of.
    fn remedy(&self, replay: &Replay<'_>, told: &[Told], places: &[(u32, u32)]) -> Remedy {
        let mut remedy = Remedy::default();
        for (place, advice) in told {
            let (process, _) = places[*place];
            let Some(device) = self.devices.get(&places[*place]) else {
                continue;
            };
            for better in &advice.operations {
                let part = match better.kind {
                    Kind::Compute => Part::Compute,
                    Kind::Copy => Part::Copy,
                    Kind::Memset => Part::Memset,
                    Kind::Communication => continue,
                };
                if let Some(node) = self.operations.get(&(*device, part, better.row)) {
                    let at_best = better.at_best_ns.min(replay.work(*node));
                    remedy.work.push((*node, at_best));
                }
            }
            for (thread, start, end) in &advice.host {
                let Some(of_thread) = self.host.get(&(process, *thread)) else {
                    continue;
                };
                let first = of_thread.partition_point(|(began, _)| began < start);
                let inside = of_thread[first..].iter().take_while(|(began, _)| began < end);
                remedy.work.extend(inside.map(|(_, node)| (*node, 0)));
            }
        }
        remedy
    }
}
