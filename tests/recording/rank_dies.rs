//! Ranks that die, fail, or cannot start: the others end within seconds, name the cause, and leave nothing behind.

use crate::common;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use common::{expect_status, one_line, simulated_workload, stderr};

/// Others end within so long, on a machine that is busy.
const SECONDS: Duration = Duration::from_secs(20);

/// A variable by which this test's processes are found.
const MARK: &str = "RANK_DIES_TEST";

fn port() -> u16 {
    // The ranks meet on the port after MASTER_PORT.
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    listener.local_addr().expect("an address").port() - 1
}

fn kill(pid: u32, signal: i32) {
    // SAFETY: sends a signal to a child of ours that was not waited for.
    unsafe { libc::kill(pid.cast_signed(), signal) };
}

/// Processes that have this value of the mark, and are no zombies.
fn processes_marked(value: &str) -> Vec<u32> {
    let wanted = format!("{MARK}={value}");
    std::fs::read_dir("/proc")
        .expect("/proc")
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|pid| {
            std::fs::read(format!("/proc/{pid}/environ")).is_ok_and(|environ| {
                environ
                    .split(|byte| *byte == 0)
                    .any(|word| word == wanted.as_bytes())
            })
        })
        .collect()
}

#[track_caller]
fn assert_nothing_is_left(mark: &str, shared_memory: &[String]) {
    let started = Instant::now();
    while !processes_marked(mark).is_empty() {
        assert!(started.elapsed() < SECONDS, "left: {:?}", processes_marked(mark));
        std::thread::sleep(Duration::from_millis(20));
    }
    let left: Vec<String> = shared_memory_names()
        .into_iter()
        .filter(|name| !shared_memory.contains(name))
        .collect();
    assert!(left.is_empty(), "shared memory is left: {left:?}");
}

/// NCCL's and the stand-in's shared memory.
fn shared_memory_names() -> Vec<String> {
    std::fs::read_dir("/dev/shm")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.contains("nccl") || name.contains("simgpu"))
        .collect()
}

/// Ranks that something else than our launcher started, each with a stderr of its own.
struct Ranks {
    folder: tempfile::TempDir,
    children: Vec<Child>,
}

impl Ranks {
    fn start(count: usize, arguments: &[&str], set: impl Fn(usize, &mut Command)) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let children = (0..count)
            .map(|rank| {
                let file =
                    |name: &str| File::create(folder.path().join(format!("{name}{rank}"))).expect("a file");
                let mut command = simulated_workload();
                command.args(arguments).stdout(file("out")).stderr(file("err"));
                set(rank, &mut command);
                command.spawn().expect("starts")
            })
            .collect();
        Self { folder, children }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Until rank 0 has printed its first line and trains.
    fn wait_until_training(&self) {
        wait_until_training(&self.path("out0"));
    }

    fn wait(&mut self) -> Vec<ExitStatus> {
        let started = Instant::now();
        self.children
            .iter_mut()
            .map(|child| {
                loop {
                    if let Some(status) = child.try_wait().expect("waits") {
                        return status;
                    }
                    assert!(started.elapsed() < SECONDS, "a rank did not end");
                    std::thread::sleep(Duration::from_millis(10));
                }
            })
            .collect()
    }

    fn said(&self, rank: usize) -> String {
        std::fs::read_to_string(self.path(&format!("err{rank}"))).expect("its stderr")
    }
}

impl Drop for Ranks {
    fn drop(&mut self) {
        for child in &mut self.children {
            drop(child.kill());
            drop(child.wait());
        }
    }
}

fn wait_until_training(output: &Path) {
    let started = Instant::now();
    while std::fs::metadata(output).map_or(0, |file| file.len()) == 0 {
        assert!(started.elapsed() < SECONDS, "the ranks trained");
        std::thread::sleep(Duration::from_millis(10));
    }
    std::thread::sleep(Duration::from_millis(300));
}

const ENDLESS: &[&str] = &["ddp", "--batch", "96", "--steps", "1000000"];

#[test]
fn ranks_without_a_launcher_of_ours_watch_each_other() {
    for victim in [0, 1, 2] {
        let port = port().to_string();
        let mut ranks = Ranks::start(3, ENDLESS, |rank, command| {
            command
                .env("RANK", rank.to_string())
                .env("WORLD_SIZE", "3")
                .env("MASTER_PORT", &port);
        });
        ranks.wait_until_training();
        let pid = ranks.children[victim].id();
        kill(pid, libc::SIGKILL);
        let statuses = ranks.wait();
        for rank in [0, 1, 2] {
            if rank == victim {
                continue;
            }
            let said = ranks.said(rank);
            assert_eq!(statuses[rank].code(), Some(1), "rank {rank} said: {said}");
            let named = format!("rank {victim} (pid {pid} on host ");
            let lines: Vec<_> = said
                .lines()
                .filter(|line| line.contains("died: ending"))
                .collect();
            assert_eq!(lines.len(), 1, "rank {rank} said: {said}");
            assert!(lines[0].starts_with(&named), "rank {rank} said: {said}");
        }
    }
}

#[test]
fn one_of_slurms_tasks_speaks_for_all() {
    let mut ranks = Ranks::start(3, ENDLESS, |rank, command| {
        command
            .env("SLURM_PROCID", rank.to_string())
            .env("SLURM_LOCALID", rank.to_string())
            .env("SLURM_NTASKS", "3")
            .env("SLURM_JOB_ID", std::process::id().to_string());
    });
    ranks.wait_until_training();
    kill(ranks.children[0].id(), libc::SIGKILL);
    ranks.wait();
    assert!(ranks.said(1).contains("rank 0 (pid "), "{}", ranks.said(1));
    assert_eq!(ranks.said(2).matches("died").count(), 0, "{}", ranks.said(2));
}

#[test]
fn a_rank_tells_its_own_error_and_the_others_name_it() {
    let port = port().to_string();
    let mut ranks = Ranks::start(3, &["ddp", "--batch", "96"], |rank, command| {
        command
            .env("RANK", rank.to_string())
            .env("WORLD_SIZE", "3")
            .env("MASTER_PORT", &port);
        if rank == 1 {
            command.env("SIMGPU_FAULTS", "oom");
        }
    });
    let pid = ranks.children[1].id();
    let statuses = ranks.wait();
    assert_eq!(statuses[1].code(), Some(2), "{}", ranks.said(1));
    assert!(ranks.said(1).contains("rank 1: "), "{}", ranks.said(1));
    assert!(
        ranks.said(1).to_lowercase().contains("memory"),
        "{}",
        ranks.said(1)
    );
    for rank in [0, 2] {
        assert_eq!(statuses[rank].code(), Some(1));
        let named = format!("rank 1 (pid {pid} on host ");
        assert!(ranks.said(rank).contains(&named), "{}", ranks.said(rank));
        assert!(
            ranks.said(rank).contains(" failed: ending"),
            "{}",
            ranks.said(rank)
        );
    }
}

/// The launcher with endless ranks, once they train.
fn launcher(mark: &str, folder: &Path) -> Child {
    let output = folder.join("out");
    let child = simulated_workload()
        .args(ENDLESS)
        .args(["--ranks", "3"])
        .env(MARK, mark)
        .stdout(File::create(&output).expect("a file"))
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    wait_until_training(&output);
    child
}

#[test]
fn the_launcher_names_the_rank_that_died() {
    let folder = tempfile::tempdir().expect("a folder");
    let shared_memory = shared_memory_names();
    let launcher = launcher("died", folder.path());
    let rank = processes_marked("died")
        .into_iter()
        .find(|pid| {
            std::fs::read(format!("/proc/{pid}/environ"))
                .is_ok_and(|environ| environ.split(|byte| *byte == 0).any(|word| word == b"RANK=1"))
        })
        .expect("rank 1 runs");
    let started = Instant::now();
    kill(rank, libc::SIGKILL);
    let output = launcher.wait_with_output().expect("it ends");
    assert!(started.elapsed() < SECONDS);
    assert_eq!(output.status.code(), Some(128 + 9));
    let said = stderr(&output);
    let lines: Vec<_> = said.lines().filter(|line| line.starts_with("rank ")).collect();
    assert_eq!(lines.len(), 1, "{said}");
    assert!(
        lines[0].starts_with(&format!("rank 1 (pid {rank} on host ")),
        "{said}"
    );
    assert!(lines[0].contains("was killed by signal 9"), "{said}");
    assert_nothing_is_left("died", &shared_memory);
}

#[test]
fn a_launcher_that_is_ended_ends_its_ranks() {
    for (signal, mark) in [
        (libc::SIGTERM, "terminated"),
        (libc::SIGINT, "interrupted"),
        (libc::SIGKILL, "killed"),
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        let shared_memory = shared_memory_names();
        let launcher = launcher(mark, folder.path());
        assert!(processes_marked(mark).len() >= 4, "a launcher and three ranks");
        kill(launcher.id(), signal);
        let output = launcher.wait_with_output().expect("it ends");
        if signal != libc::SIGKILL {
            assert_eq!(output.status.code(), Some(128 + signal), "{}", stderr(&output));
        }
        assert_eq!(stderr(&output), "", "that was asked for");
        assert_nothing_is_left(mark, &shared_memory);
    }
}

#[test]
fn an_error_that_all_ranks_have_is_said_once() {
    let output = expect_status(
        simulated_workload().args(["ddp", "--ranks", "3", "--batch", "10"]),
        2,
    );
    let line = one_line(&output);
    assert!(line.contains("--batch 10"), "{line}");
}

#[test]
fn more_ranks_than_gpus_are_refused_or_share() {
    let mut command = simulated_workload();
    command
        .args(["ddp", "--ranks", "4", "--steps", "2"])
        .env("SIMGPU_DEVICES", "2");
    let line = one_line(&expect_status(&mut command, 2));
    assert!(line.contains("4 ranks but 2 GPUs"), "{line}");
    assert!(line.contains("--share-gpus"), "{line}");
    expect_status(command.arg("--share-gpus"), 0);

    // Started by something else each rank finds out, and one says it.
    let port = port().to_string();
    let mut ranks = Ranks::start(2, &["ddp", "--steps", "2"], |rank, command| {
        command
            .env("RANK", rank.to_string())
            .env("WORLD_SIZE", "2")
            .env("MASTER_PORT", &port)
            .env("SIMGPU_DEVICES", "1");
    });
    ranks.wait();
    let said = format!("{}{}", ranks.said(0), ranks.said(1));
    assert_eq!(said.matches("2 ranks but 1 GPU for them").count(), 1, "{said}");
}

#[test]
fn wrong_variables_are_one_line() {
    for (rank, ranks, part) in [
        ("5", "4", "RANK=5 with WORLD_SIZE=4"),
        ("one", "4", "RANK=one"),
        ("0", "many", "WORLD_SIZE=many"),
    ] {
        let output = expect_status(
            simulated_workload()
                .arg("ddp")
                .env("RANK", rank)
                .env("WORLD_SIZE", ranks),
            2,
        );
        let line = one_line(&output);
        assert!(line.contains(part), "{line}");
    }
}

#[test]
fn a_port_in_use_and_ranks_that_never_come_are_one_line() {
    let taken = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let port = taken.local_addr().expect("an address").port();
    let first = |timeout: &str| {
        let mut command = simulated_workload();
        command
            .arg("ddp")
            .env("RANK", "0")
            .env("WORLD_SIZE", "2")
            .env("MASTER_PORT", (port - 1).to_string())
            .env("WORKLOAD_TIMEOUT", timeout);
        one_line(&expect_status(&mut command, 2))
    };
    let line = first("5");
    assert!(
        line.contains(&format!("127.0.0.1:{port}: the port is in use")),
        "{line}"
    );
    assert!(line.contains("MASTER_PORT"), "{line}");
    drop(taken);
    let line = first("0.5");
    assert!(line.contains("rank 1 did not come"), "{line}");
}
