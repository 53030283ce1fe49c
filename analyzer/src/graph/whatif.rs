//! What a step would take if something were different: replays with changes.

use gputrace_trace::Interner;
use serde::Serialize;

use super::candidates;
use super::edits::{self, Edit};
use super::job::{Job, mean};
use super::path::{CriticalPath, critical_path};

/// Low and high end of what is predicted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Interval {
    /// The least.
    pub low: f64,
    /// The most.
    pub high: f64,
}

impl Interval {
    /// Its middle.
    #[must_use]
    pub fn middle(self) -> f64 {
        f64::midpoint(self.low, self.high)
    }
}

/// A prediction.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WhatIf {
    /// "gputrace.whatif/1".
    pub schema: &'static str,
    /// "cuda", "sim" or "imported".
    pub device: String,
    /// The changes, as they are written for `--set`.
    pub changes: Vec<String>,
    /// The first and the last of the steps that were replayed.
    pub steps: (String, String),
    /// How many of them.
    pub step_count: usize,
    /// Steps of the recording that were not: they don't fit.
    pub steps_left_out: usize,
    /// The mean step as recorded, nanoseconds: from when all ranks were through with one to when they were through with the
    /// next.
    pub measured_step_ns: f64,
    /// The same by a replay without changes.
    pub replayed_step_ns: f64,
    /// With the changes.
    pub predicted_step_ns: Interval,
    /// Measured over the middle of what is predicted.
    pub speedup: f64,
    /// The share of the step that no rule explains: a replay without it is shorter by so much.
    pub unexplained_ratio: f64,
    /// Without changes: single ones that are worth trying, those first that save most.
    pub singles: Vec<Single>,
    /// What the steps' time was spent on, without the changes.
    pub critical_path: CriticalPath,
    /// Operations that were replayed.
    pub operations: u64,
    /// Of those, how many have no recorded launch.
    pub without_launch: u64,
    /// Of those, how many are taken to have waited for what ended right before, on another stream.
    pub in_time: u64,
    /// Operations that are taken to have waited for another rank, by time alone.
    pub hidden: u64,
    /// Waits that were left out because the recorded times contradict them.
    pub contradicted: u64,
    /// Matches that were left out because they make a circle.
    pub circles: usize,
}

/// What a single change would bring.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Single {
    /// The change, as it is written for `--set`.
    pub change: String,
    /// The mean step with it.
    pub predicted_step_ns: Interval,
    /// What the step loses by it.
    pub saves_per_step_ns: Interval,
}

/// A replay of a job without changes: what changes are compared with.
pub(crate) struct Baseline {
    /// Mean step with the gaps as they were recorded.
    pub(crate) kept_ns: f64,
    /// Without those that nothing explains.
    pub(crate) dropped_ns: f64,
    /// Twice the standard error of the mean step.
    pub(crate) noise_ns: f64,
    without_gaps: Vec<i64>,
}

impl Baseline {
    pub(crate) fn of(job: &Job) -> Self {
        let without_gaps = edits::scaled_gaps(job, 0.0);
        let mut ends = Vec::new();
        job.graph.replay(&job.graph.work, &without_gaps, &mut ends);
        let times = job.step_times(&job.ends);
        let mean = job.step_ns(&job.ends);
        let count = times.len() as f64;
        let squares: f64 = times.iter().map(|time| (*time as f64 - mean).powi(2)).sum();
        let error = if count > 1.0 {
            (squares / (count - 1.0) / count).sqrt()
        } else {
            0.0
        };
        Self {
            kept_ns: mean,
            dropped_ns: job.step_ns(&ends),
            noise_ns: 2.0 * error,
            without_gaps,
        }
    }

    /// The mean step after changes, with the gaps kept and dropped. The latter is scaled to what was measured, so that no change
    /// predicts what was measured either way.
    pub(crate) fn predict(&self, job: &Job, changed: &edits::Changed) -> Interval {
        let graph = changed.graph.as_ref().unwrap_or(&job.graph);
        let mut ends = Vec::new();
        graph.replay(&changed.work, &changed.gap, &mut ends);
        let kept = job.step_ns(&ends);
        let gaps: Vec<i64> = changed
            .gap
            .iter()
            .zip(&self.without_gaps)
            .map(|(gap, none)| *gap.min(none))
            .collect();
        graph.replay(&changed.work, &gaps, &mut ends);
        let dropped = job.step_ns(&ends) * self.kept_ns / self.dropped_ns.max(1.0);
        Interval {
            low: kept.min(dropped),
            high: kept.max(dropped),
        }
    }
}

/// Replays are off by about this share of a step where a job is run again with the change made (docs/whatif.md).
const OFF_BY: f64 = 0.01;

/// Predicts the mean step of a job with these changes; a line that says what is wrong with them.
pub(crate) fn predict(job: &Job, device: &str, changes: &[Edit], names: &Interner) -> Result<WhatIf, String> {
    let baseline = Baseline::of(job);
    let changed = edits::apply(job, changes, names)?;
    let mut predicted = baseline.predict(job, &changed);
    let middle = predicted.middle();
    let around = baseline.noise_ns + OFF_BY * middle;
    predicted.low = (predicted.low - around).max(0.0);
    predicted.high += around;
    let singles = if changes.is_empty() {
        singles(job, &baseline, names)
    } else {
        Vec::new()
    };
    let name = |step: Option<&super::job::Step>| step.map_or_else(String::new, |step| step.name.clone());
    Ok(WhatIf {
        schema: "gputrace.whatif/1",
        device: device.to_owned(),
        changes: changes.iter().map(ToString::to_string).collect(),
        steps: (name(job.steps.first()), name(job.steps.last())),
        step_count: job.steps.len(),
        steps_left_out: job.left_out,
        measured_step_ns: mean(&job.measured),
        replayed_step_ns: baseline.kept_ns,
        predicted_step_ns: predicted,
        speedup: baseline.kept_ns / middle.max(1.0),
        unexplained_ratio: (1.0 - baseline.dropped_ns / baseline.kept_ns.max(1.0)).clamp(0.0, 1.0),
        singles,
        critical_path: critical_path(job, names),
        operations: job.counts.operations,
        without_launch: job.counts.without_launch,
        in_time: job.counts.in_time,
        hidden: job.counts.hidden,
        contradicted: job.counts.contradicted,
        circles: job.cut,
    })
}

/// Less than this share of a step is not worth a line.
const LEAST_SAVED: f64 = 0.001;

/// All single changes that save something, the best first.
fn singles(job: &Job, baseline: &Baseline, names: &Interner) -> Vec<Single> {
    let mut singles: Vec<Single> = candidates::candidates(job, names)
        .iter()
        .filter_map(|edit| {
            let changed = edits::apply(job, std::slice::from_ref(edit), names).ok()?;
            let predicted = baseline.predict(job, &changed);
            Some(Single {
                change: edit.to_string(),
                predicted_step_ns: predicted,
                saves_per_step_ns: Interval {
                    low: baseline.kept_ns - predicted.high,
                    high: baseline.kept_ns - predicted.low,
                },
            })
        })
        .filter(|single| single.saves_per_step_ns.middle() > LEAST_SAVED * baseline.kept_ns)
        .collect();
    singles.sort_by(|a, b| {
        b.saves_per_step_ns
            .middle()
            .total_cmp(&a.saves_per_step_ns.middle())
    });
    singles
}
