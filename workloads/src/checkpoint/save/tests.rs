use std::process::{Command, Stdio};
use std::time::Duration;

use super::*;
use crate::checkpoint::load::tests::{read, state};

/// Names the checkpoint that a process of ours is to write again and again.
const WRITE: &str = "TEST_WRITES_CHECKPOINTS_TO";
/// Bytes that it may write to a file.
const LIMIT: &str = "TEST_FILE_LIMIT";

/// This program again, with the test below alone.
fn writer(path: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("own path"));
    command
        .args([
            "--exact",
            "checkpoint::save::tests::writes_where_it_is_told",
            "--nocapture",
        ])
        .env(WRITE, path)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

fn files(folder: &Path) -> Vec<OsString> {
    let entries = fs::read_dir(folder).expect("folder");
    let mut names: Vec<_> = entries.map(|entry| entry.expect("entry").file_name()).collect();
    names.sort();
    names
}

/// No test by itself: what the tests that need a process of their own run.
#[test]
fn writes_where_it_is_told() {
    let Some(path) = std::env::var_os(WRITE) else {
        return;
    };
    let path = Path::new(&path);
    if let Ok(limit) = std::env::var(LIMIT) {
        let bytes = limit.parse().expect("a number");
        let limit = libc::rlimit {
            rlim_cur: bytes,
            rlim_max: bytes,
        };
        // SAFETY: plain calls that change this process only: writes beyond the limit fail instead of killing.
        unsafe {
            libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
            assert_eq!(libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit), 0);
        }
        let error = write(path, &state(1, 200_000))
            .expect_err("too large")
            .to_string();
        assert!(
            error.contains("cannot be written") && error.contains("too large"),
            "{error}"
        );
        return;
    }
    for step in 0.. {
        write(path, &state(step, 200_000)).expect("writes");
    }
}

#[test]
fn a_checkpoint_comes_back() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("a.checkpoint");
    for step in [1, 2] {
        write(&path, &state(step, 1000)).expect("writes");
        assert_eq!(read(&path, "shape").expect("reads"), state(step, 1000));
    }
    assert_eq!(files(folder.path()), ["a.checkpoint"]);
}

#[test]
fn a_killed_save_leaves_a_whole_checkpoint() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("a");
    write(&path, &state(0, 200_000)).expect("writes");
    let mut last = 0;
    for kill in 0..12 {
        let mut child = writer(&path).spawn().expect("starts");
        std::thread::sleep(Duration::from_millis(40 + 7 * kill));
        child.kill().expect("kills");
        child.wait().expect("ends");
        let found = read(&path, "shape").expect("whole");
        assert_eq!(found, state(found.step, 200_000));
        last = last.max(found.step);
    }
    assert!(last > 0, "the processes wrote");
    // What the last of them left behind is taken over.
    write(&path, &state(7, 10)).expect("writes");
    assert_eq!(files(folder.path()), ["a"]);
}

#[test]
fn a_failed_save_leaves_the_old_checkpoint_and_nothing_else() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("a");
    write(&path, &state(3, 100)).expect("writes");
    let status = writer(&path).env(LIMIT, "100000").status().expect("runs");
    assert!(status.success(), "{status}");
    assert_eq!(read(&path, "shape").expect("reads"), state(3, 100));
    assert_eq!(files(folder.path()), ["a"]);
}

#[test]
fn two_processes_do_not_write_the_same_checkpoint() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("a");
    let held = claim(&folder.path().join("a.partial")).expect("claims");
    let error = write(&path, &state(1, 10)).expect_err("held").to_string();
    assert!(error.contains("another process"), "{error}");
    // Closing it is not enough here: a process that another test starts just now has the file until it runs its own program.
    held.unlock().expect("unlocks");
    drop(held);
    write(&path, &state(1, 10)).expect("writes");
}

#[test]
fn what_is_no_file_stays_as_it_is() {
    let folder = tempfile::tempdir().expect("folder");
    fs::create_dir(folder.path().join("b")).expect("folder");
    for path in [
        folder.path().join("b"),
        folder.path().join("none/a"),
        "/dev/null".into(),
    ] {
        assert!(write(&path, &state(1, 10)).is_err(), "{}", path.display());
    }
    assert_eq!(files(folder.path()), ["b"]);
}

#[test]
fn links_and_what_is_no_checkpoint_stay_as_they_are() {
    let folder = tempfile::tempdir().expect("folder");
    let (path, link) = (folder.path().join("a"), folder.path().join("b"));
    write(&path, &state(1, 10)).expect("writes");
    std::os::unix::fs::symlink(&path, &link).expect("links");
    let why = |path: &Path| write(path, &state(2, 10)).expect_err("refused").to_string();
    assert!(why(&link).contains("is a link"));
    assert_eq!(read(&path, "shape").expect("reads").step, 1);
    assert!(link.is_symlink());
    let mine = folder.path().join("mine");
    fs::write(&mine, "precious").expect("written");
    assert!(why(&mine).contains("is no checkpoint"));
    assert_eq!(fs::read(&mine).expect("there"), b"precious");
    // Neither is what has the name of one that is not whole yet.
    let partial = folder.path().join("a.partial");
    fs::write(&partial, "precious").expect("written");
    assert!(why(&path).contains("a.partial is in the way"));
    assert_eq!(fs::read(&partial).expect("there"), b"precious");
    fs::remove_file(&partial).expect("removed");
    std::os::unix::fs::symlink(&mine, &partial).expect("links");
    write(&path, &state(2, 10)).expect_err("refused");
    assert_eq!(fs::read(&mine).expect("there"), b"precious");
    fs::remove_file(&partial).expect("removed");
    fs::write(&mine, "").expect("emptied");
    write(&mine, &state(2, 10)).expect("writes");
}
