//! `gputrace doctor`: what this machine has, and what to do about what it lacks.

mod cupti;
mod sandbox;

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::PathBuf;

use gputrace_trace::topology::Topology;
use nvml_wrapper::Nvml;
use serde_json::{Value, json};

use crate::cli::DoctorArgs;
use crate::failure::Failure;
use crate::report::{self, Overflow};
use crate::{libraries, text, topology};

/// One line of the report.
struct Finding {
    what: &'static str,
    /// Whether it is there; `None` for what is good to know only.
    present: Option<bool>,
    found: String,
    /// What to do about it, where something can be done.
    advice: Option<String>,
}

impl Finding {
    fn present(what: &'static str, found: impl Into<String>) -> Self {
        Self {
            what,
            present: Some(true),
            found: found.into(),
            advice: None,
        }
    }

    fn absent(what: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self {
            what,
            present: Some(false),
            found: found.into(),
            advice: Some(advice.into()),
        }
    }
}

/// Prints the report. Always 0: a machine without a GPU is no error.
pub fn run(args: &DoctorArgs) -> Result<i32, Failure> {
    let Gpus {
        list: gpus,
        driver_version,
        finding,
        topology,
    } = gpus();
    let mut findings = vec![finding, cupti::finding(driver_version)];
    // Without a driver what is newest is advised.
    let is_cuda_12 = driver_version.is_some_and(|version| version < 13_000);
    findings.push(versioned(
        "NCCL",
        &["libnccl.so.2", "libnccl.so"],
        c"ncclGetVersion",
        &format!(
            "needed for the bundled multi-GPU workloads: {}; PyTorch brings its own",
            install(
                if is_cuda_12 {
                    "nvidia-nccl-cu12"
                } else {
                    "nvidia-nccl-cu13"
                },
                "libnccl2",
                "-c conda-forge nccl"
            )
        ),
    ));
    findings.push(
        match load(&["libcublas.so.13", "libcublas.so.12", "libcublas.so"]) {
            Some((name, _)) => Finding::present("cuBLAS", name),
            None => Finding::absent(
                "cuBLAS",
                "not found",
                format!(
                    "needed for the bundled workloads on a real GPU: {}",
                    install(
                        if is_cuda_12 {
                            "nvidia-cublas-cu12"
                        } else {
                            "nvidia-cublas"
                        },
                        if is_cuda_12 {
                            "libcublas-12-9"
                        } else {
                            "libcublas-13-0"
                        },
                        "-c nvidia libcublas"
                    )
                ),
            ),
        },
    );
    findings.push(own_library("collector", libraries::collector()));
    findings.push(own_library("simulated GPU", libraries::find(libraries::SIMGPU)));
    findings.push(sandbox::finding());
    findings.extend(other_tools());
    if args.json {
        let findings: Vec<Value> = findings
            .iter()
            .map(|finding| {
                json!({"what": finding.what, "present": finding.present, "found": finding.found, "advice": finding.advice})
            })
            .collect();
        anstream::println!(
            "{:#}",
            json!({"schema": "gputrace.doctor/1", "gpus": gpus, "findings": findings, "topology": topology})
        );
        return Ok(0);
    }
    for gpu in &gpus {
        let memory = gpu["memory_bytes"]
            .as_u64()
            .map_or_else(String::new, |bytes| format!(", {} GiB", bytes >> 30));
        anstream::println!(
            "GPU {}: {}{memory}",
            gpu["index"],
            gpu["name"].as_str().unwrap_or("unnamed")
        );
    }
    for finding in &findings {
        let mark = match finding.present {
            Some(true) => "yes",
            Some(false) => "no",
            None => "note",
        };
        anstream::println!("{mark:>4}  {:<14} {}", finding.what, finding.found);
        if let Some(advice) = &finding.advice {
            for line in text::wrap(advice, report::terminal_width().saturating_sub(21).max(30)) {
                anstream::println!("{:21}{line}", "");
            }
        }
    }
    if let Some(topology) = &topology {
        print_topology(topology);
    }
    Ok(0)
}

fn print_topology(topology: &Topology) {
    let (headings, rows) = topology::matrix(topology);
    let headings: Vec<&str> = headings.iter().map(String::as_str).collect();
    let title = "Topology (NV18: 18 NVLinks; over PCIe, nearest first: PIX one bridge, PXB several bridges, PHB a host \
                 bridge, NODE host bridges of one NUMA node, SYS the link between NUMA nodes)";
    report::print_table(title, &headings, &rows, Overflow::Continue);
    let refused = topology::without_peer_access(topology);
    if !refused.is_empty() {
        let text = format!(
            "no peer access, so that copies go through the host: {}",
            refused.join(", ")
        );
        anstream::println!("\n{}", text::wrap(&text, report::terminal_width()).join("\n"));
    }
}

/// What NVML tells.
struct Gpus {
    list: Vec<Value>,
    /// The driver's CUDA version (13020 is 13.2).
    driver_version: Option<i32>,
    finding: Finding,
    topology: Option<Topology>,
}

fn gpus() -> Gpus {
    const WITHOUT: &str = "bundled workloads run on simulated GPUs: `gputrace record -- workload ddp`; \
                           for real ones `apt install nvidia-driver` (Ubuntu: `ubuntu-drivers install`) and restart; a container \
                           needs `docker run --gpus all`, `--nv` (Apptainer) or a limit of nvidia.com/gpu (Kubernetes)";
    let nvml = match Nvml::init() {
        Ok(nvml) => nvml,
        Err(error) => {
            return Gpus {
                list: Vec::new(),
                driver_version: None,
                finding: Finding::absent("driver", format!("NVML: {error}"), WITHOUT),
                topology: None,
            };
        }
    };
    let count = nvml.device_count().unwrap_or(0);
    let gpus: Vec<Value> = (0..count)
        .filter_map(|index| {
            let device = nvml.device_by_index(index).ok()?;
            let capability = device.cuda_compute_capability().ok();
            Some(json!({
                "index": index,
                "name": device.name().ok(),
                "uuid": device.uuid().ok(),
                "memory_bytes": device.memory_info().ok().map(|memory| memory.total),
                "compute_capability": capability.map(|capability| format!("{}.{}", capability.major, capability.minor)),
                "simulated": device.name().is_ok_and(|name| name.starts_with("Simulated")),
            }))
        })
        .collect();
    let driver = nvml
        .sys_driver_version()
        .unwrap_or_else(|_| "unknown version".to_owned());
    let finding = if gpus.is_empty() {
        Finding::absent("driver", format!("{driver}, but no GPU"), WITHOUT)
    } else {
        Finding::present("driver", format!("{driver}, {} GPUs", gpus.len()))
    };
    let host = gethostname::gethostname();
    Gpus {
        topology: (!gpus.is_empty()).then(|| topology::of(&nvml, &host.to_string_lossy())),
        list: gpus,
        driver_version: nvml.sys_cuda_driver_version().ok(),
        finding,
    }
}

/// Opens a library.
fn open(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: loading runs the library's initialisers; these are NVIDIA's own libraries, which are loaded so by every
    // CUDA program. The handle is never closed.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL) };
    (!handle.is_null()).then_some(handle)
}

/// Opens the first of these libraries that the loader finds.
fn load(names: &[&'static str]) -> Option<(&'static str, *mut c_void)> {
    names
        .iter()
        .find_map(|name| Some((*name, open(&CString::new(*name).ok()?)?)))
}

/// What a library's function tells of its version (`int f(int *version)`, as cuptiGetVersion and ncclGetVersion are).
fn version_of(handle: *mut c_void, function: &CStr) -> Option<c_int> {
    // SAFETY: `handle` came from dlopen and is open.
    let symbol = unsafe { libc::dlsym(handle, function.as_ptr()) };
    if symbol.is_null() {
        return None;
    }
    // SAFETY: both functions have this C signature in every version of their headers.
    let get: unsafe extern "C" fn(*mut c_int) -> c_int = unsafe { std::mem::transmute(symbol) };
    let mut version = 0;
    // SAFETY: `version` is a valid place for the result.
    (unsafe { get(&raw mut version) } == 0).then_some(version)
}

/// A library that tells its version.
fn versioned(what: &'static str, names: &[&'static str], function: &CStr, advice: &str) -> Finding {
    let Some((name, handle)) = load(names) else {
        return Finding::absent(what, "not found", advice);
    };
    let folder = loaded_from(handle).map_or_else(String::new, |path| format!(" ({})", path.display()));
    match version_of(handle, function) {
        Some(version) => Finding::present(what, format!("{name}, version {version}{folder}")),
        None => Finding::absent(what, format!("{name}{folder} does not tell its version"), advice),
    }
}

/// The file that a handle was loaded from.
fn loaded_from(handle: *mut c_void) -> Option<PathBuf> {
    let mut path = [0 as c_char; libc::PATH_MAX as usize];
    // SAFETY: RTLD_DI_ORIGIN (6) writes a path of at most PATH_MAX characters into the buffer (dlinfo(3)).
    let failed = unsafe { libc::dlinfo(handle, libc::RTLD_DI_ORIGIN, path.as_mut_ptr().cast()) } != 0;
    if failed {
        return None;
    }
    // SAFETY: dlinfo ended the path with a zero byte.
    let path = unsafe { CStr::from_ptr(path.as_ptr()) };
    Some(PathBuf::from(path.to_string_lossy().into_owned()))
}

/// A library of ours.
fn own_library(what: &'static str, found: Result<PathBuf, Failure>) -> Finding {
    match found {
        Ok(path) => Finding::present(what, path.display().to_string()),
        Err(error) => Finding::absent(what, "none that can be used", error.to_string()),
    }
}

/// The lines that mend it, by whatever a machine gets its packages. The loader has to find what pip installs.
fn install(pip: &str, apt: &str, conda: &str) -> String {
    format!(
        "`apt install {apt}` from NVIDIA's repository, `conda install {conda}`, or `pip install {pip}` with the folder of its \
         .so files in LD_LIBRARY_PATH"
    )
}

/// Settings of other tools that would keep the collector out.
fn other_tools() -> Vec<Finding> {
    [
        "CUDA_INJECTION64_PATH",
        "NVTX_INJECTION64_PATH",
        "NCCL_PROFILER_PLUGIN",
    ]
    .into_iter()
    .filter_map(|variable| {
        let value = std::env::var(variable).ok()?;
        Some(Finding {
            what: "other tool",
            present: None,
            found: format!("{variable}={value}"),
            advice: Some(
                "another tool uses this; `gputrace record` replaces it for the command it runs".to_owned(),
            ),
        })
    })
    .collect()
}
