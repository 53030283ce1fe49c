//! What the workloads can be asked for.

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::check::CheckOptions;
use crate::error::Error;
use crate::puzzlers::asynchronous::AsyncOptions;
use crate::puzzlers::collectives::CollectivesOptions;
use crate::puzzlers::p2p::P2pOptions;
use crate::puzzlers::ring::RingOptions;

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
    /// A multilayer perceptron on one GPU
    #[command(after_help = "Example:\n  gputrace workload single --preset listing --print-losses")]
    Single(TrainOptions),
    /// Data parallel: each rank a share of the batch, gradients all-reduced in buckets behind the backward pass
    #[command(
        after_help = "Examples:\n  gputrace workload ddp --ranks 4 --bucket-mb 1\n  gputrace workload ddp --no-overlap"
    )]
    Ddp(DdpOptions),
    /// Every collective over sizes, in nccl-tests' columns; which way to all-reduce wins where
    #[command(
        after_help = "Examples:\n  gputrace workload collectives --ranks 4 --max-bytes 4M\n  gputrace workload collectives --operation all_reduce,all_gather --dtype bfloat16"
    )]
    Collectives(CollectivesOptions),
    /// One GPU copies tensors to others, a stream for each: times beside the links they took
    #[command(
        after_help = "Examples:\n  gputrace workload p2p --ranks 4 --sequential\n  gputrace workload p2p --no-peer-access"
    )]
    P2p(P2pOptions),
    /// Check every kernel's gradients and every collective's result on this machine
    #[command(
        after_help = "Examples:\n  gputrace workload check\n  gputrace workload check --ranks 4 --json"
    )]
    Check(CheckOptions),
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
}

/// A set of sizes with a name.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Preset {
    /// The textbook example: 6-4-2 features, 1024 samples, batch 32, learning rate 0.01
    Listing,
}

/// Sizes and lengths of a training run. What is left out is sized for the device.
#[derive(Args, Debug, Clone)]
pub(crate) struct TrainOptions {
    /// Training steps [default: 40]
    #[arg(long, value_name = "N")]
    pub(crate) steps: Option<u64>,
    /// Features of input, hidden layers and output
    #[arg(long, value_name = "A,B,...", value_delimiter = ',')]
    pub(crate) sizes: Option<Vec<usize>>,
    /// Samples of a step over all ranks
    #[arg(long, value_name = "N")]
    pub(crate) batch: Option<usize>,
    /// Samples in the data set
    #[arg(long, value_name = "N")]
    pub(crate) samples: Option<usize>,
    /// Learning rate of SGD
    #[arg(long, value_name = "RATE")]
    pub(crate) learning_rate: Option<f32>,
    /// Seed of parameters, data and sampling
    #[arg(long, default_value = "1", value_name = "N")]
    pub(crate) seed: u64,
    /// Sizes with a name
    #[arg(long, value_enum)]
    pub(crate) preset: Option<Preset>,
    /// Print the loss over all ranks after each step (waits for it)
    #[arg(long)]
    pub(crate) print_losses: bool,
}

/// A run on several ranks.
#[derive(Args, Debug, Clone)]
pub(crate) struct DdpOptions {
    #[command(flatten)]
    pub(crate) train: TrainOptions,
    /// Ranks, a process each
    #[arg(long, default_value = "2", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) ranks: u32,
    /// Gradients of a bucket in MB; 0 is a bucket a layer
    #[arg(long, default_value = "1", value_name = "MB")]
    pub(crate) bucket_mb: f64,
    /// All-reduce after the backward pass instead of behind it
    #[arg(long)]
    pub(crate) no_overlap: bool,
}

/// Sizes, all known.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Sizes {
    pub(crate) layers: Vec<usize>,
    pub(crate) batch: usize,
    pub(crate) samples: usize,
    pub(crate) learning_rate: f32,
    pub(crate) steps: u64,
}

impl TrainOptions {
    /// Fills in what was left out: from the preset, else for the device.
    pub(crate) fn sizes(&self, device_name: &str, ranks: u32) -> Result<Sizes, Error> {
        let (layers, batch, samples, rate) = if self.preset == Some(Preset::Listing) {
            (vec![6, 4, 2], 32, 1024, 0.01)
        } else if device_name.starts_with("Simulated") {
            (vec![512, 1024, 512], 256, 4096, 4.0)
        } else {
            (vec![4096, 16384, 4096], 4096, 16384, 4.0)
        };
        let sizes = Sizes {
            layers: self.sizes.clone().unwrap_or(layers),
            batch: self.batch.unwrap_or(batch),
            samples: self.samples.unwrap_or(samples),
            learning_rate: self.learning_rate.unwrap_or(rate),
            steps: self.steps.unwrap_or(40),
        };
        if sizes.layers.len() < 2 || sizes.layers.contains(&0) {
            return Err(Error::new("--sizes: at least two numbers, all above 0"));
        }
        if sizes.batch == 0 || !sizes.batch.is_multiple_of(ranks as usize) {
            return Err(Error::new(format!(
                "--batch {}: must divide evenly over {ranks} ranks",
                sizes.batch
            )));
        }
        if sizes.samples < sizes.batch {
            return Err(Error::new(format!(
                "--samples {}: fewer than a batch of {}",
                sizes.samples, sizes.batch
            )));
        }
        Ok(sizes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_options_are_consistent() {
        <Cli as clap::CommandFactory>::command().debug_assert();
    }

    #[test]
    fn a_preset_gives_way_to_what_is_typed() {
        let cli = Cli::try_parse_from(["workload", "single", "--preset", "listing", "--batch", "64"])
            .expect("parses");
        let Which::Single(options) = cli.workload else {
            panic!("single")
        };
        let sizes = options.sizes("any", 1).expect("sizes");
        assert_eq!(
            (sizes.layers.as_slice(), sizes.batch, sizes.samples),
            (&[6, 4, 2][..], 64, 1024)
        );
    }

    #[test]
    fn a_batch_must_divide() {
        let cli = Cli::try_parse_from(["workload", "ddp", "--batch", "10"]).expect("parses");
        let Which::Ddp(options) = cli.workload else {
            panic!("ddp")
        };
        assert!(options.train.sizes("any", 3).is_err());
    }
}
