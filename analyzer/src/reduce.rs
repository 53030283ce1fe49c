//! The analysis of a job, of what is known of each of its processes alone: collectives matched, ranks compared, causes replayed.

use std::sync::Arc;

use gputrace_trace::hang::Hang;
use gputrace_trace::measures::CATALOGUE;
use gputrace_trace::{Recording, TimeNs, parallel};

use crate::alone::{Alone, AnalysedDevice, ForGraph};
use crate::analysis::Analysis;
use crate::comparable::{self, Comparison};
use crate::counts::TooMuch;
use crate::details::{Details, DeviceGaps};
use crate::graph::causes::Causes;
use crate::graph::causes::advised::{self, OfDevice};
use crate::graph::chosen::{self, NotFollowed, ProcessSteps};
use crate::graph::job::Job;
use crate::graph::{path, rows};
use crate::job_ranks::{Away, job_ranks};
use crate::operations::ProcessOperations;
use crate::operators::LaunchedOperations;
use crate::options::Options;
use crate::prepared::{self, ROWS_FOR_FINDINGS};
use crate::{
    arrivals, clock_analysis, collectives, communicators, findings, losses, operators, overhead,
    recording_cost, state, state_findings, step_summary, transfers,
};

/// The time of the whole run.
struct Run {
    start: i64,
    end: i64,
}

/// What is known of a process alone, and its rows for the graph.
pub(crate) type OfProcess = (Alone, ForGraph);

/// Makes the analysis. `of` are the recording's processes in their order. Of their tables nothing is looked at but what `hangs::rows`
/// takes, and for the graph where that takes a whole process. `away` are processes that belong to it and are not here.
pub(crate) fn reduce(
    recording: &Recording,
    of: Vec<OfProcess>,
    hangs: Vec<Hang>,
    away: &Away,
    options: &Options,
    in_detail: bool,
) -> (Analysis, Details) {
    let names = &recording.names;
    let processes = &recording.processes;
    let ranks = prepared::ranks(recording);
    let (mut alone, for_graph): (Vec<Alone>, Vec<ForGraph>) = of.into_iter().unzip();
    for ((alone, place), rank) in alone.iter_mut().zip(0u32..).zip(&ranks) {
        alone.place(place, *rank);
    }
    let spans: Vec<Option<(i64, i64)>> = alone.iter().map(|alone| alone.span).collect();
    let clocks = comparable::clocks(recording, &spans);
    let here = alone.iter().filter(|alone| !alone.used.is_empty()).count();
    let chosen = {
        let steps_of = steps_of(&alone);
        chosen::choose(&steps_of, options.steps, ROWS_FOR_FINDINGS)
    };
    let not_carried = matches!(chosen, Err(NotFollowed::NotCarried));
    let chosen = chosen.ok();
    let mut matched = {
        let comparison = Comparison::of(recording, &clocks);
        let parts = alone.iter().flat_map(|alone| &alone.parts);
        collectives::collectives(
            parts,
            prepared::job(recording, here),
            &comparison,
            in_detail || chosen.is_some(),
        )
    };
    // Their kernels and all that is told of them stands in the collectives now.
    for alone in &mut alone {
        alone.parts = Vec::new();
    }
    let steps_of = steps_of(&alone);
    // Whoever was read for the graph alone has no operations yet.
    let operations: Vec<Option<ProcessOperations>> =
        parallel::map(for_graph.len(), |place| match &for_graph[place] {
            ForGraph::Rows(rows) if chosen.is_some() => Some(ProcessOperations::new(&rows.process, names)),
            _ => None,
        });
    let sources: Option<Vec<rows::Source<'_>>> = (0..processes.len())
        .map(|place| {
            Some(match &for_graph[place] {
                ForGraph::Whole(operations) => rows::Source {
                    process: &processes[place],
                    operations,
                    kept: None,
                },
                ForGraph::Rows(rows) => rows::Source {
                    process: &rows.process,
                    operations: operations[place].as_ref()?,
                    kept: rows.kept.as_ref(),
                },
            })
        })
        .collect();
    let sources = sources.unwrap_or_default();
    let job = chosen.and_then(|chosen| {
        Job::new(
            recording,
            &sources,
            &matched.collectives,
            &steps_of,
            &ranks,
            clocks.comparable,
            chosen,
        )
    });
    let job = job.as_ref();
    let critical_path = job.map(|job| path::critical_path(job, names));
    let pieces = match (job, &critical_path) {
        (Some(job), Some(path)) if in_detail => path::pieces(job, path, names),
        _ => Vec::new(),
    };
    let step_count = job.map_or(0, |job| match options.steps {
        Some(_) => job.steps.len(),
        None => job.steps.len() + job.left_out,
    });
    let causes = job.and_then(|job| Causes::of(job, step_count, names));
    let whole = alone
        .iter()
        .flat_map(|alone| &alone.devices)
        .map(|device| device.window);
    let whole: Vec<(i64, i64)> = whole.collect();
    let run = Run {
        start: whole.iter().map(|(start, _)| *start).min().unwrap_or(0),
        end: whole.iter().map(|(_, end)| *end).max().unwrap_or(0),
    };
    if options.steps.is_some() {
        let chosen = run.start..run.end;
        let begins_within = |start: Option<TimeNs>| start.is_some_and(|start| chosen.contains(&start.0));
        matched
            .collectives
            .retain(|collective| begins_within(collective.start_ns));
    }
    let (mut of_ranks, mut devices, mut advice) = (Vec::new(), Vec::new(), Vec::new());
    let mut launched: Vec<LaunchedOperations> = Vec::new();
    let mut sums_by_step = Vec::new();
    let mut too_much = TooMuch::default();
    for (process, alone) in (0u32..).zip(&mut alone) {
        for device in std::mem::take(&mut alone.devices) {
            let (start, end) = device.window;
            let AnalysedDevice {
                mut rank,
                gaps,
                launched: of_device,
                ..
            } = device;
            rank.idle_before_ns = clocks.comparable.then_some(start - run.start);
            rank.idle_after_ns = clocks.comparable.then_some(run.end - end);
            devices.push(DeviceGaps {
                process,
                device_index: rank.device_index,
                gaps,
            });
            launched.extend(of_device.map(|of_device| of_device.of(process, rank.device_index)));
            advice.push(OfDevice {
                process,
                device_index: rank.device_index,
                advice: device.advice,
            });
            of_ranks.push(rank);
            sums_by_step.extend(device.step_sums);
        }
        too_much.add(alone.too_much);
    }
    let ranks_analysed = of_ranks;
    let advised = advised::findings(names, &sources, job, step_count, &ranks_analysed, advice);
    let sides: Vec<(Option<u32>, &communicators::Side)> = ranks
        .iter()
        .copied()
        .zip(alone.iter().map(|alone| &alone.communicators))
        .collect();
    let communicators = communicators::communicators(&sides, &matched.collectives);
    let blame = causes.as_ref().map(|causes| &causes.blame);
    let arrivals = arrivals::arrivals(&matched.collectives, blame);
    let found = losses::Found {
        alone: &alone,
        matched: &matched,
        disjoint: clocks.disjoint.as_deref(),
        too_much,
        not_carried,
    };
    let losses = losses::losses(recording, &found, &hangs);
    let notes = losses::notes(recording, &alone, &ranks_analysed);
    let uses: Vec<(Option<u32>, &state::Uses)> = ranks
        .iter()
        .copied()
        .zip(alone.iter().map(|alone| &alone.uses))
        .collect();
    let device_state = state::devices(recording, &uses, (run.start, run.end));
    let host_state = state::hosts(recording, &uses, (run.start, run.end));
    let attributions: Vec<_> = ranks_analysed.iter().map(|rank| &rank.attribution).collect();
    let parts = matched.collectives.iter_mut();
    let details = Details {
        devices,
        collectives: parts
            .map(|collective| std::mem::take(&mut collective.parts))
            .collect(),
        critical_path: pieces,
        launched: Arc::new(launched),
        steps: sums_by_step,
    };
    let analysis = Analysis {
        schema: "gputrace.analysis/1",
        source: recording.path.display().to_string(),
        device: recording.device().to_owned(),
        exit_status: recording.manifest.exit_status,
        job_ranks: job_ranks(recording, &ranks, away),
        step: step_summary::job_step(ranks_analysed.iter().map(|rank| rank.steps.as_slice())),
        findings: findings::findings(
            &hangs,
            &ranks_analysed,
            &matched.collectives,
            &arrivals,
            state_findings::findings(&ranks_analysed, &device_state, &host_state),
            causes,
            advised,
            options.steps.is_none(),
        ),
        critical_path,
        device_state,
        host_state,
        hangs,
        over_ranks: operators::over_ranks(&attributions),
        communicators,
        transfers: transfers::transfers(&matched.collectives),
        collective_sizes: arrivals::sizes(&matched.collectives),
        collectives: matched.collectives,
        arrivals,
        measures: CATALOGUE,
        clock: clocks.assumption,
        clocks: clock_analysis::clocks(recording, &ranks),
        clock_end_spread_ns: matched.end_spread_ns,
        unfinished: alone
            .iter_mut()
            .flat_map(|alone| std::mem::take(&mut alone.unfinished))
            .collect(),
        recording_cost: recording_cost::costs(processes),
        recording_overhead: overhead::overhead(alone.iter().map(|alone| alone.blocks.as_slice())),
        losses,
        notes,
        ranks: ranks_analysed,
    };
    (analysis, details)
}

/// What the graph goes by in each process.
fn steps_of(alone: &[Alone]) -> Vec<ProcessSteps<'_>> {
    let of = alone.iter().map(|alone| ProcessSteps {
        windows: alone.steps.of_process(&alone.used),
        on_host: alone.steps.on_host().is_some(),
        devices: alone.steps.launched(),
        used: &alone.used,
        rows: alone.rows,
        carried: &alone.carried,
    });
    of.collect()
}
