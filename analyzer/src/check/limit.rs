//! A line of a budget: what is limited, and how.

use std::fmt;

/// Which side of a limit is within.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Values up to the limit.
    AtMost,
    /// Values below it.
    Below,
    /// Values from the limit on.
    AtLeast,
    /// Values above it.
    Above,
    /// The limit alone.
    Exactly,
}

impl Side {
    fn sign(self) -> &'static str {
        match self {
            Self::AtMost => "<=",
            Self::Below => "<",
            Self::AtLeast => ">=",
            Self::Above => ">",
            Self::Exactly => "=",
        }
    }

    /// Whether smaller values are better.
    #[must_use]
    pub fn is_upper(self) -> bool {
        matches!(self, Self::AtMost | Self::Below)
    }

    /// Whether a value is within.
    #[must_use]
    pub fn holds(self, value: f64, limit: f64) -> bool {
        match self {
            Self::AtMost => value <= limit,
            Self::Below => value < limit,
            Self::AtLeast => value >= limit,
            Self::Above => value > limit,
            Self::Exactly => value == limit,
        }
    }
}

/// What a value counts in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Nanoseconds.
    Ns,
    /// From 0 to 1.
    Ratio,
    /// A number of things.
    Count,
}

impl Unit {
    /// Its word in JSON.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Ns => "ns",
            Self::Ratio => "ratio",
            Self::Count => "count",
        }
    }
}

/// How far a value may go.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// To here: in nanoseconds, a ratio or a count.
    Absolute(f64),
    /// By this share more than the baseline.
    Share(f64),
    /// By so many nanoseconds more than the baseline.
    More(f64),
}

/// A limit as it is written: "<= 120ms", ">= 0.6", "<= +3%".
#[derive(Clone, Debug, PartialEq)]
pub struct Limit {
    /// Which side is within.
    pub side: Side,
    /// How far.
    pub bound: Bound,
    /// The number as it was written, with its unit.
    text: String,
}

impl fmt::Display for Limit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", self.side.sign(), self.text)
    }
}

const HOW: &str =
    "write \"<= 120ms\", \">= 0.6\", \"= 0\", or against the baseline \"<= +3%\" or \"<= +2ms\"";

impl Limit {
    /// Reads a limit for something that counts in `unit`.
    ///
    /// # Errors
    /// What is wrong, and how it is written.
    pub fn parse(text: &str, unit: Unit) -> Result<Self, String> {
        let text = text.trim();
        let signs = [
            ("<=", Side::AtMost),
            (">=", Side::AtLeast),
            ("==", Side::Exactly),
            ("<", Side::Below),
            (">", Side::Above),
            ("=", Side::Exactly),
        ];
        let signed = signs
            .iter()
            .find_map(|(sign, side)| text.strip_prefix(sign).map(|rest| (*side, rest.trim())));
        // "+3%" alone can only be meant as the most.
        let is_relative = |rest: &str| rest.starts_with(['+', '-']);
        let (side, rest) = match signed {
            Some(found) => found,
            None if is_relative(text) => (Side::AtMost, text),
            None => return Err(format!("\"{text}\" says no side: {HOW}")),
        };
        let bound = bound(rest, unit).map_err(|why| format!("\"{text}\": {why}"))?;
        if matches!(bound, Bound::Absolute(value) if unit == Unit::Ratio && !(0.0..=1.0).contains(&value)) {
            return Err(format!("\"{text}\": a ratio is from 0 to 1 (or 0% to 100%)"));
        }
        Ok(Self {
            side,
            bound,
            text: rest.to_owned(),
        })
    }

    /// Whether it needs a baseline.
    #[must_use]
    pub fn is_relative(&self) -> bool {
        !matches!(self.bound, Bound::Absolute(_))
    }

    /// The greatest or smallest value that is within, of something that the baseline has as `baseline`.
    #[must_use]
    pub fn value(&self, baseline: Option<f64>) -> Option<f64> {
        match self.bound {
            Bound::Absolute(value) => Some(value),
            Bound::Share(share) => baseline.map(|baseline| baseline * (1.0 + share)),
            Bound::More(more) => baseline.map(|baseline| baseline + more),
        }
    }
}

fn bound(text: &str, unit: Unit) -> Result<Bound, String> {
    let digits = text
        .trim_end_matches(|letter: char| letter.is_alphabetic() || letter == '%')
        .trim_end();
    let suffix = text[digits.len()..].trim();
    let number: f64 = digits
        .replace('_', "")
        .parse()
        .ok()
        .filter(|number: &f64| number.is_finite())
        .ok_or_else(|| format!("no number: {HOW}"))?;
    let relative = text.starts_with(['+', '-']);
    let nanoseconds = match suffix {
        "ns" => Some(1.0),
        "us" | "µs" => Some(1e3),
        "ms" => Some(1e6),
        "s" => Some(1e9),
        _ => None,
    };
    match (suffix, relative, unit) {
        ("%", true, _) => Ok(Bound::Share(number / 100.0)),
        ("%", false, Unit::Ratio) => Ok(Bound::Absolute(number / 100.0)),
        ("", false, Unit::Ratio | Unit::Count) => Ok(Bound::Absolute(number)),
        ("", true, Unit::Ratio | Unit::Count) => Ok(Bound::More(number)),
        ("", _, Unit::Ns) => Err("a time needs a unit: ns, us, ms or s".to_owned()),
        (_, _, Unit::Ns) => match nanoseconds {
            Some(scale) if relative => Ok(Bound::More(number * scale)),
            Some(scale) => Ok(Bound::Absolute(number * scale)),
            None => Err(format!(
                "\"{suffix}\" is no unit of time: ns, us, ms or s, or a change as +3%"
            )),
        },
        (_, _, Unit::Ratio) => Err(format!(
            "\"{suffix}\" does not fit: it is a ratio, from 0 to 1 or in %"
        )),
        (_, _, Unit::Count) => Err(format!("\"{suffix}\" does not fit: it is a number")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read() {
        let parse = |text, unit| Limit::parse(text, unit).unwrap();
        let limit = parse("<= 120ms", Unit::Ns);
        assert_eq!((limit.side, limit.bound), (Side::AtMost, Bound::Absolute(120e6)));
        assert_eq!(limit.to_string(), "<= 120ms");
        assert_eq!(parse(">= 60%", Unit::Ratio).bound, Bound::Absolute(0.6));
        assert_eq!(parse("+3%", Unit::Ns).bound, Bound::Share(0.03));
        assert_eq!(parse("<= +1.5 us", Unit::Ns).bound, Bound::More(1500.0));
        assert_eq!(parse(">= -2%", Unit::Ratio).value(Some(0.5)), Some(0.49));
        assert_eq!(parse("= 0", Unit::Count).side, Side::Exactly);
    }

    #[test]
    fn what_can_t_be_meant_is_refused() {
        let refused = |text, unit| Limit::parse(text, unit).unwrap_err();
        assert!(refused("<= 120", Unit::Ns).contains("unit"));
        assert!(refused("<= 5 parsecs", Unit::Ns).contains("parsecs"));
        assert!(refused(">= 1.5", Unit::Ratio).contains("from 0 to 1"));
        assert!(refused("<= 5ms", Unit::Ratio).contains("ratio"));
        assert!(refused("120ms", Unit::Ns).contains("no side"));
        assert!(refused("<= fast", Unit::Ns).contains("no number"));
    }
}
