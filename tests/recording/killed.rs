//! Ranks and recorders killed at random moments: the recording opens each time, with what was flushed. And files that were
//! damaged afterwards: whatever is read is what was written, or a loss names the file.

use crate::common;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::damage::{Kind, Subject};
use common::programs::{collector, compiled, library_path};
use common::random::Random;
use common::{analysis, fresh_folder, record_workload, truth_of_rank};
use gputrace_trace::Recording;
use gputrace_trace::json_file::write_json;
use gputrace_trace::manifest::{MANIFEST_FILE, Manifest};

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

#[test]
fn a_run_that_is_killed_leaves_no_memory_behind() {
    use std::os::unix::process::CommandExt;

    let (_keep, folder) = fresh_folder("recording");
    let truth = tempfile::tempdir().expect("a folder");
    let mut run = record_workload(&folder, truth.path(), &[], ["ddp", "--steps", "100000"])
        .process_group(0)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program starts");
    let ranks = wait_for_ranks(&folder);
    std::thread::sleep(Duration::from_millis(300));
    // SAFETY: a signal to the group that was made for the run, its recorder and ranks.
    unsafe { libc::kill(-run.id().cast_signed(), libc::SIGKILL) };
    ranks.into_iter().for_each(kill);
    run.wait().expect("it ends");
    // By the name that the recorder gives its run.
    let mark = format!("-{}-", run.id());
    let is_of_it = |name: &str| name.contains("simgpu-") && name.contains(&mark);
    let left = || -> Vec<String> {
        let files = std::fs::read_dir("/dev/shm").into_iter().flatten();
        let names = files.filter_map(|file| file.ok()?.file_name().into_string().ok());
        let sockets = std::fs::read_to_string("/proc/net/unix").unwrap_or_default();
        let sockets = sockets.lines().map(str::to_owned);
        names.chain(sockets).filter(|name| is_of_it(name)).collect()
    };
    // A process whose first thread is a zombie already has its files open until its other threads have ended too.
    let begun = Instant::now();
    while ranks.into_iter().any(is_alive) || !left().is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", left());
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn users_commands_outlive_a_recorder_that_dies_and_bundled_ranks_end_with_it() {
    for signal in [libc::SIGKILL, libc::SIGSEGV, libc::SIGABRT, libc::SIGXCPU] {
        let (keep, folder) = fresh_folder("recording");
        let said = keep.path().join("said");
        let script = format!("exec \"$@\" > {}", said.display());
        let mut recorder = common::gputrace()
            .args(["record", "--quiet", "--device", "sim", "-o"])
            .arg(&folder)
            .args(["--", "sh", "-c", &script, "sh"])
            .arg(compiled("limits"))
            .spawn()
            .expect("the recorder starts");
        let started = Instant::now();
        let wait = |what: &str| {
            assert!(
                started.elapsed() < Duration::from_secs(60),
                "signal {signal}: {what}"
            );
            std::thread::sleep(Duration::from_millis(5));
        };
        while processes(&folder).is_empty() {
            wait("the program is recorded");
        }
        end_by(&mut recorder, signal);
        while std::fs::read_to_string(&said).unwrap_or_default() != "worked: 2 2\n" {
            wait("the program goes on to its end");
        }
        while !processes(&folder)
            .iter()
            .all(|process| process["ended_ns"].is_i64())
        {
            wait("its recording is closed");
        }
        let recording = Recording::open(&folder).expect("opens");
        assert_eq!(recording.processes[0].tables.kernels.start_ns.len(), 1_100);
        assert!(
            recording
                .losses
                .iter()
                .any(|loss| loss.what.contains("not closed")),
            "{:?}",
            recording.losses
        );

        let (_keep, folder) = fresh_folder("recording");
        let mut recorder = start(&folder, &folder.with_file_name("truth"), 1);
        let ranks = wait_for_ranks(&folder);
        end_by(&mut recorder, signal);
        while ranks.iter().any(|&rank| is_alive(rank)) {
            wait("bundled ranks end with their recorder");
        }
    }
}

/// Ends it by a signal; Rust's own handler passes the first SIGSEGV over.
fn end_by(child: &mut Child, signal: libc::c_int) {
    let started = Instant::now();
    while child.try_wait().expect("a child").is_none() {
        assert!(started.elapsed() < Duration::from_secs(60), "signal {signal}");
        // SAFETY: sends a signal to a child that was not waited for yet.
        unsafe { libc::kill(child.id().cast_signed(), signal) };
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The headers of the processes that were recorded, but for the recorder's own.
fn processes(folder: &Path) -> Vec<serde_json::Value> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter(|entry| !entry.file_name().to_string_lossy().starts_with("host-"))
        .filter_map(|entry| {
            serde_json::from_slice(&std::fs::read(entry.path().join("process.json")).ok()?).ok()
        })
        .collect()
}

/// Records `command` on a terminal of its own, which is closed once a rank is there (`None`: after a second). Gives how the
/// recorder ended.
fn on_a_terminal_that_closes(folder: &Path, command: &[&str], has_ranks: bool) -> std::process::ExitStatus {
    use std::io::Read;
    use std::os::fd::FromRawFd;
    use std::os::unix::process::CommandExt;

    let (mut ours, mut theirs) = (0, 0);
    let (no_name, no_settings, no_size) = (std::ptr::null_mut(), std::ptr::null(), std::ptr::null());
    // SAFETY: valid places for both descriptors; the other arguments may be null.
    let opened = unsafe { libc::openpty(&raw mut ours, &raw mut theirs, no_name, no_settings, no_size) };
    assert_eq!(opened, 0, "a terminal");
    // SAFETY: both were just opened, and belong to nobody else.
    let (ours, theirs) = unsafe { (std::fs::File::from_raw_fd(ours), Stdio::from_raw_fd(theirs)) };
    // SAFETY: our own descriptor, closed by the child when it begins its program.
    unsafe {
        libc::fcntl(
            std::os::fd::AsRawFd::as_raw_fd(&ours),
            libc::F_SETFD,
            libc::FD_CLOEXEC,
        )
    };
    let mut recorder = common::gputrace();
    recorder
        .args(["record", "--device", "sim", "-o"])
        .arg(folder)
        .arg("--");
    recorder.args(command).stdin(theirs).stdout(Stdio::null());
    // SAFETY: system calls alone, on the child's own descriptors.
    unsafe {
        recorder.pre_exec(|| {
            libc::setsid();
            libc::ioctl(0, libc::TIOCSCTTY, 0);
            libc::dup2(0, 1);
            libc::dup2(0, 2);
            Ok(())
        })
    };
    let mut child = recorder.spawn().expect("the recorder starts");
    // With its copy of the terminal, which keeps that open.
    drop(recorder);
    let mut reader = ours.try_clone().expect("a second descriptor");
    let (sender, closed) = std::sync::mpsc::channel::<()>();
    let reading = std::thread::spawn(move || {
        let mut bytes = [0; 4096];
        // Reads one piece at a time until the terminal is to be closed.
        while closed.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
            let mut wanted = libc::pollfd {
                fd: std::os::fd::AsRawFd::as_raw_fd(&reader),
                events: libc::POLLIN,
                revents: 0,
            };
            // SAFETY: one valid entry.
            if unsafe { libc::poll(&raw mut wanted, 1, 20) } > 0 {
                drop(reader.read(&mut bytes));
            }
        }
    });
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(60)
        && (has_ranks && processes(folder).len() < 2 || begun.elapsed() < Duration::from_secs(1))
    {
        std::thread::sleep(Duration::from_millis(10));
    }
    drop(sender);
    reading.join().expect("the reader ends");
    drop(ours);
    child.wait().expect("it ends")
}

#[test]
fn a_terminal_that_closes_leaves_a_closed_manifest() {
    const ENDED: i32 = 128 + libc::SIGHUP;
    for (command, has_ranks, status) in [
        (
            &["workload", "ddp", "--ranks", "2", "--steps", "100000"][..],
            true,
            ENDED,
        ),
        // One that does not mind goes on, and its status is the recorder's.
        (
            &["sh", "-c", "trap '' HUP; sleep 2; echo unheard; exit 7"][..],
            false,
            7,
        ),
    ] {
        let (_keep, folder) = fresh_folder("recording");
        let ended = on_a_terminal_that_closes(&folder, command, has_ranks);
        assert_eq!(ended.code(), Some(status), "{ended:?}");
        let manifest: Manifest =
            serde_json::from_slice(&std::fs::read(folder.join(MANIFEST_FILE)).expect("a manifest"))
                .expect("whole");
        assert_eq!(manifest.state, "complete");
        assert_eq!(manifest.exit_status, Some(status));
        assert!(manifest.ended_ns.is_some() && manifest.rows.len() == 1 + 2 * usize::from(has_ranks));
    }
}

#[test]
fn a_control_file_that_is_cut_ends_nobody() {
    let (_keep, folder) = fresh_folder("recording");
    let mut recorder = common::gputrace()
        .args(["record", "--quiet", "--device", "sim", "-o"])
        .arg(&folder)
        .args(["--", "workload", "ddp", "--ranks", "2", "--steps", "60"])
        .stdout(Stdio::null())
        .spawn()
        .expect("the recorder starts");
    wait_for_ranks(&folder);
    let control = folder.join("control");
    let cut = std::fs::OpenOptions::new()
        .write(true)
        .open(&control)
        .expect("the control file");
    std::thread::sleep(Duration::from_millis(300));
    cut.set_len(0).expect("cut");
    assert_eq!(recorder.wait().expect("it ends").code(), Some(0));
    let recording = Recording::open(&folder).expect("opens");
    assert_eq!(recording.processes.len(), 2);
    for process in &recording.processes {
        let notes = &process.header.notes;
        let told = notes
            .iter()
            .filter(|note| note.contains("stays switched on here"))
            .count();
        assert_eq!(told, 1, "{notes:?}");
        assert!(process.header.ended_ns.is_some());
    }
    assert!(recording.losses.is_empty(), "{:?}", recording.losses);
}

/// Damages a recording at random, each kind in turn. GPUTRACE_TEST_DAMAGES: how many times, instead of as many as `usual`.
fn damage_again_and_again(recording: &Path, seed: u64, usual: usize) {
    let tries: usize = std::env::var("GPUTRACE_TEST_DAMAGES")
        .ok()
        .and_then(|tries| tries.parse().ok())
        .unwrap_or(usual);
    let folder = tempfile::tempdir().expect("a folder");
    let workers = 2;
    let unseen: Vec<String> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..workers)
            .map(|worker| {
                let copy = folder.path().join(format!("copy{worker}"));
                scope.spawn(move || {
                    let subject = Subject::new(recording, &copy);
                    let mut random = Random(seed + worker);
                    let attempts = Kind::ALL.iter().cycle().take(tries / workers as usize);
                    attempts
                        .filter_map(|kind| subject.attempt(*kind, &mut random).err())
                        .collect::<Vec<String>>()
                })
            })
            .collect();
        threads
            .into_iter()
            .flat_map(|thread| thread.join().expect("no panic"))
            .collect()
    });
    assert!(
        unseen.is_empty(),
        "{} unseen:\n{}",
        unseen.len(),
        unseen.join("\n")
    );
}

#[test]
fn damage_to_a_whole_recording_is_seen() {
    let (keep, folder) = fresh_folder("recording");
    let workload = ["ddp", "--ranks", "2", "--steps", "4", "--hidden", "64"];
    let mut command = record_workload(&folder, &keep.path().join("truth"), &[], workload);
    common::expect_status(&mut command, 0);
    assert_eq!(Recording::open(&folder).expect("it opens").losses, []);
    damage_again_and_again(&folder, 1, 1400);
}

#[test]
fn damage_to_a_recording_in_parts_is_seen() {
    let (_keep, folder) = fresh_folder("recording");
    let mut command = common::gputrace();
    command.args(["record", "--quiet", "--device", "sim", "--max-size", "4M", "-o"]);
    command.arg(&folder);
    command.args([
        "--", "workload", "single", "--hidden", "8", "--batch", "8", "--steps", "2500",
    ]);
    common::expect_status(&mut command, 0);
    let parts = std::fs::read_dir(&folder).expect("a recording").count();
    assert!(parts >= 4, "{parts}: the rank's folder has a second part");
    damage_again_and_again(&folder, 2, 140);
}

#[test]
fn damage_to_a_recording_whose_recorder_was_killed_is_seen() {
    let (keep, folder) = fresh_folder("recording");
    let mut recorder = start(&folder, &keep.path().join("truth"), 1);
    let pids = wait_for_ranks(&folder);
    std::thread::sleep(Duration::from_millis(1_500));
    for pid in pids.into_iter().chain([recorder.id()]) {
        kill(pid);
    }
    recorder.wait().expect("the recorder ends");
    while pids.iter().any(|&pid| is_alive(pid)) {
        std::thread::sleep(Duration::from_millis(10));
    }
    damage_again_and_again(&folder, 3, 280);
}

/// A recording of the version before there were checksums.
#[test]
fn an_older_recording_opens_as_before_with_a_note() {
    let old = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/recording-1.0");
    let recording = Recording::open(&old).expect("it opens");
    assert_eq!(recording.losses, []);
    let notes: Vec<&String> = recording
        .notes
        .iter()
        .filter(|note| note.contains("checksums"))
        .collect();
    assert_eq!(notes.len(), 1, "{:?}", recording.notes);
    assert_eq!(recording.processes.len(), 2);
    for process in &recording.processes {
        assert!(!process.tables.kernels.start_ns.is_empty());
    }
}

/// Ctrl-C at any moment from the start on, as a terminal sends it: to all processes of the group that there are.
#[test]
fn an_interrupt_ends_a_command_that_is_only_just_started() {
    use std::os::unix::process::CommandExt;
    let keep = tempfile::tempdir().expect("a folder");
    for place in 0..80u64 {
        let folder = keep.path().join(place.to_string());
        let mut command = common::gputrace();
        command.args(["record", "--quiet", "--device", "sim", "-o"]);
        command.arg(&folder).args(["--", "sleep", "600"]);
        let mut child = command
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
        std::thread::sleep(Duration::from_micros(place * 500));
        let group = -child.id().cast_signed();
        // SAFETY: sends a signal to a group whose leader was not waited for yet.
        unsafe { libc::kill(group, libc::SIGINT) };
        let begun = Instant::now();
        while child.try_wait().expect("waits").is_none() {
            if begun.elapsed() > Duration::from_secs(30) {
                // SAFETY: as above.
                unsafe { libc::kill(group, libc::SIGKILL) };
                panic!("it goes on after an interrupt {} µs after its start", place * 500);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
