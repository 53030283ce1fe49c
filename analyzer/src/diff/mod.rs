//! What changed between two runs, or two sets of runs, and how sure that is.

mod describe;
mod estimate;
mod parts;
mod renamed;
mod row;
mod rows;
mod single;

use std::collections::BTreeMap;

use serde::Serialize;

use crate::baseline::{Baseline, By};
pub use describe::Run;
pub(crate) use estimate::{Estimate, difference, estimate};
pub use renamed::Renamed;
pub use row::{Coverage, Row, Verdict};
pub(crate) use single::single_steps;

/// The step of the job.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StepChange {
    /// What it typically takes in the first: the median over its steps; over several runs the mean of their medians.
    pub a_ns: i64,
    /// In the second.
    pub b_ns: i64,
    /// Second minus first.
    pub change_ns: i64,
    /// From here ...
    pub low_ns: Option<i64>,
    /// ... to here: the change's 95 % confidence interval. Null where there are too few steps.
    pub high_ns: Option<i64>,
    /// What became of it.
    pub verdict: Verdict,
    /// The smallest change that these runs could show; null likewise.
    pub least_ns: Option<i64>,
}

/// Two sides compared.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Diff {
    /// "gputrace.diff/1".
    pub schema: &'static str,
    /// The first side's runs.
    pub a: Vec<Run>,
    /// The second side's runs.
    pub b: Vec<Run>,
    /// The step.
    pub step: StepChange,
    /// What the step's change is made of, in nanoseconds a step: the parts sum to `step.change_ns`.
    pub parts: BTreeMap<String, i64>,
    /// What the step is made of in the first: sums to `step.a_ns`.
    pub parts_a: BTreeMap<String, i64>,
    /// In the second.
    pub parts_b: BTreeMap<String, i64>,
    /// What became of each part, and of the `step` itself on the mean GPU.
    pub part_verdicts: BTreeMap<String, Verdict>,
    /// All else, what is sure and costs most first.
    pub rows: Vec<Row>,
    /// Kernels with other names in the second run, at the same place of a step.
    pub renamed: Vec<Renamed>,
    /// How much of the time has something to be compared with.
    pub coverage: Vec<Coverage>,
    /// What can't be compared, and what has to be known to read this.
    pub notes: Vec<String>,
}

/// Compares the runs of one side with those of another; each side has at least one.
///
/// `by`: only rows of this kind, and only these are tested at once.
#[must_use]
pub fn diff(a: &[Baseline], b: &[Baseline], by: Option<By>) -> Diff {
    let sides = [a, b];
    let steps = |side: &[Baseline]| {
        let runs: Vec<&[i64]> = side.iter().map(|run| run.step_ns.as_slice()).collect();
        estimate(&runs)
    };
    let found = difference(&steps(a), &steps(b));
    let values = sides.map(|side| steps(side).value.round() as i64);
    let change_ns = values[1] - values[0];
    let step = StepChange {
        a_ns: values[0],
        b_ns: values[1],
        change_ns,
        low_ns: found.half_width.map(|half| change_ns - half.ceil() as i64),
        high_ns: found.half_width.map(|half| change_ns + half.ceil() as i64),
        verdict: match a
            .iter()
            .map(|run| &run.step_ns)
            .eq(b.iter().map(|run| &run.step_ns))
        {
            true => Verdict::Same,
            false => row::verdict_of(
                change_ns,
                found.half_width.map(|half| change_ns.abs() as f64 > half),
            ),
        },
        least_ns: found.half_width.map(|half| half.ceil() as i64),
    };
    let [parts_a, parts_b] = [parts::parts(a, values[0]), parts::parts(b, values[1])];
    let mut parts: BTreeMap<String, i64> = parts_b.clone();
    for (name, time) in &parts_a {
        *parts.entry(name.clone()).or_default() -= time;
    }
    let (rows, coverage) = rows::rows(a, b, by);
    Diff {
        schema: "gputrace.diff/1",
        notes: describe::notes(a, b),
        a: a.iter().map(describe::run).collect(),
        b: b.iter().map(describe::run).collect(),
        renamed: match (a, b) {
            ([a, ..], [b, ..]) => renamed::renamed(a, b),
            _ => Vec::new(),
        },
        step,
        parts,
        parts_a,
        parts_b,
        part_verdicts: rows::of_parts(a, b),
        rows,
        coverage,
    }
}
