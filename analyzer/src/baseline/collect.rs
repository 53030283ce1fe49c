//! A run's baseline, from its analysis.

use std::collections::{BTreeMap, BTreeSet};

use gputrace_trace::measures::{CATALOGUE, Getter, Measures};
use gputrace_trace::{Interner, Recording};
use rustc_hash::FxHashMap;

use super::model::{Baseline, BaselineDevice, By, Durations, Placed, SCHEMA};
use super::per_step::{Key, PerStep};
use crate::analysis::{Analysis, RankAnalysis};
use crate::by_step::{InOrder, Key as Took, StepSums};
use crate::cause::Cause;
use crate::details::Details;
use crate::parts::Parts;
use crate::statistics::Distribution;
use crate::step_summary::{job_steps, numbered};

/// The slowest device's step beyond the mean over the devices.
const RANK_SPREAD: &str = "rank_spread";

/// What other runs are compared with. The analysis must have been made with [`crate::Options::by_step`], with whole names.
#[must_use]
pub fn baseline(recording: &Recording, analysis: &Analysis, details: &Details) -> Baseline {
    let ranks = &analysis.ranks;
    let any_rank = ranks.iter().any(|rank| rank.rank.is_some());
    let devices: Vec<BaselineDevice> = (0u32..)
        .zip(ranks)
        .map(|(place, rank)| BaselineDevice {
            rank: rank.rank.unwrap_or(if any_rank { u32::MAX } else { place }),
            device_index: rank.device_index,
            device_name: rank.device_name.clone(),
            host: rank.host.clone(),
        })
        .collect();
    let steps = Steps::of(ranks);
    let whole_run = steps
        .kept
        .is_empty()
        .then(|| match ranks.iter().any(|rank| !rank.steps.is_empty()) {
            true => "its ranks have no step in common".to_owned(),
            false => "it has no steps".to_owned(),
        });
    let count = if whole_run.is_some() { 1 } else { steps.kept.len() };
    let mut per_step = PerStep::new(count, devices.len());
    let mut step_ns = vec![0i64; count];
    let mut parts: BTreeMap<String, Vec<i128>> = BTreeMap::new();
    for (place, (device, rank)) in (0u32..).zip(ranks).enumerate() {
        let times = match whole_run.is_some() {
            true => vec![OfStep::of_run(rank)],
            false => steps.of_device(rank, details.steps.get(place)),
        };
        for (step, time) in times.iter().enumerate() {
            step_ns[step] = step_ns[step].max(time.duration_ns);
            let mut add = |by, name: &str, ns| {
                let key = Key {
                    by,
                    name: name.to_owned(),
                    what: "time",
                };
                per_step.add(key, device, step, ns, 0);
            };
            add(By::Rank, "step", time.duration_ns);
            for (name, part) in &time.parts {
                add(By::Rank, name, *part);
                parts.entry(name.clone()).or_insert_with(|| vec![0; count])[step] += i128::from(*part);
            }
            for (name, value) in &time.measures {
                add(By::Measure, name, *value);
            }
        }
        match whole_run.is_some() {
            true => add_run(&mut per_step, device, rank),
            false => steps.add_names(
                &mut per_step,
                device,
                rank,
                details.steps.get(place),
                &recording.names,
            ),
        }
    }
    add_collectives(&mut per_step, analysis, details, &steps, whole_run.is_some());
    let parts = means(parts, &step_ns, devices.len());
    let typical = details.steps.first().and_then(|sums| sums.typical.as_ref());
    let (texts, order) = typical.map_or_else(Default::default, |(_, order)| placed(order, &recording.names));
    let names: Vec<String> = steps.kept.iter().map(|(_, name)| name.clone()).collect();
    Baseline {
        schema: SCHEMA.to_owned(),
        source: analysis.source.clone(),
        device: analysis.device.clone(),
        job_ranks: analysis.job_ranks.clone(),
        step_names: if whole_run.is_some() {
            vec!["the run".to_owned()]
        } else {
            names
        },
        warm_up: steps.warm_up,
        detected: ranks
            .iter()
            .flat_map(|rank| &rank.steps)
            .any(|step| step.detected),
        whole_run,
        step_ns,
        parts,
        series: per_step.series(),
        kernels: kernels(ranks),
        skew: skew(analysis),
        losses: analysis.losses.clone(),
        texts,
        order,
        devices,
    }
}

/// One step, or the run, on one device.
struct OfStep {
    duration_ns: i64,
    parts: Vec<(String, i64)>,
    measures: Vec<(&'static str, i64)>,
}

impl OfStep {
    fn new(duration_ns: i64, parts: &Parts, idle: &[(&str, i64)], measures: &Measures) -> Self {
        let mut all: Vec<(String, i64)> = Vec::new();
        for (part, time) in parts.each() {
            if part.name != "idle" {
                all.push((part.name.to_owned(), time));
            }
        }
        // Idle time outside of the device's gaps has no cause that is known.
        let known: i64 = idle.iter().map(|(_, time)| time).sum();
        let rest = parts.idle - known;
        for (cause, time) in idle {
            let more = if *cause == Cause::Unknown.name() { rest } else { 0 };
            all.push((format!("idle.{cause}"), time + more));
        }
        if rest != 0 && !idle.iter().any(|(cause, _)| *cause == Cause::Unknown.name()) {
            all.push((format!("idle.{}", Cause::Unknown.name()), rest));
        }
        let measures = CATALOGUE.iter().filter_map(|measure| match measure.get {
            Getter::Ns(get) => Some((measure.name, get(measures))),
            Getter::Ratio(_) => None,
        });
        Self {
            duration_ns,
            parts: all,
            measures: measures.collect(),
        }
    }

    fn of_run(rank: &RankAnalysis) -> Self {
        let idle: Vec<(&str, i64)> = rank
            .idle_causes
            .iter()
            .map(|(cause, time)| (cause.as_str(), *time))
            .collect();
        Self::new(rank.measures.span_ns, &rank.parts, &idle, &rank.measures)
    }
}

/// The steps that count: those that all devices have which have any, without the slow first ones.
struct Steps {
    /// What tells a step from others, and its name.
    kept: Vec<((u64, u64), String)>,
    /// The place among `kept` of each.
    place: FxHashMap<(u64, u64), usize>,
    warm_up: Vec<String>,
}

impl Steps {
    fn of(ranks: &[RankAnalysis]) -> Self {
        let with: Vec<&RankAnalysis> = ranks.iter().filter(|rank| !rank.steps.is_empty()).collect();
        let (all, warm_up) = job_steps(with.iter().map(|rank| rank.steps.as_slice()));
        let mut common: Option<BTreeSet<(u64, u64)>> = None;
        for rank in with {
            let own: BTreeSet<(u64, u64)> = numbered(&rank.steps).map(|(number, _)| number).collect();
            common = Some(match common {
                None => own,
                Some(before) => before.intersection(&own).copied().collect(),
            });
        }
        let common = common.unwrap_or_default();
        let (slow, rest) = all.split_at(warm_up);
        let kept: Vec<((u64, u64), String)> = rest
            .iter()
            .filter(|(number, _)| common.contains(number))
            .map(|(number, name)| (*number, (*name).to_owned()))
            .collect();
        Self {
            place: kept
                .iter()
                .zip(0..)
                .map(|((number, _), place)| (*number, place))
                .collect(),
            kept,
            warm_up: slow.iter().map(|(_, name)| (*name).to_owned()).collect(),
        }
    }

    /// By place among a device's steps: the place among those that count.
    fn places(&self, rank: &RankAnalysis) -> Vec<Option<usize>> {
        let place = |(number, _)| self.place.get(&number).copied();
        numbered(&rank.steps).map(place).collect()
    }

    fn of_device(&self, rank: &RankAnalysis, sums: Option<&StepSums>) -> Vec<OfStep> {
        let mut found: Vec<Option<OfStep>> = Vec::new();
        found.resize_with(self.kept.len(), || None);
        for (index, place) in self.places(rank).into_iter().enumerate() {
            let (Some(place), step) = (place, &rank.steps[index]) else {
                continue;
            };
            let causes = sums
                .and_then(|sums| sums.idle.get(index))
                .copied()
                .unwrap_or_default();
            let idle: Vec<(&str, i64)> = Cause::ALL
                .iter()
                .zip(causes)
                .map(|(cause, time)| (cause.name(), time))
                .collect();
            found[place] = Some(OfStep::new(step.duration_ns, &step.parts, &idle, &step.measures));
        }
        // A device without any steps has none of these.
        found.into_iter().flatten().collect()
    }

    /// What the device's operations took in each step, by name, operator and module.
    fn add_names(
        &self,
        per_step: &mut PerStep,
        device: u32,
        rank: &RankAnalysis,
        sums: Option<&StepSums>,
        names: &Interner,
    ) {
        let places = self.places(rank);
        for (took, steps) in sums.into_iter().flat_map(|sums| &sums.sums) {
            let (by, name) = match *took {
                Took::Operation(name, _) => (By::Kernel, name.text(names).into_owned()),
                Took::Operator(name) => (
                    By::Operator,
                    name.map_or("(no operator)", |name| names.get(name)).to_owned(),
                ),
                Took::Module(name) => (
                    By::Module,
                    name.map_or("(no module)", |name| names.get(name)).to_owned(),
                ),
            };
            for (step, count, time) in steps {
                if let Some(place) = places.get(*step as usize).copied().flatten() {
                    let key = Key {
                        by,
                        name: name.clone(),
                        what: "time",
                    };
                    per_step.add(key, device, place, *time, *count);
                }
            }
        }
    }
}

/// The same of a run without steps.
fn add_run(per_step: &mut PerStep, device: u32, rank: &RankAnalysis) {
    let mut add = |by, name: &str, time, count: u64| {
        let key = Key {
            by,
            name: name.to_owned(),
            what: "time",
        };
        per_step.add(key, device, 0, time, u32::try_from(count).unwrap_or(u32::MAX));
    };
    for kernel in &rank.kernels {
        add(By::Kernel, &kernel.name, kernel.total_ns, kernel.count as u64);
    }
    for operator in &rank.attribution.operators {
        if operator.kernels > 0 {
            add(By::Operator, &operator.name, operator.direct_ns, operator.kernels);
        }
    }
    if let Some(rest) = &rank.attribution.unattributed {
        let without = rest.no_operator_ns.saturating_add(rest.launch_not_recorded_ns);
        if without > 0 {
            add(By::Operator, "(no operator)", without, 0);
        }
    }
}

/// Start and end of a step, and its place among those that count.
type Time = (i64, i64, usize);

/// Each rank's time in collectives by step: apart as waiting and transfer where arrivals can be compared.
fn add_collectives(
    per_step: &mut PerStep,
    analysis: &Analysis,
    details: &Details,
    steps: &Steps,
    whole_run: bool,
) {
    // By process and device: its place among the devices, and when its steps begin.
    let mut devices: FxHashMap<(u32, u32), (u32, Vec<Time>)> = FxHashMap::default();
    for ((place, rank), of) in (0u32..).zip(&analysis.ranks).zip(&details.devices) {
        let times = steps.places(rank).into_iter().zip(&rank.steps);
        let times = times.filter_map(|(place, step)| Some((step.start_ns.0, step.end_ns.0, place?)));
        devices.insert((of.process, of.device_index), (place, times.collect()));
    }
    for (collective, parts) in analysis.collectives.iter().zip(&details.collectives) {
        // A communicator's hash is another in each run; who is in it is not.
        let members = match &collective.communicator_name {
            Some(name) => name.clone(),
            None => members(&collective.ranks),
        };
        let name = format!("{} ({members})", collective.name);
        if collective.timing.repeats_kernel {
            continue;
        }
        for part in parts {
            let (Some((device, _)), Some(start), Some(end)) = (part.kernel, part.start_ns, part.end_ns)
            else {
                continue;
            };
            let Some((place, times)) = devices.get(&(part.process, device)) else {
                continue;
            };
            let step = if whole_run {
                0
            } else {
                let after = times.partition_point(|(begun, ..)| *begun <= start);
                match times[..after].last() {
                    Some((_, until, step)) if start < *until => *step,
                    _ => continue,
                }
            };
            let mut add = |what, time| {
                let key = Key {
                    by: By::Collective,
                    name: name.clone(),
                    what,
                };
                per_step.add(key, *place, step, time, 1);
            };
            match (part.wait_ns, part.transfer_ns) {
                (Some(wait), Some(transfer)) => {
                    add("transfer", transfer);
                    add("wait", wait);
                }
                _ => add("time", end - start),
            }
        }
    }
}

/// "ranks 0 to 7", "ranks 0, 4".
fn members(ranks: &[u32]) -> String {
    let mut sorted = ranks.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    match sorted.as_slice() {
        [] => "?".to_owned(),
        [one] => format!("rank {one}"),
        [first, .., last]
            if *last - *first == u32::try_from(sorted.len() - 1).unwrap_or(0) && sorted.len() > 2 =>
        {
            format!("ranks {first} to {last}")
        }
        all => {
            let all: Vec<String> = all.iter().map(u32::to_string).collect();
            format!("ranks {}", all.join(", "))
        }
    }
}

/// Means over the devices of what steps are made of, and what they lack of the longest device's step.
fn means(parts: BTreeMap<String, Vec<i128>>, step_ns: &[i64], devices: usize) -> BTreeMap<String, Vec<i64>> {
    let devices = i128::try_from(devices.max(1)).unwrap_or(1);
    let mut all: BTreeMap<String, Vec<i64>> = parts
        .into_iter()
        .map(|(name, sums)| {
            (
                name,
                sums.into_iter()
                    .map(|sum| sum.div_euclid(devices) as i64)
                    .collect(),
            )
        })
        .collect();
    let spread: Vec<i64> = (0..step_ns.len())
        .map(|step| step_ns[step] - all.values().map(|values| values[step]).sum::<i64>())
        .collect();
    // Of one device it is nothing, and of several what is rounded off is in it too.
    all.insert(RANK_SPREAD.to_owned(), spread);
    all.retain(|_, values| values.iter().any(|value| *value != 0));
    all
}

fn kernels(ranks: &[RankAnalysis]) -> Vec<Durations> {
    let mut all: Vec<Durations> = (0u32..)
        .zip(ranks)
        .flat_map(|(device, rank)| {
            rank.kernels.iter().map(move |kernel| Durations {
                name: kernel.name.clone(),
                device,
                count: kernel.count,
                total_ns: kernel.total_ns,
                durations: kernel.durations,
            })
        })
        .collect();
    all.sort_by_key(|kernel| std::cmp::Reverse(kernel.total_ns));
    all
}

fn skew(analysis: &Analysis) -> Option<Distribution> {
    let collectives = analysis
        .collectives
        .iter()
        .filter(|collective| !collective.warm_up);
    let mut skews: Vec<i64> = collectives.filter_map(|collective| collective.skew_ns).collect();
    (!skews.is_empty()).then(|| Distribution::of(&mut skews))
}

fn placed(order: &[InOrder], names: &Interner) -> (Vec<String>, Vec<Placed>) {
    let mut texts: Vec<String> = Vec::new();
    let mut numbers: FxHashMap<String, u32> = FxHashMap::default();
    let mut number = |text: &str| {
        if let Some(number) = numbers.get(text) {
            return *number;
        }
        let number = u32::try_from(texts.len()).unwrap_or(u32::MAX);
        texts.push(text.to_owned());
        numbers.insert(text.to_owned(), number);
        number
    };
    let order: Vec<Placed> = order
        .iter()
        .map(|operation| Placed {
            name: number(&operation.name.text(names)),
            operator: operation.operator.map(|name| number(names.get(name))),
            duration_ns: operation.duration_ns,
        })
        .collect();
    (texts, order)
}
