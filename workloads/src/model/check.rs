//! Whether a network's sizes fit together, and divide over the ranks of tensor parallelism.

use super::{Network, Role, UnitSpec};
use crate::error::Error;

/// Says which option to change where `divisor` does not divide `size`.
fn divides(size: usize, what: &str, divisor: usize, by: &str, option: &str) -> Result<(), Error> {
    if size > 0 && divisor > 0 && size.is_multiple_of(divisor) {
        return Ok(());
    }
    Err(Error::new(format!(
        "{size} {what} can't be divided over {divisor} {by}: change {option}"
    )))
}

impl Network {
    /// Whether this network can be trained by so many ranks of tensor parallelism, on microbatches of `rows` rows.
    /// `sequence`: rows are divided as well.
    ///
    /// # Errors
    /// One line that names the sizes that don't fit and the options that change them.
    pub(crate) fn check(&self, tensor_ranks: usize, sequence: bool, rows: usize) -> Result<(), Error> {
        for unit in &self.units {
            unit.check(tensor_ranks)?;
        }
        let is_shared = |unit: &UnitSpec| {
            !matches!(
                unit,
                UnitSpec::Linear {
                    role: Role::Whole,
                    ..
                } | UnitSpec::Embedding { .. }
                    | UnitSpec::Head { .. }
            )
        };
        if tensor_ranks > 1 && !self.units.iter().any(is_shared) {
            return Err(Error::new(format!(
                "tensor parallelism over {tensor_ranks} ranks needs two layers that belong together, or a block: set \
                 --layers to 2 or more"
            )));
        }
        let per_sample = self.rows_per_sample;
        divides(
            rows,
            "rows of a microbatch",
            per_sample,
            "tokens of a sample",
            "--batch",
        )?;
        if !sequence || tensor_ranks == 1 {
            return Ok(());
        }
        let ranks = "ranks of sequence parallelism";
        divides(rows, "rows of a microbatch", tensor_ranks, ranks, "--batch")?;
        let share = rows / tensor_ranks;
        if per_sample > 1 && !share.is_multiple_of(per_sample) && !per_sample.is_multiple_of(share) {
            return Err(Error::new(format!(
                "{tensor_ranks} ranks of sequence parallelism would have {share} of a microbatch's {rows} tokens each, \
                 which is neither whole samples of {per_sample} nor an even part of one: change --batch or --context"
            )));
        }
        Ok(())
    }
}

impl UnitSpec {
    fn check(&self, ranks: usize) -> Result<(), Error> {
        let ranks_name = "ranks of tensor parallelism";
        match *self {
            Self::Linear {
                inputs,
                outputs,
                role,
                ..
            } => match role {
                Role::Whole => Ok(()),
                Role::Column { .. } => divides(outputs, "columns of a layer", ranks, ranks_name, "--hidden"),
                Role::Row => divides(inputs, "rows of a layer's weights", ranks, ranks_name, "--hidden"),
            },
            Self::Block { width, heads, .. } => {
                divides(width, "columns of a block", heads, "heads", "--hidden or --heads")?;
                divides(heads, "heads", ranks, ranks_name, "--heads")
            }
            Self::Embedding { .. } | Self::Head { .. } => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(outcome: Result<(), Error>) -> String {
        outcome.expect_err("sizes that do not fit").to_string()
    }

    #[test]
    fn sizes_that_divide_are_fine() {
        let transformer = Network::transformer(16, 8, 32, 4, 2);
        for ranks in [1, 2, 4] {
            transformer.check(ranks, false, 24).expect("heads divide");
        }
        // Whole samples, and halves of one.
        transformer.check(2, true, 32).expect("two samples each");
        transformer.check(4, true, 16).expect("half a sample each");
        let perceptron = Network::perceptron(&[10, 12, 12, 5]);
        perceptron.check(4, true, 8).expect("hidden and rows divide");
    }

    #[test]
    fn what_does_not_divide_is_told_with_its_option() {
        let transformer = Network::transformer(16, 8, 32, 4, 2);
        let heads = refused(transformer.check(3, false, 24));
        assert_eq!(
            heads,
            "4 heads can't be divided over 3 ranks of tensor parallelism: change --heads"
        );
        assert!(refused(transformer.check(1, false, 20)).contains("change --batch"));
        // 3 samples over 2 ranks: one and a half each.
        assert!(refused(transformer.check(2, true, 24)).contains("which is neither whole samples of 8"));
        assert!(
            refused(Network::transformer(16, 8, 30, 4, 2).check(1, false, 8)).contains("--hidden or --heads")
        );
        let perceptron = Network::perceptron(&[10, 9, 9, 5]);
        assert!(refused(perceptron.check(2, false, 8)).contains("change --hidden"));
        assert!(refused(Network::perceptron(&[10, 9]).check(2, false, 8)).contains("--layers"));
        assert!(refused(Network::perceptron(&[10, 8, 4]).check(2, true, 7)).contains("--batch"));
    }
}
