//! Optimizers, and the learning rate of each step.

use clap::{Args, ValueEnum};

/// How parameters follow their gradients.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Optimizer {
    /// Plain gradient descent
    #[default]
    Sgd,
    /// Adam with the usual constants (0.9, 0.999, 1e-8)
    Adam,
}

impl Optimizer {
    /// What it is called.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Sgd => "sgd",
            Self::Adam => "adam",
        }
    }

    /// Vectors that it keeps, each as long as the parameters.
    pub(crate) fn moments(self) -> usize {
        match self {
            Self::Sgd => 0,
            Self::Adam => 2,
        }
    }
}

/// How the learning rate goes on once it is warm. All end with the run.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum LearningRateSchedule {
    /// As it is
    #[default]
    Constant,
    /// Down to 0 in a straight line
    Linear,
    /// Down to 0 along half a cosine
    Cosine,
    /// To a tenth after each third of the run
    Step,
}

/// The optimizer and its learning rate.
#[derive(Args, Debug, Clone, Default)]
#[command(next_help_heading = "Optimizer")]
pub(crate) struct OptimizerOptions {
    /// How parameters follow their gradients
    #[arg(long, value_enum, default_value = "sgd")]
    pub(crate) optimizer: Optimizer,
    /// Learning rate, at its height
    #[arg(long, value_name = "RATE", value_parser = learning_rate)]
    pub(crate) learning_rate: Option<f32>,
    /// How the learning rate goes on after the warm-up
    #[arg(long, value_enum, value_name = "SCHEDULE", default_value = "constant")]
    pub(crate) lr_schedule: LearningRateSchedule,
    /// Steps in which the learning rate rises to its height
    #[arg(long, default_value = "0", value_name = "N")]
    pub(crate) warmup_steps: u64,
}

impl OptimizerOptions {
    /// The learning rate of `step`, counted from 0, in a run of so many `steps`, where `height` is its height.
    ///
    /// In w warm-up steps it is height * (step + 1) / w. Behind them p = (step - w) / (steps - w) goes from 0 to below
    /// 1, and the rate is height times: 1 (constant), 1 - p (linear), (1 + cos(pi p)) / 2 (cosine), or 0.1 to the
    /// power of floor(3 p) (step).
    pub(crate) fn rate(&self, height: f32, step: u64, steps: u64) -> f32 {
        let height = f64::from(height);
        let warm = self.warmup_steps;
        if step < warm {
            return (height * (step + 1) as f64 / warm as f64) as f32;
        }
        // Whole numbers, so that a third of the run is just that.
        let (done, length) = (step - warm, steps.saturating_sub(warm).max(1));
        let done = done.min(length);
        let progress = done as f64 / length as f64;
        let factor = match self.lr_schedule {
            LearningRateSchedule::Constant => 1.0,
            LearningRateSchedule::Linear => 1.0 - progress,
            LearningRateSchedule::Cosine => (1.0 + (std::f64::consts::PI * progress).cos()) / 2.0,
            LearningRateSchedule::Step => {
                [1.0, 0.1, 0.01][(3 * u128::from(done) / u128::from(length)).min(2) as usize]
            }
        };
        (height * factor) as f32
    }
}

fn learning_rate(text: &str) -> Result<f32, String> {
    text.parse()
        .ok()
        .filter(|rate: &f32| rate.is_finite() && *rate >= 0.0)
        .ok_or_else(|| "a learning rate is a number from 0 on".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        options: OptimizerOptions,
    }

    fn parse(words: &[&str]) -> Result<OptimizerOptions, clap::Error> {
        Cli::try_parse_from(std::iter::once(&"workload").chain(words)).map(|cli| cli.options)
    }

    fn rates(words: &[&str], steps: u64) -> Vec<f32> {
        let options = parse(words).expect("parses");
        (0..steps).map(|step| options.rate(8.0, step, steps)).collect()
    }

    #[test]
    fn rates_by_hand() {
        assert_eq!(rates(&[], 3), [8.0; 3]);
        assert_eq!(rates(&["--lr-schedule", "linear"], 4), [8.0, 6.0, 4.0, 2.0]);
        // cos(60 degrees) is 1/2, cos(90 degrees) 0.
        let cosine = rates(&["--lr-schedule", "cosine"], 6);
        for (step, expected) in [(0, 8.0), (2, 6.0), (3, 4.0), (4, 2.0)] {
            assert!(
                (cosine[step] - expected).abs() < 1e-5,
                "step {step}: {}",
                cosine[step]
            );
        }
        assert_eq!(
            rates(&["--lr-schedule", "step"], 6),
            [8.0, 8.0, 0.8, 0.8, 0.08, 0.08]
        );
    }

    #[test]
    fn the_warm_up_rises_to_the_height_and_the_rest_falls_from_there() {
        assert_eq!(
            rates(&["--warmup-steps", "4", "--lr-schedule", "linear"], 8),
            [2.0, 4.0, 6.0, 8.0, 8.0, 6.0, 4.0, 2.0]
        );
    }

    #[test]
    fn odd_lengths_are_no_trouble() {
        for schedule in ["constant", "linear", "cosine", "step"] {
            let options = parse(&["--lr-schedule", schedule, "--warmup-steps", "9"]).expect("parses");
            for steps in [0, 1, 9, 10, u64::MAX] {
                for step in [0, 8, 9, 10, 1000] {
                    let rate = options.rate(1.0, step, steps);
                    assert!(
                        (0.0..=1.0).contains(&rate),
                        "{schedule} {step} of {steps}: {rate}"
                    );
                }
            }
        }
    }

    #[test]
    fn rates_that_are_none_are_refused() {
        for text in ["-1", "nan", "inf", "x"] {
            assert!(parse(&["--learning-rate", text]).is_err(), "{text}");
        }
        assert_eq!(
            parse(&["--learning-rate", "0.5"]).expect("parses").learning_rate,
            Some(0.5)
        );
    }

    #[test]
    fn adam_keeps_two_vectors() {
        let options = parse(&["--optimizer", "adam"]).expect("parses");
        assert_eq!(
            (options.optimizer.moments(), options.optimizer.name()),
            (2, "adam")
        );
        assert_eq!(Optimizer::default().moments(), 0);
    }
}
