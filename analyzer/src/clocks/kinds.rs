//! Operations by what is done in them: what may always end later on one host, and what ends alike.

use std::collections::BTreeMap;

use super::bias::KindMean;
use super::lasting::{Longer, longer};
use super::normal::OF_MEDIAN;
use super::sample::Sample;
use super::steps::median;

/// What is done in each operation, by small numbers.
pub(super) struct Kinds {
    /// By operation: what may always end later on one host.
    pub(super) kinds: Vec<usize>,
    count: usize,
    /// By operation: what ends alike.
    pub(super) classes: Vec<usize>,
    class_count: usize,
    /// By class: what the ends of ranks of one host say of how far they scatter.
    spreads: Vec<f64>,
    /// By kind: how much longer it takes when a rank of the second host was the last to arrive.
    longer: Vec<Option<Longer>>,
}

impl Kinds {
    pub(super) fn of(samples: &[Sample]) -> Self {
        // One kind in several sizes: each size is taken for a kind.
        let single = samples.windows(2).all(|pair| pair[0].kind == pair[1].kind);
        let numbers = |of: fn(&Sample) -> u32| -> (Vec<usize>, usize) {
            let mut known: BTreeMap<u32, usize> = BTreeMap::new();
            let mut number = |sample| {
                let next = known.len();
                *known.entry(of(sample)).or_insert(next)
            };
            let each: Vec<usize> = samples.iter().map(&mut number).collect();
            let count = known.len();
            (each, count)
        };
        let (classes, class_count) = numbers(|sample| sample.class);
        let (kinds, count) = if single {
            (classes.clone(), class_count)
        } else {
            numbers(|sample| sample.kind)
        };
        let mut by_class: Vec<Vec<f64>> = vec![Vec::new(); class_count];
        for (class, sample) in classes.iter().zip(samples) {
            by_class[*class].push(sample.spread_ns);
        }
        Self {
            spreads: by_class.iter_mut().map(|spreads| median(spreads)).collect(),
            longer: longer(samples, &kinds, count),
            kinds,
            count,
            classes,
            class_count,
        }
    }

    /// The median of each kind's residuals.
    pub(super) fn medians(&self, residuals: &[f64]) -> Vec<f64> {
        let mut by_kind: Vec<Vec<f64>> = vec![Vec::new(); self.count];
        for (kind, residual) in self.kinds.iter().zip(residuals) {
            by_kind[*kind].push(*residual);
        }
        by_kind.iter_mut().map(|residuals| median(residuals)).collect()
    }

    /// The mean of each kind's residuals; `None` of those of which none counts.
    pub(super) fn means(&self, residuals: &[f64], precision: &[f64]) -> Vec<Option<KindMean>> {
        let mut sums = vec![(0.0, 0.0); self.count];
        for ((kind, residual), precision) in self.kinds.iter().zip(residuals).zip(precision) {
            sums[*kind].0 += precision;
            sums[*kind].1 += precision * residual;
        }
        let mean = |((weight, sum), longer): ((f64, f64), &Option<Longer>)| {
            (weight > 0.0).then(|| KindMean {
                mean: sum / weight,
                error: weight.sqrt().recip(),
                longer: *longer,
            })
        };
        sums.into_iter().zip(&self.longer).map(mean).collect()
    }

    /// How far the ends of each class scatter: 1.4826 times the median distance from what is usual for their kind, and what the curve
    /// may be off itself, since it comes nearer to what it is drawn through. Few go by all, none is much sharper than all, nor than
    /// the ends on either host are by themselves.
    pub(super) fn scatter(&self, off: &[f64], errors: &[f64], least: f64) -> Vec<f64> {
        const FEW: usize = 8;
        const SHARPEST: f64 = 0.25;
        let mut by_class: Vec<(Vec<f64>, Vec<f64>)> = vec![Default::default(); self.class_count];
        for ((class, off), error) in self.classes.iter().zip(off).zip(errors) {
            by_class[*class].0.push(off.abs());
            by_class[*class].1.push(*error);
        }
        let of = |off: &mut [f64], errors: &mut [f64]| {
            let off = 1.1 * OF_MEDIAN * median(off);
            off.hypot(median(errors)).max(least)
        };
        let mut all: Vec<f64> = off.iter().map(|off| off.abs()).collect();
        let together = of(&mut all, &mut errors.to_vec());
        by_class
            .into_iter()
            .zip(&self.spreads)
            .map(|((mut off, mut errors), spread)| {
                let few = off.len() < FEW;
                let own = if few { together } else { of(&mut off, &mut errors) };
                own.max(SHARPEST * together).max(*spread)
            })
            .collect()
    }
}
