//! What a program does to its descriptors, its folders and itself must not bring our rows into its files, nor our
//! troubles into its own.

use crate::common;

use std::os::unix::fs::PermissionsExt;

use common::programs::{Case, Recorded, compiled};
use common::{expect_status, gputrace, stderr};

/// `files HOW PLACE` with a folder for its own files, run on another thread: each case takes a second or two.
fn files(how: &str) -> (Case, tempfile::TempDir) {
    let place = tempfile::tempdir().expect("a folder");
    let case = Case::new(
        compiled("files"),
        &[how, place.path().to_str().expect("a plain path")],
    );
    (case, place)
}

#[track_caller]
fn check(how: &str) -> Recorded {
    files(how).0.check(0)
}

#[track_caller]
fn assert_whole(recorded: &Recorded, kernels: usize) {
    assert_eq!(recorded.kernels(), kernels, "{}", recorded.told());
    assert!(
        recorded.process().header.ended_ns.is_some(),
        "{}",
        recorded.told()
    );
    assert!(recorded.recording.losses.is_empty(), "{}", recorded.told());
}

#[test]
fn a_program_that_closes_all_descriptors_keeps_its_files_to_itself() {
    let recorded = check("closefrom");
    assert_eq!(recorded.ended.stdout.matches("own files: 0 wrong").count(), 8);
    assert_whole(&recorded, 100 + 8 * 3 * 100 + 100);
}

#[test]
fn a_program_without_standard_streams_keeps_their_numbers_to_itself() {
    // The program takes the numbers when the collector should have opened its files.
    common::schedule::alone();
    assert_whole(&check("closed-before"), 100 + 8 * 100);
}

#[test]
fn a_program_that_goes_elsewhere_is_recorded_where_it_began() {
    assert_whole(&check("leave"), 300);
}

#[test]
fn a_program_that_changes_its_root_or_its_user() {
    // SAFETY: no preconditions.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!("SKIPPED: only root may change its root folder and its user");
        return;
    }
    for how in ["chroot", "setuid"] {
        let recorded = check(how);
        // What was opened before goes on; closing the header by its name may not be possible any more, and is told.
        assert_eq!(recorded.kernels(), 300, "{how}: {}", recorded.told());
        assert!(
            recorded.process().header.ended_ns.is_some() || !recorded.recording.losses.is_empty(),
            "{how}: {}",
            recorded.told()
        );
    }
}

#[test]
fn a_programs_mask_leaves_the_recording_readable() {
    let recorded = check("umask");
    assert_whole(&recorded, 100 + 12 * 300 + 100);
    let folder = recorded.folder.join(&recorded.process().folder);
    let mut paths = vec![folder.clone()];
    paths.extend(
        std::fs::read_dir(&folder)
            .expect("a folder")
            .map(|file| file.expect("a file").path()),
    );
    for path in paths {
        let mode = path.metadata().expect("it is there").permissions().mode();
        assert_eq!(mode & 0o600, 0o600, "{}: {mode:o}", path.display());
    }
}

#[test]
fn a_program_that_needs_every_descriptor_gets_it() {
    // The number that the program could open is in what it says.
    let recorded = check("nofile");
    assert!(
        !recorded.recording.losses.is_empty() || recorded.kernels() == 300,
        "{}",
        recorded.told()
    );
}

#[test]
fn a_limit_on_file_sizes_ends_nobody() {
    let recorded = check("fsize");
    assert!(recorded.kernels() < 100 + 12 * 300 + 100);
    assert!(!recorded.recording.losses.is_empty(), "{}", recorded.told());
    // From the beginning: not even the header can be written, so there is no process to see, which is said.
    let (case, _place) = files("wait");
    let case = case.inside(&["prlimit", "--fsize=0:0"]);
    let (_keep, folder) = common::fresh_folder("recording");
    let bare = case.bare();
    assert_eq!(
        bare.status, 153,
        "it says a word, which the limit forbids: {bare:?}"
    );
    assert_eq!(case.recorded(&folder).status, bare.status);
    // Less than what the stand-in publishes about itself.
    let (case, _place) = files("leave");
    case.inside(&["prlimit", "--fsize=65536:65536"]).check(0);
}

#[test]
fn a_disk_that_fills_costs_rows_which_are_counted() {
    let (case, place) = files("wait");
    let script = "mount -t tmpfs -o size=16k none \"$0\" && exec \"$@\"";
    let folder = place.path().join("small");
    std::fs::create_dir(&folder).expect("a folder");
    let bare = case.bare();
    // The recorder and all under it see a small disk in the recording's place.
    let mut command = std::process::Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "sh", "-c", script]);
    command.arg(&folder).arg("sh").arg("-c");
    command.arg("\"$@\"; status=$?; gputrace_read=$(ls -R \"$0\"); df \"$0\" >&2; for f in \"$0\"/recording/*/process.json; do cat \"$f\"; done; exit $status");
    command.arg(&folder);
    let recorder = gputrace();
    command.arg(recorder.get_program());
    command.args(["record", "--device", "sim", "-o"]);
    command.arg(folder.join("recording")).arg("--").args(case.words());
    let output = command.output().expect("unshare (util-linux) starts");
    let text = stderr(&output);
    if text.contains("unshare") && text.contains("not permitted") {
        eprintln!("SKIPPED: no namespaces here: {text}");
        return;
    }
    assert_eq!(output.status.code(), Some(bare.status), "{text}");
    assert!(
        text.contains("no room") || text.contains("not whole") || text.contains("No space"),
        "{text}"
    );
}

#[test]
fn a_recording_that_is_deleted_or_cannot_be_written_is_nothing_to_the_program() {
    // Deleted while it is written to.
    let (case, _place) = files("wait");
    let bare = case.bare();
    let (_keep, folder) = common::fresh_folder("recording");
    let ended = std::thread::scope(|scope| {
        let running = scope.spawn(|| case.recorded(&folder));
        std::thread::sleep(std::time::Duration::from_millis(700));
        std::fs::remove_dir_all(&folder).expect("the recording's folder is there");
        running.join().expect("it ends")
    });
    assert_eq!(ended, bare);
    expect_status(gputrace().arg("analyze").arg(&folder), 2);

    // A place where no folder can be made. The recorder may make files in the one that is removed meanwhile.
    let in_the_way = "if [ \"$GPUTRACE_DIR\" ]; then until rm -r \"$GPUTRACE_DIR\" 2>/dev/null; do :; done; touch \"$GPUTRACE_DIR\"; fi; exec \"$@\"";
    let (case, _place) = files("leave");
    let case = case.inside(&["sh", "-c", in_the_way, "sh"]);
    let (_keep, folder) = common::fresh_folder("recording");
    assert_eq!(case.recorded(&folder), case.bare());
}
