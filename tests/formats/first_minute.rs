//! What a newcomer meets: the program alone, the recording that comes with it, and installations that are not whole.

use crate::common;

use std::path::Path;
use std::process::Command;

use common::programs::collector;
use common::{analysis, data, expect_status, gputrace, one_line, stdout};
use serde_json::Value;

#[test]
fn the_program_alone_says_what_to_do_next() {
    let folder = tempfile::tempdir().expect("a folder");
    let said = stdout(&expect_status(gputrace().current_dir(folder.path()), 0));
    assert!(said.contains("What to do next"), "{said}");
    for command in [
        "gputrace demo",
        "gputrace record",
        "gputrace doctor",
        "gputrace --help",
    ] {
        assert!(said.contains(command), "{said}");
    }
    assert!(
        !said.contains("gputrace view"),
        "there is nothing to view: {said}"
    );
    let demo = folder.path().join("a run");
    expect_status(gputrace().args(["demo", "--output"]).arg(&demo), 0);
    let said = stdout(&expect_status(gputrace().current_dir(folder.path()), 0));
    assert!(said.contains("gputrace view a run"), "{said}");
}

#[test]
fn the_recording_that_comes_with_it_has_a_late_rank_and_is_called_simulated() {
    let folder = tempfile::tempdir().expect("a folder");
    let demo = folder.path().join("demo");
    expect_status(gputrace().args(["demo", "--output"]).arg(&demo), 0);
    let found = analysis(&demo);
    assert_eq!(found["device"], "sim");
    assert_eq!(found["ranks"].as_array().map(Vec::len), Some(4));
    assert_eq!(found["losses"].as_array().map(Vec::len), Some(0));
    let finding = &found["findings"][0];
    assert_eq!(finding["cause"][0]["rank"], 2, "{finding}");
    let packed = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/demo.tar.gz");
    let bytes = packed.metadata().expect("it is there").len();
    assert!(bytes < 1_000_000, "{bytes} bytes");
    // What is there already stays.
    let output = expect_status(gputrace().args(["demo", "--output"]).arg(&demo), 2);
    assert!(one_line(&output).contains("demo"), "{output:?}");
}

#[test]
fn a_folder_for_temporary_files_that_cannot_be_written_is_told_in_a_line() {
    for arguments in [
        &["demo", "--no-open"][..],
        &["record", "--device", "sim", "--", "workload", "single"],
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        let output = expect_status(
            gputrace()
                .args(arguments)
                .current_dir(folder.path())
                .env("TMPDIR", "/proc/nowhere"),
            2,
        );
        assert!(one_line(&output).contains("TMPDIR"), "{output:?}");
        assert_eq!(
            folder.path().read_dir().expect("a folder").count(),
            0,
            "nothing is left"
        );
    }
}

/// /proc/self is a folder in which nobody can make a file, root neither.
#[test]
fn nothing_needs_a_home_that_can_be_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let commands: [&[&str]; 9] = [
        &[],
        &["doctor"],
        &["demo", "--output", "demo"],
        &["workload", "single", "--steps", "2"],
        &[
            "record", "--device", "sim", "-o", "run", "--", "workload", "single", "--steps", "2",
        ],
        &["analyze", "run"],
        &["export", "run", "--format", "html", "-o", "run.html"],
        &["baseline", "save", "main", "run"],
        &["baseline", "list"],
    ];
    for arguments in commands {
        let mut command = gputrace();
        command.args(arguments).current_dir(folder.path());
        for name in [
            "XDG_CACHE_HOME",
            "XDG_CONFIG_HOME",
            "XDG_DATA_HOME",
            "XDG_RUNTIME_DIR",
            "XDG_STATE_HOME",
        ] {
            command.env_remove(name);
        }
        expect_status(command.env("HOME", "/proc/self"), 0);
    }
}

#[test]
fn a_recording_of_the_first_format_with_checksums_opens_without_a_word() {
    let found = analysis(&data("recording-1.1"));
    assert_eq!(found["losses"], serde_json::json!([]));
    assert_eq!(found["notes"], serde_json::json!([]));
    let ranks = found["ranks"].as_array().expect("ranks");
    let launched = |rank: &Value| {
        let kernels = rank["kernels"].as_array().expect("kernels").iter();
        kernels
            .map(|kernel| kernel["count"].as_u64().expect("a count"))
            .sum::<u64>()
    };
    let seen: Vec<(Option<u64>, u64, Option<i64>)> = ranks
        .iter()
        .map(|rank| (rank["rank"].as_u64(), launched(rank), rank["span_ns"].as_i64()))
        .collect();
    assert_eq!(
        seen,
        [(Some(0), 60, Some(8_042_714)), (Some(1), 60, Some(5_856_579))]
    );
}

#[test]
fn a_collector_of_another_version_is_refused_before_anything_runs() {
    let folder = tempfile::tempdir().expect("a folder");
    let libraries = folder.path().join("lib");
    std::fs::create_dir(&libraries).expect("a folder");
    let bytes = std::fs::read(collector()).expect("the collector");
    let mark = format!("collector, version {}\0", env!("CARGO_PKG_VERSION"));
    let at = bytes
        .windows(mark.len())
        .position(|window| window == mark.as_bytes())
        .expect("its version stands in it");
    let version = at + "collector, version ".len();
    let recorded = folder.path().join("recorded");
    for (changed, said) in [
        (b"9", "the collector of gputrace 9"),
        (b"\0", "the collector of gputrace "),
    ] {
        let mut other = bytes.clone();
        other[version] = changed[0];
        std::fs::write(libraries.join("libgputrace_collector.so"), &other).expect("written");
        std::os::unix::fs::symlink(
            collector().with_file_name("libsimgpu.so"),
            libraries.join("libsimgpu.so"),
        )
        .ok();
        let mut command = gputrace();
        command
            .env("GPUTRACE_LIB_DIR", &libraries)
            .args(["record", "--device", "sim", "-o"])
            .arg(&recorded)
            .args(["--", "touch"])
            .arg(folder.path().join("ran"));
        let line = one_line(&expect_status(&mut command, 2));
        assert!(line.contains(said) && line.contains("GPUTRACE_LIB_DIR"), "{line}");
        assert!(!recorded.exists() && !folder.path().join("ran").exists());
    }
    std::fs::write(libraries.join("libgputrace_collector.so"), b"something else").expect("written");
    let doctor = stdout(&expect_status(
        gputrace().env("GPUTRACE_LIB_DIR", &libraries).arg("doctor"),
        0,
    ));
    assert!(doctor.contains("no collector of gputrace"), "{doctor}");
}

#[test]
fn without_proc_it_says_so_in_a_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let hidden = ["--user", "--map-root-user", "--mount", "sh", "-c"];
    let script = "mount --bind /mnt /proc && exec \"$0\" record --device sim -o recorded -- workload single";
    let tried = Command::new("unshare")
        .args(hidden)
        .arg("mount --bind /mnt /proc")
        .output();
    if !tried.is_ok_and(|output| output.status.success()) {
        eprintln!("SKIPPED: no mounts of our own here, so that nothing was tried without /proc");
        return;
    }
    let mut command = Command::new("unshare");
    command
        .args(hidden)
        .args([script, env!("CARGO_BIN_EXE_gputrace")])
        .current_dir(folder.path());
    let line = one_line(&expect_status(&mut command, 2));
    assert!(line.contains("/proc"), "{line}");
    assert_eq!(
        folder.path().read_dir().expect("a folder").count(),
        0,
        "nothing is left"
    );
}

#[test]
fn all_pages_of_the_manual_are_written_at_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let pages = folder.path().join("man1");
    let write = || {
        let mut command = gputrace();
        command.args(["man", "--output"]).arg(&pages);
        command
    };
    assert!(one_line(&expect_status(&mut write(), 2)).contains("--parents"));
    expect_status(write().arg("--parents"), 0);
    for page in [
        "gputrace",
        "gputrace-record",
        "gputrace-workload-ddp",
        "gputrace-demo",
    ] {
        let text = std::fs::read_to_string(pages.join(format!("{page}.1"))).expect(page);
        assert!(text.contains(".TH"), "{page}: {text}");
    }
    // Again, but not over what somebody else has there, nor through a link.
    expect_status(&mut write(), 0);
    let (page, thesis) = (pages.join("gputrace-record.1"), folder.path().join("thesis"));
    std::fs::write(&thesis, ".TH MINE").expect("written");
    std::fs::remove_file(&page).expect("removed");
    std::os::unix::fs::symlink(&thesis, &page).expect("linked");
    expect_status(&mut write(), 2);
    std::fs::rename(&thesis, &page).expect("renamed");
    expect_status(&mut write(), 2);
    assert_eq!(std::fs::read_to_string(&page).expect("there"), ".TH MINE");
}
