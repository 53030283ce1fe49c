//! Training programs on CUDA and NCCL, one for each way to use several GPUs.
//!
//! Ordinary programs: they open NVIDIA's libraries at run time, train a network on data that can be learnt, and mark
//! their steps and phases with NVTX ranges.

mod check;
mod checkpoint;
mod cli;
mod comm;
mod data;
mod devices;
mod error;
mod gpu;
mod launch;
mod loader;
mod model;
mod nvtx;
mod options;
mod precision;
mod puzzlers;
mod rank;
mod schedule;
mod store;
mod train;
mod trouble;

use std::ffi::OsString;

use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser as _};

pub use error::Error;
pub use launch::Launch;

use cli::Cli;

/// A workload's name and what it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Workload {
    /// What it is called on the command line.
    pub name: &'static str,
    /// One line.
    pub summary: &'static str,
}

/// All workloads.
#[must_use]
pub fn list() -> &'static [Workload] {
    &[
        Workload {
            name: "single",
            summary: "one GPU: the baseline for all others",
        },
        Workload {
            name: "dp",
            summary: "data parallel in one process, as nn.DataParallel: scatter, replicate, gather",
        },
        Workload {
            name: "ddp",
            summary: "data parallel: gradients all-reduced in buckets, behind the backward pass",
        },
        Workload {
            name: "fsdp",
            summary: "fully sharded: parameters gathered when needed, gradients reduce-scattered",
        },
        Workload {
            name: "mp",
            summary: "naive model parallel in one process: layers on several GPUs, one at a time",
        },
        Workload {
            name: "pp",
            summary: "pipeline parallel: GPipe or 1F1B over microbatches, and its bubble",
        },
        Workload {
            name: "tp",
            summary: "tensor parallel: each layer divided over the ranks; also sequence parallel",
        },
        Workload {
            name: "3d",
            summary: "data x tensor x pipeline parallel on a mesh of ranks",
        },
        Workload {
            name: "p2p",
            summary: "one GPU copies tensors to others on a stream each: why do they take unequal time?",
        },
        Workload {
            name: "collectives",
            summary: "every collective over sizes, in nccl-tests' columns; which way to all-reduce wins where",
        },
        Workload {
            name: "ring",
            summary: "a ring all-reduce built from send and receive, held against NCCL's",
        },
        Workload {
            name: "async",
            summary: "an exchange and a computation with each kind of waiting: what does each block?",
        },
        Workload {
            name: "check",
            summary: "checks every kernel's gradients and every collective's result on this machine",
        },
    ]
}

/// The workload whose name is nearest to what was typed, if any is near.
#[must_use]
pub fn nearest(name: &str) -> Option<&'static str> {
    let nearest = list()
        .iter()
        .map(|workload| (edit_distance(name, workload.name), workload.name))
        .min()?;
    (nearest.0 <= 2 && nearest.0 < name.chars().count()).then_some(nearest.1)
}

/// Insertions, deletions, substitutions and swaps of neighbours that turn one word into the other.
fn edit_distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![(0..=b.len()).collect::<Vec<usize>>()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let substituted = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = substituted.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

/// Runs what `arguments` (a workload's name and options) say and gives the exit status.
///
/// In a process that is a rank already (RANK and WORLD_SIZE are set, or Open MPI's or Slurm's variables) that rank is
/// run; else as many ranks as asked for are started as processes of their own, by `launch`.
///
/// # Errors
/// When the workload can't run: no GPU, no NCCL, options that don't fit together. Wrong options print clap's own
/// message and give status 2.
pub fn run(arguments: &[OsString], launch: &Launch) -> Result<i32, Error> {
    let words = std::iter::once(OsString::from("gputrace workload")).chain(arguments.iter().cloned());
    let parsed = Cli::command()
        .try_get_matches_from(words)
        .and_then(|matches| Ok((Cli::from_arg_matches(&matches)?, are_ranks_asked_for(&matches))));
    let (cli, are_asked_for) = match parsed {
        Ok(parsed) => parsed,
        Err(message) => {
            message.print()?;
            return Ok(message.exit_code());
        }
    };
    let ranks = cli.workload.ranks()?;
    let wanted = launch::Wanted {
        ranks,
        // Where one process has several GPUs, --ranks says how many.
        are_asked_for: are_asked_for && ranks > 1,
        share_gpus: cli.share_gpus,
    };
    launch::run(launch, arguments, wanted, |rank, store| {
        cli.workload.run(rank, store)
    })
}

/// How many processes [`run`] starts for `arguments`; `None` where it would refuse them.
#[must_use]
pub fn ranks_of(arguments: &[OsString]) -> Option<u32> {
    let words = std::iter::once(OsString::from("gputrace workload")).chain(arguments.iter().cloned());
    Cli::try_parse_from(words).ok()?.workload.ranks().ok()
}

/// Whether the number of ranks was typed, and is not the usual one.
fn are_ranks_asked_for(matches: &ArgMatches) -> bool {
    matches.subcommand().is_some_and(|(_, matches)| {
        matches.try_contains_id("ranks").unwrap_or(false)
            && matches.value_source("ranks") == Some(ValueSource::CommandLine)
    })
}

/// The help of all workloads, as clap has it.
#[must_use]
pub fn command() -> clap::Command {
    Cli::command()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_suggested_and_far_ones_not() {
        assert_eq!(nearest("dpd"), Some("ddp"));
        assert_eq!(nearest("sngle"), Some("single"));
        assert_eq!(nearest("pipeline"), None);
        assert_eq!(nearest("x"), None);
    }
}
