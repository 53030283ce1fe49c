//! What joins the devices, and how long copies between them take when several share a link.
//!
//! | topology | two devices | joined by | peer access | alone, GB/s |
//! |---|---|---|---|---|
//! | hgx | all | NVLink 4 through NVSwitch | yes | 370 |
//! | pcie | 0-1, 2-3, ... | one PCIe 5.0 switch (PIX) | yes | 52 |
//! | pcie | 0-2, ... | the root complex of a socket (NODE) | yes | 40 |
//! | pcie | 0-4, ... | the link between sockets (SYS) | no | 16, through the host |
//! | two-nodes | of different nodes | network adapters | no | 18, through both hosts |
//!
//! A copy without peer access goes through the host's memory, one hop after the other: 27 GB/s within a socket.
//!
//! Sharing: every copy has a weight, the bandwidth that it gets alone. Where the copies of a link would take more than
//! there is, all of them slow down by the same factor, as with engines that each keep the same number of requests in
//! flight: two equal copies get half each, and a far one does not catch up with a near one. Times follow from all
//! copies that overlap, whichever was submitted first.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::traffic::{self, Link};
use crate::clock::now_ns;
use crate::config::{Config, Topology};

/// NVLink 4 of one GPU through NVSwitch, one direction, bytes/s: 18 links of 25 GB/s, less their protocol.
const NVLINK_BANDWIDTH: f64 = 370e9;
/// PCIe 5.0 x16 in practice, bytes/s.
pub(super) const PCIE_BANDWIDTH: f64 = 55e9;
/// Two GPUs below one switch: requests do not leave it, but are smaller than those to the host's memory.
const SWITCH_BANDWIDTH: f64 = 52e9;
/// Through the root complex: peer writes are cut smaller there, which costs a fifth more (NCCL's figure for Intel).
const ROOT_COMPLEX_BANDWIDTH: f64 = 40e9;
/// Between sockets (NCCL's figure for the UPI of Sapphire Rapids).
const SOCKETS_BANDWIDTH: f64 = 22e9;
/// Between nodes: one 400 Gb/s adapter a GPU.
const NETWORK_BANDWIDTH: f64 = 48e9;
/// GPUs below one PCIe switch.
const DEVICES_A_SWITCH: u32 = 2;
/// How far ahead of its end a copy's time is settled: copies that start later than that change it no more.
const SETTLED_NS: i64 = 300_000;

/// What joins two devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Connection {
    /// NVLink through NVSwitch.
    NvSwitch,
    /// One PCIe switch: PIX.
    Switch,
    /// The root complex of a socket: NODE.
    Socket,
    /// The link between sockets: SYS.
    System,
    /// Network adapters.
    Network,
}

impl Connection {
    /// Between two different devices.
    pub(crate) fn between(config: &Config, a: u32, b: u32) -> Self {
        if config.node_of(a) != config.node_of(b) {
            return Self::Network;
        }
        match config.topology {
            Topology::Hgx | Topology::TwoNodes => Self::NvSwitch,
            Topology::Pcie if a / DEVICES_A_SWITCH == b / DEVICES_A_SWITCH => Self::Switch,
            Topology::Pcie if config.socket_of(a) == config.socket_of(b) => Self::Socket,
            Topology::Pcie => Self::System,
        }
    }

    /// Whether one device can access the other's memory.
    pub(crate) fn has_peer_access(self) -> bool {
        matches!(self, Self::NvSwitch | Self::Switch | Self::Socket)
    }

    /// How good it is, 0 the best, as CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK has it.
    pub(crate) fn rank(self) -> i32 {
        match self {
            Self::NvSwitch => 0,
            Self::Switch => 1,
            Self::Socket => 2,
            Self::System | Self::Network => 3,
        }
    }
}

/// A part of the machine that copies pass in one direction, by device, switch or socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lane {
    NvLinkOut(u32),
    NvLinkIn(u32),
    PcieOut(u32),
    PcieIn(u32),
    SwitchUp(u32),
    SwitchDown(u32),
    /// From a socket to the other of its node.
    Sockets(u32, u32),
}

impl Lane {
    fn bandwidth(self) -> f64 {
        match self {
            Self::NvLinkOut(_) | Self::NvLinkIn(_) => NVLINK_BANDWIDTH,
            Self::PcieOut(_) | Self::PcieIn(_) | Self::SwitchUp(_) | Self::SwitchDown(_) => PCIE_BANDWIDTH,
            Self::Sockets(..) => SOCKETS_BANDWIDTH,
        }
    }
}

/// The way of a copy.
#[derive(Clone, Debug)]
pub(crate) struct Route {
    lanes: Vec<Lane>,
    /// Alone, in bytes/s.
    bandwidth: f64,
}

/// Hops one after the other.
fn hops(bandwidths: &[f64]) -> f64 {
    1.0 / bandwidths.iter().map(|bandwidth| 1.0 / bandwidth).sum::<f64>()
}

impl Route {
    /// From a device to another, directly where they are connected so and `direct` is set, else through the host.
    pub(crate) fn new(config: &Config, from: u32, to: u32, direct: bool) -> Self {
        let connection = Connection::between(config, from, to);
        let direct = direct && connection.has_peer_access();
        let mut lanes = vec![Lane::PcieOut(from), Lane::PcieIn(to)];
        let switches = [
            Lane::SwitchUp(from / DEVICES_A_SWITCH),
            Lane::SwitchDown(to / DEVICES_A_SWITCH),
        ];
        if config.topology == Topology::Pcie && !(direct && connection == Connection::Switch) {
            lanes.extend(switches);
        }
        let bandwidth = match connection {
            Connection::NvSwitch if direct => {
                lanes = vec![Lane::NvLinkOut(from), Lane::NvLinkIn(to)];
                NVLINK_BANDWIDTH
            }
            Connection::Switch if direct => SWITCH_BANDWIDTH,
            Connection::Socket if direct => ROOT_COMPLEX_BANDWIDTH,
            Connection::Network => hops(&[PCIE_BANDWIDTH, NETWORK_BANDWIDTH, PCIE_BANDWIDTH]),
            _ if config.socket_of(from) != config.socket_of(to) => {
                lanes.push(Lane::Sockets(config.node_of(from), config.socket_of(from)));
                hops(&[PCIE_BANDWIDTH, SOCKETS_BANDWIDTH])
            }
            _ => hops(&[PCIE_BANDWIDTH, PCIE_BANDWIDTH]),
        };
        Self {
            lanes,
            bandwidth: bandwidth / config.link_factor(from, to),
        }
    }

    /// Counts bytes that have gone this way.
    pub(crate) fn count(&self, bytes: u64) {
        for lane in &self.lanes {
            match *lane {
                Lane::NvLinkOut(device) => traffic::add(device, Link::NvLink, bytes, 0),
                Lane::NvLinkIn(device) => traffic::add(device, Link::NvLink, 0, bytes),
                Lane::PcieOut(device) => traffic::add(device, Link::Pcie, bytes, 0),
                Lane::PcieIn(device) => traffic::add(device, Link::Pcie, 0, bytes),
                Lane::SwitchUp(_) | Lane::SwitchDown(_) | Lane::Sockets(..) => {}
            }
        }
    }

    /// Bytes/s that a copy gets alone, before the scale.
    #[cfg(test)]
    pub(crate) fn bandwidth(&self) -> f64 {
        self.bandwidth
    }
}

/// A copy on its way.
#[derive(Clone, Debug)]
struct Flow {
    number: u64,
    start_ns: f64,
    /// Bytes times the scale.
    bytes: f64,
    route: Route,
    /// Once it is settled.
    end_ns: Option<f64>,
}

/// The end of each flow: bytes flow at each one's rate from one start or end to the next.
fn ends(flows: &[Flow]) -> Vec<f64> {
    let mut left: Vec<f64> = flows.iter().map(|flow| flow.bytes).collect();
    let mut ends: Vec<Option<f64>> = vec![None; flows.len()];
    let mut now = flows
        .iter()
        .map(|flow| flow.start_ns)
        .fold(f64::INFINITY, f64::min);
    while ends.iter().any(Option::is_none) {
        let active: Vec<usize> = (0..flows.len())
            .filter(|&index| ends[index].is_none() && flows[index].start_ns <= now)
            .collect();
        let load = |lane: Lane| -> f64 {
            let passing = active
                .iter()
                .filter(|&&index| flows[index].route.lanes.contains(&lane));
            passing.map(|&index| flows[index].route.bandwidth).sum()
        };
        // Bytes a nanosecond.
        let rates: Vec<f64> = active
            .iter()
            .map(|&index| {
                let route = &flows[index].route;
                let share = route
                    .lanes
                    .iter()
                    .map(|lane| lane.bandwidth() / load(*lane))
                    .fold(1.0, f64::min);
                route.bandwidth * share / 1e9
            })
            .collect();
        let next_start = flows
            .iter()
            .map(|flow| flow.start_ns)
            .filter(|start| *start > now)
            .fold(f64::INFINITY, f64::min);
        let end_of = |place: usize| {
            let index = active[place];
            flows[index]
                .end_ns
                .unwrap_or(now + left[index] / rates[place])
                .max(now)
        };
        let next_end = (0..active.len()).map(end_of).fold(f64::INFINITY, f64::min);
        let next = next_start.min(next_end);
        let ending: Vec<bool> = (0..active.len()).map(|place| end_of(place) <= next).collect();
        for (place, &index) in active.iter().enumerate() {
            left[index] = (left[index] - rates[place] * (next - now)).max(0.0);
            if ending[place] {
                ends[index] = Some(next);
            }
        }
        now = next;
    }
    ends.into_iter().map(|end| end.unwrap_or(now)).collect()
}

struct Fabric {
    next: u64,
    flows: Vec<Flow>,
}

static FABRIC: Mutex<Fabric> = Mutex::new(Fabric {
    next: 0,
    flows: Vec::new(),
});
static CHANGED: Condvar = Condvar::new();

fn fabric() -> MutexGuard<'static, Fabric> {
    FABRIC.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A copy that starts at `start_ns`: blocks until its end is settled, shortly before it comes, and gives it.
pub(crate) fn transfer(route: Route, bytes: f64, start_ns: i64) -> i64 {
    let mut fabric = fabric();
    let number = fabric.next;
    fabric.next += 1;
    fabric.flows.push(Flow {
        number,
        start_ns: start_ns as f64,
        bytes,
        route,
        end_ns: None,
    });
    // Others end later because of this one.
    CHANGED.notify_all();
    loop {
        let predicted = ends(&fabric.flows);
        let Some(place) = fabric.flows.iter().position(|flow| flow.number == number) else {
            return start_ns;
        };
        let end_ns = predicted[place];
        let wait_ns = end_ns - SETTLED_NS as f64 - now_ns() as f64;
        if wait_ns <= 0.0 {
            fabric.flows[place].end_ns = Some(end_ns);
            forget_old(&mut fabric.flows);
            return end_ns.round() as i64;
        }
        let timeout = Duration::from_nanos(wait_ns as u64 + 1);
        fabric = CHANGED
            .wait_timeout(fabric, timeout)
            .unwrap_or_else(PoisonError::into_inner)
            .0;
    }
}

/// Drops settled copies that no copy under way overlaps, and none that may still be told of.
fn forget_old(flows: &mut Vec<Flow>) {
    let first_start = flows
        .iter()
        .filter(|flow| flow.end_ns.is_none())
        .map(|flow| flow.start_ns)
        .fold(now_ns() as f64 - 20e6, f64::min);
    flows.retain(|flow| flow.end_ns.is_none_or(|end| end > first_start));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::with;

    fn route(topology: &'static str, from: u32, to: u32, direct: bool) -> Route {
        Route::new(&with(&[("SIMGPU_TOPOLOGY", topology)]), from, to, direct)
    }

    /// GB/s alone.
    fn alone(topology: &'static str, from: u32, to: u32, direct: bool) -> f64 {
        route(topology, from, to, direct).bandwidth() / 1e9
    }

    fn flow(number: u64, start_ns: f64, bytes: f64, route: &Route) -> Flow {
        Flow {
            number,
            start_ns,
            bytes,
            route: route.clone(),
            end_ns: None,
        }
    }

    fn assert_ends(flows: &[Flow], expected: &[f64]) {
        let found = ends(flows);
        for (found, expected) in found.iter().zip(expected) {
            assert!(
                (found - expected).abs() < 1e-3 * expected,
                "{found} is not {expected}: {flows:?}"
            );
        }
    }

    #[test]
    fn each_pair_has_the_bandwidth_of_its_connection() {
        assert!((alone("hgx", 0, 7, true) - 370.0).abs() < 0.1);
        // Three different ones from GPU 0 of a PCIe box, and worse without peer access.
        assert!((alone("pcie", 0, 1, true) - 52.0).abs() < 0.1);
        assert!((alone("pcie", 0, 2, true) - 40.0).abs() < 0.1);
        assert!((alone("pcie", 0, 4, true) - 15.71).abs() < 0.1);
        assert!((alone("pcie", 0, 1, false) - 27.5).abs() < 0.1);
        assert!((alone("pcie", 0, 2, false) - 27.5).abs() < 0.1);
        assert!((alone("hgx", 0, 1, false) - 27.5).abs() < 0.1);
        assert!((alone("hgx", 0, 4, false) - 15.71).abs() < 0.1);
        assert!((alone("two-nodes", 0, 7, true) - 370.0).abs() < 0.1);
        assert!((alone("two-nodes", 0, 8, true) - 17.46).abs() < 0.1);
    }

    #[test]
    fn a_slow_link_is_slow_both_ways() {
        let config = with(&[("SIMGPU_SLOW", "link:0-1=4")]);
        for (from, to, gigabytes) in [(0, 1, 92.5), (1, 0, 92.5), (0, 2, 370.0)] {
            assert!((Route::new(&config, from, to, true).bandwidth() / 1e9 - gigabytes).abs() < 0.1);
        }
    }

    #[test]
    fn copies_of_one_link_share_it() {
        let there = route("hgx", 0, 1, true);
        let bytes = 370e3;
        // 370 kB at 370 bytes/ns: 1 us alone.
        assert_ends(&[flow(0, 0.0, bytes, &there)], &[1_000.0]);
        // Two at once: half each. The second from half time on: 0.5 alone, 1 us together, 0.5 alone.
        assert_ends(
            &[flow(0, 0.0, bytes, &there), flow(1, 0.0, bytes, &there)],
            &[2_000.0, 2_000.0],
        );
        assert_ends(
            &[flow(0, 0.0, bytes, &there), flow(1, 500.0, bytes, &there)],
            &[1_500.0, 2_000.0],
        );
        // The other direction and other pairs are free; another destination shares the way out.
        let back = route("hgx", 1, 0, true);
        let apart = route("hgx", 2, 3, true);
        let other = route("hgx", 0, 2, true);
        assert_ends(
            &[
                flow(0, 0.0, bytes, &there),
                flow(1, 0.0, bytes, &back),
                flow(2, 0.0, bytes, &apart),
            ],
            &[1_000.0, 1_000.0, 1_000.0],
        );
        assert_ends(
            &[flow(0, 0.0, bytes, &there), flow(1, 0.0, bytes, &other)],
            &[2_000.0, 2_000.0],
        );
    }

    #[test]
    fn unequal_copies_keep_their_proportion() {
        // From GPU 0 of a PCIe box to 1, 2 and 4: 52 + 40 + 15.7 GB/s want 107.7, and 55 go out.
        let routes = [1, 2, 4].map(|to| route("pcie", 0, to, true));
        let flows: Vec<Flow> = (0..3)
            .map(|index| flow(index as u64, 0.0, 52e3, &routes[index]))
            .collect();
        let found = ends(&flows);
        // The first ends when 52 kB have gone at 52 x 55 / 107.7 GB/s.
        assert!((found[0] - 1e3 * 107.714 / 55.0).abs() < 1.0, "{found:?}");
        assert!(found[0] < found[1] && found[1] < found[2], "{found:?}");
        // Nothing is lost and nothing made: the way out was full until the last was alone.
        assert!(found[2] > 3.0 * 52e3 / 55.0 && found[2] < 52e3 / 15.7 + 2_000.0);
    }

    #[test]
    fn a_settled_end_stays() {
        let there = route("hgx", 0, 1, true);
        let mut first = flow(0, 0.0, 370e3, &there);
        first.end_ns = Some(1_000.0);
        assert_ends(&[first, flow(1, 900.0, 370e3, &there)], &[1_000.0, 1_950.0]);
    }

    #[test]
    fn old_copies_are_forgotten() {
        let there = route("hgx", 0, 1, true);
        let mut settled = flow(0, 0.0, 1.0, &there);
        settled.end_ns = Some(10.0);
        let mut flows = vec![settled.clone(), flow(1, 5.0, 1.0, &there)];
        forget_old(&mut flows);
        assert_eq!(flows.len(), 2, "one under way overlaps it");
        flows[1].end_ns = Some(now_ns() as f64);
        forget_old(&mut flows);
        assert_eq!(flows.iter().map(|flow| flow.number).collect::<Vec<_>>(), [1]);
    }

    proptest::proptest! {
        #[test]
        fn no_copy_is_faster_than_its_links(
            copies in proptest::collection::vec((0u32..8, 0u32..8, 0u32..5_000, 1u32..1_000_000), 1..12),
            pcie: bool,
        ) {
            let config = with(&[("SIMGPU_TOPOLOGY", if pcie { "pcie" } else { "hgx" })]);
            let flows: Vec<Flow> = copies
                .iter()
                .filter(|(from, to, ..)| from != to)
                .enumerate()
                .map(|(number, (from, to, start, bytes))| {
                    let route = Route::new(&config, *from, *to, true);
                    flow(number as u64, f64::from(*start), f64::from(*bytes), &route)
                })
                .collect();
            let ends = ends(&flows);
            let alone = |flow: &Flow| flow.bytes / flow.route.bandwidth * 1e9;
            for (flow, end) in flows.iter().zip(&ends) {
                proptest::prop_assert!(*end >= (flow.start_ns + alone(flow)) * (1.0 - 1e-9));
            }
            // A lane carries no more than it can from its first start to its last end.
            for lane in flows.iter().flat_map(|flow| flow.route.lanes.clone()) {
                let (mut bytes, mut first, mut last) = (0.0, f64::INFINITY, 0.0f64);
                for (flow, end) in flows.iter().zip(&ends) {
                    if flow.route.lanes.contains(&lane) {
                        bytes += flow.bytes;
                        first = first.min(flow.start_ns);
                        last = last.max(*end);
                    }
                }
                proptest::prop_assert!(bytes / lane.bandwidth() * 1e9 <= (last - first) * (1.0 + 1e-9));
            }
            // All of them one after the other would take at least as long.
            let sum: f64 = flows.iter().map(alone).sum();
            let last_start = flows.iter().map(|flow| flow.start_ns).fold(0.0, f64::max);
            let slowest = if pcie { 3.0 } else { 1.0 };
            for end in &ends {
                proptest::prop_assert!(*end <= (last_start + slowest * sum) * (1.0 + 1e-9));
            }
        }
    }
}
