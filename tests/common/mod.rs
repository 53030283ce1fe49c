//! Running the program as a user does, and reading what the stand-in says is true.

#![allow(dead_code)] // Each test file uses a part of this.

pub mod aligned;
pub mod browser;
pub mod clusters;
pub mod consumers;
pub mod damage;
#[path = "../../simgpu/tests/support/dispositions.rs"]
mod dispositions;
pub mod groups;
pub mod hostile;
pub mod http;
pub mod kineto_events;
pub mod moved_clocks;
pub mod page;
pub mod programs;
pub mod random;
pub mod schedule;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use gputrace_trace::json_file::{Json, read_json, write_json};

use gputrace_trace::manifest::{MANIFEST_FILE, Manifest};
use serde_json::Value;

pub use dispositions::usual_dispositions;

/// The program under test, without the variables that would change what it does. The test computes, see [`schedule`].
pub fn gputrace() -> Command {
    schedule::computes();
    let mut command = Command::new(env!("CARGO_BIN_EXE_gputrace"));
    for (key, _) in std::env::vars_os() {
        let name = key.to_string_lossy();
        let ours = ["SIMGPU_", "GPUTRACE_", "NCCL_", "CUDA_", "NVTX_"]
            .iter()
            .any(|prefix| name.starts_with(prefix));
        if ours || matches!(name.as_ref(), "RANK" | "WORLD_SIZE" | "LOCAL_RANK" | "COLUMNS") {
            command.env_remove(key);
        }
    }
    usual_dispositions(&mut command);
    command
}

/// Runs to the end and gives the output; panics with all of it when the status is not `status`.
#[track_caller]
pub fn expect_status(command: &mut Command, status: i32) -> Output {
    let output = command.output().expect("the program starts");
    assert_eq!(
        output.status.code(),
        Some(status),
        "{command:?}\nstdout:\n{}\nstderr:\n{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The single line that the program wrote to stderr; panics when there are more or none.
#[track_caller]
pub fn one_line(output: &Output) -> String {
    let text = stderr(output);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 1, "expected one line, got:\n{text}");
    lines[0].to_owned()
}

/// Records a bundled workload on the stand-in into `folder`, with the truth log in `truth`.
pub fn record_workload<I, S>(folder: &Path, truth: &Path, settings: &[(&str, &str)], workload: I) -> Command
where
    I: IntoIterator<Item = S>,
    S: AsRef<OsStr>,
{
    std::fs::create_dir_all(truth).expect("a folder for the truth log");
    let mut command = gputrace();
    command.args(["record", "--device", "sim", "-o"]).arg(folder);
    command.arg("--sim").arg(format!("TRUTH={}", truth.display()));
    for (key, value) in settings {
        command.arg("--sim").arg(format!("{key}={value}"));
    }
    command.args(["--", "workload"]).args(workload);
    command
}

/// One operation of the truth log.
#[derive(Clone, Debug, PartialEq)]
pub struct TrueOperation {
    pub kind: String,
    pub name: String,
    pub device: u64,
    pub stream: u64,
    pub start_ns: i64,
    pub end_ns: i64,
    pub delivered_start_ns: i64,
    pub delivered_end_ns: i64,
    /// Longer than modelled, because the CPU could not keep up.
    pub stretched: bool,
}

/// The truth log of one rank, by correlation id. Panics on an operation that stands there twice.
pub fn truth_of_rank(folder: &Path, rank: u32) -> BTreeMap<u64, TrueOperation> {
    let path = folder.join(format!("rank{rank}.jsonl"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut operations = BTreeMap::new();
    // A rank that was killed may leave half a line at the end.
    for line in text.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
        let value: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"));
        let number = |key: &str| value[key].as_i64();
        let (start_ns, end_ns) = (
            number("start_ns").expect("start_ns"),
            number("end_ns").expect("end_ns"),
        );
        let operation = TrueOperation {
            kind: value["kind"].as_str().expect("kind").to_owned(),
            name: value["name"].as_str().unwrap_or_default().to_owned(),
            device: value["device"].as_u64().expect("device"),
            stream: value["stream"].as_u64().expect("stream"),
            start_ns,
            end_ns,
            delivered_start_ns: number("delivered_start_ns").unwrap_or(start_ns),
            delivered_end_ns: number("delivered_end_ns").unwrap_or(end_ns),
            stretched: value["stretched"] == true,
        };
        let correlation = value["correlation"].as_u64().expect("correlation");
        assert_eq!(
            operations.insert(correlation, operation),
            None,
            "correlation {correlation} twice in the truth log"
        );
    }
    operations
}

/// Records a bundled workload on GPUs that are slow enough for two cores to keep up.
#[track_caller]
pub fn record_slowly(folder: &Path, settings: &[&str], workload: &[&str]) {
    let mut command = gputrace();
    command.args([
        "record",
        "--quiet",
        "--device",
        "sim",
        "--sim",
        "SCALE=4000",
        "-o",
    ]);
    command.arg(folder);
    for setting in settings {
        command.args(["--sim", setting]);
    }
    expect_status(command.args(["--", "workload"]).args(workload), 0);
}

/// What a command prints with `--json`, parsed.
#[track_caller]
pub fn json(arguments: &[&str], paths: &[&Path], status: i32) -> Value {
    let output = expect_status(gputrace().args(arguments).arg("--json").args(paths), status);
    serde_json::from_slice(&output.stdout).expect("--json writes JSON")
}

/// A file or folder of `tests/data`.
pub fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(name)
}

/// Writes the recording of a job that never ran.
#[track_caller]
pub fn synthetic(folder: &Path, options: &[&str]) {
    let mut command = gputrace();
    command.args(["workload", "--trace-only", "-o"]).arg(folder);
    expect_status(command.args(options), 0);
}

/// The names of what is in a folder, in order.
pub fn names_in(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("a folder");
    let name = |entry: std::io::Result<std::fs::DirEntry>| entry.expect("an entry").file_name();
    let mut names: Vec<String> = entries
        .map(|entry| name(entry).to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// `gputrace analyze FOLDER --json`, parsed.
#[track_caller]
pub fn analysis(folder: &Path) -> Value {
    json(&["analyze"], &[folder], 0)
}

/// Rewrites a recording's manifest.
#[track_caller]
pub fn edit_manifest(folder: &Path, change: impl FnOnce(&mut Manifest)) {
    let path = folder.join(MANIFEST_FILE);
    let Ok(Json::Read(mut manifest)) = read_json::<Manifest>(&path) else {
        panic!("{}: no manifest", path.display());
    };
    change(&mut manifest);
    write_json(&path, &manifest).expect("written");
}

/// A path inside a fresh temporary folder that lives as long as the first value.
pub fn fresh_folder(name: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join(name);
    (folder, path)
}

/// `gputrace workload` on the stand-in, with the variables that the recorder would set: on any machine, and in any
/// namespace.
pub fn simulated_workload() -> Command {
    let mut command = gputrace();
    command
        .arg("workload")
        .env("GPUTRACE_DEVICE", "sim")
        .env("LD_LIBRARY_PATH", programs::library_path())
        .env("SIMGPU_SCALE", "10");
    command
}
