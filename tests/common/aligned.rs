//! What is said of ranks whose clocks were wrong, held against what is said of the same with clocks that are right.

use serde_json::Value;

/// Holds each collective's waits, transfers, skew and last rank against those by clocks that are right; says how many waits there were.
pub fn same_within_errors(right: &Value, wrong: &Value) -> usize {
    let all = |analysis: &Value| -> Vec<Value> {
        let mut all = analysis["collectives"].as_array().expect("collectives").clone();
        all.sort_by_key(|one| {
            (
                one["name"].to_string(),
                one["sequence"].as_u64(),
                one["start_ns"].as_i64(),
            )
        });
        all
    };
    let (right, wrong) = (all(right), all(wrong));
    assert_eq!(right.len(), wrong.len());
    let mut compared = 0;
    for (right, wrong) in right.iter().zip(&wrong) {
        let Some(error) = wrong["clock_error_ns"].as_i64() else {
            continue;
        };
        let number = |value: &Value| value.as_i64().unwrap_or_else(|| panic!("{right} {wrong}"));
        for key in ["wait_ns", "transfer_ns"] {
            for (rank, value) in right[key].as_object().expect("by rank") {
                let off = (number(&wrong[key][rank]) - number(value)).abs();
                assert!(off <= error, "{key} of {rank}: {right} {wrong}");
                compared += usize::from(key == "wait_ns");
            }
        }
        let off = (number(&wrong["skew_ns"]) - number(&right["skew_ns"])).abs();
        assert!(off <= error, "{right} {wrong}");
        assert!(
            wrong["last_rank"].is_null() || wrong["last_rank"] == right["last_rank"],
            "{right} {wrong}"
        );
    }
    compared
}
