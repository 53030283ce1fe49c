//! What makes a job's steps long, found by mending one thing at a time and replaying all ranks.

use std::collections::{BTreeMap, BTreeSet};

use gputrace_trace::{Interner, TimeNs};
use rustc_hash::FxHashMap;

use super::candidates;
use super::edits::{self, Change, Changed, Edit, Target, label_text};
use super::job::Job;
use super::nodes::{Label, Part};
use super::peers;
use super::whatif::{Baseline, Interval};
use crate::facts::Facts;
use crate::finding::{CauseLink, Finding};
use crate::units::duration;

/// What saves less than this share of a step is no finding.
const WORTH_A_SENTENCE: f64 = 0.02;
/// Several ranks are named together where that saves so many times what the best one alone does.
const TOGETHER: f64 = 1.3;
/// So many ranks, sets of them and communicators are tried: those that take most longer than their peers.
const MOST_TRIED: usize = 4;
/// A rank is among the slow ones where it works so many times as long as the median.
const SLOW: f64 = 1.05;

/// What the replays say.
pub(crate) struct Causes {
    /// Findings of their own.
    found: Vec<Finding>,
    /// What a step loses when all communication takes no time.
    communication: Interval,
    /// When the host takes no time.
    host: Interval,
    step_ns: f64,
    /// Steps of the recording.
    steps: usize,
}

impl Causes {
    /// Of a job with more than one step; `None` of others.
    pub(crate) fn of(job: &Job, steps: usize, names: &Interner) -> Option<Self> {
        if job.steps.len() < 2 {
            return None;
        }
        let baseline = Baseline::of(job);
        let replay = Replay {
            job,
            names,
            baseline: &baseline,
        };
        let none = |target| {
            replay
                .saves(&[Edit {
                    target,
                    change: Change::None,
                }])
                .unwrap_or_default()
        };
        let mut causes = Self {
            found: Vec::new(),
            communication: none(Target::Communication),
            host: none(Target::Host),
            step_ns: baseline.kept_ns,
            steps,
        };
        if let Some(finding) = replay.slow_ranks() {
            causes.found.push(finding);
        }
        if let Some(finding) = replay.slow_communicator() {
            causes.found.push(finding);
        }
        for finding in &mut causes.found {
            finding.saves_ns = finding.saves_per_step_ns.map(|ns| over_run(ns, steps));
        }
        Some(causes)
    }

    /// Puts the causes among findings that were made of single ranks: these save what a replay says, and symptoms of a cause go.
    pub(crate) fn replace_symptoms(mut self, findings: &mut Vec<Finding>) {
        let slow: BTreeSet<u32> = self
            .found
            .iter()
            .flat_map(|finding| finding.ranks.iter().copied())
            .collect();
        for finding in &mut *findings {
            if let (
                Facts::ClockHeldDown {
                    clock_mhz,
                    greatest_mhz,
                    ..
                },
                Some(rank),
            ) = (&finding.facts, finding.rank)
            {
                if !slow.contains(&rank) {
                    continue;
                }
                for cause in self.found.iter_mut().filter(|cause| cause.ranks.contains(&rank)) {
                    // One that is held down all the time never showed what it could be.
                    let of = if *greatest_mhz > 1.01 * *clock_mhz {
                        format!(" of {greatest_mhz:.0}")
                    } else {
                        String::new()
                    };
                    let name = format!("clock held down at {clock_mhz:.0}{of} MHz");
                    cause.evidence = format!("{}; {name}", cause.evidence);
                    cause.cause.insert(
                        0,
                        CauseLink {
                            what: "clock".to_owned(),
                            rank: Some(rank),
                            name,
                            start_ns: None,
                        },
                    );
                }
            }
            let saved = match finding.facts {
                Facts::ExposedCommunication { .. } => self.communication,
                Facts::HostLate { .. } | Facts::ShortKernels { .. } | Facts::NothingSubmitted { .. } => {
                    self.host
                }
                _ => continue,
            };
            set_saved(finding, saved, self.steps);
        }
        let worth = WORTH_A_SENTENCE * self.step_ns;
        findings.retain(|finding| match finding.facts {
            // What is seen of a slow rank, and what is seen of a late one whose lateness costs nothing.
            Facts::LateRank { .. } | Facts::UnevenCompute { .. } => slow.is_empty(),
            // Its clock is in the chain of the cause.
            Facts::ClockHeldDown { .. } => finding.rank.is_none_or(|rank| !slow.contains(&rank)),
            Facts::ExposedCommunication { .. }
            | Facts::HostLate { .. }
            | Facts::ShortKernels { .. }
            | Facts::NothingSubmitted { .. } => finding
                .saves_per_step_ns
                .is_some_and(|saves| saves as f64 >= worth),
            _ => true,
        });
        findings.append(&mut self.found);
    }
}

/// Adds what fits: damaged recordings have times of many years.
fn add(sum: &mut i64, ns: i64) {
    *sum = sum.saturating_add(ns);
}

fn over_run(per_step_ns: i64, steps: usize) -> i64 {
    per_step_ns.saturating_mul(i64::try_from(steps).unwrap_or(i64::MAX))
}

fn set_saved(finding: &mut Finding, saved: Interval, steps: usize) {
    let per_step = saved.middle().max(0.0) as i64;
    finding.saves_per_step_ns = Some(per_step);
    finding.saves_ns = Some(over_run(per_step, steps));
    finding.saves_low_ns = Some(saved.low as i64);
    finding.saves_high_ns = Some(saved.high as i64);
}

/// Replays of one job.
struct Replay<'a> {
    job: &'a Job,
    names: &'a Interner,
    baseline: &'a Baseline,
}

impl Replay<'_> {
    fn changed(&self, edits: &[Edit]) -> Option<Changed> {
        edits::apply(self.job, edits, self.names).ok()
    }

    fn saved(&self, changed: &Changed) -> Interval {
        let predicted = self.baseline.predict(self.job, changed);
        Interval {
            low: self.baseline.kept_ns - predicted.high,
            high: self.baseline.kept_ns - predicted.low,
        }
    }

    fn saves(&self, edits: &[Edit]) -> Option<Interval> {
        Some(self.saved(&self.changed(edits)?))
    }

    /// What the job takes where some nodes take what their peers do.
    fn with(&self, typical: &[i64], is_meant: impl Fn(usize) -> bool) -> Changed {
        let works = self.job.graph.work.iter().zip(typical).enumerate();
        let works = works.map(|(node, (work, typical))| if is_meant(node) { *typical } else { *work });
        Changed {
            work: works.collect(),
            gap: self.job.graph.gap.clone(),
            graph: None,
        }
    }

    /// By node: what it takes its peers; its own work where it has none, or is of another kind.
    fn typical(&self, is_meant: impl Fn(Part) -> bool) -> Vec<i64> {
        let job = self.job;
        let meant = (0u32..).zip(&job.what).filter(|(_, what)| is_meant(what.part));
        let nodes: Vec<u32> = meant.map(|(node, _)| node).collect();
        let mut typical = job.graph.work.clone();
        // Each is compared with all other devices (or communicators): one pass says it for all of them.
        for (node, work) in nodes.iter().zip(peers::as_others(job, &nodes, false)) {
            typical[*node as usize] = work;
        }
        typical
    }

    fn rank(&self, node: usize) -> Option<u32> {
        self.job.devices[self.job.what[node].device as usize].rank
    }

    /// The ranks that are slower than the others, if mending them saves enough.
    fn slow_ranks(&self) -> Option<Finding> {
        let job = self.job;
        let typical = self.typical(|part| {
            matches!(
                part,
                Part::Host | Part::Call | Part::Compute | Part::Copy | Part::Memset
            )
        });
        // By rank: what it works longer than its peers.
        let mut longer: BTreeMap<u32, i64> = BTreeMap::new();
        for (node, (work, typical)) in job.graph.work.iter().zip(&typical).enumerate() {
            if let Some(rank) = self.rank(node) {
                add(longer.entry(rank).or_default(), work.saturating_sub(*typical));
            }
        }
        if longer.len() < 2 {
            return None;
        }
        let mut ranks: Vec<(u32, i64)> = longer.iter().map(|(rank, longer)| (*rank, *longer)).collect();
        ranks.sort_by_key(|(rank, longer)| (-longer, *rank));
        let mut tried: Vec<(Vec<u32>, Interval)> = Vec::new();
        for (rank, _) in ranks.iter().take(MOST_TRIED).filter(|(_, longer)| *longer > 0) {
            let changed = self.with(&typical, |node| self.rank(node) == Some(*rank));
            tried.push((vec![*rank], self.saved(&changed)));
        }
        let mut sets: Vec<(i64, Vec<u32>)> = candidates::sets(job)
            .into_iter()
            .chain(self.all_slow())
            .map(|ranks| (ranks.iter().filter_map(|rank| longer.get(rank)).sum(), ranks))
            .collect();
        sets.sort_by(|a, b| b.cmp(a));
        sets.dedup();
        for (_, ranks) in sets
            .into_iter()
            .take(MOST_TRIED)
            .filter(|(longer, _)| *longer > 0)
        {
            let edit = Edit {
                target: Target::Ranks(ranks.clone()),
                change: Change::AsOthers,
            };
            tried.extend(self.saves(&[edit]).map(|saved| (ranks, saved)));
        }
        let best = |several: bool| {
            let of_kind = tried.iter().filter(|(ranks, _)| (ranks.len() > 1) == several);
            // Of sets that save the same the smaller one.
            of_kind.max_by(|a, b| {
                let key = |one: &(Vec<u32>, Interval)| one.1.middle() * (1.0 - 0.02 * one.0.len() as f64);
                key(a).total_cmp(&key(b))
            })
        };
        let (ranks, saved) = match (best(false), best(true)) {
            (Some(one), Some(more)) if more.1.middle() <= TOGETHER * one.1.middle() => one,
            (_, Some(more)) => more,
            (one, None) => one?,
        };
        (saved.middle() > WORTH_A_SENTENCE * self.baseline.kept_ns)
            .then(|| self.slow_rank_finding(ranks, *saved))
    }

    /// All ranks that work longer than the median.
    fn all_slow(&self) -> Option<Vec<u32>> {
        let mut own: BTreeMap<u32, i64> = BTreeMap::new();
        for (node, what) in self.job.what.iter().enumerate() {
            if matches!(what.part, Part::Compute | Part::Copy | Part::Memset)
                && let Some(rank) = self.job.devices[what.device as usize].rank
            {
                add(own.entry(rank).or_default(), self.job.graph.work[node]);
            }
        }
        let mut works: Vec<i64> = own.values().copied().collect();
        works.sort_unstable();
        let median = *works.get(works.len() / 2)? as f64;
        let slow: Vec<u32> = own
            .iter()
            .filter(|(_, work)| **work as f64 > SLOW * median)
            .map(|(rank, _)| *rank)
            .collect();
        (slow.len() > 1 && slow.len() * 2 <= own.len()).then_some(slow)
    }

    fn slow_rank_finding(&self, ranks: &[u32], saved: Interval) -> Finding {
        let job = self.job;
        let changed = self.changed(&[Edit {
            target: Target::Ranks(ranks.to_vec()),
            change: Change::AsOthers,
        }]);
        let works = changed.map(|changed| changed.work).unwrap_or_default();
        // What most of it is: by kind and name what these ranks lose, and where it is worst.
        let mut lost: FxHashMap<(Part, Label), (i64, i64, usize, i64)> = FxHashMap::default();
        let mut by_part: BTreeMap<Part, i64> = BTreeMap::new();
        for (node, (before, after)) in job.graph.work.iter().zip(&works).enumerate() {
            if before != after {
                let what = &job.what[node];
                let entry = lost.entry((what.part, what.label)).or_insert((0, 0, node, 0));
                add(&mut entry.0, *before);
                add(&mut entry.1, *after);
                if before - after > entry.3 {
                    (entry.2, entry.3) = (node, before - after);
                }
                add(
                    by_part.entry(what.part).or_default(),
                    before.saturating_sub(*after),
                );
            }
        }
        let part = by_part
            .into_iter()
            .max_by_key(|(_, lost)| *lost)
            .map_or(Part::Compute, |(part, _)| part);
        let most = lost
            .iter()
            .filter(|((of, _), _)| *of == part)
            .max_by_key(|((_, label), lost)| (lost.0 - lost.1, *label));
        let (label, own, others, node) = most.map_or((Label::None, 0, 0, 0), |((_, label), lost)| {
            (*label, lost.0, lost.1, lost.2)
        });
        let a_step = |ns: i64| ns / i64::try_from(job.steps.len() * ranks.len()).unwrap_or(1).max(1);
        let (own_ns, others_ns) = (a_step(own), a_step(others));
        let by = match part {
            Part::Compute | Part::Communication => "kernel",
            Part::Copy => "copy",
            Part::Memset => "memset",
            Part::Call | Part::Blocked => "call",
            Part::Host | Part::Arrival | Part::Meeting => "host",
        };
        let name = label_text(job, label, self.names);
        let (waited_ns, collective) = self.waited_for(ranks);
        let listed: Vec<String> = ranks.iter().map(u32::to_string).collect();
        let (who, is, its) = match ranks {
            [one] => (format!("Rank {one}"), "is", "its"),
            _ => (format!("Ranks {}", listed.join(", ")), "are", "their"),
        };
        let times = if others_ns > 0 {
            own_ns as f64 / others_ns as f64
        } else {
            0.0
        };
        let text = match by {
            "kernel" => {
                format!("{who} {is} slower than the others: {its} kernels take longer for the same work")
            }
            "host" | "call" => {
                format!("{who} {is} late: {its} host works longer between launches than those of the others")
            }
            _ => format!("{who} {is} slower than the others: {its} {by} operations take longer"),
        };
        let factor = if times > 0.0 {
            format!(", {times:.2} times as long")
        } else {
            String::new()
        };
        let waits = if waited_ns > 0 {
            format!(
                "; the other ranks wait {} a step for it in {collective}",
                duration(waited_ns)
            )
        } else {
            String::new()
        };
        let rank = match ranks {
            [one] => Some(*one),
            _ => None,
        };
        let mut finding = Finding {
            facts: Facts::SlowRank {
                by: by.to_owned(),
                name: name.clone(),
                own_ns,
                others_ns,
                waited_ns,
            },
            text,
            evidence: format!(
                "most of it {by} {name}: {} a step against {} on the others{factor}{waits}",
                duration(own_ns),
                duration(others_ns)
            ),
            rank,
            device_index: None,
            ranks: ranks.to_vec(),
            saves_ns: None,
            saves_per_step_ns: None,
            saves_low_ns: None,
            saves_high_ns: None,
            cause: vec![CauseLink {
                what: by.to_owned(),
                rank: rank.or_else(|| ranks.first().copied()),
                name,
                start_ns: job.ends.get(node).map(|end| {
                    TimeNs(
                        job.origin
                            .saturating_add(*end)
                            .saturating_sub(job.graph.work[node]),
                    )
                }),
            }],
        };
        if waited_ns > 0 {
            finding.cause.push(CauseLink {
                what: "collective".to_owned(),
                rank: None,
                name: collective,
                start_ns: None,
            });
        }
        set_saved(&mut finding, saved, job.steps.len());
        finding
    }

    /// How long another rank waits in collectives for one of these to come, in the mean of a step, and in which most.
    fn waited_for(&self, ranks: &[u32]) -> (i64, String) {
        let job = self.job;
        let rank = |node: u32| job.devices[job.what[node as usize].device as usize].rank;
        let mut waited: BTreeMap<u32, i64> = BTreeMap::new();
        for (node, what) in (0u32..).zip(&job.what) {
            let Label::Collective(kind) = what.label else {
                continue;
            };
            if what.part != Part::Meeting {
                continue;
            }
            let arrivals = job.graph.waits(node);
            let last = arrivals.iter().max_by_key(|wait| job.ends[wait.of as usize]);
            let Some(last) = last.filter(|last| rank(last.of).is_some_and(|rank| ranks.contains(&rank)))
            else {
                continue;
            };
            let others = arrivals
                .iter()
                .filter(|wait| rank(wait.of).is_none_or(|rank| !ranks.contains(&rank)));
            *waited.entry(kind).or_default() += others
                .map(|wait| job.ends[last.of as usize].saturating_sub(job.ends[wait.of as usize]))
                .sum::<i64>();
        }
        let all: BTreeSet<u32> = job.devices.iter().filter_map(|device| device.rank).collect();
        let others = all.len().saturating_sub(ranks.len()).max(1);
        let total: i64 = waited.values().sum();
        let most = waited.into_iter().max_by_key(|(_, waited)| *waited);
        let name = most.map_or_else(String::new, |(kind, _)| job.kinds[kind as usize].name.clone());
        (
            total / i64::try_from(others * job.steps.len()).unwrap_or(1).max(1),
            name,
        )
    }

    /// A communicator that is slower than others like it, if mending it saves enough.
    fn slow_communicator(&self) -> Option<Finding> {
        let job = self.job;
        let kinds = job
            .kinds
            .iter()
            .map(|kind| kind.communicator_name.as_ref().unwrap_or(&kind.communicator));
        let names: BTreeSet<&String> = kinds.collect();
        if names.len() < 2 {
            return None;
        }
        let typical = self.typical(|part| part == Part::Communication);
        // By communicator: what its transfers take longer than those of others like it.
        let mut longer: BTreeMap<&String, i64> = BTreeMap::new();
        let name_of = |node: usize| match job.what[node].label {
            Label::Collective(kind) if job.what[node].part == Part::Communication => {
                let kind = &job.kinds[kind as usize];
                Some(kind.communicator_name.as_ref().unwrap_or(&kind.communicator))
            }
            _ => None,
        };
        for (node, (work, typical)) in job.graph.work.iter().zip(&typical).enumerate() {
            if let Some(name) = name_of(node) {
                add(longer.entry(name).or_default(), work.saturating_sub(*typical));
            }
        }
        let mut worst: Vec<(i64, &String)> =
            longer.into_iter().map(|(name, longer)| (longer, name)).collect();
        worst.sort_unstable_by(|a, b| b.cmp(a));
        let tried = worst.into_iter().take(MOST_TRIED).map(|(_, name)| {
            let changed = self.with(&typical, |node| name_of(node) == Some(name));
            (name, self.saved(&changed), changed)
        });
        let (name, saved, changed) = tried.max_by(|a, b| a.1.middle().total_cmp(&b.1.middle()))?;
        if saved.middle() <= WORTH_A_SENTENCE * self.baseline.kept_ns {
            return None;
        }
        let kind = job
            .kinds
            .iter()
            .find(|kind| kind.communicator_name.as_ref().unwrap_or(&kind.communicator) == name)?;
        let sum = |works: &[i64]| -> i64 {
            let pairs = works.iter().zip(&job.graph.work).zip(&changed.work);
            pairs
                .filter(|((_, before), after)| before != after)
                .map(|((work, _), _)| *work)
                .sum()
        };
        let members = i64::try_from(kind.ranks.len() * job.steps.len())
            .unwrap_or(1)
            .max(1);
        let (own_ns, others_ns) = (sum(&job.graph.work) / members, sum(&changed.work) / members);
        let mut finding = Finding {
            facts: Facts::SlowCommunicator {
                communicator: kind.communicator.clone(),
                communicator_name: kind.communicator_name.clone(),
                own_ns,
                others_ns,
            },
            text: format!(
                "The links of communicator {name} are slower than those of others: look at the cables, the topology and who shares them"
            ),
            evidence: format!(
                "its transfers take {} a step and rank, where the same on other communicators takes {}",
                duration(own_ns),
                duration(others_ns)
            ),
            rank: None,
            device_index: None,
            ranks: kind.ranks.clone(),
            saves_ns: None,
            saves_per_step_ns: None,
            saves_low_ns: None,
            saves_high_ns: None,
            cause: vec![CauseLink {
                what: "collective".to_owned(),
                rank: None,
                name: kind.name.clone(),
                start_ns: None,
            }],
        };
        set_saved(&mut finding, saved, job.steps.len());
        Some(finding)
    }
}
