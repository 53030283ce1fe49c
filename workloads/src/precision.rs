//! Mixed precision: which type is computed in, and the scale that keeps small gradients of f16 from becoming 0.

use clap::Args;

use crate::gpu::DataType;

/// The scale that f16 begins with.
const FIRST_SCALE: f32 = 65536.0;

/// Which type is computed in.
#[derive(Args, Debug, Clone)]
#[command(next_help_heading = "Precision")]
pub(crate) struct PrecisionOptions {
    /// Type of activations and gradients; parameters are kept in f32 besides
    #[arg(long, value_enum, default_value = "f32", value_name = "TYPE")]
    pub(crate) dtype: DataType,
    /// With f16: the loss scale is doubled after so many steps without overflow
    #[arg(long, default_value = "2000", value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) loss_scale_growth: u64,
}

/// Dynamic loss scaling.
///
/// The loss is multiplied by the scale, and gradients are divided by it. When a gradient overflows all the same, the
/// step is skipped and the scale halved; after so many good steps in a row it is doubled. f16 alone needs this: bf16
/// and f32 have a scale of 1 and nobody looks for overflows.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LossScaler {
    watches: bool,
    scale: f32,
    good_steps: u64,
    growth: u64,
}

impl LossScaler {
    /// As the options say.
    pub(crate) fn new(options: &PrecisionOptions) -> Self {
        let watches = options.dtype == DataType::F16;
        Self {
            watches,
            scale: if watches { FIRST_SCALE } else { 1.0 },
            good_steps: 0,
            growth: options.loss_scale_growth,
        }
    }

    /// What the loss is multiplied by.
    pub(crate) fn scale(&self) -> f32 {
        self.scale
    }

    /// Steps since the last overflow or doubling.
    pub(crate) fn good_steps(&self) -> u64 {
        self.good_steps
    }

    /// Whether overflows have to be looked for.
    pub(crate) fn watches(&self) -> bool {
        self.watches
    }

    /// Takes note of a step: whether a gradient overflowed, so that it was skipped.
    pub(crate) fn update(&mut self, overflowed: bool) {
        if !self.watches {
            return;
        }
        if overflowed {
            self.scale = (self.scale / 2.0).max(1.0);
            self.good_steps = 0;
            return;
        }
        self.good_steps += 1;
        if self.good_steps >= self.growth {
            self.good_steps = 0;
            if (self.scale * 2.0).is_finite() {
                self.scale *= 2.0;
            }
        }
    }

    /// Goes on from a checkpoint's state.
    pub(crate) fn restore(&mut self, scale: f32, good_steps: u64) {
        if self.watches {
            self.scale = scale.max(1.0);
            self.good_steps = good_steps;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scaler(dtype: DataType, loss_scale_growth: u64) -> LossScaler {
        LossScaler::new(&PrecisionOptions {
            dtype,
            loss_scale_growth,
        })
    }

    /// Scales after each of these steps; an overflow is `true`.
    fn scales(scaler: &mut LossScaler, steps: &[bool]) -> Vec<f32> {
        steps
            .iter()
            .map(|&overflowed| {
                scaler.update(overflowed);
                scaler.scale()
            })
            .collect()
    }

    #[test]
    fn an_overflow_halves_and_good_steps_in_a_row_double() {
        let mut scaler = scaler(DataType::F16, 3);
        assert_eq!(scaler.scale(), 65536.0);
        let steps = [true, false, false, true, false, false, false, false];
        assert_eq!(
            scales(&mut scaler, &steps),
            [
                32768.0, 32768.0, 32768.0, 16384.0, 16384.0, 16384.0, 32768.0, 32768.0
            ]
        );
        assert_eq!(scaler.good_steps(), 1);
    }

    #[test]
    fn the_scale_stays_between_1_and_what_f32_holds() {
        let mut low = scaler(DataType::F16, 3);
        assert_eq!(scales(&mut low, &[true; 20])[15..], [1.0; 5]);
        let mut high = scaler(DataType::F16, 1);
        let scales = scales(&mut high, &[false; 200]);
        assert!(scales.iter().all(|scale| scale.is_finite()));
        assert_eq!(scales[199], 2f32.powi(127));
    }

    #[test]
    fn other_types_are_not_scaled() {
        for dtype in [DataType::F32, DataType::Bf16] {
            let mut scaler = scaler(dtype, 1);
            assert!(!scaler.watches());
            assert_eq!(scales(&mut scaler, &[false, true]), [1.0, 1.0]);
            scaler.restore(64.0, 1);
            assert_eq!((scaler.scale(), scaler.good_steps()), (1.0, 0));
        }
    }

    #[test]
    fn a_restored_scaler_goes_on_as_if_unbroken() {
        let steps = [false, true, false, false, false, true, false, false];
        let mut unbroken = scaler(DataType::F16, 2);
        let expected = scales(&mut unbroken, &steps);
        for cut in 0..steps.len() {
            let mut first = scaler(DataType::F16, 2);
            let mut seen = scales(&mut first, &steps[..cut]);
            let mut second = scaler(DataType::F16, 2);
            second.restore(first.scale(), first.good_steps());
            seen.extend(scales(&mut second, &steps[cut..]));
            assert_eq!(seen, expected, "cut at {cut}");
        }
    }
}
