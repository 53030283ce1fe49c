//! Stamps of an analysis, made relative to the recording's origin.
//!
//! Nanoseconds since the epoch are beyond 2^53, where a browser's numbers have no room for single ones. Which members are
//! stamps is written down here, path by path; everything else is a duration, a count or a share, and stays.

use serde_json::Value;

/// Every stamp in an analysis: member by member, `*` for each element of a list.
const STAMPS: &[&str] = &[
    "ranks.*.longest_gaps.*.start_ns",
    "ranks.*.longest_gaps.*.end_ns",
    "ranks.*.steps.*.start_ns",
    "ranks.*.steps.*.end_ns",
    "ranks.*.memory.peak_at_ns",
    "ranks.*.memory.timeline.*.0",
    "ranks.*.queues.*.timeline.*.0",
    "unfinished.*.start_ns",
    "hangs.*.noticed_ns",
    "hangs.*.waiting.*.since_ns",
    "collectives.*.start_ns",
];

/// Makes all stamps of an analysis relative to `origin_ns`.
pub fn make_relative(analysis: &mut Value, origin_ns: i64) {
    for path in STAMPS {
        visit(analysis, path, origin_ns);
    }
}

fn visit(value: &mut Value, path: &str, origin_ns: i64) {
    if path.is_empty() {
        if let Some(stamp) = value.as_i64() {
            *value = stamp.saturating_sub(origin_ns).into();
        }
        return;
    }
    let (first, rest) = path.split_once('.').unwrap_or((path, ""));
    match value {
        Value::Array(list) if first == "*" => {
            for element in list {
                visit(element, rest, origin_ns);
            }
        }
        Value::Array(list) => {
            let place = first.parse::<usize>().ok();
            if let Some(element) = place.and_then(|place| list.get_mut(place)) {
                visit(element, rest, origin_ns);
            }
        }
        Value::Object(members) => {
            if let Some(member) = members.get_mut(first) {
                visit(member, rest, origin_ns);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn stamps_and_nothing_else() {
        let mut analysis = json!({
            "ranks": [{
                "span_ns": 1000,
                "longest_gaps": [{"start_ns": 1005, "end_ns": 1007, "duration_ns": 1002}],
                "steps": [{"start_ns": 1000, "end_ns": 1100}],
                "memory": {"peak_at_ns": 1050, "peak_bytes": 5000, "timeline": [[1001, 2000], [1002, 3000]]},
                "queues": [{"timeline": [[1003, 4000]]}],
            }, {"memory": null, "longest_gaps": []}],
            "unfinished": [{"start_ns": 1009, "at_least_ns": 1001}],
            "hangs": [{"noticed_ns": 2000, "silent_ns": 1500, "waiting": [{"since_ns": 1999}]}],
        });
        make_relative(&mut analysis, 1000);
        assert_eq!(
            analysis,
            json!({
                "ranks": [{
                    "span_ns": 1000,
                    "longest_gaps": [{"start_ns": 5, "end_ns": 7, "duration_ns": 1002}],
                    "steps": [{"start_ns": 0, "end_ns": 100}],
                    "memory": {"peak_at_ns": 50, "peak_bytes": 5000, "timeline": [[1, 2000], [2, 3000]]},
                    "queues": [{"timeline": [[3, 4000]]}],
                }, {"memory": null, "longest_gaps": []}],
                "unfinished": [{"start_ns": 9, "at_least_ns": 1001}],
                "hangs": [{"noticed_ns": 1000, "silent_ns": 1500, "waiting": [{"since_ns": 999}]}],
            })
        );
    }
}
