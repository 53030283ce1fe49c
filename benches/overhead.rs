//! What recording adds to a step, over a client of CUPTI that throws its buffers away and over nothing at all.
//!
//! `cargo bench --bench overhead [-- PAIRS]` runs `tests/programs/launches.c` on the simulated GPU at 10,000 and 50,000 kernels
//! a second and as fast as it goes, with each client in turn, and prints how much longer the median step took, with the 95 %
//! interval of the pairs' mean. The simulated GPU computes on the CPU, so this is only worth something on an idle machine; a
//! pace that the program cannot keep shows as a longer step in all of them.

#[path = "../tests/common/mod.rs"]
mod common;

use std::process::Command;

use common::programs::{collector, compiled, compiled_with, library_path};

/// Kernels a step.
const KERNELS: usize = 1000;
/// Steps of a run; the first ones are left out.
const STEPS: usize = 40;
const WARM_UP: usize = 5;
/// Callback ids of the driver calls that the loop makes: cuLaunchKernel, cuCtxSynchronize.
const CALLS: &str = "307,17";

#[derive(Clone, Copy, PartialEq)]
enum Client {
    Nobody,
    Bare,
    Ours,
}

/// The median step of a run, nanoseconds.
fn step_ns(client: Client, pace_ns: usize) -> f64 {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = Command::new(compiled("launches"));
    command
        .args([STEPS, KERNELS, pace_ns].map(|word| word.to_string()))
        .env("LD_LIBRARY_PATH", library_path())
        .env("SIMGPU_DEVICES", "1");
    match client {
        Client::Nobody => {}
        Client::Bare => {
            command
                .env(
                    "CUDA_INJECTION64_PATH",
                    compiled_with("bare_client", &["-shared", "-fPIC"]),
                )
                .env("BARE_CALLS", CALLS);
        }
        Client::Ours => {
            command
                .env("CUDA_INJECTION64_PATH", collector())
                .env("NVTX_INJECTION64_PATH", collector())
                .env("GPUTRACE_DIR", folder.path());
        }
    }
    let output = command.output().expect("the program runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let mut steps: Vec<f64> = String::from_utf8_lossy(&output.stdout)
        .lines()
        .skip(WARM_UP)
        .filter_map(|line| line.parse().ok())
        .collect();
    steps.sort_unstable_by(f64::total_cmp);
    steps[steps.len() / 2]
}

/// Mean of the ratios and half the width of its 95 % interval (1.96 standard errors: pairs are many).
fn interval(ratios: &[f64]) -> (f64, f64) {
    let count = ratios.len() as f64;
    let mean = ratios.iter().sum::<f64>() / count;
    let variance = ratios.iter().map(|ratio| (ratio - mean).powi(2)).sum::<f64>() / (count - 1.0).max(1.0);
    (mean, 1.96 * (variance / count).sqrt())
}

fn main() {
    let pairs: usize = std::env::args()
        .skip(1)
        .find_map(|word| word.parse().ok())
        .unwrap_or(10);
    for (pace_ns, what) in [
        (100_000, "10,000 kernels a second"),
        (20_000, "50,000 kernels a second"),
        (0, "as fast as it goes"),
    ] {
        for (other, name) in [
            (Client::Bare, "a bare client of CUPTI"),
            (Client::Nobody, "nothing"),
        ] {
            let mut ratios = Vec::new();
            let mut others = Vec::new();
            for pair in 0..pairs {
                // Each goes first in turn.
                let (ours, theirs) = if pair % 2 == 0 {
                    let ours = step_ns(Client::Ours, pace_ns);
                    (ours, step_ns(other, pace_ns))
                } else {
                    let theirs = step_ns(other, pace_ns);
                    (step_ns(Client::Ours, pace_ns), theirs)
                };
                ratios.push(ours / theirs);
                others.push(theirs);
            }
            let (mean, half) = interval(&ratios);
            let kernel_ns = others.iter().sum::<f64>() / pairs as f64 / KERNELS as f64;
            println!(
                "{what}: {:+.2} % (+- {:.2}) over {name} ({kernel_ns:.0} ns a kernel there; {pairs} pairs)",
                (mean - 1.0) * 100.0,
                half * 100.0
            );
        }
    }
}
