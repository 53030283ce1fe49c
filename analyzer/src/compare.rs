//! Two analyses side by side: by rank, by step, by name.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::{Analysis, Measures, Parts, RankAnalysis};

/// A change below this share of the first run's figure is called none.
const LEAST_CHANGE: f64 = 0.02;

/// What became of something from the first run to the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// Only in the second.
    New,
    /// Only in the first.
    Gone,
    /// More than 2 % more time.
    Slower,
    /// More than 2 % less time.
    Faster,
    /// About the same.
    Same,
}

/// The change from one time to another.
fn change(a: Option<i64>, b: Option<i64>) -> Change {
    match (a, b) {
        (None, _) => Change::New,
        (_, None) => Change::Gone,
        (Some(a), Some(b)) if b.saturating_sub(a) as f64 > LEAST_CHANGE * a as f64 => Change::Slower,
        (Some(a), Some(b)) if a.saturating_sub(b) as f64 > LEAST_CHANGE * a as f64 => Change::Faster,
        _ => Change::Same,
    }
}

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
    pub change: Change,
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
    pub change: Change,
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
    pub change: Change,
}

/// Two analyses compared.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
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

/// Compares the second analysis with the first. Both must have been made with all kernels (no `top`) and the same names.
#[must_use]
pub fn compare(a: &Analysis, b: &Analysis) -> Comparison {
    let (ranks_a, ranks_b) = (by_place(a), by_place(b));
    let mut places: Vec<Place> = ranks_a.keys().chain(ranks_b.keys()).copied().collect();
    places.sort_unstable();
    places.dedup();
    let mut ranks = Vec::new();
    let mut steps = Vec::new();
    for place in places {
        let (one, other) = (ranks_a.get(&place), ranks_b.get(&place));
        let measures = |rank: Option<&&RankAnalysis>| rank.map(|rank| rank.measures.clone());
        let span = |rank: Option<&&RankAnalysis>| rank.map(|rank| rank.measures.span_ns);
        ranks.push(ComparedRank {
            rank: place.0,
            device_index: place.1,
            a: measures(one),
            b: measures(other),
            parts_a: one.map(|rank| rank.parts),
            parts_b: other.map(|rank| rank.parts),
            change: change(span(one), span(other)),
        });
        let of = |rank: Option<&&RankAnalysis>| rank.map_or(0, |rank| rank.steps.len());
        for index in 0..of(one).max(of(other)) {
            let step = |rank: Option<&&RankAnalysis>| {
                rank.and_then(|rank| rank.steps.get(index))
                    .map(|step| (step.name.clone(), step.duration_ns))
            };
            let (first, second) = (step(one), step(other));
            let duration = |step: &Option<(String, i64)>| step.as_ref().map(|(_, duration)| *duration);
            steps.push(ComparedStep {
                rank: place.0,
                device_index: place.1,
                place: index,
                duration_a_ns: duration(&first),
                duration_b_ns: duration(&second),
                change: change(duration(&first), duration(&second)),
                name_a: first.map(|(name, _)| name),
                name_b: second.map(|(name, _)| name),
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
                change: change(
                    (count_a > 0).then_some(total_a_ns),
                    (count_b > 0).then_some(total_b_ns),
                ),
            },
        )
        .collect();
    kernels.sort_by(|a, b| {
        let size = |kernel: &ComparedKernel| kernel.difference_ns.unsigned_abs();
        size(b)
            .cmp(&size(a))
            .then_with(|| (&a.name, &a.kind).cmp(&(&b.name, &b.kind)))
    });
    Comparison {
        ranks,
        steps,
        kernels,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_have_names() {
        assert_eq!(change(None, Some(1)), Change::New);
        assert_eq!(change(Some(1), None), Change::Gone);
        assert_eq!(change(Some(100), Some(103)), Change::Slower);
        assert_eq!(change(Some(100), Some(97)), Change::Faster);
        assert_eq!(change(Some(100), Some(102)), Change::Same);
        assert_eq!(change(Some(0), Some(0)), Change::Same);
    }
}
