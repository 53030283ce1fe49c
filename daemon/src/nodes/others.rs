//! The other nodes: how they are told, and what they said last.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::config::Nodes;
use super::said::{Part, Said};
use super::wire::{self, Heard};
use crate::tls::{self, Identity};

/// What was said last of a job counts for so long.
const FRESH: Duration = Duration::from_secs(5);

/// Nodes that are remembered.
const MOST_NODES: usize = 4096;
/// What all of them together may have said last, in bytes of JSON.
const MOST_HEARD_BYTES: usize = 64 << 20;
/// What was said and not heard yet; whoever says more waits.
pub(super) const MOST_UNHEARD: usize = 64;

/// The last that a node said.
struct Last {
    heard: Instant,
    /// As JSON.
    bytes: usize,
    parts: Vec<Part>,
}

/// The other nodes.
pub(crate) struct Others {
    tell: Vec<SyncSender<Arc<str>>>,
    pub(super) said: Receiver<Heard>,
    last: BTreeMap<String, Last>,
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
        let (tell_us, said) = sync_channel(MOST_UNHEARD);
        let address = match nodes.listen {
            Some(address) => {
                let server = tls::server(&nodes.ca, &identity)?;
                let listening = wire::listen(address, server, tell_us.clone(), wake.clone());
                Some(listening.map_err(|error| format!("nodes.listen: {address}: {error}"))?)
            }
            None => None,
        };
        let tell: Result<Vec<_>, _> = nodes
            .nodes
            .iter()
            .map(|node| {
                let (tell_us, wake) = (tell_us.clone(), wake.clone());
                let trouble = move |line| {
                    // Where many have something to say, one line more or less is no loss.
                    drop(tell_us.try_send(Err(line)));
                    wake();
                };
                wire::call(node.clone(), client.clone(), trouble)
            })
            .collect();
        Ok(Self {
            tell: tell.map_err(|error| format!("no thread: {error}"))?,
            said,
            last: BTreeMap::new(),
            address,
        })
    }

    pub(super) fn tell(&self, said: &Said) {
        let Ok(line) = serde_json::to_string(said) else {
            return;
        };
        let line: Arc<str> = line.into();
        for node in &self.tell {
            // One that does not read hears the next.
            drop(node.try_send(line.clone()));
        }
    }

    /// Remembers what a node says of its jobs, unless the others have said too much already. Says whether other ranks run there than
    /// before.
    pub(super) fn hear(&mut self, host: String, bytes: usize, parts: Vec<Part>) -> bool {
        self.last.retain(|_, last| last.heard.elapsed() < FRESH);
        let others = self.last.iter().filter(|(of, _)| **of != host);
        let (count, rest) = others.fold((0, 0), |(count, rest), (_, last)| (count + 1, rest + last.bytes));
        if count >= MOST_NODES || rest + bytes > MOST_HEARD_BYTES {
            return false;
        }
        let heard = Instant::now();
        let is_same = |before: &Last| running_of(&before.parts).eq(running_of(&parts));
        let is_news = self.last.get(&host).is_none_or(|before| !is_same(before));
        self.last.insert(host, Last { heard, bytes, parts });
        is_news
    }

    /// The ranks of a job that run on other nodes just now, as these say, with the nodes' names.
    pub(super) fn running(&self, uid: u32, group: &str) -> Vec<(u32, String)> {
        let mut found = Vec::new();
        for (host, process) in self.parts(uid, group) {
            found.extend(running_rank(process).map(|rank| (rank, host.to_owned())));
        }
        found
    }

    fn parts(&self, uid: u32, group: &str) -> impl Iterator<Item = (&str, &Value)> {
        let fresh = self.last.iter().filter(|(_, last)| last.heard.elapsed() < FRESH);
        fresh.flat_map(move |(host, last)| {
            let of_job = last
                .parts
                .iter()
                .filter(move |part| part.uid == uid && part.group == group);
            of_job
                .flat_map(|part| &part.processes)
                .map(move |process| (host.as_str(), process))
        })
    }

    /// What other nodes say of a job's processes just now, each with its node's name as `host`.
    pub(super) fn processes(&self, uid: u32, group: &str) -> Vec<Value> {
        let parts = self.parts(uid, group).map(|(host, process)| {
            let mut process = process.clone();
            process["host"] = host.into();
            process
        });
        parts.collect()
    }
}

/// The rank of a process, as its node lists it, if it runs.
fn running_rank(process: &Value) -> Option<u32> {
    let rank = process["rank"].as_u64()?;
    u32::try_from(rank).ok().filter(|_| process["state"] == "running")
}

/// The ranks that run, with their jobs.
fn running_of(parts: &[Part]) -> impl Iterator<Item = (u32, &str, u32)> {
    parts.iter().flat_map(|part| {
        let ranks = part.processes.iter().filter_map(running_rank);
        ranks.map(|rank| (part.uid, part.group.as_str(), rank))
    })
}
