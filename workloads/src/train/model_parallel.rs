//! Naive model parallel training: the network's units on several GPUs of one process, one GPU at a time.

use std::ops::Range;
use std::rc::Rc;
use std::thread::sleep;
use std::time::Duration;

use crate::checkpoint::Part;
use crate::error::Error;
use crate::gpu::{Buffer, DataType, Gpu};
use crate::nvtx;
use crate::store::Store;

use super::devices::Device;
use super::engine::{Batch, Engine};
use super::loss::LossSum;
use super::replicated::Replicated;
use super::runner::Microbatch;
use super::sharing::Sharing;
use super::stage::Stage;
use super::state::Update;

/// One GPU's part of the network.
pub(crate) struct Layers {
    pub(crate) device: Device,
    pub(crate) stage: Stage,
    pub(crate) sharing: Replicated,
    /// This part in the unsharded vector of all parameters.
    pub(crate) elements: Range<usize>,
    /// Where the output of the part before comes, and the gradient by this part's output.
    pub(crate) input: Buffer,
    pub(crate) delta: Buffer,
    /// Where the gradient by this part's input is left for the part before.
    pub(crate) input_delta: Buffer,
    pub(crate) input_bytes: usize,
}

/// The network over several GPUs.
pub(crate) struct ModelParallel {
    pub(crate) parts: Vec<Layers>,
    pub(crate) data_type: DataType,
    pub(crate) microbatches: usize,
    pub(crate) microbatch: Microbatch,
    /// Inputs in the type that is computed in, on the first GPU.
    pub(crate) cast: Buffer,
    /// Targets, on the last GPU.
    pub(crate) targets: Buffer,
    pub(crate) loss: LossSum,
    pub(crate) overflows: Vec<u64>,
}

impl ModelParallel {
    /// The first part's input: of the microbatch, cast where needed.
    fn first_input(&self, gpu: &Gpu, batch: Batch, microbatch: usize) -> Result<u64, Error> {
        let input = batch.inputs + (microbatch * self.microbatch.input_bytes) as u64;
        let Some(count) = self.microbatch.cast_count else {
            return Ok(input);
        };
        gpu.work()
            .cast(DataType::F32, self.data_type, self.cast.address(), input, count)?;
        Ok(self.cast.address())
    }

    fn run(&mut self, batch: Batch, microbatch: usize, scale: f32, delay: Duration) -> Result<(), Error> {
        let last = self.parts.len() - 1;
        let first_input = self.first_input(self.parts[0].device.enter()?, batch, microbatch)?;
        for index in 0..=last {
            let _range = nvtx::Range::new(&format!("forward, GPU {index}"));
            if (index, microbatch) == (0, 0) {
                sleep(delay);
            }
            let part = &mut self.parts[index];
            let input = if index == 0 {
                first_input
            } else {
                part.input.address()
            };
            let gpu = Rc::clone(&part.device.gpu);
            part.device.enter()?;
            part.stage.forward(&gpu, 0, input, &mut part.sharing)?;
            if index < last {
                let [from, to] = [&self.parts[index], &self.parts[index + 1]];
                let (address, bytes) = (to.input.address(), to.input_bytes);
                from.device
                    .copy_to(&to.device, address, from.stage.output(0), bytes)?;
            }
        }
        self.add_loss(batch, microbatch, scale)?;
        let is_last_microbatch = microbatch + 1 == self.microbatches;
        for index in (0..=last).rev() {
            let _range = nvtx::Range::new(&format!("backward, GPU {index}"));
            let part = &mut self.parts[index];
            let input = if index == 0 {
                first_input
            } else {
                part.input.address()
            };
            let delta = if index == last {
                part.stage.delta()
            } else {
                part.delta.address()
            };
            let to = (index > 0).then(|| part.input_delta.address());
            let gpu = Rc::clone(&part.device.gpu);
            part.device.enter()?;
            part.stage.backward(
                &gpu,
                (0, input),
                (delta, to),
                is_last_microbatch,
                &mut part.sharing,
            )?;
            if index > 0 {
                let [before, part] = [&self.parts[index - 1], &self.parts[index]];
                let (address, bytes) = (before.delta.address(), part.input_bytes);
                part.device
                    .copy_to(&before.device, address, part.input_delta.address(), bytes)?;
            }
        }
        Ok(())
    }

    /// Brings the targets to the last GPU and takes the loss there.
    fn add_loss(&self, batch: Batch, microbatch: usize, scale: f32) -> Result<(), Error> {
        let (first, last) = (&self.parts[0].device, &self.parts[self.parts.len() - 1]);
        let bytes = self.microbatch.target_bytes;
        let mut targets = batch.targets + (microbatch * bytes) as u64;
        if self.parts.len() > 1 {
            first.copy_to(&last.device, self.targets.address(), targets, bytes)?;
            targets = self.targets.address();
        }
        let gpu = last.device.enter()?;
        let addresses = [last.stage.output(0), targets, last.stage.delta()];
        self.loss
            .add(gpu, self.data_type, addresses, self.microbatch.loss_rows, scale)
    }

    fn last_gpu(&self) -> Result<&Gpu, Error> {
        self.parts[self.parts.len() - 1].device.enter()
    }

    /// The thread goes on with the first GPU, where batches are loaded.
    fn leave(&self) -> Result<(), Error> {
        self.parts[0].device.enter().map(|_| ())
    }
}

impl Engine for ModelParallel {
    fn step(&mut self, batch: Batch, scale: f32, delay: Duration) -> Result<(), Error> {
        self.loss.clear(self.last_gpu()?)?;
        for part in &mut self.parts {
            part.device.enter()?;
            part.sharing.begin_step(&part.device.gpu, 1.0 / scale)?;
        }
        for microbatch in 0..self.microbatches {
            self.run(batch, microbatch, scale, delay)?;
        }
        self.overflows.clear();
        for part in &mut self.parts {
            part.device.enter()?;
            self.overflows
                .extend(part.sharing.finish_backward(&part.device.gpu)?);
        }
        self.leave()
    }

    fn overflowed(&self) -> Result<bool, Error> {
        let mut any = false;
        for (part, flag) in self.parts.iter().zip(&self.overflows) {
            any |= part.device.enter()?.download_int(*flag)? != 0;
        }
        self.leave()?;
        Ok(any)
    }

    fn update(&mut self, update: &Update) -> Result<(), Error> {
        for part in &mut self.parts {
            part.device.enter()?;
            part.sharing.update(&part.device.gpu, update)?;
        }
        self.leave()
    }

    fn loss(&self) -> Result<f32, Error> {
        let loss = self.loss.read(self.last_gpu()?)?;
        self.leave()?;
        Ok(loss)
    }

    fn finish_step(&mut self) -> Result<(), Error> {
        for part in &self.parts {
            part.device.enter()?.compute.synchronize()?;
        }
        self.leave()
    }

    fn save(&self) -> Result<Option<Part>, Error> {
        let mut whole = Part {
            pieces: Vec::new(),
            parameters: Vec::new(),
            moments: Vec::new(),
        };
        for part in &self.parts {
            let Some(own) = part.sharing.save(part.device.enter()?)? else {
                continue;
            };
            let local = whole.parameters.len();
            whole.pieces.extend(own.pieces.into_iter().map(|mut piece| {
                piece.whole += part.elements.start;
                piece.local += local;
                piece
            }));
            whole.parameters.extend(own.parameters);
            whole.moments.resize_with(own.moments.len(), Vec::new);
            for (moments, own) in whole.moments.iter_mut().zip(own.moments) {
                moments.extend(own);
            }
        }
        self.leave()?;
        Ok(Some(whole))
    }

    fn restore(&mut self, parameters: &[f32], moments: &[Vec<f32>]) -> Result<(), Error> {
        for part in &mut self.parts {
            let own: Vec<&[f32]> = moments
                .iter()
                .map(|moment| &moment[part.elements.clone()])
                .collect();
            part.device.enter()?;
            part.sharing
                .restore(&part.device.gpu, &parameters[part.elements.clone()], &own)?;
        }
        self.leave()
    }

    fn report(&self, _store: &Store) -> Result<Vec<String>, Error> {
        Ok(Vec::new())
    }
}
