//! `gputrace workload --trace-only`: recordings of jobs that never ran, as large as one likes, to try what gputrace does with them.
//!
//! Nothing is computed: `model.rs` says when everything happens, and this writes it as the collector would.

mod model;
mod rows;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use clap::Parser;
use gputrace_trace::json_file::write_json;
use gputrace_trace::manifest::{MANIFEST_FILE, Manifest};
use gputrace_trace::seal::{id_text, random_id};
use gputrace_trace::writer::make_folder;
use gputrace_trace::{parallel, place};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::failure::Failure;
use model::{Job, RankStep};

/// Write a recording of a simulated job without running anything
#[derive(Parser, Clone, Debug)]
#[command(
    name = "gputrace workload --trace-only",
    disable_version_flag = true,
    after_help = "\
Examples:
  gputrace workload --trace-only -o run1 --ranks 16 --events 20000
  gputrace workload --trace-only -o big --ranks 1000 --events 100000 --slow-rank 417
  gputrace workload --trace-only -o part --ranks 1000 --events 1000000 --write 0..49

The job trains a transformer sharded over the 8 GPUs of each host and replicated over hosts. Times are those of a simple model of an \
H200 and its links, and everything says that it is simulated."
)]
pub struct Plan {
    /// The folder to make, which must not exist yet
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,
    /// Ranks of the job
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    ranks: u32,
    /// Rows of each rank's tables, at least; whole steps are written
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1..))]
    events: u64,
    /// Layers of the network
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1000))]
    layers: u32,
    /// A rank whose GPU is slower
    #[arg(long, value_name = "RANK")]
    slow_rank: Option<u32>,
    /// How many times longer its kernels take
    #[arg(long, default_value_t = 1.25, value_name = "TIMES")]
    slow_by: f64,
    /// A rank whose host pauses at every fourth step
    #[arg(long, value_name = "RANK")]
    pausing_rank: Option<u32>,
    /// For how long, nanoseconds
    #[arg(long, default_value_t = 30_000_000, value_name = "NS")]
    pause_ns: i64,
    /// Write these ranks alone, FIRST..LAST; the job is the whole one
    #[arg(long, value_name = "FIRST..LAST", value_parser = crate::cli::parse_steps)]
    write: Option<(u64, u64)>,
    /// All ranks on one host, by name and clock
    #[arg(long)]
    one_host: bool,
    /// Another seed is another job of the same kind
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

impl Plan {
    fn hosts(&self) -> u32 {
        self.ranks.div_ceil(model::GPUS)
    }

    fn host_of(&self, rank: u32) -> String {
        match self.one_host {
            true => "sim-0".to_owned(),
            false => format!("sim-{}", rank / model::GPUS),
        }
    }

    fn steps(&self) -> u32 {
        let a_step = rows::of_a_step(self.layers);
        u32::try_from(self.events.div_ceil(a_step)).unwrap_or(u32::MAX)
    }
}

/// Writes the recording that the arguments behind `workload` ask for.
pub fn run(arguments: &[std::ffi::OsString]) -> Result<i32, Failure> {
    let arguments = arguments.iter().filter(|argument| *argument != "--trace-only");
    let name = std::ffi::OsString::from("gputrace workload --trace-only");
    let plan = Plan::parse_from(std::iter::once(name).chain(arguments.cloned()));
    let refused = |error: &std::io::Error| {
        Failure::new(crate::export::cannot_be_written(&plan.output, error))
    };
    if !(0.01..=1000.0).contains(&plan.slow_by) {
        return Err(Failure::new("--slow-by: expected a number from 0.01 to 1000"));
    }
    if let Some(around) = place::recording_around(&plan.output) {
        return Err(Failure::new(format!(
            "{}: is inside the recording {}: name a folder elsewhere",
            plan.output.display(),
            around.display()
        )));
    }
    make_folder(&plan.output).map_err(|error| refused(&error))?;
    let began = Instant::now();
    let recording = id_text(random_id());
    let start_ns = gputrace_trace::now().0;
    let (first, last) = plan.write.unwrap_or((0, u64::from(plan.ranks) - 1));
    let wanted: Vec<u32> = (0..plan.ranks)
        .filter(|rank| (first..=last).contains(&u64::from(*rank)))
        .collect();
    let steps = plan.steps();
    let bar = bar(u64::from(steps) + wanted.len() as u64);
    // What ranks do is known step by step of all of them, and written rank by rank.
    let mut job = Job::new(&plan, start_ns);
    let mut of_rank: Vec<Vec<RankStep>> = wanted.iter().map(|_| Vec::with_capacity(steps as usize)).collect();
    for _ in 0..steps {
        let step = job.step();
        let step = step.into_iter().zip(0u32..);
        let own = step.filter(|(_, rank)| (first..=last).contains(&u64::from(*rank)));
        for (steps, (step, _)) in of_rank.iter_mut().zip(own) {
            steps.push(step);
        }
        bar.inc(1);
    }
    let bytes = AtomicU64::new(0);
    let written = parallel::map(wanted.len(), |place| {
        let written = rows::write(&plan, &recording, wanted[place], start_ns, &of_rank[place])?;
        bytes.fetch_add(written.1, Ordering::Relaxed);
        bar.inc(1);
        Ok(written.0)
    });
    let rows: u64 = written
        .into_iter()
        .sum::<std::io::Result<u64>>()
        .map_err(|error| refused(&error))?;
    let manifest = Manifest {
        recording,
        state: "complete".to_owned(),
        device: "sim".to_owned(),
        gputrace: env!("CARGO_PKG_VERSION").to_owned(),
        command: std::env::args().collect(),
        host: plan.host_of(0),
        started_ns: start_ns,
        ended_ns: Some(start_ns),
        exit_status: Some(0),
        notes: vec![
            "simulated: no program ran, all times are those of a model (gputrace workload --trace-only)".to_owned(),
        ],
        ..Manifest::new()
    };
    write_json(&plan.output.join(MANIFEST_FILE), &manifest).map_err(|error| refused(&error))?;
    bar.finish_and_clear();
    let seconds = began.elapsed().as_secs_f64();
    let bytes = bytes.load(Ordering::Relaxed);
    anstream::eprintln!(
        "{}: {} of {} ranks, {steps} steps, {rows} rows, {bytes} bytes ({:.1} a row) in {seconds:.1} s ({:.1} MB/s); simulated",
        plan.output.display(),
        wanted.len(),
        plan.ranks,
        bytes as f64 / rows.max(1) as f64,
        bytes as f64 / seconds / 1e6
    );
    Ok(0)
}

fn bar(length: u64) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template("writing {wide_bar} {pos} of {len}, {eta} left") {
        bar.set_style(style);
    }
    bar
}
