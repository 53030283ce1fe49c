//! Workers that are processes of this machine.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::launch::{Launch, last_line};
use super::schedule::{Engine, Event};
use super::task::Task;
use crate::failure::Failure;
use crate::record::child;

/// Some processes at a time.
pub struct Local {
    launch: Launch,
    workers: usize,
    running: BTreeMap<u64, (Child, PathBuf)>,
    /// Started and not yet told.
    began: Vec<u64>,
}

impl Local {
    pub fn new(launch: Launch, workers: usize) -> Self {
        Self {
            launch,
            workers,
            running: BTreeMap::new(),
            began: Vec::new(),
        }
    }
}

impl Engine for Local {
    fn room(&self) -> usize {
        self.workers
    }

    fn start(&mut self, attempts: &[(u64, &Task)]) -> Result<(), Failure> {
        let tasks = self.launch.write_tasks(attempts.iter().map(|(_, task)| *task))?;
        for (place, (number, _)) in attempts.iter().enumerate() {
            let log = self.launch.work.join(format!("{number}.log"));
            let file = File::create(&log).map_err(|error| self.launch.cannot_write(&error))?;
            let mut command = Command::new(&self.launch.program);
            command.args(Launch::arguments(&tasks, place));
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file);
            let started = child::start(&mut command, true);
            let started = started.map_err(|error| {
                Failure::new(format!(
                    "{}: cannot be started: {error}",
                    self.launch.program.display()
                ))
            })?;
            self.running.insert(*number, (started, log));
            self.began.push(*number);
        }
        Ok(())
    }

    fn events(&mut self, wait: Duration) -> Result<Vec<Event>, Failure> {
        let until = Instant::now() + wait;
        loop {
            let mut events: Vec<Event> = self.began.drain(..).map(Event::Began).collect();
            self.running.retain(|number, (child, log)| {
                let Ok(Some(status)) = child.try_wait() else {
                    return true;
                };
                let how = match (status.success(), status.signal()) {
                    (true, _) => None,
                    (false, Some(signal)) => Some(format!("killed by signal {signal}")),
                    (false, None) => Some(format!(
                        "exit status {}{}",
                        status.code().unwrap_or(-1),
                        last_line(log)
                    )),
                };
                events.push(Event::Ended(*number, how));
                let _ = fs::remove_file(log);
                false
            });
            if !events.is_empty() || Instant::now() >= until || self.running.is_empty() {
                return Ok(events);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn stop(&mut self, attempts: &[u64]) {
        for number in attempts {
            if let Some((mut child, log)) = self.running.remove(number) {
                let _ = child.kill();
                let _ = child.wait();
                let _ = fs::remove_file(log);
            }
        }
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        let all: Vec<u64> = self.running.keys().copied().collect();
        self.stop(&all);
    }
}
