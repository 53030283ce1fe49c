//! Recordings as Parquet and back: whatever is in them, and whatever happens to the files in between.

use crate::support;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use gputrace_interchange::export::files::write_folder;
use gputrace_interchange::export::parquet::export_parquet;
use gputrace_interchange::import::{self, Progress};
use gputrace_trace::column::Column;
use gputrace_trace::derived::Derived;
use gputrace_trace::manifest::ProcessHeader;
use gputrace_trace::tables::{TABLE_NAMES, Tables};
use gputrace_trace::{DurationNs, Interner, Loss, NameId, Process, Recording, TimeNs};
use proptest::prelude::*;
use support::two_ranks;

fn export(recording: &Recording, folder: &Path) {
    let summary = write_folder(folder, |files| {
        export_parquet(recording, &Derived::default(), files)
    })
    .unwrap();
    assert_eq!(summary.events_in, summary.events_out);
    let rows =
        |process: &Process| -> usize { process.tables.row_counts().iter().map(|(_, rows)| rows).sum() };
    let all: usize = recording.processes.iter().chain(&recording.hosts).map(rows).sum();
    assert_eq!(summary.events_in, all as u64);
}

fn open(folder: &Path) -> Result<Recording, String> {
    import::open(&[folder.to_owned()], &Progress::default()).map_err(|error| error.to_string())
}

/// The tables of `process`, with the names' numbers of another recording.
fn tables_with_numbers_of(process: &Process, names: &Interner, other: &Interner) -> Tables {
    let numbers: Vec<NameId> = (0..names.len())
        .map(|number| {
            let text = names.get(NameId::new(u32::try_from(number).unwrap()));
            other.find(text).unwrap_or_else(|| panic!("{text:?} is new"))
        })
        .collect();
    let mut tables = process.tables.clone();
    tables.renumber(&numbers);
    tables
}

#[track_caller]
fn assert_same(read: &Recording, written: &Recording) {
    assert_eq!(read.manifest, written.manifest);
    assert_eq!(read.losses, written.losses);
    assert_eq!(read.notes, written.notes);
    assert_eq!(read.unaligned, written.unaligned);
    assert_eq!(
        (read.processes.len(), read.hosts.len()),
        (written.processes.len(), written.hosts.len())
    );
    let all = |recording: &Recording| -> Vec<Process> {
        let both = recording.processes.iter().chain(&recording.hosts);
        both.cloned().collect()
    };
    for (read_process, process) in all(read).iter().zip(all(written)) {
        assert_eq!(read_process.folder, process.folder);
        assert_eq!(read_process.header, process.header);
        let tables = tables_with_numbers_of(read_process, &read.names, &written.names);
        assert_eq!(tables.row_counts(), process.tables.row_counts());
        // What is no number equals nothing, and has a text.
        let are_same = tables == process.tables || format!("{tables:?}") == format!("{:?}", process.tables);
        assert!(are_same, "{}", process.folder);
    }
}

/// Every file of a folder, with its bytes.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(inside) = folders.pop() {
        for entry in fs::read_dir(inside).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let bytes = fs::read(&path).unwrap();
                found.insert(path.strip_prefix(folder).unwrap().to_owned(), bytes);
            }
        }
    }
    found
}

#[test]
fn two_ranks_come_back_as_they_were() {
    let place = tempfile::tempdir().unwrap();
    let (first, second) = (place.path().join("a"), place.path().join("b"));
    let recording = two_ranks();
    export(&recording, &first);
    let read = open(&first).unwrap();
    assert_same(&read, &recording);
    // Of what was read the same bytes are made: nothing is lost on the way, and nothing is by chance.
    export(&read, &second);
    let (first, second) = (files(&first), files(&second));
    let names = |files: &BTreeMap<PathBuf, Vec<u8>>| -> Vec<PathBuf> { files.keys().cloned().collect() };
    assert_eq!(names(&first), names(&second));
    for (path, bytes) in &first {
        assert!(second[path] == *bytes, "{}", path.display());
    }
    for table in TABLE_NAMES {
        let of = |path: &&PathBuf| path.starts_with(table);
        assert!(first.keys().any(|path| of(&path)), "{table} has no file");
    }
}

/// Numbers that look random and are the same each time.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let mixed = (self.0 ^ (self.0 >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        mixed ^ (mixed >> 33)
    }

    /// Small and huge ones, and the ends of the range.
    fn any(&mut self) -> u64 {
        match self.next() % 5 {
            0 => 0,
            1 => u64::MAX,
            2 => self.next() % 100,
            3 => 1 << 63,
            _ => self.next(),
        }
    }
}

/// Fills a column of any type.
fn fill(column: &mut dyn Column, rows: usize, numbers: &mut Numbers, names: &[NameId]) {
    macro_rules! kinds {
        ($($kind:ty: $make:expr;)*) => {$(
            let make: fn(u64, &[NameId]) -> $kind = $make;
            if let Some(column) = column.downcast_mut::<Vec<$kind>>() {
                column.extend((0..rows).map(|_| make(numbers.any(), names)));
                return;
            }
            if let Some(column) = column.downcast_mut::<Vec<Option<$kind>>>() {
                column.extend((0..rows).map(|_| (numbers.next() % 3 > 0).then(|| make(numbers.any(), names))));
                return;
            }
        )*};
    }
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_precision_loss
    )]
    {
        kinds! {
            u8: |n, _| n as u8;
            u16: |n, _| n as u16;
            u32: |n, _| n as u32;
            u64: |n, _| n;
            i32: |n, _| n as i32;
            i64: |n, _| n as i64;
            f64: |n, _| n as i64 as f64 / 3.0;
            TimeNs: |n, _| TimeNs(n as i64);
            DurationNs: |n, _| DurationNs(n as i64);
            NameId: |n, names| names[(n % names.len() as u64) as usize];
        }
    }
    panic!("a column of a kind that this test does not know");
}

fn anything(seed: u64, rows: usize, processes: usize) -> Recording {
    let mut numbers = Numbers(seed);
    let mut recording = two_ranks();
    recording.processes.clear();
    let long = "template<".repeat(10_000);
    let names: Vec<NameId> = ["", "\u{1f600}", "a\n\"b\"\0\u{7}", "_ZN1a1bEv", "rank", &long]
        .iter()
        .map(|name| recording.names.intern(name))
        .collect();
    for place in 0..processes {
        let mut tables = Tables::default();
        let mut each = 0;
        tables.each_columns(&mut |_, _, columns| {
            // Every third table has no rows.
            each += 1;
            let rows = if (each + place).is_multiple_of(3) { 0 } else { rows };
            for column in columns {
                fill(column, rows, &mut numbers, &names);
            }
        });
        let mut header = ProcessHeader::new();
        header.rank = (place % 2 == 0).then_some(u32::try_from(place).unwrap());
        header
            .environment
            .insert("NCCL_X".to_owned(), "\u{1f600}=\"\n".to_owned());
        let folder = if place == 0 {
            "../x/a b".to_owned()
        } else {
            format!("p{place}")
        };
        let process = Process {
            folder,
            header,
            tables,
        };
        if place == 2 {
            recording.hosts.push(process);
        } else {
            recording.processes.push(process);
        }
    }
    recording.unaligned = seed.is_multiple_of(2).then(|| "no zero".to_owned());
    recording.notes.push("one\ntwo".to_owned());
    recording
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn whatever_is_in_a_recording_comes_back(seed: u64, rows in 0usize..40, processes in 1usize..5) {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("a");
        let recording = anything(seed, rows, processes);
        export(&recording, &folder);
        assert_same(&open(&folder).unwrap(), &recording);
    }
}

#[test]
fn rows_of_many_groups_come_back_in_their_order() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("a");
    let mut recording = anything(7, 0, 1);
    let names = [1, 2, 3].map(NameId::new);
    recording.processes[0]
        .tables
        .each_columns(&mut |table, _, columns| {
            let mut numbers = Numbers(3);
            for column in columns {
                if table == "kernels" {
                    fill(column, 300_000, &mut numbers, &names);
                }
            }
        });
    export(&recording, &folder);
    assert_same(&open(&folder).unwrap(), &recording);
}

/// What was lost of an export of [`two_ranks`] after `change`.
#[track_caller]
fn losses_after(change: impl FnOnce(&Path)) -> (Recording, Vec<Loss>) {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("a");
    let recording = two_ranks();
    export(&recording, &folder);
    change(&folder);
    let read = open(&folder).unwrap();
    let losses = read.losses.iter().filter(|loss| !recording.losses.contains(loss));
    let losses = losses.cloned().collect();
    (read, losses)
}

#[test]
fn a_file_that_is_gone_is_said() {
    let (read, losses) =
        losses_after(|folder| fs::remove_file(folder.join("kernels/rank1.parquet")).unwrap());
    assert_eq!(losses.len(), 1, "{losses:?}");
    assert!(losses[0].what.ends_with(": kernels is missing"), "{losses:?}");
    assert_eq!(
        (losses[0].count, losses[0].affects.as_str()),
        (Some(4), "kernels")
    );
    assert_eq!(read.processes[0].tables.kernels.start_ns.len(), 4);
    assert_eq!(read.processes[1].tables.kernels.start_ns.len(), 0);
    // A whole table.
    let (_, losses) = losses_after(|folder| fs::remove_dir_all(folder.join("kernels")).unwrap());
    assert_eq!(losses.len(), 2, "{losses:?}");
}

#[test]
fn a_file_that_is_cut_or_damaged_is_said() {
    for bytes in [0, 3, 100, 2000] {
        let (read, losses) = losses_after(|folder| {
            let file = fs::File::options()
                .write(true)
                .open(folder.join("kernels/rank0.parquet"))
                .unwrap();
            file.set_len(bytes).unwrap();
        });
        assert_eq!(losses.len(), 1, "{bytes}: {losses:?}");
        assert!(losses[0].what.contains(": kernels is damaged ("), "{losses:?}");
        assert_eq!(losses[0].count, Some(4));
        assert_eq!(read.processes[0].tables.kernels.start_ns.len(), 0);
    }
}

#[test]
fn a_file_with_a_bit_changed_is_read_or_said_to_be_damaged() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("a");
    export(&two_ranks(), &folder);
    // Of other tables only what is needed to see that they do not suffer.
    for table in TABLE_NAMES {
        if !["kernels", "copies"].contains(table) {
            fs::remove_dir_all(folder.join(table)).unwrap();
        }
    }
    let path = folder.join("kernels/rank0.parquet");
    let whole = fs::read(&path).unwrap();
    let step = whole.len() / 400;
    for (index, bit) in (0..whole.len()).step_by(step).zip((0..8).cycle()) {
        let mut bytes = whole.clone();
        bytes[index] ^= 1 << bit;
        fs::write(&path, bytes).unwrap();
        let read = open(&folder).unwrap();
        assert!(read.processes[0].tables.kernels.start_ns.len() <= 4);
        assert_eq!(read.processes[1].tables.kernels.start_ns.len(), 4);
        assert_eq!(read.processes[0].tables.copies.start_ns.len(), 1);
    }
}

#[test]
fn files_that_changed_places_are_not_taken_for_each_other() {
    let (_, losses) = losses_after(|folder| {
        fs::copy(
            folder.join("copies/rank0.parquet"),
            folder.join("kernels/rank0.parquet"),
        )
        .unwrap();
    });
    assert_eq!(losses.len(), 1);
    assert!(
        losses[0].what.ends_with(": kernels is another table: copies"),
        "{losses:?}"
    );
}

#[test]
fn without_its_facts_a_folder_still_has_its_ranks() {
    let (read, losses) = losses_after(|folder| fs::remove_file(folder.join("recording.json")).unwrap());
    assert_eq!(losses.len(), 1, "{losses:?}");
    assert_eq!(losses[0].what, "recording.json is missing");
    let ranks: Vec<Option<u32>> = read.processes.iter().map(|process| process.header.rank).collect();
    assert_eq!(ranks, [Some(0), Some(1)]);
    assert!(read.is_simulated());
    let (read, losses) =
        losses_after(|folder| fs::write(folder.join("recording.json"), "{\"format\":").unwrap());
    assert!(
        losses[0].what.starts_with("recording.json is damaged ("),
        "{losses:?}"
    );
    assert_eq!(read.processes[1].tables.kernels.start_ns.len(), 4);
}

#[test]
fn a_newer_version_is_refused_in_one_line() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("a");
    export(&two_ranks(), &folder);
    let facts = fs::read_to_string(folder.join("recording.json")).unwrap();
    fs::write(
        folder.join("recording.json"),
        facts.replacen("\"major\": 1", "\"major\": 2", 1),
    )
    .unwrap();
    let error = open(&folder).unwrap_err();
    assert!(
        error.contains("format 2.0 is newer than this gputrace reads (1.x): update gputrace"),
        "{error}"
    );
    assert_eq!(error.lines().count(), 1);
}

#[test]
fn parts_of_a_folder_are_not_opened_alone() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("a");
    export(&two_ranks(), &folder);
    for part in [
        "kernels/rank0.parquet",
        "kernels",
        "recording.json",
        "derived/devices/all.parquet",
        "derived",
    ] {
        let error = open(&folder.join(part)).unwrap_err();
        assert!(
            error.contains("a part of a Parquet export: give its folder"),
            "{error}"
        );
        assert!(error.ends_with(&folder.display().to_string()), "{error}");
    }
    let alone = place.path().join("x.parquet");
    fs::copy(folder.join("kernels/rank0.parquet"), &alone).unwrap();
    let error = open(&alone).unwrap_err();
    assert!(error.contains("a Parquet file alone"), "{error}");
    // Beside others in a folder it is found.
    fs::remove_file(alone).unwrap();
    assert_eq!(open(place.path()).unwrap().processes.len(), 2);
}
