//! What streams waited for: each wait names the recording of an event, and with it the stream and the place in its order.

use crate::common;

use std::collections::BTreeMap;

use common::{expect_status, fresh_folder, gputrace, record_workload};
use gputrace_trace::{Process, Recording, Table};

/// `CUpti_ActivitySynchronizationType`: a stream waits for an event.
const STREAM_WAITS: u32 = 2;

/// The settings under which CUPTI has several subscribers.
const SEVERAL: &[(&str, &str)] = &[("CUPTI", "13.5"), ("DRIVER", "610")];

/// The calls by their correlation: when each began, and its name.
fn calls<'a>(recording: &'a Recording, process: &Process) -> BTreeMap<u32, (i64, &'a str)> {
    let calls = &process.tables.api_calls;
    (0..calls.len())
        .map(|row| {
            let name = recording.names.get(calls.name[row]);
            (calls.correlation[row], (calls.start_ns[row].0, name))
        })
        .collect()
}

/// The name of the call of the same thread behind that of a correlation.
fn next_call<'a>(recording: &'a Recording, process: &Process, correlation: u32) -> Option<&'a str> {
    let calls = &process.tables.api_calls;
    let row = calls.correlation.iter().position(|known| *known == correlation)?;
    (0..calls.len())
        .filter(|&next| calls.thread[next] == calls.thread[row] && calls.start_ns[next] > calls.start_ns[row])
        .min_by_key(|&next| calls.start_ns[next])
        .map(|next| recording.names.get(calls.name[next]))
}

fn recorded(settings: &[(&str, &str)]) -> Recording {
    let (_keep, folder) = fresh_folder("recording");
    let truth = folder.with_file_name("truth");
    let workload = ["ddp", "--ranks", "2", "--steps", "4"];
    expect_status(&mut record_workload(&folder, &truth, settings, workload), 0);
    let recording = Recording::open(&folder).expect("the recording opens");
    assert!(recording.losses.is_empty(), "{:?}", recording.losses);
    for process in &recording.processes {
        let notes = &process.header.notes;
        assert!(
            !notes.iter().any(|note| note.contains("recordings of events")),
            "{notes:?}"
        );
    }
    assert_eq!(recording.processes.len(), 2);
    recording
}

/// Checks each wait of a stream in a process against the recording that it waited for; gives how many wait for another.
fn check_waits(recording: &Recording, process: &Process, has_numbers: bool) -> usize {
    let calls = calls(recording, process);
    let records = &process.tables.event_records;
    let mut by_number = BTreeMap::new();
    for row in 0..records.len() {
        let (_, name) = calls[&records.correlation[row]];
        assert_eq!(name, "cuEventRecord");
        assert_eq!(records.device[row].is_some(), has_numbers);
        assert_eq!(records.event_synchronization[row].is_some(), has_numbers);
        if let Some(number) = records.event_synchronization[row] {
            assert_eq!(
                by_number.insert(number, row),
                None,
                "a recording has its own number"
            );
        }
    }
    let waits = &process.tables.synchronizations;
    let of_streams = (0..waits.len()).filter(|&row| waits.kind[row] == STREAM_WAITS);
    let mut of_others = 0;
    for wait in of_streams {
        let (waited_at, name) = calls[&waits.correlation[wait]];
        assert_eq!(name, "cuStreamWaitEvent");
        // By the order of calls: the newest recording of the event when the wait was made.
        let newest = (0..records.len())
            .filter(|&row| Some(records.event[row]) == waits.event[wait])
            .map(|row| (calls[&records.correlation[row]].0, row))
            .filter(|(recorded_at, _)| *recorded_at < waited_at)
            .max();
        let (_, newest) = newest.expect("the event was recorded before");
        if has_numbers {
            let number = waits.event_synchronization[wait].expect("the wait's number");
            assert_eq!(by_number.get(&number), Some(&newest));
        } else {
            assert_eq!(waits.event_synchronization[wait], None);
        }
        assert_eq!(waits.context[wait], Some(records.context[newest]));
        if waits.stream[wait] == Some(records.stream[newest]) {
            // The loader frees its memory in the compute stream's order, behind an event of that stream itself.
            let next = next_call(recording, process, waits.correlation[wait]);
            assert_eq!(next, Some("cuMemFreeAsync"), "nothing else waits for itself");
        } else {
            of_others += 1;
        }
    }
    of_others
}

#[test]
fn each_wait_of_a_stream_names_the_recording_that_it_waited_for() {
    // Before 12.8 there are no numbers; before 12.9 recordings come unasked.
    let settings: [&[(&str, &str)]; 5] = [
        &[("CUPTI", "12.0")],
        &[("CUPTI", "12.8")],
        &[("CUPTI", "12.9")],
        &[("CUPTI", "13.4")],
        SEVERAL,
    ];
    for settings in settings {
        let recording = recorded(settings);
        let backend = recording.processes[0].header.cupti_backend.as_deref();
        assert_eq!(backend == Some("user-defined records"), settings == SEVERAL);
        let has_numbers = settings != [("CUPTI", "12.0")];
        for process in &recording.processes {
            let of_others = check_waits(&recording, process, has_numbers);
            assert!(of_others >= 8, "{settings:?}: {of_others} waits in 4 steps");
        }
    }
}

#[test]
fn recordings_of_events_are_of_the_steps_that_are_recorded() {
    let (_keep, folder) = fresh_folder("recording");
    let mut record = gputrace();
    record.args(["record", "--quiet", "--device", "sim", "--steps", "2..3"]);
    record
        .args(["--kinds", "synchronizations,calls", "-o"])
        .arg(&folder);
    record.args(["--", "workload", "ddp", "--ranks", "2", "--steps", "8"]);
    expect_status(&mut record, 0);
    let recording = Recording::open(&folder).expect("the recording opens");
    for process in &recording.processes {
        let calls = calls(&recording, process);
        let recorded = calls.values().filter(|(_, name)| *name == "cuEventRecord");
        let records = &process.tables.event_records;
        assert!(!records.is_empty());
        assert_eq!(
            records.len(),
            recorded.count(),
            "those of the steps, and no others"
        );
        let mut correlations = records.correlation.clone();
        correlations.sort_unstable();
        correlations.dedup();
        assert_eq!(correlations.len(), records.len());
        assert!(
            correlations
                .iter()
                .all(|correlation| calls[correlation].1 == "cuEventRecord")
        );
    }
}
