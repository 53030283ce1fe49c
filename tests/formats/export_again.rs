//! What is exported and analysed again has the same measures, all of them: the Chrome JSON loses nothing that they need.

use crate::common;

use std::path::{Path, PathBuf};

use common::{analysis, expect_status, fresh_folder, gputrace, record_workload, stdout};
use serde_json::Value;

/// Exports `source` to one file of all ranks and analyses both; from the file it is exported again, and must be the same bytes.
fn both(source: &Path) -> (Value, Value) {
    let (_keep, folder) = fresh_folder("exported");
    std::fs::create_dir(&folder).expect("a folder");
    let export = |source: &Path, name: &str| {
        let file = folder.join(name);
        let mut export = gputrace();
        export
            .arg("export")
            .arg(source)
            .args(["--format", "chrome", "-o"])
            .arg(&file);
        expect_status(&mut export, 0);
        file
    };
    let file = export(source, "all ranks.json");
    let bytes = std::fs::read(&file).expect("the export");
    for (source, name) in [(source, "once more.json"), (&file, "again.json")] {
        let other = std::fs::read(export(source, name)).expect("the export");
        assert!(
            other == bytes,
            "{name}: {} and {} bytes",
            other.len(),
            bytes.len()
        );
    }
    // One file a rank says the same.
    let ranks = export(source, "ranks");
    let after = analysis(&file);
    same(&after, &analysis(&ranks), &[]);
    (analysis(source), after)
}

/// What an analysis says of itself: which path it read.
const ABOUT_ITSELF: &[&str] = &["source"];

/// Compares all of two analyses but [`ABOUT_ITSELF`] and the members called as in `but`.
#[track_caller]
fn same(before: &Value, after: &Value, but: &[&str]) {
    fn compare(before: &Value, after: &Value, but: &[&str], at: &str, differences: &mut Vec<String>) {
        match (before, after) {
            (Value::Object(one), Value::Object(other)) => {
                let keys: std::collections::BTreeSet<&String> = one.keys().chain(other.keys()).collect();
                for key in keys.into_iter().filter(|key| !but.contains(&key.as_str())) {
                    let at = format!("{at}.{key}");
                    compare(&before[key], &after[key], but, &at, differences);
                }
            }
            (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
                for (place, (one, other)) in one.iter().zip(other).enumerate() {
                    compare(one, other, but, &format!("{at}[{place}]"), differences);
                }
            }
            _ if before != after => differences.push(format!("{at}: {before} and {after}")),
            _ => {}
        }
    }
    assert!(before["ranks"].as_array().is_some_and(|ranks| !ranks.is_empty()));
    let but: Vec<&str> = ABOUT_ITSELF.iter().chain(but).copied().collect();
    let mut differences = Vec::new();
    compare(before, after, &but, "", &mut differences);
    let first: Vec<String> = differences
        .iter()
        .take(10)
        .map(|text| text.chars().take(300).collect())
        .collect();
    assert!(
        differences.is_empty(),
        "{} differences: {}",
        differences.len(),
        first.join("\n")
    );
}

/// Records a bundled workload and compares what is known of it before and after.
fn of_a_workload(workload: &[&str]) {
    let (keep, folder) = fresh_folder("recording");
    let truth = keep.path().join("truth");
    let command: Vec<&str> = workload.iter().copied().chain(["--steps", "4"]).collect();
    expect_status(&mut record_workload(&folder, &truth, &[], command), 0);
    let (before, after) = both(&folder);
    same(&before, &after, &[]);
    // That it was simulated is still said.
    assert_eq!(after["device"], "sim");
}

#[test]
fn data_parallel_training() {
    of_a_workload(&["ddp"]);
}

#[test]
fn data_parallel_training_in_cuda_graphs() {
    of_a_workload(&["ddp", "--graph"]);
}

#[test]
fn sharded_training() {
    of_a_workload(&["fsdp"]);
}

#[test]
fn training_in_a_pipeline() {
    of_a_workload(&["pp"]);
}

#[test]
fn eight_real_ranks_of_pytorch() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/kineto/dlrm8_v100");
    let (before, after) = both(&source);
    same(&before, &after, &[]);
}

#[test]
fn a_real_export_of_nsight_systems() {
    let (_keep, folder) = fresh_folder("nsys");
    std::fs::create_dir(&folder).expect("a folder");
    let packed = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("interchange/tests/data/nsys/cloverleaf-2024.5.sqlite.zst");
    let file: PathBuf = folder.join("cloverleaf.sqlite");
    let bytes = zstd::decode_all(std::fs::File::open(packed).expect("the packed file")).expect("whole");
    std::fs::write(&file, bytes).expect("the unpacked file");
    let (before, after) = both(&file);
    same(&before, &after, &[]);
    // A folder with it is opened like the file, and the table of ranks is printed for both.
    assert_eq!(analysis(&folder)["ranks"], before["ranks"]);
    let printed = stdout(&expect_status(gputrace().arg("analyze").arg(&folder), 0));
    assert!(
        printed.contains("GPU 0") && printed.contains("compute"),
        "{printed}"
    );
}

#[test]
fn a_database_of_something_else_is_refused_in_one_line() {
    let (_keep, folder) = fresh_folder("other");
    std::fs::create_dir(&folder).expect("a folder");
    let file = folder.join("browser-history.sqlite");
    // The smallest database: a header and an empty table of tables.
    let mut page = vec![0u8; 512];
    page[..16].copy_from_slice(b"SQLite format 3\0");
    page[16..32].copy_from_slice(&[2, 0, 1, 1, 0, 64, 32, 32, 0, 0, 0, 1, 0, 0, 0, 1]);
    page[44..48].copy_from_slice(&4u32.to_be_bytes());
    page[56..60].copy_from_slice(&1u32.to_be_bytes());
    page[100..108].copy_from_slice(&[13, 0, 0, 0, 0, 2, 0, 0]);
    std::fs::write(&file, page).expect("a database");
    let output = expect_status(gputrace().arg("analyze").arg(&file), 2);
    let line = common::one_line(&output);
    assert!(
        line.contains("browser-history.sqlite") && line.contains("Nsight Systems"),
        "{line}"
    );
}
