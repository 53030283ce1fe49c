//! The three matrix products of a layer that multiplies by weights, on addresses.

use super::Pass;
use crate::error::Error;
use crate::gpu::Matrix;

/// Weights of `inputs` x `outputs` elements, row-major.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dense {
    pub(super) inputs: usize,
    pub(super) outputs: usize,
}

impl Dense {
    /// `output = input * weights`, for so many rows.
    pub(super) fn forward(
        self,
        pass: &Pass<'_>,
        rows: usize,
        [input, weights, output]: [u64; 3],
    ) -> Result<(), Error> {
        pass.gpu.work().gemm(
            pass.data_type,
            [rows, self.outputs, self.inputs],
            Matrix::new(input, self.inputs),
            Matrix::new(weights, self.outputs),
            0.0,
            output,
            self.outputs,
        )
    }

    /// `to = input' * delta`: the weights' gradient, given that by the output of so many rows.
    pub(super) fn weights_gradient(
        self,
        pass: &Pass<'_>,
        rows: usize,
        [input, delta, to]: [u64; 3],
    ) -> Result<(), Error> {
        pass.gpu.work().gemm(
            pass.data_type,
            [self.inputs, self.outputs, rows],
            Matrix::transposed(input, self.inputs),
            Matrix::new(delta, self.outputs),
            0.0,
            to,
            self.outputs,
        )
    }

    /// `to = delta * weights'`: the gradient by the input.
    pub(super) fn input_gradient(
        self,
        pass: &Pass<'_>,
        rows: usize,
        [delta, weights, to]: [u64; 3],
    ) -> Result<(), Error> {
        pass.gpu.work().gemm(
            pass.data_type,
            [rows, self.inputs, self.outputs],
            Matrix::new(delta, self.outputs),
            Matrix::transposed(weights, self.outputs),
            0.0,
            to,
            self.inputs,
        )
    }
}
