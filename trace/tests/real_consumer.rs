//! The tables in front of a reader that is not ours: pyarrow.
//!
//! Skipped, loudly, where pip can't fetch it; never under CI=true.

use crate::{consumers, support};

use std::process::Command;

use gputrace_trace::Table;
use gputrace_trace::tables::Kernels;
use gputrace_trace::writer::ProcessWriter;
use support::{Random, random_rows, table_file};

#[test]
fn pyarrow_reads_a_table_with_growing_dictionaries() {
    let Some(python) = consumers::python("arrow") else {
        return;
    };
    let root = tempfile::tempdir().unwrap();
    let mut writer = ProcessWriter::create(&root.path().join("rank0")).unwrap();
    let mut random = Random(5);
    let mut expected = Vec::new();
    for batch in 0..4u64 {
        // No name with a line's or a column's end in it, so that rows stay lines.
        for _ in 0..50 {
            let kernels: Kernels = random_rows(1, 1, &mut random, &mut writer.names);
            let mut kernel = kernels.row(0);
            let name = format!("名前 kernel<{}>", random.next() % (3 + 10 * batch));
            kernel.name = writer.names.intern(&name);
            let optional = |value: Option<u64>| value.map_or("null".to_owned(), |value| value.to_string());
            expected.push(
                [
                    kernel.start_ns.0.to_string(),
                    kernel.duration_ns.0.to_string(),
                    name,
                    kernel.device.to_string(),
                    kernel.context.to_string(),
                    kernel.stream.to_string(),
                    kernel.correlation.to_string(),
                    kernel.grid_x.to_string(),
                    kernel.grid_y.to_string(),
                    kernel.grid_z.to_string(),
                    kernel.block_x.to_string(),
                    kernel.block_y.to_string(),
                    kernel.block_z.to_string(),
                    kernel.registers.to_string(),
                    kernel.static_shared_bytes.to_string(),
                    kernel.dynamic_shared_bytes.to_string(),
                    kernel.shared_executed_bytes.to_string(),
                    kernel.local_bytes.to_string(),
                    kernel.launch_type.to_string(),
                    optional(kernel.cluster_x.map(u64::from)),
                    optional(kernel.cluster_y.map(u64::from)),
                    optional(kernel.cluster_z.map(u64::from)),
                    optional(kernel.graph.map(u64::from)),
                    optional(kernel.graph_node),
                ]
                .join("\t"),
            );
            writer.tables.kernels.push(kernel);
        }
        writer.flush(0).unwrap();
    }
    let file = table_file(root.path(), "rank0", "kernels");
    // Open (the process still writes or was killed), then closed.
    for closed in [false, true] {
        if closed {
            std::mem::replace(
                &mut writer,
                ProcessWriter::create(&root.path().join("another")).unwrap(),
            )
            .close()
            .unwrap();
        }
        let output = Command::new(&python)
            .arg(consumers::script("arrow_kernels.py"))
            .arg(&file)
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let text = String::from_utf8(output.stdout).unwrap();
        let rows: Vec<&str> = text.lines().collect();
        assert_eq!(rows, expected, "closed: {closed}");
    }
}
