//! What has to be known to read a comparison.

use std::collections::BTreeSet;

use gputrace_trace::Loss;
use serde::Serialize;

use super::estimate::FEWEST_STEPS;
use crate::baseline::{Baseline, By};
use crate::job_ranks::JobRanks;

/// One run of a side.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Run {
    /// Where it is.
    pub source: String,
    /// "cuda", "sim" or "imported".
    pub device: String,
    /// How many GPUs it has.
    pub gpus: usize,
    /// How many steps count.
    pub steps: usize,
    /// How many slow first ones are left out.
    pub warm_up: usize,
    /// How many of the job's ranks it is of, and which are missing.
    pub job_ranks: JobRanks,
    /// What was lost.
    pub losses: Vec<Loss>,
}

pub(super) fn run(run: &Baseline) -> Run {
    Run {
        source: run.source.clone(),
        device: run.device.clone(),
        gpus: run.devices.len(),
        steps: if run.whole_run.is_some() { 0 } else { run.steps() },
        warm_up: run.warm_up.len(),
        job_ranks: run.job_ranks.clone(),
        losses: run.losses.clone(),
    }
}

/// What differs between the sides apart from time, and what can't be said.
pub(super) fn notes(a: &[Baseline], b: &[Baseline]) -> Vec<String> {
    let mut notes = Vec::new();
    let sides = [("A", a), ("B", b)];
    for (side, runs) in sides {
        for run in runs {
            if let Some(why) = &run.whole_run {
                notes.push(format!(
                    "{side} ({}) is compared as a whole, since {why}: one number says nothing of how sure it is",
                    run.source
                ));
            } else if run.steps() < FEWEST_STEPS {
                notes.push(format!(
                    "{side} ({}) has {} of the {FEWEST_STEPS} steps that a verdict needs at least",
                    run.source,
                    run.steps()
                ));
            }
            if run.detected {
                notes.push(format!(
                    "the steps of {side} ({}) were guessed from a pattern",
                    run.source
                ));
            }
            if let Some(sentence) = run.job_ranks.sentence() {
                notes.push(format!("{side} ({}): {sentence}", run.source));
            }
            if !run.losses.is_empty() {
                let lost: Vec<&str> = run.losses.iter().map(|loss| loss.what.as_str()).collect();
                notes.push(format!(
                    "{side} ({}) has losses, which may look like a change: {}",
                    run.source,
                    lost.join("; ")
                ));
            }
        }
    }
    if a.len() == 1 && b.len() == 1 {
        notes.push(
            "one run a side: how much runs differ by themselves is taken from how much each drifts; several runs a side (--a, --b) \
             would tell"
                .to_owned(),
        );
    }
    let set = |runs: &[Baseline], of: &dyn Fn(&Baseline) -> Vec<String>| -> BTreeSet<String> {
        runs.iter().flat_map(of).collect()
    };
    let listed = |values: &BTreeSet<String>| {
        let values: Vec<&str> = values.iter().map(String::as_str).collect();
        values.join(", ")
    };
    let kinds = sides.map(|(_, runs)| set(runs, &|run| vec![run.device.clone()]));
    if kinds[0] != kinds[1] {
        notes.push(format!(
            "A is of device \"{}\", B of \"{}\": simulated times are modelled, and traces of others may stamp differently",
            listed(&kinds[0]),
            listed(&kinds[1])
        ));
    }
    let gpus = sides.map(|(_, runs)| {
        set(runs, &|run| {
            let names = run.devices.iter().filter_map(|device| device.device_name.clone());
            names.collect()
        })
    });
    if gpus[0] != gpus[1] && !gpus[0].is_empty() && !gpus[1].is_empty() {
        notes.push(format!(
            "A ran on {}, B on {}",
            listed(&gpus[0]),
            listed(&gpus[1])
        ));
    }
    let counts = sides.map(|(_, runs)| set(runs, &|run| vec![run.devices.len().to_string()]));
    if counts[0] != counts[1] {
        notes.push(format!(
            "A has {} GPUs, B {}: rows without a rank are means over all GPUs, and ranks of one side alone are new or gone",
            listed(&counts[0]),
            listed(&counts[1])
        ));
    }
    for by in [By::Operator, By::Module] {
        let has = |runs: &[Baseline]| {
            runs.iter()
                .any(|run| run.series.iter().any(|series| series.by == by))
        };
        let (first, second) = (has(a), has(b));
        if first != second {
            let without = if first { "B" } else { "A" };
            notes.push(format!(
                "{without} has no {}s recorded: they can't be compared",
                by.word()
            ));
        }
    }
    notes
}
