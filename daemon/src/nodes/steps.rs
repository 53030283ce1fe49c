//! Steps over the ranks of all nodes: each daemon tells the others of those that ended here, and takes theirs into its history.
//!
//! How late a rank is, and how long a step took, are differences of durations, so that nodes' clocks don't matter: when a step of
//! another node was is not told but how long ago it ended. What a node does not tell in time is missing in the step, and counted.

use gputrace_trace::daemon::StepReport;

use super::said::{Said, Steps, ToldStep};
use crate::clock::now_ns;
use crate::history::step::{RankStep, is_sane};
use crate::jobs::Job;
use crate::nodes::is_shared;
use crate::state::State;

/// Steps of single ranks in one message: a third of the longest line.
const MOST_STEPS: usize = 1 << 13;

impl ToldStep {
    fn new(rank: u32, step: &StepReport, now_ns: i64) -> Self {
        let end_ns = step.start_ns.saturating_add(step.duration_ns);
        Self(
            rank,
            step.number,
            now_ns.saturating_sub(end_ns).max(0),
            step.duration_ns,
            step.communication_ns,
            step.compute_ns,
            step.exposed_ns,
            step.idle_ns,
        )
    }

    /// As a report, by our clock.
    fn report(&self, now_ns: i64) -> StepReport {
        let Self(_, number, ago_ns, duration_ns, communication_ns, compute_ns, exposed_ns, idle_ns) = *self;
        StepReport {
            number,
            start_ns: now_ns.saturating_sub(ago_ns).saturating_sub(duration_ns),
            duration_ns,
            communication_ns,
            compute_ns,
            exposed_ns,
            idle_ns,
        }
    }
}

impl State {
    /// The job here that a part elsewhere belongs to.
    pub(super) fn part_of(&self, uid: u32, group: &str) -> Option<String> {
        let is_it = |job: &&Job| job.uid == uid && job.key.group == group && job.live().next().is_some();
        let found = self.jobs.values().find(is_it)?;
        is_shared(group).then(|| found.id.clone())
    }

    /// Tells the other nodes of steps that have ended here.
    pub(crate) fn tell_steps(&mut self) {
        let Some(others) = &self.others else { return };
        let now_ns = now_ns();
        let host = &self.settings.host;
        let mut jobs: Vec<Steps> = Vec::new();
        let mut count = 0;
        let say = |jobs: Vec<Steps>| {
            if !jobs.is_empty() {
                let host = host.clone();
                others.tell(&Said::Steps { host, jobs });
            }
        };
        for job in self.jobs.values_mut() {
            let untold = job.ranks.take_untold();
            for part in untold.chunks(MOST_STEPS) {
                if count + part.len() > MOST_STEPS {
                    say(std::mem::take(&mut jobs));
                    count = 0;
                }
                count += part.len();
                let steps = part.iter().map(|(rank, step)| ToldStep::new(*rank, step, now_ns));
                jobs.push(Steps {
                    uid: job.uid,
                    group: job.key.group.clone(),
                    steps: steps.collect(),
                });
            }
        }
        say(jobs);
    }

    /// Takes what a node says of its steps.
    pub(super) fn hear_steps(&mut self, host: &str, of: &Steps) {
        let Some(id) = self.part_of(of.uid, &of.group) else {
            return;
        };
        let now_ns = now_ns();
        let Some(job) = self.jobs.get_mut(&id) else { return };
        for told in of.steps.iter().take(MOST_STEPS) {
            let (rank, report) = (told.0, told.report(now_ns));
            if !is_sane(&report) {
                self.sums.nonsense += 1;
                continue;
            }
            if is_here(job, rank) || !job.ranks.is_of(rank, host) {
                // Counted as what does not come in time is: nothing waits for it.
                if !std::mem::replace(&mut job.ranks.has_complained, true) {
                    self.said.push(format!(
                        "{id}: rank {rank} is told of by {host}, and runs on another node too: its steps from there are left out"
                    ));
                }
                continue;
            }
            let elsewhere = RankStep {
                elsewhere: true,
                ..RankStep::from((rank, report))
            };
            job.history.add(elsewhere, now_ns);
        }
        self.steps_ended(&id, now_ns);
    }

    /// Steps wait for the ranks that run elsewhere, and for those alone.
    pub(crate) fn look_elsewhere(&mut self) {
        let Some(others) = &self.others else { return };
        for job in self.jobs.values_mut() {
            if !is_shared(&job.key.group) || job.live().next().is_none() {
                continue;
            }
            let listed = others.running(job.uid, &job.key.group);
            let here: Vec<u32> = said_ranks(job).collect();
            let (come, gone) = job.ranks.listed(&listed, |rank| here.contains(&rank));
            for rank in gone {
                job.history.forget(rank);
            }
            for rank in come {
                job.history.expect(rank);
            }
        }
    }
}

/// Ranks that processes here have said and that run.
fn said_ranks(job: &Job) -> impl Iterator<Item = u32> {
    job.live().filter_map(|process| process.totals.rank)
}

fn is_here(job: &Job, rank: u32) -> bool {
    said_ranks(job).any(|of| of == rank)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_placed_by_our_clock() {
        let step = StepReport {
            number: 7,
            start_ns: 1000,
            duration_ns: 100,
            communication_ns: Some(40),
            ..StepReport::default()
        };
        // The other clock is at 1150, ours at 1,000,000.
        let told = ToldStep::new(3, &step, 1150);
        let text = serde_json::to_string(&told).expect("written");
        assert_eq!(text, "[3,7,50,100,40,null,null,null]");
        let told: ToldStep = serde_json::from_str(&text).expect("read");
        let report = told.report(1_000_000);
        assert_eq!(
            report,
            StepReport {
                start_ns: 999_850,
                ..step
            }
        );
    }
}
