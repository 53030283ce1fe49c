//! Recordings that the viewer's server opens, lists and follows: broken, new, growing and gone.

use crate::common;

use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::http::{serve, small_recording, view};
use common::kineto_events::kernel;
use common::{expect_status, gputrace, one_line};
use gputrace_trace::seal::{Identity, parse_id};
use gputrace_trace::tables::{Clock, Clocks};
use gputrace_trace::writer::{AnyTableWriter as _, OwnFiles, TableWriter};
use gputrace_trace::{Interner, Recording, Table as _, TimeNs};
use serde_json::{Value, json};

#[test]
fn bad_recordings() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    // Named alone, what can't be read is an error of the command.
    let mut missing = gputrace();
    missing.args(["view", "--no-open"]).arg(path("nothing"));
    assert!(one_line(&expect_status(&mut missing, 2)).contains("no such file or folder"));
    std::fs::write(path("notes.txt"), "not a trace").unwrap();
    let mut text = gputrace();
    text.args(["view", "--no-open"]).arg(path("notes.txt"));
    one_line(&expect_status(&mut text, 2));
    std::fs::create_dir(path("empty")).unwrap();
    let mut empty = gputrace();
    empty.args(["view", "--no-open"]).arg(path("empty"));
    assert!(one_line(&expect_status(&mut empty, 2)).contains("not a gputrace recording"));
    // Beside others they are told of.
    std::fs::create_dir(path("cut")).unwrap();
    std::fs::write(path("cut/manifest.json"), "{\"format\": \"gpu").unwrap();
    let manifest = std::fs::read_to_string(small_recording().join("manifest.json")).unwrap();
    let nothing_in_it = path("no rows");
    std::fs::create_dir(&nothing_in_it).unwrap();
    std::fs::write(nothing_in_it.join("manifest.json"), &manifest).unwrap();
    let mut nothing = gputrace();
    nothing.args(["view", "--no-open"]).arg(&nothing_in_it);
    let line = one_line(&expect_status(&mut nothing, 2));
    assert!(
        line.contains("nothing to show (") && line.contains("missing"),
        "{line}"
    );
    common::edit_manifest(&nothing_in_it, |manifest| manifest.state = "recording".to_owned());
    let viewer = view(&[small_recording(), &path("cut"), &nothing_in_it]);
    let broken = viewer.id("cut");
    let until = Instant::now() + Duration::from_secs(20);
    let answer = loop {
        let answer = viewer.get(&format!("/api/rec/{broken}/info"));
        if answer.status != 503 {
            break answer;
        }
        assert!(Instant::now() < until);
        std::thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(answer.status, 404);
    assert!(
        answer.text().contains("not a gputrace recording"),
        "{}",
        answer.text()
    );
    let list = viewer.json("/api/recordings");
    let states: Vec<&str> = list["recordings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["state"].as_str().unwrap())
        .collect();
    assert_eq!(
        states.iter().filter(|state| **state == "failed").count(),
        1,
        "{list}"
    );
    // A recording that has just begun has nothing in it yet: everything about it can be asked.
    let id = viewer.id("no rows");
    let base = viewer.base(&id);
    for path in [
        "rows",
        "analysis",
        "collectives",
        "area?from=0&to=10",
        "search?q=a",
        "overview?from=0&to=10&bins=5",
        "tiles/5/0?rows=0",
        "export?format=chrome",
        "names?ids=1",
    ] {
        assert_eq!(viewer.get(&format!("{base}/{path}")).status, 200, "{path}");
    }
    assert_eq!(viewer.get(&format!("{base}/slice?row=0&index=0")).status, 404);
    assert_eq!(viewer.json(&format!("/api/rec/{id}/live"))["lag_ms"], Value::Null);
    let both = viewer.get(&format!("/api/compare?a={id}&b={}", viewer.id("ddp run")));
    assert_eq!(both.status, 200, "{}", both.text());
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().flatten() {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

#[test]
fn a_folder_of_recordings() {
    let folder = tempfile::tempdir().unwrap();
    let outside = tempfile::tempdir().unwrap();
    copy(small_recording(), &folder.path().join("first"));
    copy(small_recording(), &outside.path().join("secret"));
    symlink(outside.path().join("secret"), folder.path().join("link")).unwrap();
    let viewer = serve(folder.path());
    let names = || -> Vec<(String, String)> {
        let list = viewer.json("/api/recordings");
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let all = list["recordings"].as_array().unwrap().iter();
        all.map(|one| (text(&one["name"]), text(&one["state"]))).collect()
    };
    let pair = |name: &str, state: &str| (name.to_owned(), state.to_owned());
    assert_eq!(
        names(),
        [pair("first", "unopened")],
        "what a link leads out to is not listed"
    );
    let list = viewer.json("/api/recordings");
    let one = &list["recordings"][0];
    assert_eq!(
        (&one["simulated"], &one["growing"], &one["ranks"]),
        (&Value::from(true), &Value::from(false), &Value::from(2))
    );
    assert!(one["bytes"].as_u64().unwrap() > 1000 && one["events"].as_u64().unwrap() > 100);
    let id = viewer.id("first");
    viewer.info(&id, |info| info["analysed"] == true);
    assert_eq!(names(), [pair("first", "ready")]);
    // A new one is there without being told of, and one that vanishes stays for those who look at it.
    copy(small_recording(), &folder.path().join("deeper/second"));
    std::thread::sleep(Duration::from_millis(1200));
    assert_eq!(
        names(),
        [pair("deeper/second", "unopened"), pair("first", "ready")]
    );
    std::fs::remove_dir_all(folder.path().join("first")).unwrap();
    std::fs::remove_dir_all(folder.path().join("deeper")).unwrap();
    std::thread::sleep(Duration::from_millis(1200));
    assert_eq!(names(), [pair("first", "ready")]);
    let base = viewer.base(&id);
    assert_eq!(viewer.get(&format!("{base}/analysis")).status, 200);
    let until = Instant::now() + Duration::from_secs(10);
    while viewer.json(&format!("/api/rec/{id}/live"))["error"].is_null() {
        assert!(Instant::now() < until, "nobody says that it is gone");
        std::thread::sleep(Duration::from_millis(100));
    }
    let mut wrong = gputrace();
    wrong.args(["serve", "--dir"]).arg(folder.path().join("nothing"));
    one_line(&expect_status(&mut wrong, 2));
}

#[test]
fn cycles_of_a_profiler_in_a_folder_are_runs_of_their_ranks() {
    let folder = tempfile::tempdir().unwrap();
    let logs = folder.path().join("logs");
    std::fs::create_dir(&logs).unwrap();
    for rank in 0..2 {
        for cycle in 0..2 {
            // The later cycle has one kernel more.
            let kernels: Vec<Value> = (0..=cycle)
                .map(|at| kernel("add", 7, at, 10.0 + 10.0 * at as f64, 5.0))
                .collect();
            let trace = json!({"distributedInfo": {"rank": rank, "world_size": 2}, "traceEvents": kernels});
            let name = format!("node_{}.{}.pt.trace.json", 100 + rank, 9 + cycle);
            std::fs::write(logs.join(name), trace.to_string()).unwrap();
        }
    }
    let viewer = serve(folder.path());
    let info = |cycle| {
        viewer.info(&viewer.id(&format!("logs (cycle {cycle})")), |info| {
            info["analysed"] == true
        })
    };
    for cycle in [1, 2] {
        assert_eq!(info(cycle)["events"], 2 * cycle);
        assert_eq!(info(cycle)["ranks"], 2);
        assert_eq!(info(cycle)["losses"].to_string().matches("left out").count(), 0);
    }
    let list = viewer.json("/api/recordings");
    assert_eq!(list["recordings"].as_array().map(Vec::len), Some(2), "{list}");
}

#[test]
fn exports_of_several_runs_in_a_folder_are_listed_one_by_one() {
    let folder = tempfile::tempdir().unwrap();
    let export = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("interchange/tests/data/nsys/cloverleaf-2024.5.sqlite.zst");
    let export = zstd::decode_all(std::fs::File::open(export).unwrap()).unwrap();
    let runs = ["monday.sqlite", "tuesday.sqlite"];
    std::fs::create_dir(folder.path().join("logs")).unwrap();
    for name in runs {
        std::fs::write(folder.path().join("logs").join(name), &export).unwrap();
    }
    let viewer = serve(folder.path());
    let id = viewer.id("logs");
    let until = Instant::now() + Duration::from_secs(30);
    let answer = loop {
        let answer = viewer.get(&format!("/api/rec/{id}/info"));
        let state = serde_json::from_str::<Value>(&answer.text()).unwrap();
        if state["state"] != "loading" {
            break answer;
        }
        assert!(Instant::now() < until, "it is read");
        std::thread::sleep(Duration::from_millis(20));
    };
    let said = answer.text();
    assert!(
        said.contains("two runs") && said.contains("listed one by one"),
        "{said}"
    );
    let list = viewer.json("/api/recordings");
    let names: Vec<&str> = list["recordings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, runs.map(|name| format!("logs/{name}")));
    for name in names {
        let events = &viewer.info(&viewer.id(name), |_| true)["events"];
        assert!(events.as_u64() > Some(0), "{events}");
    }
}

/// Sets the clock of a recording's ranks forward, a tenth of a second after their first reading of it.
fn set_clocks(path: &Path) {
    for process in Recording::open(path).unwrap().processes {
        let folder = tempfile::tempdir().unwrap();
        let part = folder.path().join("part");
        std::fs::create_dir(&part).unwrap();
        // As if the process itself had written it.
        let identity = Identity {
            process: parse_id(&process.header.process).unwrap(),
            segment: 0,
        };
        let mut writer = TableWriter::<Clocks>::new(&OwnFiles::shared(), &part, identity);
        let first = process.tables.clocks.row(0);
        writer.push(process.tables.clocks.row(0));
        writer.push(Clock {
            realtime_ns: TimeNs(first.realtime_ns.0 + 100_000_000 + 5_000_000),
            monotonic_ns: first.monotonic_ns + 100_000_000,
            boottime_ns: first.boottime_ns + 100_000_000,
            ..first
        });
        writer.close(&Interner::default()).unwrap();
        let file = "clocks.arrows";
        std::fs::copy(part.join(file), path.join(&process.folder).join(file)).unwrap();
    }
}

#[test]
fn a_recording_whose_clock_was_set_while_it_grows() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    copy(small_recording(), &path);
    set_clocks(&path);
    let set_state = |state: &str| common::edit_manifest(&path, |manifest| manifest.state = state.to_owned());
    set_state("recording");
    let viewer = view(&[&path]);
    let id = viewer.id("run");
    for growing in [true, false] {
        if !growing {
            set_state("complete");
        }
        let info = viewer.info(&id, |info| info["analysed"] == true && info["growing"] == growing);
        let was_set = |note: &Value| note.as_str().unwrap().contains("the clock was set forward by");
        assert!(info["notes"].as_array().unwrap().iter().any(was_set), "{info}");
        assert!(!info["steps"].as_array().unwrap().is_empty(), "{info}");
        let base = format!("/api/rec/{id}/{}", info["generation"]);
        for path in [
            "analysis",
            "export?format=csv&table=kernels",
            "export?format=analysis",
        ] {
            let answer = viewer.get(&format!("{base}/{path}"));
            assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        }
    }
}

#[test]
fn a_recording_that_grows() {
    let folder = tempfile::tempdir().unwrap();
    let viewer = serve(folder.path());
    assert_eq!(
        viewer.json("/api/recordings")["recordings"],
        Value::Array(Vec::new())
    );
    let path = folder.path().join("run");
    let mut record = gputrace();
    record.args(["record", "--device", "sim", "-o"]).arg(&path);
    record.args(["--", "workload", "ddp", "--ranks", "2", "--steps", "150"]);
    record
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null());
    let mut recorder = record.spawn().unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    let id = loop {
        let list = viewer.json("/api/recordings");
        if let Some(one) = list["recordings"].as_array().unwrap().first()
            && one["growing"] == true
        {
            break one["id"].as_str().unwrap().to_owned();
        }
        assert!(
            Instant::now() < until && recorder.try_wait().unwrap().is_none(),
            "{list}"
        );
        std::thread::sleep(Duration::from_millis(50));
    };
    let mut generations = Vec::new();
    let mut events = Vec::new();
    loop {
        let ended = recorder.try_wait().unwrap().is_some();
        let answer = viewer.get(&format!("/api/rec/{id}/live"));
        assert!(matches!(answer.status, 200 | 503), "{}", answer.text());
        if answer.status == 200 {
            let live = answer.json();
            let generation = live["generation"].as_u64().unwrap();
            if generations.last() != Some(&generation) {
                assert!(generations.last().is_none_or(|last| *last < generation));
                generations.push(generation);
                events.push(live["events"].as_u64().unwrap());
                // What is said of a generation can be asked of it.
                let rows = viewer.get(&format!("/api/rec/{id}/{generation}/rows"));
                assert!(matches!(rows.status, 200 | 410));
                let info = viewer.get(&format!("/api/rec/{id}/info")).json();
                let unclosed = |loss: &Value| loss["what"].as_str().unwrap().contains("clos");
                let losses = info["losses"].as_array().unwrap();
                assert!(
                    info["growing"] == false || !losses.iter().any(unclosed),
                    "what still runs is not lost: {losses:?}"
                );
            }
            if ended && live["growing"] == false && live["analysed"] == true {
                break;
            }
        }
        assert!(
            Instant::now() < until + Duration::from_secs(60),
            "{generations:?}"
        );
        std::thread::sleep(Duration::from_millis(40));
    }
    assert!(generations.len() >= 3, "{generations:?}");
    assert!(events.is_sorted() && events.first() < events.last(), "{events:?}");
    let whole = common::analysis(&path);
    let base = viewer.base(&id);
    let analysis = viewer.json(&format!("{base}/analysis"));
    assert_eq!(analysis["ranks"][0]["busy_ns"], whole["ranks"][0]["busy_ns"]);
}

/// What a server says of a recording that can't be read, or its info.
fn told(viewer: &common::http::Viewer, name: &str) -> String {
    let id = viewer.id(name);
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        let answer = viewer.get(&format!("/api/rec/{id}/info"));
        let is_there = answer.status == 200 && answer.json()["analysed"] == true;
        if is_there || answer.status == 404 {
            return answer.text();
        }
        assert!(Instant::now() < until, "{} {}", answer.status, answer.text());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn links_lead_nobody_out_of_the_folder() {
    const SECRET: &str = "root:secret:19000";
    let outside = tempfile::tempdir().unwrap();
    let out = |name: &str| outside.path().join(name);
    std::fs::write(out("shadow"), format!("{SECRET}\n")).unwrap();
    copy(small_recording(), &out("other run"));
    std::fs::write(out("trace.json"), kernel_trace()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    // Links to files, in every place where a file is read.
    copy(small_recording(), &path("run"));
    let rank = std::fs::read_dir(path("run"))
        .unwrap()
        .flatten()
        .map(|entry| entry.path());
    let rank = rank
        .filter(|path| path.join("kernels.arrows").is_file())
        .min()
        .unwrap();
    for file in [
        path("run/manifest.json"),
        rank.join("process.json"),
        rank.join("kernels.arrows"),
    ] {
        std::fs::remove_file(&file).unwrap();
        symlink(out("shadow"), &file).unwrap();
    }
    symlink(out("shadow"), path("shadow.json")).unwrap();
    symlink("/proc/self/environ", path("environ.json")).unwrap();
    std::fs::create_dir_all(path("traces/deep")).unwrap();
    std::fs::write(path("traces/deep/rank0.json"), kernel_trace()).unwrap();
    symlink(out("shadow"), path("traces/deep/rank1.json")).unwrap();
    symlink(out("trace.json"), path("traces/rank2.json")).unwrap();
    // Links to folders.
    symlink(out("other run"), path("other run")).unwrap();
    symlink(outside.path(), path("everything")).unwrap();
    symlink("/", path("root")).unwrap();
    // What would never end.
    let pipe = std::ffi::CString::new(path("pipe.json").to_str().unwrap()).unwrap();
    // SAFETY: the path ends with a zero byte.
    assert_eq!(unsafe { libc::mkfifo(pipe.as_ptr(), 0o600) }, 0);
    copy(small_recording(), &path("piped"));
    std::fs::remove_file(path("piped/manifest.json")).unwrap();
    std::fs::rename(path("pipe.json"), path("piped/manifest.json")).unwrap();
    let viewer = serve(folder.path());
    let list = viewer.json("/api/recordings");
    let names: Vec<&str> = list["recordings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["piped", "run", "traces/deep"]);
    let note = list["notes"][0].as_str().unwrap();
    assert!(
        note.contains("out of the served folder") && note.contains("--links-to"),
        "{note}"
    );
    let run = told(&viewer, "run");
    let rank = rank.file_name().unwrap().to_str().unwrap();
    assert!(
        run.contains(&format!("{rank}/kernels.arrows: a link leads out")),
        "{run}"
    );
    assert!(told(&viewer, "piped").contains("manifest.json is damaged"));
    let traces = told(&viewer, "traces/deep");
    assert!(
        traces.contains("links that lead out of the folder are not followed (rank1.json)"),
        "{traces}"
    );
    for text in [run, traces, list.to_string()] {
        assert!(!text.contains(SECRET) && !text.contains("secret"), "{text}");
    }
    // Where it is said that links may lead there, they do.
    let mut command = gputrace();
    command.args(["serve", "--dir"]).arg(folder.path());
    command.arg("--links-to").arg(out("other run"));
    let viewer = common::http::Viewer::start(command.stderr(std::process::Stdio::null()));
    assert!(told(&viewer, "other run").contains("\"analysed\":true"));
    // The same on the command line, where links that are named themselves are followed.
    let analyse = |paths: &[&Path]| {
        let mut command = gputrace();
        let output = expect_status(command.args(["analyze", "--json"]).args(paths), 0);
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let traces = analyse(&[&path("traces")]);
    assert!(
        traces.contains("links that lead out of the folder are not followed"),
        "{traces}"
    );
    assert!(!analyse(&[&path("traces/rank2.json")]).contains("lead out"));
    assert!(!analyse(&[&path("other run")]).contains("lead out"));
    let both = analyse(&[&path("run")]);
    assert!(
        both.contains("a link leads out") && !both.contains("secret"),
        "{both}"
    );
}

/// A trace with one kernel.
fn kernel_trace() -> String {
    json!({"traceEvents": [kernel("k", 7, 1, 10.0, 5.0)]}).to_string()
}

#[test]
fn links_that_are_swapped_while_they_are_read_show_nothing() {
    let outside = tempfile::tempdir().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let trace = |name: &str| json!({"traceEvents": [kernel(name, 7, 1, 10.0, 5.0)]}).to_string();
    std::fs::create_dir(outside.path().join("run")).unwrap();
    std::fs::write(outside.path().join("run/rank0.json"), trace("a_secret_kernel")).unwrap();
    std::fs::create_dir_all(path("here/run")).unwrap();
    std::fs::write(path("here/run/rank0.json"), trace("a_kernel_of_ours")).unwrap();
    symlink(outside.path().join("run"), path("here/out")).unwrap();
    let viewer = serve(folder.path());
    let ends = AtomicBool::new(false);
    let (mut seen, mut asked) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (run, out, aside) = (path("here/run"), path("here/out"), path("here/aside"));
            while !ends.load(Ordering::Relaxed) {
                std::fs::rename(&run, &aside).unwrap();
                std::fs::rename(&out, &run).unwrap();
                // Another time of change: it is read again.
                std::thread::sleep(Duration::from_micros(200));
                std::fs::rename(&run, &out).unwrap();
                std::fs::rename(&aside, &run).unwrap();
                std::fs::write(run.join("rank0.json"), trace("a_kernel_of_ours") + "\n").unwrap();
                std::thread::sleep(Duration::from_micros(200));
            }
        });
        let until = Instant::now() + Duration::from_secs(6);
        while Instant::now() < until {
            let list = viewer.json("/api/recordings");
            for one in list["recordings"].as_array().unwrap() {
                let id = one["id"].as_str().unwrap();
                let info = viewer.get(&format!("/api/rec/{id}/info"));
                asked += 1;
                assert!(!info.text().contains("secret"), "{}", info.text());
                if info.status == 200 {
                    let generation = &info.json()["generation"];
                    let names = viewer.get(&format!("/api/rec/{id}/{generation}/search?q=kernel"));
                    assert!(!names.text().contains("secret"), "{}", names.text());
                    seen += u32::from(names.text().contains("a_kernel_of_ours"));
                }
            }
        }
        ends.store(true, Ordering::Relaxed);
    });
    eprintln!("seen {seen} times in {asked} looks");
    assert!(seen > 0, "it was never read");
}
