//! What became of each kernel, operator, module, collective, step and rank.

use std::collections::{BTreeMap, BTreeSet};

use super::estimate::{Estimate, difference, estimate, false_discovery_limit};
use super::row::{Coverage, Row, Verdict, verdict_of};
use super::single::rows as single_rows;
use crate::baseline::{Baseline, By, Series};

/// At most this share of the rows that are called slower or faster are not.
const FALSE_SHARE: f64 = 0.05;

/// What rows of two sides are matched by. Ranks are matched by number.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    by: By,
    name: String,
    what: String,
    device: Option<(u32, u32)>,
}

/// One side's series by what they are matched by: of each run, or `None` where it has none.
type Found<'a> = BTreeMap<Key, Vec<Option<&'a Series>>>;

/// `with_devices`: what a run has of its only GPU is its rank's too, where other runs have several.
fn found(side: &[Baseline], by: Option<By>, with_devices: bool) -> Found<'_> {
    let mut found: Found<'_> = BTreeMap::new();
    for (place, run) in side.iter().enumerate() {
        for series in &run.series {
            if series.by == By::Measure || by.is_some_and(|by| by != series.by) {
                continue;
            }
            let only = match run.devices.as_slice() {
                [only] if with_devices => Some(only),
                _ => None,
            };
            let own = series.device.and_then(|device| run.devices.get(device as usize));
            for device in [Some(own), only.map(Some)].into_iter().flatten() {
                let key = Key {
                    by: series.by,
                    name: series.name.clone(),
                    what: series.what.clone(),
                    device: device.map(|device| (device.rank, device.device_index)),
                };
                found.entry(key).or_insert_with(|| vec![None; side.len()])[place] = Some(series);
            }
        }
    }
    found
}

/// What one side says of a row.
struct Side<'a> {
    /// By run and step.
    values: Vec<Option<&'a [i64]>>,
    estimate: Estimate,
    /// By step, on all GPUs or on the one.
    count: Option<f64>,
    total_ns: i64,
}

impl<'a> Side<'a> {
    fn of(runs: &[Option<&'a Series>], side: &[Baseline]) -> Self {
        // A run that lacks it spends nothing on it.
        let nothing: Vec<Vec<i64>> = side.iter().map(|run| vec![0; run.steps()]).collect();
        let values: Vec<&[i64]> = runs
            .iter()
            .zip(&nothing)
            .map(|(series, nothing)| series.map_or(nothing.as_slice(), |series| series.values.as_slice()))
            .collect();
        let count: u64 = runs.iter().flatten().map(|series| series.count).sum();
        let steps: usize = side.iter().map(Baseline::steps).sum();
        Self {
            values: runs
                .iter()
                .map(|series| series.map(|series| series.values.as_slice()))
                .collect(),
            estimate: estimate(&values),
            count: (count > 0).then(|| count as f64 / steps.max(1) as f64),
            total_ns: runs
                .iter()
                .flatten()
                .fold(0, |sum, series| sum.saturating_add(series.total_ns)),
        }
    }
}

/// What became of each part of the step, of the mean over the GPUs.
pub(super) fn of_parts(a: &[Baseline], b: &[Baseline]) -> BTreeMap<String, Verdict> {
    let (rows, _) = rows(a, b, Some(By::Rank));
    let parts = rows.into_iter().filter(|row| row.rank.is_none());
    parts.map(|row| (row.name, row.verdict)).collect()
}

/// The rows, and how much of the time they match.
pub(super) fn rows(a: &[Baseline], b: &[Baseline], by: Option<By>) -> (Vec<Row>, Vec<Coverage>) {
    let with_devices = a.iter().chain(b).any(|run| run.devices.len() > 1);
    let (first, second) = (found(a, by, with_devices), found(b, by, with_devices));
    let several = |side: &[Baseline]| {
        let devices = side.iter().flat_map(|run| &run.devices);
        let ranks: BTreeSet<u32> = devices.clone().map(|device| device.rank).collect();
        devices
            .map(|device| (device.rank, device.device_index))
            .collect::<BTreeSet<_>>()
            .len()
            > ranks.len()
    };
    let several = several(a) || several(b);
    let keys: BTreeSet<&Key> = first.keys().chain(second.keys()).collect();
    let mut all: Vec<(Row, Option<f64>)> = Vec::new();
    let mut coverage: BTreeMap<By, Coverage> = BTreeMap::new();
    for key in keys {
        let one = first.get(key).map(|runs| Side::of(runs, a));
        let other = second.get(key).map(|runs| Side::of(runs, b));
        if key.device.is_none() && !matches!(key.by, By::Rank) {
            cover(&mut coverage, key.by, one.as_ref(), other.as_ref());
        }
        all.push(row(key, one.as_ref(), other.as_ref(), several));
    }
    if let ([a], [b]) = (a, b)
        && by.is_none_or(|by| by == By::Step)
    {
        all.extend(single_rows(a, b));
    }
    let probabilities: Vec<f64> = all.iter().filter_map(|(_, p)| *p).collect();
    let limit = false_discovery_limit(&probabilities, FALSE_SHARE);
    let mut rows: Vec<Row> = all
        .into_iter()
        .map(|(mut row, p)| {
            if row.verdict == Verdict::Unknown {
                row.verdict = verdict_of(row.change_ns, p.map(|p| p <= limit));
            }
            row
        })
        .collect();
    let changed = |row: &Row| !matches!(row.verdict, Verdict::Same | Verdict::Unknown);
    rows.sort_by(|a, b| {
        let order = |row: &Row| (!changed(row), std::cmp::Reverse(row.change_ns.unsigned_abs()));
        order(a)
            .cmp(&order(b))
            .then_with(|| (a.by, &a.name, &a.what, a.rank).cmp(&(b.by, &b.name, &b.what, b.rank)))
    });
    (rows, coverage.into_values().collect())
}

fn cover(coverage: &mut BTreeMap<By, Coverage>, by: By, one: Option<&Side<'_>>, other: Option<&Side<'_>>) {
    let of = coverage.entry(by).or_insert(Coverage {
        by,
        total_a_ns: 0,
        matched_a_ns: 0,
        unmatched_a_ns: 0,
        total_b_ns: 0,
        matched_b_ns: 0,
        unmatched_b_ns: 0,
    });
    let [a, b] = [one, other].map(|side| side.map_or(0, |side| side.total_ns));
    let both = one.is_some() && other.is_some();
    of.total_a_ns = of.total_a_ns.saturating_add(a);
    of.total_b_ns = of.total_b_ns.saturating_add(b);
    let (first, second) = match both {
        true => (&mut of.matched_a_ns, &mut of.matched_b_ns),
        false => (&mut of.unmatched_a_ns, &mut of.unmatched_b_ns),
    };
    *first = first.saturating_add(a);
    *second = second.saturating_add(b);
}

fn row(key: &Key, one: Option<&Side<'_>>, other: Option<&Side<'_>>, several: bool) -> (Row, Option<f64>) {
    let value = |side: Option<&Side<'_>>| side.map(|side| side.estimate.value.round() as i64);
    let (a_ns, b_ns) = (value(one), value(other));
    let change_ns = b_ns.unwrap_or(0) - a_ns.unwrap_or(0);
    let (verdict, found) = match (one, other) {
        (None, _) => (Verdict::New, None),
        (_, None) => (Verdict::Gone, None),
        // However few steps there are: it is the same run.
        (Some(one), Some(other)) if one.values == other.values => {
            (Verdict::Same, Some(difference(&one.estimate, &other.estimate)))
        }
        (Some(one), Some(other)) => (Verdict::Unknown, Some(difference(&one.estimate, &other.estimate))),
    };
    let half = found.and_then(|found| found.half_width);
    let row = Row {
        by: key.by,
        name: key.name.clone(),
        what: key.what.clone(),
        rank: key.device.map(|(rank, _)| rank),
        device_index: key.device.filter(|_| several).map(|(_, device)| device),
        a_ns,
        b_ns,
        change_ns,
        low_ns: half.map(|half| change_ns - half.ceil() as i64),
        high_ns: half.map(|half| change_ns + half.ceil() as i64),
        verdict,
        count_a: one.and_then(|side| side.count),
        count_b: other.and_then(|side| side.count),
    };
    (row, found.and_then(|found| found.p))
}
