//! What readers of Chrome's JSON demand without saying so, each rule on recordings that are out to break it.
//!
//! The rules are those of Perfetto's importer (v52 and v55), chrome://tracing, Holistic Trace Analysis and AMD's TraceLens,
//! found by trying: what breaks one is dropped, moved or joined to something else without a word.

use crate::support;

use std::collections::{BTreeMap, HashMap, HashSet};

use gputrace_interchange::export::ExportSummary;
use gputrace_interchange::export::chrome::{export_chrome, export_chrome_ranks};
use gputrace_interchange::export::files::write_folder;
use gputrace_trace::tables::{ApiCall, Copy, Counter, Kernel, Marker};
use gputrace_trace::{Derived, DurationNs, Process, Recording, Table, TimeNs};
use proptest::prelude::*;
use serde_json::Value;
use support::everything::everything;
use support::{EPOCH_NS, two_ranks};

fn exported(recording: &Recording) -> (String, ExportSummary) {
    let mut out = Vec::new();
    let summary = export_chrome(recording, &Derived::default(), &mut out).unwrap();
    (String::from_utf8(out).unwrap(), summary)
}

/// Integer nanoseconds of a time as it stands in the text: no reader's rounding hides a fault.
fn ns(event: &str, key: &str) -> i64 {
    let after = event
        .split_once(key)
        .unwrap_or_else(|| panic!("{key} in {event}"))
        .1;
    let end = after.find([',', '}']).unwrap();
    let (whole, decimals) = after[..end].split_once('.').unwrap();
    assert_eq!(decimals.len(), 3, "{event}");
    whole.parse::<i64>().unwrap() * 1000 + decimals.parse::<i64>().unwrap()
}

struct Slice {
    start: i64,
    end: i64,
    place: usize,
    on_gpu: bool,
}

/// Checks every rule; how many events of each phase there are.
fn checked(text: &str) -> BTreeMap<String, usize> {
    // One consumer cuts the file at its last bracket; Perfetto refuses escaped surrogates and control bytes.
    assert!(text.ends_with("\n]}\n"));
    assert!(!text.contains("\\u"));
    assert!(!text.chars().any(|c| c.is_control() && c != '\n'));
    let (_, list) = text.split_once("\"traceEvents\":[").unwrap();
    let list = list.strip_suffix("\n]}\n").unwrap();
    let mut phases: BTreeMap<String, usize> = BTreeMap::new();
    let mut slices: HashMap<(u64, u64), Vec<Slice>> = HashMap::new();
    let mut begins: HashMap<u64, ((u64, u64), i64, usize)> = HashMap::new();
    let mut ends: HashMap<u64, ((u64, u64), i64, usize)> = HashMap::new();
    let mut named: HashSet<u64> = HashSet::new();
    for (place, line) in list.lines().filter(|line| !line.is_empty()).enumerate() {
        let line = line.strip_suffix(',').unwrap_or(line);
        let event: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        let phase = event["ph"].as_str().unwrap();
        *phases.entry(phase.to_owned()).or_default() += 1;
        let number = |key: &str| {
            let number = event[key].as_u64().unwrap_or_else(|| panic!("{key}: {line}"));
            assert!(number < 1 << 32, "{line}");
            number
        };
        let (pid, tid) = (number("pid"), number("tid"));
        assert!(pid > 0, "0 is taken for GPU 0's: {line}");
        assert!(event["name"].is_string(), "{line}");
        if phase == "M" {
            if event["name"] == "process_name" {
                assert!(named.insert(pid), "named twice: {line}");
            }
            continue;
        }
        assert!(tid > 0, "0 becomes the process's main thread: {line}");
        assert!(named.contains(&pid), "named before its events: {line}");
        assert!(event["cat"].is_string(), "{line}");
        let start = ns(line, "\"ts\":");
        assert!(
            start < 104 * 86_400 * 1_000_000_000,
            "a double holds no nanoseconds beyond: {line}"
        );
        match phase {
            "X" => slices.entry((pid, tid)).or_default().push(Slice {
                start,
                end: start + ns(line, "\"dur\":"),
                place,
                on_gpu: matches!(
                    event["cat"].as_str(),
                    Some("kernel" | "gpu_memcpy" | "gpu_memset")
                ),
            }),
            "s" | "f" => {
                let id = event["id"].as_u64().unwrap();
                assert!(id < 1 << 53);
                assert!(
                    phase == "s" || event["bp"] == "e",
                    "else it joins the next slice: {line}"
                );
                let list = if phase == "s" { &mut begins } else { &mut ends };
                let twice = list.insert(id, ((pid, tid), start, place));
                assert!(twice.is_none(), "a second arrow of an id is lost: {line}");
            }
            "C" => assert!(event["args"]["value"].is_number(), "{line}"),
            "i" => {}
            other => panic!("{other}"),
        }
    }
    for (track, slices) in &mut slices {
        slices.sort_by_key(|slice| (slice.start, std::cmp::Reverse(slice.end), slice.place));
        let mut open: Vec<i64> = Vec::new();
        for slice in slices {
            while open.last().is_some_and(|&end| end <= slice.start) {
                open.pop();
            }
            if let Some(&outer) = open.last() {
                assert!(
                    slice.end <= outer,
                    "{track:?}: overlaps by {} ns",
                    slice.end - outer
                );
                assert!(!slice.on_gpu, "{track:?}: an operation in another");
            }
            open.push(slice.end);
        }
    }
    assert_eq!(begins.len(), ends.len());
    for (id, (track, start, place)) in &begins {
        let (end_track, end_start, end_place) = &ends[id];
        assert!(start <= end_start, "an arrow back in time is lost");
        for (track, start, place) in [(track, start, place), (end_track, end_start, end_place)] {
            let slice = slices[track].iter().find(|slice| slice.start == *start);
            let slice = slice.unwrap_or_else(|| panic!("arrow {id} begins or ends in nothing"));
            assert!(
                slice.place < *place,
                "an arrow before its slice joins the one before"
            );
        }
    }
    phases
}

#[test]
fn every_table_keeps_the_rules() {
    for recording in [two_ranks(), everything()] {
        let (text, summary) = exported(&recording);
        let phases = checked(&text);
        let written = phases["X"] + phases["i"] + phases["C"];
        assert_eq!(summary.events_out, written as u64);
        assert_eq!(summary.events_in, summary.events_out);
        assert_eq!(phases["s"] as u64, summary.flows);
        assert_eq!(text, exported(&recording).0, "the same bytes each time");
    }
}

/// TraceLens finds a call's operation so: the arrow whose number is the correlation id, and at its end the event of that
/// "process", "thread" and correlation id. Its names of collectives are PyTorch's.
#[test]
fn tracelens_finds_the_operations_of_calls() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("ranks");
    write_folder(&out, |files| {
        export_chrome_ranks(&two_ranks(), &Derived::default(), false, files)
    })
    .unwrap();
    for rank in ["rank0.json", "rank1.json"] {
        let file: Value = serde_json::from_str(&std::fs::read_to_string(out.join(rank)).unwrap()).unwrap();
        let events = file["traceEvents"].as_array().unwrap();
        let mut ends: HashMap<u64, (&Value, &Value)> = HashMap::new();
        let mut by_place: HashMap<(String, u64), &Value> = HashMap::new();
        for event in events {
            let place = format!("{} {}", event["pid"], event["tid"]);
            if event["ph"] == "f" {
                ends.insert(event["id"].as_u64().unwrap(), (&event["pid"], &event["tid"]));
            } else if let Some(correlation) = event["args"]["correlation"].as_u64() {
                by_place.insert((place, correlation), event);
            }
        }
        let found: BTreeMap<u64, &str> = [9, 10, 11, 12]
            .into_iter()
            .map(|correlation| {
                let (pid, tid) = ends[&correlation];
                let event = by_place[&(format!("{pid} {tid}"), correlation)];
                (correlation, event["cat"].as_str().unwrap())
            })
            .collect();
        let expected = [
            (9, "gpu_memcpy"),
            (10, "gpu_memset"),
            (11, "kernel"),
            (12, "kernel"),
        ];
        assert_eq!(found, expected.into());
        for event in events
            .iter()
            .filter(|event| event["args"]["Collective name"].is_string())
        {
            assert_eq!(event["args"]["Collective name"], "allreduce");
            assert_eq!(event["args"]["dtype"], "Float");
            assert_eq!(event["args"]["Process Group Ranks"], "[0, 1]");
        }
    }
}

fn one_process(fill: impl FnOnce(&mut Process, &mut gputrace_trace::Interner)) -> Recording {
    let mut recording = Recording::default();
    let mut process = Process::default();
    fill(&mut process, &mut recording.names);
    recording.processes.push(process);
    recording
}

#[test]
fn names_of_every_kind_are_written_whole() {
    let long = format!("void kernel<{}>", "std::tuple<int, ".repeat(100_000 / 16));
    let names = [
        "\u{0}\u{1f}\u{7f}\u{85}",
        "\"\\\"\n\t\r\u{8}\u{c}/",
        "😀\u{1f1e9}\u{1f1ea}\u{200d}",
        "",
        "]}]}",
        "\\ud83d\\ude00",
        &long,
    ];
    let recording = one_process(|process, interner| {
        for (place, name) in (0..).zip(names) {
            process.tables.markers.push(Marker {
                start_ns: TimeNs(EPOCH_NS + place),
                duration_ns: Some(DurationNs(0)),
                name: interner.intern(name),
                ..Marker::default()
            });
        }
    });
    let (text, _) = exported(&recording);
    // An escaped backslash before a u is a backslash, and no escape of a letter.
    let phases = checked(&text.replace("\\\\ud83d\\\\ude00", ""));
    assert_eq!(phases["X"], names.len());
    let file: Value = serde_json::from_str(&text).unwrap();
    let written: Vec<&str> = file["traceEvents"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|event| event["ph"] == "X")
        .map(|event| event["name"].as_str().unwrap())
        .collect();
    let clean: Vec<String> = names
        .iter()
        .map(|name| name.replace(char::is_control, " "))
        .collect();
    assert_eq!(written, clean);
}

#[test]
fn odd_numbers_get_rows_of_their_own() {
    let recording = one_process(|process, _| {
        // Twice the same, at the same time: streams 0 and the largest, threads 0 and the largest.
        for place in [0, 0, u32::MAX, u32::MAX, u32::MAX] {
            process.tables.kernels.push(Kernel {
                start_ns: TimeNs(EPOCH_NS),
                duration_ns: DurationNs(5),
                stream: place,
                ..Kernel::default()
            });
            process.tables.api_calls.push(ApiCall {
                start_ns: TimeNs(EPOCH_NS),
                duration_ns: DurationNs(5),
                thread: place,
                ..ApiCall::default()
            });
        }
        // Without length, with an arrow.
        process.tables.api_calls.push(ApiCall {
            start_ns: TimeNs(EPOCH_NS + 5),
            thread: 1,
            correlation: 7,
            ..ApiCall::default()
        });
        process.tables.copies.push(Copy {
            start_ns: TimeNs(EPOCH_NS + 5),
            correlation: 7,
            ..Copy::default()
        });
        for value in [f64::NAN, f64::INFINITY, 1.0] {
            process.tables.counters.push(Counter {
                time_ns: TimeNs(EPOCH_NS),
                value,
                ..Counter::default()
            });
        }
    });
    let mut recording = recording;
    recording.names.intern("a name");
    let (text, summary) = exported(&recording);
    let phases = checked(&text);
    assert_eq!(
        (phases["X"], phases["C"], phases["i"], phases["s"]),
        (12, 1, 2, 1)
    );
    assert_eq!((summary.events_in, summary.flows), (15, 1));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Anything at all: nothing is lost, no row overlaps, every arrow joins what it should.
    #[test]
    fn nothing_breaks_the_rules(
        rows in proptest::collection::vec((0i64..200, -3i64..40, 0u32..3, 0u32..12, 0u8..6), 0..120),
    ) {
        let recording = one_process(|process, interner| {
            let name = interner.intern("a name");
            for (start, length, row, correlation, kind) in rows {
                let (start_ns, duration_ns) = (TimeNs(EPOCH_NS + start), DurationNs(length));
                let tables = &mut process.tables;
                match kind {
                    0 | 1 => tables.kernels.push(Kernel { start_ns, duration_ns, stream: row, correlation, ..Kernel::default() }),
                    2 => tables.copies.push(Copy { start_ns, duration_ns, stream: row, correlation, ..Copy::default() }),
                    3 => tables.markers.push(Marker {
                        start_ns, duration_ns: Some(duration_ns), name, thread: row, kind: (correlation % 2) as u8,
                        ..Marker::default()
                    }),
                    _ => tables.api_calls.push(ApiCall { start_ns, duration_ns, name, thread: row, correlation, ..ApiCall::default() }),
                }
            }
        });
        let (text, summary) = exported(&recording);
        let phases = checked(&text);
        prop_assert_eq!(phases.get("X").copied().unwrap_or(0) as u64, summary.events_in);
        prop_assert_eq!(summary.events_in, summary.events_out);
        let tables = &recording.processes[0].tables;
        let launched = tables.kernels.len() + tables.copies.len();
        let told = summary.flows + summary.launches_unknown + summary.launches_later;
        prop_assert_eq!(launched as u64, told);
    }
}
