//! Steps of a clock that is known to be wrong, undone.

use super::*;
use crate::names::NameId;
use crate::table::Table;
use crate::tables::{ApiCall, Clock, Counter, Kernel, Marker, NcclProxyStep, UntimedOperation};
use proptest::prelude::*;

const SECOND: i64 = 1_000_000_000;
const BOOT: i64 = 1_700_000_000 * SECOND;

/// A clock that is set at moments, by so much; moments are time since boot, in order.
struct FaultyClock(Vec<(i64, i64)>);

/// Undoes the steps of all processes of a recording.
fn undo_all<const COUNT: usize>(mut processes: [&mut Process; COUNT]) -> Vec<Step> {
    let hosts = HostOffsets::of(processes.iter().map(|process| &**process));
    let undone = processes.iter_mut().flat_map(|process| undo(process, &hosts));
    undone.collect()
}

impl FaultyClock {
    fn read(&self, moment: i64) -> i64 {
        let steps = self.0.iter().filter(|(at, _)| moment >= *at).map(|(_, by)| by);
        BOOT + moment + steps.sum::<i64>()
    }

    fn reading(&self, moment: i64) -> Clock {
        Clock {
            realtime_ns: TimeNs(self.read(moment)),
            monotonic_ns: moment - 7,
            boottime_ns: moment,
            tsc: None,
        }
    }
}

/// Calls, ranges and kernels of `seconds` as the clock stamps them, each with its true times beside it.
fn process(clock: &FaultyClock, begin: i64, seconds: i64, gaps: &[i64]) -> (Process, Process) {
    let (mut stamped, mut truth) = (Process::default(), Process::default());
    let true_clock = FaultyClock(clock.0.iter().filter(|(at, _)| *at <= begin).copied().collect());
    for (process, clock) in [(&mut stamped, clock), (&mut truth, &true_clock)] {
        let tables = &mut process.tables;
        for second in 0..=seconds {
            tables.clocks.push(clock.reading(begin + second * SECOND));
        }
        let mut moment = begin + 1;
        let mut place = 0;
        while moment < begin + seconds * SECOND {
            let gap = gaps[place % gaps.len()];
            place += 1;
            // From here to there, one after another, as a thread makes calls.
            let (start, end) = (moment, moment + gap / 2);
            let times = |clock: &FaultyClock| {
                let start_ns = TimeNs(clock.read(start));
                (start_ns, TimeNs(clock.read(end)) - start_ns)
            };
            let (start_ns, duration_ns) = times(clock);
            tables.api_calls.push(ApiCall {
                start_ns,
                duration_ns,
                correlation: place as u32,
                ..ApiCall::default()
            });
            if place % 3 == 0 {
                tables.kernels.push(Kernel {
                    start_ns,
                    duration_ns,
                    ..Kernel::default()
                });
            }
            if place % 4 == 0 {
                tables.nccl_proxy.push(NcclProxyStep {
                    start_ns,
                    duration_ns,
                    flush_ns: Some(DurationNs(1_000)),
                    ..NcclProxyStep::default()
                });
                tables.untimed_operations.push(UntimedOperation {
                    start_ns: Some(start_ns),
                    ..UntimedOperation::default()
                });
            }
            if place % 5 == 0 {
                let range = Marker {
                    start_ns,
                    duration_ns: Some(duration_ns),
                    ..Marker::default()
                };
                tables.markers.push(range);
                let mark = Marker {
                    start_ns: start_ns + duration_ns,
                    ..Marker::default()
                };
                tables.markers.push(mark);
            }
            if place % 40 == 0 {
                tables.counters.push(Counter {
                    time_ns: start_ns,
                    name: NameId::default(),
                    ..Counter::default()
                });
            }
            moment += gap;
        }
        process.header.ended_ns = Some(clock.read(begin + seconds * SECOND));
    }
    (stamped, truth)
}

#[track_caller]
fn assert_same(mended: &Process, truth: &Process) {
    let same = |what: &str, a: &[i64], b: &[i64]| {
        assert_eq!(a.len(), b.len(), "{what}");
        for (row, (a, b)) in a.iter().zip(b).enumerate() {
            assert!(
                (a - b).abs() <= READING_NS,
                "{what}: row {row} is off by {}",
                a - b
            );
        }
    };
    let times = |times: &[TimeNs]| times.iter().map(|time| time.0).collect::<Vec<i64>>();
    let lengths = |lengths: &[DurationNs]| lengths.iter().map(|length| length.0).collect::<Vec<i64>>();
    let (a, b) = (&mended.tables, &truth.tables);
    same(
        "calls",
        &times(&a.api_calls.start_ns),
        &times(&b.api_calls.start_ns),
    );
    same(
        "lengths",
        &lengths(&a.api_calls.duration_ns),
        &lengths(&b.api_calls.duration_ns),
    );
    same(
        "kernels",
        &times(&a.kernels.start_ns),
        &times(&b.kernels.start_ns),
    );
    same(
        "proxy steps",
        &times(&a.nccl_proxy.start_ns),
        &times(&b.nccl_proxy.start_ns),
    );
    same(
        "lengths of proxy steps",
        &lengths(&a.nccl_proxy.duration_ns),
        &lengths(&b.nccl_proxy.duration_ns),
    );
    assert_eq!(a.nccl_proxy.flush_ns, b.nccl_proxy.flush_ns);
    let known =
        |starts: &[Option<TimeNs>]| -> Vec<i64> { starts.iter().flatten().map(|start| start.0).collect() };
    same(
        "untimed operations",
        &known(&a.untimed_operations.start_ns),
        &known(&b.untimed_operations.start_ns),
    );
    same("ranges", &times(&a.markers.start_ns), &times(&b.markers.start_ns));
    same(
        "samples",
        &times(&a.counters.time_ns),
        &times(&b.counters.time_ns),
    );
    assert_eq!(mended.header.ended_ns, truth.header.ended_ns);
}

#[test]
fn a_clock_that_is_slewed_or_off_by_little_is_left_alone() {
    let clock = FaultyClock((1..5).map(|at| (at * SECOND + 500, 150_000)).collect());
    let (mut stamped, _) = process(&clock, 100, 6, &[400_000]);
    let before = stamped.clone();
    assert_eq!(undo_all([&mut stamped]), []);
    assert_eq!(stamped, before);
}

#[test]
fn one_interrupted_reading_is_no_step() {
    let (mut stamped, truth) = process(&FaultyClock(Vec::new()), 100, 6, &[400_000]);
    stamped.tables.clocks.monotonic_ns[3] += 30_000_000;
    stamped.tables.clocks.boottime_ns[3] += 30_000_000;
    assert_eq!(undo_all([&mut stamped]), []);
    assert_same(&stamped, &truth);
}

#[test]
fn processes_of_a_host_come_to_one_timeline() {
    let clock = FaultyClock(vec![(3 * SECOND, -2 * SECOND)]);
    let (mut early, early_truth) = process(&clock, 100, 6, &[300_000]);
    let (mut late, _) = process(&clock, 4 * SECOND, 2, &[300_000]);
    let undone = undo_all([&mut early, &mut late]);
    assert_eq!(undone.len(), 2);
    assert_same(&early, &early_truth);
    assert_eq!(late.tables.clocks.realtime_ns[0].0, BOOT + 4 * SECOND);
}

#[test]
fn what_a_device_stamped_ahead_of_the_clock_is_not_taken_for_later() {
    // The clock is set forward right before a reading, when kernels with stamps of up to a second ahead wait in a queue.
    let clock = FaultyClock(vec![(3 * SECOND - 1_000, 20 * SECOND)]);
    let (mut stamped, mut truth) = process(&clock, SECOND, 5, &[30_000_000]);
    for process in [&mut stamped, &mut truth] {
        process.tables.kernels.push(Kernel {
            start_ns: TimeNs(BOOT + 3 * SECOND + 900_000_000),
            duration_ns: DurationNs(100_000),
            ..Kernel::default()
        });
    }
    undo_in(&mut stamped);
    assert_same(&stamped, &truth);
}

#[test]
fn readings_without_meaning_are_survived() {
    for extreme in [i64::MIN, i64::MAX, 0] {
        let mut process = Process::default();
        for realtime in [0, extreme, 5, -extreme.saturating_abs()] {
            process.tables.clocks.push(Clock {
                realtime_ns: TimeNs(realtime),
                monotonic_ns: extreme,
                boottime_ns: 3,
                tsc: None,
            });
            process.tables.api_calls.push(ApiCall {
                start_ns: TimeNs(realtime),
                duration_ns: DurationNs(extreme),
                ..ApiCall::default()
            });
        }
        undo_all([&mut process]);
    }
}

/// Calls of three threads and kernels of two streams, delivered a buffer at a time: all that a thread did in 450 ms, then
/// another's.
fn by_buffers(clock: &FaultyClock, seconds: i64) -> Process {
    const BUFFER: i64 = 450_000_000;
    let mut process = Process::default();
    let tables = &mut process.tables;
    for second in 0..=seconds {
        tables.clocks.push(clock.reading(second * SECOND));
    }
    for begin in (0..seconds * SECOND).step_by(BUFFER as usize) {
        for thread in [3, 1, 2] {
            // One of them is at work for a short while only, all of it after the step.
            let from = if thread == 2 { 7 * SECOND } else { 0 };
            let to = if thread == 2 { 8 * SECOND } else { i64::MAX };
            let each = 7_000_000 + 1_000_003 * i64::from(thread);
            let first = (begin + each - 1) / each * each;
            for start in (first..begin + BUFFER).step_by(each as usize) {
                if !(from..to).contains(&start) {
                    continue;
                }
                let start_ns = TimeNs(clock.read(start));
                let duration_ns = TimeNs(clock.read(start + each / 2)) - start_ns;
                tables.api_calls.push(ApiCall {
                    start_ns,
                    duration_ns,
                    thread,
                    ..ApiCall::default()
                });
                if thread != 2 {
                    tables.kernels.push(Kernel {
                        start_ns,
                        duration_ns,
                        stream: 7 + thread,
                        ..Kernel::default()
                    });
                }
            }
        }
    }
    process
}

#[test]
fn rows_that_come_a_threads_buffer_at_a_time_are_each_put_where_they_belong() {
    for by in [
        -300_000_000,
        -2 * SECOND,
        -20 * SECOND,
        -3_600 * SECOND,
        20 * SECOND,
    ] {
        // In the midst of a buffer.
        let clock = FaultyClock(vec![(5 * SECOND + 123_456_789, by)]);
        let mut mended = by_buffers(&clock, 11);
        undo_in(&mut mended);
        let truth = by_buffers(&FaultyClock(Vec::new()), 11);
        assert_same(&mended, &truth);
    }
}

#[test]
fn a_step_that_is_shorter_than_the_time_between_samples_is_undone() {
    let clock = FaultyClock(vec![(3_871_842_119, -10_411_239)]);
    let (mut stamped, truth) = process(&clock, 100, 10, &[377_039, 160_393]);
    assert_eq!(undo_all([&mut stamped]).len(), 1);
    assert_same(&stamped, &truth);
}

#[test]
fn another_boot_is_no_step_of_the_clock() {
    let clock = FaultyClock(Vec::new());
    let made = |boot: &str| {
        let (mut process, _) = process(&clock, SECOND, 3, &[1000]);
        process.header.boot_id = Some(boot.to_owned());
        process
    };
    let (mut before, mut after) = (made("a"), made("b"));
    // Booted again an hour later: the time since boot began anew.
    after.tables.shift(DurationNs(3600 * SECOND));
    let stamps = after.tables.api_calls.start_ns.clone();
    assert!(undo_all([&mut before, &mut after]).is_empty());
    assert_eq!(after.tables.api_calls.start_ns, stamps);
    // In one boot the same is a clock that was set.
    after.header.boot_id = Some("a".to_owned());
    assert_eq!(undo_all([&mut before, &mut after]).len(), 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn steps_are_undone_wherever_they_fall(
        // Where there are rows on both sides.
        at in SECOND / 10..9 * SECOND,
        // More than lies between two samples (20 ms), so that every table shows it.
        by in prop_oneof![21_000_000..60_000_000i64, SECOND..40 * SECOND],
        back in any::<bool>(),
        gaps in prop::collection::vec(50_000..500_000i64, 1..20),
    ) {
        let by = if back { -by } else { by };
        let clock = FaultyClock(vec![(at + 100, by)]);
        let (mut stamped, truth) = process(&clock, 100, 10, &gaps);
        let undone = undo_all([&mut stamped]);
        prop_assert_eq!(undone.len(), 1);
        prop_assert!((undone[0].by_ns - by).abs() <= READING_NS);
        assert_same(&stamped, &truth);
    }

    #[test]
    fn several_steps_are_undone(
        first in SECOND..3 * SECOND,
        second in 7 * SECOND..9 * SECOND,
        by in prop::collection::vec(prop_oneof![-SECOND..-10_000_000, 10_000_000..SECOND], 2),
    ) {
        let clock = FaultyClock(vec![(first, by[0]), (second, by[1])]);
        let (mut stamped, truth) = process(&clock, 100, 10, &[170_000, 90_000, 333_000]);
        prop_assert_eq!(undo_all([&mut stamped]).len(), 2);
        assert_same(&stamped, &truth);
    }
}
