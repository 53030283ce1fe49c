//! Traces whose files' clocks differ: a real job's, each rank's times moved and stretched by hand.

use crate::common;

use std::path::Path;

use common::aligned::same_within_errors;
use common::moved_clocks::{CLOCKS, base_ns, write};
use common::{expect_status, gputrace, stdout};
use serde_json::Value;

fn analyze(path: &Path, clocks: &str) -> Value {
    let mut command = gputrace();
    command.args(["analyze", "--json", "--clocks", clocks]).arg(path);
    serde_json::from_str(&stdout(&expect_status(&mut command, 0))).expect("one JSON object")
}

/// Exports are written with times aligned, with what was found beside them: read again, nothing is estimated anew, and all is as it was.
#[test]
fn exports_are_aligned_and_say_by_how_much() {
    let (folder, wrong) = (
        tempfile::tempdir().expect("a folder"),
        tempfile::tempdir().expect("a folder"),
    );
    write(wrong.path(), &CLOCKS, base_ns());
    let first = analyze(wrong.path(), "estimate");
    for name in ["all.json", "ranks"] {
        let to = folder.path().join(name);
        let mut command = gputrace();
        command.args(["export", "--format", "chrome", "-o"]).arg(&to);
        expect_status(command.arg(wrong.path()), 0);
        let again = analyze(&to, "estimate");
        for key in ["clocks", "clock", "collectives", "arrivals"] {
            assert_eq!(first[key], again[key], "{name}: {key}");
        }
    }
}

#[test]
fn clocks_of_a_real_job_come_back_as_they_were_set() {
    let base_ns = base_ns();
    let (right, wrong) = (
        tempfile::tempdir().expect("a folder"),
        tempfile::tempdir().expect("a folder"),
    );
    write(right.path(), &[(0, 0); 8], base_ns);
    write(wrong.path(), &CLOCKS, base_ns);
    let right = analyze(right.path(), "estimate");
    assert_eq!(
        right["clocks"].as_array().map(Vec::len),
        Some(1),
        "{}",
        right["clocks"]
    );
    let wrong = analyze(wrong.path(), "estimate");
    let clocks = wrong["clocks"].as_array().expect("clocks");
    assert_eq!(clocks.len(), 8, "{}", wrong["clock"]);
    for clock in &clocks[1..] {
        let rank = clock["ranks"][0].as_u64().expect("a rank") as usize;
        let (ahead_ns, gains) = CLOCKS[rank];
        let number = |key: &str| clock[key].as_i64().unwrap_or_else(|| panic!("{key} of {clock}"));
        // The reference is right, so that what this clock shows beyond it is what was added.
        let shown = number("at_ns") - base_ns;
        let truth =
            ahead_ns + ((shown - ahead_ns) as f64 * gains as f64 / (1e9 + gains as f64)).round() as i64;
        let off = (number("offset_ns") - truth).abs();
        println!(
            "rank {rank}: off by {off} ns, said ±{} ns",
            number("half_width_ns")
        );
        assert!(off <= 2_000, "rank {rank}: {truth}, {clock}");
        assert!(off <= number("half_width_ns"), "rank {rank}: {truth}, {clock}");
        assert!(
            (number("hard_low_ns")..=number("hard_high_ns")).contains(&truth),
            "rank {rank}: {truth}, {clock}"
        );
    }
    // Rank 0's own times are those of both, and what ranks waited is the same within what is said.
    let compared = same_within_errors(&right, &wrong);
    assert!(compared >= 40, "{compared}");
}
