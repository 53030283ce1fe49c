//! What findings and `whatif` promise, held against running again.

use crate::common;

use std::path::Path;

use common::{expect_status, fresh_folder, gputrace, json, record_slowly, stderr};
use serde_json::Value;

fn what_if(folder: &Path, changes: &[&str]) -> (f64, f64, f64) {
    let mut arguments = vec!["whatif"];
    changes
        .iter()
        .for_each(|change| arguments.extend(["--set", change]));
    let predicted = json(&arguments, &[folder], 0);
    let number = |value: &Value| value.as_f64().expect("a time");
    (
        number(&predicted["measured_step_ns"]),
        number(&predicted["predicted_step_ns"]["low"]),
        number(&predicted["predicted_step_ns"]["high"]),
    )
}

const DDP: &[&str] = &["ddp", "--ranks", "4", "--steps", "20"];

#[test]
fn a_slow_gpu_is_the_first_finding_and_costs_what_the_clean_run_lacks() {
    common::schedule::alone();
    let (keep, clean) = fresh_folder("clean");
    let slow = keep.path().join("slow");
    record_slowly(&clean, &[], DDP);
    record_slowly(&slow, &["SLOW=rank:2=1.5"], DDP);
    let (clean_ns, low, high) = what_if(&clean, &[]);
    assert!(
        low <= clean_ns && clean_ns <= high,
        "no change predicts what was: {low} {clean_ns} {high}"
    );
    let (slow_ns, low, high) = what_if(&slow, &["rank:2=as-others"]);
    let predicted = f64::midpoint(low, high);
    assert!(
        (predicted / clean_ns - 1.0).abs() < 0.05,
        "{predicted} predicted, {clean_ns} measured"
    );
    // The other way round.
    let (_, low, high) = what_if(&clean, &["rank:2=1.5x"]);
    let predicted = f64::midpoint(low, high);
    assert!(
        (predicted / slow_ns - 1.0).abs() < 0.05,
        "{predicted} predicted, {slow_ns} measured"
    );
    let analysis = common::analysis(&slow);
    let first = &analysis["findings"][0];
    assert_eq!(
        (&first["code"], &first["rank"]),
        (&Value::from("slow_rank"), &Value::from(2)),
        "{first}"
    );
    assert_eq!(first["facts"]["by"], "kernel");
    let saves = first["saves_per_step_ns"].as_f64().expect("a saving");
    assert!(
        (saves / (slow_ns - clean_ns) - 1.0).abs() < 0.15,
        "{saves} of {slow_ns} - {clean_ns}"
    );
    assert_eq!(first["cause"][0]["rank"], 2);
    // Of each rank's step the parts are all; the slow one waits for nobody, and the others for it.
    let what_if = json(&["whatif", "--set", "rank:2=as-others"], &[&slow], 0);
    let part = |rank: usize, when: &str, part: &str| what_if["ranks"][rank][when][part].as_f64().expect(part);
    let parts = ["compute_ns", "transfer_ns", "waiting_ns", "copy_ns", "idle_ns"];
    for rank in 0..4 {
        let sum: f64 = parts.iter().map(|name| part(rank, "replayed", name)).sum();
        assert!(
            (sum - what_if["replayed_step_ns"].as_f64().expect("a time")).abs() < 1.0,
            "{what_if}"
        );
        if rank != 2 {
            let waits = [rank, 2].map(|rank| part(rank, "replayed", "waiting_ns"));
            assert!(waits[0] > 4.0 * waits[1], "{waits:?}");
            let then = part(rank, "predicted", "waiting_ns");
            assert!(then < waits[0] / 2.0, "{then} of {waits:?}");
        }
    }
    // Nobody is blamed where nothing is wrong.
    let analysis = common::analysis(&clean);
    let findings = analysis["findings"].as_array().expect("findings");
    assert!(
        findings.iter().all(|finding| finding["code"] != "slow_rank"),
        "{findings:?}"
    );
}

/// Trouble, and what is to be said of it first. `benches/planted.rs` has more kinds, on more jobs.
struct Planted {
    settings: &'static [&'static str],
    options: &'static [&'static str],
    code: &'static str,
    /// `facts.by`, of a slow rank.
    by: Option<&'static str>,
    rank: Option<u32>,
}

const PLANTED: &[Planted] = &[
    Planted {
        settings: &["SLOW=link:0-1=4.5"],
        options: &[],
        code: "slow_communicator",
        by: None,
        rank: None,
    },
    Planted {
        settings: &["SLOW=kernel:*sgemm*@3=2"],
        options: &[],
        code: "slow_rank",
        by: Some("kernel"),
        rank: Some(3),
    },
    Planted {
        settings: &[],
        options: &["--delay", "step:1:55"],
        code: "slow_rank",
        by: Some("host"),
        rank: Some(1),
    },
    Planted {
        settings: &[],
        options: &["--loader-delay", "240"],
        code: "host_late",
        by: None,
        rank: None,
    },
    Planted {
        settings: &[],
        options: &["--imbalance", "2"],
        code: "uneven_work",
        by: None,
        rank: None,
    },
    Planted {
        settings: &[],
        options: &["--synchronize"],
        code: "synchronization",
        by: None,
        rank: None,
    },
    Planted {
        settings: &[],
        options: &["--no-overlap"],
        code: "exposed_communication",
        by: None,
        rank: None,
    },
];

#[test]
fn planted_trouble_is_the_first_finding() {
    common::schedule::alone();
    let job = "ddp --ranks 4 --layers 8 --hidden 256 --batch 768 --bucket-mb 0.25 --steps 10";
    let job: Vec<&str> = job.split(' ').collect();
    let (keep, clean) = fresh_folder("clean");
    record_slowly(&clean, &[], &job);
    let (clean_ns, ..) = what_if(&clean, &[]);
    for finding in common::analysis(&clean)["findings"].as_array().expect("findings") {
        let surely = finding["saves_low_ns"].as_f64().unwrap_or(0.0);
        assert!(surely < 0.05 * clean_ns, "without trouble: {finding}");
    }
    let mut wrong = Vec::new();
    for (place, planted) in PLANTED.iter().enumerate() {
        let folder = keep.path().join(place.to_string());
        record_slowly(&folder, planted.settings, &[&job, planted.options].concat());
        let (step_ns, ..) = what_if(&folder, &[]);
        let first = &common::analysis(&folder)["findings"][0];
        let mended = step_ns - first["saves_per_step_ns"].as_f64().unwrap_or(0.0);
        let row = format!(
            "{:?} {:?}: {clean_ns} ns without, {step_ns} with it, {mended} mended: {first}",
            planted.settings, planted.options
        );
        println!("{row}");
        let is_it = first["code"] == planted.code
            && planted.by.is_none_or(|by| first["facts"]["by"] == by)
            && planted.rank.is_none_or(|rank| first["rank"] == rank);
        if !is_it || (mended / clean_ns - 1.0).abs() > 0.1 {
            wrong.push(row);
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn slower_gpus_and_links_are_predicted() {
    common::schedule::alone();
    for workload in [
        DDP,
        &["fsdp", "--ranks", "2", "--steps", "15"],
        &["pp", "--ranks", "3", "--steps", "10"],
    ] {
        let (keep, base) = fresh_folder("base");
        let slower = keep.path().join("slower");
        record_slowly(&base, &[], workload);
        record_slowly(&slower, &["SCALE=8000"], workload);
        let (_, low, high) = what_if(&base, &["kernel:*=2x", "communication=2x", "copy:HtoD=2x"]);
        let (measured, ..) = what_if(&slower, &[]);
        let predicted = f64::midpoint(low, high);
        assert!(
            (predicted / measured - 1.0).abs() < 0.05,
            "{workload:?}: {predicted} predicted, {measured} measured"
        );
    }
}

#[test]
fn changes_that_cannot_be_are_one_line() {
    let (_keep, folder) = fresh_folder("recording");
    record_slowly(&folder, &[], &["ddp", "--ranks", "2", "--steps", "4"]);
    for (changes, told) in [
        (&["kernel:nosuch*=0.5x"][..], "matches nothing: there are"),
        (&["rank:7=as-others"], "there are 0, 1"),
        (
            &["communication=none", "communication=2x"],
            "contradict each other",
        ),
        (&["communication=-10s"], "makes times negative"),
        (&["gpu:1=none"], "is no target"),
        (&["rank:1=quick"], "is no change"),
    ] {
        let mut command = gputrace();
        command.arg("whatif").arg(&folder);
        changes.iter().for_each(|change| {
            command.args(["--set", change]);
        });
        let said = stderr(&expect_status(&mut command, 2));
        assert!(
            said.contains(told) && said.trim_end().lines().count() == 1,
            "{changes:?}: {said}"
        );
    }
    let said = stderr(&expect_status(
        gputrace().arg("whatif").arg(&folder).args(["--steps", "90..99"]),
        2,
    ));
    assert_eq!(said.trim_end().lines().count(), 1, "{said}");
    // The tables fit a narrow terminal, and name what matters.
    let output = expect_status(gputrace().arg("whatif").arg(&folder).env("COLUMNS", "60"), 0);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        text.starts_with("SIMULATED GPUs") && text.contains("What would save most"),
        "{text}"
    );
    assert!(text.contains("The critical path"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 60), "{text}");
    // The path's parts are the time of the steps.
    let path = &json(&["whatif"], &[&folder], 0)["critical_path"];
    let parts = path["parts"].as_array().expect("parts");
    let sum: i64 = parts.iter().filter_map(|part| part["time_ns"].as_i64()).sum();
    assert_eq!(Some(sum), path["total_ns"].as_i64());
}
