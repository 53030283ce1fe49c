//! Jobs over several nodes: each node's daemon tells the others of its part, so that all of them show the whole, and what one keeps
//! all keep.
//!
//! A part belongs to a job here when its user and the group of its processes are the same: a scheduler's job and step, or
//! torchrun's run. A node is trusted by its certificate, and then in what it says of its own jobs.

pub mod config;
pub(crate) mod others;
pub(crate) mod said;
mod wire;

use std::time::Instant;

use gputrace_trace::daemon::Limits;
use serde_json::Value;

use self::said::{Part, Said};
use crate::documents;
use crate::jobs::Job;
use crate::state::State;
use crate::windows::Reason;

/// Nodes that are remembered, and jobs of each.
const MOST_NODES: usize = 4096;
const MOST_JOBS: usize = 256;

impl State {
    /// The processes of a job on other nodes.
    pub(crate) fn elsewhere(&self, uid: u32, group: &str) -> Vec<Value> {
        self.others
            .as_ref()
            .map(|others| others.processes(uid, group))
            .unwrap_or_default()
    }

    /// Tells the other nodes of the jobs here.
    pub(crate) fn tell_nodes(&self) {
        let Some(others) = &self.others else { return };
        let shared = self
            .jobs
            .values()
            .filter(|job| job.live().next().is_some() && !job.key.group.is_empty());
        let jobs = shared.take(MOST_JOBS).map(|job| Part {
            uid: job.uid,
            group: job.key.group.clone(),
            processes: documents::processes(self, job),
        });
        others.tell(&Said::Jobs {
            host: self.settings.host.clone(),
            jobs: jobs.collect(),
        });
    }

    /// Has the other nodes keep the same of a job.
    pub(crate) fn keep_elsewhere(&self, id: &str, trigger: &str, title: &str, steps: Option<u64>) {
        let (Some(others), Some(job)) = (&self.others, self.jobs.get(id)) else {
            return;
        };
        others.tell(&Said::Keep {
            host: self.settings.host.clone(),
            uid: job.uid,
            group: job.key.group.clone(),
            trigger: trigger.to_owned(),
            title: title.to_owned(),
            steps,
        });
    }

    /// Does what the other nodes say.
    pub(crate) fn hear_nodes(&mut self) {
        let mut all = Vec::new();
        if let Some(others) = &self.others {
            all.extend(others.said.try_iter());
        }
        for said in all {
            match said {
                Said::Jobs { host, mut jobs } => {
                    jobs.truncate(MOST_JOBS);
                    if let Some(others) = &mut self.others
                        && (others.heard.len() < MOST_NODES || others.heard.contains_key(&host))
                        && host != self.settings.host
                    {
                        others.heard.insert(host, (Instant::now(), jobs));
                    }
                }
                Said::Keep {
                    host,
                    uid,
                    group,
                    trigger,
                    title,
                    steps,
                } => self.keep_as_well(&host, (uid, &group), &trigger, &title, steps),
            }
        }
    }

    fn keep_as_well(&mut self, host: &str, of: (u32, &str), trigger: &str, title: &str, steps: Option<u64>) {
        let is_it = |job: &&Job| (job.uid, job.key.group.as_str()) == of && job.live().next().is_some();
        let Some(id) = self.jobs.values().find(is_it).map(|job| job.id.clone()) else {
            return;
        };
        // The same was noticed here: it is kept already.
        if self
            .windows
            .values()
            .any(|window| window.job == id && window.trigger == trigger)
        {
            return;
        }
        let is_word = !trigger.is_empty()
            && trigger
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte == b'-');
        let reason = Reason {
            trigger: if is_word {
                trigger.chars().take(32).collect()
            } else {
                "node".to_owned()
            },
            title: format!("{host}: {title}").chars().take(400).collect(),
            caller: None,
        };
        let begun = match steps {
            Some(steps) => {
                let limits = Limits {
                    steps: Some(steps),
                    ..Limits::default()
                };
                self.begin_capture(&id, &limits, reason)
            }
            None => self.begin_snapshot(&id, None, reason),
        };
        if let Err(why) = begun {
            self.said.push(format!(
                "{id}: {host} keeps what it found, and here nothing is: {why}"
            ));
        }
    }
}
