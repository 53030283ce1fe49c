//! A multilayer perceptron: linear layers with ReLU between them, mean squared error, SGD.
//!
//! All parameters are one flat vector and all gradients another of the same shape, so that a bucket of gradients is a
//! part of it and needs no copying.

use std::ops::Range;

use cudarc::driver::CudaSlice;

use crate::data::Random;
use crate::error::Error;
use crate::gpu::{DataType, Gpu, Matrix, address, element};

/// One linear layer's place in the flat vectors: weights (inputs x outputs, row-major), then bias.
#[derive(Clone, Debug)]
pub(crate) struct Layer {
    pub(crate) inputs: usize,
    pub(crate) outputs: usize,
    start: usize,
}

impl Layer {
    fn bias(&self) -> usize {
        self.start + self.inputs * self.outputs
    }

    /// All of its elements.
    pub(crate) fn elements(&self) -> Range<usize> {
        self.start..self.bias() + self.outputs
    }
}

/// The network on one GPU, for one batch size.
pub(crate) struct Mlp {
    pub(crate) layers: Vec<Layer>,
    pub(crate) parameters: CudaSlice<f32>,
    pub(crate) gradients: CudaSlice<f32>,
    pub(crate) loss: CudaSlice<f32>,
    /// Output of each layer, and the loss's gradient by it.
    activations: Vec<CudaSlice<f32>>,
    deltas: Vec<CudaSlice<f32>>,
    batch: usize,
}

impl Mlp {
    /// A network of these sizes, its parameters drawn from the seed as PyTorch draws a linear layer's.
    pub(crate) fn new(gpu: &Gpu, sizes: &[usize], batch: usize, seed: u64) -> Result<Self, Error> {
        let mut layers = Vec::new();
        let mut start = 0;
        for pair in sizes.windows(2) {
            let layer = Layer {
                inputs: pair[0],
                outputs: pair[1],
                start,
            };
            start = layer.elements().end;
            layers.push(layer);
        }
        let mut random = Random::new(seed);
        let mut values = Vec::with_capacity(start);
        for layer in &layers {
            let limit = 1.0 / (layer.inputs as f32).sqrt();
            values.extend(layer.elements().map(|_| random.symmetric(limit)));
        }
        let outputs = || {
            layers
                .iter()
                .map(|layer| gpu.zeros(batch * layer.outputs))
                .collect::<Result<Vec<_>, _>>()
        };
        Ok(Self {
            parameters: gpu.compute.clone_htod(&values)?,
            gradients: gpu.zeros(start)?,
            loss: gpu.zeros(1)?,
            activations: outputs()?,
            deltas: outputs()?,
            layers,
            batch,
        })
    }

    /// Elements of the flat vectors.
    pub(crate) fn parameter_count(&self) -> usize {
        self.layers.last().map_or(0, |layer| layer.elements().end)
    }

    /// Computes the prediction for a batch at device address `x`.
    pub(crate) fn forward(&self, gpu: &Gpu, x: u64) -> Result<(), Error> {
        let parameters = address(&self.parameters);
        let mut input = x;
        for (index, layer) in self.layers.iter().enumerate() {
            let output = address(&self.activations[index]);
            gpu.work().gemm(
                DataType::F32,
                [self.batch, layer.outputs, layer.inputs],
                Matrix::new(input, layer.inputs),
                Matrix::new(element(parameters, layer.start), layer.outputs),
                0.0,
                output,
                layer.outputs,
            )?;
            let relu = index + 1 < self.layers.len();
            gpu.work().add_bias(
                DataType::F32,
                output,
                element(parameters, layer.bias()),
                self.batch,
                layer.outputs,
                relu,
            )?;
            input = output;
        }
        Ok(())
    }

    /// The loss against the targets at device address `y`, and its gradient by the prediction.
    pub(crate) fn loss(&mut self, gpu: &Gpu, y: u64) -> Result<(), Error> {
        gpu.compute.memset_zeros(&mut self.loss)?;
        let last = self.layers.len() - 1;
        let count = self.batch * self.layers[last].outputs;
        gpu.work().mse_loss(
            DataType::F32,
            address(&self.loss),
            address(&self.deltas[last]),
            address(&self.activations[last]),
            y,
            count,
            1.0 / count as f32,
            1.0,
        )
    }

    /// The gradients of layer `index`, and the loss's gradient by its input. Layers are done from the last to the first.
    pub(crate) fn backward(&self, gpu: &Gpu, index: usize, x: u64) -> Result<(), Error> {
        let layer = &self.layers[index];
        let (gradients, parameters) = (address(&self.gradients), address(&self.parameters));
        let delta = address(&self.deltas[index]);
        let input = if index == 0 {
            x
        } else {
            address(&self.activations[index - 1])
        };
        let work = gpu.work();
        work.gemm(
            DataType::F32,
            [layer.inputs, layer.outputs, self.batch],
            Matrix::transposed(input, layer.inputs),
            Matrix::new(delta, layer.outputs),
            0.0,
            element(gradients, layer.start),
            layer.outputs,
        )?;
        work.bias_gradient(
            DataType::F32,
            element(gradients, layer.bias()),
            delta,
            self.batch,
            layer.outputs,
        )?;
        if index > 0 {
            let before = address(&self.deltas[index - 1]);
            work.gemm(
                DataType::F32,
                [self.batch, layer.inputs, layer.outputs],
                Matrix::new(delta, layer.outputs),
                Matrix::transposed(element(parameters, layer.start), layer.outputs),
                0.0,
                before,
                layer.inputs,
            )?;
            work.relu_backward(DataType::F32, before, input, self.batch * layer.inputs)?;
        }
        Ok(())
    }

    /// One step of SGD.
    pub(crate) fn update(&self, gpu: &Gpu, rate: f32) -> Result<(), Error> {
        gpu.work().sgd_step(
            address(&self.parameters),
            address(&self.gradients),
            rate,
            self.parameter_count(),
        )
    }

    /// The last loss; waits for it.
    pub(crate) fn read_loss(&self, gpu: &Gpu) -> Result<f32, Error> {
        let mut loss = [0.0];
        gpu.compute.memcpy_dtoh(&self.loss, &mut loss)?;
        gpu.compute.synchronize()?;
        Ok(loss[0])
    }
}
