//! What every answer about a recording starts from: operations, matched collectives, steps, and the graph of them.

use std::collections::BTreeMap;

use gputrace_trace::{Process, Recording, parallel};

use crate::collectives::Job;
use crate::comparable::{self, Comparison};
use crate::device_steps::HostSteps;
use crate::operations::ProcessOperations;
use crate::pauses::Pauses;
use crate::{collective_parts, collectives, graph, step_detection, steps};

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
    pub(crate) parts: Vec<collective_parts::Parts>,
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
        let clocks = comparable::clocks(recording, &operations);
        let ranks = ranks(recording);
        let parts: Vec<collective_parts::Parts> = parallel::map(processes.len(), |index| {
            let place = u32::try_from(index).unwrap_or(u32::MAX);
            collective_parts::parts(&processes[index], place, ranks[index], &operations[index], names)
        });
        // Collectives are matched whole, before anything is cut to steps.
        let matched = {
            let comparison = Comparison::of(recording, &clocks);
            collectives::collectives(&parts, job(recording, &operations), &comparison)
        };
        let windows: Vec<Steps> = parallel::map(processes.len(), |index| {
            Steps::of(&processes[index], &operations[index], recording)
        });
        Self {
            operations,
            clocks,
            ranks,
            parts,
            matched,
            windows,
        }
    }

    /// The graph of the chosen steps, of at most so many rows; `None` where nothing ran in them, or a single step has more.
    pub(crate) fn graph(
        &self,
        recording: &Recording,
        chosen: Option<(u64, u64)>,
        most: u64,
    ) -> Option<graph::job::Job> {
        let steps: Vec<graph::job::ProcessSteps<'_>> = self
            .windows
            .iter()
            .zip(&self.operations)
            .map(|(windows, operations)| {
                let device = operations.devices.keys().next().copied().unwrap_or(0);
                graph::job::ProcessSteps {
                    windows: windows.on_host().unwrap_or_else(|| windows.of_device(device)),
                    on_host: windows.on_host().is_some(),
                    devices: windows.launched(),
                }
            })
            .collect();
        graph::job::Job::new(
            recording,
            &self.operations,
            &self.matched.collectives,
            &steps,
            &self.ranks,
            self.clocks.comparable,
            chosen,
            most,
        )
    }
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

/// How many ranks the job has, as far as it is known: by what the processes say, at least those that used a GPU here.
pub(crate) fn job(recording: &Recording, operations: &[ProcessOperations]) -> Job {
    let said = recording
        .processes
        .iter()
        .filter_map(|process| process.header.world_size)
        .max();
    let used = operations
        .iter()
        .filter(|operations| !operations.devices.is_empty());
    let here = u32::try_from(used.count()).unwrap_or(u32::MAX);
    Job {
        ranks: said.unwrap_or(0).max(here),
    }
}

/// The steps of a process's devices.
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
    fn of(process: &Process, operations: &ProcessOperations, recording: &Recording) -> Self {
        let pauses = Pauses::of(process, &recording.names);
        let named = steps::windows(process, &pauses, &recording.names);
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
    fn launched(&self) -> Option<&BTreeMap<u32, Vec<steps::Window>>> {
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
