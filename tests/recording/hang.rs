//! Jobs that hang: the recorder says which rank did not join what, and ends bundled workloads.

use crate::common;

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::{analysis, expect_status, fresh_folder, gputrace, stderr};
use gputrace_trace::Recording;
use serde_json::Value;

fn manifest(folder: &Path) -> Value {
    let text = std::fs::read(folder.join("manifest.json")).expect("a manifest");
    serde_json::from_slice(&text).expect("it is JSON")
}

/// `record` of a workload that runs until it is ended, on the stand-in.
fn record(folder: &Path, options: &[&str], workload: &[&str]) -> Command {
    let mut command = gputrace();
    command.args(["record", "--device", "sim", "-o"]).arg(folder);
    command.args(options).args(["--", "workload"]).args(workload);
    command
}

/// The same of a command of the user's, which trains so many steps, with so much patience in seconds.
fn record_users_own(folder: &Path, patience: &str, steps: &str) -> Command {
    let mut command = gputrace();
    command.args(["record", "--device", "sim", "--hang-after", patience, "-o"]);
    command.arg(folder);
    command.args(["--", env!("CARGO_BIN_EXE_gputrace"), "workload", "ddp"]);
    command.args(["--ranks", "2", "--steps", steps]);
    command
}

/// A recorder that runs, and the processes of its two ranks by rank, which work.
fn start(command: &mut Command, folder: &Path) -> (Child, Vec<u32>) {
    let recorder = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    (recorder, ranks(folder, 2))
}

const DDP: &[&str] = &["ddp", "--ranks", "2", "--steps", "100000"];

/// The processes of the ranks by rank, when all have recorded collectives.
fn ranks(folder: &Path, count: usize) -> Vec<u32> {
    let started = Instant::now();
    loop {
        if let Ok(recording) = Recording::open(folder) {
            let ready = recording.processes.iter().filter(|process| {
                process.header.rank.is_some() && process.tables.collectives.start_ns.len() > 20
            });
            let pids: Vec<u32> = ready.map(|process| process.header.pid).collect();
            if pids.len() == count {
                return pids;
            }
        }
        assert!(started.elapsed() < Duration::from_secs(60), "the ranks work");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn signal(pid: u32, signal: libc::c_int) {
    // SAFETY: sends a signal to a process that this test started.
    assert_eq!(unsafe { libc::kill(pid.cast_signed(), signal) }, 0);
}

fn is_alive(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

#[track_caller]
fn wait_until_gone(pids: &[u32]) {
    let started = Instant::now();
    while pids.iter().any(|&pid| is_alive(pid)) {
        assert!(
            started.elapsed() < Duration::from_secs(20),
            "no rank is left behind"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// What a rank that was stopped looks like in a hang.
#[track_caller]
fn assert_names_rank_1(hang: &Value, process: &str) {
    assert_eq!(hang["communicator_name"], "world");
    assert_eq!(hang["communicator_ranks"], 2);
    assert_eq!(hang["waiting"][0]["rank"], 0, "{hang}");
    assert_eq!(hang["absent"][0]["rank"], 1, "{hang}");
    // It may have enqueued it before it was stopped.
    let did = hang["absent"][0]["did"].as_str().unwrap_or_default();
    assert!(matches!(did, "nothing" | "enqueued"), "{hang}");
    assert_eq!(hang["absent"][0]["process"], process, "{hang}");
    assert_eq!(hang["name"], "AllReduce");
    assert!(hang["bytes"].as_u64() > Some(0));
}

fn names_rank_1(text: &str) -> bool {
    text.contains("was never joined by rank 1")
        || text.contains("waits for rank 1, whose process does not run")
}

#[test]
fn a_stopped_rank_is_named_and_the_workload_ended() {
    common::schedule::waits();
    let (_keep, folder) = fresh_folder("recording");
    let (recorder, pids) = start(&mut record(&folder, &["--hang-after", "3"], DDP), &folder);
    signal(pids[1], libc::SIGSTOP);
    let output = recorder.wait_with_output().expect("the recorder ends");
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(124), "{said}");
    wait_until_gone(&pids);
    assert!(said.contains("gputrace: Hang: AllReduce #"), "{said}");
    assert!(names_rank_1(&said), "{said}");
    assert!(said.contains("rank 1 is stopped by a signal"), "{said}");
    let manifest = manifest(&folder);
    assert_eq!(manifest["state"], "complete");
    assert_eq!(manifest["ended_on_hang"], true);
    assert_names_rank_1(&manifest["hangs"][0], "stopped");
    let analysis = analysis(&folder);
    assert_eq!(analysis["hangs"], manifest["hangs"]);
    let first = &analysis["findings"][0];
    assert_eq!(first["code"], "hang");
    assert_eq!(first["facts"]["operation"], "AllReduce");
    assert_eq!(
        (first["rank"].as_u64(), &first["saves_ns"]),
        (Some(1), &Value::Null)
    );
    // Rank 0 has no kernel for it: that is what waiting is.
    let recording = Recording::open(&folder).expect("it opens");
    let sequence = manifest["hangs"][0]["sequence"].as_u64();
    let waited = analysis["collectives"]
        .as_array()
        .expect("a list")
        .iter()
        .find(|one| one["name"] == "AllReduce" && one["sequence"].as_u64() == sequence)
        .expect("it was enqueued");
    assert!(waited["longest_kernel_ns"].is_null() && waited["algbw"].is_null());
    let rows = &recording.manifest.rows;
    assert!(
        recording
            .processes
            .iter()
            .all(|process| rows[&process.folder]["collectives"] > 20)
    );
}

#[test]
fn a_recording_whose_recorder_was_killed_shows_the_hang_too() {
    common::schedule::waits();
    let (_keep, folder) = fresh_folder("recording");
    // The recorder would have waited for an hour; what is left is looked at with more impatience.
    let (mut recorder, pids) = start(&mut record(&folder, &["--hang-after", "3600"], DDP), &folder);
    signal(pids[1], libc::SIGSTOP);
    std::thread::sleep(Duration::from_secs(14));
    recorder.kill().expect("it runs");
    recorder.wait().expect("it ends");
    wait_until_gone(&pids);
    let analysis = analysis(&folder);
    assert_names_rank_1(&analysis["hangs"][0], "silent");
    assert!(analysis["findings"][0]["code"] == "hang" && analysis["findings"][0]["rank"] == 1);
}

#[test]
fn a_command_of_the_users_is_told_of_and_goes_on() {
    common::schedule::waits();
    let (_keep, folder) = fresh_folder("recording");
    let (recorder, pids) = start(&mut record_users_own(&folder, "2", "120"), &folder);
    signal(pids[1], libc::SIGSTOP);
    let started = Instant::now();
    while manifest(&folder)["hangs"].as_array().is_none_or(Vec::is_empty) {
        assert!(started.elapsed() < Duration::from_secs(30), "the hang is noticed");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(is_alive(pids[0]), "a user's command is not ended");
    signal(pids[1], libc::SIGCONT);
    let output = recorder.wait_with_output().expect("the recorder ends");
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert_eq!(said.matches("gputrace: Hang: ").count(), 1, "once: {said}");
    assert!(said.contains("and went on"), "{said}");
    // It was none after all: a note remains.
    let manifest = manifest(&folder);
    assert_eq!(manifest["hangs"], Value::Array(Vec::new()));
    let notes = manifest["notes"].to_string();
    assert!(notes.contains("stood still") && names_rank_1(&notes), "{notes}");
    assert_eq!(analysis(&folder)["hangs"], Value::Array(Vec::new()));
}

#[test]
fn a_job_that_waits_for_nothing_open_does_not_hang() {
    common::schedule::waits();
    let (_keep, folder) = fresh_folder("recording");
    // All ranks stop for longer than the recorder is patient, as they do for a debugger: nobody waits for anybody.
    let (recorder, pids) = start(&mut record_users_own(&folder, "1", "60"), &folder);
    for &pid in &pids {
        signal(pid, libc::SIGSTOP);
    }
    std::thread::sleep(Duration::from_secs(4));
    for &pid in &pids {
        signal(pid, libc::SIGCONT);
    }
    let output = recorder.wait_with_output().expect("the recorder ends");
    assert_eq!(output.status.code(), Some(0));
    assert!(!stderr(&output).contains("Hang"), "{}", stderr(&output));
    assert_eq!(manifest(&folder)["hangs"], Value::Array(Vec::new()));
}

/// Whether workloads can be told to call something else than the others.
fn has_desync() -> bool {
    let alone = [
        "workload", "ddp", "--ranks", "1", "--steps", "1", "--desync", "0:9:skip",
    ];
    gputrace()
        .args(alone)
        .output()
        .is_ok_and(|output| output.status.success())
}

#[test]
fn ranks_that_call_something_else_are_named() {
    common::schedule::waits();
    if !has_desync() {
        eprintln!("skipped: the bundled workloads have no --desync");
        return;
    }
    for (what, did) in [("skip", "nothing"), ("other", "other"), ("size", "differs")] {
        let (_keep, folder) = fresh_folder("recording");
        let desync = format!("1:5:{what}");
        let mut workload: Vec<&str> = DDP.to_vec();
        workload.extend(["--desync", &desync]);
        let output = expect_status(&mut record(&folder, &["--hang-after", "3"], &workload), 124);
        let said = stderr(&output);
        assert!(said.contains("gputrace: Hang: AllReduce #"), "{what}: {said}");
        let hang = &manifest(&folder)["hangs"][0];
        assert_eq!(hang["absent"][0]["rank"], 1, "{what}: {hang}");
        // What is left out shows as what came in its place, where that is another size.
        let told = hang["absent"][0]["did"].as_str().unwrap_or_default();
        assert!(
            told == did || what == "skip" && told == "differs",
            "{what}: {hang}"
        );
    }
}
