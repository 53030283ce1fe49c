//! What is done about what is noticed.

use gputrace_trace::daemon::Limits;
use serde_json::json;

use crate::clock::now_ns;
use crate::devices::Seen;
use crate::jobs::Job;
use crate::nodes::Keeps;
use crate::state::State;
use crate::triggers::fired::{Fired, Held};
use crate::triggers::hang::Live;
use crate::triggers::rules::{Action, Kind};
use crate::windows::Reason;

/// So long it is waited for the node that is to act first, nanoseconds.
const HOLD_NS: i64 = 2_000_000_000;

impl State {
    /// Steps of a job may have ended.
    pub fn steps_ended(&mut self, id: &str, now_ns: i64) {
        let rules = &self.settings.config.rules;
        let Some(job) = self.jobs.get_mut(id) else { return };
        let mut found = Vec::new();
        for step in job.history.complete(now_ns) {
            job.times.add(&step);
            // All nodes notice the same: the one with the lowest rank is the first to act.
            let is_first = step.ranks.first().is_none_or(|rank| !rank.elsewhere);
            let fired = job.watch.step(rules, &step);
            found.extend(fired.into_iter().map(|fired| (fired, is_first)));
        }
        for (fired, is_first) in found {
            match is_first {
                true => self.fire(id, vec![fired]),
                false => self.hold(id, fired, now_ns),
            }
        }
    }

    /// Notes what another node is to act upon, and waits for it a moment.
    fn hold(&mut self, id: &str, fired: Fired, now_ns: i64) {
        if self.note(id, &fired, now_ns) {
            return;
        }
        let Some(job) = self.jobs.get_mut(id) else { return };
        job.watch.hold((fired.trigger, fired.rank), true);
        self.held.push(Held {
            due_ns: now_ns.saturating_add(HOLD_NS),
            job: id.to_owned(),
            fired,
        });
    }

    /// Does itself what the node that was to act first has not done.
    pub fn act_on_held(&mut self, now_ns: i64) {
        let due: Vec<Held> = self.held.extract_if(.., |held| held.due_ns <= now_ns).collect();
        for Held { job: id, fired, .. } in due {
            let what = (fired.trigger, fired.rank);
            let rules = &self.settings.config.rules;
            let Some(job) = self.jobs.get_mut(&id) else {
                continue;
            };
            job.watch.hold(what, false);
            if job.watch.kept(rules, what, now_ns).is_none() {
                self.act(&id, &fired);
            }
        }
    }

    /// What another node found is kept here, as a recording of this name.
    pub(crate) fn keeps_as(&mut self, id: &str, what: (Kind, Option<u32>), recording: String) {
        if let Some(job) = self.jobs.get_mut(id) {
            job.watch.keeps_as(what, recording);
        }
    }

    /// Time passes for a job.
    pub fn look_after(&mut self, id: &str, now_ns: i64) {
        let rules = &self.settings.config.rules;
        let Some(job) = self.jobs.get_mut(id) else { return };
        let live = live(job);
        let steps = (job.history.steps(), job.history.step_ns());
        let found = job.watch.look(rules, &live, steps, now_ns);
        job.hangs |= found.iter().any(|fired| fired.trigger == Kind::Hang);
        for fired in found {
            // Each node notices a hang by its own ranks, at about the same time.
            match fired.trigger == Kind::Hang && !self.is_first(id) {
                true => self.hold(id, fired, now_ns),
                false => self.fire(id, vec![fired]),
            }
        }
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
            if !self.note(id, &fired, now_ns()) {
                self.act(id, &fired);
            }
        }
    }

    /// Notes what was found. Says whether another node has found it too, and had it kept here.
    fn note(&mut self, id: &str, fired: &Fired, now_ns: i64) -> bool {
        self.said.push(format!("{id}: {}", fired.title));
        let rules = &self.settings.config.rules;
        let Some(job) = self.jobs.get_mut(id) else {
            return false;
        };
        let what = (fired.trigger, fired.rank);
        let kept = job.watch.kept(rules, what, now_ns);
        let kept = kept.filter(|_| fired.trigger.is_of_all_nodes());
        // It may still be made: then it is said when it is there.
        let recording = kept.flatten().filter(|name| self.library.has(name));
        let fired = Fired {
            recording: recording.map(str::to_owned),
            ..fired.clone()
        };
        let is_kept = kept.is_some();
        job.note(fired);
        is_kept
    }

    fn act(&mut self, id: &str, fired: &Fired) {
        let (kind, title) = (fired.trigger, &fired.title);
        let rules = &self.settings.config.rules;
        let steps = rules.capture_steps.0;
        let actions = rules.actions(kind).to_vec();
        if actions == [Action::Webhook] && kind.is_of_all_nodes() {
            self.tell_elsewhere(id, fired, Keeps::Nothing);
        }
        for action in actions {
            let reason = Reason {
                trigger: kind.name().to_owned(),
                title: title.clone(),
                caller: None,
            };
            let begun = match action {
                Action::Snapshot => {
                    self.tell_elsewhere(id, fired, Keeps::Ring);
                    self.begin_snapshot(id, None, reason)
                }
                Action::Capture => {
                    let limits = Limits {
                        steps: Some(steps),
                        ..Limits::default()
                    };
                    self.tell_elsewhere(id, fired, Keeps::Steps(steps));
                    self.begin_capture(id, &limits, reason)
                }
                Action::Webhook => {
                    let document = json!({
                        "schema": "gputrace.finding/1",
                        "host": self.settings.host,
                        "job": id,
                        "user": self.jobs.get(id).map(|job| job.user.clone()),
                        "finding": fired,
                    });
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
