//! NCCL's kernels inside CUDA graphs are known by their nodes to be those of the collectives that were captured.

use crate::common;

use std::collections::{HashMap, HashSet};
use std::path::Path;

use common::{analysis, expect_status, fresh_folder, gputrace, stdout};
use gputrace_trace::Recording;

#[test]
fn kernels_of_a_captured_collective_are_found_by_their_nodes() {
    let (_keep, folder) = fresh_folder("recording");
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/nccl_graphs.py");
    let mut record = gputrace();
    record
        .args(["record", "--quiet", "--device", "sim", "-o"])
        .arg(&folder);
    record.args(["--", "python3"]).arg(&program);
    let told = stdout(&expect_status(&mut record, 0));
    // Each launch doubles both.
    assert!(told.contains("[32.0, 32.0]"), "{told}");

    let recording = Recording::open(&folder).expect("a recording");
    let cost = recording.processes[0]
        .header
        .collector
        .as_ref()
        .expect("its cost");
    assert!(cost.callbacks["others"].calls > 0, "CUPTI told of the graph");
    let tables = &recording.processes[0].tables;
    let plans: HashMap<u64, u64> = tables
        .graph_nodes
        .node
        .iter()
        .copied()
        .zip(tables.graph_nodes.plan.iter().copied())
        .collect();
    let captured: HashSet<u64> = (0..tables.collectives.plan.len())
        .filter(|&row| tables.collectives.graph_captured[row] == 1)
        .filter_map(|row| tables.collectives.plan[row])
        .collect();
    assert_eq!(captured.len(), 2, "one of each device: {:?}", tables.collectives);
    let mut launches: HashMap<u64, usize> = HashMap::new();
    for node in tables.kernels.graph_node.iter().flatten() {
        if let Some(plan) = plans.get(node) {
            *launches.entry(*plan).or_default() += 1;
        }
    }
    assert_eq!(launches.keys().copied().collect::<HashSet<u64>>(), captured);
    assert!(launches.values().all(|launches| *launches == 5), "{launches:?}");
    assert!(tables.graph_nodes.original.iter().any(Option::is_some));

    // Each launch of the graphs is one collective of both devices.
    let analysis = analysis(&folder);
    let collectives = analysis["collectives"].as_array().expect("a list");
    assert_eq!(collectives.len(), 5, "{collectives:?}");
    for collective in collectives {
        assert_eq!(
            (&collective["name"], &collective["bytes"]),
            (&"AllReduce".into(), &4096.into())
        );
        assert_eq!(
            collective["wait_ns"].as_object().map(serde_json::Map::len),
            Some(2),
            "{collective}"
        );
    }
    assert_eq!(analysis["losses"], serde_json::json!([]));
}
