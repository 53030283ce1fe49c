//! The other nodes, as a configuration names them.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::Deserialize;

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
