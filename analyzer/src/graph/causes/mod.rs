//! What makes a job's steps long, found by mending one thing at a time and replaying all ranks.
//!
//! Each thing that could be mended is a [`Candidate`] with a [`Remedy`]. What it saves is what a step loses in a replay with that
//! alone. Candidates are taken by what they save, the greatest first; one that hardly saves anything beyond those before it is
//! another name for the same time, a symptom, and is left out.

mod collectives;
mod replay;
mod slow_communicator;
mod slow_rank;
mod uneven;
mod waits;

use std::collections::BTreeMap;

use gputrace_trace::Interner;

use super::blame::{Blame, blame};
use super::edits::{Change, Edit, Target};
use super::job::Job;
use super::nodes::{Label, Part};
use super::whatif::{Baseline, Interval};
use crate::facts::Facts;
use crate::finding::{CauseLink, Finding};
use replay::{Remedy, Replay};

/// What saves less than this share of a step is no finding.
const WORTH_A_SENTENCE: f64 = 0.02;
/// What saves less than this share of its own beyond the findings before it is a symptom of these.
const OF_ITS_OWN: f64 = 0.3;
/// So many ranks, sets of them, communicators and names are tried: those with most to mend.
const MOST_TRIED: usize = 4;
/// Of two names for the same time one that says which ranks take longer than others is preferred, if it saves this share.
const PREFERRED: f64 = 0.75;
/// One name stands for all host work where mending it saves this share of what mending all does.
const MOST_OF_IT: f64 = 0.7;

/// What a candidate is.
enum What {
    /// A finding, but for what it saves.
    Finding(Box<Finding>),
    /// What findings of single ranks tell of, which know the figures.
    Told(Told),
}

/// Findings that are made of the ranks' times.
#[derive(Clone, Debug, PartialEq)]
enum Told {
    /// Communication without compute; whether it is without for want of beginning earlier.
    Communication { can_begin_earlier: bool },
    /// The host is late; most by this, where one thing is most of it.
    Host(Option<CauseLink>),
    /// The host waits for other ranks.
    Peers,
    /// Copies from pageable memory.
    Pageable,
    /// A rank comes late for no reason that is recorded.
    Late(u32),
}

/// Something that could be mended.
struct Candidate {
    what: What,
    saved: Interval,
    remedy: Remedy,
}

impl Candidate {
    /// Whether it compares ranks with their peers.
    fn tells_who(&self) -> bool {
        let What::Finding(finding) = &self.what else {
            return false;
        };
        matches!(
            finding.facts,
            Facts::SlowRank { .. } | Facts::SlowCommunicator { .. }
        )
    }
}

/// What the replays say.
pub(crate) struct Causes {
    found: Vec<(What, Interval)>,
    /// Who came last to collectives, and whose fault it was.
    pub(crate) blame: Blame,
    /// Steps of the recording.
    steps: usize,
    /// Whether all of them were replayed.
    whole: bool,
}

impl Causes {
    /// Of a job that is `steps` long, more than were replayed perhaps; `None` of one without steps.
    pub(crate) fn of(job: &Job, steps: usize, names: &Interner) -> Option<Self> {
        if !job.has_steps {
            return None;
        }
        let baseline = Baseline::of(job);
        let replay = Replay {
            job,
            names,
            baseline: &baseline,
        };
        let mut candidates: Vec<Candidate> = Vec::new();
        candidates.extend(slow_rank::on_device(&replay));
        candidates.extend(slow_rank::on_host(&replay));
        candidates.extend(slow_rank::unexplained(&replay));
        candidates.extend(slow_communicator::slow_communicator(&replay));
        candidates.extend(uneven::work(&replay));
        candidates.extend(uneven::steps(&replay));
        candidates.extend(waits::synchronization(&replay));
        candidates.extend(waits::pageable(&replay));
        candidates.extend(collectives::exposed(&replay));
        candidates.extend(collectives::small(&replay));
        candidates.extend(host(&replay));
        candidates.extend(peers(&replay));
        Some(Self {
            found: keep(&replay, candidates),
            blame: blame(job, &replay.typical(Part::is_own).work),
            steps,
            whole: steps == job.steps.len(),
        })
    }

    /// Puts the causes among findings that were made of single ranks: these save what a replay says, and symptoms of a cause go.
    pub(crate) fn replace_symptoms(self, findings: &mut Vec<Finding>) {
        let mut of_own: Vec<Finding> = Vec::new();
        let mut told: Vec<(Told, Interval)> = Vec::new();
        for (what, saved) in self.found {
            match what {
                What::Finding(mut finding) => {
                    set_saved(&mut finding, saved, self.steps);
                    of_own.push(*finding);
                }
                What::Told(it) => told.push((it, saved)),
            }
        }
        slow_rank::add_clocks(&mut of_own, findings);
        let uneven_steps = |finding: &Finding| matches!(finding.facts, Facts::UnevenSteps { .. });
        let steps_known = self.whole || of_own.iter().any(uneven_steps);
        findings.retain_mut(|finding| {
            let is_meant = |told: &Told| match (&finding.facts, told) {
                (Facts::ExposedCommunication { .. }, Told::Communication { .. })
                | (Facts::PeerWait { .. }, Told::Peers)
                | (Facts::PageableCopies { .. }, Told::Pageable)
                | (
                    Facts::HostLate { .. } | Facts::ShortKernels { .. } | Facts::NothingSubmitted { .. },
                    Told::Host(_),
                ) => true,
                (Facts::LateRank { .. }, Told::Late(rank)) => finding.rank == Some(*rank),
                _ => false,
            };
            let place = told.iter().position(|(told, _)| is_meant(told));
            match finding.facts {
                Facts::ExposedCommunication { .. }
                | Facts::PeerWait { .. }
                | Facts::PageableCopies { .. }
                | Facts::HostLate { .. }
                | Facts::ShortKernels { .. }
                | Facts::NothingSubmitted { .. }
                | Facts::LateRank { .. } => {
                    let Some(place) = place else { return false };
                    set_saved(finding, told[place].1, self.steps);
                    match &told[place].0 {
                        Told::Host(link) => {
                            finding.cause.extend(link.clone());
                            // The first of them tells it.
                            told.remove(place);
                        }
                        Told::Communication { can_begin_earlier } => finding.evidence.push_str(if *can_begin_earlier {
                            "; collectives wait until the compute before them is over, though their data is there earlier"
                        } else {
                            "; what comes next waits for it, so that it is not known what of this can be hidden: between nothing and what free communication saves"
                        }),
                        _ => {}
                    }
                    true
                }
                // A slow rank is late to the first collective as to all others.
                Facts::LateStart { late_ns, .. } => {
                    let is_its = |cause: &&Finding| finding.rank.is_some_and(|rank| cause.ranks.contains(&rank));
                    let a_step = of_own.iter().filter(is_its);
                    let a_step = a_step.filter_map(|cause| cause.saves_per_step_ns).max();
                    a_step.is_none_or(|a_step| late_ns / 3 > a_step)
                }
                // What is seen of ranks that are slow, of steps that differ, and of streams that wait for either.
                Facts::UnevenCompute { .. } => false,
                Facts::EventWait { .. } | Facts::QueueFull { .. } => of_own.is_empty() && told.is_empty(),
                Facts::UnevenSteps { .. } => !steps_known,
                _ => true,
            }
        });
        findings.append(&mut of_own);
    }
}

/// Those that are worth a sentence and no other name for what comes before them.
fn keep(replay: &Replay<'_>, mut candidates: Vec<Candidate>) -> Vec<(What, Interval)> {
    let worth = WORTH_A_SENTENCE * replay.baseline.kept_ns;
    candidates.retain(|candidate| candidate.saved.middle() > worth);
    // What is surely saved first.
    candidates.sort_by(|a, b| {
        let key = |candidate: &Candidate| {
            let share = if candidate.tells_who() { 1.0 } else { PREFERRED };
            (share * candidate.saved.low.max(0.0), candidate.saved.middle())
        };
        let (a, b) = (key(a), key(b));
        b.0.total_cmp(&a.0).then_with(|| b.1.total_cmp(&a.1))
    });
    let mut kept: Vec<Candidate> = Vec::new();
    let mut together = 0.0;
    for candidate in candidates {
        if kept.is_empty() {
            together = replay.saved(&[&candidate.remedy]).middle();
        } else {
            let all: Vec<&Remedy> = kept
                .iter()
                .map(|kept| &kept.remedy)
                .chain([&candidate.remedy])
                .collect();
            let with = replay.saved(&all).middle();
            if with - together < worth.max(OF_ITS_OWN * candidate.saved.middle()) {
                continue;
            }
            together = with;
        }
        kept.push(candidate);
    }
    kept.into_iter()
        .map(|candidate| (candidate.what, candidate.saved))
        .collect()
}

/// What all hosts do, and the one thing that most of it is.
fn host(replay: &Replay<'_>) -> Option<Candidate> {
    let job = replay.job;
    let none = |target| {
        replay.remedy(Edit {
            target,
            change: Change::None,
        })
    };
    let remedy = none(Target::Host)?;
    let saved = replay.saved(&[&remedy]);
    if saved.middle() < WORTH_A_SENTENCE * replay.baseline.kept_ns {
        return None;
    }
    let mut by_label: BTreeMap<Label, (i64, u32)> = BTreeMap::new();
    for (node, what) in (0u32..).zip(&job.what) {
        if what.part.is_host_work() && what.label != Label::None {
            let entry = by_label.entry(what.label).or_insert((0, node));
            entry.0 = entry.0.saturating_add(replay.work(node));
            if replay.work(node) > replay.work(entry.1) {
                entry.1 = node;
            }
        }
    }
    let mut by_label: Vec<(i64, Label, u32)> = by_label
        .into_iter()
        .map(|(label, (work, node))| (work, label, node))
        .collect();
    by_label.sort_by(|a, b| b.cmp(a));
    let tried = by_label.into_iter().take(MOST_TRIED).map(|(_, label, longest)| {
        let nodes = replay.nodes(|what| what.part.is_host_work() && what.label == label);
        let remedy = Remedy {
            work: nodes.into_iter().map(|node| (node, 0)).collect(),
            ..Remedy::default()
        };
        (replay.saved(&[&remedy]), longest, remedy)
    });
    let best = tried.max_by(|a, b| a.0.middle().total_cmp(&b.0.middle()));
    let one = best.filter(|(of_one, ..)| of_one.middle() >= MOST_OF_IT * saved.middle());
    let (saved, link, remedy) = match one {
        Some((saved, longest, remedy)) => (saved, Some(link(replay, "host", longest)), remedy),
        None => (saved, None, remedy),
    };
    Some(Candidate {
        what: What::Told(Told::Host(link)),
        saved,
        remedy,
    })
}

/// Hosts that wait for other ranks.
fn peers(replay: &Replay<'_>) -> Option<Candidate> {
    let remedy = replay.remedy(Edit {
        target: Target::Idle("peer_wait".to_owned()),
        change: Change::None,
    })?;
    Some(Candidate {
        what: What::Told(Told::Peers),
        saved: replay.saved(&[&remedy]),
        remedy,
    })
}

/// The link of a chain that a node is.
fn link(replay: &Replay<'_>, what: &str, node: u32) -> CauseLink {
    CauseLink {
        what: what.to_owned(),
        rank: replay.rank(node),
        name: super::edits::label_text(replay.job, replay.what(node).label, replay.names),
        start_ns: Some(gputrace_trace::TimeNs(replay.job.began(node))),
    }
}

/// Adds what fits: damaged recordings have times of many years.
fn add(sum: &mut i64, ns: i64) {
    *sum = sum.saturating_add(ns);
}

/// Says what a finding saves.
fn set_saved(finding: &mut Finding, saved: Interval, steps: usize) {
    let per_step = saved.middle().max(0.0) as i64;
    let steps = i64::try_from(steps).unwrap_or(i64::MAX);
    finding.saves_per_step_ns = Some(per_step);
    finding.saves_ns = Some(per_step.saturating_mul(steps));
    finding.saves_low_ns = Some(saved.low as i64);
    finding.saves_high_ns = Some(saved.high as i64);
}
