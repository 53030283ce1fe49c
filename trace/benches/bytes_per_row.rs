//! Bytes and nanoseconds a row of a million-row recording, against what a plain Arrow stream would take, and what its checksums cost.
//!
//! `cargo bench -p gputrace-trace`

#[path = "../tests/support/training.rs"]
mod training;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow_ipc::CompressionType;
use arrow_ipc::writer::{DictionaryHandling, IpcWriteOptions, StreamWriter};
use gputrace_trace::seal::digest;
use gputrace_trace::tables::TABLE_NAMES;
use gputrace_trace::{Interner, Recording};

fn main() {
    let rows: u64 = std::env::args()
        .skip(1)
        .find_map(|argument| argument.parse().ok())
        .unwrap_or(1_000_000);
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("rank0");
    // The making of the rows is measured apart, and taken off.
    let began = Instant::now();
    let made = training::generate(rows, &mut Interner::default(), &mut |row, _| {
        std::hint::black_box(row);
    });
    let making = began.elapsed();
    let began = Instant::now();
    let written = training::write(&folder, rows);
    let writing = began.elapsed().saturating_sub(making);
    assert_eq!(made, written);
    let began = Instant::now();
    let recording = Recording::open(root.path()).unwrap();
    let reading = began.elapsed();
    let read: usize = recording.processes[0]
        .tables
        .row_counts()
        .iter()
        .map(|(_, rows)| rows)
        .sum();
    assert_eq!(read as u64, written);

    println!("{:<24}{:>10}{:>12}{:>8}", "table", "rows", "bytes", "a row");
    let mut total = 0;
    for (table, rows) in recording.processes[0].tables.row_counts() {
        if rows > 0 {
            let bytes = std::fs::metadata(folder.join(format!("{table}.arrows")))
                .unwrap()
                .len();
            total += bytes;
            println!(
                "{table:<24}{rows:>10}{bytes:>12}{:>8.2}",
                bytes as f64 / rows as f64
            );
        }
    }
    let a_row = |bytes: u64| bytes as f64 / written as f64;
    println!("{:<24}{written:>10}{total:>12}{:>8.2}", "all", a_row(total));
    let plain = again(&folder, None, 0);
    let level_3 = again(&folder, Some(CompressionType::ZSTD), 3);
    println!(
        "uncompressed {:.2} bytes a row ({:.1} times ours); zstd level 3 {:.2} ({:.2} times ours)",
        a_row(plain),
        plain as f64 / total as f64,
        a_row(level_3),
        level_3 as f64 / total as f64
    );
    println!(
        "write {:.0} ns a row; read {:.0} ns a row; read {:.2} times as fast as write",
        writing.as_nanos() as f64 / written as f64,
        reading.as_nanos() as f64 / written as f64,
        writing.as_secs_f64() / reading.as_secs_f64()
    );
    let checking = checksums(&folder);
    println!(
        "checksums {:.2} ns a row: {:.2} % of writing, {:.2} % of reading",
        checking.as_nanos() as f64 / written as f64,
        100.0 * checking.as_secs_f64() / writing.as_secs_f64(),
        100.0 * checking.as_secs_f64() / reading.as_secs_f64()
    );
    columns(&folder);
    assert!(
        a_row(total) <= 12.0,
        "{:.2} bytes a row; 12 is the promise",
        a_row(total)
    );
}

fn options(compression: Option<CompressionType>, level: i32) -> IpcWriteOptions {
    let options = IpcWriteOptions::default()
        .try_with_compression(compression)
        .unwrap();
    let options = if compression.is_some() {
        options.try_with_compression_level(Some(level)).unwrap()
    } else {
        options
    };
    options.with_dictionary_handling(DictionaryHandling::Delta)
}

fn batches(path: &Path) -> Vec<arrow_array::RecordBatch> {
    gputrace_trace::stream::StreamFile::new(path).read().unwrap()
}

/// How long it takes to hash all files, which writing does once and reading once more: the quickest of seven, since a pause of the
/// machine is no part of it. By the same function over 128 bits, which is no quicker.
fn checksums(folder: &Path) -> Duration {
    let files: Vec<Vec<u8>> = TABLE_NAMES
        .iter()
        .filter_map(|table| std::fs::read(folder.join(format!("{table}.arrows"))).ok())
        .collect();
    let once = |_| {
        let began = Instant::now();
        for file in &files {
            std::hint::black_box(digest(std::hint::black_box(file)));
        }
        began.elapsed()
    };
    (0..7).map(once).min().unwrap_or_default()
}

/// What all tables take when they are written with another compression.
fn again(folder: &Path, compression: Option<CompressionType>, level: i32) -> u64 {
    let mut bytes = 0;
    for table in TABLE_NAMES {
        let path = folder.join(format!("{table}.arrows"));
        if !path.exists() {
            continue;
        }
        let batches = batches(&path);
        let schema = batches[0].schema();
        let mut writer =
            StreamWriter::try_new_with_options(Vec::new(), &schema, options(compression, level)).unwrap();
        for batch in &batches {
            writer.write(batch).unwrap();
        }
        writer.finish().unwrap();
        bytes += writer.get_ref().len() as u64;
    }
    bytes
}

/// The dearest columns: each written alone.
fn columns(folder: &Path) {
    let mut costs = Vec::new();
    for table in TABLE_NAMES {
        let path = folder.join(format!("{table}.arrows"));
        if !path.exists() {
            continue;
        }
        let batches = batches(&path);
        for (index, field) in batches[0].schema().fields().iter().enumerate() {
            let schema = Arc::new(batches[0].schema().project(&[index]).unwrap());
            let mut writer = StreamWriter::try_new_with_options(
                Vec::new(),
                &schema,
                options(Some(CompressionType::ZSTD), 1),
            )
            .unwrap();
            let mut rows = 0;
            for batch in &batches {
                rows += batch.num_rows();
                writer.write(&batch.project(&[index]).unwrap()).unwrap();
            }
            costs.push((writer.get_ref().len(), rows, format!("{table}.{}", field.name())));
        }
    }
    costs.sort_unstable_by(|a, b| b.cmp(a));
    println!("dearest columns:");
    for (bytes, rows, name) in costs.iter().take(12) {
        println!(
            "  {name:<36}{:>8.2} bytes a row of its table",
            *bytes as f64 / *rows as f64
        );
    }
}
