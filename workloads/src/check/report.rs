//! Comparing results with what they should be, and telling the outcome.

use super::numbers::wide;
use crate::error::Error;

/// One check's outcome.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Outcome {
    pub(super) name: String,
    /// The largest error that was seen, as [`worst_error`] measures it, or a count of wrong elements.
    pub(super) worst: f64,
    pub(super) limit: f64,
}

impl Outcome {
    /// Whether the error is within the limit.
    pub(super) fn is_ok(&self) -> bool {
        self.worst <= self.limit
    }
}

/// The largest difference, relative to the largest value that should have come out. Lengths that differ, and values
/// that are not finite where they should be, are infinitely wrong.
pub(super) fn worst_error(got: &[f32], want: &[f64]) -> f64 {
    let largest = want
        .iter()
        .fold(0.0f64, |largest, value| largest.max(value.abs()));
    worst_by(&wide(got), want, |_| largest)
}

/// The same for f64.
pub(super) fn worst_wide_error(got: &[f64], want: &[f64]) -> f64 {
    let largest = want
        .iter()
        .fold(0.0f64, |largest, value| largest.max(value.abs()));
    worst_by(got, want, |_| largest)
}

/// The largest difference, each relative to the value that should have come out. What is small beside the largest
/// value (a thousandth of it) is measured by that, since it may be what is left of larger ones.
pub(super) fn worst_relative_error(got: &[f32], want: &[f64]) -> f64 {
    let largest = want
        .iter()
        .fold(0.0f64, |largest, value| largest.max(value.abs()));
    worst_by(&wide(got), want, |want| want.abs().max(largest * 1e-3))
}

fn worst_by(got: &[f64], want: &[f64], scale: impl Fn(f64) -> f64) -> f64 {
    if got.len() != want.len() {
        return f64::INFINITY;
    }
    got.iter().zip(want).fold(0.0, |worst, (&got, &want)| {
        let difference = (got - want).abs();
        let error = if difference == 0.0 {
            0.0
        } else {
            difference / scale(want).max(f64::MIN_POSITIVE)
        };
        // `max` would pass over NaN.
        if error.is_finite() {
            worst.max(error)
        } else {
            f64::INFINITY
        }
    })
}

/// Collects outcomes and prints them.
pub(super) struct Report {
    device: String,
    ranks: u32,
    outcomes: Vec<Outcome>,
    /// How many of them were printed.
    printed: usize,
}

impl Report {
    pub(super) fn new(device: &str, ranks: u32) -> Self {
        Self {
            device: device.to_owned(),
            ranks,
            outcomes: Vec::new(),
            printed: 0,
        }
    }

    /// Adds a check's outcome. A name that is there already is the same check on other sizes: the worst counts.
    pub(super) fn add(&mut self, name: &str, worst: f64, limit: f64) {
        // What is no number is as wrong as can be, and must not be lost in a comparison.
        let worst = if worst.is_nan() { f64::INFINITY } else { worst };
        match self.outcomes.iter_mut().find(|outcome| outcome.name == name) {
            Some(outcome) => {
                outcome.worst = outcome.worst.max(worst);
                outcome.limit = outcome.limit.min(limit);
            }
            None => self.outcomes.push(Outcome {
                name: name.to_owned(),
                worst,
                limit,
            }),
        }
    }

    /// The outcomes as lines of text, for another rank.
    pub(super) fn to_lines(&self) -> String {
        self.outcomes
            .iter()
            .map(|Outcome { name, worst, limit }| format!("{worst:e} {limit:e} {name}\n"))
            .collect()
    }

    /// Adds the outcomes of another rank, as [`Report::to_lines`] wrote them.
    pub(super) fn add_lines(&mut self, lines: &str) -> Result<(), Error> {
        for line in lines.lines() {
            let mut parts = line.splitn(3, ' ');
            let mut number = || parts.next()?.parse().ok();
            let (Some(worst), Some(limit)) = (number(), number()) else {
                return Err(Error::new(format!(
                    "another rank's outcome cannot be read: {line}"
                )));
            };
            self.add(parts.next().unwrap_or_default(), worst, limit);
        }
        Ok(())
    }

    /// The exit status: 1 where a check failed, or none was made.
    pub(super) fn status(&self) -> i32 {
        i32::from(self.outcomes.is_empty() || self.failed() > 0)
    }

    /// Prints the outcomes that were not printed yet, a line each.
    pub(super) fn print(&mut self) {
        if self.printed == 0 {
            println!("{}, {} ranks", self.device, self.ranks);
            println!("{:<52} {:>10} {:>10}", "check", "worst", "limit");
        }
        for outcome in &self.outcomes[self.printed..] {
            let word = if outcome.is_ok() { "ok" } else { "FAILED" };
            let Outcome { name, worst, limit } = outcome;
            println!("{name:<52} {worst:>10.2e} {limit:>10.2e} {word}");
        }
        self.printed = self.outcomes.len();
    }

    /// Prints how many checks failed, after all that were not printed yet.
    pub(super) fn print_end(&mut self) {
        self.print();
        println!("{} checks, {} failed", self.outcomes.len(), self.failed());
    }

    fn failed(&self) -> usize {
        self.outcomes.iter().filter(|outcome| !outcome.is_ok()).count()
    }

    /// All outcomes as one JSON object.
    pub(super) fn as_json(&self) -> String {
        // Infinity is no JSON number.
        let number = |value: f64| {
            if value.is_finite() {
                format!("{value:e}")
            } else {
                "null".to_owned()
            }
        };
        let checks: Vec<String> = self
            .outcomes
            .iter()
            .map(|outcome| {
                format!(
                    "{{\"name\": {:?}, \"worst\": {}, \"limit\": {}, \"ok\": {}}}",
                    outcome.name,
                    number(outcome.worst),
                    number(outcome.limit),
                    outcome.is_ok()
                )
            })
            .collect();
        format!(
            "{{\"device\": {:?}, \"ranks\": {}, \"failed\": {}, \"checks\": [\n{}\n]}}",
            self.device,
            self.ranks,
            self.failed(),
            checks.join(",\n")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        Report {
            device: "a device".to_owned(),
            ranks: 1,
            outcomes: Vec::new(),
            printed: 0,
        }
    }

    #[test]
    fn errors_are_relative_to_the_largest_value() {
        assert_eq!(worst_error(&[1.0, 2.0], &[1.0, 2.0]), 0.0);
        assert_eq!(worst_error(&[1.5, 2.0], &[1.0, 2.0]), 0.25);
        assert_eq!(worst_relative_error(&[1.5, 2.0], &[1.0, 2.0]), 0.5);
        assert_eq!(worst_error(&[0.0], &[0.0]), 0.0);
        assert!(
            worst_error(&[1e-30], &[0.0]) > 1.0,
            "nothing should have come out"
        );
    }

    #[test]
    fn what_is_missing_or_no_number_is_wrong() {
        for (got, want) in [
            (&[1.0][..], &[1.0, 2.0][..]),
            (&[f32::NAN, 2.0], &[1.0, 2.0]),
            (&[1.0, f32::INFINITY], &[1.0, 2.0]),
            (&[1.0, 2.0], &[1.0, f64::NAN]),
        ] {
            assert_eq!(worst_error(got, want), f64::INFINITY, "{got:?}");
            assert_eq!(worst_relative_error(got, want), f64::INFINITY, "{got:?}");
        }
    }

    #[test]
    fn one_failure_fails_the_run() {
        let mut report = report();
        assert_eq!(report.status(), 1, "nothing was checked");
        report.add("a", 1e-7, 1e-6);
        assert_eq!(report.status(), 0);
        report.add("b", 1e-7, 1e-6);
        report.add("b", 1e-5, 1e-6);
        report.add("b", 0.0, 1e-6);
        assert_eq!(report.status(), 1);
        assert_eq!(report.outcomes.len(), 2);
        assert!(report.as_json().contains("\"name\": \"b\", \"worst\": 1e-5"));
    }

    #[test]
    fn another_ranks_failure_counts() {
        let (mut report, mut other) = (report(), report());
        report.add("a check", 0.0, 1e-6);
        other.add("a check", f64::NAN, 1e-6);
        other.add("its own", 1e-7, 1e-6);
        report.add_lines(&other.to_lines()).expect("lines");
        assert_eq!((report.status(), report.outcomes.len()), (1, 2));
        assert!(report.add_lines("nonsense").is_err());
    }

    #[test]
    fn an_error_that_is_no_number_fails() {
        let mut report = report();
        report.add("a", 0.0, 1.0);
        report.add("a", f64::NAN, 1.0);
        assert_eq!(report.status(), 1);
        report.add("a", 0.5, 1.0);
        assert_eq!(report.status(), 1, "a later success does not undo it");
    }
}
