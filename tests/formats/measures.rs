//! Every measure of the catalogue is in everything that shows measures, with one value.

use crate::common;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;

use arrow_array::{Array, Float64Array, Int64Array, RecordBatch};
use common::kineto_events::{host, kernel, launch, operation};
use common::{analysis, expect_status, gputrace, stdout};
use gputrace_analyzer::{CATALOGUE, Getter, Measures, PARTS};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde_json::{Value, json};

/// A trace in which every measure is greater than 0, in two steps.
fn trace(path: &Path) {
    let mut events = Vec::new();
    for (step, at) in [(0, 0.0), (1, 1000.0)] {
        let first = 1 + step * 10;
        events.push(host(
            "user_annotation",
            &format!("ProfilerStep#{step}"),
            at,
            990.0,
        ));
        events.extend((first..first + 4).map(|call| launch(call, at + 1.0)));
        events.push(kernel("gemm", 7, first, at + 10.0, 400.0));
        let reduce = "ncclDevKernel_AllReduce_Sum_f32_RING_LL";
        events.push(kernel(reduce, 20, first + 1, at + 300.0, 201.0));
        events.push(operation(
            "gpu_memcpy",
            "Memcpy HtoD (Pinned -> Device)",
            21,
            first + 2,
            at + 390.0,
            302.0,
        ));
        events.push(operation(
            "gpu_memset",
            "Memset (Device)",
            21,
            first + 3,
            at + 800.0,
            3.0,
        ));
    }
    let whole =
        json!({"schemaVersion": 1, "distributedInfo": {"rank": 0, "world_size": 1}, "traceEvents": events});
    fs::write(path, whole.to_string()).expect("a file");
}

fn export(trace: &Path, format: &str, out: &Path) {
    let mut command = gputrace();
    command
        .arg("export")
        .arg(trace)
        .args(["--format", format, "-o"])
        .arg(out);
    expect_status(&mut command, 0);
}

/// Whether a value of an export is that of the JSON.
fn same(found: f64, expected: &Value) -> bool {
    (found - expected.as_f64().expect("a number")).abs() < 1e-9
}

/// Fields of a protobuf message: number, and the value's bytes or the value.
fn fields(mut bytes: &[u8]) -> Vec<(u64, Result<&[u8], u64>)> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let mut value = 0;
        for shift in (0..).step_by(7) {
            let (byte, rest) = bytes.split_first().expect("a whole number");
            *bytes = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                break;
            }
        }
        value
    }
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let value = match key & 7 {
            0 => Err(varint(&mut bytes)),
            wire => {
                let length = match wire {
                    1 => 8,
                    5 => 4,
                    _ => varint(&mut bytes) as usize,
                };
                let (value, rest) = bytes.split_at(length);
                bytes = rest;
                Ok(value)
            }
        };
        found.push((key >> 3, value));
    }
    found
}

/// The numbers that a Perfetto trace's events have as arguments, by name, in the order of the events.
fn perfetto_arguments(file: &Path) -> Vec<BTreeMap<String, f64>> {
    const PACKET: u64 = 1;
    const TRACK_EVENT: u64 = 11;
    const INTERNED_DATA: u64 = 12;
    const ANNOTATION_NAMES: u64 = 3;
    const ANNOTATIONS: u64 = 4;
    let bytes = fs::read(file).expect("the trace");
    let (mut names, mut events) = (BTreeMap::new(), Vec::new());
    for (_, packet) in fields(&bytes).into_iter().filter(|(number, _)| *number == PACKET) {
        for (number, value) in fields(packet.expect("a message")) {
            let Ok(message) = value else { continue };
            match number {
                INTERNED_DATA => {
                    for (_, entry) in fields(message)
                        .into_iter()
                        .filter(|(number, _)| *number == ANNOTATION_NAMES)
                    {
                        if let [(1, Err(iid)), (2, Ok(name))] = fields(entry.expect("a message"))[..] {
                            names.insert(iid, String::from_utf8(name.to_vec()).expect("a name"));
                        }
                    }
                }
                TRACK_EVENT => {
                    let mut event = BTreeMap::new();
                    for (_, entry) in fields(message)
                        .into_iter()
                        .filter(|(number, _)| *number == ANNOTATIONS)
                    {
                        if let [(1, Err(iid)), (_, value)] = fields(entry.expect("a message"))[..] {
                            let number = match value {
                                Err(integer) => Some(integer as f64),
                                Ok(bytes) => bytes.try_into().ok().map(f64::from_le_bytes),
                            };
                            event.extend(number.map(|number| (names[&iid].clone(), number)));
                        }
                    }
                    events.push(event);
                }
                _ => {}
            }
        }
    }
    events
}

fn column(batch: &RecordBatch, measure: &str, row: usize) -> Option<f64> {
    let column = batch.column_by_name(measure)?;
    let integers = column.as_any().downcast_ref::<Int64Array>();
    let ratios = column.as_any().downcast_ref::<Float64Array>();
    integers.map(|column| column.value(row) as f64).or_else(|| {
        ratios
            .filter(|column| column.is_valid(row))
            .map(|column| column.value(row))
    })
}

#[test]
fn every_measure_is_everywhere() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = |name: &str| folder.path().join(name);
    let recording = place("trace.json");
    trace(&recording);
    let analysis = analysis(&recording);
    let rank = &analysis["ranks"][0];
    let steps = rank["steps"].as_array().expect("steps");
    assert_eq!(steps.len(), 2);
    for (measure, told) in CATALOGUE
        .iter()
        .zip(analysis["measures"].as_array().expect("a list"))
    {
        assert_eq!(told["name"], measure.name);
        assert_eq!(told["definition"], measure.definition);
        for of in [rank, &steps[0], &steps[1]] {
            assert!(
                of[measure.name].as_f64().is_some_and(|value| value > 0.0),
                "{} of {of}",
                measure.name
            );
        }
    }
    assert_eq!(
        analysis["measures"].as_array().map(Vec::len),
        Some(CATALOGUE.len())
    );
    // And no member of the measures is missing from the catalogue.
    let all = serde_json::to_value(Measures::default()).expect("JSON");
    assert_eq!(all.as_object().map(serde_json::Map::len), Some(CATALOGUE.len()));

    let mut command = gputrace();
    let terminal = stdout(&expect_status(command.arg("analyze").arg(&recording), 0));
    export(&recording, "html", &place("page.html"));
    let page = fs::read_to_string(place("page.html")).expect("the page");
    for measure in CATALOGUE {
        let value = match measure.get {
            Getter::Ns(_) => gputrace_analyzer::units::duration(rank[measure.name].as_i64().expect("a time")),
            Getter::Ratio(_) => format!("{:.1} %", rank[measure.name].as_f64().expect("a ratio") * 100.0),
        };
        let shown = |text: &str| text.contains(measure.label) && text.contains(&value);
        assert!(shown(&terminal), "{} {value} is not in {terminal}", measure.label);
        assert!(
            shown(&page) && page.contains(&format!(">{}</th>", measure.label)),
            "{}",
            measure.label
        );
    }

    export(&recording, "parquet", &place("parquet"));
    let mut rows = 0;
    for process in fs::read_dir(place("parquet/derived/steps")).expect("the table") {
        let mut files = vec![process.expect("a folder").path()];
        while let Some(path) = files.pop() {
            if path.is_dir() {
                files.extend(
                    fs::read_dir(path)
                        .expect("a folder")
                        .map(|entry| entry.expect("an entry").path()),
                );
                continue;
            }
            let reader =
                ParquetRecordBatchReaderBuilder::try_new(File::open(path).expect("a file")).expect("Parquet");
            for batch in reader.build().expect("a reader") {
                let batch = batch.expect("a batch");
                for row in 0..batch.num_rows() {
                    for measure in CATALOGUE {
                        let found = column(&batch, measure.name, row);
                        let expected = &steps[rows][measure.name];
                        assert!(
                            found.is_some_and(|found| same(found, expected)),
                            "{}: {found:?}",
                            measure.name
                        );
                    }
                    rows += 1;
                }
            }
        }
    }
    assert_eq!(rows, 2);

    export(&recording, "perfetto", &place("trace.pftrace"));
    let events = perfetto_arguments(&place("trace.pftrace"));
    let events: Vec<_> = events
        .iter()
        .filter(|event| event.contains_key(CATALOGUE[0].name))
        .collect();
    assert_eq!(events.len(), 2);
    for (event, step) in events.iter().zip(steps) {
        for measure in CATALOGUE {
            let found = event.get(measure.name);
            assert!(
                found.is_some_and(|found| same(*found, &step[measure.name])),
                "{}: {found:?}",
                measure.name
            );
        }
    }

    let document = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/measures.md");
    let document = fs::read_to_string(document).expect("the document");
    for measure in CATALOGUE {
        let row = format!(
            "| `{}` | {} | {} |",
            measure.name, measure.label, measure.definition
        );
        assert!(document.contains(&row), "docs/measures.md lacks this row:\n{row}");
    }
}

#[test]
fn the_parts_of_time_are_the_same_everywhere() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = |name: &str| folder.path().join(name);
    let recording = place("trace.json");
    trace(&recording);
    let analysis = analysis(&recording);
    let rank = &analysis["ranks"][0];
    let sum = |of: &Value| -> i64 {
        let times = PARTS.iter().map(|part| of["parts"][part.name].as_i64());
        times.map(|time| time.expect("a time")).sum()
    };
    assert_eq!(sum(rank), rank["span_ns"].as_i64().expect("a time"));
    for step in rank["steps"].as_array().expect("steps") {
        assert_eq!(sum(step), step["duration_ns"].as_i64().expect("a time"));
    }
    // By hand, of each of two steps: the gemm runs from 10 to 410 us, the reduction from 300 to 501, the copy from 390 to 692. So
    // 290 us are compute alone, 110 hidden, 91 exposed; 191 of the copy are beside nothing, and the memset's 3.
    let parts = ["compute", "hidden", "exposed", "copies"].map(|name| rank["parts"][name].as_i64());
    assert_eq!(parts, [580_000, 220_000, 182_000, 388_000].map(Some));

    let mut command = gputrace();
    let terminal = stdout(&expect_status(command.arg("analyze").arg(&recording), 0));
    export(&recording, "html", &place("page.html"));
    let report = fs::read_to_string(place("page.html")).expect("the page");
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(root.join("viewer/web/panels/shared.js")).expect("the page's list");
    let document = fs::read_to_string(root.join("docs/measures.md")).expect("the document");
    for part in &PARTS {
        let time = gputrace_analyzer::units::duration(rank["parts"][part.name].as_i64().expect("a time"));
        let share =
            rank["parts"][part.name].as_f64().expect("a time") / rank["span_ns"].as_f64().expect("a time");
        assert!(
            terminal.contains(part.label) && terminal.contains(&format!("{:.1} %", share * 100.0)),
            "{}",
            part.label
        );
        assert!(
            report.contains(&format!("title=\"{}: {time} (", part.label)),
            "{}",
            part.label
        );
        let row = format!(
            "key: {:?}, title: {:?}, hint: {:?}",
            part.name, part.label, part.definition
        );
        assert!(page.contains(&row), "viewer/web/panels/shared.js lacks {row}");
        let row = format!("| `{}` | {} |", part.name, part.definition);
        assert!(document.contains(&row), "docs/measures.md lacks {row}");
    }
}
