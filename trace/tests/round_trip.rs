//! What is written is what is read: every table, any values, over several batches.

use crate::support;

use gputrace_trace::columns::ColumnFile;
use gputrace_trace::follow::{Follower, Progress};
use gputrace_trace::tables::*;
use gputrace_trace::writer::ProcessWriter;
use gputrace_trace::{Interner, Recording, Table, TimeNs};
use proptest::prelude::*;
use support::{Random, finish_recording, random_rows, rendered};

/// Writes random batches of the given sizes into all tables, and compares what a reader gets.
fn round_trip(seed: u64, batches: &[usize]) {
    let root = tempfile::tempdir().unwrap();
    let mut random = Random(seed);
    let mut writer = ProcessWriter::create(&root.path().join("rank0")).unwrap();
    let mut tried = 0;
    macro_rules! write_all {
        ($($field:ident: $Columns:ident),*) => {
            $( let mut $field = $Columns::default(); tried += 1; )*
            for (number, &rows) in batches.iter().enumerate() {
                // The vocabulary grows from batch to batch, and so do the dictionaries in the file.
                let vocabulary = 3 + 5 * number as u64;
                $(
                    let fresh: $Columns = random_rows(rows, vocabulary, &mut random, &mut writer.names);
                    for row in 0..fresh.len() {
                        writer.tables.$field.push(fresh.row(row));
                        $field.push(fresh.row(row));
                    }
                )*
                writer.flush(0).unwrap();
            }
            $( let $field = rendered(&$field, &writer.names); )*
            let rows = writer.close().unwrap();
            finish_recording(root.path(), "rank0", &rows);
            // Random clocks are set all the time, which reading them would undo: stamps as they were written are had without.
            let others: Vec<&str> = TABLE_NAMES.iter().copied().filter(|table| *table != "clocks").collect();
            let recording = Recording::open_tables(root.path(), &others).unwrap();
            let tables = &recording.processes[0].tables;
            $( if stringify!($field) != "clocks" {
                assert_eq!(rendered(&tables.$field, &recording.names), $field, stringify!($field));
            } )*
            $(
                let schema = $Columns::schema();
                let columns: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
                let file = root.path().join("rank0").join(concat!(stringify!($field), ".arrows"));
                let mut names = Interner::default();
                let file = ColumnFile::<$Columns>::open(&file, &columns, &mut names).unwrap();
                let mut read = $Columns::default();
                file.each(|first, batch| {
                    assert_eq!(first, read.len());
                    read.append(batch.clone(), false);
                })
                .unwrap();
                assert_eq!((read.len(), rendered(&read, &names)), (file.rows(), $field), stringify!($field));
            )*
            let snapshots = Recording::open(root.path()).unwrap().processes[0].tables.clocks.len();
            assert_eq!(snapshots, batches.iter().sum::<usize>());
            // The loss rows that were written are told; nothing else was lost.
            assert!(recording.losses.iter().all(|loss| loss.what.starts_with("rank0: ")
                && !loss.what.contains("could be read")), "{:?}", recording.losses);
        };
    }
    for_each_table!(write_all);
    assert_eq!(tried, TABLE_NAMES.len(), "a table is not tested");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn every_table_round_trips(seed: u64, batches in prop::collection::vec(0usize..60, 0..5)) {
        round_trip(seed, &batches);
    }
}

#[test]
fn batches_larger_than_a_full_one_round_trip() {
    round_trip(7, &[20_000, 1]);
}

#[test]
fn a_follower_sees_everything_while_it_is_written() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().to_owned();
    let mut follower = Follower::new(&path, TABLE_NAMES);
    let mut progress = Progress::new(&path);
    let writing = std::thread::spawn({
        let path = path.clone();
        move || {
            let mut random = Random(11);
            let mut writer = ProcessWriter::create(&path.join("rank0")).unwrap();
            for round in 0..60u64 {
                let kernels: Kernels = random_rows(200, 3 + round, &mut random, &mut writer.names);
                (0..200).for_each(|row| writer.tables.kernels.push(kernels.row(row)));
                if round % 3 == 0 {
                    let markers: Markers = random_rows(20, 3 + round, &mut random, &mut writer.names);
                    (0..20).for_each(|row| writer.tables.markers.push(markers.row(row)));
                }
                writer.flush(0).unwrap();
                std::thread::sleep(std::time::Duration::from_millis(2));
            }
            let rows = writer.close().unwrap();
            finish_recording(&path, "rank0", &rows);
        }
    });
    let mut seen = Tables::default();
    let (mut looks_with_news, mut last_count) = (0, 0);
    loop {
        let finished = writing.is_finished();
        let growths = follower.read().unwrap();
        looks_with_news += usize::from(!growths.is_empty());
        for growth in growths {
            assert_eq!(growth.folder, "rank0");
            assert_eq!(growth.damaged, Vec::<String>::new());
            for row in 0..growth.tables.kernels.len() {
                seen.kernels.push(growth.tables.kernels.row(row));
            }
            for row in 0..growth.tables.markers.len() {
                seen.markers.push(growth.tables.markers.row(row));
            }
        }
        let count = progress.read().unwrap().events;
        assert!(count >= last_count, "rows are never taken back");
        last_count = count;
        if finished {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    writing.join().unwrap();
    assert!(looks_with_news > 3, "only {looks_with_news} looks while it grew");
    let recording = Recording::open(&path).unwrap();
    let tables = &recording.processes[0].tables;
    assert_eq!((tables.kernels.len(), tables.markers.len()), (12_000, 400));
    assert_eq!(last_count, 12_400);
    assert_eq!(
        rendered(&seen.kernels, &follower.names),
        rendered(&tables.kernels, &recording.names)
    );
    assert_eq!(
        rendered(&seen.markers, &follower.names),
        rendered(&tables.markers, &recording.names)
    );
    assert!(recording.losses.is_empty(), "{:?}", recording.losses);
}

#[test]
fn losses_that_the_process_counted_are_summed() {
    let root = tempfile::tempdir().unwrap();
    let mut writer = ProcessWriter::create(&root.path().join("rank0")).unwrap();
    let (what, affects) = (
        writer.names.intern("CUPTI records"),
        writer.names.intern("kernels"),
    );
    for count in [2, 3] {
        writer.tables.losses.push(LossRow {
            time_ns: TimeNs(1),
            what,
            count,
            affects,
        });
        writer.flush(0).unwrap();
    }
    let rows = writer.close().unwrap();
    finish_recording(root.path(), "rank0", &rows);
    let recording = Recording::open(root.path()).unwrap();
    let [loss] = recording.losses.as_slice() else {
        panic!("{:?}", recording.losses)
    };
    assert_eq!(
        (loss.what.as_str(), loss.count, loss.affects.as_str()),
        ("rank0: CUPTI records", Some(5), "kernels")
    );
}
