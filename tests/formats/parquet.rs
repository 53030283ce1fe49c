//! Recordings as Parquet: what DuckDB and Arrow, from PyPI, count in them, and the same analysis of what is read back.
//!
//! Skipped, loudly, where pip can't fetch them; never under CI=true.

use crate::common;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use common::{expect_status, fresh_folder, gputrace, one_line, record_workload, stderr};
use gputrace_trace::tables::{Kernel, TABLE_NAMES};
use gputrace_trace::{DurationNs, Process, Recording, Table, TimeNs};
use serde_json::Value;

/// What both say of a folder; `None` where they can't be had, see [`common::consumers::fetched`].
fn consumers(folder: &Path) -> Option<Value> {
    let python = common::consumers::python("arrow")?;
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/consumers/parquet_counts.py");
    let document = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/parquet.md");
    let output = Command::new(python)
        .arg(script)
        .arg(folder)
        .arg(document)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find_map(|line| line.strip_prefix("RESULT "));
    let Some(line) = line else {
        panic!("{text}{}", String::from_utf8_lossy(&output.stderr))
    };
    Some(serde_json::from_str(line).unwrap())
}

fn export(recording: &Path, folder: &Path) -> Command {
    let mut command = gputrace();
    command
        .arg("export")
        .arg(recording)
        .args(["--format", "parquet", "-o"])
        .arg(folder);
    command
}

/// An analysis, but for where the recording is.
fn analysis_without_source(folder: &Path) -> Value {
    let mut analysis = common::analysis(folder);
    analysis.as_object_mut().unwrap().remove("source");
    analysis
}

/// Sums of durations by table, and nulls by table and column, of all processes.
#[derive(Default)]
struct Sums {
    rows: BTreeMap<&'static str, BTreeMap<String, u64>>,
    durations: BTreeMap<&'static str, i64>,
    nulls: BTreeMap<&'static str, BTreeMap<String, u64>>,
}

impl Sums {
    fn add(&mut self, process: &Process) {
        struct Visit<'a>(&'a mut Sums, &'a Process);
        impl gputrace_trace::table::TableVisitor for Visit<'_> {
            fn table<T: Table>(&mut self, table: &T) {
                let Self(sums, process) = self;
                if !table.is_empty() {
                    let rows = sums.rows.entry(T::NAME).or_default();
                    rows.insert(process.folder.clone(), table.len() as u64);
                }
                let nulls = sums.nulls.entry(T::NAME).or_default();
                for (field, column) in T::schema().fields().iter().zip(table.columns()) {
                    macro_rules! nulls_of {
                        ($($kind:ty)*) => { 0 $( + column.downcast_ref::<Vec<Option<$kind>>>()
                            .map_or(0, |column| column.iter().filter(|value| value.is_none()).count()) )* };
                    }
                    let count =
                        nulls_of!(u8 u16 u32 u64 i32 i64 f64 TimeNs DurationNs gputrace_trace::NameId) as u64;
                    let name = if field.name() == "rank" {
                        "communicator_rank"
                    } else {
                        field.name()
                    };
                    *nulls.entry(name.to_owned()).or_default() += count;
                    if field.name() == "duration_ns" {
                        let sum = sums.durations.entry(T::NAME).or_default();
                        if let Some(column) = column.downcast_ref::<Vec<DurationNs>>() {
                            *sum += column.iter().map(|duration| duration.0).sum::<i64>();
                        }
                        if let Some(column) = column.downcast_ref::<Vec<Option<DurationNs>>>() {
                            *sum += column.iter().flatten().map(|duration| duration.0).sum::<i64>();
                        }
                    }
                }
            }
        }
        process.tables.visit(&mut Visit(self, process));
    }
}

/// Holds what the consumers say of a folder against the recording that it was made of.
#[track_caller]
fn assert_counts(said: &Value, recording: &Recording) {
    let mut sums = Sums::default();
    let all: Vec<&Process> = recording.processes.iter().chain(&recording.hosts).collect();
    for process in &all {
        sums.add(process);
    }
    for table in TABLE_NAMES {
        let said = &said["tables"][table];
        let none = BTreeMap::new();
        let rows = sums.rows.get(table).unwrap_or(&none);
        let total: u64 = rows.values().sum();
        assert_eq!(
            (&said["rows"], &said["arrow_rows"]),
            (&total.into(), &total.into()),
            "{table}"
        );
        for process in &all {
            let by_process = &said["duckdb"][&process.folder];
            match rows.get(&process.folder) {
                Some(count) => {
                    assert_eq!(by_process[1], *count, "{table} of {}", process.folder);
                    assert_eq!(by_process[0], serde_json::json!(process.header.rank), "{table}");
                }
                None => assert!(by_process.is_null(), "{table} of {}", process.folder),
            }
        }
        if let Some(&duration) = sums.durations.get(table)
            && total > 0
        {
            let by_duckdb = said["duckdb"].as_object().unwrap().values();
            let by_duckdb: i64 = by_duckdb.filter_map(|row| row[2].as_i64()).sum();
            assert_eq!(by_duckdb, duration, "{table}");
            assert_eq!(
                said["arrow_duration_ns"].as_i64().unwrap_or(0),
                duration,
                "{table}"
            );
        }
        for (column, nulls) in &sums.nulls[table] {
            assert_eq!(said["arrow_nulls"][column], *nulls, "{table}.{column}");
            // Of no rows DuckDB counts none.
            assert_eq!(said["duckdb_nulls"][column], *nulls, "{table}.{column}");
        }
        for (name, file) in said["files"].as_object().unwrap() {
            let simulated = recording.is_simulated().to_string();
            assert_eq!(
                file["metadata"]["gputrace.simulated"], simulated,
                "{table}/{name}"
            );
            assert_eq!(file["metadata"]["gputrace.table"], *table, "{table}/{name}");
            let time = &file["time"];
            if let Some(time) = time.as_object() {
                assert_eq!(time["is_sorted"], true, "{table}/{name}");
                assert_eq!(
                    (&time["least"], &time["greatest"]),
                    (&time["first"], &time["last"]),
                    "{table}/{name}"
                );
                let declared = time["declared"].as_array().unwrap();
                assert!(
                    declared.iter().all(|declared| *declared == true),
                    "{table}/{name}"
                );
            }
        }
    }
}

#[test]
fn duckdb_and_arrow_count_what_was_recorded() {
    let (_keep, place) = fresh_folder("run");
    let truth = place.with_file_name("truth");
    let options = ["ddp", "--ranks", "2", "--steps", "4"];
    expect_status(
        &mut record_workload(&place, &truth, &[("SCALE", "20")], options),
        0,
    );
    let (first, second) = (place.with_file_name("first"), place.with_file_name("second"));
    let output = expect_status(&mut export(&place, &first), 0);
    let recording = Recording::open(&place).unwrap();
    assert!(
        stderr(&output).contains("(simulated GPUs)"),
        "{}",
        stderr(&output)
    );

    // The same analysis, to the nanosecond; and of what was read back the same files.
    let analysis = analysis_without_source(&place);
    assert_eq!(analysis_without_source(&first), analysis);
    expect_status(&mut export(&first, &second), 0);
    let same = Command::new("diff")
        .args(["-r", "-q"])
        .arg(&first)
        .arg(&second)
        .output()
        .unwrap();
    assert!(same.status.success(), "{}", String::from_utf8_lossy(&same.stdout));

    // Some of the ranks: a recording like any other.
    let one = place.with_file_name("one");
    expect_status(export(&place, &one).args(["--ranks", "1"]), 0);
    assert_eq!(common::analysis(&one)["ranks"].as_array().unwrap().len(), 1);

    let Some(said) = consumers(&first) else { return };
    assert_counts(&said, &recording);
    // What the analysis adds, against the analysis itself.
    let derived = |table: &str| &said["tables"][format!("derived/{table}")];
    let collectives = analysis["collectives"].as_array().unwrap();
    assert!(!collectives.is_empty());
    assert_eq!(derived("collectives")["rows"], collectives.len());
    let parts: usize = collectives
        .iter()
        .map(|collective| collective["ranks"].as_array().unwrap().len())
        .sum();
    assert_eq!(derived("parts")["rows"], parts);
    let ranks = analysis["ranks"].as_array().unwrap();
    let steps: usize = ranks
        .iter()
        .map(|rank| rank["steps"].as_array().unwrap().len())
        .sum();
    assert_eq!(
        (derived("steps")["rows"].as_u64(), steps > 0),
        (Some(steps as u64), true)
    );
    let idle: i64 = ranks.iter().map(|rank| rank["idle_ns"].as_i64().unwrap()).sum();
    assert_eq!(derived("gaps")["arrow_duration_ns"], idle);
    assert_eq!(said["tables"]["kernels"]["arrow_nulls"]["communicates"], 0);
    let questions = said["questions"].as_array().unwrap();
    assert!(
        questions.len() >= 4 && questions.iter().all(|rows| rows.as_u64() > Some(0)),
        "{questions:?}"
    );
}

#[test]
fn readers_skip_what_they_are_not_asked_for() {
    const KERNELS: i64 = 400_000;
    let (_keep, folder) = fresh_folder("many");
    let mut recording = Recording::default();
    let mut process = Process {
        folder: "one".to_owned(),
        ..Process::default()
    };
    let name = recording.names.intern("k");
    // Latest first: the files are sorted all the same.
    for place in (0..KERNELS).rev() {
        process.tables.kernels.push(Kernel {
            start_ns: TimeNs(1_790_000_000_000_000_000 + place * 1000),
            duration_ns: DurationNs(900),
            name,
            ..Kernel::default()
        });
    }
    recording.processes.push(process);
    gputrace_interchange::export::files::write_folder(&folder, |files| {
        gputrace_interchange::export::parquet::export_parquet(
            &recording,
            &gputrace_trace::Derived::default(),
            files,
        )
    })
    .unwrap();
    // 400,000 rows are 10 MB as numbers of times alone.
    let bytes = fs::metadata(folder.join("kernels/one.parquet")).unwrap().len();
    assert!(bytes < 1 << 20, "{bytes} bytes");
    let Some(said) = consumers(&folder) else { return };
    assert_counts(&said, &recording);
    assert_eq!(
        said["pruned"],
        serde_json::json!([1, 4]),
        "row groups that DuckDB read"
    );
}

#[test]
fn a_folder_in_the_way_and_standard_output_are_refused() {
    let (_keep, place) = fresh_folder("run");
    let truth = place.with_file_name("truth");
    let options = ["ddp", "--ranks", "1", "--steps", "1"];
    expect_status(
        &mut record_workload(&place, &truth, &[("SCALE", "20")], options),
        0,
    );
    let folder = place.with_file_name("out");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("mine"), "x").unwrap();
    let line = one_line(&expect_status(&mut export(&place, &folder), 2));
    assert!(line.contains("exists already"), "{line}");
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
    // What no export wrote stays, and is named.
    let line = one_line(&expect_status(export(&place, &folder).arg("--force"), 2));
    assert!(line.contains("no mark of an export"), "{line}");
    fs::remove_file(folder.join("mine")).unwrap();
    expect_status(export(&place, &folder).arg("--force"), 0);
    fs::write(folder.join("kernels/mine"), "x").unwrap();
    let line = one_line(&expect_status(export(&place, &folder).arg("--force"), 2));
    assert!(line.contains("it holds kernels/mine"), "{line}");
    fs::remove_file(folder.join("kernels/mine")).unwrap();
    expect_status(export(&place, &folder).arg("--force"), 0);
    let line = one_line(&expect_status(&mut export(&place, Path::new("-")), 2));
    assert!(line.contains("several files"), "{line}");
    // What is left of it when files go is still analysed, and says so.
    fs::remove_dir_all(folder.join("kernels")).unwrap();
    let losses = &common::analysis(&folder)["losses"];
    assert!(losses.to_string().contains("kernels is missing"), "{losses}");
}
