//! Captures and snapshots: what is asked of a job's processes for them, and what becomes of the answers.
//!
//! A snapshot: all processes end their segment (two seconds at most), and the segments of the last moments are linked. A capture: all
//! end their segment, record kernels for a while, end their segment again, and what lies between is linked. A process that dies
//! or does not answer is named; the others' part is kept all the same.

pub mod window;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use gputrace_trace::daemon::{Capture as Order, Captured, Limits, Mode, ToCollector};
use gputrace_trace::manifest::{Kept, Manifest};
use gputrace_trace::options::Kind;
use serde_json::json;

use crate::clock::{now_ns, stamp};
use crate::keep::library::Capture;
use crate::keep::task::{Task, Wanted};
use crate::state::State;
use crate::triggers::fired::Fired;
use window::{Member, Phase, Window};

/// Processes may take so long to end a segment.
const CUT_PATIENCE: Duration = Duration::from_secs(2);
/// Behind the time of a capture, for its end to be told.
const CAPTURE_SLACK: Duration = Duration::from_secs(5);
/// A capture by steps that says no time takes this long at most.
const MOST_BY_STEPS: Duration = Duration::from_secs(120);
/// The longest that may be asked for.
const MOST: Duration = Duration::from_secs(3600);
/// Characters of a collector's reason.
const MOST_WHY: usize = 200;
/// Captures and snapshots of a job at a time.
const MOST_OF_JOB: usize = 4;

/// Who wants a window, and why.
#[derive(Clone, Debug)]
pub struct Reason {
    /// "capture", "snapshot" or a rule's word.
    pub trigger: String,
    /// What was found, or who asked.
    pub title: String,
    /// Who waits for it.
    pub caller: Option<u64>,
}

impl State {
    /// Begins a snapshot of the last moments, and gives its name.
    ///
    /// # Errors
    /// Why there is none.
    pub fn begin_snapshot(
        &mut self,
        job: &str,
        last_s: Option<f64>,
        reason: Reason,
    ) -> Result<String, String> {
        let most_s = self.settings.config.ring.seconds * 1e3;
        let since_ns = match last_s {
            Some(seconds) if seconds.is_finite() && seconds > 0.0 => {
                now_ns().saturating_sub((seconds.min(most_s) * 1e9) as i64)
            }
            Some(_) => return Err("the last so many seconds: expected more than 0".to_owned()),
            None => 0,
        };
        self.begin(job, since_ns, None, &Limits::default(), reason)
    }

    /// Begins a capture of the next while, and gives its name.
    ///
    /// # Errors
    /// Why there is none.
    pub fn begin_capture(&mut self, job: &str, limits: &Limits, reason: Reason) -> Result<String, String> {
        let wrong = || "for how long: expected more than 0 seconds, and an hour at most".to_owned();
        if limits.kinds.as_ref().is_some_and(Vec::is_empty) {
            return Err("which kinds: expected one at least".to_owned());
        }
        if limits.steps.is_some_and(|steps| steps == 0 || steps > 1_000_000) {
            return Err("how many steps: expected 1 to 1,000,000".to_owned());
        }
        let most = match limits.seconds {
            Some(seconds) => Duration::try_from_secs_f64(seconds)
                .ok()
                .filter(|most| !most.is_zero() && *most <= MOST)
                .ok_or_else(wrong)?,
            None => MOST_BY_STEPS,
        };
        if let Some(kinds) = &limits.kinds {
            self.check_kinds(job, kinds)?;
        }
        self.begin(job, now_ns(), Some(most), limits, reason)
    }

    /// Whether a capture of a job can have these kinds.
    fn check_kinds(&self, job: &str, kinds: &[String]) -> Result<(), String> {
        if let Some(word) = kinds.iter().find(|word| Kind::from_name(word).is_none()) {
            return Err(format!("{word}: there is no such kind"));
        }
        let usual = &self.settings.config.collector_options();
        let settled = [
            Kind::Ranges,
            Kind::Collectives,
            Kind::Proxy,
            Kind::Channels,
            Kind::Devices,
            Kind::Host,
        ];
        let wanted = |kind: &Kind| kinds.iter().any(|word| word == kind.name());
        if let Some(kind) = settled
            .into_iter()
            .find(|kind| wanted(kind) && !usual.records(*kind))
        {
            return Err(format!(
                "{} are recorded all the time or never, as the daemon's configuration says: `kinds` there",
                kind.name()
            ));
        }
        if self.jobs.get(job).is_some_and(|job| job.mode == Mode::Full) {
            return Err(format!(
                "{job} is recorded in full, with the kinds that the daemon's configuration says: leave --kinds out"
            ));
        }
        Ok(())
    }

    fn begin(
        &mut self,
        id: &str,
        since_ns: i64,
        most: Option<Duration>,
        limits: &Limits,
        reason: Reason,
    ) -> Result<String, String> {
        let of_job = self.windows.values().filter(|window| window.job == id).count();
        if of_job >= MOST_OF_JOB {
            return Err(format!(
                "{of_job} captures or snapshots of {id} are being made: wait for one to end"
            ));
        }
        let is_capture = most.is_some();
        let job = self.jobs.get(id).ok_or_else(|| format!("no job {id}"))?;
        if job.unanswered.is_some() {
            return Err(format!("{id} has no folder yet: the disk is slow"));
        }
        let is_wanted = |rank: u32| limits.ranks.as_ref().is_none_or(|ranks| ranks.contains(&rank));
        let mut members = BTreeMap::new();
        for process in job.processes.values() {
            let rank = job.rank_of(&process.folder);
            // Whoever is gone has a part in a snapshot, and none in what comes.
            if is_wanted(rank) && (process.is_connected() || !is_capture) {
                let member = Member {
                    rank,
                    cut: 0,
                    asked: None,
                    first: None,
                    last: None,
                    step: None,
                    captured: None,
                    missing: None,
                    is_done: !process.is_connected(),
                };
                members.insert(process.folder.clone(), member);
            }
        }
        if members.is_empty() {
            return Err(match (&limits.ranks, is_capture) {
                (Some(_), _) => format!("{id} has none of these ranks connected"),
                (None, true) => {
                    format!("{id} has no process that runs: `gputrace snapshot` takes what its ring holds")
                }
                (None, false) => format!("{id} has no process"),
            });
        }
        let name = format!("{id}-{}-{}", stamp(now_ns()), reason.trigger);
        let mut name = self.library.free_name(&name);
        while self.windows.values().any(|window| window.name == name) {
            name.push('x');
        }
        let window = Window {
            job: id.to_owned(),
            name: name.clone(),
            trigger: reason.trigger,
            title: reason.title,
            caller: reason.caller,
            since_ns,
            steps: limits.steps,
            most_ns: most.map_or(0, |most| i64::try_from(most.as_nanos()).unwrap_or(i64::MAX)),
            kinds: limits.kinds.clone(),
            is_capture,
            members,
            phase: if is_capture {
                Phase::Opening
            } else {
                Phase::Closing
            },
            until: Instant::now() + CUT_PATIENCE,
        };
        self.last_window += 1;
        let number = self.last_window;
        self.windows.insert(number, window);
        self.ask_for_cuts(number);
        self.advance(number);
        Ok(name)
    }

    /// Asks a window's processes to end their segments.
    fn ask_for_cuts(&mut self, number: u64) {
        let Some(window) = self.windows.get_mut(&number) else {
            return;
        };
        let Some(job) = self.jobs.get_mut(&window.job) else {
            return;
        };
        for (folder, member) in &mut window.members {
            let Some(process) = job.processes.get_mut(folder) else {
                continue;
            };
            member.is_done = true;
            if process.segment.is_none() {
                continue;
            }
            if let Some(caller) = process.caller.and_then(|caller| self.callers.get_mut(&caller)) {
                caller.tell(ToCollector::Cut, None);
                process.cuts.0 += 1;
                member.cut = process.cuts.0;
                member.asked = process.segment;
                member.is_done = false;
            }
        }
    }

    /// A process has ended a segment as it was asked.
    pub fn cut_was_done(&mut self, id: &str, folder: &str) {
        let Some(process) = self.jobs.get(id).and_then(|job| job.processes.get(folder)) else {
            return;
        };
        let done = process.cuts.1;
        // What it says must be the one before the segment that it has begun since.
        let follows = process.cut_segment.map(|segment| segment.saturating_add(1));
        let ended = process.cut_segment.filter(|_| follows == process.segment);
        let mut numbers = Vec::new();
        for (number, window) in &mut self.windows {
            let cuts = matches!(window.phase, Phase::Opening | Phase::Closing);
            let Some(member) = window
                .members
                .get_mut(folder)
                .filter(|_| cuts && window.job == id)
            else {
                continue;
            };
            if !member.is_done && done >= member.cut {
                member.is_done = true;
                let ended = ended.filter(|ended| member.asked.is_some_and(|asked| *ended >= asked));
                match window.phase {
                    Phase::Opening => member.first = ended.map(|ended| ended.saturating_add(1)),
                    _ => member.last = ended,
                }
                if ended.is_none() {
                    member
                        .missing
                        .get_or_insert_with(|| "it could not end its segment".to_owned());
                }
                numbers.push(*number);
            }
        }
        for number in numbers {
            self.advance(number);
        }
    }

    /// A process has recorded what it was asked for.
    pub fn capture_was_done(&mut self, id: &str, folder: &str, captured: &Captured) {
        let Some(window) = self.windows.get_mut(&captured.id) else {
            return;
        };
        if window.job != id || window.phase != Phase::Recording {
            return;
        }
        if let Some(member) = window.members.get_mut(folder) {
            member.is_done = true;
            let why = captured
                .why
                .as_ref()
                .map(|why| why.chars().take(MOST_WHY).collect());
            member.missing = why.or_else(|| member.missing.take());
            member.captured = Some(captured.clone());
        }
        self.advance(captured.id);
    }

    /// A process is gone, or not connected any more: nobody waits for it.
    pub fn member_went(&mut self, id: &str, folder: &str, why: &str) {
        let mut numbers = Vec::new();
        for (number, window) in &mut self.windows {
            if let Some(member) = window.members.get_mut(folder).filter(|_| window.job == id)
                && !member.is_done
            {
                member.is_done = true;
                if window.is_capture {
                    member.missing = Some(why.to_owned());
                }
                numbers.push(*number);
            }
        }
        for number in numbers {
            self.advance(number);
        }
    }

    /// Windows whose time is over go on with what there is; those of jobs that record everything count steps themselves.
    pub fn tick_windows(&mut self) {
        let now = Instant::now();
        let numbers: Vec<u64> = self.windows.keys().copied().collect();
        for number in numbers {
            let Some(window) = self.windows.get_mut(&number) else {
                continue;
            };
            if window.phase == Phase::Recording
                && let Some(job) = self.jobs.get(&window.job)
                && job.mode == Mode::Full
            {
                let is_past = now >= window.until - CAPTURE_SLACK;
                for (folder, member) in &mut window.members {
                    let step = job.processes.get(folder).and_then(|process| process.last_step);
                    let passed = match (member.step, step) {
                        (Some(from), Some(to)) => to.saturating_sub(from),
                        (None, Some(to)) => to.saturating_add(1),
                        _ => 0,
                    };
                    let is_enough = window.steps.is_some_and(|steps| passed > steps);
                    if !member.is_done && (is_enough || is_past) {
                        member.is_done = true;
                        if let Some(steps) = window.steps.filter(|_| !is_enough) {
                            member.missing = Some(format!("{passed} of {steps} steps"));
                        }
                    }
                }
                self.advance(number);
            } else if now >= window.until {
                self.advance(number);
            }
        }
    }

    /// Goes on where all is done that a phase waits for, or its time is over.
    fn advance(&mut self, number: u64) {
        loop {
            let Some(window) = self.windows.get_mut(&number) else {
                return;
            };
            let is_over = Instant::now() >= window.until;
            if window.phase == Phase::Keeping
                || !(is_over || window.members.values().all(|member| member.is_done))
            {
                return;
            }
            match window.phase {
                Phase::Opening => {
                    for member in window.members.values_mut().filter(|member| !member.is_done) {
                        member.missing = Some("it did not answer".to_owned());
                    }
                    self.order(number);
                }
                Phase::Recording => {
                    for member in window.members.values_mut().filter(|member| !member.is_done) {
                        member.missing = Some("it did not say that its capture ended".to_owned());
                    }
                    window.phase = Phase::Closing;
                    window.until = Instant::now() + CUT_PATIENCE;
                    self.ask_for_cuts(number);
                }
                Phase::Closing | Phase::Keeping => {
                    self.keep(number);
                    return;
                }
            }
        }
    }

    /// Asks a window's processes for kernels.
    fn order(&mut self, number: u64) {
        let Some(window) = self.windows.get_mut(&number) else {
            return;
        };
        let Some(job) = self.jobs.get(&window.job) else {
            return;
        };
        window.phase = Phase::Recording;
        window.since_ns = now_ns();
        let most = Duration::from_nanos(u64::try_from(window.most_ns).unwrap_or(0));
        window.until = Instant::now() + most + CAPTURE_SLACK;
        let order = Order {
            id: number,
            steps: window.steps,
            most_ns: window.most_ns,
            kinds: window.kinds.clone(),
            repeats: job.mode == Mode::Sampled,
        };
        for (folder, member) in &mut window.members {
            let process = job.processes.get(folder);
            member.step = process.and_then(|process| process.last_step);
            let caller = process.and_then(|process| process.caller);
            let Some(caller) = caller.and_then(|caller| self.callers.get_mut(&caller)) else {
                member.is_done = true;
                member.missing = Some("it ended meanwhile".to_owned());
                continue;
            };
            member.is_done = false;
            if job.mode != Mode::Full {
                caller.tell(ToCollector::Capture(order.clone()), None);
            }
        }
    }

    /// Has a window's segments linked.
    fn keep(&mut self, number: u64) {
        let Some(window) = self.windows.get_mut(&number) else {
            return;
        };
        window.phase = Phase::Keeping;
        let Some(job) = self.jobs.get(&window.job) else {
            self.windows.remove(&number);
            return;
        };
        let mut wanted = Vec::new();
        for (folder, member) in &window.members {
            let what = match member.first {
                Some(first) if window.is_capture => {
                    Wanted::Numbers(u64::from(first), member.last.map(u64::from))
                }
                _ => Wanted::Since(window.since_ns, member.last.map(u64::from)),
            };
            wanted.push((folder.clone(), what));
        }
        let live = job.live().map(|process| process.folder.clone()).collect();
        let missing = window.members.values().filter_map(|member| {
            let why = member.missing.as_ref()?;
            Some(format!("rank {}: {why}", member.rank))
        });
        // Without a limit the whole ring is wanted.
        let ring_ns = (self.settings.config.ring.seconds * 1e9) as i64;
        let since_ns = match window.since_ns {
            0 => now_ns().saturating_sub(ring_ns),
            since_ns => since_ns,
        };
        let kept = Kept {
            title: window.title.clone(),
            trigger: window.trigger.clone(),
            job: window.job.clone(),
            start_ns: since_ns.max(job.started_ns),
            end_ns: now_ns(),
            missing: missing.collect(),
        };
        let mut manifest = Manifest {
            state: "complete".to_owned(),
            ended_ns: Some(now_ns()),
            ..job.manifest.clone()
        };
        manifest.notes.insert(0, window.title.clone());
        manifest.notes.extend(kept.missing.iter().cloned());
        manifest.kept = Some(kept);
        self.disk.give(Task::Keep {
            window: number,
            folder: job.folder.clone(),
            into: self.library.path(&window.name),
            wanted,
            live,
            ring_bytes: self.settings.config.ring.bytes(),
            manifest: Box::new(manifest),
        });
    }

    /// A window was put together, or could not be.
    pub fn was_kept(&mut self, number: u64, result: Result<(usize, u64), String>) {
        let Some(window) = self.windows.remove(&number) else {
            return;
        };
        let Some(job) = self.jobs.get_mut(&window.job) else {
            return;
        };
        let answer = match result {
            Ok((processes, bytes)) => {
                let capture = Capture {
                    recording: window.name.clone(),
                    job: window.job.clone(),
                    uid: job.uid,
                    user: job.user.clone(),
                    trigger: window.trigger.clone(),
                    title: window.title.clone(),
                    time_ns: now_ns(),
                    bytes,
                    pinned: false,
                };
                let (rules, now_ns) = (&self.settings.config.rules, now_ns());
                // What another node found has that node's name in its title.
                let is_of = |fired: &&mut Fired| {
                    let kept = job.watch.kept(rules, (fired.trigger, fired.rank), now_ns);
                    fired.title == window.title || kept.flatten() == Some(window.name.as_str())
                };
                if let Some(fired) = job.fired.iter_mut().rev().take(8).find(is_of) {
                    fired.recording = Some(window.name.clone());
                }
                *self.sums.captures.entry(window.trigger.clone()).or_default() += 1;
                self.note_capture(capture, None);
                Ok(document(&window, processes, bytes))
            }
            Err(why) => {
                self.said.push(format!("{}: {why}", window.name));
                Err(why)
            }
        };
        if let Some(caller) = window.caller.and_then(|caller| self.callers.get_mut(&caller)) {
            match answer {
                Ok(document) => caller.answer(&document),
                Err(why) => caller.refuse(why),
            }
        }
    }
}

/// What is said of a window that was kept: "gputrace.capture/1".
fn document(window: &Window, processes: usize, bytes: u64) -> serde_json::Value {
    let ranks: Vec<_> = window
        .members
        .values()
        .map(|member| {
            json!({
                "rank": member.rank,
                "steps": member.captured.as_ref().map(|captured| captured.steps),
                "missing": member.missing,
            })
        })
        .collect();
    json!({
        "schema": "gputrace.capture/1",
        "recording": window.name,
        "job": window.job,
        "trigger": window.trigger,
        "title": window.title,
        "state": "complete",
        "processes": processes,
        "bytes": bytes,
        "ranks": ranks,
    })
}
