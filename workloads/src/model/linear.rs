//! A linear layer with bias, and ReLU behind it where asked: whole, or divided by columns or rows over the ranks of
//! tensor parallelism.
//!
//! A layer divided by columns gives each rank its columns of the output, ReLU and all; the layer behind it, divided by
//! rows, takes them as they are, and one sum over the ranks completes its output. With sequence parallelism that sum
//! leaves each rank its rows only, and the next pair gathers them.

use std::ops::Range;

use super::dense::Dense;
use super::edges::Edges;
use super::{Gradients, Layout, Pass, Split, Start, Tensor, TensorParallel, Unit};
use crate::error::Error;
use crate::gpu::DataType;

const WEIGHTS: usize = 0;
const BIAS: usize = 1;

/// What a linear layer is to tensor parallelism.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Every rank computes all of it.
    Whole,
    /// Divided by columns; a row-divided layer follows. The network's first layer gets all rows from the loader and
    /// owes nobody a gradient.
    Column { first: bool },
    /// Divided by rows.
    Row,
}

/// Weights (inputs x outputs) and bias. They begin as He's rule has it: so large that a signal goes through many layers
/// with ReLU neither fading nor growing, and a deep network learns as a flat one does.
pub(super) fn tensors([inputs, outputs]: [usize; 2], relu: bool, role: Role) -> Vec<Tensor> {
    let gain = if relu { 6.0 } else { 1.0 };
    let limit = Start::Uniform((gain / inputs as f32).sqrt());
    let bias_limit = Start::Uniform(1.0 / (inputs as f32).sqrt());
    let (weights, bias) = match role {
        Role::Whole => (Split::Whole, Split::Whole),
        Role::Column { .. } => (Split::Columns { groups: 1 }, Split::Columns { groups: 1 }),
        Role::Row => (Split::Rows, Split::Whole),
    };
    vec![
        Tensor {
            name: "weights",
            rows: inputs,
            columns: outputs,
            start: limit,
            split: weights,
            partial_in_sequence_parallel: role == Role::Whole,
        },
        Tensor {
            name: "bias",
            rows: 1,
            columns: outputs,
            start: bias_limit,
            split: bias,
            partial_in_sequence_parallel: !matches!(role, Role::Column { .. }),
        },
    ]
}

/// The layer on one rank.
pub(crate) struct Linear {
    /// This rank's share of the weights.
    weights: Dense,
    relu: bool,
    role: Role,
    edges: Edges,
    layout: Layout,
}

impl Linear {
    pub(super) fn new(
        [inputs, outputs]: [usize; 2],
        relu: bool,
        role: Role,
        parallel: Option<TensorParallel>,
    ) -> Self {
        let edges = Edges::new(parallel);
        let ranks = edges.shard().ranks;
        let (inputs_of_rank, outputs_of_rank) = match role {
            Role::Whole => (inputs, outputs),
            Role::Column { .. } => (inputs, outputs / ranks),
            Role::Row => (inputs / ranks, outputs),
        };
        let layout = Layout::new(&tensors([inputs, outputs], relu, role), edges.shard());
        Self {
            weights: Dense {
                inputs: inputs_of_rank,
                outputs: outputs_of_rank,
            },
            relu,
            role,
            edges,
            layout,
        }
    }

    /// Rows of the unit's input, of the products, and of its output on this rank.
    fn rows(&self, rows: usize) -> [usize; 3] {
        let own = self.edges.own_rows(rows).len();
        match self.role {
            Role::Whole => [own, own, own],
            Role::Column { first: true } => [rows, rows, rows],
            Role::Column { first: false } => [own, rows, rows],
            Role::Row => [rows, rows, own],
        }
    }

    /// Whether the input's rows are gathered from the ranks, where they are divided.
    fn gathers_input(&self) -> bool {
        self.role == Role::Column { first: false }
    }

    /// Elements of the gathered input.
    fn gathered_input(&self, rows: usize) -> usize {
        if self.gathers_input() {
            self.edges.gathered(rows, self.weights.inputs)
        } else {
            0
        }
    }
}

impl Unit for Linear {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn input_bytes(&self, rows: usize, data_type: DataType) -> usize {
        self.rows(rows)[0] * self.weights.inputs * data_type.bytes()
    }

    fn output_bytes(&self, rows: usize, data_type: DataType) -> usize {
        self.rows(rows)[2] * self.weights.outputs * data_type.bytes()
    }

    fn saved_bytes(&self, rows: usize, data_type: DataType) -> usize {
        self.gathered_input(rows) * data_type.bytes()
    }

    fn scratch_bytes(&self, rows: usize, data_type: DataType) -> usize {
        // All rows of an output whose rows are divided, or of an input's gradient.
        let elements = match self.role {
            Role::Row => self.edges.gathered(rows, self.weights.outputs),
            _ => self.gathered_input(rows),
        };
        elements * data_type.bytes()
    }

    fn forward(&self, pass: &Pass<'_>) -> Result<(), Error> {
        let (ty, queue, dense) = (pass.data_type, pass.gpu.work(), self.weights);
        let place = |index| self.layout.address(pass.parameters, index, ty.bytes());
        let [_, rows, output_rows] = self.rows(pass.rows);
        let input = if self.gathers_input() {
            self.edges.gather(pass, [pass.input, pass.saved], dense.inputs)?
        } else {
            pass.input
        };
        let product = |to| dense.forward(pass, rows, [input, place(WEIGHTS), to]);
        if self.role == Role::Row {
            let places = [pass.output, pass.scratch];
            self.edges.sum(pass, places, dense.outputs, product)?;
        } else {
            product(pass.output)?;
        }
        queue.add_bias(
            ty,
            pass.output,
            place(BIAS),
            output_rows,
            dense.outputs,
            self.relu,
        )
    }

    /// The network's first layer writes nothing to `gradients.input` where it is divided: nobody needs it.
    fn backward(
        &self,
        pass: &Pass<'_>,
        gradients: &Gradients,
        ready: &mut dyn FnMut(Range<usize>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let (ty, queue, dense) = (pass.data_type, pass.gpu.work(), self.weights);
        let gradient = |index| self.layout.address(gradients.parameters, index, ty.bytes());
        let [_, rows, output_rows] = self.rows(pass.rows);
        let delta = gradients.output;
        if self.relu {
            queue.relu_backward(ty, delta, pass.output, output_rows * dense.outputs)?;
        }
        queue.bias_gradient(ty, gradient(BIAS), delta, output_rows, dense.outputs)?;
        ready(self.layout.places[BIAS].elements.clone())?;

        // From here on all rows are needed.
        let delta = if self.role == Role::Row {
            self.edges.gather(pass, [delta, pass.scratch], dense.outputs)?
        } else {
            delta
        };
        let input = if self.gathers_input() {
            self.edges.all([pass.input, pass.saved])
        } else {
            pass.input
        };
        dense.weights_gradient(pass, rows, [input, delta, gradient(WEIGHTS)])?;
        ready(self.layout.places[WEIGHTS].elements.clone())?;

        let Some(to) = gradients.input else {
            return Ok(());
        };
        let weights = self.layout.address(pass.parameters, WEIGHTS, ty.bytes());
        let product = |to| dense.input_gradient(pass, rows, [delta, weights, to]);
        match self.role {
            Role::Column { first: false } => self.edges.sum(pass, [to, pass.scratch], dense.inputs, product),
            Role::Column { first: true } if self.edges.shard().ranks > 1 => Ok(()),
            _ => product(to),
        }
    }
}
