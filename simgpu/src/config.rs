//! The controls of the stand-in, read once from SIMGPU_* variables.
//!
//! | variable | meaning | default |
//! |---|---|---|
//! | SIMGPU_DEVICES | GPUs a process sees, 1 to 64 | 8; `two-nodes`: see below |
//! | SIMGPU_TOPOLOGY | `hgx` (NVLink between all), `pcie` (sockets of 4, switches of 2), `two-nodes` (two of `hgx`) | hgx |
//! | SIMGPU_MEMORY | GB (1e9 bytes) of each GPU | 141 |
//! | SIMGPU_SCALE | how many times slower than an H200 node (FLOP/s and bytes/s; latencies stay) | 1000 |
//! | SIMGPU_SEED | seeds the small jitter of modelled times | 0 |
//! | SIMGPU_CUPTI | record layouts: 12.0, 12.8, 13.0 or 13.4 | 13.4 |
//! | SIMGPU_SLOW | `rank:N=FACTOR` or `link:A-B=FACTOR`, comma-separated | none |
//! | SIMGPU_SKEW | `OFFSET_NS` or `OFFSET_NS,DRIFT_PPM`: what the delivered device stamps are off by | none |
//! | SIMGPU_FAULTS | `no-cupti`, `subscriber-taken`, `drop`, `zero-timestamps`, `oom`, comma-separated | none |
//! | SIMGPU_TRUTH | folder for the truth log | none |
//!
//! Two nodes on one machine: a process sees the devices of both, the first half on the one node and the rest on the
//! other, so that a launcher that starts all ranks here finds a device for each. Without SIMGPU_DEVICES they are 16,
//! or as many as LOCAL_WORLD_SIZE says there are ranks here. Where the launcher says that other ranks are elsewhere
//! (LOCAL_WORLD_SIZE below WORLD_SIZE), each machine is one of the nodes and all of its devices are on it.

use std::path::PathBuf;
use std::sync::OnceLock;

/// Offset and drift of the delivered device stamps.
pub(crate) struct Skew {
    pub(crate) offset_ns: i64,
    pub(crate) drift_ppm: i64,
}

/// How GPUs are linked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Topology {
    Hgx,
    Pcie,
    TwoNodes,
}

/// All controls.
pub(crate) struct Config {
    pub(crate) devices: u32,
    pub(crate) topology: Topology,
    /// Modelled nodes whose devices this process sees: 2 with `two-nodes` on one machine, else 1.
    pub(crate) nodes: u32,
    /// Memory of each device.
    pub(crate) memory_bytes: u64,
    pub(crate) scale: f64,
    pub(crate) seed: u64,
    /// Version of CUPTI's record layouts: major * 100 + minor.
    pub(crate) cupti: u32,
    /// How many times slower this rank's device is.
    pub(crate) slowdown: f64,
    /// Slow links: device, device, factor.
    pub(crate) slow_links: Vec<(u32, u32, f64)>,
    pub(crate) skew: Option<Skew>,
    pub(crate) faults: Vec<String>,
    pub(crate) truth: Option<PathBuf>,
    pub(crate) rank: u32,
    pub(crate) started_ns: i64,
    /// The first variable that could not be understood; cuInit fails with it.
    pub(crate) wrong: Option<String>,
}

impl Config {
    /// The node of a device, among those that this process sees: 0 or 1.
    pub(crate) fn node_of(&self, device: u32) -> u32 {
        device / self.devices.div_ceil(self.nodes).max(1)
    }

    /// The socket (NUMA node) that a device hangs on, counted within its node: four devices a socket.
    pub(crate) fn socket_of(&self, device: u32) -> u32 {
        device % self.devices.div_ceil(self.nodes).max(1) / DEVICES_A_SOCKET
    }

    /// How many times slower the link between two devices is than it should be.
    pub(crate) fn link_factor(&self, a: u32, b: u32) -> f64 {
        self.slow_links
            .iter()
            .filter(|(x, y, _)| (*x, *y) == (a, b) || (*y, *x) == (a, b))
            .map(|(.., factor)| *factor)
            .fold(1.0, f64::max)
    }

    /// Whether a fault was asked for.
    pub(crate) fn has_fault(&self, name: &str) -> bool {
        self.faults.iter().any(|fault| fault == name)
    }
}

/// Memory of an H200 in bytes.
const MEMORY_BYTES: u64 = 141_000_000_000;
/// GPUs on each of a node's two sockets.
const DEVICES_A_SOCKET: u32 = 4;

const FAULTS: &[&str] = &["no-cupti", "subscriber-taken", "drop", "zero-timestamps", "oom"];

/// The controls as the environment gives them.
pub(crate) fn config() -> &'static Config {
    static CONFIG: OnceLock<Config> = OnceLock::new();
    CONFIG.get_or_init(|| read(&|name| std::env::var(name).ok()))
}

fn read(variable: &dyn Fn(&str) -> Option<String>) -> Config {
    let rank = ["RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"]
        .iter()
        .find_map(|name| variable(name)?.parse().ok())
        .unwrap_or(0);
    let mut config = Config {
        devices: 8,
        topology: Topology::Hgx,
        nodes: 1,
        memory_bytes: MEMORY_BYTES,
        scale: 1000.0,
        seed: 0,
        cupti: 1304,
        slowdown: 1.0,
        slow_links: Vec::new(),
        skew: None,
        faults: Vec::new(),
        truth: variable("SIMGPU_TRUTH").map(PathBuf::from),
        rank,
        started_ns: crate::clock::now_ns(),
        wrong: None,
    };
    let mut wrong = None;
    let mut set = |name: &str, allowed: &str, take: &mut dyn FnMut(&str) -> Option<()>| {
        if let Some(value) = variable(name)
            && take(&value).is_none()
        {
            wrong.get_or_insert(format!("{name}={value}: expected {allowed}"));
        }
    };
    set("SIMGPU_TOPOLOGY", "hgx, pcie or two-nodes", &mut |value| {
        config.topology = match value {
            "hgx" => Topology::Hgx,
            "pcie" => Topology::Pcie,
            "two-nodes" => Topology::TwoNodes,
            _ => return None,
        };
        Some(())
    });
    let count = |name: &str| variable(name)?.parse::<u32>().ok();
    let (here, all) = (count("LOCAL_WORLD_SIZE"), count("WORLD_SIZE"));
    let elsewhere = here.is_some_and(|here| all.is_some_and(|all| here < all));
    if config.topology == Topology::TwoNodes && !elsewhere {
        config.nodes = 2;
        config.devices = here.map_or(16, |here| here.next_multiple_of(2).clamp(2, 64));
    }
    set("SIMGPU_DEVICES", "a number from 1 to 64", &mut |value| {
        config.devices = value.parse().ok().filter(|count| (1..=64).contains(count))?;
        Some(())
    });
    set("SIMGPU_MEMORY", "GB, from 0.001 on", &mut |value| {
        let gigabytes: f64 = value
            .parse()
            .ok()
            .filter(|gigabytes| (0.001..=1e6).contains(gigabytes))?;
        config.memory_bytes = (gigabytes * 1e9).round() as u64;
        Some(())
    });
    set("SIMGPU_SCALE", "a number from 1 on", &mut |value| {
        config.scale = value
            .parse()
            .ok()
            .filter(|scale: &f64| scale.is_finite() && *scale >= 1.0)?;
        Some(())
    });
    set("SIMGPU_SEED", "a whole number", &mut |value| {
        config.seed = value.parse().ok()?;
        Some(())
    });
    set("SIMGPU_CUPTI", "12.0, 12.8, 13.0 or 13.4", &mut |value| {
        config.cupti = match value {
            "12.0" => 1200,
            "12.8" => 1208,
            "13.0" => 1300,
            "13.4" => 1304,
            _ => return None,
        };
        Some(())
    });
    set(
        "SIMGPU_SLOW",
        "rank:N=FACTOR or link:A-B=FACTOR, comma-separated",
        &mut |value| {
            for part in value.split(',') {
                let (what, factor) = part.split_once('=')?;
                let factor: f64 = factor
                    .parse()
                    .ok()
                    .filter(|factor: &f64| factor.is_finite() && *factor >= 1.0)?;
                if let Some(slow_rank) = what.strip_prefix("rank:") {
                    if slow_rank.parse::<u32>().ok()? == rank {
                        config.slowdown = factor;
                    }
                } else {
                    let (a, b) = what.strip_prefix("link:")?.split_once('-')?;
                    config.slow_links.push((a.parse().ok()?, b.parse().ok()?, factor));
                }
            }
            Some(())
        },
    );
    set("SIMGPU_SKEW", "OFFSET_NS or OFFSET_NS,DRIFT_PPM", &mut |value| {
        let (offset, drift) = value.split_once(',').unwrap_or((value, "0"));
        config.skew = Some(Skew {
            offset_ns: offset.trim().parse().ok()?,
            drift_ppm: drift.trim().parse().ok()?,
        });
        Some(())
    });
    set("SIMGPU_FAULTS", &FAULTS.join(", "), &mut |value| {
        config.faults = value.split(',').map(|fault| fault.trim().to_owned()).collect();
        config
            .faults
            .iter()
            .all(|fault| FAULTS.contains(&fault.as_str()))
            .then_some(())
    });
    config.wrong = wrong;
    config
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The controls with these variables.
    pub(crate) fn with(pairs: &[(&str, &str)]) -> Config {
        read(&|name| {
            let pair = pairs.iter().find(|(key, _)| *key == name);
            pair.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn settings_are_understood() {
        let config = with(&[
            ("RANK", "3"),
            ("SIMGPU_SLOW", "rank:3=2.5,link:0-1=4"),
            ("SIMGPU_SKEW", "-500,20"),
            ("SIMGPU_CUPTI", "12.8"),
        ]);
        assert!(config.wrong.is_none());
        assert_eq!((config.rank, config.slowdown, config.cupti), (3, 2.5, 1208));
        assert_eq!(config.slow_links, [(0, 1, 4.0)]);
        assert_eq!(
            config.skew.map(|skew| (skew.offset_ns, skew.drift_ppm)),
            Some((-500, 20))
        );
    }

    #[test]
    fn two_nodes_are_two_halves_of_one_machine_or_two_machines() {
        let here = with(&[("SIMGPU_TOPOLOGY", "two-nodes")]);
        assert_eq!((here.nodes, here.devices), (2, 16));
        assert_eq!([0, 7, 8, 15].map(|device| here.node_of(device)), [0, 0, 1, 1]);
        assert_eq!(
            [0, 3, 4, 8, 12].map(|device| here.socket_of(device)),
            [0, 0, 1, 0, 1]
        );
        let few = with(&[
            ("SIMGPU_TOPOLOGY", "two-nodes"),
            ("LOCAL_WORLD_SIZE", "4"),
            ("WORLD_SIZE", "4"),
        ]);
        assert_eq!([0, 1, 2, 3].map(|device| few.node_of(device)), [0, 0, 1, 1]);
        let apart = with(&[
            ("SIMGPU_TOPOLOGY", "two-nodes"),
            ("LOCAL_WORLD_SIZE", "4"),
            ("WORLD_SIZE", "8"),
        ]);
        assert_eq!((apart.nodes, apart.devices, apart.node_of(7)), (1, 8, 0));
        let one = with(&[("SIMGPU_TOPOLOGY", "pcie")]);
        assert_eq!((one.nodes, one.devices, one.node_of(7)), (1, 8, 0));
    }

    #[test]
    fn a_wrong_setting_is_named() {
        let wrong = with(&[("SIMGPU_SCALE", "fast")]).wrong;
        assert!(wrong.is_some_and(|wrong| wrong.starts_with("SIMGPU_SCALE=fast: expected")));
        assert!(with(&[("SIMGPU_FAULTS", "fire")]).wrong.is_some());
    }
}
