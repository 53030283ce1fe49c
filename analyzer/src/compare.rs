//! Two analyses side by side: by rank, by step, by name. What became of each is what [`diff`] says.

use std::collections::BTreeMap;

use gputrace_trace::measures::Measures;
use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::analysis::{Analysis, RankAnalysis};
use crate::baseline::{Baseline, By};
use crate::diff::{Diff, Verdict, diff, single_steps};
use crate::parts::Parts;
use crate::steps::StepAnalysis;

/// Operations of one name, over all ranks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ComparedKernel {
    /// The name.
    pub name: String,
    /// Its kind.
    pub kind: String,
    /// How many in the first run.
    pub count_a: usize,
    /// How many in the second.
    pub count_b: usize,
    /// Sum of durations in the first run.
    pub total_a_ns: i64,
    /// Sum of durations in the second.
    pub total_b_ns: i64,
    /// Second minus first.
    pub difference_ns: i64,
    /// What became of it.
    pub change: Verdict,
}

/// Steps that stand at the same place of their runs, on one rank's device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ComparedStep {
    /// The rank.
    pub rank: Option<u32>,
    /// The device.
    pub device_index: u32,
    /// The step's place in its run, from 0.
    pub place: usize,
    /// Its name in the first run.
    pub name_a: Option<String>,
    /// Its name in the second run.
    pub name_b: Option<String>,
    /// Its duration in the first run.
    pub duration_a_ns: Option<i64>,
    /// Its duration in the second run.
    pub duration_b_ns: Option<i64>,
    /// What became of it.
    pub change: Verdict,
}

/// One rank's device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ComparedRank {
    /// The rank.
    pub rank: Option<u32>,
    /// The device.
    pub device_index: u32,
    /// The first run's measures.
    pub a: Option<Measures>,
    /// The second run's measures.
    pub b: Option<Measures>,
    /// What the first run's span is made of.
    pub parts_a: Option<Parts>,
    /// What the second run's span is made of.
    pub parts_b: Option<Parts>,
    /// What became of its span.
    pub change: Verdict,
}

/// Two analyses compared.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// What changed in a step, and how sure that is.
    pub diff: Diff,
    /// By rank and device.
    pub ranks: Vec<ComparedRank>,
    /// By place.
    pub steps: Vec<ComparedStep>,
    /// By name, the greatest difference first.
    pub kernels: Vec<ComparedKernel>,
}

/// Rank, device, and which of several with both: processes that say no rank are told apart by their order.
type Place = (Option<u32>, u32, usize);

fn by_place(analysis: &Analysis) -> BTreeMap<Place, &RankAnalysis> {
    let mut places = BTreeMap::new();
    for rank in &analysis.ranks {
        let mut place = (rank.rank, rank.device_index, 0);
        while places.contains_key(&place) {
            place.2 += 1;
        }
        places.insert(place, rank);
    }
    places
}

/// What a row is of: its kind, its name, its rank and device.
type RowKey<'a> = (By, &'a str, Option<u32>, Option<u32>);

/// What became of something that a comparison of steps has no row for.
fn there(a: bool, b: bool) -> Verdict {
    match (a, b) {
        (false, true) => Verdict::New,
        (true, false) => Verdict::Gone,
        _ => Verdict::Unknown,
    }
}

/// The steps of a device without the slow first ones: their durations.
fn durations(rank: Option<&&RankAnalysis>) -> Vec<i64> {
    let steps = rank.into_iter().flat_map(|rank| &rank.steps);
    steps
        .filter(|step| !step.warm_up)
        .map(|step| step.duration_ns)
        .collect()
}

/// Compares the second run with the first. Both analyses must have been made with all kernels (no `top`) and the same names.
#[must_use]
pub fn compare(
    (a, baseline_a): (&Analysis, &Baseline),
    (b, baseline_b): (&Analysis, &Baseline),
) -> Comparison {
    let found = diff(
        std::slice::from_ref(baseline_a),
        std::slice::from_ref(baseline_b),
        None,
    );
    let alone = baseline_a.devices.len() == 1 && baseline_b.devices.len() == 1;
    // Where no rank has several devices, rows name none.
    let mut verdicts: FxHashMap<RowKey<'_>, Verdict> = FxHashMap::default();
    for row in &found.rows {
        verdicts.insert((row.by, &row.name, row.rank, row.device_index), row.verdict);
    }
    let verdict = |by: By, name: &str, device: Option<(u32, u32)>| {
        let of = |index: Option<u32>| {
            verdicts
                .get(&(by, name, device.map(|(rank, _)| rank), index))
                .copied()
        };
        of(device.map(|(_, index)| index)).or_else(|| of(None))
    };
    let (ranks_a, ranks_b) = (by_place(a), by_place(b));
    let mut places: Vec<Place> = ranks_a.keys().chain(ranks_b.keys()).copied().collect();
    places.sort_unstable();
    places.dedup();
    let mut ranks = Vec::new();
    let mut steps = Vec::new();
    for place in places {
        let (one, other) = (ranks_a.get(&place), ranks_b.get(&place));
        let measures = |rank: Option<&&RankAnalysis>| rank.map(|rank| rank.measures.clone());
        let is_in_both = one.is_some() && other.is_some();
        let number = place
            .0
            .unwrap_or_else(|| u32::try_from(place.2).unwrap_or(u32::MAX));
        let device = (!alone).then_some((number, place.1));
        let of_rank = is_in_both.then(|| verdict(By::Rank, "step", device)).flatten();
        ranks.push(ComparedRank {
            rank: place.0,
            device_index: place.1,
            a: measures(one),
            b: measures(other),
            parts_a: one.map(|rank| rank.parts),
            parts_b: other.map(|rank| rank.parts),
            change: of_rank.unwrap_or_else(|| there(one.is_some(), other.is_some())),
        });
        let single = single_steps(&durations(one), &durations(other));
        let of = |rank: Option<&&RankAnalysis>| rank.map_or(0, |rank| rank.steps.len());
        for index in 0..of(one).max(of(other)) {
            let step =
                |rank: Option<&&RankAnalysis>| -> Option<StepAnalysis> { rank?.steps.get(index).cloned() };
            let (first, second) = (step(one), step(other));
            let duration = |step: &Option<StepAnalysis>| step.as_ref().map(|step| step.duration_ns);
            steps.push(ComparedStep {
                rank: place.0,
                device_index: place.1,
                place: index,
                duration_a_ns: duration(&first),
                duration_b_ns: duration(&second),
                change: match (&first, &second) {
                    (Some(first), Some(second)) => single.verdict(first.duration_ns, second.duration_ns),
                    _ => there(first.is_some(), second.is_some()),
                },
                name_a: first.map(|step| step.name),
                name_b: second.map(|step| step.name),
            });
        }
    }
    // Count and total in a and in b, by name and kind.
    let mut kernels: BTreeMap<(&str, &str), [(usize, i64); 2]> = BTreeMap::new();
    for (side, analysis) in [a, b].into_iter().enumerate() {
        for kernel in analysis.ranks.iter().flat_map(|rank| &rank.kernels) {
            let sides = kernels.entry((&kernel.name, kernel.kind)).or_default();
            let sums = &mut sides[side];
            sums.0 += kernel.count;
            sums.1 = sums.1.saturating_add(kernel.total_ns);
        }
    }
    let mut kernels: Vec<ComparedKernel> = kernels
        .into_iter()
        .map(
            |((name, kind), [(count_a, total_a_ns), (count_b, total_b_ns)])| ComparedKernel {
                name: name.to_owned(),
                kind: kind.to_owned(),
                count_a,
                count_b,
                total_a_ns,
                total_b_ns,
                difference_ns: total_b_ns.saturating_sub(total_a_ns),
                change: verdict(By::Kernel, name, None).unwrap_or_else(|| there(count_a > 0, count_b > 0)),
            },
        )
        .collect();
    kernels.sort_by(|a, b| {
        let size = |kernel: &ComparedKernel| kernel.difference_ns.unsigned_abs();
        size(b)
            .cmp(&size(a))
            .then_with(|| (&a.name, &a.kind).cmp(&(&b.name, &b.kind)))
    });
    drop(verdicts);
    Comparison {
        diff: found,
        ranks,
        steps,
        kernels,
    }
}
