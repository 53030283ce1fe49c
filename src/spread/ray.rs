//! Workers that are tasks of Ray, by a script that is run with the user's Python (`ray_worker.py`).

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::json;

use super::launch::Launch;
use super::schedule::{Engine, Event};
use super::task::Task;
use crate::failure::Failure;
use crate::record::child;

const SCRIPT: &str = include_str!("ray_worker.py");
/// Ray is imported, and connected to or started.
const START: Duration = Duration::from_secs(180);
/// How long Ray may take to shut down.
const END: Duration = Duration::from_secs(20);

/// What the script says.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Line {
    ready: Option<usize>,
    cpus: Option<usize>,
    began: Option<u64>,
    ended: Option<u64>,
    how: Option<String>,
    warning: Option<String>,
    fatal: Option<String>,
}

/// A cluster, or one of this machine alone.
pub struct Ray {
    launch: Launch,
    script: Child,
    /// Taken when it ends: the script and its tasks end with it.
    commands: Option<ChildStdin>,
    lines: Receiver<Line>,
    cpus: usize,
    /// Said and not yet told.
    events: VecDeque<Event>,
}

fn gone() -> Failure {
    Failure::new("Ray's driver ended: what it said stands above; the same command goes on from there")
}

impl Ray {
    /// Connects, or starts Ray on this machine.
    pub fn new(launch: Launch, address: Option<&str>) -> Result<Self, Failure> {
        let python = std::env::var_os("GPUTRACE_PYTHON").unwrap_or_else(|| "python3".into());
        let mut command = Command::new(&python);
        command
            .args(["-c", SCRIPT])
            .arg(&launch.directory)
            .arg(address.unwrap_or_default());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut script = child::start(&mut command, true).map_err(|error| {
            Failure::new(format!(
                "{}: cannot be started: {error}; --on ray wants a Python with Ray (GPUTRACE_PYTHON names another)",
                python.display()
            ))
        })?;
        let (commands, output) = (script.stdin.take(), script.stdout.take());
        let (say, lines) = mpsc::channel();
        std::thread::spawn(move || {
            let lines = output.map(BufReader::new).into_iter().flat_map(BufRead::lines);
            for line in lines.map_while(Result::ok) {
                if let Ok(line) = serde_json::from_str(&line)
                    && say.send(line).is_err()
                {
                    return;
                }
            }
        });
        let mut ray = Self {
            launch,
            script,
            commands,
            lines,
            cpus: 0,
            events: VecDeque::new(),
        };
        let until = Instant::now() + START;
        while ray.cpus == 0 {
            let line = match ray.lines.recv_timeout(Duration::from_millis(200)) {
                Ok(line) => line,
                Err(RecvTimeoutError::Timeout) if Instant::now() < until => match child::asked_to_end() {
                    None => continue,
                    Some(signal) => {
                        let why = format!("ended by signal {signal} while Ray started");
                        return Err(Failure::new(why).with_status(128 + signal));
                    }
                },
                Err(_) => return Err(Failure::new("Ray did not start: what it said stands above")),
            };
            let is_ready = line.ready.is_some();
            ray.take(line)?;
            if is_ready && ray.cpus == 0 {
                return Err(Failure::new(
                    "this Ray cluster has no CPUs: `ray status` says what it has",
                ));
            }
        }
        Ok(ray)
    }

    fn take(&mut self, line: Line) -> Result<(), Failure> {
        if let Some(fatal) = line.fatal {
            return Err(Failure::new(fatal));
        }
        if let Some(warning) = line.warning {
            anstream::eprintln!("{warning}");
        }
        self.cpus = line.ready.or(line.cpus).unwrap_or(self.cpus);
        self.events.extend(line.began.map(Event::Began));
        self.events
            .extend(line.ended.map(|number| Event::Ended(number, line.how)));
        Ok(())
    }

    fn say(&mut self, line: &serde_json::Value) -> Result<(), Failure> {
        let commands = self.commands.as_mut().ok_or_else(gone)?;
        writeln!(commands, "{line}").map_err(|_| gone())
    }
}

impl Engine for Ray {
    fn room(&self) -> usize {
        self.cpus.max(1)
    }

    fn start(&mut self, attempts: &[(u64, &Task)]) -> Result<(), Failure> {
        let tasks = self.launch.write_tasks(attempts.iter().map(|(_, task)| *task))?;
        for (place, (number, _)) in attempts.iter().enumerate() {
            let mut command = vec![self.launch.program.display().to_string()];
            command.extend(Launch::arguments(&tasks, place));
            self.say(&json!({"start": number, "command": command}))?;
        }
        Ok(())
    }

    fn events(&mut self, wait: Duration) -> Result<Vec<Event>, Failure> {
        match self.lines.recv_timeout(wait) {
            Ok(line) => self.take(line)?,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Err(gone()),
        }
        while let Ok(line) = self.lines.try_recv() {
            self.take(line)?;
        }
        Ok(self.events.drain(..).collect())
    }

    fn stop(&mut self, attempts: &[u64]) {
        // Where nobody listens any more, they have ended.
        let _ = self.say(&json!({"stop": attempts}));
    }
}

impl Drop for Ray {
    fn drop(&mut self) {
        // It shuts Ray down, or leaves the cluster.
        self.commands = None;
        let until = Instant::now() + END;
        while matches!(self.script.try_wait(), Ok(None)) {
            if Instant::now() > until {
                let _ = self.script.kill();
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
