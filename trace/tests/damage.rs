//! Recordings that are cut or damaged, or of which parts are gone: what is left is read, what is missing is said, nothing panics.

use crate::support;

use std::fs;
use std::path::Path;
use std::sync::Arc;

use arrow_array::{NullArray, RecordBatch};
use arrow_ipc::writer::StreamWriter;
use gputrace_trace::manifest::{MANIFEST_FILE, PROCESS_FILE};
use gputrace_trace::seal::Identity;
use gputrace_trace::tables::*;
use gputrace_trace::writer::{AnyTableWriter, OwnFiles, ProcessWriter, TableWriter};
use gputrace_trace::{Interner, Recording, Table};
use support::one_table::{allow_plain_tables, edit, read_back, write_one_table};
use support::{Random, finish_recording, random_rows, table_file};

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

/// A table without names in four batches: where each begins and ends, and how many rows it has.
fn four_batches(root: &Path) -> (Vec<u8>, Vec<(std::ops::Range<usize>, usize)>) {
    let folder = root.join("rank0");
    fs::create_dir(&folder).unwrap();
    let names = Interner::default();
    let mut writer = TableWriter::<Streams>::new(&OwnFiles::shared(), &folder, Identity::default());
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
