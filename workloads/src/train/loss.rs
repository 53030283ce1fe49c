//! The loss of a step: summed on the device over microbatches, read when somebody wants it.

use crate::error::Error;
use crate::gpu::{Buffer, DataType, Gpu, clear};
use crate::model::{Loss, Network};

/// Where the last stage adds up the step's loss.
pub(crate) struct LossSum {
    sum: Buffer,
    kind: Loss,
    outputs: usize,
    /// What one element (squared error) or one row (cross entropy) counts: the mean over the whole batch.
    weight: f32,
}

impl LossSum {
    /// For a batch of `samples` samples over all ranks and microbatches.
    pub(crate) fn new(gpu: &Gpu, network: &Network, samples: usize) -> Result<Self, Error> {
        let rows = samples * network.rows_per_sample;
        let counted = match network.loss {
            Loss::MeanSquared => rows * network.outputs,
            Loss::CrossEntropy => rows,
        };
        Ok(Self {
            sum: gpu.buffer(size_of::<f32>())?,
            kind: network.loss,
            outputs: network.outputs,
            weight: 1.0 / counted as f32,
        })
    }

    /// A step begins.
    pub(crate) fn clear(&self, gpu: &Gpu) -> Result<(), Error> {
        clear(&gpu.compute, self.sum.address(), self.sum.bytes())
    }

    /// Device address of the sum.
    pub(crate) fn address(&self) -> u64 {
        self.sum.address()
    }

    /// Adds the loss of `rows` rows and writes its gradient, times `gradient_scale`, to `delta`.
    pub(crate) fn add(
        &self,
        gpu: &Gpu,
        data_type: DataType,
        [prediction, targets, delta]: [u64; 3],
        rows: usize,
        gradient_scale: f32,
    ) -> Result<(), Error> {
        let (queue, sum) = (gpu.work(), self.sum.address());
        match self.kind {
            Loss::MeanSquared => queue.mse_loss(
                data_type,
                sum,
                delta,
                prediction,
                targets,
                rows * self.outputs,
                self.weight,
                gradient_scale,
            ),
            Loss::CrossEntropy => queue.cross_entropy(
                data_type,
                sum,
                delta,
                prediction,
                targets,
                rows,
                self.outputs,
                self.weight,
                gradient_scale,
            ),
        }
    }

    /// The sum; waits for it.
    pub(crate) fn read(&self, gpu: &Gpu) -> Result<f32, Error> {
        Ok(gpu.download(self.sum.address(), 1)?[0])
    }
}
