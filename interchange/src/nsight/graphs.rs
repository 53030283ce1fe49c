//! CUDA graphs that were recorded whole (`--cuda-graph-trace=graph`, the default of newer versions).
//!
//! Such a launch is one row with the graph's number, and its kernels are in no table. It becomes one row of kernels, so
//! that the device is busy while it runs.

use gputrace_trace::Table;
use gputrace_trace::tables::Kernel;
use rustc_hash::FxHashSet;

use super::rows::{Import, Wanted, narrow};

const GRAPHS: Wanted = Wanted {
    table: "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
    needed: &["start", "end", "deviceId", "contextId", "streamId", "graphId"],
    optional: &["globalPid", "correlationId"],
    affects: "CUDA graphs: busy time, overlap and idle time",
};

/// Reads the launches of whole graphs, those left out whose nodes were recorded too.
pub(super) fn read(import: &mut Import<'_>) {
    if !import.database.has(GRAPHS.table) {
        return;
    }
    let mut by_node: FxHashSet<(i64, u32)> = FxHashSet::default();
    for found in import.processes.list() {
        let kernels = &found.tables.kernels;
        let nodes = kernels.graph_node.iter().zip(&kernels.correlation);
        by_node.extend(
            nodes
                .filter(|(node, _)| node.is_some())
                .map(|(_, correlation)| (found.key, *correlation)),
        );
    }
    let mut launches = 0u64;
    import.read(&GRAPHS, |import, cells| {
        let [start, end, device, context, stream, graph] = cells.needed()?;
        let [pid, correlation] = cells.optional()?;
        let (start_ns, duration_ns) = import.span(start, end)?;
        let correlation = narrow(correlation.unwrap_or(0))?;
        if pid.is_some_and(|pid| by_node.contains(&(pid >> 24, correlation))) {
            return Ok(());
        }
        let mut kernel = Kernel {
            start_ns,
            duration_ns,
            device: narrow(device)?,
            context: narrow(context)?,
            stream: narrow(stream)?,
            correlation,
            graph: Some(narrow(graph)?),
            ..Kernel::default()
        };
        kernel.name = import.names.intern(&format!("CUDA graph {graph}"));
        import.tables(pid)?.kernels.push(kernel);
        launches += 1;
        Ok(())
    });
    if launches > 0 {
        import.notes.push(format!(
            "{launches} launches of CUDA graphs were recorded whole: each counts as one kernel, \"CUDA graph N\"; \
             record with --cuda-graph-trace=node to see the kernels, copies and collectives in them"
        ));
    }
}
