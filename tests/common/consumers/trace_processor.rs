//! Perfetto's own engine, in two versions, run by Node: what it says of a trace.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

/// One version of the engine.
pub struct TraceProcessor {
    pub version: &'static str,
    wasm: PathBuf,
}

/// Both versions, the newer first. `None` where they can't be had, see [`super::fetched`]; Node has to be there with them.
pub fn both() -> Option<[TraceProcessor; 2]> {
    let version = Command::new("node").arg("--version").output();
    if !version.is_ok_and(|output| output.status.success()) {
        assert!(std::env::var_os("CI").is_none(), "needed in CI: Node");
        eprintln!("SKIPPED: no Node here, so Perfetto's engine was not asked");
        return None;
    }
    let fetched = |version: &'static str| {
        let wasm = super::fetched(&format!("perfetto-{version}"))?.join("trace_processor.wasm");
        Some(TraceProcessor { version, wasm })
    };
    Some([fetched("v55.3")?, fetched("v52.0")?])
}

/// What every trace must have none of: whatever the engine could not take whole.
pub const TROUBLE: &str =
    "select name, idx, value from stats where severity in ('error', 'data_loss') and value > 0";

impl TraceProcessor {
    /// The rows of the answers to SQL queries; panics with what the engine says.
    #[track_caller]
    pub fn ask(&self, trace: &Path, queries: &[&str]) -> Vec<Vec<Vec<Value>>> {
        let mut node = Command::new("node")
            .arg(super::script("trace_processor.mjs"))
            .arg(&self.wasm)
            .arg(trace)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("node starts");
        let text = serde_json::to_string(queries).expect("texts");
        let mut input = node.stdin.take().expect("a pipe");
        input.write_all(text.as_bytes()).expect("node reads");
        drop(input);
        let output = node.wait_with_output().expect("node ends");
        let text = String::from_utf8_lossy(&output.stdout);
        let answer: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
        assert!(answer["error"].is_null(), "{}: {}", self.version, answer["error"]);
        let told = answer["version"].as_str().unwrap_or_default();
        assert!(told.contains(self.version), "{told} is not {}", self.version);
        let rows = |answer: &Value| serde_json::from_value(answer["rows"].clone()).expect("rows");
        answer["answers"]
            .as_array()
            .expect("answers")
            .iter()
            .map(rows)
            .collect()
    }
}
