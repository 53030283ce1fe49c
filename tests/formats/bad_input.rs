//! What goes wrong around a recording: one clear line, the right status, nothing half-written.

use crate::common;

use std::path::Path;

use common::{analysis, expect_status, fresh_folder, gputrace, one_line, simulated_workload, stderr, stdout};

fn record(folder: &Path, command: &[&str]) -> std::process::Command {
    let mut record = gputrace();
    record.arg("record").arg("-o").arg(folder).arg("--").args(command);
    record
}

#[test]
fn a_command_that_does_not_exist_is_127_and_leaves_nothing() {
    let (_keep, folder) = fresh_folder("recording");
    let output = expect_status(record(&folder, &["no-such-command-anywhere"]).arg("x"), 127);
    assert!(
        stderr(&output).contains("no-such-command-anywhere: command not found"),
        "{}",
        stderr(&output)
    );
    assert!(!folder.exists());
}

#[test]
fn a_command_that_is_not_executable_is_126_and_leaves_nothing() {
    let (_keep, folder) = fresh_folder("recording");
    expect_status(&mut record(&folder, &["/etc/passwd"]), 126);
    assert!(!folder.exists());
}

#[test]
fn the_commands_own_status_is_passed_on() {
    let (_keep, folder) = fresh_folder("recording");
    expect_status(&mut record(&folder, &["sh", "-c", "exit 7"]), 7);
}

#[test]
fn a_signal_is_128_and_its_number() {
    let (_keep, folder) = fresh_folder("recording");
    expect_status(&mut record(&folder, &["sh", "-c", "kill -TERM $$"]), 128 + 15);
    let (_keep, folder) = fresh_folder("recording");
    expect_status(&mut record(&folder, &["sh", "-c", "kill -KILL $$"]), 128 + 9);
}

#[test]
fn a_command_that_never_touches_cuda_is_said_and_analyses_as_2() {
    let (_keep, folder) = fresh_folder("recording");
    let output = expect_status(&mut record(&folder, &["true"]), 0);
    assert!(stderr(&output).contains("CUDA"), "{}", stderr(&output));
    let output = expect_status(gputrace().arg("analyze").arg(&folder), 2);
    let line = one_line(&output);
    assert!(line.contains("CUDA") && line.contains("recording"), "{line}");
    let output = expect_status(
        gputrace()
            .arg("export")
            .arg(&folder)
            .args(["--format", "chrome", "-o"])
            .arg(folder.with_file_name("x.json")),
        2,
    );
    assert!(one_line(&output).contains("CUDA"));
    assert!(!folder.with_file_name("x.json").exists());
}

#[test]
fn an_output_folder_that_exists_is_refused_untouched() {
    let (keep, folder) = fresh_folder("recording");
    std::fs::create_dir(&folder).expect("a folder");
    std::fs::write(folder.join("precious"), "data").expect("a file");
    let ran = keep.path().join("ran");
    let output = expect_status(&mut record(&folder, &["touch", &ran.display().to_string()]), 2);
    assert!(
        one_line(&output).contains("exists already"),
        "{}",
        stderr(&output)
    );
    assert!(!ran.exists(), "the command was not run");
    assert_eq!(std::fs::read_dir(&folder).expect("the folder").count(), 1);
}

#[test]
fn an_output_folder_without_a_parent_is_refused() {
    let (_keep, folder) = fresh_folder("no/such/parent");
    let output = expect_status(&mut record(&folder, &["true"]), 2);
    assert!(one_line(&output).contains("parent folder"), "{}", stderr(&output));
}

#[test]
fn an_output_folder_that_cannot_be_written_is_refused() {
    // /proc takes no folders, whoever asks.
    let output = expect_status(&mut record(Path::new("/proc/gputrace-recording"), &["true"]), 2);
    assert!(
        one_line(&output).contains("/proc/gputrace-recording"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn an_unknown_workload_names_the_known_and_the_nearest() {
    let (_keep, folder) = fresh_folder("recording");
    let output = expect_status(&mut record(&folder, &["workload", "dpd"]), 2);
    let line = one_line(&output);
    assert!(
        line.contains("Did you mean ddp?") && line.contains("single"),
        "{line}"
    );
    assert!(!folder.exists());
    let output = expect_status(gputrace().args(["workload", "sngle"]), 2);
    assert!(one_line(&output).contains("Did you mean single?"));
}

#[test]
fn a_wrong_option_of_a_workload_fails_without_a_recording_of_nothing() {
    let (_keep, folder) = fresh_folder("recording");
    let output = expect_status(&mut record(&folder, &["workload", "ddp", "--no-such-option"]), 2);
    assert!(
        stderr(&output).contains("--no-such-option"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn a_straggler_that_is_no_rank_is_refused() {
    for way in ["single", "ddp", "dp", "pp"] {
        let mut command = simulated_workload();
        command.args([way, "--straggler", "5:2"]);
        let line = one_line(&expect_status(&mut command, 2));
        assert!(
            line.contains("--straggler 5:2") && line.contains("numbered from 0"),
            "{line}"
        );
    }
}

#[test]
fn trouble_that_cannot_be_is_refused() {
    for (arguments, told) in [
        (
            &["ddp", "--delay", "step:2:5"][..],
            "--delay step:2:5: there are 2 to choose from",
        ),
        (
            &["single", "--delay", "start:1:5"],
            "--delay start:1:5: rank 0 is the only one",
        ),
        (&["mp", "--delay", "step:1:5"], "rank 0 is the only one"),
        (
            &["pp", "--ranks", "3", "--delay", "loader:1:5"],
            "rank 1 loads nothing",
        ),
        (&["single", "--graph", "--synchronize"], "leave one of them out"),
    ] {
        let line = one_line(&expect_status(simulated_workload().args(arguments), 2));
        assert!(line.contains(told), "{arguments:?}: {line}");
    }
    let said = stderr(&expect_status(
        simulated_workload().args(["ddp", "--delay", "step:1:soon"]),
        2,
    ));
    assert!(said.contains("a number of milliseconds"), "{said}");
}

#[test]
fn memory_that_is_too_small_says_what_to_choose() {
    for way in ["single", "ddp", "fsdp", "mp", "tp"] {
        let mut command = simulated_workload();
        command
            .args([way, "--batch", "1000000", "--samples", "1000000"])
            .env("SIMGPU_MEMORY", "0.1");
        let line = one_line(&expect_status(&mut command, 2));
        assert!(
            line.contains("out of memory") && line.contains("--batch"),
            "{line}"
        );
    }
}

#[test]
fn analyze_says_what_is_wrong_with_a_path() {
    let (_keep, path) = fresh_folder("nothing-here");
    let output = expect_status(gputrace().arg("analyze").arg(&path), 2);
    assert!(one_line(&output).contains("no such file or folder"));

    std::fs::create_dir(&path).expect("a folder");
    let output = expect_status(gputrace().arg("analyze").arg(&path), 2);
    assert!(one_line(&output).contains("not a gputrace recording"));

    let file = path.join("file.txt");
    std::fs::write(&file, "hello").expect("a file");
    let output = expect_status(gputrace().arg("analyze").arg(&file), 2);
    assert!(one_line(&output).contains("not a gputrace recording"));
    let output = expect_status(gputrace().arg("analyze").arg(&path), 2);
    assert!(one_line(&output).contains("not a gputrace recording"));
}

#[test]
fn a_recording_cut_before_its_first_event_analyses_with_losses() {
    let (_keep, folder) = fresh_folder("recording");
    let process = folder.join("host-1-1");
    std::fs::create_dir_all(&process).expect("a process folder");
    std::fs::write(
        process.join("process.json"),
        r#"{"format":"gputrace.recording","version":{"major":1,"minor":0},"pid":1}"#,
    )
    .expect("a header");
    let analysis = analysis(&folder);
    assert_eq!(analysis["ranks"].as_array().map(Vec::len), Some(0));
    assert!(!analysis["losses"].as_array().expect("losses").is_empty());
}

#[test]
fn a_recording_of_a_newer_major_version_is_refused() {
    let (_keep, folder) = fresh_folder("recording");
    std::fs::create_dir(&folder).expect("a folder");
    std::fs::write(
        folder.join("manifest.json"),
        r#"{"format":"gputrace.recording","version":{"major":2,"minor":0}}"#,
    )
    .expect("a manifest");
    let output = expect_status(gputrace().arg("analyze").arg(&folder), 2);
    let line = one_line(&output);
    assert!(
        line.contains("newer") && line.contains("update gputrace"),
        "{line}"
    );
}

#[test]
fn an_export_that_cannot_be_written_leaves_nothing() {
    let (_keep, folder) = fresh_folder("recording");
    expect_status(
        gputrace()
            .args(["record", "--quiet", "--device", "sim", "-o"])
            .arg(&folder)
            .args(["--", "workload", "single", "--steps", "2"]),
        0,
    );
    let target = folder.with_file_name("no-folder").join("trace.json");
    let output = expect_status(
        gputrace()
            .arg("export")
            .arg(&folder)
            .args(["--format", "chrome", "-o"])
            .arg(&target),
        2,
    );
    assert!(one_line(&output).contains("trace.json"));
    assert_eq!(
        std::fs::read_dir(folder.parent().expect("a parent"))
            .expect("readable")
            .count(),
        1,
        "only the recording"
    );
}

/// Runs `body` with a tmpfs of `kib` KiB; skips, loudly, where it can't be mounted.
fn with_small_disk(kib: u32, body: impl FnOnce(&Path)) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mounted = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", &format!("size={kib}k"), "tmpfs"])
        .arg(folder.path())
        .output();
    if !mounted.as_ref().is_ok_and(|output| output.status.success()) {
        eprintln!("SKIPPED: a full disk needs the right to mount a tmpfs: {mounted:?}");
        return;
    }
    struct Unmount<'a>(&'a Path);
    impl Drop for Unmount<'_> {
        fn drop(&mut self) {
            drop(
                std::process::Command::new("umount")
                    .arg("-l")
                    .arg(self.0)
                    .status(),
            );
        }
    }
    let _unmount = Unmount(folder.path());
    body(folder.path());
}

#[test]
fn a_disk_that_fills_up_costs_events_and_not_the_run() {
    with_small_disk(96, |disk| {
        let folder = disk.join("recording");
        let output = gputrace()
            .args(["record", "--device", "sim", "-o"])
            .arg(&folder)
            .args(["--", "workload", "ddp", "--steps", "400", "--preset", "listing"])
            .output()
            .expect("the program starts");
        assert_eq!(
            output.status.code(),
            Some(0),
            "the command's own status\n{}",
            stderr(&output)
        );
        assert!(
            stdout(&output).contains("loss") || stderr(&output).contains("loss"),
            "the run itself went on"
        );
        // What was written opens, and what is missing is said.
        let analysis = analysis(&folder);
        assert!(!analysis["losses"].as_array().expect("losses").is_empty());
    });
}

#[test]
fn a_disk_that_is_full_from_the_start_is_refused() {
    with_small_disk(16, |disk| {
        // Takes all there is: the write ends with the disk full, which is what is wanted.
        drop(std::fs::write(disk.join("filler"), vec![0u8; 64 << 10]));
        let output = record(&disk.join("recording"), &["true"])
            .output()
            .expect("the program starts");
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        assert!(!disk.join("recording").exists());
    });
}

#[test]
fn a_damaged_table_says_so_without_a_panic() {
    let (keep, folder) = fresh_folder("recording");
    let truth = keep.path().join("truth");
    let mut record = common::record_workload(&folder, &truth, &[], ["single", "--steps", "2"]);
    expect_status(&mut record, 0);
    let process = std::fs::read_dir(&folder)
        .expect("a recording")
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.join("api_calls.arrows").is_file())
        .expect("a process folder with launch calls");
    let file = process.join("api_calls.arrows");
    let whole = std::fs::read(&file).expect("a table");
    for at in (0..whole.len()).step_by(whole.len() / 150 + 1) {
        let mut damaged = whole.clone();
        damaged[at] ^= 1 << (at % 8);
        std::fs::write(&file, &damaged).expect("written");
        let output = expect_status(gputrace().args(["analyze", "--json"]).arg(&folder), 0);
        assert!(
            !stderr(&output).contains("panicked"),
            "byte {at}: {}",
            stderr(&output)
        );
    }
}

#[test]
fn an_output_that_refuses_is_a_failure_of_one_line() {
    let trace = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/kineto/dlrm8_v100");
    for json in [false, true] {
        let full = std::fs::OpenOptions::new()
            .write(true)
            .open("/dev/full")
            .expect("a full device");
        let mut command = gputrace();
        command
            .arg("analyze")
            .args(json.then_some("--json"))
            .arg(&trace)
            .stdout(full);
        let line = one_line(&expect_status(&mut command, 2));
        assert!(line.contains("cannot write to stdout"), "{line}");
    }
}

#[test]
fn a_part_of_a_recording_names_the_recording() {
    let (keep, folder) = fresh_folder("recording");
    let truth = keep.path().join("truth");
    expect_status(
        &mut common::record_workload(&folder, &truth, &[], ["single", "--steps", "1"]),
        0,
    );
    let process = std::fs::read_dir(&folder)
        .expect("a recording")
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.join("kernels.arrows").is_file())
        .expect("a process folder");
    for part in [
        folder.join("manifest.json"),
        process.join("kernels.arrows"),
        process,
    ] {
        let line = one_line(&expect_status(gputrace().arg("analyze").arg(&part), 2));
        assert!(
            line.contains("a part of a recording") && line.ends_with(&folder.display().to_string()),
            "{line}"
        );
    }
}
