//! What joins the devices: the same connections that copies and collectives are timed by.
//!
//! With NVSwitch each GPU has 18 NVLinks of generation 4, to the node's four switches, 5, 4, 4 and 5 of them. On PCIe,
//! two GPUs hang on a switch and two switches on a socket, each behind a host bridge of its own.

use std::ffi::{c_uint, c_ulong};

use super::identity::PciInfo;
use super::{Answer, code, device_of, handle_of, nvml_functions, put};
use crate::config::{Topology, config};
use crate::device::links::Connection;

/// NVLinks of a GPU.
pub(super) const NVLINKS: c_uint = 18;
/// nvmlGpuTopologyLevel_t.
const SAME: c_uint = 0;
const SINGLE_SWITCH: c_uint = 10;
const NUMA_NODE: c_uint = 40;
const SYSTEM: c_uint = 50;
/// nvmlGpuP2PStatus_t.
const P2P_OK: c_uint = 0;
const CHIPSET_NOT_SUPPORTED: c_uint = 1;
const P2P_NOT_SUPPORTED: c_uint = 5;
/// NVML_NVLINK_DEVICE_TYPE_SWITCH.
const TO_SWITCH: c_uint = 2;

/// What two devices' ways through PCIe have in common.
fn common_ancestor(a: u32, b: u32) -> c_uint {
    let config = config();
    if a == b {
        SAME
    } else if config.node_of(a) != config.node_of(b) || config.socket_of(a) != config.socket_of(b) {
        SYSTEM
    } else if Connection::between(config, a, b) == Connection::Switch {
        SINGLE_SWITCH
    } else {
        NUMA_NODE
    }
}

/// Checks that a device has a link of this number.
pub(super) fn check_link(handle: usize, link: c_uint) -> Answer {
    device_of(handle)?;
    if config().topology == Topology::Pcie {
        return Err(code::NOT_SUPPORTED);
    }
    if link < NVLINKS {
        Ok(())
    } else {
        Err(code::INVALID_ARGUMENT)
    }
}

/// Switches of a node.
const SWITCHES: u32 = 4;

/// The switch that a device's link goes to: each node has its own.
fn switch_of(device: u32, link: c_uint) -> u32 {
    let of_node = match link {
        0..5 => 0,
        5..9 => 1,
        9..13 => 2,
        _ => 3,
    };
    config().node_of(device) * SWITCHES + of_node
}

/// Sets the bits of a set of `words` words.
fn put_set(place: *mut c_ulong, words: c_uint, members: impl Iterator<Item = usize>) -> Answer {
    if place.is_null() {
        return Err(code::INVALID_ARGUMENT);
    }
    let mut set = vec![0; words as usize];
    for member in members {
        let word = set.get_mut(member / c_ulong::BITS as usize);
        *word.ok_or(code::INSUFFICIENT_SIZE)? |= 1 << (member % c_ulong::BITS as usize);
    }
    for (index, word) in set.into_iter().enumerate() {
        // SAFETY: not null, and the caller passes that many words.
        unsafe { place.add(index).write_unaligned(word) };
    }
    Ok(())
}

/// This machine's processors that stand for a socket's: the first half or the second.
fn processors_of(socket: u32) -> std::ops::Range<usize> {
    // SAFETY: only asks.
    let count = usize::try_from(unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) }).unwrap_or(1);
    match socket {
        _ if count < 2 => 0..count,
        0 => 0..count / 2,
        _ => count / 2..count,
    }
}

nvml_functions! {
    /// nvmlDeviceGetTopologyCommonAncestor.
    fn nvmlDeviceGetTopologyCommonAncestor(a: usize, b: usize, level: *mut c_uint) {
        put(level, common_ancestor(device_of(a)?, device_of(b)?))
    }

    /// nvmlDeviceGetTopologyNearestGpus: those with a common ancestor up to this level.
    fn nvmlDeviceGetTopologyNearestGpus(handle: usize, level: c_uint, count: *mut c_uint, handles: *mut usize) {
        let device = device_of(handle)?;
        if count.is_null() {
            return Err(code::INVALID_ARGUMENT);
        }
        let near: Vec<u32> = (0..config().devices)
            .filter(|other| *other != device && common_ancestor(device, *other) <= level)
            .collect();
        // SAFETY: not null, and a number by NVML's contract.
        let room = unsafe { count.read_unaligned() } as usize;
        if room > 0 && !handles.is_null() {
            for (index, other) in near.iter().take(room).enumerate() {
                // SAFETY: the caller passes as many places as `count` says.
                unsafe { handles.add(index).write_unaligned(handle_of(*other)) };
            }
        }
        put(count, u32::try_from(near.len()).unwrap_or(u32::MAX))
    }

    /// nvmlDeviceOnSameBoard: each is on one of its own.
    fn nvmlDeviceOnSameBoard(a: usize, b: usize, same: *mut c_uint) {
        put(same, c_uint::from(device_of(a)? == device_of(b)?))
    }

    /// nvmlDeviceGetP2PStatus: reads 0, writes 1, NVLink 2, atomics 3, PCIe 4.
    fn nvmlDeviceGetP2PStatus(a: usize, b: usize, what: c_uint, status: *mut c_uint) {
        let (a, b) = (device_of(a)?, device_of(b)?);
        if a == b || what > 4 {
            return Err(code::INVALID_ARGUMENT);
        }
        let connection = Connection::between(config(), a, b);
        let nvlink = connection == Connection::NvSwitch;
        put(status, match what {
            _ if connection == Connection::System => CHIPSET_NOT_SUPPORTED,
            0 | 1 if connection.has_peer_access() => P2P_OK,
            2 | 3 if nvlink => P2P_OK,
            4 if connection.has_peer_access() && !nvlink => P2P_OK,
            _ => P2P_NOT_SUPPORTED,
        })
    }

    /// nvmlDeviceGetNvLinkState.
    fn nvmlDeviceGetNvLinkState(handle: usize, link: c_uint, active: *mut c_uint) {
        check_link(handle, link)?;
        put(active, 1)
    }

    /// nvmlDeviceGetNvLinkVersion.
    fn nvmlDeviceGetNvLinkVersion(handle: usize, link: c_uint, version: *mut c_uint) {
        check_link(handle, link)?;
        put(version, 4)
    }

    /// nvmlDeviceGetNvLinkCapability: peers, the host's memory, atomics on both, no SLI, valid.
    fn nvmlDeviceGetNvLinkCapability(handle: usize, link: c_uint, capability: c_uint, has: *mut c_uint) {
        check_link(handle, link)?;
        match capability {
            0..=3 | 5 => put(has, 1),
            4 => put(has, 0),
            _ => Err(code::INVALID_ARGUMENT),
        }
    }

    /// nvmlDeviceGetNvLinkRemoteDeviceType.
    fn nvmlDeviceGetNvLinkRemoteDeviceType(handle: usize, link: c_uint, kind: *mut c_uint) {
        check_link(handle, link)?;
        put(kind, TO_SWITCH)
    }

    /// nvmlDeviceGetNvLinkRemotePciInfo_v2: a switch's.
    fn nvmlDeviceGetNvLinkRemotePciInfo_v2(handle: usize, link: c_uint, info: *mut PciInfo) {
        check_link(handle, link)?;
        put(info, PciInfo::of_switch(switch_of(device_of(handle)?, link)))
    }

    /// nvmlDeviceGetCurrPcieLinkGeneration.
    fn nvmlDeviceGetCurrPcieLinkGeneration(handle: usize, generation: *mut c_uint) {
        device_of(handle)?;
        put(generation, 5)
    }

    /// nvmlDeviceGetMaxPcieLinkGeneration.
    fn nvmlDeviceGetMaxPcieLinkGeneration(handle: usize, generation: *mut c_uint) {
        device_of(handle)?;
        put(generation, 5)
    }

    /// nvmlDeviceGetCurrPcieLinkWidth.
    fn nvmlDeviceGetCurrPcieLinkWidth(handle: usize, lanes: *mut c_uint) {
        device_of(handle)?;
        put(lanes, 16)
    }

    /// nvmlDeviceGetMaxPcieLinkWidth.
    fn nvmlDeviceGetMaxPcieLinkWidth(handle: usize, lanes: *mut c_uint) {
        device_of(handle)?;
        put(lanes, 16)
    }

    /// nvmlDeviceGetMemoryAffinity: the modelled NUMA node beside the device.
    fn nvmlDeviceGetMemoryAffinity(handle: usize, words: c_uint, nodes: *mut c_ulong, _scope: c_uint) {
        let socket = config().socket_of(device_of(handle)?) as usize;
        put_set(nodes, words, std::iter::once(socket))
    }

    /// nvmlDeviceGetCpuAffinity: this machine's processors, one half for each modelled socket.
    fn nvmlDeviceGetCpuAffinity(handle: usize, words: c_uint, processors: *mut c_ulong) {
        put_set(processors, words, processors_of(config().socket_of(device_of(handle)?)))
    }

    /// nvmlDeviceGetCpuAffinityWithinScope.
    fn nvmlDeviceGetCpuAffinityWithinScope(handle: usize, words: c_uint, processors: *mut c_ulong, _scope: c_uint) {
        put_set(processors, words, processors_of(config().socket_of(device_of(handle)?)))
    }

    /// nvmlDeviceGetNumaNodeId.
    fn nvmlDeviceGetNumaNodeId(handle: usize, node: *mut c_uint) {
        put(node, config().socket_of(device_of(handle)?))
    }
}
