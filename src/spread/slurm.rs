//! Workers that are tasks of Slurm's job arrays, by its own commands.
//!
//! `sbatch`, `squeue`, `scancel` and nothing else: `sacct` has an answer only where a database was set up. What we are not asked for
//! (account, memory, time limit) is taken from Slurm's own variables, `SBATCH_ACCOUNT` and so on.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use super::launch::{Launch, last_line};
use super::schedule::{Engine, Event};
use super::task::Task;
use crate::failure::Failure;

/// Slurm's own limit of an array is 1,001 unless it was set.
const MOST_IN_ARRAY: usize = 500;
/// Attempts that wait or run.
const MOST: usize = 1000;
/// How often the queue is looked at.
const PERIOD: Duration = Duration::from_secs(1);
/// A task that was put back so often has lost as many nodes.
const MOST_RESTARTS: u32 = 3;
/// A job that was just submitted may not be listed yet.
const UNLISTED: Duration = Duration::from_secs(15);

/// State and restarts of tasks, by "job_task".
type Queue = BTreeMap<String, (String, u32)>;

struct Job {
    /// Slurm's "job_task".
    id: String,
    submitted: Instant,
    began: bool,
    restarts: u32,
    log: PathBuf,
}

/// Job arrays of one partition.
pub struct Slurm {
    launch: Launch,
    partition: Option<String>,
    jobs: BTreeMap<u64, Job>,
    looked: Option<Instant>,
    /// It was said that its controller does not answer.
    is_silent: bool,
}

fn output(command: &mut Command, input: &str) -> Result<Output, Failure> {
    let name = command.get_program().to_string_lossy().into_owned();
    let cannot = |error: std::io::Error| {
        Failure::new(format!(
            "{name}: cannot be started: {error}; --on slurm wants Slurm's commands here, as on a login node"
        ))
    };
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().map_err(cannot)?;
    if let Some(mut stdin) = child.stdin.take() {
        // One that does not read says why by its status.
        let _ = stdin.write_all(input.as_bytes());
    }
    child.wait_with_output().map_err(cannot)
}

/// A word for a shell.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

impl Slurm {
    /// Ends what an earlier driver of the same output has left, and takes over.
    pub fn new(launch: Launch, partition: Option<String>) -> Result<Self, Failure> {
        let slurm = Self {
            launch,
            partition,
            jobs: BTreeMap::new(),
            looked: None,
            is_silent: false,
        };
        slurm.cancel_all()?;
        Ok(slurm)
    }

    fn cancel_all(&self) -> Result<(), Failure> {
        let mut command = Command::new("scancel");
        command.args(["--quiet", "--me", "--name"]).arg(&self.launch.name);
        let done = output(&mut command, "")?;
        match done.status.success() {
            true => Ok(()),
            false => Err(said("scancel", &done)),
        }
    }

    /// Has an array of these attempts run, by one script on its standard input.
    fn submit(&mut self, attempts: &[(u64, &Task)]) -> Result<(), Failure> {
        let tasks = self.launch.write_tasks(attempts.iter().map(|(_, task)| *task))?;
        let logs = self.launch.work.join("%A_%a.log");
        let mut words = vec![quoted(&self.launch.program.display().to_string())];
        words.extend(
            Launch::arguments(&tasks, 0)
                .iter()
                .take(2)
                .map(|word| quoted(word)),
        );
        let script = format!("#!/bin/sh\nexec {} \"$SLURM_ARRAY_TASK_ID\"\n", words.join(" "));
        let mut command = Command::new("sbatch");
        command.args([
            "--parsable",
            "--requeue",
            "--open-mode=truncate",
            "--input=/dev/null",
        ]);
        command.args(["--ntasks=1", "--job-name"]).arg(&self.launch.name);
        command.arg(format!("--array=0-{}", attempts.len() - 1));
        command.arg("--chdir").arg(&self.launch.directory);
        command.arg("--output").arg(&logs);
        if let Some(partition) = &self.partition {
            command.arg("--partition").arg(partition);
        }
        let done = output(&mut command, &script)?;
        let text = String::from_utf8_lossy(&done.stdout).into_owned();
        // "JOB" or "JOB;CLUSTER".
        let job = text.trim().split(';').next().unwrap_or_default();
        if !done.status.success() || job.parse::<u64>().is_err() {
            return Err(said("sbatch", &done));
        }
        for (place, (number, _)) in attempts.iter().enumerate() {
            let id = format!("{job}_{place}");
            let log = self.launch.work.join(format!("{id}.log"));
            self.jobs.insert(
                *number,
                Job {
                    id,
                    submitted: Instant::now(),
                    began: false,
                    restarts: 0,
                    log,
                },
            );
        }
        Ok(())
    }

    /// State and restarts of all tasks of ours that Slurm still knows.
    fn queue(&mut self) -> Result<Option<Queue>, Failure> {
        let mut command = Command::new("squeue");
        command
            .args(["--noheader", "--array", "--me", "--states=all", "--name"])
            .arg(&self.launch.name);
        command.args(["--Format", "ArrayJobID:20,ArrayTaskID:12,State:20,RestartCnt:10"]);
        let done = output(&mut command, "")?;
        if !done.status.success() {
            // The controller may be busy, or about to come back: what runs, runs on.
            if !std::mem::replace(&mut self.is_silent, true) {
                anstream::eprintln!("{}; asking again every second", said("squeue", &done));
            }
            return Ok(None);
        }
        self.is_silent = false;
        let text = String::from_utf8_lossy(&done.stdout).into_owned();
        let lines = text.lines().filter_map(|line| {
            let mut words = line.split_whitespace();
            let (job, place) = (words.next()?, words.next()?);
            let state = words.next()?.to_owned();
            let restarts = words.next().and_then(|word| word.parse().ok()).unwrap_or(0);
            Some((format!("{job}_{place}"), (state, restarts)))
        });
        Ok(Some(lines.collect()))
    }
}

fn said(program: &str, output: &Output) -> Failure {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let line = text
        .lines()
        .find(|line| !line.trim().is_empty())
        .unwrap_or("it said nothing");
    Failure::new(format!("{program}: {}", line.trim()))
}

impl Engine for Slurm {
    fn room(&self) -> usize {
        MOST
    }

    fn start(&mut self, attempts: &[(u64, &Task)]) -> Result<(), Failure> {
        attempts
            .chunks(MOST_IN_ARRAY)
            .try_for_each(|some| self.submit(some))
    }

    fn events(&mut self, wait: Duration) -> Result<Vec<Event>, Failure> {
        if self.looked.is_some_and(|looked| looked.elapsed() < PERIOD) {
            std::thread::sleep(wait);
            return Ok(Vec::new());
        }
        self.looked = Some(Instant::now());
        let Some(queue) = self.queue()? else {
            return Ok(Vec::new());
        };
        let (mut events, mut lose_nodes) = (Vec::new(), Vec::new());
        for (number, job) in &mut self.jobs {
            let Some((state, restarts)) = queue.get(&job.id) else {
                if job.submitted.elapsed() > UNLISTED {
                    events.push(Event::Ended(*number, Some("Slurm has forgotten it".to_owned())));
                }
                continue;
            };
            let put_back = *restarts > job.restarts;
            job.restarts = *restarts;
            match state.as_str() {
                "RUNNING" | "COMPLETING" => {
                    if !job.began || put_back {
                        job.began = true;
                        events.push(Event::Began(*number));
                    }
                }
                "COMPLETED" => events.push(Event::Ended(*number, None)),
                "PENDING" | "CONFIGURING" | "REQUEUED" | "SUSPENDED" | "RESIZING" | "STOPPED"
                | "SIGNALING" => {}
                // It is put back.
                "NODE_FAIL" | "PREEMPTED" if *restarts < MOST_RESTARTS && !put_back => {}
                ended => {
                    let how = format!("{}{}", ended.to_ascii_lowercase(), last_line(&job.log));
                    events.push(Event::Ended(*number, Some(how)));
                }
            }
            if *restarts >= MOST_RESTARTS {
                lose_nodes.push(*number);
            }
        }
        for number in &lose_nodes {
            events.push(Event::Ended(
                *number,
                Some(format!("it lost {MOST_RESTARTS} nodes")),
            ));
        }
        self.stop(&lose_nodes);
        for event in &events {
            if let Event::Ended(number, _) = event
                && let Some(job) = self.jobs.remove(number)
            {
                let _ = fs::remove_file(job.log);
            }
        }
        Ok(events)
    }

    fn stop(&mut self, attempts: &[u64]) {
        let ids: Vec<String> = attempts
            .iter()
            .filter_map(|number| self.jobs.remove(number))
            .map(|job| job.id)
            .collect();
        if !ids.is_empty() {
            let mut command = Command::new("scancel");
            // Whatever it says, they have ended or end by themselves.
            let _ = output(command.arg("--quiet").args(ids), "");
        }
    }
}

impl Drop for Slurm {
    fn drop(&mut self) {
        if !self.jobs.is_empty() {
            let _ = self.cancel_all();
        }
    }
}
