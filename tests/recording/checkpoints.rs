//! A run that is broken off and resumed learns what an unbroken one does, however either divides its work; and what
//! can be wrong with a checkpoint is told in a line.

use crate::common;

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use common::{expect_status, gputrace, stderr, stdout};

const STEPS: usize = 12;
const SIZES: [&str; 8] = [
    "--sizes",
    "24,40,16,40,8",
    "--batch",
    "16",
    "--samples",
    "80",
    "--seed",
    "5",
];

/// The losses of a run, by step.
fn losses(way: &[&str], options: &[&str]) -> Vec<(usize, f64)> {
    let output = expect_status(
        gputrace()
            .arg("workload")
            .args(way)
            .args(SIZES)
            .args(options)
            .arg("--print-losses"),
        0,
    );
    stdout(&output)
        .lines()
        .filter_map(|line| {
            let (step, loss) = line.strip_prefix("step ")?.split_once(" loss ")?;
            Some((step.parse().ok()?, loss.parse().ok()?))
        })
        .collect()
}

/// Whether these are the steps from `first` on of the unbroken run.
#[track_caller]
fn assert_continues(unbroken: &[(usize, f64)], resumed: &[(usize, f64)], first: usize, tolerance: f64) {
    assert_eq!(resumed.len(), STEPS - first, "{resumed:?}");
    for (expected, found) in unbroken[first..].iter().zip(resumed) {
        assert_eq!(expected.0, found.0);
        assert!(
            (expected.1 - found.1).abs() <= tolerance * expected.1.abs(),
            "step {}: {} against {}",
            expected.0,
            found.1,
            expected.1
        );
    }
}

#[test]
fn any_way_to_train_goes_on_where_another_ended() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("checkpoint");
    let path = path.to_str().expect("path");
    // The loss of a step is that of the parameters before it: two steps of Adam show its moments too.
    for (optimizer, rate, tolerance) in [("sgd", "0.3", 1e-5), ("adam", "0.01", 1e-4)] {
        let common = [
            "--optimizer",
            optimizer,
            "--learning-rate",
            rate,
            "--warmup-steps",
            "7",
        ];
        let run = |way: &[&str], steps: &str, more: &[&str]| {
            losses(way, &[&common[..], &["--steps", steps], more].concat())
        };
        let unbroken = run(&["single"], "12", &[]);
        assert_eq!(unbroken.len(), STEPS);
        let ways: [&[&str]; 4] = [
            &["single"],
            &["fsdp", "--ranks", "2"],
            &["tp", "--ranks", "2"],
            &["ddp", "--ranks", "4"],
        ];
        for (index, way) in ways.iter().enumerate() {
            run(way, "5", &["--save", path]);
            let next = ways[(index + 1) % ways.len()];
            assert_continues(&unbroken, &run(next, "12", &["--resume", path]), 5, tolerance);
        }
        // To itself to the last bit.
        run(&["single"], "5", &["--save", path]);
        assert_continues(&unbroken, &run(&["single"], "12", &["--resume", path]), 5, 0.0);
    }
}

#[test]
fn the_loss_scale_goes_on_too() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("checkpoint");
    let path = path.to_str().expect("path");
    // The scale grows until it overflows and steps are skipped: within a few steps, and across the break.
    let common = [
        "--dtype",
        "f16",
        "--loss-scale-growth",
        "1",
        "--optimizer",
        "adam",
        "--learning-rate",
        "0.01",
    ];
    let run =
        |steps: &str, more: &[&str]| losses(&["single"], &[&common[..], &["--steps", steps], more].concat());
    let unbroken = run("12", &[]);
    for steps in ["3", "6", "9"] {
        run(steps, &["--save", path]);
        let first = steps.parse().expect("a number");
        assert_continues(&unbroken, &run("12", &["--resume", path]), first, 0.0);
    }
}

#[test]
fn a_killed_run_leaves_a_checkpoint_to_go_on_from() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("checkpoint");
    let text = path.to_str().expect("path");
    let common = ["--learning-rate", "0.3"];
    let unbroken = losses(&["single"], &[&common[..], &["--steps", "12"]].concat());
    let mut child = gputrace()
        .args(["workload", "single"])
        .args(SIZES)
        .args(common)
        .args([
            "--steps",
            "11",
            "--save",
            text,
            "--save-every",
            "1",
            "--loader-delay",
            "100",
        ])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("starts");
    let started = Instant::now();
    while !path.exists() && started.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(5));
    }
    child.kill().expect("kills");
    child.wait().expect("ends");
    let step = saved_step(&path);
    let resumed = losses(
        &["single"],
        &[&common[..], &["--steps", "12", "--resume", text]].concat(),
    );
    assert_continues(&unbroken, &resumed, step, 0.0);
}

/// The step in the checkpoint's first line.
fn saved_step(path: &Path) -> usize {
    let bytes = fs::read(path).expect("a checkpoint");
    let line = bytes.split(|&byte| byte == b'\n').next().expect("a line");
    let header: serde_json::Value = serde_json::from_slice(line).expect("JSON");
    usize::try_from(header["step"].as_u64().expect("a step")).expect("fits")
}

#[test]
fn however_data_is_loaded_it_is_the_same() {
    let steps = ["--steps", "12"];
    let expected = losses(&["ddp", "--ranks", "2"], &steps);
    let ways: [&[&str]; 5] = [
        &["--loader-workers", "0"],
        &["--loader-workers", "3", "--prefetch-factor", "1"],
        &["--no-pin-memory"],
        &["--loader-workers", "0", "--no-pin-memory"],
        &[
            "--loader-delay",
            "3",
            "--loader-workers",
            "2",
            "--prefetch-factor",
            "5",
        ],
    ];
    for options in ways {
        assert_eq!(
            losses(&["ddp", "--ranks", "2"], &[&steps[..], options].concat()),
            expected,
            "{options:?}"
        );
    }
}

#[test]
fn what_is_wrong_with_a_checkpoint_is_told() {
    let folder = tempfile::tempdir().expect("folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("path").to_owned();
    let good = path("good");
    losses(&["single"], &["--steps", "3", "--save", &good]);
    let bytes = fs::read(&good).expect("reads");
    let put = |name: &str, bytes: &[u8]| {
        fs::write(path(name), bytes).expect("writes");
        path(name)
    };
    let mut flipped = bytes.clone();
    flipped[bytes.len() / 2] ^= 1;
    let (cut, damaged) = (put("cut", &bytes[..bytes.len() - 1]), put("damaged", &flipped));
    let other = put("other", b"a letter\n");
    let (missing, nowhere) = (path("missing"), path("no/where"));
    let cases: [(&[&str], &str); 9] = [
        (&["--resume", &missing], "does not exist"),
        (&["--resume", &other], "is not a checkpoint"),
        (&["--resume", &cut], "is cut short"),
        (&["--resume", &damaged], "checksum does not fit"),
        (
            &["--resume", &good, "--optimizer", "adam"],
            "sgd, but this run is of",
        ),
        (&["--resume", &good, "--steps", "3"], "give more --steps"),
        (&["--resume", &good, "--seed", "6"], "--seed 5"),
        (&["--save", &nowhere], "folder does not exist"),
        (&["--save-every", "2"], "required arguments"),
    ];
    for (options, expected) in cases {
        let words: Vec<&str> = SIZES
            .into_iter()
            .filter(|word| !options.contains(&"--seed") || !["--seed", "5"].contains(word))
            .chain(options.iter().copied())
            .collect();
        let output = gputrace()
            .args(["workload", "ddp", "--ranks", "2"])
            .args(&words)
            .output()
            .expect("starts");
        assert!(!output.status.success(), "{options:?}");
        let text = stderr(&output);
        let told = text.lines().filter(|line| line.contains(expected)).count();
        assert_eq!(told, 1, "{options:?}:\n{text}");
    }
}
