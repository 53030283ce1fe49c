//! Checkpoints: one file with the whole, unsharded vectors, the same for every way to train.
//!
//! The first line is a JSON object ([`format::Header`]); behind it are f32 in little-endian order: the parameters, then
//! the optimizer's vectors.

mod collect;
mod distribute;
mod exchange;
mod format;
mod load;
mod options;
mod save;

use std::path::Path;

use crate::error::Error;

pub(crate) use collect::{Part, collect};
pub(crate) use distribute::distribute;
pub(crate) use options::CheckpointOptions;
pub(crate) use save::write;

/// All that a run needs to go on as if it had not been broken off.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct State {
    /// Steps that were done.
    pub(crate) step: u64,
    /// Steps that the optimizer took: those that were not skipped.
    pub(crate) taken: u64,
    /// Network and optimizer, in words.
    pub(crate) shape: String,
    pub(crate) seed: u64,
    /// State of the loss scaling.
    pub(crate) scale: f32,
    pub(crate) good_steps: u64,
    pub(crate) parameters: Vec<f32>,
    /// The optimizer's vectors, each as long as the parameters.
    pub(crate) moments: Vec<Vec<f32>>,
}

impl State {
    /// Whether a run with this seed and so many steps can go on from here, where the same was asked for.
    pub(crate) fn check_run(&self, path: &Path, seed: u64, steps: u64) -> Result<(), Error> {
        let (path, own, step) = (path.display(), self.seed, self.step);
        if own != seed {
            return Err(Error::new(format!(
                "the checkpoint {path} is of --seed {own}, but this run has --seed {seed}: its data would come in \
                 another order"
            )));
        }
        if step >= steps {
            return Err(Error::new(format!(
                "the checkpoint {path} has {step} steps done, and this run ends after {steps}: give more --steps"
            )));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_cannot_go_on_is_told_why() {
        let state = load::tests::state(5, 1);
        let check = |seed, steps| {
            let outcome = state.check_run(Path::new("a"), seed, steps);
            outcome.map_err(|error| error.to_string())
        };
        assert_eq!(check(17, 6), Ok(()));
        assert!(check(18, 6).expect_err("seed").contains("--seed 17"));
        assert!(check(17, 5).expect_err("steps").contains("--steps"));
    }
}
