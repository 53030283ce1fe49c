//! Whether a run is within its budget: limits on what it takes, by themselves or against a baseline.

mod limit;
mod measure;
mod propose;

use serde::Serialize;

use crate::baseline::Baseline;
use crate::diff::difference;
pub use limit::{Limit, Side, Unit};
pub use measure::known;
use measure::{Value, Wanted};
pub use propose::propose;

/// How far from a known name a wrong one may be to be taken for it.
const NEAR: f64 = 0.8;

/// Whether something is within its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Within {
    /// It is.
    Within,
    /// It is not.
    Over,
    /// It can't be judged.
    Unknown,
}

impl Within {
    /// Its word in JSON and in tables.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Within => "within",
            Self::Over => "over",
            Self::Unknown => "unknown",
        }
    }
}

/// A budget: what is limited, in the order in which it was written.
#[derive(Clone, Debug, PartialEq)]
pub struct Budget {
    limits: Vec<(String, Wanted, Unit, Limit)>,
}

/// One limit, judged.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Line {
    /// What is limited, as the budget names it.
    pub measure: String,
    /// The limit as it was written.
    pub limit: String,
    /// "ns", "ratio" or "count".
    pub unit: &'static str,
    /// The greatest or smallest value that is within; null where the baseline that it rests on has none.
    pub limit_value: Option<f64>,
    /// What the run has; null where it has not got it.
    pub value: Option<f64>,
    /// What the baseline has; null of limits that need none.
    pub baseline: Option<f64>,
    /// How far the value is from the limit: negative where it is over.
    pub margin: Option<f64>,
    /// From here ...
    pub low: Option<f64>,
    /// ... to here: the value's 95 % confidence interval, of a limit against a baseline that of the change. Null where steps don't
    /// tell.
    pub high: Option<f64>,
    /// Whether that interval lies on one side of the limit; null likewise.
    pub sure: Option<bool>,
    /// The answer.
    pub verdict: Within,
    /// Why it can't be judged; null where it can.
    pub why: Option<String>,
}

/// A run held against its budget.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Check {
    /// "gputrace.check/1".
    pub schema: &'static str,
    /// What was checked.
    pub source: Vec<String>,
    /// "cuda", "sim" or "imported".
    pub device: String,
    /// What it was compared with.
    pub baseline: Vec<String>,
    /// "over" if any line is; else "unknown" if any is; else "within".
    pub verdict: Within,
    /// By limit.
    pub lines: Vec<Line>,
}

impl Budget {
    /// Reads a budget: names by the parts between their dots, and the limits as they are written.
    ///
    /// # Errors
    /// Which line is wrong, and how it is written; of a wrong name the nearest that there is.
    pub fn parse(lines: impl IntoIterator<Item = (Vec<String>, String)>) -> Result<Self, String> {
        let limits = lines.into_iter().map(|(path, text)| {
            let name = name_of(&path);
            let (wanted, unit) = measure::parse(&path).ok_or_else(|| no_such(&name))?;
            let limit = Limit::parse(&text, unit).map_err(|why| format!("{name}: {why}"))?;
            Ok((name, wanted, unit, limit))
        });
        let limits: Vec<_> = limits.collect::<Result<_, String>>()?;
        match limits.is_empty() {
            true => Err(
                "it limits nothing: write step.p50 = \"<= 120ms\", say, or let --init write one".to_owned(),
            ),
            false => Ok(Self { limits }),
        }
    }

    /// Whether any limit needs a baseline.
    #[must_use]
    pub fn needs_baseline(&self) -> bool {
        self.limits.iter().any(|(.., limit)| limit.is_relative())
    }

    /// Holds runs of one kind, at least one, against it. `baseline` may be empty where no limit needs one.
    #[must_use]
    pub fn check(&self, runs: &[Baseline], baseline: &[Baseline]) -> Check {
        let allowed = self
            .limits
            .iter()
            .any(|(_, wanted, ..)| *wanted == Wanted::MissingRanks);
        let lines: Vec<Line> = self
            .limits
            .iter()
            .map(|(name, wanted, unit, limit)| {
                let mut line = line(name, wanted, *unit, limit, runs, baseline);
                if !allowed && *wanted != Wanted::Steps {
                    line.lacks_ranks(runs);
                }
                line
            })
            .collect();
        let any = |verdict| lines.iter().any(|line| line.verdict == verdict);
        let sources = |runs: &[Baseline]| runs.iter().map(|run| run.source.clone()).collect();
        Check {
            schema: "gputrace.check/1",
            source: sources(runs),
            device: runs.first().map_or_else(String::new, |run| run.device.clone()),
            baseline: sources(baseline),
            verdict: match (any(Within::Over), any(Within::Unknown)) {
                (true, _) => Within::Over,
                (_, true) => Within::Unknown,
                _ => Within::Within,
            },
            lines,
        }
    }
}

impl Line {
    /// What is within its limit without some ranks may be over it with them: unless the budget says how many may be missing, that can't
    /// be judged.
    fn lacks_ranks(&mut self, runs: &[Baseline]) {
        if self.verdict != Within::Within {
            return;
        }
        if let Some(sentence) = runs.iter().find_map(|run| run.job_ranks.sentence()) {
            self.verdict = Within::Unknown;
            self.why = Some(format!(
                "{sentence}; `ranks.missing = \"<= N\"` in the budget allows that"
            ));
        }
    }
}

/// A name as it is written in a budget.
fn name_of(path: &[String]) -> String {
    let plain = |part: &String| {
        part.chars()
            .all(|letter| letter.is_alphanumeric() || "_-".contains(letter))
    };
    let parts: Vec<String> = path
        .iter()
        .map(|part| match plain(part) {
            true => part.clone(),
            false => format!("\"{part}\""),
        })
        .collect();
    parts.join(".")
}

fn no_such(name: &str) -> String {
    let known = known();
    let near = known
        .iter()
        .map(|known| (strsim::jaro_winkler(name, known), known))
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .filter(|(near, _)| *near >= NEAR);
    match near {
        Some((_, near)) => format!("there is no measure {name}: did you mean {near}?"),
        None => format!(
            "there is no measure {name}: there are step, steps, idle, lost, arrivals, kernel, operator, module, collective and those of \
             `analyze --json`'s `measures` (overlap, exposed_communication, ...)"
        ),
    }
}

fn line(
    name: &str,
    wanted: &Wanted,
    unit: Unit,
    limit: &Limit,
    runs: &[Baseline],
    baseline: &[Baseline],
) -> Line {
    let mut line = Line {
        measure: name.to_owned(),
        limit: limit.to_string(),
        unit: unit.word(),
        limit_value: limit.value(None),
        value: None,
        baseline: None,
        margin: None,
        low: None,
        high: None,
        sure: None,
        verdict: Within::Unknown,
        why: None,
    };
    let found = match wanted.of(runs) {
        Ok(found) => found,
        Err(why) => {
            line.why = Some(why);
            return line;
        }
    };
    line.value = Some(found.value);
    let before = match (limit.is_relative(), baseline.is_empty()) {
        (false, _) => None,
        (true, true) => {
            line.why =
                Some("it is a limit against a baseline, and there is none: --baseline PATH".to_owned());
            return line;
        }
        (true, false) => match wanted.of(baseline) {
            Ok(before) => Some(before),
            Err(why) => {
                line.why = Some(format!("the baseline lacks it: {why}"));
                return line;
            }
        },
    };
    line.baseline = before.map(|before| before.value);
    let Some(limit_value) = limit.value(line.baseline) else {
        return line;
    };
    line.limit_value = Some(limit_value);
    line.margin = Some(match limit.side {
        Side::Exactly => -(found.value - limit_value).abs(),
        side if side.is_upper() => limit_value - found.value,
        _ => found.value - limit_value,
    });
    let holds = limit.side.holds(found.value, limit_value);
    let interval = interval(&found, before.as_ref());
    if let Some((low, high, _)) = interval {
        (line.low, line.high) = (Some(low), Some(high));
        // Of a change, the limit on the change.
        let edge = limit_value - line.baseline.unwrap_or(0.0);
        line.sure = Some(edge < low || high < edge);
    }
    let losses = runs.iter().chain(baseline.iter().filter(|_| before.is_some()));
    let loss = losses
        .flat_map(|run| &run.losses)
        .find(|loss| wanted.touched_by(&loss.affects));
    // Beyond the limit by what may be no change at all says nothing.
    let is_noise =
        !holds && interval.is_some_and(|(low, high, is_change)| is_change && low <= 0.0 && high >= 0.0);
    line.verdict = match (loss, is_noise, holds) {
        (Some(loss), ..) => {
            line.why = Some(format!("it rests on what was lost: {}", loss.what));
            Within::Unknown
        }
        (None, true, _) => {
            line.why = Some(
                "the change may be none: its interval holds 0; more steps, or several runs of each, would tell".to_owned(),
            );
            Within::Unknown
        }
        (None, false, true) => Within::Within,
        (None, false, false) => Within::Over,
    };
    // A sample that is too small for an interval says nothing of a change either.
    if before.is_some() && found.estimate.is_some() && interval.is_none() && line.why.is_none() {
        line.verdict = Within::Unknown;
        line.why = Some("too few steps to tell a change from chance".to_owned());
    }
    line
}

/// The value's 95 % confidence interval, or that of its change against the baseline; and whether it is a change's.
fn interval(found: &Value, before: Option<&Value>) -> Option<(f64, f64, bool)> {
    let own = found.estimate?;
    match before {
        Some(before) => {
            let change = difference(&before.estimate?, &own);
            let half = change.half_width?;
            Some((change.change - half, change.change + half, true))
        }
        None => {
            let half = own.half_width()?;
            Some((own.value - half, own.value + half, false))
        }
    }
}
