//! Opening and analysing PyTorch profiler traces, against scanning and parsing the same files.
//!
//! `cargo bench --workspace --bench kineto`, or with `-- EVENTS`, or with `-- FOLDER` for traces of your own.
//!
//! Without a folder the eight files of `tests/data/kineto/dlrm8_v100` are repeated in time until they have a million
//! events. Everything runs on all cores, a file a thread.

#[path = "../analyzer/benches/support/resources.rs"]
mod resources;

use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Instant;

use gputrace_analyzer::{Options, analyze};
use gputrace_interchange::import::{self, Progress};
use gputrace_interchange::kineto::count_events;
use resources::{cpu_seconds, forget_peak, peak_mib};
use serde_json::Value;

/// Writes `event` in the order of Kineto's members, `copy` periods later.
fn write_event(out: &mut impl Write, event: &Value, copy: u64, period_us: f64) {
    const ORDER: &[&str] = &["ph", "cat", "name", "pid", "tid", "ts", "dur", "id", "bp", "s"];
    // Larger than any id in these traces.
    const STRIDE: u64 = 10_000_000;
    let shift_id = |value: &mut Value| {
        if let Some(id @ 1..) = value.as_u64() {
            *value = (id + copy * STRIDE).into();
        }
    };
    let mut separator = '{';
    for key in ORDER {
        let Some(mut value) = event.get(key).cloned() else {
            continue;
        };
        match *key {
            "ts" => value = (value.as_f64().unwrap_or(0.0) + copy as f64 * period_us).into(),
            "id" => shift_id(&mut value),
            _ => {}
        }
        write!(out, "{separator}\"{key}\":{value}").unwrap();
        separator = ',';
    }
    if let Some(mut args) = event.get("args").cloned() {
        for key in ["correlation", "External id", "Ev Idx", "Sequence number"] {
            args.get_mut(key).map(shift_id);
        }
        write!(out, "{separator}\"args\":{args}").unwrap();
    }
    out.write_all(b"}").unwrap();
}

/// Repeats the traces of `from` until they have `events` together; the files.
fn scale(from: &Path, to: &Path, events: u64) {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(from)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "gz"))
        .collect();
    paths.sort();
    for path in &paths {
        let mut text = String::new();
        let mut packed = flate2::read::MultiGzDecoder::new(File::open(path).unwrap());
        packed.read_to_string(&mut text).unwrap();
        let trace: Value = serde_json::from_str(&text).unwrap();
        let all = trace["traceEvents"].as_array().unwrap();
        let (repeated, once): (Vec<&Value>, Vec<&Value>) = all
            .iter()
            .partition(|event| event["ph"] != "M" && event["cat"] != "Trace");
        let times = repeated.iter().filter_map(|event| event["ts"].as_f64());
        let (first, last) = times.fold((f64::MAX, f64::MIN), |(a, b), time| (a.min(time), b.max(time)));
        let period_us = (last - first + 1000.0).ceil();
        let copies = (events / paths.len() as u64).div_ceil(repeated.len() as u64);
        let name = path.file_stem().unwrap();
        let mut out = BufWriter::new(File::create(to.join(name)).unwrap());
        write!(
            out,
            "{{\"schemaVersion\":1,\"distributedInfo\":{},\n\"traceEvents\":[\n",
            trace["distributedInfo"]
        )
        .unwrap();
        for event in &once {
            write_event(&mut out, event, 0, period_us);
            out.write_all(b",\n").unwrap();
        }
        for copy in 0..copies {
            for (index, event) in repeated.iter().enumerate() {
                write_event(&mut out, event, copy, period_us);
                let end = copy + 1 == copies && index + 1 == repeated.len();
                out.write_all(if end { b"\n" } else { b",\n" }).unwrap();
            }
        }
        out.write_all(b"]}\n").unwrap();
        out.flush().unwrap();
    }
}

/// Calls `each` with every file on all cores; the sum of the results.
fn on_all_cores(files: &[PathBuf], each: impl Fn(&Path) -> u64 + Sync) -> u64 {
    let (next, sum) = (Mutex::new(files.iter()), Mutex::new(0));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(file) = { next.lock().unwrap().next() } {
                    let count = each(file);
                    *sum.lock().unwrap() += count;
                }
            });
        }
    });
    sum.into_inner().unwrap()
}

/// What a way through the files cost.
struct Cost {
    seconds: f64,
    cpu_seconds: f64,
    peak_mib: f64,
}

fn measured<T>(work: impl FnOnce() -> T) -> (T, Cost) {
    forget_peak();
    let (began, cpu) = (Instant::now(), cpu_seconds());
    let result = work();
    let cost = Cost {
        seconds: began.elapsed().as_secs_f64(),
        cpu_seconds: cpu_seconds() - cpu,
        peak_mib: peak_mib(),
    };
    (result, cost)
}

fn main() {
    let argument = std::env::args()
        .skip(1)
        .find(|argument| !argument.starts_with('-'));
    let keep = tempfile::tempdir().unwrap();
    let events = match &argument {
        Some(text) => text.parse().ok(),
        None => Some(1_000_000),
    };
    let folder = match (events, argument) {
        (None, Some(folder)) => PathBuf::from(folder),
        (events, _) => {
            let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/kineto/dlrm8_v100");
            scale(&source, keep.path(), events.unwrap_or(1_000_000));
            keep.path().to_owned()
        }
    };
    let mut files: Vec<PathBuf> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file())
        .collect();
    files.sort();

    let (bytes, reading) = measured(|| {
        on_all_cores(&files, |file| {
            let (mut file, mut buffer) = (File::open(file).unwrap(), vec![0; 256 << 10]);
            std::iter::from_fn(|| {
                file.read(&mut buffer)
                    .ok()
                    .filter(|&count| count > 0)
                    .map(|count| count as u64)
            })
            .sum()
        })
    });
    let (events, scanning) = measured(|| on_all_cores(&files, |file| count_events(file).unwrap()));
    let ((), parsing) = measured(|| {
        on_all_cores(&files, |file| {
            let reader = BufReader::with_capacity(256 << 10, File::open(file).unwrap());
            // Packed files are no JSON to it: it is told of plain ones only.
            u64::from(serde_json::from_reader::<_, serde::de::IgnoredAny>(reader).is_ok())
        });
    });
    let (recording, opening) =
        measured(|| import::open(std::slice::from_ref(&folder), &Progress::default()).unwrap());
    let (analysis, analysing) = measured(|| analyze(&recording, &Options::default()));
    assert!(!analysis.ranks.is_empty());

    println!(
        "{events} events in {} files, {:.0} MB, {} ranks",
        files.len(),
        bytes as f64 / 1e6,
        analysis.ranks.len()
    );
    println!(
        "{:<34} {:>8} {:>8} {:>10} {:>8} {:>9} {:>10}",
        "", "wall s", "CPU s", "M events/s", "MB/s", "x scan", "peak MiB"
    );
    let whole = Cost {
        seconds: opening.seconds + analysing.seconds,
        cpu_seconds: opening.cpu_seconds + analysing.cpu_seconds,
        peak_mib: opening.peak_mib.max(analysing.peak_mib),
    };
    for (what, cost) in [
        ("reading the bytes", &reading),
        ("scanning: events found, none used", &scanning),
        ("serde_json, everything ignored", &parsing),
        ("opening", &opening),
        ("analysing", &analysing),
        ("opening and analysing", &whole),
    ] {
        println!(
            "{what:<34} {:>8.3} {:>8.2} {:>10.2} {:>8.0} {:>9.2} {:>10.0}",
            cost.seconds,
            cost.cpu_seconds,
            events as f64 / cost.seconds / 1e6,
            bytes as f64 / cost.seconds / 1e6,
            cost.seconds / scanning.seconds,
            cost.peak_mib,
        );
    }
}
