//! How a rank holds its parameters: all of them, or a share that is gathered when needed.

use std::ops::Range;

use crate::checkpoint::Part;
use crate::error::Error;
use crate::gpu::Gpu;

use super::state::Update;

/// What a unit's parameters are wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Forward,
    /// Forward again in the backward pass, since activations were not kept.
    Recompute,
    Backward,
}

/// Where the parameters of a stage's units are while it computes, and where their gradients go. Units are numbered
/// within the stage.
pub(crate) trait Placement {
    /// The flat parameters of a unit, in the type that is computed in; ready for the compute stream.
    fn parameters(&mut self, gpu: &Gpu, unit: usize, phase: Phase) -> Result<u64, Error>;

    /// The unit's parameters are not needed any more in this phase.
    fn done(&mut self, gpu: &Gpu, unit: usize, phase: Phase) -> Result<(), Error>;

    /// Where the unit's backward pass is to write its flat gradients.
    fn gradients(&mut self, gpu: &Gpu, unit: usize) -> Result<u64, Error>;

    /// Gradients of these elements of the unit are on their way on the compute stream; `last`: of the step's last
    /// microbatch, so that they may be reduced.
    fn ready(&mut self, gpu: &Gpu, unit: usize, elements: Range<usize>, last: bool) -> Result<(), Error>;
}

/// How a rank holds its stage's parameters, gradients and moments through a step and over the run.
pub(crate) trait Sharing: Placement {
    /// A step begins: gradients are accumulated anew. `unscale` undoes the loss scaling.
    fn begin_step(&mut self, gpu: &Gpu, unscale: f32) -> Result<(), Error>;

    /// The step's backward passes have been enqueued: the compute stream goes on when gradients are reduced. Device
    /// address of an i32 that is 1 if a gradient overflowed, where that is watched.
    fn finish_backward(&mut self, gpu: &Gpu) -> Result<Option<u64>, Error>;

    /// One step of the optimizer.
    fn update(&mut self, gpu: &Gpu, update: &Update) -> Result<(), Error>;

    /// This rank's elements and where they are in the stage's unsharded vector, if it is the one to save them:
    /// pieces, f32 parameters, and the optimizer's moments.
    fn save(&self, gpu: &Gpu) -> Result<Option<Part>, Error>;

    /// The norm of each of this rank's gradients, where they are watched.
    fn norms(&self, _gpu: &Gpu) -> Result<Option<Vec<f32>>, Error> {
        Ok(None)
    }

    /// Takes up unsharded vectors of the stage: parameters and moments.
    fn restore(&mut self, gpu: &Gpu, parameters: &[f32], moments: &[&[f32]]) -> Result<(), Error>;
}
