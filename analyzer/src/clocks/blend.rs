//! Several curves of which one is the true one.

use super::normal::{self, Part, WITHIN_99};
use super::smooth::{Curve, Point};

/// Quantiles of Student's distribution, 99.5 %, for 1 to 10 degrees of freedom.
const STUDENT: [f64; 10] = [
    63.657, 9.925, 5.841, 4.604, 4.032, 3.707, 3.499, 3.355, 3.250, 3.169,
];

fn student(freedom: f64) -> f64 {
    if let Some(quantile) = STUDENT.get((freedom.max(1.0) as usize) - 1) {
        return *quantile;
    }
    // Cornish and Fisher's expansion.
    let z = WITHIN_99;
    z + (z.powi(3) + z) / (4.0 * freedom)
        + (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / (96.0 * freedom * freedom)
}

/// The same with some more for few: which of them count was decided by them.
fn quantile(freedom: f64) -> f64 {
    student(freedom) * (1.1 + 3.0 / freedom)
}

/// Curves through the same points, and how likely each is.
#[derive(Clone, Debug)]
pub(super) struct Blend {
    curves: Vec<(f64, Curve)>,
}

impl Blend {
    /// `None` where no point counts.
    pub(super) fn through(points: &[Point]) -> Option<Self> {
        let mut curves = Curve::likely(points)?;
        let total: f64 = curves.iter().map(|(weight, _)| weight).sum();
        for (weight, _) in &mut curves {
            *weight /= total;
        }
        (!curves.is_empty()).then_some(Self { curves })
    }

    /// The moments that all curves have points at.
    pub(super) fn times(&self) -> impl Iterator<Item = f64> {
        self.curves
            .iter()
            .take(1)
            .flat_map(|(_, curve)| curve.points.iter().map(|point| point.x))
    }

    /// The offset at a time, and the 99 % half width of its chance error.
    pub(super) fn at(&self, x: f64) -> (f64, f64) {
        let each = self.curves.iter().map(|(weight, curve)| {
            let (off, error) = curve.at(x);
            Part {
                weight: *weight,
                off,
                deviation: error * quantile(curve.freedom) / WITHIN_99,
            }
        });
        let mut parts: Vec<Part> = each.collect();
        let offset: f64 = parts.iter().map(|part| part.weight * part.off).sum();
        for part in &mut parts {
            part.off -= offset;
        }
        (offset, normal::half_width(&parts, 0.99))
    }

    /// What it wanders in a second, with a probability of 99 %.
    pub(super) fn wander(&self) -> f64 {
        let each = self.curves.iter().map(|(weight, curve)| Part {
            weight: *weight,
            off: 0.0,
            deviation: curve.wander() * quantile(curve.freedom) / WITHIN_99,
        });
        normal::half_width(&each.collect::<Vec<_>>(), 0.99)
    }
}
