//! Tables and columns of both families of schema.

use std::sync::atomic::{AtomicU64, Ordering};

use gputrace_interchange::nsight;
use gputrace_trace::Table;

use super::export::{BOTH, EPOCH, Export, NEW, loss, name, notes, pid, tid};

#[test]
fn columns_of_the_newer_schema_become_ours() {
    let export = Export::new();
    let (process, thread) = (pid(100), tid(100, 101));
    export.kernel(100, 1000, 11).run(&format!(
        "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET graphId = 3, graphNodeId = 12884901889;
         INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY (start, end, deviceId, contextId, streamId, correlationId, globalPid, bytes,
            copyKind, srcKind, dstKind, srcDeviceId, dstDeviceId)
            VALUES (2000, 2050, 0, 1, 8, 12, {process}, 4096, 10, 2, 5, 0, 1), (3000, 3001, 0, 1, 8, 13, {process}, 8, 12, 7, 1, NULL, NULL);
         INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (900, 950, 0, {thread}, 11, 5, 0, NULL),
            (800, 850, 1, {thread}, 10, 6, 2, NULL);
         INSERT INTO CUPTI_ACTIVITY_KIND_SYNCHRONIZATION VALUES (960, 1110, 0, 1, NULL, 4294967295, 14, {process}, 4, 4294967295),
            (1200, 1210, 0, 1, NULL, 7, 15, {process}, 1, 42);
         INSERT INTO CUDA_GPU_MEMORY_USAGE_EVENTS VALUES (700, {process}, 0, 1, 140000000, 0, 512, 2, 0, NULL, 9),
            (5000, {process}, 0, 1, 140000000, 0, 512, 2, 1, NULL, 16);
         INSERT INTO PROFILER_OVERHEAD VALUES (10, 30, {thread}, 10, 0), (10, 30, {}, 10, 0);
         INSERT INTO TARGET_INFO_CUDA_CONTEXT_INFO VALUES (7, 0, 1, 100, 0, 1, NULL, NULL);
         INSERT INTO TARGET_INFO_CUDA_STREAM VALUES (7, 0, 1, 100, 1, 0, 3), (8, 0, 1, 100, 1, 4294967291, 2);
         INSERT INTO TARGET_INFO_GPU VALUES (0, 5, 'GPU five', 1000, 2000, 132, 'aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa', 2, 9, 0),
            (0, 6, 'GPU six', 1000, 2000, 132, 'bbbbbbbb-bbbb-bbbb-bbbb-bbbbbbbbbbbb', 1, 9, 0);
         INSERT INTO TARGET_INFO_CUDA_DEVICE VALUES (6, 0, 100, '', 132), (5, 1, 100, '', 132), (5, 0, 999, '', 132);
         INSERT INTO PROCESSES VALUES ({process}, 100, 'python'), ({}, 200, 'nsys');
         INSERT INTO META_DATA_CAPTURE VALUES ('PROCESS_0:ARGUMENT_0', 'train.py'), ('PROCESS_0:COMMAND', 'python'),
            ('PROCESS_0:ENVIRONMENT_VARIABLE', 'NCCL_DEBUG=\"INFO\"'), ('PROCESS_0:ENVIRONMENT_VARIABLE', 'TOKEN=\"x\"');",
        tid(200, 200),
        pid(200),
    ));
    let (recording, process) = export.only();
    assert_eq!(recording.losses, []);
    assert_eq!(process.header.host, "node7");
    assert_eq!(process.header.driver_version, Some(12_040));
    assert_eq!(process.header.command, ["python", "train.py"]);
    assert_eq!(
        recording.manifest.environment.len(),
        1,
        "no variable but NCCL's and CUDA's"
    );
    assert_eq!(recording.manifest.environment["NCCL_DEBUG"], "INFO");
    assert_eq!(
        (process.header.rank, process.header.rank_source.as_deref()),
        (None, None)
    );
    assert_eq!(process.header.ended_ns, Some(EPOCH + 3001));
    let devices: Vec<_> = process
        .header
        .devices
        .iter()
        .map(|device| (device.index, device.name.as_str()))
        .collect();
    assert_eq!(devices, [(0, "GPU six"), (1, "GPU five")]);
    assert_eq!(
        process.header.devices[0].uuid.as_deref(),
        Some("b".repeat(32).as_str())
    );

    let tables = &process.tables;
    let kernel = tables.kernels.row(0);
    assert_eq!((kernel.start_ns.0, kernel.duration_ns.0), (EPOCH + 1000, 100));
    assert_eq!(name(&recording, &kernel.name), "void gemm<float>(int)");
    assert_eq!((kernel.grid_x, kernel.grid_y, kernel.grid_z), (4, 5, 6));
    assert_eq!((kernel.block_x, kernel.block_y, kernel.block_z), (128, 2, 1));
    assert_eq!(
        (kernel.static_shared_bytes, kernel.dynamic_shared_bytes),
        (1024, 2048)
    );
    assert_eq!((kernel.registers, kernel.stream, kernel.correlation), (32, 7, 11));
    assert_eq!((kernel.graph, kernel.graph_node), (Some(3), Some(12_884_901_889)));
    let peer = tables.copies.row(0);
    assert_eq!((peer.copy_kind, peer.bytes), (10, 4096));
    assert_eq!((peer.source_kind, peer.destination_kind), (3, 6));
    assert_eq!((peer.source_device, peer.destination_device), (Some(0), Some(1)));
    let migration = tables.copies.row(1);
    assert_eq!(
        (
            migration.copy_kind,
            migration.source_kind,
            migration.destination_kind
        ),
        (2, 0, 2)
    );
    assert!(notes(&recording, "1 migrations of unified memory"));
    let (runtime, driver) = (tables.api_calls.row(0), tables.api_calls.row(1));
    assert_eq!(
        (name(&recording, &runtime.name), runtime.kind, runtime.thread),
        ("cudaLaunchKernel", 5, 101)
    );
    assert_eq!(
        (name(&recording, &driver.name), driver.kind, driver.result),
        ("cuMemAlloc_v2", 4, 2)
    );
    let (context, event) = (tables.synchronizations.row(0), tables.synchronizations.row(1));
    assert_eq!(
        (context.kind, context.context, context.stream, context.event),
        (4, Some(1), None, None)
    );
    assert_eq!((event.kind, event.stream, event.event), (1, Some(7), Some(42)));
    let (allocation, release) = (tables.memory.row(0), tables.memory.row(1));
    assert_eq!(
        (allocation.operation, allocation.memory_kind, allocation.bytes),
        (1, 3, 512)
    );
    assert_eq!(
        (allocation.time_ns.0, allocation.address),
        (EPOCH + 700, 140_000_000)
    );
    assert_eq!((release.operation, release.correlation), (2, 16));
    assert_eq!(
        tables.overheads.len(),
        1,
        "that of another process is no part of it"
    );
    assert_eq!(
        (tables.overheads.row(0).kind, tables.overheads.row(0).thread),
        (1 << 16, Some(101))
    );
    let urgent = tables.streams.row(1);
    assert_eq!((urgent.stream, urgent.priority, urgent.flag), (8, -5, 2));
    assert_eq!(
        (tables.contexts.row(0).device, tables.contexts.row(0).null_stream),
        (0, 7)
    );
}

#[test]
fn columns_of_the_older_schema_become_ours() {
    let export = Export::old();
    export.kernel(100, 1000, 11).run(&format!(
        "INSERT INTO CUPTI_ACTIVITY_KIND_MEMSET VALUES (2000, 2050, 0, 1, 7, 12, {}, 255, 4096, NULL, 2);
         INSERT INTO TARGET_INFO_CUDA_NULL_STREAM VALUES (7, 0, 1, 100, 0, 1);
         INSERT INTO TARGET_INFO_GPU VALUES (0, 1, 'GPU', 1000, 2000, 108, NULL, 0, NULL, NULL);
         INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES (0, '', 'DeviceEnvironment', 9,
            CAST(X'52414E4B3D3500574F524C445F53495A453D38' AS TEXT) || char(0) || 'LOCAL_RANK=1');",
        pid(100)
    ));
    let (recording, process) = export.only();
    assert_eq!(recording.losses, []);
    assert!(!notes(&recording, "never tried"));
    let kernel = process.tables.kernels.row(0);
    assert_eq!((kernel.graph, kernel.graph_node), (None, None));
    let memset = process.tables.memsets.row(0);
    assert_eq!((memset.start_ns.0, memset.duration_ns.0), (EPOCH + 2000, 50));
    assert_eq!((memset.value, memset.bytes, memset.memory_kind), (255, 4096, 3));
    assert_eq!(process.tables.contexts.row(0).null_stream, 7);
    let header = &process.header;
    assert_eq!(
        (header.rank, header.world_size, header.local_rank),
        (Some(5), Some(8), Some(1))
    );
    assert_eq!(header.rank_source.as_deref(), Some("RANK"));
    assert_eq!(
        header.devices[0].index, 0,
        "CUDA's index, not the file's own number"
    );
}

#[test]
fn a_kernel_is_called_by_the_best_name_that_is_there() {
    let export = Export::new();
    export.kernel(100, 1000, 1).kernel(100, 2000, 2).kernel(100, 3000, 3).kernel(100, 4000, 4).run(
        "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET demangledName = 4 WHERE correlationId = 2;
         UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET demangledName = 4, mangledName = NULL WHERE correlationId = 3;
         UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET demangledName = 77, mangledName = 78, shortName = 79 WHERE correlationId = 4;",
    );
    let (recording, process) = export.only();
    let names: Vec<_> = process
        .tables
        .kernels
        .name
        .iter()
        .map(|id| name(&recording, id))
        .collect();
    assert_eq!(
        names,
        ["void gemm<float>(int)", "_Z4gemmIfEvi", "gemm", "[string 77]"]
    );
    assert_eq!(
        loss(&recording, "names whose text the file does not have").count,
        Some(3)
    );
}

#[test]
fn nvtx_ranges_keep_kind_domain_depth_and_payload() {
    let export = Export::new();
    let (thread, other) = (tid(100, 101), tid(100, 102));
    export.kernel(100, 1000, 1).run(&format!(
        "INSERT INTO NVTX_EVENTS (start, end, eventType, text, textId, globalTid, domainId, category, color, uint64Value, doubleValue) VALUES
            (200, 300, 59, 'inner', NULL, {thread}, 0, NULL, NULL, NULL, NULL),
            (100, 900, 59, NULL, 9, {thread}, 0, 4, 4278190335, NULL, 2.5),
            (100, 900, 59, 'elsewhere', NULL, {other}, 0, NULL, NULL, -1, NULL),
            (150, 800, 59, 'own domain', NULL, {thread}, 3, NULL, NULL, NULL, NULL),
            (250, NULL, 34, 'mark', NULL, {thread}, 0, NULL, NULL, NULL, NULL),
            (120, 5000, 60, 'started', NULL, {thread}, 0, NULL, NULL, NULL, NULL),
            (400, 500, 59, 'second', NULL, {thread}, 0, NULL, NULL, NULL, NULL),
            (50, NULL, 75, 'libX', NULL, {thread}, 3, NULL, NULL, NULL, NULL),
            (60, NULL, 39, 'worker', NULL, {thread}, 0, NULL, NULL, NULL, NULL),
            (600, NULL, 59, 'never ended', NULL, {thread}, 0, NULL, NULL, NULL, NULL),
            (600, 700, 59, 'no CUDA there', NULL, {}, 0, NULL, NULL, NULL, NULL);",
        tid(200, 200)
    ));
    let (recording, process) = export.only();
    let markers = &process.tables.markers;
    let rows: Vec<_> = (0..markers.len())
        .map(|index| markers.row(index))
        .map(|row| {
            let ends = row.duration_ns.map(|length| row.start_ns.0 - EPOCH + length.0);
            (
                name(&recording, &row.name),
                row.kind,
                name(&recording, &row.domain),
                row.depth,
                ends,
                row.thread,
            )
        })
        .collect();
    assert_eq!(
        rows,
        [
            ("inner", 0, "", 1, Some(300), 101),
            ("step", 0, "", 0, Some(900), 101),
            ("elsewhere", 0, "", 0, Some(900), 102),
            ("own domain", 0, "libX", 0, Some(800), 101),
            ("mark", 2, "", 2, None, 101),
            ("started", 1, "", 0, Some(5000), 101),
            ("second", 0, "", 1, Some(500), 101),
        ]
    );
    let step = markers.row(1);
    assert_eq!(
        (step.category, step.color, step.payload),
        (Some(4), Some(0xff00_00ff), Some(2.5))
    );
    let mark = markers.row(2);
    assert_eq!(
        (mark.payload, mark.payload_type, mark.payload_integer),
        (Some(u64::MAX as f64), Some(1), Some(u64::MAX))
    );
    assert_eq!((step.payload_type, step.payload_integer), (Some(3), None));
    assert_eq!(
        loss(&recording, "NVTX_EVENTS that are ranges with only one end").count,
        Some(1)
    );
    assert!(notes(
        &recording,
        "1 NVTX and MPI rows of processes that used no CUDA"
    ));
}

#[test]
fn ranges_of_pytorch_become_operators_and_modules() {
    let export = Export::new();
    let thread = tid(100, 101);
    export.kernel(100, 1000, 1).run(&format!(
        "INSERT INTO NVTX_EVENTS (start, end, eventType, text, textId, globalTid, domainId, category, color, uint64Value, doubleValue) VALUES
            (100, 900, 59, 'step 4, op_id = 1', NULL, {thread}, 0, NULL, NULL, NULL, NULL),
            (150, 800, 59, 'nn.Module: Linear_2', NULL, {thread}, 0, NULL, NULL, NULL, NULL),
            (200, 300, 59, 'aten::mm, seq = 7, op_id = 2, sizes = [[2, 3], [3, 4]]', NULL, {thread}, 0, NULL, NULL, NULL, NULL),
            (400, 500, 59, 'MmBackward0, seq = 7, op_id = 3', NULL, {thread}, 0, NULL, NULL, NULL, NULL),
            (600, 700, 60, 'aten::mm', NULL, {thread}, 0, NULL, NULL, NULL, NULL),
            (600, 700, 59, 'aten::mm', NULL, {thread}, 3, NULL, NULL, NULL, NULL);"
    ));
    let (recording, process) = export.only();
    let tables = &process.tables;
    let own: Vec<_> = tables
        .markers
        .name
        .iter()
        .map(|id| name(&recording, id))
        .collect();
    assert_eq!(own, ["step 4", "aten::mm", "aten::mm"]);
    let operators: Vec<_> = (0..tables.operators.len())
        .map(|index| tables.operators.row(index))
        .map(|row| {
            (
                name(&recording, &row.name),
                row.input_dims.map(|list| name(&recording, &list).to_owned()),
                (row.sequence, row.forward_thread, row.number),
                (row.start_ns.0 - EPOCH, row.duration_ns.0, row.thread),
            )
        })
        .collect();
    let dims = Some("[[2, 3], [3, 4]]".to_owned());
    assert_eq!(
        operators,
        [
            ("aten::mm", dims, (Some(7), None, Some(2)), (200, 100, 101)),
            ("MmBackward0", None, (Some(7), Some(0), Some(3)), (400, 100, 101)),
        ]
    );
    let modules: Vec<_> = tables
        .python_frames
        .name
        .iter()
        .map(|id| name(&recording, id))
        .collect();
    assert_eq!(modules, ["nn.Module: Linear_2"]);
}

#[test]
fn whole_graphs_become_kernels_unless_their_nodes_are_there() {
    let export = Export::new();
    export.kernel(100, 1000, 1).run(&format!(
        "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET graphNodeId = 5;
         CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INTEGER NOT NULL, end INTEGER NOT NULL,
            deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, greenContextId INTEGER, streamId INTEGER NOT NULL,
            correlationId INTEGER, globalPid INTEGER, graphId INTEGER NOT NULL, graphExecId INTEGER NOT NULL);
         INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (2000, 2600, 0, 1, NULL, 7, 2, {0}, 9, 10),
            (900, 1200, 0, 1, NULL, 7, 1, {0}, 8, 10);",
        pid(100)
    ));
    let (recording, process) = export.only();
    assert_eq!(process.tables.kernels.len(), 2);
    let graph = process.tables.kernels.row(1);
    assert_eq!(name(&recording, &graph.name), "CUDA graph 9");
    assert_eq!(
        (graph.graph, graph.graph_node, graph.duration_ns.0),
        (Some(9), None, 600)
    );
    assert!(notes(&recording, "1 launches of CUDA graphs were recorded whole"));
}

#[test]
fn other_schema_versions_and_missing_starts_are_said() {
    let export = Export::new();
    export.kernel(100, 1000, 1).run(
        "UPDATE META_DATA_EXPORT SET value = '3.22.1' WHERE name = 'EXPORT_SCHEMA_VERSION';
         DROP TABLE TARGET_INFO_SESSION_START_TIME;",
    );
    let (recording, process) = export.only();
    assert!(notes(
        &recording,
        "Nsight Systems schema 3.22: read by documented schema, never tried on a real file of it"
    ));
    assert!(notes(&recording, "times count from the start of recording"));
    assert_eq!(process.tables.kernels.start_ns[0].0, 1000);
}

#[test]
fn normalized_times_are_the_epochs_already() {
    let export = Export::new();
    export
        .kernel(100, EPOCH + 1000, 1)
        .run("UPDATE META_DATA_EXPORT SET value = 'true' WHERE name = 'EXPORT_PARAM_TIME_NORMALIZE'");
    let (recording, process) = export.only();
    assert_eq!(process.tables.kernels.start_ns[0].0, EPOCH + 1000);
    assert_eq!(recording.manifest.started_ns, EPOCH);
}

#[test]
fn names_of_files_can_be_anything() {
    let export = Export::named("a b?mode=rw#100%.sqlite", &format!("{NEW}{BOTH}"));
    export.kernel(100, 1000, 1);
    assert_eq!(export.only().1.tables.kernels.len(), 1);
}

#[test]
fn progress_counts_rows() {
    let export = Export::new();
    export.kernel(100, 1000, 1).kernel(100, 2000, 2);
    let rows = AtomicU64::new(0);
    nsight::import(&export.path, &|read, of| {
        assert!(read <= of);
        rows.store(read, Ordering::Relaxed);
    })
    .unwrap();
    assert_eq!(rows.load(Ordering::Relaxed), 2);
}
