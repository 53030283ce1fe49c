//! Kernels that have other names in the second run, found by their place in a step: one fused kernel for three, another tile of
//! a matrix product, another vendor's kernels for the same operator.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use similar::{Algorithm, DiffOp, capture_diff_slices};

use crate::baseline::{Baseline, Placed};

/// Runs of kernels longer than this say nothing of what took whose place.
const LONGEST: usize = 12;

/// Kernels of the first run in whose place others run in the second, in the step of median length on the first GPU.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Renamed {
    /// In the first, in order.
    pub a: Vec<String>,
    /// In the second.
    pub b: Vec<String>,
    /// The operator that launches them in both; null where that is not known.
    pub operator: Option<String>,
    /// In how many places of the step.
    pub places: usize,
    /// What those of the first take there: the sum of their durations.
    pub a_ns: i64,
    /// Those of the second.
    pub b_ns: i64,
    /// Second minus first.
    pub change_ns: i64,
}

/// What runs in a step, by names.
struct Named<'a> {
    names: Vec<&'a str>,
    operators: Vec<Option<&'a str>>,
    order: &'a [Placed],
}

impl<'a> Named<'a> {
    fn of(run: &'a Baseline) -> Self {
        let text = |number: u32| run.texts.get(number as usize).map_or("", String::as_str);
        Self {
            names: run.order.iter().map(|placed| text(placed.name)).collect(),
            operators: run.order.iter().map(|placed| placed.operator.map(text)).collect(),
            order: &run.order,
        }
    }

    /// Stretches launched by one operator each, and where they begin.
    fn by_operator(&self) -> (Vec<&'a str>, Vec<usize>) {
        let mut operators: Vec<&str> = Vec::new();
        let mut begins = Vec::new();
        for (place, operator) in self.operators.iter().enumerate() {
            let operator = operator.unwrap_or_default();
            if operators.last() != Some(&operator) {
                operators.push(operator);
                begins.push(place);
            }
        }
        begins.push(self.names.len());
        (operators, begins)
    }

    fn time(&self, range: std::ops::Range<usize>) -> i64 {
        let durations = self.order[range].iter().map(|placed| placed.duration_ns);
        durations.fold(0, i64::saturating_add)
    }
}

/// Names in the first, names in the second, and the operator that launches both.
type Change<'a> = (Vec<&'a str>, Vec<&'a str>, Option<&'a str>);

/// What took whose place, most time first.
pub(super) fn renamed<'a>(a: &'a Baseline, b: &'a Baseline) -> Vec<Renamed> {
    let (first, second) = (Named::of(a), Named::of(b));
    let known = |named: &Named<'_>| named.operators.iter().any(Option::is_some);
    let mut found: BTreeMap<Change<'a>, (usize, i64, i64)> = BTreeMap::new();
    let (in_first, in_second): (BTreeSet<&str>, BTreeSet<&str>) = (
        first.names.iter().copied().collect(),
        second.names.iter().copied().collect(),
    );
    let mut add = |x: std::ops::Range<usize>, y: std::ops::Range<usize>, operator: Option<&'a str>| {
        let (names, others) = (&first.names[x.clone()], &second.names[y.clone()]);
        let is_change = names.iter().any(|name| !in_second.contains(name))
            && others.iter().any(|name| !in_first.contains(name));
        if is_change && x.len() <= LONGEST && y.len() <= LONGEST {
            let key = (names.to_vec(), others.to_vec(), operator);
            let sums = found.entry(key).or_default();
            sums.0 += 1;
            sums.1 = sums.1.saturating_add(first.time(x));
            sums.2 = sums.2.saturating_add(second.time(y));
        }
    };
    if known(&first) && known(&second) {
        let ((operators, begins), (others, other_begins)) = (first.by_operator(), second.by_operator());
        for op in capture_diff_slices(Algorithm::Patience, &operators, &others) {
            if let DiffOp::Equal {
                old_index,
                new_index,
                len,
            } = op
            {
                for place in 0..len {
                    let (x, y) = (old_index + place, new_index + place);
                    let stretches = (begins[x]..begins[x + 1], other_begins[y]..other_begins[y + 1]);
                    if first.names[stretches.0.clone()] != second.names[stretches.1.clone()] {
                        add(
                            stretches.0,
                            stretches.1,
                            Some(operators[x]).filter(|operator| !operator.is_empty()),
                        );
                    }
                }
            }
        }
    } else {
        for op in capture_diff_slices(Algorithm::Patience, &first.names, &second.names) {
            if let DiffOp::Replace {
                old_index,
                old_len,
                new_index,
                new_len,
            } = op
            {
                add(
                    old_index..old_index + old_len,
                    new_index..new_index + new_len,
                    None,
                );
            }
        }
    }
    let owned = |names: Vec<&str>| names.into_iter().map(str::to_owned).collect();
    let mut renamed: Vec<Renamed> = found
        .into_iter()
        .map(|((names, others, operator), (places, a_ns, b_ns))| Renamed {
            a: owned(names),
            b: owned(others),
            operator: operator.map(str::to_owned),
            places,
            a_ns,
            b_ns,
            change_ns: b_ns.saturating_sub(a_ns),
        })
        .collect();
    renamed.sort_by_key(|renamed| std::cmp::Reverse(renamed.a_ns.max(renamed.b_ns)));
    renamed
}
