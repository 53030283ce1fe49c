//! CUDA graphs: what they are made of, and the books of those that live.
//!
//! A graph's nodes make their work anew at each launch. They are added one by one (`nodes`) or captured from streams
//! (`capture`); an instantiated graph is a copy of the nodes with ids of its own, laid out on lanes that run side by side
//! (`run`).

mod api;
pub(crate) mod capture;
mod nodes;
mod run;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::context::Context;
use super::{error, next_handle};
use crate::cupti::{self, GraphData, event};
use crate::device::{OpKind, Stream, Work};

/// Makes the work of one run.
pub(crate) type MakeWork = Arc<dyn Fn() -> Work + Send + Sync>;

/// What is done on the launching stream's lane before and after a node's operation is put there.
type Step = Arc<dyn Fn(&Stream) + Send + Sync>;

/// What a node does.
#[derive(Clone)]
pub(crate) enum NodeWork {
    Operation {
        kind: OpKind,
        make: MakeWork,
        /// Order with work outside of the graph, if it needs any.
        around: Option<(Step, Step)>,
    },
    Host(Arc<dyn Fn() + Send + Sync>),
}

impl NodeWork {
    /// An operation that needs no order but the graph's.
    pub(crate) fn operation(kind: OpKind, make: MakeWork) -> Self {
        Self::Operation {
            kind,
            make,
            around: None,
        }
    }

    /// CUgraphNodeType.
    fn code(&self) -> u32 {
        match self {
            Self::Operation { kind, .. } => match kind {
                OpKind::Kernel { .. } => 0,
                OpKind::Copy { .. } => 1,
                OpKind::Memset { .. } => 2,
            },
            Self::Host(_) => 3,
        }
    }
}

#[derive(Clone)]
struct Node {
    handle: u64,
    work: NodeWork,
    /// Places of the nodes that come before.
    dependencies: Vec<usize>,
}

/// A graph, or the graph that was made executable.
#[derive(Clone)]
struct Graph {
    /// CUPTI's id.
    id: u32,
    context: Context,
    nodes: Vec<Node>,
}

impl Graph {
    fn new(context: Context) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        Self {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            context,
            nodes: Vec::new(),
        }
    }

    /// CUPTI's id of a node: the graph's, then the node's place in it.
    fn node_id(&self, place: usize) -> u64 {
        u64::from(self.id) << 32 | place as u64
    }
}

#[derive(Default)]
struct Books {
    graphs: BTreeMap<u64, Graph>,
    executables: BTreeMap<u64, Arc<run::Executable>>,
}

static BOOKS: Mutex<Books> = Mutex::new(Books {
    graphs: BTreeMap::new(),
    executables: BTreeMap::new(),
});

fn books() -> MutexGuard<'static, Books> {
    BOOKS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes an empty graph in a context and gives its handle.
fn create(context: Context) -> Result<u64, u32> {
    let handle = next_handle();
    books().graphs.insert(handle, Graph::new(context));
    let data = GraphData {
        graph: handle,
        ..GraphData::default()
    };
    cupti::graph_event(event::GRAPH_CREATED, context.handle, &data);
    Ok(handle)
}

/// Adds a node to a graph; gives its place and handle.
fn add(graph: u64, work: NodeWork, dependencies: Vec<usize>) -> Result<(usize, u64), u32> {
    let handle = next_handle();
    let node_type = work.code();
    let (place, context, before) = {
        let mut books = books();
        let known = books.graphs.get_mut(&graph).ok_or(error::INVALID_VALUE)?;
        let before: Option<Vec<u64>> = dependencies
            .iter()
            .map(|place| Some(known.nodes.get(*place)?.handle))
            .collect();
        let before = before.ok_or(error::INVALID_VALUE)?;
        known.nodes.push(Node {
            handle,
            work,
            dependencies,
        });
        (known.nodes.len() - 1, known.context.handle, before)
    };
    let data = GraphData {
        graph,
        node: handle,
        node_type,
        ..GraphData::default()
    };
    cupti::graph_event(event::GRAPHNODE_CREATED, context, &data);
    for dependency in before {
        cupti::graph_event(
            event::GRAPHNODE_DEPENDENCY_CREATED,
            context,
            &GraphData { dependency, ..data },
        );
    }
    Ok((place, handle))
}

/// Places of nodes in a graph, by their handles.
fn places(graph: u64, handles: &[u64]) -> Result<Vec<usize>, u32> {
    let books = books();
    let nodes = &books.graphs.get(&graph).ok_or(error::INVALID_VALUE)?.nodes;
    let place = |handle: &u64| nodes.iter().position(|node| node.handle == *handle);
    handles
        .iter()
        .map(|handle| place(handle).ok_or(error::INVALID_VALUE))
        .collect()
}

/// CUPTI's id of a graph.
pub(crate) fn graph_id(graph: u64) -> Option<u32> {
    Some(books().graphs.get(&graph)?.id)
}

/// CUPTI's id of an executable graph.
pub(crate) fn executable_id(executable: u64) -> Option<u32> {
    Some(books().executables.get(&executable)?.graph.id)
}

/// CUPTI's id of a node, of a graph or of an executable one.
pub(crate) fn node_id(handle: u64) -> Option<u64> {
    let books = books();
    let executables = books.executables.values().map(|executable| &executable.graph);
    books.graphs.values().chain(executables).find_map(|graph| {
        let place = graph.nodes.iter().position(|node| node.handle == handle)?;
        Some(graph.node_id(place))
    })
}
