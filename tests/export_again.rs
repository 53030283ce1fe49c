//! What is exported and analysed again has the same measures: the Chrome JSON loses nothing that they need.

mod common;

use std::path::{Path, PathBuf};

use common::{analysis, expect_status, fresh_folder, gputrace, record_workload, stdout};
use serde_json::Value;

/// Exports `source` and analyses both.
fn both(source: &Path) -> (Value, Value) {
    let (_keep, folder) = fresh_folder("exported");
    std::fs::create_dir(&folder).expect("a folder");
    let file = folder.join("all ranks.json.gz");
    let mut export = gputrace();
    export
        .arg("export")
        .arg(source)
        .args(["--format", "chrome", "-o"])
        .arg(&file);
    expect_status(&mut export, 0);
    (analysis(source), analysis(&file))
}

/// Compares everything but what the format has other words for: hosts' processes, names of communicators and types, calls
/// without their version, and where a kernel's kind is known from.
#[track_caller]
fn same_measures(before: &Value, after: &Value) {
    fn compare(before: &Value, after: &Value, at: &str) {
        const OTHER_WORDS: &[&str] = &[
            "communicator",
            "communicator_name",
            "dtype",
            "kind_from",
            "kind_reason",
            "name",
            "call",
            "host_late_by",
            "host",
        ];
        match (before, after) {
            (Value::Object(before), Value::Object(after)) => {
                assert!(before.keys().eq(after.keys()), "{at}: {before:?} and {after:?}");
                for (key, value) in before
                    .iter()
                    .filter(|(key, _)| !OTHER_WORDS.contains(&key.as_str()))
                {
                    compare(value, &after[key], &format!("{at}.{key}"));
                }
            }
            (Value::Array(before), Value::Array(after)) => {
                assert_eq!(before.len(), after.len(), "{at}");
                for (place, (before, after)) in before.iter().zip(after).enumerate() {
                    compare(before, after, &format!("{at}[{place}]"));
                }
            }
            _ => assert_eq!(before, after, "{at}"),
        }
    }
    assert!(before["ranks"].as_array().is_some_and(|ranks| !ranks.is_empty()));
    compare(&before["ranks"], &after["ranks"], "ranks");
}

#[test]
fn a_simulated_run_of_two_ranks() {
    let (keep, folder) = fresh_folder("recording");
    let truth = keep.path().join("truth");
    expect_status(
        &mut record_workload(&folder, &truth, &[], ["ddp", "--steps", "6"]),
        0,
    );
    let (before, after) = both(&folder);
    same_measures(&before, &after);
    // An import does not begin with the run's first collective for certain, so none of them is warm-up; all times are equal.
    let (collectives, again) = (&before["collectives"], &after["collectives"]);
    assert_eq!(
        collectives.as_array().map(Vec::len),
        again.as_array().map(Vec::len)
    );
    for (one, other) in collectives
        .as_array()
        .into_iter()
        .flatten()
        .zip(again.as_array().into_iter().flatten())
    {
        for member in [
            "name",
            "communicator",
            "sequence",
            "bytes",
            "ranks",
            "wait_ns",
            "transfer_ns",
            "skew_ns",
        ] {
            assert_eq!(one[member], other[member], "{member}");
        }
    }
    // That it was simulated is still said.
    assert_eq!(
        (&before["device"], &after["device"]),
        (&"sim".into(), &"sim".into())
    );
}

#[test]
fn eight_real_ranks_of_pytorch() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/kineto/dlrm8_v100");
    let (before, after) = both(&source);
    same_measures(&before, &after);
    assert_eq!(before["collectives"], after["collectives"]);
    assert_eq!(before["arrivals"], after["arrivals"]);
    assert_eq!(before["losses"], after["losses"]);
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
    same_measures(&before, &after);
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
