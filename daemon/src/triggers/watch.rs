//! All rules of one job, as they follow it.

use std::collections::BTreeMap;

use super::fired::Fired;
use super::hang::{Hang, Live};
use super::late::Late;
use super::overlap::Overlap;
use super::rules::{Kind, Rules};
use super::slow::Slow;
use crate::history::step::Step;

/// So long it is waited, before one that died is told of, whether the whole job ends, nanoseconds.
const DEATH_NS: i64 = 2_000_000_000;

/// What a job is watched for, and what is known of it for that.
#[derive(Debug, Default)]
pub struct Watch {
    slow: Slow,
    late: Late,
    overlap: Overlap,
    hang: Hang,
    /// Processes that died: when, and their ranks.
    deaths: Vec<(i64, u32)>,
    /// When each was last told of.
    told: BTreeMap<(Kind, Option<u32>), i64>,
    /// When something was last kept since another node found it.
    kept: BTreeMap<Kind, i64>,
    step: Option<u64>,
}

impl Watch {
    /// Whether what another node found of this kind is to be kept here: not if one was found or kept here within the cooldown.
    pub fn keeps_too(&mut self, rules: &Rules, kind: Kind, now_ns: i64) -> bool {
        let is_quiet = |at: &i64| now_ns.saturating_sub(*at) < rules.cooldown_ns(kind);
        let is_told = self.told.iter().any(|((of, _), at)| *of == kind && is_quiet(at));
        if is_told || self.kept.get(&kind).is_some_and(is_quiet) {
            return false;
        }
        self.kept.insert(kind, now_ns);
        true
    }

    /// Takes a step.
    pub fn step(&mut self, rules: &Rules, step: &Step) -> Vec<Fired> {
        self.step = Some(step.number);
        let slow = self.slow.step(&rules.slow_step, step);
        let late = self.late.step(&rules.late_rank, step);
        let overlap = self.overlap.step(&rules.overlap_lost, step);
        let found = slow
            .map(|title| (Kind::SlowStep, None, title))
            .into_iter()
            .chain(
                late.into_iter()
                    .map(|(rank, title)| (Kind::LateRank, Some(rank), title)),
            )
            .chain(overlap.map(|title| (Kind::OverlapLost, None, title)));
        let found: Vec<_> = found.collect();
        found
            .into_iter()
            .filter_map(|(kind, rank, title)| self.event(rules, kind, rank, title, step.end_ns))
            .collect()
    }

    /// Time passes. `steps`: how many there were, and the median of the last.
    pub fn look(
        &mut self,
        rules: &Rules,
        live: &[Live],
        steps: (u64, Option<i64>),
        now_ns: i64,
    ) -> Vec<Fired> {
        let mut found = Vec::new();
        if let Some(title) = self.hang.look(&rules.hang, live, steps, now_ns) {
            found.extend(self.event(rules, Kind::Hang, None, title, now_ns));
        }
        let due: Vec<(i64, u32)> = self
            .deaths
            .extract_if(.., |(died_ns, _)| now_ns.saturating_sub(*died_ns) >= DEATH_NS)
            .collect();
        for (_, rank) in due {
            // A job that is ended as a whole dies within moments.
            if !live.is_empty() {
                let title = format!("rank {rank} died, {} others live", live.len());
                found.extend(self.event(rules, Kind::ProcessDead, Some(rank), title, now_ns));
            }
        }
        found
    }

    /// A process died.
    pub fn died(&mut self, rank: u32, now_ns: i64) {
        self.deaths.push((now_ns, rank));
    }

    /// A process that had died is back: its connection alone was lost.
    pub fn lives(&mut self, rank: u32) {
        self.deaths.retain(|(_, of)| *of != rank);
    }

    /// Something was noticed: it is reported unless it was within the cooldown.
    pub fn event(
        &mut self,
        rules: &Rules,
        kind: Kind,
        rank: Option<u32>,
        title: String,
        now_ns: i64,
    ) -> Option<Fired> {
        let told = self.told.get(&(kind, rank)).copied();
        let is_quiet = told.is_some_and(|told| now_ns.saturating_sub(told) < rules.cooldown_ns(kind));
        if !rules.is_enabled(kind) || is_quiet {
            return None;
        }
        // What is past its cooldown says nothing any more.
        self.told
            .retain(|(kind, _), told| now_ns.saturating_sub(*told) < rules.cooldown_ns(*kind));
        self.told.insert((kind, rank), now_ns);
        Some(Fired {
            trigger: kind,
            time_ns: now_ns,
            step: self.step,
            rank,
            title,
            recording: None,
        })
    }
}
