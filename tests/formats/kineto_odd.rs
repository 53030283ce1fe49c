//! Trace files that are whole but odd: what is more than one reader would take, or less, is said.

use crate::common;

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::{analysis, expect_status, fresh_folder, gputrace, one_line, stderr, stdout};
use serde_json::Value;

/// A kernel of 5 us at `ts`.
fn kernel(ts: u64) -> String {
    format!(
        r#"{{"ph":"X","cat":"kernel","name":"a","pid":0,"tid":7,"ts":{ts},"dur":5,"args":{{"device":0,"stream":7,"correlation":1}}}}"#
    )
}

fn trace(head: &str, events: &[String]) -> String {
    format!("{{{head}\"traceEvents\":[{}]}}", events.join(","))
}

fn write(folder: &Path, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
    std::fs::create_dir_all(folder).expect("a folder");
    let path = folder.join(name);
    std::fs::write(&path, bytes).expect("a file");
    path
}

#[track_caller]
fn says(analysis: &Value, member: &str, words: &str) {
    let text = analysis[member].to_string();
    assert!(text.contains(words), "{words:?} is not in {text}");
}

#[test]
fn what_follows_the_end_is_said() {
    let (_keep, folder) = fresh_folder("x");
    let one = trace("", &[kernel(10)]);
    let twice = analysis(&write(&folder, "two.json", format!("{one}\n{one}")));
    says(&twice, "losses", "bytes behind the end of its JSON were not read");
    assert_eq!(twice["ranks"][0]["kernels"][0]["count"], 1);
    let blank = analysis(&write(&folder, "blank.json", format!("{one}\n \n")));
    assert!(!blank["losses"].to_string().contains("behind"));
    let lists = analysis(&write(
        &folder,
        "lists.json",
        format!(
            "{{\"traceEvents\":[{}],\"traceEvents\":[{}]}}",
            kernel(10),
            kernel(20)
        ),
    ));
    says(&lists, "losses", "lists of events after the first");
}

#[test]
fn a_cut_touches_every_number() {
    let (_keep, folder) = fresh_folder("x");
    // Events stand in no order: the later one first.
    let whole = trace("", &[kernel(100), kernel(10), kernel(50)]);
    let cut = analysis(&write(&folder, "cut.json", &whole[..whole.len() - 60]));
    let loss = &cut["losses"][0];
    assert_eq!(loss["affects"], "every number of that rank");
}

#[test]
fn a_base_time_that_is_none_is_said_and_times_stay() {
    let (_keep, folder) = fresh_folder("x");
    for base in ["9223372036854775807", "1e300", "NaN", "[1]"] {
        let head = format!("\"baseTimeNanoseconds\":{base},");
        let analysis = analysis(&write(
            &folder,
            "base.json",
            trace(&head, &[kernel(10), kernel(100)]),
        ));
        says(&analysis, "losses", "baseTimeNanoseconds could not be used");
        assert_eq!(
            (&analysis["ranks"][0]["span_ns"], &analysis["ranks"][0]["busy_ns"]),
            (&95_000.into(), &10_000.into())
        );
    }
    let quoted = analysis(&write(
        &folder,
        "quoted.json",
        trace(
            "\"baseTimeNanoseconds\":\"1700000000000000000\",\"distributedInfo\":{\"rank\":0},",
            &[kernel(10)],
        ),
    ));
    assert!(
        !quoted["losses"].to_string().contains("base"),
        "{}",
        quoted["losses"]
    );
}

#[test]
fn a_rank_that_cannot_be_is_said() {
    let (_keep, folder) = fresh_folder("x");
    for info in [
        r#"{"rank":"3"}"#,
        r#"{"rank":-1}"#,
        r#"{"rank":9,"world_size":2}"#,
        r#""x""#,
    ] {
        let head = format!("\"distributedInfo\":{info},");
        let analysis = analysis(&write(&folder, "odd.json", trace(&head, &[kernel(10)])));
        says(&analysis, "losses", "distributedInfo");
    }
}

#[test]
fn events_that_are_not_complete_are_a_loss() {
    let (_keep, folder) = fresh_folder("x");
    let begin = r#"{"ph":"B","cat":"kernel","name":"b","pid":0,"tid":7,"ts":50}"#.to_owned();
    let none = r#"{"cat":"kernel","name":"c","pid":0,"tid":7,"ts":50,"dur":1}"#.to_owned();
    let analysis = analysis(&write(
        &folder,
        "phases.json",
        trace("", &[kernel(10), begin, none]),
    ));
    says(&analysis, "losses", "events of phase 'B' (kernel)");
    says(&analysis, "losses", "events without a phase (kernel)");
}

#[test]
fn damaged_args_are_counted() {
    let (_keep, folder) = fresh_folder("x");
    let spoilt = kernel(50).replace("\"stream\":7", "\"stream\" 7");
    let list = kernel(60).replace("{\"device\":0,\"stream\":7,\"correlation\":1}", "[1]");
    let analysis = analysis(&write(
        &folder,
        "args.json",
        trace("", &[kernel(10), spoilt, list]),
    ));
    let losses = analysis["losses"].as_array().expect("losses");
    let loss = losses.iter().find(|loss| {
        loss["what"]
            .as_str()
            .is_some_and(|what| what.contains("args could not"))
    });
    assert_eq!(loss.map(|loss| &loss["count"]), Some(&2.into()), "{losses:?}");
}

#[test]
fn operations_days_apart_are_doubted() {
    let (_keep, folder) = fresh_folder("x");
    let analysis = analysis(&write(
        &folder,
        "zero.json",
        trace("", &[kernel(0), kernel(1_694_128_201_000_000)]),
    ));
    says(&analysis, "losses", "days apart");
}

#[test]
fn operations_before_their_launch_are_counted() {
    let (_keep, folder) = fresh_folder("x");
    let call = r#"{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":1,"tid":1,"ts":14,"dur":2,"args":{"correlation":1}}"#;
    let analysis = analysis(&write(
        &folder,
        "early.json",
        trace("", &[kernel(10), call.to_owned()]),
    ));
    says(&analysis, "losses", "begin before the call that launched them");
}

#[test]
fn a_pipe_is_read_once() {
    let (_keep, folder) = fresh_folder("x");
    let path = write(&folder, "one.json", trace("", &[kernel(10)]));
    let mut command = gputrace();
    command
        .args(["analyze", "--json", "/dev/stdin"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = command.spawn().expect("the program starts");
    let mut cat = Command::new("cat")
        .arg(&path)
        .stdout(child.stdin.take().expect("a pipe"))
        .spawn()
        .expect("cat starts");
    let output = child.wait_with_output().expect("an end");
    assert!(cat.wait().expect("an end").success());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let analysis: Value = serde_json::from_str(&stdout(&output)).expect("JSON");
    assert_eq!(analysis["ranks"][0]["busy_ns"], 5_000);
}

#[test]
fn a_folder_gives_what_is_in_it_and_says_the_rest() {
    let (_keep, folder) = fresh_folder("x");
    let good = write(&folder, "rank0.json", trace("", &[kernel(10)]));
    symlink("nowhere", folder.join("broken.json")).expect("a link");
    for link in 0..60 {
        symlink(".", folder.join(format!("again{link}"))).expect("a link");
    }
    let made = Command::new("mkfifo")
        .arg(folder.join("pipe.json"))
        .status()
        .expect("mkfifo");
    assert!(made.success());
    write(&folder, "history.sqlite", b"SQLite format 3\0 and no more");
    write(&folder, "report.nsys-rep", "whatever");
    let analysis = analysis(&folder);
    assert_eq!(analysis["ranks"].as_array().map(Vec::len), Some(1));
    for left_out in ["broken.json", "pipe.json", "history.sqlite", "report.nsys-rep"] {
        says(&analysis, "losses", left_out);
    }
    std::fs::remove_file(good).expect("removed");
    std::fs::remove_file(folder.join("history.sqlite")).expect("removed");
    let line = one_line(&expect_status(gputrace().arg("analyze").arg(&folder), 2));
    assert!(line.contains("nsys export"), "{line}");
}

#[test]
fn other_packings_are_named() {
    let (_keep, folder) = fresh_folder("x");
    for (bytes, words) in [
        (b"\xfd7zXZ\0\0\x04".as_slice(), "xz -d"),
        (b"BZh91AY", "bzip2 -d"),
        (b"PK\x03\x04\x14\0", "unzip"),
        (b"\xff\xfe{\0\"\0", "iconv"),
    ] {
        let path = write(&folder, "packed.json", bytes);
        let line = one_line(&expect_status(gputrace().arg("analyze").arg(&path), 2));
        assert!(line.contains(words), "{line}");
    }
}

#[test]
fn names_speak_neither_to_the_terminal_nor_over_lines() {
    let (_keep, folder) = fresh_folder("x");
    let name = "a\\nFAKE ROW\\u001b[31m\\u202eb";
    let spoken = kernel(10).replace("\"name\":\"a\"", &format!("\"name\":\"{name}\""));
    let path = write(&folder, "new\nline.json", trace("", &[spoken]));
    let printed = stdout(&expect_status(gputrace().arg("analyze").arg(&path), 0));
    assert!(
        !printed.contains('\u{1b}') && !printed.contains('\u{202e}'),
        "{printed}"
    );
    assert!(
        printed.lines().all(|line| !line.trim_start().starts_with("FAKE")),
        "{printed}"
    );
    let missing = folder.join("no\nsuch.json");
    one_line(&expect_status(gputrace().arg("analyze").arg(&missing), 2));
}

#[test]
fn streams_of_any_number_stay_apart() {
    let (_keep, folder) = fresh_folder("x");
    let on = |stream: &str, ts: u64| kernel(ts).replace("\"stream\":7", &format!("\"stream\":{stream}"));
    let events = [
        on("94873284723487", 10),
        on("2147483648", 20),
        on("94873284723400", 30),
        on("7", 40),
    ];
    let mut reversed = events.clone();
    reversed.reverse();
    let first = analysis(&write(&folder, "a.json", trace("", &events)));
    let second = analysis(&write(&folder, "b.json", trace("", &reversed)));
    assert_eq!(first["ranks"][0]["streams"].as_array().map(Vec::len), Some(4));
    assert_eq!(first["ranks"][0]["streams"], second["ranks"][0]["streams"]);
    says(&first, "notes", "2147483649 is 94873284723400");
}

#[test]
fn ranks_that_cannot_be_told_apart_are_said() {
    let (_keep, folder) = fresh_folder("x");
    let call = |pid: u64, ts: u64| {
        format!(
            r#"{{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":{pid},"tid":1,"ts":{ts},"dur":1,"args":{{"correlation":1}}}}"#
        )
    };
    let merged = analysis(&write(
        &folder,
        "merged.json",
        trace("", &[call(100, 8), call(200, 18), kernel(10), kernel(20)]),
    ));
    says(&merged, "losses", "calls of 2 processes are in it");
    // Our own export with its names put last.
    let name = |pid: u64, process: u64| {
        format!(
            r#"{{"ph":"M","name":"process_name","pid":{pid},"args":{{"name":"x","process":{process},"rank":{process}}}}}"#
        )
    };
    let late = analysis(&write(
        &folder,
        "late.json",
        trace("", &[call(100, 8), kernel(10), name(0, 0), name(100, 0)]),
    ));
    says(&late, "losses", "before the names of their processes");
    let unnamed = analysis(&write(
        &folder,
        "unnamed.json",
        trace("", &[name(100, 0), call(100, 8), kernel(10)]),
    ));
    says(&unnamed, "losses", "processes that have no name beside others");
}

#[test]
fn chosen_steps_that_are_not_there_are_refused_with_those_that_are() {
    let (_keep, folder) = fresh_folder("x");
    let step =
        r#"{"ph":"X","cat":"user_annotation","name":"ProfilerStep#4","pid":1,"tid":1,"ts":5,"dur":50}"#;
    let path = write(&folder, "steps.json", trace("", &[step.to_owned(), kernel(10)]));
    let mut command = gputrace();
    command.args(["analyze", "--steps", "7..9"]).arg(&path);
    let line = one_line(&expect_status(&mut command, 2));
    assert!(line.contains("it has steps 4..4"), "{line}");
}

#[test]
fn a_report_beside_its_export_is_not_missed() {
    let (_keep, folder) = fresh_folder("x");
    write(&folder, "rank0.json", trace("", &[kernel(10)]));
    write(&folder, "rank0.nsys-rep", "whatever");
    let analysis = analysis(&folder);
    assert!(
        !analysis["losses"].to_string().contains("nsys-rep"),
        "{}",
        analysis["losses"]
    );
}

#[test]
fn what_is_escaped_without_need_is_read_as_if_it_were_not() {
    let (_keep, folder) = fresh_folder("x");
    let copy = r#"{"ph":"X","cat":"gpu_memcpy","name":"Memcpy HtoD (Pageable -> Device)","pid":0,"tid":7,"ts":20,"dur":5,"args":{"device":0,"stream":7,"correlation":2,"bytes":8}}"#;
    let host = r#""host_name":"rack/node <7>","#;
    let plain = trace(host, &[kernel(10), copy.to_owned()]);
    // As JSON is written for pages (Go, PHP), and by whoever escapes letters too.
    let escaped = plain
        .replace('>', r"\u003e")
        .replace('<', r"\u003c")
        .replace("rack/node", r"rack\/n\u006fde");
    let read = |name, text: &str| analysis(&write(&folder, name, text));
    let (plain, escaped) = (read("plain.json", &plain), read("escaped.json", &escaped));
    assert_eq!(escaped["ranks"][0]["host"], "rack/node <7>");
    assert_eq!(escaped["ranks"], plain["ranks"]);
}
