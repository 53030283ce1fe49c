//! Ranks and recorders that are killed: what was written opens, what is missing is said, and nothing is left running or
//! lying about.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant, SystemTime};

use crate::common::gputrace;
use crate::random::Random;
use crate::world::World;
use crate::{analyses, compare, program, recordings};

fn kill(pid: i32, signal: i32) {
    // SAFETY: a signal; whoever is gone already is an error that means nothing.
    unsafe { libc::kill(pid, signal) };
}

/// Ranks by their process folders' headers.
fn ranks(recording: &Path) -> Vec<i32> {
    let pid = |entry: std::fs::DirEntry| -> Option<i32> {
        let header = std::fs::read(entry.path().join("process.json")).ok()?;
        let header: serde_json::Value = serde_json::from_slice(&header).ok()?;
        header["rank"].as_u64()?;
        header["pid"].as_i64()?.try_into().ok()
    };
    let entries = std::fs::read_dir(recording).into_iter().flatten().flatten();
    let mut pids: Vec<i32> = entries.filter_map(pid).collect();
    pids.sort_unstable();
    pids
}

/// Processes that were started for this try, zombies aside.
fn left(mark: &str) -> Vec<i32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| {
            let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
            let environment = std::fs::read(entry.path().join("environ")).ok()?;
            let is_ours = environment
                .split(|byte| *byte == 0)
                .any(|one| one == mark.as_bytes());
            let status = std::fs::read_to_string(entry.path().join("stat")).ok()?;
            (is_ours && !status.contains(") Z ")).then_some(pid)
        })
        .collect()
}

/// Names in shared memory that the stand-in might have made for a recorder's run since then: those of an earlier version may
/// have been left by a process of the same number.
fn shared_memory(recorder: i32, since: SystemTime) -> Vec<String> {
    let mark = format!("simgpu-{recorder}-");
    let entries = std::fs::read_dir("/dev/shm").into_iter().flatten().flatten();
    let is_new = |entry: &std::fs::DirEntry| {
        let modified = entry.metadata().and_then(|found| found.modified());
        modified.is_ok_and(|modified| modified >= since)
    };
    let names = entries
        .filter(is_new)
        .filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| name.contains(&mark)).collect()
}

/// A run of two ranks, and somebody of it killed.
pub fn at_any_moment(_: &World, mut random: Random, folder: &Path) {
    let recording = folder.join("recording");
    let mark = format!("SOAK_MARK={}", folder.display());
    let (name, value) = mark.split_once('=').expect("a variable");
    let seed = format!("SEED={}", random.below(1000));
    let mut command = gputrace();
    command
        .args(["record", "--quiet", "--device", "sim", "--sim", &seed, "-o"])
        .arg(&recording)
        .args(["--", "workload", "ddp", "--ranks", "2", "--steps", "100000"])
        .env(name, value)
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(std::fs::File::create(folder.join("stderr")).expect("a file"));
    let started = SystemTime::now();
    let mut recorder = command.spawn().expect("it starts");
    // From before there is anything until it runs for some time.
    let wait_for_ranks = !random.once_in(4);
    let begun = Instant::now();
    while wait_for_ranks && ranks(&recording).len() < 2 {
        assert!(begun.elapsed() < Duration::from_secs(30), "no ranks");
        std::thread::sleep(Duration::from_millis(5));
    }
    std::thread::sleep(Duration::from_millis(random.below(1200) as u64));
    let pid = recorder.id().cast_signed();
    let found = ranks(&recording);
    let (who, signal) = match (random.below(7), &found[..]) {
        (0, _) => (pid, libc::SIGKILL),
        (1, _) => (-pid, libc::SIGKILL),
        // As a terminal sends it: to the recorder and its command.
        (6, _) => (-pid, libc::SIGINT),
        (2, _) => (pid, random.pick(&[libc::SIGTERM, libc::SIGHUP])),
        (3, [first, ..]) => (*first, *random.one_of(&[libc::SIGABRT, libc::SIGTERM])),
        (_, [.., last]) => (*last, libc::SIGKILL),
        _ => (pid, libc::SIGKILL),
    };
    kill(who, signal);
    let patience = Duration::from_secs(30);
    let ended = program::wait(&mut recorder, patience);
    // Bundled ranks end with their recorder.
    let begun = Instant::now();
    while !left(&mark).is_empty() && begun.elapsed() < patience {
        std::thread::sleep(Duration::from_millis(5));
    }
    let still = left(&mark);
    for pid in &still {
        kill(*pid, libc::SIGKILL);
    }
    assert!(
        ended.is_some(),
        "the recorder goes on after signal {signal} to {who}"
    );
    assert!(
        still.is_empty(),
        "left running after signal {signal} to {who}: {still:?}"
    );
    let in_memory = shared_memory(pid, started);
    assert!(in_memory.is_empty(), "left in memory: {in_memory:?}");
    let said = std::fs::read_to_string(folder.join("stderr")).expect("what it said");
    assert!(!said.contains("panicked"), "{said}");

    if recording.exists() {
        match compare::read(&recording) {
            Ok(read) => {
                recordings::check(&read.recording);
                analyses::check(&read.recording);
                let told = !read.recording.losses.is_empty() || !read.recording.notes.is_empty();
                assert!(
                    signal != libc::SIGKILL || told,
                    "signal {signal} to {who} has cost nothing"
                );
            }
            Err(line) => assert!(!line.is_empty(), "a refusal without words"),
        }
        let mut analyze = gputrace();
        analyze.arg("analyze").arg(&recording).arg("--json");
        program::run(&mut analyze, folder, patience).check();
    }
}
