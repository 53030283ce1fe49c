//! What being watched costs a job: its CPU time with a daemon and without, before anything befalls anybody.

use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;

use gputrace_trace::daemon::Ask;

use crate::daemon::Daemon;
use crate::jobs::{collector, workload};

/// Jobs of each kind, in turns.
const PAIRS: usize = 4;
const STEPS: u64 = 300;

/// CPU seconds of jobs, of those steps each.
pub struct Cost {
    alone: Vec<f64>,
    watched: Vec<f64>,
    /// Of the watched ones, the collector's own threads.
    collector: Vec<f64>,
}

fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Waits for a process, and gives the CPU seconds of it and of all that it has waited for.
fn cpu_of(child: &Child) -> f64 {
    let pid = libc::pid_t::try_from(child.id()).expect("a number");
    let mut status = 0;
    // SAFETY: plain numbers, for which zero is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: a child of ours that nobody else waits for, and places that are valid for the results.
    let ended = unsafe { libc::wait4(pid, &raw mut status, 0, &raw mut usage) };
    assert_eq!(ended, pid);
    assert_eq!(status, 0, "it ended badly");
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

fn quiet(command: &mut Command) -> Child {
    let command = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.spawn().expect("the program starts")
}

/// Runs jobs in turns, watched and not.
pub fn measure(daemon: &Daemon) -> Cost {
    let mut cost = Cost {
        alone: Vec::new(),
        watched: Vec::new(),
        collector: Vec::new(),
    };
    for _ in 0..PAIRS {
        let mut command = workload(0, STEPS);
        cost.alone
            .push(cpu_of(&quiet(command.env("GPUTRACE_SOCKET", ""))));
        let number = daemon.jobs_begun.fetch_add(1, Ordering::SeqCst);
        let mut command = workload(0, STEPS);
        command.env("GPUTRACE_SOCKET", &daemon.socket);
        command.env("CUDA_INJECTION64_PATH", collector());
        command
            .env("SLURM_JOB_ID", number.to_string())
            .env("SLURM_STEP_ID", "0");
        cost.watched.push(cpu_of(&quiet(&mut command)));
        let job = daemon.ask(Ask::Job {
            job: Some(format!("slurm-{number}")),
        });
        let own: i64 = job
            .iter()
            .flat_map(|job| job["processes"].as_array().into_iter().flatten())
            .filter_map(|process| process["cpu_ns"].as_i64())
            .sum();
        cost.collector.push(own as f64 / 1e9);
    }
    cost
}

impl Cost {
    /// Prints it.
    pub fn print(&self) {
        let (alone, watched, own) = (
            median(&self.alone),
            median(&self.watched),
            median(&self.collector),
        );
        let all = 2.0 * STEPS as f64;
        let spread = |values: &[f64]| {
            let most = values.iter().copied().fold(f64::MIN, f64::max);
            let least = values.iter().copied().fold(f64::MAX, f64::min);
            format!("{least:.2}-{most:.2}")
        };
        eprintln!(
            "a job of 2 ranks and {STEPS} steps: {alone:.2} s of CPU alone ({}), {watched:.2} s watched ({}), of which {own:.2} s are the \
             collector's threads; its own threads pay {:.0} us a step and rank, {:.1} %",
            spread(&self.alone),
            spread(&self.watched),
            1e6 * (watched - own - alone) / all,
            100.0 * (watched - own - alone) / alone
        );
    }
}
