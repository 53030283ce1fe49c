//! Starting ranks: this process is one, or starts a process for each and looks after them.

use std::ffi::OsString;
use std::net::TcpListener;
use std::os::fd::AsRawFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::devices;
use crate::error::Error;
pub(crate) use crate::rank::Rank;
use crate::rank::{LISTENER, RUN, STORE_PORT};
use crate::store::{Store, host_name};

/// Ranks that are asked to end have so long before they are killed.
const PATIENCE: Duration = Duration::from_secs(5);
/// The status of a program that ended with an error of ours, which is one line on stderr.
const TOLD: i32 = 2;
/// How often the launcher looks at its ranks.
const POLL: Duration = Duration::from_millis(10);

/// How ranks are started.
#[derive(Debug, Clone, Default)]
pub struct Launch {
    /// The program and its first arguments; the workload's name and options are appended.
    pub program: Vec<OsString>,
    /// Variables that the ranks get.
    pub env: Vec<(OsString, OsString)>,
}

/// What a workload is to be started with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// Processes, a rank each.
    pub(crate) ranks: u32,
    /// Whether somebody asked for just so many; else whoever starts ranks decides.
    pub(crate) are_asked_for: bool,
    /// Whether ranks may share GPUs.
    pub(crate) share_gpus: bool,
}

/// Runs `body` as the rank that this process is, or starts the ranks with `arguments` as processes of their own.
/// Gives the exit status.
pub(crate) fn run(
    launch: &Launch,
    arguments: &[OsString],
    wanted: Wanted,
    body: impl FnOnce(&Rank, &Store) -> Result<i32, Error>,
) -> Result<i32, Error> {
    if devices::is_asked_for_count() {
        return devices::answer_count();
    }
    let told = Rank::from_environment(&|name| std::env::var(name).ok())?;
    let rank = match decide(told, wanted)? {
        Role::Rank(rank) => rank,
        Role::Launcher { ranks } => return start_ranks(launch, arguments, ranks, wanted.share_gpus),
    };
    if wanted.share_gpus {
        devices::prepare_sharing(launch, &rank)?;
    }
    let outcome = Store::join(&rank).and_then(|store| {
        let outcome = devices::check(&rank, &store, wanted.share_gpus).and_then(|()| body(&rank, &store));
        store.leave(outcome)
    });
    // Which rank it was matters: every rank writes to the same terminal.
    outcome.map_err(|error| Error::new(format!("rank {}: {error}", rank.rank)))
}

/// What this process is.
#[derive(Debug, PartialEq, Eq)]
enum Role {
    Rank(Rank),
    Launcher { ranks: u32 },
}

fn decide(told: Option<Rank>, wanted: Wanted) -> Result<Role, Error> {
    let ranks = wanted.ranks;
    match told {
        None => Ok(Role::Launcher { ranks }),
        Some(rank) if ranks == rank.ranks || !wanted.are_asked_for => Ok(Role::Rank(rank)),
        // A job with one task, which starts the ranks itself.
        Some(rank) if rank.ranks == 1 && !rank.launched => Ok(Role::Launcher { ranks }),
        Some(rank) => Err(Error::new(format!(
            "--ranks {ranks}: this process was started as rank {} of {} already: leave --ranks out, or start {ranks}",
            rank.rank, rank.ranks
        ))),
    }
}

/// The last signal that asked the launcher to end (0 for none), and how many did.
static SIGNAL: AtomicI32 = AtomicI32::new(0);
static SIGNALS: AtomicU32 = AtomicU32::new(0);

extern "C" fn note_signal(signal: libc::c_int) {
    SIGNAL.store(signal, Ordering::Relaxed);
    SIGNALS.fetch_add(1, Ordering::Relaxed);
}

/// Starts `ranks` processes and waits for all. The first that fails ends the others; its status is the result.
fn start_ranks(launch: &Launch, arguments: &[OsString], ranks: u32, share_gpus: bool) -> Result<i32, Error> {
    if ranks > 1
        && !share_gpus
        && let Some(count) = devices::count(launch)
    {
        devices::enough(ranks, count, &host_name())?;
    }
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        let handler: extern "C" fn(libc::c_int) = note_signal;
        // SAFETY: the handler only stores to atomics, which is allowed in a signal handler.
        let before = unsafe { libc::signal(signal, handler as libc::sighandler_t) };
        if before == libc::SIG_IGN {
            // Ignored before (nohup): it stays so, for the ranks too.
            // SAFETY: restores the disposition.
            unsafe { libc::signal(signal, libc::SIG_IGN) };
        }
    }
    let (program, first_arguments) = launch
        .program
        .split_first()
        .ok_or_else(|| Error::new("no program to start the ranks with"))?;
    // Rank 0 inherits it: nobody else can take the port meanwhile.
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let port = listener.local_addr()?.port();
    let run = name_of_run()?;
    let mut running = Running::default();
    for rank in 0..ranks {
        let mut command = Command::new(program);
        command
            .args(first_arguments)
            .args(arguments)
            .envs(launch.env.iter().cloned());
        for (name, value) in [
            ("RANK", rank),
            ("LOCAL_RANK", rank),
            ("GROUP_RANK", 0),
            ("WORLD_SIZE", ranks),
            ("LOCAL_WORLD_SIZE", ranks),
            ("GROUP_WORLD_SIZE", 1),
        ] {
            command.env(name, value.to_string());
        }
        command
            .env("MASTER_ADDR", "127.0.0.1")
            .env(STORE_PORT, port.to_string())
            .env(RUN, &run)
            .env_remove(LISTENER);
        if rank == 0 {
            command.env(LISTENER, listener.as_raw_fd().to_string());
            inherit(&mut command, listener.as_raw_fd());
        }
        die_with_parent(&mut command);
        match command.spawn() {
            Ok(child) => running.0.push((rank, child)),
            Err(error) => {
                running.kill();
                return Err(Error::new(format!("rank {rank} cannot be started: {error}")));
            }
        }
    }
    drop(listener);
    running.look_after()
}

/// The ranks that have not ended yet. Dropped, they are killed.
#[derive(Default)]
struct Running(Vec<(u32, Child)>);

impl Running {
    /// Waits for all; passes signals on, and ends all when one fails.
    fn look_after(mut self) -> Result<i32, Error> {
        let mut result = 0;
        let mut signals_seen = 0;
        let mut kill_at: Option<Instant> = None;
        while !self.0.is_empty() {
            for (rank, pid, status) in self.ended()? {
                let status_number = shell_status(status);
                if status_number == 0 || result != 0 {
                    continue;
                }
                result = status_number;
                let others = if self.0.is_empty() {
                    ""
                } else {
                    ": ending the others"
                };
                // A rank that ends with an error has told it.
                if status.code() != Some(TOLD) {
                    eprintln!(
                        "rank {rank} (pid {pid} on host {}) {}{others}",
                        host_name(),
                        ending(status)
                    );
                }
                self.signal(libc::SIGTERM);
                kill_at = Some(Instant::now() + PATIENCE);
            }
            let signals = SIGNALS.load(Ordering::Relaxed);
            if signals != signals_seen {
                let signal = SIGNAL.load(Ordering::Relaxed);
                // Their ends are what was asked for.
                result = if result == 0 { 128 + signal } else { result };
                self.signal(signal);
                // Who asks twice does not want to wait.
                kill_at = Some(
                    Instant::now()
                        + if signals_seen == 0 {
                            PATIENCE
                        } else {
                            Duration::ZERO
                        },
                );
                signals_seen = signals;
            }
            if kill_at.is_some_and(|time| Instant::now() >= time) {
                self.kill();
                kill_at = None;
            }
            std::thread::sleep(POLL);
        }
        Ok(result)
    }

    /// Takes out those that have ended.
    fn ended(&mut self) -> Result<Vec<(u32, u32, ExitStatus)>, Error> {
        let mut ended = Vec::new();
        let mut running = Vec::new();
        for (rank, mut child) in self.0.drain(..) {
            match child.try_wait()? {
                None => running.push((rank, child)),
                Some(status) => ended.push((rank, child.id(), status)),
            }
        }
        self.0 = running;
        Ok(ended)
    }

    fn signal(&self, signal: i32) {
        for (_, child) in &self.0 {
            // SAFETY: sends a signal to a child that was not waited for yet, so its pid is still its own.
            unsafe { libc::kill(child.id().cast_signed(), signal) };
        }
    }

    fn kill(&self) {
        self.signal(libc::SIGKILL);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A name that no other run has.
fn name_of_run() -> Result<String, Error> {
    let mut bytes = [0u8; 16];
    // SAFETY: fills the buffer of the length that is said. glibc has it as a function from 2.25 on.
    let filled = unsafe { libc::syscall(libc::SYS_getrandom, bytes.as_mut_ptr(), bytes.len(), 0) };
    if filled != bytes.len() as libc::c_long {
        return Err(std::io::Error::last_os_error().into());
    }
    Ok(format!("{:032x}", u128::from_le_bytes(bytes)))
}

/// The child keeps this descriptor.
fn inherit(command: &mut Command, descriptor: i32) {
    let keep = move || {
        // SAFETY: a system call with plain integers, allowed between fork and exec.
        if unsafe { libc::fcntl(descriptor, libc::F_SETFD, 0) } == 0 {
            Ok(())
        } else {
            Err(std::io::Error::last_os_error())
        }
    };
    // SAFETY: the closure makes a system call only.
    unsafe { command.pre_exec(keep) };
}

/// The child is killed when this process dies, however it dies.
fn die_with_parent(command: &mut Command) {
    let parent = std::process::id();
    let tie = move || {
        // SAFETY: system calls with plain integers, allowed between fork and exec.
        unsafe {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            // If the parent died before that, nobody would tell us any more.
            if libc::getppid().cast_unsigned() != parent {
                libc::_exit(1);
            }
        }
        Ok(())
    };
    // SAFETY: the closure makes system calls only.
    unsafe { command.pre_exec(tie) };
}

fn shell_status(status: ExitStatus) -> i32 {
    status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

/// How a rank ended, in words.
fn ending(status: ExitStatus) -> String {
    let Some(signal) = status.signal() else {
        return format!("ended with status {}", shell_status(status));
    };
    let name = match signal {
        libc::SIGKILL => " (SIGKILL: by hand, or for lack of memory)",
        libc::SIGSEGV => " (SIGSEGV)",
        libc::SIGABRT => " (SIGABRT)",
        libc::SIGBUS => " (SIGBUS)",
        libc::SIGTERM => " (SIGTERM)",
        _ => "",
    };
    format!("was killed by signal {signal}{name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(rank: u32, ranks: u32) -> Option<Rank> {
        Rank::from_environment(&|name| match name {
            "RANK" => Some(rank.to_string()),
            "WORLD_SIZE" => Some(ranks.to_string()),
            _ => None,
        })
        .expect("no error")
    }

    /// With 2 ranks where nobody says.
    fn wanted(ranks: Option<u32>) -> Wanted {
        Wanted {
            ranks: ranks.unwrap_or(2),
            are_asked_for: ranks.is_some(),
            share_gpus: true,
        }
    }

    fn decided(told: Option<Rank>, ranks: Option<u32>) -> Result<Option<u32>, String> {
        match decide(told, wanted(ranks)) {
            Ok(Role::Launcher { ranks }) => Ok(Some(ranks)),
            Ok(Role::Rank(_)) => Ok(None),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn a_process_is_a_rank_or_starts_them() {
        assert_eq!(decided(None, None), Ok(Some(2)));
        assert_eq!(decided(None, Some(4)), Ok(Some(4)));
        assert_eq!(decided(told(0, 4), None), Ok(None));
        assert_eq!(decided(told(0, 4), Some(4)), Ok(None));
        assert_eq!(decided(told(0, 1), None), Ok(None));
        assert_eq!(decided(told(0, 1), Some(4)), Ok(Some(4)));
        let error = decided(told(1, 2), Some(4)).expect_err("they contradict");
        assert!(error.contains("rank 1 of 2 already"), "{error}");
    }

    /// Starts ranks that are shell scripts.
    fn start(script: &str, ranks: u32) -> i32 {
        let launch = Launch {
            program: ["sh", "-c", script].map(OsString::from).to_vec(),
            env: Vec::new(),
        };
        start_ranks(&launch, &[], ranks, true).expect("they start")
    }

    #[test]
    fn a_rank_that_fails_ends_the_others() {
        let started = Instant::now();
        assert_eq!(
            start("if [ $RANK = 1 ]; then exit 5; else exec sleep 60; fi", 3),
            5
        );
        assert!(started.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn a_rank_that_does_not_listen_is_killed() {
        let started = Instant::now();
        let script =
            "trap '' TERM; if [ $RANK = 1 ]; then sleep 0.2; kill -9 $$; fi; while :; do sleep 0.1; done";
        assert_eq!(start(script, 2), 128 + 9);
        assert!(started.elapsed() >= PATIENCE, "it got its time");
        assert!(started.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn ranks_are_told_who_they_are() {
        let script = "[ \"$LOCAL_RANK/$LOCAL_WORLD_SIZE/$GROUP_RANK\" = \"$RANK/3/0\" ] || exit 7; \
                      [ -n \"$WORKLOAD_RUN\" ] || exit 8; \
                      if [ $RANK = 0 ]; then [ -e /proc/self/fd/$WORKLOAD_STORE_LISTENER ] || exit 9; \
                      else [ -z \"$WORKLOAD_STORE_LISTENER\" ] || exit 10; fi";
        assert_eq!(start(script, 3), 0);
    }
}
