//! Decoding and writing a 4 MiB buffer of kernel records, as one flush of a busy process delivers it.
//!
//! `cargo bench -p gputrace-collector` prints nanoseconds a kernel, as a ratio to copying the buffer. Instructions a
//! kernel are the difference of two runs under callgrind:
//!
//! ```text
//! valgrind --tool=callgrind target/release/deps/decode-* --buffers 1
//! valgrind --tool=callgrind target/release/deps/decode-* --buffers 3
//! ```
//!
//! `--instructions` runs both and prints it.

use std::ffi::CString;
use std::process::Command;
use std::time::Instant;

use gputrace_collector::decode::Decoder;
use gputrace_collector::records::{Kernel, RecordSizes, kind};
use gputrace_trace::writer::{BATCH_ROWS, ProcessWriter};

/// CUpti_ActivityKernel13.
const RECORD_BYTES: usize = 248;
const BUFFER_BYTES: usize = 4 << 20;
const RECORDS: usize = BUFFER_BYTES / RECORD_BYTES;

/// Kernels as a training step launches them: some dozen names in turn, jittering gaps and lengths.
fn buffer(names: &[CString], seed: u64) -> Vec<u8> {
    let mut bytes = vec![0u8; RECORDS * RECORD_BYTES];
    let mut state = seed;
    let mut random = |bound: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % bound
    };
    let mut at = 1_700_000_000_000_000_000 + seed * 1_000_000_000;
    for (index, record) in bytes.chunks_exact_mut(RECORD_BYTES).enumerate() {
        let which = index % names.len();
        let length = 3_000 + which as u64 * 4_000 + random(1_500);
        let mut put =
            |offset: usize, value: &[u8]| record[offset..offset + value.len()].copy_from_slice(value);
        put(0, &kind::CONCURRENT_KERNEL.to_le_bytes());
        put(
            std::mem::offset_of!(Kernel, registers),
            &(32u16 + which as u16).to_le_bytes(),
        );
        put(std::mem::offset_of!(Kernel, start), &at.to_le_bytes());
        put(std::mem::offset_of!(Kernel, end), &(at + length).to_le_bytes());
        put(std::mem::offset_of!(Kernel, context), &1u32.to_le_bytes());
        put(
            std::mem::offset_of!(Kernel, stream),
            &(7 + (which as u32) % 2).to_le_bytes(),
        );
        put(
            std::mem::offset_of!(Kernel, grid),
            &(64 * (1 + which as i32)).to_le_bytes(),
        );
        put(std::mem::offset_of!(Kernel, block), &256i32.to_le_bytes());
        put(
            std::mem::offset_of!(Kernel, correlation),
            &(seed as u32 * 200_000 + index as u32 * 7).to_le_bytes(),
        );
        put(
            std::mem::offset_of!(Kernel, name),
            &(names[which].as_ptr() as u64).to_le_bytes(),
        );
        at += length + 800 + random(2_500);
    }
    bytes
}

/// Decodes and writes so many buffers, and gives the nanoseconds that it took.
fn decode_and_write(buffers: &[Vec<u8>]) -> u128 {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut writer = ProcessWriter::create(&folder.path().join("process")).expect("a process folder");
    let sizes = RecordSizes::ask(|asked| (asked == kind::CONCURRENT_KERNEL).then_some(RECORD_BYTES));
    let mut decoder = Decoder::new(sizes, Box::new(|_, _| None));
    let started = Instant::now();
    for buffer in buffers {
        // SAFETY: the names in the buffer are the caller's C strings, which live on.
        let decoded = unsafe { decoder.decode(buffer, &mut writer) };
        assert_eq!(decoded.records, RECORDS as u64);
        writer.flush(BATCH_ROWS).expect("the disk takes it");
    }
    writer.close().expect("the disk takes it");
    started.elapsed().as_nanos()
}

/// Instructions of a run of this program under callgrind.
fn instructions(buffers: usize) -> Option<u64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(std::env::current_exe().ok()?)
        .args(["--buffers", &buffers.to_string()])
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let line = text.lines().find(|line| line.contains("Collected :"))?;
    line.rsplit(' ').next()?.trim().parse().ok()
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let names: Vec<CString> = (0..24)
        .map(|index| {
            CString::new(format!(
                "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFunctor{index}EEEvi"
            ))
        })
        .collect::<Result<_, _>>()
        .expect("names without zeros");
    // Buffers are made up front: under callgrind the difference of two runs still holds their making, which is
    // measured apart below.
    let count = arguments
        .iter()
        .position(|argument| argument == "--buffers")
        .map(|place| arguments[place + 1].parse());
    if let Some(Ok(count)) = count {
        let buffers: Vec<Vec<u8>> = (0..3).map(|seed| buffer(&names, seed + 1)).collect();
        decode_and_write(&buffers[..count]);
        return;
    }
    let buffers: Vec<Vec<u8>> = (0..8).map(|seed| buffer(&names, seed + 1)).collect();
    let kernels = (buffers.len() * RECORDS) as f64;
    let best = (0..5).map(|_| decode_and_write(&buffers)).min().unwrap_or(0) as f64 / kernels;
    let copied = (0..5)
        .map(|_| {
            let started = Instant::now();
            for buffer in &buffers {
                std::hint::black_box(buffer.clone());
            }
            started.elapsed().as_nanos()
        })
        .min()
        .unwrap_or(0) as f64
        / kernels;
    println!(
        "decode and write: {best:.0} ns a kernel, {:.1} times copying its record",
        best / copied.max(0.1)
    );
    if arguments.iter().any(|argument| argument == "--instructions") {
        match (instructions(1), instructions(3)) {
            (Some(one), Some(three)) => {
                let each = (three - one) as f64 / (2 * RECORDS) as f64;
                println!("instructions: {each:.0} a kernel (at most 1000 wanted)");
            }
            _ => println!("instructions: SKIPPED, valgrind was not found"),
        }
    }
}
