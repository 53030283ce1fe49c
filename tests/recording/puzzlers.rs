//! The communication puzzlers: their tables against formulas and definitions, and the answers they are there to give.

use crate::common;

use common::{analysis, expect_status, fresh_folder, gputrace, one_line, record_workload, stdout};
use serde_json::Value;

/// A workload's JSON, run on the stand-in with these settings.
#[track_caller]
fn json_of(settings: &[(&str, &str)], arguments: &[&str]) -> Value {
    // Simulated GPUs are computed by this machine's processors, and these tests look at times.
    common::schedule::alone();
    let mut command = gputrace();
    for (key, value) in settings {
        command.env(format!("SIMGPU_{key}"), value);
    }
    let output = expect_status(command.arg("workload").args(arguments).arg("--json"), 0);
    let text = stdout(&output);
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}:\n{text}"))
}

fn list<'a>(value: &'a Value, member: &str) -> &'a Vec<Value> {
    value[member]
        .as_array()
        .unwrap_or_else(|| panic!("no list {member} in {value}"))
}

#[track_caller]
fn number(value: &Value, member: &str) -> f64 {
    value[member]
        .as_f64()
        .unwrap_or_else(|| panic!("no number {member} in {value}"))
}

#[track_caller]
fn assert_near(one: f64, other: f64, what: &str) {
    // Values are printed to six places.
    assert!(
        (one - other).abs() <= 2e-6 + 1e-4 * other.abs(),
        "{what}: {one} against {other}"
    );
}

/// What the bus carries of each byte of the algorithm's, by nccl-tests' PERFORMANCE.md, on `n` ranks.
fn bus_factor(operation: &str, n: f64) -> f64 {
    match operation {
        "all_reduce" | "reduce_broadcast" | "reduce_scatter_all_gather" => 2.0 * (n - 1.0) / n,
        "all_gather" | "reduce_scatter" | "all_to_all" | "scatter" | "gather" => (n - 1.0) / n,
        "broadcast" | "reduce" | "sendrecv" => 1.0,
        other => panic!("{other} is no operation"),
    }
}

#[test]
fn every_collective_is_right_and_its_bandwidths_follow_from_its_time() {
    let arguments = [
        "collectives",
        "--ranks",
        "3",
        "--root",
        "1",
        "--min-bytes",
        "1K",
        "--max-bytes",
        "16K",
        "--factor",
        "4",
        "--iterations",
        "2",
    ];
    let result = json_of(&[], &arguments);
    let rows = list(&result, "rows");
    // Eleven operations at 1, 4 and 16 KiB.
    assert_eq!(rows.len(), 33, "{result}");
    for row in rows {
        let operation = row["operation"].as_str().expect("a name");
        for place in ["out_of_place", "in_place"] {
            let measure = &row[place];
            let unchecked = place == "in_place" && ["all_to_all", "sendrecv"].contains(&operation);
            assert_eq!(measure["wrong"].as_u64(), (!unchecked).then_some(0), "{row}");
            let time_us = number(measure, "time_us");
            assert!(time_us > 1.0, "{row}");
            let algorithm = number(row, "size_bytes") / time_us / 1e3;
            assert_near(number(measure, "algbw_gb_s"), algorithm, operation);
            let bus = number(measure, "busbw_gb_s");
            assert_near(bus, algorithm * bus_factor(operation, 3.0), operation);
        }
    }
    for (operation, average) in result["avg_busbw_gb_s"].as_object().expect("averages") {
        let of_operation: Vec<f64> = rows
            .iter()
            .filter(|row| row["operation"] == operation.as_str())
            .flat_map(|row| ["out_of_place", "in_place"].map(|place| number(&row[place], "busbw_gb_s")))
            .collect();
        let mean = of_operation.iter().sum::<f64>() / of_operation.len() as f64;
        assert_near(average.as_f64().expect("a number"), mean, operation);
    }
    let contests = list(&result, "compositions");
    assert_eq!(contests.len(), 3);
    for contest in contests {
        let winner = contest["winner"].as_str().expect("a winner");
        for way in ["all_reduce", "reduce_broadcast", "reduce_scatter_all_gather"] {
            assert!(number(contest, winner) <= number(contest, way), "{contest}");
        }
    }
}

/// At a size that takes long beside what this machine's processors may delay.
#[test]
fn a_reduce_and_a_broadcast_carry_half_as_much_again_as_an_all_reduce_of_three() {
    let arguments = [
        "collectives",
        "--ranks",
        "3",
        "--operation",
        "all_reduce,reduce_broadcast,reduce_scatter_all_gather",
        "--min-bytes",
        "256K",
        "--max-bytes",
        "256K",
        "--iterations",
        "2",
    ];
    let result = json_of(&[("SCALE", "4000")], &arguments);
    let [contest] = &list(&result, "compositions")[..] else {
        panic!("one size: {result}")
    };
    let of = |way: &str| number(contest, way) / number(contest, "all_reduce");
    // Of each byte 1 + 1 against 2(n-1)/n; the same 2/3 + 2/3 in two calls.
    assert!((1.35..1.65).contains(&of("reduce_broadcast")), "{contest}");
    assert!((0.9..1.1).contains(&of("reduce_scatter_all_gather")), "{contest}");
}

#[test]
fn the_table_has_the_columns_of_nccl_tests() {
    let arguments = [
        "workload",
        "collectives",
        "--operation",
        "all_gather,broadcast",
        "--max-bytes",
        "2K",
        "--min-bytes",
        "1K",
        "--factor",
        "2",
    ];
    let text = stdout(&expect_status(gputrace().args(arguments), 0));
    let heads = text
        .lines()
        .filter(|line| line.contains("size") && line.contains("#wrong"));
    let columns = "# size count type redop root time algbw busbw #wrong time algbw busbw #wrong";
    for head in heads.clone() {
        assert_eq!(head.split_whitespace().collect::<Vec<_>>().join(" "), columns);
    }
    assert_eq!(heads.count(), 2, "{text}");
    let rows: Vec<Vec<&str>> = text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(rows.len(), 4, "{text}");
    for row in &rows {
        assert_eq!(row.len(), 13, "{row:?}");
        assert_eq!(
            (row[2], row[3], row[8], row[12]),
            ("float", "none", "0", "0"),
            "{row:?}"
        );
        for index in [0, 1, 4, 5, 6, 7, 9, 10, 11] {
            assert!(row[index].parse::<f64>().is_ok(), "{row:?}");
        }
    }
    assert_eq!([rows[0][4], rows[2][4]], ["-1", "0"], "{text}");
    // 1 KiB on 2 ranks: 128 floats each; a broadcast has all 256.
    assert_eq!([rows[0][1], rows[2][1]], ["128", "256"], "{text}");
    assert_eq!(text.matches("# Avg bus bandwidth    : ").count(), 2, "{text}");
    assert_eq!(text.matches("# Out of bounds values : 0 OK").count(), 2, "{text}");
}

#[test]
fn every_type_and_every_reduction_is_right() {
    let types = [
        "int8", "uint8", "int32", "uint32", "int64", "uint64", "half", "float", "double", "bfloat16",
    ];
    let reductions = ["sum", "prod", "min", "max", "avg"];
    for (index, kind) in types.iter().enumerate() {
        // Every type with two reductions, every reduction with several types.
        for reduction in [reductions[index % 5], reductions[(index / 2 + 1) % 5]] {
            let arguments = [
                "collectives",
                "--ranks",
                "3",
                "--dtype",
                kind,
                "--reduction",
                reduction,
                "--operation",
                "all_reduce,reduce,reduce_scatter",
                "--min-bytes",
                "20K",
                "--max-bytes",
                "20K",
                "--iterations",
                "1",
                "--warmup",
                "0",
            ];
            let result = json_of(&[], &arguments);
            assert_eq!(result["wrong"], 0, "{kind} {reduction}");
            assert_eq!(list(&result, "rows").len(), 3);
        }
    }
}

/// Times of the largest tensor's copies by receiving GPU.
fn copy_times(result: &Value, pass: &str) -> Vec<f64> {
    let copies = list(result, pass);
    let largest = copies.iter().filter_map(|copy| copy["bytes"].as_u64()).max();
    copies
        .iter()
        .filter(|copy| copy["bytes"].as_u64() == largest)
        .map(|copy| number(copy, "time_us"))
        .collect()
}

fn reasons(result: &Value) -> String {
    list(result, "why")
        .iter()
        .filter_map(Value::as_str)
        .collect::<Vec<_>>()
        .join("\n")
}

#[test]
fn copies_over_a_slow_link_take_longer_and_the_reason_is_given() {
    let arguments = ["p2p", "--ranks", "4", "--tensors", "64K,1M", "--sequential"];
    let result = json_of(&[("SLOW", "link:0-2=4")], &arguments);
    assert_eq!(result["wrong_bytes"], 0);
    let [fast, slow, other] = copy_times(&result, "sequential")[..] else {
        panic!("three copies: {result}")
    };
    assert!((3.5..4.5).contains(&(slow / fast)), "{result}");
    assert!((0.8..1.25).contains(&(other / fast)), "{result}");
    let why = reasons(&result);
    assert!(
        why.contains("GPU 2 took") && why.contains("slower than the other"),
        "{why}"
    );
    assert!(!why.contains("GPU 3 took"), "{why}");
}

#[test]
fn links_are_named_and_unequal_ones_explain_unequal_times() {
    let arguments = ["p2p", "--ranks", "5", "--tensors", "1M", "--sequential"];
    let hgx = json_of(&[], &arguments);
    let names = |result: &Value| -> Vec<String> {
        list(result, "links")
            .iter()
            .map(|link| link["link"].as_str().unwrap_or_default().to_owned())
            .collect()
    };
    assert_eq!(names(&hgx), ["NV18"; 4], "{hgx}");
    assert_eq!(list(&hgx, "links")[0]["peak_gb_s"], 450.0);

    let pcie = json_of(&[("TOPOLOGY", "pcie")], &arguments);
    let names = names(&pcie);
    assert_eq!([names[0].as_str(), names[3].as_str()], ["PIX", "SYS"], "{pcie}");
    let alone = copy_times(&pcie, "sequential");
    // GPU 1 is behind the same switch, GPU 2 on the same socket, GPU 4 on the other.
    assert!(alone[1] > 1.1 * alone[0] && alone[3] > 1.1 * alone[1], "{pcie}");
    assert!(reasons(&pcie).contains("against one PCIe switch"), "{pcie}");
}

#[test]
fn without_peer_access_copies_go_through_the_host() {
    let arguments = ["p2p", "--ranks", "2", "--tensors", "1M"];
    let direct = json_of(&[], &arguments);
    let staged = json_of(&[], &[&arguments[..], &["--no-peer-access"]].concat());
    assert_eq!(list(&direct, "links")[0]["path"], "direct");
    assert_eq!(list(&staged, "links")[0]["path"], "via host");
    let (direct, staged) = (
        copy_times(&direct, "concurrent"),
        copy_times(&staged, "concurrent"),
    );
    assert!(staged[0] > 2.0 * direct[0], "{staged:?} {direct:?}");
}

#[test]
fn the_ring_gives_what_nccl_gives() {
    for ranks in ["1", "2", "3", "5"] {
        let arguments = [
            "ring",
            "--ranks",
            ranks,
            "--counts",
            "1,2,3,4,1009,4096",
            "--max-bytes",
            "8K",
            "--iterations",
            "2",
        ];
        let result = json_of(&[], &arguments);
        assert_eq!(result["unequal"], 0, "{result}");
        // Six counts and two sizes for each type.
        let comparisons = list(&result, "comparisons");
        assert_eq!(comparisons.len(), 16, "{result}");
        for row in comparisons {
            let exact = row["type"] == "int32" || ["1", "2"].contains(&ranks);
            assert!(!exact || number(row, "different") == 0.0, "{row}");
            assert!(number(row, "relative") <= 1e-6, "{row}");
            assert!(number(row, "from_definition") <= 1e-6, "{row}");
        }
    }
}

#[test]
fn a_ring_of_many_messages_costs_more_than_one_operation() {
    let result = json_of(
        &[],
        &["ring", "--ranks", "4", "--dtype", "float", "--max-bytes", "64K"],
    );
    for row in list(&result, "costs") {
        assert!(number(row, "ring_us") > number(row, "nccl_us"), "{row}");
    }
}

#[test]
fn each_kind_of_waiting_blocks_what_it_says() {
    // Four times slower than usual, so that modelled time is long beside what computing it takes on a busy machine.
    let arguments = ["async", "--bytes", "1M", "--compute", "1.5", "--iterations", "7"];
    let result = json_of(&[("SCALE", "4000")], &arguments);
    assert_eq!(result["wrong_bytes"], 0);
    let of = |name: &str| {
        list(&result, "variants")
            .iter()
            .find(|row| row["variant"] == name)
            .unwrap_or_else(|| panic!("no {name}: {result}"))
    };
    let host = |name: &str| number(of(name), "host_blocked_us");
    let gpu = |name: &str| number(of(name), "gpu_us");
    let hidden = |name: &str| number(of(name), "hidden_percent");
    let exchange = number(of("blocking"), "exchange_us");
    // The host stands for the exchange, or for all, or not at all.
    assert!(host("blocking") > 0.7 * exchange, "{result}");
    assert!(host("event") > 0.5 * exchange, "{result}");
    assert!(host("device") > 1.2 * host("event"), "{result}");
    for free in ["stream-wait", "late-wait", "one-stream"] {
        assert!(host(free) < 0.2 * exchange, "{free}: {result}");
    }
    // The exchange is hidden where computation does not wait for it.
    for name in ["blocking", "stream-wait", "one-stream"] {
        assert!(hidden(name) < 10.0, "{name}: {result}");
    }
    for name in ["device", "event", "late-wait"] {
        assert!(hidden(name) > 60.0, "{name}: {result}");
        assert!(gpu(name) < 0.85 * gpu("blocking"), "{name}: {result}");
    }
}

#[test]
fn the_recording_shows_what_is_hidden() {
    let overlap = |variant: &str| {
        let (_keep, folder) = fresh_folder("recording");
        let truth = folder.with_extension("truth");
        let arguments = ["async", "--bytes", "1M", "--variant", variant];
        common::schedule::alone();
        expect_status(
            &mut record_workload(&folder, &truth, &[("SCALE", "4000")], arguments),
            0,
        );
        let analysis = analysis(&folder);
        let ranks = list(&analysis, "ranks");
        assert_eq!(ranks.len(), 2, "{variant}");
        number(&ranks[0], "overlap_ratio")
    };
    let (late, early) = (overlap("late-wait"), overlap("stream-wait"));
    // The warm-up and the meetings hide nothing.
    assert!(late > 0.4 && early < 0.1, "late {late}, early {early}");
}

#[test]
fn wrong_options_are_refused_in_a_line() {
    for (arguments, fragment) in [
        (&["collectives", "--root", "2"][..], "--root 2"),
        (
            &["collectives", "--min-bytes", "2K", "--max-bytes", "1K"],
            "--min-bytes 2048",
        ),
        (&["p2p", "--source", "4"], "--source 4"),
        (&["ring", "--max-bytes", "2"], "less than one element"),
        (&["async", "--ranks", "3"], "even number"),
    ] {
        let output = expect_status(
            gputrace()
                .env("GPUTRACE_DEVICE", "sim")
                .arg("workload")
                .args(arguments),
            2,
        );
        let line = one_line(&output);
        assert!(line.contains(fragment), "{arguments:?}: {line}");
    }
    for arguments in [
        &["collectives", "--operation", "all_reduc"][..],
        &["collectives", "--dtype", "f8"],
        &["collectives", "--iterations", "0"],
        &["collectives", "--factor", "1"],
        &["p2p", "--tensors", "1M,0"],
        &["p2p", "--ranks", "1"],
        &["ring", "--counts", "0"],
        &["async", "--compute", "-1"],
    ] {
        expect_status(
            gputrace()
                .env("GPUTRACE_DEVICE", "sim")
                .arg("workload")
                .args(arguments),
            2,
        );
    }
}
