//! A linear layer with bias, and ReLU behind it where asked: whole, or divided by columns or rows over the ranks of
//! tensor parallelism.
//!
//! A layer divided by columns gives each rank its columns of the output, ReLU and all; the layer behind it, divided by
//! rows, takes them as they are, and one sum over the ranks completes its output. With sequence parallelism that sum
//! leaves each rank its rows only, and the next pair gathers them.

use std::ops::Range;

use super::{Gradients, Layout, Pass, Split, Start, Tensor, TensorParallel, Unit};
use crate::error::Error;
use crate::gpu::{DataType, Matrix};

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

/// Weights (inputs x outputs) and bias.
pub(super) fn tensors(inputs: usize, outputs: usize, role: Role) -> Vec<Tensor> {
    let limit = Start::Uniform(1.0 / (inputs as f32).sqrt());
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
            start: limit,
            split: bias,
            partial_in_sequence_parallel: !matches!(role, Role::Column { .. }),
        },
    ]
}

/// The layer on one rank.
pub(crate) struct Linear {
    /// Inputs and outputs of this rank's share of the weights.
    inputs: usize,
    outputs: usize,
    relu: bool,
    role: Role,
    parallel: Option<TensorParallel>,
    layout: Layout,
}

impl Linear {
    pub(super) fn new(
        [inputs, outputs]: [usize; 2],
        relu: bool,
        role: Role,
        parallel: Option<TensorParallel>,
    ) -> Self {
        let shard = parallel
            .as_ref()
            .map_or(super::Shard::WHOLE, TensorParallel::shard);
        let (own_inputs, own_outputs) = match role {
            Role::Whole => (inputs, outputs),
            Role::Column { .. } => (inputs, outputs / shard.ranks),
            Role::Row => (inputs / shard.ranks, outputs),
        };
        Self {
            inputs: own_inputs,
            outputs: own_outputs,
            relu,
            role,
            parallel,
            layout: Layout::new(&tensors(inputs, outputs, role), shard),
        }
    }

    /// Tensor parallelism, if rows are divided between the layers.
    fn sequence(&self) -> Option<&TensorParallel> {
        self.parallel.as_ref().filter(|parallel| parallel.sequence())
    }

    /// Rows of the unit's input and output on this rank.
    fn outer_rows(&self, rows: usize) -> [usize; 2] {
        let divided = self
            .sequence()
            .map_or(rows, |parallel| rows / parallel.shard().ranks);
        match self.role {
            Role::Whole => [divided, divided],
            Role::Column { first: true } => [rows, rows],
            Role::Column { first: false } => [divided, rows],
            Role::Row => [rows, divided],
        }
    }

    /// Whether forward gathers its input's rows from the ranks.
    fn gathers_input(&self) -> Option<&TensorParallel> {
        self.sequence()
            .filter(|_| self.role == Role::Column { first: false })
    }

    /// The weights' product with all rows of `input`, as the two passes need it.
    fn weights(&self, parameters: u64, transposed: bool) -> Matrix {
        Matrix {
            address: parameters,
            transposed,
            leading: self.outputs,
        }
    }
}

fn plain(address: u64, leading: usize) -> Matrix {
    Matrix {
        address,
        transposed: false,
        leading,
    }
}

impl Unit for Linear {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn input_bytes(&self, rows: usize, data_type: DataType) -> usize {
        self.outer_rows(rows)[0] * self.inputs * data_type.bytes()
    }

    fn output_bytes(&self, rows: usize, data_type: DataType) -> usize {
        self.outer_rows(rows)[1] * self.outputs * data_type.bytes()
    }

    fn saved_bytes(&self, rows: usize, data_type: DataType) -> usize {
        self.gathers_input()
            .map_or(0, |_| rows * self.inputs * data_type.bytes())
    }

    fn scratch_bytes(&self, rows: usize, data_type: DataType) -> usize {
        // All rows of an output whose rows are divided, or of an input's gradient.
        let columns = match (self.sequence(), self.role) {
            (Some(_), Role::Row) => self.outputs,
            (Some(_), Role::Column { first: false }) => self.inputs,
            _ => 0,
        };
        rows * columns * data_type.bytes()
    }

    fn forward(&self, pass: &Pass<'_>) -> Result<(), Error> {
        let (ty, queue) = (pass.data_type, pass.gpu.work());
        let bias = self.layout.address(pass.parameters, 1, ty.bytes());
        let [input_rows, output_rows] = self.outer_rows(pass.rows);
        let mut input = pass.input;
        let mut rows = input_rows;
        if let Some(parallel) = self.gathers_input() {
            parallel.all_gather(pass.gpu, ty, [input, pass.saved], input_rows * self.inputs)?;
            (input, rows) = (pass.saved, pass.rows);
        }
        let scattered = self.sequence().filter(|_| self.role == Role::Row);
        let product = if scattered.is_some() {
            pass.scratch
        } else {
            pass.output
        };
        queue.gemm(
            ty,
            [rows, self.outputs, self.inputs],
            plain(input, self.inputs),
            self.weights(pass.parameters, false),
            0.0,
            product,
            self.outputs,
        )?;
        match (scattered, &self.parallel) {
            (Some(parallel), _) => {
                let count = output_rows * self.outputs;
                parallel.reduce_scatter(pass.gpu, ty, [product, pass.output], count)?;
            }
            (None, Some(parallel)) if self.role == Role::Row => {
                parallel.all_reduce(pass.gpu, ty, product, rows * self.outputs)?;
            }
            _ => {}
        }
        queue.add_bias(ty, pass.output, bias, output_rows, self.outputs, self.relu)
    }

    fn backward(
        &self,
        pass: &Pass<'_>,
        gradients: &Gradients,
        ready: &mut dyn FnMut(Range<usize>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let (ty, queue) = (pass.data_type, pass.gpu.work());
        let [input_rows, output_rows] = self.outer_rows(pass.rows);
        let mut delta = gradients.output;
        if self.relu {
            queue.relu_backward(ty, delta, pass.output, output_rows * self.outputs)?;
        }
        let bias = self.layout.address(gradients.parameters, 1, ty.bytes());
        queue.bias_gradient(ty, bias, delta, output_rows, self.outputs)?;
        ready(self.layout.places[1].elements.clone())?;

        // From here on all rows are needed, where they are divided.
        let mut rows = output_rows;
        if let Some(parallel) = self.sequence().filter(|_| self.role == Role::Row) {
            parallel.all_gather(pass.gpu, ty, [delta, pass.scratch], output_rows * self.outputs)?;
            (delta, rows) = (pass.scratch, pass.rows);
        }
        let input = if self.gathers_input().is_some() {
            pass.saved
        } else {
            pass.input
        };
        queue.gemm(
            ty,
            [self.inputs, self.outputs, rows],
            Matrix {
                transposed: true,
                ..plain(input, self.inputs)
            },
            plain(delta, self.outputs),
            0.0,
            gradients.parameters,
            self.outputs,
        )?;
        ready(self.layout.places[0].elements.clone())?;

        let Some(to) = gradients.input else {
            return Ok(());
        };
        let scattered = self.gathers_input();
        let product = if scattered.is_some() { pass.scratch } else { to };
        queue.gemm(
            ty,
            [rows, self.inputs, self.outputs],
            plain(delta, self.outputs),
            self.weights(pass.parameters, true),
            0.0,
            product,
            self.inputs,
        )?;
        match (scattered, &self.parallel) {
            (Some(parallel), _) => {
                parallel.reduce_scatter(pass.gpu, ty, [product, to], input_rows * self.inputs)
            }
            (None, Some(parallel)) if matches!(self.role, Role::Column { .. }) => {
                parallel.all_reduce(pass.gpu, ty, product, rows * self.inputs)
            }
            _ => Ok(()),
        }
    }
}
