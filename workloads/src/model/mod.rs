//! Networks as lists of units, and what every way to train needs to know of them.
//!
//! A unit is what is put on a stage, gathered, prefetched or recomputed as one: a linear layer of the perceptron; the
//! embedding, a block and the head of the transformer. It does not own its parameters: whoever trains says where they
//! are, so that the same code runs on replicated, sharded and gathered ones.

mod arena;
mod attention;
mod block;
mod check;
mod dense;
mod edges;
mod embedding;
mod head;
mod layout;
mod linear;
mod tensor_parallel;

use std::ops::Range;

pub(crate) use arena::Arena;
use block::Block;
use embedding::Embedding;
use head::Head;
pub(crate) use layout::{Layout, Piece, Shard, Split, Start, Tensor};
pub(crate) use linear::{Linear, Role};
pub(crate) use tensor_parallel::TensorParallel;

use crate::data::Random;
use crate::error::Error;
use crate::gpu::{DataType, Gpu};

/// What one pass through a unit works on. Addresses are of device memory; all work goes to the compute stream.
#[derive(Clone, Copy)]
pub(crate) struct Pass<'a> {
    pub(crate) gpu: &'a Gpu,
    /// Type of activations, and of parameters and gradients while computing.
    pub(crate) data_type: DataType,
    /// Rows of the microbatch: samples (perceptron) or tokens (transformer), before any sequence parallelism.
    pub(crate) rows: usize,
    /// The unit's flat parameters.
    pub(crate) parameters: u64,
    pub(crate) input: u64,
    /// Its output: written by forward, read by backward.
    pub(crate) output: u64,
    /// Memory that forward fills for backward ([`Unit::saved_bytes`]).
    pub(crate) saved: u64,
    /// Memory for the length of one call ([`Unit::scratch_bytes`]).
    pub(crate) scratch: u64,
}

/// What the backward pass adds to a [`Pass`].
#[derive(Clone, Copy)]
pub(crate) struct Gradients {
    /// Where the unit's flat gradients go (overwritten, in the data type of the pass).
    pub(crate) parameters: u64,
    /// The loss's gradient by the output. May be overwritten.
    pub(crate) output: u64,
    /// Where the loss's gradient by the input goes; `None` where nobody needs it.
    pub(crate) input: Option<u64>,
}

/// One part of a network, on one rank.
pub(crate) trait Unit {
    /// Where its parameters are.
    fn layout(&self) -> &Layout;
    /// Bytes of its output for `rows` rows of the microbatch, on this rank.
    fn output_bytes(&self, rows: usize, data_type: DataType) -> usize;
    /// Bytes that its input has on this rank: the output of the unit before.
    fn input_bytes(&self, rows: usize, data_type: DataType) -> usize;
    /// Bytes that forward keeps for backward, beside input and output.
    fn saved_bytes(&self, rows: usize, data_type: DataType) -> usize;
    /// Bytes that either pass needs while it runs.
    fn scratch_bytes(&self, rows: usize, data_type: DataType) -> usize;
    /// Computes the output.
    fn forward(&self, pass: &Pass<'_>) -> Result<(), Error>;
    /// Computes gradients. `ready` is told of each range of the unit's elements whose gradients are on their way on the
    /// compute stream; together the ranges are all elements, each once.
    fn backward(
        &self,
        pass: &Pass<'_>,
        gradients: &Gradients,
        ready: &mut dyn FnMut(Range<usize>) -> Result<(), Error>,
    ) -> Result<(), Error>;
}

/// A unit before it is on any rank.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum UnitSpec {
    /// A linear layer with bias, and ReLU behind it where asked.
    Linear {
        inputs: usize,
        outputs: usize,
        relu: bool,
        role: Role,
    },
    /// Token numbers to rows of a table, and their positions' to rows of another.
    Embedding {
        vocabulary: usize,
        context: usize,
        width: usize,
    },
    /// Attention and a feed-forward part, one of so many blocks.
    Block {
        width: usize,
        heads: usize,
        context: usize,
        blocks: usize,
    },
    /// A layer norm and a linear layer to the logits.
    Head { width: usize, vocabulary: usize },
}

/// Standard deviation that the transformer's matrices begin with, as GPT-2's.
const DEVIATION: f32 = 0.02;

impl UnitSpec {
    /// Its tensors, unsharded.
    pub(crate) fn tensors(&self) -> Vec<Tensor> {
        match *self {
            Self::Linear {
                inputs,
                outputs,
                relu,
                role,
            } => linear::tensors([inputs, outputs], relu, role),
            Self::Embedding {
                vocabulary,
                context,
                width,
            } => embedding::tensors(vocabulary, context, width),
            Self::Block { width, blocks, .. } => block::tensors(width, blocks),
            Self::Head { width, vocabulary } => head::tensors(width, vocabulary),
        }
    }

    /// The parameters that it begins with, unsharded: the same on every rank of every way to train.
    pub(crate) fn initial(&self, index: usize, seed: u64) -> Vec<f32> {
        let mut random = Random::new(seed ^ (index as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut values = Vec::new();
        for tensor in self.tensors() {
            let count = tensor.rows * tensor.columns;
            values.extend((0..count).map(|_| match tensor.start {
                Start::Uniform(limit) => random.symmetric(limit),
                Start::Normal(deviation) => random.normal() * deviation,
                Start::Constant(value) => value,
            }));
        }
        values
    }

    /// The unit on a rank. Tensor parallelism is over `parallel`'s ranks where there is one.
    pub(crate) fn build(&self, parallel: Option<&TensorParallel>) -> Box<dyn Unit> {
        let parallel = parallel.cloned();
        match *self {
            Self::Linear {
                inputs,
                outputs,
                relu,
                role,
            } => Box::new(Linear::new([inputs, outputs], relu, role, parallel)),
            Self::Embedding {
                vocabulary,
                context,
                width,
            } => Box::new(Embedding::new([vocabulary, context, width], parallel)),
            Self::Block {
                width,
                heads,
                context,
                blocks,
            } => Box::new(Block::new([width, heads, context], blocks, parallel)),
            Self::Head { width, vocabulary } => Box::new(Head::new([width, vocabulary], parallel)),
        }
    }
}

/// How far a prediction is off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    /// Mean squared error against f32 targets.
    MeanSquared,
    /// Cross entropy in nats against token numbers (i32).
    CrossEntropy,
}

/// A network before it is on any rank.
#[derive(Clone, Debug)]
pub(crate) struct Network {
    pub(crate) units: Vec<UnitSpec>,
    pub(crate) loss: Loss,
    /// Rows that one sample has: 1, or the context's length.
    pub(crate) rows_per_sample: usize,
    /// Columns of the last unit's output: targets or vocabulary.
    pub(crate) outputs: usize,
}

impl Network {
    /// A perceptron of linear layers with ReLU between them. With tensor parallelism they pair up: columns, then rows.
    pub(crate) fn perceptron(sizes: &[usize]) -> Self {
        let layers = sizes.len() - 1;
        let units = (0..layers)
            .map(|index| UnitSpec::Linear {
                inputs: sizes[index],
                outputs: sizes[index + 1],
                relu: index + 1 < layers,
                role: match index % 2 {
                    1 => Role::Row,
                    _ if index + 1 < layers => Role::Column { first: index == 0 },
                    _ => Role::Whole,
                },
            })
            .collect();
        Self {
            units,
            loss: Loss::MeanSquared,
            rows_per_sample: 1,
            outputs: sizes[layers],
        }
    }

    /// A decoder: an embedding, blocks, and a head. Rows are tokens; samples are `context` of them.
    pub(crate) fn transformer(
        vocabulary: usize,
        context: usize,
        width: usize,
        heads: usize,
        blocks: usize,
    ) -> Self {
        let mut units = vec![UnitSpec::Embedding {
            vocabulary,
            context,
            width,
        }];
        let block = UnitSpec::Block {
            width,
            heads,
            context,
            blocks,
        };
        units.extend(std::iter::repeat_n(block, blocks));
        units.push(UnitSpec::Head { width, vocabulary });
        Self {
            units,
            loss: Loss::CrossEntropy,
            rows_per_sample: context,
            outputs: vocabulary,
        }
    }

    /// Where each unit begins in the unsharded vector of all parameters, and its end behind the last.
    pub(crate) fn starts(&self) -> Vec<usize> {
        let mut starts = vec![0];
        for unit in &self.units {
            let elements: usize = unit.tensors().iter().map(|t| t.rows * t.columns).sum();
            starts.push(starts[starts.len() - 1] + elements);
        }
        starts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transformer_has_the_parameters_that_it_should() {
        let (vocabulary, context, width, blocks) = (50, 16, 24, 3);
        let network = Network::transformer(vocabulary, context, width, 4, blocks);
        // A block: 3 + 1 + 4 + 4 squares of matrices, their biases (3 + 1 + 4 + 1), and two norms' pairs.
        let block = 12 * width * width + 13 * width;
        let head = 2 * width + width * vocabulary + vocabulary;
        let expected = (vocabulary + context) * width + blocks * block + head;
        assert_eq!(network.starts().last(), Some(&expected));
        assert_eq!(network.starts().len(), blocks + 3);
    }

    #[test]
    fn ranks_share_a_block_and_what_is_whole_is_partial_in_sequence_parallelism() {
        let tensors = block::tensors(24, 2);
        let count: usize = tensors.iter().map(|t| t.rows * t.columns).sum();
        for ranks in [1, 2, 4] {
            let mut seen = vec![0; count];
            for rank in 0..ranks {
                let layout = Layout::new(&tensors, Shard { rank, ranks });
                for piece in &layout.pieces {
                    seen[piece.whole..piece.whole + piece.count]
                        .iter_mut()
                        .for_each(|count| *count += 1);
                }
            }
            let mut start = 0;
            for tensor in &tensors {
                let elements = tensor.rows * tensor.columns;
                let expected = if tensor.partial_in_sequence_parallel {
                    ranks
                } else {
                    1
                };
                assert!(
                    seen[start..start + elements]
                        .iter()
                        .all(|&count| count == expected),
                    "{} over {ranks} ranks",
                    tensor.name
                );
                start += elements;
            }
        }
    }

    #[test]
    fn initial_values_are_as_the_tensors_say() {
        let unit = UnitSpec::Block {
            width: 64,
            heads: 4,
            context: 8,
            blocks: 2,
        };
        let values = unit.initial(3, 7);
        assert_eq!(values, unit.initial(3, 7));
        assert_ne!(values, unit.initial(4, 7), "units begin differently");
        let layout = Layout::new(&unit.tensors(), Shard::WHOLE);
        let deviation = |name: &str| {
            let place = layout.places.iter().find(|place| place.name == name);
            let values = &values[place.expect("a tensor of this name").elements.clone()];
            (values.iter().map(|v| v * v).sum::<f32>() / values.len() as f32).sqrt()
        };
        assert!((deviation("qkv") / 0.02 - 1.0).abs() < 0.05);
        // Four additions to the residual stream: half as large each.
        assert!((deviation("projection") / 0.01 - 1.0).abs() < 0.05);
        assert!((deviation("contract") / 0.01 - 1.0).abs() < 0.05);
        assert_eq!(deviation("norm1_gamma").to_bits(), 1f32.to_bits());
        assert_eq!(deviation("qkv_bias").to_bits(), 0f32.to_bits());
    }
}
