//! A disk that stands still: who waits for it is told when it goes on, and everybody else does not notice.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use gputrace_trace::daemon::{Ask, FromCollector, ToCollector};
use gputrace_trace::json_file::{json_text, read_json};
use gputrace_trace::manifest::{PROCESS_FILE, ProcessHeader};
use gputrace_trace::{Recording, Table};

use crate::fake::{Fake, PATIENCE, Running, call, join};

const MS: i64 = 1_000_000;

/// A table of a process that takes the disk for ever to open: a pipe that nobody reads.
struct Standing(PathBuf);

impl Standing {
    fn new(process: &Path, table: &str) -> Self {
        let path = process.join(format!("{table}.arrows"));
        let name = std::ffi::CString::new(path.to_str().expect("text")).expect("no zero");
        // SAFETY: a text that ends.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0, "a pipe");
        Self(path)
    }

    /// The disk goes on.
    fn ends(&self) -> File {
        File::open(&self.0).expect("opened")
    }
}

impl Drop for Standing {
    fn drop(&mut self) {
        // However the test ended, the daemon's thread must.
        let path = self.0.clone();
        drop(std::thread::spawn(move || drop(File::open(path))));
    }
}

#[test]
fn while_the_disk_stands_still_the_daemon_answers_and_nobody_loses_its_place() {
    let (daemon, metrics) = Running::with_metrics("[ring]\nseconds = 3600\n");
    let mut other = Fake::new(&daemon.socket, "node7-9-5", "other", 0);
    other.write_row();
    let (waits, welcome) = join(&daemon.socket, "node7-1-5", "g", 0, Some(0));
    assert!(matches!(welcome, ToCollector::Welcome { .. }), "{welcome:?}");
    waits.say(&FromCollector::Segment { segment: 0 });
    assert_eq!(waits.order(PATIENCE), Some(ToCollector::Made));
    let id = |group: &str| {
        let jobs = daemon.ask(Ask::Jobs).expect("jobs")["jobs"].clone();
        let all = jobs.as_array().cloned().unwrap_or_default();
        let one = all.iter().find(|job| {
            let job = daemon.ask(Ask::Job {
                job: job["job"].as_str().map(str::to_owned),
            });
            job.expect("a job")["processes"][0]["folder"] == group
        });
        one.expect("the job")["job"].as_str().expect("a name").to_owned()
    };
    let folder = daemon.state().join("jobs").join(id("node7-1-5"));
    let standing = Standing::new(&folder.join("node7-1-5"), "markers");
    let open = |table: &str| FromCollector::Open {
        table: table.to_owned(),
        segment: None,
    };
    waits.say(&open("markers"));
    let begun = Instant::now();
    // Everybody who wants nothing of the disk is served: steps, questions, and a process that joins a job that is there.
    let short = Duration::from_millis(900);
    for step in 0..20 {
        other.end_step(10 * MS, None);
        let jobs = daemon.ask(Ask::Jobs).expect("jobs");
        assert!(
            begun.elapsed() < Duration::from_millis(200 * (step + 1)) + short,
            "{:?}",
            begun.elapsed()
        );
        assert_eq!(jobs["jobs"].as_array().map(Vec::len), Some(2));
    }
    let (second, welcome) = join(&daemon.socket, "node7-2-5", "g", 0, Some(1));
    assert!(matches!(welcome, ToCollector::Welcome { .. }), "{welcome:?}");
    // Those who want something of it are told nothing, and keep their places, however much they want.
    second.say(&FromCollector::Segment { segment: 0 });
    for _ in 0..40 {
        second.say(&open("kernels"));
    }
    let new = call(&daemon.socket, "node7-3-5", "another", 0, Some(0));
    let jobs = daemon.jobs_when(|jobs| jobs.as_array().map(Vec::len) == Some(3));
    let states: Vec<_> = jobs
        .as_array()
        .expect("jobs")
        .iter()
        .map(|job| job["state"].clone())
        .collect();
    assert_eq!(states, ["running"; 3], "{jobs:#}");
    for line in [&waits, &second, &new] {
        assert_eq!(line.order(Duration::from_millis(300)), None);
    }
    // It is shown and counted, and said.
    std::thread::sleep(Duration::from_millis(1200));
    let told = daemon.ask(Ask::Jobs).expect("jobs");
    assert!(told["disk_stands_ns"].as_i64() > Some(1_000_000_000), "{told:#}");
    // The one that stands, its own segment, and as many as one may want at a time.
    assert_eq!(told["disk_waiting"], 1 + 16, "{told:#}");
    let page = scrape(metrics);
    assert!(
        page.contains("gputrace_disk_waiting_requests{hostname=\"node7\"} 17\n"),
        "{page}"
    );
    let said = daemon.said_when(|said| said.contains("the disk has not answered for 10 s"));
    assert_eq!(said.matches("the disk has not").count(), 1, "{said}");

    let _reads = standing.ends();
    for line in [&waits, &second] {
        assert_eq!(line.order(PATIENCE), Some(ToCollector::Made));
    }
    for _ in 0..40 {
        assert_eq!(second.order(PATIENCE), Some(ToCollector::Made), "a table");
    }
    let welcome = new.order(PATIENCE);
    assert!(
        matches!(welcome, Some(ToCollector::Welcome { .. })),
        "{welcome:?}"
    );
    daemon.said_when(|said| said.contains("the disk answers again"));
    assert_eq!(
        daemon.ask(Ask::Jobs).expect("jobs")["disk_stands_ns"],
        serde_json::Value::Null
    );
    other.write_row();
    let recording = daemon.recording_when(&id("node7-9-5"), |recording| !recording.processes.is_empty());
    assert_eq!(recording.processes[0].tables.markers.len(), 2);
}

fn scrape(address: std::net::SocketAddr) -> String {
    let mut stream = std::net::TcpStream::connect(address).expect("connected");
    std::io::Write::write_all(&mut stream, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").expect("asked");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("answered");
    text
}

#[test]
fn a_snapshot_has_the_headers_that_were_sent_before_it_however_slow_the_disk_is() {
    let daemon = Running::new("[ring]\nseconds = 3600\n");
    let mut fake = Fake::new(&daemon.socket, "node7-1-5", "g", 0);
    fake.write_row();
    let id = daemon.job_of_one_rank();
    let process = daemon.state().join("jobs").join(&id).join("node7-1-5");
    let standing = Standing::new(&process, "kernels");
    let socket = daemon.socket.clone();
    let asked = std::thread::spawn(move || {
        let ask = Ask::Snapshot {
            job: None,
            last_s: None,
        };
        crate::fake::ask(&socket, ask)
    });
    assert_eq!(fake.line.order(PATIENCE), Some(ToCollector::Cut));
    let header = read_json::<ProcessHeader>(&process.join(PROCESS_FILE)).expect("read");
    let mut header = header.ok().expect("a header");
    header.command = vec!["changed.py".to_owned()];
    fake.cut_after(|fake| {
        fake.line.say(&FromCollector::Open {
            table: "kernels".to_owned(),
            segment: Some(0),
        });
        let text = json_text(PROCESS_FILE, &header).expect("written");
        fake.line.say(&FromCollector::Header {
            segment: 0,
            text: String::from_utf8(text).expect("text"),
            first: true,
            done: true,
        });
    });
    std::thread::sleep(Duration::from_millis(400));
    assert!(!asked.is_finished(), "it is kept without the header");
    drop(standing.ends());
    let kept = asked.join().expect("asked").expect("kept");
    assert_eq!(kept["ranks"][0]["missing"], serde_json::Value::Null);
    let name = kept["recording"].as_str().expect("a name");
    let recording = Recording::open(&daemon.state().join("captures").join(name)).expect("a recording");
    assert_eq!(recording.processes[0].tables.markers.len(), 1);
    assert_eq!(recording.processes[0].header.command, ["changed.py"]);
}

#[test]
fn a_daemon_ends_though_the_disk_stands_still() {
    let daemon = Running::new("");
    let fake = Fake::new(&daemon.socket, "node7-1-5", "g", 0);
    let id = daemon.job_of_one_rank();
    let process = daemon.state().join("jobs").join(&id).join("node7-1-5");
    let _standing = Standing::new(&process, "markers");
    fake.line.say(&FromCollector::Open {
        table: "markers".to_owned(),
        segment: None,
    });
    std::thread::sleep(Duration::from_millis(200));
    let begun = Instant::now();
    drop(daemon.end());
    let took = begun.elapsed();
    assert!(
        (Duration::from_secs(3)..Duration::from_secs(30)).contains(&took),
        "{took:?}"
    );
}
