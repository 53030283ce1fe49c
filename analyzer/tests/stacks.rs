//! Native stacks of launches, alone and below Python's functions, computed by hand.

use crate::support;

use gputrace_analyzer::{Options, RankAnalysis, analyze};
use gputrace_trace::tables::{LaunchStack, PythonFrame, StackFrame};
use gputrace_trace::{DurationNs, Table, TimeNs};
use proptest::prelude::*;
use support::Build;

const NOBODY: Option<&str> = None;

/// A frame: its number, its caller's, its function in a library of that name, and the address.
fn frame(
    build: &mut Build,
    number: u32,
    parent: Option<u32>,
    function: Option<&str>,
    object: Option<&str>,
    address: u64,
) {
    let names = &mut build.recording.names;
    let row = StackFrame {
        frame: number,
        parent,
        function: function.map(|name| names.intern(name)),
        object: object.map(|name| names.intern(&format!("/usr/lib/{name}"))),
        address,
        build_id: None,
    };
    build.recording.processes[0].tables.stack_frames.push(row);
}

fn launch(build: &mut Build, correlation: u32, frame: u32) {
    build.recording.processes[0]
        .tables
        .launch_stacks
        .push(LaunchStack {
            correlation,
            frame,
            ..LaunchStack::default()
        });
}

fn python(build: &mut Build, name: &str, start: i64, end: i64) {
    let name = build.recording.names.intern(name);
    build.recording.processes[0]
        .tables
        .python_frames
        .push(PythonFrame {
            start_ns: TimeNs(start),
            duration_ns: DurationNs(end - start),
            name,
            ..PythonFrame::default()
        });
}

/// main calls the interpreter, which calls mm (twice, by two ways of it) and something without a name; a thread calls mm, too.
fn tree(build: &mut Build) {
    frame(build, 10, None, Some("main"), Some("python3"), 0x100);
    frame(
        build,
        11,
        Some(10),
        Some("_PyEval_EvalFrameDefault"),
        Some("libpython.so"),
        0x200,
    );
    frame(
        build,
        12,
        Some(11),
        Some("_ZN2at4_ops2mm4callERKNS_6TensorES4_"),
        Some("libtorch.so"),
        0x300,
    );
    frame(build, 13, Some(11), NOBODY, Some("libtorch.so"), 0x1a40);
    frame(build, 20, None, NOBODY, None, 0);
    frame(
        build,
        21,
        Some(20),
        Some("_ZN2at4_ops2mm4callERKNS_6TensorES4_"),
        Some("libtorch.so"),
        0x300,
    );
    frame(build, 22, Some(21), NOBODY, None, 0x7f00_0000);
}

/// A kernel of so many nanoseconds whose call begins then.
fn run(build: &mut Build, correlation: u32, at: i64, takes: i64) {
    build.call(at, at + 5, correlation);
    let start = 10_000 + at;
    build.kernel(0, "kernel", 7, start, start + takes, correlation);
}

/// Each stack's path with its kernels, own time and time with callees.
fn paths(rank: &RankAnalysis) -> Vec<(String, u64, i64, i64)> {
    let stacks = &rank.attribution.stacks;
    let mut names: Vec<String> = Vec::new();
    for stack in stacks {
        let above = stack
            .parent
            .map_or(String::new(), |parent| format!("{} > ", names[parent]));
        names.push(above + &stack.name);
    }
    let rows = stacks.iter().zip(names);
    rows.map(|(stack, name)| (name, stack.kernels, stack.direct_ns, stack.subtree_ns))
        .collect()
}

#[test]
fn native_functions_are_a_tree_and_what_has_none_is_said() {
    let mut build = Build::new(1);
    tree(&mut build);
    for (correlation, at, takes, leaf) in [
        (1, 0, 100, 12),
        (2, 100, 20, 12),
        (3, 200, 3, 13),
        (4, 300, 7, 22),
        (5, 400, 1000, 99),
    ] {
        run(&mut build, correlation, at, takes);
        launch(&mut build, correlation, leaf);
    }
    run(&mut build, 6, 5000, 50);
    build.kernel(0, "no call", 7, 20_000, 20_009, 77);
    launch(&mut build, 77, 12);
    let analysis = analyze(&build.recording, &Options::default());
    let rank = &analysis.ranks[0];
    let mm = "at::_ops::mm::call [libtorch.so]";
    let eval = "main [python3] > _PyEval_EvalFrameDefault [libpython.so]";
    let expected = [
        ("main [python3]".to_owned(), 0, 0, 123),
        (eval.to_owned(), 0, 0, 123),
        (format!("{eval} > {mm}"), 2, 120, 120),
        (format!("{eval} > libtorch.so+0x1a40"), 1, 3, 3),
        ("(callers further out)".to_owned(), 0, 0, 7),
        (format!("(callers further out) > {mm}"), 0, 0, 7),
        (
            format!("(callers further out) > {mm} > (code made at run time)"),
            1,
            7,
            7,
        ),
    ];
    assert_eq!(paths(rank), expected);
    let unattributed = rank.attribution.unattributed.expect("some");
    // A stack that is not there, and none at all; a call that is not recorded.
    assert_eq!(
        (unattributed.no_stack_ns, unattributed.launch_not_recorded_ns),
        (1050, 9)
    );
    assert_eq!(unattributed.operations_ns, 123 + 7 + 1050 + 9);
    assert_eq!(unattributed.no_module_ns, 123 + 7 + 1050);
}

#[test]
fn below_a_function_of_python_stands_what_it_called() {
    let mut build = Build::new(1);
    tree(&mut build);
    python(&mut build, "train.py(1): main", 0, 1000);
    python(&mut build, "train.py(5): step", 100, 200);
    for (correlation, at, takes, leaf) in [
        (1, 50, 100, 12),
        (2, 150, 20, 12),
        (3, 160, 3, 11),
        (4, 170, 5, 22),
        (5, 2000, 9, 12),
    ] {
        run(&mut build, correlation, at, takes);
        launch(&mut build, correlation, leaf);
    }
    run(&mut build, 6, 180, 2);
    let analysis = analyze(&build.recording, &Options::default());
    let (main, step, mm) = (
        "train.py(1): main",
        "train.py(1): main > train.py(5): step",
        "at::_ops::mm::call [libtorch.so]",
    );
    let found = paths(&analysis.ranks[0]);
    let of = |path: &str| {
        found
            .iter()
            .find(|row| row.0 == path)
            .map(|row| (row.1, row.2, row.3))
    };
    assert_eq!(of(main), Some((0, 0, 130)));
    assert_eq!(of(&format!("{main} > {mm}")), Some((1, 100, 100)));
    // One straight from the interpreter, one without a native stack.
    assert_eq!(of(step), Some((2, 5, 30)));
    assert_eq!(of(&format!("{step} > {mm}")), Some((1, 20, 20)));
    // A stack without the interpreter stands there whole.
    assert_eq!(
        of(&format!("{step} > (callers further out) > {mm}")),
        Some((0, 0, 5))
    );
    // Outside of all functions of Python it is native alone.
    assert_eq!(of("main [python3]"), Some((0, 0, 9)));
    let sum: i64 = found.iter().map(|row| row.2).sum();
    assert_eq!(
        sum,
        analysis.ranks[0]
            .attribution
            .unattributed
            .expect("some")
            .operations_ns
    );
}

proptest! {
    #[test]
    fn whatever_the_rows_say_the_parts_are_all_gpu_time(
        frames in proptest::collection::vec((0u32..12, proptest::option::of(0u32..12), 0u32..4), 0..20),
        launches in proptest::collection::vec((0u32..9, 0u32..12), 0..12),
        kernels in proptest::collection::vec((0u32..9, 1i64..100), 1..12),
        calls in proptest::collection::vec((0u32..9, 0i64..400), 0..12),
        functions in proptest::collection::vec((0i64..400, 1i64..200), 0..4),
    ) {
        let mut build = Build::new(1);
        for (number, parent, function) in frames {
            let names = [None, Some("f"), Some("_PyEval_EvalFrameDefault"), Some("g")];
            frame(&mut build, number, parent, names[function as usize], Some("a.so"), 5);
        }
        for (correlation, leaf) in launches {
            launch(&mut build, correlation, leaf);
        }
        for (place, (correlation, takes)) in kernels.iter().enumerate() {
            let start = 1000 * place as i64;
            build.kernel(0, "kernel", 7, start, start + takes, *correlation);
        }
        for (correlation, at) in calls {
            build.call(at, at + 5, correlation);
        }
        for (start, takes) in functions {
            python(&mut build, "a.py(1): f", start, start + takes);
        }
        let analysis = analyze(&build.recording, &Options::default());
        let attribution = &analysis.ranks[0].attribution;
        if let Some(unattributed) = attribution.unattributed {
            let own: i64 = attribution.stacks.iter().map(|stack| stack.direct_ns).sum();
            let all: i64 = kernels.iter().map(|(_, takes)| takes).sum();
            prop_assert_eq!(unattributed.operations_ns, all);
            prop_assert_eq!(own + unattributed.no_stack_ns + unattributed.launch_not_recorded_ns, all);
            let outermost = attribution.stacks.iter().filter(|stack| stack.parent.is_none());
            prop_assert_eq!(outermost.map(|stack| stack.subtree_ns).sum::<i64>(), own);
        } else {
            prop_assert!(attribution.stacks.is_empty());
        }
    }
}
