//! The operations of one device, each with its kind, its launch and its name.

use std::collections::{BTreeMap, HashMap, HashSet};

use gputrace_trace::{Interner, NameId, Process};

use crate::calls::Calls;
use crate::kernel_names;
use crate::kinds::{Kind, KindFrom};

/// An operation's name: a kernel's, or what is copied or set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Name {
    Kernel(NameId),
    /// Direction and kinds of memory, as CUPTI numbers them.
    Copy {
        direction: u8,
        source: u8,
        destination: u8,
    },
    Memset {
        memory: u8,
    },
}

/// `CUpti_ActivityMemcpyKind` in the words of PyTorch's profiler.
pub(crate) fn direction_name(direction: u8) -> &'static str {
    match direction {
        1 => "HtoD",
        2 => "DtoH",
        3 => "HtoA",
        4 => "AtoH",
        5 => "AtoA",
        6 => "AtoD",
        7 => "DtoA",
        8 => "DtoD",
        9 => "HtoH",
        10 => "PtoP",
        _ => "Unknown",
    }
}

/// `CUpti_ActivityMemoryKind` in the same words.
fn memory_name(memory: u8) -> &'static str {
    match memory {
        1 => "Pageable",
        2 => "Pinned",
        3 => "Device",
        4 => "Array",
        5 => "Managed",
        6 => "Device Static",
        7 => "Managed Static",
        _ => "Unknown",
    }
}

impl Name {
    pub(crate) fn text(self, names: &Interner) -> String {
        match self {
            Self::Kernel(name) => names.get(name).to_owned(),
            Self::Copy {
                direction,
                source: 0,
                destination: 0,
            } => format!("Memcpy {}", direction_name(direction)),
            Self::Copy {
                direction,
                source,
                destination,
            } => format!(
                "Memcpy {} ({} -> {})",
                direction_name(direction),
                memory_name(source),
                memory_name(destination)
            ),
            Self::Memset { memory: 0 } => "Memset".to_owned(),
            Self::Memset { memory } => format!("Memset ({})", memory_name(memory)),
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
    /// Row in its table: kernels, copies or memsets.
    pub(crate) row: u32,
    pub(crate) name: Name,
    pub(crate) kind: Kind,
    pub(crate) kind_from: KindFrom,
}

/// What of a process the measures need.
pub(crate) struct ProcessOperations {
    /// By device, sorted by start.
    pub(crate) devices: BTreeMap<u32, Vec<Operation>>,
    /// The calls that launched them.
    pub(crate) calls: Calls,
    /// When streams (context, where the record names it, and stream) were told to wait for an event, sorted.
    pub(crate) stream_waits: HashMap<(Option<u32>, u32), Vec<i64>>,
    /// When each thread told any stream to wait for an event, sorted: only where no record says which stream.
    pub(crate) thread_waits: HashMap<u32, Vec<i64>>,
    /// Plans of collectives to the correlation ids of their kernels' launches.
    pub(crate) plans: HashMap<u64, u32>,
    /// Operations left out because their end lies before their start.
    pub(crate) backwards: u64,
    /// Operations with a correlation id whose call is not recorded.
    pub(crate) without_call: u64,
}

/// `CUpti_ActivitySynchronizationType`: a stream waits for an event.
const STREAM_WAIT_EVENT: u32 = 2;

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
        let mut all = Self {
            devices: BTreeMap::new(),
            calls: Calls::new(&tables.api_calls),
            stream_waits: HashMap::new(),
            thread_waits: HashMap::new(),
            plans,
            backwards: 0,
            without_call: 0,
        };
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
                    kind: Kind::Memset,
                    kind_from: KindFrom::Record,
                    name: Name::Memset {
                        memory: u8::try_from(memsets.memory_kind[index]).unwrap_or(0),
                    },
                },
            );
        }
        for operations in all.devices.values_mut() {
            operations.sort_by_key(|operation| {
                (
                    operation.start,
                    operation.end,
                    operation.stream,
                    operation.correlation,
                )
            });
            operations.shrink_to_fit();
        }
        all.find_stream_waits(process, names);
        all.without_call = all
            .devices
            .values()
            .flatten()
            .filter(|operation| all.calls.get(operation.correlation, &tables.api_calls).is_none())
            .count() as u64;
        all
    }

    fn add_kernels(&mut self, process: &Process, names: &Interner) {
        let kernels = &process.tables.kernels;
        let of_nccl: HashSet<u32> = self.plans.values().copied().collect();
        let described: HashSet<u64> = process
            .tables
            .collectives
            .kernel
            .iter()
            .flatten()
            .copied()
            .collect();
        let mut by_name: HashMap<NameId, bool> = HashMap::new();
        for (index, row) in (0..kernels.start_ns.len()).zip(0u32..) {
            let (name, correlation) = (kernels.name[index], kernels.correlation[index]);
            let mut named = || {
                *by_name
                    .entry(name)
                    .or_insert_with(|| kernel_names::communication(names.get(name)).is_some())
            };
            let (kind, kind_from) = if described.contains(&u64::from(row)) {
                (Kind::Communication, KindFrom::Metadata)
            } else if of_nccl.contains(&correlation) {
                (Kind::Communication, KindFrom::NcclPlugin)
            } else if named() {
                (Kind::Communication, KindFrom::Name)
            } else {
                (Kind::Compute, KindFrom::Record)
            };
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
                    kind,
                    kind_from,
                    name: Name::Kernel(name),
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
            let mut is_wait: HashMap<NameId, bool> = HashMap::new();
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
        } else {
            self.devices.entry(device).or_default().push(operation);
        }
    }
}
