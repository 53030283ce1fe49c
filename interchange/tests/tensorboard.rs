//! Files for torch-tb-profiler of recordings that are small enough to count by hand, and of odd ones.

use crate::consumers::tensorboard;
use crate::odd;
use crate::support;

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;

use gputrace_interchange::export::ExportSummary;
use gputrace_interchange::export::files::write_folder;
use gputrace_interchange::export::tensorboard::export_tensorboard;
use gputrace_trace::tables::{Kernel, MemoryEvent, Operator, Window};
use gputrace_trace::{Derived, DurationNs, Recording, Table};
use odd::{InMemory, at, odd, with_steps};
use serde_json::{Value, json};
use support::{EVENTS_A_RANK, two_ranks};

struct Exported {
    files: BTreeMap<String, Value>,
    bytes: BTreeMap<String, Vec<u8>>,
    summary: ExportSummary,
    notes: Vec<String>,
}

fn export(recording: &Recording, derived: &Derived) -> Exported {
    let mut files = InMemory::default();
    let (summary, notes) = export_tensorboard(recording, derived, &mut files).unwrap();
    let parse = |(name, bytes): (&String, &Vec<u8>)| {
        let mut text = String::new();
        let mut decoder = flate2::read::GzDecoder::new(&bytes[..]);
        decoder.read_to_string(&mut text).unwrap();
        // The plugin cuts the file at its last bracket.
        assert!(text.ends_with("\n]}\n"));
        (name.clone(), serde_json::from_str(&text).unwrap())
    };
    Exported {
        files: files.0.iter().map(parse).collect(),
        bytes: files.0,
        summary,
        notes,
    }
}

fn slices(file: &Value) -> Vec<&Value> {
    let events = file["traceEvents"].as_array().unwrap();
    events.iter().filter(|event| event["ph"] == "X").collect()
}

fn in_category<'f>(file: &'f Value, category: &str) -> Vec<&'f Value> {
    slices(file)
        .into_iter()
        .filter(|slice| slice["cat"] == category)
        .collect()
}

#[test]
fn every_event_is_written_once_and_the_same_each_time() {
    let exported = export(&two_ranks(), &Derived::default());
    let names: Vec<&String> = exported.files.keys().collect();
    // The first event is a microsecond behind the recording's begin.
    assert_eq!(
        names,
        [
            "node0_0.1790000000000001123.pt.trace.json.gz",
            "node1_1.1790000000000001123.pt.trace.json.gz"
        ]
    );
    let summary = exported.summary;
    assert_eq!(summary.events_in, 2 * EVENTS_A_RANK);
    assert_eq!(summary.events_out, 2 * EVENTS_A_RANK);
    assert_eq!(
        (summary.flows, summary.launches_later, summary.launches_unknown),
        (8, 2, 2)
    );
    assert_eq!(exported.notes, Vec::<String>::new());
    assert_eq!(export(&two_ranks(), &Derived::default()).bytes, exported.bytes);
}

#[test]
fn everything_has_a_number_that_joins_it_to_others() {
    let exported = export(&two_ranks(), &Derived::default());
    for file in exported.files.values() {
        let ids = |category: &str| -> Vec<(i64, u64)> {
            let of = in_category(file, category).into_iter();
            of.map(|slice| {
                let correlation = slice["args"]["correlation"].as_i64().unwrap();
                (correlation, slice["args"]["External id"].as_u64().unwrap())
            })
            .collect()
        };
        let calls = ids("Runtime");
        for (correlation, id) in [ids("kernel"), ids("gpu_memcpy"), ids("gpu_memset")].concat() {
            let of_calls: Vec<u64> = calls
                .iter()
                .filter(|(of_call, _)| *of_call == correlation)
                .map(|(_, id)| *id)
                .collect();
            // The launch of 13 was not recorded; a driver call within the runtime's has its number.
            assert!(
                of_calls.iter().all(|of_call| *of_call == id),
                "{correlation}: {of_calls:?} {id}"
            );
            assert_eq!(id == 0, correlation == 13);
        }
        let annotations: Vec<&Value> = slices(file)
            .into_iter()
            .filter(|slice| slice["name"].as_str().unwrap().starts_with("nccl:"))
            .filter(|slice| slice["cat"] == "user_annotation")
            .collect();
        let [annotation] = annotations[..] else {
            panic!("{annotations:?}")
        };
        assert_eq!(annotation["dur"], 0.0);
        assert_eq!(annotation["args"]["Input Dims"], serde_json::json!([[1000]]));
        assert_eq!(annotation["args"]["Input type"], serde_json::json!(["float"]));
        let collective = in_category(file, "kernel")
            .into_iter()
            .find(|kernel| kernel["name"].as_str().unwrap().starts_with("nccl"))
            .unwrap();
        assert_eq!(
            collective["args"]["External id"],
            annotation["args"]["External id"]
        );
    }
}

#[test]
fn operators_have_the_shapes_by_which_they_are_grouped() {
    let mut recording = two_ranks();
    let [dims, types, no_list] = ["[[2, 3], [3, 4]]", "[\"float\", \"float\"]", "float"]
        .map(|list| Some(recording.names.intern(list)));
    let name = recording.names.intern("aten::mm");
    let tables = &mut recording.processes[0].tables;
    // Both or neither, or the plugin stumbles.
    for (start, input_dims, input_types) in [(2000, dims, types), (2100, dims, None), (2200, dims, no_list)] {
        tables.operators.push(Operator {
            start_ns: at(start),
            duration_ns: DurationNs(50),
            name,
            thread: 77,
            input_dims,
            input_types,
            ..Operator::default()
        });
    }
    tables.memory.push(MemoryEvent {
        time_ns: at(2010),
        operation: 1,
        memory_kind: 3,
        address: 0x7700,
        bytes: 64,
        thread: Some(77),
        ..MemoryEvent::default()
    });
    let exported = export(&recording, &Derived::default());
    let file = exported.files.values().next().unwrap();
    let operators = in_category(file, "cpu_op").into_iter();
    let operators: Vec<&Value> = operators.filter(|event| event["name"] == "aten::mm").collect();
    let shapes: Vec<[&Value; 2]> = operators
        .iter()
        .map(|event| ["Input Dims", "Input type"].map(|key| &event["args"][key]))
        .collect();
    let said = [json!([[2, 3], [3, 4]]), json!(["float", "float"])];
    let nothing = [&Value::Null; 2];
    assert_eq!(shapes, [said.each_ref(), nothing, nothing]);
    // An allocation is its operator's by its thread.
    let events = file["traceEvents"].as_array().unwrap();
    let memory = events
        .iter()
        .find(|event| event["args"]["Addr"] == 0x7700)
        .unwrap();
    assert_eq!(
        (&memory["name"], &memory["tid"]),
        (&json!("[memory]"), &operators[0]["tid"])
    );
}

#[test]
fn steps_that_were_found_on_the_gpu_begin_with_their_launches() {
    // The copy at 20 was launched at 5, the kernel at 200 at 20.
    let exported = export(&two_ranks(), &with_steps(&[(0, 20, 200), (1, 200, 500)], true));
    for file in exported.files.values() {
        let steps: Vec<(&str, f64)> = in_category(file, "user_annotation")
            .into_iter()
            .filter(|slice| slice["name"].as_str().unwrap().starts_with("ProfilerStep#"))
            .map(|slice| (slice["name"].as_str().unwrap(), slice["ts"].as_f64().unwrap()))
            .collect();
        let base = |us: i64| (at(us).0 % 1_000_000_000) as f64 / 1000.0;
        assert_eq!(steps, [("ProfilerStep#0", base(5)), ("ProfilerStep#1", base(20))]);
    }
}

#[test]
fn each_repeat_of_a_schedule_is_a_span() {
    let mut recording = two_ranks();
    let what = recording.names.intern("active");
    for (process, second) in recording.processes.iter_mut().zip([150, 160]) {
        for (repeat, start) in [(0, 0), (1, second)] {
            process.tables.windows.push(Window {
                start_ns: at(start),
                duration_ns: DurationNs(100_000),
                what,
                repeat: Some(repeat),
                ..Window::default()
            });
        }
    }
    let exported = export(&recording, &Derived::default());
    let names: Vec<&str> = exported.files.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        [
            "node0_0.1790000000000000123.pt.trace.json.gz",
            "node0_0.1790000000000150123.pt.trace.json.gz",
            "node1_1.1790000000000000123.pt.trace.json.gz",
            "node1_1.1790000000000150123.pt.trace.json.gz",
        ]
    );
    assert_eq!(exported.summary.events_in, exported.summary.events_out);
    assert_eq!(exported.summary.events_in, 2 * (EVENTS_A_RANK + 2));
    let kernels: Vec<usize> = exported
        .files
        .values()
        .map(|file| in_category(file, "kernel").len())
        .collect();
    // Those at 200 and 300 were launched in the first span, that at 250 by nobody known, the collective at 281.
    assert_eq!(kernels, [2, 2, 2, 2]);
}

#[test]
fn unequal_collectives_are_said() {
    let mut recording = two_ranks();
    let name = recording.processes[0].tables.kernels.name[3];
    recording.processes[0].tables.kernels.push(Kernel {
        start_ns: at(450),
        duration_ns: DurationNs(10_000),
        name,
        stream: 20,
        context: 1,
        ..Kernel::default()
    });
    let mut derived = with_steps(&[], false);
    derived.processes[0].communicates = vec![false, false, false, true, true];
    derived.processes[1].communicates = vec![false, false, false, true];
    let exported = export(&recording, &derived);
    let note = exported.notes.iter().find(|note| note.contains("Distributed"));
    assert!(
        note.is_some_and(|note| note.contains("1 to 2")),
        "{:?}",
        exported.notes
    );
    assert_eq!(exported.summary.events_in, exported.summary.events_out);
}

#[test]
fn odd_recordings_are_written_whole() {
    let (recording, derived) = odd();
    let exported = export(&recording, &derived);
    assert_eq!(exported.summary.events_in, exported.summary.events_out);
    assert_eq!(exported.bytes, export(&recording, &derived).bytes);
    for file in exported.files.values() {
        for slice in slices(file) {
            assert!(slice["dur"].as_f64().unwrap() >= 0.0);
            let device = slice["args"]["device"].as_u64();
            assert!(device.is_none_or(|device| device < 64 && slice["pid"] == device));
        }
        let properties = file["deviceProperties"].as_array().unwrap();
        // The device of the allocation, and a free number for the device beyond the plugin's.
        assert_eq!(properties.len(), 6);
    }
}

#[test]
fn the_plugin_loads_odd_recordings() {
    let Some(python) = tensorboard::python() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let (recording, derived) = odd();
    let mut empty = two_ranks();
    for process in &mut empty.processes {
        process.tables = gputrace_trace::tables::Tables::default();
    }
    let runs: [(&str, &Recording, &Derived); 3] = [
        ("odd", &recording, &derived),
        ("plain", &two_ranks(), &Derived::default()),
        ("empty", &empty, &Derived::default()),
    ];
    for (name, recording, derived) in runs {
        write_folder(&folder.path().join(name), |files| {
            export_tensorboard(recording, derived, files)
        })
        .unwrap();
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
    let answers = tensorboard::ask(&python, folder.path(), "torch");
    for (name, _, _) in runs {
        let run = &answers["runs"][name];
        let profiles = run["profiles"]
            .as_object()
            .unwrap_or_else(|| panic!("{name}: {answers}"));
        assert_eq!(profiles.len(), 2, "{name}: a worker is lost: {}", answers["log"]);
        for profile in profiles.values() {
            assert!(
                profile["trace"]["traceEvents"].is_array(),
                "{name}: {}",
                profile["trace"]
            );
            assert!(
                profile["overview"]["steps"]["rows"].is_array(),
                "{name}: {}",
                profile["overview"]
            );
        }
        let views = run["views"].as_array().unwrap();
        let wanted: &[&str] = match name {
            "empty" => &["Overview", "Trace"],
            _ => &["Overview", "Operator", "Kernel", "Trace", "Distributed", "Memory"],
        };
        for view in wanted {
            assert!(
                views.iter().any(|found| found == view),
                "{name}: no {view}: {views:?}"
            );
        }
    }
    let odd = &answers["runs"]["odd"];
    assert_eq!(
        odd["workers"]["Overview"],
        serde_json::json!(["10.0.0.7_0", "10.0.0.7_1"])
    );
    for profile in odd["profiles"].as_object().unwrap().values() {
        let steps = profile["overview"]["steps"]["rows"].as_array().unwrap();
        assert!(!steps.is_empty());
        let rows = profile["kernel/table"]["data"]["rows"].as_array().unwrap();
        let calls: u64 = rows.iter().map(|row| row[2].as_u64().unwrap()).sum();
        assert_eq!(calls, recording.processes[0].tables.kernels.len() as u64);
    }
    let commops = &odd["distributed"]["1"]["commops"]["data"]["10.0.0.7_0"]["rows"];
    assert_eq!(commops[0][1], 1, "{commops}");
}
