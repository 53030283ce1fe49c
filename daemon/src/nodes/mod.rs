//! Jobs over several nodes: each node's daemon tells the others of its part, so that all of them show the whole, and what one keeps
//! all keep.
//!
//! A part belongs to a job here when its user and the group of its processes are the same: a scheduler's job and step, or
//! torchrun's run. A node is trusted by its certificate, and then in what it says of its own jobs.

mod wire;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, channel};
use std::time::{Duration, Instant};

use gputrace_trace::daemon::Limits;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::documents;
use crate::state::State;
use crate::tls::{self, Identity};
use crate::windows::Reason;

/// What was said last of a job counts for so long.
const FRESH: Duration = Duration::from_secs(5);
/// Nodes that are remembered, and jobs of each.
const MOST_NODES: usize = 4096;
const MOST_JOBS: usize = 256;

/// The other nodes, as a configuration has them.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nodes {
    /// Where the others call; none: nobody can.
    pub listen: Option<SocketAddr>,
    /// Whom to tell: HOST:PORT each.
    #[serde(default)]
    pub nodes: Vec<String>,
    /// This node's certificate, PEM. It serves for calling and for being called.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// The certificate that all nodes' are signed by.
    pub ca: PathBuf,
}

impl Nodes {
    /// Whether all that is said can be.
    ///
    /// # Errors
    /// What can't.
    pub fn check(&self) -> Result<(), String> {
        for node in &self.nodes {
            let port = node
                .rsplit_once(':')
                .and_then(|(_, port)| port.parse::<u16>().ok());
            if port.is_none() {
                return Err(format!("nodes.nodes: {node:?}: expected HOST:PORT"));
            }
        }
        Ok(())
    }
}

/// What one node says to another.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Said {
    /// Its jobs, every second.
    Jobs {
        /// Which node.
        host: String,
        /// Those that may have parts elsewhere.
        jobs: Vec<Part>,
    },
    /// It keeps something of a job: all do.
    Keep {
        /// Which node.
        host: String,
        /// Whose job.
        uid: u32,
        /// The group of its processes.
        group: String,
        /// The rule that fired.
        trigger: String,
        /// What was found.
        title: String,
        /// The kernels of so many steps; none: what the ring holds.
        steps: Option<u64>,
    },
}

/// A job's part on a node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Part {
    uid: u32,
    group: String,
    /// As "gputrace.job/1" lists them.
    processes: Vec<Value>,
}

/// The other nodes.
pub(crate) struct Others {
    tell: Vec<SyncSender<Arc<str>>>,
    said: Receiver<Said>,
    heard: BTreeMap<String, (Instant, Vec<Part>)>,
    /// Where the others call.
    pub(crate) address: Option<SocketAddr>,
}

impl Others {
    /// Calls them, and listens for them.
    ///
    /// # Errors
    /// One line: a certificate or an address that can't be used.
    pub(crate) fn start(nodes: &Nodes, wake: impl Fn() + Clone + Send + 'static) -> Result<Self, String> {
        let identity = Identity {
            certificate: &nodes.certificate,
            key: &nodes.key,
        };
        let client = tls::client(Some(&nodes.ca), Some(&identity))?;
        let (tell_us, said) = channel();
        let address = match nodes.listen {
            Some(address) => {
                let server = tls::server(&nodes.ca, &identity)?;
                let listening = wire::listen(address, server, tell_us, wake);
                Some(listening.map_err(|error| format!("nodes.listen: {address}: {error}"))?)
            }
            None => None,
        };
        let tell: Result<Vec<_>, _> = nodes
            .nodes
            .iter()
            .map(|node| wire::call(node.clone(), client.clone()))
            .collect();
        Ok(Self {
            tell: tell.map_err(|error| format!("no thread: {error}"))?,
            said,
            heard: BTreeMap::new(),
            address,
        })
    }

    fn tell(&self, said: &Said) {
        let Ok(line) = serde_json::to_string(said) else {
            return;
        };
        let line: Arc<str> = line.into();
        for node in &self.tell {
            // One that does not read hears the next.
            drop(node.try_send(line.clone()));
        }
    }

    /// What other nodes say of a job's processes just now, each with its node's name as `host`.
    fn processes(&self, uid: u32, group: &str) -> Vec<Value> {
        let mut found = Vec::new();
        for (host, (heard, parts)) in &self.heard {
            let of_job = parts.iter().filter(|part| part.uid == uid && part.group == group);
            for process in of_job
                .flat_map(|part| &part.processes)
                .filter(|_| heard.elapsed() < FRESH)
            {
                let mut process = process.clone();
                process["host"] = host.clone().into();
                found.push(process);
            }
        }
        found
    }
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
        let is_it =
            |job: &&crate::jobs::Job| (job.uid, job.key.group.as_str()) == of && job.live().next().is_some();
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
