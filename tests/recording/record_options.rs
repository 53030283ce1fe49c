//! What `gputrace record` makes of its options: what the command's processes are told, when recording is switched on and
//! off, and what is sampled beside it.

use crate::common;

use std::path::{Path, PathBuf};
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

#[test]
fn what_the_simulated_gpu_cannot_be_set_to_is_refused() {
    let refused = |options: &[&str], variable: Option<(&str, &str)>| {
        let (_keep, folder) = fresh_folder("recording");
        let mut command = record_shell(&folder, options, "true");
        command.envs(variable);
        let line = one_line(&expect_status(&mut command, 2));
        assert!(!folder.exists(), "nothing is left");
        assert!(line.ends_with("nothing was run"), "{line}");
        line
    };
    for line in [
        refused(&["--sim", "BOGUS=1"], None),
        refused(&["--sim", "scale=10"], Some(("SIMGPU_BOGUS", "1"))),
    ] {
        for word in ["SIMGPU_BOGUS", "SCALE", "TOPOLOGY", "FAULTS"] {
            assert!(line.contains(word), "{line}");
        }
    }
    let line = refused(&["--sim", "SCALE=fast"], None);
    assert!(
        line.contains("SIMGPU_SCALE=fast: expected a number from 1 on"),
        "{line}"
    );
    let line = refused(&["--sim", "FAULTS=fire"], None);
    assert!(line.contains("no-cupti, missing-symbols"), "{line}");
    // What is asked for counts, not what stands in the environment.
    let (_keep, folder) = fresh_folder("recording");
    let mut command = record_shell(&folder, &["--sim", "SCALE=10"], "true");
    expect_status(command.env("SIMGPU_SCALE", "fast"), 0);
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

/// All files of a folder, with what they hold.
fn files(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            let bytes = std::fs::read(&path).expect("a file");
            found.push((path, bytes));
        }
    }
    found
}

const SECRET: &str = "hunter2";

fn tells(path: &Path, bytes: &[u8]) -> bool {
    assert!(!bytes.is_empty() || path.ends_with("x"), "{}", path.display());
    bytes.windows(SECRET.len()).any(|part| part == SECRET.as_bytes())
}

fn export_of(recording: &Path, format: &str, output: &Path) {
    let mut export = gputrace();
    export
        .arg("export")
        .arg(recording)
        .args(["--format", format, "-o"])
        .arg(output);
    expect_status(&mut export, 0);
}

/// A recording of a command with secrets in its words, in those of the process that uses the GPU, and in variables.
fn with_secrets(folder: &Path, options: &[&str]) {
    let save = folder.with_extension("checkpoint?token=hunter2&a=b");
    let program = env!("CARGO_BIN_EXE_gputrace");
    let script = format!(
        "exec '{program}' workload single --steps 2 --save '{}'",
        save.display()
    );
    let mut record = gputrace();
    record
        .args(["record", "--device", "sim", "-o"])
        .arg(folder)
        .args(options)
        .args(["--", "sh", "-c", &script, "--password", SECRET])
        .env("NCCL_API_TOKEN", SECRET)
        .env("NCCL_PROXY_URL", "http://me:hunter2@proxy:80");
    expect_status(&mut record, 0);
}

#[test]
fn secrets_are_redacted_unless_they_are_kept() {
    let (keep, folder) = fresh_folder("recording");
    with_secrets(&folder, &[]);
    for (path, bytes) in files(&folder) {
        assert!(!tells(&path, &bytes), "{}", path.display());
    }
    let text = manifest(&folder).to_string();
    assert!(
        text.contains("token=[redacted]") && text.contains("http://me:[redacted]@proxy:80"),
        "{text}"
    );

    let kept = keep.path().join("kept");
    with_secrets(&kept, &["--keep-arguments"]);
    let telling: Vec<PathBuf> = files(&kept)
        .into_iter()
        .filter_map(|(path, bytes)| tells(&path, &bytes).then_some(path))
        .collect();
    let ends = |end: &str| telling.iter().any(|path| path.ends_with(end));
    assert!(ends("manifest.json") && ends("process.json"), "{telling:?}");
    export_of(&kept, "chrome", &keep.path().join("kept.json"));
    let exported = std::fs::read(keep.path().join("kept.json")).expect("the export");
    assert!(
        tells(Path::new("kept.json"), &exported),
        "what was to be kept is gone"
    );

    // A recording of an earlier version has no such option, and everything in it.
    let path = kept.join("manifest.json");
    let mut manifest = manifest(&kept);
    manifest["options"]
        .as_object_mut()
        .expect("options")
        .remove("keep_arguments");
    manifest["version"]["minor"] = 0.into();
    std::fs::write(&path, manifest.to_string()).expect("a manifest");
    for (format, output) in [
        ("chrome", "a.json"),
        ("perfetto", "a.pftrace"),
        ("html", "a.html"),
        ("parquet", "a"),
    ] {
        export_of(&kept, format, &keep.path().join(output));
    }
    export_of(&kept, "tensorboard", &keep.path().join("b"));
    for name in ["a.json", "a.pftrace", "a.html"] {
        let path = keep.path().join(name);
        assert!(!tells(&path, &std::fs::read(&path).expect("an export")), "{name}");
    }
    let facts = std::fs::read_to_string(keep.path().join("a/recording.json")).expect("an export");
    assert!(!facts.contains(SECRET) && facts.contains("[redacted]"), "{facts}");
    // An old export tells it too, until it is opened.
    let mut again = std::fs::read_to_string(keep.path().join("kept.json")).expect("the export");
    again = again.replace("\"keep_arguments\":true,", "");
    let old = keep.path().join("old.json");
    std::fs::write(&old, again).expect("a file");
    export_of(&old, "chrome", &keep.path().join("again.json"));
    let bytes = std::fs::read(keep.path().join("again.json")).expect("the export");
    assert!(!tells(&old, &bytes), "an import of an old export");
}

#[test]
fn files_are_for_their_owner_unless_the_umask_decides() {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;

    let masked = |mut command: Command| {
        // SAFETY: between fork and exec nothing but an async-signal-safe call is made.
        unsafe {
            command.pre_exec(|| {
                libc::umask(0o022);
                Ok(())
            })
        };
        expect_status(&mut command, 0);
    };
    for (options, file_mode, folder_mode) in [(&[][..], 0o600, 0o700), (&["--follow-umask"], 0o644, 0o755)] {
        let (keep, folder) = fresh_folder("recording");
        let mut record = gputrace();
        record.args(["record", "--device", "sim", "--export"]);
        record.arg(format!("chrome={}", keep.path().join("trace.json.gz").display()));
        record.arg("-o").arg(&folder).args(options);
        record.args(["--", "workload", "ddp", "--ranks", "2", "--steps", "2"]);
        masked(record);
        for (format, output) in [("parquet", "p"), ("html", "h.html")] {
            let mut export = gputrace();
            export.arg("export").arg(&folder).args(["--format", format, "-o"]);
            export.arg(keep.path().join(output)).args(options);
            masked(export);
        }
        let mut analyze = gputrace();
        analyze
            .arg("analyze")
            .arg(&folder)
            .arg("--tables")
            .arg(keep.path().join("t"))
            .args(options);
        masked(analyze);
        let mut folders = vec![keep.path().to_owned()];
        let mut looked = 0;
        while let Some(inner) = folders.pop() {
            for entry in std::fs::read_dir(inner).expect("a folder") {
                let path = entry.expect("an entry").path();
                let mode = path.metadata().expect("there").permissions().mode() & 0o777;
                let expected = if path.is_dir() { folder_mode } else { file_mode };
                assert_eq!(mode, expected, "{}: {mode:o}", path.display());
                looked += 1;
                if path.is_dir() {
                    folders.push(path);
                }
            }
        }
        assert!(looked > 100, "{looked} files");
    }
}
