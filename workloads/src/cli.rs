//! The command line of the workloads: which there are, what each can be asked for, and what runs it.

use clap::{Args, Parser, Subcommand};

use crate::check::{self, CheckOptions};
use crate::error::Error;
use crate::options::{DdpOptions, FsdpOptions, PipelineOptions, TensorOptions, TrainOptions};
use crate::puzzlers::asynchronous::{self, AsyncOptions};
use crate::puzzlers::collectives::{self, CollectivesOptions};
use crate::puzzlers::p2p::{self, P2pOptions};
use crate::puzzlers::ring::{self, RingOptions};
use crate::rank::Rank;
use crate::store::Store;
use crate::train::{self, Division, OneProcess, Reduce, Way};

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
    /// Put several ranks on one GPU where there are fewer GPUs (they take turns: times mean little)
    #[arg(long, global = true)]
    pub(crate) share_gpus: bool,
}

#[derive(Subcommand, Debug, Clone)]
pub(crate) enum Which {
    /// A network on one GPU: the baseline
    #[command(
        after_help = "Examples:\n  gputrace workload single --preset listing --print-losses\n  gputrace workload single --model transformer --dtype bf16"
    )]
    Single(SingleArguments),
    /// Data parallel in one process, as nn.DataParallel: the first GPU scatters, replicates, gathers and waits
    #[command(after_help = "Example:\n  gputrace workload dp --ranks 4")]
    Dp(OneProcessArguments),
    /// Distributed data parallel: each rank a share of the batch, gradients all-reduced in buckets behind the backward
    /// pass
    #[command(
        after_help = "Examples:\n  gputrace workload ddp --ranks 4 --bucket-mb 1\n  gputrace workload ddp --no-overlap"
    )]
    Ddp(DdpArguments),
    /// Fully sharded data parallel: parameters gathered unit by unit when they are needed, gradients scattered
    #[command(
        after_help = "Examples:\n  gputrace workload fsdp --ranks 4 --layers 8 --prefetch 2\n  gputrace workload fsdp --prefetch 0"
    )]
    Fsdp(FsdpArguments),
    /// Naive model parallel in one process: layers on several GPUs, one GPU at a time
    #[command(after_help = "Example:\n  gputrace workload mp --ranks 2 --layers 8")]
    Mp(OneProcessArguments),
    /// Tensor parallel: each layer divided over the ranks, by columns and then by rows
    #[command(
        after_help = "Examples:\n  gputrace workload tp --model transformer --ranks 4\n  gputrace workload tp --layers 8 --sequence-parallel"
    )]
    Tp(TpArguments),
    /// Pipeline parallel: a stage of the network a rank, microbatches one after the other
    #[command(
        after_help = "Examples:\n  gputrace workload pp --ranks 4 --layers 8 --microbatches 8\n  gputrace workload pp --pipeline gpipe --balance time --model transformer"
    )]
    Pp(PpArguments),
    /// Data, tensor and pipeline parallel at once, on a mesh of ranks
    #[command(
        name = "3d",
        after_help = "Examples:\n  gputrace workload 3d --dp 2 --tp 2 --pp 2 --layers 8\n  gputrace workload 3d --ranks 16 --tp 4 --model transformer --layers 6"
    )]
    ThreeD(ThreeDArguments),
    /// One GPU copies tensors to others, a stream for each: times beside the links they took
    #[command(
        after_help = "Examples:\n  gputrace workload p2p --ranks 4 --sequential\n  gputrace workload p2p --no-peer-access"
    )]
    P2p(P2pOptions),
    /// Every collective over sizes, in nccl-tests' columns; which way to all-reduce wins where
    #[command(
        after_help = "Examples:\n  gputrace workload collectives --ranks 4 --max-bytes 4M\n  gputrace workload collectives --operation all_reduce,all_gather --dtype bfloat16"
    )]
    Collectives(CollectivesOptions),
    /// A ring all-reduce built from send and receive: the same as NCCL's, and at what cost?
    #[command(
        after_help = "Examples:\n  gputrace workload ring --ranks 4\n  gputrace workload ring --ranks 3 --counts 1,2,1000 --dtype int32"
    )]
    Ring(RingOptions),
    /// An exchange and a computation with each kind of waiting: what does each block?
    #[command(
        after_help = "Examples:\n  gputrace workload async\n  gputrace workload async --variant blocking,late-wait --compute 3"
    )]
    Async(AsyncOptions),
    /// Check every kernel's gradients and every collective's result on this machine
    #[command(
        after_help = "Examples:\n  gputrace workload check\n  gputrace workload check --ranks 4 --json"
    )]
    Check(CheckOptions),
}

/// How many ranks there are.
#[derive(Args, Debug, Clone)]
#[command(next_help_heading = "Ranks")]
pub(crate) struct LaunchOptions {
    /// Ranks, a process each
    #[arg(long, default_value = "2", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    ranks: u32,
}

/// `single`.
#[derive(Args, Debug, Clone)]
pub(crate) struct SingleArguments {
    /// Forward and backward pass are captured as CUDA graphs, one for each place that batches lie in, and launched whole
    #[arg(long)]
    pub(crate) graph: bool,
    #[command(flatten)]
    pub(crate) train: TrainOptions,
}

/// `dp` and `mp`.
#[derive(Args, Debug, Clone)]
pub(crate) struct OneProcessArguments {
    /// GPUs that the process uses
    #[arg(long, default_value = "2", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64), help_heading = "Ranks")]
    ranks: u32,
    #[command(flatten)]
    train: TrainOptions,
}

/// `ddp`.
#[derive(Args, Debug, Clone)]
pub(crate) struct DdpArguments {
    /// Forward and backward pass with the all-reduces are captured as CUDA graphs and launched whole
    #[arg(long)]
    graph: bool,
    #[command(flatten)]
    launch: LaunchOptions,
    #[command(flatten)]
    train: TrainOptions,
    #[command(flatten)]
    ddp: DdpOptions,
}

/// `fsdp`.
#[derive(Args, Debug, Clone)]
pub(crate) struct FsdpArguments {
    #[command(flatten)]
    launch: LaunchOptions,
    #[command(flatten)]
    train: TrainOptions,
    #[command(flatten)]
    fsdp: FsdpOptions,
}

/// `tp`.
#[derive(Args, Debug, Clone)]
pub(crate) struct TpArguments {
    #[command(flatten)]
    launch: LaunchOptions,
    #[command(flatten)]
    train: TrainOptions,
    #[command(flatten)]
    tensor: TensorOptions,
}

/// `pp`.
#[derive(Args, Debug, Clone)]
pub(crate) struct PpArguments {
    #[command(flatten)]
    launch: LaunchOptions,
    #[command(flatten)]
    train: TrainOptions,
    #[command(flatten)]
    pipeline: PipelineOptions,
}

/// `3d`.
#[derive(Args, Debug, Clone)]
pub(crate) struct ThreeDArguments {
    /// Replicas that share the batch [default: 2, or as many as --ranks makes]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024), help_heading = "Mesh")]
    dp: Option<u32>,
    /// Ranks of the whole mesh, a process each [default: dp x tp x pp]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024), help_heading = "Ranks")]
    ranks: Option<u32>,
    /// Ranks that share each layer
    #[arg(long, default_value = "2", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64), help_heading = "Mesh")]
    tp: u32,
    /// Stages of the pipeline
    #[arg(long, default_value = "2", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64), help_heading = "Mesh")]
    pp: u32,
    #[command(flatten)]
    train: TrainOptions,
    #[command(flatten)]
    tensor: TensorOptions,
    #[command(flatten)]
    pipeline: PipelineOptions,
    #[command(flatten)]
    ddp: DdpOptions,
}

impl ThreeDArguments {
    /// Ranks that one replica takes.
    fn of_replica(&self) -> u32 {
        self.tp.saturating_mul(self.pp)
    }

    /// Ranks of the whole mesh.
    fn ranks(&self) -> Result<u32, Error> {
        let ranks = match (self.dp, self.ranks) {
            (None, Some(ranks)) => ranks,
            (dp, _) => dp.unwrap_or(2).saturating_mul(self.of_replica()),
        };
        self.check(self.ranks.unwrap_or(ranks))?;
        Ok(ranks)
    }

    /// Whether so many ranks make this mesh.
    fn check(&self, ranks: u32) -> Result<(), Error> {
        let (tp, pp) = (self.tp, self.pp);
        match self.dp {
            Some(dp) if dp.saturating_mul(self.of_replica()) != ranks => Err(Error::new(format!(
                "3d: --dp {dp} x --tp {tp} x --pp {pp} are {} ranks, but there are {ranks}",
                dp.saturating_mul(self.of_replica()),
            ))),
            None if !ranks.is_multiple_of(self.of_replica()) => Err(Error::new(format!(
                "3d: {ranks} ranks cannot be divided into --tp {tp} x --pp {pp}: choose a multiple of {}",
                self.of_replica()
            ))),
            _ => Ok(()),
        }
    }
}

/// A network divided over so many ranks along each layer and so many stages.
fn division(tensor: u32, stages: u32, tensors: &TensorOptions, pipeline: &PipelineOptions) -> Division {
    Division {
        tensor,
        stages,
        sequence: tensors.sequence_parallel,
        schedule: pipeline.pipeline,
        balance: pipeline.balance,
        microbatches: pipeline.microbatches.unwrap_or(2 * stages),
    }
}

impl Which {
    /// How many processes it runs as.
    pub(crate) fn ranks(&self) -> Result<u32, Error> {
        Ok(match self {
            Self::Single(_) | Self::Dp(_) | Self::Mp(_) => 1,
            Self::Ddp(arguments) => arguments.launch.ranks,
            Self::Fsdp(arguments) => arguments.launch.ranks,
            Self::Tp(arguments) => arguments.launch.ranks,
            Self::Pp(arguments) => arguments.launch.ranks,
            Self::ThreeD(arguments) => arguments.ranks()?,
            Self::P2p(options) => options.processes()?,
            Self::Collectives(options) => options.processes()?,
            Self::Ring(options) => options.processes()?,
            Self::Async(options) => options.processes()?,
            Self::Check(options) => options.ranks,
        })
    }

    /// Runs one rank of it and gives the exit status.
    pub(crate) fn run(&self, rank: &Rank, store: &Store) -> Result<i32, Error> {
        let way = |name, division, reduce| Way {
            name,
            division,
            reduce,
            graphs: false,
        };
        match self {
            Self::Single(arguments) => {
                let way = Way {
                    graphs: arguments.graph,
                    ..way("single", Division::default(), Reduce::None)
                };
                train::run(&arguments.train, &way, rank, store).map(|()| 0)
            }
            Self::Ddp(arguments) => {
                let reduce = Reduce::Buckets(arguments.ddp.clone());
                let way = Way {
                    graphs: arguments.graph,
                    ..way("ddp", Division::default(), reduce)
                };
                train::run(&arguments.train, &way, rank, store).map(|()| 0)
            }
            Self::Dp(arguments) => {
                let way = OneProcess::Replicas(arguments.ranks);
                train::run_one_process(&arguments.train, way, rank, store).map(|()| 0)
            }
            Self::Mp(arguments) => {
                let way = OneProcess::Layers(arguments.ranks);
                train::run_one_process(&arguments.train, way, rank, store).map(|()| 0)
            }
            Self::Fsdp(arguments) => {
                let way = way(
                    "fsdp",
                    Division::default(),
                    Reduce::Shards(arguments.fsdp.clone()),
                );
                train::run(&arguments.train, &way, rank, store).map(|()| 0)
            }
            Self::Tp(arguments) => {
                let division = Division {
                    tensor: rank.ranks,
                    sequence: arguments.tensor.sequence_parallel,
                    ..Division::default()
                };
                train::run(&arguments.train, &way("tp", division, Reduce::None), rank, store).map(|()| 0)
            }
            Self::Pp(arguments) => {
                let whole = TensorOptions::default();
                let division = division(1, rank.ranks, &whole, &arguments.pipeline);
                train::run(&arguments.train, &way("pp", division, Reduce::None), rank, store).map(|()| 0)
            }
            Self::ThreeD(arguments) => {
                arguments.check(rank.ranks)?;
                let division = division(arguments.tp, arguments.pp, &arguments.tensor, &arguments.pipeline);
                let way = way("3d", division, Reduce::Buckets(arguments.ddp.clone()));
                train::run(&arguments.train, &way, rank, store).map(|()| 0)
            }
            Self::P2p(options) => p2p::run(options, rank),
            Self::Collectives(options) => collectives::run(options, rank, store),
            Self::Ring(options) => ring::run(options, rank, store),
            Self::Async(options) => asynchronous::run(options, rank, store),
            Self::Check(options) => check::run(options, rank, store),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mesh_takes_as_many_replicas_as_its_ranks_make() {
        let ranks = |words: &[&str]| {
            let words = ["workload", "3d"].iter().chain(words);
            Cli::try_parse_from(words).expect("parses").workload.ranks()
        };
        assert_eq!(ranks(&[]).ok(), Some(8));
        assert_eq!(ranks(&["--ranks", "16"]).ok(), Some(16));
        assert_eq!(ranks(&["--dp", "1", "--tp", "3"]).ok(), Some(6));
        assert!(ranks(&["--ranks", "6"]).is_err());
        assert!(ranks(&["--ranks", "8", "--dp", "4"]).is_err());
    }

    #[test]
    fn the_options_are_consistent() {
        <Cli as clap::CommandFactory>::command().debug_assert();
    }
}
