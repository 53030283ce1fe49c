//! Two hosts: each a network namespace with a name of its own, joined by a cable. Ranks are started on both as srun
//! and torchrun do it. Skipped, loudly, where namespaces cannot be made.

use crate::common;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::aligned::same_within_errors;
use common::{analysis, expect_status, gputrace, one_line, simulated_workload, stdout};
use serde_json::{Value, json};

/// Says why nothing is tested here, if so.
fn cannot_make_hosts() -> bool {
    let script = "ip link add cable-a type veth peer name cable-b && unshare --net true && hostname host-a";
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "--net", "--uts", "sh", "-c", script])
        .output();
    let why = match output {
        Ok(output) if output.status.success() => return false,
        Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        Err(error) => format!("unshare: {error}"),
    };
    // Past the test harness, which hides what a test prints that passes.
    let line = format!("SKIPPED: two hosts were not tested: no network namespaces can be made here: {why}\n");
    drop(std::fs::write("/dev/stderr", &line).or_else(|_| std::fs::write("/dev/tty", &line)));
    println!("{line}");
    true
}

/// Starts ranks 0 and 1 on one host, 2 and 3 on the other, with the command in "$@". Kills rank $KILL when they train.
/// Leaves out, err, pid and status of each rank in $FOLDER. $RECORD, with a rank's number behind it, is a command that records
/// each rank; the second host's clock is off by $SKEW.
const TWO_HOSTS: &str = r#"
start() {
  RANK=$1 LOCAL_RANK=$(($1 % 2)) WORLD_SIZE=4 LOCAL_WORLD_SIZE=2 GROUP_RANK=$(($1 / 2)) \
    MASTER_ADDR=10.77.0.1 MASTER_PORT=29500 sh -c 'echo $$ >$FOLDER/pid$RANK; exec "$@"' - ${RECORD:+$RECORD$1 --} $COMMAND \
    >$FOLDER/out$1 2>$FOLDER/err$1
  echo $? >$FOLDER/status$1
}
if [ "$HOST" = b ]; then
  hostname host-b
  [ -z "$SKEW" ] || export SIMGPU_SKEW=$SKEW
  until ip link show cable-b >/dev/null 2>&1; do sleep 0.02; done
  ip link set lo up; ip address add 10.77.0.2/24 dev cable-b; ip link set cable-b up
  start 2 & start 3 & wait
  exit
fi
hostname host-a
HOST=b unshare --net --uts sh -c "$SCRIPT" &
# It has its own network when it is another program than this one.
until [ "$(readlink /proc/$!/ns/net)" != "$(readlink /proc/$$/ns/net)" ]; do sleep 0.02; done
ip link add cable-a type veth peer name cable-b
ip link set cable-b netns $!
ip link set lo up; ip address add 10.77.0.1/24 dev cable-a; ip link set cable-a up
start 0 & start 1 &
if [ -n "$KILL" ]; then
  until [ -s $FOLDER/out0 ] || [ -e $FOLDER/status0 ]; do sleep 0.02; done
  sleep 0.3
  kill -9 $(cat $FOLDER/pid$KILL)
  touch $FOLDER/killed
fi
wait
"#;

/// Runs the workload on two hosts in `folder`; kills a rank where one is named. `recording`: where to record it.
fn on_two_hosts(folder: &Path, arguments: &str, kill: &str, recording: Option<&Path>) {
    on_hosts_with(folder, arguments, kill, recording, &[]);
}

/// The same with more settings.
fn on_hosts_with(
    folder: &Path,
    arguments: &str,
    kill: &str,
    recording: Option<&Path>,
    settings: &[(&str, &str)],
) {
    let workload = simulated_workload();
    let program = workload.get_program().to_str().expect("a path");
    let mut command = match recording {
        None => Command::new("unshare"),
        Some(recording) => {
            let mut command = gputrace();
            command
                .args(["record", "--quiet", "--device", "sim", "-o"])
                .arg(recording)
                .args(["--", "unshare"]);
            command
        }
    };
    command
        .args([
            "--user",
            "--map-root-user",
            "--net",
            "--uts",
            "sh",
            "-c",
            TWO_HOSTS,
        ])
        .env("SCRIPT", TWO_HOSTS)
        .env("FOLDER", folder)
        .env("KILL", kill)
        .env("COMMAND", format!("{program} workload {arguments}"))
        .envs(settings.iter().copied())
        .stdin(Stdio::null());
    for (name, value) in workload.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let mut child = command.spawn().expect("unshare starts");
    let started = Instant::now();
    while child.try_wait().expect("waits").is_none() {
        if started.elapsed() > Duration::from_secs(100) {
            drop(child.kill());
            panic!("two hosts did not end: {}", everything(folder));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn read(folder: &Path, name: &str) -> String {
    std::fs::read_to_string(folder.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn everything(folder: &Path) -> String {
    (0..4)
        .flat_map(|rank| ["status", "out", "err"].map(|name| format!("{name}{rank}")))
        .map(|name| {
            let text = std::fs::read_to_string(folder.join(&name)).unwrap_or_default();
            format!("{name}: {text}\n")
        })
        .collect()
}

/// The losses that a run printed, one a step.
fn losses(text: &str) -> Vec<f64> {
    text.lines()
        .filter_map(|line| {
            line.strip_prefix("step ")?
                .split_once(" loss ")?
                .1
                .split(' ')
                .next()?
                .parse()
                .ok()
        })
        .collect()
}

#[test]
fn ranks_on_two_hosts_learn_what_one_rank_does() {
    if cannot_make_hosts() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    on_two_hosts(
        folder.path(),
        "ddp --ranks 4 --steps 6 --batch 96 --print-losses",
        "",
        None,
    );
    for rank in 0..4 {
        let status = read(folder.path(), &format!("status{rank}"));
        assert_eq!(status.trim(), "0", "{}", everything(folder.path()));
    }
    let single = expect_status(
        simulated_workload().args(["single", "--steps", "6", "--batch", "96", "--print-losses"]),
        0,
    );
    let (together, alone) = (losses(&read(folder.path(), "out0")), losses(&stdout(&single)));
    assert_eq!(
        (together.len(), alone.len()),
        (6, 6),
        "{}",
        everything(folder.path())
    );
    for (a, b) in together.iter().zip(&alone) {
        assert!((a - b).abs() <= 1e-5 * b.abs(), "{together:?} {alone:?}");
    }
}

#[test]
fn a_rank_killed_on_one_host_ends_those_on_both() {
    if cannot_make_hosts() {
        return;
    }
    for victim in ["3", "0"] {
        let folder = tempfile::tempdir().expect("a folder");
        on_two_hosts(
            folder.path(),
            "ddp --ranks 4 --steps 1000000 --batch 96",
            victim,
            None,
        );
        let killed = folder
            .path()
            .join("killed")
            .metadata()
            .and_then(|file| file.modified());
        let pid = read(folder.path(), &format!("pid{victim}"));
        let host = if victim == "3" { "host-b" } else { "host-a" };
        let named = format!("rank {victim} (pid {} on host {host}) died: ending", pid.trim());
        for rank in ["0", "1", "2", "3"].into_iter().filter(|rank| *rank != victim) {
            let status = folder.path().join(format!("status{rank}"));
            assert_eq!(
                read(folder.path(), &format!("status{rank}")).trim(),
                "1",
                "{}",
                everything(folder.path())
            );
            let said = read(folder.path(), &format!("err{rank}"));
            assert!(said.contains(&named), "rank {rank} said: {said}, not: {named}");
            let ended = status.metadata().and_then(|file| file.modified());
            if let (Ok(killed), Ok(ended)) = (&killed, ended) {
                let took = ended.duration_since(*killed).unwrap_or_default();
                assert!(took < Duration::from_secs(15), "rank {rank} took {took:?}");
            }
        }
    }
}

#[test]
fn one_recorder_records_both_hosts_into_a_folder_that_both_see() {
    if cannot_make_hosts() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let recording = folder.path().join("recording");
    on_two_hosts(
        folder.path(),
        "ddp --ranks 4 --steps 3 --batch 96",
        "",
        Some(&recording),
    );
    let analysis = analysis(&recording);
    let ranks = analysis["ranks"].as_array().expect("ranks");
    let found: Vec<_> = ranks
        .iter()
        .map(|rank| (rank["rank"].as_u64(), rank["host"].as_str().unwrap_or_default()))
        .collect();
    assert_eq!(
        found,
        [
            (Some(0), "host-a"),
            (Some(1), "host-a"),
            (Some(2), "host-b"),
            (Some(3), "host-b")
        ],
        "{}",
        everything(folder.path())
    );
}

/// What the clock of a rank was ahead by, by its truth log: the delivered end of an operation near a moment less the true one.
fn true_offset(truth: &Path, rank: u32, at_ns: i64) -> i64 {
    let operations = common::truth_of_rank(truth, rank);
    let ends = operations
        .values()
        .map(|one| (one.delivered_end_ns, one.delivered_end_ns - one.end_ns));
    let nearest = ends.min_by_key(|(delivered, _)| delivered.abs_diff(at_ns));
    nearest.expect("operations").1
}

#[test]
fn clocks_of_two_hosts_are_aligned_after_their_recordings_are_merged() {
    if cannot_make_hosts() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let truth = folder.path().join("truth");
    std::fs::create_dir(&truth).expect("a folder");
    let program = gputrace().get_program().to_string_lossy().into_owned();
    let record = format!(
        "{program} record --quiet --device sim -o {}",
        folder.path().join("recording-").display()
    );
    on_hosts_with(
        folder.path(),
        "ddp --ranks 4 --steps 30 --batch 96",
        "",
        None,
        &[
            ("RECORD", record.as_str()),
            ("SKEW", "3000000"),
            ("SIMGPU_TRUTH", truth.to_str().expect("a path")),
        ],
    );
    let merged = folder.path().join("merged");
    let mut merge = gputrace();
    merge.arg("merge");
    for rank in 0..4 {
        merge.arg(folder.path().join(format!("recording-{rank}")));
    }
    expect_status(merge.arg("-o").arg(&merged), 0);
    let found = analysis(&merged);
    let clocks = found["clocks"].as_array().expect("clocks");
    assert_eq!(clocks.len(), 2, "{clocks:?}");
    let clock = &clocks[1];
    assert_eq!(
        (&clock["host"], &clock["ranks"]),
        (&json!("host-b"), &json!([2, 3]))
    );
    let number = |value: &Value| value.as_i64().unwrap_or_else(|| panic!("{value} in {clock}"));
    let at_ns = number(&clock["at_ns"]);
    let offset_ns = true_offset(&truth, 2, at_ns);
    let (estimate, width) = (number(&clock["offset_ns"]), number(&clock["half_width_ns"]));
    assert!(
        (estimate - offset_ns).abs() <= width,
        "{estimate} ±{width}, truly {offset_ns}"
    );
    assert!(
        (number(&clock["hard_low_ns"])..=number(&clock["hard_high_ns"])).contains(&offset_ns),
        "{clock}"
    );
    assert!(number(&clock["collectives"]) >= 30, "{clock}");

    // The merged recording keeps what was found, and its stamps as they came.
    let manifest: Value = serde_json::from_str(&read(&merged, "manifest.json")).expect("JSON");
    let kept = &manifest["clocks"][1];
    for key in [
        "host",
        "ranks",
        "at_ns",
        "offset_ns",
        "half_width_ns",
        "collectives",
    ] {
        assert_eq!(kept[key], clock[key], "{key}");
    }
    assert_eq!(kept["reference"], 0, "{kept}");

    // With the clocks as they truly were.
    let list = folder.path().join("clocks.json");
    let known = json!({"host-a": {}, "host-b": {"offset_ns": offset_ns}});
    std::fs::write(&list, known.to_string()).expect("a file");
    let analyze = |clocks: &str| -> Value {
        let mut command = gputrace();
        command
            .args(["analyze", "--json", "--clocks", clocks])
            .arg(&merged);
        serde_json::from_str(&stdout(&expect_status(&mut command, 0))).expect("JSON")
    };
    let right = analyze(list.to_str().expect("a path"));
    let compared = same_within_errors(&right, &found);
    assert!(compared >= 120, "{compared}");

    // Without, nothing is compared, and a list that names a host that is not there is refused.
    assert_eq!(analyze("none")["arrivals"], json!([]));
    std::fs::write(&list, json!({"host-c": {}}).to_string()).expect("a file");
    let mut command = gputrace();
    let refused = expect_status(command.args(["analyze", "--clocks"]).arg(&list).arg(&merged), 2);
    assert!(one_line(&refused).contains("host-c"), "{}", one_line(&refused));
    let table = expect_status(gputrace().arg("analyze").arg(&merged), 0);
    assert!(
        stdout(&table).contains("Clocks (2 clocks compared"),
        "{}",
        stdout(&table)
    );
}
