//! How soon a job of many ranks shows on the page: the time until a page has what its picture of ranks by steps needs, the time until everything
//! was read and compared, and that until a rank's own timeline can be drawn.
//!
//!     cargo bench --bench first_picture                   100 x 10,000
//!     cargo bench --bench first_picture -- 1000x100000    ranks x rows a rank
//!
//! | variable | what it does |
//! |---|---|
//! | `PICTURE_FOLDER=DIR` | recording and partials are made there, and removed; 100,000,000 rows take 0.8 GB |
//! | `PICTURE_FILES=n` | partials that the ranks are in; 20 |
//! | `PICTURE_HOSTS=1` | eight ranks a host instead of all on one |
//!
//! Each line is a server of its own that was just started. Time counts from its start, a rank's timeline from when it is opened;
//! CPU and memory are those of its process until then. The recording is simulated, of one host unless PICTURE_HOSTS is set, with
//! one slow rank.

#[path = "../tests/common/mod.rs"]
mod common;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use common::http::Viewer;
use common::{expect_status, gputrace};
use serde_json::Value;

/// Seconds of CPU, and MiB at most, of a process until now.
fn cost(pid: u32) -> (f64, f64) {
    let read = |name: &str| std::fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
    let stat = read("stat");
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
    // utime and stime: the 14th and 15th of proc_pid_stat(5), in hundredths of a second.
    let ticks = |place: usize| {
        fields
            .get(place)
            .and_then(|text| text.parse::<f64>().ok())
            .unwrap_or(f64::NAN)
    };
    let status = read("status");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let peak = peak.and_then(|text| text.trim().trim_end_matches(" kB").parse::<f64>().ok());
    ((ticks(11) + ticks(12)) / 100.0, peak.unwrap_or(f64::NAN) / 1024.0)
}

/// Asks until there is an answer.
fn there(viewer: &Viewer, path: &str, enough: impl Fn(&Value) -> bool) -> Value {
    loop {
        let answer = viewer.get(path);
        assert!([200, 503].contains(&answer.status), "{path}: {}", answer.text());
        if answer.status == 200 && enough(&answer.json()) {
            return answer.json();
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Opens these, and says what each stage took.
fn measure(what: &str, paths: &[&Path], ranks: u64) {
    let began = Instant::now();
    let mut command = gputrace();
    command.args(["view", "--no-open", "--port", "0"]).args(paths);
    command.stderr(std::process::Stdio::null());
    let viewer = Viewer::start(&mut command);
    let line = |stage: &str, began: Instant| {
        let (cpu, peak) = cost(viewer.pid());
        println!(
            "  {what:<12}{stage:<26}{:>8.2}{cpu:>9.2}{peak:>10.0}",
            began.elapsed().as_secs_f64()
        );
    };
    let list = viewer.json("/api/recordings");
    let id = list["recordings"][0]["id"].as_str().expect("a number").to_owned();
    let info = there(&viewer, &format!("/api/rec/{id}/info"), |_| true);
    let base = format!("/api/rec/{id}/{}", info["generation"]);
    let overview = viewer.get(&format!("{base}/ranks")).json();
    let cells = viewer.get(&format!("{base}/ranks/communication_exposed_ns?columns=370"));
    assert_eq!(cells.status, 200, "{}", cells.text());
    line(
        &format!("picture, {} of {} ranks", overview["here"], overview["all"]),
        began,
    );
    there(&viewer, &format!("/api/rec/{id}/info"), |info| {
        info["analysed"] == true
    });
    line("all read and compared", began);
    let opened = Instant::now();
    let rank = format!("{id}-rank{}", ranks / 3);
    there(&viewer, &format!("/api/rec/{rank}/info"), |info| {
        info["events"].as_u64() > Some(0)
    });
    line("... and a rank's timeline", opened);
}

fn main() {
    let shape = std::env::args().skip(1).find_map(|shape| {
        let (ranks, events) = shape.split_once('x')?;
        Some((ranks.parse::<u64>().ok()?, events.parse::<u64>().ok()?))
    });
    let (ranks, events) = shape.unwrap_or((100, 10_000));
    let files: u64 = std::env::var("PICTURE_FILES")
        .ok()
        .and_then(|number| number.parse().ok())
        .unwrap_or(20)
        .clamp(1, ranks);
    let root = match std::env::var_os("PICTURE_FOLDER") {
        Some(folder) => tempfile::tempdir_in(PathBuf::from(folder)),
        None => tempfile::tempdir(),
    };
    let root = root.expect("a folder");
    let recording = root.path().join("run");
    let slow = (ranks / 3).to_string();
    let mut make = gputrace();
    make.args(["workload", "--trace-only", "--slow-rank", &slow, "-o"])
        .arg(&recording);
    make.args(["--ranks", &ranks.to_string(), "--events", &events.to_string()]);
    if std::env::var_os("PICTURE_HOSTS").is_none() {
        make.arg("--one-host");
    }
    expect_status(&mut make, 0);
    println!("{ranks} x {events}, {files} partials");
    println!("  {:<38}{:>8}{:>9}{:>10}", "", "s", "CPU s", "peak MiB");
    // Without partials beside it.
    if ranks > 128 {
        measure("recording", &[&recording], ranks);
    }
    let each = ranks.div_ceil(files);
    let mut partials = Vec::new();
    for first in (0..ranks).step_by(usize::try_from(each).expect("a count")) {
        let path = root.path().join(format!("{first}.partial"));
        let last = (first + each - 1).min(ranks - 1);
        let mut partial = gputrace();
        partial
            .arg("partial")
            .arg(&recording)
            .args(["--ranks", &format!("{first}..{last}"), "-o"]);
        expect_status(partial.arg(&path), 0);
        partials.push(path);
    }
    let partials: Vec<&Path> = partials.iter().map(PathBuf::as_path).collect();
    measure("partials", &partials, ranks);
}
