//! Parameters with their gradients and the optimizer's moments, all f32 and of one length: whole, or a rank's shard.

use crate::error::Error;
use crate::gpu::{Buffer, Gpu};
use crate::schedule::Optimizer;

/// Adam's constants, PyTorch's defaults.
const BETAS: (f32, f32) = (0.9, 0.999);
const EPSILON: f32 = 1e-8;

/// What one step of the optimizer is told.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Update {
    pub(crate) optimizer: Optimizer,
    pub(crate) rate: f32,
    /// Steps that have been taken, this one included.
    pub(crate) taken: u64,
}

/// Flat vectors of `elements` f32.
pub(crate) struct State {
    pub(crate) parameters: Buffer,
    pub(crate) gradients: Buffer,
    pub(crate) moments: Vec<Buffer>,
    pub(crate) elements: usize,
}

impl State {
    /// State that begins with these parameters.
    pub(crate) fn new(gpu: &Gpu, values: &[f32], optimizer: Optimizer) -> Result<Self, Error> {
        let bytes = size_of_val(values);
        let state = Self {
            parameters: gpu.buffer(bytes)?,
            gradients: gpu.buffer(bytes)?,
            moments: (0..optimizer.moments())
                .map(|_| gpu.buffer(bytes))
                .collect::<Result<_, _>>()?,
            elements: values.len(),
        };
        gpu.upload(&state.parameters, values)?;
        Ok(state)
    }

    /// One step of the optimizer on the compute stream.
    pub(crate) fn update(&self, gpu: &Gpu, update: &Update) -> Result<(), Error> {
        let (parameters, gradients) = (self.parameters.address(), self.gradients.address());
        match update.optimizer {
            Optimizer::Sgd => gpu
                .work()
                .sgd_step(parameters, gradients, update.rate, self.elements),
            Optimizer::Adam => {
                let correction = |beta: f32| (1.0 - f64::from(beta).powf(update.taken as f64)) as f32;
                gpu.work().adam_step(
                    parameters,
                    gradients,
                    self.moments[0].address(),
                    self.moments[1].address(),
                    update.rate,
                    BETAS.0,
                    BETAS.1,
                    EPSILON,
                    correction(BETAS.0),
                    correction(BETAS.1),
                    self.elements,
                )
            }
        }
    }

    /// Parameters and moments, on the host.
    pub(crate) fn read(&self, gpu: &Gpu) -> Result<(Vec<f32>, Vec<Vec<f32>>), Error> {
        let moments = self
            .moments
            .iter()
            .map(|moment| gpu.download(moment.address(), self.elements))
            .collect::<Result<_, _>>()?;
        Ok((gpu.download(self.parameters.address(), self.elements)?, moments))
    }

    /// Takes up parameters and moments.
    pub(crate) fn write(&self, gpu: &Gpu, parameters: &[f32], moments: &[Vec<f32>]) -> Result<(), Error> {
        gpu.upload(&self.parameters, parameters)?;
        for (moment, values) in self.moments.iter().zip(moments) {
            gpu.upload(moment, values)?;
        }
        Ok(())
    }
}
