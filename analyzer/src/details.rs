//! What the analysis finds of single operations and gaps, which its sums are made of: for pictures of the recording.

use gputrace_trace::{Interner, NameId, Process};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::by_step::StepSums;
use crate::cause::Cause;
use crate::kernel_names;
use crate::kinds::{Kind, KindFrom};

/// What an [`crate::Analysis`] does not list.
#[derive(Clone, Debug, Default)]
pub struct Details {
    /// Every gap of every device, in the order of [`crate::Analysis::ranks`].
    pub devices: Vec<DeviceGaps>,
    /// What each GPU did of each collective, in the order of [`crate::Analysis::collectives`]: by arrival, those without a
    /// kernel last.
    pub collectives: Vec<Vec<CollectivePart>>,
    /// The pieces of [`crate::Analysis::critical_path`], by time.
    pub critical_path: Vec<crate::graph::piece::Piece>,
    /// By device: under which modules and functions its operations were launched, where that is known.
    pub launched: std::sync::Arc<Vec<crate::operators::LaunchedOperations>>,
    /// What each device did in its steps, likewise, where that was asked for.
    pub(crate) steps: Vec<StepSums>,
}

/// The gaps of a device: the stretches of its span in which it executes nothing.
#[derive(Clone, Debug, Default)]
pub struct DeviceGaps {
    /// The process's place in the recording.
    pub process: u32,
    /// Device index within the process.
    pub device_index: u32,
    /// By time.
    pub gaps: Vec<CausedGap>,
}

/// A gap with the cause of its longest part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CausedGap {
    /// End of the operation before it.
    pub start_ns: i64,
    /// Start of the operation that ends it.
    pub end_ns: i64,
    /// Why.
    pub cause: Cause,
}

/// One GPU's part in a collective.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectivePart {
    /// The process's place in the recording.
    pub process: u32,
    /// The process's rank in the job.
    pub rank: Option<u32>,
    /// Its row in the process's table of collectives; `None` where only a kernel tells of it.
    pub row: Option<u32>,
    /// Its kernel, as device and row in the process's table of kernels.
    pub kernel: Option<(u32, u32)>,
    /// Start of the kernel.
    pub start_ns: Option<i64>,
    /// End of the kernel.
    pub end_ns: Option<i64>,
    /// From there to the last rank's arrival, where arrivals can be compared.
    pub wait_ns: Option<i64>,
    /// The rest of the kernel.
    pub transfer_ns: Option<i64>,
}

/// Which kernels of a process communicate, and how that is known.
pub struct KernelKinds<'a> {
    names: &'a Interner,
    /// Rows that the trace describes a collective on.
    described: FxHashSet<u64>,
    /// Nodes of CUDA graphs which carry NCCL's kernels.
    nodes: FxHashSet<u64>,
    /// Rows that ran for them.
    in_graphs: FxHashSet<u32>,
    /// Launches (correlation ids) that a collective names, to the number by which it names them. Of CUPTI's joining ids only
    /// these: other tools push ids of their own.
    pub(crate) launches: FxHashMap<u32, u64>,
    /// By name: whether it tells that; 0 where nobody asked yet, 1 no, 2 yes. As long as the greatest number so far: a process
    /// of many need not know the names of all.
    by_name: Vec<u8>,
}

impl<'a> KernelKinds<'a> {
    /// Of the kernels of `process`.
    #[must_use]
    pub fn new(process: &Process, names: &'a Interner) -> Self {
        let tables = &process.tables;
        let wanted: FxHashSet<u64> = tables.collectives.plan.iter().flatten().copied().collect();
        let external = &tables.external_correlations;
        // A group's number is on all that it launched, events and copies too: which are kernels is seen by their rows.
        let mut launches: FxHashMap<u32, u64> = FxHashMap::default();
        for (id, correlation) in external.id.iter().zip(&external.correlation) {
            if *correlation != 0 && wanted.contains(id) {
                launches.insert(*correlation, *id);
            }
        }
        let nodes: FxHashSet<u64> = tables.graph_nodes.node.iter().copied().collect();
        let in_graphs = match nodes.is_empty() {
            true => FxHashSet::default(),
            false => (0..)
                .zip(&tables.kernels.graph_node)
                .filter(|(_, node)| node.is_some_and(|node| nodes.contains(&node)))
                .map(|(row, _)| row)
                .collect(),
        };
        Self {
            names,
            nodes,
            in_graphs,
            described: tables.collectives.kernel.iter().flatten().copied().collect(),
            launches,
            by_name: Vec::new(),
        }
    }

    /// Whether the kernel in this row of the table, with this name and launch, communicates.
    #[inline]
    pub fn communicates(&mut self, row: u32, name: NameId, correlation: u32) -> bool {
        self.of(row, name, correlation).0 == Kind::Communication
    }

    /// Whether a node of a CUDA graph carries a kernel that communicates: for kernels that are not in the process's table.
    #[must_use]
    pub fn carries(&self, node: Option<u64>) -> bool {
        node.is_some_and(|node| self.nodes.contains(&node))
    }

    /// Whether kinds depend on the launches or on the nodes that kernels ran for, beside their names.
    #[must_use]
    pub fn look_at(&self) -> (bool, bool) {
        (!self.launches.is_empty(), !self.nodes.is_empty())
    }

    pub(crate) fn of(&mut self, row: u32, name: NameId, correlation: u32) -> (Kind, KindFrom) {
        if !self.described.is_empty() && self.described.contains(&u64::from(row)) {
            (Kind::Communication, KindFrom::Metadata)
        } else if !self.launches.is_empty() && self.launches.contains_key(&correlation)
            || !self.in_graphs.is_empty() && self.in_graphs.contains(&row)
        {
            (Kind::Communication, KindFrom::NcclPlugin)
        } else if self.is_named_so(name) {
            (Kind::Communication, KindFrom::Name)
        } else {
            (Kind::Compute, KindFrom::Record)
        }
    }

    #[inline]
    fn is_named_so(&mut self, name: NameId) -> bool {
        match self.by_name.get(name.number() as usize) {
            Some(1) => false,
            Some(2) => true,
            _ => self.look_at_name(name),
        }
    }

    #[cold]
    fn look_at_name(&mut self, name: NameId) -> bool {
        let place = name.number() as usize;
        let told = kernel_names::communication(self.names.get(name)).is_some();
        if place < self.names.len() {
            if place >= self.by_name.len() {
                self.by_name.resize(place + 1, 0);
            }
            self.by_name[place] = 1 + u8::from(told);
        }
        told
    }
}
