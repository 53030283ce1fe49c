//! Findings that the state of devices and processes explains.

use rustc_hash::FxHashMap;

use crate::analysis::RankAnalysis;
use crate::facts::Facts;
use crate::finding::Finding;
use crate::findings::{label, of_rank, percent_of_span};
use crate::state::{DeviceState, HostState};
use crate::units::duration;

/// A GPU whose clock is held down in this share of the samples is worth a sentence.
const THROTTLED: f64 = 0.05;
/// Idle time in which the host launched nothing is looked into from this share of the span on.
const LATE: f64 = 0.05;
/// The launching thread lacks a processor from this share of the time on.
const STARVED: f64 = 0.05;
/// Page faults a second that wait for a disk, from which on they are worth a sentence.
const FAULTS: f64 = 10.0;

/// All of them.
pub(crate) fn findings(ranks: &[RankAnalysis], devices: &[DeviceState], hosts: &[HostState]) -> Vec<Finding> {
    let mut by_rank = ByRank::default();
    for rank in ranks {
        by_rank.entry(rank.rank).or_insert(rank);
    }
    let ranks = &by_rank;
    let mut findings: Vec<Finding> = devices
        .iter()
        .filter_map(|device| throttled(device, ranks))
        .collect();
    findings.extend(worst(hosts.iter().filter_map(|host| starved(host, ranks))));
    findings.extend(worst(hosts.iter().filter_map(|host| faulting(host, ranks))));
    findings
}

fn worst(findings: impl Iterator<Item = Finding>) -> Option<Finding> {
    findings.max_by_key(|finding| finding.saves_ns)
}

/// The first device of each rank.
type ByRank<'a> = FxHashMap<Option<u32>, &'a RankAnalysis>;

fn throttled(device: &DeviceState, ranks: &ByRank<'_>) -> Option<Finding> {
    let share = device.in_trouble();
    let rank = *ranks.get(&Some(*device.ranks.first()?))?;
    let clock = device.values.get("sm_clock_mhz")?;
    let held_mhz = device.throttled_clock_mhz?;
    if share < THROTTLED {
        return None;
    }
    // Kernels would take as much less as the clock is lower, at most.
    let lost = (1.0 - held_mhz / clock.max.max(1.0)).max(0.0);
    let saves_ns = (rank.measures.compute_ns as f64 * share * lost) as i64;
    let why: Vec<String> = device
        .throttled
        .iter()
        .map(|(why, share)| format!("{why} {:.0} %", share * 100.0))
        .collect();
    let hottest = device
        .values
        .get("temperature_celsius")
        .map_or_else(String::new, |degrees| format!(", up to {:.0} C", degrees.max));
    Some(of_rank(
        rank,
        saves_ns,
        Facts::ClockHeldDown {
            host: device.host.clone(),
            index: device.index,
            share,
            clock_mhz: held_mhz,
            greatest_mhz: clock.max,
            reasons: device.throttled.clone(),
        },
        "A GPU's clock is held down: look at its cooling and its power supply".to_owned(),
        format!(
            "{}: GPU {} of {} ran at {held_mhz:.0} of {:.0} MHz in {:.0} % of the samples ({}){hottest}",
            label(rank),
            device.index,
            device.host,
            clock.max,
            share * 100.0,
            why.join(", ")
        ),
    ))
}

/// Idle time in which the host launched nothing, if it is worth looking into.
fn late_ns(rank: &RankAnalysis) -> Option<i64> {
    let causes = ["host_late", "nothing_submitted"];
    let late = causes.into_iter().filter_map(|cause| rank.idle_causes.get(cause));
    let late_ns = late.fold(0i64, |sum, time| sum.saturating_add(*time));
    (late_ns as f64 > LATE * rank.measures.span_ns.max(1) as f64).then_some(late_ns)
}

fn starved(host: &HostState, ranks: &ByRank<'_>) -> Option<Finding> {
    let rank = *ranks.get(&host.rank)?;
    let late_ns = late_ns(rank)?;
    let thread = host.threads.iter().find(|thread| thread.launches)?;
    let delay = thread.values.get("run_delay_ratio")?;
    if delay.mean < STARVED {
        return None;
    }
    let waited_ns = (delay.mean * rank.measures.span_ns as f64) as i64;
    Some(of_rank(
        rank,
        late_ns.min(waited_ns),
        Facts::StarvedThread {
            thread: thread.thread,
            name: thread.name.clone(),
            run_delay_ratio: delay.mean,
            idle_ns: late_ns,
        },
        "The thread that launches work waits for a processor: give the job more cores, or run fewer threads (loaders, OMP_NUM_THREADS)"
            .to_owned(),
        format!(
            "{}: thread {} ({}) could have run and had no processor in {:.1} % of the time; the GPU was idle for {} \
             because nothing was launched, {}",
            label(rank),
            thread.thread,
            thread.name,
            delay.mean * 100.0,
            duration(late_ns),
            percent_of_span(late_ns, rank)
        ),
    ))
}

fn faulting(host: &HostState, ranks: &ByRank<'_>) -> Option<Finding> {
    let rank = *ranks.get(&host.rank)?;
    let late_ns = late_ns(rank)?;
    let faults = host.values.get("major_faults_per_second")?;
    if faults.mean < FAULTS {
        return None;
    }
    Some(of_rank(
        rank,
        late_ns,
        Facts::DiskFaults {
            mean_per_second: faults.mean,
            max_per_second: faults.max,
            idle_ns: late_ns,
        },
        "The process waits for pages from the disk: keep the data set in memory, or read it ahead".to_owned(),
        format!(
            "{}: {:.0} page faults a second needed the disk, up to {:.0}; the GPU was idle for {} because nothing was launched, {}",
            label(rank),
            faults.mean,
            faults.max,
            duration(late_ns),
            percent_of_span(late_ns, rank)
        ),
    ))
}
