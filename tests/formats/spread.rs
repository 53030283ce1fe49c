//! `analyze --on`: what workers read says what `analyze` says, byte for byte, whoever is killed on the way; and of what is lost, that
//! it is.

use crate::common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::slice::from_ref;
use std::time::{Duration, Instant};

use common::clusters::{self, processes};
use common::consumers::offered;
use common::{
    data, expect_status, fresh_folder, gputrace, moved_clocks, names_in, one_line, stderr, stdout, synthetic,
};
use serde_json::Value;

/// A job of eight ranks on a host.
fn eight_ranks(folder: &Path) -> PathBuf {
    let run = folder.join("run");
    synthetic(
        &run,
        &[
            "--ranks",
            "8",
            "--events",
            "4000",
            "--slow-rank",
            "5",
            "--one-host",
        ],
    );
    run
}

fn spread(paths: &[PathBuf], on: &str, output: &Path) -> Command {
    let mut command = gputrace();
    command
        .arg("analyze")
        .args(paths)
        .args(["--on", on, "--json", "-o"])
        .arg(output);
    command
}

fn plain(paths: &[PathBuf], options: &[&str]) -> String {
    stdout(&expect_status(
        gputrace().arg("analyze").args(paths).arg("--json").args(options),
        0,
    ))
}

/// A gputrace that does something else before it reads some ranks: `$task` is what it was given, `$tries` how often.
fn faulty(folder: &Path, faults: &str) -> PathBuf {
    let (program, log) = (folder.join("faulty"), folder.join("log"));
    let real = env!("CARGO_BIN_EXE_gputrace");
    let text = format!(
        "#!/bin/sh\ntask=$(tr '{{' '\\n' <\"$2\" | grep '^\"name\"' | sed -n \"$(($3 + 1))p\")\n\
         echo \"$task\" >>{log}\nname=$(echo \"$task\" | cut -d '\"' -f 4)\ntries=$(grep -cF \"$name\" {log})\n{faults}\nexec {real} \"$@\"\n",
        log = log.display()
    );
    fs::write(&program, text).expect("written");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("executable");
    program
}

fn started(folder: &Path) -> usize {
    fs::read_to_string(folder.join("log"))
        .expect("a log")
        .lines()
        .count()
}

/// Waits until nothing runs that was told of this folder.
#[track_caller]
fn nothing_is_left(output: &Path) {
    let until = Instant::now() + Duration::from_secs(10);
    let name = output.to_str().expect("a name");
    while !processes(&[name]).is_empty() {
        assert!(Instant::now() < until, "{:?}", processes(&[name]));
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(
        names_in(output),
        ["analysis.json", "gputrace-spread.json", "partials"]
    );
    let partials = names_in(&output.join("partials"));
    assert!(
        partials.iter().all(|name| name.ends_with(".partial")),
        "{partials:?}"
    );
}

#[track_caller]
fn same(paths: &[PathBuf], on: &str, output: &Path, options: &[&str]) {
    let whole = plain(paths, options);
    let done = expect_status(spread(paths, on, output).args(options), 0);
    assert!(stdout(&done) == whole, "{paths:?} on {on} says something else");
    assert!(fs::read_to_string(output.join("analysis.json")).expect("a file") == whole);
    nothing_is_left(output);
}

fn files_of(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths.filter(|path| !path.ends_with("expected.json")).collect()
}

#[test]
fn processes_of_this_machine() {
    let (_guard, root) = fresh_folder("root");
    fs::create_dir(&root).expect("a folder");
    let run = eight_ranks(&root);
    same(from_ref(&run), "local:3", &root.join("a"), &[]);
    same(
        from_ref(&run),
        "local",
        &root.join("b"),
        &["--steps", "1..2", "--sort", "count", "--short-names"],
    );
    // Of several hosts, whose clocks are compared first; so many ranks that some are put together by workers.
    let hosts = root.join("hosts");
    synthetic(&hosts, &["--ranks", "36", "--events", "1500"]);
    same(from_ref(&hosts), "local:2", &root.join("c"), &[]);
    same(&[hosts], "local:2", &root.join("d"), &["--clocks", "none"]);
    // Traces of others: a file a rank; files whose clocks differ; one that can't be told apart.
    for (number, name) in ["kineto/ddp_cnn_a100", "operators/h100_qwen", "recording-1.0"]
        .iter()
        .enumerate()
    {
        same(&[data(name)], "local:2", &root.join(format!("e{number}")), &[]);
    }
    let traces = root.join("traces");
    fs::create_dir(&traces).expect("a folder");
    moved_clocks::write(&traces, &moved_clocks::CLOCKS, moved_clocks::base_ns());
    same(&[traces], "local:2", &root.join("f"), &[]);
    // Two of one rank are two runs: said as `analyze` says it.
    let twice = root.join("twice");
    fs::create_dir(&twice).expect("a folder");
    let one = &files_of(&data("kineto/ddp_cnn_a100"))[0];
    for name in ["a", "b"] {
        let name = format!("{name}-{}", one.file_name().expect("a name").to_string_lossy());
        fs::copy(one, twice.join(name)).expect("copied");
    }
    let alone = gputrace()
        .arg("analyze")
        .arg(&twice)
        .arg("--json")
        .output()
        .expect("starts");
    let done = spread(&[twice], "local", &root.join("g"))
        .output()
        .expect("starts");
    assert_eq!(done.status.code(), alone.status.code());
    assert_eq!(stdout(&done), stdout(&alone));
}

#[test]
fn workers_that_die() {
    let (_guard, root) = fresh_folder("root");
    fs::create_dir(&root).expect("a folder");
    let run = eight_ranks(&root);
    let whole = plain(from_ref(&run), &[]);
    // Each dies twice, and is done at the third try.
    let worker = faulty(&root, "[ \"$tries\" -ge 3 ] || kill -9 $$");
    let output = root.join("out");
    let done = expect_status(
        spread(from_ref(&run), "local:2", &output)
            .arg("--worker")
            .arg(&worker),
        0,
    );
    assert!(stdout(&done) == whole);
    assert_eq!(started(&root), 24);
    nothing_is_left(&output);
    // What is there is not made again.
    fs::remove_file(root.join("log")).expect("removed");
    let done = expect_status(
        spread(from_ref(&run), "local:2", &output)
            .arg("--worker")
            .arg(&worker),
        0,
    );
    assert!(stdout(&done) == whole);
    assert!(!root.join("log").exists());
    // One that is damaged on the disk is.
    let partials = files_of(&output.join("partials"));
    let mut bytes = fs::read(&partials[3]).expect("a file");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&partials[3], bytes).expect("written");
    let done = expect_status(&mut spread(from_ref(&run), "local:2", &output), 0);
    assert!(stdout(&done) == whole);

    // A shard that always kills is lost, and everything says so.
    let worker = faulty(&root, "case \"$task\" in *'\"ranks\":[3]'*) kill -9 $$ ;; esac");
    let output = root.join("lost");
    let done = expect_status(
        spread(from_ref(&run), "local:2", &output)
            .arg("--worker")
            .arg(&worker),
        0,
    );
    let analysis: Value = serde_json::from_str(&stdout(&done)).expect("JSON");
    let ranks = &analysis["job_ranks"];
    assert_eq!(
        (ranks["here"].as_u64(), ranks["of"].as_u64()),
        (Some(7), Some(8)),
        "{ranks}"
    );
    let missing = &ranks["missing"];
    assert_eq!(
        (missing[0]["first"].as_u64(), missing[0]["last"].as_u64()),
        (Some(3), Some(3)),
        "{missing}"
    );
    assert!(
        missing[0]["why"]
            .as_str()
            .expect("a reason")
            .contains("killed by signal 9"),
        "{missing}"
    );
    assert!(
        stderr(&done).contains("7 of 8 ranks are here: rank 3 missing"),
        "{}",
        stderr(&done)
    );
    assert_eq!(started(&root), 8 + 2);
    nothing_is_left(&output);
    // The same in tables; and all is well once it no longer kills.
    let mut command = gputrace();
    command
        .arg("analyze")
        .arg(&run)
        .args(["--on", "local:2", "-o"])
        .arg(&output)
        .arg("--worker")
        .arg(&worker);
    let text = stdout(&expect_status(&mut command, 0));
    assert!(text.contains("Ranks (7 of 8 ranks)"), "{text}");
    let done = expect_status(&mut spread(&[run], "local:2", &output), 0);
    assert!(stdout(&done) == whole);
}

/// A damaged file is a value: lost, with its reason, and never tried again.
#[test]
fn a_damaged_file() {
    let (_guard, root) = fresh_folder("root");
    let traces = root.join("traces");
    fs::create_dir_all(&traces).expect("a folder");
    moved_clocks::write(&traces, &moved_clocks::CLOCKS, moved_clocks::base_ns());
    let files = files_of(&traces);
    let count = files.len();
    let damaged = files.iter().max().expect("a file");
    let bytes = fs::read(damaged).expect("a file");
    fs::write(damaged, &bytes[..20]).expect("written");
    let worker = faulty(&root, "");
    let output = root.join("out");
    let done = spread(&files, "local:2", &output)
        .arg("--worker")
        .arg(&worker)
        .args(["--clocks", "none"])
        .output()
        .expect("starts");
    assert_eq!(done.status.code(), Some(0), "{}", stderr(&done));
    assert_eq!(started(&root), count, "tried again");
    let analysis: Value = serde_json::from_str(&stdout(&done)).expect("JSON");
    let ranks = &analysis["job_ranks"];
    assert_eq!(ranks["here"].as_u64(), Some(count as u64 - 1), "{ranks}");
    assert_eq!(ranks["of"].as_u64(), Some(count as u64), "{ranks}");
    let name = damaged.file_name().expect("a name").to_string_lossy();
    assert!(ranks["missing"].to_string().contains(&*name), "{ranks}");
    assert!(
        analysis["losses"].to_string().contains(&*name),
        "{}",
        analysis["losses"]
    );
    nothing_is_left(&output);
}

#[test]
fn a_slow_worker_is_not_waited_for() {
    let (_guard, root) = fresh_folder("root");
    fs::create_dir(&root).expect("a folder");
    let run = eight_ranks(&root);
    let slow = "case \"$task\" in *'\"ranks\":[6]'*) [ \"$tries\" -ge 2 ] || exec sleep 300 ;; esac";
    let worker = faulty(&root, slow);
    let output = root.join("out");
    let began = Instant::now();
    let done = expect_status(
        spread(from_ref(&run), "local:3", &output)
            .arg("--worker")
            .arg(&worker),
        0,
    );
    assert!(
        began.elapsed() < Duration::from_secs(120),
        "{:?}",
        began.elapsed()
    );
    assert!(stdout(&done) == plain(&[run], &[]));
    assert_eq!(started(&root), 9);
    nothing_is_left(&output);
}

#[test]
fn a_driver_that_is_killed_goes_on() {
    let (_guard, root) = fresh_folder("root");
    fs::create_dir(&root).expect("a folder");
    let run = eight_ranks(&root);
    let worker = faulty(
        &root,
        "case \"$task\" in *'\"ranks\":['[4567]']'*) exec sleep 301 ;; esac",
    );
    let output = root.join("out");
    let partials = output.join("partials");
    let whole = |name: &Path| {
        !name
            .file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with('.'))
    };
    for signal in [libc::SIGKILL, libc::SIGTERM] {
        let mut command = spread(from_ref(&run), "local:4", &output);
        command
            .arg("--worker")
            .arg(&worker)
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let driver = command.spawn().expect("starts");
        let until = Instant::now() + Duration::from_secs(60);
        let made = || partials.is_dir() && files_of(&partials).iter().filter(|path| whole(path)).count() == 4;
        while !made() || processes(&["sleep", "301"]).is_empty() {
            assert!(Instant::now() < until, "no partials");
            std::thread::sleep(Duration::from_millis(10));
        }
        if signal == libc::SIGTERM {
            // The folder is one driver's.
            let second = expect_status(&mut spread(from_ref(&run), "local", &output), 2);
            assert!(one_line(&second).contains("another"), "{}", stderr(&second));
        }
        // SAFETY: our child, which was not waited for.
        unsafe { libc::kill(driver.id().cast_signed(), signal) };
        let ended = driver.wait_with_output().expect("ends");
        if signal == libc::SIGTERM {
            assert_eq!(ended.status.code(), Some(143));
            assert!(stderr(&ended).contains("4 of 8 parts done"), "{}", stderr(&ended));
        }
    }
    let before: Vec<_> = files_of(&partials)
        .iter()
        .filter(|path| whole(path))
        .map(|path| {
            (
                path.clone(),
                fs::metadata(path).expect("a file").modified().expect("a time"),
            )
        })
        .collect();
    assert_eq!(before.len(), 4);
    let done = expect_status(&mut spread(from_ref(&run), "local:4", &output), 0);
    assert!(stdout(&done) == plain(&[run], &[]));
    for (path, time) in before {
        assert_eq!(
            fs::metadata(&path).expect("a file").modified().expect("a time"),
            time
        );
    }
    nothing_is_left(&output);
}

#[test]
fn bad_input_is_one_line() {
    let (_guard, root) = fresh_folder("root");
    fs::create_dir(&root).expect("a folder");
    let run = eight_ranks(&root);
    let refused = |command: &mut Command, says: &str| {
        let done = command.output().expect("starts");
        assert_eq!(done.status.code(), Some(2), "{}", stderr(&done));
        assert!(stderr(&done).contains(says), "{}", stderr(&done));
        assert!(done.stdout.is_empty());
    };
    let other = root.join("other");
    fs::create_dir(&other).expect("a folder");
    fs::write(other.join("mine"), "mine").expect("written");
    refused(
        &mut spread(from_ref(&run), "local", &other),
        "name another folder",
    );
    refused(
        &mut spread(from_ref(&run), "local:0", &root.join("a")),
        "from 1 to 4096",
    );
    refused(
        gputrace().arg("analyze").arg(&run).args(["--on", "local"]),
        "--output",
    );
    refused(gputrace().arg("analyze").arg(&run).args(["-o", "x"]), "--on");
    refused(
        &mut spread(&[root.join("nothing")], "local", &root.join("b")),
        "nothing: no such file",
    );
    assert!(!root.join("b").exists());
    let out = root.join("out");
    expect_status(&mut spread(from_ref(&run), "local", &out), 0);
    refused(
        &mut spread(&[data("recording-1.0")], "local", &out),
        "holds the analysis of",
    );
    refused(
        spread(from_ref(&run), "ray", &root.join("c")).env("GPUTRACE_PYTHON", "/nowhere/python"),
        "GPUTRACE_PYTHON",
    );
    refused(
        spread(&[run], "slurm", &root.join("d")).env("PATH", "/nowhere"),
        "login node",
    );
}

/// On a cluster: the same JSON, with a worker killed now and then.
fn on_cluster(on: &str, environment: &[(&str, &str)]) {
    let (_guard, root) = fresh_folder("root");
    fs::create_dir(&root).expect("a folder");
    let run = root.join("run");
    synthetic(&run, &["--ranks", "10", "--events", "3000", "--slow-rank", "5"]);
    let whole = plain(from_ref(&run), &[]);
    let dies = "case \"$task\" in *'\"ranks\":['[27]']'*) [ \"$tries\" -ge 2 ] || kill -9 $$ ;; esac";
    let lost = "case \"$task\" in *'\"ranks\":[3]'*) kill -9 $$ ;; esac";
    for (name, faults, ranks) in [("out", dies, 10), ("lost", lost, 9)] {
        let worker = faulty(&root, faults);
        let output = root.join(name);
        let mut command = spread(from_ref(&run), on, &output);
        command
            .arg("--worker")
            .arg(&worker)
            .envs(environment.iter().copied());
        let done = expect_status(&mut command, 0);
        let analysis: Value = serde_json::from_str(&stdout(&done)).expect("JSON");
        assert_eq!(
            analysis["job_ranks"]["here"].as_u64(),
            Some(ranks),
            "{}",
            analysis["job_ranks"]
        );
        assert_eq!(stdout(&done) == whole, ranks == 10);
        nothing_is_left(&output);
    }
}

#[test]
fn slurm() {
    common::schedule::waits();
    let Some(packages) = offered("slurm") else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let Some(_cluster) = clusters::slurm(&packages, folder.path()) else {
        return;
    };
    on_cluster("slurm:all", &[("PATH", &clusters::path_with(folder.path()))]);
    // Nothing is in its queue.
    let queue = Command::new(folder.path().join("bin/squeue"))
        .arg("--noheader")
        .output()
        .expect("starts");
    assert_eq!(String::from_utf8_lossy(&queue.stdout), "");
}

#[test]
fn ray() {
    common::schedule::waits();
    let Some(python) = offered("ray").map(|folder| folder.join("bin/python")) else {
        return;
    };
    let Some(cluster) = clusters::ray(&python) else {
        return;
    };
    let [address, token] = cluster.said.as_slice() else {
        panic!("{:?}", cluster.said)
    };
    let python = python.to_str().expect("a name");
    on_cluster(
        &format!("ray:{address}"),
        &[("GPUTRACE_PYTHON", python), ("RAY_AUTH_TOKEN", token)],
    );
}
