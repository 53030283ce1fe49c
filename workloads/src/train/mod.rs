//! The training loop, one for all ways to divide the work over ranks that are processes.

mod buckets;
mod fsdp;
mod link;
mod loss;
mod measure;
mod mesh;
mod meter;
mod pipeline;
mod plan;
mod reducer;
mod replicated;
mod runner;
mod share;
mod sharing;
mod stage;
mod state;

use std::time::Instant;

use crate::checkpoint::{self, State};
use crate::comm::{Element, Reduction};
use crate::error::Error;
use crate::gpu::Gpu;
use crate::launch::Rank;
use crate::loader::Loader;
use crate::nvtx::Range;
use crate::options::TrainOptions;
use crate::precision::LossScaler;
use crate::store::Store;

pub(crate) use pipeline::Schedule;
pub(crate) use plan::{Balance, Division, Reduce, Way};

use plan::Plan;
use runner::Batch;
use state::Update;

/// Trains on this rank as `way` says.
pub(crate) fn run(options: &TrainOptions, way: &Way, rank: &Rank, store: &Store) -> Result<(), Error> {
    let mut gpu = Gpu::open(rank.local_rank)?;
    if let Some((_, factor)) = options.straggler.filter(|(straggler, _)| *straggler == rank.rank) {
        gpu.slow_down(factor);
    }
    let mut plan = Plan::new(&gpu, options, way, rank, store)?;
    let mut scaler = LossScaler::new(&options.precision);
    if rank.rank == 0 {
        options.checkpoints.check()?;
    }
    let (first_step, taken) = resume(&gpu, options, &mut plan, &mut scaler, store)?;
    let loader = plan.start_loader(&gpu, options, first_step)?;
    if rank.rank == 0 {
        println!("{}", plan.headline(&gpu, options));
    }
    gpu.compute.synchronize()?;
    store.barrier()?;
    let mut training = Training {
        gpu: &gpu,
        options,
        plan,
        scaler,
        store,
        is_first_rank: rank.rank == 0,
        first_step,
        taken,
        skipped: 0,
    };
    let started = Instant::now();
    let mut losses = (0.0, 0.0);
    let steps = training.plan.sizes.steps;
    for step in first_step..steps {
        let _step = Range::new(&format!("step {step}"));
        if let Some(loss) = training.step(loader.as_ref(), step)? {
            losses = (if step == first_step { loss } else { losses.0 }, loss);
        }
        training.save(step + 1)?;
    }
    if steps > first_step {
        training.report(losses, steps - first_step, started.elapsed().as_secs_f64())?;
    }
    Ok(())
}

/// Takes up a checkpoint, if one was asked for; gives the first step to take, and how many the optimizer has taken.
fn resume(
    gpu: &Gpu,
    options: &TrainOptions,
    plan: &mut Plan,
    scaler: &mut LossScaler,
    store: &Store,
) -> Result<(u64, u64), Error> {
    let Some(path) = &options.checkpoints.resume else {
        return Ok((0, 0));
    };
    let state = checkpoint::distribute(store, path, &plan.shape, plan.total_elements())?;
    state.check_run(path, options.seed, plan.sizes.steps)?;
    let moments: Vec<&[f32]> = state
        .moments
        .iter()
        .map(|moment| &moment[plan.elements.clone()])
        .collect();
    plan.runner
        .sharing
        .restore(gpu, &state.parameters[plan.elements.clone()], &moments)?;
    scaler.restore(state.scale, state.good_steps);
    Ok((state.step, state.taken))
}

/// A run on its way.
struct Training<'a> {
    gpu: &'a Gpu,
    options: &'a TrainOptions,
    plan: Plan,
    scaler: LossScaler,
    store: &'a Store,
    is_first_rank: bool,
    first_step: u64,
    /// Steps that the optimizer has taken.
    taken: u64,
    /// Steps that were skipped since gradients overflowed.
    skipped: u64,
}

impl Training<'_> {
    /// One step; gives the loss over all ranks where it is wanted.
    fn step(&mut self, loader: Option<&Loader>, step: u64) -> Result<Option<f32>, Error> {
        let gpu = self.gpu;
        let slot = {
            let _range = Range::new("data");
            loader.map(|loader| loader.next(&gpu.compute)).transpose()?
        };
        let batch = slot.as_ref().map_or(
            Batch {
                inputs: 0,
                targets: 0,
            },
            |slot| Batch {
                inputs: slot.inputs(),
                targets: slot.targets(),
            },
        );
        let overflow = self.plan.runner.step(gpu, batch, self.scaler.scale())?;
        if let (Some(loader), Some(slot)) = (loader, slot) {
            loader.give_back(slot, &gpu.compute)?;
        }
        let overflowed = match overflow {
            Some(flag) if self.scaler.watches() => self.any_overflow(flag)?,
            _ => false,
        };
        if overflowed {
            self.skipped += 1;
        } else {
            let _range = Range::new("optimizer");
            self.taken += 1;
            let update = Update {
                optimizer: self.options.optimizer.optimizer,
                rate: self
                    .options
                    .optimizer
                    .rate(self.plan.sizes.learning_rate, step, self.plan.sizes.steps),
                taken: self.taken,
            };
            self.plan.runner.sharing.update(gpu, &update)?;
        }
        self.scaler.update(overflowed);
        let is_end = step == self.first_step || step + 1 == self.plan.sizes.steps;
        let loss = if self.options.print_losses || is_end {
            let loss = self.loss()?;
            if self.options.print_losses && self.is_first_rank {
                println!("step {step} loss {loss}");
            }
            Some(loss)
        } else {
            None
        };
        // Never far ahead of the GPU, as a loop that reads its loss is not: bounds the queue and shows a lost peer.
        gpu.compute.synchronize()?;
        self.plan.mesh.check_health()?;
        if let Some(pipe) = &mut self.plan.runner.pipeline {
            pipe.meter.read()?;
        }
        Ok(loss)
    }

    /// Whether a gradient of any rank overflowed; waits for it.
    fn any_overflow(&self, flag: u64) -> Result<bool, Error> {
        if let Some(world) = &self.plan.mesh.world {
            let most = (Element::I32, Reduction::Max);
            world.all_reduce([flag; 2], 1, most, &self.gpu.compute)?;
        }
        Ok(self.gpu.download_int(flag)? != 0)
    }

    /// The step's loss over all ranks; waits for it.
    fn loss(&self) -> Result<f32, Error> {
        let (gpu, plan) = (self.gpu, &self.plan);
        if !plan.counts_loss {
            plan.runner.loss.clear(gpu)?;
        }
        if let Some(world) = &plan.mesh.world {
            let sum = (Element::F32, Reduction::Sum);
            world.all_reduce([plan.runner.loss.address(); 2], 1, sum, &gpu.compute)?;
        }
        plan.runner.loss.read(gpu)
    }

    /// Writes a checkpoint where one is due after `done` steps.
    fn save(&self, done: u64) -> Result<(), Error> {
        let checkpoints = &self.options.checkpoints;
        let Some(path) = checkpoints.due(done, self.plan.sizes.steps) else {
            return Ok(());
        };
        let _range = Range::new("save");
        let part = self.plan.part(self.gpu)?;
        let collected = checkpoint::collect(self.store, part.as_ref(), self.plan.total_elements())?;
        let Some((parameters, moments)) = collected else {
            return self.store.barrier();
        };
        let written = checkpoint::write(
            path,
            &State {
                step: done,
                taken: self.taken,
                shape: self.plan.shape.clone(),
                seed: self.options.seed,
                scale: self.scaler.scale(),
                good_steps: self.scaler.good_steps(),
                parameters,
                moments,
            },
        );
        self.store.barrier()?;
        written
    }

    /// What the run came to, on the first rank's terminal.
    fn report(&self, losses: (f32, f32), steps: u64, seconds: f64) -> Result<(), Error> {
        let stages = self.plan.stage_times(self.store)?;
        let norms = self.plan.norms(self.gpu)?;
        if !self.is_first_rank {
            return Ok(());
        }
        println!(
            "loss {:.6} -> {:.6} in {steps} steps, {:.2} ms a step",
            losses.0,
            losses.1,
            seconds * 1e3 / steps as f64
        );
        if self.skipped > 0 {
            println!(
                "{} of {steps} steps skipped: gradients overflowed, and the loss scale was halved to {} at last",
                self.skipped,
                self.scaler.scale()
            );
        }
        for line in stages.iter().chain(&norms) {
            println!("{line}");
        }
        Ok(())
    }
}
