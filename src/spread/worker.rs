//! `gputrace shard`: what runs on a worker.

use clap::Parser;
use gputrace_trace::place::Target;

use super::task::{Batch, made, refused};
use crate::cli::{Cli, Command, ShardArgs};
use crate::failure::Failure;

/// Makes one partial, unless it is there. What is wrong with its input is written down, since nobody could read that elsewhere
/// either; any other failure is this worker's own.
pub fn run(args: &ShardArgs) -> Result<i32, Failure> {
    let cannot = |error: &dyn std::fmt::Display| {
        Failure::new(format!("{}: cannot be read: {error}", args.tasks.display()))
    };
    let batch = Batch::read(&args.tasks).map_err(|error| cannot(&error))?;
    let task = batch.tasks.get(args.number);
    let task = task.ok_or_else(|| cannot(&format!("it has no task {}", args.number)))?;
    let output = made(&batch.folder, &task.name);
    if output.exists() {
        return Ok(0);
    }
    let mut arguments = vec!["gputrace".into()];
    arguments.extend(task.arguments.iter().map(Into::into));
    arguments.extend(["-o".into(), output.into_os_string()]);
    let command = Cli::try_parse_from(arguments)
        .map_err(|error| cannot(&error))?
        .command;
    let done = match command {
        Some(Command::Partial(args)) => crate::partial::run(&args),
        Some(Command::Reduce(args)) => crate::reduce::run(&args),
        _ => return Err(cannot(&"a task that makes no partial")),
    };
    if let Err(failure) = &done
        && !failure.is_of_output()
    {
        let why = Target::new(&refused(&batch.folder, &task.name));
        // Where it can't be written either, the driver takes this for a worker that died.
        let _ = why.write_file(&|_| false, |mut file| {
            std::io::Write::write_all(&mut file, failure.to_string().as_bytes())
        });
    }
    done
}
