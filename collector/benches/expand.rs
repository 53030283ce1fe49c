//! Making structs of user-defined records of kernels, a buffer at a time: what the second way of recording costs on top
//! of the first, whose decoder it shares.
//!
//! `cargo bench -p gputrace-collector --bench expand` prints nanoseconds a kernel and the bytes that CUPTI writes for one;
//! with `--instructions` instructions a kernel, as the difference of two runs under callgrind.

use std::process::Command;
use std::time::Instant;

use gputrace_collector::records::kind;
use gputrace_collector::user_defined::layout::{Layout, Plans, fields_of};

const BUFFER_BYTES: usize = 4 << 20;
/// Fields of kernels that are 64 bits long in user-defined records and 32 in the struct: context, stream, correlation.
const LONG_IDS: [i32; 3] = [11, 12, 22];

/// The layout of what is asked for, each field aligned to its size.
fn layout() -> Layout {
    let fields = fields_of(kind::CONCURRENT_KERNEL).expect("kernels").fields;
    let (mut entries, mut end) = (vec![(0, 0, 4)], 4usize);
    for field in fields {
        let bytes = if LONG_IDS.contains(&field.id) {
            8
        } else {
            field.bytes
        };
        let offset = end.next_multiple_of(bytes);
        entries.push((field.id, offset, bytes));
        end = offset + bytes;
    }
    (kind::CONCURRENT_KERNEL, end.next_multiple_of(8), entries)
}

/// Fills a buffer's second half with kernels; gives where they end, and how many they are.
fn fill(buffer: &mut [u8], record_bytes: usize) -> (usize, usize) {
    let count = BUFFER_BYTES / 2 / record_bytes;
    let records = &mut buffer[BUFFER_BYTES / 2..];
    for (number, record) in records.chunks_exact_mut(record_bytes).enumerate() {
        record.fill(number as u8);
        record[..4].copy_from_slice(&kind::CONCURRENT_KERNEL.to_le_bytes());
    }
    (BUFFER_BYTES / 2 + count * record_bytes, count)
}

/// Instructions of a run of this program under callgrind.
fn instructions(times: usize) -> Option<u64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(std::env::current_exe().ok()?)
        .args(["--times", &times.to_string()])
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let line = text.lines().find(|line| line.contains("Collected :"))?;
    line.rsplit(' ').next()?.trim().parse().ok()
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let layout = layout();
    let plans = Plans::of(std::slice::from_ref(&layout));
    let mut buffer = vec![0u8; BUFFER_BYTES];
    let (end, count) = fill(&mut buffer, layout.1);
    let filled = buffer.clone();
    let place = arguments.iter().position(|argument| argument == "--times");
    if let Some(Ok(times)) = place.map(|place| arguments[place + 1].parse::<usize>()) {
        // The copy that fills the buffer anew is in both runs of the difference as often: three times.
        for round in 0..3 {
            buffer.copy_from_slice(&filled);
            if round < times {
                let expanded = plans.expand(&mut buffer, BUFFER_BYTES / 2, end);
                assert_eq!(expanded.unread_bytes, 0);
            }
        }
        return;
    }
    let best = (0..9).map(|_| {
        buffer.copy_from_slice(&filled);
        let started = Instant::now();
        std::hint::black_box(plans.expand(&mut buffer, BUFFER_BYTES / 2, end));
        started.elapsed().as_nanos()
    });
    let best = best.min().unwrap_or(0) as f64 / count as f64;
    println!(
        "user-defined kernels: {} bytes each (248 as the headers have them), {best:.0} ns to make a struct",
        layout.1
    );
    if arguments.iter().any(|argument| argument == "--instructions") {
        match (instructions(1), instructions(3)) {
            (Some(one), Some(three)) => {
                let each = (three - one) as f64 / (2 * count) as f64;
                println!("instructions: {each:.0} a kernel besides decoding it");
            }
            _ => println!("instructions: SKIPPED, valgrind was not found"),
        }
    }
}
