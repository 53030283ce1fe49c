//! Jobs: the bundled workloads, of two users, and what is to hold of each that nobody harmed.

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use gputrace_trace::daemon::Ask;
use serde_json::Value;

use crate::daemon::{Daemon, gputrace, program};
use crate::ledger::{Ledger, Tried};
use crate::random::Random;

/// The other user: nobody.
pub const OTHER: u32 = 65534;
/// Models that compute little, so that many jobs have room beside each other.
const SMALL: [&str; 6] = ["--layers", "2", "--hidden", "128", "--batch", "64"];
/// A job that takes longer is stuck.
const MOST: Duration = Duration::from_secs(300);

/// What is run.
const WAYS: [(&str, u32); 5] = [("ddp", 2), ("fsdp", 2), ("tp", 2), ("pp", 2), ("single", 1)];
const STEPS: [u64; 3] = [40, 150, 400];

/// A job that runs now.
#[derive(Clone, Debug)]
pub struct Live {
    pub slot: usize,
    /// Of the process that has begun it.
    pub pid: i32,
    pub ranks: u32,
    /// Whether something was done to it after which it need not end well.
    pub is_harmed: bool,
}

/// What is found once.
type Found = Arc<OnceLock<String>>;

/// What each job prints when nobody watches it, by what it is; found when it is wanted.
pub struct Usual {
    place: PathBuf,
    known: Mutex<BTreeMap<(usize, u64), Found>>,
}

/// Nothing is known yet.
pub fn usual(place: &Path) -> Usual {
    Usual {
        place: place.to_owned(),
        known: Mutex::default(),
    }
}

impl Usual {
    fn losses(&self, way: usize, steps: u64) -> String {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let cell = Arc::clone(known.entry((way, steps)).or_default());
        drop(known);
        cell.get_or_init(|| {
            let mut command = workload(way, steps);
            let output = command
                .env("GPUTRACE_SOCKET", "")
                .current_dir(&self.place)
                .output();
            losses(&output.expect("the program runs").stdout)
        })
        .clone()
    }
}

/// A bundled run that computes little.
pub fn workload(way: usize, steps: u64) -> Command {
    let (name, ranks) = WAYS[way];
    let mut command = gputrace();
    command
        .args(["workload", name, "--print-losses", "--steps", &steps.to_string()])
        .args(SMALL);
    if ranks > 1 {
        command.args(["--ranks", &ranks.to_string()]);
    }
    command
}

/// What a workload prints of its losses: all of its output but times.
fn losses(stdout: &[u8]) -> String {
    let text = String::from_utf8_lossy(stdout);
    let of_losses = text.lines().filter(|line| line.contains("loss"));
    of_losses
        .map(|line| line.split(',').next().unwrap_or_default())
        .collect::<Vec<_>>()
        .join("\n")
}

/// The collector's library, beside the program.
pub fn collector() -> PathBuf {
    let folder = program().parent().expect("a folder").to_owned();
    ["deps/libgputrace_collector.so", "libgputrace_collector.so"]
        .iter()
        .map(|name| folder.join(name))
        .find(|path| path.exists())
        .expect("the collector was built")
}

/// One job, from its beginning to its end.
pub fn run_one(daemon: &Daemon, ledger: &Ledger, usual: &Usual, slot: usize, random: &mut Random) {
    let way = random.below(WAYS.len());
    let steps = random.pick(&STEPS);
    let (name, ranks) = WAYS[way];
    let mut command = workload(way, steps);
    command
        .env("GPUTRACE_SOCKET", &daemon.socket)
        .env("CUDA_INJECTION64_PATH", collector())
        .current_dir(&daemon.place)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    // By a scheduler's number the job can be found again.
    let number = daemon.jobs_begun.fetch_add(1, Ordering::SeqCst);
    let job = format!("slurm-{number}");
    command
        .env("SLURM_JOB_ID", number.to_string())
        .env("SLURM_STEP_ID", "0");
    let disturbed = (daemon.disturbed.load(Ordering::SeqCst), daemon.refused());
    let uid = if slot % 2 == 1 && daemon.has_others {
        OTHER
    } else {
        0
    };
    if uid != 0 {
        command.uid(uid).gid(uid);
    }
    let begun = Instant::now();
    let Ok(child) = command.spawn() else {
        ledger.count(name, Err("it does not start".to_owned()));
        return;
    };
    let pid = i32::try_from(child.id()).expect("a number");
    live(daemon).push(Live {
        slot,
        pid,
        ranks,
        is_harmed: false,
    });
    let (output, is_late) = wait(child, begun + MOST);
    let harmed = {
        let mut live = live(daemon);
        let place = live.iter().position(|job| job.slot == slot);
        place
            .map(|place| live.swap_remove(place))
            .is_some_and(|job| job.is_harmed)
    };
    daemon.jobs_run.fetch_add(1, Ordering::SeqCst);
    let what = if harmed {
        "jobs that were harmed"
    } else {
        "jobs that were not harmed"
    };
    if harmed {
        // Whatever became of it, it is not in our way any more.
        ledger.count(what, Ok(true));
        return;
    }
    let tried = (|| -> Tried {
        if is_late {
            return Err(format!(
                "{name} of {steps} steps is not done after {} s",
                MOST.as_secs()
            ));
        }
        let (status, stdout, stderr) = output.ok_or("its end is not known")?;
        if status != Some(0) {
            return Err(format!("{name} of {steps} steps ended with {status:?}: {stderr}"));
        }
        let (here, alone) = (losses(&stdout), usual.losses(way, steps));
        if here.is_empty() || here != alone {
            return Err(format!(
                "{name} of {steps} steps: other losses than alone:\n{here}\n{alone}"
            ));
        }
        Ok(true)
    })();
    let is_well = tried.is_ok();
    ledger.count(what, tried);
    ledger.count(
        &format!("  {name}, {}", if uid == 0 { "root" } else { "another user" }),
        Ok(true),
    );
    if is_well {
        ledger.count(
            "steps of a job add up",
            steps_add_up(daemon, ledger, (&job, disturbed), ranks, steps),
        );
    }
}

pub fn live(daemon: &Daemon) -> std::sync::MutexGuard<'_, Vec<Live>> {
    daemon.live.lock().unwrap_or_else(PoisonError::into_inner)
}

type Output = Option<(Option<i32>, Vec<u8>, String)>;

/// Waits for a job, but not for ever.
fn wait(child: Child, until: Instant) -> (Output, bool) {
    let pid = i32::try_from(child.id()).expect("a number");
    let (tell, told) = std::sync::mpsc::channel();
    let waiting = std::thread::spawn(move || drop(tell.send(child.wait_with_output())));
    let left = until.saturating_duration_since(Instant::now());
    let (output, is_late) = match told.recv_timeout(left) {
        Ok(output) => (output.ok(), false),
        Err(_) => {
            for process in family(pid) {
                // SAFETY: processes that we have begun.
                unsafe { libc::kill(process, libc::SIGKILL) };
            }
            (told.recv().ok().and_then(Result::ok), true)
        }
    };
    drop(waiting.join());
    let output = output.map(|output| {
        (
            output.status.code(),
            output.stdout,
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    });
    (output, is_late)
}

/// A process and those that it has begun.
pub fn family(pid: i32) -> Vec<i32> {
    let mut all = vec![pid];
    let mut place = 0;
    while let Some(pid) = all.get(place).copied() {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task"))
            .into_iter()
            .flatten()
            .flatten();
        for task in tasks {
            let children = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
            all.extend(
                children
                    .split_whitespace()
                    .filter_map(|child| child.parse::<i32>().ok()),
            );
        }
        place += 1;
    }
    all
}

/// Whether all steps of a job that has ended are told of, counted as missed, or of a process of which the daemon says that it did not
/// hear its end.
fn steps_add_up(
    daemon: &Daemon,
    ledger: &Ledger,
    (name, (disturbed, refused)): (&str, (u64, u64)),
    ranks: u32,
    steps: u64,
) -> Tried {
    let document = match daemon.ask(Ask::Job {
        job: Some(name.to_owned()),
    }) {
        Ok(document) => document,
        // It may have begun and ended while there was no daemon, or one that could write nothing down.
        Err(why) if why.contains("no job") && daemon.disturbed.load(Ordering::SeqCst) > disturbed => {
            ledger.add("jobs that no daemon knows, since it was away", 1);
            return Ok(true);
        }
        Err(why) if why.contains("no job") && daemon.refused() > refused => {
            ledger.add(
                "jobs that were refused, as a full disk makes the daemon do, and counted",
                1,
            );
            return Ok(true);
        }
        Err(why) => return Err(format!("a job of {steps} steps: {why}")),
    };
    let known = processes(&document).count();
    if known > ranks as usize {
        return Err(format!("{known} processes of {ranks}: {document}"));
    }
    let (mut told, mut missed, mut unheard) = (0, 0, 0);
    for process in processes(&document) {
        let count = |name: &str| process[name].as_u64().unwrap_or(0);
        let (is_told, is_missed) = (count("steps"), count("missed_steps"));
        let all = is_told + is_missed;
        // The last step has no successor that would end it.
        let expected = steps - 1;
        if all > expected {
            return Err(format!("{all} of {expected} steps: {process}"));
        }
        if all < expected {
            // What was between its last word and its end: a daemon that was away says so by its state.
            if process["state"] == "ended" {
                return Err(format!(
                    "{} steps are missing in silence: {process}",
                    expected - all
                ));
            }
            unheard += expected - all;
        }
        told += is_told;
        missed += is_missed;
    }
    ledger.add("steps of ranks that were told of", told);
    ledger.add("steps of ranks that the daemon counts as missed", missed);
    ledger.add(
        "steps of ranks whose end no daemon heard (their state says so)",
        unheard,
    );
    let lost = document["lost_rows"].as_u64().unwrap_or(0);
    ledger.add("rows that are counted as lost", lost);
    Ok(true)
}

fn processes(document: &Value) -> impl Iterator<Item = &Value> {
    document["processes"].as_array().into_iter().flatten()
}
