//! What the links of known GPUs can carry, by data sheet: what achieved bandwidths stand beside.

use gputrace_trace::topology::{Gpu, Topology};
use rustc_hash::FxHashMap;

/// The links of one product.
struct Product {
    /// What its name contains, as whole words.
    name: &'static str,
    /// To the host, GB/s in one direction.
    host: (f64, &'static str),
    /// To other GPUs of the node, GB/s in one direction.
    peer: Option<(f64, &'static str)>,
    /// Its own memory, GB/s, reads and writes together.
    memory: f64,
}

const PCIE_3: (f64, &str) = (15.75, "PCIe 3.0 x16");
const PCIE_4: (f64, &str) = (31.5, "PCIe 4.0 x16");
const PCIE_5: (f64, &str) = (63.0, "PCIe 5.0 x16");
const PCIE_6: (f64, &str) = (121.0, "PCIe 6.0 x16");
const NVLINK_C2C: (f64, &str) = (450.0, "NVLink-C2C");

/// Vendors' data sheets, read 2026. More
/// special names come first. Links of AMD are one of the seven (or three) to each peer. B200 could do PCIe 6.0; hosts that it
/// was sold with do 5.0.
const PRODUCTS: &[Product] = &[
    Product {
        name: "GB300",
        host: NVLINK_C2C,
        peer: Some((900.0, "NVLink 5")),
        memory: 8000.0,
    },
    Product {
        name: "GB200",
        host: NVLINK_C2C,
        peer: Some((900.0, "NVLink 5")),
        memory: 8000.0,
    },
    Product {
        name: "GH200",
        host: NVLINK_C2C,
        peer: Some((450.0, "NVLink 4")),
        memory: 4000.0,
    },
    Product {
        name: "B200",
        host: PCIE_5,
        peer: Some((900.0, "NVLink 5")),
        memory: 8000.0,
    },
    Product {
        name: "B300",
        host: PCIE_6,
        peer: Some((900.0, "NVLink 5")),
        memory: 8000.0,
    },
    Product {
        name: "H200",
        host: PCIE_5,
        peer: Some((450.0, "NVLink 4")),
        memory: 4800.0,
    },
    Product {
        name: "H100 NVL",
        host: PCIE_5,
        peer: Some((300.0, "NVLink 4 bridge")),
        memory: 3900.0,
    },
    Product {
        name: "H100 PCIe",
        host: PCIE_5,
        peer: None,
        memory: 2000.0,
    },
    Product {
        name: "H100",
        host: PCIE_5,
        peer: Some((450.0, "NVLink 4")),
        memory: 3350.0,
    },
    Product {
        name: "H800",
        host: PCIE_5,
        peer: Some((200.0, "NVLink 4")),
        memory: 3350.0,
    },
    Product {
        name: "A100-PCIE",
        host: PCIE_4,
        peer: None,
        memory: 1555.0,
    },
    Product {
        name: "A100 80GB PCIe",
        host: PCIE_4,
        peer: None,
        memory: 1935.0,
    },
    Product {
        name: "A100-SXM4-80GB",
        host: PCIE_4,
        peer: Some((300.0, "NVLink 3")),
        memory: 2039.0,
    },
    Product {
        name: "A100",
        host: PCIE_4,
        peer: Some((300.0, "NVLink 3")),
        memory: 1555.0,
    },
    Product {
        name: "V100-SXM3",
        host: PCIE_3,
        peer: Some((150.0, "NVLink 2")),
        memory: 900.0,
    },
    Product {
        name: "V100-SXM2",
        host: PCIE_3,
        peer: Some((150.0, "NVLink 2")),
        memory: 900.0,
    },
    Product {
        name: "V100",
        host: PCIE_3,
        peer: None,
        memory: 900.0,
    },
    Product {
        name: "L40S",
        host: PCIE_4,
        peer: None,
        memory: 864.0,
    },
    Product {
        name: "A40",
        host: PCIE_4,
        peer: None,
        memory: 696.0,
    },
    Product {
        name: "MI325X",
        host: PCIE_5,
        peer: Some((64.0, "Infinity Fabric")),
        memory: 6000.0,
    },
    Product {
        name: "MI300X",
        host: PCIE_5,
        peer: Some((64.0, "Infinity Fabric")),
        memory: 5300.0,
    },
    Product {
        name: "MI250X",
        host: PCIE_4,
        peer: Some((50.0, "Infinity Fabric")),
        memory: 1638.0,
    },
    Product {
        name: "MI250",
        host: PCIE_4,
        peer: Some((50.0, "Infinity Fabric")),
        memory: 1638.0,
    },
];

/// A link and what it can carry in one direction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Nominal {
    /// GB/s.
    pub gb_per_s: f64,
    /// The link: "PCIe 4.0 x16", "NVLink 4", ...
    pub link: &'static str,
}

/// Whether a name contains some words and not only the beginning or the end of another: an A4000 is no A40.
fn has_words(name: &str, words: &str) -> bool {
    name.match_indices(words).any(|(at, _)| {
        let is_apart = |letter: Option<char>| letter.is_none_or(|letter| !letter.is_alphanumeric());
        is_apart(name[..at].chars().next_back()) && is_apart(name[at + words.len()..].chars().next())
    })
}

/// What a copy in this direction (`CUpti_ActivityMemcpyKind`) goes through, on a GPU of this name.
#[must_use]
pub fn nominal(device_name: &str, direction: u8, between_devices: bool) -> Option<Nominal> {
    // A modelled GPU's links are the model's own.
    if device_name.starts_with("Simulated") {
        return None;
    }
    let product = PRODUCTS
        .iter()
        .find(|product| has_words(device_name, product.name))?;
    let (gb_per_s, link) = match direction {
        1..=4 => product.host,
        10 => product.peer.unwrap_or(product.host),
        8 if between_devices => product.peer.unwrap_or(product.host),
        // Each byte is read and written.
        8 => (product.memory / 2.0, "device memory"),
        _ => return None,
    };
    Some(Nominal { gb_per_s, link })
}

/// What the NVLinks between a host's GPUs carry.
pub(crate) struct Nvlinks<'a> {
    /// By UUID.
    gpus: FxHashMap<&'a str, &'a Gpu>,
    /// How many links NVML said are up between two GPUs, by their numbers, the smaller one first.
    pairs: FxHashMap<(u32, u32), u32>,
}

impl<'a> Nvlinks<'a> {
    /// Those of a host.
    pub(crate) fn of(topology: &'a Topology) -> Self {
        let gpus = topology.gpus.iter().rev();
        let pairs = topology.pairs.iter().rev();
        Self {
            gpus: gpus.filter_map(|gpu| Some((gpu.uuid.as_deref()?, gpu))).collect(),
            pairs: pairs.map(|pair| ((pair.a, pair.b), pair.nvlinks)).collect(),
        }
    }

    /// What they carry in one direction between GPUs (by their UUIDs), GB/s: the least of any two of them. `None` where any two
    /// have none, or that is not known.
    pub(crate) fn between(&self, uuids: &[&str]) -> Option<f64> {
        let gpus: Vec<&Gpu> = uuids
            .iter()
            .map(|uuid| self.gpus.get(uuid).copied())
            .collect::<Option<_>>()?;
        let mut least: Option<f64> = None;
        for (place, a) in gpus.iter().enumerate() {
            for b in &gpus[place + 1..] {
                let links = *self.pairs.get(&(a.index.min(b.index), a.index.max(b.index)))?;
                // Data sheets: P100 4 links of 20 GB/s, V100 6 of 25, A100 12 of 25, H100 18 of 25, B200 18 of 50.
                let each = match a.nvlink_generation? {
                    1 => 20.0,
                    2..=4 => 25.0,
                    5 => 50.0,
                    _ => return None,
                };
                let carried = f64::from(links) * each / slowed(&a.name);
                least = Some(least.map_or(carried, |least| least.min(carried)));
            }
        }
        least.filter(|least| *least > 0.0)
    }
}

/// How many times slower than its model a simulated GPU says that it is: "Simulated H200 (1/4000 speed)". 1 of a real one.
fn slowed(name: &str) -> f64 {
    let scale = name.starts_with("Simulated").then(|| {
        let (_, rest) = name.split_once("(1/")?;
        rest.split_once(' ')?.0.parse::<f64>().ok()
    });
    scale.flatten().filter(|scale| *scale >= 1.0).unwrap_or(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gputrace_trace::topology::Pair;

    #[test]
    fn links_carry_what_nvml_says_is_up() {
        let gpu = |index: u32, name: &str| Gpu {
            index,
            name: name.to_owned(),
            uuid: Some(format!("uuid {index}")),
            nvlink_generation: Some(4),
            ..Gpu::default()
        };
        let pair = |a, b, nvlinks| Pair {
            a,
            b,
            nvlinks,
            ..Pair::default()
        };
        let mut topology = Topology {
            gpus: (0..3).map(|index| gpu(index, "NVIDIA H200")).collect(),
            pairs: vec![pair(0, 1, 18), pair(0, 2, 18), pair(1, 2, 4)],
            ..Topology::default()
        };
        let nvlinks = |topology: &Topology, uuids: &[&str]| Nvlinks::of(topology).between(uuids);
        assert_eq!(nvlinks(&topology, &["uuid 1", "uuid 0"]), Some(450.0));
        assert_eq!(nvlinks(&topology, &["uuid 0", "uuid 1", "uuid 2"]), Some(100.0));
        assert_eq!(nvlinks(&topology, &["uuid 0", "uuid 7"]), None);
        topology.pairs[0].nvlinks = 0;
        assert_eq!(nvlinks(&topology, &["uuid 0", "uuid 1"]), None);
        topology.gpus[2].name = "Simulated H200 (1/1000 speed)".to_owned();
        assert_eq!(nvlinks(&topology, &["uuid 2", "uuid 0"]), Some(0.45));
    }

    #[test]
    fn products_are_told_by_name() {
        let link =
            |name, direction| nominal(name, direction, false).map(|nominal| (nominal.gb_per_s, nominal.link));
        assert_eq!(link("Tesla V100-SXM2-32GB", 1), Some((15.75, "PCIe 3.0 x16")));
        assert_eq!(link("NVIDIA A100-SXM4-80GB", 8), Some((1019.5, "device memory")));
        assert_eq!(link("NVIDIA H200", 10), Some((450.0, "NVLink 4")));
        assert_eq!(link("NVIDIA GH200 480GB", 1), Some((450.0, "NVLink-C2C")));
        assert_eq!(link("NVIDIA H100 80GB HBM3", 8), Some((1675.0, "device memory")));
        assert_eq!(link("NVIDIA H100 NVL", 8), Some((1950.0, "device memory")));
        assert_eq!(link("NVIDIA RTX A4000", 8), None);
        assert_eq!(link("NVIDIA GeForce GTX 1080", 1), None);
        assert_eq!(link("Simulated H200", 1), None);
        assert_eq!(link("NVIDIA H200", 9), None);
    }
}
