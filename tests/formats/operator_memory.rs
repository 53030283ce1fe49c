//! Device memory by the operators that asked for it, against a search for the innermost operator around each allocation.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use serde_json::{Value, json};

use crate::common::{expect_status, gputrace};

/// Allocated, in use at the peak, in use at the end.
type Sizes = [u64; 3];

fn analysis_of(path: &Path) -> Value {
    let output = expect_status(gputrace().args(["analyze", "--json"]).arg(path), 0);
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn sizes(row: &Value, before: &str) -> Sizes {
    ["allocated_bytes", "live_at_peak_bytes", "live_at_end_bytes"].map(|name| {
        row[format!("{before}{name}")]
            .as_u64()
            .unwrap_or_else(|| panic!("{name} of {row}"))
    })
}

fn ns(value: &Value) -> i64 {
    (value.as_f64().expect("a number") * 1000.0).round() as i64
}

fn sum(all: impl IntoIterator<Item = Sizes>) -> Sizes {
    all.into_iter().fold([0; 3], |sum, more| {
        [0, 1, 2].map(|place| sum[place] + more[place])
    })
}

/// What is not the GPU's is left out, as are operators that allocated nothing.
fn by_operator(rank: &Value, before: &str) -> BTreeMap<String, Sizes> {
    let rows = rank["operators"].as_array().expect("operators").iter();
    rows.map(|row| {
        (
            row["name"].as_str().expect("a name").to_owned(),
            sizes(row, before),
        )
    })
    .filter(|(_, sizes)| *sizes != [0; 3])
    .collect()
}

#[test]
fn memory_of_a_real_trace_is_its_operators() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/operators/h100_qwen");
    let rank = analysis_of(&folder)["ranks"][0].clone();
    let file = std::fs::read_dir(&folder)
        .expect("a folder")
        .next()
        .expect("a file")
        .expect("a file");
    let mut text = Vec::new();
    let file = std::fs::File::open(file.path()).expect("the trace");
    flate2::read::GzDecoder::new(file)
        .read_to_end(&mut text)
        .expect("gzip");
    let trace: Value = serde_json::from_slice(&text).expect("JSON");
    let events = trace["traceEvents"].as_array().expect("events");
    let operators: Vec<(i64, i64, &Value, &str)> = events
        .iter()
        .filter(|event| event["cat"] == "cpu_op" && event["ph"] == "X")
        .map(|event| {
            let start = ns(&event["ts"]);
            let name = event["name"].as_str().expect("a name");
            (start, start + ns(&event["dur"]), &event["tid"], name)
        })
        .collect();
    let mut memory: Vec<&Value> = events
        .iter()
        .filter(|event| event["name"] == "[memory]" && event["args"]["Device Type"] == 1)
        .collect();
    memory.sort_by_key(|event| ns(&event["ts"]));
    // When most is in use, by the allocator's own count: the first of equal ones.
    let in_use = |event: &&&Value| event["args"]["Total Allocated"].as_u64().expect("a size");
    let peak = memory.iter().rev().max_by_key(in_use).expect("memory");
    let (peak_at, peak_bytes) = (ns(&peak["ts"]), in_use(&peak));
    let [mut own, mut all] = [BTreeMap::<String, Sizes>::new(), BTreeMap::new()];
    let (mut nobodys, mut seen) = ([0; 3], [0; 3]);
    for (place, event) in memory.iter().enumerate() {
        let Some(bytes) = event["args"]["Bytes"].as_u64() else {
            continue;
        };
        let at = ns(&event["ts"]);
        let freed = memory[place..].iter().find(|other| {
            other["args"]["Addr"] == event["args"]["Addr"] && other["args"]["Bytes"].as_i64() < Some(0)
        });
        let lasts = at <= peak_at && freed.is_none_or(|freed| ns(&freed["ts"]) > peak_at);
        let part = [
            bytes,
            if lasts { bytes } else { 0 },
            if freed.is_none() { bytes } else { 0 },
        ];
        seen = sum([seen, part]);
        let mut around: Vec<&(i64, i64, &Value, &str)> = operators
            .iter()
            .filter(|(start, end, tid, _)| *tid == &event["tid"] && (*start..*end).contains(&at))
            .collect();
        around.sort_by_key(|(start, end, ..)| (*start, -end));
        match around.last() {
            Some((.., name)) => {
                let sizes = own.entry((*name).to_owned()).or_default();
                *sizes = sum([*sizes, part]);
            }
            None => nobodys = sum([nobodys, part]),
        }
        let mut names: Vec<&str> = around.iter().map(|(.., name)| *name).collect();
        names.sort_unstable();
        names.dedup();
        for name in names {
            let sizes = all.entry(name.to_owned()).or_default();
            *sizes = sum([*sizes, part]);
        }
    }
    assert!(own.len() > 1 && all.len() > own.len() && seen[1] > 0, "{own:?}");
    assert_eq!(by_operator(&rank, ""), own);
    assert_eq!(by_operator(&rank, "subtree_"), all);
    let unattributed = &rank["unattributed_memory"];
    assert_eq!(sizes(&unattributed["no_operator"], ""), nobodys);
    assert_eq!(sizes(&unattributed["all"], ""), [seen[0], peak_bytes, seen[2]]);
    assert_eq!(rank["memory"]["peak_bytes"], peak_bytes);
    assert_eq!(unattributed["not_seen_at_peak_bytes"], peak_bytes - seen[1]);
    // All parts are the whole.
    let parts = own
        .values()
        .copied()
        .chain([nobodys, [0, peak_bytes - seen[1], 0]]);
    assert_eq!(sum(parts), sizes(&unattributed["all"], ""));
    let modules = rank["modules"].as_array().expect("modules").iter();
    let of_modules = sum(modules.map(|row| sizes(row, "")));
    assert_eq!(sum([of_modules, sizes(&unattributed["no_module"], "")]), seen);
}

fn memory(at: i64, tid: u32, device: u32, address: u64, bytes: i64) -> Value {
    json!({"ph": "i", "s": "t", "cat": "cpu_instant_event", "name": "[memory]", "pid": 1, "tid": tid, "ts": at,
        "args": {"Addr": address, "Bytes": bytes, "Device Type": 1, "Device Id": device}})
}

fn on_host(category: &str, name: &str, tid: u32, ts: i64, dur: i64) -> Value {
    json!({"ph": "X", "cat": category, "name": name, "pid": 1, "tid": tid, "ts": ts, "dur": dur, "args": {}})
}

fn kernel(device: u32, ts: i64) -> Value {
    json!({"ph": "X", "cat": "kernel", "name": "k", "pid": device, "tid": 7, "ts": ts, "dur": 10, "args": {"device": device, "stream": 7}})
}

#[test]
fn what_is_allocated_belongs_to_who_asked_for_it_until_it_is_freed_by_anybody() {
    let mut events = vec![
        on_host("python_function", "nn.Module: Linear_0", 1, 0, 100),
        on_host("cpu_op", "aten::linear", 1, 10, 50),
        on_host("cpu_op", "aten::empty", 1, 20, 10),
        memory(21, 1, 0, 0x10, 1000),
        memory(25, 1, 0, 0x20, 10),
        memory(40, 1, 0, 0x30, 500),
        memory(41, 1, 0, 0x30, -500),
        // On the other GPU, by one operator.
        memory(45, 1, 1, 0x10, 7),
        // Of nobody; and an operator of another thread is open then.
        on_host("cpu_op", "aten::other", 2, 0, 1000),
        memory(200, 1, 0, 0x40, 600),
        // The peak: 1610. Freed outside of all operators.
        memory(300, 1, 0, 0x10, -1000),
        memory(400, 2, 0, 0x50, 64),
    ];
    events.extend([kernel(0, 500), kernel(1, 500)]);
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("trace.json");
    std::fs::write(&file, json!({ "traceEvents": events }).to_string()).expect("written");
    let analysis = analysis_of(&file);
    let ranks = analysis["ranks"].as_array().expect("ranks");
    let of = |device: usize, before: &str| by_operator(&ranks[device], before);
    let named = |rows: &[(&str, Sizes)]| -> BTreeMap<String, Sizes> {
        rows.iter()
            .map(|(name, sizes)| ((*name).to_owned(), *sizes))
            .collect()
    };
    assert_eq!(
        of(0, ""),
        named(&[
            ("aten::empty", [1010, 1010, 10]),
            ("aten::linear", [500, 0, 0]),
            ("aten::other", [64, 0, 64])
        ])
    );
    assert_eq!(
        of(0, "subtree_"),
        named(&[
            ("aten::empty", [1010, 1010, 10]),
            ("aten::linear", [1510, 1010, 10]),
            ("aten::other", [64, 0, 64])
        ])
    );
    assert_eq!(of(1, ""), named(&[("aten::linear", [7, 7, 7])]));
    let unattributed = &ranks[0]["unattributed_memory"];
    assert_eq!(sizes(&unattributed["all"], ""), [2174, 1610, 674]);
    assert_eq!(sizes(&unattributed["no_operator"], ""), [600, 600, 600]);
    assert_eq!(sizes(&unattributed["no_module"], ""), [664, 600, 664]);
    assert_eq!(unattributed["not_seen_at_peak_bytes"], 0);
    let modules = ranks[0]["modules"].as_array().expect("modules");
    assert_eq!(
        (modules.len(), sizes(&modules[0], "subtree_")),
        (1, [1510, 1010, 10])
    );
    // Both GPUs together, and as a table.
    let both = &analysis["over_ranks"];
    assert_eq!(sizes(&both["unattributed_memory"]["all"], ""), [2181, 1617, 681]);
    let output = expect_status(gputrace().args(["analyze", "--by", "memory"]).arg(&file), 0);
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(
        text.contains("aten::linear") && text.contains("(no operator)") && text.contains("(all)"),
        "{text}"
    );
    // Without allocations nothing is known, and nothing is 0.
    std::fs::write(
        &file,
        json!({"traceEvents": [on_host("cpu_op", "aten::a", 1, 0, 5), kernel(0, 1)]}).to_string(),
    )
    .expect("written");
    let analysis = analysis_of(&file);
    let rank = &analysis["ranks"][0];
    assert_eq!(rank["operators"][0]["allocated_bytes"], Value::Null);
    assert_eq!(rank["unattributed_memory"], Value::Null);
    expect_status(gputrace().args(["analyze", "--by", "memory"]).arg(&file), 2);
}
