//! What every answer about a recording starts from: operations, matched collectives, steps, and the graph of them.

use std::collections::BTreeMap;

use gputrace_trace::{Interner, Process, Recording, parallel};
use serde::{Deserialize, Serialize};

use crate::comparable::{self, Comparison};
use crate::device_steps::HostSteps;
use crate::graph::chosen::{ProcessSteps, choose};
use crate::graph::job::Job;
use crate::graph::rows::{Carried, Source};
use crate::measures::window;
use crate::operations::ProcessOperations;
use crate::pauses::Pauses;
use crate::{collective_parts, collectives, step_detection, steps};

/// Operations and calls in the graph that findings are replayed on, about thirty times; the first steps stand for all.
pub(crate) const ROWS_FOR_FINDINGS: u64 = 400_000;
/// The same where changes are tried that a user asks for.
pub(crate) const ROWS_FOR_WHAT_IF: u64 = 3_000_000;

/// What all that is asked of a recording starts from.
pub(crate) struct Prepared {
    pub(crate) operations: Vec<ProcessOperations>,
    pub(crate) clocks: comparable::Clocks,
    /// By process: its rank.
    pub(crate) ranks: Vec<Option<u32>>,
    pub(crate) matched: collectives::Matched,
    /// By process.
    pub(crate) windows: Vec<Steps>,
}

impl Prepared {
    pub(crate) fn of(recording: &Recording) -> Self {
        let names = &recording.names;
        let processes = &recording.processes;
        let operations: Vec<ProcessOperations> = parallel::map(processes.len(), |index| {
            ProcessOperations::new(&processes[index], names)
        });
        let spans: Vec<Option<(i64, i64)>> = operations
            .iter()
            .map(|operations| {
                let devices = operations.devices.values();
                let windows = devices.filter_map(|operations| window(&operations.cut));
                windows.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
            })
            .collect();
        let clocks = comparable::clocks(recording, &spans);
        let ranks = ranks(recording);
        let parts: Vec<collective_parts::Parts> = parallel::map(processes.len(), |index| {
            let place = u32::try_from(index).unwrap_or(u32::MAX);
            collective_parts::parts(&processes[index], place, ranks[index], &operations[index], names)
        });
        // Collectives are matched whole, before anything is cut to steps.
        let matched = {
            let comparison = Comparison::of(recording, &clocks);
            let all = parts.iter().flat_map(|parts| &parts.all);
            collectives::collectives(all, job(recording, used(&operations)), &comparison, true)
        };
        let windows: Vec<Steps> = parallel::map(processes.len(), |index| {
            Steps::of(&processes[index], &operations[index], names)
        });
        Self {
            operations,
            clocks,
            ranks,
            matched,
            windows,
        }
    }

    /// The graph of the chosen steps, of at most so many rows; `None` where nothing ran in them, or a single step has more.
    pub(crate) fn graph(&self, recording: &Recording, chosen: Option<(u64, u64)>, most: u64) -> Option<Job> {
        let used: Vec<Vec<u32>> = self
            .operations
            .iter()
            .map(|operations| operations.devices.keys().copied().collect())
            .collect();
        let steps: Vec<ProcessSteps<'_>> = self
            .windows
            .iter()
            .zip(&used)
            .zip(&recording.processes)
            .map(|((windows, used), process)| ProcessSteps {
                windows: windows.of_process(used),
                on_host: windows.on_host().is_some(),
                devices: windows.launched(),
                used,
                rows: (process.tables.kernels.start_ns.len() + process.tables.api_calls.start_ns.len())
                    as u64,
                carried: &Carried::All,
            })
            .collect();
        let chosen = choose(&steps, chosen, most).ok()?;
        let sources = recording.processes.iter().zip(&self.operations);
        let sources = sources.map(|(process, operations)| Source {
            process,
            operations,
            kept: None,
        });
        Job::new(
            recording,
            &sources.collect::<Vec<_>>(),
            &self.matched.collectives,
            &steps,
            &self.ranks,
            self.clocks.comparable,
            chosen,
        )
    }
}

/// How many processes used a GPU.
pub(crate) fn used(operations: &[ProcessOperations]) -> usize {
    let used = operations
        .iter()
        .filter(|operations| !operations.devices.is_empty());
    used.count()
}

/// By process: its rank. Where no process says its rank, their order is as good as any; beside others that do it is not.
pub(crate) fn ranks(recording: &Recording) -> Vec<Option<u32>> {
    let own = || recording.processes.iter().map(|process| process.header.rank);
    let any_rank = own().any(|rank| rank.is_some());
    own()
        .zip(0u32..)
        .map(|(rank, place)| rank.or((!any_rank).then_some(place)))
        .collect()
}

/// How many ranks the job has, as far as it is known: by what the processes say, at least those that used a GPU, which are `here`.
pub(crate) fn job(recording: &Recording, here: usize) -> collectives::Job {
    let said = recording
        .processes
        .iter()
        .filter_map(|process| process.header.world_size)
        .max();
    let here = u32::try_from(here).unwrap_or(u32::MAX);
    collectives::Job {
        ranks: said.unwrap_or(0).max(here),
    }
}

/// The steps of a process's devices.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Steps {
    /// By ranges.
    Named {
        host: Vec<steps::Window>,
        /// What was launched in them, by device: only of those on which launches are recorded.
        devices: BTreeMap<u32, Vec<steps::Window>>,
    },
    /// By device, guessed.
    Detected(BTreeMap<u32, Vec<steps::Window>>),
}

impl Steps {
    pub(crate) fn of(process: &Process, operations: &ProcessOperations, names: &Interner) -> Self {
        let pauses = Pauses::of(process, names);
        let named = steps::windows(process, &pauses, names);
        let devices = operations.devices.iter();
        if !named.is_empty() {
            let host = HostSteps::new(&named);
            let calls = &process.tables.api_calls;
            let devices = devices.filter_map(|(&device, operations)| {
                Some((device, host.on_device(operations.uncut(), calls, &pauses)?))
            });
            return Self::Named {
                devices: devices.collect(),
                host: named,
            };
        }
        Self::Detected(
            devices
                .map(|(&device, operations)| (device, step_detection::detect(&operations.cut)))
                .collect(),
        )
    }

    /// The steps of the host, where ranges name them.
    pub(crate) fn on_host(&self) -> Option<&[steps::Window]> {
        match self {
            Self::Named { host, .. } => Some(host),
            Self::Detected(_) => None,
        }
    }

    /// What was launched in the host's steps, by device on which launches are recorded.
    pub(crate) fn launched(&self) -> Option<&BTreeMap<u32, Vec<steps::Window>>> {
        match self {
            Self::Named { devices, .. } => Some(devices),
            Self::Detected(_) => None,
        }
    }

    /// The steps of a device; those of the host, where ranges name them and no launch on the device is recorded.
    pub(crate) fn of_device(&self, device: u32) -> &[steps::Window] {
        let (devices, otherwise) = match self {
            Self::Named { host, devices } => (devices, host.as_slice()),
            Self::Detected(devices) => (devices, &[][..]),
        };
        devices.get(&device).map_or(otherwise, Vec::as_slice)
    }

    /// Those of the process: the host's, else its first device's.
    pub(crate) fn of_process(&self, used: &[u32]) -> &[steps::Window] {
        self.on_host()
            .unwrap_or_else(|| self.of_device(used.first().copied().unwrap_or(0)))
    }

    /// From when to when the steps with these numbers are, on the host and on all devices.
    pub(crate) fn time_of(&self, numbers: &[u64]) -> Option<(i64, i64)> {
        let (host, devices) = match self {
            Self::Named { host, devices } => (host.as_slice(), devices),
            Self::Detected(devices) => (&[][..], devices),
        };
        let all = host.iter().chain(devices.values().flatten());
        let times = all
            .filter(|window| numbers.contains(&window.number))
            .map(|window| (window.start, window.end));
        times.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
    }

    /// How many of the process's devices have the host's steps.
    pub(crate) fn devices_by_host(&self, operations: &ProcessOperations) -> usize {
        match self {
            Self::Named { devices, .. } => operations.devices.len() - devices.len(),
            Self::Detected(_) => 0,
        }
    }

    /// Keeps those with these numbers.
    pub(crate) fn keep(&mut self, numbers: std::ops::RangeInclusive<u64>) {
        let chosen =
            |windows: &mut Vec<steps::Window>| windows.retain(|window| numbers.contains(&window.number));
        let devices = match self {
            Self::Named { host, devices } => {
                chosen(host);
                devices
            }
            Self::Detected(devices) => devices,
        };
        devices.values_mut().for_each(chosen);
    }
}
