//! The rows of quantities: what recorders sampled, what the source tells, and memory in use.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gputrace_analyzer::Memory;
use gputrace_trace::tables::Counters;
use gputrace_trace::{NameId, Recording, parallel};

use super::answers::What;
use super::rows::{Counter, Identity};
use super::series::Series;

/// A counter's name in words, and its unit, which is in the name.
pub(crate) fn words_and_unit(name: &str) -> (String, &'static str) {
    const UNITS: [(&str, &str); 11] = [
        ("_bytes_per_second", "B/s"),
        ("_per_second", "1/s"),
        ("_percent", "%"),
        ("_bytes", "B"),
        ("_watts", "W"),
        ("_celsius", "°C"),
        ("_mhz", "MHz"),
        ("_ratio", "ratio"),
        ("_seconds", "s"),
        ("_cores", "cores"),
        ("_ns", "ns"),
    ];
    let (words, unit) = UNITS
        .iter()
        .find_map(|(ending, unit)| Some((name.strip_suffix(ending)?, *unit)))
        .unwrap_or((name, ""));
    let words = words
        .split('_')
        .map(|word| match word {
            "gpu" => "GPU",
            "cpu" => "CPU",
            "sm" => "SM",
            "nvlink" => "NVLink",
            "pcie" => "PCIe",
            "ecc" => "ECC",
            other => other,
        })
        .collect::<Vec<_>>()
        .join(" ");
    (words, unit)
}

/// Whose samples these are: device, process, thread; and what of.
type Of = (Option<u32>, Option<u32>, Option<u32>, NameId);

fn by_quantity(table: &Counters) -> BTreeMap<Of, Vec<(i64, f64)>> {
    let mut all: BTreeMap<Of, Vec<(i64, f64)>> = BTreeMap::new();
    for row in 0..table.time_ns.len() {
        let of = (
            table.device[row],
            table.pid[row],
            table.thread[row],
            table.name[row],
        );
        all.entry(of)
            .or_default()
            .push((table.time_ns[row].0, table.value[row]));
    }
    all
}

/// Counters of the processes' own tables, and their memory.
fn of_processes(recording: &Recording) -> Vec<Counter> {
    let of_each = parallel::map(recording.processes.len(), |place| {
        let tables = &recording.processes[place].tables;
        let process = u32::try_from(place).ok();
        let mut found = Vec::new();
        let allocator = recording.names.find("memory_allocated_bytes");
        let mut devices: BTreeSet<u32> = tables.memory.device.iter().copied().collect();
        let counted =
            (0..tables.counters.time_ns.len()).filter(|&row| Some(tables.counters.name[row]) == allocator);
        devices.extend(counted.filter_map(|row| tables.counters.device[row]));
        let memory = Memory::new(&tables.memory, &tables.counters, &recording.names);
        for device in devices {
            let points = memory.in_use(device);
            let series = Series::new(points.into_iter().map(|(time, bytes)| (time, bytes as f64)));
            if !series.is_empty() {
                found.push(Counter {
                    process,
                    device: Some(device),
                    key: "memory".to_owned(),
                    path: vec!["memory in use".to_owned()],
                    detail: "allocations minus frees".to_owned(),
                    what: What::Memory,
                    unit: "B",
                    series: Arc::new(series),
                });
            }
        }
        for ((device, _, thread, name), samples) in by_quantity(&tables.counters) {
            if Some(name) == allocator {
                continue;
            }
            let series = Series::new(samples);
            if series.is_empty() {
                continue;
            }
            let name = recording.names.get(name);
            let (words, unit) = words_and_unit(name);
            let of_thread = thread.map(|thread| format!("thread {thread}"));
            found.push(Counter {
                process,
                device,
                key: match thread {
                    Some(thread) => format!("counter/{thread}/{name}"),
                    None => format!("counter/{name}"),
                },
                path: of_thread.into_iter().chain([words]).collect(),
                detail: name.to_owned(),
                what: What::Counter,
                unit,
                series: Arc::new(series),
            });
        }
        found
    });
    of_each.into_iter().flatten().collect()
}

/// Counters that recorders sampled: of devices and processes at the ranks that they belong to, of hosts at the end.
fn of_hosts(recording: &Recording) -> Vec<Counter> {
    let mut found = Vec::new();
    for host in &recording.hosts {
        let name_of_host = &host.header.host;
        for ((device, pid, thread, name), samples) in by_quantity(&host.tables.counters) {
            let series = Series::new(samples);
            if series.is_empty() {
                continue;
            }
            let name = recording.names.get(name);
            let (words, unit) = words_and_unit(name);
            let here = || {
                let processes = (0u32..).zip(&recording.processes);
                processes.filter(|(_, process)| process.header.host == *name_of_host)
            };
            let of_process = pid.and_then(|pid| here().find(|(_, process)| process.header.pid == pid));
            // NVML counts the host's devices, a process its own: the UUID tells which is which.
            let uuid = device.and_then(|device| {
                let known = host.header.devices.iter().find(|known| known.index == device);
                known.and_then(|known| known.uuid.as_ref())
            });
            let of_device = uuid.and_then(|uuid| {
                here().find_map(|(place, process)| {
                    let used = &process.tables.contexts.device;
                    let mut devices = process.header.devices.iter();
                    devices
                        .find(|device| device.uuid.as_ref() == Some(uuid) && used.contains(&device.index))
                        .map(|device| (place, device.index))
                })
            });
            let mut counter = Counter {
                process: None,
                device: None,
                key: String::new(),
                path: Vec::new(),
                detail: name.to_owned(),
                what: What::Counter,
                unit,
                series: Arc::new(series),
            };
            let of_thread = thread.map(|thread| {
                let mut threads = host.header.threads.iter();
                let known = threads.find(|known| Some(known.pid) == pid && known.thread == thread);
                match known.filter(|known| !known.name.is_empty()) {
                    Some(known) => format!("thread {thread} · {}", known.name),
                    None => format!("thread {thread}"),
                }
            });
            let key_of_thread = thread.map_or_else(String::new, |thread| format!("{thread}/"));
            if let Some((place, index)) = of_device {
                (counter.process, counter.device) = (Some(place), Some(index));
                counter.key = format!("sampled/{name}");
                counter.path = vec![words];
            } else if let Some((place, _)) = of_process {
                counter.process = Some(place);
                counter.key = format!("sampled/{key_of_thread}{name}");
                counter.path = ["host".to_owned()]
                    .into_iter()
                    .chain(of_thread)
                    .chain([words])
                    .collect();
            } else {
                let of = device
                    .map(|device| format!("GPU {device}"))
                    .or_else(|| pid.map(|pid| format!("process {pid}")));
                let key = device
                    .map(|device| format!("gpu{device}/"))
                    .or_else(|| pid.map(|pid| format!("pid{pid}/")));
                counter.key = format!(
                    "host/{name_of_host}/{}{key_of_thread}{name}",
                    key.unwrap_or_default()
                );
                counter.path = [format!("host {name_of_host}")]
                    .into_iter()
                    .chain(of)
                    .chain(of_thread)
                    .chain([words])
                    .collect();
            }
            found.push(counter);
        }
    }
    found
}

/// All of them, in the order in which they are shown below what they belong to.
pub(crate) fn counters(recording: &Recording, identities: &[Identity]) -> Vec<Counter> {
    let mut all = of_processes(recording);
    all.extend(of_hosts(recording));
    // Those that a picture of training is about come first, the rest by name.
    const FIRST: [&str; 6] = [
        "memory in use",
        "GPU utilization",
        "power",
        "SM clock",
        "NVLink sent",
        "NVLink received",
    ];
    let known = |counter: &Counter| {
        let label = counter.path.last().map_or("", String::as_str);
        FIRST
            .iter()
            .position(|first| *first == label)
            .unwrap_or(FIRST.len())
    };
    all.sort_by(|a, b| {
        let key = |counter: &Counter| {
            let process = counter
                .process
                .map_or(identities.len(), |process| process as usize);
            (process, counter.device.is_none(), counter.device, known(counter))
        };
        key(a).cmp(&key(b)).then_with(|| a.path.cmp(&b.path))
    });
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_told_by_names() {
        let told = |name: &str| {
            let (words, unit) = words_and_unit(name);
            (words, unit.to_owned())
        };
        let expect = |words: &str, unit: &str| (words.to_owned(), unit.to_owned());
        assert_eq!(told("power_watts"), expect("power", "W"));
        assert_eq!(told("nvlink_sent_bytes_per_second"), expect("NVLink sent", "B/s"));
        assert_eq!(told("minor_faults_per_second"), expect("minor faults", "1/s"));
        assert_eq!(told("gpu_utilization_percent"), expect("GPU utilization", "%"));
        assert_eq!(told("cpu_cores"), expect("CPU", "cores"));
        assert_eq!(told("load_average"), expect("load average", ""));
    }
}
