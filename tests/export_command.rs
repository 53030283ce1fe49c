//! `gputrace export` as a command: what it replaces, what it leaves out, and what it says.

mod common;

use std::path::{Path, PathBuf};
use std::process::Stdio;

use common::{analysis, expect_status, fresh_folder, gputrace, one_line, stderr};
use serde_json::Value;

/// A recording of two ranks and 8 steps.
fn recording() -> (tempfile::TempDir, PathBuf) {
    let (keep, folder) = fresh_folder("recording");
    expect_status(
        gputrace()
            .args(["record", "--quiet", "--device", "sim", "-o"])
            .arg(&folder)
            .args(["--", "workload", "ddp", "--ranks", "2", "--steps", "8"]),
        0,
    );
    (keep, folder)
}

fn export(recording: &Path, options: &[&str], output: &Path) -> std::process::Command {
    let mut command = gputrace();
    command
        .arg("export")
        .arg(recording)
        .args(["--format", "chrome", "-o"])
        .arg(output)
        .args(options);
    command
}

#[test]
fn parts_whole_files_and_standard_output() {
    let (_keep, folder) = recording();
    let whole = folder.with_file_name("whole.json");
    expect_status(&mut export(&folder, &[], &whole), 0);
    let bytes = std::fs::read(&whole).expect("the export");

    // What is there stays, unless it is to be replaced.
    let refused = expect_status(&mut export(&folder, &[], &whole), 2);
    assert!(one_line(&refused).contains("--force"), "{}", stderr(&refused));
    expect_status(&mut export(&folder, &["--force"], &whole), 0);
    assert_eq!(
        std::fs::read(&whole).expect("the export"),
        bytes,
        "not the same bytes"
    );
    let piped = expect_status(&mut export(&folder, &[], Path::new("-")), 0);
    assert_eq!(piped.stdout, bytes, "standard output has other bytes");

    // Steps of one rank have the measures that they have in the whole.
    let part = folder.with_file_name("part.json.gz");
    expect_status(
        &mut export(&folder, &["--steps", "3..5", "--ranks", "1"], &part),
        0,
    );
    let steps = |path: &Path, rank: usize| -> Vec<Value> {
        let analysis = analysis(path);
        let steps = analysis["ranks"][rank]["steps"]
            .as_array()
            .expect("steps")
            .clone();
        let numbered =
            |step: &Value| ["step 3", "step 4", "step 5"].contains(&step["name"].as_str().unwrap_or(""));
        steps.into_iter().filter(numbered).collect()
    };
    let (expected, found) = (steps(&folder, 1), steps(&part, 0));
    assert_eq!(expected.len(), 3);
    for (expected, found) in expected.iter().zip(&found) {
        for key in [
            "start_ns",
            "compute_ns",
            "communication_ns",
            "communication_exposed_ns",
        ] {
            assert_eq!(expected[key], found[key], "{key} of {}", expected["name"]);
        }
    }
    assert_eq!(found.len(), 3);

    for (options, said) in [
        (["--steps", "100..200"], "no rank has the steps"),
        (["--ranks", "7"], "recorded: 0, 1"),
        (["--range", "1000..2000"], "no event"),
        (["--range", "2..1"], "its end is not after its start"),
    ] {
        let nothing = folder.with_file_name("nothing.json");
        let output = expect_status(&mut export(&folder, &options, &nothing), 2);
        assert!(stderr(&output).contains(said), "{}", stderr(&output));
        assert!(!nothing.exists());
    }
    let mut unknown = gputrace();
    unknown
        .arg("export")
        .arg(&folder)
        .args(["--format", "exe", "-o", "x"]);
    let output = expect_status(&mut unknown, 2);
    assert!(stderr(&output).contains("chrome"), "{}", stderr(&output));
}

#[test]
fn a_reader_that_goes_away_and_a_signal_leave_nothing() {
    let (_keep, folder) = recording();
    // A pipe that nobody reads to its end: the line says so.
    let mut child = export(&folder, &[], Path::new("-"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("gputrace starts");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(
        one_line(&output).contains("reader went away"),
        "{}",
        stderr(&output)
    );

    // Ctrl-C while the writing cannot go on: the folder's only new file is a pipe of ours.
    let place = folder.parent().expect("a folder");
    let pipe = place.join("pipe.json");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.expect("mkfifo").success());
    let mut stuck = export(&folder, &[], &pipe)
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    // It waits for a reader, with everything read and cut.
    std::thread::sleep(std::time::Duration::from_millis(1500));
    let pid = i32::try_from(stuck.id()).expect("a process id");
    // SAFETY: the process is ours and has not been waited for.
    unsafe { libc::kill(pid, libc::SIGINT) };
    assert_eq!(stuck.wait().expect("it ends").code(), Some(130));
    let left: Vec<_> = std::fs::read_dir(place)
        .expect("readable")
        .map(|entry| entry.expect("an entry").file_name())
        .filter(|name| name != "recording" && name != "pipe.json")
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn recording_exports_each_window_of_a_schedule() {
    let (_keep, folder) = fresh_folder("recording");
    let target = folder.with_file_name("traces").join("trace.json");
    let recorded = expect_status(
        gputrace()
            .args([
                "record",
                "--device",
                "sim",
                "--schedule",
                "wait=2,warmup=1,active=3,repeat=2",
            ])
            .arg("--export")
            .arg(format!("chrome={}", target.display()))
            .arg("-o")
            .arg(&folder)
            .args(["--", "workload", "ddp", "--ranks", "2", "--steps", "14"]),
        0,
    );
    assert!(
        stderr(&recorded).contains("trace.repeat-1.json"),
        "{}",
        stderr(&recorded)
    );
    let whole = analysis(&folder);
    for (repeat, steps) in [
        (0, ["step 3", "step 4", "step 5"]),
        (1, ["step 9", "step 10", "step 11"]),
    ] {
        let path = target.with_file_name(format!("trace.repeat-{repeat}.json"));
        let part = analysis(&path);
        for rank in 0..2 {
            let of = |analysis: &Value| -> Vec<Value> {
                analysis["ranks"][rank]["steps"]
                    .as_array()
                    .expect("steps")
                    .clone()
            };
            let found = of(&part);
            let names: Vec<&str> = found.iter().filter_map(|step| step["name"].as_str()).collect();
            assert_eq!(names, steps, "rank {rank}");
            for step in found {
                let same = of(&whole).into_iter().find(|other| other["name"] == step["name"]);
                let same = same.expect("the step in the whole");
                for key in ["start_ns", "compute_ns", "communication_exposed_ns"] {
                    assert_eq!(same[key], step[key], "{key} of {}", step["name"]);
                }
            }
        }
    }

    // What is in the way is said before anything runs.
    let taken = folder.with_file_name("taken.json");
    std::fs::write(&taken, "mine").expect("a file");
    let output = expect_status(
        gputrace()
            .args(["record", "--device", "sim", "--export"])
            .arg(format!("chrome={}", taken.display()))
            .arg("-o")
            .arg(folder.with_file_name("second"))
            .args(["--", "workload", "single", "--steps", "2"]),
        2,
    );
    assert!(
        one_line(&output).contains("nothing was run"),
        "{}",
        stderr(&output)
    );
    assert_eq!(std::fs::read_to_string(&taken).expect("the file"), "mine");
}
