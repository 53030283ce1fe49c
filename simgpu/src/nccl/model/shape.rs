//! What a communicator looks like to NCCL: nodes, links, and the channels that its search of the topology finds.
//!
//! The searched graphs of HGX boxes are what NCCL 2.30's own search gives for 18 NVLink 4 at 20.6 GB/s a GPU through
//! NVSwitch and one 400 Gb/s adapter a GPU. For numbers of GPUs in between, the search's rule is followed: each GPU's
//! links carry every channel, at the greatest speed of the search's list that fits.

use crate::config::{Topology, config};

/// Bandwidth of one GPU's NVLinks through NVSwitch, GB/s: 18 of NVLink 4, each 20.6 as NCCL counts them.
pub(super) const NVLINK_BANDWIDTH: f64 = 18.0 * 20.6;
/// NCCL's bandwidth of one NVLink 4, GB/s.
pub(super) const ONE_NVLINK_BANDWIDTH: f64 = 20.6;
/// An adapter of 400 Gb/s as NCCL's search uses it, GB/s.
pub(super) const NETWORK_BANDWIDTH: f64 = 48.0;
/// Speeds a channel that the search tries within a node and between nodes, compute capability 9.0 (graph/search.cc).
const SPEEDS_WITHIN: [f64; 11] = [60.0, 50.0, 40.0, 30.0, 24.0, 20.0, 15.0, 12.0, 11.0, 6.0, 3.0];
const SPEEDS_BETWEEN: [f64; 10] = [48.0, 45.0, 42.0, 40.0, 30.0, 24.0, 22.0, 20.0, 17.5, 15.0];
/// Ring channels on one NVSwitch node, and GB/s of each: every GPU sends 360 of its 370.8 GB/s.
const NVSWITCH_RINGS: (u32, f64) = (12, 30.0);

/// The worst link that a ring through the GPUs of one node has to pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::nccl) enum Link {
    /// NVLink 4 through NVSwitch.
    NvSwitch,
    /// PCIe 5.0 x16 within one socket, through switches or the root complex: PIX, PXB, PHB or NODE.
    PcieSocket,
    /// The socket interconnect: SYS.
    PcieSystem,
}

/// Where a rank is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::nccl) struct RankPlace {
    /// The host, equal for ranks that share one.
    pub(in crate::nccl) host: u64,
    /// The device's number on that host.
    pub(in crate::nccl) device: u32,
}

/// All that a communicator's times depend on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::nccl) struct Shape {
    pub(in crate::nccl) ranks: u32,
    pub(in crate::nccl) nodes: u32,
    /// Ranks of the node that has fewest.
    pub(in crate::nccl) fewest_local: u32,
    /// What links the GPUs of a node.
    pub(in crate::nccl) link: Link,
    /// How many times slower than the real machine all bandwidths are: the scale times the slowest link's factor.
    pub(in crate::nccl) slower: f64,
}

impl Shape {
    /// Ranks at these places, on this process's modelled topology.
    pub(in crate::nccl) fn of(places: &[RankPlace]) -> Self {
        let config = config();
        let mut nodes: Vec<((u64, u32), Vec<u32>)> = Vec::new();
        for place in places {
            let node = (place.host, config.node_of(place.device));
            match nodes.iter_mut().find(|(known, _)| *known == node) {
                Some((_, devices)) => devices.push(place.device),
                None => nodes.push((node, vec![place.device])),
            }
        }
        let across_sockets = nodes.iter().any(|(_, devices)| {
            devices
                .iter()
                .any(|device| config.socket_of(*device) != config.socket_of(devices[0]))
        });
        let pairs = places
            .iter()
            .flat_map(|one| places.iter().map(move |other| (one, other)));
        let link_factor = pairs
            .filter(|(one, other)| one.host == other.host)
            .map(|(one, other)| config.link_factor(one.device, other.device))
            .fold(1.0, f64::max);
        Self {
            ranks: u32::try_from(places.len()).unwrap_or(u32::MAX),
            nodes: u32::try_from(nodes.len()).unwrap_or(u32::MAX).max(1),
            fewest_local: nodes
                .iter()
                .map(|(_, devices)| u32::try_from(devices.len()).unwrap_or(u32::MAX))
                .min()
                .unwrap_or(1),
            link: match config.topology {
                Topology::Hgx | Topology::TwoNodes => Link::NvSwitch,
                Topology::Pcie if across_sockets => Link::PcieSystem,
                Topology::Pcie => Link::PcieSocket,
            },
            slower: config.scale * link_factor,
        }
    }

    /// Ranks a node, on average.
    pub(super) fn ranks_per_node(&self) -> f64 {
        f64::from(self.ranks) / f64::from(self.nodes)
    }

    /// log2 of the number of nodes, rounded down.
    pub(super) fn log2_nodes(&self) -> f64 {
        f64::from(self.nodes.max(1).ilog2())
    }

    /// Channels of the ring, and GB/s of each. Between nodes with NVSwitch each GPU has an adapter of its own, so that
    /// as many channels run at the adapters' speed as the smallest node has ranks.
    pub(super) fn rings(&self) -> (u32, f64) {
        match self.link {
            Link::NvSwitch if self.nodes > 1 => (self.fewest_local, NETWORK_BANDWIDTH),
            Link::NvSwitch => NVSWITCH_RINGS,
            // 6/5 of PCIe's 48 GB/s is needed through an Intel root complex: the search finds 40. Between sockets it
            // counts 22 GB/s (the interconnect of Sapphire Rapids), for which it finds 20.
            Link::PcieSocket => (1, 40.0),
            Link::PcieSystem => (1, 20.0),
        }
    }

    /// Channels of the tree, and GB/s of each. A chain of two GPUs uses one direction of a link only, so that it gets
    /// twice the ring's.
    pub(super) fn trees(&self) -> (u32, f64) {
        let (channels, bandwidth) = self.rings();
        match self.link {
            Link::NvSwitch if self.nodes == 1 && self.ranks == 2 => (channels, 2.0 * bandwidth),
            _ => (channels, bandwidth),
        }
    }

    /// Channels of NVLS, with GB/s of each within the node and towards the others. `None` without NVSwitch, and
    /// between nodes with fewer than three ranks (NCCL sets NVLS up for more than two GPUs a node).
    pub(super) fn nvls(&self) -> Option<(u32, f64, f64)> {
        if self.link != Link::NvSwitch || self.fewest_local < 2 || self.nodes > 1 && self.fewest_local < 3 {
            return None;
        }
        let (speeds, between): (&[f64], f64) = if self.nodes == 1 {
            (&SPEEDS_WITHIN, SPEEDS_WITHIN[0])
        } else {
            (&SPEEDS_BETWEEN, NETWORK_BANDWIDTH)
        };
        // Every GPU is the head of one channel, and its links carry all of them.
        let channels = self.fewest_local;
        let within = speeds
            .iter()
            .find(|speed| **speed * f64::from(channels) <= NVLINK_BANDWIDTH)?;
        Some((channels, *within, between))
    }
}
