//! `diff`, `check` and `baseline`: what changed between two runs, from outside.

use crate::common;

use std::fs;
use std::path::Path;

use common::{
    expect_status, fresh_folder, gputrace, json, one_line, record_slowly, stderr, stdout, synthetic,
};
use serde_json::Value;

/// Records data parallel training.
fn record(folder: &Path, settings: &[&str], steps: &str) {
    record_slowly(folder, settings, &["ddp", "--ranks", "2", "--steps", steps]);
}

fn ns(value: &Value) -> i64 {
    value.as_i64().unwrap_or_else(|| panic!("no time: {value}"))
}

/// The rows of a kind that are called so.
fn called<'a>(diff: &'a Value, by: &str, verdict: &str) -> Vec<&'a Value> {
    let rows = diff["rows"].as_array().expect("rows").iter();
    rows.filter(|row| row["by"] == by && row["verdict"] == verdict)
        .collect()
}

#[test]
fn a_kernel_that_is_slower_on_one_rank_is_named() {
    common::schedule::alone();
    let (keep, before) = fresh_folder("before");
    let after = keep.path().join("after");
    record(&before, &[], "24");
    // Forward products alone, on one rank of two.
    record(&after, &["SLOW=kernel:*gemm*nn*@1=1.1"], "24");
    let diff = json(&["diff"], &[&before, &after], 0);
    assert_eq!(diff["schema"], "gputrace.diff/1");
    assert_eq!(
        (&diff["a"][0]["device"], &diff["a"][0]["gpus"]),
        (&Value::from("sim"), &Value::from(2))
    );
    let sum = |parts: &Value| -> i64 { parts.as_object().expect("parts").values().map(ns).sum() };
    let step = &diff["step"];
    assert_eq!(sum(&diff["parts"]), ns(&step["change_ns"]));
    assert_eq!(ns(&step["change_ns"]), ns(&step["b_ns"]) - ns(&step["a_ns"]));
    assert_eq!(sum(&diff["parts_a"]), ns(&step["a_ns"]));
    let slower = called(&diff, "kernel", "slower");
    let named =
        |row: &&&Value| row["rank"] == 1 && row["name"].as_str().is_some_and(|name| name.contains("gemm"));
    let row = slower
        .iter()
        .find(named)
        .unwrap_or_else(|| panic!("it is not named: {slower:#?}"));
    let ratio = ns(&row["b_ns"]) as f64 / ns(&row["a_ns"]) as f64;
    assert!((1.05..1.15).contains(&ratio), "{ratio}: {row}");
    // The other rank's are as they were.
    let on_other =
        |row: &&&Value| row["rank"] == 0 && row["name"].as_str().is_some_and(|name| name.contains("gemm"));
    assert!(slower.iter().find(on_other).is_none(), "{slower:#?}");
    let by = json(&["diff", "--by", "kernel", "--top", "3"], &[&before, &after], 0);
    let rows = by["rows"].as_array().expect("rows");
    assert!(rows.len() == 3 && rows.iter().all(|row| row["by"] == "kernel"));
    let shown = stdout(&expect_status(gputrace().arg("diff").args([&before, &after]), 0));
    for said in [
        "SIMULATED GPUs",
        "What the change is made of",
        "By kernel, a step: what changed",
        "slower",
        "one run a side",
    ] {
        assert!(shown.contains(said), "no {said:?} in\n{shown}");
    }
}

#[test]
fn a_budget_is_kept_exceeded_or_can_t_be_judged() {
    let (keep, run) = fresh_folder("run");
    record(&run, &[], "12");
    let file = |name: &str, text: &str| {
        let path = keep.path().join(name);
        fs::write(&path, text).expect("written");
        path
    };
    let check = |budget: &Path, status: i32| {
        let mut command = gputrace();
        command.env_remove("GITHUB_ACTIONS").current_dir(keep.path());
        expect_status(
            command
                .args(["check", "--json"])
                .arg(&run)
                .arg("--budget")
                .arg(budget),
            status,
        )
    };
    let lines =
        |output: &std::process::Output| -> Value { serde_json::from_slice(&output.stdout).expect("JSON") };
    let kept = lines(&check(
        &file("kept.toml", "step.p50 <= \"100s\"\nlost.rows = 0\n"),
        0,
    ));
    assert_eq!(
        (&kept["schema"], &kept["verdict"]),
        (&Value::from("gputrace.check/1"), &Value::from("within"))
    );
    let over = lines(&check(&file("over.toml", "[step]\np50 = \"<= 1us\"\n"), 1));
    assert_eq!(over["verdict"], "over");
    let line = &over["lines"][0];
    assert_eq!(
        (&line["measure"], &line["limit"]),
        (&Value::from("step.p50"), &Value::from("<= 1us"))
    );
    assert!(line["value"].as_f64() > Some(1000.0) && line["margin"].as_f64() < Some(0.0));
    let unknown = lines(&check(
        &file("unknown.toml", "kernel.\"no such*\".mean <= \"1us\"\n"),
        2,
    ));
    assert_eq!(unknown["verdict"], "unknown");
    // Wrong budgets: one line, with the file and what to write.
    let wrong = |text: &str| one_line(&check(&file("wrong.toml", text), 2));
    assert!(wrong("step.p5O <= \"1ms\"\n").contains("did you mean step.p50?"));
    assert!(wrong("step.p50 <= \"1 parsec\"\n").contains("no unit of time"));
    assert!(wrong("overlap.min >= 1.5\n").contains("from 0 to 1"));
    assert!(wrong("step.p50 <= \"+3%\"\n").contains("--baseline"));
    assert!(wrong("step.p50 = \n").contains("no TOML"));
    // What --init writes is kept by the run that it was written from, and is never overwritten.
    let init = || {
        let mut command = gputrace();
        command
            .current_dir(keep.path())
            .args(["check", "--init", "--budget", "made.toml"])
            .arg(&run);
        command
    };
    expect_status(&mut init(), 0);
    check(&keep.path().join("made.toml"), 0);
    expect_status(&mut init(), 2);
    // For CI.
    let mut command = gputrace();
    let summary = keep.path().join("summary.md");
    command
        .current_dir(keep.path())
        .env("GITHUB_ACTIONS", "true")
        .env("GITHUB_STEP_SUMMARY", &summary);
    command
        .args([
            "check",
            "--budget",
            "over.toml",
            "--junit",
            "junit.xml",
            "--markdown",
            "table.md",
        ])
        .arg(&run);
    let said = expect_status(&mut command, 1);
    assert!(stderr(&said).contains("::error title=gputrace check::step.p50 is "));
    assert!(stdout(&said).contains("1 of 1 limits exceeded"));
    let xml = fs::read_to_string(keep.path().join("junit.xml")).expect("JUnit");
    assert!(
        xml.contains("<testcase name=\"step.p50\"") && xml.contains("<failure"),
        "{xml}"
    );
    let table = fs::read_to_string(keep.path().join("table.md")).expect("Markdown");
    assert!(
        table.contains("| `step.p50` | over |") && table.contains("Simulated GPUs"),
        "{table}"
    );
    let summary = fs::read_to_string(summary).expect("the summary");
    assert!(table.starts_with(&summary) && table[summary.len()..].starts_with("<!-- written by"));
    // Written again over its own, and never over anything else: one with a remark in it is somebody's.
    expect_status(&mut command, 1);
    let remarked = |text: &str| text.replacen("over", "over, since the network is slow", 1);
    for (name, mine) in [
        ("table.md", "mine".to_owned()),
        ("table.md", remarked(&table)),
        ("table.md", format!("{table}A remark.\n")),
        ("junit.xml", xml.replacen("limit", "our limit", 1)),
    ] {
        let path = keep.path().join(name);
        let before = fs::read(&path).expect("a report");
        fs::write(&path, &mine).expect("written");
        assert!(one_line(&expect_status(&mut command, 2)).contains("was changed since"));
        assert_eq!(fs::read_to_string(&path).expect("there"), mine);
        fs::write(&path, before).expect("written");
    }
    expect_status(&mut command, 1);
}

#[test]
fn baselines_are_saved_listed_and_compared_with() {
    let (keep, run) = fresh_folder("run");
    record(&run, &[], "12");
    let run_in = |arguments: &[&str], status: i32| {
        let mut command = gputrace();
        expect_status(command.current_dir(keep.path()).args(arguments), status)
    };
    let path = run.to_str().expect("a name");
    run_in(&["baseline", "save", "main", path], 0);
    let saved = keep.path().join("gputrace-baselines/main.json");
    assert!(fs::metadata(&saved).expect("saved").len() < 200_000);
    assert!(one_line(&run_in(&["baseline", "save", "main", path], 2)).contains("--force"));
    run_in(&["baseline", "save", "main", path, "--force"], 0);
    assert!(one_line(&run_in(&["baseline", "save", "../main", path], 2)).contains("no name for a baseline"));
    assert!(stdout(&run_in(&["baseline", "list"], 0)).contains("main"));
    let shown: Value =
        serde_json::from_slice(&run_in(&["baseline", "show", "main"], 0).stdout).expect("JSON");
    assert_eq!(shown["schema"], "gputrace.baseline/1");
    // By its name, and by its file; a run is no different from its own baseline.
    for name in ["main", "gputrace-baselines/main.json"] {
        let diff: Value =
            serde_json::from_slice(&run_in(&["diff", name, path, "--json"], 0).stdout).expect("JSON");
        assert_eq!(
            (&diff["step"]["change_ns"], &diff["step"]["verdict"]),
            (&Value::from(0), &Value::from("same"))
        );
        let rows = diff["rows"].as_array().expect("rows");
        assert!(!rows.is_empty() && rows.iter().all(|row| row["verdict"] == "same"));
    }
    fs::write(keep.path().join("budget.toml"), "step.p50 <= \"+3%\"\n").expect("written");
    run_in(
        &["check", path, "--budget", "budget.toml", "--baseline", "main"],
        0,
    );
    // Damaged, of a newer version, of no such name.
    let text = fs::read_to_string(&saved).expect("saved");
    let spoil = |text: &str| fs::write(&saved, text).expect("written");
    spoil(&text.replacen("baseline/1", "baseline/9", 1));
    assert!(one_line(&run_in(&["diff", "main", path], 2)).contains("version 9"));
    let (values, _) = text.rsplit_once("\"checksum\"").expect("a checksum");
    let digit = values.rfind('1').expect("a digit");
    spoil(&format!("{}2{}", &text[..digit], &text[digit + 1..]));
    assert!(one_line(&run_in(&["diff", "main", path], 2)).contains("its checksum does not match"));
    // One of an earlier version has none.
    let (before, _) = text.rsplit_once(",\n  \"checksum\"").expect("a checksum");
    spoil(&format!("{before}}}\n"));
    run_in(&["diff", "main", path], 0);
    spoil(&text[..text.len() / 2]);
    assert!(one_line(&run_in(&["diff", "main", path], 2)).contains("damaged"));
    assert!(one_line(&run_in(&["diff", "nobody", path], 2)).contains("nobody"));
    assert!(one_line(&run_in(&["baseline", "show", "nobody"], 2)).contains("there are main"));
    assert!(one_line(&run_in(&["diff", path], 2)).contains("two sides"));
}

#[test]
fn a_workload_of_our_own_keeps_its_budget() {
    common::schedule::alone();
    let (_keep, run) = fresh_folder("run");
    record(&run, &[], "16");
    let budget = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/ddp-budget.toml");
    let mut command = gputrace();
    command.env_remove("GITHUB_ACTIONS");
    expect_status(command.arg("check").arg(&run).arg("--budget").arg(budget), 0);
}

#[test]
fn a_run_that_lacks_ranks_can_t_be_judged() {
    let (keep, run) = fresh_folder("run");
    synthetic(&run, &["--one-host", "--ranks", "4", "--events", "3000"]);
    let less = keep.path().join("less");
    synthetic(
        &less,
        &[
            "--one-host",
            "--ranks",
            "4",
            "--events",
            "3000",
            "--write",
            "0..2",
        ],
    );
    let missing = "3 of 4 ranks are here: rank 3 missing";
    let check = |run: &Path, budget: &str, status: i32| -> Value {
        let path = keep.path().join("budget.toml");
        fs::write(&path, budget).expect("written");
        let mut command = gputrace();
        command.env_remove("GITHUB_ACTIONS").args(["check", "--json"]);
        command.arg(run).arg("--budget").arg(&path);
        serde_json::from_slice(&expect_status(&mut command, status).stdout).expect("JSON")
    };
    let within = "step.p50 <= \"100s\"\n";
    assert_eq!(check(&run, within, 0)["verdict"], "within");
    let unknown = check(&less, within, 2);
    let why = unknown["lines"][0]["why"].as_str().expect("a reason");
    assert!(why.contains(missing), "{why}");
    // What is over without them is over with them.
    assert_eq!(check(&less, "step.p50 <= \"1ns\"\n", 1)["verdict"], "over");
    check(&less, &format!("{within}ranks.missing <= 1\n"), 0);
    check(&less, &format!("{within}ranks.missing = 0\n"), 1);
    check(&run, &format!("{within}ranks.missing = 0\n"), 0);
    let mut init = gputrace();
    init.args(["check", "--init"]).arg(&less);
    let proposed = stdout(&expect_status(&mut init, 0));
    assert!(proposed.contains("ranks.missing = \"<= 1\""), "{proposed}");
    let mut diff = gputrace();
    diff.args(["diff", "--json"]).arg(&run).arg(&less);
    let diff: Value = serde_json::from_slice(&expect_status(&mut diff, 0).stdout).expect("JSON");
    assert!(diff["notes"].to_string().contains(missing), "{diff}");
    assert_eq!(diff["b"][0]["job_ranks"]["missing"][0]["first"], 3);
    let mut predicted = gputrace();
    predicted.arg("whatif").arg(&less);
    assert!(stderr(&expect_status(&mut predicted, 0)).contains(missing));
}
