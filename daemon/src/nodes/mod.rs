//! Jobs over several nodes: each node's daemon tells the others of its part, so that all of them show the whole, match the steps of
//! all ranks, and what one keeps all keep.
//!
//! A part belongs to a job here when its user and the group of its processes are the same: a scheduler's job and step, or
//! torchrun's run. A node is trusted by its certificate, and then in what it says of its own jobs.

pub mod config;
pub(crate) mod others;
pub(crate) mod ranks;
pub(crate) mod said;
mod steps;
mod wire;

use gputrace_trace::daemon::Limits;
use serde_json::Value;

use self::others::MOST_UNHEARD;
use self::said::{Part, Said};
use crate::clock::now_ns;
use crate::documents;
use crate::state::State;
use crate::triggers::fired::Fired;
use crate::triggers::rules::Kind;
use crate::windows::Reason;

/// Jobs of a node that are remembered.
const MOST_JOBS: usize = 256;

/// Whether a group's name means the same on every node: one that is made of a process's number, or of the node's own address, does not.
pub(crate) fn is_shared(group: &str) -> bool {
    const LOCAL: [&str; 5] = [
        "pid=",
        "parent=",
        "MASTER_ADDR=127.",
        "MASTER_ADDR=localhost",
        "MASTER_ADDR=::1",
    ];
    let is_local = |part: &str| LOCAL.iter().any(|word| part.starts_with(word));
    !group.is_empty() && !group.split(' ').any(is_local)
}

/// What is kept of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keeps {
    /// It is told of, and that is all.
    Nothing,
    /// What the ring holds.
    Ring,
    /// The kernels of the next steps.
    Steps(u64),
}

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
            .filter(|job| job.live().next().is_some() && is_shared(&job.key.group));
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

    /// Whether this node is the first to act upon what all nodes of a job notice: that of the lowest rank is.
    pub(crate) fn is_first(&self, id: &str) -> bool {
        let (Some(others), Some(job)) = (&self.others, self.jobs.get(id)) else {
            return true;
        };
        if !is_shared(&job.key.group) {
            return true;
        }
        let ranks = job.live().map(|process| job.rank_of(&process.folder));
        let here = ranks.min().map(|rank| (rank, self.settings.host.clone()));
        let elsewhere = others.running(job.uid, &job.key.group).into_iter().min();
        elsewhere.is_none_or(|elsewhere| here.is_some_and(|here| here < elsewhere))
    }

    /// Tells the other nodes what was found of a job, and has them keep the same.
    pub(crate) fn tell_elsewhere(&self, id: &str, fired: &Fired, keeps: Keeps) {
        let (Some(others), Some(job)) = (&self.others, self.jobs.get(id)) else {
            return;
        };
        if !is_shared(&job.key.group) {
            return;
        }
        others.tell(&Said::Keep {
            host: self.settings.host.clone(),
            uid: job.uid,
            group: job.key.group.clone(),
            trigger: fired.trigger.name().to_owned(),
            rank: fired.rank,
            title: fired.title.clone(),
            steps: match keeps {
                Keeps::Steps(steps) => Some(steps),
                Keeps::Nothing | Keeps::Ring => None,
            },
            nothing: keeps == Keeps::Nothing,
        });
    }

    /// Does what the other nodes say.
    pub(crate) fn hear_nodes(&mut self) {
        let mut all = Vec::new();
        if let Some(others) = &self.others {
            // What else they say waits until the rest of the daemon has had its turn.
            all.extend(others.said.try_iter().take(MOST_UNHEARD));
        }
        for heard in all {
            let (bytes, said) = match heard {
                Ok(heard) => heard,
                Err(trouble) => {
                    self.said.push(trouble);
                    continue;
                }
            };
            match said {
                Said::Jobs { host, mut jobs } => {
                    jobs.truncate(MOST_JOBS);
                    for job in &mut jobs {
                        job.processes.retain(Value::is_object);
                    }
                    // Steps wait for ranks as soon as they are known.
                    if let Some(others) = &mut self.others
                        && host != self.settings.host
                        && others.hear(host, bytes, jobs)
                    {
                        self.look_elsewhere();
                    }
                }
                Said::Steps { host, jobs } if host != self.settings.host => {
                    for steps in jobs.iter().take(MOST_JOBS) {
                        self.hear_steps(&host, steps);
                    }
                }
                Said::Steps { .. } => {}
                Said::Keep {
                    host,
                    uid,
                    group,
                    trigger,
                    rank,
                    title,
                    steps,
                    nothing,
                } => {
                    let keeps = match (nothing, steps) {
                        (true, _) => Keeps::Nothing,
                        (false, None) => Keeps::Ring,
                        (false, Some(steps)) => Keeps::Steps(steps),
                    };
                    self.keep_as_well(&host, (uid, &group), (&trigger, rank), &title, keeps);
                }
            }
        }
    }

    fn keep_as_well(
        &mut self,
        host: &str,
        (uid, group): (u32, &str),
        (trigger, rank): (&str, Option<u32>),
        title: &str,
        keeps: Keeps,
    ) {
        let Some(id) = self.part_of(uid, group) else {
            return;
        };
        // Another version's rules are not known here.
        let Some(kind) = Kind::ALL.into_iter().find(|kind| kind.name() == trigger) else {
            return;
        };
        let rules = &self.settings.config.rules;
        let job = self.jobs.get_mut(&id);
        if !job.is_some_and(|job| job.watch.keeps_too(rules, (kind, rank), now_ns())) {
            return;
        }
        let title: String = title.chars().filter(|letter| !letter.is_control()).collect();
        let reason = Reason {
            trigger: kind.name().to_owned(),
            title: format!("{host}: {title}").chars().take(400).collect(),
            caller: None,
        };
        let begun = match keeps {
            Keeps::Nothing => return,
            Keeps::Steps(steps) => {
                let limits = Limits {
                    steps: Some(steps),
                    ..Limits::default()
                };
                self.begin_capture(&id, &limits, reason)
            }
            Keeps::Ring => self.begin_snapshot(&id, None, reason),
        };
        match begun {
            Ok(name) => self.keeps_as(&id, (kind, rank), name),
            Err(why) => self.said.push(format!(
                "{id}: {host} keeps what it found, and here nothing is: {why}"
            )),
        }
    }
}
