//! What happens to the daemon, its jobs, its files and its disk; and who else calls.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use gputrace_trace::daemon::{Ask, Connection, FromCollector, Hello, JobKey, Limits, StepReport, Totals};

use crate::daemon::{Daemon, gputrace};
use crate::jobs::{family, live};
use crate::ledger::Tried;
use crate::random::Random;

/// A kind of fault.
pub struct Kind {
    pub name: &'static str,
    pub run: fn(&Daemon, &mut Random) -> Tried,
}

pub const KINDS: [Kind; 17] = [
    Kind {
        name: "daemon: SIGKILL",
        run: kill_daemon,
    },
    Kind {
        name: "daemon: replaced",
        run: replace_daemon,
    },
    Kind {
        name: "daemon: suspended",
        run: suspend_daemon,
    },
    Kind {
        name: "job: a rank SIGKILL",
        run: kill_rank,
    },
    Kind {
        name: "job: SIGKILL",
        run: kill_job,
    },
    Kind {
        name: "job: a rank hangs",
        run: hang_rank,
    },
    Kind {
        name: "files: removed",
        run: remove_files,
    },
    Kind {
        name: "files: truncated",
        run: truncate_files,
    },
    Kind {
        name: "files: a folder removed",
        run: remove_folder,
    },
    Kind {
        name: "disk: full",
        run: fill_disk,
    },
    Kind {
        name: "caller: foreign user",
        run: foreign_user,
    },
    Kind {
        name: "caller: forged messages",
        run: forge,
    },
    Kind {
        name: "caller: 1,000 connections",
        run: crowd,
    },
    Kind {
        name: "caller: slow reader",
        run: read_slowly,
    },
    Kind {
        name: "caller: half a message",
        run: say_half,
    },
    Kind {
        name: "capture",
        run: capture,
    },
    Kind {
        name: "snapshot",
        run: snapshot,
    },
];

fn sleep_ms(ms: usize) {
    std::thread::sleep(Duration::from_millis(ms as u64));
}

fn kill_daemon(daemon: &Daemon, random: &mut Random) -> Tried {
    daemon.stop(libc::SIGKILL)?;
    sleep_ms(random.below(4000));
    daemon.start()?;
    Ok(true)
}

fn replace_daemon(daemon: &Daemon, random: &mut Random) -> Tried {
    daemon.stop(libc::SIGTERM)?;
    sleep_ms(random.below(1500));
    daemon.start()?;
    Ok(true)
}

fn suspend_daemon(daemon: &Daemon, random: &mut Random) -> Tried {
    daemon.signal(libc::SIGSTOP);
    sleep_ms(200 + random.below(6000));
    daemon.signal(libc::SIGCONT);
    Ok(true)
}

/// A job that runs, and its processes that are ranks.
fn victim(daemon: &Daemon, random: &mut Random, harm: bool) -> Option<Vec<i32>> {
    let mut jobs = live(daemon);
    if jobs.is_empty() {
        return None;
    }
    let place = random.below(jobs.len());
    let job = &mut jobs[place];
    let all = family(job.pid);
    let ranks: Vec<i32> = if job.ranks > 1 { all[1..].to_vec() } else { all };
    if ranks.is_empty() {
        return None;
    }
    job.is_harmed |= harm;
    Some(ranks)
}

fn signal(pid: i32, signal: i32) {
    // SAFETY: a process that we have begun, or one that it has.
    unsafe { libc::kill(pid, signal) };
}

fn kill_rank(daemon: &Daemon, random: &mut Random) -> Tried {
    let Some(ranks) = victim(daemon, random, true) else {
        return Ok(false);
    };
    signal(random.pick(&ranks), libc::SIGKILL);
    sleep_ms(2500);
    // Those that are left may wait for it for ever.
    for rank in ranks {
        if family(rank).len() > 1 || std::path::Path::new(&format!("/proc/{rank}")).exists() {
            signal(rank, libc::SIGKILL);
        }
    }
    Ok(true)
}

fn kill_job(daemon: &Daemon, random: &mut Random) -> Tried {
    let Some(ranks) = victim(daemon, random, true) else {
        return Ok(false);
    };
    for rank in ranks {
        signal(rank, libc::SIGKILL);
    }
    Ok(true)
}

/// A rank stands still, and goes on: its job is none the worse.
fn hang_rank(daemon: &Daemon, random: &mut Random) -> Tried {
    let Some(ranks) = victim(daemon, random, false) else {
        return Ok(false);
    };
    let rank = random.pick(&ranks);
    signal(rank, libc::SIGSTOP);
    sleep_ms(300 + random.below(5000));
    signal(rank, libc::SIGCONT);
    Ok(true)
}

/// The files that collectors write just now, or wrote.
fn files(daemon: &Daemon) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for job in fs::read_dir(daemon.state.join("jobs"))
        .into_iter()
        .flatten()
        .flatten()
    {
        for process in fs::read_dir(job.path()).into_iter().flatten().flatten() {
            let entries = fs::read_dir(process.path()).into_iter().flatten().flatten();
            files.extend(entries.map(|entry| entry.path()));
        }
    }
    files
}

fn remove_files(daemon: &Daemon, random: &mut Random) -> Tried {
    let mut removed = 0;
    for path in files(daemon) {
        if random.once_in(4) {
            removed += usize::from(fs::remove_file(path).is_ok());
        }
    }
    Ok(removed > 0)
}

fn truncate_files(daemon: &Daemon, random: &mut Random) -> Tried {
    let mut truncated = 0;
    for path in files(daemon) {
        if random.once_in(4)
            && let Ok(file) = File::options().write(true).open(&path)
            && let Ok(found) = file.metadata()
        {
            truncated += usize::from(
                file.set_len(random.below(found.len() as usize + 1) as u64)
                    .is_ok(),
            );
        }
    }
    Ok(truncated > 0)
}

fn remove_folder(daemon: &Daemon, random: &mut Random) -> Tried {
    let jobs: Vec<PathBuf> = fs::read_dir(daemon.state.join("jobs"))
        .into_iter()
        .flatten()
        .flatten()
        .map(|job| job.path())
        .collect();
    if jobs.is_empty() {
        return Ok(false);
    }
    Ok(fs::remove_dir_all(random.one_of(&jobs)).is_ok())
}

/// For some seconds nothing can be written.
fn fill_disk(daemon: &Daemon, random: &mut Random) -> Tried {
    if !daemon.has_disk {
        return Ok(false);
    }
    let path = daemon.state.join("filler");
    let file = OpenOptions::new().create(true).append(true).open(&path);
    let mut file = file.map_err(|error| format!("{}: {error}", path.display()))?;
    let block = vec![0; 1 << 20];
    let until = Instant::now() + Duration::from_millis(1000 + random.below(4000) as u64);
    while Instant::now() < until {
        // Whatever becomes free meanwhile is taken too.
        while file.write(&block).is_ok_and(|written| written > 0) {}
        sleep_ms(50);
    }
    fs::remove_file(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(true)
}

/// A user who has no jobs sees none, and gets none.
fn foreign_user(daemon: &Daemon, random: &mut Random) -> Tried {
    if !daemon.has_others {
        return Ok(false);
    }
    let uid = 12_345 + random.below(100) as u32;
    let run = |arguments: &[&str]| {
        let mut command = gputrace();
        command
            .args(arguments)
            .arg("--socket")
            .arg(&daemon.socket)
            .uid(uid)
            .gid(uid)
            .current_dir("/");
        command.output().map_err(|error| error.to_string())
    };
    let output = run(&["jobs", "--json"])?;
    let jobs: serde_json::Value = serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("no answer: {error}: {}", String::from_utf8_lossy(&output.stderr)))?;
    if jobs["jobs"].as_array().is_none_or(|jobs| !jobs.is_empty()) {
        return Err(format!("it sees others' jobs: {jobs}"));
    }
    let other = daemon.ask(Ask::Jobs)?["jobs"][0]["job"]
        .as_str()
        .unwrap_or("slurm-1000")
        .to_owned();
    for arguments in [["snapshot", &other], ["capture", &other], ["top", &other]] {
        let output = run(&arguments)?;
        if output.status.code() != Some(1) {
            return Err(format!(
                "{arguments:?} of another user's ended with {:?}",
                output.status.code()
            ));
        }
    }
    Ok(true)
}

/// Messages of nobody's: out of turn, of no form, with numbers beyond all reckoning.
fn forge(daemon: &Daemon, random: &mut Random) -> Tried {
    for _ in 0..20 {
        let connection = daemon.connect()?;
        let hello = Hello::Collector {
            version: "9".to_owned(),
        };
        let join = |folder: &str, segment| FromCollector::Join {
            folder: folder.to_owned(),
            segment,
            job: JobKey {
                group: "g".to_owned(),
                scheduler: None,
                program: "../../x".to_owned(),
            },
            pid: 1,
            rank: Some(u32::MAX),
            world_size: Some(0),
        };
        let step = StepReport {
            number: u64::MAX,
            start_ns: i64::MIN,
            duration_ns: i64::MAX,
            ..StepReport::default()
        };
        let totals = Totals {
            steps: u64::MAX,
            lost_rows: u64::MAX,
            ..Totals::default()
        };
        // What is refused may be the end of the connection: then the rest can't be sent.
        match random.below(6) {
            0 => drop(connection.send(&"no such word", None)),
            1 => drop(connection.send(&FromCollector::Leave, None)),
            2 => {
                drop(connection.send(&hello, None));
                drop(connection.send(&join("../../../etc", 0), None));
            }
            3 => {
                drop(connection.send(&hello, None));
                drop(connection.send(&join("h-1-1", u32::MAX), None));
                drop(connection.send(
                    &FromCollector::Open {
                        segment: None,
                        table: "../x".to_owned(),
                    },
                    None,
                ));
            }
            4 => {
                drop(connection.send(&hello, None));
                drop(connection.send(&join("h-1-1", 0), None));
                drop(connection.send(
                    &FromCollector::Report {
                        steps: vec![step; 200],
                        totals,
                    },
                    None,
                ));
                drop(connection.send(&FromCollector::Cut { segment: u32::MAX }, None));
                drop(connection.send(
                    &FromCollector::Header {
                        segment: 0,
                        text: "{".to_owned(),
                        first: true,
                        done: true,
                    },
                    None,
                ));
            }
            _ => {
                let limits = Limits {
                    seconds: Some(f64::MAX),
                    ..Limits::default()
                };
                drop(connection.send(
                    &Hello::Client(Ask::Capture {
                        job: None,
                        limits,
                        wait: true,
                    }),
                    None,
                ));
            }
        }
        sleep_ms(random.below(20));
    }
    Ok(true)
}

/// A thousand that say nothing: others are served meanwhile.
fn crowd(daemon: &Daemon, _: &mut Random) -> Tried {
    let mut all = Vec::new();
    let until = Instant::now() + Duration::from_secs(20);
    while all.len() < 1000 && Instant::now() < until {
        match Connection::connect(&daemon.socket) {
            Ok(connection) => all.push(connection),
            // Its queue is full: it comes to it.
            Err(_) => sleep_ms(2),
        }
    }
    if all.len() < 1000 {
        return Err(format!("{} connections of 1000", all.len()));
    }
    daemon.answers()
}

/// One that asks for much, and reads nothing for a while.
fn read_slowly(daemon: &Daemon, random: &mut Random) -> Tried {
    let mut all = Vec::new();
    for _ in 0..20 {
        let connection = daemon.connect()?;
        let ask = if random.once_in(2) {
            Ask::Jobs
        } else {
            Ask::Captures
        };
        connection
            .send(&Hello::Client(ask), None)
            .map_err(|error| error.to_string())?;
        all.push(connection);
    }
    sleep_ms(500 + random.below(2000));
    daemon.answers()
}

/// A message that ends in its middle.
fn say_half(daemon: &Daemon, random: &mut Random) -> Tried {
    for _ in 0..10 {
        let connection = daemon.connect()?;
        let whole = serde_json::to_string(&Hello::Client(Ask::Jobs)).unwrap_or_default();
        // JSON within a text: what arrives is cut off, and closed.
        let half = &whole[..1 + random.below(whole.len() - 1)];
        let number = connection.number().ok_or("closed")?;
        // SAFETY: our own open socket, and as many bytes as said.
        unsafe { libc::send(number, half.as_ptr().cast(), half.len(), libc::MSG_NOSIGNAL) };
        if random.once_in(2) {
            sleep_ms(20);
        }
    }
    Ok(true)
}

/// Kernels of the next steps: what is refused is refused in words, what is kept can be read.
fn capture(daemon: &Daemon, random: &mut Random) -> Tried {
    let steps = 1 + random.below(4);
    keep(
        daemon,
        random,
        &["capture", "--steps", &steps.to_string(), "--for", "20s"],
    )
}

fn snapshot(daemon: &Daemon, random: &mut Random) -> Tried {
    keep(daemon, random, &["snapshot", "--last", "8s"])
}

fn keep(daemon: &Daemon, random: &mut Random, arguments: &[&str]) -> Tried {
    let jobs = daemon.ask(Ask::Jobs)?;
    let running: Vec<String> = jobs["jobs"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|job| job["state"] == "running")
        .filter_map(|job| job["job"].as_str().map(str::to_owned))
        .collect();
    if running.is_empty() {
        return Ok(false);
    }
    let job = random.one_of(&running);
    let into = daemon.place.join(format!("kept-{}", random.next()));
    let mut command = gputrace();
    command
        .args(arguments)
        .arg(job)
        .arg("-o")
        .arg(&into)
        .arg("--socket")
        .arg(&daemon.socket);
    let output = command.output().map_err(|error| error.to_string())?;
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    let tried = match output.status.code() {
        Some(0) => {
            let mut analyze = gputrace();
            let analyzed = analyze.args(["analyze", "--json"]).arg(&into).output();
            let analyzed = analyzed.map_err(|error| error.to_string())?;
            match analyzed.status.code() {
                // 2: of a job that has hardly begun.
                Some(0 | 2) => Ok(true),
                status => Err(format!(
                    "analyze ended with {status:?}: {}",
                    String::from_utf8_lossy(&analyzed.stderr)
                )),
            }
        }
        // It can't be done, or not now, and says so in a line.
        Some(1 | 2) if !stderr.trim().is_empty() && !stderr.contains("panicked") => Ok(true),
        status => Err(format!("{arguments:?} {job} ended with {status:?}: {stderr}")),
    };
    drop(fs::remove_dir_all(&into));
    tried
}
