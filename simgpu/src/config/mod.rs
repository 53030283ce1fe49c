//! The controls of the stand-in, read once from SIMGPU_* variables. One that is unknown or cannot be is refused by cuInit.
//!
//! | variable | meaning | default |
//! |---|---|---|
//! | SIMGPU_DEVICES | GPUs a process sees, 1 to 64 | 8; `two-nodes`: see below |
//! | SIMGPU_TOPOLOGY | `hgx` (NVLink between all), `pcie` (sockets of 4, switches of 2), `two-nodes` (two of `hgx`) | hgx |
//! | SIMGPU_MEMORY | GB (1e9 bytes) of each GPU | 141 |
//! | SIMGPU_SCALE | how many times slower than an H200 node (FLOP/s and bytes/s; latencies stay) | 1000 |
//! | SIMGPU_SEED | seeds the small jitter of modelled times | 0 |
//! | SIMGPU_CUPTI | version of CUPTI: 12.0, 12.2 to 12.6, 12.8, 12.9, 13.0 to 13.5 | 13.4 |
//! | SIMGPU_DRIVER | release of the driver: from 610 on CUPTI 13.3 and later have several subscribers | 580 |
//! | SIMGPU_NCCL | which NCCL to behave as towards profilers: 2.27, 2.28, 2.29, 2.30 or 2.31 | 2.30 |
//! | SIMGPU_SLOW | `rank:N=FACTOR`, `kernel:GLOB=FACTOR`, `kernel:GLOB@RANK=FACTOR`, `link:A-B=FACTOR` or `nic:NODE=FACTOR`, comma-separated | none |
//! | SIMGPU_SKEW | `OFFSET_NS` or `OFFSET_NS,DRIFT_PPM`: what the delivered device stamps are off by | none |
//! | SIMGPU_FAULTS | names of faults (below), comma-separated, some with `:VALUE` | none |
//! | SIMGPU_TRUTH | folder for the truth log | none |
//! | SIMGPU_RUN | name that the processes of a run share: NVML of each then tells what all do | none |
//!
//! Faults, all of CUPTI but the last:
//!
//! | fault | what happens | VALUE |
//! |---|---|---|
//! | no-cupti | every function answers CUPTI_ERROR_NOT_INITIALIZED | |
//! | missing-symbols | only the functions that no profiler can do without are there; dlsym finds no others | |
//! | subscriber-taken | another tool has subscribed | |
//! | drop | records are dropped for want of room, and counted by CUPTI | one in so many, 10 |
//! | zero-timestamps | operations have start and end 0 | one in so many, 1 |
//! | incomplete | kernels have end 0 | one in so many, 7 |
//! | out-of-order | records of a buffer are out of order, in groups | records a group, 8 |
//! | unknown-kinds | records of a kind that no header names lie between the others | after so many, 5 |
//! | longer-records | every record has more bytes behind it than any header gives it | bytes, at most 128, 24 |
//! | lost-buffers | some buffers are never completed | one in so many, 3 |
//! | late | buffers are completed late, after cuptiActivityFlushAll has returned | milliseconds, 300 |
//! | held-back | a plain flush delivers no operation while any operation runs or waits | |
//! | foreign-threads | each buffer is completed on a thread of its own, many at the same time | |
//! | dying-threads | ... while that thread's thread-local values are being destroyed | |
//! | deadlocks | what CUPTI forbids blocks for ever, and says so on stderr: two flushes at the same time, a flush in a callback that may not | |
//! | fatal-error | CUPTI reports a fatal error and is finalized | after so many driver calls, 300 |
//! | clock-step | the clock that CUPTI stamps with steps | NANOSECONDS@MILLISECONDS since the start, 5000000000@500 |
//! | oom | a device has 1 MiB for the program | |
//!
//! Two nodes on one machine: a process sees the devices of both, the first half on the one node and the rest on the
//! other, so that a launcher that starts all ranks here finds a device for each. Without SIMGPU_DEVICES they are 16,
//! or as many as LOCAL_WORLD_SIZE says there are ranks here. Where the launcher says that other ranks are elsewhere
//! (LOCAL_WORLD_SIZE below WORLD_SIZE), each machine is one of the nodes and all of its devices are on it.

mod slow;

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::OnceLock;

use slow::Slow;

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
    /// Release of the driver (580 is r580).
    pub(crate) driver: u32,
    /// NCCL's version, as ncclGetVersion gives it.
    pub(crate) nccl: i32,
    pub(crate) slow: Slow,
    pub(crate) skew: Option<Skew>,
    pub(crate) faults: Vec<Fault>,
    pub(crate) clock_step: Option<ClockStep>,
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
        self.slow
            .link([a, b].map(|device| (device, self.node_of(device))))
    }

    /// Whether a fault was asked for.
    pub(crate) fn has_fault(&self, name: &str) -> bool {
        self.faults.iter().any(|fault| fault.name == name)
    }

    /// The value of a fault that was asked for, or its default.
    pub(crate) fn fault_value(&self, name: &str) -> Option<u64> {
        let fault = self.faults.iter().find(|fault| fault.name == name)?;
        fault.value.or_else(|| default_value(name))
    }
}

/// A fault that was asked for.
pub(crate) struct Fault {
    name: &'static str,
    value: Option<u64>,
}

/// A step of the clock that CUPTI stamps with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClockStep {
    pub(crate) by_ns: i64,
    /// Since the start.
    pub(crate) after_ns: i64,
}

/// Memory of an H200 in bytes.
const MEMORY_BYTES: u64 = 141_000_000_000;
/// GPUs on each of a node's two sockets.
const DEVICES_A_SOCKET: u32 = 4;

/// All faults, with the default of their value where they have one.
const FAULTS: &[(&str, Option<u64>)] = &[
    ("no-cupti", None),
    ("missing-symbols", None),
    ("subscriber-taken", None),
    ("drop", Some(10)),
    ("zero-timestamps", Some(1)),
    ("incomplete", Some(7)),
    ("out-of-order", Some(8)),
    ("unknown-kinds", Some(5)),
    ("longer-records", Some(24)),
    ("lost-buffers", Some(3)),
    ("late", Some(300)),
    ("held-back", None),
    ("foreign-threads", None),
    ("dying-threads", None),
    ("deadlocks", None),
    ("fatal-error", Some(300)),
    ("clock-step", None),
    ("oom", None),
];

fn default_value(name: &str) -> Option<u64> {
    FAULTS.iter().find(|(known, _)| *known == name)?.1
}

/// One fault as it is asked for: a name, or a name, a colon and a number from 1 on.
fn fault(text: &str) -> Option<Fault> {
    let (name, value) = match text.split_once(':') {
        Some((name, value)) => (name, Some(value.parse().ok().filter(|value| *value > 0)?)),
        None => (text, None),
    };
    let (name, default) = FAULTS.iter().find(|(known, _)| *known == name)?;
    (value.is_none() || default.is_some()).then_some(Fault { name, value })
}

/// `NANOSECONDS@MILLISECONDS`.
fn clock_step(text: &str) -> Option<ClockStep> {
    let (by, after) = text.split_once('@')?;
    let after_ms: i64 = after.parse().ok().filter(|after| *after >= 0)?;
    Some(ClockStep {
        by_ns: by.parse().ok()?,
        after_ns: after_ms * 1_000_000,
    })
}

/// The versions of CUPTI whose records and functions are known: major * 100 + minor.
const VERSIONS: &[u32] = &[
    1200, 1202, 1203, 1204, 1205, 1206, 1208, 1209, 1300, 1301, 1302, 1303, 1304, 1305,
];

fn version(text: &str) -> Option<u32> {
    let (major, minor) = text.split_once('.')?;
    let version = major.parse::<u32>().ok()? * 100 + minor.parse::<u32>().ok()?;
    VERSIONS.contains(&version).then_some(version)
}

/// A setting: the variable SIMGPU_NAME.
struct Setting {
    name: &'static str,
    /// Which values there are.
    allowed: &'static str,
    take: fn(&mut Config, &str) -> Option<()>,
}

/// All settings. The topology comes before what it gives another default.
const SETTINGS: &[Setting] = &[
    Setting {
        name: "TOPOLOGY",
        allowed: "hgx, pcie or two-nodes",
        take: |config, value| {
            config.topology = match value {
                "hgx" => Topology::Hgx,
                "pcie" => Topology::Pcie,
                "two-nodes" => Topology::TwoNodes,
                _ => return None,
            };
            Some(())
        },
    },
    Setting {
        name: "DEVICES",
        allowed: "a number from 1 to 64",
        take: |config, value| {
            config.devices = value.parse().ok().filter(|count| (1..=64).contains(count))?;
            Some(())
        },
    },
    Setting {
        name: "MEMORY",
        allowed: "GB, from 0.001 to 1000000",
        take: |config, value| {
            let gigabytes: f64 = value
                .parse()
                .ok()
                .filter(|gigabytes| (0.001..=1e6).contains(gigabytes))?;
            config.memory_bytes = (gigabytes * 1e9).round() as u64;
            Some(())
        },
    },
    Setting {
        name: "SCALE",
        allowed: "a number from 1 on",
        take: |config, value| {
            config.scale = slow::factor(value)?;
            Some(())
        },
    },
    Setting {
        name: "SEED",
        allowed: "a whole number",
        take: |config, value| {
            config.seed = value.parse().ok()?;
            Some(())
        },
    },
    Setting {
        name: "CUPTI",
        allowed: "12.0, 12.2 to 12.6, 12.8, 12.9 or 13.0 to 13.5",
        take: |config, value| {
            config.cupti = version(value)?;
            Some(())
        },
    },
    Setting {
        name: "DRIVER",
        allowed: "a release from 525 to 699",
        take: |config, value| {
            config.driver = value
                .parse()
                .ok()
                .filter(|release| (525..700).contains(release))?;
            Some(())
        },
    },
    Setting {
        name: "NCCL",
        allowed: "2.27, 2.28, 2.29, 2.30 or 2.31",
        take: |config, value| {
            config.nccl = match value {
                "2.27" => 22_707,
                "2.28" => 22_809,
                "2.29" => 22_907,
                "2.30" => 23_007,
                "2.31" => 23_102,
                _ => return None,
            };
            Some(())
        },
    },
    Setting {
        name: "SLOW",
        allowed: "rank:N=FACTOR, kernel:GLOB=FACTOR, kernel:GLOB@RANK=FACTOR, link:A-B=FACTOR or nic:NODE=FACTOR, \
                  comma-separated",
        take: |config, value| {
            let rank = config.rank;
            value.split(',').try_for_each(|part| config.slow.add(part, rank))
        },
    },
    Setting {
        name: "SKEW",
        allowed: "OFFSET_NS or OFFSET_NS,DRIFT_PPM",
        take: |config, value| {
            let (offset, drift) = value.split_once(',').unwrap_or((value, "0"));
            config.skew = Some(Skew {
                offset_ns: offset.trim().parse().ok()?,
                drift_ppm: drift.trim().parse().ok()?,
            });
            Some(())
        },
    },
    Setting {
        name: "FAULTS",
        allowed: "names of faults, comma-separated, some with :VALUE",
        take: |config, value| {
            for part in value.split(',').map(str::trim) {
                match part.strip_prefix("clock-step") {
                    Some(step) => {
                        let step = step.strip_prefix(':').unwrap_or("5000000000@500");
                        config.clock_step = Some(clock_step(step)?);
                    }
                    None => config.faults.push(fault(part)?),
                }
            }
            Some(())
        },
    },
    Setting {
        name: "TRUTH",
        allowed: "a folder",
        take: |config, value| {
            config.truth = Some(PathBuf::from(value)).filter(|_| !value.is_empty());
            config.truth.as_ref().map(|_| ())
        },
    },
    Setting {
        name: "RUN",
        allowed: "a name, or nothing",
        // Asked for where it is used: a program that monitors may set it later.
        take: |_, _| Some(()),
    },
];

/// What the name of each variable begins with.
const PREFIX: &str = "SIMGPU_";

/// The controls as the environment gives them.
pub(crate) fn config() -> &'static Config {
    static CONFIG: OnceLock<Config> = OnceLock::new();
    CONFIG.get_or_init(|| read(&environment()))
}

fn environment() -> Vec<(String, String)> {
    let text = |text: OsString| text.to_string_lossy().into_owned();
    std::env::vars_os()
        .map(|(name, value)| (text(name), text(value)))
        .collect()
}

/// Checks settings as they are given in variables, those of other names left alone: the error says of the first that can't
/// be used what is wrong with it.
///
/// # Errors
/// A setting that there is not, or a value that it can't have, in one line.
pub fn check(variables: &[(String, String)]) -> Result<(), String> {
    read(variables).wrong.map_or(Ok(()), Err)
}

/// What is wrong with a setting of this name and value.
fn wrong(name: &str, value: &str) -> String {
    let Some(setting) = SETTINGS.iter().find(|setting| setting.name == name) else {
        let known: Vec<&str> = SETTINGS.iter().map(|setting| setting.name).collect();
        return format!(
            "{PREFIX}{name}: the simulated GPU has no such setting; it has {}",
            known.join(", ")
        );
    };
    let names: Vec<&str> = FAULTS.iter().map(|(name, _)| *name).collect();
    let more = if name == "FAULTS" {
        format!(": {}", names.join(", "))
    } else {
        String::new()
    };
    format!("{PREFIX}{name}={value}: expected {}{more}", setting.allowed)
}

fn read(variables: &[(String, String)]) -> Config {
    let variable = |name: &str| {
        let mut named = variables.iter().filter(|(known, _)| known == name);
        named.next_back().map(|(_, value)| value.as_str())
    };
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
        driver: 580,
        nccl: 23_007,
        slow: Slow::nothing(),
        skew: None,
        faults: Vec::new(),
        clock_step: None,
        truth: None,
        rank,
        started_ns: crate::clock::now_ns(),
        wrong: None,
    };
    let count = |name: &str| variable(name)?.parse::<u32>().ok();
    let (here, all) = (count("LOCAL_WORLD_SIZE"), count("WORLD_SIZE"));
    let elsewhere = here.is_some_and(|here| all.is_some_and(|all| here < all));
    for setting in SETTINGS {
        if let Some(value) = variable(&format!("{PREFIX}{}", setting.name))
            && (setting.take)(&mut config, value).is_none()
        {
            config.wrong.get_or_insert(wrong(setting.name, value));
        }
        if setting.name == "TOPOLOGY" && config.topology == Topology::TwoNodes && !elsewhere {
            config.nodes = 2;
            config.devices = here.map_or(16, |here| here.next_multiple_of(2).clamp(2, 64));
        }
    }
    // A setting that is misspelt is one that somebody counts on.
    for (name, value) in variables {
        if let Some(name) = name.strip_prefix(PREFIX)
            && SETTINGS.iter().all(|setting| setting.name != name)
        {
            config.wrong.get_or_insert(wrong(name, value));
        }
    }
    config
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The controls with these variables.
    pub(crate) fn with(pairs: &[(&str, &str)]) -> Config {
        let owned = pairs
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        read(&owned.collect::<Vec<_>>())
    }

    #[test]
    fn settings_are_understood() {
        let config = with(&[
            ("RANK", "3"),
            ("SIMGPU_SKEW", "-500,20"),
            ("SIMGPU_CUPTI", "12.8"),
        ]);
        assert!(config.wrong.is_none());
        assert_eq!((config.rank, config.cupti), (3, 1208));
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
        for faults in ["fire", "drop:0", "oom:3", "clock-step:5", ""] {
            assert!(with(&[("SIMGPU_FAULTS", faults)]).wrong.is_some(), "{faults}");
        }
        assert!(with(&[("SIMGPU_CUPTI", "12.7")]).wrong.is_some());
        let unknown = with(&[("SIMGPU_SCALE", "10"), ("SIMGPU_BOGUS", "1")])
            .wrong
            .expect("wrong");
        assert!(
            unknown.starts_with(
                "SIMGPU_BOGUS: the simulated GPU has no such setting; it has TOPOLOGY, DEVICES,"
            ),
            "{unknown}"
        );
        let faults = with(&[("SIMGPU_FAULTS", "fire")]).wrong.expect("wrong");
        assert!(faults.contains("no-cupti, missing-symbols"), "{faults}");
        assert!(with(&[("SIMGPU", "1"), ("OTHER", "2")]).wrong.is_none());
    }

    #[test]
    fn faults_have_values() {
        let config = with(&[("SIMGPU_FAULTS", "drop, late:20,clock-step:-5@7,deadlocks")]);
        assert!(config.wrong.is_none(), "{:?}", config.wrong);
        assert_eq!(
            ["drop", "late", "deadlocks", "incomplete"].map(|name| config.fault_value(name)),
            [Some(10), Some(20), None, None]
        );
        assert!(config.has_fault("deadlocks") && !config.has_fault("incomplete"));
        assert_eq!(
            config.clock_step.map(|step| (step.by_ns, step.after_ns)),
            Some((-5, 7_000_000))
        );
    }
}
