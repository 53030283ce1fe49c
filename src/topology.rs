//! Asking how this host's GPUs and network cards are connected: NVML for the GPUs, /sys for the cards.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use gputrace_trace::topology::{Gpu, Nic, Pair, Topology, Way, way_between};
use nvml_wrapper::enum_wrappers::device::{P2pCapabilitiesIndex, P2pStatus, TopologyLevel};
use nvml_wrapper::struct_wrappers::device::PciInfo;
use nvml_wrapper::{Device, Nvml};

use crate::nvml::plain_uuid;

/// NVLinks that a GPU can have at most (NVML_NVLINK_MAX_LINKS).
const MOST_NVLINKS: u32 = 18;
/// Words of a set of processors: 64 each.
const PROCESSOR_WORDS: usize = 32;

/// What NVML knows of this host; what it does not know is left out.
pub fn of(nvml: &Nvml, host: &str) -> Topology {
    let count = nvml.device_count().unwrap_or(0);
    let devices: Vec<(u32, Device<'_>)> = (0..count)
        .filter_map(|index| Some((index, nvml.device_by_index(index).ok()?)))
        .collect();
    let gpus: Vec<Gpu> = devices
        .iter()
        .map(|(index, device)| gpu(*index, device))
        .collect();
    let ends: Vec<BTreeMap<String, u32>> = devices.iter().map(|(_, device)| nvlink_ends(device)).collect();
    let mut pairs = Vec::new();
    for (place, (a, one)) in devices.iter().enumerate() {
        for (other_place, (b, other)) in devices.iter().enumerate().skip(place + 1) {
            pairs.push(Pair {
                a: *a,
                b: *b,
                way: nvml
                    .device_by_index(*b)
                    .and_then(|other| one.topology_common_ancestor(other))
                    .ok()
                    .and_then(way),
                nvlinks: nvlinks_between(
                    (&gpus[place], &ends[place]),
                    (&gpus[other_place], &ends[other_place]),
                ),
                peer_access: peer_access(one, other),
            });
        }
    }
    let nics = nics(&gpus);
    Topology {
        host: host.to_owned(),
        gpus,
        pairs,
        nics,
    }
}

fn gpu(index: u32, device: &Device<'_>) -> Gpu {
    let pci = device.pci_info().ok().map(|pci| address(&pci));
    Gpu {
        index,
        name: device.name().unwrap_or_default(),
        uuid: device.uuid().ok().map(|uuid| plain_uuid(&uuid)),
        numa_node: device
            .numa_node_id()
            .ok()
            .or_else(|| numa_node(&pci_folder(pci.as_deref()?)))
            .or_else(|| first_node(device)),
        processors: device
            .cpu_affinity(PROCESSOR_WORDS)
            .ok()
            .map(|words| list(&words)),
        nvlinks: nvlink_ends(device).values().sum(),
        nvlink_generation: (0..MOST_NVLINKS).find_map(|link| {
            let link = device.link_wrapper_for(link);
            link.is_active().ok().filter(|active| *active)?;
            link.version().ok()
        }),
        pcie_generation: device.max_pcie_link_gen().ok(),
        pcie_lanes: device.max_pcie_link_width().ok(),
        pci,
    }
}

/// PCI addresses of NVML have eight digits for the domain, the kernel's four.
fn address(pci: &PciInfo) -> String {
    kernel_address(&pci.bus_id)
}

fn kernel_address(address: &str) -> String {
    let lower = address.to_ascii_lowercase();
    match lower.split_once(':') {
        Some((domain, rest)) if domain.len() == 8 && domain.starts_with("0000") => {
            format!("{}:{rest}", &domain[4..])
        }
        _ => lower,
    }
}

/// The NUMA node of the device's memory affinity, where it is one.
fn first_node(device: &Device<'_>) -> Option<u32> {
    /// NVML_AFFINITY_SCOPE_NODE.
    const NODE: u32 = 0;
    let words = device.memory_affinity(1, NODE).ok()?;
    let nodes = words.first().copied()?;
    (nodes.count_ones() == 1).then(|| nodes.trailing_zeros())
}

/// What a GPU's active NVLinks lead to, by PCI address: how many to each.
fn nvlink_ends(device: &Device<'_>) -> BTreeMap<String, u32> {
    let mut ends = BTreeMap::new();
    for link in 0..MOST_NVLINKS {
        let link = device.link_wrapper_for(link);
        if link.is_active().unwrap_or(false)
            && let Ok(end) = link.remote_pci_info()
        {
            *ends.entry(address(&end)).or_insert(0) += 1;
        }
    }
    ends
}

/// NVLinks between two GPUs: those that lead from one to the other, else as many as both have to switches of common.
fn nvlinks_between(
    (a, a_ends): (&Gpu, &BTreeMap<String, u32>),
    (b, b_ends): (&Gpu, &BTreeMap<String, u32>),
) -> u32 {
    let to = |ends: &BTreeMap<String, u32>, gpu: &Gpu| {
        let pci = gpu.pci.as_ref();
        pci.and_then(|pci| ends.get(pci)).copied().unwrap_or(0)
    };
    let direct = to(a_ends, b).min(to(b_ends, a));
    if direct > 0 {
        return direct;
    }
    let common = a_ends
        .iter()
        .map(|(end, links)| links.min(b_ends.get(end).unwrap_or(&0)));
    common.sum()
}

fn way(level: TopologyLevel) -> Option<Way> {
    Some(match level {
        TopologyLevel::Internal | TopologyLevel::Single => Way::OneBridge,
        TopologyLevel::Multiple => Way::Bridges,
        TopologyLevel::HostBridge => Way::HostBridge,
        TopologyLevel::Node => Way::Node,
        TopologyLevel::System => Way::System,
    })
}

fn peer_access(a: &Device<'_>, b: &Device<'_>) -> Vec<(String, String)> {
    let kinds = [
        ("read", P2pCapabilitiesIndex::Read),
        ("write", P2pCapabilitiesIndex::Write),
        ("nvlink", P2pCapabilitiesIndex::NvLink),
        ("atomics", P2pCapabilitiesIndex::Atomics),
        ("pcie", P2pCapabilitiesIndex::Prop),
    ];
    let status = |(name, kind): (&str, P2pCapabilitiesIndex)| {
        let word = match a.p2p_status(b, kind).ok()? {
            P2pStatus::Ok => "ok",
            P2pStatus::ChipsetNotSupported => "not with this chipset",
            P2pStatus::GpuNotSupported => "not with this GPU",
            P2pStatus::IohTopologyNotSupported => "not over this topology",
            P2pStatus::DisabledByRegkey => "disabled",
            P2pStatus::NotSupported => "not supported",
            P2pStatus::Unknown => "unknown",
        };
        Some((name.to_owned(), word.to_owned()))
    };
    kinds.into_iter().filter_map(status).collect()
}

/// A set of bits as the kernel writes it: "0-3,8".
fn list(words: &[std::ffi::c_ulong]) -> String {
    let width = std::ffi::c_ulong::BITS as usize;
    let is_set = |bit: usize| {
        words
            .get(bit / width)
            .is_some_and(|word| word >> (bit % width) & 1 == 1)
    };
    let mut parts = Vec::new();
    let mut bit = 0;
    while bit < words.len() * width {
        if !is_set(bit) {
            bit += 1;
            continue;
        }
        let first = bit;
        while is_set(bit) {
            bit += 1;
        }
        parts.push(match bit - 1 {
            last if last == first => first.to_string(),
            last => format!("{first}-{last}"),
        });
    }
    parts.join(",")
}

fn pci_folder(address: &str) -> PathBuf {
    Path::new("/sys/bus/pci/devices").join(address)
}

/// The NUMA node that the kernel has of a device; it says -1 where there is but one.
fn numa_node(folder: &Path) -> Option<u32> {
    fs::read_to_string(folder.join("numa_node"))
        .ok()?
        .trim()
        .parse()
        .ok()
}

/// Network cards on PCI, with the way to each GPU: RDMA devices, and interfaces of cards that are none.
fn nics(gpus: &[Gpu]) -> Vec<Nic> {
    let mut cards: BTreeMap<PathBuf, String> = BTreeMap::new();
    for class in ["/sys/class/infiniband", "/sys/class/net"] {
        let Ok(entries) = fs::read_dir(class) else {
            continue;
        };
        let mut names: Vec<String> = entries
            .filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned()))
            .collect();
        names.sort();
        for name in names {
            let Ok(path) = fs::canonicalize(Path::new(class).join(&name).join("device")) else {
                continue;
            };
            // Virtual functions and ports of one card are one name: the first.
            cards.entry(path).or_insert(name);
        }
    }
    let mut nics: Vec<Nic> = cards
        .iter()
        .filter_map(|(path, name)| nic(path, name, gpus))
        .collect();
    nics.sort_by(|a, b| a.name.cmp(&b.name));
    nics
}

fn nic(path: &Path, name: &str, gpus: &[Gpu]) -> Option<Nic> {
    let pci = path.file_name()?.to_string_lossy().into_owned();
    // A card that hangs on something else (a virtual machine's) has no address of PCI: domain:bus:device.function.
    if pci.split([':', '.']).count() != 4 {
        return None;
    }
    let node = numa_node(path);
    let ways = gpus.iter().filter_map(|gpu| {
        let gpu_path = fs::canonicalize(pci_folder(gpu.pci.as_deref()?)).ok()?;
        let nodes = (gpu.numa_node, node);
        Some((
            gpu.index,
            way_between(&gpu_path.to_string_lossy(), &path.to_string_lossy(), nodes)?,
        ))
    });
    Some(Nic {
        name: name.to_owned(),
        pci,
        numa_node: node,
        ways: ways.collect(),
    })
}

/// A matrix of all GPUs and cards: "NV18" for NVLinks, else the way over PCIe; headings first.
pub fn matrix(topology: &Topology) -> (Vec<String>, Vec<Vec<String>>) {
    let mut headings = vec![String::new()];
    headings.extend(topology.gpus.iter().map(|gpu| format!("GPU{}", gpu.index)));
    headings.extend(topology.nics.iter().map(|nic| nic.name.clone()));
    headings.extend(["NUMA", "processors", "NVLinks", "PCIe"].map(str::to_owned));
    let unknown = || "-".to_owned();
    let between = |a: u32, b: u32| {
        let pair = topology
            .pairs
            .iter()
            .find(|pair| (pair.a, pair.b) == (a.min(b), a.max(b)));
        match pair {
            Some(pair) if pair.nvlinks > 0 => format!("NV{}", pair.nvlinks),
            Some(Pair { way: Some(way), .. }) => way.word().to_owned(),
            _ => unknown(),
        }
    };
    let number = |number: Option<u32>| number.map_or_else(unknown, |number| number.to_string());
    let row = |gpu: &Gpu| {
        let mut row = vec![format!("GPU{}", gpu.index)];
        row.extend(topology.gpus.iter().map(|other| {
            if other.index == gpu.index {
                "X".to_owned()
            } else {
                between(gpu.index, other.index)
            }
        }));
        row.extend(topology.nics.iter().map(|nic| {
            let way = nic.ways.iter().find(|(index, _)| *index == gpu.index);
            way.map_or_else(unknown, |(_, way)| way.word().to_owned())
        }));
        row.push(number(gpu.numa_node));
        row.push(gpu.processors.clone().unwrap_or_else(unknown));
        row.push(match gpu.nvlink_generation {
            Some(generation) if gpu.nvlinks > 0 => format!("{} of generation {generation}", gpu.nvlinks),
            _ => gpu.nvlinks.to_string(),
        });
        row.push(format!(
            "{} x{}",
            number(gpu.pcie_generation),
            number(gpu.pcie_lanes)
        ));
        row
    };
    (headings, topology.gpus.iter().map(row).collect())
}

/// Pairs of GPUs that cannot reach each other's memory, in sentences: NCCL then copies through the host.
pub fn without_peer_access(topology: &Topology) -> Vec<String> {
    let refused = topology.pairs.iter().filter_map(|pair| {
        let read = pair.peer_access.iter().find(|(kind, _)| kind == "read")?;
        (read.1 != "ok").then(|| format!("GPU{}-GPU{} ({})", pair.a, pair.b, read.1))
    });
    refused.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_the_kernels() {
        assert_eq!(kernel_address("00000000:3B:00.0"), "0000:3b:00.0");
        assert_eq!(kernel_address("00010000:3B:00.0"), "00010000:3b:00.0");
        assert_eq!(kernel_address("0001:3B:00.0"), "0001:3b:00.0");
    }

    #[test]
    fn sets_are_written_as_ranges() {
        assert_eq!(list(&[0b1_0000_1111, 0]), "0-3,8");
        assert_eq!(list(&[1 << 63, 0b11]), "63-65");
        assert_eq!(list(&[0]), "");
    }

    #[test]
    fn nvlinks_are_direct_or_over_common_switches() {
        let gpu = |pci: &str| Gpu {
            pci: Some(pci.to_owned()),
            ..Gpu::default()
        };
        let ends = |ends: &[(&str, u32)]| {
            ends.iter()
                .map(|(end, links)| ((*end).to_owned(), *links))
                .collect()
        };
        let (a, b) = (gpu("a"), gpu("b"));
        let switched: BTreeMap<String, u32> = ends(&[("switch0", 9), ("switch1", 9)]);
        assert_eq!(nvlinks_between((&a, &switched), (&b, &switched)), 18);
        let half = ends(&[("switch0", 9)]);
        assert_eq!(nvlinks_between((&a, &switched), (&b, &half)), 9);
        let direct = (ends(&[("b", 4), ("c", 2)]), ends(&[("a", 4)]));
        assert_eq!(nvlinks_between((&a, &direct.0), (&b, &direct.1)), 4);
        assert_eq!(nvlinks_between((&a, &BTreeMap::new()), (&b, &half)), 0);
    }
}
