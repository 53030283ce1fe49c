//! The rows of a process that the graph of a job is made of: all of them in a small job, those of the first steps in a large one.

use gputrace_trace::table::{Table, TableVisitorMut};
use gputrace_trace::tables::Tables;
use gputrace_trace::{Process, TimeNs};
use rustc_hash::FxHashSet;
use serde::{Deserialize, Serialize};

use super::nodes::{Label, MeetingParts, Part, What};
use crate::operations::{DeviceOperations, Name, ProcessOperations};
use crate::steps::Window;

/// Tables that the graph looks at.
pub(crate) const TABLES: &[&str] = &[
    "kernels",
    "copies",
    "memsets",
    "graph_nodes",
    "graph_launches",
    "collectives",
    "api_calls",
    "synchronizations",
    "event_records",
    "markers",
    "operators",
    "external_correlations",
    "contexts",
];

/// Of which steps a process has rows for the graph. It follows from the process and the size of its job alone, so that it does
/// not matter beside which others it is looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Carried {
    /// All rows.
    All,
    /// Those of the steps with these numbers.
    Steps(Vec<u64>),
    /// None: a step of the job has too many.
    Nothing,
}

impl Carried {
    /// Of a process with these steps and so many rows, in a job of so many ranks as it says, if at most `most` rows are replayed.
    /// Other ranks may have fewer rows: there is some room.
    pub(crate) fn of(
        windows: &[Window],
        rows: u64,
        ranks: u64,
        chosen: Option<(u64, u64)>,
        most: u64,
    ) -> Self {
        let all = rows.saturating_mul(ranks.max(1));
        if all <= most {
            return Self::All;
        }
        let is_chosen =
            |window: &&Window| chosen.is_none_or(|(first, last)| (first..=last).contains(&window.number));
        let mut windows: Vec<&Window> = windows.iter().filter(is_chosen).collect();
        windows.sort_by_key(|window| window.start);
        let mut numbers: Vec<u64> = windows.iter().map(|window| window.number).collect();
        numbers.dedup();
        let a_step = (all / numbers.len().max(1) as u64).max(1);
        if numbers.is_empty() || a_step / 2 > most {
            return Self::Nothing;
        }
        let fit = usize::try_from(most / a_step).unwrap_or(usize::MAX).max(2);
        // The first is the warm-up, which is left out.
        numbers.truncate(fit.saturating_add(fit / 4).saturating_add(3));
        Self::Steps(numbers)
    }

    /// Whether the rows of a step are there.
    pub(crate) fn has(&self, number: u64) -> bool {
        match self {
            Self::All => true,
            Self::Steps(numbers) => numbers.contains(&number),
            Self::Nothing => false,
        }
    }
}

/// Which rows of the process those of the tables are, in their order; of tables that are whole nothing is said.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Kept {
    kernels: Vec<u32>,
    copies: Vec<u32>,
    memsets: Vec<u32>,
    graph_launches: Vec<u32>,
    calls: Vec<u32>,
}

/// A process with the rows that the graph needs, and no others.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rows {
    /// Its header is empty.
    pub(crate) process: Process,
    /// `None`: all of them.
    pub(crate) kept: Option<Kept>,
}

/// What the graph of a job is made of in one process.
#[derive(Clone, Copy)]
pub(crate) struct Source<'a> {
    pub(crate) process: &'a Process,
    pub(crate) operations: &'a ProcessOperations,
    /// Which of the process's rows these are; `None`: all.
    pub(crate) kept: Option<&'a Kept>,
}

impl Source<'_> {
    /// The thread of a call, by its row in the whole process.
    pub(crate) fn thread_of_call(&self, row: u32) -> Option<u32> {
        let row = match self.kept {
            Some(kept) => kept.calls.binary_search(&row).ok()?,
            None => row as usize,
        };
        self.process.tables.api_calls.thread.get(row).copied()
    }
}

impl Kept {
    /// The place among those that are kept of a kernel, by its row in the whole process.
    pub(crate) fn kernel(&self, row: u32) -> Option<u32> {
        u32::try_from(self.kernels.binary_search(&row).ok()?).ok()
    }

    /// Gives nodes the rows of the whole process.
    pub(crate) fn restore(&self, what: &mut [What], parts: &mut MeetingParts) {
        for what in what {
            let rows = match (what.part, what.label) {
                (_, Label::Operation(Name::Kernel(_))) => &self.kernels,
                (_, Label::Operation(Name::Copy { .. })) => &self.copies,
                (_, Label::Operation(Name::Memset { .. })) => &self.memsets,
                (_, Label::Operation(Name::Graph { .. })) => &self.graph_launches,
                (Part::Host | Part::Call | Part::Blocked, _) => &self.calls,
                _ => continue,
            };
            what.row = rows.get(what.row as usize).copied().unwrap_or(what.row);
        }
        let moved = parts.drain().map(|((device, row), nodes)| {
            let row = self.kernels.get(row as usize).copied().unwrap_or(row);
            ((device, row), nodes)
        });
        let moved: Vec<_> = moved.collect();
        parts.extend(moved);
    }
}

impl Rows {
    /// All rows of a process.
    pub(crate) fn all(process: &Process) -> Self {
        let mut tables = process.tables.clone();
        tables.visit_mut(&mut Leave(TABLES));
        Self {
            process: Process {
                folder: process.folder.clone(),
                tables,
                ..Process::default()
            },
            kept: None,
        }
    }

    /// Those of some time: what runs in it or is launched in it, and what the host did meanwhile.
    pub(crate) fn of_time(process: &Process, operations: &ProcessOperations, (from, to): (i64, i64)) -> Self {
        let tables = &process.tables;
        let calls = &tables.api_calls;
        let mut kept = Kept::default();
        for operation in operations.devices.values().flat_map(DeviceOperations::all) {
            let call = operation.call(calls);
            let begins = operation.start < to || call.is_some_and(|call| call.start < to);
            if operation.end <= from || !begins {
                continue;
            }
            let rows = match operation.name {
                Name::Kernel(_) => &mut kept.kernels,
                Name::Copy { .. } => &mut kept.copies,
                Name::Memset { .. } => &mut kept.memsets,
                Name::Graph { .. } => &mut kept.graph_launches,
            };
            rows.push(operation.row);
            kept.calls.extend(call.map(|call| call.row));
        }
        let within = |starts: &[TimeNs], duration: &dyn Fn(usize) -> Option<i64>| -> Vec<u32> {
            let rows = (0u32..).zip(starts).enumerate();
            rows.filter(|(place, (_, start))| {
                let end = duration(*place).map(|duration| start.0.saturating_add(duration));
                start.0 < to && end.is_some_and(|end| end > from || start.0 >= from)
            })
            .map(|(_, (row, _))| row)
            .collect()
        };
        let in_time = within(&calls.start_ns, &|row| Some(calls.duration_ns[row].0));
        kept.calls.extend(in_time);
        for rows in [
            &mut kept.kernels,
            &mut kept.copies,
            &mut kept.memsets,
            &mut kept.graph_launches,
            &mut kept.calls,
        ] {
            rows.sort_unstable();
            rows.dedup();
        }
        let of_calls: FxHashSet<u32> = kept
            .calls
            .iter()
            .map(|row| calls.correlation[*row as usize])
            .collect();
        let kernels = &tables.kernels;
        let of_kernels: FxHashSet<u32> = kept
            .kernels
            .iter()
            .map(|row| kernels.correlation[*row as usize])
            .collect();
        let tied = |ids: &[u32], known: &FxHashSet<u32>| -> Vec<u32> {
            let rows = (0u32..).zip(ids);
            rows.filter(|(_, id)| **id != 0 && known.contains(id))
                .map(|(row, _)| row)
                .collect()
        };
        let synchronizations = &tables.synchronizations;
        let mut waits = within(&synchronizations.start_ns, &|row| {
            Some(synchronizations.duration_ns[row].0)
        });
        waits.extend(tied(&synchronizations.correlation, &of_calls));
        waits.sort_unstable();
        waits.dedup();
        let (markers, operators) = (&tables.markers, &tables.operators);
        let in_markers = within(&markers.start_ns, &|row| {
            markers.duration_ns[row].map(|duration| duration.0)
        });
        let in_operators = within(&operators.start_ns, &|row| Some(operators.duration_ns[row].0));
        // Collectives keep their rows, which parts in them name.
        let mut collectives = tables.collectives.clone();
        for kernel in &mut collectives.kernel {
            let row = kernel.and_then(|row| u32::try_from(row).ok());
            *kernel = row.and_then(|row| kept.kernel(row)).map(u64::from);
        }
        let external = &tables.external_correlations;
        let tables = Tables {
            kernels: kernels.pick(&kept.kernels),
            copies: tables.copies.pick(&kept.copies),
            memsets: tables.memsets.pick(&kept.memsets),
            graph_launches: tables.graph_launches.pick(&kept.graph_launches),
            api_calls: calls.pick(&kept.calls),
            synchronizations: synchronizations.pick(&waits),
            event_records: tables
                .event_records
                .pick(&tied(&tables.event_records.correlation, &of_calls)),
            markers: markers.pick(&in_markers),
            operators: operators.pick(&in_operators),
            external_correlations: external.pick(&tied(&external.correlation, &of_kernels)),
            graph_nodes: tables.graph_nodes.clone(),
            contexts: tables.contexts.clone(),
            collectives,
            ..Tables::default()
        };
        Self {
            process: Process {
                folder: process.folder.clone(),
                tables,
                ..Process::default()
            },
            kept: Some(kept),
        }
    }
}

/// Empties all tables but some.
struct Leave(&'static [&'static str]);

impl TableVisitorMut for Leave {
    fn table<T: Table>(&mut self, table: &mut T) {
        if !self.0.contains(&T::NAME) {
            *table = T::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn windows(count: u64) -> Vec<Window> {
        let window = |number: u64| Window {
            number,
            thread: 1,
            name: Arc::from(format!("step {number}")),
            start: number.cast_signed() * 100,
            end: number.cast_signed() * 100 + 100,
            host: None,
        };
        (0..count).map(window).collect()
    }

    #[test]
    fn what_is_carried_follows_from_the_process_alone() {
        let of = |steps, rows, ranks, chosen| Carried::of(&windows(steps), rows, ranks, chosen, 1000);
        // All of the job fits, with or without steps.
        assert_eq!(of(10, 250, 4, None), Carried::All);
        assert_eq!(of(0, 1000, 1, None), Carried::All);
        assert_eq!(of(0, 1001, 1, None), Carried::Nothing);
        // A step of the job has 400 rows: two fit, the first is left out, and there is room for fewer rows elsewhere.
        assert_eq!(of(10, 1000, 4, None), Carried::Steps(vec![0, 1, 2, 3, 4]));
        // One has 1,600: others may have fewer, so that it fits after all.
        assert_eq!(of(10, 1000, 16, None), Carried::Steps(vec![0, 1, 2, 3, 4]));
        assert_eq!(of(10, 1000, 30, None), Carried::Nothing);
        // Of chosen steps those; all rows are taken for theirs, as when they are chosen over ranks.
        assert_eq!(of(10, 1000, 4, Some((3, 6))), Carried::Steps(vec![3, 4, 5, 6]));
        assert_eq!(of(10, 1000, 4, Some((30, 60))), Carried::Nothing);
        assert!(of(10, 1000, 4, None).has(4) && !of(10, 1000, 4, None).has(5));
    }
}
