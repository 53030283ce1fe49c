//! Ranks and recorders killed at random moments: the recording opens each time, with what was flushed.

mod common;

use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use common::{analysis, fresh_folder, record_workload, truth_of_rank};
use gputrace_trace::Recording;

/// A number generator of one line (xorshift): moments that differ from run to run of the loop, and are the same each time.
fn next_random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

fn start(folder: &Path, truth: &Path, seed: u64) -> Child {
    let seed = seed.to_string();
    record_workload(folder, truth, &[("SEED", &seed)], ["ddp", "--steps", "100000"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program starts")
}

fn kill(pid: u32) {
    // SAFETY: sends a signal; a pid that is gone gives an error that does not matter here.
    unsafe { libc::kill(pid.cast_signed(), libc::SIGKILL) };
}

/// The pid of a rank from its process folder's header, when it is there.
fn pid_of_rank(folder: &Path, rank: u64) -> Option<u32> {
    std::fs::read_dir(folder)
        .ok()?
        .filter_map(Result::ok)
        .find_map(|entry| {
            let header: serde_json::Value =
                serde_json::from_slice(&std::fs::read(entry.path().join("process.json")).ok()?).ok()?;
            (header["rank"].as_u64() == Some(rank))
                .then(|| header["pid"].as_u64()?.try_into().ok())
                .flatten()
        })
}

fn is_alive(pid: u32) -> bool {
    // A zombie that nobody has waited for counts as dead.
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

#[track_caller]
fn assert_opens_with_what_was_flushed(folder: &Path, truth: &Path, killed_at: Duration) {
    let recording =
        Recording::open(folder).unwrap_or_else(|error| panic!("killed after {killed_at:?}: {error}"));
    let analysis = analysis(folder);
    assert!(
        !recording.losses.is_empty(),
        "killed after {killed_at:?}: a killed process is a loss"
    );
    assert_eq!(analysis["losses"].as_array().map(Vec::is_empty), Some(false));
    for process in &recording.processes {
        let Some(rank) = process.header.rank else { continue };
        let kernels = &process.tables.kernels;
        let truth_file = truth.join(format!("rank{rank}.jsonl"));
        if kernels.start_ns.is_empty() || !truth_file.exists() {
            continue;
        }
        // What is there is true, and complete up to a second and a half before the end (one flush each second).
        let truth = truth_of_rank(truth, rank);
        let recorded: std::collections::BTreeSet<u64> =
            kernels.correlation.iter().map(|&id| u64::from(id)).collect();
        assert_eq!(recorded.len(), kernels.correlation.len(), "none twice");
        let last = truth
            .values()
            .map(|operation| operation.end_ns)
            .max()
            .unwrap_or(0);
        for (correlation, operation) in &truth {
            if operation.kind == "kernel" && operation.end_ns < last - 1_500_000_000 {
                assert!(
                    recorded.contains(correlation),
                    "kernel {correlation} was long over and is not there"
                );
            }
        }
    }
}

fn wait_for_ranks(folder: &Path) -> [u32; 2] {
    let started = Instant::now();
    loop {
        if let (Some(first), Some(second)) = (pid_of_rank(folder, 0), pid_of_rank(folder, 1)) {
            return [first, second];
        }
        assert!(started.elapsed() < Duration::from_secs(60), "the ranks started");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn ranks_and_recorders_killed_at_thirty_moments() {
    let mut state = 0x9e37_79b9_7f4a_7c15;
    for round in 0..30u64 {
        let (_keep, folder) = fresh_folder("recording");
        let truth: PathBuf = folder.with_file_name("truth");
        let mut recorder = start(&folder, &truth, round);
        let pids = wait_for_ranks(&folder);
        let delay = Duration::from_millis(next_random(&mut state) % 2_500);
        std::thread::sleep(delay);
        if round % 2 == 0 {
            kill(pids[usize::try_from(next_random(&mut state) % 2).unwrap_or(0)]);
        } else {
            kill(recorder.id());
        }
        let started = Instant::now();
        recorder.wait().expect("the recorder ends");
        while pids.iter().any(|&pid| is_alive(pid)) {
            assert!(
                started.elapsed() < Duration::from_secs(30),
                "round {round}: bundled ranks end with their recorder"
            );
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_opens_with_what_was_flushed(&folder, &truth, delay);
    }
}
