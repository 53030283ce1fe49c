//! `gputrace export` as a command: what it replaces, what it leaves out, and what it says.

use crate::common;

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
    export_as("chrome", recording, options, output)
}

fn export_as(format: &str, recording: &Path, options: &[&str], output: &Path) -> std::process::Command {
    let mut command = gputrace();
    command
        .arg("export")
        .arg(recording)
        .args(["--format", format, "-o"])
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
                "--parents",
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

    // What is in the way is said before anything runs, of each window too.
    let mut again = gputrace();
    again
        .args([
            "record",
            "--device",
            "sim",
            "--schedule",
            "wait=2,active=3,repeat=2",
        ])
        .arg("--export")
        .arg(format!("chrome={}", target.display()))
        .arg("-o")
        .arg(folder.with_file_name("again"))
        .args(["--", "workload", "single", "--steps", "2"]);
    let line = one_line(&expect_status(&mut again, 2));
    assert!(
        line.contains("trace.repeat-0.json: exists already") && line.contains("nothing was run"),
        "{line}"
    );
    assert!(!folder.with_file_name("again").exists());
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

/// Everything in a folder, by its path: what a file holds, or where a link leads.
fn contents(folder: &Path) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            let kind = path.symlink_metadata().expect("there").file_type();
            let text = if kind.is_symlink() {
                format!("-> {}", std::fs::read_link(&path).expect("a link").display())
            } else if kind.is_dir() {
                folders.push(path.clone());
                "folder".to_owned()
            } else {
                format!("{:?}", std::fs::read(&path).expect("a file"))
            };
            found.push((path, text));
        }
    }
    found.sort();
    found
}

/// Exports with --force to `output`, which has to be refused in one line that says `said`, with everything in `place` as it was.
#[track_caller]
fn refused(place: &Path, recording: &Path, format: &str, output: &Path, said: &str) {
    let before = contents(place);
    let mut command = export_as(format, recording, &["--force"], output);
    let line = one_line(&expect_status(command.current_dir(place), 2));
    assert!(line.contains(said), "{format} to {}: {line}", output.display());
    assert!(
        contents(place) == before,
        "{format} to {}: {line}",
        output.display()
    );
}

#[test]
fn force_replaces_only_what_gputrace_wrote() {
    let (keep, folder) = recording();
    let place = keep.path();
    let td = place.join("td");
    std::fs::create_dir_all(td.join("deep")).expect("folders");
    std::fs::write(td.join("deep/thesis.tex"), "years of work").expect("a file");
    let notes = place.join("notes.json");
    std::fs::write(&notes, "{\"mine\": true}").expect("a file");
    for (path, leads_to) in [
        ("to-folder", "td"),
        ("to-file", "notes.json"),
        ("to-recording", "recording"),
        ("broken", "nowhere"),
    ] {
        std::os::unix::fs::symlink(leads_to, place.join(path)).expect("a link");
    }
    for format in ["chrome", "perfetto", "html", "parquet", "tensorboard", "xplane"] {
        let one_file = ["perfetto", "html"].contains(&format);
        let folder_said = if one_file {
            "it is a folder"
        } else {
            "no mark of an export"
        };
        refused(place, &folder, format, &td, folder_said);
        let recording_said = "it is what is read for this";
        refused(place, &folder, format, &folder, recording_said);
        refused(
            place,
            &folder,
            format,
            Path::new("recording/../recording"),
            recording_said,
        );
        refused(place, &folder, format, place, "it holds");
        refused(
            place,
            &folder,
            format,
            Path::new("/"),
            "names no new file or folder",
        );
        refused(
            place,
            &folder,
            format,
            Path::new(".."),
            "names no new file or folder",
        );
        refused(
            place,
            &folder,
            format,
            &folder.join("manifest.json"),
            "inside the recording",
        );
        refused(
            place,
            &folder,
            format,
            &folder.join("new"),
            "inside the recording",
        );
        for link in ["to-folder", "to-file", "to-recording", "broken"] {
            refused(place, &folder, format, &place.join(link), "is a link");
        }
        let file_said = match format {
            "perfetto" | "html" | "chrome" => "does not begin as what gputrace writes",
            _ => "it is no folder",
        };
        refused(place, &folder, format, &notes, file_said);
    }
    // Another recording than the one that is exported.
    let other = place.join("other");
    std::fs::create_dir(&other).expect("a folder");
    std::fs::copy(folder.join("manifest.json"), other.join("manifest.json")).expect("a manifest");
    refused(place, &folder, "parquet", &other, "it is a recording");

    // Exports of one format, and of another, are replaced; with something of the user's in them they are not.
    for format in ["chrome", "parquet", "tensorboard", "xplane", "xplane"] {
        let out = place.join("out");
        expect_status(&mut export_as(format, &folder, &["--force"], &out), 0);
        let mine = out.join("mine.txt");
        std::fs::write(&mine, "mine").expect("a file");
        refused(place, &folder, "parquet", &out, "it holds mine.txt");
        std::fs::remove_file(mine).expect("removed");
    }
    for format in ["chrome", "perfetto", "html", "chrome"] {
        let out = place.join("out.gz");
        expect_status(&mut export_as(format, &folder, &["--force"], &out), 0);
    }
}

#[test]
fn merge_record_and_analyze_replace_nothing() {
    let (keep, folder) = recording();
    let place = keep.path();
    let before = contents(place);
    let inside = folder.join("inside");
    let mut merge = gputrace();
    merge.arg("merge").arg(&folder).arg("-o").arg(&inside);
    assert!(one_line(&expect_status(&mut merge, 2)).contains("inside the recording"));
    let mut record = gputrace();
    record.args(["record", "--device", "sim", "-o"]).arg(&inside);
    record.args(["--", "workload", "single", "--steps", "1"]);
    assert!(one_line(&expect_status(&mut record, 2)).contains("inside the recording"));
    let mut save = gputrace();
    save.args(["workload", "single", "--steps", "1", "--save"])
        .arg(&inside);
    assert!(one_line(&expect_status(&mut save, 2)).contains("inside the recording"));
    for path in ["recording", "no/such/folder"] {
        for mut command in [
            merge_into(&folder, &place.join(path)),
            tables_into(&folder, &place.join(path)),
        ] {
            let line = one_line(&expect_status(&mut command, 2));
            assert!(
                line.contains("exists already") || line.contains("--parents"),
                "{line}"
            );
        }
    }
    let line = one_line(&expect_status(tables_into(&folder, &folder).arg("--force"), 2));
    assert!(line.contains("it is what is read for this"), "{line}");
    assert!(contents(place) == before);

    // A link to nothing is not written through either.
    let link = place.join("link");
    std::os::unix::fs::symlink("nowhere", &link).expect("a link");
    for mut command in [merge_into(&folder, &link), tables_into(&folder, &link)] {
        assert!(one_line(&expect_status(&mut command, 2)).contains("is a link"));
    }
    assert!(!place.join("nowhere").exists() && link.is_symlink());

    let tables = place.join("deep/tables");
    expect_status(tables_into(&folder, &tables).arg("--parents"), 0);
    expect_status(&mut tables_into(&folder, &tables), 2);
    expect_status(tables_into(&folder, &tables).arg("--force"), 0);
    std::fs::write(tables.join("plot.py"), "mine").expect("a file");
    let line = one_line(&expect_status(tables_into(&folder, &tables).arg("--force"), 2));
    assert!(line.contains("it holds plot.py"), "{line}");
    // What is merged is a recording, with no mark that would let it be replaced.
    let merged = place.join("deep/merged");
    expect_status(&mut merge_into(&folder, &merged), 0);
    refused(place, &folder, "parquet", &merged, "it is a recording");
    assert_eq!(analysis(&merged)["ranks"], analysis(&folder)["ranks"]);
}

fn merge_into(recording: &Path, output: &Path) -> std::process::Command {
    let mut command = gputrace();
    command.arg("merge").arg(recording).arg("-o").arg(output);
    command
}

fn tables_into(recording: &Path, output: &Path) -> std::process::Command {
    let mut command = gputrace();
    command.arg("analyze").arg(recording).arg("--tables").arg(output);
    command
}

/// Has a command that writes `out` ended by SIGTERM while it is half-written, at many moments, and gives how often it was.
fn interrupted(place: &Path, rounds: u64, command: impl Fn(&Path) -> std::process::Command) -> usize {
    let names = |place: &Path| -> Vec<_> {
        let entries = std::fs::read_dir(place).expect("readable");
        let all = entries.map(|entry| entry.expect("an entry").file_name());
        all.filter(|name| name != "out").collect()
    };
    let before = names(place).len();
    let mut met = 0;
    for round in 0..rounds {
        let out = place.join("out");
        let mut child = command(&out)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
        let part = place.join(format!(".out.{}.part", child.id()));
        while !part.exists() && child.try_wait().expect("a child").is_none() {
            std::thread::yield_now();
        }
        std::thread::sleep(std::time::Duration::from_micros(200 * round));
        let pid = i32::try_from(child.id()).expect("a process id");
        // SAFETY: the process is ours; it may have ended, and has not been waited for but by us.
        unsafe { libc::kill(pid, libc::SIGTERM) };
        let status = child.wait().expect("it ends");
        met += usize::from(status.code() == Some(143));
        let left = names(place);
        assert_eq!(left.len(), before, "round {round}: {left:?}");
    }
    met
}

#[test]
fn an_interrupted_export_leaves_nothing_of_its_own() {
    let (keep, folder) = recording();
    let met = interrupted(keep.path(), 60, |out| {
        if out.exists() {
            assert!(out.join(".gputrace-export").exists(), "not whole");
        }
        export_as("parquet", &folder, &["--force"], out)
    });
    assert!(met > 0, "no export was interrupted");
}

#[test]
fn an_interrupted_reduction_leaves_nothing_of_its_own() {
    let (keep, folder) = recording();
    let part = keep.path().join("one.partial");
    let mut command = gputrace();
    command.arg("partial").arg(&folder).arg("-o").arg(&part);
    expect_status(&mut command, 0);
    let met = interrupted(keep.path(), 40, |out| {
        let mut command = gputrace();
        command.arg("reduce").arg(&part).arg("-o").arg(out);
        command
    });
    assert!(met > 0, "no reduction was interrupted");
}
