//! The operations of one device, each with its kind, its launch and its name.

use std::collections::BTreeMap;

use gputrace_trace::synchronization_kind::STREAM_WAIT_EVENT;
use gputrace_trace::tables::ApiCalls;
use gputrace_trace::{Interner, NameId, Process, near_sort};
use rustc_hash::FxHashMap;

use crate::alike;
use crate::calls::Calls;
use crate::details::KernelKinds;
use crate::intervals::is_possible;
use crate::kinds::{Kind, KindFrom};
use crate::measures::{clip, within};
pub(crate) use crate::operation::{NO_CALL, Operation};
pub(crate) use crate::operation_name::Name;

/// What operations are sorted by: not their order in the file, nor that in which names were met.
fn order(operation: &Operation) -> (i64, i64, u32, u32, u32) {
    (
        operation.start,
        operation.end,
        operation.stream,
        operation.correlation,
        operation.context,
    )
}

/// Sorts operations that come nearly sorted, as devices deliver them: each table is in the order of ends, about.
fn sort(operations: &mut [Operation]) {
    near_sort::sort(operations, |operation| operation.start, order);
}

/// Orders operations that are equal in all else by the text of their names.
fn order_by_name(operations: &mut [Operation], names: &Interner) {
    alike::sort(
        operations,
        |a, b| a.start == b.start && order(a) == order(b),
        |operation| operation.name,
        |name| name.text(names),
    );
}

/// The operations of a device.
#[derive(Default)]
pub(crate) struct DeviceOperations {
    /// Sorted by start; their parts in the chosen steps, where some are chosen.
    pub(crate) cut: Vec<Operation>,
    /// The same whole, where some steps are chosen.
    whole: Option<Vec<Operation>>,
    /// Those outside the steps too, where some are chosen.
    all: Option<Vec<Operation>>,
    /// Start and end of the chosen steps.
    pub(crate) chosen: Option<(i64, i64)>,
}

impl DeviceOperations {
    /// Whole operations.
    pub(crate) fn uncut(&self) -> &[Operation] {
        self.whole.as_deref().unwrap_or(&self.cut)
    }

    /// All operations, whatever is chosen.
    pub(crate) fn all(&self) -> &[Operation] {
        self.all.as_deref().unwrap_or(&self.cut)
    }

    /// Keeps what has a part in `[start, end)`.
    pub(crate) fn cut_to(&mut self, start: i64, end: i64) {
        self.whole = Some(within(&self.cut, start, end));
        let cut = clip(&self.cut, start, end);
        self.all = Some(std::mem::replace(&mut self.cut, cut));
        self.chosen = Some((start, end));
    }
}

/// What of a process the measures need.
pub(crate) struct ProcessOperations {
    pub(crate) devices: BTreeMap<u32, DeviceOperations>,
    /// When streams (context, where the record names it, and stream) were told to wait for an event, sorted.
    pub(crate) stream_waits: FxHashMap<(Option<u32>, u32), Vec<i64>>,
    /// When each thread told any stream to wait for an event, sorted: only where no record says which stream.
    pub(crate) thread_waits: FxHashMap<u32, Vec<i64>>,
    /// Plans of collectives to the correlation ids of their kernels, in the order of the launches: one, but where a plan is
    /// a group of calls.
    pub(crate) plans: FxHashMap<u64, Vec<u32>>,
    /// Operations left out because their end lies before their start.
    pub(crate) backwards: u64,
    /// Operations left out because their times are no times.
    pub(crate) impossible: u64,
    /// Operations that begin before the call that launched them.
    pub(crate) before_call: u64,
    /// Operations whose call is not recorded.
    pub(crate) without_call: u64,
}

impl ProcessOperations {
    pub(crate) fn new(process: &Process, names: &Interner) -> Self {
        let tables = &process.tables;
        let mut all = Self {
            devices: BTreeMap::new(),
            stream_waits: FxHashMap::default(),
            thread_waits: FxHashMap::default(),
            plans: FxHashMap::default(),
            backwards: 0,
            impossible: 0,
            before_call: 0,
            without_call: 0,
        };
        let mut counts: FxHashMap<u32, usize> = FxHashMap::default();
        for device in [
            &tables.kernels.device,
            &tables.copies.device,
            &tables.memsets.device,
            &tables.graph_launches.device,
        ]
        .into_iter()
        .flatten()
        {
            *counts.entry(*device).or_default() += 1;
        }
        for (device, count) in counts {
            all.devices.entry(device).or_default().cut.reserve_exact(count);
        }
        all.add_kernels(process, names);
        let (copies, memsets) = (&tables.copies, &tables.memsets);
        for (index, row) in (0..copies.start_ns.len()).zip(0u32..) {
            let start = copies.start_ns[index].0;
            all.add(
                copies.device[index],
                Operation {
                    start,
                    end: start.saturating_add(copies.duration_ns[index].0),
                    context: copies.context[index],
                    stream: copies.stream[index],
                    correlation: copies.correlation[index],
                    row,
                    call: NO_CALL,
                    kind: Kind::Copy,
                    kind_from: KindFrom::Record,
                    name: Name::Copy {
                        direction: copies.copy_kind[index],
                        source: copies.source_kind[index],
                        destination: copies.destination_kind[index],
                    },
                },
            );
        }
        for (index, row) in (0..memsets.start_ns.len()).zip(0u32..) {
            let start = memsets.start_ns[index].0;
            all.add(
                memsets.device[index],
                Operation {
                    start,
                    end: start.saturating_add(memsets.duration_ns[index].0),
                    context: memsets.context[index],
                    stream: memsets.stream[index],
                    correlation: memsets.correlation[index],
                    row,
                    call: NO_CALL,
                    kind: Kind::Memset,
                    kind_from: KindFrom::Record,
                    name: Name::Memset {
                        memory: u8::try_from(memsets.memory_kind[index]).unwrap_or(0),
                    },
                },
            );
        }
        all.add_graphs(process);
        for kernels in all.plans.values_mut() {
            kernels.sort_unstable();
            kernels.dedup();
        }
        all.devices.retain(|_, operations| !operations.cut.is_empty());
        for operations in all.devices.values_mut() {
            sort(&mut operations.cut);
            order_by_name(&mut operations.cut, names);
            operations.cut.shrink_to_fit();
        }
        all.find_stream_waits(process, names);
        all.find_calls(&tables.api_calls);
        all
    }

    /// Finds the call of each operation, once for all.
    fn find_calls(&mut self, table: &ApiCalls) {
        let mut calls = Calls::new(table);
        for operation in self
            .devices
            .values_mut()
            .flat_map(|operations| &mut operations.cut)
        {
            operation.call = calls.row(operation.correlation).unwrap_or(NO_CALL);
            match operation.call(table) {
                None => self.without_call += 1,
                Some(call) => self.before_call += u64::from(operation.start < call.start),
            }
        }
    }

    fn add_kernels(&mut self, process: &Process, names: &Interner) {
        let kernels = &process.tables.kernels;
        let mut kinds = KernelKinds::new(process, names);
        for (index, row) in (0..kernels.start_ns.len()).zip(0u32..) {
            let (name, correlation) = (kernels.name[index], kernels.correlation[index]);
            let (kind, kind_from) = kinds.of(row, name, correlation);
            if kind_from == KindFrom::NcclPlugin
                && let Some(plan) = kinds.launches.get(&correlation)
            {
                self.plans.entry(*plan).or_default().push(correlation);
            }
            let start = kernels.start_ns[index].0;
            self.add(
                kernels.device[index],
                Operation {
                    start,
                    end: start.saturating_add(kernels.duration_ns[index].0),
                    context: kernels.context[index],
                    stream: kernels.stream[index],
                    correlation,
                    row,
                    call: NO_CALL,
                    kind,
                    kind_from,
                    name: Name::Kernel(name),
                },
            );
        }
    }

    /// Launches of CUDA graphs that were recorded as wholes. What ran in one is not known: it counts as compute.
    fn add_graphs(&mut self, process: &Process) {
        let graphs = &process.tables.graph_launches;
        for (index, row) in (0..graphs.start_ns.len()).zip(0u32..) {
            let start = graphs.start_ns[index].0;
            self.add(
                graphs.device[index],
                Operation {
                    start,
                    end: start.saturating_add(graphs.duration_ns[index].0),
                    context: graphs.context[index],
                    stream: graphs.stream[index],
                    correlation: graphs.correlation[index],
                    row,
                    call: NO_CALL,
                    kind: Kind::Compute,
                    kind_from: KindFrom::Record,
                    name: Name::Graph {
                        graph: graphs.graph[index],
                    },
                },
            );
        }
    }

    fn find_stream_waits(&mut self, process: &Process, names: &Interner) {
        let synchronizations = &process.tables.synchronizations;
        for index in 0..synchronizations.start_ns.len() {
            if let (STREAM_WAIT_EVENT, Some(stream)) =
                (synchronizations.kind[index], synchronizations.stream[index])
            {
                self.stream_waits
                    .entry((synchronizations.context[index], stream))
                    .or_default()
                    .push(synchronizations.start_ns[index].0);
            }
        }
        if self.stream_waits.is_empty() {
            let calls = &process.tables.api_calls;
            let mut is_wait: FxHashMap<NameId, bool> = FxHashMap::default();
            for (index, name) in calls.name.iter().enumerate() {
                let wait = is_wait
                    .entry(*name)
                    .or_insert_with(|| names.get(*name).contains("StreamWaitEvent"));
                if *wait {
                    self.thread_waits
                        .entry(calls.thread[index])
                        .or_default()
                        .push(calls.start_ns[index].0);
                }
            }
        }
        let lists = self
            .stream_waits
            .values_mut()
            .chain(self.thread_waits.values_mut());
        for waits in lists {
            waits.sort_unstable();
        }
    }

    /// Whether the operation's stream was told to wait for an event in `from..=to`; where no record says which stream
    /// waits, whether the launching thread told any.
    pub(crate) fn waited_for_event(&self, operation: &Operation, thread: u32, from: i64, to: i64) -> bool {
        let among = |waits: &Vec<i64>| {
            let after = waits.partition_point(|wait| *wait <= to);
            after > 0 && waits[after - 1] >= from
        };
        let on_stream = |context| {
            self.stream_waits
                .get(&(context, operation.stream))
                .is_some_and(among)
        };
        on_stream(Some(operation.context))
            || on_stream(None)
            || self.thread_waits.get(&thread).is_some_and(among)
    }

    fn add(&mut self, device: u32, operation: Operation) {
        if operation.end < operation.start {
            self.backwards += 1;
        } else if !is_possible(operation.start, operation.end) {
            self.impossible += 1;
        } else {
            self.devices.entry(device).or_default().cut.push(operation);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn nearly_sorted_or_not_operations_get_sorted(starts in proptest::collection::vec((0i64..1000, 0i64..20), 0..400), nearly: bool) {
            let mut operations: Vec<Operation> = starts
                .iter()
                .zip(0u32..)
                .map(|((start, length), row)| Operation {
                    start: *start,
                    end: start + length,
                    context: 1,
                    stream: row % 3,
                    correlation: row + 1,
                    row,
                    call: NO_CALL,
                    name: Name::Memset { memory: 0 },
                    kind: Kind::Memset,
                    kind_from: KindFrom::Record,
                })
                .collect();
            if nearly {
                operations.sort_by_key(|operation| operation.end);
            }
            let mut expected = operations.clone();
            expected.sort_by_key(order);
            sort(&mut operations);
            let rows = |operations: &[Operation]| -> Vec<u32> { operations.iter().map(|operation| operation.row).collect() };
            prop_assert_eq!(rows(&operations), rows(&expected));
        }
    }
}
