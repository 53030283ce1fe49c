//! The controls of the stand-in, read once from SIMGPU_* variables.
//!
//! | variable | meaning | default |
//! |---|---|---|
//! | SIMGPU_DEVICES | GPUs a process sees, 1 to 64 | 8 |
//! | SIMGPU_TOPOLOGY | `hgx` (NVLink between all), `pcie`, `two-nodes` (NVLink within each half) | hgx |
//! | SIMGPU_SCALE | how many times slower than an H200 node (FLOP/s and bytes/s; latencies stay) | 1000 |
//! | SIMGPU_SEED | seeds the small jitter of modelled times | 0 |
//! | SIMGPU_CUPTI | record layouts: 12.0, 12.8, 13.0 or 13.4 | 13.4 |
//! | SIMGPU_SLOW | `rank:N=FACTOR` or `link:A-B=FACTOR`, comma-separated | none |
//! | SIMGPU_SKEW | `OFFSET_NS` or `OFFSET_NS,DRIFT_PPM`: what the delivered device stamps are off by | none |
//! | SIMGPU_FAULTS | `no-cupti`, `subscriber-taken`, `drop`, `zero-timestamps`, `oom`, comma-separated | none |
//! | SIMGPU_TRUTH | folder for the truth log | none |

use std::path::PathBuf;
use std::sync::OnceLock;

/// Offset and drift of the delivered device stamps.
pub(crate) struct Skew {
    pub(crate) offset_ns: i64,
    pub(crate) drift_ppm: i64,
}

/// How GPUs are linked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Topology {
    Hgx,
    Pcie,
    TwoNodes,
}

/// All controls.
pub(crate) struct Config {
    pub(crate) devices: u32,
    pub(crate) topology: Topology,
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
    /// Whether a fault was asked for.
    pub(crate) fn has_fault(&self, name: &str) -> bool {
        self.faults.iter().any(|fault| fault == name)
    }
}

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
    set("SIMGPU_DEVICES", "a number from 1 to 64", &mut |value| {
        config.devices = value.parse().ok().filter(|count| (1..=64).contains(count))?;
        Some(())
    });
    set("SIMGPU_TOPOLOGY", "hgx, pcie or two-nodes", &mut |value| {
        config.topology = match value {
            "hgx" => Topology::Hgx,
            "pcie" => Topology::Pcie,
            "two-nodes" => Topology::TwoNodes,
            _ => return None,
        };
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
mod tests {
    use super::*;

    fn with(pairs: &'static [(&'static str, &'static str)]) -> Config {
        read(&move |name| {
            pairs
                .iter()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| (*value).to_owned())
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
    fn a_wrong_setting_is_named() {
        let wrong = with(&[("SIMGPU_SCALE", "fast")]).wrong;
        assert!(wrong.is_some_and(|wrong| wrong.starts_with("SIMGPU_SCALE=fast: expected")));
        assert!(with(&[("SIMGPU_FAULTS", "fire")]).wrong.is_some());
    }
}
