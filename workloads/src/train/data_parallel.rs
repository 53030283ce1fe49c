//! Data parallel training in one process, as nn.DataParallel does it: the first GPU has the parameters and the loss.
//!
//! For each microbatch it scatters the inputs over the GPUs, copies all parameters to them, gathers their outputs, takes
//! the loss, scatters its gradient, and sums the gradients that they send back. All of that goes through its links and
//! its one stream, while the others wait.

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
use super::sharing::{Phase, Placement, Sharing};
use super::stage::Stage;
use super::state::Update;

/// One GPU with its share of each microbatch.
pub(crate) struct Replica {
    pub(crate) device: Device,
    pub(crate) stage: Stage,
    /// Where inputs come and are cast to, and the gradient by the output.
    pub(crate) input: Buffer,
    pub(crate) cast: Buffer,
    pub(crate) delta: Buffer,
    /// Copies of the parameters, and gradients to be sent back.
    pub(crate) parameters: Buffer,
    pub(crate) gradients: Buffer,
    /// Its samples of the microbatch, in bytes of inputs and of outputs.
    pub(crate) input_bytes: std::ops::Range<usize>,
    pub(crate) output_bytes: std::ops::Range<usize>,
    pub(crate) cast_count: Option<usize>,
}

/// The replicas; the first has the state.
pub(crate) struct DataParallel {
    pub(crate) replicas: Vec<Replica>,
    pub(crate) state: Replicated,
    /// Where each unit begins in the flat vectors, and the end, in elements.
    pub(crate) starts: Rc<[usize]>,
    pub(crate) data_type: DataType,
    pub(crate) microbatches: usize,
    pub(crate) microbatch: Microbatch,
    /// On the first GPU: all outputs of the microbatch, the loss's gradient by them, and gradients that came back.
    pub(crate) outputs: Buffer,
    pub(crate) deltas: Buffer,
    pub(crate) returned: Buffer,
    pub(crate) loss: LossSum,
    pub(crate) overflow: Option<u64>,
}

/// A replica's copied parameters as the stage takes them.
struct Copied {
    parameters: u64,
    gradients: u64,
    starts: Rc<[usize]>,
    bytes: usize,
}

impl Copied {
    fn at(&self, base: u64, unit: usize) -> u64 {
        base + (self.starts[unit] * self.bytes) as u64
    }
}

impl Placement for Copied {
    fn parameters(&mut self, _gpu: &Gpu, unit: usize, _phase: Phase) -> Result<u64, Error> {
        Ok(self.at(self.parameters, unit))
    }

    fn done(&mut self, _gpu: &Gpu, _unit: usize, _phase: Phase) -> Result<(), Error> {
        Ok(())
    }

    fn gradients(&mut self, _gpu: &Gpu, unit: usize) -> Result<u64, Error> {
        Ok(self.at(self.gradients, unit))
    }

    fn ready(
        &mut self,
        _gpu: &Gpu,
        _unit: usize,
        _elements: std::ops::Range<usize>,
        _last: bool,
    ) -> Result<(), Error> {
        Ok(())
    }
}

impl DataParallel {
    fn first(&self) -> &Device {
        &self.replicas[0].device
    }

    fn elements(&self) -> usize {
        self.starts[self.starts.len() - 1]
    }

    /// Copies from the first GPU to a replica's, or within the first.
    fn send(&self, replica: usize, to: u64, from: u64, bytes: usize) -> Result<(), Error> {
        if replica == 0 {
            return crate::gpu::copy(&self.first().enter()?.compute, to, from, bytes);
        }
        self.first()
            .copy_to(&self.replicas[replica].device, to, from, bytes)
    }

    /// Copies from a replica's GPU to the first, or within the first.
    fn fetch(&self, replica: usize, to: u64, from: u64, bytes: usize) -> Result<(), Error> {
        if replica == 0 {
            return crate::gpu::copy(&self.first().enter()?.compute, to, from, bytes);
        }
        self.replicas[replica]
            .device
            .copy_to(self.first(), to, from, bytes)
    }

    fn scatter(&self, from: u64) -> Result<(), Error> {
        let _range = nvtx::Range::new("scatter");
        for (index, replica) in self.replicas.iter().enumerate() {
            let bytes = &replica.input_bytes;
            let to = replica.input.address();
            self.send(index, to, from + bytes.start as u64, bytes.len())?;
        }
        Ok(())
    }

    /// Copies all parameters to all other GPUs, unit by unit.
    fn replicate(&mut self) -> Result<(), Error> {
        let _range = nvtx::Range::new("replicate");
        let size = self.data_type.bytes();
        for unit in 0..self.starts.len() - 1 {
            let gpu = Rc::clone(&self.first().gpu);
            let from = self.state.parameters(&gpu, unit, Phase::Forward)?;
            let (start, end) = (self.starts[unit] * size, self.starts[unit + 1] * size);
            for index in 1..self.replicas.len() {
                let to = self.replicas[index].parameters.address() + start as u64;
                self.send(index, to, from, end - start)?;
            }
        }
        Ok(())
    }

    /// Where a replica's parameters and gradients are.
    fn placement(&mut self, index: usize) -> Result<Copied, Error> {
        let gpu = Rc::clone(&self.first().gpu);
        let replica = &self.replicas[index];
        Ok(Copied {
            gradients: replica.gradients.address(),
            parameters: match index {
                0 => self.state.parameters(&gpu, 0, Phase::Forward)?,
                _ => replica.parameters.address(),
            },
            starts: Rc::clone(&self.starts),
            bytes: self.data_type.bytes(),
        })
    }

    fn forward(&mut self, delay: Duration) -> Result<(), Error> {
        for index in 0..self.replicas.len() {
            let _range = nvtx::Range::new(&format!("forward, GPU {index}"));
            if index == 0 {
                sleep(delay);
            }
            let mut placement = self.placement(index)?;
            let replica = &self.replicas[index];
            let gpu = replica.device.enter()?;
            if let Some(count) = replica.cast_count {
                let (to, from) = (replica.cast.address(), replica.input.address());
                gpu.work().cast(DataType::F32, self.data_type, to, from, count)?;
            }
            replica
                .stage
                .forward(gpu, 0, replica.computed_input(), &mut placement)?;
        }
        Ok(())
    }

    /// Brings all outputs to the first GPU, takes the loss there, and gives each replica its gradient.
    fn take_loss(&self, targets: u64, scale: f32) -> Result<(), Error> {
        {
            let _range = nvtx::Range::new("gather");
            for (index, replica) in self.replicas.iter().enumerate() {
                let bytes = &replica.output_bytes;
                let to = self.outputs.address() + bytes.start as u64;
                self.fetch(index, to, replica.stage.output(0), bytes.len())?;
            }
        }
        let gpu = self.first().enter()?;
        let addresses = [self.outputs.address(), targets, self.deltas.address()];
        self.loss
            .add(gpu, self.data_type, addresses, self.microbatch.loss_rows, scale)?;
        let _range = nvtx::Range::new("scatter gradients");
        for (index, replica) in self.replicas.iter().enumerate() {
            let bytes = &replica.output_bytes;
            let from = self.deltas.address() + bytes.start as u64;
            self.send(index, replica.delta.address(), from, bytes.len())?;
        }
        Ok(())
    }

    fn backward(&mut self) -> Result<(), Error> {
        for index in 0..self.replicas.len() {
            let _range = nvtx::Range::new(&format!("backward, GPU {index}"));
            let mut placement = self.placement(index)?;
            let replica = &self.replicas[index];
            let gpu = replica.device.enter()?;
            let delta = (replica.delta.address(), None);
            replica
                .stage
                .backward(gpu, (0, replica.computed_input()), delta, true, &mut placement)?;
        }
        Ok(())
    }

    /// Sums all replicas' gradients on the first GPU.
    fn reduce(&mut self) -> Result<(), Error> {
        let _range = nvtx::Range::new("reduce");
        let bytes = self.elements() * self.data_type.bytes();
        for index in 0..self.replicas.len() {
            let mut from = self.replicas[index].gradients.address();
            if index > 0 {
                self.fetch(index, self.returned.address(), from, bytes)?;
                from = self.returned.address();
            }
            let gpu = Rc::clone(&self.first().gpu);
            self.first().enter()?;
            self.state.accumulate(&gpu, from)?;
        }
        Ok(())
    }
}

impl Replica {
    /// The input that is computed with.
    fn computed_input(&self) -> u64 {
        match self.cast_count {
            Some(_) => self.cast.address(),
            None => self.input.address(),
        }
    }
}

impl Engine for DataParallel {
    fn step(&mut self, batch: Batch, scale: f32, delay: Duration) -> Result<(), Error> {
        let gpu = Rc::clone(&self.first().gpu);
        self.loss.clear(&gpu)?;
        self.state.begin_step(&gpu, 1.0 / scale)?;
        for microbatch in 0..self.microbatches {
            self.scatter(batch.inputs + (microbatch * self.microbatch.input_bytes) as u64)?;
            self.replicate()?;
            let delay = if microbatch == 0 { delay } else { Duration::ZERO };
            self.forward(delay)?;
            self.take_loss(
                batch.targets + (microbatch * self.microbatch.target_bytes) as u64,
                scale,
            )?;
            self.backward()?;
            self.reduce()?;
        }
        self.first().enter()?;
        self.overflow = self.state.finish_backward(&gpu)?;
        Ok(())
    }

    fn overflowed(&self) -> Result<bool, Error> {
        match self.overflow {
            Some(flag) => Ok(self.first().enter()?.download_int(flag)? != 0),
            None => Ok(false),
        }
    }

    fn update(&mut self, update: &Update) -> Result<(), Error> {
        let gpu = Rc::clone(&self.first().gpu);
        self.state.update(&gpu, update)
    }

    fn loss(&self) -> Result<f32, Error> {
        self.loss.read(self.first().enter()?)
    }

    fn finish_step(&mut self) -> Result<(), Error> {
        for replica in self.replicas.iter().rev() {
            replica.device.enter()?.compute.synchronize()?;
        }
        Ok(())
    }

    fn save(&self) -> Result<Option<Part>, Error> {
        self.state.save(self.first().enter()?)
    }

    fn restore(&mut self, parameters: &[f32], moments: &[Vec<f32>]) -> Result<(), Error> {
        let gpu = Rc::clone(&self.first().gpu);
        let moments: Vec<&[f32]> = moments.iter().map(Vec::as_slice).collect();
        self.state.restore(&gpu, parameters, &moments)
    }

    fn report(&self, _store: &Store) -> Result<Vec<String>, Error> {
        Ok(Vec::new())
    }
}
