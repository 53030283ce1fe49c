//! What a step would take if something were different: replays with changes.

use std::sync::OnceLock;

use gputrace_trace::Interner;
use serde::Serialize;

use super::candidates;
use super::chosen::Step;
use super::edits::{self, Edit};
use super::job::{Job, mean};
use super::path::{self, CriticalPath};
use super::piece::Piece;
use super::rank_times::{RankTimes, rank_times};

/// Low and high end of what is predicted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Interval {
    /// The least.
    pub low: f64,
    /// The most.
    pub high: f64,
}

impl Interval {
    /// From the lower to the higher end of both.
    pub(crate) fn hull(self, other: Self) -> Self {
        Self {
            low: self.low.min(other.low),
            high: self.high.max(other.high),
        }
    }

    /// Its middle.
    #[must_use]
    pub fn middle(self) -> f64 {
        f64::midpoint(self.low, self.high)
    }

    /// Between the means of two.
    fn between(one: &[f64], other: &[f64]) -> Self {
        let mean = |times: &[f64]| times.iter().sum::<f64>() / times.len().max(1) as f64;
        let (one, other) = (mean(one), mean(other));
        Self {
            low: one.min(other),
            high: one.max(other),
        }
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
    /// The time of each of the steps that follow another.
    pub step_times_ns: StepTimes,
    /// Without changes: single ones that are worth trying, those first that save most.
    pub singles: Vec<Single>,
    /// What the steps' time was spent on, without the changes.
    pub critical_path: CriticalPath,
    /// Where the mean step goes on each device, without and with the changes.
    pub ranks: Vec<RankTimes>,
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

/// The time of each step, nanoseconds; their means are those of the prediction.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct StepTimes {
    /// Their names.
    pub names: Vec<String>,
    /// As recorded.
    pub measured: Vec<i64>,
    /// With the changes: the middle of what is predicted.
    pub predicted: Vec<f64>,
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
        let (kept, dropped) = self.steps(job, changed, &kept_ends(job, changed));
        Interval::between(&kept, &dropped)
    }

    /// The same of each step; `kept_ends` is when nodes end with the gaps kept.
    fn steps(&self, job: &Job, changed: &edits::Changed, kept_ends: &[i64]) -> (Vec<f64>, Vec<f64>) {
        let graph = changed.graph.as_ref().unwrap_or(&job.graph);
        let times = |ends: &[i64], scale: f64| -> Vec<f64> {
            let times = job.step_times(ends);
            times
                .into_iter()
                .map(|time| (time as f64 * scale).max(0.0))
                .collect()
        };
        let kept = times(kept_ends, 1.0);
        let gaps: Vec<i64> = changed
            .gap
            .iter()
            .zip(&self.without_gaps)
            .map(|(gap, none)| *gap.min(none))
            .collect();
        let mut ends = Vec::new();
        graph.replay(&changed.work, &gaps, &mut ends);
        // Where rules explain hardly anything, what is left without the gaps says nothing of the step.
        if self.dropped_ns < LEAST_EXPLAINED * self.kept_ns {
            return (kept.clone(), kept);
        }
        (kept, times(&ends, self.kept_ns / self.dropped_ns.max(1.0)))
    }
}

/// Steps of which rules explain less than this share are replayed with their gaps alone.
const LEAST_EXPLAINED: f64 = 0.2;
/// Replays are off by about this share of a step where a job is run again with the change made (docs/whatif.md).
const OFF_BY: f64 = 0.01;

/// A job that is kept, so that each of many questions costs a replay or two.
pub struct Model {
    device: String,
    job: Job,
    baseline: Baseline,
    names: Interner,
    unchanged: OnceLock<WhatIf>,
    path: OnceLock<CriticalPath>,
    pieces: OnceLock<Vec<Piece>>,
}

impl Model {
    /// Of a recording's job; `device` is what its GPUs are.
    pub(crate) fn of(device: &str, job: Job, names: Interner) -> Self {
        Self {
            device: device.to_owned(),
            baseline: Baseline::of(&job),
            job,
            names,
            unchanged: OnceLock::new(),
            path: OnceLock::new(),
            pieces: OnceLock::new(),
        }
    }

    /// Predicts the mean step with these changes; without any, all single ones are tried.
    ///
    /// # Errors
    /// A line that says what is wrong with the changes.
    pub fn predict(&self, changes: &[Edit]) -> Result<WhatIf, String> {
        if !changes.is_empty() {
            return predict(self, changes);
        }
        if let Some(known) = self.unchanged.get() {
            return Ok(known.clone());
        }
        let made = predict(self, changes)?;
        Ok(self.unchanged.get_or_init(|| made).clone())
    }

    /// The critical path.
    pub fn critical_path(&self) -> &CriticalPath {
        self.path
            .get_or_init(|| path::critical_path(&self.job, &self.names))
    }

    /// Its pieces, by time.
    pub fn pieces(&self) -> &[Piece] {
        self.pieces
            .get_or_init(|| path::pieces(&self.job, self.critical_path(), &self.names))
    }
}

/// Predicts the mean step of a job with these changes; a line that says what is wrong with them.
fn predict(model: &Model, changes: &[Edit]) -> Result<WhatIf, String> {
    let (job, baseline, names) = (&model.job, &model.baseline, &model.names);
    let changed = edits::apply(job, changes, names)?;
    let ends = kept_ends(job, &changed);
    let (kept, dropped) = baseline.steps(job, &changed, &ends);
    let mut predicted = Interval::between(&kept, &dropped);
    let middle = predicted.middle();
    let around = baseline.noise_ns + OFF_BY * middle;
    predicted.low = (predicted.low - around).max(0.0);
    predicted.high += around;
    let singles = if changes.is_empty() {
        singles(job, baseline, names)
    } else {
        Vec::new()
    };
    let name = |step: Option<&Step>| step.map_or_else(String::new, |step| step.name.clone());
    Ok(WhatIf {
        schema: "gputrace.whatif/1",
        device: model.device.clone(),
        changes: changes.iter().map(ToString::to_string).collect(),
        steps: (name(job.steps.first()), name(job.steps.last())),
        step_count: job.steps.len(),
        steps_left_out: job.left_out,
        measured_step_ns: mean(&job.measured),
        replayed_step_ns: baseline.kept_ns,
        predicted_step_ns: predicted,
        speedup: baseline.kept_ns / middle.max(1.0),
        unexplained_ratio: (1.0 - baseline.dropped_ns / baseline.kept_ns.max(1.0)).clamp(0.0, 1.0),
        step_times_ns: StepTimes {
            names: job
                .timed()
                .into_iter()
                .map(|step| job.steps[step].name.clone())
                .collect(),
            measured: job.measured.clone(),
            predicted: kept
                .iter()
                .zip(&dropped)
                .map(|(kept, dropped)| f64::midpoint(*kept, *dropped))
                .collect(),
        },
        singles,
        critical_path: model.critical_path().clone(),
        ranks: rank_times(job, &ends, &changed.work),
        operations: job.counts.operations,
        without_launch: job.counts.without_launch,
        in_time: job.counts.in_time,
        hidden: job.counts.hidden,
        contradicted: job.counts.contradicted,
        circles: job.cut,
    })
}

/// When nodes end with some changes, unexplained gaps kept.
fn kept_ends(job: &Job, changed: &edits::Changed) -> Vec<i64> {
    let mut ends = Vec::new();
    let graph = changed.graph.as_ref().unwrap_or(&job.graph);
    graph.replay(&changed.work, &changed.gap, &mut ends);
    ends
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
