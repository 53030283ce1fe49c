//! Ranks as processes: who this process is, and starting one process a rank.

use std::ffi::OsString;
use std::net::TcpListener;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

use crate::error::Error;

/// How ranks are started.
#[derive(Debug, Clone, Default)]
pub struct Launch {
    /// The program and its first arguments; the workload's name and options are appended.
    pub program: Vec<OsString>,
    /// Variables that the ranks get.
    pub env: Vec<(OsString, OsString)>,
}

/// The port of rank 0's store, as our launcher tells it.
const STORE_PORT: &str = "WORKLOAD_STORE_PORT";
/// The socket that rank 0 listens on, which it inherits from our launcher.
pub(crate) const LISTENER: &str = "WORKLOAD_STORE_LISTENER";
/// Which run a rank belongs to, where our launcher started it.
const RUN: &str = "WORKLOAD_RUN";

/// Who a process is among the ranks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rank {
    pub(crate) rank: u32,
    pub(crate) ranks: u32,
    pub(crate) local_rank: u32,
    /// Ranks on this host.
    pub(crate) local_ranks: u32,
    /// Which host this is, and how many there are.
    pub(crate) node: u32,
    pub(crate) nodes: u32,
    /// Where rank 0 listens for the others.
    pub(crate) host: String,
    pub(crate) port: u16,
    /// Which run this is, as far as whoever started it tells; empty when nothing does.
    pub(crate) run: String,
    /// The socket that rank 0 listens on, where it inherits one.
    pub(crate) listener: Option<i32>,
    /// Whether our launcher started it, and tells of ranks that die.
    pub(crate) launched: bool,
    /// Whether what all ranks write comes to one place, on whatever host they are.
    pub(crate) outputs_joined: bool,
}

impl Rank {
    /// From the variables of torchrun, Open MPI or Slurm; `None` where there are none.
    pub(crate) fn from_environment(variable: &dyn Fn(&str) -> Option<String>) -> Option<Self> {
        let number = |names: [&str; 3]| names.iter().find_map(|name| variable(name)?.parse::<u32>().ok());
        let rank = number(["RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"])?;
        let ranks = number(["WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS"])?;
        let local_rank =
            number(["LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID"]).unwrap_or(rank);
        let host = variable("MASTER_ADDR").unwrap_or_else(|| "127.0.0.1".to_owned());
        // MASTER_PORT itself is taken by torchrun.
        let port = variable(STORE_PORT)
            .and_then(|port| port.parse().ok())
            .or_else(|| variable("MASTER_PORT")?.parse::<u16>().ok()?.checked_add(1))
            .unwrap_or(29_501);
        let local_ranks = number([
            "LOCAL_WORLD_SIZE",
            "OMPI_COMM_WORLD_LOCAL_SIZE",
            "SLURM_NTASKS_PER_NODE",
        ])
        .filter(|local| *local > 0)
        .unwrap_or(ranks);
        let run = variable(RUN);
        Some(Self {
            rank,
            ranks,
            local_rank,
            local_ranks,
            node: rank / local_ranks,
            nodes: ranks.div_ceil(local_ranks),
            host,
            port,
            launched: run.is_some(),
            run: run.unwrap_or_default(),
            listener: variable(LISTENER).and_then(|descriptor| descriptor.parse().ok()),
            outputs_joined: false,
        })
    }
}

/// Starts `ranks` processes and waits for all. The first that fails ends the others; its status is the result.
pub(crate) fn start_ranks(launch: &Launch, arguments: &[OsString], ranks: u32) -> Result<i32, Error> {
    let (program, first_arguments) = launch
        .program
        .split_first()
        .ok_or_else(|| Error::new("no program to start the ranks with"))?;
    let port = free_port()?;
    let mut running: Vec<(u32, Child)> = Vec::new();
    for rank in 0..ranks {
        let mut command = Command::new(program);
        command
            .args(first_arguments)
            .args(arguments)
            .envs(launch.env.iter().cloned());
        for (name, value) in [
            ("RANK", rank),
            ("LOCAL_RANK", rank),
            ("WORLD_SIZE", ranks),
            ("LOCAL_WORLD_SIZE", ranks),
        ] {
            command.env(name, value.to_string());
        }
        command
            .env("MASTER_ADDR", "127.0.0.1")
            .env(STORE_PORT, port.to_string());
        die_with_parent(&mut command);
        match command.spawn() {
            Ok(child) => running.push((rank, child)),
            Err(error) => {
                end(&mut running);
                return Err(Error::new(format!("rank {rank} cannot be started: {error}")));
            }
        }
    }
    let mut result = 0;
    while !running.is_empty() {
        let mut failed = None;
        let mut still_running = Vec::new();
        for (rank, mut child) in running {
            match child.try_wait()? {
                None => still_running.push((rank, child)),
                Some(status) if status.success() => {}
                Some(status) => {
                    failed.get_or_insert((rank, status));
                }
            }
        }
        running = still_running;
        if let Some((rank, status)) = failed
            && result == 0
        {
            result = shell_status(status);
            eprintln!("rank {rank} of {ranks} ended with status {result}: ending the others");
            end(&mut running);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(result)
}

/// A port that is free now.
fn free_port() -> Result<u16, Error> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
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

fn end(running: &mut [(u32, Child)]) {
    for (_, child) in running {
        // One that has ended meanwhile is as good as killed.
        drop(child.kill());
    }
}

fn shell_status(status: ExitStatus) -> i32 {
    status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rank_of(pairs: &'static [(&'static str, &'static str)]) -> Option<Rank> {
        Rank::from_environment(&|name| {
            pairs
                .iter()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn torchrun_says_who_we_are() {
        let rank = rank_of(&[
            ("RANK", "3"),
            ("WORLD_SIZE", "8"),
            ("LOCAL_RANK", "1"),
            ("MASTER_PORT", "29500"),
        ]);
        let rank = rank.expect("a rank");
        assert_eq!(
            (rank.rank, rank.ranks, rank.local_rank, rank.port),
            (3, 8, 1, 29_501)
        );
    }

    #[test]
    fn without_variables_there_is_no_rank() {
        assert_eq!(rank_of(&[("RANK", "3")]), None);
    }

    #[test]
    fn a_rank_that_fails_ends_the_others() {
        let script = "if [ $RANK = 1 ]; then exit 5; else sleep 60; fi";
        let launch = Launch {
            program: ["sh", "-c", script].map(OsString::from).to_vec(),
            env: Vec::new(),
        };
        let started = std::time::Instant::now();
        assert_eq!(start_ranks(&launch, &[], 3).ok(), Some(5));
        assert!(started.elapsed() < Duration::from_secs(30));
    }
}
