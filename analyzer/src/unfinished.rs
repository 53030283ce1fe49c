//! What had begun and not ended when the recording did.

use gputrace_trace::{Interner, Process, TimeNs};
use serde::{Deserialize, Serialize};

/// Of each process so many are listed, those first that began first: one of them usually holds up the others.
const MOST_LISTED: usize = 100;

/// Something that began, and whose end is not recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnfinishedOperation {
    /// The rank in the job, where it is known.
    pub rank: Option<u32>,
    /// Host of the process.
    pub host: String,
    /// "kernel", "copy", "memset", "call", "synchronization", "graph" or "other".
    pub what: String,
    /// A kernel's or call's name; null for the others.
    pub name: Option<String>,
    /// Device index within the process; null for what happens on the host.
    pub device_index: Option<u32>,
    /// CUPTI's stream id.
    pub stream: Option<u32>,
    /// Host thread of a call.
    pub thread: Option<u32>,
    /// Joins it to its call.
    pub correlation: u32,
    /// When it began.
    pub start_ns: TimeNs,
    /// From then to the last moment that the process's recording knows of: it took at least so long.
    pub at_least_ns: i64,
}

/// The word for a `CUpti_ActivityKind`.
fn word(kind: u32) -> &'static str {
    match kind {
        3 | 10 => "kernel",
        1 | 22 => "copy",
        2 => "memset",
        4 | 5 => "call",
        38 => "synchronization",
        51 => "graph",
        _ => "other",
    }
}

/// The last moment that a process's recording knows of.
#[must_use]
pub fn last_moment(process: &Process) -> i64 {
    let tables = &process.tables;
    let last = |starts: &[TimeNs], durations: &[gputrace_trace::DurationNs]| {
        let ends = starts.iter().zip(durations);
        ends.map(|(start, duration)| start.0.saturating_add(duration.0))
            .max()
    };
    [
        process.header.ended_ns,
        last(&tables.kernels.start_ns, &tables.kernels.duration_ns),
        last(&tables.copies.start_ns, &tables.copies.duration_ns),
        last(&tables.api_calls.start_ns, &tables.api_calls.duration_ns),
        tables.clocks.realtime_ns.iter().map(|time| time.0).max(),
    ]
    .into_iter()
    .flatten()
    .max()
    .unwrap_or(i64::MIN)
}

/// What began and did not end, by process and start.
pub(crate) fn unfinished(process: &Process, names: &Interner) -> Vec<UnfinishedOperation> {
    let rows = &process.tables.untimed_operations;
    let mut begun: Vec<(i64, usize)> = rows
        .start_ns
        .iter()
        .enumerate()
        .filter_map(|(row, start)| Some((start.as_ref()?.0, row)))
        .collect();
    if begun.is_empty() {
        return Vec::new();
    }
    begun.sort_by_key(|&(start, row)| (start, rows.correlation[row], rows.kind[row]));
    let last = last_moment(process);
    begun
        .into_iter()
        .take(MOST_LISTED)
        .map(|(start_ns, row)| UnfinishedOperation {
            rank: process.header.rank,
            host: process.header.host.clone(),
            what: word(rows.kind[row]).to_owned(),
            name: rows.name[row].map(|name| names.get(name).to_owned()),
            device_index: rows.device[row],
            stream: rows.stream[row],
            thread: rows.thread[row],
            correlation: rows.correlation[row],
            start_ns: TimeNs(start_ns),
            at_least_ns: last.saturating_sub(start_ns).max(0),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use gputrace_trace::tables::{Kernel, UntimedOperation};
    use gputrace_trace::{DurationNs, Table};

    use super::*;

    #[test]
    fn what_began_is_listed_and_what_has_no_time_at_all_is_not() {
        let mut names = Interner::default();
        let mut process = Process::default();
        process.header.rank = Some(1);
        process.tables.kernels.push(Kernel {
            start_ns: TimeNs(100),
            duration_ns: DurationNs(900),
            ..Kernel::default()
        });
        for (kind, start_ns, name) in [
            (10, Some(400), Some("all_reduce")),
            (10, None, Some("lost")),
            (1, Some(300), None),
        ] {
            process.tables.untimed_operations.push(UntimedOperation {
                kind,
                start_ns: start_ns.map(TimeNs),
                name: name.map(|name| names.intern(name)),
                device: Some(0),
                ..UntimedOperation::default()
            });
        }
        assert_eq!(unfinished(&Process::default(), &names), []);
        let found = unfinished(&process, &names);
        let told: Vec<_> = found
            .iter()
            .map(|one| (one.rank, one.what.as_str(), one.name.as_deref(), one.at_least_ns))
            .collect();
        assert_eq!(
            told,
            [
                (Some(1), "copy", None, 700),
                (Some(1), "kernel", Some("all_reduce"), 600)
            ]
        );
    }
}
