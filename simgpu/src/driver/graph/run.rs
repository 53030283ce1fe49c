//! Executable graphs: nodes on lanes, and their launch.
//!
//! A lane is a stream: the first is the one that the graph is launched on, others are the graph's own. A node goes to
//! the lane of the node before it if it is the first to follow that, else to a lane of its own.

use std::sync::{Arc, Mutex, PoisonError};

use super::{Graph, NodeWork, books};
use crate::cupti;
use crate::device::{EventRecord, GraphPlace, GraphRun, Stream, Submission};
use crate::driver::{error, next_handle};

pub(super) struct Executable {
    pub(super) graph: Graph,
    /// Each node's lane.
    lanes: Vec<usize>,
    /// Whether another lane waits for the node.
    awaited: Vec<bool>,
    /// All lanes but the first.
    streams: Vec<Arc<Stream>>,
    /// The newest launch: the next one comes after it.
    last: Mutex<Option<Arc<EventRecord>>>,
}

impl Drop for Executable {
    fn drop(&mut self) {
        for stream in &self.streams {
            stream.end();
        }
    }
}

/// Nodes' lanes, and how many there are.
fn lanes(graph: &Graph) -> (Vec<usize>, usize) {
    let mut lanes: Vec<usize> = Vec::new();
    // The last node of each lane.
    let mut tails: Vec<Option<usize>> = vec![None];
    for (place, node) in graph.nodes.iter().enumerate() {
        let follows = node
            .dependencies
            .iter()
            .map(|before| lanes[*before])
            .find(|lane| tails[*lane].is_some_and(|tail| node.dependencies.contains(&tail)));
        let lane = match follows {
            Some(lane) => lane,
            None if tails[0].is_none() => 0,
            None => {
                tails.push(None);
                tails.len() - 1
            }
        };
        tails[lane] = Some(place);
        lanes.push(lane);
    }
    (lanes, tails.len())
}

impl Executable {
    /// A copy of a graph with ids and handles of its own.
    pub(super) fn new(source: &Graph) -> Result<Self, u32> {
        let mut graph = Graph::new(source.context);
        graph.nodes.clone_from(&source.nodes);
        for node in &mut graph.nodes {
            node.handle = next_handle();
        }
        let (lanes, count) = lanes(&graph);
        let mut awaited = vec![false; graph.nodes.len()];
        for (place, node) in graph.nodes.iter().enumerate() {
            for before in &node.dependencies {
                awaited[*before] |= lanes[*before] != lanes[place];
            }
        }
        let context = graph.context;
        let stream = |_| Stream::start(cupti::next_stream_id(), context.id, context.device, false, 0);
        Ok(Self {
            lanes,
            awaited,
            streams: (1..count).map(stream).collect::<Result<_, u32>>()?,
            last: Mutex::new(None),
            graph,
        })
    }

    /// Puts all nodes behind what a stream has.
    fn launch(&self, stream: &Stream, correlation: u32) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = last.take() {
            stream.wait_for(last);
        }
        let lane = |place: usize| match self.lanes[place] {
            0 => stream,
            lane => &*self.streams[lane - 1],
        };
        if !self.streams.is_empty() {
            let begin = stream.record();
            for lane in &self.streams {
                lane.wait_for(Arc::clone(&begin));
            }
        }
        let operations = self.graph.nodes.iter();
        let operations = operations.filter(|node| matches!(node.work, NodeWork::Operation { .. }));
        let run = GraphRun::new(self.graph.id, correlation, stream, operations.count());
        cupti::graph_launched(&run);
        let mut records: Vec<Option<Arc<EventRecord>>> = vec![None; self.graph.nodes.len()];
        for (place, node) in self.graph.nodes.iter().enumerate() {
            let on = lane(place);
            for before in &node.dependencies {
                if self.lanes[*before] != self.lanes[place]
                    && let Some(record) = &records[*before]
                {
                    on.wait_for(Arc::clone(record));
                }
            }
            match &node.work {
                NodeWork::Host(function) => {
                    let function = Arc::clone(function);
                    on.call(Box::new(move || function()));
                }
                NodeWork::Operation { kind, make, around } => {
                    if let Some((before, _)) = around {
                        before(on);
                    }
                    on.submit(Submission {
                        correlation,
                        kind: kind.clone(),
                        work: make(),
                        graph: Some(GraphPlace {
                            run: Arc::clone(&run),
                            node: self.graph.node_id(place),
                        }),
                    });
                    if let Some((_, after)) = around {
                        after(on);
                    }
                }
            }
            if self.awaited[place] {
                records[place] = Some(on.record());
            }
        }
        for lane in &self.streams {
            stream.wait_for(lane.record());
        }
        *last = Some(stream.record());
    }
}

/// cuGraphLaunch.
pub(super) fn launch(executable: u64, stream: &Stream, correlation: u32) -> Result<(), u32> {
    let known = books().executables.get(&executable).cloned();
    let executable = known.ok_or(error::INVALID_VALUE)?;
    if executable.graph.context.id != stream.context {
        return Err(error::INVALID_VALUE);
    }
    executable.launch(stream, correlation);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::Node;
    use super::*;
    use crate::driver::Context;

    fn graph(dependencies: &[&[usize]]) -> Graph {
        let context = Context {
            handle: 1,
            id: 1,
            device: 0,
            default_stream: 2,
        };
        let node = |before: &&[usize]| Node {
            handle: next_handle(),
            work: NodeWork::Host(Arc::new(|| {})),
            dependencies: before.to_vec(),
        };
        Graph {
            nodes: dependencies.iter().map(node).collect(),
            ..Graph::new(context)
        }
    }

    #[test]
    fn nodes_stay_on_the_lane_that_they_follow() {
        // A chain; a fork and its join; two roots.
        assert_eq!(lanes(&graph(&[&[], &[0], &[1]])), (vec![0, 0, 0], 1));
        assert_eq!(lanes(&graph(&[&[], &[0], &[0], &[1, 2]])), (vec![0, 0, 1, 0], 2));
        assert_eq!(lanes(&graph(&[&[], &[], &[0], &[1]])), (vec![0, 1, 0, 1], 2));
    }
}
