//! What the training workloads can be asked for.

use clap::{Args, ValueEnum};

use crate::checkpoint::CheckpointOptions;
use crate::error::Error;
use crate::gpu::DataType;
use crate::loader::LoaderOptions;
use crate::model::Network;
use crate::precision::PrecisionOptions;
use crate::schedule::{Optimizer, OptimizerOptions};
use crate::train::{Balance, Schedule};
use crate::trouble::TroubleOptions;

/// A set of sizes with a name.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Preset {
    /// The textbook example: 6-4-2 features, 1024 samples, batch 32, learning rate 0.01
    Listing,
}

/// Which network is trained.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Model {
    /// A multilayer perceptron on a mixture of features
    #[default]
    Mlp,
    /// A small decoder on a synthetic language of known entropy
    Transformer,
}

/// The network. What is left out is sized for the device.
#[derive(Args, Debug, Clone, Default)]
#[command(next_help_heading = "Model")]
pub(crate) struct ModelOptions {
    /// Which network is trained
    #[arg(long, value_enum, default_value = "mlp")]
    pub(crate) model: Model,
    /// Linear layers of the perceptron, blocks of the transformer
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) layers: Option<u32>,
    /// Width of the hidden layers
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub(crate) hidden: Option<u32>,
    /// Features of the perceptron's input, hidden layers and output (instead of --layers and --hidden)
    #[arg(long, value_name = "A,B,...", value_delimiter = ',', conflicts_with_all = ["layers", "hidden"])]
    pub(crate) sizes: Option<Vec<usize>>,
    /// Attention heads of a transformer's block
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) heads: Option<u32>,
    /// Tokens of a transformer's sample
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=65536))]
    pub(crate) context: Option<u32>,
    /// Words of the synthetic language
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=65536))]
    pub(crate) vocabulary: Option<u32>,
}

/// Sizes and lengths of a training run, common to all ways to train.
#[derive(Args, Debug, Clone)]
pub(crate) struct TrainOptions {
    #[command(flatten)]
    pub(crate) model: ModelOptions,
    /// Training steps [default: 40]
    #[arg(long, value_name = "N", help_heading = "Training")]
    pub(crate) steps: Option<u64>,
    /// Passes through the data set (instead of --steps)
    #[arg(long, value_name = "N", conflicts_with = "steps", help_heading = "Training")]
    pub(crate) epochs: Option<u64>,
    /// Samples of a step over all ranks and microbatches
    #[arg(long, value_name = "N", help_heading = "Training")]
    pub(crate) batch: Option<usize>,
    /// Microbatches whose gradients are accumulated before each step of the optimizer
    #[arg(long, default_value = "1", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096), help_heading = "Training")]
    pub(crate) accumulate: u32,
    /// Keep few activations and recompute the others in the backward pass
    #[arg(long, help_heading = "Training")]
    pub(crate) checkpoint: bool,
    /// Samples in the data set
    #[arg(long, value_name = "N", help_heading = "Training")]
    pub(crate) samples: Option<usize>,
    #[command(flatten)]
    pub(crate) optimizer: OptimizerOptions,
    #[command(flatten)]
    pub(crate) precision: PrecisionOptions,
    #[command(flatten)]
    pub(crate) loader: LoaderOptions,
    #[command(flatten)]
    pub(crate) checkpoints: CheckpointOptions,
    /// Seed of parameters, data and sampling
    #[arg(long, default_value = "1", value_name = "N", help_heading = "Training")]
    pub(crate) seed: u64,
    /// Sizes with a name
    #[arg(long, value_enum, help_heading = "Model")]
    pub(crate) preset: Option<Preset>,
    /// Print the loss over all ranks after each step (waits for it)
    #[arg(long, help_heading = "Output")]
    pub(crate) print_losses: bool,
    #[command(flatten)]
    pub(crate) trouble: TroubleOptions,
}

/// What gradients are compressed to on the wire.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compression {
    /// Brain float, half the bytes of f32
    Bf16,
}

/// How data parallel training reduces its gradients.
#[derive(Args, Debug, Clone)]
#[command(next_help_heading = "Data parallel")]
pub(crate) struct DdpOptions {
    /// Gradients of a bucket in MB
    #[arg(long, default_value = "1", value_name = "MB", value_parser = bucket_mb)]
    pub(crate) bucket_mb: f64,
    /// All-reduce after the backward pass instead of behind it
    #[arg(long)]
    pub(crate) no_overlap: bool,
    /// After the first step lay buckets out anew, in the order in which gradients came
    #[arg(long)]
    pub(crate) static_graph: bool,
    /// Copy gradients into buckets and back instead of reducing them where they are
    #[arg(long)]
    pub(crate) no_bucket_view: bool,
    /// Send gradients in a smaller type
    #[arg(long, value_enum, value_name = "TYPE")]
    pub(crate) compress: Option<Compression>,
    /// Reduce each gradient's norm too, and print the greatest at the end
    #[arg(long)]
    pub(crate) grad_monitor: bool,
    /// In step STEP rank RANK skips its first all-reduce, calls another collective, or one of another size
    #[arg(long, hide = true, value_name = "RANK:STEP:skip|other|size", value_parser = desync)]
    pub(crate) desync: Option<Desync>,
}

/// How fully sharded training gathers its parameters.
#[derive(Args, Debug, Clone)]
#[command(next_help_heading = "Fully sharded")]
pub(crate) struct FsdpOptions {
    /// Units whose parameters are gathered ahead of the one that computes
    #[arg(long, default_value = "1", value_name = "N", value_parser = clap::value_parser!(u32).range(0..=2))]
    pub(crate) prefetch: u32,
}

/// How layers are divided over ranks.
#[derive(Args, Debug, Clone, Default)]
#[command(next_help_heading = "Tensor parallel")]
pub(crate) struct TensorOptions {
    /// Between divided layers each rank has its rows only: all-gather and reduce-scatter instead of all-reduce
    #[arg(long)]
    pub(crate) sequence_parallel: bool,
}

/// How a pipeline works.
#[derive(Args, Debug, Clone)]
#[command(next_help_heading = "Pipeline parallel")]
pub(crate) struct PipelineOptions {
    /// In which order stages take the microbatches
    #[arg(long, value_enum, default_value = "1f1b", value_name = "SCHEDULE")]
    pub(crate) pipeline: Schedule,
    /// Microbatches of a step [default: twice the stages]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) microbatches: Option<u32>,
    /// What stages are made even by
    #[arg(long, value_enum, default_value = "layers", value_name = "BY")]
    pub(crate) balance: Balance,
}

/// What a rank does instead of its all-reduce.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DesyncWhat {
    Skip,
    Other,
    Size,
}

/// A collective that goes wrong on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Desync {
    rank: u32,
    step: u64,
    pub(crate) what: DesyncWhat,
}

impl Desync {
    /// Whether it is this rank's turn in this step.
    pub(crate) fn is_at(&self, rank: u32, step: u64) -> bool {
        (self.rank, self.step) == (rank, step)
    }
}

fn desync(text: &str) -> Result<Desync, String> {
    let parts: Vec<&str> = text.split(':').collect();
    let parsed = || {
        let [rank, step, what] = parts.as_slice() else {
            return None;
        };
        Some(Desync {
            rank: rank.parse().ok()?,
            step: step.parse().ok()?,
            what: match *what {
                "skip" => DesyncWhat::Skip,
                "other" => DesyncWhat::Other,
                "size" => DesyncWhat::Size,
                _ => return None,
            },
        })
    };
    parsed().ok_or_else(|| "expected RANK:STEP:skip, RANK:STEP:other or RANK:STEP:size".to_owned())
}

/// A rate at which plain gradient descent neither crawls nor runs away, for a perceptron of these sizes.
///
/// It runs away at 2 by the curvature of the loss. Of the mean square over n outputs that is about 2/n times the sum of
/// the layers' largest second moments of their input: 1/3 of the features (uniform from -1 to 1), and of what comes out
/// of ReLU its mean's square, 2/3 / 2 pi, for each column besides. Narrow layers scatter about that: (1 + 2 / the root
/// of their columns) squared is what they may have more.
fn stable_rate(sizes: &[usize]) -> f32 {
    let [features, hidden @ .., outputs] = sizes else {
        return MOST_RATE;
    };
    let spread = 1.0 / 3.0;
    let mean_square = 2.0 * spread / std::f32::consts::TAU;
    let scatter = |columns: usize| (1.0 + 2.0 / (columns as f32).sqrt()).powi(2);
    let moments: f32 = hidden
        .iter()
        .map(|&columns| (spread + mean_square * columns as f32) * scatter(columns))
        .sum::<f32>()
        + spread * scatter(*features);
    (*outputs as f32 / moments).min(MOST_RATE)
}

fn bucket_mb(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|size: &f64| size.is_finite() && *size > 0.0)
        .ok_or_else(|| "a bucket holds more than 0 MB: gradients go into it until it is full".to_owned())
}

/// Into how many parts a way to train divides things: what nobody chose is chosen to fit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Divided {
    /// The network's units, at least so many: the stages of a pipeline take one each.
    pub(crate) units: usize,
    /// The columns or heads of a layer.
    pub(crate) columns: usize,
    /// The samples of a step.
    pub(crate) samples: usize,
}

impl Default for Divided {
    fn default() -> Self {
        Self {
            units: 1,
            columns: 1,
            samples: 1,
        }
    }
}

/// Sizes, all known.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Sizes {
    pub(crate) architecture: Architecture,
    pub(crate) batch: usize,
    pub(crate) samples: usize,
    pub(crate) learning_rate: f32,
    pub(crate) steps: u64,
}

/// A network's sizes.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Architecture {
    /// Features of input, hidden layers and output.
    Perceptron(Vec<usize>),
    Transformer {
        vocabulary: usize,
        context: usize,
        width: usize,
        heads: usize,
        blocks: usize,
    },
}

impl Architecture {
    /// The network of these sizes.
    pub(crate) fn network(&self) -> Network {
        match self {
            Self::Perceptron(sizes) => Network::perceptron(sizes),
            Self::Transformer {
                vocabulary,
                context,
                width,
                heads,
                blocks,
            } => Network::transformer(*vocabulary, *context, *width, *heads, *blocks),
        }
    }

    /// In words.
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Perceptron(sizes) => format!("layers {sizes:?}"),
            Self::Transformer {
                vocabulary,
                context,
                width,
                heads,
                blocks,
            } => format!(
                "transformer of {blocks} blocks, width {width}, {heads} heads, context {context}, vocabulary {vocabulary}"
            ),
        }
    }
}

/// The highest rate that is chosen for a perceptron.
const MOST_RATE: f32 = 4.0;

impl TrainOptions {
    /// Fills in what was left out: from the preset, else for the device and so that it can be divided as it has to be.
    pub(crate) fn sizes(&self, device_name: &str, divided: Divided) -> Result<Sizes, Error> {
        let simulated = device_name.starts_with("Simulated");
        let or = |value: Option<u32>, default: usize| value.map_or(default, |value| value as usize);
        let options = &self.model;
        let (architecture, batch, samples, rate): (_, usize, usize, _) = match options.model {
            Model::Mlp => {
                let (sizes, batch, samples, rate) = if self.preset == Some(Preset::Listing) {
                    (vec![6, 4, 2], 32, 1024, Some(0.01))
                } else if simulated {
                    (vec![512, 1024, 512], 256, 4096, None)
                } else {
                    (vec![4096, 16384, 4096], 4096, 16384, None)
                };
                let sizes = match (&options.sizes, options.layers, options.hidden) {
                    (Some(sizes), ..) => sizes.clone(),
                    (None, None, None) if self.preset.is_some() => sizes,
                    (None, layers, hidden) => {
                        let hidden = or(hidden, sizes[1].next_multiple_of(divided.columns));
                        let inner = vec![hidden; or(layers, (sizes.len() - 1).max(divided.units)) - 1];
                        [&sizes[..1], &inner, &sizes[sizes.len() - 1..]].concat()
                    }
                };
                let rate = rate.unwrap_or_else(|| stable_rate(&sizes));
                (Architecture::Perceptron(sizes), batch, samples, rate)
            }
            Model::Transformer => {
                let [vocabulary, context, width, heads, blocks]: [usize; 5] = if simulated {
                    [64, 32, 128, 4, 2]
                } else {
                    [4096, 512, 1024, 16, 12]
                };
                let heads = or(options.heads, heads.next_multiple_of(divided.columns));
                let architecture = Architecture::Transformer {
                    vocabulary: or(options.vocabulary, vocabulary),
                    context: or(options.context, context),
                    width: or(options.hidden, width.next_multiple_of(heads)),
                    heads,
                    // Embedding and head are units too.
                    blocks: or(options.layers, blocks.max(divided.units.saturating_sub(2))),
                };
                (architecture, if simulated { 32 } else { 64 }, 4096, 0.03)
            }
        };
        if let Architecture::Perceptron(sizes) = &architecture
            && (sizes.len() < 2 || sizes.contains(&0))
        {
            return Err(Error::new("--sizes: at least two numbers, all above 0"));
        }
        let batch = self.batch.unwrap_or(batch.next_multiple_of(divided.samples));
        let samples = self.samples.unwrap_or(samples.max(batch));
        if batch == 0 {
            return Err(Error::new("--batch 0: at least one sample a step"));
        }
        if samples < batch {
            return Err(Error::new(format!(
                "--samples {samples}: fewer than a batch of {batch}"
            )));
        }
        let steps = match self.epochs {
            Some(epochs) => epochs.saturating_mul((samples / batch) as u64),
            None => self.steps.unwrap_or(40),
        };
        Ok(Sizes {
            architecture,
            batch,
            samples,
            learning_rate: self
                .optimizer
                .learning_rate
                .unwrap_or(match self.optimizer.optimizer {
                    Optimizer::Sgd => rate,
                    Optimizer::Adam => 0.001,
                }),
            steps,
        })
    }

    /// The type that is computed in.
    pub(crate) fn data_type(&self) -> DataType {
        self.precision.dtype
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Which};

    fn single(words: &[&str]) -> TrainOptions {
        let words = ["workload", "single"].iter().chain(words);
        match Cli::try_parse_from(words).expect("parses").workload {
            Which::Single(options) => options.train,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_preset_gives_way_to_what_is_typed() {
        let sizes = single(&["--preset", "listing", "--batch", "64"])
            .sizes("any", Divided::default())
            .expect("sizes");
        assert_eq!(sizes.architecture, Architecture::Perceptron(vec![6, 4, 2]));
        assert_eq!((sizes.batch, sizes.samples), (64, 1024));
    }

    #[test]
    fn layers_and_hidden_make_sizes() {
        let sizes = single(&["--layers", "4", "--hidden", "8", "--preset", "listing"])
            .sizes("any", Divided::default())
            .expect("sizes");
        assert_eq!(sizes.architecture, Architecture::Perceptron(vec![6, 8, 8, 8, 2]));
    }

    #[test]
    fn what_nobody_chose_can_be_divided_as_it_has_to_be() {
        for words in [&[][..], &["--layers", "9"], &["--model", "transformer"]] {
            for parts in 1..=9 {
                let divided = Divided {
                    units: parts,
                    columns: parts,
                    samples: parts,
                };
                let sizes = single(words).sizes("Simulated", divided).expect("sizes");
                assert!(sizes.batch.is_multiple_of(parts) && sizes.samples >= sizes.batch);
                let network = sizes.architecture.network();
                assert!(network.units.len() >= parts, "{sizes:?}");
                assert!(
                    network.check(parts, false, network.rows_per_sample).is_ok(),
                    "{sizes:?}"
                );
            }
        }
        let five = Divided {
            units: 5,
            ..Divided::default()
        };
        let units = |words: &[&str]| {
            let sizes = single(words).sizes("Simulated", five).expect("sizes");
            sizes.architecture.network().units.len()
        };
        assert_eq!(units(&["--layers", "3"]), 3, "what was chosen stays");
        assert_eq!(units(&["--preset", "listing"]), 2);
    }

    #[test]
    fn the_rate_goes_by_the_sizes() {
        let rate = |sizes: &[&str]| {
            single(sizes)
                .sizes("Simulated", Divided::default())
                .expect("sizes")
                .learning_rate
        };
        assert!((rate(&[]) - 4.0).abs() < 1e-6);
        // What runs away at 2 and at 4.
        assert!(rate(&["--sizes", "1,1,1"]) < 0.5);
        assert!(rate(&["--sizes", "7,13,5,9,3"]) < 1.0);
        assert!(rate(&["--sizes", "128,512,64"]) < 1.5);
        assert!(rate(&["--layers", "3"]) < 2.5);
        assert!((rate(&["--sizes", "1,1,1", "--learning-rate", "3"]) - 3.0).abs() < 1e-6);
        assert!((rate(&["--preset", "listing"]) - 0.01).abs() < 1e-6);
    }

    #[test]
    fn epochs_are_steps_through_the_data() {
        let sizes = single(&["--epochs", "3", "--samples", "100", "--batch", "32"])
            .sizes("any", Divided::default())
            .expect("sizes");
        assert_eq!(sizes.steps, 9);
    }

    #[test]
    fn a_bucket_of_nothing_is_refused() {
        for size in ["0", "-1", "nan", "x"] {
            assert!(Cli::try_parse_from(["workload", "ddp", "--bucket-mb", size]).is_err());
        }
    }

    #[test]
    fn a_desync_is_parsed() {
        let desync = desync("2:7:other").expect("parses");
        assert!(desync.is_at(2, 7) && !desync.is_at(2, 6) && desync.what == DesyncWhat::Other);
    }
}
