//! How the events of a process hang together for torch-tb-profiler: what counts as an operator, which number ("External id")
//! joins operators, calls and operations, and which kernels are collectives.
//!
//! Every operator, call and operation gets such a number. The plugin compares them without looking whether they are there,
//! so that without numbers everything would be one collective.

use std::collections::BTreeMap;

use gputrace_trace::step_names::step_word;
use rustc_hash::{FxHashMap, FxHashSet};

use super::host_steps::HostStep;
use super::plugin_steps::LaunchCall;
use super::spans::Spans;
use crate::export::layout::{Layout, Row, RowKey, Slice, Source};

/// The plugin walks operators by recursion, in Python: what lies deeper than this is no operator.
const DEEPEST: usize = 100;

/// The names by which the plugin knows collectives.
const NAMED_COLLECTIVES: &[&str] = &[
    "broadcast",
    "reduce",
    "all_reduce",
    "all_gather",
    "reduce_scatter",
];

/// Whether the plugin would take an event of this name for something else than an operator.
pub(super) fn is_misread(name: &str) -> bool {
    let collective = name.strip_prefix("nccl:").or_else(|| name.strip_prefix("gloo:"));
    collective.is_some_and(|name| NAMED_COLLECTIVES.contains(&name)) || name.starts_with("ProfilerStep#")
}

/// The plugin's name of a collective that NCCL calls `function`; nothing where it has none.
pub(super) fn collective_name(function: &str) -> Option<&'static str> {
    Some(match function {
        "Broadcast" => "nccl:broadcast",
        "Reduce" => "nccl:reduce",
        "AllReduce" => "nccl:all_reduce",
        "AllGather" => "nccl:all_gather",
        "ReduceScatter" => "nccl:reduce_scatter",
        _ => return None,
    })
}

/// An operator for a launch that lies within none.
#[derive(Clone, Copy, Debug)]
pub(super) struct LaunchOperator {
    /// Row of `api_calls`.
    pub(super) call: u32,
    /// Where the call is shown.
    pub(super) row: usize,
    pub(super) lane: usize,
    pub(super) span: (i64, i64),
    pub(super) id: u64,
    /// What was launched first, as its slice's place.
    pub(super) launched: (u32, u32),
}

/// A kernel that carries out collectives which the plugin has a name for.
#[derive(Clone, Debug)]
pub(super) struct CollectiveKernel {
    /// Row of `kernels`.
    pub(super) kernel: u32,
    pub(super) start_ns: i64,
    pub(super) name: &'static str,
    /// Rows of `collectives`.
    pub(super) rows: Vec<u32>,
    /// The thread's row, the lane and the time of the enqueueing; of the launch, where that is not known.
    pub(super) at: Option<(usize, usize, i64)>,
    /// The number that its launch had before, where that launched nothing else.
    call_before: Option<u64>,
    pub(super) span: usize,
    /// Number of the annotation, which the kernel and its launch have too.
    pub(super) id: u64,
    /// The place in [`gputrace_trace::Derived::collectives`].
    pub(super) collective: Option<u32>,
}

impl CollectiveKernel {
    /// When it was enqueued, as far as that is known.
    pub(super) fn enqueued_ns(&self) -> i64 {
        self.at.map_or(self.start_ns, |(_, _, time)| time)
    }
}

/// How a process's events hang together.
#[derive(Default)]
pub(super) struct Plan {
    /// By row of `operators` and of `markers`; 0 for what is no operator.
    pub(super) operators: Vec<u64>,
    pub(super) markers: Vec<u64>,
    /// By row of `api_calls`.
    pub(super) calls: Vec<u64>,
    /// By row of `api_calls`: what was launched.
    launched: Vec<Option<(i64, i64, u64)>>,
    pub(super) launch_operators: Vec<LaunchOperator>,
    /// By the kernels' rows.
    pub(super) collectives: BTreeMap<u32, CollectiveKernel>,
    /// Kernels that communicate in a way that the plugin has no name for.
    pub(super) nameless_communication: u64,
    /// Ranges that are too deep to be operators.
    pub(super) too_deep: u64,
    last_id: u64,
}

impl Plan {
    pub(super) fn new(layout: &Layout<'_>, steps: &[HostStep], spans: &Spans) -> Self {
        let tables = &layout.process.tables;
        let mut plan = Self {
            operators: vec![0; tables.operators.start_ns.len()],
            markers: vec![0; tables.markers.start_ns.len()],
            calls: vec![0; tables.api_calls.start_ns.len()],
            launched: vec![None; tables.api_calls.start_ns.len()],
            ..Self::default()
        };
        let first_launched = plan.take_launches(layout);
        for (number, row) in layout.rows.iter().enumerate() {
            if matches!(row.key, RowKey::Thread(_)) {
                plan.take_thread(layout, steps, number, row, &first_launched);
            }
        }
        plan.take_collectives(layout, spans);
        plan
    }

    /// Makes these kernels ones like any other, though they are collectives. Numbers are to be asked for after this alone.
    pub(super) fn settle(&mut self, plain: &FxHashSet<u32>) {
        let removed = plain.iter().filter_map(|kernel| self.collectives.remove(kernel));
        let before: FxHashMap<u64, u64> = removed
            .filter_map(|collective| Some((collective.id, collective.call_before?)))
            .collect();
        for id in &mut self.calls {
            *id = before.get(id).copied().unwrap_or(*id);
        }
        // The launch of a collective belongs to that.
        let calls = &self.calls;
        self.launch_operators
            .retain(|operator| calls[operator.call as usize] == operator.id);
    }

    fn new_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    /// What calls launched; by call, the row and the place there of the first of it.
    fn take_launches(&mut self, layout: &Layout<'_>) -> Vec<(u32, u32)> {
        let mut first = vec![(0, 0); self.launched.len()];
        for (number, row) in (0u32..).zip(&layout.rows) {
            for (place, slice) in (0u32..).zip(&row.slices) {
                if !slice.source().is_launched() {
                    continue;
                }
                let Some(launch) = layout.launch(layout.correlation(slice)) else {
                    continue;
                };
                let known = &mut self.launched[launch.call as usize];
                if known.is_none_or(|(start, _, _)| slice.start_ns < start) {
                    first[launch.call as usize] = (number, place);
                }
                *known = Some(match *known {
                    None => (slice.start_ns, slice.end_ns, 1),
                    Some((start, end, count)) => {
                        (start.min(slice.start_ns), end.max(slice.end_ns), count + 1)
                    }
                });
            }
        }
        first
    }

    /// Operators of a thread, and which of them each call lies in.
    fn take_thread(
        &mut self,
        layout: &Layout<'_>,
        steps: &[HostStep],
        number: usize,
        row: &Row,
        first_launched: &[(u32, u32)],
    ) {
        // Open operators with their ends, the innermost last.
        let mut open: Vec<(i64, u64)> = Vec::new();
        for slice in &row.slices {
            open.retain(|(end, _)| *end > slice.start_ns);
            let index = slice.index as usize;
            match slice.source() {
                Source::ApiCall => {
                    let around = open.iter().rev().find(|(end, _)| *end >= slice.end_ns).copied();
                    self.calls[index] = match around {
                        Some((_, id)) => id,
                        None => self.launch_operator(slice, number, first_launched),
                    };
                    if around.is_none() && self.calls[index] != 0 {
                        // A driver call within the runtime's is the same launch.
                        open.push((slice.end_ns, self.calls[index]));
                    }
                }
                Source::Operator | Source::Marker if is_operator(layout, steps, slice) => {
                    if open.len() >= DEEPEST {
                        self.too_deep += 1;
                        continue;
                    }
                    let id = self.new_id();
                    open.push((slice.end_ns, id));
                    match slice.source() {
                        Source::Operator => self.operators[index] = id,
                        _ => self.markers[index] = id,
                    }
                }
                _ => {}
            }
        }
    }

    /// An operator of its own for a call that launched something; 0, no operator's number, for others.
    fn launch_operator(&mut self, slice: &Slice, row: usize, first_launched: &[(u32, u32)]) -> u64 {
        let index = slice.index as usize;
        if self.launched[index].is_none() {
            return 0;
        }
        let id = self.new_id();
        self.launch_operators.push(LaunchOperator {
            call: slice.index,
            row,
            lane: slice.lane(),
            span: (slice.start_ns, slice.end_ns),
            id,
            launched: first_launched[index],
        });
        id
    }

    fn take_collectives(&mut self, layout: &Layout<'_>, spans: &Spans) {
        let process = layout.process;
        let table = &process.tables.collectives;
        let places = places_of_collectives(layout);
        let mut used: FxHashSet<u32> = FxHashSet::default();
        let correlations = process.tables.api_calls.correlation.iter().copied();
        let mut by_correlation: Vec<(u32, u32)> = correlations.zip(0..).collect();
        by_correlation.sort_unstable();
        let streams = layout
            .rows
            .iter()
            .filter(|row| matches!(row.key, RowKey::Stream { .. }));
        let kernels = streams
            .flat_map(|row| &row.slices)
            .filter(|slice| slice.source() == Source::Kernel);
        for slice in kernels {
            let rows = layout.collectives_of_kernel(slice.index);
            let communicates = layout
                .derived
                .and_then(|derived| derived.communicates.get(slice.index as usize).copied())
                .unwrap_or(false);
            if rows.is_empty() && !communicates {
                continue;
            }
            let function = match rows.first() {
                Some(row) => layout.recording.names.get(table.function[*row as usize]),
                None => {
                    let name = process.tables.kernels.name[slice.index as usize];
                    let name = layout.recording.names.get(name);
                    gputrace_trace::collective_names::function_name(name).unwrap_or_default()
                }
            };
            let Some(name) = collective_name(function) else {
                self.nameless_communication += 1;
                continue;
            };
            let launch = layout.launch(layout.correlation(slice));
            let enqueued = rows.iter().copied().find(|row| places.contains_key(row));
            // What a graph repeats was enqueued once, when it was captured.
            let enqueued =
                enqueued.filter(|row| table.graph_captured[*row as usize] == 0 && used.insert(*row));
            let at_launch = launch.map(|launch| (launch.row, launch.lane, launch.start_ns));
            let id = self.new_id();
            let call_before = launch
                .map(|launch| launch.call)
                .filter(|call| self.launched[*call as usize].is_some_and(|(_, _, count)| count == 1))
                .map(|call| self.calls[call as usize]);
            if call_before.is_some() {
                self.renumber(&by_correlation, layout.correlation(slice), id);
            }
            let begins = launch.map_or(slice.start_ns, |launch| launch.start_ns);
            let parts = layout.derived.map(|derived| derived.parts_of_kernel(slice.index));
            self.collectives.insert(
                slice.index,
                CollectiveKernel {
                    kernel: slice.index,
                    start_ns: slice.start_ns,
                    name,
                    at: enqueued.map(|row| places[&row]).or(at_launch),
                    call_before,
                    span: spans.place(layout.number, begins),
                    id,
                    collective: parts.and_then(|parts| parts.first()).map(|part| part.collective),
                    rows,
                },
            );
        }
    }

    /// Gives all calls with a correlation id the number `id`: a driver call within a runtime's has the same, and the plugin
    /// takes the last of them for the launch.
    fn renumber(&mut self, by_correlation: &[(u32, u32)], correlation: u32, id: u64) {
        let first = by_correlation.partition_point(|(known, _)| *known < correlation);
        let same = by_correlation[first..]
            .iter()
            .take_while(|(known, _)| *known == correlation);
        for (_, call) in same {
            self.calls[*call as usize] = id;
        }
    }

    /// The number of an operation: its collective's, or that of the call that launched it; 0 where that is not known.
    pub(super) fn operation_id(&self, layout: &Layout<'_>, slice: &Slice) -> u64 {
        let collective = match slice.source() {
            Source::Kernel => self.collectives.get(&slice.index),
            _ => None,
        };
        if let Some(collective) = collective {
            return collective.id;
        }
        let launch = layout.launch(layout.correlation(slice));
        launch.map_or(0, |launch| self.calls[launch.call as usize])
    }

    /// All calls with what they launched, by start, as the plugin's steps need them.
    pub(super) fn launch_calls(&self, layout: &Layout<'_>, keep: impl Fn(i64) -> bool) -> Vec<LaunchCall> {
        let calls = &layout.process.tables.api_calls;
        let mut found: Vec<LaunchCall> = (0..calls.start_ns.len())
            .filter(|row| keep(calls.start_ns[*row].0))
            .map(|row| LaunchCall {
                start_ns: calls.start_ns[row].0,
                end_ns: calls.start_ns[row]
                    .0
                    .saturating_add(calls.duration_ns[row].0.max(0)),
                operations: self.launched[row],
            })
            .collect();
        found.sort_by_key(|call| call.start_ns);
        found
    }
}

/// By row of `collectives`: the row and lane of the host's events that it stands in, and its start.
fn places_of_collectives(layout: &Layout<'_>) -> FxHashMap<u32, (usize, usize, i64)> {
    let mut places = FxHashMap::default();
    for (number, row) in layout.rows.iter().enumerate() {
        for slice in &row.slices {
            if slice.source() == Source::Collective {
                places.insert(slice.index, (number, slice.lane(), slice.start_ns));
            }
        }
    }
    places
}

/// Whether a range of a thread is an operator for the plugin: what a framework calls one, and ranges of the program's own,
/// but for steps and what lies around them.
fn is_operator(layout: &Layout<'_>, steps: &[HostStep], slice: &Slice) -> bool {
    let (tables, index) = (&layout.process.tables, slice.index as usize);
    let name = match slice.source() {
        Source::Operator => tables.operators.name[index],
        _ => tables.markers.name[index],
    };
    let name = layout.recording.names.get(name);
    if is_misread(name) {
        return false;
    }
    if slice.source() == Source::Operator {
        return true;
    }
    if step_word(name.as_bytes()).is_some() {
        return false;
    }
    let first = steps.partition_point(|step| step.start_ns < slice.start_ns);
    steps.get(first).is_none_or(|step| step.end_ns > slice.end_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_the_plugin_reads_otherwise() {
        for name in [
            "nccl:all_reduce",
            "gloo:reduce",
            "ProfilerStep#3",
            "ProfilerStep#x",
        ] {
            assert!(is_misread(name), "{name}");
        }
        for name in [
            "nccl:send",
            "all_reduce",
            "Optimizer.step#SGD.step",
            "ProfilerStep 3",
        ] {
            assert!(!is_misread(name), "{name}");
        }
    }
}
