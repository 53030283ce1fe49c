//! Clusters of this machine's own that tests run our workers on: two nodes of Slurm's, two of Ray's, on loopback.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

/// A cluster, which ends with this.
pub struct Cluster {
    child: Child,
    commands: Option<ChildStdin>,
    /// What it said before it was ready.
    pub said: Vec<String>,
    output: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/clusters")
        .join(name)
}

impl Cluster {
    /// Starts one; `None`, with a loud line, where it does not come up.
    pub fn start(command: &mut Command) -> Option<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| eprintln!("SKIPPED: {command:?} cannot be started: {error}"))
            .ok()?;
        let output = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let mut cluster = Self {
            commands: child.stdin.take(),
            child,
            said: Vec::new(),
            output,
        };
        cluster.said = cluster.until_ready()?;
        Some(cluster)
    }

    fn until_ready(&mut self) -> Option<Vec<String>> {
        let mut said = Vec::new();
        loop {
            match self.output.next() {
                Some(Ok(line)) if line == "ready" => return Some(said),
                Some(Ok(line)) => said.push(line),
                _ => {
                    eprintln!("SKIPPED: the cluster did not come up");
                    return None;
                }
            }
        }
    }

    /// Tells it something.
    pub fn say(&mut self, line: &str) {
        let commands = self.commands.as_mut().expect("it runs");
        writeln!(commands, "{line}").expect("it listens");
    }

    /// Tells it something, and waits until it is ready again.
    pub fn say_and_wait(&mut self, line: &str) {
        self.say(line);
        self.until_ready().expect("it is ready again");
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.commands = None;
        let _ = self.child.wait();
    }
}

/// Slurm in a folder, of unpacked packages. Its commands are in `FOLDER/bin`.
pub fn slurm(packages: &Path, folder: &Path) -> Option<Cluster> {
    Cluster::start(Command::new(script("slurm")).arg(folder).arg(packages))
}

/// Ray, by a Python that has it. It says its address and its token.
pub fn ray(python: &Path) -> Option<Cluster> {
    Cluster::start(Command::new(python).arg(script("two_raylets.py")))
}

/// PATH with Slurm's commands first.
pub fn path_with(folder: &Path) -> String {
    let path = std::env::var("PATH").unwrap_or_default();
    format!("{}:{path}", folder.join("bin").display())
}

/// Processes whose command line has all of these words: their numbers.
pub fn processes(words: &[&str]) -> Vec<u32> {
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let own = std::process::id();
    numbers
        .filter(|number| {
            let line = std::fs::read(format!("/proc/{number}/cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line);
            *number != own && !line.is_empty() && words.iter().all(|word| line.contains(word))
        })
        .collect()
}

/// Kills a process as a node that fails does.
pub fn kill(number: u32) {
    // SAFETY: sends a signal; one that has ended is none of ours any more, and then nobody has this number so soon.
    unsafe { libc::kill(number.cast_signed(), libc::SIGKILL) };
}
