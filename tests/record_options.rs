//! What `gputrace record` makes of its options: what the command's processes are told, when recording is switched on and
//! off, and what is sampled beside it.

mod common;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{expect_status, fresh_folder, gputrace, one_line, stderr, stdout};
use gputrace_trace::Recording;
use gputrace_trace::options::{CollectorOptions, GraphLevel, Schedule};
use serde_json::Value;

/// `gputrace record` with these options, of a command that runs in a shell.
fn record_shell(folder: &Path, options: &[&str], script: &str) -> Command {
    let mut command = gputrace();
    command
        .args(["record", "--quiet", "--device", "sim", "-o"])
        .arg(folder);
    command.args(options).args(["--", "sh", "-c", script]);
    command
}

/// What the collector in a command's process would be told.
fn told(options: &[&str]) -> CollectorOptions {
    let (_keep, folder) = fresh_folder("recording");
    let output = expect_status(
        &mut record_shell(&folder, options, "printf %s \"$GPUTRACE_OPTIONS\""),
        0,
    );
    let told = CollectorOptions::parse(&stdout(&output)).expect("options");
    let manifest = manifest(&folder);
    assert_eq!(
        serde_json::from_value::<CollectorOptions>(manifest["options"].clone()).expect("options"),
        told,
        "the manifest has them too"
    );
    told
}

fn manifest(folder: &Path) -> Value {
    let text = std::fs::read(folder.join("manifest.json")).expect("a manifest");
    serde_json::from_slice(&text).expect("JSON")
}

#[test]
fn options_reach_the_collector_and_the_manifest() {
    assert_eq!(told(&[]), CollectorOptions::default());
    let options = told(&[
        "--kinds",
        "-calls,+memory",
        "--ranks",
        "0,8..9",
        "--schedule",
        "wait=1,warmup=2,active=3,repeat=4",
        "--memory",
        "64M",
        "--graphs",
        "graph",
        "--max-size",
        "160M",
    ]);
    let kinds = options.kinds.expect("kinds");
    assert!(kinds.iter().any(|kind| kind == "memory") && kinds.iter().any(|kind| kind == "kernels"));
    assert!(!kinds.iter().any(|kind| kind == "calls"));
    assert_eq!(options.ranks, Some(vec![0, 8, 9]));
    let schedule = Schedule {
        wait: 1,
        warmup: 2,
        active: 3,
        repeat: 4,
    };
    assert_eq!(options.schedule, Some(schedule));
    assert_eq!(
        (options.memory_bytes, options.graphs),
        (64 << 20, GraphLevel::Graph)
    );
    assert_eq!(options.segment_bytes, Some(10 << 20));
    assert_eq!(told(&["--steps", "5..9"]).steps, Some((5, 9)));
    assert_eq!(told(&["--range", "a b"]).range.as_deref(), Some("a b"));
    assert!(told(&["--cuda-profiler-api"]).profiler_calls);
    assert_eq!(told(&["--measure-overhead"]).measure_overhead_steps, Some(10));
    assert_eq!(told(&["--measure-overhead=5"]).measure_overhead_steps, Some(5));
}

#[test]
fn what_does_not_go_together_is_refused() {
    let refused = |options: &[&str]| {
        let (_keep, folder) = fresh_folder("recording");
        let output = expect_status(&mut record_shell(&folder, options, "true"), 2);
        assert!(!folder.exists(), "nothing is left");
        output
    };
    for (one, other) in [
        (["--steps", "1..2"], ["--schedule", "active=1"]),
        (["--range", "x"], ["--steps", "1..2"]),
    ] {
        let line = one_line(&refused(&[one, other].concat()));
        assert!(line.contains(one[0]) && line.contains(other[0]), "{line}");
    }
    let text = stderr(&refused(&["--kinds", "kernels,colectives"]));
    for word in ["colectives", "collectives", "memory", "proxy", "host"] {
        assert!(text.contains(word), "{text}");
    }
}

/// The switch as a collector would see it, each 20 ms: "1 1 0 ...".
const WATCH_SWITCH: &str =
    "for i in $(seq 60); do od -An -tu4 -j4 -N4 \"$GPUTRACE_CONTROL\"; sleep 0.02; done";

#[test]
fn a_delay_and_a_duration_switch_while_the_command_runs() {
    let (_keep, folder) = fresh_folder("recording");
    let options = ["--delay", "0.3", "--duration", "0.3"];
    let output = expect_status(&mut record_shell(&folder, &options, WATCH_SWITCH), 0);
    let mut seen: Vec<String> = stdout(&output).split_whitespace().map(str::to_owned).collect();
    seen.dedup();
    assert_eq!(seen, ["0", "1", "0"]);
    let manifest = manifest(&folder);
    let switches = manifest["switches"].as_array().expect("switches");
    let told: Vec<(bool, &str)> = switches
        .iter()
        .map(|one| (one["on"] == true, one["by"].as_str().expect("by")))
        .collect();
    assert_eq!(told, [(true, "--delay"), (false, "--duration")]);
    let time = |place: usize| switches[place]["time_ns"].as_i64().expect("a time");
    assert!(time(1) - time(0) >= 300_000_000);
    assert!(
        !folder.join("control").exists(),
        "the switch goes with the recorder"
    );
}

#[test]
fn sigusr1_switches_off_and_on() {
    let (_keep, folder) = fresh_folder("recording");
    let mut command = record_shell(&folder, &[], WATCH_SWITCH);
    let child = command.stdout(Stdio::piped()).spawn().expect("started");
    let control = folder.join("control");
    let begun = Instant::now();
    while !control.exists() && begun.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(5));
    }
    for _ in 0..2 {
        std::thread::sleep(Duration::from_millis(300));
        // SAFETY: sends a signal to our own child, which was not waited for.
        unsafe { libc::kill(child.id().cast_signed(), libc::SIGUSR1) };
    }
    let output = child.wait_with_output().expect("ended");
    assert!(output.status.success());
    let mut seen: Vec<String> = stdout(&output).split_whitespace().map(str::to_owned).collect();
    seen.dedup();
    assert_eq!(seen, ["1", "0", "1"]);
    assert_eq!(manifest(&folder)["switches"].as_array().map(Vec::len), Some(2));
}

#[test]
fn devices_and_host_are_sampled_beside_the_ranks() {
    let (_keep, folder) = fresh_folder("recording");
    let mut command = gputrace();
    command
        .args(["record", "--quiet", "--device", "sim", "--nvml-hz", "20", "-o"])
        .arg(&folder)
        .args(["--", "workload", "ddp", "--ranks", "2", "--steps", "60"]);
    expect_status(&mut command, 0);
    let recording = Recording::open(&folder).expect("opens");
    assert_eq!(recording.losses, []);
    assert_eq!(recording.processes.len(), 2, "a host is no rank");
    let [host] = recording.hosts.as_slice() else {
        panic!("{} hosts", recording.hosts.len());
    };
    let counters = &host.tables.counters;
    let rows = |name: &str| -> Vec<usize> {
        let name = recording.names.find(name);
        let found = (0..counters.name.len()).filter(|&row| Some(counters.name[row]) == name);
        found.collect()
    };
    // The devices that the ranks use are sampled to the end, the others no longer than a second or two.
    let of_device = |device: u32| {
        let power = rows("power_watts").into_iter();
        power.filter(|&row| counters.device[row] == Some(device)).count()
    };
    assert!(of_device(0) > of_device(7), "{} {}", of_device(0), of_device(7));
    let most = |name: &str| {
        let of_first = rows(name)
            .into_iter()
            .filter(|&row| counters.device[row] == Some(0));
        of_first.map(|row| counters.value[row]).fold(0.0, f64::max)
    };
    // What the ranks do on the simulated GPUs is seen in the recorder.
    assert!(most("gpu_utilization_percent") > 10.0 && most("memory_used_bytes") > 1e6);
    for row in rows("power_watts") {
        assert!((50.0..1000.0).contains(&counters.value[row]));
    }
    // What each rank's process used as a whole is what the kernel says.
    for process in &recording.processes {
        let pid = Some(process.header.pid);
        let own: Vec<usize> = rows("cpu_cores")
            .into_iter()
            .filter(|&row| counters.pid[row] == pid && counters.thread[row].is_none())
            .collect();
        assert!(own.len() > 5, "{} samples", own.len());
        assert!(own.iter().any(|&row| counters.value[row] > 0.0));
        let threads = rows("run_delay_ratio").into_iter();
        let threads: Vec<usize> = threads.filter(|&row| counters.pid[row] == pid).collect();
        assert!(
            threads.iter().any(|&row| counters.thread[row] == pid),
            "the main thread"
        );
    }
    let topology = &recording.manifest.topology;
    assert_eq!(topology.len(), 1);
    assert_eq!((topology[0].gpus.len(), topology[0].pairs.len()), (8, 28));
    assert_eq!(topology[0].pairs[0].nvlinks, 18);
}

#[test]
fn the_newest_is_kept_below_a_size() {
    let (_keep, folder) = fresh_folder("recording");
    let mut command = gputrace();
    command
        .args([
            "record",
            "--quiet",
            "--device",
            "sim",
            "--max-size",
            "4M",
            "--nvml-hz",
            "0",
            "-o",
        ])
        .arg(&folder)
        // Small steps, and many.
        .args([
            "--sim",
            "SCALE=1",
            "--",
            "workload",
            "collectives",
            "--ranks",
            "2",
        ])
        .args([
            "--operation",
            "all_reduce",
            "--min-bytes",
            "8",
            "--max-bytes",
            "8",
            "--iterations",
            "60000",
            "--no-check",
        ]);
    expect_status(&mut command, 0);
    let recording = Recording::open(&folder).expect("opens");
    let removed: Vec<_> = recording
        .losses
        .iter()
        .filter(|loss| loss.what.contains("--max-size"))
        .collect();
    let [removed] = removed.as_slice() else {
        panic!("{:?}", recording.losses);
    };
    assert!(removed.count.is_some_and(|rows| rows > 10_000), "{removed:?}");
    assert_eq!(recording.losses.len(), 1, "nothing else: {:?}", recording.losses);
    assert_eq!(recording.processes.len(), 2, "the parts of a process are one");
    for process in &recording.processes {
        let tables = &process.tables;
        // What is left is the end, whole; and what was told once at the start is there.
        assert!(!tables.contexts.device.is_empty() && !tables.communicators.communicator.is_empty());
        let last = tables.kernels.start_ns.iter().max().expect("kernels");
        let ended = process.header.ended_ns.expect("closed");
        assert!(ended - last.0 < 2_000_000_000, "{}", ended - last.0);
    }
}

#[test]
fn without_samples_there_is_no_folder_for_them() {
    for options in [["--nvml-hz", "0"], ["--kinds", "-devices,-host"]] {
        let (_keep, folder) = fresh_folder("recording");
        expect_status(&mut record_shell(&folder, &options, "true"), 0);
        let folders = std::fs::read_dir(&folder).expect("read").count();
        assert_eq!(folders, 1, "the manifest alone");
    }
}

#[test]
fn doctor_shows_how_gpus_are_connected() {
    let (_keep, folder) = fresh_folder("recording");
    let executable = env!("CARGO_BIN_EXE_gputrace");
    for (topology, word) in [("hgx", "NV18"), ("pcie", "PIX")] {
        let script = format!("SIMGPU_TOPOLOGY={topology} {executable} doctor");
        drop(std::fs::remove_dir_all(&folder));
        let output = expect_status(&mut record_shell(&folder, &["--nvml-hz", "0"], &script), 0);
        let text = stdout(&output);
        assert!(text.contains("Topology") && text.contains(word), "{text}");
        // Where nothing says how wide it is, no line is wider than the usual width.
        let widest = text.lines().map(|line| line.chars().count()).max();
        let table = text.split("Topology").nth(1).expect("a table");
        assert!(
            table.lines().all(|line| line.chars().count() <= 110),
            "{widest:?}\n{text}"
        );
    }
}
