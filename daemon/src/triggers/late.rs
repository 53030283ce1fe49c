//! A rank that the others wait for.

use std::collections::{BTreeMap, VecDeque};

use super::rules::LateRank;
use crate::clock::duration;
use crate::history::step::{Step, median};

/// First steps, which warm up.
const WARM_UP: u64 = 3;
/// Ranks that are told apart, over the job's life.
const MOST_RANKS: usize = 4096;
/// Steps that "before" is the median of.
const STEPS_BEFORE: usize = 64;

/// One rank.
#[derive(Debug, Default)]
struct Rank {
    /// The last steps: number, how late, how long the step, whether that is too much.
    last: VecDeque<(u64, i64, i64, bool)>,
    /// How late it was while it was not.
    before: VecDeque<i64>,
    is_late: bool,
}

/// What is known of a job's ranks.
#[derive(Debug, Default)]
pub struct Late {
    seen: u64,
    ranks: BTreeMap<u32, Rank>,
}

impl Late {
    /// Takes a step, and says which ranks have become late.
    pub fn step(&mut self, rule: &LateRank, step: &Step) -> Vec<(u32, String)> {
        self.seen += 1;
        if self.seen <= WARM_UP {
            return Vec::new();
        }
        let mut found = Vec::new();
        for of in &step.ranks {
            let Some(late_ns) = of.late_ns else { continue };
            if self.ranks.len() >= MOST_RANKS && !self.ranks.contains_key(&of.rank) {
                continue;
            }
            let rank = self.ranks.entry(of.rank).or_default();
            let is_much = late_ns as f64 > rule.share * step.step_ns as f64;
            rank.last.push_back((step.number, late_ns, step.step_ns, is_much));
            while rank.last.len() > rule.of as usize {
                if let Some((_, late_ns, _, false)) = rank.last.pop_front() {
                    rank.before.push_back(late_ns.max(0));
                }
            }
            while rank.before.len() > STEPS_BEFORE {
                rank.before.pop_front();
            }
            let much: Vec<_> = rank.last.iter().filter(|(.., is_much)| *is_much).collect();
            if much.len() * 4 < rule.of as usize {
                rank.is_late = false;
            }
            if much.len() < rule.steps as usize || rank.is_late {
                continue;
            }
            rank.is_late = true;
            let since = much[0].0;
            let mut by: Vec<i64> = much.iter().map(|(_, late_ns, ..)| *late_ns).collect();
            let mut steps: Vec<i64> = much.iter().map(|(_, _, step_ns, _)| *step_ns).collect();
            let mut before: Vec<i64> = rank
                .before
                .iter()
                .copied()
                .chain(
                    rank.last
                        .iter()
                        .filter(|(.., is_much)| !is_much)
                        .map(|(_, ns, ..)| (*ns).max(0)),
                )
                .collect();
            let before = match before.is_empty() {
                true => String::new(),
                false => format!("; before: {}", duration(median(&mut before))),
            };
            found.push((
                of.rank,
                format!(
                    "rank {} is late: {} of {} a step since step {since}{before}",
                    of.rank,
                    duration(median(&mut by)),
                    duration(median(&mut steps)),
                ),
            ));
        }
        found
    }
}
