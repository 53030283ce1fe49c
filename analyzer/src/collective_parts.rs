//! What each rank did of the collectives: one part an operation, with its kernel's time.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Deref;
use std::sync::Arc;

use gputrace_trace::{Interner, NameId, Process};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::kernel_names;
use crate::kinds::Kind;
use crate::operations::{Name, Operation, ProcessOperations};

/// The `source` of collectives that copies do.
pub(crate) const COPY_ENGINE: u8 = 2;

/// Who takes part: of a process with several GPUs each of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Participant {
    /// The process's place in the recording.
    pub(crate) process: u32,
    /// Its rank in the communicator where NCCL says it, else its device.
    pub(crate) place: u32,
}

/// The kernel of a part.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PartKernel {
    pub(crate) device: u32,
    /// Row in the process's table.
    pub(crate) row: u32,
    pub(crate) start: i64,
    pub(crate) end: i64,
}

/// What many parts have in common.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Common {
    /// Whether it can be matched with those of other ranks.
    pub(crate) matchable: bool,
    /// `None` where the source does not tell communicators apart.
    pub(crate) communicator: Option<u64>,
    pub(crate) communicator_name: Option<String>,
    /// `None` where the source does not say.
    pub(crate) ranks_in_communicator: Option<u32>,
    pub(crate) function: String,
    /// Sender and receiver of a point-to-point operation, as ranks in the communicator.
    pub(crate) pair: Option<(u32, u32)>,
    /// Which end of it this is.
    pub(crate) sends: bool,
    pub(crate) dtype: String,
    /// Whether the source is there from the communicator's making on: then its first operation is the warm-up.
    pub(crate) from_the_beginning: bool,
}

/// One participant's part in a collective. There may be millions.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) participant: Participant,
    /// The process's rank in the job.
    pub(crate) rank: Option<u32>,
    pub(crate) common: Arc<Common>,
    /// NCCL's or the framework's number of the operation.
    pub(crate) sequence: Option<u64>,
    /// `None` where the source does not say.
    pub(crate) bytes: Option<u64>,
    pub(crate) kernel: Option<PartKernel>,
    /// Row in the process's table of collectives; `None` where only the kernel's name tells of it.
    pub(crate) row: Option<u32>,
    /// Operations in the same kernel.
    pub(crate) shared: u32,
    /// When it was enqueued, or its kernel's start where that is not known.
    pub(crate) enqueued: i64,
}

impl Deref for Part {
    type Target = Common;

    fn deref(&self) -> &Common {
        &self.common
    }
}

/// What parts have in common, each once.
#[derive(Default)]
struct Commons(HashSet<Arc<Common>>);

impl Commons {
    fn get(&mut self, common: Common) -> Arc<Common> {
        if let Some(known) = self.0.get(&common) {
            return known.clone();
        }
        let common = Arc::new(common);
        self.0.insert(common.clone());
        common
    }
}

/// The kernels that communicate, found by what ties collectives to them.
struct Kernels<'a> {
    by_correlation: HashMap<u32, (u32, &'a Operation)>,
    by_row: HashMap<u32, (u32, &'a Operation)>,
}

impl<'a> Kernels<'a> {
    fn new(operations: &'a ProcessOperations) -> Self {
        let mut kernels = Self {
            by_correlation: HashMap::new(),
            by_row: HashMap::new(),
        };
        for (&device, operations) in &operations.devices {
            for operation in operations.uncut() {
                if operation.kind == Kind::Communication {
                    kernels
                        .by_correlation
                        .insert(operation.correlation, (device, operation));
                    kernels.by_row.insert(operation.row, (device, operation));
                }
            }
        }
        kernels
    }
}

/// The kernels that ran for nodes of CUDA graphs, by the kernel launch of NCCL's that was captured into the node.
fn replays(process: &Process, operations: &ProcessOperations) -> HashMap<u64, Vec<PartKernel>> {
    let nodes = &process.tables.graph_nodes;
    let plans: HashMap<u64, u64> = nodes
        .node
        .iter()
        .copied()
        .zip(nodes.plan.iter().copied())
        .collect();
    let mut replays: HashMap<u64, Vec<PartKernel>> = HashMap::new();
    if plans.is_empty() {
        return replays;
    }
    let graph_nodes = &process.tables.kernels.graph_node;
    for (&device, operations) in &operations.devices {
        for operation in operations.uncut() {
            let plan = matches!(operation.name, Name::Kernel(_))
                .then(|| graph_nodes.get(operation.row as usize).copied().flatten())
                .flatten()
                .and_then(|node| plans.get(&node));
            if let Some(plan) = plan {
                replays
                    .entry(*plan)
                    .or_default()
                    .push(part_kernel(device, operation));
            }
        }
    }
    replays
}

/// The data type in the name of a reducing NCCL kernel: "..._Sum_f32_RING_LL" has "f32".
fn dtype_in_name(name: &str) -> String {
    let base = name.split(['(', '<']).next().unwrap_or_default();
    [
        "_Sum_",
        "_sum_",
        "_Prod_",
        "_Max_",
        "_Min_",
        "_MinMax_",
        "_Avg_",
        "_PreMulSum_",
        "_SumPostDiv_",
    ]
    .iter()
    .find_map(|word| base.split_once(word))
    .and_then(|(_, rest)| rest.split('_').next())
    .unwrap_or_default()
    .to_owned()
}

/// What a communication kernel's name alone tells.
#[derive(Clone)]
struct Told {
    /// It is one of NCCL's (or RCCL's), whose plugin tells of them.
    nccl: bool,
    function: &'static str,
    dtype: String,
}

impl Told {
    fn by(name: &str) -> Self {
        let function = kernel_names::collective_of(name).unwrap_or("other");
        Self {
            nccl: kernel_names::communication(name)
                .is_some_and(|rule| rule.starts_with("NCCL") || rule.starts_with("RCCL")),
            function,
            // Only what reduces has a type of its own: other kernels are compiled once for all.
            dtype: if function.contains("Reduce") {
                dtype_in_name(name)
            } else {
                String::new()
            },
        }
    }
}

/// The parts of one process.
#[derive(Clone, Debug, Default)]
pub(crate) struct Parts {
    /// By when they were enqueued.
    pub(crate) all: Vec<Part>,
    /// Those without a recorded kernel.
    pub(crate) without_kernel: u64,
    /// NCCL's kernels that none of the operations which NCCL told of is tied to.
    pub(crate) untold: u64,
}

fn part_kernel(device: u32, operation: &Operation) -> PartKernel {
    PartKernel {
        device,
        row: operation.row,
        start: operation.start,
        end: operation.end,
    }
}

/// The parts of the process at `place` of the recording.
pub(crate) fn parts(
    process: &Process,
    place: u32,
    rank: Option<u32>,
    operations: &ProcessOperations,
    names: &Interner,
) -> Parts {
    let rows = &process.tables.collectives;
    let communicators = &process.tables.communicators;
    // A process with several GPUs has a row for each, which differ in its rank alone.
    let known: BTreeMap<u64, usize> = communicators.communicator.iter().copied().zip(0..).collect();
    let mut sharing: HashMap<u64, usize> = HashMap::new();
    for plan in rows.plan.iter().flatten() {
        *sharing.entry(*plan).or_default() += 1;
    }
    // Which of its plan's operations each is: where a plan is a group of calls that launched as many kernels as it has
    // operations, each has its own.
    let mut place_in_plan: HashMap<u64, usize> = HashMap::new();
    let kernels = Kernels::new(operations);
    let mut taken: HashSet<u32> = HashSet::new();
    let replays = replays(process, operations);
    let in_whole_graphs = !process.tables.graph_launches.start_ns.is_empty();
    let mut parts = Parts::default();
    let mut commons = Commons::default();
    for row in 0..rows.start_ns.len() {
        let place_of_row = rows.plan[row].map(|plan| {
            let place = place_in_plan.entry(plan).or_default();
            *place += 1;
            *place - 1
        });
        let by_plan = || {
            let plan = rows.plan[row]?;
            let launches = operations.plans.get(&plan)?;
            let each_its_own = sharing.get(&plan).is_some_and(|count| *count == launches.len());
            let place = place_of_row.filter(|_| each_its_own).unwrap_or(0);
            kernels.by_correlation.get(launches.get(place)?)
        };
        let by_row = rows.kernel[row]
            .and_then(|row| u32::try_from(row).ok())
            .and_then(|row| kernels.by_row.get(&row));
        let kernel = by_row.or_else(by_plan);
        // Alone in a communicator, where copies do it, and in a graph that is recorded as a whole there is none to be found.
        let needs_kernel = rows.source[row] != COPY_ENGINE
            && !(in_whole_graphs && rows.graph_captured[row] != 0)
            && known
                .get(&rows.communicator[row])
                .is_none_or(|row| communicators.ranks[*row] != 1);
        let replayed = rows.plan[row]
            .filter(|_| rows.graph_captured[row] != 0)
            .and_then(|plan| replays.get(&plan));
        parts.without_kernel += u64::from(kernel.is_none() && replayed.is_none() && needs_kernel);
        if let Some((_, operation)) = kernel {
            taken.insert(operation.row);
        }
        let communicator = rows.communicator[row];
        let function = names.get(rows.function[row]);
        let (own, peer) = (
            rows.rank[row],
            rows.peer[row].and_then(|peer| u32::try_from(peer).ok()),
        );
        let pair = match (function, peer) {
            ("Send", Some(peer)) => Some((own, peer)),
            ("Recv", Some(peer)) => Some((peer, own)),
            _ => None,
        };
        let described = known.get(&communicator).copied();
        let kernel = kernel.map(|(device, operation)| part_kernel(*device, operation));
        let from_nccl = rows.kernel[row].is_none();
        let device = kernel.map(|kernel| kernel.device);
        let common = Common {
            matchable: true,
            communicator: Some(communicator),
            communicator_name: described
                .and_then(|row| communicators.name[row])
                .map(|name| names.get(name).to_owned()),
            ranks_in_communicator: described
                .map(|row| communicators.ranks[row])
                .filter(|ranks| *ranks > 0),
            // The two ends of one transfer are one operation.
            function: if pair.is_some() { "SendRecv" } else { function }.to_owned(),
            pair,
            sends: function == "Send",
            dtype: names.get(rows.datatype[row]).to_owned(),
            from_the_beginning: from_nccl && replayed.is_none(),
        };
        let shared = rows.plan[row]
            .filter(|plan| {
                operations
                    .plans
                    .get(plan)
                    .is_none_or(|launches| launches.len() == 1)
            })
            .and_then(|plan| sharing.get(&plan).copied())
            .unwrap_or(1);
        let part = Part {
            participant: Participant {
                process: place,
                place: device.filter(|_| !from_nccl).unwrap_or(own),
            },
            rank,
            common: commons.get(common),
            sequence: rows.sequence[row],
            bytes: Some(rows.bytes[row]).filter(|&bytes| bytes > 0),
            kernel,
            row: u32::try_from(row).ok(),
            shared: u32::try_from(shared).unwrap_or(u32::MAX),
            enqueued: rows.start_ns[row].0,
        };
        // A captured operation runs as often as its graph is launched, and not when it is called.
        let Some(replayed) = replayed else {
            parts.all.push(part);
            continue;
        };
        for kernel in replayed {
            taken.insert(kernel.row);
            parts.all.push(Part {
                sequence: None,
                kernel: Some(*kernel),
                enqueued: kernel.start,
                ..part.clone()
            });
        }
    }
    // Kernels that nothing but their names tells of. Where NCCL's plugin was there it told of all of NCCL's operations: a
    // kernel of NCCL that is tied to none of them is one of theirs all the same, and must not be matched as another.
    let told_by_plugin = rows.kernel.iter().any(Option::is_none);
    let mut told: FxHashMap<NameId, Told> = FxHashMap::default();
    for (&device, operations) in &operations.devices {
        for operation in operations.uncut() {
            let Name::Kernel(name) = operation.name else {
                continue;
            };
            if operation.kind != Kind::Communication || taken.contains(&operation.row) {
                continue;
            }
            let Told {
                nccl,
                function,
                dtype,
            } = told
                .entry(name)
                .or_insert_with(|| Told::by(names.get(name)))
                .clone();
            let matchable = !(told_by_plugin && nccl);
            parts.untold += u64::from(!matchable);
            let common = Common {
                matchable,
                communicator: None,
                communicator_name: None,
                ranks_in_communicator: None,
                function: function.to_owned(),
                pair: None,
                sends: false,
                dtype,
                from_the_beginning: false,
            };
            parts.all.push(Part {
                participant: Participant {
                    process: place,
                    place: device,
                },
                rank,
                common: commons.get(common),
                sequence: None,
                bytes: None,
                kernel: Some(part_kernel(device, operation)),
                row: None,
                shared: 1,
                enqueued: operation.start,
            });
        }
    }
    // Rows in another order must not be other parts.
    parts.all.sort_by(|a, b| {
        let key = |part: &Part| {
            (
                part.enqueued,
                part.sequence,
                part.kernel.map(|kernel| (kernel.start, kernel.end)),
            )
        };
        key(a).cmp(&key(b)).then_with(|| a.function.cmp(&b.function))
    });
    parts
}
