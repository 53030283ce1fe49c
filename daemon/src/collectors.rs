//! What collectors say.

use std::os::fd::OwnedFd;

use gputrace_trace::daemon::{FromCollector, JobKey, StepReport, ToCollector, Totals};
use gputrace_trace::json_file::{Json, read_json};
use gputrace_trace::manifest::ProcessHeader;

use crate::caller::Role;
use crate::clock::now_ns;
use crate::history::step::is_sane;
use crate::jobs::Job;
use crate::jobs::process::{Gone, Process, check_segment};
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
/// So long a process has to come again that ran when the daemon before ended, nanoseconds.
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
                let answer = self.join(caller, &folder, segment, job, pid, rank, world_size);
                let message = answer.unwrap_or_else(|why| {
                    self.sums.refused += 1;
                    // For the same reason many are.
                    if self.refusal.as_ref() != Some(&why) {
                        self.said.push(format!("{folder} is not recorded: {why}"));
                        self.refusal = Some(why.clone());
                    }
                    ToCollector::Refused { why }
                });
                self.tell(caller, message, None);
                Ok(())
            }
            (Role::Process { job, folder }, said) => self.heard_process(caller, &job, &folder, said),
            _ => Err("it spoke before it joined".to_owned()),
        }
    }

    fn tell(&mut self, caller: u64, message: ToCollector, file: Option<OwnedFd>) {
        if let Some(caller) = self.callers.get_mut(&caller) {
            caller.tell(message, file);
        }
    }

    fn join(
        &mut self,
        caller: u64,
        folder: &str,
        segment: u32,
        key: JobKey,
        said_pid: u32,
        rank: Option<u32>,
        world_size: Option<u32>,
    ) -> Result<ToCollector, String> {
        let peer = self
            .callers
            .get(&caller)
            .map(|caller| caller.peer)
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
        process.begins_at(segment);
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
        let written = if was_over { job.write_manifest() } else { Ok(()) };
        let welcome = ToCollector::Welcome {
            options: Box::new(job.manifest.options.clone()),
            recording: job.manifest.recording.clone(),
            full: job.mode == gputrace_trace::daemon::Mode::Full,
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
        self.complain(&id, written);
        self.save(&id);
        Ok(welcome)
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
            .find(|id| !self.jobs.contains_key(id) && !folder.join(id).exists())
            .ok_or("no name is left")?;
        let config = &self.settings.config;
        let job = Job::create(
            id.clone(),
            peer.uid,
            key,
            pid,
            config.mode,
            config.collector_options(),
            &self.settings.host,
            &folder,
        );
        let job = job.map_err(|error| format!("its folder can't be made: {error}"))?;
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
        let path = job.folder.clone();
        let Some(process) = job.processes.get_mut(folder) else {
            return Ok(());
        };
        let failed = |why: String| ToCollector::Failed { why };
        match said {
            FromCollector::Join { .. } => return Err("it joined twice".to_owned()),
            FromCollector::Segment { segment } => {
                let begun = process.begin_segment(&path, segment);
                let answer = begun.map_or_else(failed, |()| ToCollector::Made);
                self.tell(caller, answer, None);
            }
            FromCollector::Open { table } => match process.open_table(&path, &table) {
                Ok(file) => self.tell(caller, ToCollector::Made, Some(file)),
                Err(why) => self.tell(caller, failed(why), None),
            },
            FromCollector::Header {
                segment,
                text,
                first,
                done,
            } => {
                match process.take_header(&path, segment, &text, (first, done)) {
                    // What is damaged says nothing of the whole.
                    Ok(Some(header)) => {
                        let header = read_json::<ProcessHeader>(&header).ok().and_then(Json::ok);
                        if header.is_some_and(|header| job.learn(&header)) {
                            let written = job.write_manifest();
                            self.complain(id, written);
                        }
                    }
                    Ok(None) => {}
                    Err(why) => self.complain(id, Err(std::io::Error::other(why))),
                }
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
                self.process_went(id, folder, Gone::Left);
                // It has no more to say.
                if let Some(caller) = self.callers.get_mut(&caller) {
                    caller.role = Role::Answered;
                }
            }
        }
        Ok(())
    }

    /// A failure that concerns a job's files, told once in its manifest.
    pub fn complain(&mut self, id: &str, result: std::io::Result<()>) {
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
            drop(job.write_manifest());
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

    /// Processes that were there before the daemon and have not come again for a while are gone.
    pub fn give_up_waiting(&mut self, id: &str, now_ns: i64) {
        let Some(job) = self.jobs.get_mut(id) else { return };
        let mut any = false;
        for process in job.processes.values_mut() {
            let waits = process.caller.is_none() && process.gone.is_none();
            if waits && now_ns.saturating_sub(process.heard_ns) > COMES_AGAIN_NS {
                process.gone = Some((now_ns, Gone::Died));
                any = true;
            }
        }
        if any {
            self.nobody_is_left(id, now_ns);
            self.save(id);
        }
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
        let written = job.write_manifest();
        self.complain(id, written);
    }

    /// A process has gone, as it said or by its connection's end.
    pub fn process_went(&mut self, id: &str, folder: &str, how: Gone) {
        let now_ns = now_ns();
        let Some(job) = self.jobs.get_mut(id) else { return };
        let rank = job.rank_of(folder);
        let Some(process) = job.processes.get_mut(folder) else {
            return;
        };
        if process.caller.take().is_none() {
            return;
        }
        process.gone = Some((now_ns, how));
        if how == Gone::Died {
            job.watch.died(rank, now_ns);
        }
        job.history.forget(rank);
        self.nobody_is_left(id, now_ns);
        self.save(id);
        self.steps_ended(id, now_ns);
        self.member_went(id, folder);
    }
}
