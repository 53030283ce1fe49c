//! The operations of one device, each with its kind, its launch and its name.

use std::collections::{BTreeMap, HashMap, HashSet};

use gputrace_trace::{Interner, NameId, Process};

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    Compute,
    Communication,
    Copy,
    Memset,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Compute => "compute",
            Self::Communication => "communication",
            Self::Copy => "copy",
            Self::Memset => "memset",
        }
    }
}

/// How the kind is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum KindFrom {
    Record,
    NcclPlugin,
    Name,
}

impl KindFrom {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Record => "record",
            Self::NcclPlugin => "nccl plugin",
            Self::Name => "name",
        }
    }
}

/// An operation's name: a kernel's, or the kind of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Name {
    Kernel(NameId),
    Copy(u8),
    Memset,
}

impl Name {
    pub(crate) fn text(self, names: &Interner) -> String {
        match self {
            Self::Kernel(name) => names.get(name).to_owned(),
            // CUpti_ActivityMemcpyKind.
            Self::Copy(1) => "Memcpy HtoD".to_owned(),
            Self::Copy(2) => "Memcpy DtoH".to_owned(),
            Self::Copy(8) => "Memcpy DtoD".to_owned(),
            Self::Copy(9) => "Memcpy HtoH".to_owned(),
            Self::Copy(10) => "Memcpy PtoP".to_owned(),
            Self::Copy(other) => format!("Memcpy kind {other}"),
            Self::Memset => "Memset".to_owned(),
        }
    }
}

/// One operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operation {
    pub(crate) start: i64,
    pub(crate) end: i64,
    pub(crate) context: u32,
    pub(crate) stream: u32,
    pub(crate) correlation: u32,
    pub(crate) kind: Kind,
    pub(crate) kind_from: KindFrom,
    pub(crate) name: Name,
}

/// The call that launched an operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    pub(crate) start: i64,
    pub(crate) end: i64,
}

/// What of a process the measures need.
pub(crate) struct ProcessOperations {
    /// By device, sorted by start.
    pub(crate) devices: BTreeMap<u32, Vec<Operation>>,
    /// By correlation id: the outermost call (a runtime call around its driver calls).
    pub(crate) calls: HashMap<u32, Call>,
    /// When streams (context, where the record names it, and stream) were told to wait for an event, sorted.
    pub(crate) stream_waits: HashMap<(Option<u32>, u32), Vec<i64>>,
    /// Plans to the correlation ids of their kernels' launches.
    pub(crate) plans: HashMap<u64, u32>,
    /// Operations left out because their end lies before their start.
    pub(crate) backwards: u64,
}

/// `CUpti_ActivitySynchronizationType`: a stream waits for an event.
const STREAM_WAIT_EVENT: u32 = 2;

/// Whether a kernel's name is one that NCCL gives: `ncclKernel_`, `ncclDevKernel_`, `ncclSymkDevKernel_`, ...
fn is_nccl_name(name: &str) -> bool {
    name.strip_prefix("nccl")
        .is_some_and(|rest| rest.contains("Kernel"))
}

impl ProcessOperations {
    pub(crate) fn new(process: &Process, names: &Interner) -> Self {
        let tables = &process.tables;
        // Only launches that a collective names: other tools push ids of their own.
        let wanted: HashSet<u64> = tables.collectives.plan.iter().flatten().copied().collect();
        let external = &tables.external_correlations;
        let plans: HashMap<u64, u32> = external
            .id
            .iter()
            .zip(&external.correlation)
            .filter(|(id, correlation)| **correlation != 0 && wanted.contains(id))
            .map(|(id, correlation)| (*id, *correlation))
            .collect();
        let of_nccl: HashSet<u32> = plans.values().copied().collect();
        let mut nccl_names: HashMap<NameId, bool> = HashMap::new();
        let mut all = Self {
            devices: BTreeMap::new(),
            calls: HashMap::new(),
            stream_waits: HashMap::new(),
            plans,
            backwards: 0,
        };
        let kernels = &tables.kernels;
        for index in 0..kernels.start_ns.len() {
            let (name, correlation) = (kernels.name[index], kernels.correlation[index]);
            let named = *nccl_names
                .entry(name)
                .or_insert_with(|| is_nccl_name(names.get(name)));
            let (kind, kind_from) = match (of_nccl.contains(&correlation), named) {
                (true, _) => (Kind::Communication, KindFrom::NcclPlugin),
                (false, true) => (Kind::Communication, KindFrom::Name),
                (false, false) => (Kind::Compute, KindFrom::Record),
            };
            let start = kernels.start_ns[index].0;
            all.add(
                kernels.device[index],
                Operation {
                    start,
                    end: start.saturating_add(kernels.duration_ns[index].0),
                    context: kernels.context[index],
                    stream: kernels.stream[index],
                    correlation,
                    kind,
                    kind_from,
                    name: Name::Kernel(name),
                },
            );
        }
        let copies = &tables.copies;
        for index in 0..copies.start_ns.len() {
            let start = copies.start_ns[index].0;
            all.add(
                copies.device[index],
                Operation {
                    start,
                    end: start.saturating_add(copies.duration_ns[index].0),
                    context: copies.context[index],
                    stream: copies.stream[index],
                    correlation: copies.correlation[index],
                    kind: Kind::Copy,
                    kind_from: KindFrom::Record,
                    name: Name::Copy(copies.copy_kind[index]),
                },
            );
        }
        let memsets = &tables.memsets;
        for index in 0..memsets.start_ns.len() {
            let start = memsets.start_ns[index].0;
            all.add(
                memsets.device[index],
                Operation {
                    start,
                    end: start.saturating_add(memsets.duration_ns[index].0),
                    context: memsets.context[index],
                    stream: memsets.stream[index],
                    correlation: memsets.correlation[index],
                    kind: Kind::Memset,
                    kind_from: KindFrom::Record,
                    name: Name::Memset,
                },
            );
        }
        for operations in all.devices.values_mut() {
            operations.sort_by_key(|operation| (operation.start, operation.end, operation.correlation));
        }
        let calls = &tables.api_calls;
        for index in 0..calls.start_ns.len() {
            // CUPTI counts from 1: 0 joins nothing.
            if calls.correlation[index] == 0 {
                continue;
            }
            let start = calls.start_ns[index].0;
            let call = Call {
                start,
                end: start.saturating_add(calls.duration_ns[index].0),
            };
            let known = all.calls.entry(calls.correlation[index]).or_insert(call);
            if call.start < known.start {
                *known = call;
            }
        }
        let synchronizations = &tables.synchronizations;
        for index in 0..synchronizations.start_ns.len() {
            if let (STREAM_WAIT_EVENT, Some(stream)) =
                (synchronizations.kind[index], synchronizations.stream[index])
            {
                all.stream_waits
                    .entry((synchronizations.context[index], stream))
                    .or_default()
                    .push(synchronizations.start_ns[index].0);
            }
        }
        for waits in all.stream_waits.values_mut() {
            waits.sort_unstable();
        }
        all
    }

    /// Whether the operation's stream was told to wait for an event in `from..=to`.
    pub(crate) fn waited_for_event(&self, operation: &Operation, from: i64, to: i64) -> bool {
        [Some(operation.context), None].into_iter().any(|context| {
            self.stream_waits
                .get(&(context, operation.stream))
                .is_some_and(|waits| {
                    let after = waits.partition_point(|wait| *wait <= to);
                    after > 0 && waits[after - 1] >= from
                })
        })
    }

    fn add(&mut self, device: u32, operation: Operation) {
        if operation.end < operation.start {
            self.backwards += 1;
        } else {
            self.devices.entry(device).or_default().push(operation);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_generations_of_nccl_names_are_known() {
        for name in [
            "ncclKernel_AllReduce_RING_LL_Sum_float",
            "ncclDevKernel_SendRecv",
            "ncclSymkDevKernel_AllGather",
        ] {
            assert!(is_nccl_name(name));
        }
        assert!(!is_nccl_name("my_ncclDevKernel_user") && !is_nccl_name("ncclExample"));
    }
}
