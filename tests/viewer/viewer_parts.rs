//! A run of several trace files that takes long to read: what has been read is shown meanwhile.
#![cfg(unix)]

use crate::common;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use common::gputrace;
use common::http::Viewer;
use serde_json::json;

/// A trace of one rank: kernels on two streams, launched by calls.
fn trace(rank: u32, begin: u32) -> String {
    let mut events = Vec::new();
    for number in 0..50u32 {
        let at = begin + number * 100;
        let args = json!({"correlation": number + 1, "device": 0, "stream": 7 + number % 2});
        events.push(json!({"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 10, "tid": 20, "ts": at, "dur": 5, "args": {"correlation": number + 1}}));
        events.push(json!({"ph": "X", "cat": "kernel", "name": format!("kernel of rank {rank}"), "pid": 0, "tid": 7, "ts": at + 10, "dur": 50, "args": args}));
    }
    json!({"distributedInfo": {"rank": rank, "world_size": 3}, "traceEvents": events}).to_string()
}

fn pipe(path: &Path) {
    let name = std::ffi::CString::new(path.as_os_str().as_encoded_bytes()).unwrap();
    // SAFETY: the name is a string that ends.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
}

/// Two files, and a third that does not come before it is written to; a server of the three.
fn begun(folder: &Path) -> (Viewer, PathBuf, String) {
    let paths = ["rank0.json", "rank1.json", "rank2.json"].map(|name| folder.join(name));
    std::fs::write(&paths[0], trace(0, 1000)).unwrap();
    std::fs::write(&paths[1], trace(1, 1000)).unwrap();
    pipe(&paths[2]);
    let mut command = gputrace();
    command.args(["view", "--no-open"]).args(&paths);
    let viewer = Viewer::start(&mut command);
    let list = viewer.json("/api/recordings");
    let id = list["recordings"][0]["id"].as_str().unwrap().to_owned();
    (viewer, paths[2].clone(), id)
}

#[test]
fn files_that_were_read_are_shown_while_another_still_is() {
    let folder = tempfile::tempdir().unwrap();
    let (viewer, last, id) = begun(folder.path());
    let part = viewer.info(&id, |info| info["reading"].is_number());
    assert_eq!(
        (&part["ranks"], &part["analysed"], &part["events"]),
        (&json!(2), &json!(false), &json!(200))
    );
    let base = format!("/api/rec/{id}/{}", part["generation"]);
    let rows = viewer.json(&format!("{base}/rows"));
    assert_eq!(rows["rows"].as_array().unwrap().len(), 2 * 3, "{rows}");
    let names = viewer.json(&format!("{base}/search?q=rank%201"));
    assert_eq!(names["total"], 50, "{names}");
    // The whole: its rank 2 began before the others, and takes its place.
    std::fs::OpenOptions::new()
        .write(true)
        .open(&last)
        .unwrap()
        .write_all(trace(2, 500).as_bytes())
        .unwrap();
    let whole = viewer.info(&id, |info| info["analysed"] == true);
    assert_eq!(
        (&whole["ranks"], &whole["reading"], &whole["events"]),
        (&json!(3), &json!(null), &json!(300))
    );
    assert_ne!(whole["origin_ns"], part["origin_ns"]);
    // What the part does not have is not made up: it is asked of the whole.
    for path in ["slice?row=0&index=0", "export?format=chrome", "analysis"] {
        assert_eq!(viewer.get(&format!("{base}/{path}")).status, 410, "{path}");
    }
}

#[test]
fn a_file_that_breaks_takes_the_parts_back_and_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let (viewer, last, id) = begun(folder.path());
    let part = viewer.info(&id, |info| info["reading"].is_number());
    std::fs::OpenOptions::new()
        .write(true)
        .open(&last)
        .unwrap()
        .write_all(b"not a trace")
        .unwrap();
    let until = Instant::now() + Duration::from_secs(20);
    let error = loop {
        let list = viewer.json("/api/recordings");
        if let Some(error) = list["recordings"][0]["error"].as_str() {
            break error.to_owned();
        }
        assert!(Instant::now() < until);
        std::thread::sleep(Duration::from_millis(20));
    };
    assert!(
        error.contains("rank2.json") && error.contains("is not JSON"),
        "{error}"
    );
    // The pipe is another one since it was written to, so that it is read again: what was shown is gone all the same.
    let part = format!("/api/rec/{id}/{}/rows", part["generation"]);
    assert_ne!(viewer.get(&part).status, 200);
}
