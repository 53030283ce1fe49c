//! Broken trace files: one clear line or a counted loss, never a panic, never a wrong number in silence.

use crate::common;
mod growth;

use std::path::Path;

use common::{expect_status, gputrace, one_line, stdout};
use serde_json::Value;

const KERNEL: &str = r#"{"ph":"X","cat":"kernel","name":"a","pid":0,"tid":7,"ts":10,"dur":5,"args":{"device":0,"stream":7,"correlation":1}}"#;

fn trace_of_one_kernel() -> String {
    format!("{{\"traceEvents\":[{KERNEL}]}}")
}

fn file(name: &str, bytes: impl AsRef<[u8]>) -> (tempfile::TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join(name);
    std::fs::write(&path, bytes).expect("a file");
    (folder, path)
}

#[track_caller]
fn refused(path: &Path, words: &[&str]) {
    let output = expect_status(gputrace().arg("analyze").arg(path), 2);
    let line = one_line(&output);
    for word in words {
        assert!(line.contains(word), "{word:?} is not in: {line}");
    }
    assert!(
        line.contains(&path.display().to_string()),
        "the file is named: {line}"
    );
}

#[track_caller]
fn analysis(path: &Path) -> Value {
    let output = expect_status(gputrace().args(["analyze", "--json"]).arg(path), 0);
    serde_json::from_str(&stdout(&output)).expect("JSON")
}

/// Analyses events, one of which is good, and gives the losses as text.
#[track_caller]
fn losses(events: &str) -> String {
    let (_keep, path) = file("rank0.json", format!("{{\"traceEvents\":[{KERNEL},{events}]}}"));
    let analysis = analysis(&path);
    assert_eq!(
        analysis["ranks"][0]["busy_ns"], 5_000,
        "the good kernel is all that counts"
    );
    assert_eq!(analysis["ranks"][0]["span_ns"], 5_000);
    analysis["losses"].to_string()
}

fn kernel(members: &str) -> String {
    format!(
        r#"{{"ph":"X","cat":"kernel","name":"b","pid":0,"tid":7,{members},"args":{{"stream":7,"correlation":2}}}}"#
    )
}

#[test]
fn what_is_no_trace_is_refused_in_one_line() {
    refused(Path::new("no-such-file.json"), &["no such file"]);
    let (_keep, path) = file("empty.json", "");
    refused(&path, &["is empty"]);
    let (_keep, path) = file(
        "page.json",
        "<!DOCTYPE html><html><body>404 Not Found</body></html>",
    );
    refused(&path, &["is not JSON", "<!DOCTYPE html>"]);
    let (_keep, path) = file("other.json", r#"{"hello": [1, 2, 3]}"#);
    refused(&path, &["no \"traceEvents\""]);
    let (_keep, path) = file("cut.json", r#"{"schemaVersion": 1, "deviceProp"#);
    refused(&path, &["no \"traceEvents\"", "ends in the middle"]);
    let (_keep, path) = file("number.json", "42");
    refused(&path, &["is not JSON"]);
    let (_keep, path) = file(
        "bad.json.gz",
        b"\x1f\x8b\x08\x00garbage that is no deflate stream",
    );
    refused(&path, &["can't be unpacked"]);
    let (_keep, path) = file("report.nsys-rep", "whatever");
    refused(&path, &["nsys export --type sqlite"]);
    let (_keep, path) = file(
        "cpu.json",
        r#"{"traceEvents":[{"ph":"X","cat":"cpu_op","name":"x","pid":1,"tid":1,"ts":1,"dur":1}]}"#,
    );
    refused(&path, &["no GPU operation"]);
}

#[test]
fn a_folder_without_traces_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    refused(folder.path(), &["not a gputrace recording"]);
    std::fs::write(folder.path().join("page.json"), "<html>").expect("a file");
    refused(folder.path(), &["no trace in it"]);
}

#[test]
fn a_page_among_traces_is_a_loss() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("rank0.json"), format!("[{KERNEL}]")).expect("a file");
    std::fs::write(folder.path().join("rank1.json"), "<html>").expect("a file");
    let losses = analysis(folder.path())["losses"].to_string();
    assert!(losses.contains("rank1.json: left out"), "{losses}");
}

#[test]
fn times_out_of_range_and_backwards_are_counted() {
    for (members, words) in [
        (r#""ts":9223372036854775808,"dur":5"#, "out of range"),
        (r#""ts":1e300,"dur":5"#, "out of range"),
        (r#""ts":20,"dur":18446744073709551615"#, "out of range"),
        (r#""ts":20,"dur":-5"#, "end before they begin"),
        (r#""ts":NaN,"dur":5"#, "without a time or a duration"),
        (r#""ts":20"#, "without a time or a duration"),
        (r#""ts":20,"dur":null"#, "without a time or a duration"),
        (r#""ts":"yesterday","dur":5"#, "without a time or a duration"),
    ] {
        let losses = losses(&kernel(members));
        assert!(losses.contains(words), "{members}: {losses}");
    }
}

#[test]
fn spoilt_events_are_counted_and_the_rest_is_read() {
    let bad = r#"{"ph":"X","cat":"kernel" "name":"b","ts":20,"dur":5}"#;
    let losses = losses(&format!("{bad},{bad},7,null,\"text\""));
    assert!(
        losses.contains(r#""count":2,"what":"rank0.json: elements that are no JSON""#),
        "{losses}"
    );
    assert!(
        losses.contains(r#""count":3,"what":"rank0.json: elements that are no events""#),
        "{losses}"
    );
}

#[test]
fn garbage_between_events_ends_the_reading_and_says_where() {
    let (_keep, path) = file(
        "rank0.json",
        format!("{{\"traceEvents\":[{KERNEL},\n}}}} garbage"),
    );
    let losses = analysis(&path)["losses"].to_string();
    assert!(losses.contains("not JSON at byte"), "{losses}");
}

#[test]
fn strings_that_are_no_text_are_replaced_and_counted() {
    let mut bytes = format!("{{\"traceEvents\":[{KERNEL},").into_bytes();
    bytes.extend_from_slice(br#"{"ph":"X","cat":"kernel","name":"x"#);
    bytes.extend_from_slice(&[0xff, 0xfe]);
    bytes.extend_from_slice(br#"","pid":0,"tid":7,"ts":20,"dur":5,"args":{"stream":7}},"#);
    bytes.extend_from_slice(
        br#"{"ph":"X","cat":"kernel","name":"y\ud83d","pid":0,"tid":7,"ts":30,"dur":5,"args":{"stream":7}},"#,
    );
    bytes.extend_from_slice(br#"{"ph":"X","cat":"kernel","name":"z\ud83d\ude00","pid":0,"tid":7,"ts":40,"dur":5,"args":{"stream":7}}]}"#);
    let (_keep, path) = file("rank0.json", bytes);
    let analysis = analysis(&path);
    assert_eq!(analysis["ranks"][0]["busy_ns"], 20_000, "all four kernels count");
    let names: Vec<&str> = analysis["ranks"][0]["kernels"]
        .as_array()
        .expect("kernels")
        .iter()
        .map(|kernel| kernel["name"].as_str().expect("a name"))
        .collect();
    assert_eq!(names, ["a", "x\u{fffd}\u{fffd}", "y\u{fffd}", "z😀"]);
    let losses = analysis["losses"].to_string();
    assert!(
        losses.contains("no UTF-8") && losses.contains("broken escapes"),
        "{losses}"
    );
}

#[test]
fn a_member_that_stands_twice_counts_by_its_last() {
    let (_keep, path) = file(
        "rank0.json",
        r#"[{"ph":"X","cat":"kernel","name":"a","pid":0,"tid":7,"ts":10,"ts":20,"dur":5,"args":{"stream":7,"stream":9}}]"#,
    );
    let analysis = analysis(&path);
    assert_eq!(analysis["ranks"][0]["streams"][0]["stream"], 9);
    assert!(
        analysis["notes"].to_string().contains("2 members stand twice"),
        "{}",
        analysis["notes"]
    );
}

#[test]
fn deep_nesting_and_endless_names_cost_an_event_at_most() {
    let deep = format!(
        r#"{{"ph":"X","cat":"cpu_op","name":"deep","pid":1,"tid":1,"ts":1,"dur":1,"args":{}{}}}"#,
        "[".repeat(1_000_000),
        "]".repeat(1_000_000)
    );
    assert_eq!(
        losses(&deep),
        "[{\"affects\":\"idle causes (unknown), host wait and launch statistics\",\"count\":1,\"what\":\"operations whose launch call is not recorded\"}]"
    );
    let name = "n".repeat(100_000_000);
    let long = format!(r#"{{"ph":"X","cat":"kernel","name":"{name}","pid":0,"tid":7,"ts":20,"dur":5}}"#);
    let losses = losses(&long);
    assert!(losses.contains("more than 16 MiB"), "{losses}");
    // And the events behind it are read.
    let (_keep, path) = file("rank0.json", format!("[{long},{KERNEL}]"));
    assert_eq!(analysis(&path)["ranks"][0]["busy_ns"], 5_000);
    let name = "n".repeat(1_000_000);
    let long = format!(r#"[{{"ph":"X","cat":"kernel","name":"{name}","pid":0,"tid":7,"ts":20,"dur":5}}]"#);
    let (_keep, path) = file("rank0.json", long);
    let analysis = analysis(&path);
    assert_eq!(
        analysis["ranks"][0]["kernels"][0]["name"]
            .as_str()
            .expect("a name")
            .len(),
        256 * 1024
    );
    assert!(
        analysis["losses"]
            .to_string()
            .contains("names of more than 256 KiB, cut")
    );
}

#[test]
fn of_two_files_for_one_rank_the_second_is_left_out_and_said() {
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["a_rank3.json", "b_rank3.json"] {
        std::fs::write(folder.path().join(name), format!("[{KERNEL}]")).expect("a file");
    }
    let analysis = analysis(folder.path());
    assert_eq!(analysis["ranks"].as_array().expect("ranks").len(), 1);
    let losses = analysis["losses"].to_string();
    assert!(
        losses.contains("b_rank3.json: of rank 3, as a_rank3.json is"),
        "{losses}"
    );
}

#[test]
fn a_rank_without_gpu_operations_is_noted() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("rank0.json"), format!("[{KERNEL}]")).expect("a file");
    std::fs::write(
        folder.path().join("rank1.json"),
        r#"[{"ph":"X","cat":"cpu_op","name":"x","pid":1,"tid":1,"ts":1,"dur":1}]"#,
    )
    .expect("a file");
    let analysis = analysis(folder.path());
    assert_eq!(analysis["ranks"].as_array().expect("ranks").len(), 1);
    assert!(
        analysis["notes"]
            .to_string()
            .contains("rank1.json: no GPU operation in it")
    );
}

#[test]
fn nothing_makes_it_panic_where_a_file_is_cut() {
    let text = format!(
        "{{\"baseTimeNanoseconds\": 5, \"traceEvents\": [{KERNEL}, {KERNEL}], \"distributedInfo\": {{\"rank\": 1}}}}"
    );
    for length in 0..text.len() {
        let (_keep, path) = file("rank0.json", &text[..length]);
        let output = gputrace()
            .args(["analyze", "--json"])
            .arg(&path)
            .output()
            .expect("it starts");
        let status = output.status.code();
        assert!(
            matches!(status, Some(0 | 2)),
            "cut at {length}: {status:?}\n{}",
            common::stderr(&output)
        );
        if status == Some(0) && length < text.len() {
            let analysis: Value = serde_json::from_str(&stdout(&output)).expect("JSON");
            assert!(
                analysis["losses"].to_string().contains("ends in the middle"),
                "cut at {length}"
            );
        }
    }
}
