//! The package for Python in a program that is recorded: steps, ranges, what is captured, and callbacks of frameworks.

use crate::common;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::fresh_folder;
use common::programs::{Case, library_path, source};
use gputrace_trace::Recording;

/// A Python program with our package, and with what the tests' programs share.
fn case(python: &Path, arguments: &[PathBuf]) -> Case {
    let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("python");
    let path = std::env::join_paths([package, source("gpu.py").with_file_name("")]).expect("paths");
    Case::new(python, arguments)
        .env("PYTHONPATH", path)
        .env("PYTHONDONTWRITEBYTECODE", "1")
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// How often each range of the only process is there.
fn ranges(recording: &Recording) -> BTreeMap<String, usize> {
    let [process] = &recording.processes[..] else {
        panic!("one process");
    };
    let mut counts = BTreeMap::new();
    for name in &process.tables.markers.name {
        *counts.entry(recording.names.get(*name).to_owned()).or_default() += 1;
    }
    counts
}

#[test]
fn steps_and_ranges_are_marked_and_only_what_is_captured_is_recorded() {
    let python = Path::new("python3");
    let marks = [script("tests/nvtx/marks.py")];
    let whole = case(python, &marks).check(0);
    let found = ranges(&whole.recording);
    let steps: Vec<u64> = (0..9).chain([20, 21]).collect();
    for number in steps {
        // Step 7 is one by hand and one of the profile's.
        let times = if number == 7 { 2 } else { 1 };
        assert_eq!(found.get(&format!("step {number}")), Some(&times), "{found:?}");
    }
    assert_eq!(found["gputrace.capture"], 3, "by hand, 3 and 4, 20 and 21");
    assert_eq!(found["work of 4"], 1);
    assert_eq!(whole.kernels(), 1 + 2 + 80 + 2 * 1100);

    let part = case(python, &marks)
        .options(&["--range", "gputrace.capture"])
        .check(0);
    // Between steps that are captured it goes on, and without a schedule all are.
    assert_eq!(part.kernels(), 2 + 20 + 2 * 1100);
}

/// Python with PyTorch and a framework: `TORCH_PYTHON`, else `python3`. `None`, said aloud, where it has none.
fn python_with(framework: &str) -> Option<PathBuf> {
    let python = std::env::var_os("TORCH_PYTHON").map_or_else(|| PathBuf::from("python3"), PathBuf::from);
    let asked = Command::new(&python)
        .args(["-c", &format!("import {framework}, torch")])
        .output();
    if asked.is_ok_and(|output| output.status.success()) {
        return Some(python);
    }
    eprintln!(
        "SKIPPED: {} has no PyTorch with {framework}, so that its callback was not tried (TORCH_PYTHON=... cargo test python_marks)",
        python.display()
    );
    None
}

#[test]
fn examples_of_frameworks_mark_their_steps() {
    for (framework, example) in [
        ("torch", "pytorch_steps"),
        ("lightning", "lightning_steps"),
        ("transformers", "transformers_steps"),
    ] {
        let Some(python) = python_with(framework) else {
            continue;
        };
        let (_keep, folder) = fresh_folder("recording");
        // PyTorch brings libraries of its own that must not be the stand-in's, but for the driver's.
        let stand_in = Path::new(library_path());
        let driver = folder.with_file_name("driver");
        std::fs::create_dir(&driver).expect("a folder");
        std::os::unix::fs::symlink(stand_in.join("libcuda.so.1"), driver.join("libcuda.so.1"))
            .expect("a link");
        let arguments = [
            script("tests/nvtx/example.py"),
            script(&format!("docs/examples/{example}.py")),
        ];
        let ended = case(&python, &arguments)
            .env("CUDA_VISIBLE_DEVICES", "")
            .env("GPUTRACE_CUPTI", stand_in.join("libcupti.so.13"))
            .inside(&["env", &format!("LD_LIBRARY_PATH={}", driver.display())])
            .recorded(&folder);
        assert_eq!(ended.status, 0, "{framework}: {ended:?}");
        assert!(ended.stdout.contains("trained on cpu"), "{framework}: {ended:?}");
        let found = ranges(&Recording::open(&folder).expect("opens"));
        for number in 0..10 {
            assert_eq!(
                found.get(&format!("step {number}")),
                Some(&1),
                "{framework}: {found:?}"
            );
        }
        assert_eq!(found.get("gputrace.capture"), Some(&1), "{framework}: {found:?}");
    }
}
