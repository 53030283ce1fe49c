//! Overlap, idle time and collectives, from a recording.
//!
//! [`analyze`] makes one [`Analysis`] of a recording, whatever it came from. Each number is defined in
//! `docs/measures.md`. Intervals are half-open, in nanoseconds as `i64`, and never rounded; unions are called time, sums
//! over operations never.

mod collectives;
mod findings;
mod idle;
pub mod intervals;
mod kernels;
mod measures;
mod operations;
mod steps;

use std::collections::BTreeMap;

use gputrace_trace::{Loss, Recording};
use serde::Serialize;

pub use collectives::Collective;
pub use findings::Finding;
pub use idle::StreamAnalysis;
pub use kernels::KernelAnalysis;
pub use measures::Measures;
pub use steps::{StepAnalysis, step_number};

use measures::{clip, window};
use operations::{KindFrom, ProcessOperations};

/// What kernels are ordered by, greatest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sort {
    /// Sum of durations.
    #[default]
    Total,
    /// How many.
    Count,
    /// Mean duration.
    Mean,
    /// Longest.
    Max,
}

/// What to analyse and how to order it.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Only the steps from the first number to the second, both counted.
    pub steps: Option<(u64, u64)>,
    /// Order of the kernels.
    pub sort: Sort,
    /// How many kernels to keep for each device; all when `None`.
    pub top: Option<usize>,
}

/// One rank's device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RankAnalysis {
    /// The rank in the job, where it is known.
    pub rank: Option<u32>,
    /// Device index within the process.
    pub device_index: u32,
    /// The device's name, where it is known.
    pub device_name: Option<String>,
    /// Host of the process.
    pub host: String,
    /// From the run's first operation (on any device) to this device's.
    pub idle_before_ns: i64,
    /// From this device's last operation to the run's.
    pub idle_after_ns: i64,
    /// The measures over the whole span.
    #[serde(flatten)]
    pub measures: Measures,
    /// Idle time by cause; the parts sum to `idle_ns`.
    pub idle_causes: BTreeMap<String, i64>,
    /// By stream.
    pub streams: Vec<StreamAnalysis>,
    /// By name.
    pub kernels: Vec<KernelAnalysis>,
    /// By training step.
    pub steps: Vec<StepAnalysis>,
}

/// Everything that is known of a recording.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Analysis {
    /// "gputrace.analysis/1".
    pub schema: &'static str,
    /// Where the recording is.
    pub source: String,
    /// "cuda", "sim" or "imported".
    pub device: String,
    /// One entry for each rank and device, by rank.
    pub ranks: Vec<RankAnalysis>,
    /// Matched over ranks, by start.
    pub collectives: Vec<Collective>,
    /// By what they could save.
    pub findings: Vec<Finding>,
    /// What was lost, while recording and in the analysis.
    pub losses: Vec<Loss>,
    /// What was ignored, rebuilt or assumed.
    pub notes: Vec<String>,
}

/// Whether any process of the recording used CUDA.
#[must_use]
pub fn used_cuda(recording: &Recording) -> bool {
    !recording.processes.is_empty()
}

/// Analyses a recording.
#[must_use]
pub fn analyze(recording: &Recording, options: &Options) -> Analysis {
    let mut processes: Vec<ProcessOperations> = recording
        .processes
        .iter()
        .map(|process| ProcessOperations::new(process, &recording.names))
        .collect();
    // Collectives are matched whole, before anything is cut to steps.
    let (collectives, without_kernel) = collectives::collectives(recording, &processes);
    let mut windows: Vec<Vec<steps::Window>> = recording
        .processes
        .iter()
        .map(|process| steps::windows(process, &recording.names))
        .collect();
    let mut without_steps = 0;
    if let Some((first, last)) = options.steps {
        for (operations, windows) in processes.iter_mut().zip(&mut windows) {
            windows.retain(|window| (first..=last).contains(&window.number));
            if windows.is_empty() && !operations.devices.is_empty() {
                without_steps += 1;
            }
            let start = windows.iter().map(|window| window.start).min().unwrap_or(0);
            let end = windows.iter().map(|window| window.end).max().unwrap_or(0);
            for operations in operations.devices.values_mut() {
                *operations = clip(operations, start, end);
            }
        }
    }
    let whole: Vec<(i64, i64)> = processes
        .iter()
        .flat_map(|process| process.devices.values())
        .filter_map(|operations| window(operations))
        .collect();
    let run_start = whole.iter().map(|(start, _)| *start).min().unwrap_or(0);
    let run_end = whole.iter().map(|(_, end)| *end).max().unwrap_or(0);
    let mut ranks = Vec::new();
    for ((process, operations), windows) in recording.processes.iter().zip(&processes).zip(&windows) {
        for (&device_index, operations_of_device) in &operations.devices {
            let Some((start, end)) = window(operations_of_device) else {
                continue;
            };
            let device = process
                .header
                .devices
                .iter()
                .find(|device| device.index == device_index);
            ranks.push(RankAnalysis {
                rank: process.header.rank,
                device_index,
                device_name: device.map(|device| device.name.clone()),
                host: process.header.host.clone(),
                idle_before_ns: start - run_start,
                idle_after_ns: run_end - end,
                measures: Measures::of(operations_of_device),
                idle_causes: idle::causes(operations_of_device, operations),
                streams: idle::streams(operations_of_device, &operations.calls),
                kernels: kernels::by_name(operations_of_device, &recording.names, options),
                steps: steps::steps(windows, operations_of_device),
            });
        }
    }
    let mut losses = recording.losses.clone();
    let mut lose = |what: &str, count: u64, affects: &str| {
        if count > 0 {
            losses.push(Loss {
                what: what.to_owned(),
                count: Some(count),
                affects: affects.to_owned(),
            });
        }
    };
    let backwards = processes.iter().map(|process| process.backwards).sum();
    lose(
        "operations that end before they start, left out",
        backwards,
        "every duration",
    );
    lose(
        "collectives without a recorded kernel",
        without_kernel,
        "wait, transfer and skew of those collectives",
    );
    let mut notes = recording.notes.clone();
    if without_steps > 0 {
        notes.push(format!(
            "{without_steps} of {} processes have none of the chosen steps and are left out of the ranks",
            processes.len()
        ));
    }
    let by_name = processes
        .iter()
        .flat_map(|process| process.devices.values().flatten());
    if by_name
        .into_iter()
        .any(|operation| operation.kind_from == KindFrom::Name)
    {
        notes.push(
            "some communication kernels were told by their names (nccl...Kernel...), not by NCCL itself"
                .to_owned(),
        );
    }
    Analysis {
        schema: "gputrace.analysis/1",
        source: recording.path.display().to_string(),
        device: if recording.is_simulated() {
            "sim".to_owned()
        } else {
            recording.manifest.device.clone()
        },
        findings: findings::findings(&ranks, &collectives),
        ranks,
        collectives,
        losses,
        notes,
    }
}
