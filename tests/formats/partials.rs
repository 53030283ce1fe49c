//! A run taken apart and put together: what `partial` and `reduce` say of it is what `analyze` says, byte for byte.

use crate::common;

use std::convert::Infallible;
use std::fs;
use std::path::{Path, PathBuf};

use common::groups::in_groups;
use common::moved_clocks;
use common::random::Random;
use common::{data, expect_status, fresh_folder, gputrace, one_line, stderr, stdout, synthetic};
use serde_json::Value;

fn partial(input: &[PathBuf], options: &[&str], output: &Path) {
    let mut command = gputrace();
    command.arg("partial").args(input).args(options);
    expect_status(command.arg("-o").arg(output), 0);
}

fn json_of(command: &str, input: &[PathBuf], options: &[&str]) -> String {
    let mut program = gputrace();
    program.arg(command).args(input).arg("--json").args(options);
    stdout(&expect_status(&mut program, 0))
}

/// What is said of partials that were put together in a random order and grouping.
fn reduced(files: Vec<PathBuf>, folder: &Path, random: &mut Random) -> String {
    let files = in_groups(files, folder, random, |some, output| {
        let mut command = gputrace();
        expect_status(command.arg("reduce").args(some).arg("-o").arg(output), 0);
        Ok::<(), Infallible>(())
    });
    json_of("reduce", &files.unwrap_or_else(|never| match never {}), &[])
}

#[track_caller]
fn assert_same(a: &str, b: &str) {
    if a != b {
        let differs = a.lines().zip(b.lines()).enumerate().find(|(_, (a, b))| a != b);
        panic!(
            "they differ, first in {differs:?} ({} and {} bytes)",
            a.len(),
            b.len()
        );
    }
}

/// One partial a rank of a recording, put together.
#[track_caller]
fn compare(recording: &Path, ranks: u32, options: &[&str]) {
    let (_guard, folder) = fresh_folder("partials");
    fs::create_dir(&folder).expect("a folder");
    let input = [recording.to_owned()];
    let whole = json_of("analyze", &input, options);
    let mut files = Vec::new();
    for rank in 0..ranks {
        let output = folder.join(format!("{rank}.partial"));
        let range = format!("{rank}..{rank}");
        partial(&input, &[&["--ranks", &range], options].concat(), &output);
        files.push(output);
    }
    let mut random = Random(u64::from(ranks) + 7);
    for _ in 0..3 {
        assert_same(&reduced(files.clone(), &folder, &mut random), &whole);
    }
    let all = folder.join("all.partial");
    partial(&input, options, &all);
    assert_same(&json_of("reduce", &[all], &[]), &whole);
}

#[test]
fn ranks_of_a_recording() {
    let (_guard, one_host) = fresh_folder("one-host");
    synthetic(
        &one_host,
        &[
            "--ranks",
            "6",
            "--events",
            "8000",
            "--slow-rank",
            "2",
            "--one-host",
        ],
    );
    compare(&one_host, 6, &[]);
    compare(
        &one_host,
        6,
        &["--steps", "1..2", "--sort", "count", "--short-names"],
    );
    // Of the graph of causes only some steps fit.
    let (_guard, large) = fresh_folder("large");
    synthetic(
        &large,
        &[
            "--ranks",
            "5",
            "--events",
            "150000",
            "--pausing-rank",
            "4",
            "--one-host",
        ],
    );
    compare(&large, 5, &[]);
    let analysis: Value =
        serde_json::from_str(&json_of("analyze", std::slice::from_ref(&large), &[])).expect("JSON");
    let followed = analysis["critical_path"]["steps"]
        .as_u64()
        .expect("a critical path");
    let steps = analysis["ranks"][0]["steps"].as_array().expect("steps").len() as u64;
    // The first of those that are taken is not followed.
    assert!(followed > 0 && followed + 1 < steps, "{followed} of {steps}");
    // Three hosts, each with a clock.
    let (_guard, hosts) = fresh_folder("hosts");
    synthetic(
        &hosts,
        &["--ranks", "20", "--events", "6000", "--slow-rank", "11"],
    );
    compare(&hosts, 20, &[]);
    let analysis: Value = serde_json::from_str(&json_of("analyze", &[hosts], &[])).expect("JSON");
    let findings = analysis["findings"].as_array().expect("findings");
    assert!(
        findings
            .iter()
            .any(|finding| finding["rank"] == 11 || finding["ranks"] == serde_json::json!([11])),
        "{findings:#?}"
    );
}

#[test]
fn recordings_of_programs() {
    compare(&data("recording-1.0"), 2, &[]);
    for name in ["fsdp", "pp"] {
        let (_guard, folder) = fresh_folder(name);
        let mut command = gputrace();
        command
            .args(["record", "--quiet", "--device", "sim", "--sim", "SCALE=100", "-o"])
            .arg(&folder);
        command.args(["--", "workload", name, "--ranks", "2", "--steps", "5"]);
        expect_status(&mut command, 0);
        compare(&folder, 2, &[]);
    }
}

/// What was said of a run, without what it is called.
#[track_caller]
fn without_source(text: &str) -> String {
    let mut analysis: Value = serde_json::from_str(text).expect("JSON");
    assert!(analysis["source"].take().is_string());
    analysis.to_string()
}

/// The recordings of two runs' halves, each of some hosts, in another order than that of their ranks.
#[test]
fn recordings_in_another_order() {
    let (_guard, root) = fresh_folder("halves");
    fs::create_dir(&root).expect("a folder");
    let (first, last) = (root.join("z"), root.join("a"));
    let of = ["--ranks", "16", "--events", "4000", "--one-host", "--write"];
    synthetic(&first, &[&of[..], &["0..7"]].concat());
    synthetic(&last, &[&of[..], &["8..15"]].concat());
    // They say who they are by their losses.
    for (folder, words) in [(&first, "of the first"), (&last, "of the last")] {
        let manifest = folder.join("manifest.json");
        let text = fs::read_to_string(&manifest).expect("a manifest");
        let mut value: Value = serde_json::from_str(&text).expect("JSON");
        value["notes"] = serde_json::json!([words]);
        fs::write(&manifest, value.to_string()).expect("written");
    }
    let whole = json_of("analyze", &[first.clone(), last.clone()], &["--clocks", "none"]);
    let turned = json_of("analyze", &[last.clone(), first.clone()], &["--clocks", "none"]);
    assert_same(&without_source(&turned), &without_source(&whole));
    let files: Vec<PathBuf> = [&last, &first]
        .iter()
        .map(|folder| {
            let output = folder.with_extension("partial");
            partial(&[(*folder).clone()], &["--clocks", "none"], &output);
            output
        })
        .collect();
    assert_same(&json_of("reduce", &files, &["--clocks", "none"]), &whole);
}

/// Processes of another recording are left out, and nothing else is missing.
#[test]
fn a_process_of_another_recording() {
    let (_guard, root) = fresh_folder("strangers");
    fs::create_dir(&root).expect("a folder");
    let (run, other) = (root.join("run"), root.join("other"));
    let of = ["--ranks", "2", "--events", "3000", "--one-host"];
    synthetic(&run, &of);
    synthetic(&other, &[&of[..], &["--seed", "2"]].concat());
    let processes = fs::read_dir(&other).expect("a folder");
    let folders = processes.map(|entry| entry.expect("an entry").path());
    let mut strangers = 0;
    for folder in folders.filter(|path| path.is_dir()) {
        let name = folder.file_name().expect("a name").to_string_lossy();
        fs::rename(&folder, run.join(format!("{name}-of-other"))).expect("moved");
        strangers += 1;
    }
    assert_eq!(strangers, 2);
    let text = json_of("analyze", std::slice::from_ref(&run), &[]);
    let analysis: Value = serde_json::from_str(&text).expect("JSON");
    let losses = analysis["losses"].to_string();
    assert_eq!(losses.matches("is of another recording").count(), 2, "{losses}");
    assert!(!losses.contains("put together"), "{losses}");
    compare(&run, 2, &[]);
}

/// The trace files of a folder.
fn traces(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = fs::read_dir(folder)
        .expect("a folder")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| !path.ends_with("expected.json"))
        .collect();
    files.sort();
    files
}

#[test]
fn traces_of_others() {
    for folder in [
        data("kineto/dlrm8_v100"),
        data("kineto/ddp_cnn_a100"),
        data("operators/h100_qwen"),
        data("operators/mi300_resnet_ac"),
    ] {
        let (_guard, made) = fresh_folder("partials");
        fs::create_dir(&made).expect("a folder");
        let files = traces(&folder);
        let whole = json_of("analyze", &files, &[]);
        let all = made.join("all.partial");
        partial(&files, &[], &all);
        assert_same(&json_of("reduce", &[all], &[]), &whole);
        apart(&files, &made, &whole);
    }
}

/// What moves hosts' samples and says so is the whole, once, however many partials it is put together of.
#[test]
fn several_clocks() {
    let (_guard, root) = fresh_folder("clocks");
    let (traces_folder, made) = (root.join("traces"), root.join("made"));
    fs::create_dir_all(&traces_folder).expect("a folder");
    fs::create_dir(&made).expect("a folder");
    moved_clocks::write(&traces_folder, &moved_clocks::CLOCKS, moved_clocks::base_ns());
    let files = traces(&traces_folder);
    let whole = json_of("analyze", &files, &[]);
    assert!(whole.contains("its own was ahead by"), "{whole}");
    let all = made.join("all.partial");
    partial(&files, &[], &all);
    assert_same(&json_of("reduce", &[all], &[]), &whole);
    assert!(apart(&files, &made, &whole), "their clocks were not compared");
    // Offsets of one's own, of hosts whose state was sampled.
    let run = root.join("run");
    synthetic(&run, &["--ranks", "20", "--events", "4000"]);
    let analysis: Value =
        serde_json::from_str(&json_of("analyze", std::slice::from_ref(&run), &[])).expect("JSON");
    let mut hosts: Vec<&str> = analysis["ranks"]
        .as_array()
        .expect("ranks")
        .iter()
        .filter_map(|rank| rank["host"].as_str())
        .collect();
    hosts.dedup();
    assert_eq!(hosts.len(), 3, "{hosts:?}");
    let offsets: Value = hosts
        .iter()
        .zip([0i64, 3_000_000, -40_000_000])
        .map(|(host, offset)| ((*host).to_owned(), serde_json::json!({"offset_ns": offset})))
        .collect::<serde_json::Map<_, _>>()
        .into();
    let file = root.join("offsets.json");
    fs::write(&file, offsets.to_string()).expect("written");
    let offsets = ["--clocks", file.to_str().expect("a name")];
    assert!(json_of("analyze", std::slice::from_ref(&run), &offsets).contains("its own was ahead by"));
    compare(&run, 20, &offsets);
}

/// A partial of each file, whose clocks may have to be compared first: whether they had to be.
#[track_caller]
fn apart(files: &[PathBuf], made: &Path, whole: &str) -> bool {
    let clocks = made.join("clocks.json");
    let partials: Vec<PathBuf> = (0..files.len())
        .map(|place| made.join(format!("{place}.partial")))
        .collect();
    for (file, output) in files.iter().zip(&partials) {
        partial(std::slice::from_ref(file), &[], output);
    }
    let mut command = gputrace();
    let tried = command
        .arg("reduce")
        .args(&partials)
        .arg("--json")
        .output()
        .expect("starts");
    if tried.status.success() {
        assert_same(&stdout(&tried), whole);
        return false;
    }
    assert!(one_line(&tried).contains("--clocks-to"), "{}", stderr(&tried));
    let mut command = gputrace();
    command
        .arg("reduce")
        .args(&partials)
        .arg("--clocks-to")
        .arg(&clocks);
    expect_status(&mut command, 0);
    let clocks = clocks.to_str().expect("a name");
    for (file, output) in files.iter().zip(&partials) {
        partial(std::slice::from_ref(file), &["--clocks", clocks], output);
    }
    assert_same(&reduced(partials, made, &mut Random(3)), whole);
    true
}

#[test]
fn what_is_there_is_not_made_again() {
    let (_guard, recording) = fresh_folder("run");
    synthetic(&recording, &["--ranks", "2", "--events", "3000", "--one-host"]);
    let (_other, file) = fresh_folder("a.partial");
    let make = |options: &[&str]| {
        let mut command = gputrace();
        command
            .arg("partial")
            .arg(&recording)
            .args(options)
            .arg("-o")
            .arg(&file);
        stderr(&expect_status(&mut command, 0))
    };
    assert!(!make(&[]).contains("is there already"));
    let before = fs::metadata(&file).expect("a file").modified().expect("a time");
    assert!(make(&[]).contains("is there already"));
    assert_eq!(
        fs::metadata(&file).expect("a file").modified().expect("a time"),
        before
    );
    assert!(!make(&["--steps", "0..0"]).contains("is there already"));
    // What is no partial stays.
    fs::write(&file, "mine").expect("written");
    let mut command = gputrace();
    command.arg("partial").arg(&recording).arg("-o").arg(&file);
    one_line(&expect_status(&mut command, 2));
    assert_eq!(fs::read(&file).expect("a file"), b"mine");
}

#[test]
fn bad_input_is_one_line() {
    let (_guard, root) = fresh_folder("root");
    fs::create_dir(&root).expect("a folder");
    let (run, other) = (root.join("run"), root.join("other"));
    synthetic(&run, &["--ranks", "4", "--events", "3000", "--one-host"]);
    synthetic(
        &other,
        &["--ranks", "8", "--events", "3000", "--one-host", "--seed", "2"],
    );
    let make = |recording: &Path, options: &[&str], name: &str| {
        let output = root.join(name);
        partial(&[recording.to_owned()], options, &output);
        output
    };
    let all = make(&run, &[], "all");
    let first = make(&run, &["--ranks", "0..1"], "first");
    let last = make(&run, &["--ranks", "3..3"], "last");
    let steps = make(&run, &["--steps", "0..0"], "steps");
    let of_other = make(&other, &["--ranks", "2..2"], "of-other");
    let refused = |files: &[&PathBuf], says: &str| {
        let mut command = gputrace();
        command.arg("reduce").args(files).arg("--json");
        let output = expect_status(&mut command, 2);
        let line = one_line(&output);
        assert!(line.contains(says), "{line}");
        assert!(output.stdout.is_empty());
    };
    refused(&[&all, &first], "name it once");
    refused(&[&first, &steps], "other options");
    refused(&[&first, &of_other], "of a run of 8 ranks");
    refused(&[&root.join("nothing")], "cannot be read");
    let damaged = root.join("damaged");
    let mut bytes = fs::read(&all).expect("a file");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&damaged, &bytes).expect("written");
    refused(&[&damaged], "damaged");
    fs::write(&damaged, &bytes[..middle]).expect("written");
    refused(&[&damaged], "expected a partial");
    refused(&[&data("ddp-budget.toml")], "expected a partial");
    // The partial of another run is somebody's, that of other ranks of this one is made again.
    for (command, input) in [("partial", &other), ("reduce", &of_other)] {
        let before = fs::read(&first).expect("a partial");
        let output = expect_status(gputrace().arg(command).arg(input).arg("-o").arg(&first), 2);
        let line = one_line(&output);
        assert!(line.contains("is a partial of"), "{line}");
        assert_eq!(fs::read(&first).expect("it stays"), before);
    }
    // Nor is one that somebody has written into.
    let noted = root.join("noted");
    let mut bytes = fs::read(&first).expect("a partial");
    bytes.extend(b"\n# why this run is slow\n");
    fs::write(&noted, &bytes).expect("written");
    let output = expect_status(gputrace().arg("partial").arg(&run).arg("-o").arg(&noted), 2);
    assert!(
        one_line(&output).contains("was changed since"),
        "{}",
        one_line(&output)
    );
    assert_eq!(fs::read(&noted).expect("it stays"), bytes);
    make(&run, &["--ranks", "0..2"], "first");
    make(&run, &["--ranks", "0..1"], "first");
    // Another run of the same name.
    fs::remove_dir_all(&run).expect("removed");
    synthetic(&run, &["--ranks", "4", "--events", "3000", "--one-host"]);
    let again = make(&run, &["--ranks", "2..2"], "again");
    refused(&[&first, &again], "make all of its partials again");
    // A rank is missing in the middle.
    let mut command = gputrace();
    command.arg("reduce").args([&first, &last]).arg("--json");
    let output = expect_status(&mut command, 0);
    assert!(
        stderr(&output).contains("3 of 4 ranks are here: rank 2 missing"),
        "{}",
        stderr(&output)
    );
    let analysis: Value = serde_json::from_str(&stdout(&output)).expect("JSON");
    let losses = analysis["losses"].to_string();
    assert!(
        losses.contains("3 of 4 processes are here: rank 2 was not put together"),
        "{losses}"
    );
    let mut command = gputrace();
    command
        .arg("reduce")
        .arg(make(&other, &["--ranks", "1..2"], "some"));
    let said = stderr(&expect_status(&mut command, 0));
    assert!(
        said.contains("2 of 8 ranks are here: rank 0, ranks 3 to 7 missing"),
        "{said}"
    );
    // None of what is asked for is there.
    let mut command = gputrace();
    command
        .arg("partial")
        .arg(&run)
        .args(["--ranks", "9..10", "-o"])
        .arg(root.join("none"));
    assert!(one_line(&expect_status(&mut command, 2)).contains("none of the ranks 9..10"));
    assert!(!root.join("none").exists());
}
