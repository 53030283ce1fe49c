//! What each rank did of the collectives: one part an operation, with its kernel's time.

use std::collections::{BTreeMap, HashMap, HashSet};

use gputrace_trace::collective_names::function_name;
use gputrace_trace::{Interner, Process};

use crate::kinds::Kind;
use crate::operations::{Name, Operation, ProcessOperations};

/// One rank's part in a collective.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    /// The rank in the job.
    pub(crate) rank: u32,
    /// `None` where the source does not tell communicators apart.
    pub(crate) communicator: Option<u64>,
    pub(crate) communicator_name: Option<String>,
    pub(crate) ranks_in_communicator: u32,
    pub(crate) function: String,
    /// Sender and receiver of a point-to-point operation, as ranks in the communicator.
    pub(crate) pair: Option<(u32, u32)>,
    /// NCCL's or the framework's number of the operation.
    pub(crate) sequence: Option<u64>,
    pub(crate) bytes: Option<u64>,
    pub(crate) dtype: String,
    /// The kernel's device, start and end.
    pub(crate) kernel: Option<(u32, i64, i64)>,
    /// Operations in the same kernel.
    pub(crate) shared: usize,
    /// When it was enqueued, or its kernel's start where that is not known.
    pub(crate) enqueued: i64,
    /// Whether the source is there from the communicator's making on: then its first operation is the warm-up.
    pub(crate) from_the_beginning: bool,
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
            for operation in operations {
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

/// The parts of one process, by when they were enqueued, and how many of them have no kernel.
pub(crate) fn parts(
    process: &Process,
    rank: u32,
    operations: &ProcessOperations,
    names: &Interner,
) -> (Vec<Part>, u64) {
    let rows = &process.tables.collectives;
    let communicators = &process.tables.communicators;
    let known: BTreeMap<u64, usize> = communicators.communicator.iter().copied().zip(0..).collect();
    let mut sharing: HashMap<u64, usize> = HashMap::new();
    for plan in rows.plan.iter().flatten() {
        *sharing.entry(*plan).or_default() += 1;
    }
    let kernels = Kernels::new(operations);
    let mut taken: HashSet<u32> = HashSet::new();
    let mut parts = Vec::new();
    let mut without_kernel = 0;
    for row in 0..rows.start_ns.len() {
        let by_plan = || {
            let correlation = operations.plans.get(&rows.plan[row]?)?;
            kernels.by_correlation.get(correlation)
        };
        let by_row = rows.kernel[row]
            .and_then(|row| u32::try_from(row).ok())
            .and_then(|row| kernels.by_row.get(&row));
        let kernel = by_row.or_else(by_plan);
        without_kernel += u64::from(kernel.is_none());
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
        parts.push(Part {
            rank,
            communicator: Some(communicator),
            communicator_name: described
                .and_then(|row| communicators.name[row])
                .map(|name| names.get(name).to_owned()),
            ranks_in_communicator: described.map_or(0, |row| communicators.ranks[row]),
            // The two ends of one transfer are one operation.
            function: if pair.is_some() { "SendRecv" } else { function }.to_owned(),
            pair,
            sequence: rows.sequence[row],
            bytes: Some(rows.bytes[row]).filter(|&bytes| bytes > 0 || rows.count[row] == 0),
            dtype: names.get(rows.datatype[row]).to_owned(),
            kernel: kernel.map(|(device, operation)| (*device, operation.start, operation.end)),
            shared: rows.plan[row]
                .and_then(|plan| sharing.get(&plan).copied())
                .unwrap_or(1),
            enqueued: rows.start_ns[row].0,
            from_the_beginning: rows.kernel[row].is_none(),
        });
    }
    // Kernels that nothing but their names tells of. Where NCCL's plugin was there it told of all operations: a kernel that
    // is tied to none of them is one of theirs all the same, and must not count twice.
    let told_by_plugin = rows.kernel.iter().any(Option::is_none);
    let untold = operations.devices.iter().filter(|_| !told_by_plugin);
    for (&device, operations) in untold {
        for operation in operations {
            let Name::Kernel(name) = operation.name else {
                continue;
            };
            if operation.kind != Kind::Communication || taken.contains(&operation.row) {
                continue;
            }
            let name = names.get(name);
            let function = function_name(name.split(['(', '<']).next().unwrap_or(name)).unwrap_or("other");
            // Only what reduces has a type of its own: other kernels are compiled once for all.
            let dtype = if function.contains("Reduce") {
                dtype_in_name(name)
            } else {
                String::new()
            };
            parts.push(Part {
                rank,
                communicator: None,
                communicator_name: None,
                ranks_in_communicator: 0,
                function: function.to_owned(),
                pair: None,
                sequence: None,
                bytes: None,
                dtype,
                kernel: Some((device, operation.start, operation.end)),
                shared: 1,
                enqueued: operation.start,
                from_the_beginning: false,
            });
        }
    }
    parts.sort_by_key(|part| part.enqueued);
    (parts, without_kernel)
}
