//! Which process a row is of, and which rank a process is.

use gputrace_trace::Table;

use super::export::{BOTH, Export, NEW, loss, name, notes, tid};

#[test]
fn mpi_tables_become_ranges_of_the_domain_mpi_and_tell_ranks() {
    let export = Export::new();
    export.kernel(300, 1000, 1).kernel(200, 1000, 1).run(&format!(
        "INSERT INTO MPI_COLLECTIVES_EVENTS (start, end, globalTid, textId) VALUES (10, 50, {a}, 7), (10, NULL, {a}, 7);
         INSERT INTO MPI_START_WAIT_EVENTS (start, end, globalTid, textId) VALUES (60, 90, {b}, 8);
         INSERT INTO MPI_RANKS VALUES ({a}, 0), ({b}, 1);",
        a = tid(300, 301),
        b = tid(200, 201)
    ));
    let recording = export.import();
    let ranks: Vec<_> = recording
        .processes
        .iter()
        .map(|process| (process.header.pid, process.header.rank))
        .collect();
    assert_eq!(ranks, [(300, Some(0)), (200, Some(1))]);
    assert_eq!(
        recording.processes[0].header.rank_source.as_deref(),
        Some("MPI_RANKS")
    );
    let markers: Vec<_> = recording
        .processes
        .iter()
        .map(|process| process.tables.markers.row(0))
        .collect();
    assert_eq!(name(&recording, &markers[0].name), "MPI_Allreduce");
    assert_eq!(name(&recording, &markers[1].name), "MPI_Wait");
    assert!(
        markers
            .iter()
            .all(|marker| name(&recording, &marker.domain) == "MPI")
    );
    assert_eq!(markers[1].duration_ns.map(|length| length.0), Some(30));
    assert_eq!(loss(&recording, "MPI_COLLECTIVES_EVENTS").count, Some(1));
}

#[test]
fn processes_without_a_rank_are_numbered_by_process_id() {
    let export = Export::new();
    // A launcher that only asked CUDA for its version is no rank.
    export
        .kernel(30, 1000, 1)
        .kernel(20, 1000, 1)
        .kernel(10, 1000, 1)
        .run(&format!(
            "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (1, 2, 0, {}, 1, 5, 0, NULL)",
            tid(5, 5)
        ));
    let recording = export.import();
    let ranks: Vec<_> = recording
        .processes
        .iter()
        .map(|process| {
            (
                process.folder.as_str(),
                process.header.rank,
                process.header.world_size,
            )
        })
        .collect();
    assert_eq!(
        ranks,
        [
            ("pid 10", Some(0), Some(3)),
            ("pid 20", Some(1), Some(3)),
            ("pid 30", Some(2), Some(3)),
            ("pid 5", None, None),
        ]
    );
    assert_eq!(
        recording.processes[0].header.rank_source.as_deref(),
        Some("order of process ids")
    );
    assert!(notes(&recording, "numbered in the order of their process ids"));
}

#[test]
fn a_rank_in_the_name_of_the_file_counts_for_a_lone_process() {
    let export = Export::named("train_rank_6.sqlite", &format!("{NEW}{BOTH}"));
    export.kernel(30, 1000, 1);
    let (_, process) = export.only();
    assert_eq!(process.header.rank, Some(6));
    assert_eq!(process.header.rank_source.as_deref(), Some("file name"));
}

#[test]
fn rows_that_name_no_process_are_those_of_the_only_one() {
    let export = Export::new();
    export.kernel(100, 1000, 1).run(&format!(
        "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET globalPid = NULL;
         INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (1, 2, 0, {}, 1, 5, 0, NULL)",
        tid(77, 78)
    ));
    let (_, process) = export.only();
    assert_eq!((process.header.pid, process.tables.kernels.len()), (77, 1));
    export.run(&format!(
        "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (1, 2, 0, {}, 1, 5, 0, NULL)",
        tid(88, 88)
    ));
    let recording = export.import();
    assert_eq!(recording.processes.len(), 2);
    assert_eq!(loss(&recording, "do not say which process").count, Some(1));
}
