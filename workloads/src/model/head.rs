//! The transformer's head: a layer norm, then a linear layer to the logits of each word.

use std::ops::Range;

use super::dense::Dense;
use super::edges::Edges;
use super::{Arena, DEVIATION, Gradients, Layout, Pass, Split, Start, Tensor, TensorParallel, Unit};
use crate::error::Error;
use crate::gpu::DataType;

const GAMMA: usize = 0;
const BETA: usize = 1;
const WEIGHTS: usize = 2;
const BIAS: usize = 3;

/// Every rank of tensor parallelism has all of them.
pub(super) fn tensors(width: usize, vocabulary: usize) -> Vec<Tensor> {
    let tensor = |name, rows, columns, start| Tensor {
        name,
        rows,
        columns,
        start,
        split: Split::Whole,
        partial_in_sequence_parallel: true,
    };
    vec![
        tensor("norm_gamma", 1, width, Start::Constant(1.0)),
        tensor("norm_beta", 1, width, Start::Constant(0.0)),
        tensor("weights", width, vocabulary, Start::Normal(DEVIATION)),
        tensor("bias", 1, vocabulary, Start::Constant(0.0)),
    ]
}

/// The head on one rank, for the rank's rows.
pub(crate) struct Head {
    linear: Dense,
    edges: Edges,
    layout: Layout,
}

/// What forward keeps.
struct Saved {
    mean: u64,
    deviation: u64,
    norm: u64,
}

impl Head {
    pub(super) fn new([width, vocabulary]: [usize; 2], parallel: Option<TensorParallel>) -> Self {
        let edges = Edges::new(parallel);
        let layout = Layout::new(&tensors(width, vocabulary), edges.shard());
        Self {
            linear: Dense {
                inputs: width,
                outputs: vocabulary,
            },
            edges,
            layout,
        }
    }

    fn saved(&self, arena: &mut Arena, rows: usize, data_type: DataType) -> Saved {
        let own = self.edges.own_rows(rows).len();
        Saved {
            mean: arena.take(own * size_of::<f32>()),
            deviation: arena.take(own * size_of::<f32>()),
            norm: arena.take(own * self.linear.inputs * data_type.bytes()),
        }
    }
}

impl Unit for Head {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn input_bytes(&self, rows: usize, data_type: DataType) -> usize {
        self.edges.own_rows(rows).len() * self.linear.inputs * data_type.bytes()
    }

    fn output_bytes(&self, rows: usize, data_type: DataType) -> usize {
        self.edges.own_rows(rows).len() * self.linear.outputs * data_type.bytes()
    }

    fn saved_bytes(&self, rows: usize, data_type: DataType) -> usize {
        let mut arena = Arena::at(0);
        self.saved(&mut arena, rows, data_type);
        arena.taken()
    }

    fn scratch_bytes(&self, rows: usize, data_type: DataType) -> usize {
        // The gradient by the layer norm's output.
        self.input_bytes(rows, data_type)
    }

    fn forward(&self, pass: &Pass<'_>) -> Result<(), Error> {
        let (ty, queue) = (pass.data_type, pass.gpu.work());
        let place = |index| self.layout.address(pass.parameters, index, ty.bytes());
        let saved = self.saved(&mut Arena::at(pass.saved), pass.rows, ty);
        let rows = self.edges.own_rows(pass.rows).len();
        queue.layer_norm(
            ty,
            saved.norm,
            saved.mean,
            saved.deviation,
            pass.input,
            place(GAMMA),
            place(BETA),
            rows,
            self.linear.inputs,
        )?;
        self.linear
            .forward(pass, rows, [saved.norm, place(WEIGHTS), pass.output])?;
        queue.add_bias(ty, pass.output, place(BIAS), rows, self.linear.outputs, false)
    }

    fn backward(
        &self,
        pass: &Pass<'_>,
        gradients: &Gradients,
        ready: &mut dyn FnMut(Range<usize>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let (ty, queue) = (pass.data_type, pass.gpu.work());
        let place = |index| self.layout.address(pass.parameters, index, ty.bytes());
        let gradient = |index| self.layout.address(gradients.parameters, index, ty.bytes());
        let saved = self.saved(&mut Arena::at(pass.saved), pass.rows, ty);
        let rows = self.edges.own_rows(pass.rows).len();
        let (width, vocabulary) = (self.linear.inputs, self.linear.outputs);

        queue.bias_gradient(ty, gradient(BIAS), gradients.output, rows, vocabulary)?;
        ready(self.layout.places[BIAS].elements.clone())?;
        self.linear
            .weights_gradient(pass, rows, [saved.norm, gradients.output, gradient(WEIGHTS)])?;
        ready(self.layout.places[WEIGHTS].elements.clone())?;

        let delta = pass.scratch;
        self.linear
            .input_gradient(pass, rows, [gradients.output, place(WEIGHTS), delta])?;
        queue.layer_norm_gradients(
            ty,
            gradient(GAMMA),
            gradient(BETA),
            delta,
            pass.input,
            saved.mean,
            saved.deviation,
            rows,
            width,
        )?;
        ready(0..self.layout.places[BETA].elements.end)?;
        let Some(to) = gradients.input else {
            return Ok(());
        };
        queue.layer_norm_backward(
            ty,
            to,
            delta,
            pass.input,
            saved.mean,
            saved.deviation,
            place(GAMMA),
            rows,
            width,
        )
    }
}
