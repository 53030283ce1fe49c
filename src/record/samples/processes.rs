//! What the kernel tells of the recorded processes, of the threads of them that matter, and of the machine.
//!
//! | counter | of | what, since the sample before |
//! |---|---|---|
//! | `cpu_cores` | process, thread | processors kept busy: CPU time by time |
//! | `run_delay_ratio` | thread | share of the time in which it could have run and had no processor |
//! | `voluntary_switches_per_second`, `involuntary_...` | thread | how often it gave up its processor, or lost it |
//! | `minor_faults_per_second`, `major_faults_per_second` | process | page faults without and with the disk |
//! | `resident_bytes` | process | memory in RAM, now |
//! | `machine_cpu_ratio`, `load_average`, `available_memory_bytes` | machine | once a second |
//!
//! Threads that matter: the main one, NCCL's and autograd's by their names, and the busiest. Who the busiest are is seen
//! once a second.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use gputrace_trace::json_file::{Json, read_json};

use gputrace_trace::manifest::{HOST_ROLE, PROCESS_FILE, ProcessHeader, Thread};
use gputrace_trace::options::FOLDER_VARIABLE;

use super::proc::{self, MachineReading, ProcessReading, ThreadReading};

/// What a value is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct About {
    pub pid: Option<u32>,
    pub thread: Option<u32>,
}

/// Gives a value: what it is about, the counter's name, and the value.
pub type Put<'a> = &'a mut dyn FnMut(About, &'static str, f64);

/// Threads chosen by how busy they are, of each process.
const BUSIEST: usize = 4;
/// Threads watched of a process at most.
const MOST_WATCHED: usize = 16;
/// Threads looked through for the busiest at most: a look at each costs some microseconds.
const MOST_LOOKED_AT: usize = 1024;
const SECOND: Duration = Duration::from_secs(1);

/// Names that threads have whatever they do: NCCL's proxies and PyTorch's autograd.
fn has_known_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.starts_with("nccl") || name.starts_with("pt_autograd")
}

/// One recorded process.
struct Watched {
    pid: u32,
    before: Option<(Instant, ProcessReading)>,
    /// The threads to sample.
    chosen: BTreeSet<u32>,
    threads: BTreeMap<u32, (Instant, ThreadReading)>,
    /// CPU time of every thread when they were last looked through.
    looked: BTreeMap<u32, u64>,
}

/// The recorded processes of this host.
pub struct Processes {
    folder: PathBuf,
    host: String,
    /// Process folders that were looked at already.
    seen: BTreeSet<String>,
    watched: Vec<Watched>,
    names: BTreeMap<(u32, u32), String>,
    /// Threads that were ever sampled, by process.
    sampled: BTreeSet<(u32, u32)>,
    machine: Option<MachineReading>,
    second: Option<Instant>,
    hidden: u64,
}

impl Processes {
    /// Those that write into the recording in `folder`.
    pub fn new(folder: &Path, host: &str) -> Self {
        Self {
            folder: folder.to_owned(),
            host: host.to_owned(),
            seen: BTreeSet::new(),
            watched: Vec::new(),
            names: BTreeMap::new(),
            sampled: BTreeSet::new(),
            machine: None,
            second: None,
            hidden: 0,
        }
    }

    /// One sample of everything.
    pub fn sample(&mut self, put: Put<'_>) {
        if self.second.is_none_or(|second| second.elapsed() >= SECOND) {
            self.second = Some(Instant::now());
            self.find_new();
            self.choose_threads();
            self.sample_machine(put);
        }
        for process in &mut self.watched {
            process.sample(put);
        }
        self.watched.retain(|process| process.before.is_some());
    }

    /// Takes in processes that have begun since.
    fn find_new(&mut self) {
        let Ok(entries) = std::fs::read_dir(&self.folder) else {
            return;
        };
        for entry in entries.filter_map(Result::ok) {
            let name = entry.file_name().to_string_lossy().into_owned();
            if self.seen.contains(&name) || !entry.path().is_dir() {
                continue;
            }
            // A header that can't be read yet is looked at again.
            let header = read_json::<ProcessHeader>(&entry.path().join(PROCESS_FILE));
            let Some(header) = header.ok().and_then(Json::ok) else {
                continue;
            };
            self.seen.insert(name);
            let known = self.watched.iter().any(|process| process.pid == header.pid);
            if header.role == HOST_ROLE || header.host != self.host || header.ended_ns.is_some() || known {
                continue;
            }
            // In another namespace of processes the number is somebody else's, or nobody's.
            let writes_here = proc::variable(header.pid, FOLDER_VARIABLE)
                .is_some_and(|folder| folder == self.folder.as_os_str().as_encoded_bytes());
            if writes_here {
                self.watched.push(Watched {
                    pid: header.pid,
                    before: None,
                    chosen: BTreeSet::new(),
                    threads: BTreeMap::new(),
                    looked: BTreeMap::new(),
                });
            } else {
                self.hidden += 1;
            }
        }
    }

    fn choose_threads(&mut self) {
        for process in &mut self.watched {
            let pid = process.pid;
            let mut looked = BTreeMap::new();
            let mut busy = Vec::new();
            let mut named = BTreeSet::new();
            for thread in proc::threads(pid).into_iter().take(MOST_LOOKED_AT) {
                let Some(times) = proc::thread_times(pid, thread) else {
                    continue;
                };
                let before = process.looked.get(&thread).copied();
                let used = times.cpu_ns.saturating_sub(before.unwrap_or(0));
                busy.push((std::cmp::Reverse(used), thread));
                looked.insert(thread, times.cpu_ns);
                // Threads are named a moment after they begin.
                let name = self.names.entry((pid, thread)).or_default();
                if name.is_empty() || before.is_none() || process.looked.len() < looked.len() {
                    *name = proc::thread_name(pid, thread);
                }
                if has_known_name(name) {
                    named.insert(thread);
                }
            }
            busy.sort_unstable();
            let busiest = busy.into_iter().take(BUSIEST).map(|(_, thread)| thread);
            process.chosen = [pid].into_iter().chain(busiest).collect();
            process
                .chosen
                .extend(named.into_iter().take(MOST_WATCHED - BUSIEST - 1));
            process
                .threads
                .retain(|thread, _| process.chosen.contains(thread));
            process.looked = looked;
            self.sampled
                .extend(process.chosen.iter().map(|thread| (pid, *thread)));
        }
    }

    fn sample_machine(&mut self, put: Put<'_>) {
        let about = About::default();
        if let Some(now) = proc::machine() {
            let before = self.machine.replace(now);
            if let Some(before) = before
                && let Some(all) = now.all.checked_sub(before.all).filter(|all| *all > 0)
            {
                let busy = now.busy.saturating_sub(before.busy);
                put(about, "machine_cpu_ratio", busy as f64 / all as f64);
            }
        }
        if let Some(load) = proc::load() {
            put(about, "load_average", load);
        }
        if let Some(bytes) = proc::available_bytes() {
            put(about, "available_memory_bytes", bytes as f64);
        }
    }

    /// The threads that were watched until now, with their names.
    pub fn threads(&self) -> Vec<Thread> {
        self.sampled
            .iter()
            .map(|&(pid, thread)| Thread {
                pid,
                thread,
                name: self.names.get(&(pid, thread)).cloned().unwrap_or_default(),
            })
            .collect()
    }

    /// What could not be watched, in sentences.
    pub fn notes(&self) -> Vec<String> {
        let note =
            "of the processes could not be seen in /proc (another namespace?): no samples of their host side";
        (self.hidden > 0)
            .then(|| format!("{} {note}", self.hidden))
            .into_iter()
            .collect()
    }
}

impl Watched {
    fn sample(&mut self, put: Put<'_>) {
        let now = Instant::now();
        let Some(reading) = proc::process(self.pid) else {
            self.before = None;
            return;
        };
        let about = About {
            pid: Some(self.pid),
            thread: None,
        };
        put(about, "resident_bytes", reading.resident_bytes as f64);
        if let Some((then, before)) = self.before.replace((now, reading)) {
            let seconds = (now - then).as_secs_f64().max(1e-6);
            let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
            put(about, "cpu_cores", rate(reading.cpu_ns, before.cpu_ns) / 1e9);
            put(
                about,
                "minor_faults_per_second",
                rate(reading.minor_faults, before.minor_faults),
            );
            put(
                about,
                "major_faults_per_second",
                rate(reading.major_faults, before.major_faults),
            );
        }
        for &thread in &self.chosen {
            let now = Instant::now();
            let Some(reading) = proc::thread(self.pid, thread) else {
                self.threads.remove(&thread);
                continue;
            };
            let Some((then, before)) = self.threads.insert(thread, (now, reading)) else {
                continue;
            };
            let about = About {
                pid: Some(self.pid),
                thread: Some(thread),
            };
            let seconds = (now - then).as_secs_f64().max(1e-6);
            let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
            put(about, "cpu_cores", rate(reading.cpu_ns, before.cpu_ns) / 1e9);
            put(
                about,
                "run_delay_ratio",
                rate(reading.delay_ns, before.delay_ns) / 1e9,
            );
            put(
                about,
                "voluntary_switches_per_second",
                rate(reading.voluntary_switches, before.voluntary_switches),
            );
            put(
                about,
                "involuntary_switches_per_second",
                rate(reading.involuntary_switches, before.involuntary_switches),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_known_by_name() {
        assert!(has_known_name("NCCL Progress 0") && has_known_name("ncclProxyServi"));
        assert!(has_known_name("pt_autograd_0") && !has_known_name("python"));
    }
}
