//! The command line of the workloads: which there are, what each can be asked for, and what runs it.

use clap::{Args, Parser, Subcommand};

use crate::error::Error;
use crate::launch::{LaunchOptions, Rank};
use crate::options::{DdpOptions, TrainOptions};
use crate::puzzlers::p2p::{self, P2pOptions};
use crate::train::{self, Division, Reduce, Way};

/// Training programs on CUDA and NCCL.
#[derive(Parser, Debug, Clone)]
#[command(
    name = "gputrace workload",
    disable_help_subcommand = true,
    max_term_width = 100
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) workload: Which,
}

#[derive(Subcommand, Debug, Clone)]
pub(crate) enum Which {
    /// A network on one GPU: the baseline
    #[command(
        after_help = "Examples:\n  gputrace workload single --preset listing --print-losses\n  gputrace workload single --model transformer --dtype bf16"
    )]
    Single(SingleArguments),
    /// Distributed data parallel: each rank a share of the batch, gradients all-reduced in buckets behind the backward
    /// pass
    #[command(
        after_help = "Examples:\n  gputrace workload ddp --ranks 4 --bucket-mb 1\n  gputrace workload ddp --no-overlap"
    )]
    Ddp(DdpArguments),
    /// One GPU copies tensors to others, a stream for each: times beside the links they took
    #[command(
        after_help = "Examples:\n  gputrace workload p2p --ranks 4 --sequential\n  gputrace workload p2p --no-peer-access"
    )]
    P2p(P2pOptions),
}

/// `single`.
#[derive(Args, Debug, Clone)]
pub(crate) struct SingleArguments {
    #[command(flatten)]
    pub(crate) train: TrainOptions,
}

/// `ddp`.
#[derive(Args, Debug, Clone)]
pub(crate) struct DdpArguments {
    #[command(flatten)]
    launch: LaunchOptions,
    #[command(flatten)]
    train: TrainOptions,
    #[command(flatten)]
    ddp: DdpOptions,
}

impl Which {
    /// How its ranks are started, for a workload whose ranks are processes of their own.
    pub(crate) fn launch(&self) -> Result<LaunchOptions, Error> {
        Ok(match self {
            Self::Single(_) => LaunchOptions::of(1),
            Self::Ddp(arguments) => arguments.launch.clone(),
            Self::P2p(options) => LaunchOptions::of(options.processes()?),
        })
    }

    /// Runs one rank of it and gives the exit status.
    pub(crate) fn run(&self, rank: &Rank) -> Result<i32, Error> {
        let way = |name, division, reduce| Way {
            name,
            division,
            reduce,
        };
        match self {
            Self::Single(arguments) => {
                let way = way("single", Division::default(), Reduce::None);
                train::run(&arguments.train, &way, rank).map(|()| 0)
            }
            Self::Ddp(arguments) => {
                let reduce = Reduce::Buckets(arguments.ddp.clone());
                let way = way("ddp", Division::default(), reduce);
                train::run(&arguments.train, &way, rank).map(|()| 0)
            }
            Self::P2p(options) => p2p::run(options, rank),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_options_are_consistent() {
        <Cli as clap::CommandFactory>::command().debug_assert();
    }
}
