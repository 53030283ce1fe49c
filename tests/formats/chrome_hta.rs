//! Our analysis beside that of Holistic Trace Analysis, of the same runs: a file a rank as `gputrace export` writes them.

use crate::common;
use crate::common::consumers::hta;

use std::collections::BTreeMap;
use std::path::Path;

use common::{analysis, expect_status, fresh_folder, gputrace, record_workload};
use gputrace_trace::place::MARK_FILE;
use serde_json::Value;

/// Exports `source` and holds the four analyses against ours.
fn agrees(source: &Path, ranks: usize) {
    let (_keep, folder) = fresh_folder("exported");
    let mut export = gputrace();
    export
        .arg("export")
        .arg(source)
        .args(["--format", "chrome", "-o"])
        .arg(&folder);
    expect_status(&mut export, 0);
    assert!(folder.join(MARK_FILE).exists());
    let files = std::fs::read_dir(&folder).expect("the export").count();
    assert_eq!(files, ranks + 1, "a file a rank, and the mark of an export");
    let Some(theirs) = hta::analyses(&folder) else {
        return;
    };
    let ours = analysis(source);
    let of_ranks = ours["ranks"].as_array().expect("ranks");
    assert_eq!(of_ranks.len(), ranks);
    for ours in of_ranks {
        let rank = ours["rank"].to_string();
        let theirs = &theirs[&rank];
        // They print microseconds rounded to some digits; ours are nanoseconds.
        let same = |what: &str, theirs: f64, ours: f64| {
            assert!(
                (theirs - ours).abs() <= 0.011,
                "rank {rank}: {what}: {theirs} us, and ours is {ours}"
            );
        };
        let us = |member: &str| ours[member].as_f64().expect("a number") / 1000.0;
        let number = |member: &str| theirs[member].as_f64().expect("a number");
        same("span", number("span_us"), us("span_ns"));
        same("idle", number("idle_us"), us("idle_ns"));
        same("compute", number("compute_us"), us("compute_ns"));
        let hidden = 100.0 * us("communication_hidden_ns") / us("communication_ns");
        same("overlap in percent", number("overlap"), hidden);
        // Time by name, of kernels, copies and memsets alike.
        let mut totals: BTreeMap<&str, f64> = BTreeMap::new();
        for kernel in ours["kernels"].as_array().expect("kernels") {
            let name = kernel["name"].as_str().expect("a name");
            *totals.entry(name).or_default() += kernel["total_ns"].as_f64().expect("a number") / 1000.0;
        }
        let kernels = theirs["kernels"].as_object().expect("kernels");
        for (name, total) in kernels {
            let total = total.as_f64().expect("a number");
            let found = totals.get(name.as_str());
            same(
                name,
                total,
                *found.unwrap_or_else(|| panic!("{name} is none of {totals:?}")),
            );
        }
        assert_eq!(kernels.len(), totals.len());
        // Gaps between the operations of a stream, by their causes.
        for stream in ours["streams"].as_array().expect("streams") {
            let causes = &theirs["streams"][stream["stream"].to_string()];
            for (cause, member) in [
                ("host_wait", "idle_host_wait_ns"),
                ("kernel_wait", "idle_kernel_wait_ns"),
                ("other", "idle_other_ns"),
            ] {
                let ours = stream[member].as_f64().expect("a number") / 1000.0;
                let what = format!("stream {}: {cause}", stream["stream"]);
                same(&what, causes[cause].as_f64().unwrap_or(0.0), ours);
            }
        }
    }
    // Kernels by type, over all ranks: what runs alone and what runs beside others.
    let types = theirs["types"].as_object().expect("types");
    let total = |of: &str| -> f64 {
        let parts = types.iter().filter(|(name, _)| name.contains(of));
        parts.filter_map(|(_, value)| value.as_f64()).sum()
    };
    let ours_total = |member: &str| -> f64 {
        let ranks = of_ranks.iter().map(|rank| rank[member].as_f64());
        ranks.map(|value| value.expect("a number") / 1000.0).sum()
    };
    // It cuts every stretch of this table to whole microseconds.
    for (of, member) in [
        ("COMPUTATION", "compute_ns"),
        ("COMMUNICATION", "communication_ns"),
    ] {
        let (theirs, ours) = (total(of), ours_total(member));
        assert!(
            theirs <= ours + 1.0 && theirs >= ours * 0.98 - 100.0,
            "{of}: {theirs} us, and ours is {ours}"
        );
    }
}

fn of_a_workload(workload: &[&str], ranks: usize) {
    let (keep, folder) = fresh_folder("recording");
    let truth = keep.path().join("truth");
    let command: Vec<&str> = workload.iter().copied().chain(["--steps", "4"]).collect();
    expect_status(&mut record_workload(&folder, &truth, &[], command), 0);
    agrees(&folder, ranks);
}

#[test]
fn data_parallel_training() {
    of_a_workload(&["ddp"], 2);
}

#[test]
fn sharded_training() {
    of_a_workload(&["fsdp"], 2);
}

#[test]
fn eight_real_ranks_of_pytorch() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/kineto/dlrm8_v100");
    agrees(&source, 8);
}

/// What tells the rank is looked for line by line with a pattern.
#[test]
fn each_file_says_its_rank_and_none_another() {
    let (_keep, folder) = fresh_folder("exported");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/kineto/dlrm8_v100");
    let mut export = gputrace();
    export
        .arg("export")
        .arg(source)
        .args(["--format", "chrome", "-o"])
        .arg(&folder);
    expect_status(&mut export, 0);
    for rank in 0..8 {
        let file = std::fs::File::open(folder.join(format!("rank{rank}.json.gz"))).expect("a file a rank");
        let text = std::io::read_to_string(flate2::read::GzDecoder::new(file)).expect("whole");
        let said: Vec<&str> = text
            .split("\"rank\": ")
            .skip(1)
            .map(|after| after.split(',').next().unwrap_or_default())
            .collect();
        assert_eq!(said, [rank.to_string()]);
        let parsed: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(parsed["distributedInfo"]["world_size"], 8);
    }
}
