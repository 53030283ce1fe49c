//! What clients are told, as JSON: "gputrace.jobs/1", "gputrace.job/1", "gputrace.triggers/1", "gputrace.captures/1".

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};

use crate::jobs::Job;
use crate::jobs::process::{Gone, Process};
use crate::peer::Peer;
use crate::state::State;

/// Steps of a job that are told.
const STEPS: usize = 64;

/// The jobs that one may see.
pub fn jobs(state: &State, peer: &Peer) -> Value {
    let seen = state.jobs.values().filter(|job| peer.may_see(job.uid));
    json!({
        "schema": "gputrace.jobs/1",
        "host": state.settings.host,
        "daemon": env!("CARGO_PKG_VERSION"),
        "refused": state.sums.refused,
        "disk_stands_ns": stands_ns(state),
        "disk_waiting": state.disk.wants(),
        "jobs": seen.map(|job| summary(state, job)).collect::<Vec<_>>(),
    })
}

/// For how long the disk has not made a file, if that takes it long.
fn stands_ns(state: &State) -> Option<u64> {
    let stands = state.disk.stands_for(false);
    (stands >= Duration::from_secs(1)).then(|| u64::try_from(stands.as_nanos()).unwrap_or(u64::MAX))
}

fn summary(state: &State, job: &Job) -> Value {
    let elsewhere = state.elsewhere(job.uid, &job.key.group);
    let running = elsewhere.iter().filter(|process| process["state"] == "running");
    let joined = job.live().count() + running.count();
    let lost = job
        .processes
        .values()
        .fold(0u64, |sum, process| sum.saturating_add(process.totals.lost_rows));
    json!({
        "job": job.id,
        "user": job.user,
        "uid": job.uid,
        "pid": job.pid,
        "program": job.key.program,
        "ranks": job.processes.len() + elsewhere.len(),
        "nodes": 1 + hosts(&elsewhere),
        "joined": joined,
        "world_size": job.world_size(),
        "steps": job.history.steps(),
        "missed_steps": job.processes.values().map(Process::missed_steps).max(),
        "step_ns": job.history.step_ns(),
        "step_before_ns": job.history.step_before_ns(),
        "mode": job.mode.name(),
        "state": job.state().name(),
        "started_ns": job.started_ns,
        "ended_ns": job.ended_ns,
        "lost_rows": lost,
        "recording": job.folder,
        "finding": job.fired.back().map(|fired| fired.title.clone()),
    })
}

/// Of a count and a sum, nanoseconds; null where nothing was counted.
fn mean((count, sum_ns): (u64, i64)) -> Option<i64> {
    sum_ns.checked_div(i64::try_from(count).unwrap_or(i64::MAX))
}

/// How many nodes these processes are of.
fn hosts(processes: &[Value]) -> usize {
    let hosts: BTreeSet<_> = processes
        .iter()
        .filter_map(|process| process["host"].as_str())
        .collect();
    hosts.len()
}

/// One job in detail.
pub fn job(state: &State, id: &str) -> Value {
    let Some(job) = state.jobs.get(id) else {
        return Value::Null;
    };
    let mut ranks = processes(state, job);
    ranks.extend(state.elsewhere(job.uid, &job.key.group));
    let skipped = job.history.recent().len().saturating_sub(STEPS);
    let steps: Vec<Value> = job
        .history
        .recent()
        .skip(skipped)
        .map(|step| {
            json!({
                "number": step.number,
                "start_ns": step.start_ns,
                "end_ns": step.end_ns,
                "step_ns": step.step_ns,
                "missing": step.missing,
                "exposed_ns": step.exposed_ns(),
                "late_ns": step.ranks.iter().map(|rank| (rank.rank.to_string(), json!(rank.late_ns)))
                    .collect::<serde_json::Map<_, _>>(),
            })
        })
        .collect();
    let minutes: Vec<Value> = job
        .history
        .minutes()
        .iter()
        .map(|minute| {
            json!({
                "start_ns": minute.start_ns,
                "steps": minute.steps,
                "sum_ns": minute.sum_ns,
                "least_ns": minute.least_ns,
                "most_ns": minute.most_ns,
                "exposed_ns": mean(minute.exposed),
                "late_ns": mean(minute.late),
                "latest_rank": minute.latest.map(|(rank, _)| rank),
            })
        })
        .collect();
    let changes: Vec<Value> = job
        .history
        .changes()
        .map(|change| {
            json!({
                "step": change.step,
                "time_ns": change.time_ns,
                "before_ns": change.before_ns,
                "after_ns": change.after_ns,
            })
        })
        .collect();
    let mut document = summary(state, job);
    if let Value::Object(members) = &mut document {
        members.insert("schema".to_owned(), json!("gputrace.job/1"));
        members.insert("host".to_owned(), json!(state.settings.host));
        members.insert("processes".to_owned(), json!(ranks));
        members.insert("recent".to_owned(), json!(steps));
        members.insert("minutes".to_owned(), json!(minutes));
        members.insert("changes".to_owned(), json!(changes));
        members.insert("late_reports".to_owned(), json!(job.history.late_reports()));
        members.insert("missing_reports".to_owned(), json!(job.history.missing()));
        members.insert("findings".to_owned(), json!(job.fired));
        members.insert(
            "removed".to_owned(),
            json!({"segments": job.removed.0, "rows": job.removed.1}),
        );
    }
    document
}

/// The rules, and what they found of the jobs that one may see, or of one.
pub fn triggers(state: &State, peer: &Peer, id: Option<&str>) -> Value {
    let seen = state
        .jobs
        .values()
        .filter(|job| peer.may_see(job.uid) && id.is_none_or(|id| id == job.id));
    let fired: Vec<Value> = seen
        .flat_map(|job| {
            job.fired.iter().map(|fired| {
                let mut value = json!(fired);
                value["job"] = json!(job.id);
                value
            })
        })
        .collect();
    json!({
        "schema": "gputrace.triggers/1",
        "rules": state.settings.config.rules,
        "fired": fired,
    })
}

/// The recordings that were kept.
pub fn captures(state: &State, peer: &Peer) -> Value {
    let all = state.library.list();
    let seen: Vec<Value> = all
        .into_iter()
        .filter(|capture| peer.may_see(capture.uid))
        .map(|capture| {
            let mut value = json!(capture);
            value["path"] = json!(state.library.path(&capture.recording));
            value
        })
        .collect();
    json!({
        "schema": "gputrace.captures/1",
        "captures": seen,
        "removed": {"captures": state.library.removed.0, "bytes": state.library.removed.1},
    })
}

/// The processes of a job on this node.
pub fn processes(state: &State, job: &Job) -> Vec<Value> {
    let last = job.history.recent().next_back();
    job.processes
        .values()
        .map(|process| {
            let rank = job.rank_of(&process.folder);
            let step = last.and_then(|step| step.ranks.iter().find(|of| of.rank == rank));
            let is = match process.gone {
                _ if process.is_connected() => "running",
                Some((_, Gone::Left)) => "ended",
                Some((_, Gone::Died)) => "died",
                None => "waiting",
            };
            json!({
                "host": state.settings.host,
                "rank": rank,
                "pid": process.pid,
                "folder": process.folder,
                "state": is,
                "devices": process.totals.devices,
                "clocks_mhz": process.totals.devices.iter()
                    .map(|device| state.devices.get(*device).and_then(|device| device.last.clock_mhz))
                    .collect::<Vec<_>>(),
                "lost_rows": process.totals.lost_rows,
                "rows": process.totals.rows,
                "cpu_ns": process.totals.cpu_ns,
                "enqueued": process.totals.enqueued,
                "finished": process.totals.finished,
                "records_kernels": process.totals.records_kernels,
                "steps": process.told_steps,
                "missed_steps": process.missed_steps(),
                "last_step": process.last_step,
                "heard_ns": process.heard_ns,
                "step": step.map(|step| json!({
                    "duration_ns": step.report.duration_ns,
                    "communication_ns": step.report.communication_ns,
                    "compute_ns": step.report.compute_ns,
                    "exposed_ns": step.report.exposed_ns,
                    "idle_ns": step.report.idle_ns,
                    "late_ns": step.late_ns,
                })),
            })
        })
        .collect()
}
