//! Latency and bandwidth of every algorithm with every protocol, as NCCL's graph/tuning.cc has them for compute
//! capability 9.0 and Intel processors.

use std::ffi::CStr;

use super::Function;
use super::shape::{Link, Shape};

/// How the ranks are chained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::nccl) enum Algorithm {
    Tree,
    Ring,
    Nvls,
    NvlsTree,
    Pat,
}

impl Algorithm {
    /// In NCCL's order, in which the first of equals is taken.
    pub(in crate::nccl) const ALL: [Self; 5] =
        [Self::Tree, Self::Ring, Self::Nvls, Self::NvlsTree, Self::Pat];

    /// NCCL's word.
    pub(in crate::nccl) fn name(self) -> &'static CStr {
        match self {
            Self::Tree => c"TREE",
            Self::Ring => c"RING",
            Self::Nvls => c"NVLS",
            Self::NvlsTree => c"NVLS_TREE",
            Self::Pat => c"PAT",
        }
    }
}

/// How data and flags travel together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::nccl) enum Protocol {
    /// 4 bytes of data with 4 of flag.
    Ll,
    /// 120 bytes of data with 8 of flag.
    Ll128,
    /// Large slices with flags beside them.
    Simple,
}

impl Protocol {
    /// In NCCL's order.
    pub(in crate::nccl) const ALL: [Self; 3] = [Self::Ll, Self::Ll128, Self::Simple];

    /// NCCL's word.
    pub(in crate::nccl) fn name(self) -> &'static CStr {
        match self {
            Self::Ll => c"LL",
            Self::Ll128 => c"LL128",
            Self::Simple => c"SIMPLE",
        }
    }

    /// Its place in the tables.
    fn index(self) -> usize {
        match self {
            Self::Ll => 0,
            Self::Ll128 => 1,
            Self::Simple => 2,
        }
    }
}

/// Base latencies by protocol, microseconds.
const TREE_BASE: [f64; 3] = [6.8, 14.0, 8.4];
const RING_BASE: [f64; 3] = [6.6, 14.0, 8.4];
const PAT_BASE: f64 = 8.0;
/// Latencies of one step by protocol, microseconds: over NVLink, over PCIe, over the network.
const TREE_STEP: [[f64; 3]; 3] = [[0.6, 1.25, 4.0], [1.0, 1.9, 4.0], [5.0, 8.5, 14.0]];
const RING_STEP: [[f64; 3]; 3] = [[0.6, 1.9, 3.4], [1.0, 2.5, 5.7], [2.7, 4.0, 14.0]];
const NVLS_WITHIN: f64 = 25.0;
const NVLS_TREE_BETWEEN: f64 = 20.9;
const PAT_BETWEEN: f64 = 14.0;
/// Posting to the network costs each step of a ring this many microseconds, three times as much with Simple.
const NETWORK_OVERHEAD: f64 = 1.0;
/// The most that LL reaches, GB/s, on 1, 2 and more nodes.
const LL_MOST: [f64; 3] = [141.0, 39.0, 20.4];
/// The most a channel, GB/s, on 1, 2 and more nodes.
const RING_LL128_MOST: [f64; 3] = [36.7, 36.7, 36.7];
const TREE_LL128_MOST: [f64; 3] = [36.7, 36.7, 29.0];
const TREE_MOST: [f64; 3] = [38.7, 41.4, 36.0];
const NVLS_TREE_MOST: [f64; 3] = [0.0, 57.7, 45.5];
/// Share of the links that NVLS's multicast reaches.
const NVLS_EFFICIENCY: f64 = 0.85;
/// Collectives of a group that one batch of a kernel's work holds: 1024 bytes of descriptions of 96 bytes.
const COLLECTIVES_A_BATCH: u32 = 10;

/// What trees reach of their bandwidth by size, powers of two from 64 bytes on: measured by NCCL's authors.
const TREE_CORRECTION: [[f64; 23]; 3] = [
    [
        1.0, 1.0, 1.0, 1.0, 0.9, 0.8, 0.7, 0.7, 0.7, 0.7, 0.6, 0.5, 0.4, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0,
        1.0, 1.0, 1.0,
    ],
    [
        1.0, 1.0, 1.0, 1.0, 1.0, 0.9, 0.8, 0.8, 0.8, 0.7, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6, 0.8, 0.9, 0.9, 0.9,
        0.9, 1.0, 1.0,
    ],
    [
        0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.8, 0.7, 0.6, 0.6, 0.5, 0.5, 0.5, 0.5, 0.6, 0.7, 0.8, 0.7, 0.7,
        0.8, 0.9, 0.9,
    ],
];

/// An algorithm with a protocol on a shape: time = latency x count + bytes / bandwidth.
#[derive(Clone, Copy, Debug)]
pub(in crate::nccl) struct Estimate {
    /// Microseconds.
    pub(in crate::nccl) latency_us: f64,
    /// The algorithm's bandwidth in GB/s, before the scale.
    pub(in crate::nccl) bandwidth: f64,
    shape: Shape,
    function: Function,
    algorithm: Algorithm,
    protocol: Protocol,
}

impl Estimate {
    /// Microseconds for `bytes` in `operations` fused collectives.
    pub(in crate::nccl) fn time_us(&self, bytes: u64, operations: u32) -> f64 {
        let ring = self.algorithm == Algorithm::Ring;
        let all_reduce = self.function == Function::AllReduce;
        let channels = 2 * self.shape.rings().0;
        let mut bandwidth = self.bandwidth;
        let size = (bytes >> 6).checked_ilog2().map(|log| log as usize);
        if let (Algorithm::Tree, true, Some(size)) = (self.algorithm, all_reduce, size) {
            bandwidth *= TREE_CORRECTION[self.protocol.index()].get(size).unwrap_or(&1.0);
        }
        let mut latency = self.latency_us;
        // Between nodes a ring's latency grows once every channel has 64 bytes for every rank.
        if ring
            && all_reduce
            && self.protocol == Protocol::Simple
            && self.shape.nodes > 1
            && bytes / u64::from(channels * self.shape.ranks) >= 64
        {
            latency *= 1.4;
        }
        let in_turn = operations.max(1).div_ceil(channels);
        let count = if ring {
            in_turn
        } else {
            in_turn.div_ceil(COLLECTIVES_A_BATCH)
        };
        latency * f64::from(count) + bytes as f64 * self.shape.slower / (1e3 * bandwidth)
    }
}

/// Steps of a ring.
fn steps(function: Function, ranks: u32) -> f64 {
    f64::from(match function {
        Function::AllReduce => 2 * (ranks - 1),
        Function::AllGather | Function::ReduceScatter => ranks - 1,
        Function::Broadcast | Function::Reduce => ranks,
    })
}

/// The row of a step's latencies for the links of a node.
fn within(shape: &Shape) -> usize {
    usize::from(shape.link != Link::NvSwitch)
}

/// The row of the network's.
const NETWORK: usize = 2;

/// The estimate, or `None` where NCCL does not have this combination.
pub(in crate::nccl) fn estimate(
    shape: &Shape,
    function: Function,
    algorithm: Algorithm,
    protocol: Protocol,
) -> Option<Estimate> {
    if shape.ranks < 2 {
        return None;
    }
    let gathers = matches!(function, Function::AllGather | Function::ReduceScatter);
    let all_reduces = function == Function::AllReduce;
    let simple = protocol == Protocol::Simple;
    // Data and flag arrive together only where 128 bytes are written at once: not over PCIe within a node.
    if protocol == Protocol::Ll128 && shape.link != Link::NvSwitch {
        return None;
    }
    let (latency_us, bandwidth) = match algorithm {
        Algorithm::Ring => ring(shape, function, protocol),
        Algorithm::Tree if all_reduces => tree(shape, protocol),
        Algorithm::Nvls if simple && shape.nodes == 1 && (all_reduces || gathers) => {
            let (latency_us, bus) = nvls(shape, all_reduces)?;
            (
                latency_us,
                if all_reduces {
                    bus * over_steps(shape, function)
                } else {
                    bus
                },
            )
        }
        Algorithm::NvlsTree if simple && shape.nodes > 1 && all_reduces => {
            let (latency_us, bus) = nvls_tree(shape)?;
            (latency_us, bus * over_steps(shape, function))
        }
        Algorithm::Pat if simple && gathers && shape.nodes == shape.ranks => pat(shape),
        _ => return None,
    };
    Some(Estimate {
        latency_us,
        bandwidth,
        shape: *shape,
        function,
        algorithm,
        protocol,
    })
}

/// From the bandwidth of the links to that of the algorithm.
fn over_steps(shape: &Shape, function: Function) -> f64 {
    f64::from(shape.ranks) / steps(function, shape.ranks)
}

/// The column of limits: 1, 2, or more nodes.
fn by_nodes(shape: &Shape) -> usize {
    shape.nodes.clamp(1, 3) as usize - 1
}

fn ring(shape: &Shape, function: Function, protocol: Protocol) -> (f64, f64) {
    let (channels, channel) = shape.rings();
    let links = f64::from(channels) * channel;
    let bus = match protocol {
        Protocol::Ll => (links * 0.5).min(LL_MOST[by_nodes(shape)]),
        Protocol::Ll128 => (links * 0.92).min(f64::from(channels) * RING_LL128_MOST[by_nodes(shape)]),
        Protocol::Simple => links,
    };
    let steps = steps(function, shape.ranks);
    let index = protocol.index();
    let latency = match function {
        // On one node all channels run through the ranks in the same order; between nodes the order turns with the
        // adapter, and every rank adds its step (Simple's with the tree's latency, which has a chunk's).
        Function::Broadcast | Function::Reduce if shape.nodes == 1 => RING_STEP[within(shape)][index],
        Function::Broadcast | Function::Reduce if protocol == Protocol::Simple => {
            steps * TREE_STEP[NETWORK][index]
        }
        Function::Broadcast | Function::Reduce => steps * RING_STEP[NETWORK][index],
        Function::AllReduce | Function::AllGather | Function::ReduceScatter => {
            let over_network =
                f64::from(shape.nodes - 1) * if function == Function::AllReduce { 2.0 } else { 1.0 };
            let mut inside = RING_STEP[within(shape)][index];
            if shape.nodes > 1 {
                let times = if protocol == Protocol::Simple { 3.0 } else { 1.0 };
                inside = inside.max(NETWORK_OVERHEAD * times);
            }
            // With one rank a node nothing hides the network's latency, which is the tree's then.
            let network = if shape.ranks == shape.nodes {
                TREE_STEP[NETWORK][index]
            } else {
                RING_STEP[NETWORK][index]
            };
            (steps - over_network) * inside + over_network * network
        }
    };
    (RING_BASE[index] + latency, bus * over_steps(shape, function))
}

fn tree(shape: &Shape, protocol: Protocol) -> (f64, f64) {
    let (channels, channel) = shape.trees();
    let channels = f64::from(channels);
    let nodes = by_nodes(shape);
    let index = protocol.index();
    let links = (channels * channel * 0.92).min(channels * TREE_MOST[nodes]);
    let mut bus = match protocol {
        Protocol::Ll => (links / 3.8).min(LL_MOST[nodes]),
        Protocol::Ll128 => {
            let share = if shape.nodes == 1 {
                7.0 / 9.0
            } else {
                120.0 / 128.0
            };
            (links * share).min(channels * TREE_LL128_MOST[nodes])
        }
        Protocol::Simple => links,
    };
    // Between nodes the search falls back to plain trees.
    if shape.nodes > 1 {
        bus *= 0.85;
    }
    let inside = f64::from(shape.ranks / shape.nodes - 1) * TREE_STEP[within(shape)][index];
    let latency = 2.0 * (inside + shape.log2_nodes() * TREE_STEP[NETWORK][index]);
    (TREE_BASE[index] + latency, bus * 0.5)
}

/// Latency and bus bandwidth of NVLS on one node.
fn nvls(shape: &Shape, all_reduces: bool) -> Option<(f64, f64)> {
    let (channels, channel, between) = shape.nvls()?;
    let bus = nvls_within(shape, channels, channel, all_reduces).min(between) * f64::from(channels);
    Some((NVLS_WITHIN, bus))
}

/// Latency and bus bandwidth of NVLS within the nodes and a tree between them.
fn nvls_tree(shape: &Shape) -> Option<(f64, f64)> {
    let (channels, channel, between) = shape.nvls()?;
    // On two nodes each adapter sends and receives for the one other node alone.
    let between = if shape.nodes == 2 { 2.0 * between } else { between };
    let bus = nvls_within(shape, channels, channel, true)
        .min(between)
        .min(NVLS_TREE_MOST[by_nodes(shape)])
        * f64::from(channels);
    Some((NVLS_WITHIN + 2.0 * shape.log2_nodes() * NVLS_TREE_BETWEEN, bus))
}

/// A channel's bus bandwidth within the node.
fn nvls_within(shape: &Shape, channels: u32, channel: f64, all_reduces: bool) -> f64 {
    let others = f64::from(channels - 1) / f64::from(channels);
    let reached = channel * NVLS_EFFICIENCY * others;
    if all_reduces {
        // Its two halves are pipelined.
        2.0 * reached
    } else {
        let ranks = shape.ranks_per_node();
        reached * (ranks - 1.0) / ranks
    }
}

fn pat(shape: &Shape) -> (f64, f64) {
    let (channels, channel) = shape.trees();
    let latency = PAT_BASE + shape.log2_nodes() * PAT_BETWEEN / 3.5 + 2.8 * f64::from(shape.ranks);
    (latency, f64::from(channels) * channel * 0.75)
}
