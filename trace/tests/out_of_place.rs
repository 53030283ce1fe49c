//! Files that are whole and not what they should be: of newer and older versions, or of another table, process or recording.

use crate::support;

use std::fs;
use std::sync::Arc;

use arrow_array::{Float64Array, Int64Array};
use gputrace_trace::json_file::{read_json, write_json};
use gputrace_trace::manifest::{MANIFEST_FILE, PROCESS_FILE, ProcessHeader};
use gputrace_trace::tables::*;
use gputrace_trace::writer::ProcessWriter;
use gputrace_trace::{Recording, Table};
use support::one_table::{allow_plain_tables, edit, write_one_table, write_stream};
use support::{finish_recording, table_file};

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
