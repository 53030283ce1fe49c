//! Two real exports, against what SQLite itself says is in them.

use std::fs;
use std::path::Path;

use gputrace_trace::{Recording, Table};
use tempfile::TempDir;

use super::export::{import, name, notes};

/// Imports a real file as it would lie on disk, under the name that it was published with.
fn real(folder: &TempDir, name: &str) -> Recording {
    let packed = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data/nsys")
        .join(format!("{name}.zst"));
    let path = folder.path().join(name);
    fs::write(&path, zstd::decode_all(fs::File::open(packed).unwrap()).unwrap()).unwrap();
    import(&path)
}

#[test]
fn the_real_file_of_2024_is_read_whole() {
    let folder = TempDir::new().unwrap();
    let recording = real(&folder, "cloverleaf-2024.5.sqlite");
    assert_eq!(recording.manifest.device, "imported");
    assert_eq!(recording.manifest.state, "complete");
    assert_eq!(recording.manifest.host, "nid008553");
    assert_eq!(recording.manifest.started_ns, 1_696_392_839_587_175_550);
    assert_eq!(
        recording.manifest.command,
        [
            "cuda-cloverleaf",
            "--in",
            "../CloverLeaf-hip/InputDecks/clover_bm32_prof.in"
        ]
    );
    assert_eq!(recording.losses, []);
    let [process] = &recording.processes[..] else {
        panic!("{} processes", recording.processes.len());
    };
    assert_eq!(process.folder, "pid 1701896");
    assert_eq!(process.header.pid, 1_701_896);
    assert_eq!(process.header.driver_version, Some(12_000));
    assert_eq!(process.header.command, recording.manifest.command);
    assert_eq!(
        (process.header.rank, process.header.world_size),
        (Some(0), Some(1))
    );
    assert_eq!(process.header.rank_source.as_deref(), Some("PMI_RANK"));
    // The file does not say which of four GPUs device 0 was, only that all are alike.
    assert_eq!(process.header.devices.len(), 4);
    let device = &process.header.devices[0];
    assert_eq!((device.index, device.name.as_str()), (0, "NVIDIA A100-SXM4-80GB"));
    assert_eq!(device.memory_bytes, Some(84_990_623_744));
    assert_eq!(device.multiprocessors, Some(108));
    assert_eq!(device.memory_bandwidth_bytes_per_s, Some(2_039_040_000_000));
    assert_eq!(device.compute_capability, Some((8, 0)));
    assert_eq!(device.uuid, None);

    let kernels = &process.tables.kernels;
    assert_eq!(kernels.len(), 1312);
    let first = kernels.row(0);
    assert_eq!(first.start_ns.0, 1_696_392_839_587_175_550 + 533_338_240);
    assert_eq!(first.duration_ns.0, 534_705_884 - 533_338_240);
    assert_eq!((first.grid_x, first.block_x, first.registers), (115_426, 256, 32));
    assert_eq!(
        (first.device, first.context, first.stream, first.correlation),
        (0, 1, 7, 452)
    );
    let total: i64 = kernels.duration_ns.iter().map(|length| length.0).sum();
    assert_eq!(total, 294_404_540);
    assert_eq!(
        kernels
            .registers
            .iter()
            .map(|&count| u64::from(count))
            .sum::<u64>(),
        36_308
    );
    let kinds: std::collections::BTreeSet<_> = kernels.name.iter().collect();
    assert_eq!(kinds.len(), 102);
    assert!(
        kernels
            .name
            .iter()
            .all(|id| name(&recording, id).starts_with("void clover::"))
    );

    let copies = &process.tables.copies;
    assert_eq!(copies.len(), 279);
    assert_eq!(copies.bytes.iter().sum::<u64>(), 225_116_952);
    let to_device = copies.copy_kind.iter().filter(|&&kind| kind == 1).count();
    assert_eq!(to_device, 254);
    // Pageable memory and the device's, in CUPTI's numbers.
    assert_eq!((copies.source_kind[0], copies.destination_kind[0]), (1, 3));

    let calls = &process.tables.api_calls;
    assert_eq!(calls.len(), 3048);
    assert_eq!(calls.kind.iter().filter(|&&kind| kind == 4).count(), 1);
    let launches = calls
        .name
        .iter()
        .filter(|id| name(&recording, id) == "cudaLaunchKernel");
    assert_eq!(launches.count(), 1312);
    assert!(calls.thread.iter().all(|&thread| thread == 1_701_896));
    assert_eq!(
        calls.duration_ns.iter().map(|length| length.0).sum::<i64>(),
        571_656_053 + 931
    );

    let waits = &process.tables.synchronizations;
    assert_eq!(waits.len(), 1312);
    assert_eq!(
        waits.duration_ns.iter().map(|length| length.0).sum::<i64>(),
        301_136_696
    );
    assert!(waits.stream.iter().chain(&waits.event).all(Option::is_none));
    assert!(waits.context.iter().all(|context| *context == Some(1)));
    assert_eq!(process.tables.overheads.len(), 47);
    assert_eq!(process.tables.streams.len(), 10);
    assert_eq!(process.tables.contexts.row(0).null_stream, 7);
    assert!(notes(&recording, "Installed CUDA driver version (12.0)"));
    assert!(notes(
        &recording,
        "left out: COMPOSITE_EVENTS, OSRT_API, SCHED_EVENTS"
    ));
    assert!(!notes(&recording, "never tried"));
}

#[test]
fn the_real_file_of_2022_is_read_whole() {
    let folder = TempDir::new().unwrap();
    let recording = real(&folder, "saxpy-mpi-2022.2.sqlite");
    assert_eq!(recording.losses, []);
    assert_eq!(recording.manifest.host, "nid001608");
    assert_eq!(recording.manifest.environment["NCCL_SOCKET_IFNAME"], "hsn");
    let [process] = &recording.processes[..] else {
        panic!("{} processes", recording.processes.len());
    };
    assert_eq!(process.header.pid, 1_230_493);
    assert_eq!(process.header.command, ["./saxpy-mpi-cuda"]);
    // MPI's own word; the variables of its launcher say the same.
    assert_eq!(process.header.rank, Some(0));
    assert_eq!(process.header.rank_source.as_deref(), Some("NVTX thread name"));
    let device = &process.header.devices[0];
    assert_eq!(device.uuid.as_deref(), Some("74e128b290b6b40907c833bee5ff6f88"));

    let tables = &process.tables;
    assert_eq!(tables.kernels.len(), 5);
    let last = tables.kernels.row(4);
    assert_eq!(
        name(&recording, &last.name),
        "saxpy(double *, double *, double *, double, int)"
    );
    assert_eq!(
        last.start_ns.0 + last.duration_ns.0,
        1_687_813_257_637_297_504 + 1_965_496_577
    );
    assert_eq!(tables.copies.len(), 15);
    assert_eq!(tables.copies.bytes.iter().sum::<u64>(), 3_932_160_000);
    // 95 rows, of which 38 are the same calls again with their stacks.
    assert_eq!(tables.api_calls.len(), 57);
    assert!(notes(&recording, "38 rows of CUDA backtraces"));
    assert_eq!(tables.overheads.len(), 16);
    assert_eq!(tables.contexts.row(0).null_stream, 7);
    assert_eq!(tables.streams.len(), 7);
    assert!(tables.streams.priority.contains(&-5));

    // 24 rows: 22 ranges, the name of a domain and that of a thread.
    assert_eq!(tables.markers.len(), 22);
    let of = |text: &str| {
        tables
            .markers
            .name
            .iter()
            .filter(|id| name(&recording, id) == text)
            .count()
    };
    assert_eq!(
        (
            of("MPI_Send"),
            of("MPI_Recv"),
            of("MPI_Init"),
            of("MPI_Finalize"),
            of("saxpy")
        ),
        (10, 5, 1, 1, 5)
    );
    for row in (0..22).map(|index| tables.markers.row(index)) {
        let domain = if name(&recording, &row.name) == "saxpy" {
            ""
        } else {
            "MPI"
        };
        assert_eq!(name(&recording, &row.domain), domain);
        assert_eq!((row.kind, row.depth), (0, 0));
    }
    let total: i64 = tables
        .markers
        .duration_ns
        .iter()
        .flatten()
        .map(|length| length.0)
        .sum();
    assert_eq!(total, 896_325_758);
}
