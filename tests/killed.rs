//! Ranks and recorders killed at random moments: the recording opens each time, with what was flushed.

mod common;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::programs::{collector, compiled, library_path};
use common::{analysis, fresh_folder, record_workload, truth_of_rank};
use gputrace_trace::Recording;
use gputrace_trace::manifest::{MANIFEST_FILE, Manifest, write_json};

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

/// Starts a program that launches in two threads, as the recorder would start it, and kills it after `delay`. Whatever
/// is there then opens, is told to be cut, and has each kernel once.
fn kill_a_launch_loop(program: &Path, delay: Duration) {
    let folder = tempfile::tempdir().expect("a folder");
    let manifest = Manifest {
        state: "recording".to_owned(),
        ..Manifest::new()
    };
    write_json(&folder.path().join(MANIFEST_FILE), &manifest).expect("a manifest, as the recorder makes it");
    let library = collector();
    let mut command = Command::new(program);
    command
        .args(["launch", "2", "60"])
        .env("LD_LIBRARY_PATH", library_path())
        .env("CUDA_INJECTION64_PATH", &library)
        .env("NVTX_INJECTION64_PATH", &library)
        .env("GPUTRACE_DIR", folder.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut child = command.spawn().expect("the program starts");
    std::thread::sleep(delay);
    kill(child.id());
    child.wait().expect("it ends");
    let recording =
        Recording::open(folder.path()).unwrap_or_else(|error| panic!("killed after {delay:?}: {error}"));
    let [process] = &recording.processes[..] else {
        return; // It had not come to cuInit, or no further than an empty folder.
    };
    let cut = recording
        .losses
        .iter()
        .any(|loss| !loss.what.contains("manifest"));
    assert!(cut, "killed after {delay:?}: nothing told");
    let kernels = &process.tables.kernels;
    let ids: std::collections::BTreeSet<u64> = kernels.correlation.iter().map(|&id| u64::from(id)).collect();
    assert_eq!(
        ids.len(),
        kernels.correlation.len(),
        "killed after {delay:?}: none twice"
    );
}

/// GPUTRACE_TEST_KILLS: how many, instead of a hundred.
#[test]
fn a_launch_loop_killed_at_a_hundred_moments() {
    let kills: u32 = std::env::var("GPUTRACE_TEST_KILLS")
        .ok()
        .and_then(|kills| kills.parse().ok())
        .unwrap_or(100);
    let program = compiled("threads");
    library_path();
    std::thread::scope(|scope| {
        for worker in 0..2u64 {
            let program = &program;
            scope.spawn(move || {
                let mut state = 0x2545_f491_4f6c_dd1d ^ (worker + 1);
                for round in 0..kills / 2 {
                    // While it starts, around the first batches, and later.
                    let most = [60, 300, 300, 1_500][(round % 4) as usize];
                    let delay = Duration::from_micros(next_random(&mut state) % (most * 1_000));
                    kill_a_launch_loop(program, delay);
                }
            });
        }
    });
}
