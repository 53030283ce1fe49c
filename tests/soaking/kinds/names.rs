//! Names that are scripts, markup or control characters: nothing that shows them runs them.

use std::path::Path;

use gputrace_analyzer::{Options, analyze_in_detail, derive_from};
use gputrace_interchange::import::{Progress, open};
use gputrace_trace::Recording;
use gputrace_viewer::report;

use crate::common::http::{self, Viewer};
use crate::common::page::assert_stands_alone;
use crate::random::Random;
use crate::seeds::{self, Words};
use crate::world::World;

/// What runs where it is not escaped: in text, in attributes of both quotes, in scripts, in styles, in addresses.
const PAYLOADS: &[&str] = &[
    "<script>alert(1)</script>",
    "\"><script>alert(1)</script>",
    "'><img src=x onerror=alert(1)>",
    "<svg/onload=alert(1)>",
    "</title><script>alert(1)</script>",
    "</style><script>alert(1)</script>",
    "--><script>alert(1)</script><!--",
    "\" onmouseover=\"alert(1)",
    "' onfocus='alert(1)' autofocus='",
    "javascript:alert(1)",
    "{{constructor.constructor('alert(1)')()}}",
    "<iframe srcdoc=\"<script>alert(1)</script>\">",
    "]]></text><script>alert(1)</script>",
    "\u{202e}<b>\0\u{7}\u{1b}]0;x\u{7}",
];

/// What of a payload must stand nowhere as it is: it would begin a tag, or end an attribute.
fn check_page(page: &str) {
    assert_stands_alone(page);
    for wrong in [
        "<script",
        "<img",
        "<iframe",
        "onerror=alert(1)>",
        "\" onmouseover=\"alert",
        "' onfocus='alert",
    ] {
        assert!(!page.contains(wrong), "{wrong} stands in the page");
    }
}

fn page_of(recording: &Recording) -> String {
    let (analysis, details) = analyze_in_detail(recording, &Options::default());
    let derived = derive_from(recording, &analysis, &details);
    let mut page = Vec::new();
    let options = report::Options {
        shown: report::Shown::MedianStep,
    };
    report::write(recording, &analysis, &derived, &options, &mut page).expect("into memory");
    String::from_utf8(page).expect("text")
}

fn trace(payload: impl Fn() -> String) -> String {
    use serde_json::json;
    let kernel = |ts: u64| {
        json!({"ph": "X", "cat": "kernel", "name": payload(), "pid": 0, "tid": 7, "ts": ts, "dur": 5,
            "args": {"device": 0, "stream": 7, "correlation": ts, "Collective name": payload(), "dtype": payload(),
                "Process Group Name": payload(), "Process Group Description": payload(), "Group size": 2}})
    };
    let others = [
        json!({"ph": "X", "cat": "cpu_op", "name": payload(), "pid": 1, "tid": payload(), "ts": 1, "dur": 100}),
        json!({"ph": "X", "cat": "user_annotation", "name": payload(), "pid": payload(), "tid": 1, "ts": 1, "dur": 90}),
        json!({"ph": "M", "name": "thread_name", "pid": 1, "tid": 1, "args": {"name": payload()}}),
        json!({"ph": "C", "name": payload(), "pid": 1, "ts": 3, "args": {payload(): 5}}),
        json!({"ph": payload(), "cat": payload(), "name": payload(), "pid": 1, "ts": 3}),
    ];
    let events: Vec<_> = (10..40).step_by(10).map(kernel).chain(others).collect();
    json!({
        "host_name": payload(),
        "deviceProperties": [{"id": 0, "name": payload()}],
        "distributedInfo": {"rank": 0, "world_size": 2, "backend": payload()},
        "traceEvents": events,
    })
    .to_string()
}

/// What a server answers about a recording: data, never a page.
fn check_served(viewer: &Viewer, name: &str, payload: &str) {
    let id = viewer.id(name);
    let base = viewer.base(&id);
    let mut paths = vec![
        "/".to_owned(),
        "/api/recordings".to_owned(),
        format!("/api/rec/{id}/info"),
    ];
    for what in [
        "analysis",
        "rows",
        "names",
        "overview",
        "collectives",
        "search?text=a",
        "export?format=html",
    ] {
        paths.push(format!("{base}/{what}"));
    }
    for path in paths {
        let answer = viewer.get(&path);
        assert!(answer.status != 500, "{path}: {}", answer.text());
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"), "{path}");
        let kind = answer.header("content-type").unwrap_or_default().to_owned();
        let policy = answer.header("content-security-policy").unwrap_or_default();
        assert!(!policy.contains("unsafe"), "{path}: {policy}");
        if kind.starts_with("text/html") {
            let text = answer.text();
            let is_ours = !payload.contains('<') || !text.contains(payload);
            assert!(is_ours, "{path}: the page has {payload}");
        }
        for (name, value) in &answer.headers {
            assert!(!value.contains("<script"), "{path}: header {name} is {value}");
        }
    }
}

/// A recording or a trace full of them: the page that stands alone, and now and then what a server answers.
pub fn scripts(_: &World, mut random: Random, folder: &Path) {
    let payload = random.one_of(PAYLOADS).to_string();
    let own = random.once_in(2);
    let place = folder.join("served");
    std::fs::create_dir(&place).expect("a folder");
    // Names of folders and files are names too.
    let name: String = payload
        .chars()
        .filter(|letter| *letter != '/' && !letter.is_control())
        .collect();
    let path = if own {
        let path = place.join(&name);
        let word = payload.as_str();
        let words = Words {
            host: word,
            device: word,
            kernel: word,
            range: word,
            operator: word,
            communicator: word,
            counter: word,
            command: word,
            variable: word,
            thread: word,
        };
        seeds::recording(&path, 1, words);
        path
    } else {
        let path = place.join(format!("{name}.json"));
        std::fs::write(&path, trace(|| payload.clone())).expect("a file");
        path
    };
    match open(std::slice::from_ref(&path), &Progress::default()) {
        Ok(recording) => check_page(&page_of(&recording)),
        Err(error) => panic!("{error}"),
    }
    if random.once_in(20) {
        let viewer = http::serve(&place);
        let list = viewer.json("/api/recordings");
        let shown = list["recordings"][0]["name"].as_str().expect("a name").to_owned();
        check_served(&viewer, &shown, &payload);
    }
}
