//! The calls that launch work: how long they take, and how long the device takes to begin.

use gputrace_trace::tables::ApiCalls;
use gputrace_trace::{Interner, NameId, Process};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::measures::lies_within;
use crate::operations::Operation;
use crate::statistics::{Distribution, sum};

/// The launches of one device by one call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LaunchAnalysis {
    /// The call: "cudaLaunchKernel", "cudaGraphLaunch", "hipMemcpyAsync", ...
    pub call: String,
    /// Calls.
    pub calls: usize,
    /// Operations that they launched: a graph launch has many.
    pub operations: usize,
    /// Sum of the calls' times on the host.
    pub call_total_ns: i64,
    /// The calls' times.
    pub call_time: Distribution,
    /// Operations whose stream was empty when they were launched.
    pub unqueued: usize,
    /// From the call's start to the operation's start, of operations that nothing on their stream held up: launch latency.
    pub latency: Distribution,
    /// From the call's end to the operation's start or 0, of all operations: with the waiting behind earlier ones.
    pub delay: Distribution,
}

/// Calls by name while they are gathered.
#[derive(Default)]
struct Group {
    calls: Vec<i64>,
    /// Where they are in their table.
    rows: Vec<u32>,
    latencies: Vec<i64>,
    delays: Vec<i64>,
}

/// The launches of a process's devices.
pub(crate) struct Launches<'a> {
    calls: &'a ApiCalls,
    /// A graph's launch has many operations, and is one call. Used again for each device.
    seen: Vec<bool>,
}

impl<'a> Launches<'a> {
    pub(crate) fn new(process: &'a Process) -> Self {
        let calls = &process.tables.api_calls;
        Self {
            calls,
            seen: vec![false; calls.start_ns.len()],
        }
    }

    /// The launches of a device's (sorted) operations that have a part in the chosen time, the call with most time first.
    pub(crate) fn of(
        &mut self,
        operations: &[Operation],
        chosen: Option<(i64, i64)>,
        names: &Interner,
    ) -> Vec<LaunchAnalysis> {
        let calls = self.calls;
        let mut groups: FxHashMap<NameId, Group> = FxHashMap::default();
        // By stream: the latest end so far.
        let mut reached: FxHashMap<(u32, u32), i64> = FxHashMap::default();
        for operation in operations {
            let stream = (operation.context, operation.stream);
            let before = reached.get(&stream).copied().unwrap_or(i64::MIN);
            reached.insert(stream, before.max(operation.end));
            // What came before the chosen time still held up what is in it.
            if chosen.is_some_and(|(start, end)| !lies_within(operation.start, operation.end, start, end)) {
                continue;
            }
            let Some(call) = operation.call(calls) else {
                continue;
            };
            let group = groups.entry(calls.name[call.row as usize]).or_default();
            if !std::mem::replace(&mut self.seen[call.row as usize], true) {
                group.calls.push(call.end - call.start);
                group.rows.push(call.row);
            }
            group.delays.push((operation.start - call.end).max(0));
            if before <= call.start {
                group.latencies.push((operation.start - call.start).max(0));
            }
        }
        for row in groups.values().flat_map(|group| &group.rows) {
            self.seen[*row as usize] = false;
        }
        analyses(groups, names)
    }
}

fn analyses(groups: FxHashMap<NameId, Group>, names: &Interner) -> Vec<LaunchAnalysis> {
    let mut launches: Vec<LaunchAnalysis> = groups
        .into_iter()
        .map(|(name, mut group)| LaunchAnalysis {
            call: names.get(name).to_owned(),
            calls: group.calls.len(),
            operations: group.delays.len(),
            call_total_ns: sum(&group.calls),
            call_time: Distribution::of(&mut group.calls),
            unqueued: group.latencies.len(),
            latency: Distribution::of(&mut group.latencies),
            delay: Distribution::of(&mut group.delays),
        })
        .collect();
    launches.sort_by(|a, b| {
        b.call_total_ns
            .cmp(&a.call_total_ns)
            .then_with(|| a.call.cmp(&b.call))
    });
    launches
}
