//! What the daemon costs: so many processes that tell of so many steps a second, for a while.
//!
//!     cargo bench -p gputrace-daemon --bench soak -- --processes 8 --steps 100 --seconds 30
//!
//! Processes are threads here, which write no rows; the daemon is a process of its own (this program again), whose CPU time and
//! memory are read from /proc at the end. Exit status 1 where it is beyond 5 % of a core or 256 MiB, or where it has counted fewer
//! steps than each process told.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use gputrace_daemon::Daemon;
use gputrace_daemon::settings::{Config, Settings};
use gputrace_trace::daemon::{
    Answer, Ask, Connection, FromCollector, Hello, JobKey, StepReport, ToCollector, Totals,
};
use gputrace_trace::now;

/// What is aimed at: share of a core, and bytes.
const MOST_SHARE: f64 = 0.05;
const MOST_KIB: u64 = 256 << 10;
/// As many as a collector tells of at once.
const STEPS_A_PACKET: usize = 128;

fn option(name: &str, usual: f64) -> f64 {
    let mut arguments = std::env::args().skip_while(|argument| argument != name);
    arguments
        .nth(1)
        .and_then(|value| value.parse().ok())
        .unwrap_or(usual)
}

/// This program as the daemon: ends with its standard input.
fn daemon(place: &Path) {
    let settings = Settings {
        socket: place.join("daemon.sock"),
        open: false,
        state: place.join("state"),
        host: "here".to_owned(),
        config: Config::default(),
    };
    let daemon = Daemon::start(settings, |line| eprintln!("{line}")).expect("begun");
    let handle = daemon.handle();
    std::thread::spawn(move || {
        drop(std::io::copy(&mut std::io::stdin(), &mut std::io::sink()));
        handle.stop();
    });
    daemon.run().expect("run");
}

/// A process of a job: reports ten times a second.
fn process(socket: &Path, number: u32, steps_a_second: f64, until: Instant) -> u64 {
    let connection = Connection::connect(socket).expect("connected");
    let hello = Hello::Collector {
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    connection.send(&hello, None).expect("sent");
    let join = FromCollector::Join {
        folder: format!("here-{number}-1"),
        segment: 0,
        job: JobKey {
            group: "soak".to_owned(),
            scheduler: None,
            program: "soak".to_owned(),
        },
        pid: number,
        rank: Some(number),
        world_size: None,
    };
    connection.send(&join, None).expect("sent");
    let begun = Instant::now();
    let step_ns = (1e9 / steps_a_second) as i64;
    let mut told = 0;
    while Instant::now() < until {
        // Whatever the daemon wants: nothing is written here.
        while let Ok(Some(_)) = connection.receive::<ToCollector>(Duration::ZERO) {}
        let due = (begun.elapsed().as_secs_f64() * steps_a_second) as u64;
        let steps: Vec<StepReport> = (told..due)
            .map(|number| StepReport {
                number,
                start_ns: now().0,
                duration_ns: step_ns,
                communication_ns: Some(step_ns / 4),
                ..StepReport::default()
            })
            .collect();
        told = due;
        let totals = || Totals {
            rank: Some(number),
            enqueued: due * 40,
            finished: Some(due * 40),
            ..Totals::default()
        };
        for steps in steps.chunks(STEPS_A_PACKET) {
            let report = FromCollector::Report {
                steps: steps.to_vec(),
                totals: totals(),
            };
            connection.send(&report, None).expect("sent");
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    connection.send(&FromCollector::Leave, None).expect("sent");
    told
}

/// CPU time in seconds, and the most memory in KiB.
fn cost(pid: u32) -> (f64, u64) {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs");
    let fields: Vec<&str> = stat
        .rsplit(')')
        .next()
        .expect("fields")
        .split_whitespace()
        .collect();
    let ticks: f64 = fields[11].parse::<f64>().expect("ticks") + fields[12].parse::<f64>().expect("ticks");
    // SAFETY: plain.
    let a_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as f64;
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM:"))
        .expect("its memory");
    let kib = line
        .split_whitespace()
        .nth(1)
        .and_then(|kib| kib.parse().ok())
        .expect("its memory");
    (ticks / a_second, kib)
}

fn main() {
    if let Some(place) = std::env::args()
        .skip_while(|argument| argument != "--daemon")
        .nth(1)
    {
        return daemon(&PathBuf::from(place));
    }
    let processes = option("--processes", 8.0) as u32;
    let steps = option("--steps", 100.0);
    let seconds = option("--seconds", 10.0);
    let place = tempfile::tempdir().expect("a folder");
    let mut child = std::process::Command::new(std::env::current_exe().expect("this program"))
        .arg("--daemon")
        .arg(place.path())
        .stdin(std::process::Stdio::piped())
        .spawn()
        .expect("a daemon");
    let socket = place.path().join("daemon.sock");
    let begun = Instant::now();
    while Connection::connect(&socket).is_err() {
        assert!(begun.elapsed() < Duration::from_secs(10), "no daemon");
        std::thread::sleep(Duration::from_millis(10));
    }
    let (before, _) = cost(child.id());
    let begun = Instant::now();
    let until = begun + Duration::from_secs_f64(seconds);
    let told: Vec<u64> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..processes)
            .map(|number| {
                let socket = &socket;
                scope.spawn(move || process(socket, number, steps, until))
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("a process"))
            .collect()
    });
    let took = begun.elapsed().as_secs_f64();
    let (after, kib) = cost(child.id());
    // Each step is one of all ranks; those that not all told of wait a moment for the others.
    let least = told.iter().copied().min().unwrap_or(0);
    let until = Instant::now() + Duration::from_secs(5);
    let mut counted = counted_by(&socket);
    while counted < least && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(50));
        counted = counted_by(&socket);
    }
    drop(child.stdin.take());
    child.wait().expect("ended");
    let share = (after - before) / took;
    println!(
        "{processes} processes at {steps} steps/s for {took:.1} s: {least} steps told by each, {counted} counted; \
         daemon: {:.2} % of a core, {:.1} MiB at most",
        share * 100.0,
        kib as f64 / 1024.0
    );
    if counted < least {
        eprintln!("{} steps are missing", least - counted);
    }
    if share > MOST_SHARE || kib > MOST_KIB || counted < least {
        std::process::exit(1);
    }
}

/// The job's steps, as the daemon has them.
fn counted_by(socket: &Path) -> u64 {
    let connection = Connection::connect(socket).expect("connected");
    connection.send(&Hello::Client(Ask::Jobs), None).expect("sent");
    let mut text = String::new();
    while let Ok(Some((Answer::Text { text: part, .. }, _))) =
        connection.receive::<Answer>(Duration::from_secs(5))
    {
        text.push_str(&part);
    }
    let jobs: serde_json::Value = serde_json::from_str(&text).expect("jobs");
    jobs["jobs"][0]["steps"].as_u64().unwrap_or(0)
}
