//! Overlap, idle time and collectives, from a recording.
//!
//! [`analyze`] makes one [`Analysis`] of a recording, whatever it came from. Each number is defined in
//! `docs/measures.md`. Intervals are half-open, in nanoseconds as `i64`, and never rounded; unions are called time, sums
//! over operations never.

mod align;
mod alike;
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
mod parts;
mod pauses;
mod prepared;
mod queues;
mod recording_cost;
mod state;
mod state_findings;
mod statistics;
mod step_detection;
mod step_summary;
mod step_sums;
mod steps;
pub mod tables;
mod transfers;
mod unfinished;
pub mod units;

use std::collections::BTreeMap;

use gputrace_trace::manifest::Device;
pub use gputrace_trace::measures::{CATALOGUE, Getter, Measure, Measures};
use gputrace_trace::{Process, Recording, TimeNs, parallel};
use rustc_hash::FxHashMap;

pub use align::{ClockChoice, align, clock_estimates};
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
pub use kernel_names::{demangled, is_communication, short_name};
pub use kernels::{KernelAnalysis, KindAnalysis};
pub use launches::LaunchAnalysis;
pub use links::{Nominal, nominal};
pub use memory::{InUse, Memory, MemoryAnalysis};
pub use occupancy::theoretical_occupancy;
pub use operators::{
    Attribution, ModuleAnalysis, ModuleClassAnalysis, ModuleTimes, OperatorAnalysis, Peak, ProductAnalysis,
    ShapeAnalysis, StackAnalysis, Unattributed,
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

use by_step::StepSums;
use graph::causes::advised::OfDevice;
use measures::{Sums, window};
use operations::ProcessOperations;
use operators::Attributions;
use pauses::Pauses;
use prepared::{Prepared, ROWS_FOR_FINDINGS, ROWS_FOR_WHAT_IF, Steps};
use queues::Queues;
use step_sums::step_sums;

/// Whether any process of the recording used CUDA. Processes of our own recordings are there because they did; an imported
/// one shows it by an operation or a call.
#[must_use]
pub fn used_cuda(recording: &Recording) -> bool {
    recording.processes.iter().any(|process| {
        let tables = &process.tables;
        recording.manifest.device != "imported"
            || !tables.kernels.start_ns.is_empty()
            || !tables.copies.start_ns.is_empty()
            || !tables.memsets.start_ns.is_empty()
            || !tables.api_calls.start_ns.is_empty()
    })
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
    let names = &recording.names;
    let processes = &recording.processes;
    let prepared = Prepared::of(recording);
    let job = prepared.graph(recording, options.steps, ROWS_FOR_FINDINGS);
    let critical_path = job.as_ref().map(|job| graph::path::critical_path(job, names));
    let pieces = match (&job, &critical_path) {
        (Some(job), Some(path)) if in_detail => graph::path::pieces(job, path, names),
        _ => Vec::new(),
    };
    let step_count = job.as_ref().map_or(0, |job| match options.steps {
        Some(_) => job.steps.len(),
        None => job.steps.len() + job.left_out,
    });
    let causes = job
        .as_ref()
        .and_then(|job| graph::causes::Causes::of(job, step_count, names));
    let Prepared {
        mut operations,
        clocks,
        ranks: rank_by_place,
        parts,
        mut matched,
        mut windows,
    } = prepared;
    let rank_of = |index: usize| rank_by_place[index];
    let mut without_steps = 0;
    if let Some((first, last)) = options.steps {
        for (operations, windows) in operations.iter_mut().zip(&mut windows) {
            windows.keep(first..=last);
            let mut any = operations.devices.is_empty();
            for (device, operations) in &mut operations.devices {
                let windows = windows.of_device(*device);
                any |= !windows.is_empty();
                let start = windows.iter().map(|window| window.start).min().unwrap_or(0);
                let end = windows.iter().map(|window| window.end).max().unwrap_or(0);
                operations.cut_to(start, end);
            }
            without_steps += usize::from(!any);
        }
    }
    let whole: Vec<(i64, i64)> = operations
        .iter()
        .flat_map(|process| process.devices.values())
        .filter_map(|operations| window(&operations.cut))
        .collect();
    let run = Run {
        start: whole.iter().map(|(start, _)| *start).min().unwrap_or(0),
        end: whole.iter().map(|(_, end)| *end).max().unwrap_or(0),
        comparable: clocks.comparable,
    };
    if options.steps.is_some() {
        let chosen = run.start..run.end;
        let begins_within = |start: Option<TimeNs>| start.is_some_and(|start| chosen.contains(&start.0));
        matched
            .collectives
            .retain(|collective| begins_within(collective.start_ns));
    }
    let analysed = parallel::map(processes.len(), |index| {
        analyze_process(
            index,
            &processes[index],
            &operations[index],
            &parts[index].all,
            &windows[index],
            &run,
            recording,
            options,
            in_detail,
        )
    });
    let (mut ranks, mut devices, mut advice) = (Vec::new(), Vec::new(), Vec::new());
    let mut sums_by_step = Vec::new();
    let mut too_much = losses::TooMuch::default();
    for (of_process, too_much_of_it) in analysed {
        for device in of_process {
            ranks.push(device.rank);
            devices.push(device.gaps);
            advice.push(device.advice);
            sums_by_step.extend(device.step_sums);
        }
        too_much.add(too_much_of_it);
    }
    let advised = graph::causes::advised::findings(recording, job.as_ref(), step_count, &ranks, advice);
    drop(job);
    let communicators = communicators::communicators(
        processes,
        rank_of,
        &parts,
        &operations,
        &matched.collectives,
        names,
    );
    let blame = causes.as_ref().map(|causes| &causes.blame);
    let arrivals = arrivals::arrivals(&matched.collectives, blame);
    let found = losses::Found {
        operations: &operations,
        parts: &parts,
        matched: &matched,
        disjoint: clocks.disjoint.as_deref(),
        too_much,
    };
    let hangs = hangs::after_the_fact(recording);
    let losses = losses::losses(recording, &found, &hangs);
    let by_host = windows.iter().zip(&operations);
    let by_host = by_host.map(|(windows, operations)| windows.devices_by_host(operations));
    let steps = losses::StepsOf {
        without: without_steps,
        by_host: by_host.sum(),
    };
    let notes = losses::notes(recording, &operations, &ranks, &steps);
    let device_state = state::devices(recording, rank_of, (run.start, run.end));
    let host_state = state::hosts(recording, rank_of, (run.start, run.end));
    let parts = matched.collectives.iter_mut();
    let details = Details {
        devices,
        collectives: parts
            .map(|collective| std::mem::take(&mut collective.parts))
            .collect(),
        critical_path: pieces,
        steps: sums_by_step,
    };
    let analysis = Analysis {
        schema: "gputrace.analysis/1",
        source: recording.path.display().to_string(),
        device: recording.device().to_owned(),
        step: step_summary::job_step(ranks.iter().map(|rank| rank.steps.as_slice())),
        findings: findings::findings(
            &hangs,
            &ranks,
            &matched.collectives,
            &arrivals,
            state_findings::findings(&ranks, &device_state, &host_state),
            causes,
            advised,
            options.steps.is_none(),
        ),
        critical_path,
        device_state,
        host_state,
        hangs,
        over_ranks: operators::over_ranks(&ranks.iter().map(|rank| &rank.attribution).collect::<Vec<_>>()),
        ranks,
        communicators,
        transfers: transfers::transfers(&matched.collectives),
        collective_sizes: arrivals::sizes(&matched.collectives),
        collectives: matched.collectives,
        arrivals,
        measures: CATALOGUE,
        clock: clocks.assumption,
        clocks: clock_analysis::clocks(recording, &rank_by_place),
        clock_end_spread_ns: matched.end_spread_ns,
        unfinished: unfinished::unfinished(processes, names),
        recording_cost: recording_cost::costs(processes),
        recording_overhead: overhead::overhead(processes, names),
        losses,
        notes,
    };
    (analysis, details)
}

/// The time of the whole run.
struct Run {
    start: i64,
    end: i64,
    /// Whether the ranks' times can be compared.
    comparable: bool,
}

/// Steps that the devices of one process may have together: each device has all that ranges name.
const MOST_STEPS: usize = 1 << 20;

/// What is found of a device.
struct AnalysedDevice {
    rank: RankAnalysis,
    gaps: DeviceGaps,
    advice: OfDevice,
    step_sums: Option<StepSums>,
}

fn analyze_process(
    place: usize,
    process: &Process,
    all: &ProcessOperations,
    parts: &[collective_parts::Part],
    windows: &Steps,
    run: &Run,
    recording: &Recording,
    options: &Options,
    in_detail: bool,
) -> (Vec<AnalysedDevice>, losses::TooMuch) {
    let (names, tables) = (&recording.names, &process.tables);
    // Operators count that the host began in the chosen steps; where no range names them, while the devices were at them.
    let chosen = options.steps.and_then(|_| {
        let windows = all.devices.keys().flat_map(|device| windows.of_device(*device));
        let times = windows.map(|window| window.host.unwrap_or((window.start, window.end)));
        times.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))).or(Some((0, 0)))
    });
    let queues: BTreeMap<u32, Queues> = all
        .devices
        .iter()
        .map(|(&device, operations)| (device, Queues::new(operations.uncut(), &tables.api_calls)))
        .collect();
    let pauses = Pauses::of(process, names);
    let keep = idle_causes::Keep {
        gaps: in_detail,
        parts: options.by_step,
    };
    let mut idle = idle_causes::causes(all, process, &queues, &pauses, names, keep);
    let mut too_much = losses::TooMuch {
        causes: idle.not_looked_into,
        ..losses::TooMuch::default()
    };
    let parts = communication::by_device(parts);
    let memory = Memory::new(&tables.memory, &tables.counters, names);
    let mut launches = launches::Launches::new(process);
    let first_device = all.devices.keys().next().copied();
    let attributions = Attributions::new(process, names, first_device, chosen);
    let mut known: FxHashMap<u32, &Device> = FxHashMap::default();
    for device in &process.header.devices {
        known.entry(device.index).or_insert(device);
    }
    let mut room = MOST_STEPS;
    let mut ranks = Vec::new();
    for (&device_index, operations) in &all.devices {
        // What is of single operations (how long they took, how fast) is of whole ones; what is of time is cut to the steps.
        let (whole, chosen, all_operations) = (operations.uncut(), operations.chosen, operations.all());
        let operations = &operations.cut;
        let Some((start, end)) = window(operations) else {
            continue;
        };
        let device = known.get(&device_index).copied();
        let device_name = device
            .map(|device| device.name.clone())
            .filter(|name| !name.is_empty());
        let sums = Sums::new(operations, &pauses);
        let measures = sums.all();
        let mut windows = windows.of_device(device_index);
        // One device has as many steps as it likes.
        if windows.len() > room && !ranks.is_empty() {
            too_much.steps += 1;
            windows = &[];
        }
        room = room.saturating_sub(windows.len());
        let mut steps = steps::steps(windows, &sums);
        let step_summary = step_summary::summary(&mut steps);
        let idle = idle.devices.remove(&device_index).unwrap_or_default();
        let step_sums = options
            .by_step
            .then(|| step_sums(&attributions, whole, windows, &idle.parts));
        let gaps = DeviceGaps {
            process: u32::try_from(place).unwrap_or(u32::MAX),
            device_index,
            gaps: idle.all,
        };
        let memory = memory.analysis(device_index);
        let held = memory.as_ref().and_then(|memory| {
            let most = memory.peak_reserved_bytes.unwrap_or(memory.peak_bytes);
            Some((most, device?.memory_bytes?))
        });
        let (attribution, advice) =
            attributions.of(device_index, device_name.as_deref(), whole, &mut steps, held);
        let advice = OfDevice {
            process: gaps.process,
            device_index,
            advice,
        };
        let rank = RankAnalysis {
            rank: process.header.rank,
            device_index,
            host: process.header.host.clone(),
            idle_before_ns: run.comparable.then_some(start - run.start),
            idle_after_ns: run.comparable.then_some(run.end - end),
            parts: Parts::of(&measures, measures.span_ns),
            measures,
            idle_causes: idle.causes,
            host_late_by: idle.host_late_by,
            longest_gaps: idle.longest,
            streams: idle::streams(operations, &tables.api_calls, &pauses),
            kinds: kernels::by_kind(operations, whole),
            kernels: kernels::by_name(whole, names, options, &tables.kernels, device),
            communication: parts.get(&device_index).map_or_else(Vec::new, |parts| {
                communication::communication(parts, operations, chosen)
            }),
            copies: copies::copies(whole, &tables.copies, device_index, device_name.as_deref()),
            launches: launches.of(all_operations, chosen, names),
            queues: queues
                .get(&device_index)
                .map(Queues::analyses)
                .unwrap_or_default(),
            memory,
            attribution,
            steps,
            step_summary,
            device_name,
        };
        ranks.push(AnalysedDevice {
            rank,
            gaps,
            advice,
            step_sums,
        });
    }
    (ranks, too_much)
}
