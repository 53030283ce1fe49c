//! Recordings that are cut, damaged, older or newer: what is left is read, what is missing is said, nothing panics.

mod support;

use std::fs;
use std::path::Path;
use std::sync::Arc;

use arrow_array::{Float64Array, Int64Array, NullArray, RecordBatch};
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{Field, Schema};
use gputrace_trace::manifest::{MANIFEST_FILE, PROCESS_FILE};
use gputrace_trace::tables::*;
use gputrace_trace::writer::{AnyTableWriter, ProcessWriter, TableWriter};
use gputrace_trace::{Interner, Recording, Table};
use support::{Random, finish_recording, random_rows, rendered, table_file};

/// One table in one process, in three batches: the rows as text, and the file's length after each batch.
struct Written {
    rows: Vec<String>,
    batches: Vec<(u64, usize)>,
}

fn write_one_table<T: Table>(root: &Path) -> Written {
    let mut names = Interner::default();
    let mut random = Random(3);
    let folder = root.join("rank0");
    fs::create_dir(&folder).unwrap();
    let mut writer = TableWriter::<T>::new(&folder);
    let mut all = T::default();
    let mut batches = Vec::new();
    for rows in [3usize, 1, 4] {
        let fresh: T = random_rows(rows, 4 + all.len() as u64 * 4, &mut random, &mut names);
        for row in 0..rows {
            writer.push(fresh.row(row));
            all.push(fresh.row(row));
        }
        writer.flush(&names).unwrap();
        let bytes = fs::metadata(table_file(root, "rank0", T::NAME)).unwrap().len();
        batches.push((bytes, all.len()));
    }
    writer.close(&names).unwrap();
    finish_recording(root, "rank0", &[(T::NAME, all.len() as u64)]);
    Written {
        rows: rendered(&all, &names),
        batches,
    }
}

fn read_back<T: Table>(recording: &Recording, table: impl Fn(&Tables) -> &T) -> Vec<String> {
    rendered(table(&recording.processes[0].tables), &recording.names)
}

#[test]
fn a_table_cut_at_any_byte_opens_with_every_whole_batch() {
    macro_rules! cut_all {
        ($($field:ident: $Columns:ident),*) => {$({
            let root = tempfile::tempdir().unwrap();
            let written = write_one_table::<$Columns>(root.path());
            let file = table_file(root.path(), "rank0", stringify!($field));
            let whole = fs::read(&file).unwrap();
            for cut in 0..whole.len() {
                fs::write(&file, &whole[..cut]).unwrap();
                let recording = Recording::open(root.path()).unwrap();
                let expected = written.batches.iter().take_while(|(end, _)| *end <= cut as u64).last()
                    .map_or(0, |(_, rows)| *rows);
                let read = read_back(&recording, |tables| &tables.$field);
                assert_eq!(read, written.rows[..expected], "{} cut at {cut}", stringify!($field));
                let lost = (written.rows.len() - expected) as u64;
                let said = recording.losses.iter().any(|loss| {
                    loss.affects.contains(stringify!($field)) && (lost == 0 || loss.count == Some(lost))
                });
                assert!(said, "{} cut at {cut}: {:?}", stringify!($field), recording.losses);
            }
            fs::write(&file, &whole).unwrap();
            let recording = Recording::open(root.path()).unwrap();
            assert_eq!(read_back(&recording, |tables| &tables.$field), written.rows);
        })*};
    }
    for_each_table!(cut_all);
}

#[test]
fn json_cut_at_any_byte_opens_with_all_rows() {
    let root = tempfile::tempdir().unwrap();
    let written = write_one_table::<Kernels>(root.path());
    for name in [MANIFEST_FILE.to_owned(), format!("rank0/{PROCESS_FILE}")] {
        let file = root.path().join(&name);
        let whole = fs::read(&file).unwrap();
        // Without its final newline the object is still whole.
        for cut in 0..whole.len() - 1 {
            fs::write(&file, &whole[..cut]).unwrap();
            let recording = Recording::open(root.path()).unwrap();
            assert_eq!(read_back(&recording, |tables| &tables.kernels), written.rows);
            assert!(!recording.losses.is_empty(), "{name} cut at {cut}");
        }
        fs::write(&file, &whole).unwrap();
        assert!(Recording::open(root.path()).unwrap().losses.is_empty());
    }
}

#[test]
fn flipped_bits_never_panic() {
    macro_rules! flip_all {
        ($($field:ident: $Columns:ident),*) => {$({
            let root = tempfile::tempdir().unwrap();
            write_one_table::<$Columns>(root.path());
            for name in [format!("rank0/{}.arrows", stringify!($field)), MANIFEST_FILE.to_owned(), format!("rank0/{PROCESS_FILE}")] {
                let file = root.path().join(name);
                let whole = fs::read(&file).unwrap();
                for at in 0..whole.len() {
                    let mut damaged = whole.clone();
                    damaged[at] ^= 1 << (at % 8);
                    fs::write(&file, &damaged).unwrap();
                    // Whether it opens depends on the bit; that it returns is the point.
                    match Recording::open(root.path()) {
                        Ok(recording) => assert!(recording.processes[0].tables.$field.len() <= 8),
                        Err(error) => assert!(!error.to_string().contains('\n')),
                    }
                }
                fs::write(&file, &whole).unwrap();
            }
        })*};
    }
    for_each_table!(flip_all);
}

#[test]
fn bytes_of_another_kind_are_called_damaged() {
    let root = tempfile::tempdir().unwrap();
    write_one_table::<Kernels>(root.path());
    let file = table_file(root.path(), "rank0", "kernels");
    let mut bytes = fs::read(&file).unwrap();
    bytes.extend_from_slice(b"PK\x03\x04 this is no Arrow message");
    fs::write(&file, &bytes).unwrap();
    // After the end mark nothing is read.
    assert_eq!(
        Recording::open(root.path()).unwrap().processes[0]
            .tables
            .kernels
            .len(),
        8
    );
    fs::write(&file, b"PK\x03\x04 this is no Arrow message").unwrap();
    let recording = Recording::open(root.path()).unwrap();
    assert!(
        recording.losses.iter().any(|loss| loss.what.contains("damaged")),
        "{:?}",
        recording.losses
    );
}

fn write_stream(path: &Path, columns: Vec<(&str, arrow_array::ArrayRef)>) {
    let fields: Vec<Field> = columns
        .iter()
        .map(|(name, column)| Field::new(*name, column.data_type().clone(), true))
        .collect();
    let schema = Arc::new(Schema::new(fields));
    let batch = RecordBatch::try_new(schema.clone(), columns.into_iter().map(|(_, c)| c).collect()).unwrap();
    let mut writer = StreamWriter::try_new(fs::File::create(path).unwrap(), &schema).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
}

#[test]
fn tables_and_columns_of_newer_versions_are_ignored_with_a_note() {
    let root = tempfile::tempdir().unwrap();
    write_one_table::<Kernels>(root.path());
    write_stream(
        &table_file(root.path(), "rank0", "tensors"),
        vec![("time_ns", Arc::new(Int64Array::from(vec![1, 2])))],
    );
    // A counter table with a column more and columns fewer than ours.
    write_stream(
        &table_file(root.path(), "rank0", "counters"),
        vec![
            ("time_ns", Arc::new(Int64Array::from(vec![5, 6]))),
            ("value", Arc::new(Float64Array::from(vec![0.5, 1.5]))),
            ("confidence", Arc::new(Float64Array::from(vec![0.9, 0.8]))),
        ],
    );
    let recording = Recording::open(root.path()).unwrap();
    let tables = &recording.processes[0].tables;
    assert_eq!((tables.kernels.len(), tables.counters.len()), (8, 2));
    assert_eq!(tables.counters.value, [0.5, 1.5]);
    assert_eq!(tables.counters.device, [None, None]);
    let notes = recording.notes.join("\n");
    assert!(notes.contains("tensors"), "{notes}");
    assert!(notes.contains("counters: confidence"), "{notes}");
    assert!(recording.losses.is_empty(), "{:?}", recording.losses);
}

#[test]
fn a_column_of_another_type_is_damage_that_is_told() {
    let root = tempfile::tempdir().unwrap();
    write_one_table::<Kernels>(root.path());
    write_stream(
        &table_file(root.path(), "rank0", "counters"),
        vec![("value", Arc::new(Int64Array::from(vec![5, 6])))],
    );
    let recording = Recording::open(root.path()).unwrap();
    assert!(
        recording
            .losses
            .iter()
            .any(|loss| loss.affects == "counters" && loss.what.contains("value")),
        "{:?}",
        recording.losses
    );
}

#[test]
fn a_newer_major_version_is_refused_in_one_line() {
    for name in [MANIFEST_FILE.to_owned(), format!("rank0/{PROCESS_FILE}")] {
        let root = tempfile::tempdir().unwrap();
        write_one_table::<Kernels>(root.path());
        let file = root.path().join(name);
        let mut json: serde_json::Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        // A newer minor version is read, and what it adds is ignored.
        json["version"]["minor"] = 7.into();
        json["added later"] = true.into();
        fs::write(&file, json.to_string()).unwrap();
        assert_eq!(
            Recording::open(root.path()).unwrap().processes[0]
                .tables
                .kernels
                .len(),
            8
        );
        json["version"]["major"] = 2.into();
        fs::write(&file, json.to_string()).unwrap();
        let error = Recording::open(root.path()).unwrap_err().to_string();
        assert!(
            error.contains("2.7") && error.contains("update gputrace"),
            "{error}"
        );
        assert!(
            error.contains(file.to_str().unwrap()) && !error.contains('\n'),
            "{error}"
        );
    }
}

#[test]
fn a_missing_manifest_is_rebuilt() {
    let root = tempfile::tempdir().unwrap();
    let written = write_one_table::<Kernels>(root.path());
    fs::remove_file(root.path().join(MANIFEST_FILE)).unwrap();
    let recording = Recording::open(root.path()).unwrap();
    assert_eq!(recording.manifest.state, "rebuilt");
    assert_eq!(recording.manifest.host, "node1");
    assert_eq!(recording.manifest.started_ns, 1);
    assert_eq!(read_back(&recording, |tables| &tables.kernels), written.rows);
    assert!(
        recording
            .losses
            .iter()
            .any(|loss| loss.what.contains(MANIFEST_FILE))
    );
}

#[test]
fn what_is_no_recording_is_refused_in_one_line() {
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("file.json");
    fs::write(&file, "{}").unwrap();
    for path in [root.path(), file.as_path(), &root.path().join("nothing")] {
        let error = Recording::open(path).unwrap_err().to_string();
        assert!(
            error.starts_with(path.to_str().unwrap()) && !error.contains('\n'),
            "{error}"
        );
    }
}

#[test]
fn a_missing_table_and_a_killed_process_are_told() {
    let root = tempfile::tempdir().unwrap();
    write_one_table::<Kernels>(root.path());
    fs::remove_file(table_file(root.path(), "rank0", "kernels")).unwrap();
    let recording = Recording::open(root.path()).unwrap();
    assert!(
        recording
            .losses
            .iter()
            .any(|loss| loss.count == Some(8) && loss.what.contains("kernels is missing"))
    );

    let root = tempfile::tempdir().unwrap();
    let mut writer = ProcessWriter::create(&root.path().join("rank0")).unwrap();
    let kernels: Kernels = random_rows(5, 3, &mut Random(1), &mut writer.names);
    (0..5).for_each(|row| writer.tables.kernels.push(kernels.row(row)));
    writer.flush(0).unwrap();
    drop(writer);
    let recording = Recording::open(root.path()).unwrap();
    assert_eq!(recording.processes[0].tables.kernels.len(), 5);
    assert!(
        recording
            .losses
            .iter()
            .any(|loss| loss.what.contains("without closing"))
    );
}

#[test]
fn a_process_folder_that_is_gone_is_a_loss_of_its_rows() {
    let root = tempfile::tempdir().unwrap();
    write_one_table::<Kernels>(root.path());
    let manifest = root.path().join(MANIFEST_FILE);
    let mut text: serde_json::Value = serde_json::from_slice(&fs::read(&manifest).unwrap()).unwrap();
    text["rows"] = serde_json::json!({"rank0": {"kernels": 8}, "rank1": {"kernels": 5, "copies": 2}});
    fs::write(&manifest, text.to_string()).unwrap();
    let recording = Recording::open(root.path()).unwrap();
    let loss = recording
        .losses
        .iter()
        .find(|loss| loss.what.starts_with("rank1: "))
        .unwrap();
    assert_eq!(loss.count, Some(7));
}

#[test]
fn a_table_in_the_file_of_another_is_not_read() {
    let root = tempfile::tempdir().unwrap();
    write_one_table::<Kernels>(root.path());
    fs::rename(
        table_file(root.path(), "rank0", "kernels"),
        table_file(root.path(), "rank0", "copies"),
    )
    .unwrap();
    let recording = Recording::open(root.path()).unwrap();
    assert_eq!(recording.processes[0].tables.copies.len(), 0);
    assert!(
        recording
            .losses
            .iter()
            .any(|loss| loss.what.contains("holds the table kernels")),
        "{:?}",
        recording.losses
    );
}

#[test]
fn a_batch_of_more_rows_than_anybody_writes_is_damage() {
    let root = tempfile::tempdir().unwrap();
    write_one_table::<Kernels>(root.path());
    let file = table_file(root.path(), "rank0", "kernels");
    // A column that takes no memory, and is none of ours: those would be filled with nulls.
    let nothing = Arc::new(NullArray::new(1 << 24));
    let batch = RecordBatch::try_from_iter([("nothing", nothing as _)]).unwrap();
    let mut writer = StreamWriter::try_new(fs::File::create(&file).unwrap(), &batch.schema()).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
    let recording = Recording::open(root.path()).unwrap();
    assert_eq!(recording.processes[0].tables.kernels.len(), 0);
    assert!(
        recording
            .losses
            .iter()
            .any(|loss| loss.what.contains("a batch of 16777216 rows")),
        "{:?}",
        recording.losses
    );
}
