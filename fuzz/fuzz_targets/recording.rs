//! Our own recordings, with one file of them replaced: the first byte of the input says which, the rest is the file.
//!
//! Opening gives a recording that is sound and whose analysis sums up, or one line that refuses it; and whoever follows the
//! file while it grows gets the same rows as who opens it whole.
#![no_main]

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use gputrace_fuzz::{analyses, recordings, scratch};
use gputrace_trace::follow::{Follower, Progress};
use gputrace_trace::json_file::write_json;
use gputrace_trace::manifest::{Device, MANIFEST_FILE, Manifest, PROCESS_FILE, ProcessHeader};
use gputrace_trace::tables::{ApiCall, Kernel, TABLE_NAMES};
use gputrace_trace::writer::ProcessWriter;
use gputrace_trace::{DurationNs, Recording, TimeNs};
use libfuzzer_sys::fuzz_target;

const PROCESS: &str = "host-1-1";

/// A recording that is whole: one process with a kernel and its launch.
fn write_recording(folder: &Path) -> std::io::Result<()> {
    std::fs::create_dir(folder)?;
    let mut writer = ProcessWriter::create(&folder.join(PROCESS))?;
    let name = writer.names.intern("kernel");
    writer.tables.kernels.push(Kernel {
        start_ns: TimeNs(2000),
        duration_ns: DurationNs(500),
        name,
        correlation: 1,
        ..Kernel::default()
    });
    let name = writer.names.intern("cuLaunchKernel");
    writer.tables.api_calls.push(ApiCall {
        start_ns: TimeNs(1000),
        duration_ns: DurationNs(100),
        name,
        kind: 4,
        correlation: 1,
        ..ApiCall::default()
    });
    let rows = writer.close()?;
    let header = ProcessHeader {
        host: "host".to_owned(),
        pid: 1,
        rank: Some(0),
        ended_ns: Some(3000),
        devices: vec![Device::default()],
        rows: rows
            .into_iter()
            .map(|(table, rows)| (table.to_owned(), rows))
            .collect(),
        ..ProcessHeader::new()
    };
    write_json(&folder.join(PROCESS).join(PROCESS_FILE), &header)?;
    let manifest = Manifest {
        state: "complete".to_owned(),
        device: "cuda".to_owned(),
        ..Manifest::new()
    };
    write_json(&folder.join(MANIFEST_FILE), &manifest)
}

fn recording() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = scratch::folder().join("recording");
        write_recording(&folder).expect("a recording");
        folder
    })
}

/// Opens the recording in one go, checks it and analyses it.
fn open() -> Option<Recording> {
    match Recording::open(recording()) {
        Ok(recording) => {
            recordings::check(&recording);
            analyses::check(&recording);
            Some(recording)
        }
        Err(error) => {
            recordings::check_refusal(&error);
            None
        }
    }
}

/// Follows a table's file that is first there in half and then whole. Returns its rows; `None` where it is damaged.
fn follow(table: &str, path: &Path, bytes: &[u8]) -> Option<usize> {
    let mut follower = Follower::new(recording(), &[table]);
    let mut progress = Progress::new(recording());
    let mut rows = 0;
    let mut whole = true;
    for part in [&bytes[..bytes.len() / 2], bytes] {
        std::fs::write(path, part).expect("the file");
        progress.read().expect("a recording that can be read");
        for growth in follower.read().expect("a recording that can be read") {
            whole &= growth.damaged.is_empty();
            let counts = growth.tables.row_counts();
            rows += counts.iter().map(|(_, rows)| rows).sum::<usize>();
        }
    }
    whole.then_some(rows)
}

fn fuzz(which: u8, bytes: &[u8]) {
    let process = recording().join(PROCESS);
    let which = usize::from(which) % (TABLE_NAMES.len() + 2);
    let (path, table) = match TABLE_NAMES.get(which) {
        Some(table) => (process.join(format!("{table}.arrows")), Some(*table)),
        None if which == TABLE_NAMES.len() => (process.join(PROCESS_FILE), None),
        None => (recording().join(MANIFEST_FILE), None),
    };
    let before = std::fs::read(&path).ok();
    let followed = match table {
        Some(table) => follow(table, &path, bytes),
        None => {
            std::fs::write(&path, bytes).expect("the file");
            None
        }
    };
    let opened = open();
    if let (Some(followed), Some(table), Some(recording)) = (followed, table, opened) {
        let rows: usize = recording
            .processes
            .iter()
            .flat_map(|process| process.tables.row_counts())
            .filter(|(name, _)| *name == table)
            .map(|(_, rows)| rows)
            .sum();
        assert_eq!(followed, rows, "rows of {table} by following and by opening");
    }
    match before {
        Some(before) => std::fs::write(&path, before).expect("the file"),
        None => std::fs::remove_file(&path).expect("the file"),
    }
}

fuzz_target!(|data: &[u8]| {
    if let Some((which, bytes)) = data.split_first() {
        fuzz(*which, bytes);
    }
});
