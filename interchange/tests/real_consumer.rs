//! The export in front of a consumer that is not ours: Holistic Trace Analysis, from PyPI.
//!
//! Skipped, loudly, where pip can't fetch it; never under CI=true.

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;

use gputrace_interchange::export::chrome::export_chrome;
use gputrace_interchange::export::files::write_file;
use gputrace_trace::Derived;
use support::{rank_alone, two_ranks};

/// Python of a virtual environment with Holistic Trace Analysis, under the target folder. `None` where it can't be made.
fn python_with_hta() -> Option<PathBuf> {
    let environment = Path::new(env!("CARGO_TARGET_TMPDIR")).join("hta");
    let python = environment.join("bin/python");
    let has_hta = || {
        let found = Command::new(&python)
            .args(["-c", "import hta.trace_analysis"])
            .output();
        found.is_ok_and(|output| output.status.success())
    };
    if !has_hta() {
        let made = Command::new("python3")
            .args(["-m", "venv"])
            .arg(&environment)
            .output();
        if !made.is_ok_and(|output| output.status.success()) {
            return None;
        }
        let mut install = Command::new(&python);
        install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
        // 0.5.0 does not yet know pandas 3.
        install.args(["HolisticTraceAnalysis==0.5.0", "pandas<3"]);
        drop(install.output());
    }
    has_hta().then_some(python)
}

#[test]
fn holistic_trace_analysis_computes_the_numbers_by_hand() {
    let Some(python) = python_with_hta() else {
        assert!(
            std::env::var("CI").as_deref() != Ok("true"),
            "Holistic Trace Analysis could not be installed, and under CI it must be"
        );
        eprintln!("SKIPPED: Holistic Trace Analysis could not be installed; no foreign reader was tried");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let recording = two_ranks();
    for rank in 0..2 {
        let path = folder.path().join(format!("rank{rank}.json.gz"));
        let alone = rank_alone(&recording, rank);
        write_file(&path, |out| export_chrome(&alone, &Derived::default(), out)).unwrap();
    }
    let output = Command::new(&python)
        .arg(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/consumers/overlap_and_idle.py"
        ))
        .arg(folder.path())
        // By default it rounds every event inwards to whole microseconds.
        .env("HTA_DISABLE_NS_ROUNDING", "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find_map(|line| line.strip_prefix("RESULT "));
    let Some(line) = line else {
        panic!("{text}{}", String::from_utf8_lossy(&output.stderr))
    };
    let result: serde_json::Value = serde_json::from_str(line).unwrap();
    // Compute is [100, 320); the collective [280, 420) or [280, 400): 40 us of 140 or of 120 are hidden. Over all
    // operations the span is [20, end) with the copy [20, 60) and the memset [90.001, 95) before compute.
    for (rank, end, overlap) in [("0", 420.0, 28.57), ("1", 400.0, 33.33)] {
        let is = |key: &str, expected: f64, tolerance: f64| {
            let value = result[rank][key].as_f64().unwrap();
            assert!(
                (value - expected).abs() <= tolerance,
                "rank {rank}: {key} is {value}, not {expected}: {line}"
            );
        };
        is("overlap", overlap, 0.01);
        is("compute_us", 220.0, 0.01);
        is("span_us", end - 20.0, 0.01);
        // Before compute: [60, 90.001) and [95, 100).
        is("idle_us", 35.001, 0.01);
    }
}
