//! Operators, shapes, products and modules of PyTorch traces, against what a script that shares no code with this says of them.

use crate::common;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use common::{expect_status, gputrace};
use serde_json::Value;

const TRACES: [&str; 3] = ["h100_qwen", "mi300_resnet_ac", "vllm_graph"];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/operators")
}

/// What is expected of a trace, and its only rank in the analysis.
fn both(name: &str) -> (Value, Value) {
    let expected =
        std::fs::read(folder().join(format!("{name}.expected.json"))).expect("the expected values");
    let expected = serde_json::from_slice(&expected).expect("JSON");
    let output = expect_status(gputrace().args(["analyze", "--json"]).arg(folder().join(name)), 0);
    let analysis: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(analysis["ranks"].as_array().expect("ranks").len(), 1);
    (expected, analysis["ranks"][0].clone())
}

/// Nanoseconds of microseconds with at most three decimals.
fn ns(microseconds: &Value) -> i64 {
    (microseconds.as_f64().expect("a number") * 1000.0).round() as i64
}

fn list(value: &Value) -> &[Value] {
    value.as_array().expect("a list")
}

/// The members of a row.
fn members<const N: usize>(row: &Value, names: [&str; N]) -> [i64; N] {
    names.map(|name| row[name].as_i64().unwrap_or_else(|| panic!("{name} of {row}")))
}

/// Rows by what names them.
fn by<K: Eq + std::hash::Hash>(rows: &Value, key: impl Fn(&Value) -> K) -> HashMap<K, &Value> {
    let rows = list(rows);
    let found: HashMap<K, &Value> = rows.iter().map(|row| (key(row), row)).collect();
    assert_eq!(found.len(), rows.len(), "two rows of one name");
    found
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

#[test]
fn operators_launched_what_they_launched_to_the_nanosecond() {
    for trace in TRACES {
        let (expected, rank) = both(trace);
        let operators = by(&rank["operators"], |row| text(&row["name"]));
        assert_eq!(operators.len(), list(&expected["ops"]).len(), "{trace}");
        for row in list(&expected["ops"]) {
            let found = operators[row[0].as_str().expect("a name")];
            assert_eq!(
                members(
                    found,
                    [
                        "calls",
                        "kernels",
                        "direct_ns",
                        "subtree_ns",
                        "host_self_ns",
                        "host_total_ns"
                    ]
                ),
                [
                    row[1].as_i64().unwrap(),
                    row[3].as_i64().unwrap(),
                    ns(&row[4]),
                    ns(&row[5]),
                    ns(&row[6]),
                    ns(&row[7])
                ],
                "{trace}: {row}"
            );
        }
        let shapes = by(&rank["shapes"], |row| {
            [&row["name"], &row["input_dims"], &row["input_types"]].map(text)
        });
        for row in list(&expected["shapes"]) {
            let key = [0, 1, 2].map(|column| text(&row[column]));
            assert_eq!(
                members(shapes[&key], ["calls", "direct_ns", "subtree_ns"]),
                [row[3].as_i64().unwrap(), ns(&row[5]), ns(&row[6])],
                "{trace}: {row}"
            );
        }
    }
}

#[test]
fn all_time_of_the_gpu_is_somebodys_or_said_to_be_nobodys() {
    for trace in TRACES {
        let (expected, rank) = both(trace);
        let unattributed = &rank["unattributed"];
        let [all, no_operator, graph, not_recorded, no_stack] = members(
            unattributed,
            [
                "operations_ns",
                "no_operator_ns",
                "graph_ns",
                "launch_not_recorded_ns",
                "no_stack_ns",
            ],
        );
        let us = &expected["us"];
        assert_eq!(
            [all, no_operator, graph, not_recorded],
            [
                ns(&us["gpu"]),
                ns(&us["no_op"]),
                ns(&us["graph"]),
                ns(&us["no_launch"])
            ],
            "{trace}"
        );
        let sum = |rows: &Value, member: &str| -> i64 {
            list(rows).iter().map(|row| members(row, [member])[0]).sum()
        };
        assert_eq!(sum(&rank["kernels"], "total_ns"), all, "{trace}");
        assert_eq!(
            sum(&rank["operators"], "direct_ns") + no_operator + not_recorded,
            all,
            "{trace}"
        );
        assert_eq!(
            sum(&rank["shapes"], "direct_ns") + no_operator + not_recorded,
            all,
            "{trace}"
        );
        assert_eq!(
            sum(&rank["stacks"], "direct_ns") + no_stack + not_recorded,
            all,
            "{trace}"
        );
    }
}

#[test]
fn products_have_the_work_of_their_shapes() {
    for trace in TRACES {
        let (expected, rank) = both(trace);
        let all = list(&rank["products"]);
        let of_matrices: Vec<&Value> = all.iter().filter(|row| row["m"].is_number()).collect();
        assert_eq!(of_matrices.len(), list(&expected["gemm"]).len(), "{trace}");
        for row in list(&expected["gemm"]) {
            let size = |found: &Value| ["batch", "m", "n", "k"].map(|name| found[name].clone());
            let found = of_matrices.iter().find(|found| {
                found["name"] == row[0]
                    && size(found) == [1, 2, 3, 4].map(|column| row[column].clone())
                    && text(&found["dtype"]).split(' ').next() == row[5].as_str()
            });
            let found = found.unwrap_or_else(|| panic!("{trace}: {row}"));
            assert_eq!(
                members(found, ["calls", "flops", "time_ns"]),
                [row[6].as_i64().unwrap(), row[7].as_i64().unwrap(), ns(&row[8])],
                "{trace}: {row}"
            );
            let rate = found["flops_per_second"].as_f64().unwrap() / 1e12;
            assert!(
                (rate - row[9].as_f64().unwrap()).abs() < 0.001,
                "{trace}: {row}: {rate}"
            );
        }
    }
}

#[test]
fn modules_have_forward_recomputed_and_backward_time() {
    for trace in TRACES {
        let (expected, rank) = both(trace);
        let modules = by(&rank["modules"], |row| text(&row["name"]));
        assert_eq!(modules.len(), list(&expected["modules"]).len(), "{trace}");
        for row in list(&expected["modules"]) {
            let mut wanted = vec![row[1].as_i64().unwrap()];
            wanted.extend((2..8).map(|column| ns(&row[column])));
            let found = members(
                modules[row[0].as_str().expect("a name")],
                [
                    "calls",
                    "forward_self_ns",
                    "forward_ns",
                    "recompute_self_ns",
                    "recompute_ns",
                    "backward_self_ns",
                    "backward_ns",
                ],
            );
            assert_eq!(found.as_slice(), wanted, "{trace}: {row}");
        }
        for (place, module) in list(&rank["modules"]).iter().enumerate() {
            let parent = module["parent"].as_u64();
            assert!(
                parent.is_none_or(|parent| (parent as usize) < place),
                "{trace}: {module}"
            );
        }
    }
}

#[test]
fn each_table_is_printed_alone() {
    for (by, line) in [
        ("operator", "aten::convolution"),
        ("shape", "[[10, 64, 56, 56]"),
        ("product", "aten::addmm"),
        ("module", "CheckpointWrapper_0"),
        ("class", "BasicBlock"),
        ("stack", "train_ddp.py(180): main"),
        ("kernel", "ncclDevKernel"),
    ] {
        let trace = folder().join("mi300_resnet_ac");
        let output = expect_status(gputrace().args(["analyze", "--by", by]).arg(trace), 0);
        let text = String::from_utf8(output.stdout).expect("text");
        assert!(text.contains(line), "--by {by}: no {line} in\n{text}");
    }
    // A recording without operators has nothing to put together so.
    let recording = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/straggler/ST");
    let output = expect_status(gputrace().args(["analyze", "--by", "operator"]).arg(recording), 2);
    let text = String::from_utf8(output.stderr).expect("text");
    assert!(text.contains("record_shapes"), "{text}");
}

/// The analysis of a trace of these events.
fn analysis_of(events: &[String]) -> Value {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("trace.json");
    std::fs::write(&file, format!("{{\"traceEvents\": [{}]}}", events.join(",\n"))).expect("written");
    let output = expect_status(gputrace().args(["analyze", "--json"]).arg(&file), 0);
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn host(category: &str, name: &str, tid: u32, (ts, dur): (i64, i64), args: &str) -> String {
    format!(
        r#"{{"ph":"X","cat":"{category}","name":"{name}","pid":1,"tid":{tid},"ts":{ts},"dur":{dur},"args":{{{args}}}}}"#
    )
}

/// A call and the kernel that it launches.
fn launch(tid: u32, at: i64, correlation: u32, kernel_us: i64) -> [String; 2] {
    let args = format!(r#""correlation":{correlation}"#);
    let kernel = format!(
        r#"{{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":{},"dur":{kernel_us},"args":{{"device":0,"stream":7,{args}}}}}"#,
        at + 1000
    );
    [
        host("cuda_runtime", "cudaLaunchKernel", tid, (at, 2), &args),
        kernel,
    ]
}

#[test]
fn shapes_come_as_texts_close_or_wide_and_of_what_is_no_tensor() {
    let dims = [
        r#""Input Dims": [[2,3],[3,4]]"#,
        r#""Input Dims": [ [2, 3],
             [3, 4] ]"#,
        r#""Input Dims": "[[2, 3], [3, 4]]""#,
        // Lists of lists, a number where a tensor belongs, no list at all, and what is no JSON.
        r#""Input Dims": [[[2, 3], [3, 4]], 5]"#,
        r#""Input Dims": 5, "Input type": {"a": 1}"#,
        r#""Input Dims": [["x", -3], [3, 4.5]]"#,
    ];
    let mut events = Vec::new();
    for (place, dims) in (0..).zip(dims) {
        let at = 100 * place;
        events.push(host("cpu_op", "aten::mm", 1, (at, 50), dims));
        events.extend(launch(1, at + 10, place as u32 + 1, 10));
    }
    // It ends before it begins, and so is left out and counted.
    events.push(host("cpu_op", "aten::mm", 1, (700, -5), ""));
    let analysis = analysis_of(&events);
    let rank = &analysis["ranks"][0];
    assert_eq!(
        members(&rank["operators"][0], ["calls", "kernels", "direct_ns"]),
        [6, 6, 60_000]
    );
    let same = list(&rank["shapes"])
        .iter()
        .find(|row| row["input_dims"] == "[[2, 3], [3, 4]]");
    let same = same.expect("the three that say the same");
    // 2 x 2 x 4 x 3, three times, in 30 us.
    assert_eq!(members(same, ["calls", "direct_ns", "flops"]), [3, 30_000, 144]);
    assert_eq!(list(&rank["shapes"]).len(), 4);
    let others = list(&rank["shapes"]).iter().filter(|row| row["flops"].is_null());
    assert_eq!(others.count(), 3);
    assert!(!list(&analysis["losses"]).is_empty());
}

#[test]
fn frames_ten_thousand_deep_and_one_that_never_returns() {
    const DEEP: i64 = 10_000;
    let mut events = Vec::new();
    for depth in 0..DEEP {
        let name = format!("f.py({depth}): f");
        events.push(host(
            "python_function",
            &name,
            1,
            (depth, 100_000 - 2 * depth),
            "",
        ));
    }
    // A frame that never returned outlives all; operators are no part of the frames' nesting.
    events.push(host("python_function", "g.py(1): g", 2, (0, 1_000_000), ""));
    events.push(host("cpu_op", "aten::add", 1, (DEEP - 5, 100), ""));
    events.extend(launch(1, DEEP + 1, 1, 10));
    events.extend(launch(2, DEEP + 1, 2, 5));
    let analysis = analysis_of(&events);
    let rank = &analysis["ranks"][0];
    let stacks = list(&rank["stacks"]);
    assert_eq!(stacks.len() as i64, DEEP + 1);
    let deepest = stacks
        .iter()
        .find(|row| row["name"] == format!("f.py({}): f", DEEP - 1));
    assert_eq!(
        members(deepest.expect("the deepest"), ["direct_ns", "subtree_ns"]),
        [10_000, 10_000]
    );
    assert_eq!(members(&stacks[0], ["direct_ns", "subtree_ns"]), [0, 10_000]);
    assert_eq!(rank["unattributed"]["no_stack_ns"], 0);
}

/// Two processes of a file have threads of one number, as each container counts from 1.
#[test]
fn threads_of_two_processes_with_one_id_are_not_mixed_up() {
    let other = |event: String| event.replace("\"pid\":1,", "\"pid\":2,");
    let mut events = Vec::new();
    // Both are in an operator for the same time, and each launches.
    events.push(host("cpu_op", "aten::mm", 7, (0, 100), ""));
    events.push(other(host("cpu_op", "aten::add", 7, (5, 90), "")));
    events.push(host("python_function", "nn.Module: Linear_0", 7, (0, 200), ""));
    events.extend(launch(7, 10, 1, 10));
    events.extend(launch(7, 20, 2, 30).map(other));
    // Of the first alone: within what only the second is in.
    events.push(other(host("cpu_op", "aten::relu", 7, (110, 20), "")));
    events.extend(launch(7, 115, 3, 7));
    let analysis = analysis_of(&events);
    let rank = &analysis["ranks"][0];
    let operators = by(&rank["operators"], |row| text(&row["name"]));
    let measures = |name: &str| members(operators[name], ["kernels", "direct_ns", "host_self_ns"]);
    assert_eq!(measures("aten::mm"), [1, 10_000, 100_000]);
    assert_eq!(measures("aten::add"), [1, 30_000, 90_000]);
    assert_eq!(measures("aten::relu"), [0, 0, 20_000]);
    assert_eq!(rank["unattributed"]["no_operator_ns"], 7_000);
    assert_eq!(members(&rank["modules"][0], ["forward_ns"]), [17_000]);
    assert_eq!(rank["unattributed"]["no_module_ns"], 30_000);
}
