//! A budget for runs like one that is there, with room for its own noise.

use std::fmt::Write;

use super::measure::{Statistic, Value, Wanted, parse};
use crate::baseline::Baseline;

/// Room beside the noise: what may change without anybody minding.
const ROOM: f64 = 0.03;

/// The text of a budget that the runs are within, as TOML. Each limit leaves twice the half width of the value's confidence
/// interval, and 3 % of the value at least.
#[must_use]
pub fn propose(runs: &[Baseline]) -> String {
    let mut text = String::from(
        "# What a run may take. Times are those of a step; where a measure is of single ranks, of the worst one.\n\
         # `gputrace check RECORDING --budget THIS` judges it: 0 within, 1 over, 2 could not be judged.\n\n",
    );
    if let Ok(step) = (Wanted::Step(Statistic::P50)).of(runs) {
        line(&mut text, "step.p50", &time(upper(&step)));
    }
    for name in [
        "exposed_communication",
        "idle.worst",
        "idle.host_late",
        "idle.nothing_submitted",
    ] {
        if let Some(value) = of(name, runs).filter(|value| value.value > 0.0) {
            line(&mut text, name, &time(upper(&value)));
        }
    }
    if let Some(value) = of("overlap.min", runs) {
        let room = room(&value);
        let least = ((value.value - room).max(0.0) * 1000.0).floor() / 1000.0;
        line(&mut text, "overlap.min", &format!(">= {least}"));
    }
    line(&mut text, "lost.rows", "= 0");
    let missing = runs.iter().map(|run| run.job_ranks.count_missing()).max();
    if let Some(missing) = missing.filter(|missing| *missing > 0) {
        line(&mut text, "ranks.missing", &format!("<= {missing}"));
    }
    text
}

fn of(name: &str, runs: &[Baseline]) -> Option<Value> {
    let path: Vec<String> = name.split('.').map(str::to_owned).collect();
    parse(&path)?.0.of(runs).ok()
}

fn room(value: &Value) -> f64 {
    let noise = value.estimate.and_then(|estimate| estimate.half_width());
    (2.0 * noise.unwrap_or(0.0)).max(ROOM * value.value)
}

/// The value and its room, in nanoseconds.
fn upper(value: &Value) -> f64 {
    value.value + room(value)
}

/// Rounded up to four digits.
fn time(ns: f64) -> String {
    let (unit, scale) = match ns {
        ns if ns >= 1e9 => ("s", 1e9),
        ns if ns >= 1e6 => ("ms", 1e6),
        ns if ns >= 1e3 => ("us", 1e3),
        _ => ("ns", 1.0),
    };
    let value = ns / scale;
    let digits = 3 - (value.max(1.0).log10().floor() as i32).min(3);
    let step = 10f64.powi(-digits);
    let places = usize::try_from(digits).unwrap_or(0);
    format!("<= {:.places$}{unit}", (value / step).ceil() * step)
}

fn line(text: &mut String, name: &str, limit: &str) {
    let _ = writeln!(text, "{name} = \"{limit}\"");
}

#[cfg(test)]
mod tests {
    use super::time;

    #[test]
    fn times_are_rounded_up() {
        assert_eq!(time(43_776_669.0), "<= 43.78ms");
        assert_eq!(time(1_000_000_000.0), "<= 1.000s");
        assert_eq!(time(999.0), "<= 999.0ns");
        assert_eq!(time(123_456_700.0), "<= 123.5ms");
    }
}
