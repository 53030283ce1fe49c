//! Several curves of which one is the true one.

use statrs::distribution::{ContinuousCDF, StudentsT};

use super::normal::{self, Part, WITHIN_99};
use super::smooth::{Curve, Point};

/// Student's 99.5 % quantile, and some more where few points decided which of them count.
fn quantile(freedom: f64) -> f64 {
    let freedom = freedom.max(1.0);
    // Of whole degrees of freedom, downwards: wider, never narrower. With the degrees that it is given it can be made.
    let student =
        StudentsT::new(0.0, 1.0, freedom.floor()).map_or(f64::INFINITY, |student| student.inverse_cdf(0.995));
    student * (1.1 + 3.0 / freedom)
}

/// A curve.
#[derive(Clone, Debug)]
struct Weighed {
    /// How likely it is.
    weight: f64,
    /// How many of its errors 99 % are within, over [`WITHIN_99`].
    factor: f64,
    curve: Curve,
}

/// Curves through the same points, and how likely each is.
#[derive(Clone, Debug)]
pub(super) struct Blend {
    curves: Vec<Weighed>,
}

impl Blend {
    /// `None` where no point counts.
    pub(super) fn through(points: &[Point]) -> Option<Self> {
        let curves = Curve::likely(points)?;
        let total: f64 = curves.iter().map(|(weight, _)| weight).sum();
        let weighed = curves.into_iter().map(|(weight, curve)| Weighed {
            weight: weight / total,
            factor: quantile(curve.freedom) / WITHIN_99,
            curve,
        });
        let curves: Vec<Weighed> = weighed.collect();
        (!curves.is_empty()).then_some(Self { curves })
    }

    /// The moments that all curves have points at.
    pub(super) fn times(&self) -> impl Iterator<Item = f64> {
        self.curves
            .iter()
            .take(1)
            .flat_map(|one| one.curve.points.iter().map(|point| point.x))
    }

    /// The offset at a time, and the 99 % half width of its chance error.
    pub(super) fn at(&self, x: f64) -> (f64, f64) {
        let each = self.curves.iter().map(|one| {
            let (off, error) = one.curve.at(x);
            Part {
                weight: one.weight,
                off,
                deviation: error * one.factor,
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
        let each = self.curves.iter().map(|one| Part {
            weight: one.weight,
            off: 0.0,
            deviation: one.curve.wander() * one.factor,
        });
        normal::half_width(&each.collect::<Vec<_>>(), 0.99)
    }
}
