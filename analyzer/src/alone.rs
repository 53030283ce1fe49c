//! What is known of one process without the others of its job. Everything that an analysis says of a job is made of these, and of
//! what ranks did together (`reduce.rs`).

use std::collections::BTreeMap;

use gputrace_trace::manifest::Device;
use gputrace_trace::{Interner, Process};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::analysis::RankAnalysis;
use crate::by_step::StepSums;
use crate::collective_parts::{self, Part};
use crate::communication;
use crate::communicators;
use crate::copies;
use crate::counts::{Counts, TooMuch};
use crate::details::CausedGap;
use crate::graph::rows::{Carried, Rows};
use crate::idle;
use crate::idle_causes;
use crate::kernels;
use crate::kinds::KindFrom;
use crate::launches;
use crate::measures::{Sums, window};
use crate::memory::Memory;
use crate::operations::ProcessOperations;
use crate::operators::{Advice, Attributions, DeviceMemory, LaunchedOperations};
use crate::options::Options;
use crate::overhead;
use crate::parts::Parts;
use crate::pauses::Pauses;
use crate::prepared::{ROWS_FOR_FINDINGS, Steps};
use crate::queues::Queues;
use crate::state;
use crate::step_summary;
use crate::step_sums::step_sums;
use crate::steps;
use crate::unfinished::{self, UnfinishedOperation};

/// Steps that devices of one process may have together: each device has all that ranges name.
const MOST_STEPS: usize = 1 << 20;

/// What is found of a device.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct AnalysedDevice {
    /// Without what depends on other ranks: `idle_before_ns` and `idle_after_ns`.
    pub(crate) rank: RankAnalysis,
    /// First operation's start and last one's end, in the chosen steps.
    pub(crate) window: (i64, i64),
    pub(crate) advice: Vec<Advice>,
    /// For pictures, where they are asked for.
    #[serde(skip)]
    pub(crate) gaps: Vec<CausedGap>,
    /// Likewise.
    #[serde(skip)]
    pub(crate) launched: Option<LaunchedOperations>,
    /// For comparisons, where they are asked for.
    #[serde(skip)]
    pub(crate) step_sums: Option<StepSums>,
}

/// What is known of a process alone.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Alone {
    /// Those with operations in the chosen steps.
    pub(crate) devices: Vec<AnalysedDevice>,
    /// Its part in collectives, whole and of all steps. Who it is is known beside others.
    #[serde(with = "crate::stored_parts")]
    pub(crate) parts: Vec<Part>,
    /// All steps.
    pub(crate) steps: Steps,
    /// From its first operation's start to its last one's end, in all steps.
    pub(crate) span: Option<(i64, i64)>,
    /// Devices that have operations, in any step.
    pub(crate) used: Vec<u32>,
    /// Kernels and calls.
    pub(crate) rows: u64,
    /// Of which steps it has rows for the graph.
    pub(crate) carried: Carried,
    pub(crate) counts: Counts,
    pub(crate) too_much: TooMuch,
    pub(crate) far_apart: Vec<String>,
    pub(crate) communicators: communicators::Side,
    pub(crate) uses: state::Uses,
    pub(crate) unfinished: Vec<UnfinishedOperation>,
    pub(crate) blocks: Vec<overhead::Block>,
    /// The first reading of its clocks (real time, monotonic, since boot): processes of one host may have seen several boots of it.
    pub(crate) first_reading: Option<(i64, i64, i64)>,
}

/// What the graph of the job takes of a process.
pub(crate) enum ForGraph {
    /// The process itself, with its operations.
    Whole(ProcessOperations),
    /// Some of its rows.
    Rows(Box<Rows>),
}

impl Alone {
    /// Of a process; with `in_detail` every gap is kept.
    pub(crate) fn of(
        process: &Process,
        names: &Interner,
        options: &Options,
        in_detail: bool,
    ) -> (Self, ForGraph) {
        let tables = &process.tables;
        let mut operations = ProcessOperations::new(process, names);
        // Collectives are matched whole, before anything is cut to steps.
        let parts = collective_parts::parts(process, 0, None, &operations, names);
        let steps = Steps::of(process, &operations, names);
        let used: Vec<u32> = operations.devices.keys().copied().collect();
        let windows = operations.devices.values();
        let windows = windows.filter_map(|operations| window(&operations.cut));
        let span = windows.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
        let rows = (tables.kernels.start_ns.len() + tables.api_calls.start_ns.len()) as u64;
        let ranks = u64::from(process.header.world_size.unwrap_or(1));
        let carried = Carried::of(
            steps.of_process(&used),
            rows,
            ranks,
            options.steps,
            ROWS_FOR_FINDINGS,
        );
        let some_rows = match &carried {
            Carried::All => None,
            Carried::Steps(numbers) => {
                let time = steps.time_of(numbers).unwrap_or((0, 0));
                Some(Rows::of_time(process, &operations, time))
            }
            Carried::Nothing => Some(Rows::default()),
        };
        let mut counts = Counts {
            backwards: operations.backwards,
            impossible: operations.impossible,
            before_call: operations.before_call,
            without_call: operations.without_call,
            without_kernel: parts.without_kernel,
            untold: parts.untold,
            graph_launches: tables.graph_launches.start_ns.len() as u64,
            by_host: steps.devices_by_host(&operations) as u64,
            ..Counts::default()
        };
        let mut chosen = None;
        if let Some((first, last)) = options.steps {
            let mut windows = steps.clone();
            windows.keep(first..=last);
            let mut any = operations.devices.is_empty();
            for (device, operations) in &mut operations.devices {
                let windows = windows.of_device(*device);
                any |= !windows.is_empty();
                let start = windows.iter().map(|window| window.start).min().unwrap_or(0);
                let end = windows.iter().map(|window| window.end).max().unwrap_or(0);
                operations.cut_to(start, end);
            }
            counts.without_steps = u64::from(!any);
            chosen = Some(windows);
        }
        let windows = chosen.as_ref().unwrap_or(&steps);
        let (devices, too_much) = devices(
            process,
            &operations,
            &parts.all,
            windows,
            names,
            options,
            in_detail,
        );
        let all_cut = operations.devices.values().flat_map(|device| &device.cut);
        counts.told_by_name = { all_cut }.any(|operation| operation.kind_from == KindFrom::Name);
        let alone = Self {
            devices,
            span,
            used,
            rows,
            carried,
            counts,
            too_much,
            far_apart: far_apart(process, &operations),
            communicators: communicators::Side::of(process, names, &parts.all, &operations),
            uses: state::Uses::of(process),
            unfinished: unfinished::unfinished(process, names),
            blocks: overhead::blocks(process, names),
            first_reading: first_reading(process),
            parts: parts.all,
            steps,
        };
        let for_graph = some_rows.map_or(ForGraph::Whole(operations), |rows| ForGraph::Rows(Box::new(rows)));
        (alone, for_graph)
    }

    /// The numbers of all its steps, chosen or not.
    pub(crate) fn step_numbers(&self) -> impl Iterator<Item = u64> {
        let windows = self.used.iter().flat_map(|device| self.steps.of_device(*device));
        windows.map(|window| window.number)
    }

    /// Says who the process is: its place among those of the recording, and its rank.
    pub(crate) fn place(&mut self, place: u32, rank: Option<u32>) {
        for part in &mut self.parts {
            part.participant.process = place;
            part.rank = rank;
        }
    }
}

fn devices(
    process: &Process,
    all: &ProcessOperations,
    parts: &[Part],
    windows: &Steps,
    names: &Interner,
    options: &Options,
    in_detail: bool,
) -> (Vec<AnalysedDevice>, TooMuch) {
    let tables = &process.tables;
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
    let mut too_much = TooMuch {
        causes: idle.not_looked_into,
        ..TooMuch::default()
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
    let mut found = Vec::new();
    for (&device_index, operations) in &all.devices {
        // What is of single operations (how long they took, how fast) is of whole ones; what is of time is cut to the steps.
        let (whole, chosen, all_operations) = (operations.uncut(), operations.chosen, operations.all());
        let operations = &operations.cut;
        let Some(time) = window(operations) else {
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
        if windows.len() > room && !found.is_empty() {
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
        let allocations = memory.allocations(device_index);
        let memory = memory.analysis(device_index);
        let of_operators = memory.as_ref().filter(|_| !allocations.is_empty());
        let of_operators = of_operators.map(|memory| DeviceMemory {
            allocations,
            peak: (memory.peak_at_ns.0, memory.peak_bytes),
        });
        let held = memory.as_ref().and_then(|memory| {
            let most = memory.peak_reserved_bytes.unwrap_or(memory.peak_bytes);
            Some((most, device?.memory_bytes?))
        });
        let on_device = attributions.of(
            device_index,
            device_name.as_deref(),
            whole,
            &mut steps,
            of_operators.as_ref(),
            held,
            in_detail,
        );
        let rank = RankAnalysis {
            rank: process.header.rank,
            device_index,
            host: process.header.host.clone(),
            idle_before_ns: None,
            idle_after_ns: None,
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
            attribution: on_device.attribution,
            steps,
            step_summary,
            device_name,
        };
        found.push(AnalysedDevice {
            rank,
            window: time,
            advice: on_device.advice,
            gaps: idle.all,
            launched: on_device.launched,
            step_sums,
        });
    }
    (found, too_much)
}

pub(crate) fn first_reading(process: &Process) -> Option<(i64, i64, i64)> {
    let clocks = &process.tables.clocks;
    Some((
        clocks.realtime_ns.first()?.0,
        *clocks.monotonic_ns.first()?,
        *clocks.boottime_ns.first()?,
    ))
}

/// A time far away from the rest (a field that no profiler set, say) makes a span of decades.
fn far_apart(process: &Process, operations: &ProcessOperations) -> Vec<String> {
    const A_DAY_NS: i64 = 24 * 3600 * 1_000_000_000;
    let devices = operations.devices.iter();
    devices
        .filter_map(|(device, operations)| {
            let longest = idle::gaps(operations.uncut()).max_by_key(|(from, to, _)| to.saturating_sub(*from));
            let (from, to, _) = longest.filter(|(from, to, _)| to.saturating_sub(*from) > A_DAY_NS)?;
            let days = to.saturating_sub(from) as f64 / A_DAY_NS as f64;
            Some(format!(
                "{}: GPU {device} has operations {days:.0} days apart",
                process.folder
            ))
        })
        .collect()
}
