//! What is due for jobs as time passes: their rings move on, and of sampled ones the kernels of a step are recorded.

use std::time::Duration;

use gputrace_trace::daemon::{Capture as Order, Mode, ToCollector};
use gputrace_trace::segments::Removed;

use crate::jobs::process::Process;
use crate::keep::task::Task;
use crate::state::State;

/// A disk that has not made a file for so long stands still.
const DISK_STANDS: Duration = Duration::from_secs(10);

impl State {
    /// Has all processes begin new segments, so that the ring can move on.
    pub fn cut_rings(&mut self) {
        for job in self.jobs.values_mut() {
            for process in job.processes.values_mut() {
                // One that has not done the last is not asked again.
                let is_idle = process.segment.is_none() || process.cuts.0 > process.cuts.1;
                let caller = process.caller.filter(|_| !is_idle);
                if let Some(caller) = caller.and_then(|caller| self.callers.get_mut(&caller)) {
                    caller.tell(ToCollector::Cut, None);
                    process.cuts.0 += 1;
                }
            }
        }
    }

    pub fn trim_rings(&mut self) {
        let config = &self.settings.config;
        let kept_for = Duration::try_from_secs_f64(config.keep.ended_minutes * 60.0).unwrap_or(Duration::MAX);
        for job in self.jobs.values_mut() {
            // What is over keeps its last ring until it goes as a whole; a disk that is slow is not asked twice.
            if job.live().next().is_none() || job.is_trimmed {
                continue;
            }
            job.is_trimmed = true;
            let windows = self.windows.values().filter(|window| window.job == job.id);
            let gone = job.processes.values().filter(|process| process.gone.is_some());
            self.disk.give(Task::Trim {
                job: job.id.clone(),
                folder: job.folder.clone(),
                age: config.ring.duration(),
                bytes: config.ring.bytes(),
                keep_from_ns: windows.map(|window| window.since_ns).min(),
                gone: (gone.map(|process| process.folder.clone()).collect(), kept_for),
            });
        }
    }

    pub fn was_trimmed(&mut self, id: &str, removed: &Removed) {
        for (name, why) in &removed.kept {
            self.said
                .push(format!("{id}: {name} could not be removed: {why}"));
        }
        if removed.parts == 0 {
            return;
        }
        self.sums.rows_removed = self.sums.rows_removed.saturating_add(removed.rows);
        let Some(job) = self.jobs.get_mut(id) else { return };
        job.removed.0 += removed.parts;
        job.removed.1 = job.removed.1.saturating_add(removed.rows);
        job.uncounted += removed.uncounted;
        self.write_manifest(id);
        self.save(id);
    }

    /// Says when the disk stands still, and when it does no more.
    pub fn look_at_disk(&mut self) {
        let stands = self.disk.stands_for(false) >= DISK_STANDS;
        if stands == self.disk_stands {
            return;
        }
        self.disk_stands = stands;
        self.said.push(match stands {
            true => format!(
                "the disk has not answered for {} s: processes wait for their files, and are not recorded meanwhile",
                DISK_STANDS.as_secs()
            ),
            false => "the disk answers again".to_owned(),
        });
    }

    /// What is due for jobs as time passes.
    pub fn tick_jobs(&mut self, now_ns: i64) {
        let kept_ns = (self.settings.config.keep.ended_minutes * 60e9) as i64;
        let ids: Vec<String> = self.jobs.keys().cloned().collect();
        for id in ids {
            self.steps_ended(&id, now_ns);
            self.look_after(&id, now_ns);
            self.look_for_dead(&id, now_ns);
            if let Some(job) = self.jobs.get_mut(&id)
                && job.live().next().is_some()
            {
                let is_past = |process: &Process| {
                    let gone = process.gone;
                    gone.is_some_and(|(when, _)| now_ns.saturating_sub(when) > kept_ns + 60_000_000_000)
                };
                job.processes.retain(|folder, process| {
                    let is_past = is_past(process);
                    if is_past {
                        self.disk.give(Task::Forget(job.folder.join(folder)));
                    }
                    !is_past
                });
                if job.mode == Mode::Sampled {
                    self.sample(&id);
                }
            }
        }
    }

    /// Has a job in mode "sampled" record the kernels of a step, if it is time for one.
    fn sample(&mut self, id: &str) {
        let every = self.settings.config.sample_steps.max(1);
        let Some(job) = self.jobs.get_mut(id) else { return };
        let steps = job.history.steps();
        if steps < job.sampled + every || self.windows.values().any(|window| window.job == id) {
            return;
        }
        job.sampled = steps;
        self.last_window += 1;
        let order = Order {
            // A number that no window has: what it is answered is nobody's.
            id: self.last_window,
            steps: Some(1),
            most_ns: 60_000_000_000,
            kinds: None,
            repeats: true,
        };
        let callers: Vec<u64> = job.live().filter_map(|process| process.caller).collect();
        for caller in callers {
            if let Some(caller) = self.callers.get_mut(&caller) {
                caller.tell(ToCollector::Capture(order.clone()), None);
            }
        }
    }
}
