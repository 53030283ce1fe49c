//! CUDA graphs: which node carries which of NCCL's kernels.
//!
//! What NCCL launches while a stream is captured becomes a node instead of a kernel, with no launch that could carry a number
//! of ours. CUPTI tells of each node as it is made, on the thread that launches, and of each copy that is made of it when the
//! graph is instantiated; kernels then tell the node that they ran for. Graphs are made a few times in a program's life.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use gputrace_trace::tables;

use crate::cupti::running;
use crate::nccl;

/// Nodes whose copies are followed, and rows that wait for the writer: beyond them nodes are counted only.
const MOST_NODES: usize = 1 << 16;

/// CUpti_GraphData (cupti_callbacks.h).
#[repr(C)]
pub(crate) struct GraphData {
    graph: usize,
    original_graph: usize,
    node: usize,
    original_node: usize,
}

/// The plans of nodes by their ids, and rows that are not written yet.
struct Nodes {
    /// With fixed keys of the hash: random ones are a system call.
    plans: HashMap<u64, u64, BuildHasherDefault<DefaultHasher>>,
    rows: Vec<tables::GraphNode>,
}

static NODES: Mutex<Option<Nodes>> = Mutex::new(None);
static LOST: AtomicU64 = AtomicU64::new(0);

/// A node was made on this thread: it is NCCL's when NCCL launches a kernel meanwhile.
pub(crate) fn node_created(data: &GraphData) {
    let Some(plan) = nccl::launching_plan() else {
        return;
    };
    if let Some(node) = running::cupti().and_then(|cupti| cupti.graph_node_id(data.node)) {
        keep(node, plan, None);
    }
}

/// A node was copied, with the graph that it is in.
pub(crate) fn node_cloned(data: &GraphData) {
    let Some(cupti) = running::cupti() else { return };
    let Some(original) = cupti.graph_node_id(data.original_node) else {
        return;
    };
    let plan = NODES
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .as_ref()
        .and_then(|nodes| nodes.plans.get(&original).copied());
    // CUPTI is not called with the lock held.
    if let Some(plan) = plan
        && let Some(node) = cupti.graph_node_id(data.node)
    {
        keep(node, plan, Some(original));
    }
}

fn keep(node: u64, plan: u64, original: Option<u64>) {
    let mut nodes = NODES.lock().unwrap_or_else(PoisonError::into_inner);
    let nodes = nodes.get_or_insert_with(|| Nodes {
        plans: HashMap::default(),
        rows: Vec::new(),
    });
    if nodes.plans.len() >= MOST_NODES || nodes.rows.len() >= MOST_NODES {
        LOST.fetch_add(1, Ordering::Relaxed);
        return;
    }
    nodes.plans.insert(node, plan);
    nodes.rows.push(tables::GraphNode { node, plan, original });
}

/// The rows since the last call, and how many were lost.
pub(crate) fn take() -> (Vec<tables::GraphNode>, u64) {
    let rows = NODES
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .as_mut()
        .map_or_else(Vec::new, |nodes| std::mem::take(&mut nodes.rows));
    (rows, LOST.swap(0, Ordering::Relaxed))
}
