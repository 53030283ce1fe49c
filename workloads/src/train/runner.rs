//! One rank's part of a training step: its stage, its parameters, its share of the batch.

use crate::error::Error;
use crate::gpu::{Buffer, DataType, Gpu};
use crate::nvtx::Range;

use super::link::{Link, Parcel};
use super::loss::LossSum;
use super::meter::Meter;
use super::pipeline::{self, Action, Schedule};
use super::sharing::Sharing;
use super::stage::Stage;

/// What surrounds a stage in a pipeline of several.
pub(crate) struct Pipeline {
    pub(crate) schedule: Schedule,
    pub(crate) stage: usize,
    pub(crate) stages: usize,
    pub(crate) link: Link,
    /// Inputs received and gradients to be sent, one of each a slot.
    pub(crate) inputs: Vec<Buffer>,
    pub(crate) deltas: Vec<Buffer>,
    /// The gradient received by the output.
    pub(crate) received: Buffer,
    /// Elements of the stage's input and output.
    pub(crate) input_count: usize,
    pub(crate) output_count: usize,
    pub(crate) meter: Meter,
}

/// Where a rank's part of the batch is, in device memory.
#[derive(Clone, Copy)]
pub(crate) struct Batch {
    pub(crate) inputs: u64,
    pub(crate) targets: u64,
}

/// Sizes of a microbatch, in bytes where not said otherwise.
pub(crate) struct Microbatch {
    pub(crate) input_bytes: usize,
    pub(crate) target_bytes: usize,
    /// Targets of the rows before this rank's, where tensor parallelism divides the last rows.
    pub(crate) target_offset: usize,
    /// Rows of the last output on this rank.
    pub(crate) loss_rows: usize,
    /// Features to be cast from f32, or none if inputs are taken as they are.
    pub(crate) cast_count: Option<usize>,
}

/// What computes a step on this rank.
pub(crate) struct Runner {
    pub(crate) stage: Stage,
    pub(crate) sharing: Box<dyn Sharing>,
    pub(crate) data_type: DataType,
    pub(crate) microbatches: usize,
    pub(crate) microbatch: Microbatch,
    /// Inputs in the type that is computed in, one a slot.
    pub(crate) cast: Vec<Buffer>,
    /// The step's loss; added up on ranks of the last stage.
    pub(crate) loss: LossSum,
    pub(crate) computes_loss: bool,
    pub(crate) pipeline: Option<Pipeline>,
}

impl Runner {
    /// Enqueues the step's forward and backward passes. Gives the device address of the overflow flag, if there is one.
    pub(crate) fn step(&mut self, gpu: &Gpu, batch: Batch, scale: f32) -> Result<Option<u64>, Error> {
        self.loss.clear(gpu)?;
        self.sharing.begin_step(gpu, 1.0 / scale)?;
        if self.pipeline.is_some() {
            self.pipelined(gpu, batch, scale)?;
        } else {
            for microbatch in 0..self.microbatches {
                let input = self.input(gpu, batch, microbatch, 0)?;
                {
                    let _range = Range::new("forward");
                    self.stage.forward(gpu, 0, input, self.sharing.as_mut())?;
                    self.add_loss(gpu, batch, microbatch, 0, scale)?;
                }
                let _range = Range::new("backward");
                let last = microbatch + 1 == self.microbatches;
                let delta = (self.stage.delta(), None);
                self.stage
                    .backward(gpu, (0, input), delta, last, self.sharing.as_mut())?;
                if last {
                    return self.sharing.finish_backward(gpu);
                }
            }
        }
        self.sharing.finish_backward(gpu)
    }

    /// Where a microbatch's input is, cast where needed.
    fn input(&self, gpu: &Gpu, batch: Batch, microbatch: usize, slot: usize) -> Result<u64, Error> {
        let input = batch.inputs + (microbatch * self.microbatch.input_bytes) as u64;
        let Some(count) = self.microbatch.cast_count else {
            return Ok(input);
        };
        let to = self.cast[slot].address();
        gpu.work().cast(DataType::F32, self.data_type, to, input, count)?;
        Ok(to)
    }

    /// Adds a microbatch's loss and leaves its gradient in the stage's place for it.
    fn add_loss(
        &self,
        gpu: &Gpu,
        batch: Batch,
        microbatch: usize,
        slot: usize,
        scale: f32,
    ) -> Result<(), Error> {
        if !self.computes_loss {
            return Ok(());
        }
        let offset = microbatch * self.microbatch.target_bytes + self.microbatch.target_offset;
        let addresses = [
            self.stage.output(slot),
            batch.targets + offset as u64,
            self.stage.delta(),
        ];
        self.loss
            .add(gpu, self.data_type, addresses, self.microbatch.loss_rows, scale)
    }

    fn pipelined(&mut self, gpu: &Gpu, batch: Batch, scale: f32) -> Result<(), Error> {
        let Some(mut pipe) = self.pipeline.take() else {
            return Ok(());
        };
        let outcome = self.run_schedule(gpu, &mut pipe, batch, scale);
        self.pipeline = Some(pipe);
        outcome
    }

    fn run_schedule(
        &mut self,
        gpu: &Gpu,
        pipe: &mut Pipeline,
        batch: Batch,
        scale: f32,
    ) -> Result<(), Error> {
        let (first, last) = (pipe.stage == 0, pipe.stage + 1 == pipe.stages);
        let slots = pipeline::slots(pipe.schedule, pipe.stage, pipe.stages, self.microbatches);
        pipe.meter.begin_step();
        for action in pipeline::actions(pipe.schedule, pipe.stage, pipe.stages, self.microbatches) {
            match action {
                Action::Forward(microbatch) => {
                    let _range = Range::new(&format!("forward {microbatch}"));
                    let slot = microbatch % slots;
                    pipe.meter.start(gpu)?;
                    let input = if first {
                        self.input(gpu, batch, microbatch, slot)?
                    } else {
                        pipe.inputs[slot].address()
                    };
                    self.stage.forward(gpu, slot, input, self.sharing.as_mut())?;
                    pipe.meter.stop(gpu)?;
                }
                Action::Backward(microbatch) => {
                    let _range = Range::new(&format!("backward {microbatch}"));
                    let slot = microbatch % slots;
                    pipe.meter.start(gpu)?;
                    let delta = if last {
                        self.add_loss(gpu, batch, microbatch, slot, scale)?;
                        self.stage.delta()
                    } else {
                        pipe.received.address()
                    };
                    let input = if first {
                        match self.microbatch.cast_count {
                            Some(_) => self.cast[slot].address(),
                            None => batch.inputs + (microbatch * self.microbatch.input_bytes) as u64,
                        }
                    } else {
                        pipe.inputs[slot].address()
                    };
                    let to = (!first).then(|| pipe.deltas[slot].address());
                    let is_last_microbatch = microbatch + 1 == self.microbatches;
                    self.stage.backward(
                        gpu,
                        (slot, input),
                        (delta, to),
                        is_last_microbatch,
                        self.sharing.as_mut(),
                    )?;
                    pipe.meter.stop(gpu)?;
                }
                Action::Exchange {
                    send_output,
                    receive_delta,
                    send_delta,
                    receive_input,
                } => {
                    let (stage, slot) = (pipe.stage as u32, |microbatch: usize| microbatch % slots);
                    let parcel = |address, count, peer| Parcel { address, count, peer };
                    let outputs = send_output
                        .map(|mb| parcel(self.stage.output(slot(mb)), pipe.output_count, stage + 1));
                    let deltas = send_delta
                        .map(|mb| parcel(pipe.deltas[slot(mb)].address(), pipe.input_count, stage - 1));
                    let received =
                        receive_delta.map(|_| parcel(pipe.received.address(), pipe.output_count, stage + 1));
                    let inputs = receive_input
                        .map(|mb| parcel(pipe.inputs[slot(mb)].address(), pipe.input_count, stage - 1));
                    let sends: Vec<Parcel> = outputs.into_iter().chain(deltas).collect();
                    let receives: Vec<Parcel> = received.into_iter().chain(inputs).collect();
                    pipe.link.exchange(gpu, &sends, &receives)?;
                }
            }
        }
        pipe.link.finish(gpu)
    }
}
