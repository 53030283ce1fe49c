//! From the command line to what the collector is told, and what does not go together.

use gputrace_trace::manifest::RecorderOptions;
use gputrace_trace::options::{CollectorOptions, DEFAULT_MEMORY_BYTES, GraphLevel, Kind};

use crate::cli::{Kinds, RecordArgs};
use crate::failure::Failure;

/// A recording kept below a size is made of so many parts, of which the oldest is removed.
const PARTS: u64 = 16;
/// Smaller parts would hold little beside their own names and schemas.
const LEAST_PART_BYTES: u64 = 512 << 10;

/// What the collector is told.
pub fn collector(args: &RecordArgs) -> Result<CollectorOptions, Failure> {
    refuse_conflicts(args)?;
    Ok(CollectorOptions {
        kinds: args.kinds.as_ref().map(Kinds::words),
        memory_bytes: args.memory.unwrap_or(DEFAULT_MEMORY_BYTES),
        schedule: args.schedule,
        steps: args.steps,
        range: args.range.clone(),
        ranks: args.ranks.as_ref().map(|ranks| ranks.0.clone()),
        graphs: args.graphs,
        profiler_calls: args.cuda_profiler_api,
        measure_overhead_steps: args.measure_overhead,
        segment_bytes: args.max_size.map(|bytes| (bytes / PARTS).max(LEAST_PART_BYTES)),
        keep_arguments: args.keep_arguments,
        follow_umask: args.writing.follow_umask,
    })
}

/// What the recorder does by itself.
pub fn recorder(args: &RecordArgs, collector: &CollectorOptions) -> RecorderOptions {
    let samples = collector.records(Kind::Devices) || collector.records(Kind::Host);
    RecorderOptions {
        sample_hz: if samples { args.nvml_hz } else { 0.0 },
        delay_s: args.delay,
        duration_s: args.duration,
        max_size_bytes: args.max_size,
    }
}

/// Each of these says by itself which moments are recorded.
fn refuse_conflicts(args: &RecordArgs) -> Result<(), Failure> {
    let given = [
        ("--schedule", args.schedule.is_some()),
        ("--steps", args.steps.is_some()),
        ("--range", args.range.is_some()),
        ("--cuda-profiler-api", args.cuda_profiler_api),
        ("--measure-overhead", args.measure_overhead.is_some()),
    ];
    let given: Vec<&str> = given
        .into_iter()
        .filter_map(|(name, given)| given.then_some(name))
        .collect();
    if let [one, other, ..] = given.as_slice() {
        return Err(Failure::new(format!(
            "{one} and {other} don't go together: each says by itself when to record; choose one"
        )));
    }
    if let Some(kinds) = &args.kinds
        && kinds.0.is_empty()
    {
        return Err(Failure::new("--kinds leaves nothing to record"));
    }
    if args.output.is_none() && args.join.is_some() {
        return Err(Failure::new("--join needs -o DIR: the folder that is shared"));
    }
    Ok(())
}

/// Whether a job that stands still can be told from one of which only parts are recorded.
pub fn shows_hangs(options: &CollectorOptions) -> bool {
    options.ranks.is_none()
        && !options.is_partial()
        && options.records(Kind::Collectives)
        && options.records(Kind::Kernels)
        // Of graphs as wholes it is not known what goes on in them.
        && options.graphs == GraphLevel::Node
}
