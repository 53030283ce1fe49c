//! What Prometheus is told, in its text format. Labels are bounded: jobs by what the daemon takes, ranks by what a job may have.

use std::collections::BTreeMap;

use gputrace_trace::daemon::Totals;

use super::times::BOUNDS_S;
use crate::clock::now_ns;
use crate::jobs::process::Process;
use crate::jobs::{Job, State as JobState};
use crate::posts::Posts;
use crate::state::State;

/// Jobs that are told of, the newest.
const MOST_JOBS: usize = 64;

/// One metric, as it is written.
struct Metric<'t> {
    text: &'t mut String,
    name: &'static str,
}

impl<'t> Metric<'t> {
    fn new(text: &'t mut String, name: &'static str, kind: &str, help: &str) -> Self {
        text.push_str(&format!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
        Self { text, name }
    }

    fn put(&mut self, suffix: &str, labels: &[(&str, &str)], value: f64) {
        self.text.push_str(self.name);
        self.text.push_str(suffix);
        for (number, (label, value)) in labels.iter().enumerate() {
            self.text.push(if number == 0 { '{' } else { ',' });
            self.text.push_str(label);
            self.text.push_str("=\"");
            for letter in value.chars() {
                match letter {
                    '\\' | '"' => self.text.extend(['\\', letter]),
                    '\n' => self.text.push_str("\\n"),
                    letter => self.text.push(letter),
                }
            }
            self.text.push('"');
        }
        if !labels.is_empty() {
            self.text.push('}');
        }
        self.text.push_str(&format!(" {value}\n"));
    }
}

fn seconds(ns: i64) -> f64 {
    ns as f64 / 1e9
}

/// All of it.
#[must_use]
pub fn text(state: &State) -> String {
    let mut text = String::new();
    let mut jobs: Vec<&Job> = state.jobs.values().collect();
    jobs.sort_by_key(|job| std::cmp::Reverse(job.started_ns));
    jobs.truncate(MOST_JOBS);
    let host = state.settings.host.as_str();
    steps(&mut text, &jobs, host);
    ranks(&mut text, &jobs, state);
    let mut metric = Metric::new(&mut text, "gputrace_jobs", "gauge", "Jobs by what they do.");
    for of in [
        JobState::Running,
        JobState::Hung,
        JobState::Waiting,
        JobState::Ended,
        JobState::Died,
    ] {
        let count = state.jobs.values().filter(|job| job.state() == of).count();
        metric.put("", &[("state", of.name()), ("hostname", host)], count as f64);
    }
    let mut metric = Metric::new(
        &mut text,
        "gputrace_captures_total",
        "counter",
        "Recordings that were kept, by what made them.",
    );
    for (trigger, count) in &state.sums.captures {
        metric.put("", &[("trigger", trigger), ("hostname", host)], *count as f64);
    }
    let sums = &state.sums;
    let webhooks_failed = state.posts.as_ref().map_or(0, Posts::failed);
    let alone: [(&'static str, &str, &str, u64); 12] = [
        (
            "gputrace_daemon_connections",
            "gauge",
            "Connections now.",
            state.callers.len() as u64,
        ),
        (
            "gputrace_refused_processes_total",
            "counter",
            "Processes that wanted to join and were not let in.",
            sums.refused,
        ),
        (
            "gputrace_daemon_dropped_connections_total",
            "counter",
            "Connections turned away or cut off.",
            sums.dropped,
        ),
        (
            "gputrace_daemon_bad_packets_total",
            "counter",
            "Packets that were not understood.",
            sums.nonsense,
        ),
        (
            "gputrace_rings_removed_total",
            "counter",
            "Rings of jobs that were over.",
            sums.jobs_removed,
        ),
        (
            "gputrace_ring_removed_rows_total",
            "counter",
            "Rows that left rings.",
            sums.rows_removed,
        ),
        (
            "gputrace_disk_standing_seconds",
            "gauge",
            "For how long the disk has been at a file that a process waits for.",
            state.disk.stands_for(false).as_secs(),
        ),
        (
            "gputrace_disk_waiting_requests",
            "gauge",
            "What processes want of their files and wait for.",
            state.disk.wants(),
        ),
        (
            "gputrace_disk_refused_requests_total",
            "counter",
            "What they did not get, since too much waited for the disk.",
            sums.disk_refused,
        ),
        (
            "gputrace_untold_steps_total",
            "counter",
            "Steps of ranks that other nodes were not told of, since there were too many at once.",
            sums.untold_steps,
        ),
        (
            "gputrace_captures_removed_total",
            "counter",
            "Recordings removed by rule.",
            state.library.removed.0,
        ),
        (
            "gputrace_webhooks_failed_total",
            "counter",
            "Findings that no webhook took.",
            webhooks_failed,
        ),
    ];
    for (name, kind, help, value) in alone {
        Metric::new(&mut text, name, kind, help).put("", &[("hostname", host)], value as f64);
    }
    text
}

fn steps(text: &mut String, jobs: &[&Job], host: &str) {
    let name = "gputrace_step_duration_seconds";
    let mut metric = Metric::new(text, name, "histogram", "Time of a step, by its slowest rank.");
    for job in jobs {
        for (bucket, bound) in job.times.buckets.iter().zip(BOUNDS_S) {
            let bound = bound.to_string();
            metric.put(
                "_bucket",
                &[("job", &job.id), ("hostname", host), ("le", &bound)],
                *bucket as f64,
            );
        }
        let count = job.times.count as f64;
        metric.put(
            "_bucket",
            &[("job", &job.id), ("hostname", host), ("le", "+Inf")],
            count,
        );
        metric.put(
            "_sum",
            &[("job", &job.id), ("hostname", host)],
            seconds(job.times.sum_ns),
        );
        metric.put("_count", &[("job", &job.id), ("hostname", host)], count);
    }
    let help = "Reports of ranks that had not come when their step was summed up.";
    let mut metric = Metric::new(text, "gputrace_missing_reports_total", "counter", help);
    for job in jobs {
        let missing = job.history.missing() as f64;
        metric.put("", &[("job", &job.id), ("hostname", host)], missing);
    }
    let help = "Since when nothing goes on, where a job hangs; else 0.";
    let mut metric = Metric::new(text, "gputrace_hang_seconds", "gauge", help);
    for job in jobs {
        let progressed_ns = job.live().map(|process| process.progressed_ns).max();
        let silent_ns = progressed_ns.filter(|_| job.hangs).map_or(0, |at| now_ns() - at);
        metric.put("", &[("job", &job.id), ("hostname", host)], seconds(silent_ns));
    }
}

/// Takes a rank of a job with its labels.
type Put<'p> = &'p mut dyn FnMut(&Job, u32, [(&str, &str); 5]);

/// A metric that is a rank's total: its name, its help and the value.
type OfTotals = (&'static str, &'static str, fn(&Totals) -> f64);

/// A process for each rank: where one died and another took its place, the one that lives.
fn by_rank(job: &Job) -> BTreeMap<u32, &Process> {
    let mut ranks = BTreeMap::new();
    for process in job.processes.values() {
        let known = ranks.entry(job.rank_of(&process.folder)).or_insert(process);
        if process.is_connected() {
            *known = process;
        }
    }
    ranks
}

fn ranks(text: &mut String, jobs: &[&Job], state: &State) {
    let host = state.settings.host.as_str();
    // Rank, GPU and its UUID: a rank that uses several has the first.
    let each = |put: Put<'_>| {
        for job in jobs {
            for (rank, process) in by_rank(job) {
                let device = process.totals.devices.first();
                let seen = device.and_then(|device| state.devices.get(*device));
                let uuid = seen
                    .and_then(|device| device.last.uuid.clone())
                    .unwrap_or_default();
                let gpu = device.map(ToString::to_string).unwrap_or_default();
                let number = rank.to_string();
                let labels = [
                    ("job", job.id.as_str()),
                    ("rank", number.as_str()),
                    ("gpu", gpu.as_str()),
                    ("UUID", uuid.as_str()),
                    ("hostname", host),
                ];
                put(job, rank, labels);
            }
        }
    };
    let help = "Time of the GPU in steps whose kernels were recorded, by what it did.";
    let mut metric = Metric::new(text, "gputrace_gpu_seconds_total", "counter", help);
    each(&mut |job, rank, labels| {
        if let Some(sums) = job.times.ranks.get(&rank) {
            let parts = [
                ("compute", sums.compute_ns),
                ("exposed", sums.exposed_ns),
                ("hidden", sums.hidden_ns),
                ("idle", sums.idle_ns),
            ];
            for (part, ns) in parts {
                let labels: Vec<_> = labels.into_iter().chain([("state", part)]).collect();
                metric.put("", &labels, seconds(ns));
            }
        }
    });
    let help = "Time in which collectives or transfers were under way.";
    let mut metric = Metric::new(text, "gputrace_collective_seconds_total", "counter", help);
    each(&mut |job, rank, labels| {
        if let Some(sums) = job.times.ranks.get(&rank) {
            metric.put("", &labels, seconds(sums.communication_ns));
        }
    });
    let help = "Time that the other ranks waited for this one.";
    let mut metric = Metric::new(text, "gputrace_rank_late_seconds_total", "counter", help);
    each(&mut |job, rank, labels| {
        if let Some(sums) = job.times.ranks.get(&rank) {
            metric.put("", &labels, seconds(sums.late_ns));
        }
    });
    let totals: [OfTotals; 2] = [
        (
            "gputrace_lost_rows_total",
            "Rows lost while recording.",
            |totals| totals.lost_rows as f64,
        ),
        (
            "gputrace_collector_cpu_seconds_total",
            "CPU time of the collector's own thread.",
            |totals| totals.cpu_ns as f64 / 1e9,
        ),
    ];
    for (name, help, value) in totals {
        let mut metric = Metric::new(text, name, "counter", help);
        for job in jobs {
            let mut sums: BTreeMap<u32, f64> = BTreeMap::new();
            for process in job.processes.values() {
                *sums.entry(job.rank_of(&process.folder)).or_default() += value(&process.totals);
            }
            for (rank, sum) in sums {
                let rank = rank.to_string();
                let labels = [
                    ("job", job.id.as_str()),
                    ("rank", rank.as_str()),
                    ("hostname", host),
                ];
                metric.put("", &labels, sum);
            }
        }
    }
}
