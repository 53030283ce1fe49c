//! One rank's part of a training step: its stage, its parameters, its share of the batch.

use std::ops::Range;
use std::rc::Rc;
use std::thread::sleep;
use std::time::Duration;

use crate::checkpoint::Part;
use crate::comm::{Element, Reduction};
use crate::error::Error;
use crate::gpu::{Buffer, DataType, Gpu};
use crate::nvtx;
use crate::store::Store;

use super::engine::{Batch, Engine};
use super::graphs::Graphs;
use super::link::{Link, Parcel};
use super::loss::LossSum;
use super::mesh::Mesh;
use super::meter::Meter;
use super::pipeline::{self, Action, Schedule};
use super::sharing::Sharing;
use super::stage::Stage;
use super::state::Update;

/// What surrounds a stage in a pipeline of several.
pub(crate) struct Pipeline {
    pub(crate) schedule: Schedule,
    pub(crate) stage: usize,
    pub(crate) stages: usize,
    pub(crate) link: Link,
    /// Inputs received and gradients by them, to be sent, one of each a slot. The first stage computes those too and
    /// sends them nowhere: without that product its backward pass would be shorter than that of equal layers elsewhere.
    pub(crate) inputs: Vec<Buffer>,
    pub(crate) deltas: Vec<Buffer>,
    /// The gradient received by the output.
    pub(crate) received: Buffer,
    /// Elements of the stage's input and output.
    pub(crate) input_count: usize,
    pub(crate) output_count: usize,
    pub(crate) meter: Meter,
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
    pub(crate) gpu: Rc<Gpu>,
    pub(crate) mesh: Mesh,
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
    /// Whether this rank's sum counts: ranks that compute the same loss count once.
    pub(crate) counts_loss: bool,
    /// This rank's stage in the unsharded vector of all parameters.
    pub(crate) elements: Range<usize>,
    /// Names of this rank's parameter tensors, in order.
    pub(crate) tensors: Vec<String>,
    /// Where the step's overflow flag is, if there is one.
    pub(crate) overflow: Option<u64>,
    pub(crate) pipeline: Option<Pipeline>,
    /// Where the passes are to be launched as graphs.
    pub(crate) graphs: Option<Graphs>,
    /// What the thread is to sleep where this step's forward pass begins.
    pub(crate) delay: Duration,
}

impl Runner {
    /// The passes of a step that is not pipelined.
    fn passes(&mut self, gpu: &Gpu, batch: Batch, scale: f32) -> Result<(), Error> {
        self.loss.clear(gpu)?;
        self.sharing.begin_step(gpu, 1.0 / scale)?;
        self.unpipelined(gpu, batch, scale)
    }

    fn unpipelined(&mut self, gpu: &Gpu, batch: Batch, scale: f32) -> Result<(), Error> {
        for microbatch in 0..self.microbatches {
            let input = self.input(gpu, batch, microbatch, 0)?;
            {
                let _range = nvtx::Range::new("forward");
                sleep(std::mem::take(&mut self.delay));
                self.stage.forward(gpu, 0, input, self.sharing.as_mut())?;
                self.add_loss(gpu, batch, microbatch, 0, scale)?;
            }
            let _range = nvtx::Range::new("backward");
            let last = microbatch + 1 == self.microbatches;
            let delta = (self.stage.delta(), None);
            self.stage
                .backward(gpu, (0, input), delta, last, self.sharing.as_mut())?;
            if last {
                self.overflow = self.sharing.finish_backward(gpu)?;
            }
        }
        Ok(())
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
                    let _range = nvtx::Range::new(&format!("forward {microbatch}"));
                    sleep(std::mem::take(&mut self.delay));
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
                    let _range = nvtx::Range::new(&format!("backward {microbatch}"));
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
                    let to = Some(pipe.deltas[slot].address());
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
        pipe.link.finish(gpu)?;
        self.overflow = self.sharing.finish_backward(gpu)?;
        Ok(())
    }
}

impl Engine for Runner {
    fn step(&mut self, batch: Batch, scale: f32, delay: Duration) -> Result<(), Error> {
        let gpu = Rc::clone(&self.gpu);
        self.delay = delay;
        if self.pipeline.is_some() {
            self.loss.clear(&gpu)?;
            self.sharing.begin_step(&gpu, 1.0 / scale)?;
            return self.pipelined(&gpu, batch, scale);
        }
        let Some(mut graphs) = self.graphs.take() else {
            return self.passes(&gpu, batch, scale);
        };
        // A graph has no place for it.
        sleep(std::mem::take(&mut self.delay));
        let outcome = graphs.run(&gpu, batch, scale, || self.passes(&gpu, batch, scale));
        self.graphs = Some(graphs);
        outcome
    }

    fn overflowed(&self) -> Result<bool, Error> {
        let Some(flag) = self.overflow else {
            return Ok(false);
        };
        if let Some(world) = &self.mesh.world {
            let most = (Element::I32, Reduction::Max);
            world.all_reduce([flag; 2], 1, most, &self.gpu.compute)?;
        }
        Ok(self.gpu.download_int(flag)? != 0)
    }

    fn update(&mut self, update: &Update) -> Result<(), Error> {
        self.sharing.update(&self.gpu, update)
    }

    fn loss(&self) -> Result<f32, Error> {
        if !self.counts_loss {
            self.loss.clear(&self.gpu)?;
        }
        if let Some(world) = &self.mesh.world {
            let sum = (Element::F32, Reduction::Sum);
            world.all_reduce([self.loss.address(); 2], 1, sum, &self.gpu.compute)?;
        }
        self.loss.read(&self.gpu)
    }

    fn finish_step(&mut self) -> Result<(), Error> {
        self.gpu.compute.synchronize()?;
        self.mesh.check_health()?;
        self.pipeline.as_mut().map_or(Ok(()), |pipe| pipe.meter.read())
    }

    fn save(&self) -> Result<Option<Part>, Error> {
        let mut part = self.sharing.save(&self.gpu)?;
        if let Some(part) = &mut part {
            for piece in &mut part.pieces {
                piece.whole += self.elements.start;
            }
        }
        Ok(part)
    }

    fn restore(&mut self, parameters: &[f32], moments: &[Vec<f32>]) -> Result<(), Error> {
        let own: Vec<&[f32]> = moments
            .iter()
            .map(|moment| &moment[self.elements.clone()])
            .collect();
        self.sharing
            .restore(&self.gpu, &parameters[self.elements.clone()], &own)
    }

    fn report(&self, store: &Store) -> Result<Vec<String>, Error> {
        let mut lines = self.stage_times(store)?;
        lines.extend(self.norms()?);
        Ok(lines)
    }
}
