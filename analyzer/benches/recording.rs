//! Opening and analysing a recording of ten million events, against reading its bytes.
//!
//! `cargo bench --workspace --bench recording`

#[path = "support/resources.rs"]
mod resources;
#[path = "../../trace/tests/support/training.rs"]
mod training;

use std::io::Read;
use std::path::Path;
use std::time::Instant;

use gputrace_analyzer::{Options, analyze};
use gputrace_trace::Recording;
use resources::{cpu_seconds, peak_mib};

const RANKS: u64 = 8;

fn read_all(folder: &Path) -> u64 {
    let mut bytes = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            bytes += read_all(&path);
        } else {
            let mut buffer = vec![0; 1 << 20];
            let mut file = std::fs::File::open(&path).unwrap();
            while let Ok(count @ 1..) = file.read(&mut buffer) {
                bytes += count as u64;
            }
        }
    }
    bytes
}

fn main() {
    let rows: u64 = std::env::args()
        .skip(1)
        .find_map(|argument| argument.parse().ok())
        .unwrap_or(10_000_000);
    let root = tempfile::tempdir().unwrap();
    let written: u64 = (0..RANKS)
        .map(|rank| training::write(&root.path().join(format!("rank{rank}")), rows / RANKS))
        .sum();
    let before_mib = peak_mib();
    let began = Instant::now();
    let bytes = read_all(root.path());
    let reading = began.elapsed().as_secs_f64();
    let (began, cpu) = (Instant::now(), cpu_seconds());
    let recording = Recording::open(root.path()).unwrap();
    let opening = began.elapsed().as_secs_f64();
    let analysis = analyze(&recording, &Options::default());
    let all = began.elapsed().as_secs_f64();
    let cpu = cpu_seconds() - cpu;
    assert_eq!(analysis.ranks.len() as u64, RANKS);
    println!("{written} rows on {RANKS} ranks, {:.0} MB", bytes as f64 / 1e6);
    println!("reading the bytes       {reading:>8.3} s");
    println!(
        "opening                 {opening:>8.3} s   {:>6.1} x reading",
        opening / reading
    );
    println!(
        "analysing               {:>8.3} s   {:>6.1} x reading",
        all - opening,
        (all - opening) / reading
    );
    println!(
        "both                    {all:>8.3} s   {cpu:.3} s of CPU, {:.1} M rows/s",
        written as f64 / all / 1e6
    );
    println!(
        "peak memory             {:>8.0} MiB  ({before_mib:.0} MiB before), {:.0} bytes a row",
        peak_mib(),
        peak_mib() * 1048576.0 / written as f64
    );
}
