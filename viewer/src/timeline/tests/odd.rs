//! Counters, what is not whole, what is hostile, and that nothing is lost whatever comes.

use std::collections::BTreeMap;

use gputrace_trace::tables::{Counter, MemoryEvent, Memset, UntimedOperation, Window};
use proptest::prelude::*;
use regex::Regex;

use super::*;

#[test]
fn counters_memory_and_what_was_not_recorded_are_there() {
    let mut recording = recording();
    let names = &mut recording.names;
    let (power, active, taken) = (
        names.intern("power_watts"),
        names.intern("active"),
        names.intern("taken by another profiler"),
    );
    for (time, operation, bytes) in [(100, 1, 50), (200, 1, 30), (300, 2, 50)] {
        recording.processes[0].tables.memory.push(MemoryEvent {
            time_ns: TimeNs(STARTED + time),
            operation,
            memory_kind: 3,
            address: bytes,
            bytes,
            ..MemoryEvent::default()
        });
    }
    for (start, end, what) in [(0, 300, active), (500, 2000, active), (350, 360, taken)] {
        let (start_ns, duration_ns) = at(start, end);
        recording.processes[1].tables.windows.push(Window {
            start_ns,
            duration_ns,
            what,
            ..Window::default()
        });
    }
    let mut host = Process::default();
    host.header.host = "here".to_owned();
    host.header.devices = vec![Device {
        index: 5,
        uuid: Some(format!("{:032x}", 1)),
        ..Device::default()
    }];
    recording.processes[1]
        .tables
        .contexts
        .push(gputrace_trace::tables::Context {
            context: 1,
            device: 0,
            null_stream: 7,
        });
    for (time, device, value) in [
        (-50, Some(5), 300.0),
        (50, Some(5), 400.0),
        (10, Some(6), 1.0),
        (10, None, 2.0),
    ] {
        host.tables.counters.push(Counter {
            time_ns: TimeNs(STARTED + time),
            name: power,
            device,
            value,
            ..Counter::default()
        });
    }
    recording.hosts.push(host);
    let (plain, _) = timelines(recording);
    assert_eq!((plain.origin_ns(), plain.begin()), (STARTED - 50, 50));
    let told: Vec<(&str, Option<&str>, Option<f64>)> = plain
        .rows()
        .iter()
        .filter(|row| row.row_type == "counter")
        .map(|row| (row.key.as_str(), row.unit.as_deref(), row.max))
        .collect();
    assert_eq!(
        told,
        [
            ("r0.p0/gpu0/memory", Some("B"), Some(80.0)),
            ("r1.p0/gpu0/sampled/power_watts", Some("W"), Some(400.0)),
            ("host/here/gpu6/power_watts", Some("W"), Some(1.0)),
            ("host/here/power_watts", Some("W"), Some(2.0)),
        ]
    );
    let row = row_of(&plain, "r1.p0/gpu0/sampled/power_watts");
    let (words, floats) = decoded(&plain.counters(0, 0, &[row, 0]));
    assert_eq!(words[..6], [0x5254_4E43, 1, 0, 1, row, 2]);
    assert_eq!(
        floats[2..],
        [0.0, 100.0, 100.0, 200.0, 300.0, 400.0, 300.0, 400.0, 300.0, 400.0]
    );
    let gaps: Vec<(u32, i64, i64, &str)> = plain
        .gaps()
        .iter()
        .map(|gap| (gap.process, gap.from, gap.to, gap.what.as_str()))
        .collect();
    assert_eq!(
        gaps,
        [
            (1, 350, 550, "not recorded"),
            (1, 400, 410, "taken by another profiler")
        ]
    );
}

#[test]
fn what_had_not_ended_lasts_until_the_last_moment() {
    let mut recording = recording();
    recording.processes[0].header.ended_ns = Some(STARTED + 2000);
    let name = recording.names.intern("stuck");
    recording.processes[0]
        .tables
        .untimed_operations
        .push(UntimedOperation {
            kind: 10,
            start_ns: Some(TimeNs(STARTED + 650)),
            name: Some(name),
            device: Some(0),
            stream: Some(7),
            ..UntimedOperation::default()
        });
    let (plain, _) = timelines(recording);
    let second = row_of(&plain, "r0.p0/gpu0/stream7/1");
    let slice = plain.slice(second, 0).unwrap();
    assert_eq!(
        (slice.unfinished, slice.reference.start, slice.end),
        (true, 650, 2000)
    );
    assert_eq!(slice.full_name, "stuck");
    // The analysis does not count it, so neither does the overview.
    let (_, floats) = decoded(&plain.overview(1000, 2000, 1));
    assert_eq!(floats[..4], [0.0; 4]);
}

#[test]
fn hostile_and_empty_recordings_are_harmless() {
    let (plain, whole) = timelines(Recording::default());
    assert_eq!((plain.begin(), plain.end(), whole.rows().len()), (0, 0, 0));
    assert_eq!(whole.tile(0, 0, &[0]).len(), 16);
    assert_eq!(
        whole.search(&Regex::new("").unwrap(), 1, 0),
        Found {
            ticks: vec![0; 512],
            ..Found::default()
        }
    );
    let mut recording = Recording::default();
    let hostile = format!("<script>alert(1)</script>{}", "x".repeat(100_000));
    let name = recording.names.intern(&hostile);
    let mut process = Process::default();
    for (start, duration) in [
        (0, 10),
        (5, -3),
        (i64::MAX - 5, 10),
        (i64::MIN, 5),
        (50, i64::MAX),
        (-(1 << 61), 1),
        (1 << 60, 0),
    ] {
        process.tables.kernels.push(Kernel {
            start_ns: TimeNs(start),
            duration_ns: DurationNs(duration),
            name,
            correlation: u32::MAX,
            ..Kernel::default()
        });
        process.tables.memsets.push(Memset {
            start_ns: TimeNs(start),
            duration_ns: DurationNs(duration),
            ..Memset::default()
        });
    }
    recording.processes.push(process);
    let (_, whole) = timelines(recording);
    let slices: u32 = whole.rows().iter().map(|row| row.slices).sum();
    assert_eq!(slices, 6);
    for level in 0..=MOST_LEVEL {
        for index in [0, 1, 1 << 20, u64::MAX] {
            let bytes = whole.tile(level, index, &[0, 1]);
            assert!(bytes.len() <= 16 + 16 + 6 * 20);
        }
    }
    let found = whole.search(&Regex::new("script").unwrap(), 10, 0);
    assert_eq!(found.total, 3);
    assert!(found.hits.iter().all(|hit| hit.name.chars().count() <= 200));
    for row in 0..2 {
        for index in 0..4 {
            drop(whole.slice(row, index));
            drop(whole.hit(row, i64::MIN, i64::MAX));
        }
    }
    drop(whole.overview(0, i64::MAX, 4096));
    drop(whole.area(i64::MIN, i64::MAX, None));
}

proptest! {
    /// Every row of the tables is on a row of the timeline, once, with its time; whatever the order in the files.
    #[test]
    fn no_slice_is_lost(
        kernels in proptest::collection::vec((0i64..5000, 0i64..60, 0u32..3, 0u32..2), 0..300),
        calls in proptest::collection::vec((0i64..5000, 0i64..60, 0u32..3), 0..300),
        ranges in proptest::collection::vec((0i64..5000, 0i64..600, 0u32..2), 0..60),
    ) {
        let mut recording = Recording::default();
        let name = recording.names.intern("anything");
        let mut process = Process::default();
        for (row, (start, duration, stream, device)) in (1..).zip(&kernels) {
            kernel(&mut process.tables, name, *stream, row, *start, start + duration);
            process.tables.kernels.device[row as usize - 1] = *device;
        }
        for (row, (start, duration, thread)) in (1..).zip(&calls) {
            call(&mut process.tables, name, *thread, row, *start, start + duration);
        }
        for (start, duration, thread) in &ranges {
            range(&mut process.tables, name, *thread, *start, start + duration);
        }
        recording.processes.push(process);
        let (plain, whole) = timelines(recording);
        let mut seen: BTreeMap<(Vec<String>, i64, i64), i64> = BTreeMap::new();
        for row in plain.rows() {
            let slices = plain.slices(row.row).unwrap();
            let same = row_of(&whole, &row.key);
            for place in 0..slices.len() {
                *seen.entry((row.path.clone(), slices.start(place) - STARTED, slices.duration(place))).or_default() += 1;
                let details = whole.slice(same, place as u32).unwrap();
                prop_assert_eq!(details.reference.start, slices.start(place) - plain.origin_ns());
            }
        }
        let mut expect = |path: Vec<String>, start: i64, duration: i64| {
            *seen.entry((path, start, duration)).or_default() -= 1;
        };
        let path = |of: &[&str]| of.iter().map(|part| (*part).to_owned()).collect::<Vec<String>>();
        for (start, duration, stream, device) in &kernels {
            expect(path(&["rank 0", &format!("GPU {device}"), &format!("stream {stream}")]), *start, *duration);
        }
        for (start, duration, thread) in &calls {
            expect(path(&["rank 0", &format!("thread {thread}")]), *start, *duration);
        }
        for (start, duration, thread) in &ranges {
            expect(path(&["rank 0", "NVTX", &format!("thread {thread}")]), *start, *duration);
        }
        prop_assert!(seen.values().all(|count| *count == 0), "{:?}", seen);
        // A launch leads to its kernel, and the kernel to its launch.
        for (correlation, (start, ..)) in (1..).zip(&kernels) {
            let call = whole.call_of(0, correlation);
            prop_assert_eq!(call, calls.get(correlation as usize - 1).map(|_| correlation as usize - 1));
            let found = whole.find(0, Table::Kernel, correlation as usize - 1).unwrap();
            prop_assert_eq!(found.start, start + STARTED - plain.origin_ns());
        }
    }
}
