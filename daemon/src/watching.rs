//! What is done about what is noticed.

use gputrace_trace::daemon::Limits;
use serde_json::json;

use crate::devices::Seen;
use crate::jobs::Job;
use crate::state::State;
use crate::triggers::fired::Fired;
use crate::triggers::hang::Live;
use crate::triggers::rules::{Action, Kind};
use crate::windows::Reason;

impl State {
    /// Steps of a job may have ended.
    pub fn steps_ended(&mut self, id: &str, now_ns: i64) {
        let rules = &self.settings.config.rules;
        let Some(job) = self.jobs.get_mut(id) else { return };
        let mut found = Vec::new();
        for step in job.history.complete(now_ns) {
            job.times.add(&step);
            found.extend(job.watch.step(rules, &step));
        }
        self.fire(id, found);
    }

    /// Time passes for a job.
    pub fn look_after(&mut self, id: &str, now_ns: i64) {
        let rules = &self.settings.config.rules;
        let Some(job) = self.jobs.get_mut(id) else { return };
        let live = live(job);
        let steps = (job.history.steps(), job.history.step_ns());
        let found = job.watch.look(rules, &live, steps, now_ns);
        job.hangs |= found.iter().any(|fired| fired.trigger == Kind::Hang);
        self.fire(id, found);
    }

    /// Rows of a job were lost.
    pub fn rows_were_lost(&mut self, id: &str, rank: u32, lost: u64, now_ns: i64) {
        let title = format!("rank {rank} lost {lost} rows while recording");
        self.notice(id, Kind::RowsLost, Some(rank), title, now_ns);
    }

    /// Something was noticed of a GPU: the jobs that use it are concerned.
    pub fn device_was_seen(&mut self, seen: &Seen, now_ns: i64) {
        let Some((kind, title)) = self.devices.take(seen, &self.settings.config.rules, now_ns) else {
            return;
        };
        let of_device = |job: &&Job| {
            let mut devices = job.live().flat_map(|process| &process.totals.devices);
            devices.any(|device| *device == seen.device)
        };
        let concerned: Vec<String> = self
            .jobs
            .values()
            .filter(of_device)
            .map(|job| job.id.clone())
            .collect();
        for id in concerned {
            self.notice(&id, kind, None, title.clone(), now_ns);
        }
    }

    fn notice(&mut self, id: &str, kind: Kind, rank: Option<u32>, title: String, now_ns: i64) {
        let rules = &self.settings.config.rules;
        let found = self
            .jobs
            .get_mut(id)
            .and_then(|job| job.watch.event(rules, kind, rank, title, now_ns));
        self.fire(id, found.into_iter().collect());
    }

    /// Does what the rules say about what was found.
    fn fire(&mut self, id: &str, found: Vec<Fired>) {
        for fired in found {
            let (kind, title) = (fired.trigger, fired.title.clone());
            let document = json!({
                "schema": "gputrace.finding/1",
                "host": self.settings.host,
                "job": id,
                "user": self.jobs.get(id).map(|job| job.user.clone()),
                "finding": fired,
            });
            self.said.push(format!("{id}: {title}"));
            if let Some(job) = self.jobs.get_mut(id) {
                job.note(fired);
            }
            let rules = &self.settings.config.rules;
            let steps = rules.capture_steps.0;
            for action in rules.actions(kind).to_vec() {
                let reason = Reason {
                    trigger: kind.name().to_owned(),
                    title: title.clone(),
                    caller: None,
                };
                let begun = match action {
                    Action::Snapshot => {
                        self.keep_elsewhere(id, kind.name(), &title, None);
                        self.begin_snapshot(id, None, reason)
                    }
                    Action::Capture => {
                        let limits = Limits {
                            steps: Some(steps),
                            ..Limits::default()
                        };
                        self.keep_elsewhere(id, kind.name(), &title, Some(steps));
                        self.begin_capture(id, &limits, reason)
                    }
                    Action::Webhook => {
                        if let Some(posts) = &self.posts {
                            posts.send(document.to_string());
                        }
                        continue;
                    }
                };
                if let Err(why) = begun {
                    self.said
                        .push(format!("{id}: {title}: nothing is kept of it: {why}"));
                }
            }
        }
    }
}

/// A job's processes that live, as the rules look at them.
fn live(job: &Job) -> Vec<Live> {
    job.live()
        .map(|process| Live {
            rank: job.rank_of(&process.folder),
            progressed_ns: process.progressed_ns,
            last_step: process.last_step,
            enqueued: process.totals.enqueued,
            finished: process.totals.finished,
        })
        .collect()
}
