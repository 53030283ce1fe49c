//! TensorBoard with its two profiler plugins, from PyPI, asked what they say of a folder.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Python with TensorBoard. `None` where it can't be had, see [`super::fetched`].
pub fn python() -> Option<PathBuf> {
    super::python("tensorboard")
}

/// Everything that `plugin` ("torch" or "xprof") answers about the log folder, see `consumers/tensorboard.py`.
#[track_caller]
pub fn ask(python: &Path, logdir: &Path, plugin: &str) -> Value {
    let output = Command::new(python)
        .arg(super::script("tensorboard.py"))
        .arg(logdir)
        .arg(plugin)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let last = text.lines().last().unwrap_or_default();
    serde_json::from_str(last)
        .unwrap_or_else(|error| panic!("{error}: {text}{}", String::from_utf8_lossy(&output.stderr)))
}
