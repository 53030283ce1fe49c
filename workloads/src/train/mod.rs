//! The training loop, one for all ways to divide the work over ranks that are processes.

mod buckets;
mod data_parallel;
mod devices;
mod engine;
mod fsdp;
mod graphs;
mod link;
mod loss;
mod measure;
mod mesh;
mod meter;
mod model_parallel;
mod one_process;
mod pipeline;
mod plan;
mod reducer;
mod replicated;
mod report;
mod runner;
mod share;
mod sharing;
mod stage;
mod state;

use std::rc::Rc;
use std::time::Instant;

use crate::checkpoint::{self, State};
use crate::error::Error;
use crate::gpu::Gpu;
use crate::loader::Loader;
use crate::nvtx::Range;
use crate::options::TrainOptions;
use crate::precision::LossScaler;
use crate::rank::Rank;
use crate::store::Store;
use crate::trouble::{Delays, Where};

pub(crate) use one_process::OneProcess;
pub(crate) use pipeline::Schedule;
pub(crate) use plan::{Balance, Division, Reduce, Way};

use engine::Batch;
use plan::Plan;
use state::Update;

/// Trains on this rank as `way` says.
pub(crate) fn run(options: &TrainOptions, way: &Way, rank: &Rank, store: &Store) -> Result<(), Error> {
    options.trouble.check(rank.ranks, rank.ranks)?;
    if way.graphs && options.trouble.synchronize {
        return Err(Error::new(
            "--synchronize: what is captured for --graph cannot be waited for: leave one of them out",
        ));
    }
    let plan = |gpu: &Rc<Gpu>| Plan::new(gpu, options, way, rank, store);
    run_plan(options, plan, rank, store)
}

/// Trains on several GPUs of this process.
pub(crate) fn run_one_process(
    options: &TrainOptions,
    way: OneProcess,
    rank: &Rank,
    store: &Store,
) -> Result<(), Error> {
    if rank.ranks > 1 {
        return Err(Error::new(format!(
            "{} is one process that uses several GPUs, but was started as {} ranks",
            way.name(),
            rank.ranks
        )));
    }
    options.trouble.check(rank.ranks, way.gpus())?;
    run_plan(
        options,
        |gpu: &Rc<Gpu>| one_process::plan(gpu, options, way),
        rank,
        store,
    )
}

fn run_plan(
    options: &TrainOptions,
    plan: impl FnOnce(&Rc<Gpu>) -> Result<Plan, Error>,
    rank: &Rank,
    store: &Store,
) -> Result<(), Error> {
    let mut gpu = Gpu::open(rank.local_rank)?;
    let straggler = options.trouble.straggler;
    if let Some((_, factor)) = straggler.filter(|(straggler, _)| *straggler == rank.rank) {
        gpu.slow_down(factor);
    }
    let gpu = Rc::new(gpu);
    let mut plan = plan(&gpu)?;
    let mut scaler = LossScaler::new(&options.precision);
    if rank.rank == 0 {
        options.checkpoints.check()?;
    }
    let (first_step, taken) = resume(options, &mut plan, &mut scaler, store)?;
    let loader = plan.start_loader(&gpu, options, rank.rank, first_step)?;
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
        delays: options.trouble.delays(Where::Step, rank.rank),
        is_first_rank: rank.rank == 0,
        first_step,
        taken,
        skipped: 0,
    };
    let started = Instant::now();
    std::thread::sleep(options.trouble.delays(Where::Start, rank.rank).at(0));
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
    plan.engine.restore(&state.parameters, &state.moments)?;
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
    /// This rank's, in steps.
    delays: Delays,
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
        let delay = self.delays.at(step);
        self.plan.engine.step(batch, self.scaler.scale(), delay)?;
        if let (Some(loader), Some(slot)) = (loader, slot) {
            loader.give_back(slot, &gpu.compute)?;
        }
        let overflowed = self.scaler.watches() && self.plan.engine.overflowed()?;
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
            self.plan.engine.update(&update)?;
        }
        self.scaler.update(overflowed);
        let is_end = step == self.first_step || step + 1 == self.plan.sizes.steps;
        let loss = if self.options.print_losses || is_end {
            let loss = self.plan.engine.loss()?;
            if self.options.print_losses && self.is_first_rank {
                println!("step {step} loss {loss}");
            }
            Some(loss)
        } else {
            None
        };
        // Never far ahead of the GPU, as a loop that reads its loss is not: bounds the queue and shows a lost peer.
        self.plan.engine.finish_step()?;
        Ok(loss)
    }

    /// Writes a checkpoint where one is due after `done` steps.
    fn save(&self, done: u64) -> Result<(), Error> {
        let checkpoints = &self.options.checkpoints;
        let Some(path) = checkpoints.due(done, self.plan.sizes.steps) else {
            return Ok(());
        };
        let _range = Range::new("save");
        let part = self.plan.engine.save()?;
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
        let lines = self.plan.engine.report(self.store)?;
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
        for line in lines {
            println!("{line}");
        }
        Ok(())
    }
}
