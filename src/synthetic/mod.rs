//! `gputrace workload --trace-only`: recordings of jobs that never ran, as large as one likes, to try what gputrace does with them.
//!
//! Nothing is computed: `model.rs` says when everything happens, and this writes it as the collector would.

mod model;
mod plan;
mod rows;

use std::ffi::OsString;
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
use crate::record::child;
use model::{Job, RankStep};
use plan::Plan;

/// Steps of a plan: whole ones.
fn steps(plan: &Plan) -> u32 {
    let a_step = rows::of_a_step(plan.layers);
    u32::try_from(plan.events.div_ceil(a_step)).unwrap_or(u32::MAX)
}

/// What the arguments behind `workload` ask for.
pub fn parse(arguments: &[OsString]) -> Result<Plan, clap::Error> {
    let arguments = arguments.iter().filter(|argument| *argument != "--trace-only");
    let name = OsString::from("gputrace workload --trace-only");
    Plan::try_parse_from(std::iter::once(name).chain(arguments.cloned()))
}

/// Writes the recording that the arguments behind `workload` ask for.
pub fn run(arguments: &[OsString]) -> Result<i32, Failure> {
    let plan = parse(arguments).unwrap_or_else(|error| error.exit());
    let refused =
        |error: &std::io::Error| Failure::new(crate::export::cannot_be_written(&plan.output, error));
    if !(0.01..=1000.0).contains(&plan.slow_by) {
        return Err(Failure::new("--slow-by: expected a number from 0.01 to 1000"));
    }
    let ranks = u64::from(plan.ranks);
    for (option, rank) in [
        ("--write", plan.write.map(|(_, last)| last)),
        ("--slow-rank", plan.slow_rank.map(u64::from)),
        ("--pausing-rank", plan.pausing_rank.map(u64::from)),
    ] {
        if let Some(rank) = rank.filter(|rank| *rank >= ranks) {
            return Err(Failure::new(format!(
                "{option}: there is no rank {rank}: the job has ranks 0..{}",
                ranks - 1
            )));
        }
    }
    place::refuse_inside(&plan.output).map_err(|refused| Failure::new(refused.to_string()))?;
    make_folder(&plan.output).map_err(|error| refused(&error))?;
    child::note_signals();
    if let Err(error) = write(&plan) {
        // It was made here, and is not whole. What others put there meanwhile stays.
        let _ = place::remove_recording(&plan.output);
        return Err(match child::asked_to_end() {
            Some(signal) => Failure::new(format!(
                "{}: not made: ended by signal {signal}",
                plan.output.display()
            ))
            .with_status(128 + signal),
            None => refused(&error),
        });
    }
    Ok(0)
}

/// Fills the folder, which is there, and says what is in it.
fn write(plan: &Plan) -> std::io::Result<()> {
    let ranks = u64::from(plan.ranks);
    let began = Instant::now();
    let recording = id_text(random_id());
    let start_ns = gputrace_trace::now().0;
    let (first, last) = plan.write.unwrap_or((0, ranks - 1));
    let wanted: Vec<u32> = (0..plan.ranks)
        .filter(|rank| (first..=last).contains(&u64::from(*rank)))
        .collect();
    let count = steps(plan);
    let bar = bar(u64::from(count) + wanted.len() as u64);
    // What ranks do is known step by step of all of them, and written rank by rank.
    let mut job = Job::new(plan, start_ns);
    let mut of_rank: Vec<Vec<RankStep>> = wanted
        .iter()
        .map(|_| Vec::with_capacity(count as usize))
        .collect();
    for _ in 0..count {
        goes_on()?;
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
        goes_on()?;
        let written = rows::write(plan, &recording, wanted[place], start_ns, &of_rank[place])?;
        bytes.fetch_add(written.1, Ordering::Relaxed);
        bar.inc(1);
        Ok(written.0)
    });
    let rows: u64 = written.into_iter().sum::<std::io::Result<u64>>()?;
    let manifest = Manifest {
        recording,
        state: "complete".to_owned(),
        device: "sim".to_owned(),
        gputrace: env!("CARGO_PKG_VERSION").to_owned(),
        command: std::env::args_os()
            .map(|word| word.to_string_lossy().into_owned())
            .collect(),
        host: plan.host_of(0),
        started_ns: start_ns,
        ended_ns: Some(start_ns),
        exit_status: Some(0),
        notes: vec![
            "simulated: no program ran, all times are those of a model (gputrace workload --trace-only)"
                .to_owned(),
        ],
        ..Manifest::new()
    };
    write_json(&plan.output.join(MANIFEST_FILE), &manifest)?;
    bar.finish_and_clear();
    let seconds = began.elapsed().as_secs_f64();
    let bytes = bytes.load(Ordering::Relaxed);
    anstream::eprintln!(
        "{}: {} of {} ranks, {count} steps, {rows} rows, {bytes} bytes ({:.1} a row) in {seconds:.1} s ({:.1} MB/s); simulated",
        plan.output.display(),
        wanted.len(),
        plan.ranks,
        bytes as f64 / rows.max(1) as f64,
        bytes as f64 / seconds / 1e6
    );
    Ok(())
}

/// An error once a signal asked for an end.
fn goes_on() -> std::io::Result<()> {
    match child::asked_to_end() {
        Some(_) => Err(std::io::ErrorKind::Interrupted.into()),
        None => Ok(()),
    }
}

fn bar(length: u64) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template("writing {wide_bar} {pos} of {len}, {eta} left") {
        bar.set_style(style);
    }
    bar
}
