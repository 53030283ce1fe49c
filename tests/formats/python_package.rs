//! `import gputrace` in Python: its frames are the program's tables.

use crate::common;

use std::path::Path;
use std::process::Command;

use common::{consumers, expect_status, fresh_folder, record_workload};
use serde_json::Value;

#[test]
fn frames_of_python_are_the_programs_tables() {
    let Some(python) = consumers::python("arrow") else {
        return;
    };
    let (_keep, folder) = fresh_folder("recording");
    let truth = folder.with_file_name("truth");
    expect_status(
        &mut record_workload(&folder, &truth, &[], ["ddp", "--steps", "5"]),
        0,
    );
    let output = Command::new(python)
        .arg(consumers::script("python_package.py"))
        .arg(&folder)
        .env("GPUTRACE", env!("CARGO_BIN_EXE_gputrace"))
        .env("PYTHONPATH", Path::new(env!("CARGO_MANIFEST_DIR")).join("python"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("MPLBACKEND", "agg")
        .output()
        .expect("python");
    let text = String::from_utf8_lossy(&output.stdout);
    let last = text.lines().last().unwrap_or_default();
    let said: Value = serde_json::from_str(last)
        .unwrap_or_else(|error| panic!("{error}: {text}{}", String::from_utf8_lossy(&output.stderr)));
    assert!(said["cells"].as_u64() > Some(500), "{said}");
    assert_eq!(said["frames"], serde_json::json!(["arrow", "pandas", "polars"]));
}
