//! A part of a recording by time: what exports of the visible range are made of.

use gputrace_trace::tables::Tables;
use gputrace_trace::{DurationNs, Process, Recording, Table, TimeNs};
use rustc_hash::FxHashSet;

/// Rows of a table for which `keep` holds.
fn rows<T: Table>(table: &T, keep: impl Fn(usize) -> bool) -> T {
    let mut kept = T::default();
    for index in (0..table.len()).filter(|&index| keep(index)) {
        kept.push(table.row(index));
    }
    kept
}

/// A stretch of time, absolute.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// Start.
    pub from: TimeNs,
    /// End, not in it.
    pub to: TimeNs,
}

impl Window {
    fn overlaps(self, start: TimeNs, duration: DurationNs) -> bool {
        self.from < self.to && start < self.to && (start + duration > self.from || start >= self.from)
    }

    fn holds(self, time: TimeNs) -> bool {
        self.from <= time && time < self.to
    }
}

/// The recording's events with a part in the window: whole, with the calls that launched them and the collectives that they
/// carry out. Of samples those within.
#[must_use]
pub fn cut(recording: &Recording, window: Window) -> Recording {
    let process = |process: &Process| Process {
        folder: process.folder.clone(),
        header: process.header.clone(),
        tables: cut_tables(&process.tables, window),
    };
    let mut part = Recording {
        path: recording.path.clone(),
        manifest: recording.manifest.clone(),
        processes: recording.processes.iter().map(process).collect(),
        hosts: recording.hosts.iter().map(process).collect(),
        names: recording.names.clone(),
        losses: recording.losses.clone(),
        notes: recording.notes.clone(),
        unaligned: recording.unaligned.clone(),
    };
    part.notes.push(format!(
        "a part of the recording: only what has a part between {} and {} ns since the epoch, with the calls that \
         launched it",
        window.from.0, window.to.0
    ));
    part
}

/// Standing tables and those about the recording itself stay whole.
fn cut_tables(tables: &Tables, window: Window) -> Tables {
    let mut launched: FxHashSet<u32> = FxHashSet::default();
    macro_rules! timed {
        ($table:ident) => {
            rows(&tables.$table, |index| {
                window.overlaps(
                    tables.$table.start_ns[index],
                    tables.$table.duration_ns[index],
                )
            })
        };
    }
    let kernel_is_kept =
        |row: usize| window.overlaps(tables.kernels.start_ns[row], tables.kernels.duration_ns[row]);
    // Collectives name their kernels by row.
    let mut new_row = 0u64;
    let kernel_rows: Vec<Option<u64>> = (0..tables.kernels.len())
        .map(|row| {
            kernel_is_kept(row).then(|| {
                new_row += 1;
                new_row - 1
            })
        })
        .collect();
    let kernels = rows(&tables.kernels, kernel_is_kept);
    let copies = timed!(copies);
    let memsets = timed!(memsets);
    let graph_launches = timed!(graph_launches);
    launched.extend(&kernels.correlation);
    launched.extend(&copies.correlation);
    launched.extend(&memsets.correlation);
    launched.extend(&graph_launches.correlation);
    // 0 is no launch.
    launched.remove(&0);
    let external_correlations = rows(&tables.external_correlations, |index| {
        launched.contains(&tables.external_correlations.correlation[index])
    });
    let plans: FxHashSet<u64> = external_correlations.id.iter().copied().collect();
    let is_carried = |index: usize| {
        let collectives = &tables.collectives;
        let by_row = collectives.kernel[index]
            .and_then(|row| usize::try_from(row).ok())
            .and_then(|row| kernel_rows.get(row).copied().flatten());
        by_row.is_some() || collectives.plan[index].is_some_and(|plan| plans.contains(&plan))
    };
    let mut collectives = rows(&tables.collectives, |index| {
        window.overlaps(
            tables.collectives.start_ns[index],
            tables.collectives.duration_ns[index],
        ) || is_carried(index)
    });
    for kernel in &mut collectives.kernel {
        *kernel = kernel
            .and_then(|row| usize::try_from(row).ok())
            .and_then(|row| kernel_rows.get(row).copied().flatten());
    }
    let markers = rows(&tables.markers, |index| {
        let duration = tables.markers.duration_ns[index].unwrap_or_default();
        window.overlaps(tables.markers.start_ns[index], duration)
    });
    Tables {
        api_calls: rows(&tables.api_calls, |index| {
            launched.contains(&tables.api_calls.correlation[index])
                || window.overlaps(
                    tables.api_calls.start_ns[index],
                    tables.api_calls.duration_ns[index],
                )
        }),
        untimed_operations: rows(&tables.untimed_operations, |index| {
            tables.untimed_operations.start_ns[index].is_none_or(|start| start < window.to)
        }),
        nccl_channels: timed!(nccl_channels),
        nccl_proxy: timed!(nccl_proxy),
        synchronizations: timed!(synchronizations),
        overheads: timed!(overheads),
        compilations: timed!(compilations),
        operators: timed!(operators),
        payload_fields: rows(&tables.payload_fields, |index| {
            window.holds(tables.payload_fields.time_ns[index])
        }),
        memory: rows(&tables.memory, |index| window.holds(tables.memory.time_ns[index])),
        memory_pools: rows(&tables.memory_pools, |index| {
            window.holds(tables.memory_pools.time_ns[index])
        }),
        counters: rows(&tables.counters, |index| {
            window.holds(tables.counters.time_ns[index])
        }),
        graph_nodes: tables.graph_nodes.clone(),
        communicators: tables.communicators.clone(),
        modules: tables.modules.clone(),
        object_names: tables.object_names.clone(),
        contexts: tables.contexts.clone(),
        streams: tables.streams.clone(),
        clocks: tables.clocks.clone(),
        windows: tables.windows.clone(),
        losses: tables.losses.clone(),
        kernels,
        copies,
        memsets,
        graph_launches,
        external_correlations,
        collectives,
        markers,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_a_part_in_the_window_with_its_launches() {
        let mut tables = Tables::default();
        for place in 0..10u32 {
            let at = i64::from(place) * 100;
            tables.kernels.push(gputrace_trace::tables::Kernel {
                start_ns: TimeNs(at + 50),
                duration_ns: DurationNs(60),
                correlation: place + 1,
                ..kernel()
            });
            tables.api_calls.push(gputrace_trace::tables::ApiCall {
                start_ns: TimeNs(at),
                duration_ns: DurationNs(10),
                name: gputrace_trace::NameId(0),
                kind: 5,
                callback: 0,
                thread: 1,
                correlation: place + 1,
                result: 0,
            });
        }
        let window = Window {
            from: TimeNs(305),
            to: TimeNs(550),
        };
        let part = cut_tables(&tables, window);
        // The one from 250 to 310 reaches in; the one at 550 begins behind it.
        assert_eq!(part.kernels.correlation, [3, 4, 5]);
        assert_eq!(part.api_calls.correlation, [3, 4, 5, 6]);
        let empty = Window {
            from: TimeNs(200),
            to: TimeNs(200),
        };
        assert!(cut_tables(&tables, empty).kernels.is_empty());
    }

    fn kernel() -> gputrace_trace::tables::Kernel {
        gputrace_trace::tables::Kernel {
            start_ns: TimeNs(0),
            duration_ns: DurationNs(0),
            name: gputrace_trace::NameId(0),
            device: 0,
            context: 1,
            stream: 7,
            correlation: 0,
            grid_x: 1,
            grid_y: 1,
            grid_z: 1,
            block_x: 1,
            block_y: 1,
            block_z: 1,
            registers: 0,
            static_shared_bytes: 0,
            dynamic_shared_bytes: 0,
            shared_executed_bytes: 0,
            local_bytes: 0,
            launch_type: 0,
            cluster_x: None,
            cluster_y: None,
            cluster_z: None,
            graph: None,
            graph_node: None,
        }
    }
}
