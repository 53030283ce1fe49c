//! The daemon: started, killed, suspended, asked, and what it costs.

use std::fs::{self, File, OpenOptions, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use gputrace_trace::daemon::{Answer, Ask, Connection, Hello};
use serde_json::Value;

use crate::jobs::{Live, OTHER};
use crate::ledger::{Ledger, Tried};

/// A daemon that lives answers within this, on a machine that has much to do.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// The disk's size where it is one of our own.
const DISK: &str = "size=192m";
/// Rings and captures of few MiB, so that all of it happens within minutes.
const CONFIG: &str =
    "[ring]\nseconds = 10\nmib = 4\n[keep]\nended_minutes = 2\nmib = 48\nmib_of_user = 40\nfree_mib = 16\n";

/// A process that is the daemon now, and what it has used.
struct Process {
    child: Child,
    since: Instant,
}

/// See the module's text.
pub struct Daemon {
    pub place: PathBuf,
    pub socket: PathBuf,
    pub state: PathBuf,
    pub is_root: bool,
    /// Whether other users can run the program.
    pub has_others: bool,
    /// Whether its disk is one of our own, so that it may be full.
    pub has_disk: bool,
    process: Mutex<Option<Process>>,
    /// Jobs that run now.
    pub live: Mutex<Vec<Live>>,
    /// How often it was killed, began or stood still: what a job told it then is counted as missed.
    pub disturbed: AtomicU64,
    pub jobs_run: AtomicU64,
    /// The next job's number.
    pub jobs_begun: AtomicU64,
    /// CPU seconds and seconds of daemons that are over, and the most memory of any, KiB.
    used: Mutex<(f64, f64, u64)>,
}

fn own<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The program: DAEMON_SOAK_PROGRAM, a copy that nobody builds anew meanwhile, or the one that was built with us.
pub fn program() -> PathBuf {
    std::env::var_os("DAEMON_SOAK_PROGRAM")
        .map_or_else(|| env!("CARGO_BIN_EXE_gputrace").into(), PathBuf::from)
}

/// The program, without variables that change what it does.
pub fn gputrace() -> Command {
    let mut command = Command::new(program());
    for (key, _) in std::env::vars_os() {
        let name = key.to_string_lossy();
        if ["SIMGPU_", "GPUTRACE_", "NCCL_", "CUDA_", "NVTX_", "XDG_"]
            .iter()
            .any(|prefix| name.starts_with(prefix))
        {
            command.env_remove(key);
        }
    }
    command
}

impl Daemon {
    /// Starts one: the machine's, for all users, where we are root; else our own.
    pub fn new(place: &Path, ledger: &Ledger) -> Self {
        fs::set_permissions(place, Permissions::from_mode(0o755)).expect("opened");
        // SAFETY: always succeeds.
        let is_root = unsafe { libc::geteuid() } == 0;
        let state = place.join("state");
        fs::create_dir(&state).expect("made");
        fs::set_permissions(&state, Permissions::from_mode(0o700)).expect("closed");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", DISK, "gputrace-soak"])
            .arg(&state)
            .stderr(Stdio::null())
            .status();
        let has_disk = is_root && mounted.is_ok_and(|status| status.success());
        if has_disk {
            fs::set_permissions(&state, Permissions::from_mode(0o700)).expect("closed");
        } else {
            eprintln!("daemon soak: no disk of our own here (mount -t tmpfs), so it is never full");
        }
        // Where the program lies in a folder of root's alone nobody else can run it.
        let tried = gputrace()
            .arg("--version")
            .uid(OTHER)
            .gid(OTHER)
            .current_dir("/")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        let has_others = is_root && tried.is_ok_and(|status| status.success());
        if !has_others {
            eprintln!("daemon soak: no other user can run the program here, so that all is of one user");
        }
        fs::write(place.join("daemon.toml"), CONFIG).expect("written");
        let daemon = Self {
            place: place.to_owned(),
            socket: place.join("daemon.sock"),
            state,
            is_root,
            has_others,
            has_disk,
            process: Mutex::default(),
            live: Mutex::default(),
            disturbed: AtomicU64::new(0),
            jobs_run: AtomicU64::new(0),
            jobs_begun: AtomicU64::new(1000),
            used: Mutex::default(),
        };
        ledger.count("daemon starts", daemon.start().map(|()| true));
        daemon
    }

    fn log(&self) -> File {
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.place.join("daemon.log"));
        file.expect("a file")
    }

    /// Starts one, and waits until it answers.
    pub fn start(&self) -> Result<(), String> {
        // A job that began while there was none has been disturbed as well.
        self.disturbed.fetch_add(1, Ordering::SeqCst);
        let mut command = gputrace();
        command
            .args(["daemon", "--socket"])
            .arg(&self.socket)
            .arg("--state")
            .arg(&self.state);
        command.arg("--config").arg(self.place.join("daemon.toml"));
        if !self.is_root {
            command.arg("--user");
        }
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(self.log())
            .spawn();
        let child = child.map_err(|error| format!("the daemon does not start: {error}"))?;
        *own(&self.process) = Some(Process {
            child,
            since: Instant::now(),
        });
        self.answers().map(drop)
    }

    /// Its number.
    pub fn pid(&self) -> Option<libc::pid_t> {
        let process = own(&self.process);
        process
            .as_ref()
            .and_then(|process| libc::pid_t::try_from(process.child.id()).ok())
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: i32) {
        self.disturbed.fetch_add(1, Ordering::SeqCst);
        if let Some(pid) = self.pid() {
            // SAFETY: a child of ours that was not waited for.
            unsafe { libc::kill(pid, signal) };
        }
    }

    /// Ends it by this signal, and waits until it is over.
    pub fn stop(&self, signal: i32) -> Result<(), String> {
        self.note_use();
        // Taken first: `watch` reports whatever ends while it is in there.
        let process = own(&self.process).take();
        let Some(mut process) = process else { return Ok(()) };
        self.disturbed.fetch_add(1, Ordering::SeqCst);
        let pid = libc::pid_t::try_from(process.child.id()).expect("a number");
        // SAFETY: a child of ours that was not waited for.
        unsafe { libc::kill(pid, signal) };
        let until = Instant::now() + PATIENCE;
        let status = loop {
            match process.child.try_wait() {
                Ok(Some(status)) => break Ok(status),
                Ok(None) if Instant::now() < until => std::thread::sleep(Duration::from_millis(20)),
                _ => break Err("the daemon does not end".to_owned()),
            }
        };
        if let Err(why) = &status {
            drop(process.child.kill());
            drop(process.child.wait());
            return Err(why.clone());
        }
        match (signal, status.map(|status| status.code())) {
            (libc::SIGTERM, Ok(code)) if code != Some(0) => Err(format!("the daemon ended with {code:?}")),
            _ => Ok(()),
        }
    }

    /// Adds what the daemon has used to the sums, before it is gone.
    fn note_use(&self) {
        let (Some(pid), since) = (
            self.pid(),
            own(&self.process).as_ref().map(|process| process.since),
        ) else {
            return;
        };
        if let Some((cpu_s, peak_kib)) = used(pid) {
            let mut used = own(&self.used);
            used.0 += cpu_s;
            used.1 += since.map_or(0.0, |since| since.elapsed().as_secs_f64());
            used.2 = used.2.max(peak_kib);
        }
    }

    /// Looks at its memory, and whether it lives though nobody has killed it.
    pub fn watch(&self, ledger: &Ledger, until: Instant) {
        while Instant::now() < until {
            std::thread::sleep(Duration::from_millis(500));
            if let Some((_, peak_kib)) = self.pid().and_then(used) {
                let mut used = own(&self.used);
                used.2 = used.2.max(peak_kib);
            }
            let mut process = own(&self.process);
            if let Some(process) = process.as_mut()
                && let Ok(Some(status)) = process.child.try_wait()
            {
                let last = fs::read_to_string(self.place.join("daemon.log")).unwrap_or_default();
                let last: Vec<&str> = last.lines().rev().take(5).collect();
                ledger.count(
                    "daemon lives",
                    Err(format!("it ended by itself: {status}: {last:?}")),
                );
                return;
            }
        }
    }

    /// Asks it, as the user that we are. One that is killed in the middle of its answer is asked again when it is back.
    pub fn ask(&self, ask: Ask) -> Result<Value, String> {
        let until = Instant::now() + PATIENCE;
        let hello = Hello::Client(ask);
        loop {
            let disturbed = self.disturbed.load(Ordering::SeqCst);
            let answer = self.ask_once(&hello);
            let is_away = own(&self.process).is_none();
            let was_disturbed = is_away || self.disturbed.load(Ordering::SeqCst) != disturbed;
            if answer.is_ok() || !was_disturbed || Instant::now() > until {
                return answer;
            }
        }
    }

    fn ask_once(&self, hello: &Hello) -> Result<Value, String> {
        let connection = self.connect()?;
        connection
            .send(hello, None)
            .map_err(|error| format!("the daemon can't be asked: {error}"))?;
        let until = Instant::now() + PATIENCE;
        let mut whole = String::new();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match connection.receive::<Answer>(left) {
                Ok(Some((Answer::Text { text, .. }, _))) => whole.push_str(&text),
                Ok(Some((Answer::Done, _))) => break,
                Ok(Some((Answer::Failed { why }, _))) => return Err(format!("refused: {why}")),
                Ok(Some((Answer::File { .. }, _))) => return Err("a file".to_owned()),
                Ok(None) => return Err("the daemon does not answer".to_owned()),
                Err(error) => return Err(format!("the daemon's answer: {error}")),
            }
        }
        serde_json::from_str(&whole).map_err(|error| format!("the daemon's answer: {error}"))
    }

    /// Calls it, as soon as it is there.
    pub fn connect(&self) -> Result<Connection, String> {
        let until = Instant::now() + PATIENCE;
        loop {
            match Connection::connect(&self.socket) {
                Ok(connection) => return Ok(connection),
                Err(error) if Instant::now() > until => return Err(format!("nobody listens: {error}")),
                Err(_) => std::thread::sleep(Duration::from_millis(10)),
            }
        }
    }

    /// Whether it lives, and answers.
    pub fn answers(&self) -> Tried {
        let jobs = self.ask(Ask::Jobs)?;
        match jobs["schema"] == "gputrace.jobs/1" {
            true => Ok(true),
            false => Err(format!("an odd answer: {jobs}")),
        }
    }

    /// How many processes it has refused.
    pub fn refused(&self) -> u64 {
        self.ask(Ask::Jobs)
            .ok()
            .and_then(|jobs| jobs["refused"].as_u64())
            .unwrap_or(0)
    }

    /// Ends it: CPU seconds of so many, the most memory in KiB, and the jobs that there were.
    pub fn end(&self, ledger: &Ledger) -> ((f64, f64), u64, u64) {
        ledger.count("daemon ends when told", self.stop(libc::SIGTERM).map(|()| true));
        let used = *own(&self.used);
        ((used.0, used.1), used.2, self.jobs_run.load(Ordering::SeqCst))
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Some(mut process) = own(&self.process).take() {
            drop(process.child.kill());
            drop(process.child.wait());
        }
        if self.has_disk {
            drop(Command::new("umount").arg("-l").arg(&self.state).status());
        }
    }
}

/// CPU seconds of a process, and the most memory it had, KiB.
fn used(pid: libc::pid_t) -> Option<(f64, u64)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<f64> = stat
        .rsplit(')')
        .next()?
        .split_whitespace()
        .map(|field| field.parse().unwrap_or(0.0))
        .collect();
    // SAFETY: a plain question.
    let a_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as f64;
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    let peak_kib = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(((fields.get(11)? + fields.get(12)?) / a_second, peak_kib))
}
