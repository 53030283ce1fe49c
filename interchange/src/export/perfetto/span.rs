//! From when to when the recording is.

use gputrace_trace::{DurationNs, Recording, TimeNs};

/// The first and the last moment of anything in the recording; twice 0 where there is nothing.
pub(super) fn of(recording: &Recording) -> (i64, i64) {
    let mut span = (i64::MAX, i64::MIN);
    let mut take = |time: i64| span = (span.0.min(time), span.1.max(time));
    for process in recording.processes.iter().chain(&recording.hosts) {
        let tables = &process.tables;
        let mut lasting = |starts: &[TimeNs], durations: &[DurationNs]| {
            for (start, duration) in starts.iter().zip(durations) {
                take(start.0);
                take(start.0.saturating_add(duration.0.max(0)));
            }
        };
        lasting(&tables.kernels.start_ns, &tables.kernels.duration_ns);
        lasting(&tables.copies.start_ns, &tables.copies.duration_ns);
        lasting(&tables.memsets.start_ns, &tables.memsets.duration_ns);
        lasting(
            &tables.graph_launches.start_ns,
            &tables.graph_launches.duration_ns,
        );
        lasting(&tables.collectives.start_ns, &tables.collectives.duration_ns);
        lasting(&tables.nccl_channels.start_ns, &tables.nccl_channels.duration_ns);
        lasting(&tables.nccl_proxy.start_ns, &tables.nccl_proxy.duration_ns);
        lasting(&tables.api_calls.start_ns, &tables.api_calls.duration_ns);
        lasting(&tables.compilations.start_ns, &tables.compilations.duration_ns);
        lasting(&tables.operators.start_ns, &tables.operators.duration_ns);
        lasting(&tables.python_frames.start_ns, &tables.python_frames.duration_ns);
        lasting(
            &tables.synchronizations.start_ns,
            &tables.synchronizations.duration_ns,
        );
        lasting(&tables.overheads.start_ns, &tables.overheads.duration_ns);
        lasting(&tables.windows.start_ns, &tables.windows.duration_ns);
        for (start, duration) in tables.markers.start_ns.iter().zip(&tables.markers.duration_ns) {
            take(start.0);
            take(
                start
                    .0
                    .saturating_add(duration.map_or(0, |duration| duration.0.max(0))),
            );
        }
        for times in [
            &tables.memory.time_ns,
            &tables.memory_pools.time_ns,
            &tables.counters.time_ns,
        ] {
            times.iter().for_each(|time| take(time.0));
        }
        tables
            .untimed_operations
            .start_ns
            .iter()
            .flatten()
            .for_each(|time| take(time.0));
    }
    if span.0 > span.1 { (0, 0) } else { span }
}
