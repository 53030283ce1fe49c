//! A disk that refuses: rows wait, what finds no room is counted, and the file stays readable throughout.
//!
//! The limit on file sizes stands for the disk, in a child process of its own, since limits are the process's.

use crate::support;

use std::path::PathBuf;
use std::process::Command;

use gputrace_trace::tables::Kernels;
use gputrace_trace::writer::{BATCH_ROWS, ProcessWriter, WAITING_ROWS};
use gputrace_trace::{Recording, Table};
use support::{Random, finish_recording, random_rows};

const FOLDER: &str = "GPUTRACE_TEST_FULL_DISK";

fn limit_file_size(bytes: libc::rlim_t) {
    let limit = libc::rlimit {
        rlim_cur: bytes,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: `limit` is a valid rlimit for the call to read.
    let result = unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) };
    assert_eq!(result, 0);
}

/// Runs a test of this file as a child.
fn run(child: &str) {
    let root = tempfile::tempdir().unwrap();
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("full_disk::{child}"), "--nocapture"])
        .env(FOLDER, root.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("the child ran"), "{text}");
}

/// The child's folder. Children run as such alone; without the variable there is nothing for them to do.
fn root_of_child() -> Option<PathBuf> {
    let root = std::env::var_os(FOLDER)?;
    // SAFETY: ignoring a signal installs no code of ours.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    Some(root.into())
}

#[test]
fn rows_wait_for_room_and_the_lost_are_counted() {
    run("child_on_a_full_disk");
}

#[test]
fn a_segment_whose_end_the_disk_refuses_is_followed_by_the_next() {
    run("child_without_room_for_an_end_mark");
}

#[test]
fn child_without_room_for_an_end_mark() {
    let Some(root) = root_of_child() else { return };
    let mut random = Random(2);
    let mut writer = ProcessWriter::create(&root.join("rank0")).unwrap();
    let kernels: Kernels = random_rows(2000, 50, &mut random, &mut writer.names);
    let push = |writer: &mut ProcessWriter, rows: std::ops::Range<usize>| {
        rows.for_each(|row| writer.tables.kernels.push(kernels.row(row)));
    };
    push(&mut writer, 0..1000);
    writer.flush(0).unwrap();
    // Room for what is there, and nothing more.
    let size = std::fs::metadata(root.join("rank0/kernels.arrows"))
        .unwrap()
        .len();
    limit_file_size(size);
    let first = writer.begin_segment(&root.join("rank0.1")).unwrap();
    assert_eq!(first, [("kernels", 1000)]);

    limit_file_size(libc::RLIM_INFINITY);
    push(&mut writer, 1000..2000);
    let second = writer.close().unwrap();
    assert_eq!(second, [("kernels", 1000)]);
    finish_recording(&root, "rank0", &first);
    finish_recording(&root, "rank0.1", &second);
    let recording = Recording::open(&root).unwrap();
    let read = &recording.processes[0].tables.kernels;
    assert_eq!(read.start_ns, kernels.start_ns, "{:?}", recording.losses);
    println!("the child ran");
}

#[test]
fn child_on_a_full_disk() {
    let Some(root) = root_of_child() else { return };
    let mut random = Random(1);
    let mut writer = ProcessWriter::create(&root.join("rank0")).unwrap();
    let kernels: Kernels = random_rows(1000, 50, &mut random, &mut writer.names);
    let mut pushed = 0usize;
    let mut push = |writer: &mut ProcessWriter, rows: usize| {
        for _ in 0..rows {
            writer.tables.kernels.push(kernels.row(pushed % 1000));
            pushed += 1;
        }
    };
    push(&mut writer, BATCH_ROWS);
    writer.flush(0).unwrap();
    let size = std::fs::metadata(root.join("rank0/kernels.arrows"))
        .unwrap()
        .len();

    // Room for half a batch more.
    limit_file_size(size + size / 2);
    push(&mut writer, BATCH_ROWS);
    writer.flush(0).unwrap_err();
    // The reader sees the first batch and a cut tail.
    let recording = Recording::open(&root).unwrap();
    assert_eq!(recording.processes[0].tables.kernels.len(), BATCH_ROWS);
    assert!(
        recording
            .losses
            .iter()
            .any(|loss| loss.what.contains("not whole"))
    );

    // As many wait as may; seven find no room.
    push(&mut writer, WAITING_ROWS + 7);
    writer.flush(0).unwrap_err();
    assert_eq!(writer.take_lost_rows(), [("kernels", 7)]);
    assert_eq!(writer.take_lost_rows(), []);

    // Room again: everything that waited is written, in order.
    limit_file_size(libc::RLIM_INFINITY);
    writer.flush(0).unwrap();
    push(&mut writer, 5);
    let rows = writer.close().unwrap();
    let kept = 2 * BATCH_ROWS + WAITING_ROWS + 5;
    assert_eq!(rows, [("kernels", kept as u64)]);
    finish_recording(&root, "rank0", &rows);
    let recording = Recording::open(&root).unwrap();
    assert!(recording.losses.is_empty(), "{:?}", recording.losses);
    let read = &recording.processes[0].tables.kernels;
    assert_eq!(read.len(), kept);
    let before_the_loss = 2 * BATCH_ROWS + WAITING_ROWS;
    for row in 0..kept {
        let pushed = if row < before_the_loss { row } else { row + 7 };
        assert_eq!(read.start_ns[row], kernels.start_ns[pushed % 1000], "row {row}");
    }
    println!("the child ran");
}
