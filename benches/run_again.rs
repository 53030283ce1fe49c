//! What `gputrace whatif` predicts against running again with the change made, on simulated GPUs: the table of docs/whatif.md.
//!
//!     cargo bench --bench run_again
//!
//! A job is recorded as it is and with a change. Forward, the change is predicted from the first recording and measured in the
//! second; back, mending it is predicted from the second and measured in the first. Nothing else may run meanwhile.

mod common;

use std::path::PathBuf;

use common::{record, what_if};

/// A job: its name, workload, and how many times slower than the real node its GPUs are: so that the processor keeps up.
struct Job {
    name: &'static str,
    workload: &'static [&'static str],
    scale: u32,
}

const JOBS: &[Job] = &[
    Job {
        name: "ddp, 2 ranks",
        workload: &["ddp", "--ranks", "2"],
        scale: 4000,
    },
    Job {
        name: "ddp, 4 ranks",
        workload: &["ddp", "--ranks", "4"],
        scale: 4000,
    },
    Job {
        name: "ddp transformer, 2 ranks",
        workload: &["ddp", "--ranks", "2", "--model", "transformer", "--batch", "8"],
        scale: 8000,
    },
    Job {
        name: "fsdp, 4 ranks",
        workload: &["fsdp", "--ranks", "4"],
        scale: 4000,
    },
    Job {
        name: "tp, 4 ranks",
        workload: &["tp", "--ranks", "4"],
        scale: 8000,
    },
    Job {
        name: "pp, 4 ranks",
        workload: &["pp", "--ranks", "4", "--batch", "128"],
        scale: 4000,
    },
    Job {
        name: "3d, 8 ranks",
        workload: &["3d", "--ranks", "8", "--batch", "64"],
        scale: 32000,
    },
];

/// A change: what is set on the stand-in, what is added to the workload, and how it is predicted forward and back.
struct Change {
    name: &'static str,
    /// `{}` stands for twice the job's scale.
    sim: &'static [&'static str],
    /// `{}` stands for half the job's step in milliseconds.
    workload: &'static [&'static str],
    forward: &'static [&'static str],
    back: &'static [&'static str],
    /// On which jobs, by how their names begin; all where empty.
    jobs: &'static [&'static str],
}

const CHANGES: &[Change] = &[
    Change {
        name: "rank 1 is 1.5 times slower",
        sim: &["SLOW=rank:1=1.5"],
        workload: &[],
        forward: &["rank:1=1.5x"],
        back: &["rank:1=as-others"],
        jobs: &["ddp", "fsdp", "tp", "3d"],
    },
    // Stages of a pipeline have more or less to do than each other: none is as the others.
    Change {
        name: "rank 1 is 1.5 times slower",
        sim: &["SLOW=rank:1=1.5"],
        workload: &[],
        forward: &["rank:1=1.5x"],
        back: &["rank:1=0.6667x"],
        jobs: &["pp"],
    },
    Change {
        name: "rank 0 is twice as slow",
        sim: &["SLOW=rank:0=2"],
        workload: &[],
        forward: &["rank:0=2x"],
        back: &["rank:0=as-others"],
        jobs: &["ddp", "fsdp", "tp", "3d"],
    },
    Change {
        name: "rank 0 is twice as slow",
        sim: &["SLOW=rank:0=2"],
        workload: &[],
        forward: &["rank:0=2x"],
        back: &["rank:0=0.5x"],
        jobs: &["pp"],
    },
    Change {
        name: "everything is twice as slow",
        sim: &["SCALE={}"],
        workload: &[],
        forward: &["kernel:*=2x", "communication=2x", "copy:HtoD=2x"],
        back: &["kernel:*=0.5x", "communication=0.5x", "copy:HtoD=0.5x"],
        jobs: &[],
    },
    Change {
        name: "rank 1 has half as much again to compute",
        sim: &[],
        workload: &["--straggler", "1:1.5"],
        forward: &[],
        back: &["rank:1=as-others"],
        jobs: &["ddp, ", "fsdp"],
    },
    Change {
        name: "rank 1 has twice as much to compute",
        sim: &[],
        workload: &["--straggler", "1:2"],
        forward: &[],
        back: &["rank:1=as-others"],
        jobs: &["ddp, ", "fsdp"],
    },
    Change {
        name: "matrix products are twice as slow",
        sim: &["SLOW=kernel:*gemm*=2"],
        workload: &[],
        forward: &["kernel:*gemm*=2x"],
        back: &["kernel:*gemm*=0.5x"],
        jobs: &[],
    },
    Change {
        name: "matrix products of rank 1 are twice as slow",
        sim: &["SLOW=kernel:*gemm*@1=2"],
        workload: &[],
        forward: &[],
        back: &["rank:1=as-others"],
        jobs: &[],
    },
    Change {
        name: "links carry a quarter",
        sim: &["SLOW=link:0-1=4"],
        workload: &[],
        forward: &["communication=4x"],
        back: &["communication=0.25x"],
        jobs: &["ddp", "fsdp", "tp"],
    },
    Change {
        name: "rank 1 pauses for half a step in each",
        sim: &[],
        workload: &["--delay", "step:1:{}"],
        forward: &[],
        back: &["rank:1=as-others"],
        jobs: &[],
    },
    Change {
        name: "all ranks pause for half a step in each",
        sim: &[],
        workload: &["--delay", "step:all:{}"],
        forward: &[],
        back: &["host:range: forward*=none"],
        jobs: &[],
    },
    Change {
        name: "rank 1 pauses for half a step in every fourth",
        sim: &[],
        workload: &["--delay", "step:1:{}:4"],
        forward: &[],
        back: &["rank:1=as-others"],
        jobs: &["ddp", "fsdp", "tp"],
    },
    Change {
        name: "rank 1 loads for a step and a half",
        sim: &[],
        workload: &[
            "--delay",
            "loader:1:{}",
            "--delay",
            "loader:1:{}",
            "--delay",
            "loader:1:{}",
        ],
        forward: &[],
        back: &["rank:1=as-others"],
        jobs: &["ddp", "fsdp", "tp"],
    },
    Change {
        name: "all load for a step and a half",
        sim: &[],
        workload: &[
            "--delay",
            "loader:all:{}",
            "--delay",
            "loader:all:{}",
            "--delay",
            "loader:all:{}",
        ],
        forward: &[],
        back: &["host:*load batch*=none"],
        jobs: &["ddp", "fsdp", "tp"],
    },
];

fn main() {
    let keep = tempfile::tempdir().expect("a folder");
    let (mut errors, mut covered) = (Vec::new(), 0);
    println!("| job | change | predicted from | step there | predicted | measured | off by | covered |");
    println!("|---|---|---|---|---|---|---|---|");
    for (place, job) in JOBS.iter().enumerate() {
        let path = |name: &str| -> PathBuf { keep.path().join(format!("{place}-{name}")) };
        let workload = |more: &[&'static str]| [job.workload, &["--steps", "20"], more].concat();
        let scale = format!("SCALE={}", job.scale);
        let base = path("base");
        record(&base, std::slice::from_ref(&scale), &workload(&[]));
        let half = format!("{:.1}", what_if(&base, &[]).0 / 2.0);
        for (number, change) in CHANGES.iter().enumerate() {
            if !change.jobs.is_empty() && !change.jobs.iter().any(|start| job.name.starts_with(start)) {
                continue;
            }
            let changed = path(&number.to_string());
            let twice = (2 * job.scale).to_string();
            let mut sim = vec![scale.clone()];
            sim.extend(change.sim.iter().map(|setting| setting.replace("{}", &twice)));
            let words = workload(change.workload);
            let words: Vec<String> = words.iter().map(|word| word.replace("{}", &half)).collect();
            record(&changed, &sim, &words);
            for (from, of, edits) in [(&base, &changed, change.forward), (&changed, &base, change.back)] {
                if edits.is_empty() {
                    continue;
                }
                let (there, low, high) = what_if(from, edits);
                let (measured, ..) = what_if(of, &[]);
                let off = f64::midpoint(low, high) / measured - 1.0;
                let covers = low <= measured && measured <= high;
                errors.push(off.abs());
                covered += usize::from(covers);
                println!(
                    "| {} | {} | {} | {there:.2} ms | {low:.2} to {high:.2} ms | {measured:.2} ms | {:+.1} % | {} |",
                    job.name,
                    change.name,
                    if from == &base {
                        "the run without"
                    } else {
                        "the run with it"
                    },
                    off * 100.0,
                    if covers { "yes" } else { "no" },
                );
            }
        }
    }
    let count = errors.len();
    let worst = errors.iter().copied().fold(0.0, f64::max);
    println!(
        "\n{count} predictions: off by {:.2} % in the mean and {:.1} % at worst; {:.0} % covered.",
        100.0 * errors.iter().sum::<f64>() / count as f64,
        100.0 * worst,
        100.0 * covered as f64 / count as f64
    );
}
