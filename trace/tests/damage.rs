//! Recordings that are cut, damaged, older or newer: what is left is read, what is missing is said, nothing panics.

use crate::support;

use std::fs;
use std::path::Path;
use std::sync::Arc;

use arrow_array::{Float64Array, Int64Array, NullArray, RecordBatch};
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{Field, Schema};
use gputrace_trace::json_file::{read_json, write_json};
use gputrace_trace::manifest::{MANIFEST_FILE, PROCESS_FILE, ProcessHeader};
use gputrace_trace::seal::Identity;
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
    let mut writer = TableWriter::<T>::new(&folder, Identity::default());
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

/// Cuts a file that is longer. A file that is written anew is brought onto the disk by some file systems, which takes long.
fn cut_at(path: &Path, bytes: usize) {
    let file = fs::File::options().write(true).open(path).unwrap();
    file.set_len(bytes as u64).unwrap();
}

#[test]
fn a_table_cut_at_any_byte_opens_with_every_whole_batch() {
    macro_rules! cut_all {
        ($($field:ident: $Columns:ident),*) => {$({
            let root = tempfile::tempdir().unwrap();
            let written = write_one_table::<$Columns>(root.path());
            let file = table_file(root.path(), "rank0", stringify!($field));
            let whole = fs::read(&file).unwrap();
            for cut in (0..whole.len()).rev() {
                cut_at(&file, cut);
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
        for cut in (0..whole.len() - 1).rev() {
            cut_at(&file, cut);
            let recording = Recording::open(root.path()).unwrap();
            assert_eq!(read_back(&recording, |tables| &tables.kernels), written.rows);
            assert!(!recording.losses.is_empty(), "{name} cut at {cut}");
        }
        fs::write(&file, &whole).unwrap();
        assert!(Recording::open(root.path()).unwrap().losses.is_empty());
    }
}

#[test]
fn every_flipped_bit_is_seen() {
    macro_rules! flip_all {
        ($($field:ident: $Columns:ident),*) => {$({
            let root = tempfile::tempdir().unwrap();
            let written = write_one_table::<$Columns>(root.path());
            let name = format!("rank0/{}.arrows", stringify!($field));
            let file = root.path().join(&name);
            let whole = fs::read(&file).unwrap();
            // Not every byte: that takes minutes.
            for at in (name.len() % 7..whole.len()).step_by(7) {
                let mut damaged = whole.clone();
                damaged[at] ^= 1 << (at % 8);
                fs::write(&file, &damaged).unwrap();
                let recording = Recording::open(root.path()).unwrap();
                let said = recording.losses.iter().any(|loss| loss.what.contains(&name));
                assert!(said, "{name}, byte {at}: {:?}", recording.losses);
                // Whatever is read is true, but for readings of clocks, which show steps where some are missing.
                if stringify!($field) != "clocks" {
                    let rows = read_back(&recording, |tables| &tables.$field);
                    let mut expected = written.rows.iter();
                    assert!(rows.iter().all(|row| expected.any(|written| written == row)), "{name}, byte {at}");
                }
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
    let recording = Recording::open(root.path()).unwrap();
    assert_eq!(recording.processes[0].tables.kernels.len(), 8);
    let losses = &recording.losses;
    assert!(losses[0].what.contains("bytes behind the end mark"), "{losses:?}");
    fs::write(&file, b"PK\x03\x04 this is no Arrow message").unwrap();
    let recording = Recording::open(root.path()).unwrap();
    assert!(
        recording.losses.iter().any(|loss| loss.what.contains("damaged")),
        "{:?}",
        recording.losses
    );
}

/// Rewrites a JSON file of the recording.
fn edit(file: &Path, change: impl FnOnce(&mut serde_json::Value)) {
    let mut json: serde_json::Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    json.as_object_mut().unwrap().remove("checksum");
    change(&mut json);
    write_json(file, &json).unwrap();
}

/// Makes the process one of an earlier version, whose tables may be without checksums.
fn allow_plain_tables(root: &Path) {
    edit(&root.join(format!("rank0/{PROCESS_FILE}")), |json| {
        json["version"]["minor"] = 0.into();
        // Random stamps lie outside any life.
        json["started_ns"] = 0.into();
    });
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
    allow_plain_tables(root.path());
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
    allow_plain_tables(root.path());
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
        // A newer minor version is read, and what it adds is ignored.
        edit(&file, |json| {
            json["version"]["minor"] = 7.into();
            json["added later"] = true.into();
        });
        assert_eq!(
            Recording::open(root.path()).unwrap().processes[0]
                .tables
                .kernels
                .len(),
            8
        );
        edit(&file, |json| json["version"]["major"] = 2.into());
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
            .any(|loss| loss.count == Some(8) && loss.what.contains("kernels.arrows is missing"))
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
    edit(&manifest, |json| {
        json["rows"] = serde_json::json!({"rank0": {"kernels": 8}, "rank1": {"kernels": 5, "copies": 2}});
    });
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
    allow_plain_tables(root.path());
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

#[test]
fn rows_from_hours_before_or_after_an_older_process_are_left_out() {
    const SECOND: i64 = 1_000_000_000;
    const STARTED: i64 = 1_790_000_000 * SECOND;
    let root = tempfile::tempdir().unwrap();
    write_one_table::<Copies>(root.path());
    fs::remove_file(table_file(root.path(), "rank0", "copies")).unwrap();
    edit(&root.path().join(format!("rank0/{PROCESS_FILE}")), |json| {
        json["version"]["minor"] = 0.into();
        json["started_ns"] = STARTED.into();
        json["ended_ns"] = (STARTED + 60 * SECOND).into();
        json["rows"] = serde_json::json!({"copies": 4});
    });
    let times = [
        (1, 5),
        (2, 2_300_000_000 * SECOND),
        (-2_000_000_000 * SECOND, 5),
        (50 * SECOND, 7),
    ];
    let starts: Vec<i64> = times.iter().map(|(start, _)| STARTED + start).collect();
    let durations: Vec<i64> = times.iter().map(|(_, duration)| *duration).collect();
    write_stream(
        &table_file(root.path(), "rank0", "copies"),
        vec![
            ("start_ns", Arc::new(Int64Array::from(starts))),
            ("duration_ns", Arc::new(Int64Array::from(durations))),
        ],
    );
    let recording = Recording::open(root.path()).unwrap();
    let copies = &recording.processes[0].tables.copies;
    let kept: Vec<i64> = copies.duration_ns.iter().map(|duration| duration.0).collect();
    assert_eq!(kept, [5, 7]);
    let [loss] = recording.losses.as_slice() else {
        panic!("{:?}", recording.losses);
    };
    assert_eq!((loss.count, loss.affects.as_str()), (Some(2), "copies"));
    assert!(loss.what.contains("rank0/copies.arrows"), "{}", loss.what);
    assert!(
        recording
            .notes
            .iter()
            .any(|note| note.contains("without checksums"))
    );
}

/// A table without names in four batches: where each begins and ends, and how many rows it has.
fn four_batches(root: &Path) -> (Vec<u8>, Vec<(std::ops::Range<usize>, usize)>) {
    let folder = root.join("rank0");
    fs::create_dir(&folder).unwrap();
    let names = Interner::default();
    let mut writer = TableWriter::<Streams>::new(&folder, Identity::default());
    let file = table_file(root, "rank0", "streams");
    let mut batches = Vec::new();
    let mut end = 0;
    for rows in [300usize, 500, 700, 900] {
        for row in 0..rows {
            writer.push(Stream {
                stream: (batches.len() * 1000 + row) as u32,
                ..Stream::default()
            });
        }
        writer.flush(&names).unwrap();
        let bytes = fs::metadata(&file).unwrap().len() as usize;
        batches.push((end..bytes, rows));
        end = bytes;
    }
    writer.close(&names).unwrap();
    finish_recording(root, "rank0", &[("streams", 2400)]);
    (fs::read(&file).unwrap(), batches)
}

/// The batches of which rows were read, by their numbers, and what was lost.
fn read_batches(root: &Path, bytes: &[u8]) -> (Vec<usize>, Vec<(String, Option<u64>)>) {
    fs::write(table_file(root, "rank0", "streams"), bytes).unwrap();
    let recording = Recording::open(root).unwrap();
    let rows = &recording.processes[0].tables.streams.stream;
    let mut batches: Vec<usize> = rows.iter().map(|stream| *stream as usize / 1000).collect();
    batches.dedup();
    let losses = recording.losses.into_iter().map(|loss| (loss.what, loss.count));
    (batches, losses.collect())
}

#[test]
fn behind_a_damaged_batch_the_others_are_read() {
    let root = tempfile::tempdir().unwrap();
    let (whole, batches) = four_batches(root.path());
    assert_eq!(read_batches(root.path(), &whole), (vec![0, 1, 2, 3], vec![]));
    let third = batches[2].0.clone();
    // A hole, as a file system may leave after a power loss; a flip; a batch that is gone; one that is there twice; two that
    // changed places.
    let mut hole = whole.clone();
    hole[third.clone()].fill(0);
    let mut flip = whole.clone();
    flip[third.start + 5] ^= 0x40;
    let mut gone = whole.clone();
    gone.drain(third.clone());
    for (what, bytes) in [("hole", hole), ("flip", flip), ("gone", gone)] {
        let (read, losses) = read_batches(root.path(), &bytes);
        assert_eq!(read, [0, 1, 3], "{what}");
        let [(loss, Some(700))] = losses.as_slice() else {
            panic!("{what}: {losses:?}");
        };
        assert!(
            loss.starts_with("rank0/streams.arrows is damaged"),
            "{what}: {loss}"
        );
    }
    let mut twice = whole.clone();
    let copy = whole[batches[1].0.clone()].to_vec();
    twice.splice(third.end..third.end, copy);
    let (read, losses) = read_batches(root.path(), &twice);
    assert_eq!(read, [0, 1, 2, 3]);
    assert!(
        losses.len() == 1 && losses[0].0.contains("does not belong"),
        "{losses:?}"
    );
    let mut swapped = whole[..batches[1].0.start].to_vec();
    for batch in [&batches[2], &batches[1], &batches[3]] {
        swapped.extend_from_slice(&whole[batch.0.clone()]);
    }
    let (read, losses) = read_batches(root.path(), &swapped);
    assert_eq!(read, [0, 2, 3]);
    assert_eq!(losses[0].1, Some(500), "{losses:?}");
}

#[test]
fn a_closed_file_cut_between_two_batches_is_cut() {
    let root = tempfile::tempdir().unwrap();
    let (whole, batches) = four_batches(root.path());
    let mut bytes = whole[..batches[2].0.end].to_vec();
    for with_end_mark in [false, true] {
        if with_end_mark {
            bytes.extend_from_slice(&[0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]);
        }
        let (read, losses) = read_batches(root.path(), &bytes);
        assert_eq!(read, [0, 1, 2]);
        assert!(losses.iter().any(|(_, count)| *count == Some(900)), "{losses:?}");
    }
}

#[test]
fn a_tail_of_zeros_is_cut_off() {
    let root = tempfile::tempdir().unwrap();
    let (mut bytes, batches) = four_batches(root.path());
    let last = batches[3].0.clone();
    for from in [last.start, last.start + 8, last.start + 600] {
        bytes[from..].fill(0);
        let (read, losses) = read_batches(root.path(), &bytes);
        assert_eq!(read, [0, 1, 2], "{from}");
        assert!(
            losses.iter().any(|(_, count)| *count == Some(900)),
            "{from}: {losses:?}"
        );
    }
    // The header is as it was before it was last written: a rename that was lost.
    edit(&root.path().join(format!("rank0/{PROCESS_FILE}")), |json| {
        json["ended_ns"] = serde_json::Value::Null;
        json["rows"] = serde_json::json!({});
    });
    fs::remove_file(root.path().join(MANIFEST_FILE)).unwrap();
    bytes[last.start..].fill(0);
    let (read, losses) = read_batches(root.path(), &bytes);
    assert_eq!(read, [0, 1, 2]);
    for told in [
        "bytes of a batch that is not whole",
        "ended without closing",
        "manifest.json is missing",
    ] {
        assert!(
            losses.iter().any(|(what, _)| what.contains(told)),
            "{told}: {losses:?}"
        );
    }
}

#[test]
fn files_of_other_processes_are_not_read() {
    let root = tempfile::tempdir().unwrap();
    let mut numbers = Vec::new();
    for rank in 0..2u32 {
        let folder = root.path().join(format!("rank{rank}"));
        let mut writer = ProcessWriter::create(&folder).unwrap();
        for row in 0..5 {
            writer.tables.streams.push(Stream {
                stream: 100 * rank + row,
                ..Stream::default()
            });
            writer.tables.contexts.push(Context::default());
        }
        let rows = writer.close().unwrap();
        finish_recording(root.path(), &format!("rank{rank}"), &rows);
        let path = folder.join(PROCESS_FILE);
        let mut header = read_json::<ProcessHeader>(&path).unwrap().ok().unwrap();
        header.rank = Some(rank);
        writer.sign(&mut header);
        numbers.push(header.process.clone());
        write_json(&path, &header).unwrap();
    }
    assert_ne!(numbers[0], numbers[1]);
    let whole = Recording::open(root.path()).unwrap();
    assert_eq!(whole.losses, []);
    let swap = |name: &str| {
        let path = |rank: u32| root.path().join(format!("rank{rank}")).join(name);
        let aside = root.path().join("aside");
        fs::rename(path(0), &aside).unwrap();
        fs::rename(path(1), path(0)).unwrap();
        fs::rename(&aside, path(1)).unwrap();
    };
    for name in ["streams.arrows", PROCESS_FILE] {
        swap(name);
        let recording = Recording::open(root.path()).unwrap();
        for rank in 0..2 {
            let file = format!("rank{rank}/{name}");
            let said = recording.losses.iter().any(|loss| loss.what.starts_with(&file));
            assert!(said, "{file}: {:?}", recording.losses);
        }
        swap(name);
        assert_eq!(Recording::open(root.path()).unwrap().losses, []);
    }
    // Whole folders.
    swap("");
    let recording = Recording::open(root.path()).unwrap();
    assert_eq!(recording.losses.len(), 2, "{:?}", recording.losses);
}

#[test]
fn a_process_of_another_recording_is_left_out() {
    let root = tempfile::tempdir().unwrap();
    write_one_table::<Streams>(root.path());
    let header = root.path().join(format!("rank0/{PROCESS_FILE}"));
    edit(&header, |json| json["recording"] = "1111".into());
    edit(&root.path().join(MANIFEST_FILE), |json| {
        json["recording"] = "1111".into();
    });
    assert_eq!(Recording::open(root.path()).unwrap().losses, []);
    // A copy of it from another.
    fs::create_dir(root.path().join("rank1")).unwrap();
    for file in [PROCESS_FILE, "streams.arrows"] {
        fs::copy(
            root.path().join("rank0").join(file),
            root.path().join("rank1").join(file),
        )
        .unwrap();
    }
    edit(&root.path().join(format!("rank1/{PROCESS_FILE}")), |json| {
        json["recording"] = "2222".into();
    });
    let recording = Recording::open(root.path()).unwrap();
    assert_eq!(recording.processes.len(), 1);
    assert_eq!((recording.losses.len(), recording.losses[0].count), (1, Some(8)));
    // A merged one knows both.
    edit(&root.path().join(MANIFEST_FILE), |json| {
        json["merged"] = serde_json::json!(["2222"]);
    });
    assert_eq!(Recording::open(root.path()).unwrap().processes.len(), 2);
    // And the manifest of another.
    edit(&root.path().join(MANIFEST_FILE), |json| {
        json["merged"] = serde_json::json!([]);
        json["recording"] = "3333".into();
    });
    let recording = Recording::open(root.path()).unwrap();
    assert_eq!(
        (recording.processes.len(), recording.manifest.state.as_str()),
        (2, "rebuilt")
    );
    assert!(
        recording.losses[0]
            .what
            .contains("manifest.json is of another recording")
    );
}
