//! Overlap, idle time and collectives, from a recording.
//!
//! [`analyze`] makes one [`Analysis`] of a recording, whatever it came from. Each number is defined in
//! `docs/measures.md`. Intervals are half-open, in nanoseconds as `i64`, and never rounded; unions are called time, sums
//! over operations never.

mod align;
mod alike;
mod alone;
mod analysis;
mod arrivals;
pub mod baseline;
mod by_step;
mod calls;
mod cause;
pub mod check;
mod clock_analysis;
mod clock_groups;
mod clock_names;
pub mod clocks;
mod collective_parts;
mod collectives;
mod communication;
mod communicators;
mod comparable;
mod compare;
mod copies;
mod counts;
mod derive;
mod details;
mod device_steps;
pub mod diff;
mod facts;
mod finding;
mod findings;
mod given_clocks;
mod glob;
pub mod graph;
pub mod hangs;
mod host_activity;
mod idle;
mod idle_causes;
pub mod intervals;
mod job_ranks;
mod kernel_names;
mod kernels;
mod kinds;
mod launches;
mod links;
mod losses;
mod measures;
mod memory;
mod occupancy;
mod operation;
mod operation_name;
mod operations;
mod operators;
mod options;
mod overhead;
pub mod partial;
mod parts;
mod pauses;
mod prepared;
mod queues;
pub mod rank_steps;
mod recording_cost;
mod reduce;
mod state;
mod state_findings;
mod statistics;
mod step_detection;
mod step_summary;
mod step_sums;
mod steps;
mod stored_parts;
pub mod tables;
mod transfers;
mod unfinished;
pub mod units;
mod word;

use gputrace_trace::manifest::Manifest;
use gputrace_trace::{Process, Recording, parallel};

pub use gputrace_trace::measures::{CATALOGUE, Getter, Measure, Measures};

pub use align::{ClockChoice, ComparedClocks, align, clock_estimates, compared_estimates};
pub use analysis::{Analysis, RankAnalysis};
pub use arrivals::{ArrivalAnalysis, CollectiveSize, LateBecause};
pub use cause::Cause;
pub use clock_analysis::{ClockAnalysis, ClockMoment, ClockSet};
pub use collectives::{BandwidthRange, Collective, Undecided};
pub use communication::CommunicationAnalysis;
pub use communicators::CommunicatorAnalysis;
pub use compare::{ComparedKernel, ComparedRank, ComparedStep, Comparison, compare};
pub use copies::CopyAnalysis;
pub use derive::{derive, derive_from};
pub use details::{CausedGap, CollectivePart, Details, DeviceGaps, KernelKinds};
pub use facts::Facts;
pub use finding::{CauseLink, Finding};
pub use given_clocks::{GivenClock, GivenClocks};
pub use graph::CriticalPath;
pub use idle::StreamAnalysis;
pub use idle_causes::Gap;
pub use intervals::is_possible;
pub use job_ranks::{JobRanks, Lost, MissingRanks};
pub use kernel_names::{demangled, is_communication, short_name};
pub use kernels::{KernelAnalysis, KindAnalysis};
pub use launches::LaunchAnalysis;
pub use links::{Nominal, nominal};
pub use memory::{InUse, Memory, MemoryAnalysis};
pub use occupancy::theoretical_occupancy;
pub use operators::{
    AllocatedBytes, Attribution, LaunchedOperations, Launcher, MemoryPart, ModuleAnalysis,
    ModuleClassAnalysis, ModuleTimes, OperationRow, OperatorAnalysis, Peak, ProductAnalysis, ShapeAnalysis,
    StackAnalysis, Unattributed, UnattributedMemory, native_name, runs_python,
};
pub use options::{Options, Sort};
pub use overhead::RecordingOverhead;
pub use parts::{PARTS, Part, Parts};
pub use queues::QueueAnalysis;
pub use recording_cost::RecordingCost;
pub use state::{DeviceState, HostState, Sampled, ThreadState};
pub use statistics::Distribution;
pub use step_summary::{JobStep, StepSummary};
pub use steps::{StepAnalysis, step_number};
pub use transfers::TransferAnalysis;
pub use unfinished::{UnfinishedOperation, last_moment};

use alone::Alone;
use job_ranks::Away;
use prepared::{Prepared, ROWS_FOR_WHAT_IF};

/// Whether any process of the recording used CUDA. Processes of our own recordings are there because they did; an imported
/// one shows it by an operation or a call.
#[must_use]
pub fn used_cuda(recording: &Recording) -> bool {
    let mut processes = recording.processes.iter();
    processes.any(|process| process_used_cuda(process, &recording.manifest))
}

/// The same of one process of a recording with this manifest.
fn process_used_cuda(process: &Process, manifest: &Manifest) -> bool {
    let tables = &process.tables;
    manifest.device != "imported"
        || !tables.kernels.start_ns.is_empty()
        || !tables.copies.start_ns.is_empty()
        || !tables.memsets.start_ns.is_empty()
        || !tables.api_calls.start_ns.is_empty()
}

/// Analyses a recording.
#[must_use]
pub fn analyze(recording: &Recording, options: &Options) -> Analysis {
    analysis(recording, options, false).0
}

/// Analyses a recording, and keeps what is found of every gap.
#[must_use]
pub fn analyze_in_detail(recording: &Recording, options: &Options) -> (Analysis, Details) {
    analysis(recording, options, true)
}

/// A recording's analysis with what it is compared by; of some steps, or of all.
#[must_use]
pub fn by_step(recording: &Recording, steps: Option<(u64, u64)>) -> (Analysis, baseline::Baseline) {
    let options = Options {
        steps,
        by_step: true,
        ..Options::default()
    };
    let (analysis, details) = analyze_in_detail(recording, &options);
    let baseline = baseline::baseline(recording, &analysis, &details);
    (analysis, baseline)
}

/// How many of the job's ranks a recording is of, and which are missing.
#[must_use]
pub fn ranks_of_job(recording: &Recording) -> JobRanks {
    job_ranks::job_ranks(recording, &prepared::ranks(recording), &Away::default())
}

/// Predicts what a step would take with changes.
///
/// # Errors
///
/// A line that says what is wrong: no such steps, or a change that matches nothing.
pub fn what_if(
    recording: &Recording,
    steps: Option<(u64, u64)>,
    changes: &[graph::Edit],
) -> Result<graph::WhatIf, String> {
    let model = model(recording, steps).ok_or(
        "in these steps no operation of a GPU is recorded, or one step has more than can be replayed",
    )?;
    model.predict(changes)
}

/// The same for many questions: the graph is built once. `None` where nothing ran in the steps, or one has more than can be
/// replayed.
#[must_use]
pub fn model(recording: &Recording, steps: Option<(u64, u64)>) -> Option<graph::Model> {
    let job = Prepared::of(recording).graph(recording, steps, ROWS_FOR_WHAT_IF)?;
    Some(graph::Model::of(recording.device(), job, recording.names.clone()))
}

fn analysis(recording: &Recording, options: &Options, in_detail: bool) -> (Analysis, Details) {
    let processes = &recording.processes;
    let of = parallel::map(processes.len(), |place| {
        Alone::of(&processes[place], &recording.names, options, in_detail)
    });
    let hangs = hangs::after_the_fact(recording);
    reduce::reduce(recording, of, hangs, &Away::default(), options, in_detail)
}
