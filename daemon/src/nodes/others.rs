//! The other nodes: how they are told, and what they said last.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, channel};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::config::Nodes;
use super::said::{Part, Said};
use super::wire;
use crate::tls::{self, Identity};

/// What was said last of a job counts for so long.
const FRESH: Duration = Duration::from_secs(5);

/// The other nodes.
pub(crate) struct Others {
    tell: Vec<SyncSender<Arc<str>>>,
    pub(super) said: Receiver<Said>,
    pub(super) heard: BTreeMap<String, (Instant, Vec<Part>)>,
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

    /// What other nodes say of a job's processes just now, each with its node's name as `host`.
    pub(super) fn processes(&self, uid: u32, group: &str) -> Vec<Value> {
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
