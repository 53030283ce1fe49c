//! What the typical step of a side is made of.

use std::collections::BTreeMap;

use crate::baseline::Baseline;

/// Parts of a step of `step_ns`, which they sum to: each has the share of it that it has of the middle half of the steps. Medians
/// of parts would not sum to the median of the step.
pub(super) fn parts(side: &[Baseline], step_ns: i64) -> BTreeMap<String, i64> {
    let mut shares: BTreeMap<&str, f64> = BTreeMap::new();
    for run in side {
        let mut order: Vec<usize> = (0..run.steps()).collect();
        order.sort_by_key(|step| (run.step_ns[*step], *step));
        let quarter = order.len() / 4;
        let middle = &order[quarter..order.len() - quarter];
        let of = |values: &[i64]| middle.iter().map(|step| values[*step] as f64).sum::<f64>();
        let whole = of(&run.step_ns);
        for (name, values) in &run.parts {
            let share = if whole > 0.0 { of(values) / whole } else { 0.0 };
            *shares.entry(name).or_default() += share / side.len() as f64;
        }
    }
    let mut parts: Vec<(&str, i64, f64)> = shares
        .into_iter()
        .map(|(name, share)| {
            let time = share * step_ns as f64;
            (name, time.floor() as i64, time - time.floor())
        })
        .collect();
    // What is rounded off, less than a nanosecond a part, goes to those that lost most by it.
    let mut rest = step_ns - parts.iter().map(|(_, time, _)| time).sum::<i64>();
    parts.sort_by(|a, b| b.2.total_cmp(&a.2).then_with(|| a.0.cmp(b.0)));
    for (_, time, _) in &mut parts {
        let more = rest.clamp(0, 1);
        *time += more;
        rest -= more;
    }
    let mut parts: BTreeMap<String, i64> = parts
        .into_iter()
        .map(|(name, time, _)| (name.to_owned(), time))
        .collect();
    if rest != 0 {
        *parts.entry("idle.unknown".to_owned()).or_default() += rest;
    }
    parts
}
