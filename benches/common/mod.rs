//! What the benches of whole runs share: recording a workload on simulated GPUs, and asking the program about it.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

fn run(command: &mut Command) -> Vec<u8> {
    let output = command.output().expect("starts");
    assert!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    output.stdout
}

/// Records a workload with these settings of the stand-in.
pub fn record<S: AsRef<str>, W: AsRef<str>>(folder: &Path, sim: &[S], workload: &[W]) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gputrace"));
    command
        .args(["record", "--quiet", "--device", "sim", "-o"])
        .arg(folder);
    for setting in sim {
        command.args(["--sim", setting.as_ref()]);
    }
    command
        .args(["--", "workload"])
        .args(workload.iter().map(AsRef::as_ref));
    run(&mut command);
}

/// What a command of the program says of a recording, as JSON.
pub fn json(folder: &Path, arguments: &[&str]) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gputrace"));
    let output = run(command.args(arguments).arg("--json").arg(folder));
    serde_json::from_slice(&output).expect("JSON")
}

/// The measured step, and the ends of what is predicted with some changes: milliseconds.
pub fn what_if(folder: &Path, changes: &[&str]) -> (f64, f64, f64) {
    let mut arguments = vec!["whatif"];
    changes
        .iter()
        .for_each(|change| arguments.extend(["--set", change]));
    let json = json(folder, &arguments);
    let time = |value: &Value| value.as_f64().expect("a time") / 1e6;
    let predicted = &json["predicted_step_ns"];
    (
        time(&json["measured_step_ns"]),
        time(&predicted["low"]),
        time(&predicted["high"]),
    )
}
