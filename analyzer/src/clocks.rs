//! Whether the stamps of different ranks can be compared.

use std::collections::BTreeSet;

use gputrace_trace::Recording;

use crate::measures::window;
use crate::operations::ProcessOperations;

/// What is assumed of the ranks' clocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Clocks {
    /// Whether arrivals are compared over ranks.
    pub(crate) comparable: bool,
    /// Why, or why not.
    pub(crate) assumption: String,
    /// The ranks' times have nothing in common: a sentence that says which.
    pub(crate) disjoint: Option<String>,
}

/// Looks at hosts and times.
pub(crate) fn clocks(recording: &Recording, operations: &[ProcessOperations]) -> Clocks {
    let mut windows: Vec<(i64, i64, String)> = Vec::new();
    let mut hosts: BTreeSet<&str> = BTreeSet::new();
    for (process, operations) in recording.processes.iter().zip(operations) {
        let devices = operations
            .devices
            .values()
            .filter_map(|operations| window(&operations.cut));
        if let Some((start, end)) = devices.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))) {
            let name = process
                .header
                .rank
                .map_or_else(|| process.folder.clone(), |rank| format!("rank {rank}"));
            windows.push((start, end, name));
            hosts.insert(&process.header.host);
        }
    }
    let last_start = windows.iter().max_by_key(|(start, ..)| *start);
    let first_end = windows.iter().min_by_key(|(_, end, _)| *end);
    let disjoint = last_start
        .zip(first_end)
        .filter(|((start, ..), (_, end, _))| start > end)
        .map(|((start, _, late), (_, end, early))| {
            let seconds = start.saturating_sub(*end) as f64 / 1e9;
            format!("{early} ends {seconds:.3} s before {late} begins: they are no common run, or their clocks differ")
        });
    if let Some(why) = &recording.unaligned {
        return Clocks {
            comparable: windows.len() <= 1,
            assumption: format!("{why}: nothing is compared over ranks"),
            disjoint: None,
        };
    }
    let (comparable, assumption) = match (disjoint.is_some(), hosts.len(), hosts.contains("")) {
        (true, ..) => (
            false,
            "the ranks' times do not overlap: nothing is compared over ranks",
        ),
        (_, 0 | 1, false) => (true, "all ranks on one host, stamped by one clock"),
        (_, 1, true) if windows.len() <= 1 => (true, "one rank"),
        (_, 1, true) => (true, "hosts not named: one clock is assumed for all ranks"),
        _ => (
            false,
            "ranks on several hosts whose clocks are not aligned: nothing is compared over ranks",
        ),
    };
    Clocks {
        comparable,
        assumption: assumption.to_owned(),
        disjoint,
    }
}
