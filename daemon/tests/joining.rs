//! Joining, files, leaving, and coming again.

use std::io::Read;
use std::time::{Duration, Instant};

use gputrace_trace::daemon::{Ask, FromCollector, Limits, ToCollector};
use gputrace_trace::manifest::MANIFEST_FILE;
use gputrace_trace::{Recording, Table};
use serde_json::Value;

use crate::fake::{Fake, PATIENCE, Running, join};

/// The ring asks for no cuts of its own during a test.
const QUIET: &str = "[ring]\nseconds = 3600\n";

fn count(jobs: &Value) -> usize {
    jobs.as_array().map_or(0, Vec::len)
}

#[test]
fn processes_of_a_group_are_a_job_and_their_recording_opens_while_it_grows() {
    let daemon = Running::new("");
    let mut ranks: Vec<Fake> = (0..4)
        .map(|rank| Fake::new(&daemon.socket, &format!("node7-{rank}-5"), "g", rank))
        .collect();
    let mut other = Fake::new(&daemon.socket, "node7-9-5", "another", 0);
    for rank in &mut ranks {
        rank.write_row();
        rank.end_step(80_000_000, Some(1_000_000));
    }
    other.write_row();
    let jobs = daemon.jobs_when(|jobs| count(jobs) == 2 && jobs[0]["steps"] == 1);
    assert_eq!(jobs[0]["ranks"], 4);
    assert_eq!(jobs[0]["joined"], 4);
    assert_eq!(jobs[0]["world_size"], 8);
    assert_eq!(jobs[0]["step_ns"], 80_000_000);
    assert_eq!(
        (&jobs[0]["mode"], &jobs[0]["state"]),
        (&"steps".into(), &"running".into())
    );
    let id = jobs[0]["job"].as_str().expect("a name").to_owned();
    assert!(id.starts_with("train-"), "{id}");
    let recording = daemon.recording_when(&id, |recording| recording.manifest.command == ["train.py"]);
    assert_eq!(recording.processes.len(), 4);
    assert!(
        recording
            .processes
            .iter()
            .all(|process| process.tables.markers.len() == 1)
    );
    let why: Vec<_> = recording
        .losses
        .iter()
        .filter(|loss| !gputrace_trace::recording::is_unclosed(loss))
        .collect();
    assert!(why.is_empty(), "{why:?}");

    for rank in ranks {
        rank.leave();
    }
    let jobs = daemon.jobs_when(|jobs| jobs[0]["state"] == "ended");
    assert_eq!(jobs[1]["state"], "running");
    drop(other);
    daemon.jobs_when(|jobs| jobs[1]["state"] == "died");
    daemon.recording_when(&id, |recording| recording.manifest.state == "complete");
    // The next run of the same shell is another job.
    let _again = Fake::new(&daemon.socket, "node7-77-9", "g", 0);
    daemon.jobs_when(|jobs| count(jobs) == 3);
}

#[test]
fn a_job_is_found_again_by_the_next_daemon() {
    let daemon = Running::new("");
    let mut fake = Fake::new(&daemon.socket, "node7-1-5", "g", 0);
    fake.write_row();
    fake.end_step(1000, None);
    let id = daemon.jobs_when(|jobs| jobs[0]["steps"] == 1)[0]["job"].clone();
    let next = fake.next_segment();
    let place = daemon.end();
    let _process = fake.line.process();
    drop(fake);
    // A ring of a daemon that was killed while it removed it, and what somebody put there.
    let jobs = place.path().join("state/jobs");
    for name in [".removed-lost", "lost", "mine"] {
        std::fs::create_dir(jobs.join(name)).expect("made");
    }
    for name in [".removed-lost", "lost"] {
        std::fs::write(jobs.join(name).join(MANIFEST_FILE), "{}").expect("written");
    }
    // Those that are waited for stay, however soon the rings of others go.
    let daemon = Running::in_place(place, "[keep]\nended_minutes = 0\n");
    let jobs = daemon.jobs_when(|jobs| count(jobs) == 1);
    assert_eq!((&jobs[0]["job"], &jobs[0]["state"]), (&id, &"waiting".into()));
    let jobs = daemon.state().join("jobs");
    let until = Instant::now() + PATIENCE;
    while jobs.join(".removed-lost").exists() {
        assert!(Instant::now() < until, "it is still there");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(jobs.join("lost").exists() && jobs.join("mine").exists());
    let mut fake = Fake::again(&daemon.socket, "node7-1-5", "g", 0, next);
    fake.write_row();
    fake.end_step(1000, None);
    let jobs = daemon.jobs_when(|jobs| jobs[0]["steps"] == 2);
    assert_eq!((count(&jobs), &jobs[0]["state"]), (1, &"running".into()));
    let folder = daemon.state().join("jobs").join(id.as_str().expect("a name"));
    let recording = Recording::open(&folder).expect("a recording");
    assert_eq!(recording.processes[0].tables.markers.len(), 2);
}

#[test]
fn names_and_tables_that_lead_elsewhere_are_refused() {
    let daemon = Running::new("");
    for name in ["..", "a/b", "", "a.1", "/etc/x"] {
        let (_, answer) = join(&daemon.socket, name, "g", 0, None);
        assert!(
            matches!(answer, ToCollector::Refused { .. }),
            "{name}: {answer:?}"
        );
    }
    let (line, answer) = join(&daemon.socket, "node7-1-5", "g", 3, None);
    assert!(matches!(answer, ToCollector::Welcome { .. }));
    let wait = Duration::from_secs(5);
    for wrong in [
        FromCollector::Open {
            table: "kernels".to_owned(),
            segment: None,
        },
        FromCollector::Segment { segment: 2 },
        FromCollector::Segment { segment: u32::MAX },
    ] {
        line.say(&wrong);
        let answer = line.order(wait);
        assert!(
            matches!(answer, Some(ToCollector::Failed { .. })),
            "{wrong:?}: {answer:?}"
        );
    }
    line.say(&FromCollector::Segment { segment: 3 });
    assert_eq!(line.order(wait), Some(ToCollector::Made));
    for table in ["../../x", "process", "", "kernels.arrows"] {
        line.say(&FromCollector::Open {
            table: table.to_owned(),
            segment: None,
        });
        let answer = line.order(wait);
        assert!(
            matches!(answer, Some(ToCollector::Failed { .. })),
            "{table}: {answer:?}"
        );
    }
}

#[test]
fn a_snapshot_is_a_recording_that_can_be_fetched() {
    let daemon = Running::new(QUIET);
    let names = ["node7-1-5", "node7-2-5"];
    let mut fakes: Vec<Fake> = (0..2)
        .map(|rank| Fake::new(&daemon.socket, names[rank as usize], "g", rank))
        .collect();
    for fake in &mut fakes {
        fake.write_row();
    }
    daemon.jobs_when(|jobs| jobs[0]["ranks"] == 2);
    let socket = daemon.socket.clone();
    let asked = std::thread::spawn(move || {
        crate::fake::ask(
            &socket,
            Ask::Snapshot {
                job: None,
                last_s: Some(30.0),
            },
        )
    });
    for fake in &mut fakes {
        assert_eq!(fake.obey_orders(1, PATIENCE), 1, "a cut");
        fake.write_row();
    }
    let kept = asked.join().expect("asked").expect("kept");
    assert_eq!(
        (&kept["processes"], &kept["trigger"]),
        (&2.into(), &"snapshot".into())
    );
    let name = kept["recording"].as_str().expect("a name").to_owned();
    let recording = Recording::open(&daemon.state().join("captures").join(&name)).expect("a recording");
    // What was written behind the cut is not in it.
    assert!(
        recording
            .processes
            .iter()
            .all(|process| process.tables.markers.len() == 1)
    );
    let kept = recording.manifest.kept.expect("why");
    assert_eq!((kept.trigger.as_str(), kept.missing.len()), ("snapshot", 0));

    let place = tempfile::tempdir().expect("a folder");
    for (answer, file) in crate::fake::answers(
        &daemon.socket,
        Ask::Fetch {
            recording: name.clone(),
        },
    ) {
        let gputrace_trace::daemon::Answer::File { path } = answer else {
            continue;
        };
        let path = place.path().join(path);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        let mut text = Vec::new();
        let mut file = file.expect("a descriptor");
        file.read_to_end(&mut text).expect("read");
        assert!(
            std::io::Write::write(&mut file, b"x").is_err(),
            "it can be written to"
        );
        std::fs::write(path, text).expect("written");
    }
    let fetched = Recording::open(place.path()).expect("a recording");
    assert_eq!(fetched.processes.len(), 2);
    let captures = daemon.ask(Ask::Captures).expect("captures");
    assert_eq!(captures["captures"][0]["recording"], name.as_str());
    for wrong in ["", "..", "../jobs", "nothing"] {
        let error = daemon
            .ask(Ask::Fetch {
                recording: wrong.to_owned(),
            })
            .expect_err(wrong);
        assert!(error.contains("the last are"), "{error}");
    }
}

#[test]
fn a_segment_that_was_not_ended_is_said_to_be_missing() {
    let daemon = Running::new(QUIET);
    let mut fake = Fake::again(&daemon.socket, "node7-1-5", "g", 0, 1);
    fake.write_row();
    daemon.job_of_one_rank();
    for wrong in [0, 1, u32::MAX] {
        let socket = daemon.socket.clone();
        let ask = Ask::Snapshot {
            job: None,
            last_s: None,
        };
        let asked = std::thread::spawn(move || crate::fake::ask(&socket, ask));
        assert_eq!(fake.line.order(PATIENCE), Some(ToCollector::Cut));
        fake.line.say(&FromCollector::Cut { segment: wrong });
        let kept = asked.join().expect("asked").expect("kept");
        let missing = &kept["ranks"][0]["missing"];
        assert_eq!(*missing, "it could not end its segment", "{wrong}");
    }
}

/// Somebody asks for three steps, and waits for them.
fn capture_of_three_steps(daemon: &Running) -> std::thread::JoinHandle<Result<Value, String>> {
    let socket = daemon.socket.clone();
    std::thread::spawn(move || {
        let limits = Limits {
            steps: Some(3),
            ..Limits::default()
        };
        let ask = Ask::Capture {
            job: None,
            limits,
            wait: true,
        };
        crate::fake::ask(&socket, ask)
    })
}

#[test]
fn a_capture_names_ranks_that_died_and_keeps_the_others() {
    let daemon = Running::new(QUIET);
    let mut good = Fake::new(&daemon.socket, "node7-1-5", "g", 0);
    let mut bad = Fake::new(&daemon.socket, "node7-2-5", "g", 1);
    daemon.jobs_when(|jobs| jobs[0]["ranks"] == 2);
    good.write_row();
    bad.write_row();
    let asked = capture_of_three_steps(&daemon);
    // It dies when it should cut.
    assert!(matches!(
        bad.line.order(Duration::from_secs(5)),
        Some(ToCollector::Cut)
    ));
    drop(bad);
    assert_eq!(good.obey_orders(3, PATIENCE), 3, "a cut, a capture, a cut");
    let kept = asked.join().expect("asked").expect("kept");
    assert_eq!(kept["ranks"][0]["steps"], 3);
    assert_eq!(kept["ranks"][0]["missing"], Value::Null);
    assert_eq!(kept["ranks"][1]["missing"], "it ended meanwhile");
    let name = kept["recording"].as_str().expect("a name");
    let recording = Recording::open(&daemon.state().join("captures").join(name)).expect("a recording");
    // What was written before the capture is not in it.
    let rows: Vec<usize> = recording
        .processes
        .iter()
        .map(|process| process.tables.markers.len())
        .collect();
    assert_eq!(rows[0], 1);
    let missing = recording.manifest.kept.expect("why").missing;
    assert_eq!(missing, ["rank 1: it ended meanwhile"]);
}

#[test]
fn a_job_that_records_everything_is_captured_from_its_ring() {
    let daemon = Running::new(&format!("mode = \"full\"\n{QUIET}"));
    let mut fake = Fake::new(&daemon.socket, "node7-1-5", "g", 0);
    for _ in 0..5 {
        fake.write_row();
        fake.end_step(1_000_000, None);
    }
    daemon.jobs_when(|jobs| jobs[0]["steps"] == 5 && jobs[0]["mode"] == "full");
    let asked = capture_of_three_steps(&daemon);
    assert_eq!(fake.obey_orders(1, PATIENCE), 1, "a cut");
    for _ in 0..4 {
        fake.write_row();
        fake.end_step(1_000_000, None);
    }
    assert_eq!(fake.line.order(PATIENCE), Some(ToCollector::Cut), "no capture");
    fake.cut();
    let kept = asked.join().expect("asked").expect("kept");
    assert_eq!(kept["ranks"][0]["missing"], Value::Null);
    let name = kept["recording"].as_str().expect("a name");
    let recording = Recording::open(&daemon.state().join("captures").join(name)).expect("a recording");
    assert_eq!(recording.processes[0].tables.markers.len(), 4);
}

#[test]
fn nobody_is_there_and_nothing_matches() {
    let daemon = Running::new("");
    let error = daemon.ask(Ask::Job { job: None }).expect_err("no job");
    assert!(error.contains("no job has joined"), "{error}");
    let _one = Fake::new(&daemon.socket, "node7-1-5", "g", 0);
    daemon.jobs_when(|jobs| count(jobs) == 1);
    let error = daemon
        .ask(Ask::Job {
            job: Some("nothing".to_owned()),
        })
        .expect_err("no job");
    assert!(error.contains("no job nothing: there are train-"), "{error}");
    let job = daemon
        .ask(Ask::Job {
            job: Some("tr".to_owned()),
        })
        .expect("by its beginning");
    assert_eq!(job["processes"][0]["rank"], 0);
    let wrong = gputrace_daemon::settings::Settings {
        socket: daemon.socket.clone(),
        open: false,
        state: daemon.state(),
        host: String::new(),
        config: gputrace_daemon::settings::Config::default(),
    };
    let error = gputrace_daemon::Daemon::start(wrong, |_| {}).err().expect("two");
    assert!(error.contains("already running"), "{error}");
    // Another socket, the same folder.
    let wrong = gputrace_daemon::settings::Settings {
        socket: daemon.place.path().join("another.sock"),
        open: false,
        state: daemon.state(),
        host: String::new(),
        config: gputrace_daemon::settings::Config::default(),
    };
    let error = gputrace_daemon::Daemon::start(wrong, |_| {}).err().expect("two");
    assert!(error.contains("another daemon has its things here"), "{error}");
}

#[test]
fn jobs_that_are_over_give_way_to_new_ones() {
    let daemon = Running::new("");
    for number in 0..300 {
        let name = format!("node7-{number}-5");
        let (line, answer) = join(&daemon.socket, &name, &name, 0, None);
        assert!(
            matches!(answer, ToCollector::Welcome { .. }),
            "{number}: {answer:?}"
        );
        line.say(&FromCollector::Leave);
        drop(line);
    }
    let jobs = daemon.jobs_when(|jobs| count(jobs) == 256);
    assert!(jobs[0]["state"] == "ended");
}

#[test]
fn a_process_that_leaves_has_ended_and_one_that_breaks_off_has_died() {
    let daemon = Running::new("");
    let one = Fake::new(&daemon.socket, "node7-1-5", "g", 0);
    let two = Fake::new(&daemon.socket, "node7-2-5", "h", 0);
    daemon.jobs_when(|jobs| count(jobs) == 2);
    one.leave();
    drop(two);
    let jobs = daemon.jobs_when(|jobs| {
        let all = jobs.as_array().into_iter().flatten();
        all.filter(|job| job["state"] != "running").count() == 2
    });
    let states: Vec<&str> = jobs
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|job| job["state"].as_str())
        .collect();
    assert_eq!(states, ["ended", "died"], "{jobs:#}");
    let daemon = Running::in_place(daemon.end(), "");
    let again = daemon.jobs_when(|jobs| count(jobs) == 2);
    assert_eq!(
        (&again[0]["state"], &again[1]["state"]),
        (&jobs[0]["state"], &jobs[1]["state"])
    );
}

#[test]
fn rings_that_nobody_knows_stay() {
    let daemon = Running::new("");
    let fake = Fake::new(&daemon.socket, "node7-1-5", "g", 0);
    let id = daemon.job_of_one_rank();
    fake.leave();
    daemon.jobs_when(|jobs| jobs[0]["state"] == "ended");
    let state = daemon.state();
    let place = daemon.end();
    // A daemon that was killed between making a ring and writing down whose it is, or a recording that somebody put there.
    std::fs::remove_file(state.join(".about/jobs").join(format!("{id}.json"))).expect("written down");
    let ours = state.join("jobs/notes");
    std::fs::create_dir(&ours).expect("made");
    let daemon = Running::in_place(place, "");
    // Another job comes and goes meanwhile, so that the disk's thread has been at work.
    let fake = Fake::new(&daemon.socket, "node7-1-6", "h", 0);
    daemon.job_of_one_rank();
    fake.leave();
    daemon.jobs_when(|jobs| jobs[0]["state"] == "ended");
    let ring = daemon.state().join("jobs").join(&id);
    assert!(ring.join(MANIFEST_FILE).exists() && ours.exists());
}

#[test]
fn steps_that_no_daemon_heard_of_are_counted() {
    let daemon = Running::new("");
    let mut fake = Fake::new(&daemon.socket, "node7-1-5", "g", 0);
    // Twelve before it joined.
    fake.totals.steps = 12;
    for _ in 0..5 {
        fake.totals.steps += 1;
        fake.end_step(1_000_000, None);
    }
    let jobs = daemon.jobs_when(|jobs| jobs[0]["steps"] == 5);
    assert_eq!(jobs[0]["missed_steps"], 12);
    let id = jobs[0]["job"].as_str().expect("a name").to_owned();
    fake.leave();
    daemon.jobs_when(|jobs| jobs[0]["state"] == "ended");
    let daemon = Running::in_place(daemon.end(), "");
    let jobs = daemon.jobs_when(|jobs| jobs[0]["job"] == id.as_str());
    assert_eq!(
        (&jobs[0]["steps"], &jobs[0]["missed_steps"]),
        (&5.into(), &12.into())
    );
}

#[test]
fn ranks_stay_together_where_the_first_call_of_one_comes_to_nothing() {
    let daemon = Running::new("");
    // It waits 50 ms for an answer, and calls again half a second later.
    let (line, _) = join(&daemon.socket, "node7-1-5", "g", 0, Some(0));
    drop(line);
    daemon.jobs_when(|jobs| jobs[0]["state"] == "died");
    let other = Fake::new(&daemon.socket, "node7-2-5", "g", 1);
    let again = Fake::new(&daemon.socket, "node7-1-5", "g", 0);
    let jobs = daemon.jobs_when(|jobs| jobs[0]["joined"] == 2);
    assert_eq!(count(&jobs), 1, "{jobs:#}");
    other.leave();
    again.leave();
    // What follows, begun by the same parent, is another job.
    daemon.jobs_when(|jobs| jobs[0]["state"] == "ended");
    let _next = Fake::new(&daemon.socket, "node7-3-6", "g", 0);
    daemon.jobs_when(|jobs| count(jobs) == 2);
}

#[test]
fn a_job_that_cannot_be_written_down_leaves_nothing_and_is_counted() {
    let daemon = Running::new("");
    let jobs = daemon.state().join("jobs");
    // Where no folder can be made, as on a disk that is full.
    std::fs::remove_dir(&jobs).expect("empty");
    std::fs::write(&jobs, "").expect("written");
    let (_line, answer) = join(&daemon.socket, "node7-1-5", "g", 0, Some(0));
    let ToCollector::Refused { why } = answer else {
        panic!("{answer:?}");
    };
    assert!(why.contains("folder can't be made"), "{why}");
    let told = daemon.ask(Ask::Jobs).expect("jobs");
    assert_eq!((&told["refused"], count(&told["jobs"])), (&1.into(), 0));
}
