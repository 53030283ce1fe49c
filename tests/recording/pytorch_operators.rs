//! Own recordings of PyTorch programs: its NVTX ranges are operators and modules, and all time of the GPU is somebody's.

use crate::common;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::programs::{Case, Recorded, compiled, library_path, source};
use common::{analysis, fresh_folder, truth_of_rank};
use gputrace_trace::Recording;
use serde_json::{Value, json};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().expect("a list")
}

/// The only rank of a recording's analysis. Whatever it is, its parts are all time of the GPU.
#[track_caller]
fn rank_of(folder: &Path) -> Value {
    let mut analysis = analysis(folder);
    let [rank] = &mut analysis["ranks"].as_array_mut().expect("ranks")[..] else {
        panic!("one rank");
    };
    let number = |value: &Value| value.as_i64().expect("a number");
    let direct: i64 = (list(&rank["operators"]).iter())
        .map(|row| number(&row["direct_ns"]))
        .sum();
    let unattributed = &rank["unattributed"];
    let parts = ["no_operator_ns", "launch_not_recorded_ns"].map(|part| number(&unattributed[part]));
    assert_eq!(
        direct + parts[0] + parts[1],
        number(&unattributed["operations_ns"])
    );
    rank.take()
}

/// Some members of each row, as text, sorted by the first.
fn rows(table: &Value, members: &[&str]) -> Vec<Vec<Value>> {
    let row = |row: &Value| members.iter().map(|member| row[member].clone()).collect();
    let mut rows: Vec<Vec<Value>> = list(table).iter().map(row).collect();
    rows.sort_by_key(|row| row[0].to_string());
    rows
}

/// Names of the program's own ranges.
fn own_ranges(recording: &Recording) -> Vec<String> {
    let [process] = &recording.processes[..] else {
        panic!("one process");
    };
    let names = process.tables.markers.name.iter();
    names.map(|name| recording.names.get(*name).to_owned()).collect()
}

#[test]
fn what_emit_nvtx_pushes_is_operators_shapes_and_modules() {
    let (_keep, folder) = fresh_folder("recording");
    let truth = folder.with_file_name("truth");
    std::fs::create_dir_all(&truth).expect("a folder for the truth log");
    let setting = format!("TRUTH={}", truth.display());
    let ended = Case::new(compiled("operators"), &[""; 0])
        .env("RANK", "0")
        .options(&["--sim", &setting])
        .recorded(&folder);
    assert_eq!(ended.status, 0, "{ended:?}");

    let recording = Recording::open(&folder).expect("opens");
    assert_eq!(recording.losses, []);
    let own = ["loss, seq = 5", "Optimizer.step#SGD.step", "step 0"];
    let again = ["loss, seq = 5", "Optimizer.step#SGD.step", "step 1"];
    assert_eq!(own_ranges(&recording), [own, again].concat());

    // Kernels are launched in this order, by one thread at a time, and copies by nobody.
    let launchers = [
        "aten::addmm",
        "aten::addmm",
        "aten::relu",
        "nobody",
        "aten::threshold_backward",
        "aten::mm",
        "aten::mm",
        "aten::add_",
        "aten::_foreach_add_",
    ];
    let mut direct: BTreeMap<&str, i64> = BTreeMap::new();
    let mut launched = launchers.iter().chain(&launchers);
    for operation in truth_of_rank(&truth, 0).into_values() {
        let launcher = match operation.kind.as_str() {
            "kernel" => launched.next().expect("no more kernels"),
            _ => "nobody",
        };
        *direct.entry(launcher).or_default() += operation.delivered_end_ns - operation.delivered_start_ns;
    }
    assert_eq!(launched.next(), None);
    let nobody = direct.remove("nobody").expect("some");

    let rank = rank_of(&folder);
    let found: BTreeMap<&str, i64> = list(&rank["operators"])
        .iter()
        .map(|row| {
            (
                row["name"].as_str().expect("a name"),
                row["direct_ns"].as_i64().expect("a time"),
            )
        })
        .filter(|(_, direct_ns)| *direct_ns > 0)
        .collect();
    assert_eq!(found, direct);
    assert_eq!(rank["unattributed"]["no_operator_ns"], nobody);

    let evaluate = |node: &str| format!("autograd::engine::evaluate_function: {node}");
    let mut expected: Vec<Vec<Value>> = [
        ("aten::linear", 2, 0),
        ("aten::addmm", 2, 4),
        ("aten::relu", 2, 2),
        ("aten::threshold_backward", 2, 2),
        ("aten::mm", 2, 4),
        ("aten::add_", 2, 2),
        ("aten::_foreach_add_", 2, 2),
        ("ReluBackward0", 2, 0),
        ("AddmmBackward0", 2, 0),
        ("torch::autograd::AccumulateGrad", 2, 0),
        (&evaluate("ReluBackward0"), 2, 0),
        (&evaluate("AddmmBackward0"), 2, 0),
        (&evaluate("torch::autograd::AccumulateGrad"), 2, 0),
    ]
    .map(|(name, calls, kernels)| vec![json!(name), json!(calls), json!(kernels)])
    .to_vec();
    expected.sort_by_key(|row| row[0].to_string());
    assert_eq!(rows(&rank["operators"], &["name", "calls", "kernels"]), expected);

    let shapes = rows(&rank["shapes"], &["input_dims", "name", "input_types"]);
    let of_addmm = [
        json!("[[16], [64, 32], [32, 16], [], []]"),
        json!("aten::addmm"),
        Value::Null,
    ];
    assert!(shapes.contains(&of_addmm.to_vec()), "{shapes:?}");
    let products = rows(&rank["products"], &["name", "m", "n", "k", "calls", "flops"]);
    let flops = 2 * 2 * 64 * 16 * 32;
    let product = |name: &str, [m, n, k]: [u64; 3]| {
        vec![json!(name), json!(m), json!(n), json!(k), json!(2), json!(flops)]
    };
    assert_eq!(
        products,
        [
            product("aten::addmm", [64, 16, 32]),
            product("aten::mm", [16, 32, 64])
        ]
    );

    // Net holds Linear and ReLU; the backward pass is theirs by the sequence numbers.
    let modules = rows(
        &rank["modules"],
        &[
            "name",
            "parent",
            "calls",
            "forward_ns",
            "backward_ns",
            "recompute_ns",
        ],
    );
    let of = |operators: &[&str]| operators.iter().map(|operator| direct[operator]).sum::<i64>();
    let parent = list(&rank["modules"])
        .iter()
        .position(|module| module["name"] == "Net_0")
        .expect("the network");
    let module = |name: &str, parent: Option<usize>, forward: &[&str], backward: &[&str]| {
        vec![
            json!(name),
            json!(parent),
            json!(2),
            json!(of(forward)),
            json!(of(backward)),
            json!(0),
        ]
    };
    let (forward, backward) = (
        ["aten::addmm", "aten::relu"],
        ["aten::mm", "aten::threshold_backward"],
    );
    assert_eq!(
        modules,
        [
            module("Linear_0", Some(parent), &forward[..1], &backward[..1]),
            module("Net_0", None, &forward, &backward),
            module("ReLU_0", Some(parent), &forward[1..], &backward[1..]),
        ]
    );
    let steps = rows(&rank["steps"], &["name", "detected"]);
    assert_eq!(
        steps,
        [[json!("step 0"), json!(false)], [json!("step 1"), json!(false)]]
    );
}

/// With our package for Python where it is imported from, beside what the tests' programs share.
fn with_package(case: Case) -> Case {
    let programs = source("gpu.py").with_file_name("");
    let path = std::env::join_paths([root().join("python"), programs]).expect("paths");
    // No files beside the sources.
    case.env("PYTHONPATH", path).env("PYTHONDONTWRITEBYTECODE", "1")
}

fn script(name: &str) -> PathBuf {
    root().join("tests/nvtx").join(name)
}

#[test]
fn the_package_for_python_pushes_ranges_without_an_extension() {
    let recorded: Recorded = with_package(Case::new("python3", &[script("operators.py")])).check(0);
    assert_eq!(recorded.recording.losses, []);
    let mut own = own_ranges(&recorded.recording);
    own.sort_unstable();
    assert_eq!(
        own,
        ["a mark, \u{e4}", "another thread's", "outer", "raises", "step 0"]
    );
    let rank = rank_of(&recorded.folder);
    assert_eq!(
        rows(&rank["shapes"], &["name", "input_dims", "input_types", "kernels"]),
        [[
            json!("aten::mm"),
            json!("[[2, 3], [3, 4]]"),
            json!("[\"float\", \"float\"]"),
            json!(3)
        ]]
    );
    assert_eq!(rows(&rank["modules"], &["name"]), [[json!("Linear_0")]]);
    assert_eq!(rows(&rank["steps"], &["name"]), [[json!("step 0")]]);
}

/// Python with PyTorch: `TORCH_PYTHON`, else `python3`. `None`, said aloud, where it has none; it is too large to be fetched.
fn python_with_torch() -> Option<PathBuf> {
    let python = std::env::var_os("TORCH_PYTHON").map_or_else(|| PathBuf::from("python3"), PathBuf::from);
    let asked = Command::new(&python).args(["-c", "import torch"]).output();
    if asked.is_ok_and(|output| output.status.success()) {
        return Some(python);
    }
    eprintln!(
        "SKIPPED: {} has no PyTorch, so that its operators were not recorded (TORCH_PYTHON=... cargo test pytorch_operators)",
        python.display()
    );
    None
}

#[test]
fn real_pytorch_is_recorded_by_operators_and_modules() {
    let Some(python) = python_with_torch() else {
        return;
    };
    let has_cuda = Command::new(&python)
        .args(["-c", "import sys, torch; sys.exit(torch.version.cuda is None)"])
        .status()
        .is_ok_and(|status| status.success());
    for mode in ["emit", "dispatch"] {
        if mode == "emit" && !has_cuda {
            eprintln!("SKIPPED: this PyTorch is built without CUDA, so that it has no ranges of its own");
            continue;
        }
        let (_keep, folder) = fresh_folder("recording");
        let script = script("torch_operators.py").into_os_string();
        // PyTorch brings libraries of its own that must not be the stand-in's, but for the driver's.
        let stand_in = Path::new(library_path());
        let driver = folder.with_file_name("driver");
        std::fs::create_dir(&driver).expect("a folder");
        std::os::unix::fs::symlink(stand_in.join("libcuda.so.1"), driver.join("libcuda.so.1"))
            .expect("a link");
        let path = format!("LD_LIBRARY_PATH={}", driver.display());
        let ended = with_package(Case::new(&python, &[script, mode.into()]))
            .env("GPUTRACE_CUPTI", stand_in.join("libcupti.so.13"))
            .inside(&["env", &path])
            .recorded(&folder);
        assert_eq!(ended.status, 0, "{ended:?}");
        eprintln!("{mode}: {}", ended.stdout.trim());
        let recording = Recording::open(&folder).expect("opens");
        assert_eq!(recording.losses, []);
        let rank = rank_of(&folder);
        // Two layers launch 2 kernels forward and 3 backward, in each of two steps.
        let found = rows(&rank["operators"], &["name", "kernels"]);
        assert!(
            found.contains(&vec![json!("gputrace_test::work"), json!(20)]),
            "{mode}: {found:?}"
        );
        assert_eq!(
            found.iter().filter(|row| row[1] != 0).count(),
            1,
            "{mode}: {found:?}"
        );
        // A collective over gloo is the host's.
        assert!(
            found.contains(&vec![json!("c10d::allreduce_"), json!(0)]),
            "{mode}: {found:?}"
        );
        let modules = rows(&rank["modules"], &["name", "parent", "calls"]);
        let names: Vec<&str> = modules.iter().filter_map(|row| row[0].as_str()).collect();
        assert_eq!(
            names,
            [
                "Fails_0",
                "Kernels_0",
                "Kernels_1",
                "Linear_0",
                "Linear_1",
                "Net_0",
                "Sequential_0"
            ],
            "{mode}"
        );
        assert!(modules.iter().all(|row| row[2] == 2), "{mode}: {modules:?}");
        for module in list(&rank["modules"]) {
            let is_launcher = ["Kernels", "Net", "Sequential"].iter().any(|class| {
                module["name"]
                    .as_str()
                    .is_some_and(|name| name.starts_with(class))
            });
            for pass in ["forward_ns", "backward_ns"] {
                let has_time = module[pass].as_i64().is_some_and(|time| time > 0);
                assert_eq!(has_time, is_launcher, "{mode}: {pass} of {module}");
            }
            assert_eq!(module["recompute_ns"], 0);
        }
        assert_eq!(
            rows(&rank["steps"], &["name"]),
            [[json!("step 0")], [json!("step 1")]]
        );
        let shapes = rows(&rank["shapes"], &["name", "input_dims", "input_types", "kernels"]);
        let types = match mode {
            "emit" => Value::Null,
            _ => json!("[\"float\", \"Scalar\"]"),
        };
        let work = vec![
            json!("gputrace_test::work"),
            json!("[[2, 4], []]"),
            types,
            json!(20),
        ];
        assert!(shapes.contains(&work), "{mode}: {shapes:?}");
    }
}
