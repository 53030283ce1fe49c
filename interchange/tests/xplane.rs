//! Files for XProf of recordings that are small enough to count by hand, and of odd ones.

use crate::consumers::tensorboard;
use crate::odd;
use crate::support;

use std::collections::{BTreeMap, HashMap};

use gputrace_interchange::export::files::write_folder;
use gputrace_interchange::export::xplane::export_xplane;
use gputrace_trace::tables::Tables;
use gputrace_trace::{Derived, Recording};
use odd::{InMemory, odd, with_steps};
use support::{EVENTS_A_RANK, two_ranks};

/// A message's fields, as they come: number and value.
enum Field<'b> {
    Number(u64),
    Bytes(&'b [u8]),
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..).step_by(7) {
        let byte = bytes[0];
        *bytes = &bytes[1..];
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return value;
        }
    }
    unreachable!()
}

fn fields(mut bytes: &[u8]) -> Vec<(u64, Field<'_>)> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes);
        let field = match tag & 7 {
            0 => Field::Number(varint(&mut bytes)),
            1 => {
                let (value, rest) = bytes.split_at(8);
                bytes = rest;
                Field::Number(u64::from_le_bytes(value.try_into().unwrap()))
            }
            2 => {
                let length = varint(&mut bytes) as usize;
                let (value, rest) = bytes.split_at(length);
                bytes = rest;
                Field::Bytes(value)
            }
            kind => panic!("a field of kind {kind}"),
        };
        found.push((tag >> 3, field));
    }
    found
}

fn messages(bytes: &[u8], number: u64) -> Vec<&[u8]> {
    let of_number = fields(bytes)
        .into_iter()
        .filter(move |(found, _)| *found == number);
    of_number
        .map(|(_, field)| match field {
            Field::Bytes(bytes) => bytes,
            Field::Number(_) => panic!("a number"),
        })
        .collect()
}

fn number(bytes: &[u8], number: u64) -> Option<u64> {
    fields(bytes).into_iter().find_map(|(found, field)| match field {
        Field::Number(value) if found == number => Some(value),
        _ => None,
    })
}

fn text(bytes: &[u8], number: u64) -> String {
    String::from_utf8(messages(bytes, number).concat()).unwrap()
}

/// An event: its name, start and duration in picoseconds, and what it says of itself, by name.
struct Event {
    plane: String,
    line: String,
    name: String,
    start_ps: i64,
    duration_ps: i64,
    stats: HashMap<String, u64>,
}

/// Maps of numbers to names, of events or of stats.
fn names(plane: &[u8], field: u64) -> HashMap<u64, String> {
    let entry = |entry: &[u8]| {
        let value = messages(entry, 2).concat();
        assert_eq!(number(entry, 1), number(&value, 1));
        (number(entry, 1).unwrap(), text(&value, 2))
    };
    messages(plane, field).into_iter().map(entry).collect()
}

fn events(file: &[u8]) -> Vec<Event> {
    let mut found = Vec::new();
    for plane in messages(file, 1) {
        let (event_names, stat_names) = (names(plane, 4), names(plane, 5));
        for line in messages(plane, 3) {
            let mut starts = Vec::new();
            for event in messages(line, 4) {
                let stats = messages(event, 4).into_iter().filter_map(|stat| {
                    let value = fields(stat)
                        .into_iter()
                        .skip(1)
                        .find_map(|(_, field)| match field {
                            Field::Number(value) => Some(value),
                            Field::Bytes(_) => None,
                        });
                    Some((stat_names[&number(stat, 1)?].clone(), value?))
                });
                let start_ps = number(event, 2).unwrap().cast_signed();
                starts.push(start_ps);
                found.push(Event {
                    plane: text(plane, 2),
                    line: text(line, 2),
                    name: event_names[&number(event, 1).unwrap()].clone(),
                    start_ps,
                    duration_ps: number(event, 3).unwrap().cast_signed(),
                    stats: stats.collect(),
                });
            }
            assert!(starts.is_sorted(), "events of {} are not in order", text(line, 2));
        }
    }
    found
}

fn export(recording: &Recording, derived: &Derived) -> (BTreeMap<String, Vec<u8>>, u64) {
    let mut files = InMemory::default();
    let (summary, notes) = export_xplane(recording, derived, &mut files).unwrap();
    assert_eq!(summary.events_in, summary.events_out);
    assert_eq!(notes, Vec::<String>::new());
    (files.0, summary.events_in)
}

#[test]
fn a_file_a_rank_with_times_from_its_begin() {
    let derived = with_steps(&[(3, 0, 190), (4, 190, 600)], false);
    let (files, events_in) = export(&two_ranks(), &derived);
    assert_eq!(events_in, 2 * EVENTS_A_RANK);
    let session = "plugins/profile/2026_09_21_14_13_20_000001123";
    let paths: Vec<&String> = files.keys().collect();
    assert_eq!(
        paths,
        [
            &format!("{session}/node0_0.xplane.pb"),
            &format!("{session}/node1_1.xplane.pb")
        ]
    );
    for file in files.values() {
        let events = events(file);
        let named =
            |name: &str| -> Vec<&Event> { events.iter().filter(|event| event.name == name).collect() };
        let add = named("add(float*, int)");
        // The first event of all is a microsecond behind the recording's begin.
        let times: Vec<(i64, i64)> = add
            .iter()
            .map(|event| (event.start_ps, event.duration_ps))
            .collect();
        assert_eq!(
            times,
            [(99, 100), (199, 100), (249, 70)].map(|(start, length)| (start * 1_000_000, length * 1_000_000))
        );
        assert!(
            add.iter()
                .all(|event| event.plane == "/device:GPU:0" && event.line.starts_with("stream 7"))
        );
        // Of two calls with one number the outer one launched.
        let id = add[1].stats["_c"];
        let launches: Vec<&Event> = events
            .iter()
            .filter(|event| event.stats.get("_p") == Some(&id))
            .collect();
        let [launch] = launches[..] else {
            panic!("{} launches", launches.len())
        };
        assert_eq!(
            (launch.name.as_str(), launch.stats["_pt"], add[1].stats["_ct"]),
            ("cudaLaunchKernel", 9, 9)
        );
        assert_eq!(launch.stats["correlation_id"], add[1].stats["correlation_id"]);
        // That of the third was not recorded.
        assert_eq!(named("launch that was not recorded").len(), 1);
        let steps: Vec<u64> = named("step").iter().map(|step| step.stats["step_num"]).collect();
        assert_eq!(steps, [3, 4]);
        assert!(
            named("step")
                .iter()
                .all(|step| step.stats["_r"] == 1 && step.line == "steps")
        );
        let copy = named("MemcpyHtoD (Pinned -> Device)");
        assert_eq!((copy.len(), copy[0].stats["bytes"]), (1, 1_000_000));
        assert_eq!(named("MemoryAllocation")[0].stats["allocation_bytes"], 4096);
    }
}

#[test]
fn odd_recordings_are_written_whole_and_the_same_each_time() {
    let (recording, derived) = odd();
    let (files, _) = export(&recording, &derived);
    assert_eq!(files, export(&recording, &derived).0);
    for file in files.values() {
        for event in events(file) {
            assert!(event.start_ps >= 0 && event.duration_ps >= 0);
        }
    }
}

#[test]
fn xprof_loads_odd_recordings() {
    let Some(python) = tensorboard::python() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let (recording, derived) = odd();
    let mut empty = two_ranks();
    for process in &mut empty.processes {
        process.tables = Tables::default();
    }
    let runs: [(&str, &Recording, &Derived); 2] = [
        ("odd", &recording, &derived),
        ("empty", &empty, &Derived::default()),
    ];
    for (name, recording, derived) in runs {
        write_folder(&folder.path().join(name), |files| {
            export_xplane(recording, derived, files)
        })
        .unwrap();
    }
    let answers = tensorboard::ask(&python, folder.path(), "xprof");
    let runs = answers["runs"].as_object().unwrap();
    let (_, run) = runs.iter().find(|(name, _)| name.starts_with("odd")).unwrap();
    // It leaves out those of no length.
    let kernels = &recording.processes[0].tables.kernels;
    let kernels = kernels
        .duration_ns
        .iter()
        .filter(|duration| duration.0 > 0)
        .count() as f64;
    let statistics = run["answers"].as_object().unwrap();
    let statistics = statistics
        .iter()
        .find(|(key, _)| key.starts_with("kernel_stats"))
        .unwrap()
        .1;
    let rows = statistics["rows"]
        .as_array()
        .unwrap_or_else(|| panic!("{statistics}"));
    let calls: f64 = rows.iter().map(|row| row["c"][10]["v"].as_f64().unwrap()).sum();
    // Of one host, or of both.
    assert!(calls == kernels || calls == 2.0 * kernels, "{calls} of {kernels}");
    let traces = run["answers"].as_object().unwrap().iter();
    for (_, trace) in traces.filter(|(key, _)| key.starts_with("trace_viewer")) {
        assert!(trace["traceEvents"].is_array(), "{trace}");
    }
}
