//! CUDA graphs in recordings: each node as it ran, held against the simulated GPUs' truth.

use crate::common;

use std::collections::BTreeMap;

use common::{expect_status, fresh_folder, record_workload};
use gputrace_trace::Recording;

/// What the truth log says of a node's run.
#[derive(Debug, PartialEq)]
struct Node {
    name: String,
    graph: u32,
    start_ns: i64,
    end_ns: i64,
}

#[test]
fn nodes_are_recorded_as_they_ran() {
    let (_keep, folder) = fresh_folder("recording");
    let truth_folder = folder.with_file_name("truth");
    let workload = ["ddp", "--graph", "--steps", "20", "--sizes", "16,16,8"];
    expect_status(&mut record_workload(&folder, &truth_folder, &[], workload), 0);
    let recording = Recording::open(&folder).expect("the recording");
    assert_eq!(recording.processes.len(), 2);
    for process in &recording.processes {
        let rank = process.header.rank.expect("a rank");
        let text =
            std::fs::read_to_string(truth_folder.join(format!("rank{rank}.jsonl"))).expect("the truth");
        let lines = text
            .lines()
            .map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON"));
        // By launch and node: nodes of a launch share its correlation id.
        let mut truth: BTreeMap<(u64, u64), Node> = BTreeMap::new();
        for line in lines.filter(|line| line["kind"] == "kernel" && line["graph"].is_u64()) {
            let key = (
                line["correlation"].as_u64().expect("an id"),
                line["graph_node"].as_u64().expect("a node"),
            );
            let node = Node {
                name: line["name"].as_str().expect("a name").to_owned(),
                graph: line["graph"].as_u64().expect("a graph") as u32,
                start_ns: line["start_ns"].as_i64().expect("a time"),
                end_ns: line["end_ns"].as_i64().expect("a time"),
            };
            assert!(truth.insert(key, node).is_none(), "once");
        }
        assert!(truth.len() > 100, "{} kernels of graphs", truth.len());
        let names: Vec<&str> = truth.values().map(|node| node.name.as_str()).collect();
        assert!(
            names
                .iter()
                .any(|name| name.starts_with("ncclDevKernel_AllReduce")),
            "NCCL's among them"
        );
        let kernels = &process.tables.kernels;
        let mut recorded = BTreeMap::new();
        for index in 0..kernels.start_ns.len() {
            let Some(graph) = kernels.graph[index] else {
                continue;
            };
            let key = (
                u64::from(kernels.correlation[index]),
                kernels.graph_node[index].expect("a node of the graph"),
            );
            let start_ns = kernels.start_ns[index].0;
            let node = Node {
                name: recording.names.get(kernels.name[index]).to_owned(),
                graph,
                start_ns,
                end_ns: start_ns + kernels.duration_ns[index].0,
            };
            assert!(recorded.insert(key, node).is_none(), "once");
        }
        assert_eq!(recorded, truth, "rank {rank}");
    }
}
