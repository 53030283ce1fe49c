//! How a host's GPUs and network cards are connected, as NVML and the kernel tell it.

use serde::{Deserialize, Serialize};

/// One host's.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Topology {
    /// Host name.
    pub host: String,
    /// The GPUs, by NVML's index.
    pub gpus: Vec<Gpu>,
    /// What lies between each two of them; `a` is the lower index.
    pub pairs: Vec<Pair>,
    /// Network cards that a GPU can reach over PCIe: InfiniBand and other RDMA devices, and network interfaces.
    pub nics: Vec<Nic>,
}

/// A GPU's own side.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Gpu {
    /// NVML's index.
    pub index: u32,
    /// The name.
    pub name: String,
    /// UUID as 32 hexadecimal digits.
    pub uuid: Option<String>,
    /// PCI address: "0000:3b:00.0".
    pub pci: Option<String>,
    /// NUMA node beside it.
    pub numa_node: Option<u32>,
    /// Processors beside it: "0-31,64-95".
    pub processors: Option<String>,
    /// NVLinks that are up.
    pub nvlinks: u32,
    /// Generation of its NVLinks.
    pub nvlink_generation: Option<u32>,
    /// PCIe generation of its slot's link at its best.
    pub pcie_generation: Option<u32>,
    /// PCIe lanes of that link.
    pub pcie_lanes: Option<u32>,
}

/// The way between two devices over PCIe, nearest first, by the words of `nvidia-smi topo -m`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Way {
    /// On one board, or one bridge at most.
    #[serde(rename = "PIX")]
    OneBridge,
    /// Several bridges, and no host bridge.
    #[serde(rename = "PXB")]
    Bridges,
    /// A host bridge.
    #[serde(rename = "PHB")]
    HostBridge,
    /// Host bridges of one NUMA node.
    #[serde(rename = "NODE")]
    Node,
    /// The link between NUMA nodes.
    #[serde(rename = "SYS")]
    System,
}

impl Way {
    /// The word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::OneBridge => "PIX",
            Self::Bridges => "PXB",
            Self::HostBridge => "PHB",
            Self::Node => "NODE",
            Self::System => "SYS",
        }
    }
}

/// What lies between two GPUs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Pair {
    /// NVML's index of the one.
    pub a: u32,
    /// And of the other.
    pub b: u32,
    /// The way over PCIe.
    pub way: Option<Way>,
    /// NVLinks between them, directly or over switches; 0 for none.
    pub nvlinks: u32,
    /// What the driver allows between them ("ok", or why not), by kind: "read", "write", "nvlink", "atomics", "pcie".
    pub peer_access: Vec<(String, String)>,
}

/// A network card.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Nic {
    /// The kernel's name: "mlx5_0" of an RDMA device, else "eth0".
    pub name: String,
    /// PCI address.
    pub pci: String,
    /// NUMA node beside it.
    pub numa_node: Option<u32>,
    /// The way to each GPU whose PCI address is known, by NVML's index.
    pub ways: Vec<(u32, Way)>,
}

/// The way between two PCI devices, from their paths under `/sys/devices` and their NUMA nodes.
///
/// A path names each bridge on the way from the host bridge: `/sys/devices/pci0000:17/0000:17:01.0/0000:18:00.0/...`.
/// Behind one switch the last two steps of both differ at most: the switch's port and the device.
#[must_use]
pub fn way_between(a: &str, b: &str, nodes: (Option<u32>, Option<u32>)) -> Option<Way> {
    let parts = |path: &str| -> Option<Vec<String>> {
        let (_, rest) = path.split_once("/sys/devices/")?;
        let parts: Vec<String> = rest.split('/').map(str::to_owned).collect();
        parts[0].starts_with("pci").then_some(parts)
    };
    let (a, b) = (parts(a)?, parts(b)?);
    let common = a.iter().zip(&b).take_while(|(a, b)| a == b).count();
    Some(match common {
        0 => match nodes {
            (Some(a), Some(b)) if a == b => Way::Node,
            _ => Way::System,
        },
        1 => Way::HostBridge,
        _ if a.len() - common <= 2 && b.len() - common <= 2 => Way::OneBridge,
        _ => Way::Bridges,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SWITCH: &str = "/sys/devices/pci0000:17/0000:17:01.0/0000:18:00.0";

    #[test]
    fn ways_are_told_by_what_the_paths_share() {
        let gpu = format!("{SWITCH}/0000:19:00.0/0000:1a:00.0");
        let beside = format!("{SWITCH}/0000:19:01.0/0000:1b:00.0");
        let deeper = format!("{SWITCH}/0000:19:02.0/0000:1c:00.0/0000:1d:00.0/0000:1e:00.0");
        let bridge = "/sys/devices/pci0000:17/0000:17:05.0/0000:20:00.0";
        let other = "/sys/devices/pci0000:97/0000:97:01.0/0000:98:00.0";
        let way = |to: &str| way_between(&gpu, to, (Some(0), Some(0)));
        assert_eq!(way(&beside), Some(Way::OneBridge));
        assert_eq!(way(&deeper), Some(Way::Bridges));
        assert_eq!(way(bridge), Some(Way::HostBridge));
        assert_eq!(way(other), Some(Way::Node));
        assert_eq!(way_between(&gpu, other, (Some(0), Some(1))), Some(Way::System));
        assert_eq!(way_between(&gpu, other, (Some(0), None)), Some(Way::System));
    }

    #[test]
    fn devices_that_are_not_on_pci_have_no_way() {
        let gpu = format!("{SWITCH}/0000:19:00.0/0000:1a:00.0");
        assert_eq!(
            way_between(&gpu, "/sys/devices/virtual/net/lo", (None, None)),
            None
        );
    }
}
