//! What collectors say.

use std::os::fd::OwnedFd;

use gputrace_trace::daemon::{FromCollector, JobKey, Mode, StepReport, ToCollector, Totals};

use crate::alive::Alive;
use crate::caller::Role;
use crate::clock::now_ns;
use crate::history::step::is_sane;
use crate::jobs::Job;
use crate::jobs::process::{Gone, Process};
use crate::keep::files::check_segment;
use crate::keep::task::{Asker, Given, Task, Want};
use crate::names::{is_folder_name, job_name};
use crate::nodes::is_shared;
use crate::peer::Peer;
use crate::state::{State, jobs_folder};

/// Jobs of one user that are known at a time.
const MOST_JOBS_OF_USER: usize = 256;
/// Jobs in all.
const MOST_JOBS: usize = 1024;
/// Processes of one job.
const MOST_PROCESSES: usize = 2048;
/// So long a process has to come again of which can't be known whether it lives, nanoseconds.
const COMES_AGAIN_NS: i64 = 120_000_000_000;
/// GPUs of a process that are remembered.
const MOST_DEVICES: usize = 64;
/// Steps of one report: a collector tells of half as many.
const MOST_STEPS_OF_REPORT: usize = 256;
/// A key's texts, at the most.
const MOST_KEY_BYTES: usize = 512;

impl State {
    /// Answers a collector. An error ends its connection: it says something that no collector says.
    ///
    /// # Errors
    /// What was wrong.
    pub fn heard_collector(&mut self, caller: u64, said: FromCollector) -> Result<(), String> {
        let Some(role) = self.callers.get(&caller).map(|caller| caller.role.clone()) else {
            return Ok(());
        };
        match (role, said) {
            (
                Role::Collector,
                FromCollector::Join {
                    folder,
                    segment,
                    job,
                    pid,
                    rank,
                    world_size,
                },
            ) => {
                if let Err(why) = self.join(caller, &folder, segment, job, pid, rank, world_size) {
                    self.refuse(caller, &folder, why);
                }
                Ok(())
            }
            (Role::Process { job, folder }, said) => self.heard_process(caller, &job, &folder, said),
            _ => Err("it spoke before it joined".to_owned()),
        }
    }

    fn refuse(&mut self, caller: u64, folder: &str, why: String) {
        self.sums.refused += 1;
        // For the same reason many are.
        if self.refusal.as_ref() != Some(&why) {
            self.said.push(format!("{folder} is not recorded: {why}"));
            self.refusal = Some(why.clone());
        }
        self.tell(caller, ToCollector::Refused { why }, None);
    }

    fn tell(&mut self, caller: u64, message: ToCollector, file: Option<OwnedFd>) {
        if let Some(caller) = self.callers.get_mut(&caller) {
            caller.tell(message, file);
        }
    }

    /// Takes a process in; it is told so, now or once its job's folder is made.
    fn join(
        &mut self,
        caller: u64,
        folder: &str,
        segment: u32,
        key: JobKey,
        said_pid: u32,
        rank: Option<u32>,
        world_size: Option<u32>,
    ) -> Result<(), String> {
        let (peer, socket) = self
            .callers
            .get(&caller)
            .map(|caller| (caller.peer, caller.descriptor))
            .ok_or("gone")?;
        // Its own word serves for names alone.
        let pid = if peer.pid == 0 { said_pid } else { peer.pid };
        if !is_folder_name(folder) {
            return Err("its folder's name is none that a collector gives".to_owned());
        }
        let texts = [Some(&key.group), key.scheduler.as_ref(), Some(&key.program)];
        if texts
            .into_iter()
            .flatten()
            .any(|text| text.len() > MOST_KEY_BYTES)
        {
            return Err("its job's name is too long".to_owned());
        }
        check_segment(segment)?;
        let now_ns = now_ns();
        let id = match self.job_of(&peer, folder, &key) {
            Some(id) => id,
            None => self.new_job(&peer, key, pid)?,
        };
        let job = self.jobs.get_mut(&id).ok_or("gone")?;
        if job.processes.len() >= MOST_PROCESSES && !job.processes.contains_key(folder) {
            return Err(format!("job {id} has {MOST_PROCESSES} processes already"));
        }
        let process = job
            .processes
            .entry(folder.to_owned())
            .or_insert_with(|| Process::joining(folder.to_owned(), pid, now_ns));
        process.begins = process.begins.max(Some(segment));
        process.segment = None;
        process.alive = Alive::of(socket, peer.pid);
        let before = process.caller.replace(caller);
        process.pid = pid;
        process.heard_ns = now_ns;
        process.progressed_ns = now_ns;
        process.gone = None;
        process.cuts = (0, 0);
        // Once known they stay: rules and sums go by ranks.
        process.totals.rank = process.totals.rank.or(rank);
        process.totals.world_size = process.totals.world_size.or(world_size);
        job.pid = job.pid.min(pid);
        let rank = job.rank_of(folder);
        job.history.expect(rank);
        job.watch.lives(rank);
        job.ended_ns = None;
        let was_over = job.manifest.ended_ns.take().is_some();
        "recording".clone_into(&mut job.manifest.state);
        let is_made = match &mut job.unanswered {
            Some(unanswered) => {
                unanswered.retain(|waits| self.callers.contains_key(waits));
                unanswered.push(caller);
                false
            }
            None => true,
        };
        // It called again while the old connection still stood.
        if let Some(before) = before.filter(|before| *before != caller) {
            self.callers.remove(&before);
        }
        if let Some(caller) = self.callers.get_mut(&caller) {
            caller.role = Role::Process {
                job: id.clone(),
                folder: folder.to_owned(),
            };
        }
        if is_made {
            self.welcome(&id, caller);
        }
        if was_over {
            self.write_manifest(&id);
        }
        self.save(&id);
        Ok(())
    }

    fn welcome(&mut self, id: &str, caller: u64) {
        let Some(job) = self.jobs.get(id) else { return };
        let welcome = ToCollector::Welcome {
            options: Box::new(job.manifest.options.clone()),
            recording: job.manifest.recording.clone(),
            full: job.mode == Mode::Full,
        };
        self.tell(caller, welcome, None);
    }

    /// A job's folder was made, or could not be.
    pub fn was_made(&mut self, id: &str, result: Result<String, (String, bool)>) {
        let Some(job) = self.jobs.get_mut(id) else { return };
        let unanswered = job.unanswered.take().unwrap_or_default();
        // Its manifest is what was written with it.
        let is_changed = job.manifest_writing.end();
        let of_it = |state: &Self, caller: u64| {
            let role = state.callers.get(&caller).map(|caller| caller.role.clone());
            match role {
                Some(Role::Process { job, folder }) if job == id => Some(folder),
                _ => None,
            }
        };
        match result {
            Ok(user) => {
                job.user = user;
                for caller in unanswered {
                    if of_it(self, caller).is_some() {
                        self.welcome(id, caller);
                    }
                }
                if is_changed {
                    self.write_manifest(id);
                }
                self.save(id);
            }
            Err((why, is_taken)) => {
                self.jobs.remove(id);
                if is_taken {
                    self.taken.insert(id.to_owned());
                }
                for caller in unanswered {
                    let Some(folder) = of_it(self, caller) else {
                        continue;
                    };
                    if let Some(caller) = self.callers.get_mut(&caller) {
                        caller.role = Role::Collector;
                    }
                    self.refuse(caller, &folder, format!("its job's folder can't be made: {why}"));
                }
            }
        }
    }

    /// The job that a process belongs to: the one that knows it already, or the one of its group that runs or is waited for.
    fn job_of(&self, peer: &Peer, folder: &str, key: &JobKey) -> Option<String> {
        let now_ns = now_ns();
        let own = || self.jobs.values().filter(|job| job.uid == peer.uid);
        let knows = own().find(|job| job.processes.contains_key(folder));
        let is_open = |job: &&Job| {
            !key.group.is_empty()
                && job.key.group == key.group
                && job.processes.values().any(|process| process.is_awaited(now_ns))
        };
        knows.or_else(|| own().find(is_open)).map(|job| job.id.clone())
    }

    fn new_job(&mut self, peer: &Peer, key: JobKey, pid: u32) -> Result<String, String> {
        let of_user = |job: &Job| job.uid == peer.uid;
        let is_full = |state: &Self| {
            let count = state.jobs.values().filter(|job| of_user(job)).count();
            count >= MOST_JOBS_OF_USER || state.jobs.len() >= MOST_JOBS
        };
        if !self.disk.has_room() {
            return Err("the disk does not keep up".to_owned());
        }
        // One that is over gives way.
        if is_full(self)
            && let Some(oldest) = self.oldest_over(of_user)
        {
            self.remove_job(&oldest);
        }
        if is_full(self) {
            return Err(format!(
                "{MOST_JOBS_OF_USER} jobs of a user, or {MOST_JOBS} in all, are watched already"
            ));
        }
        let name = job_name(key.scheduler.as_deref(), &key.program, pid);
        let folder = jobs_folder(&self.settings.state);
        let numbered = (2u32..).map(|number| format!("{name}-{number}"));
        let id = std::iter::once(name.clone())
            .chain(numbered)
            .find(|id| !self.jobs.contains_key(id) && !self.taken.contains(id))
            .ok_or("no name is left")?;
        let config = &self.settings.config;
        let job = Job::begin(
            id.clone(),
            peer.uid,
            key,
            pid,
            config.mode,
            config.collector_options(),
            &self.settings.host,
            &folder,
        );
        self.disk.give(Task::Make {
            job: id.clone(),
            uid: peer.uid,
            folder: job.folder.clone(),
            manifest: Box::new(job.whole_manifest()),
        });
        self.jobs.insert(id.clone(), job);
        Ok(id)
    }

    fn heard_process(
        &mut self,
        caller: u64,
        id: &str,
        folder: &str,
        said: FromCollector,
    ) -> Result<(), String> {
        let Some(job) = self.jobs.get_mut(id) else {
            return Ok(());
        };
        let Some(process) = job.processes.get_mut(folder) else {
            return Ok(());
        };
        match said {
            FromCollector::Join { .. } => return Err("it joined twice".to_owned()),
            FromCollector::Segment { segment } => self.want(caller, (id, folder), Want::Segment(segment)),
            FromCollector::Open { table, segment } => {
                self.want(caller, (id, folder), Want::Open { table, segment });
            }
            FromCollector::Header {
                segment,
                text,
                first,
                done,
            } => {
                let want = Want::Header {
                    segment,
                    text,
                    first,
                    done,
                };
                self.want(caller, (id, folder), want);
            }
            FromCollector::Report { steps, .. } if steps.len() > MOST_STEPS_OF_REPORT => {
                return Err(format!("a report of {} steps", steps.len()));
            }
            FromCollector::Report { steps, totals } => self.report(id, folder, steps, totals),
            FromCollector::Cut { segment } => {
                process.cuts.1 += 1;
                process.cut_segment = Some(segment);
                self.cut_was_done(id, folder);
            }
            FromCollector::Captured(captured) => self.capture_was_done(id, folder, &captured),
            FromCollector::Leave => {
                self.connection_ended(id, folder, true);
                // It has no more to say.
                if let Some(caller) = self.callers.get_mut(&caller) {
                    caller.role = Role::Answered;
                }
            }
        }
        Ok(())
    }

    /// A process wants something of its files: what comes of it is told when it is done.
    fn want(&mut self, caller: u64, (id, folder): (&str, &str), want: Want) {
        if !self.disk.has_room() {
            self.sums.disk_refused += 1;
            let why = "the daemon's disk does not keep up".to_owned();
            // Nobody waits for the answer to a header.
            match want {
                Want::Header { .. } => self.complain(id, Err(why)),
                _ => self.tell(caller, ToCollector::Failed { why }, None),
            }
            return;
        }
        let Some(job) = self.jobs.get_mut(id) else { return };
        let path = job.folder.join(folder);
        let Some(process) = job.processes.get_mut(folder) else {
            return;
        };
        if let Some(caller) = self.callers.get_mut(&caller) {
            caller.wants += 1;
        }
        let asker = Asker {
            caller,
            job: id.to_owned(),
            folder: folder.to_owned(),
            path,
            begins: process.begins.take(),
        };
        self.disk.give(Task::Want { asker, want });
    }

    /// What a process wanted was done, or could not be.
    pub fn was_given(&mut self, asker: &Asker, given: Given) {
        if let Some(caller) = self.callers.get_mut(&asker.caller) {
            caller.wants -= 1;
        }
        let failed = |why: String| ToCollector::Failed { why };
        let job = self.jobs.get_mut(&asker.job);
        match given {
            Given::Segment(segment, begun) => {
                let process = job.and_then(|job| job.processes.get_mut(&asker.folder));
                // Not if it has come again meanwhile: then it begins another.
                if let Some(process) = process.filter(|process| process.caller == Some(asker.caller))
                    && begun.is_ok()
                {
                    process.segment = Some(segment);
                    process.is_new = false;
                }
                let answer = begun.map_or_else(failed, |()| ToCollector::Made);
                self.tell(asker.caller, answer, None);
            }
            Given::Open(Ok(file)) => self.tell(asker.caller, ToCollector::Made, Some(file)),
            Given::Open(Err(why)) => self.tell(asker.caller, failed(why), None),
            Given::Header(Ok(header)) => {
                let is_news = job.zip(header).is_some_and(|(job, header)| job.learn(&header));
                if is_news {
                    self.write_manifest(&asker.job);
                }
            }
            Given::Header(Err(why)) => self.complain(&asker.job, Err(why)),
        }
    }

    /// Has a job's manifest written, as it is when its turn comes.
    pub fn write_manifest(&mut self, id: &str) {
        let Some(job) = self.jobs.get_mut(id) else { return };
        if job.manifest_writing.begin() {
            let task = Task::Manifest {
                job: id.to_owned(),
                folder: job.folder.clone(),
                manifest: Box::new(job.whole_manifest()),
            };
            self.disk.give(task);
        }
    }

    /// It was written, or could not be.
    pub fn manifest_was_written(&mut self, id: &str, result: Result<(), String>) {
        let Some(job) = self.jobs.get_mut(id) else { return };
        if job.manifest_writing.end() {
            self.write_manifest(id);
        }
        self.complain(id, result);
    }

    /// A failure that concerns a job's files, told once in its manifest.
    pub fn complain(&mut self, id: &str, result: Result<(), String>) {
        let Err(error) = result else { return };
        let note = format!("the daemon could not always write: {error}");
        if let Some(job) = self.jobs.get_mut(id)
            && !job
                .manifest
                .notes
                .iter()
                .any(|known| known.starts_with("the daemon could not always write"))
        {
            job.manifest.notes.push(note.clone());
            // A disk that is full takes no note either; the line below is told anyway.
            self.write_manifest(id);
            self.said.push(format!("{id}: {note}"));
        }
    }

    fn report(&mut self, id: &str, folder: &str, steps: Vec<StepReport>, totals: Totals) {
        let now_ns = now_ns();
        let Some(job) = self.jobs.get_mut(id) else { return };
        let rank_before = job.rank_of(folder);
        let Some(process) = job.processes.get_mut(folder) else {
            return;
        };
        process.heard_ns = now_ns;
        if !steps.is_empty() || totals.finished > process.totals.finished {
            process.progressed_ns = now_ns;
            job.hangs = false;
        }
        process.told_steps = process.told_steps.saturating_add(steps.len() as u64);
        process.last_step = steps.last().map(|step| step.number).or(process.last_step);
        let lost = totals.lost_rows.saturating_sub(process.totals.lost_rows);
        let known = (process.totals.rank, process.totals.world_size);
        let mut totals = totals;
        totals.devices.truncate(MOST_DEVICES);
        process.totals = Totals {
            rank: known.0.or(totals.rank),
            world_size: known.1.or(totals.world_size),
            ..totals
        };
        let is_news = known != (process.totals.rank, process.totals.world_size);
        // The others know ranks by what processes said alone.
        let said_rank = process.totals.rank.filter(|_| self.others.is_some());
        let told_rank = said_rank.filter(|_| is_shared(&job.key.group));
        let rank = job.rank_of(folder);
        if rank != rank_before {
            job.history.forget(rank_before);
        }
        for step in steps {
            match is_sane(&step) {
                true => {
                    if let Some(rank) = told_rank {
                        self.sums.untold_steps += u64::from(!job.ranks.tell(rank, &step));
                    }
                    job.history.add((rank, step), now_ns);
                }
                false => self.sums.nonsense += 1,
            }
        }
        if is_news {
            self.save(id);
        }
        if lost > 0 {
            self.rows_were_lost(id, rank, lost, now_ns);
        }
        self.steps_ended(id, now_ns);
    }

    /// Of the processes that are not connected those have died that live no more; those of which that can't be known, once they have not
    /// come again for a while.
    pub fn look_for_dead(&mut self, id: &str, now_ns: i64) {
        let Some(job) = self.jobs.get_mut(id) else { return };
        let mut dead = Vec::new();
        for process in job.processes.values().filter(|process| process.is_waited_for()) {
            let is_long = now_ns.saturating_sub(process.heard_ns) > COMES_AGAIN_NS;
            let lives = process.alive.lives();
            if lives == Some(false) || lives.is_none() && is_long {
                dead.push((process.folder.clone(), lives.is_some()));
            }
        }
        if dead.is_empty() {
            return;
        }
        for (folder, is_known) in dead {
            let rank = job.rank_of(&folder);
            if let Some(process) = job.processes.get_mut(&folder) {
                process.gone = Some((now_ns, Gone::Died));
            }
            if is_known {
                job.watch.died(rank, now_ns);
            }
            job.history.forget(rank);
        }
        self.nobody_is_left(id, now_ns);
        self.save(id);
        self.steps_ended(id, now_ns);
    }

    /// Closes a job's recording, if its last process has gone.
    fn nobody_is_left(&mut self, id: &str, now_ns: i64) {
        let Some(job) = self.jobs.get_mut(id) else { return };
        if job.processes.values().any(|process| process.gone.is_none()) {
            return;
        }
        job.ended_ns = Some(now_ns);
        job.hangs = false;
        job.manifest.ended_ns = Some(now_ns);
        "complete".clone_into(&mut job.manifest.state);
        self.write_manifest(id);
    }

    /// A process's connection has ended, with a word or without. While it lives it is waited for: it calls again.
    pub fn connection_ended(&mut self, id: &str, folder: &str, has_left: bool) {
        let now_ns = now_ns();
        let Some(job) = self.jobs.get_mut(id) else { return };
        let rank = job.rank_of(folder);
        let Some(process) = job.processes.get_mut(folder) else {
            return;
        };
        if process.caller.take().is_none() {
            return;
        }
        let lives = !has_left && process.alive.lives() == Some(true);
        if !lives {
            process.gone = Some((now_ns, if has_left { Gone::Left } else { Gone::Died }));
        }
        if !lives && !has_left {
            job.watch.died(rank, now_ns);
        }
        job.history.forget(rank);
        self.nobody_is_left(id, now_ns);
        self.save(id);
        self.steps_ended(id, now_ns);
        let why = if lives {
            "its connection ended meanwhile"
        } else {
            "it ended meanwhile"
        };
        self.member_went(id, folder, why);
    }
}
