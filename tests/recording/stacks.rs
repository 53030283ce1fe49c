//! Stacks of launches (`--kinds +stacks`): which functions of the host launched what, in our own recordings.

use std::collections::BTreeMap;
use std::path::Path;

use crate::common;
use common::http::view;
use common::programs::{Case, Recorded, compiled, compiled_with};
use common::{analysis, expect_status, fresh_folder, gputrace, stdout};
use serde_json::Value;

fn stacks(arguments: &[&str]) -> Case {
    Case::new(compiled("stacks"), arguments).options(&["--kinds", "+stacks"])
}

fn number(value: &Value) -> i64 {
    value.as_i64().expect("a number")
}

/// Operations by their stacks, outermost first, of the one device of a recording. Whatever there is, its parts are all GPU time.
#[track_caller]
fn by_stack(folder: &Path) -> BTreeMap<Vec<String>, i64> {
    let analysis = analysis(folder);
    let [rank] = &analysis["ranks"].as_array().expect("ranks")[..] else {
        panic!("one rank");
    };
    let rows = rank["stacks"].as_array().expect("stacks");
    let sum = |member: &str| rows.iter().map(|row| number(&row[member])).sum::<i64>();
    let unattributed = &rank["unattributed"];
    let of = |part: &str| unattributed[part].as_i64().unwrap_or(0);
    assert_eq!(
        sum("direct_ns") + of("no_stack_ns") + of("launch_not_recorded_ns"),
        of("operations_ns")
    );
    let mut paths: Vec<Vec<String>> = Vec::new();
    let mut found = BTreeMap::new();
    for (place, row) in rows.iter().enumerate() {
        let mut path = row["parent"].as_u64().map_or_else(Vec::new, |parent| {
            assert!((parent as usize) < place, "callers come first");
            paths[parent as usize].clone()
        });
        path.push(row["name"].as_str().expect("a name").to_owned());
        if number(&row["kernels"]) > 0 {
            *found.entry(path.clone()).or_default() += number(&row["kernels"]);
        }
        paths.push(path);
    }
    // What was called in a function is within its own sum.
    let mut within = vec![0; rows.len()];
    for row in rows {
        if let Some(parent) = row["parent"].as_u64() {
            within[parent as usize] += number(&row["subtree_ns"]);
        }
    }
    for (row, within) in rows.iter().zip(within) {
        assert_eq!(number(&row["subtree_ns"]), number(&row["direct_ns"]) + within);
    }
    found
}

/// How many operations were launched under a function of the program, with that one below it.
fn under(found: &BTreeMap<Vec<String>, i64>, functions: &[&str]) -> i64 {
    let is_under = |path: &&Vec<String>| {
        let mut rest = path.iter();
        functions.iter().all(|function| {
            let name = format!("{function} [stacks]");
            rest.any(|one| *one == name || one.starts_with(&format!("{function} [lib")))
        })
    };
    let paths = found.keys().filter(is_under);
    paths.map(|path| found[path]).sum()
}

#[track_caller]
fn assert_whole(recorded: &Recorded) {
    assert!(recorded.recording.losses.is_empty(), "{}", recorded.told());
    let tables = &recorded.process().tables;
    let mut launched: Vec<u32> = tables.launch_stacks.correlation.clone();
    launched.sort_unstable();
    let operations = tables
        .kernels
        .correlation
        .iter()
        .chain(&tables.copies.correlation);
    for correlation in operations {
        assert!(
            launched.binary_search(correlation).is_ok(),
            "{correlation} has no stack"
        );
    }
}

#[test]
fn each_function_has_what_it_launched() {
    let recorded = stacks(&["sites"]).check(0);
    assert_whole(&recorded);
    let found = by_stack(&recorded.folder);
    assert_eq!(under(&found, &["main", "first_site", "inner"]), 6, "{found:#?}");
    assert_eq!(under(&found, &["main", "second_site", "inner"]), 5);
    assert_eq!(under(&found, &["main", "second_site"]), 6);
    // What lies between the program and the device is nobody's frame.
    let is_of_cuda = |name: &&String| {
        ["libcuda", "libcupti", "collector"]
            .iter()
            .any(|part| name.contains(part))
    };
    let innermost: Vec<&String> = found.keys().filter_map(|path| path.last()).collect();
    assert_eq!(innermost.iter().find(|name| is_of_cuda(name)), None);
    // Two calls of one function are one stack.
    let tables = &recorded.process().tables;
    assert!(
        tables.stack_frames.frame.len() < 20,
        "{:?}",
        tables.stack_frames.frame.len()
    );
    let mut command = gputrace();
    command
        .arg("analyze")
        .arg(&recorded.folder)
        .args(["--by", "stack"]);
    let table = stdout(&expect_status(&mut command, 0));
    assert!(table.contains("second_site [stacks]"), "{table}");
}

#[test]
fn without_the_kind_nothing_of_it_is_there() {
    let recorded = Case::new(compiled("stacks"), &["sites"]).check(0);
    let process = recorded.process();
    assert_eq!(
        (
            process.tables.stack_frames.frame.len(),
            process.tables.launch_stacks.frame.len()
        ),
        (0, 0)
    );
    let cost = process.header.collector.as_ref().expect("what it cost");
    // CUPTI was not asked to call at launches.
    assert_eq!(cost.callbacks.get("stacks").map_or(0, |stacks| stacks.calls), 0);
    let mut command = gputrace();
    command.args(["record", "--kinds", "kernels,stacks", "--", "true"]);
    let told = common::stderr(&expect_status(&mut command, 2));
    assert!(told.contains("record calls, too"), "{told}");
}

#[test]
fn a_deep_recursion_is_cut_and_says_so() {
    let recorded = stacks(&["deep", "10000"]).check(0);
    assert_whole(&recorded);
    let found = by_stack(&recorded.folder);
    let deep: Vec<&Vec<String>> = found
        .keys()
        .filter(|path| path[0] == "(callers further out)")
        .collect();
    assert_eq!(deep.len(), 1, "{found:#?}");
    assert!(deep[0].iter().filter(|name| *name == "deep [stacks]").count() > 100);
    assert_eq!(
        deep[0]
            .last()
            .map(|name| name.starts_with("gpu_launch") || name.starts_with("inner")),
        Some(true)
    );
}

#[test]
fn a_program_without_symbols_has_addresses() {
    let program = compiled_with("stacks", &["-s"]);
    let recorded = Case::new(program, &["sites"])
        .options(&["--kinds", "+stacks"])
        .check(0);
    assert_whole(&recorded);
    let found = by_stack(&recorded.folder);
    assert_eq!(under(&found, &["main"]), 0);
    let of_program = found
        .keys()
        .filter_map(|path| path.last())
        .filter(|name| name.starts_with("stacks+0x"));
    assert!(of_program.count() > 1, "{found:#?}");
    let frames = &recorded.process().tables.stack_frames;
    assert!(frames.object.iter().all(Option::is_some));
}

#[test]
fn threads_with_small_stacks_and_many_at_once() {
    let small = stacks(&["small"]).check(0);
    assert_whole(&small);
    assert_eq!(under(&by_stack(&small.folder), &["on_thread", "inner"]), 8);
    common::schedule::computes();
    let many = stacks(&["threads", "16", "200"]).check(0);
    let (found, tables) = (by_stack(&many.folder), &many.process().tables);
    // A thread that met another at a new stack goes without, which is told.
    let without: u64 = many.recording.losses.iter().filter_map(|loss| loss.count).sum();
    assert_eq!(tables.kernels.correlation.len(), 3200);
    assert_eq!(
        under(&found, &["on_thread", "inner"]) as u64 + without,
        3200,
        "{}",
        many.told()
    );
    assert!(without < 320, "{}", many.told());
}

#[test]
fn libraries_that_take_each_others_place_are_told_apart() {
    let library = |name: &str| compiled_with("stacks", &["-shared", "-fPIC", &format!("-DLIBRARY={name}")]);
    let (first, second) = (library("first_library"), library("second_library"));
    let recorded = stacks(&[
        "library",
        first.to_str().expect("text"),
        second.to_str().expect("text"),
        "2",
    ])
    .check(0);
    assert_whole(&recorded);
    let found = by_stack(&recorded.folder);
    let under = |function: &str| under(&found, &["through", function, "inner"]);
    assert_eq!(
        (under("first_library"), under("second_library")),
        (2, 2),
        "{found:#?}"
    );
}

#[test]
fn signal_handlers_and_children() {
    let signal = stacks(&["signal"]).check(0);
    assert_whole(&signal);
    let found = by_stack(&signal.folder);
    // Through the frame that the kernel makes.
    assert_eq!(under(&found, &["main", "handler", "inner"]), 6, "{found:#?}");
    let forked = stacks(&["fork"]).check(0);
    assert_whole(&forked);
    let found = by_stack(&forked.folder);
    assert_eq!(
        (under(&found, &["first_site"]), under(&found, &["second_site"])),
        (3, 6)
    );
}

/// A program in Python with our package.
fn in_python(kinds: &[&str]) -> Recorded {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let path = std::env::join_paths([root.join("python"), root.join("tests/programs")]).expect("paths");
    Case::new("python3", &[root.join("tests/nvtx/functions.py")])
        .env("PYTHONPATH", path)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .options(kinds)
        .check(0)
}

/// Operations by the innermost functions of their stacks, each as the page's details say it.
fn innermost_on_the_page(folder: &Path) -> BTreeMap<String, i64> {
    let viewer = view(&[folder]);
    let name = folder.file_name().and_then(|name| name.to_str()).expect("a name");
    let base = viewer.base(&viewer.id(name));
    let rows = viewer.json(&format!("{base}/rows"));
    let mut found = BTreeMap::new();
    for row in rows["rows"].as_array().expect("rows") {
        for index in 0..row["slices"]
            .as_u64()
            .filter(|_| row["what"] == "stream")
            .unwrap_or(0)
        {
            let slice = viewer.json(&format!("{base}/slice?row={}&index={index}", row["row"]));
            let by = &slice["launched_by"];
            assert!(
                by["native_frames"].as_u64().is_some_and(|native| native > 1),
                "{by}"
            );
            let innermost = by["stack"][0].as_str().expect("a function");
            *found.entry(innermost.to_owned()).or_default() += 1;
        }
    }
    found
}

#[test]
fn details_of_each_operation_name_its_stack() {
    for recorded in [stacks(&["sites"]).check(0), in_python(&["--kinds", "+stacks"])] {
        let mut expected = BTreeMap::new();
        for (path, operations) in by_stack(&recorded.folder) {
            *expected
                .entry(path.last().expect("a function").clone())
                .or_default() += operations;
        }
        assert_eq!(innermost_on_the_page(&recorded.folder), expected);
    }
}

#[test]
fn functions_of_python_hold_the_native_ones_that_they_call() {
    let python = in_python(&[]);
    let both = in_python(&["--kinds", "+stacks"]);
    for (recorded, is_native) in [(&python, false), (&both, true)] {
        let found = by_stack(&recorded.folder);
        let under = |functions: &[&str]| -> i64 {
            let is_function = |frame: &str, function: &str| {
                frame.contains("nvtx/functions.py(") && frame.ends_with(&format!("): {function}"))
            };
            let is_under = |path: &&Vec<String>| {
                let mut rest = path.iter();
                (functions.iter()).all(|function| rest.any(|one| is_function(one, function)))
            };
            found.keys().filter(is_under).map(|path| found[path]).sum()
        };
        let whole = format!("{found:#?}");
        assert_eq!(under(&["main", "first", "launch"]), 6, "{whole}");
        assert_eq!(under(&["on_thread", "first"]), 3, "{whole}");
        let deep = ["main", "second", "second", "second", "second", "launch"];
        assert_eq!(under(&deep), 5, "{whole}");
        assert_eq!(under(&["main", "generator"]), 10, "{whole}");
        assert_eq!(under(&["main", "raises", "launch"]), 2, "{whole}");
        // Below Python's innermost function are only those that it called: none of the interpreter that ran it.
        let is_native_frame = |name: &String| name.contains(" [");
        let native = found
            .keys()
            .filter(|path| path.iter().any(is_native_frame))
            .count();
        assert_eq!(native > 0, is_native, "{whole}");
        for path in found
            .keys()
            .filter(|path| path.iter().any(|name| name.contains("nvtx/functions.py(")))
        {
            assert!(
                !path.iter().any(|name| name.starts_with("_PyEval_EvalFrame")),
                "{path:?}"
            );
        }
    }
}

#[test]
fn more_stacks_than_there_is_room_for_are_counted() {
    common::schedule::computes();
    let recorded = stacks(&["many", "15"]).check(0);
    let tables = &recorded.process().tables;
    let lost: u64 = recorded
        .recording
        .losses
        .iter()
        .filter_map(|loss| loss.count)
        .sum();
    // Or beyond those that the writer comes to, where the machine is busy.
    assert!(recorded.tells("stacks"), "{}", recorded.told());
    let copies = 2;
    assert_eq!(
        tables.launch_stacks.frame.len() as u64 + lost,
        (1 << 15) + copies,
        "{}",
        recorded.told()
    );
    assert!(!tables.launch_stacks.frame.is_empty());
    by_stack(&recorded.folder);
}

#[test]
fn bundled_workloads_name_their_functions_and_exports_keep_them() {
    common::schedule::computes();
    let (_keep, folder) = fresh_folder("recording");
    let mut command = gputrace();
    command.args(["record", "--quiet", "--device", "sim", "--kinds", "+stacks", "-o"]);
    command
        .arg(&folder)
        .args(["--", "workload", "ddp", "--ranks", "1", "--steps", "3"]);
    expect_status(&mut command, 0);
    let found = by_stack(&folder);
    let forward = |path: &&Vec<String>| path.iter().any(|name| name.starts_with("workloads::"));
    assert!(found.keys().any(|path| forward(&path)), "{found:#?}");
    let chrome = folder.with_extension("json");
    let mut command = gputrace();
    command
        .arg("export")
        .arg(&folder)
        .args(["--format", "chrome", "-o"])
        .arg(&chrome);
    expect_status(&mut command, 0);
    assert_eq!(by_stack(&chrome), found);
}
