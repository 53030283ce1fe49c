//! Steps that take longer than those before.
//!
//! Compared with the median of the last 64, and with their usual deviation, so that a job whose steps differ anyway is left alone. Single
//! slow steps that come again after the same number of steps (checkpoints, evaluations) are learned: two of them, equally far apart and about
//! as long, explain the next. Before anything is learned a slow step at a round number (100, 200, ... or one beside it) is taken for a
//! checkpoint, a few times.

use std::collections::VecDeque;

use super::rules::SlowStep;
use crate::clock::duration;
use crate::history::level::centre;
use crate::history::step::Step;

/// First steps, which warm up.
const WARM_UP: u64 = 3;
/// Steps that are compared with.
const STEPS: usize = 64;
/// So many have to be there.
const LEAST_STEPS: usize = 16;
/// Slow steps that are remembered.
const MOST_SPIKES: usize = 16;
/// Slow steps at round numbers that are let pass.
const GRACE: u32 = 4;
/// What counts as round.
const ROUND: u64 = 100;
/// A normal distribution's deviation over its median distance from the middle.
const NORMAL: f64 = 1.4826;

/// Whether a step is where checkpoints and evaluations are in most programs: at 100, 200, ... or beside it.
pub fn is_round(number: u64) -> bool {
    number.saturating_add(1) % ROUND <= 2
}

/// What is known of a job's steps.
#[derive(Debug, Default)]
pub struct Slow {
    seen: u64,
    usual: VecDeque<i64>,
    /// Slow steps one after another: the first's number, and how many.
    row: Option<(u64, u32)>,
    spikes: VecDeque<(u64, i64)>,
    grace: u32,
}

impl Slow {
    /// Takes a step, and says what is wrong with it.
    pub fn step(&mut self, rule: &SlowStep, step: &Step) -> Option<String> {
        self.seen += 1;
        let (number, ns) = (step.number, step.step_ns);
        if self.seen <= WARM_UP {
            return None;
        }
        if self.usual.len() < LEAST_STEPS {
            self.push(ns);
            return None;
        }
        let (median, distance) = centre(&self.usual);
        let deviation = distance as f64 * NORMAL;
        let above = |factor: f64, deviations: f64| {
            ns as f64 > (median as f64 * factor).max(median as f64 + deviations * deviation)
        };
        if !above(rule.factor, 3.0) {
            self.row = None;
            self.push(ns);
            return None;
        }
        let (first, length) = self
            .row
            .map_or((number, 1), |(first, length)| (first, length + 1));
        self.row = Some((first, length));
        if length > rule.in_a_row {
            // It has been told, and is what is usual from now on.
            self.push(ns);
            return None;
        }
        let is_single = above(rule.single_factor, 10.0);
        let is_expected = self.is_expected(first, ns);
        if is_single || length == rule.in_a_row {
            self.remember(first, ns);
        }
        if is_expected {
            return None;
        }
        if length == rule.in_a_row {
            self.push(ns);
            return Some(format!(
                "steps are slow since step {first}: {} ({} before)",
                duration(ns),
                duration(median)
            ));
        }
        if !is_single {
            self.push(ns);
            return None;
        }
        if is_round(number) && self.grace < GRACE && length == 1 {
            self.grace += 1;
            return None;
        }
        Some(format!(
            "step {number} took {}, {:.1} times the usual {}",
            duration(ns),
            ns as f64 / median.max(1) as f64,
            duration(median)
        ))
    }

    fn push(&mut self, ns: i64) {
        if self.usual.len() == STEPS {
            self.usual.pop_front();
        }
        self.usual.push_back(ns);
    }

    fn remember(&mut self, number: u64, ns: i64) {
        if self.spikes.back().is_some_and(|(last, _)| *last == number) {
            return;
        }
        if self.spikes.len() == MOST_SPIKES {
            self.spikes.pop_front();
        }
        self.spikes.push_back((number, ns));
    }

    /// Whether two slow steps before were as far apart as this one is from the second, and as long.
    fn is_expected(&self, number: u64, ns: i64) -> bool {
        let is_alike = |other: i64| ns <= other.saturating_mul(2) && other <= ns.saturating_mul(2);
        self.spikes.iter().any(|&(second, second_ns)| {
            let Some(period) = number.checked_sub(second).filter(|period| *period >= 4) else {
                return false;
            };
            let first = second.checked_sub(period);
            is_alike(second_ns)
                && self.spikes.iter().any(|&(other, other_ns)| {
                    first.is_some_and(|first| other.abs_diff(first) <= 1) && is_alike(other_ns)
                })
        })
    }
}
