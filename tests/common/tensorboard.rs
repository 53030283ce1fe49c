//! TensorBoard with its two profiler plugins, from PyPI, asked what they say of a folder.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// The versions that the exports are for.
const PACKAGES: &[&str] = &[
    "tensorboard==2.21.0",
    "numpy==2.4.6",
    "pandas==3.1.1",
    "torch-tb-profiler==0.4.3",
    "xprof==2.24.2",
];

/// Python of a virtual environment with TensorBoard, under the target folder. `None`, said aloud, where it can't be made;
/// never under CI=true.
pub fn python() -> Option<PathBuf> {
    let temporary = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let environment = temporary.join("tensorboard");
    let python = environment.join("bin/python");
    // Tests of several programs may want it at once.
    let lock = std::fs::File::create(temporary.join("tensorboard.lock")).unwrap();
    lock.lock().unwrap();
    let is_there = || {
        let look = "import tensorboard, torch_tb_profiler, importlib.metadata as m; m.version('xprof')";
        let found = Command::new(&python).args(["-c", look]).output();
        found.is_ok_and(|output| output.status.success())
    };
    if !is_there() {
        drop(
            Command::new("python3")
                .args(["-m", "venv"])
                .arg(&environment)
                .output(),
        );
        let mut install = Command::new(&python);
        install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
        drop(install.args(PACKAGES).output());
    }
    if is_there() {
        return Some(python);
    }
    assert!(
        std::env::var("CI").as_deref() != Ok("true"),
        "TensorBoard could not be installed, and under CI it must be"
    );
    eprintln!("SKIPPED: TensorBoard could not be installed; its plugins were not asked");
    None
}

/// Everything that `plugin` ("torch" or "xprof") answers about the log folder, see `consumers/tensorboard.py`.
#[track_caller]
pub fn ask(python: &Path, logdir: &Path, plugin: &str) -> Value {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join(match env!("CARGO_PKG_NAME") {
        "gputrace" => "tests/consumers/tensorboard.py",
        _ => "../tests/consumers/tensorboard.py",
    });
    let output = Command::new(python)
        .arg(script)
        .arg(logdir)
        .arg(plugin)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let last = text.lines().last().unwrap_or_default();
    serde_json::from_str(last)
        .unwrap_or_else(|error| panic!("{error}: {text}{}", String::from_utf8_lossy(&output.stderr)))
}
