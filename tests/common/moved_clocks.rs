//! A real job's traces whose files' clocks differ: each rank's times moved and stretched by hand.

use std::io::Read;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// Nanoseconds that each rank's clock is ahead by, and parts in a billion that it gains.
pub const CLOCKS: [(i64, i64); 8] = [
    (0, 0),
    (3_000_000, 20_000),
    (-150_000, -80_000),
    (900_000_000, 100_000),
    (-700_000_000, -100_000),
    (120_000, 5_000),
    (61_000_000, 0),
    (-1_000_000, 50_000),
];

fn traces() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/kineto/dlrm8_v100");
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .expect("test data")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.to_string_lossy().ends_with(".json.gz"))
        .collect();
    files.sort();
    files
}

fn read(path: &Path) -> Value {
    let mut text = Vec::new();
    let file = std::fs::File::open(path).expect("test data");
    flate2::read::GzDecoder::new(file)
        .read_to_end(&mut text)
        .expect("gzip");
    serde_json::from_slice(&text).expect("JSON")
}

/// About when the job began: the first file's earliest event that lasts.
pub fn base_ns() -> i64 {
    let first = traces().into_iter().next().expect("a file");
    let events = read(&first)["traceEvents"].as_array().expect("events").clone();
    let starts = events.iter().filter(|event| event["ph"] == "X");
    let starts = starts.filter_map(|event| event["ts"].as_f64());
    starts.map(|us| (us * 1e3).round() as i64).min().expect("a start")
}

/// Writes the files with their times moved and stretched. Microseconds since 1970 have no room in a double for the nanoseconds,
/// so that they count from `base_ns`.
pub fn write(folder: &Path, clocks: &[(i64, i64)], base_ns: i64) {
    for (path, (ahead_ns, gains)) in traces().iter().zip(clocks) {
        let mut trace = read(path);
        let stretched = |ns: i64| ns + (i128::from(ns) * i128::from(*gains) / 1_000_000_000) as i64;
        for event in trace["traceEvents"].as_array_mut().expect("events") {
            let ns = |value: &Value| value.as_f64().map(|us| (us * 1e3).round() as i64);
            if let Some(start_ns) = ns(&event["ts"]) {
                event["ts"] = ((stretched(start_ns - base_ns) + ahead_ns) as f64 / 1e3).into();
            }
            if let Some(length_ns) = ns(&event["dur"]) {
                event["dur"] = (stretched(length_ns) as f64 / 1e3).into();
            }
        }
        trace["baseTimeNanoseconds"] = base_ns.into();
        let name = path
            .file_name()
            .expect("a name")
            .to_string_lossy()
            .replace(".gz", "");
        std::fs::write(folder.join(name), trace.to_string()).expect("a file");
    }
}
