//! What is lost, damaged, or no export at all.

use std::fs;

use gputrace_interchange::nsight;
use gputrace_trace::Table;
use tempfile::TempDir;

use super::export::{BOTH, EPOCH, Export, import, loss, name, notes, pid, refusal};

#[test]
fn rows_that_cannot_be_used_are_counted_by_what_is_wrong() {
    let export = Export::new();
    for correlation in 1..=8 {
        export.kernel(100, 1000 * correlation, correlation);
    }
    // SQLite keeps a text in an INTEGER column, and the tables of an export have no checks.
    export.run(&format!(
        "CREATE TABLE loose AS SELECT * FROM CUPTI_ACTIVITY_KIND_KERNEL; DROP TABLE CUPTI_ACTIVITY_KIND_KERNEL;
         ALTER TABLE loose RENAME TO CUPTI_ACTIVITY_KIND_KERNEL;
         UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET end = start - 1 WHERE correlationId = 1;
         UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET start = -5 WHERE correlationId = 2;
         UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET start = {0}, end = {0} WHERE correlationId = 3;
         UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET start = NULL WHERE correlationId = 4;
         UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET start = 'soon' WHERE correlationId = 5;
         UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET streamId = -1 WHERE correlationId = 6;
         UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET end = 9223372036854775807 WHERE correlationId = 7;",
        1i64 << 61
    ));
    let (recording, process) = export.only();
    assert_eq!(process.tables.kernels.correlation, [8]);
    let count = |words: &str| loss(&recording, words).count;
    assert_eq!(count("end before they begin"), Some(1));
    assert_eq!(count("impossible time"), Some(3));
    assert_eq!(count("no value in a column"), Some(1));
    assert_eq!(count("wrong type"), Some(1));
    assert_eq!(count("out of range"), Some(1));
    assert!(recording.losses.iter().all(|loss| {
        loss.what
            .starts_with("report.sqlite: rows of CUPTI_ACTIVITY_KIND_KERNEL")
    }));
}

#[test]
fn what_nsight_says_was_lost_is_a_loss() {
    let export = Export::new();
    export.kernel(100, 1000, 1).run(&format!(
        "INSERT INTO DIAGNOSTIC_EVENT VALUES (1, 1, 3, 2, 'Not all CUDA events might have been collected.', {0}),
            (1, 1, 3, 2, 'Not all CUDA events might have been collected.', {1}),
            (1, 1, 3, 3, '12 NVTX events were dropped', {0}),
            (1, 1, 3, 1, 'Number of CUDA events collected: 3, lost: 0', {0}),
            (1, 1, 3, 2, 'No NVTX events collected.' || char(10) || 'Does the process use NVTX?', {0}),
            (1, 1, 2, 2, 'CUPTI buffers overflowed', {2});",
        pid(100),
        pid(200),
        1i64 << 48,
    ));
    let (recording, _) = export.only();
    assert_eq!(recording.losses.len(), 3);
    assert_eq!(
        loss(&recording, "pid 100: Nsight Systems says: Not all CUDA events").count,
        None
    );
    let nvtx = loss(&recording, "12 NVTX events were dropped");
    assert_eq!(
        (nvtx.count, nvtx.affects.as_str()),
        (Some(12), "NVTX ranges and marks")
    );
    assert!(
        loss(&recording, "CUPTI buffers overflowed")
            .affects
            .contains("GPU operations")
    );
    assert!(notes(
        &recording,
        "No NVTX events collected. Does the process use NVTX?"
    ));
    assert!(notes(
        &recording,
        "1 warnings of Nsight Systems about processes that used no CUDA"
    ));
}

#[test]
fn a_needed_column_that_is_absent_costs_its_table_alone() {
    let export = Export::new();
    export.kernel(100, 1000, 1).run(&format!(
        "DROP TABLE CUPTI_ACTIVITY_KIND_SYNCHRONIZATION;
         CREATE TABLE CUPTI_ACTIVITY_KIND_SYNCHRONIZATION (start INTEGER, globalPid INTEGER, syncType INTEGER);
         INSERT INTO CUPTI_ACTIVITY_KIND_SYNCHRONIZATION VALUES (1, {0}, 4), (2, {0}, 4);
         DROP TABLE NVTX_EVENTS; CREATE TABLE NVTX_EVENTS (text TEXT);",
        pid(100)
    ));
    let (recording, process) = export.only();
    assert_eq!(process.tables.kernels.len(), 1);
    assert_eq!(
        recording.losses.len(),
        1,
        "an empty table costs nothing: {:?}",
        recording.losses
    );
    assert_eq!(
        loss(&recording, "SYNCHRONIZATION has no column end").count,
        Some(2)
    );
}

#[test]
fn a_cut_database_keeps_what_comes_before_the_cut() {
    let export = Export::new();
    export.run("BEGIN");
    for number in 0..20_000 {
        export.kernel(100, 1000 * number, number);
    }
    export.run("COMMIT");
    let whole = fs::read(&export.path).unwrap();
    let full = export.import().processes[0].tables.kernels.len();
    assert_eq!(full, 20_000);
    fs::write(&export.path, &whole[..whole.len() / 2]).unwrap();
    let (recording, process) = export.only();
    let kept = process.tables.kernels.len();
    assert!((5_000..20_000).contains(&kept), "{kept}");
    assert_eq!(
        loss(&recording, "KERNEL could not be read past its row").count,
        None
    );
    loss(&recording, "what can still be found in it was read");
    // Nothing is made up of the zeros past the cut.
    for row in (0..kept).map(|index| process.tables.kernels.row(index)) {
        assert_eq!(row.start_ns.0, EPOCH + 1000 * i64::from(row.correlation));
        assert_eq!(
            (
                row.duration_ns.0,
                row.registers,
                row.grid_z,
                row.dynamic_shared_bytes
            ),
            (100, 32, 6, 2048)
        );
        assert_eq!(name(&recording, &row.name), "void gemm<float>(int)");
    }
    // A cut at any place ends in one of three ways, none of them a panic.
    for part in 0..40 {
        let cut = whole.len() / 40 * part + 777;
        fs::write(&export.path, &whole[..cut]).unwrap();
        match nsight::import(&export.path, &|_, _| ()) {
            Ok(recording) => assert!(!recording.losses.is_empty(), "{cut}"),
            Err(error) => assert!(!error.to_string().contains('\n'), "{error}"),
        }
    }
}

#[test]
fn flipped_bytes_never_panic() {
    let export = Export::new();
    for number in 0..200 {
        export.kernel(100, 1000 * number, number);
    }
    let whole = fs::read(&export.path).unwrap();
    let mut state = 1u64;
    for _ in 0..300 {
        let mut bytes = whole.clone();
        for _ in 0..20 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let at = (state >> 20) as usize % (bytes.len() - 100) + 100;
            bytes[at] = (state >> 8) as u8;
        }
        fs::write(&export.path, &bytes).unwrap();
        drop(nsight::import(&export.path, &|_, _| ()));
    }
}

#[test]
fn an_export_that_was_cut_short_is_told_by_its_journal() {
    let export = Export::new();
    export.kernel(100, 1000, 1);
    let journal = export.folder.path().join("report.sqlite-journal");
    fs::write(&journal, "journal").unwrap();
    let recording = import(&export.path);
    assert!(
        loss(&recording, "report.sqlite-journal lies beside the file")
            .affects
            .contains("everything")
    );
    assert_eq!(fs::read(&journal).unwrap(), b"journal", "left alone");
}

#[test]
fn what_is_no_export_is_refused_in_one_line() {
    let other = Export::named(
        "history.db",
        "CREATE TABLE urls (id INTEGER); CREATE TABLE visits (id INTEGER);",
    );
    let error = other.refusal();
    assert!(
        error.contains("no export of Nsight Systems (its tables are urls, visits)"),
        "{error}"
    );
    assert!(error.contains("nsys export --type sqlite"), "{error}");

    let error = Export::new().refusal();
    assert!(
        error.contains("no CUDA work in it: was it recorded with --trace=cuda?"),
        "{error}"
    );
    let lazy = Export::named("x.sqlite", BOTH);
    assert!(lazy.refusal().contains("no CUDA work in it"));

    let hopeless = Export::new();
    hopeless.kernel(100, -5000, 1);
    let error = hopeless.refusal();
    assert!(
        error.contains("1 rows of CUPTI_ACTIVITY_KIND_KERNEL have an impossible time"),
        "{error}"
    );

    let folder = TempDir::new().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    };
    assert!(refusal(&file("text", &b"not a database at all, ".repeat(100))).contains("no SQLite database"));
    assert!(refusal(&file("empty", b"")).contains("no export of Nsight Systems (it has no tables)"));
    let mut header = b"SQLite format 3\0".to_vec();
    header.resize(4096, 0xff);
    refusal(&file("header", &header));
    assert!(refusal(&folder.path().join("absent")).contains("cannot be read: "));
    assert!(refusal(folder.path()).contains("it is a folder"));
}

/// A database whose list of tables is 80 to the power of 7 rows: seven levels of pages, each of which names the next 80 times.
fn with_an_endless_schema() -> Vec<u8> {
    const PAGE_BYTES: usize = 512;
    const LEVELS: u8 = 7;
    const CELLS: u8 = 80;
    // What a page has at its end: a cell that all of its cells are.
    let page = |kind: u8, last_child: &[u8], cell: &[u8], before: usize| {
        let at = (PAGE_BYTES - cell.len()) as u16;
        let mut page = vec![0; before];
        page.extend([kind, 0, 0, 0, CELLS]);
        page.extend(at.to_be_bytes());
        page.push(0);
        page.extend(last_child);
        page.extend(at.to_be_bytes().repeat(CELLS.into()));
        page.resize(usize::from(at), 0);
        page.extend(cell);
        page
    };
    let mut file = Vec::new();
    for level in 1..=LEVELS {
        let child = [0, 0, 0, level + 1];
        let before = if level == 1 { 100 } else { 0 };
        file.extend(page(5, &child, &[&child[..], &[1]].concat(), before));
    }
    // A row of five nulls: its length, its number, and its header of six bytes.
    file.extend(page(13, &[], &[6, 1, 6, 0, 0, 0, 0, 0], 0));
    file[..16].copy_from_slice(b"SQLite format 3\0");
    file[16..24].copy_from_slice(&[2, 0, 1, 1, 0, 64, 32, 32]);
    file[28..32].copy_from_slice(&u32::from(LEVELS + 1).to_be_bytes());
    // The schema's format, and UTF-8.
    file[47] = 4;
    file[59] = 1;
    file
}

#[test]
fn a_schema_without_an_end_is_refused_and_not_read_for_ever() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("report.sqlite");
    fs::write(&path, with_an_endless_schema()).unwrap();
    let before = std::time::Instant::now();
    let error = refusal(&path);
    assert!(error.contains("its list of tables has no end"), "{error}");
    assert!(before.elapsed().as_secs() < 120, "{:?}", before.elapsed());
}

#[test]
fn only_sqlite_is_sqlite() {
    assert!(nsight::is_sqlite(b"SQLite format 3\0rest"));
    assert!(!nsight::is_sqlite(b"SQLite format 3"));
    assert!(!nsight::is_sqlite(b"{\"traceEvents\":"));
    assert!(!nsight::is_sqlite(b""));
}
