//! State of devices and processes, from samples made by hand.

use gputrace_analyzer::{Facts, Options, analyze};
use gputrace_trace::manifest::{Device, HOST_ROLE, ProcessHeader, Thread};
use gputrace_trace::tables::{ApiCall, Context, Counter, Kernel};
use gputrace_trace::{DurationNs, Process, Recording, Table, TimeNs};

const MILLISECOND: i64 = 1_000_000;
const LAUNCHER: u32 = 7;

/// A rank with a kernel of 1 ms each 10 ms, each launched just before, on a GPU that NVML calls 3; and samples of both.
fn recording() -> Recording {
    let mut recording = Recording::default();
    let names = &mut recording.names;
    let device = |index| Device {
        index,
        name: "A GPU".to_owned(),
        uuid: Some("ab".to_owned()),
        ..Device::default()
    };
    let mut rank = Process {
        folder: "rank".to_owned(),
        header: ProcessHeader {
            host: "node".to_owned(),
            pid: 5,
            rank: Some(2),
            devices: vec![device(0)],
            ..ProcessHeader::new()
        },
        ..Process::default()
    };
    rank.tables.contexts.push(Context {
        context: 1,
        device: 0,
        null_stream: 0,
    });
    for number in 0..10 {
        let correlation = number as u32 + 1;
        let start = 10 * MILLISECOND * (number + 1);
        rank.tables.api_calls.push(ApiCall {
            start_ns: TimeNs(start - 5_000),
            duration_ns: DurationNs(2_000),
            name: names.intern("cuLaunchKernel"),
            kind: 4,
            thread: LAUNCHER,
            correlation,
            ..ApiCall::default()
        });
        rank.tables.kernels.push(Kernel {
            start_ns: TimeNs(start),
            duration_ns: DurationNs(MILLISECOND),
            name: names.intern("kernel"),
            context: 1,
            correlation,
            ..Kernel::default()
        });
    }
    let mut host = Process {
        folder: "host".to_owned(),
        header: ProcessHeader {
            role: HOST_ROLE.to_owned(),
            host: "node".to_owned(),
            devices: vec![device(3)],
            threads: vec![Thread {
                pid: 5,
                thread: LAUNCHER,
                name: "python".to_owned(),
            }],
            ..ProcessHeader::new()
        },
        ..Process::default()
    };
    // The first and the last lie outside the run.
    for sample in 0..13 {
        let outside = sample == 0 || sample == 12;
        let held = sample % 2 == 0;
        let mut push = |name: &str, device: Option<u32>, thread: Option<u32>, value: f64| {
            host.tables.counters.push(Counter {
                time_ns: TimeNs(
                    10 * MILLISECOND * sample
                        + if outside {
                            9 * MILLISECOND * (sample - 6).signum()
                        } else {
                            0
                        },
                ),
                name: names.intern(name),
                device,
                value: if outside { 1e9 } else { value },
                pid: device.is_none().then_some(5),
                thread,
            });
        };
        push("sm_clock_mhz", Some(3), None, if held { 1000.0 } else { 2000.0 });
        push(
            "throttle_reasons",
            Some(3),
            None,
            if held { f64::from(0x40) } else { 0.0 },
        );
        push("major_faults_per_second", None, None, 50.0);
        push("run_delay_ratio", None, Some(LAUNCHER), 0.25);
    }
    recording.processes.push(rank);
    recording.hosts.push(host);
    recording
}

#[test]
fn samples_of_the_run_are_summed_up() {
    let analysis = analyze(&recording(), &Options::default());
    let [device] = analysis.device_state.as_slice() else {
        panic!("{:?}", analysis.device_state);
    };
    assert_eq!((device.index, device.ranks.as_slice()), (3, &[2][..]));
    // Samples at 10, 20, ... 100 ms: every other at half the clock.
    let clock = device.values["sm_clock_mhz"];
    assert_eq!(
        (clock.count, clock.mean, clock.min, clock.max),
        (10, 1500.0, 1000.0, 2000.0)
    );
    assert_eq!(device.throttled["hardware thermal slowdown"], 0.5);
    assert_eq!(device.throttled_clock_mhz, Some(1000.0));
    let [host] = analysis.host_state.as_slice() else {
        panic!("{:?}", analysis.host_state);
    };
    assert_eq!((host.pid, host.rank), (5, Some(2)));
    assert_eq!(host.values["major_faults_per_second"].mean, 50.0);
    assert!(host.threads[0].launches && host.threads[0].name == "python");
    assert_eq!(host.threads[0].values["run_delay_ratio"].mean, 0.25);
}

#[test]
fn what_explains_lost_time_is_a_finding() {
    let analysis = analyze(&recording(), &Options::default());
    let finding = |is: fn(&Facts) -> bool| {
        let found = analysis.findings.iter().find(|finding| is(&finding.facts));
        found.unwrap_or_else(|| panic!("{:?}", analysis.findings))
    };
    // 10 ms of kernels, half of them at half the clock: 2.5 ms at most.
    let held = finding(|facts| matches!(facts, Facts::ClockHeldDown { .. }));
    assert_eq!((held.rank, held.saves_ns), (Some(2), Some(2_500_000)));
    let of_clock = |facts: &Facts| match facts {
        Facts::ClockHeldDown {
            clock_mhz,
            greatest_mhz,
            ..
        } => Some((*clock_mhz, *greatest_mhz)),
        _ => None,
    };
    assert_eq!(of_clock(&held.facts), Some((1000.0, 2000.0)));
    // A quarter of the span of 91 ms, of which the host was late for nearly 81 ms.
    let starved = finding(|facts| matches!(facts, Facts::StarvedThread { .. }));
    assert_eq!(starved.saves_ns, Some(91 * MILLISECOND / 4));
    finding(|facts| {
        matches!(
            facts,
            Facts::DiskFaults {
                mean_per_second: 50.0,
                ..
            }
        )
    });
}

#[test]
fn nothing_is_found_where_nothing_is_wrong() {
    let mut recording = recording();
    let counters = &mut recording.hosts[0].tables.counters;
    counters.value.iter_mut().for_each(|value| *value = 0.0);
    let analysis = analyze(&recording, &Options::default());
    let of_state = |facts: &Facts| {
        matches!(
            facts,
            Facts::ClockHeldDown { .. } | Facts::StarvedThread { .. } | Facts::DiskFaults { .. }
        )
    };
    assert!(!analysis.findings.iter().any(|finding| of_state(&finding.facts)));
}
