//! The ring, rules that fire, and metrics.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use gputrace_trace::daemon::{Ask, ToCollector};
use gputrace_trace::{Recording, Table};
use serde_json::Value;

use crate::fake::{Fake, PATIENCE, Running};

const MS: i64 = 1_000_000;

#[test]
fn the_ring_moves_on_and_says_what_left_it() {
    let daemon = Running::new("[ring]\nseconds = 2\n");
    let mut fake = Fake::new(&daemon.socket, "node7-1-5", "g", 0);
    let until = Instant::now() + Duration::from_secs(14);
    let mut rows = 0;
    while Instant::now() < until {
        fake.write_row();
        rows += 1;
        fake.obey(Duration::from_millis(50));
    }
    let id = daemon.job_of_one_rank();
    // Nothing moves on while it is read.
    let place = daemon.end();
    let recording = Recording::open(&place.path().join("state/jobs").join(&id)).expect("a recording");
    let left = recording.processes[0].tables.markers.len() as u64;
    let lost = recording
        .losses
        .iter()
        .find(|loss| loss.what.contains("left the ring"))
        .expect("what was removed");
    assert!(left < rows / 2, "{left} of {rows}");
    assert_eq!(left + lost.count.expect("counted"), rows);
    // Nothing else is missing.
    let others: Vec<_> = recording
        .losses
        .iter()
        .filter(|loss| !loss.what.contains("left the ring") && !gputrace_trace::recording::is_unclosed(loss))
        .collect();
    assert!(others.is_empty(), "{others:?}");
}

/// Takes what is posted, a text each.
fn posted(listener: TcpListener) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a caller");
        let mut text = String::new();
        let mut some = [0; 4096];
        while !text.contains("\r\n\r\n") || !text.trim_end().ends_with('}') {
            let read = stream.read(&mut some).expect("read");
            text.push_str(&String::from_utf8_lossy(&some[..read]));
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").expect("answered");
        text.split_once("\r\n\r\n").expect("a body").1.to_owned()
    })
}

#[test]
fn a_late_rank_fires_is_sent_and_its_moments_are_kept_of_all_ranks() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let hook = posted(listener);
    let daemon = Running::new(&format!("[webhook]\nurl = \"http://127.0.0.1:{port}/hook\"\n"));
    let names = ["node7-1-5", "node7-2-5", "node7-3-5", "node7-4-5"];
    let mut fakes: Vec<Fake> = (0..4)
        .map(|rank| Fake::new(&daemon.socket, names[rank as usize], "g", rank))
        .collect();
    for step in 0..40 {
        let late = if step >= 25 { 12 * MS } else { 0 };
        for (rank, fake) in fakes.iter_mut().enumerate() {
            fake.write_row();
            let own = if rank == 3 { 0 } else { late };
            fake.end_step(80 * MS + late, Some(20 * MS + own));
        }
    }
    let until = Instant::now() + Duration::from_secs(10);
    let fired = loop {
        for fake in &mut fakes {
            fake.obey(Duration::from_millis(50));
        }
        let fired = daemon.ask(Ask::Triggers { job: None }).expect("triggers")["fired"].clone();
        if fired[0]["recording"].is_string() {
            break fired;
        }
        assert!(Instant::now() < until, "{fired:#}");
    };
    assert_eq!(
        (&fired[0]["trigger"], &fired[0]["rank"]),
        (&"late-rank".into(), &3.into())
    );
    let title = fired[0]["title"].as_str().expect("a title");
    assert_eq!(
        title,
        "rank 3 is late: 12.0 ms of 92.0 ms a step since step 25; before: 0 ns"
    );
    let name = fired[0]["recording"].as_str().expect("a name");
    assert!(name.ends_with("late-rank"), "{name}");
    let recording = Recording::open(&daemon.state().join("captures").join(name)).expect("a recording");
    assert_eq!(recording.processes.len(), 4);
    assert!(
        recording
            .processes
            .iter()
            .all(|process| process.tables.markers.len() == 40)
    );
    assert_eq!(recording.manifest.kept.expect("why").title, title);
    assert!(recording.notes.iter().any(|note| note == title));
    let sent: Value = serde_json::from_str(&hook.join().expect("posted")).expect("JSON");
    assert_eq!(
        (&sent["schema"], &sent["finding"]["title"]),
        (&"gputrace.finding/1".into(), &title.into())
    );
}

#[test]
fn a_rank_that_dies_and_lost_rows_are_told_of() {
    let daemon = Running::new("");
    let mut one = Fake::new(&daemon.socket, "node7-1-5", "g", 0);
    let two = Fake::new(&daemon.socket, "node7-2-5", "g", 1);
    daemon.jobs_when(|jobs| jobs[0]["joined"] == 2);
    one.totals.lost_rows = 7;
    one.report(Vec::new());
    drop(two);
    let until = Instant::now() + Duration::from_secs(10);
    loop {
        one.obey(Duration::from_millis(50));
        let fired = daemon.ask(Ask::Triggers { job: None }).expect("triggers")["fired"].clone();
        if fired.as_array().is_some_and(|fired| fired.len() == 2) {
            assert_eq!(fired[0]["title"], "rank 0 lost 7 rows while recording");
            assert_eq!(fired[1]["title"], "rank 1 died, 1 others live");
            break;
        }
        assert!(Instant::now() < until, "{fired:#}");
    }
}

#[test]
fn a_rank_that_calls_again_has_not_died() {
    let daemon = Running::new("");
    let _one = Fake::new(&daemon.socket, "node7-1-5", "g", 0);
    let two = Fake::new(&daemon.socket, "node7-2-5", "g", 1);
    let three = Fake::new(&daemon.socket, "node7-3-5", "g", 2);
    daemon.jobs_when(|jobs| jobs[0]["joined"] == 3);
    let next = two.next_segment();
    let process = two.line.process();
    drop(two);
    daemon.jobs_when(|jobs| jobs[0]["joined"] == 2);
    // Its process goes on: it is waited for, and nothing is told of it.
    std::thread::sleep(Duration::from_millis(2600));
    let job = daemon.ask(Ask::Job { job: None }).expect("the job");
    assert_eq!(
        (
            &job["state"],
            &job["processes"][1]["state"],
            job["findings"].as_array().map(Vec::len)
        ),
        (&"running".into(), &"waiting".into(), Some(0)),
        "{job:#}"
    );
    let _two = Fake::again(&daemon.socket, "node7-2-5", "g", 1, next);
    drop(process);
    // What is told of the third would have been told of the second before.
    drop(three);
    let until = Instant::now() + Duration::from_secs(10);
    loop {
        let fired = daemon.ask(Ask::Triggers { job: None }).expect("triggers")["fired"].clone();
        if fired.as_array().is_some_and(|fired| !fired.is_empty()) {
            assert_eq!(fired[0]["title"], "rank 2 died, 2 others live");
            break;
        }
        assert!(Instant::now() < until, "nothing was told");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn whether_a_process_lives_decides_what_it_is_and_not_its_connection() {
    let daemon = Running::new("");
    let one = Fake::new(&daemon.socket, "node7-1-5", "g", 0);
    let two = Fake::new(&daemon.socket, "node7-2-5", "g", 1);
    daemon.jobs_when(|jobs| jobs[0]["joined"] == 2);
    let first = one.line.process();
    drop(one);
    // It is killed while it is not connected: the other lives.
    daemon.jobs_when(|jobs| jobs[0]["joined"] == 1);
    drop(first);
    let until = Instant::now() + PATIENCE;
    loop {
        let job = daemon.ask(Ask::Job { job: None }).expect("the job");
        if job["findings"][0]["title"] == "rank 0 died, 1 others live" {
            assert_eq!(job["processes"][0]["state"], "died");
            break;
        }
        assert!(Instant::now() < until, "{job:#}");
        std::thread::sleep(Duration::from_millis(50));
    }
    let second = two.line.process();
    drop(two);
    daemon.jobs_when(|jobs| jobs[0]["state"] == "waiting");
    // The next daemon knows it too, though it has never called that one.
    let daemon = Running::in_place(daemon.end(), "");
    std::thread::sleep(Duration::from_millis(600));
    daemon.jobs_when(|jobs| jobs[0]["state"] == "waiting");
    drop(second);
    daemon.jobs_when(|jobs| jobs[0]["state"] == "died");
}

#[test]
fn metrics_are_texts_that_prometheus_reads() {
    let (daemon, address) = Running::with_metrics("");
    let mut fake = Fake::new(&daemon.socket, "node7-1-5", "g", 5);
    fake.totals.devices = vec![2];
    fake.totals.lost_rows = 3;
    // A process of the same rank that died before it.
    let mut before = Fake::new(&daemon.socket, "node7-0-4", "g", 5);
    before.totals.lost_rows = 4;
    before.report(Vec::new());
    drop(before);
    daemon.jobs_when(|jobs| jobs[0]["joined"] == 1 && jobs[0]["lost_rows"] == 4);
    fake.end_step(80 * MS, Some(20 * MS));
    fake.end_step(700 * MS, Some(20 * MS));
    daemon.jobs_when(|jobs| jobs[0]["steps"] == 2);
    let get = |path: &str| {
        let mut stream = TcpStream::connect(address).expect("connected");
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").expect("asked");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("answered");
        text
    };
    let until = Instant::now() + PATIENCE;
    let text = loop {
        let text = get("/metrics");
        let is_new =
            |line: &str| line.starts_with("gputrace_step_duration_seconds_count{") && line.ends_with(" 2");
        if text.lines().any(is_new) {
            break text;
        }
        assert!(Instant::now() < until, "{text}");
        std::thread::sleep(Duration::from_millis(50));
    };
    let (head, body) = text.split_once("\r\n\r\n").expect("a head");
    assert!(
        head.starts_with("HTTP/1.1 200 OK") && head.contains("text/plain; version=0.0.4"),
        "{head}"
    );
    let job = "job=\"train-";
    let line = |beginning: &str, with: &str| {
        let found = body
            .lines()
            .find(|line| line.starts_with(beginning) && line.contains(with));
        found
            .unwrap_or_else(|| panic!("{beginning} {with}: {body}"))
            .rsplit(' ')
            .next()
            .expect("a value")
            .to_owned()
    };
    assert_eq!(line("gputrace_step_duration_seconds_count{", job), "2");
    assert_eq!(line("gputrace_step_duration_seconds_bucket{", "le=\"0.1\""), "1");
    assert_eq!(line("gputrace_step_duration_seconds_bucket{", "le=\"1\""), "2");
    assert_eq!(line("gputrace_step_duration_seconds_sum{", job), "0.78");
    assert_eq!(
        line("gputrace_collective_seconds_total{", "rank=\"5\",gpu=\"2\""),
        "0.04"
    );
    assert_eq!(line("gputrace_jobs{", "state=\"running\""), "1");
    assert_eq!(line("gputrace_lost_rows_total{", "rank=\"5\""), "7");
    let mut series = std::collections::BTreeSet::new();
    for line in body.lines().filter(|line| !line.starts_with('#')) {
        let (name, value) = line.rsplit_once(' ').expect("a value");
        assert!(series.insert(name), "twice: {name}");
        assert!(
            name.starts_with("gputrace_") && value.parse::<f64>().is_ok(),
            "{line}"
        );
    }
    assert!(get("/").starts_with("HTTP/1.1 404"));
}

#[test]
fn a_hang_is_told_of_kept_and_over_when_something_goes_on() {
    let daemon = Running::new("[trigger.hang]\nafter_s = 3\n");
    let names = ["node7-1-5", "node7-2-5", "node7-3-5"];
    let mut fakes: Vec<Fake> = (0..3)
        .map(|rank| Fake::new(&daemon.socket, names[rank as usize], "g", rank))
        .collect();
    for step in 0..20 {
        for (rank, fake) in fakes.iter_mut().enumerate() {
            fake.totals.enqueued = 10 * (step + 1) - u64::from(step == 19 && rank == 1);
            fake.totals.finished = Some(10 * (step + 1) - 1);
            fake.end_step(10 * MS, Some(MS));
        }
    }
    let begun = Instant::now();
    let fired = loop {
        for fake in &mut fakes {
            fake.obey(Duration::from_millis(50));
            // It still says that it lives.
            fake.report(Vec::new());
        }
        let fired = daemon.ask(Ask::Triggers { job: None }).expect("triggers")["fired"].clone();
        if fired[0]["recording"].is_string() {
            break fired;
        }
        assert!(begun.elapsed() < Duration::from_secs(10), "{fired:#}");
    };
    assert_eq!(fired[0]["trigger"], "hang");
    let title = fired[0]["title"].as_str().expect("a title");
    assert!(
        title.contains("2 collectives are outstanding; rank 1 behind the others; the last step was 19"),
        "{title}"
    );
    daemon.jobs_when(|jobs| jobs[0]["state"] == "hung");
    fakes[1].totals.finished = Some(201);
    fakes[1].end_step(10 * MS, Some(MS));
    daemon.jobs_when(|jobs| jobs[0]["state"] == "running");
}

#[test]
fn of_a_sampled_job_the_kernels_of_one_step_in_some_are_recorded() {
    let daemon = Running::new("mode = \"sampled\"\nsample_steps = 10\n[ring]\nseconds = 3600\n");
    let mut fake = Fake::new(&daemon.socket, "node7-1-5", "g", 0);
    let mut captures = 0;
    let until = Instant::now() + PATIENCE;
    while captures < 3 {
        fake.end_step(MS, None);
        let begun = captures;
        while let Some(order) = fake.line.order(Duration::from_millis(30)) {
            match order {
                ToCollector::Capture(capture) => {
                    assert_eq!(capture.steps, Some(1));
                    captures += 1;
                }
                ToCollector::Cut => fake.cut(),
                other => panic!("{other:?}"),
            }
        }
        assert!(captures <= begun + 1, "two for one step");
        // One in ten, and the daemon looks four times a second.
        assert!(
            fake.step >= captures * 10,
            "{captures} captures in {} steps",
            fake.step
        );
        assert!(Instant::now() < until, "{captures}");
    }
    let captures = daemon.ask(Ask::Captures).expect("captures");
    assert_eq!(
        captures["captures"].as_array().map(Vec::len),
        Some(0),
        "{captures:#}"
    );
}

#[test]
fn the_ring_of_a_job_that_is_over_goes_when_its_time_is_over() {
    let daemon = Running::new("[keep]\nended_minutes = 0\n");
    let mut fake = Fake::new(&daemon.socket, "node7-1-5", "g", 0);
    fake.write_row();
    let id = daemon.job_of_one_rank();
    let folder = daemon.state().join("jobs").join(&id);
    assert!(folder.exists());
    fake.leave();
    let until = Instant::now() + Duration::from_secs(25);
    while folder.exists() {
        assert!(Instant::now() < until, "it is still there");
        std::thread::sleep(Duration::from_millis(100));
    }
    let jobs = daemon.ask(Ask::Jobs).expect("jobs");
    assert_eq!(jobs["jobs"].as_array().map(Vec::len), Some(0));
}
