//! Writing Perfetto's format, against writing the same events as JSON.
//!
//! `cargo bench -p gputrace-interchange --bench perfetto`, or with `-- SLICES`. CPU time alone is looked at, so that a busy
//! machine tells the same.

#[path = "../../analyzer/benches/support/resources.rs"]
mod resources;

use std::io::{self, Write};

use gputrace_interchange::export::ExportSummary;
use gputrace_interchange::export::chrome::export_chrome;
use gputrace_interchange::export::layout::layouts;
use gputrace_interchange::export::perfetto::{PerfettoOptions, export_perfetto};
use gputrace_trace::tables::{ApiCall, Kernel};
use gputrace_trace::{Derived, DurationNs, Process, Recording, Table, TimeNs};
use resources::{cpu_seconds, forget_peak, peak_mib};

/// Writes nowhere, and counts.
#[derive(Default)]
struct Counted(u64);

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Two ranks that launch kernels, half the slices each: 200 names, 4 streams, correlation ids that count up.
fn recording(slices: u32) -> Recording {
    let mut recording = Recording::default();
    let launch = recording.names.intern("cudaLaunchKernel_v7000");
    let kernels: Vec<_> = (0..200)
        .map(|number| recording.names.intern(&format!("_Z{}kernel_{number:03}Pfi", 10)))
        .collect();
    for rank in 0..2u32 {
        let mut process = Process::default();
        process.header.rank = Some(rank);
        process.header.pid = 4000 + rank;
        process.folder = format!("rank{rank}");
        for number in 0..slices / 4 {
            let start_ns = 1_790_000_000_000_000_000 + i64::from(number) * 5000;
            process.tables.api_calls.push(ApiCall {
                start_ns: TimeNs(start_ns),
                duration_ns: DurationNs(3000),
                name: launch,
                kind: 5,
                thread: 4000 + rank,
                correlation: number + 1,
                ..ApiCall::default()
            });
            process.tables.kernels.push(Kernel {
                start_ns: TimeNs(start_ns + 20_000),
                duration_ns: DurationNs(4900),
                name: kernels[number as usize * 7 % kernels.len()],
                context: 1,
                stream: 7 + number % 4,
                correlation: number + 1,
                grid_x: 264,
                block_x: 256,
                registers: 64,
                ..Kernel::default()
            });
        }
        recording.processes.push(process);
    }
    recording
}

/// CPU seconds of `work`, and what it gave.
fn timed<T>(work: impl FnOnce() -> T) -> (f64, T) {
    let before = cpu_seconds();
    let done = work();
    (cpu_seconds() - before, done)
}

fn main() {
    let wanted = std::env::args().find_map(|argument| argument.parse().ok());
    let slices: u32 = wanted.unwrap_or(4_000_000);
    let recording = recording(slices);
    let derived = Derived::default();
    forget_peak();
    let before_mib = peak_mib();
    let (layout_s, lanes) = timed(|| -> usize {
        let of = |layout: gputrace_interchange::export::layout::Layout<'_>| layout.rows.len();
        layouts(&recording, &derived).map(of).sum()
    });
    let million = f64::from(slices) / 1e6;
    println!("{slices} slices on {lanes} rows, half of them with an arrow");
    println!(
        "laying out:             {:6.2} million slices a CPU second",
        million / layout_s
    );
    let mut lean_s = 0.0;
    let options = |arguments, gpu_stages| PerfettoOptions {
        arguments,
        gpu_stages,
    };
    let mut told = |what: &str, export: &dyn Fn(&mut Counted) -> io::Result<ExportSummary>| {
        let mut out = Counted::default();
        let (seconds, summary) = timed(|| export(&mut out).expect("nothing refuses"));
        assert_eq!(
            (summary.events_in, summary.events_out),
            (slices.into(), slices.into())
        );
        assert_eq!(summary.flows, u64::from(slices) / 2);
        if lean_s == 0.0 {
            lean_s = seconds;
        }
        println!(
            "{what:23} {:6.2} million slices a CPU second without laying out ({:.2} with), {:6.1} bytes a slice, {:.2} times \
             the CPU time of the first",
            million / (seconds - layout_s).max(1e-3),
            million / seconds,
            out.0 as f64 / f64::from(slices),
            seconds / lean_s,
        );
    };
    told("perfetto, no arguments:", &|out| {
        export_perfetto(&recording, &derived, options(false, false), out)
    });
    println!(
        "  memory beside the recording: {:.0} MiB",
        peak_mib() - before_mib
    );
    told("perfetto:", &|out| {
        export_perfetto(&recording, &derived, options(true, false), out)
    });
    told("perfetto, GPU stages:", &|out| {
        export_perfetto(&recording, &derived, options(true, true), out)
    });
    told("chrome:", &|out| export_chrome(&recording, &derived, out));
}
