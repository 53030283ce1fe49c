//! Holistic Trace Analysis, from PyPI, run on a folder of traces.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Python of a virtual environment with Holistic Trace Analysis, under the target folder. `None` where it can't be made.
fn python_with_hta() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let environment = folder.join("hta");
    let python = environment.join("bin/python");
    // Two tests must not install at once.
    let lock = File::create(folder.join("hta.lock")).ok()?;
    lock.lock().ok()?;
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

/// What its four analyses make of a folder of traces. `None`, said loudly, where it can't be installed; never under CI=true.
pub fn analyses(folder: &Path) -> Option<Value> {
    let Some(python) = python_with_hta() else {
        assert!(
            std::env::var("CI").as_deref() != Ok("true"),
            "Holistic Trace Analysis could not be installed, and under CI it must be"
        );
        eprintln!("SKIPPED: Holistic Trace Analysis could not be installed; no foreign reader was tried");
        return None;
    };
    let script = Path::new(file!())
        .parent()
        .and_then(Path::parent)
        .map(|tests| tests.join("consumers/overlap_and_idle.py"))
        .expect("beside this file");
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    // The file is named from the workspace's root, which is this package's folder or the one around it.
    let script = [root, root.parent().expect("a workspace")]
        .map(|root| root.join(&script))
        .into_iter()
        .find(|script| script.exists())
        .expect("the script");
    let output = Command::new(&python)
        .arg(script)
        .arg(folder)
        // By default it rounds every event inwards to whole microseconds.
        .env("HTA_DISABLE_NS_ROUNDING", "1")
        .output()
        .expect("python");
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find_map(|line| line.strip_prefix("RESULT "));
    let line = line.unwrap_or_else(|| panic!("{text}{}", String::from_utf8_lossy(&output.stderr)));
    Some(serde_json::from_str(line).expect("JSON"))
}
