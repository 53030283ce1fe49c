//! Holistic Trace Analysis, from PyPI, run on a folder of traces.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// What its four analyses make of a folder of traces. `None` where it can't be had, see [`super::fetched`].
pub fn analyses(folder: &Path) -> Option<Value> {
    let python = super::python("hta")?;
    let output = Command::new(&python)
        .arg(super::script("overlap_and_idle.py"))
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
