//! The daemon's commands: where there is no daemon, one that nobody has joined, and rules over a recording.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use crate::common::{analysis, gputrace};

fn run(socket: &Path, arguments: &[&str]) -> Output {
    gputrace()
        .args(arguments)
        .env("GPUTRACE_SOCKET", socket)
        .output()
        .expect("gputrace runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A daemon, which ends with us.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn start(place: &Path) -> (Running, String) {
    let ready = UnixDatagram::bind(place.join("notify")).expect("a socket");
    ready
        .set_read_timeout(Some(Duration::from_secs(20)))
        .expect("set");
    let child: &mut Command = &mut gputrace();
    let mut child = child
        .args(["daemon", "--user", "--metrics", "127.0.0.1:0", "--socket"])
        .arg(place.join("run/daemon.sock"))
        .arg("--state")
        .arg(place.join("state"))
        .env("NOTIFY_SOCKET", place.join("notify"))
        .stderr(Stdio::piped())
        .spawn()
        .expect("gputrace runs");
    let mut said = [0; 64];
    let length = ready.recv(&mut said).expect("it says that it is ready");
    let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines();
    let metrics = lines.next().expect("a line").expect("text");
    let listens = lines.next().expect("a line").expect("text");
    assert!(listens.contains("daemon.sock"), "{listens}");
    assert!(metrics.contains("/metrics"), "{metrics}");
    (Running(child), text(&said[..length]))
}

#[test]
fn without_a_daemon_one_line_says_what_to_do() {
    let place = tempfile::tempdir().expect("a folder");
    let commands: [&[&str]; 5] = [&["jobs"], &["capture"], &["snapshot"], &["top"], &["triggers"]];
    for command in commands {
        let output = run(&place.path().join("nothing"), command);
        assert_eq!(output.status.code(), Some(2), "{command:?}");
        let said = text(&output.stderr);
        assert!(
            said.contains("no daemon listens here") && said.lines().count() == 1,
            "{said}"
        );
    }
}

#[test]
fn a_daemon_says_that_it_is_ready_answers_and_ends_when_told() {
    let place = tempfile::tempdir().expect("a folder");
    let (mut daemon, said) = start(place.path());
    assert_eq!(said, "READY=1");
    let socket = place.path().join("run/daemon.sock");
    let jobs = run(&socket, &["jobs", "--json"]);
    let document: serde_json::Value = serde_json::from_slice(&jobs.stdout).expect("JSON");
    assert_eq!(
        (&document["schema"], document["jobs"].as_array().map(Vec::len)),
        (&"gputrace.jobs/1".into(), Some(0))
    );
    // Nothing matched is no success.
    let commands: [&[&str]; 4] = [
        &["capture", "nothing"],
        &["snapshot"],
        &["top", "--once"],
        &["jobs", "--pin", "x"],
    ];
    for command in commands {
        let output = run(&socket, command);
        assert_eq!(
            output.status.code(),
            Some(1),
            "{command:?}: {}",
            text(&output.stderr)
        );
        assert_eq!(text(&output.stderr).lines().count(), 1);
    }
    let second = run(
        &socket,
        &[
            "daemon",
            "--user",
            "--socket",
            &socket.to_string_lossy(),
            "--state",
            "/nowhere",
        ],
    );
    assert_eq!(second.status.code(), Some(2));
    assert!(
        text(&second.stderr).contains("already running"),
        "{}",
        text(&second.stderr)
    );
    // SAFETY: a child of ours that was not waited for.
    unsafe {
        libc::kill(
            libc::pid_t::try_from(daemon.0.id()).expect("a number"),
            libc::SIGTERM,
        )
    };
    assert_eq!(daemon.0.wait().expect("ended").code(), Some(0));
    assert!(!socket.exists());
    // Killed, it leaves its socket, which the next one replaces.
    let (daemon, _) = start_again(place.path());
    drop(daemon);
    assert!(socket.exists());
    let (_daemon, said) = start_again(place.path());
    assert_eq!(said, "READY=1");
}

fn start_again(place: &Path) -> (Running, String) {
    std::fs::remove_file(place.join("notify")).expect("there");
    start(place)
}

#[test]
fn what_is_printed_to_be_pasted_can_be() {
    let config = run(Path::new(""), &["daemon", "--print-config"]);
    let place = tempfile::tempdir().expect("a folder");
    let file = place.path().join("daemon.toml");
    std::fs::write(&file, [config.stdout.as_slice(), b"\n[wrong]\n"].concat()).expect("written");
    let wrong = run(
        Path::new(""),
        &["daemon", "--user", "--config", &file.to_string_lossy()],
    );
    assert_eq!(wrong.status.code(), Some(2));
    assert!(
        text(&wrong.stderr).contains("daemon.toml: line"),
        "{}",
        text(&wrong.stderr)
    );
    for what in ["--shell", "--slurm"] {
        let printed = run(Path::new(""), &["env", what]);
        let script = text(&printed.stdout);
        let ask = "; echo \"is:$CUDA_INJECTION64_PATH\"";
        let shell = |before: &str| {
            let whole = format!("{before}{script}\n{ask}", ask = &ask[2..]);
            let output = Command::new("sh")
                .args(["-c", &whole])
                .env_remove("CUDA_INJECTION64_PATH")
                .output()
                .expect("a shell");
            assert_eq!(text(&output.stderr), "");
            text(&output.stdout)
        };
        assert!(shell("").contains("libgputrace_collector.so"), "{script}");
        let own = shell("CUDA_INJECTION64_PATH=/own.so; ");
        assert!(own.contains("is:/own.so") && !own.contains("collector"), "{own}");
    }
}

#[test]
fn rules_are_tried_over_a_recording() {
    let place = tempfile::tempdir().expect("a folder");
    let recorded = |name: &str, more: &[&str]| {
        let path = place.path().join(name);
        let output = gputrace()
            .args(["record", "--device", "sim", "-o"])
            .arg(&path)
            .args(["--", "workload", "ddp", "--ranks", "4", "--steps", "40"])
            .args(more)
            .output()
            .expect("gputrace runs");
        assert!(output.status.success(), "{}", text(&output.stderr));
        let tried = run(
            Path::new(""),
            &["triggers", &path.to_string_lossy(), "--test", "--json"],
        );
        serde_json::from_slice::<serde_json::Value>(&tried.stdout).expect("JSON")
    };
    // Far more than a busy machine delays the others by: who is late by that is late as well.
    let late = recorded("late", &["--delay", "step:2:200"]);
    assert_eq!(late["steps"], 40);
    let fired: Vec<_> = late["fired"].as_array().into_iter().flatten().collect();
    let of_late: Vec<_> = fired
        .iter()
        .filter(|fired| fired["trigger"] == "late-rank")
        .collect();
    assert_eq!(of_late.len(), 1, "{fired:#?}");
    assert_eq!(of_late[0]["rank"], 2, "{fired:#?}");
}

fn stop_for(process: &Child, time: Duration) {
    let pid = libc::pid_t::try_from(process.id()).expect("a number");
    // SAFETY: signals to a child of ours.
    unsafe { libc::kill(pid, libc::SIGSTOP) };
    std::thread::sleep(time);
    // SAFETY: as above.
    unsafe { libc::kill(pid, libc::SIGCONT) };
}

/// A bundled run; with a daemon's socket that daemon's.
fn workload(steps: &str, watched: Option<&Path>) -> Command {
    let mut command = gputrace();
    command
        .args(["workload", "ddp", "--ranks", "2", "--steps", steps])
        .env("GPUTRACE_SOCKET", watched.unwrap_or(Path::new("")))
        .stdout(Stdio::piped());
    if let Some(socket) = watched {
        let shell = text(&run(socket, &["env", "--shell"]).stdout);
        let mut parts = shell.split('\'');
        let collector = parts.find(|part| part.ends_with("libgputrace_collector.so"));
        command.env("CUDA_INJECTION64_PATH", collector.expect("a path"));
    }
    command
}

/// The first job that the daemon knows, once it is as wanted.
fn job_when(socket: &Path, wanted: impl Fn(&serde_json::Value) -> bool) {
    let until = std::time::Instant::now() + Duration::from_secs(120);
    loop {
        let jobs = run(socket, &["jobs", "--json"]);
        // A daemon that stands still is told of in words.
        let jobs: serde_json::Value = serde_json::from_slice(&jobs.stdout).unwrap_or_default();
        if wanted(&jobs["jobs"][0]) {
            return;
        }
        assert!(std::time::Instant::now() < until, "{jobs:#}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn a_job_is_watched_captured_and_found_again() {
    let place = tempfile::tempdir().expect("a folder");
    let (daemon, _) = start(place.path());
    let socket = place.path().join("run/daemon.sock");
    // It ends with us.
    let _job = Running(workload("100000", Some(&socket)).spawn().expect("gputrace runs"));
    let is_whole = |job: &serde_json::Value| job["ranks"] == 2 && job["state"] == "running";
    job_when(&socket, |job| is_whole(job) && job["steps"].as_u64() > Some(5));
    // Rules are tried over a job's ring too. In mode "steps" there is nothing in it that they go by until something is captured.
    let can_be_tried = || {
        let tried = run(&socket, &["triggers", "ddp", "--test"]);
        let cannot = text(&tried.stdout).contains("kernels of none were recorded");
        tried.status.success().then_some(!cannot)
    };
    assert_eq!(can_be_tried(), Some(false));
    let capture = place.path().join("captured");
    let output = run(
        &socket,
        &["capture", "--steps", "3", "-o", &capture.to_string_lossy()],
    );
    assert!(output.status.success(), "{}", text(&output.stderr));
    let analysis_of_it = analysis(&capture);
    let ranks = analysis_of_it["ranks"].as_array().expect("ranks");
    assert_eq!(ranks.len(), 2);
    for rank in ranks {
        // A step that had begun when kernels were switched on may be among them.
        let steps = rank["steps"].as_array().map_or(0, Vec::len);
        assert!(
            (3..=4).contains(&steps) && rank["compute_ns"].as_i64() > Some(0),
            "{rank:#}"
        );
    }
    // What the daemon keeps can be had later too, by whoever may see it.
    let listed = run(&socket, &["jobs", "--captures", "--json"]);
    let listed: serde_json::Value = serde_json::from_slice(&listed.stdout).expect("JSON");
    let all = listed["captures"].as_array().expect("captures");
    let of_it = all.iter().find(|capture| capture["trigger"] == "capture");
    let name = of_it.expect("ours")["recording"].as_str().expect("a name");
    let fetched = place.path().join("fetched");
    let output = run(
        &socket,
        &["jobs", "--fetch", name, "-o", &fetched.to_string_lossy()],
    );
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(analysis(&fetched)["ranks"], analysis_of_it["ranks"]);
    let output = run(&socket, &["jobs", "--fetch", "nothing", "-o", "/nowhere/x"]);
    assert!(!output.status.success());
    assert_eq!(can_be_tried(), Some(true));
    // A daemon that is killed, and its successor.
    drop(daemon);
    let (successor, _) = start_again(place.path());
    job_when(&socket, is_whole);
    // One that stands still for longer than a process waits for an answer.
    stop_for(&successor.0, Duration::from_millis(2500));
    job_when(&socket, is_whole);
    let kept = place.path().join("kept");
    let output = run(&socket, &["snapshot", "-o", &kept.to_string_lossy()]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let losses = analysis(&kept)["losses"].to_string();
    assert!(!losses.contains("damaged"), "{losses}");
}

#[test]
fn a_watched_job_computes_what_it_computes_alone() {
    let place = tempfile::tempdir().expect("a folder");
    let (_daemon, _) = start(place.path());
    let socket = place.path().join("run/daemon.sock");
    let [watched, alone] = [Some(socket.as_path()), None].map(|socket| {
        let output = workload("60", socket).output().expect("gputrace runs");
        assert!(output.status.success());
        let printed = text(&output.stdout);
        let line = printed.lines().find(|line| line.starts_with("loss "));
        // Behind the comma stands how long a step took.
        let line = line.unwrap_or_else(|| panic!("no losses in {printed}"));
        line.split(',').next().unwrap_or_default().to_owned()
    });
    assert_eq!(watched, alone);
    job_when(&socket, |job| job["steps"] == 59);
}

/// A capture's rows over all processes, kernels and calls, and its notes.
fn captured(socket: &Path, into: &Path, kinds: &str) -> (usize, usize, Vec<String>) {
    let output = run(
        socket,
        &[
            "capture",
            "--steps",
            "2",
            "--kinds",
            kinds,
            "-o",
            &into.to_string_lossy(),
        ],
    );
    assert!(output.status.success(), "{}", text(&output.stderr));
    let recording = gputrace_trace::Recording::open(into).expect("a recording");
    let sum = |rows: &dyn Fn(&gputrace_trace::tables::Tables) -> usize| {
        recording
            .processes
            .iter()
            .map(|process| rows(&process.tables))
            .sum()
    };
    (
        sum(&|tables| tables.kernels.start_ns.len()),
        sum(&|tables| tables.api_calls.start_ns.len()),
        recording.manifest.notes.clone(),
    )
}

#[test]
fn captures_have_the_kinds_that_were_asked_for_whether_cupti_was_let_go_between_or_not() {
    let place = tempfile::tempdir().expect("a folder");
    let (_daemon, _) = start(place.path());
    let socket = place.path().join("run/daemon.sock");
    let _job = Running(workload("100000", Some(&socket)).spawn().expect("gputrace runs"));
    job_when(&socket, |job| {
        job["ranks"] == 2 && job["steps"].as_u64() > Some(3)
    });
    let into = |name: &str| place.path().join(name);
    let (kernels, calls, _) = captured(&socket, &into("first"), "kernels");
    assert!(kernels > 0 && calls == 0, "{kernels} kernels, {calls} calls");
    // At once, while CUPTI still stands as it was started.
    let (kernels, calls, _) = captured(&socket, &into("second"), "kernels");
    assert!(kernels > 0 && calls == 0, "{kernels} kernels, {calls} calls");
    // Two seconds behind the end it is switched off, and let go.
    let until = std::time::Instant::now() + Duration::from_secs(90);
    for number in 0.. {
        std::thread::sleep(Duration::from_secs(6));
        let (kernels, calls, notes) = captured(&socket, &into(&format!("third{number}")), "kernels,calls");
        assert!(kernels > 0);
        if calls > 0 {
            break;
        }
        // It may still stand: then the capture says what it lacks.
        assert!(
            notes.iter().any(|note| note.contains("was started without")),
            "{notes:?}"
        );
        assert!(std::time::Instant::now() < until);
    }
    std::thread::sleep(Duration::from_secs(6));
    let (kernels, calls, _) = captured(&socket, &into("fourth"), "kernels");
    assert!(kernels > 0 && calls == 0, "{kernels} kernels, {calls} calls");
    for (kinds, word) in [
        ("proxy", "configuration"),
        ("kernels,nonsense", "there is no kind nonsense"),
    ] {
        let output = run(&socket, &["capture", "--kinds", kinds]);
        assert!(!output.status.success());
        assert!(text(&output.stderr).contains(word), "{}", text(&output.stderr));
    }
}

#[test]
fn a_capture_has_stacks_where_it_asks_for_them_and_the_next_is_without() {
    let place = tempfile::tempdir().expect("a folder");
    let (_daemon, _) = start(place.path());
    let socket = place.path().join("run/daemon.sock");
    let _job = Running(workload("100000", Some(&socket)).spawn().expect("gputrace runs"));
    job_when(&socket, |job| {
        job["ranks"] == 2 && job["steps"].as_u64() > Some(3)
    });
    // CUPTI still stands as the captures before it left it.
    for (name, kinds) in [
        ("first", "kernels,calls,stacks"),
        ("second", "kernels,calls"),
        ("third", "+stacks"),
    ] {
        let into = place.path().join(name);
        let (kernels, calls, notes) = captured(&socket, &into, kinds);
        assert!(kernels > 0 && calls > 0, "{name}: {notes:?}");
        let recording = gputrace_trace::Recording::open(&into).expect("a recording");
        for process in &recording.processes {
            let launches = process.tables.launch_stacks.frame.len();
            assert_eq!(launches > 0, kinds.contains("stacks"), "{name}: {launches}");
        }
        for rank in analysis(&into)["ranks"].as_array().expect("ranks") {
            let stacks = rank["stacks"].to_string();
            assert_eq!(stacks.contains("workloads::"), kinds.contains("stacks"), "{name}");
        }
    }
}

#[test]
fn a_step_is_told_of_within_two_seconds_of_its_end() {
    crate::common::schedule::alone();
    let place = tempfile::tempdir().expect("a folder");
    let (_daemon, _) = start(place.path());
    let socket = place.path().join("run/daemon.sock");
    let _job = Running(workload("100000", Some(&socket)).spawn().expect("gputrace runs"));
    job_when(&socket, |job| {
        job["ranks"] == 2 && job["steps"].as_u64() > Some(3)
    });
    let (mut ages, mut last) = (Vec::new(), 0);
    let until = std::time::Instant::now() + Duration::from_secs(120);
    while ages.len() < 30 {
        assert!(std::time::Instant::now() < until, "{ages:?}");
        let job = daemon_answers(&socket);
        let now_ns = gputrace_trace::now().0;
        for step in job["recent"].as_array().into_iter().flatten() {
            let number = step["number"].as_u64().expect("a number");
            if last > 0 && number > last {
                ages.push((now_ns - step["end_ns"].as_i64().expect("a time")) / 1_000_000);
            }
            last = last.max(number);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    ages.sort_unstable();
    eprintln!(
        "a step is told of {} ms after its end, {} at most",
        ages[ages.len() / 2],
        ages[ages.len() - 1]
    );
    assert!(ages[ages.len() / 2] < 2000, "{ages:?}");
}

/// The job in detail, as the page and `top` have it.
fn daemon_answers(socket: &Path) -> serde_json::Value {
    use gputrace_trace::daemon::{Answer, Ask, Connection, Hello};
    let connection = Connection::connect(socket).expect("it listens");
    connection
        .send(&Hello::Client(Ask::Job { job: None }), None)
        .expect("asked");
    let mut whole = String::new();
    while let Some((Answer::Text { text, .. }, _)) =
        connection.receive(Duration::from_secs(20)).expect("answered")
    {
        whole.push_str(&text);
    }
    serde_json::from_str(&whole).expect("JSON")
}

#[test]
fn another_profiler_can_have_cupti_until_a_capture_and_a_moment_behind_it() {
    use crate::common::programs;
    let place = tempfile::tempdir().expect("a folder");
    let (_daemon, _) = start(place.path());
    let socket = place.path().join("run/daemon.sock");
    let mut program = Command::new(programs::compiled("asks_cupti"))
        .env("LD_LIBRARY_PATH", programs::library_path())
        .env("CUDA_INJECTION64_PATH", programs::collector())
        .env("GPUTRACE_SOCKET", &socket)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut told = program.stdin.take().expect("piped");
    let mut lines = BufReader::new(program.stdout.take().expect("piped")).lines();
    // It ends with us.
    let _program = Running(program);
    job_when(&socket, |job| job["ranks"] == 1);
    let mut can_have_it = || {
        told.write_all(b"t").expect("told");
        lines.next().expect("a line").expect("text") == "0"
    };
    assert!(can_have_it(), "before any capture");
    for name in ["first", "second"] {
        let into = place.path().join(name);
        let mut capture = gputrace();
        capture
            .args(["capture", "--for", "8s", "-o"])
            .arg(&into)
            .env("GPUTRACE_SOCKET", &socket);
        let mut capture = capture.stdout(Stdio::null()).spawn().expect("gputrace runs");
        let until = std::time::Instant::now() + Duration::from_secs(60);
        while daemon_answers(&socket)["processes"][0]["records_kernels"] != true {
            assert!(
                std::time::Instant::now() < until,
                "{name}: no kernels are recorded"
            );
            std::thread::sleep(Duration::from_millis(50));
        }
        assert!(!can_have_it(), "while one goes on");
        assert!(capture.wait().expect("ended").success());
        let kept = gputrace_trace::Recording::open(&into).expect("a recording");
        assert!(!kept.processes[0].tables.kernels.start_ns.is_empty());
        let until = std::time::Instant::now() + Duration::from_secs(30);
        while !can_have_it() {
            assert!(std::time::Instant::now() < until, "{name}: it is not let go");
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}
