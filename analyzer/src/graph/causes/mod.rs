//! What makes a job's steps long, found by mending one thing at a time and replaying all ranks.
//!
//! Each thing that could be mended is a [`Candidate`] with a [`Remedy`]. What it saves is what a step loses in a replay with that
//! alone. Candidates are taken by what they save, the greatest first; one that hardly saves anything beyond those before it is
//! another name for the same time, a symptom, and is left out.

pub(crate) mod advised;
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

/// Something that is worth a sentence.
struct Found {
    what: What,
    saved: Interval,
    /// It is another name for what these tell of, and worth a sentence only where no finding does.
    unless: Vec<Told>,
}

/// What the replays say.
pub(crate) struct Causes {
    found: Vec<Found>,
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
            found: keep(candidates, worth, |remedies| replay.saved(remedies).middle()),
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
        for Found { what, saved, unless } in self.found {
            let is_told = |told: &Told| findings.iter().any(|finding| told.is_told_by(finding));
            if unless.iter().any(is_told) {
                continue;
            }
            match what {
                What::Finding(mut finding) => {
                    set_saved(&mut finding, saved, self.steps);
                    of_own.push(*finding);
                }
                What::Told(it) if is_told(&it) => told.push((it, saved)),
                What::Told(_) => {}
            }
        }
        slow_rank::add_clocks(&mut of_own, findings);
        let is_explained = !of_own.is_empty() || !told.is_empty();
        let uneven_steps = |finding: &Finding| matches!(finding.facts, Facts::UnevenSteps { .. });
        let steps_known = self.whole || of_own.iter().any(uneven_steps);
        findings.retain_mut(|finding| {
            let place = told.iter().position(|(told, _)| told.is_told_by(finding));
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

/// Those that are worth a sentence and no other name for what comes before them. `saves` says what several remedies save together,
/// and `worth` what is worth a sentence. Of some it is not known yet whether a finding will tell them: what is another name for
/// these, and for no finding, stays until that is known.
fn keep(mut candidates: Vec<Candidate>, worth: f64, saves: impl Fn(&[&Remedy]) -> f64) -> Vec<Found> {
    // What is surely saved first.
    candidates.sort_by(|a, b| {
        let key = |candidate: &Candidate| {
            let share = if candidate.tells_who() { 1.0 } else { PREFERRED };
            (share * candidate.saved.low.max(0.0), candidate.saved.middle())
        };
        let (a, b) = (key(a), key(b));
        b.0.total_cmp(&a.0).then_with(|| b.1.total_cmp(&a.1))
    });
    let (mut kept, mut surely) = (Together::default(), Together::default());
    let mut told: Vec<Told> = Vec::new();
    let mut verdicts: Vec<Option<Vec<Told>>> = Vec::new();
    for Candidate { what, saved, remedy } in &candidates {
        let least = worth.max(OF_ITS_OWN * saved.middle());
        let unless = if let Some(with) = kept.with(remedy, least, &saves) {
            // What no rule explains may be anything: no reason to leave out another.
            if !matches!(what, What::Told(Told::Late(_))) {
                kept.add(remedy, Some(with));
            }
            Some(Vec::new())
        } else if !told.is_empty() && surely.with(remedy, least, &saves).is_some() {
            Some(told.clone())
        } else {
            None
        };
        match what {
            _ if unless.is_none() => {}
            What::Finding(_) => surely.add(remedy, None),
            What::Told(Told::Late(_)) => {}
            What::Told(it) => told.push(it.clone()),
        }
        verdicts.push(unless);
    }
    let found = candidates.into_iter().zip(verdicts);
    found
        .filter_map(|(Candidate { what, saved, .. }, unless)| {
            Some(Found {
                what,
                saved,
                unless: unless?,
            })
        })
        .collect()
}

/// Remedies that are taken together.
#[derive(Default)]
struct Together<'a> {
    remedies: Vec<&'a Remedy>,
    /// What they save; `None` where nobody asked yet.
    saved: Option<f64>,
}

impl<'a> Together<'a> {
    /// What they save with one more, where that is so much more at least than without. The first is always worth it.
    fn with(&mut self, one: &'a Remedy, least: f64, saves: &impl Fn(&[&Remedy]) -> f64) -> Option<f64> {
        let with = saves(&[&self.remedies[..], &[one]].concat());
        if self.remedies.is_empty() {
            return Some(with);
        }
        let without = *self.saved.get_or_insert_with(|| saves(&self.remedies));
        (with - without >= least).then_some(with)
    }

    fn add(&mut self, one: &'a Remedy, saved: Option<f64>) {
        self.remedies.push(one);
        self.saved = saved;
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::dag::Node;

    /// Something that saves a nanosecond for each of these nodes.
    fn candidate(what: What, nodes: std::ops::Range<Node>) -> Candidate {
        let saved = nodes.len() as f64;
        Candidate {
            what,
            saved: Interval {
                low: saved,
                high: saved,
            },
            remedy: Remedy {
                work: nodes.map(|node| (node, 0)).collect(),
                ..Remedy::default()
            },
        }
    }

    fn finding(facts: Facts) -> Finding {
        Finding::new(facts, String::new(), String::new())
    }

    fn synchronization(name: &str, nodes: std::ops::Range<Node>) -> Candidate {
        let facts = Facts::Synchronization {
            name: name.to_owned(),
            count: 1,
            waits_ns: 1,
        };
        candidate(What::Finding(Box::new(finding(facts))), nodes)
    }

    /// What is left of findings when causes are put among them: the names of calls, and what else saves.
    fn left(causes: Vec<Candidate>, findings: Vec<Facts>) -> Vec<(String, Option<i64>)> {
        let saves = |remedies: &[&Remedy]| {
            let nodes = remedies.iter().flat_map(|remedy| &remedy.work);
            nodes.collect::<std::collections::BTreeSet<_>>().len() as f64
        };
        let causes = Causes {
            found: keep(causes, 10.0, saves),
            blame: Blame::new(),
            steps: 1,
            whole: true,
            single: false,
        };
        let mut findings: Vec<Finding> = findings.into_iter().map(finding).collect();
        causes.replace_symptoms(&mut findings);
        let name = |finding: &Finding| match &finding.facts {
            Facts::Synchronization { name, .. } => name.clone(),
            Facts::NothingSubmitted { .. } => "host".to_owned(),
            Facts::EventWait { .. } => "event".to_owned(),
            other => panic!("{other:?}"),
        };
        let named = findings.iter().map(|finding| (name(finding), finding.saves_ns));
        named.collect()
    }

    #[test]
    fn what_nobody_tells_of_hides_nothing() {
        let causes = || {
            vec![
                candidate(What::Told(Told::Host(None)), 0..100),
                synchronization("symptom of the host", 0..90),
                synchronization("symptom of a symptom", 0..80),
                synchronization("of its own", 100..150),
                synchronization("symptom of that", 100..140),
            ]
        };
        let host = Facts::NothingSubmitted { idle_ns: 1 };
        let event = Facts::EventWait { idle_ns: 1 };
        let of_its_own = ("of its own".to_owned(), Some(50));
        assert_eq!(
            left(causes(), vec![host.clone(), event.clone()]),
            [("host".to_owned(), Some(100)), of_its_own.clone()]
        );
        let hidden = ("symptom of the host".to_owned(), Some(90));
        assert_eq!(left(causes(), vec![event.clone()]), [hidden, of_its_own]);
        // Waits for events are a symptom of what is told, and only of that.
        let alone = || vec![candidate(What::Told(Told::Host(None)), 0..100)];
        assert_eq!(left(alone(), vec![event]), [("event".to_owned(), None)]);
    }
}
