//! What makes a job's steps long, found by mending one thing at a time and replaying all ranks.
//!
//! Each thing that could be mended is a [`Candidate`] with a [`Remedy`]. What it saves is what a step loses in a replay with that
//! alone. Candidates are taken by what they save, the greatest first; one that hardly saves anything beyond those before it is
//! another name for the same time, a symptom, and is left out.

mod candidate;
mod collectives;
mod host;
mod replay;
mod slow_communicator;
mod slow_rank;
mod uneven;
mod waits;

use gputrace_trace::Interner;

use super::blame::{Blame, blame};
use super::job::Job;
use super::nodes::Part;
use super::whatif::{Baseline, Interval};
use crate::facts::Facts;
use crate::finding::Finding;
use candidate::{Candidate, Told, WORTH_A_SENTENCE, What};
use replay::{Remedy, Replay};

/// What saves less than this share of its own beyond the findings before it is a symptom of these.
const OF_ITS_OWN: f64 = 0.3;
/// Of two names for the same time one that says which ranks take longer than others is preferred, if it saves this share.
const PREFERRED: f64 = 0.75;

/// What the replays say.
pub(crate) struct Causes {
    found: Vec<(What, Interval)>,
    /// Who came last to collectives, and whose fault it was.
    pub(crate) blame: Blame,
    /// Steps of the recording.
    steps: usize,
    /// Whether all of them were replayed.
    whole: bool,
    /// Whether there is a single one: why a rank was late when it began is not in it.
    single: bool,
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
        let worth = WORTH_A_SENTENCE * baseline.kept_ns;
        let ways: [fn(&Replay<'_>) -> Option<Candidate>; 12] = [
            slow_rank::on_device,
            slow_rank::on_host,
            slow_rank::unexplained,
            slow_communicator::slow_communicator,
            uneven::work,
            uneven::steps,
            waits::synchronization,
            waits::pageable,
            collectives::exposed,
            collectives::small,
            host::host,
            host::peers,
        ];
        let candidates = ways.iter().filter_map(|way| way(&replay));
        let candidates = candidates.filter(|candidate| candidate.saved.middle() > worth);
        let candidates: Vec<Candidate> = candidates.collect();
        Some(Self {
            found: keep(&replay, candidates),
            blame: blame(job, &replay.typical(Part::is_own).work),
            steps,
            whole: steps == job.steps.len(),
            single: job.steps.len() == 1,
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
        let is_explained = !of_own.is_empty() || !told.is_empty();
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
                    let Some(place) = place else {
                        return self.single && matches!(finding.facts, Facts::LateRank { .. });
                    };
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
                Facts::EventWait { .. } | Facts::QueueFull { .. } => !is_explained,
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
    let (mut together, mut late) = (0.0, None);
    for candidate in candidates {
        let with = if kept.is_empty() {
            replay.saved(&[&candidate.remedy]).middle()
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
            with
        };
        // Whether anything tells of it is not known yet, so that it is no reason to leave out another.
        if let What::Told(Told::Late(_)) = candidate.what {
            late = Some((candidate.what, candidate.saved));
            continue;
        }
        together = with;
        kept.push(candidate);
    }
    kept.into_iter()
        .map(|candidate| (candidate.what, candidate.saved))
        .chain(late)
        .collect()
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
