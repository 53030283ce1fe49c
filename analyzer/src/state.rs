//! The state of devices and processes while the run went on, from what the recorder sampled.

use std::collections::{BTreeMap, BTreeSet};

use gputrace_trace::manifest::Device;
use gputrace_trace::tables::Counters;
use gputrace_trace::{Process, Recording};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

/// What a sampled quantity came to.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Sampled {
    /// Samples.
    pub count: usize,
    /// Their mean: samples are taken at equal distances.
    pub mean: f64,
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
}

impl Sampled {
    fn of(values: &[f64]) -> Option<Self> {
        let finite: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
        (!finite.is_empty()).then(|| Self {
            count: finite.len(),
            mean: finite.iter().sum::<f64>() / finite.len() as f64,
            min: finite.iter().copied().fold(f64::INFINITY, f64::min),
            max: finite.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        })
    }
}

/// One GPU over the run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DeviceState {
    /// Its host.
    pub host: String,
    /// NVML's index of it.
    pub index: u32,
    /// Its name.
    pub name: Option<String>,
    /// The ranks that used it, by its UUID.
    pub ranks: Vec<u32>,
    /// By counter, as docs/formats.md lists them; all but the throttle reasons.
    pub values: BTreeMap<String, Sampled>,
    /// Share of the samples in which the clock was held down, by why.
    pub throttled: BTreeMap<String, f64>,
    /// Mean clock of the multiprocessors in the samples in which heat or the hardware held it down; null without any.
    pub throttled_clock_mhz: Option<f64>,
}

/// One process's host side over the run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HostState {
    /// Its host.
    pub host: String,
    /// Its number there.
    pub pid: u32,
    /// Its rank.
    pub rank: Option<u32>,
    /// By counter, as docs/formats.md lists them.
    pub values: BTreeMap<String, Sampled>,
    /// The threads that were watched, the busiest first.
    pub threads: Vec<ThreadState>,
}

/// One thread over the run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ThreadState {
    /// Its number.
    pub thread: u32,
    /// Its name.
    pub name: String,
    /// Whether it made most of the calls that launch GPU work.
    pub launches: bool,
    /// By counter.
    pub values: BTreeMap<String, Sampled>,
}

/// Why NVML says that a clock is not higher (nvmlClocksEventReasons), but for what is no trouble: nothing runs, or a clock
/// was asked for.
const REASONS: [(u64, &str); 7] = [
    (0x4, "power cap"),
    (0x8, "hardware slowdown"),
    (0x10, "sync boost"),
    (0x20, "software thermal slowdown"),
    (0x40, "hardware thermal slowdown"),
    (0x80, "power brake"),
    (0x100, "display clock"),
];
/// Those that something is wrong with: heat, or the power supply. A power cap is usual under full load.
const TROUBLE: u64 = 0x8 | 0x20 | 0x40 | 0x80;

/// The values of one thing by counter, in the order in which they were taken.
type Series = BTreeMap<String, Vec<f64>>;

fn sampled(series: Series) -> BTreeMap<String, Sampled> {
    series
        .into_iter()
        .filter_map(|(name, values)| Some((name, Sampled::of(&values)?)))
        .collect()
}

/// The rows of a host's samples that were taken while the run went on; all where none was.
fn rows_within(counters: &Counters, window: (i64, i64)) -> Vec<usize> {
    let all = 0..counters.time_ns.len();
    let within: Vec<usize> = all
        .clone()
        .filter(|&row| (window.0..=window.1).contains(&counters.time_ns[row].0))
        .collect();
    if within.is_empty() { all.collect() } else { within }
}

/// The state of each device that was sampled; `window`: from the run's first operation to its last.
pub(crate) fn devices(
    recording: &Recording,
    uses: &[(Option<u32>, &Uses)],
    window: (i64, i64),
) -> Vec<DeviceState> {
    let mut states = Vec::new();
    let users = users(recording, uses);
    for host in &recording.hosts {
        let counters = &host.tables.counters;
        let mut known: FxHashMap<u32, &Device> = FxHashMap::default();
        for device in &host.header.devices {
            known.entry(device.index).or_insert(device);
        }
        let mut series: BTreeMap<u32, Series> = BTreeMap::new();
        for row in rows_within(counters, window) {
            let Some(device) = counters.device[row] else {
                continue;
            };
            let name = recording.names.get(counters.name[row]).to_owned();
            let values = series.entry(device).or_default();
            values.entry(name).or_default().push(counters.value[row]);
        }
        for (index, mut series) in series {
            let known = known.get(&index);
            let uuid = known.and_then(|device| device.uuid.as_deref());
            let ranks = uuid.and_then(|uuid| users.get(&(host.header.host.as_str(), uuid)));
            let reasons = series.remove("throttle_reasons").unwrap_or_default();
            let clocks = series.get("sm_clock_mhz").cloned().unwrap_or_default();
            states.push(DeviceState {
                host: host.header.host.clone(),
                index,
                name: known.map(|device| device.name.clone()),
                ranks: ranks.map_or_else(Vec::new, |ranks| ranks.iter().copied().collect()),
                throttled: throttled(&reasons),
                throttled_clock_mhz: clock_in_trouble(&reasons, &clocks),
                values: sampled(series),
            });
        }
    }
    // Those that nobody used were sampled until it was known who uses which.
    if states.iter().any(|state| !state.ranks.is_empty()) {
        states.retain(|state| !state.ranks.is_empty());
    }
    states.sort_by(|a, b| (&a.host, a.index).cmp(&(&b.host, b.index)));
    states
}

fn throttled(reasons: &[f64]) -> BTreeMap<String, f64> {
    REASONS
        .iter()
        .filter_map(|(bit, name)| {
            let held = reasons
                .iter()
                .filter(|reasons| **reasons as u64 & bit != 0)
                .count();
            (held > 0).then(|| ((*name).to_owned(), held as f64 / reasons.len() as f64))
        })
        .collect()
}

/// Reasons and clocks are of the same samples, unless one was not given now and then.
fn clock_in_trouble(reasons: &[f64], clocks: &[f64]) -> Option<f64> {
    if reasons.len() != clocks.len() {
        return None;
    }
    let held: Vec<f64> = reasons
        .iter()
        .zip(clocks)
        .filter(|(reasons, _)| **reasons as u64 & TROUBLE != 0)
        .map(|(_, clock)| *clock)
        .collect();
    Sampled::of(&held).map(|clock| clock.mean)
}

/// By host and UUID: the ranks with a context on the device.
fn users<'a>(
    recording: &'a Recording,
    uses: &[(Option<u32>, &Uses)],
) -> FxHashMap<(&'a str, &'a str), BTreeSet<u32>> {
    let mut users: FxHashMap<(&str, &str), BTreeSet<u32>> = FxHashMap::default();
    for (process, (rank, uses)) in recording.processes.iter().zip(uses) {
        let Some(rank) = *rank else { continue };
        for device in &process.header.devices {
            let is_used = uses.devices.contains(&device.index);
            if let Some(uuid) = device.uuid.as_deref().filter(|_| is_used) {
                users
                    .entry((&process.header.host, uuid))
                    .or_default()
                    .insert(rank);
            }
        }
    }
    users
}

/// The host side of each process that was sampled.
pub(crate) fn hosts(
    recording: &Recording,
    uses: &[(Option<u32>, &Uses)],
    window: (i64, i64),
) -> Vec<HostState> {
    let mut states = Vec::new();
    let mut places: FxHashMap<(u32, &str), usize> = FxHashMap::default();
    for (place, process) in recording.processes.iter().enumerate() {
        let header = &process.header;
        places.entry((header.pid, header.host.as_str())).or_insert(place);
    }
    for host in &recording.hosts {
        let counters = &host.tables.counters;
        let mut thread_names: FxHashMap<(u32, u32), &str> = FxHashMap::default();
        for known in &host.header.threads {
            thread_names
                .entry((known.pid, known.thread))
                .or_insert(&known.name);
        }
        let mut series: BTreeMap<u32, Series> = BTreeMap::new();
        let mut threads: BTreeMap<(u32, u32), Series> = BTreeMap::new();
        for row in rows_within(counters, window) {
            let Some(pid) = counters.pid[row] else { continue };
            let name = recording.names.get(counters.name[row]).to_owned();
            let values = match counters.thread[row] {
                Some(thread) => threads.entry((pid, thread)).or_default(),
                None => series.entry(pid).or_default(),
            };
            values.entry(name).or_default().push(counters.value[row]);
        }
        for (pid, series) in series {
            let place = places.get(&(pid, host.header.host.as_str())).copied();
            let launcher = place.and_then(|place| uses[place].1.launching_thread);
            let own = threads.range((pid, 0)..=(pid, u32::MAX));
            let mut own: Vec<ThreadState> = own
                .map(|(&(_, thread), series)| ThreadState {
                    thread,
                    name: thread_names
                        .get(&(pid, thread))
                        .copied()
                        .unwrap_or_default()
                        .to_owned(),
                    launches: launcher == Some(thread),
                    values: sampled(series.clone()),
                })
                .collect();
            let cpu = |thread: &ThreadState| thread.values.get("cpu_cores").map_or(0.0, |cpu| cpu.mean);
            own.sort_by(|a, b| cpu(b).total_cmp(&cpu(a)).then(a.thread.cmp(&b.thread)));
            states.push(HostState {
                host: host.header.host.clone(),
                pid,
                rank: place.and_then(|place| uses[place].0),
                values: sampled(series),
                threads: own,
            });
        }
    }
    states.sort_by(|a, b| {
        (a.rank.unwrap_or(u32::MAX), &a.host, a.pid).cmp(&(b.rank.unwrap_or(u32::MAX), &b.host, b.pid))
    });
    states
}

/// What a process used, by which samples are known to be its own.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Uses {
    /// Devices on which it has contexts.
    devices: BTreeSet<u32>,
    /// The thread that launched most.
    launching_thread: Option<u32>,
}

impl Uses {
    /// Of one process.
    pub(crate) fn of(process: &Process) -> Self {
        Self {
            devices: process.tables.contexts.device.iter().copied().collect(),
            launching_thread: launching_thread(process),
        }
    }
}

/// The thread that made most of the calls whose correlation ids operations of the device have.
fn launching_thread(process: &Process) -> Option<u32> {
    let tables = &process.tables;
    let launched: BTreeSet<u32> = tables.kernels.correlation.iter().copied().collect();
    let mut calls: BTreeMap<u32, u64> = BTreeMap::new();
    for (row, correlation) in tables.api_calls.correlation.iter().enumerate() {
        if launched.contains(correlation) {
            *calls.entry(tables.api_calls.thread[row]).or_default() += 1;
        }
    }
    calls
        .into_iter()
        .max_by_key(|(thread, calls)| (*calls, std::cmp::Reverse(*thread)))
        .map(|(thread, _)| thread)
}

impl DeviceState {
    /// Share of the samples in which heat or the hardware held the clock down.
    pub(crate) fn in_trouble(&self) -> f64 {
        let trouble = REASONS.iter().filter(|(bit, _)| bit & TROUBLE != 0);
        trouble
            .filter_map(|(_, name)| self.throttled.get(*name))
            .fold(0.0, |most, share| share.max(most))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_shares_of_samples() {
        let reasons = [1.0, 4.0, 4.0 + 32.0, 0.0];
        let shares = throttled(&reasons);
        assert_eq!(shares.get("power cap"), Some(&0.5));
        assert_eq!(shares.get("software thermal slowdown"), Some(&0.25));
        assert_eq!(shares.len(), 2);
        let clock = clock_in_trouble(&reasons, &[1980.0, 1900.0, 1200.0, 1980.0]);
        assert_eq!(clock, Some(1200.0));
    }

    #[test]
    fn what_is_no_number_is_no_sample() {
        let sampled = Sampled::of(&[1.0, f64::NAN, 3.0]).expect("samples");
        assert_eq!(
            (sampled.count, sampled.mean, sampled.min, sampled.max),
            (2, 2.0, 1.0, 3.0)
        );
        assert_eq!(Sampled::of(&[f64::NAN]), None);
    }
}
