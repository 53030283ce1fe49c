//! What the training loop drives: whatever computes a step on this process's devices.

use std::time::Duration;

use crate::checkpoint::Part;
use crate::error::Error;
use crate::store::Store;

use super::state::Update;

/// Where a process's part of the batch is, in device memory.
#[derive(Clone, Copy)]
pub(crate) struct Batch {
    pub(crate) inputs: u64,
    pub(crate) targets: u64,
}

/// One process's part of training.
pub(crate) trait Engine {
    /// Enqueues a step's forward and backward passes. `scale`: what the loss is multiplied by for its gradients. The thread
    /// sleeps for `delay` where the forward pass begins.
    fn step(&mut self, batch: Batch, scale: f32, delay: Duration) -> Result<(), Error>;

    /// Whether a gradient of any rank overflowed in this step; waits for it. All ranks must call.
    fn overflowed(&self) -> Result<bool, Error>;

    /// Enqueues one step of the optimizer.
    fn update(&mut self, update: &Update) -> Result<(), Error>;

    /// The step's loss over all ranks; waits for it. All ranks must call.
    fn loss(&self) -> Result<f32, Error>;

    /// The step is over: waits for all devices, and tells what went wrong behind the calls' back.
    fn finish_step(&mut self) -> Result<(), Error>;

    /// What this process saves of the unsharded state; `None` if another one saves the same.
    fn save(&self) -> Result<Option<Part>, Error>;

    /// Takes up the unsharded state.
    fn restore(&mut self, parameters: &[f32], moments: &[Vec<f32>]) -> Result<(), Error>;

    /// Lines about the run for the terminal of the first rank. All ranks must call.
    fn report(&self, store: &Store) -> Result<Vec<String>, Error>;
}
