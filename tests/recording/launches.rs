//! One recorder a task, as `srun gputrace record -o DIR -- ./train` starts them: they share a folder, or write one each that
//! `gputrace merge` puts together.

use crate::common;

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use common::{analysis, expect_status, fresh_folder, gputrace, one_line, stderr, stdout};
use gputrace_trace::Recording;
use gputrace_trace::recording::manifest_files;

static TESTS: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// Of this thread's test alone, with the one after it.
    static PORT: u32 = 20_000 + (16 * std::process::id() + 2 * TESTS.fetch_add(1, Relaxed)) % 9_000;
}

/// What srun sets for a task of two.
fn as_task(command: &mut Command, task: u32, step: &str) {
    let port = PORT.with(|port| *port);
    let task = task.to_string();
    command
        .env("SLURM_JOB_ID", "4711")
        .env("SLURM_STEP_ID", step)
        .env("SLURM_PROCID", &task)
        .env("SLURM_LOCALID", &task)
        .env("SLURM_NODEID", "0")
        .env("SLURM_NTASKS", "2")
        .env("SLURM_STEP_NUM_TASKS", "2")
        .env("SLURM_STEP_TASKS_PER_NODE", "2")
        .env("MASTER_ADDR", "127.0.0.1")
        .env("MASTER_PORT", port.to_string());
}

fn recorder(folder: &Path, task: u32, step: &str) -> Command {
    let mut command = gputrace();
    as_task(&mut command, task, step);
    command
        .args(["record", "--device", "sim", "-o"])
        .arg(folder)
        .args(["--", "workload", "ddp", "--steps", "20"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Runs two tasks, each with a recorder of its own, into these folders.
fn run_tasks(folders: [&Path; 2], step: &str) -> Vec<Output> {
    let children: Vec<_> = folders
        .into_iter()
        .zip(0..)
        .map(|(folder, task)| recorder(folder, task, step).spawn().expect("started"))
        .collect();
    let outputs: Vec<Output> = children
        .into_iter()
        .map(|child| child.wait_with_output().expect("ended"))
        .collect();
    for output in &outputs {
        assert!(output.status.success(), "{}", stderr(output));
    }
    outputs
}

#[test]
fn recorders_of_a_launch_share_a_folder() {
    common::schedule::waits();
    let (_keep, folder) = fresh_folder("run");
    let outputs = run_tasks([&folder, &folder], "0");
    // Rank 0's recorder speaks for both.
    assert!(stdout(&outputs[0]).contains("Recording:"));
    assert!(
        stderr(&outputs[0]).contains("recorded: 2 ranks"),
        "{}",
        stderr(&outputs[0])
    );
    assert!(!stdout(&outputs[1]).contains("Recording:") && !stderr(&outputs[1]).contains("recorded:"));

    let recording = Recording::open(&folder).expect("opens");
    assert_eq!(recording.losses, []);
    let ranks: Vec<_> = recording
        .processes
        .iter()
        .map(|process| process.header.rank)
        .collect();
    assert_eq!(ranks, [Some(0), Some(1)]);
    assert_eq!(recording.hosts.len(), 1, "one of them samples the host");
    assert_eq!(recording.manifest.topology.len(), 1);
    assert_eq!(recording.manifest.state, "complete");
    assert_eq!(recording.manifest.exit_status, Some(0));
    assert_eq!(recording.manifest.launch.as_deref(), Some("slurm 4711 0"));
    assert_eq!(manifest_files(&folder).expect("read").len(), 2, "one each");
    let left = std::fs::read_dir(&folder).expect("read").filter_map(Result::ok);
    let marks: Vec<String> = left
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name.starts_with('.') || name.starts_with("control"))
        .collect();
    assert_eq!(marks, Vec::<String>::new(), "nothing is left behind");

    // Another step's recorder does not write into it.
    let output = expect_status(&mut recorder(&folder, 0, "1"), 2);
    assert!(one_line(&output).contains("exists already"));

    // Nor does one of the same id, when that run ended a while ago: ids come again.
    common::edit_manifest(&folder, |manifest| {
        let ended = manifest.ended_ns.expect("it ended");
        manifest.ended_ns = Some(ended - 120_000_000_000);
    });
    let output = expect_status(&mut recorder(&folder, 0, "0"), 2);
    assert!(one_line(&output).contains("exists already"));
}

#[test]
fn a_task_that_fails_is_seen_in_the_whole() {
    common::schedule::waits();
    let (_keep, folder) = fresh_folder("run");
    let children: Vec<_> = [(0, "exit 0"), (1, "exit 3")]
        .into_iter()
        .map(|(task, script)| {
            let mut command = gputrace();
            as_task(&mut command, task, "0");
            command
                .args(["record", "--quiet", "--device", "sim", "-o"])
                .arg(&folder);
            command.args(["--", "sh", "-c", script]);
            command.stderr(Stdio::piped()).spawn().expect("started")
        })
        .collect();
    let statuses: Vec<Option<i32>> = children
        .into_iter()
        .map(|child| child.wait_with_output().expect("ended").status.code())
        .collect();
    assert_eq!(statuses, [Some(0), Some(3)]);
    let recording = Recording::open(&folder).expect("opens");
    assert_eq!(recording.manifest.exit_status, Some(3));
}

/// `gputrace merge` of these into a folder.
fn merge(parts: &[&Path], output: &Path, options: &[&str]) -> Command {
    let mut command = gputrace();
    command
        .arg("merge")
        .args(parts)
        .args(options)
        .arg("-o")
        .arg(output);
    command
}

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .expect("read")
        .filter_map(Result::ok)
        .map(|entry| entry.path())
        .flat_map(|path| {
            if path.is_dir() {
                files_below(&path)
            } else {
                vec![path]
            }
        })
        .collect();
    files.sort();
    files
}

#[test]
fn parts_are_merged_as_they_are() {
    common::schedule::waits();
    let (keep, first) = fresh_folder("part0");
    let second = keep.path().join("part1");
    run_tasks([&first, &second], "0");
    let whole = keep.path().join("whole");
    let output = expect_status(&mut merge(&[&first, &second], &whole, &[]), 0);
    assert!(one_line(&output).contains("2 processes of 1 hosts"));
    let recording = Recording::open(&whole).expect("opens");
    assert_eq!(recording.losses, []);
    assert_eq!(recording.processes.len(), 2);
    assert!(recording.notes.iter().any(|note| note.contains("merged from")));
    // Ranks are matched as in one recording; each says of itself what it said alone.
    let (merged, alone) = (analysis(&whole), analysis(&second));
    assert_eq!(merged["ranks"].as_array().map(Vec::len), Some(2));
    assert_eq!(merged["ranks"][1]["busy_ns"], alone["ranks"][0]["busy_ns"]);
    let several = merged["collectives"].as_array().expect("collectives");
    assert!(
        several
            .iter()
            .any(|one| one["wait_ns"].as_object().is_some_and(|waits| waits.len() == 2))
    );
    // Nothing was rewritten: the tables are the same files.
    let tables = |folder: &Path| {
        let files = files_below(folder).into_iter();
        let tables = files.filter(|file| file.extension().is_some_and(|extension| extension == "arrows"));
        let mut inodes: Vec<u64> = tables.map(|file| file.metadata().expect("there").ino()).collect();
        inodes.sort_unstable();
        inodes
    };
    let mut parts = [tables(&first), tables(&second)].concat();
    parts.sort_unstable();
    assert_eq!(tables(&whole), parts);

    // And what is refused leaves nothing.
    let other = keep.path().join("other");
    let refused = |parts: &[&Path], output: &Path, reason: &str| {
        let before = files_below(keep.path());
        let line = one_line(&expect_status(&mut merge(parts, output, &[]), 2));
        assert!(line.contains(reason), "{line}");
        assert_eq!(files_below(keep.path()), before);
    };
    refused(&[&first, &first], &other, "both hold the process folder");
    refused(&[&first, &second], &whole, "exists already");
    refused(&[&first, keep.path()], &other, "not a gputrace recording");
    refused(&[&first, &keep.path().join("nowhere")], &other, "no such file");

    let third = keep.path().join("third");
    let fourth = keep.path().join("fourth");
    run_tasks([&third, &fourth], "1");
    refused(&[&first, &fourth], &other, "different launches");
    expect_status(&mut merge(&[&first, &fourth], &other, &["--force"]), 0);
    assert_eq!(Recording::open(&other).expect("opens").processes.len(), 2);
}
