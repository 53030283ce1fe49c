//! All rules of one job, as they follow it.

use std::collections::{BTreeMap, BTreeSet};

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
    /// When something was last kept since another node found it, and as what.
    kept: BTreeMap<(Kind, Option<u32>), (i64, Option<String>)>,
    /// What was found here and waits for another node to act upon it.
    held: BTreeSet<(Kind, Option<u32>)>,
    step: Option<u64>,
}

impl Watch {
    /// Whether what another node found is to be kept here: not if the same was found or kept here within the cooldown.
    pub fn keeps_too(&mut self, rules: &Rules, what: (Kind, Option<u32>), now_ns: i64) -> bool {
        // What was found here and not acted upon, since it is the other's to act first, is kept by it.
        let is_quiet = |at: &i64| now_ns.saturating_sub(*at) < rules.cooldown_ns(what.0);
        let is_told = !self.held.contains(&what) && self.told.get(&what).is_some_and(is_quiet);
        if is_told || self.kept.get(&what).is_some_and(|(at, _)| is_quiet(at)) {
            return false;
        }
        self.kept
            .retain(|(kind, _), (at, _)| now_ns.saturating_sub(*at) < rules.cooldown_ns(*kind));
        self.kept.insert(what, (now_ns, None));
        true
    }

    /// As what that is kept.
    pub fn keeps_as(&mut self, what: (Kind, Option<u32>), recording: String) {
        if let Some((_, kept)) = self.kept.get_mut(&what) {
            *kept = Some(recording);
        }
    }

    /// Whether what was found here is kept already, since another node found it too, and as what.
    #[must_use]
    pub fn kept(&self, rules: &Rules, what: (Kind, Option<u32>), now_ns: i64) -> Option<Option<&str>> {
        let (at, recording) = self.kept.get(&what)?;
        (now_ns.saturating_sub(*at) < rules.cooldown_ns(what.0)).then_some(recording.as_deref())
    }

    /// Another node is to act upon this first, or is not waited for any more.
    pub fn hold(&mut self, what: (Kind, Option<u32>), is_held: bool) {
        match is_held {
            true => drop(self.held.insert(what)),
            false => drop(self.held.remove(&what)),
        }
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
